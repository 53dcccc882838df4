// Fills all vector registers, runs on without a call, and looks whether they are as they were; again and again until
// SIGTERM. Then says how often, and how often they were not. One thread: it is the one that a controller borrows.
#include "vectors.h"

#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>

#define SPINS 20000
#define HELD_SIZE (VECTORS_REGS * VECTORS_SIZE_MAX)

static uint8_t held[HELD_SIZE] __attribute__((aligned(64)));
static volatile sig_atomic_t done;

__attribute__((noinline, noipa)) void vectors_round(uint64_t round)
{
    __asm__ volatile("" : : "r"(round));
}

static void end(int sig)
{
    (void)sig;
    done = 1;
}

static int differs(uint8_t seed)
{
    uint64_t size = vectors_hold(seed, SPINS, held);
    if (size == 0 || size > VECTORS_SIZE_MAX)
        return 1;
    for (uint64_t i = 0; i < VECTORS_REGS * size; i++) {
        if (held[i] != (uint8_t)(seed + i / size / VECTORS_GROUP))
            return 1;
    }
    return 0;
}

int main(void)
{
    uint64_t rounds = 0, wrong = 0;
    if (!(getauxval(AT_HWCAP) & VECTORS_HWCAP)) {
        puts("none");
        return 0;
    }
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    while (!done) {
        wrong += (uint64_t)differs((uint8_t)rounds);
        vectors_round(++rounds);
    }
    printf("rounds %" PRIu64 " wrong %" PRIu64 "\n", rounds, wrong);
    return 0;
}

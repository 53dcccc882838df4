// The program that the bench probes: calls a site as often as it is told and says how long it took.
//
// It knows nothing of probes. Lines on stdin: "run CASE CALLS"; answers on stdout: "ns TOTAL" or
// "no". It first prints "ready".
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t tl_bench_calls(void (*site)(void), uint64_t calls);
void tl_site_nop(void);
void tl_site_nop5(void);
void tl_site_push(void);
void tl_site_ret(void);
void tl_site_endbr64(void);
void tl_site_loop(void);
void tl_site_short(void);
uint64_t tl_site_func(uint64_t x);
uint64_t tl_site_func_helper(uint64_t x);

// A function as the compiler makes it: a frame, a call, registers to keep.
__attribute__((noinline, noipa)) uint64_t tl_site_func_helper(uint64_t x)
{
    return x ^ (x >> 3);
}

__attribute__((noinline, noipa)) uint64_t tl_site_func(uint64_t x)
{
    uint64_t y = tl_site_func_helper(x + 1);
    return x * 3 + y;
}

static const struct {
    const char *name;
    void (*site)(void);
} sites[] = {
    {"nop", tl_site_nop},   {"nop5", tl_site_nop5},       {"push", tl_site_push},
    {"ret", tl_site_ret},   {"endbr64", tl_site_endbr64}, {"func", (void (*)(void))tl_site_func},
    {"loop", tl_site_loop}, {"short", tl_site_short},
};

#define SITE_COUNT (sizeof sites / sizeof sites[0])

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run(const char *name, uint64_t calls)
{
    for (size_t i = 0; i < SITE_COUNT; i++) {
        if (strcmp(name, sites[i].name) != 0)
            continue;
        uint64_t start = now_ns();
        uint64_t made = tl_bench_calls(sites[i].site, calls);
        uint64_t end = now_ns();
        if (made == calls)
            printf("ns %" PRIu64 "\n", end - start);
        else
            printf("no\n");
        return;
    }
    printf("no\n");
}

int main(void)
{
    char line[128];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        const char *word = strtok(line, " "), *name = strtok(NULL, " "), *calls = strtok(NULL, " ");
        if (word && name && calls && strcmp(word, "run") == 0)
            run(name, strtoull(calls, NULL, 10));
        else
            printf("no\n");
    }
    return 0;
}

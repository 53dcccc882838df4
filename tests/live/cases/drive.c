// Calls every form of forms.S a known number of times and prints what came back. Nothing it prints
// depends on probes, so a bare and a probed run must print the same.
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#define ROUNDS 1000

#define FORMS(X)                                                                                   \
    X(thunk_a)                                                                                     \
    X(thunk_b) X(short_pair) X(short_ret) X(short_rep) X(short_four) X(short_five) X(early_return) \
        X(rip_byte) X(rip_long) X(rip_store) X(push_rex) X(lock_first) X(xacquire_first)           \
            X(many_prefixes) X(red_zone) X(misaligned) X(registers_live) X(alias_one)              \
                X(keeps_nothing) X(own_trap)
#define X(name) uint64_t name(uint64_t value);
FORMS(X)
#undef X
uint64_t dense(uint64_t value);
uint64_t call_memory(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t);
uint64_t kernel_only(const uint16_t *value);
uint64_t island_user(uint64_t value);
void jump_back(void);
void loop_short(void);
void jrcxz_first(void);
void jecxz_first(void);
void loopne_first(void);
void jcc_first(void);
void rep_first(void);
extern uint32_t stored;

static volatile sig_atomic_t traps;

static void on_trap(int number)
{
    (void)number;
    traps++;
}

// Calls `form` with the registers that it looks at. edi, ecx and the result are all that matter.
static uint64_t call_with(void (*form)(void), uint64_t rax, uint64_t rcx, uint64_t rdi)
{
    __asm__ volatile("cmp $0, %%rdi\n\tcall *%%rdx"
                     : "+a"(rax), "+c"(rcx), "+D"(rdi)
                     : "d"(form)
                     : "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
    return rax ^ (rcx << 1);
}

static const struct form {
    const char *name;
    uint64_t (*call)(uint64_t);
} forms[] = {
#define X(name) {#name, name},
    FORMS(X)
#undef X
};

static uint64_t raw_forms(uint64_t i)
{
    uint64_t sum = call_with(jump_back, 0, 0, i % 2 ? INT_MAX : 5) & 0xffffffff;
    sum += 3 * call_with(loop_short, 0, 1 + i % 5, 0);
    sum += 5 * call_with(jrcxz_first, 0, i % 2 ? 0x100000000 : 0, 0);
    sum += 7 * call_with(jecxz_first, 0, i % 2 ? 0x100000000 : 1, 0);
    sum += 11 * call_with(loopne_first, 0, 1 + i % 2, i % 3);
    sum += 13 * call_with(jcc_first, 0, 0, i % 2 ? (uint64_t)-1 : 1);
    return sum;
}

static uint64_t copy_form(uint64_t i)
{
    char from[64], to[64] = {0};
    memset(from, (int)(i & 0x7f), sizeof from);
    void *destination = to;
    const void *source = from;
    uint64_t count = i % 64;
    __asm__ volatile("call rep_first"
                     : "+D"(destination), "+S"(source), "+c"(count)
                     :
                     : "rax", "memory");
    return (uint64_t)((char *)destination - to) + (uint64_t)to[0] + (uint64_t)to[63];
}

static double halve(double value, float other);
__attribute__((noinline, noipa)) static double halve(double value, float other)
{
    return value / 2 + (double)other;
}

int main(void)
{
    signal(SIGTRAP, on_trap);
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        uint64_t sum = 0;
        // The names of these return nothing: only that they come back counts.
        int returns = strncmp(forms[f].name, "short_r", 7) && strcmp(forms[f].name, "short_four") &&
                      strcmp(forms[f].name, "short_five") && strcmp(forms[f].name, "keeps_nothing");
        for (uint64_t i = 0; i < ROUNDS; i++) {
            uint64_t value = forms[f].call(i % 17);
            sum = sum * 31 + (returns ? value : 1);
        }
        printf("%s %#jx\n", forms[f].name, (uintmax_t)sum);
    }
    uint64_t sum = 0;
    double real = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint16_t cell = (uint16_t)(1 + i % 9);
        sum = sum * 31 + dense(i % 4) + raw_forms(i) + copy_form(i) + kernel_only(&cell);
        sum += call_memory(1, 2, 3, 4, 5, 6, i, 8) + island_user(1 + i % 5);
        real += halve((double)i, 0.25f);
    }
    // C194: with every signal blocked a trap would kill.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (uint64_t i = 0; i < ROUNDS; i++)
        sum += thunk_b(i);
    printf("sum %#jx real %.6f traps %d stored %#x\n", (uintmax_t)sum, real, (int)traps, stored);
    return 0;
}

// Calls every form of forms.S a known number of times and prints what came back. Nothing it prints
// depends on probes, so a bare and a probed run must print the same.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "forms.h"

#define ROUNDS 1000

static volatile sig_atomic_t traps;

static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    traps++;
    trap_pass(context);
}

static double halve(double value, float other);
__attribute__((noinline, noipa)) static double halve(double value, float other)
{
    return value / 2 + (double)other;
}

static void form_run(const struct form *form)
{
    uint64_t sum = 0;
    if (form->absent) {
        printf("%s absent\n", form->name);
        return;
    }
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t value = form->call(i % 17);
        sum = sum * 31 + (form->silent ? 1 : value);
    }
    printf("%s %#jx\n", form->name, (uintmax_t)sum);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    for (const struct form *form = forms_list(); form->name; form++)
        form_run(form);
    uint64_t sum = 0;
    double real = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        sum = sum * 31 + forms_other(i);
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

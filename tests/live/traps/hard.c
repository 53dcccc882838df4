// Functions that no jump fits: those of x86-64 for what lies around them; all, when started with
// "full", for want of memory in reach. Reads commands, a letter a line, and answers each with
// "ready"; ends with status 0 only if every result was right.
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "code.h"

#define CALLS 1000
#define REACH ((uintptr_t)1 << 31) // of any branch, and more

#define FUNCTION(name, text)                                                                       \
    ".globl " name "\n"                                                                            \
    ".type " name ", %function\n" name ":\n" text ".size " name ", . - " name "\n"
__asm__(".text\n"
        ".balign 16\n" FUNCTION("crowd_one", CROWD) FUNCTION("hard_push", HARD_PUSH)
            FUNCTION("crowd_two", CROWD) FUNCTION("hard_load", HARD_LOAD)
                FUNCTION("crowd_three", CROWD) FUNCTION("hard_alone", HARD_ALONE)
                    FUNCTION("hard_tail", HARD_TAIL) FUNCTION("tail_end", HARD_ALONE));
uint64_t hard_push(uint64_t value, unsigned turns);
uint64_t hard_load(const uint64_t *from, unsigned turns);
uint64_t hard_alone(uint64_t value);
uint64_t hard_tail(uint64_t value); // goes on in tail_end
void crowd_one(void);
void crowd_two(void);
void crowd_three(void);

static void fail(const char *what)
{
    fprintf(stderr, "hard: %s (errno %d)\n", what, errno);
    exit(1);
}

static void call_many(void)
{
    for (uint64_t i = 0; i < CALLS; i++) {
        if (hard_push(i, 2) != i + 7 || hard_load(&i, 1) != i || hard_alone(i) != i + 9 ||
            hard_tail(i) != i + 9)
            fail("wrong result");
    }
}

static void handler_calls(int sig)
{
    (void)sig;
    call_many();
}

static uint64_t there = 99;
static volatile sig_atomic_t faults;

// The faulting instruction must be the function's own, with nothing changed; it is run again.
static void handler_fault(int sig, siginfo_t *info, void *opaque)
{
    ucontext_t *context = opaque;
    (void)sig;
    if (context_pc(context) != (uintptr_t)hard_load || info->si_addr != (void *)16 ||
        context_argument(context) != 16)
        _exit(3);
    context_argument_set(context, (uintptr_t)&there);
    faults++;
}

static void handler_set(int sig, void (*handler)(int), int full)
{
    struct sigaction action = {.sa_handler = handler};
    if (full)
        sigfillset(&action.sa_mask);
    if (sigaction(sig, &action, NULL) != 0)
        fail("sigaction");
}

static void faults_handle(void)
{
    struct sigaction action = {.sa_sigaction = handler_fault, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSEGV, &action, NULL) != 0)
        fail("sigaction");
}

static void trap_block(void)
{
    sigset_t set;
    sigfillset(&set);
    if (pthread_sigmask(SIG_SETMASK, &set, NULL) != 0)
        fail("sigmask");
}

// Nothing more can be mapped there.
static void memory_fill(uintptr_t start, uintptr_t end)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *want = (void *)start; // NOLINT(performance-no-int-to-ptr)
    void *got = mmap(want, end - start, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED || end - start <= page)
        return;
    uintptr_t middle = start + (end - start) / 2 / page * page;
    memory_fill(start, middle);
    memory_fill(middle, end);
}

// A child that takes SIGTRAP for itself, and not its parent's.
static void child_takes(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        call_many();
        handler_set(SIGTRAP, SIG_IGN, 0);
        call_many();
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        fail("the child failed");
}

static int command(char letter)
{
    switch (letter) {
    case 'c':
        call_many();
        break;
    case 'h': // and not a moment later
        handler_set(SIGTRAP, SIG_IGN, 0);
        call_many();
        break;
    case 'k':
        child_takes();
        break;
    case 'b':
        trap_block();
        call_many();
        break;
    case 'm':
        handler_set(SIGUSR1, handler_calls, 1);
        raise(SIGUSR1);
        break;
    case 'f':
        for (int i = 0; i < CALLS; i++) {
            if (hard_load((const uint64_t *)16, 1) != 99)
                fail("wrong result of a fault");
        }
        if (faults != CALLS)
            fail("faults are missing");
        break;
    default:
        return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    char line[16] = "";
    if (argc > 1 && strcmp(argv[1], "faults") == 0)
        faults_handle();
    if (argc > 1 && strcmp(argv[1], "full") == 0) {
        printf("filling\n"); // the stream has its buffer
        memory_fill(0, (uintptr_t)main / REACH * REACH + 2 * REACH);
    }
    crowd_one();
    crowd_two();
    crowd_three();
    do {
        printf("ready\n");
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) && command(line[0]));
    return 0;
}

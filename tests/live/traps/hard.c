// Two functions that no jump fits: linked low, where a branch back leads nowhere, with code on all
// sides, their second instruction a branch's target. Reads commands, a letter a line, and answers
// each with "ready"; ends with status 0 only if every result was right.
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define CALLS 1000

// 0x90 as the last byte of a displacement leads back.
__asm__(".macro crowd name\n"
        ".globl \\name\n"
        ".type \\name, @function\n"
        "\\name:\n"
        ".fill 160, 1, 0x90\n"
        "    ret\n"
        ".size \\name, . - \\name\n"
        ".endm\n"
        ".text\n"
        "crowd crowd_one\n"
        ".globl hard_push\n"
        ".type hard_push, @function\n"
        "hard_push:\n"
        "    push %rbx\n"
        "1:  .fill 6, 1, 0x90\n"
        "    dec %esi\n"
        "    jns 1b\n"
        "    mov %rdi, %rbx\n"
        "    lea 7(%rbx), %rax\n"
        "    pop %rbx\n"
        "    ret\n"
        ".size hard_push, . - hard_push\n"
        "crowd crowd_two\n"
        ".globl hard_load\n"
        ".type hard_load, @function\n"
        "hard_load:\n"
        "    mov (%rdi), %rax\n"
        "1:  .fill 6, 1, 0x90\n"
        "    dec %esi\n"
        "    jns 1b\n"
        "    ret\n"
        ".size hard_load, . - hard_load\n"
        "crowd crowd_three\n");
uint64_t hard_push(uint64_t value, unsigned turns);
uint64_t hard_load(const uint64_t *from, unsigned turns);
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
        if (hard_push(i, 2) != i + 7 || hard_load(&i, 1) != i)
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
    if ((uintptr_t)context->uc_mcontext.gregs[REG_RIP] != (uintptr_t)hard_load ||
        info->si_addr != (void *)16 || context->uc_mcontext.gregs[REG_RDI] != 16)
        _exit(3);
    context->uc_mcontext.gregs[REG_RDI] = (greg_t)(uintptr_t)&there;
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
    crowd_one();
    crowd_two();
    crowd_three();
    do {
        printf("ready\n");
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) && command(line[0]));
    return 0;
}

// What a program may do with signals while breakpoints are in it. Its argument says how it starts;
// then it reads commands, a letter a line, does each, and prints "ready ADDRESS ADDRESS" with its
// two probed functions. It ends with status 0 only if every result was right.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "code.h"

#define CALLS 1000
#define THREADS 8
#define STORM_CALLS 20000
#define STORM_PERIOD_US 300

#define FUNCTION(name, text)                                                                       \
    ".balign 16\n"                                                                                 \
    ".globl " name "\n"                                                                            \
    ".type " name ", %function\n" name ":\n" text ".size " name ", . - " name "\n"
__asm__(".text\n" FUNCTION("probed_push", PROBED_PUSH) FUNCTION("probed_move", PROBED_MOVE));
uint64_t probed_push(uint64_t value);
uint64_t probed_move(uint64_t value);

static void fail(const char *what)
{
    fprintf(stderr, "hazards: %s (errno %d)\n", what, errno);
    exit(1);
}

static void call_once(uint64_t i)
{
    if (probed_push(i) != i + 3 || probed_move(i) != 5 * i)
        fail("wrong result");
}

static void call_many(void)
{
    for (uint64_t i = 0; i < CALLS; i++)
        call_once(i);
}

static volatile sig_atomic_t handled;

static void handler_calls(int sig)
{
    (void)sig;
    int saved = errno;
    call_once((uint64_t)handled);
    handled++;
    errno = saved;
}

static void handler_none(int sig)
{
    (void)sig;
}

static void handler_set(int sig, void (*handler)(int), int flags, int full_mask)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (full_mask)
        sigfillset(&action.sa_mask);
    if (sigaction(sig, &action, NULL) != 0)
        fail("sigaction");
}

static void trap_block(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
        fail("sigmask");
}

// ---- how it starts

static pthread_barrier_t started;

static void *blocking_main(void *opaque)
{
    trap_block();
    pthread_barrier_wait(&started);
    while (pause() != 0)
        ;
    return opaque;
}

static void start_blocked(void)
{
    pthread_t thread;
    pthread_barrier_init(&started, NULL, 2);
    if (pthread_create(&thread, NULL, blocking_main, NULL) != 0)
        fail("thread");
    pthread_barrier_wait(&started);
}

static void start_filtered(void)
{
    struct sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {1, allow};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        fail("seccomp");
}

static void start(const char *how)
{
    if (strcmp(how, "handled") == 0)
        handler_set(SIGTRAP, handler_none, 0, 0);
    else if (strcmp(how, "ignored") == 0)
        handler_set(SIGTRAP, SIG_IGN, 0, 0);
    else if (strcmp(how, "masked") == 0)
        handler_set(SIGUSR1, handler_none, 0, 1);
    else if (strcmp(how, "blocked") == 0)
        start_blocked();
    else if (strcmp(how, "filtered") == 0)
        start_filtered();
}

// ---- commands

static void *thread_main(void *opaque)
{
    call_many();
    return opaque;
}

static void threads_call(void)
{
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&thread[i], NULL, thread_main, NULL) != 0)
            fail("thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

static void child_await(pid_t pid)
{
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        fail("a child failed");
}

static void fork_calls(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        call_many();
        _exit(0);
    }
    child_await(pid);
}

static pid_t child;

// A child that calls until it is ended.
static void child_start(void)
{
    child = fork();
    if (child == 0) {
        for (uint64_t i = 0;; i++)
            call_once(i);
    }
    printf("child %d\n", (int)child);
}

static void child_end(void)
{
    int status = 0;
    if (waitpid(child, &status, WNOHANG) != 0)
        fail("the child ended by itself");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

static void vfork_runs(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    child_await(pid);
}

static void spawn_runs(void)
{
    char *argv[] = {"true", NULL}, *envp[] = {NULL};
    pid_t pid = -1;
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, envp) != 0)
        fail("posix_spawn");
    child_await(pid);
}

// Prints how often the handler called.
static void storm(int flags)
{
    struct itimerval period = {{0, STORM_PERIOD_US}, {0, STORM_PERIOD_US}}, stop = {0};
    handled = 0;
    handler_set(SIGALRM, handler_calls, flags | SA_RESTART, 0);
    setitimer(ITIMER_REAL, &period, NULL);
    for (uint64_t i = 0; i < STORM_CALLS; i++)
        call_once(i);
    setitimer(ITIMER_REAL, &stop, NULL);
    printf("handled %d\n", (int)handled);
}

static void storm_alternate(void)
{
    static uint8_t memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    if (sigaltstack(&stack, NULL) != 0)
        fail("sigaltstack");
    storm(SA_ONSTACK);
}

static void execute_again(void)
{
    execl("/proc/self/exe", "hazards", "plain", (char *)NULL);
    fail("exec");
}

static int command(char letter)
{
    switch (letter) {
    case 'c':
        call_many();
        break;
    case 't':
        threads_call();
        break;
    case 'f':
        fork_calls();
        break;
    case 'p':
        child_start();
        break;
    case 'e':
        child_end();
        break;
    case 'v':
        vfork_runs();
        break;
    case 's':
        spawn_runs();
        break;
    case 'o':
        storm(0);
        break;
    case 'a':
        storm_alternate();
        break;
    case 'b':
        trap_block();
        break;
    case 'h':
        handler_set(SIGTRAP, handler_none, 0, 0);
        break;
    case 'm':
        handler_set(SIGUSR1, handler_none, 0, 1);
        break;
    case 'u':
        handler_set(SIGUSR1, handler_calls, SA_RESTART, 0);
        break;
    case 'i':
        __asm__ volatile(OWN_TRAP);
        break;
    case 'k':
        kill(getpid(), SIGTRAP);
        break;
    case 'x':
        execute_again();
        break;
    default:
        return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    char line[16] = "";
    start(argc > 1 ? argv[1] : "plain");
    do {
        printf("ready %p %p\n", (void *)probed_push, (void *)probed_move);
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) && command(line[0]));
    return 0;
}

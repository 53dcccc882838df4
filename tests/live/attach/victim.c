// The program that live tests attach to. Its first argument says what it does; it prints one line
// "ready ..." when it is at it, reads one line from standard input where it waits for the test, and
// ends with status 0 only if everything it computed, received and waited for was right.
#include "victim.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ALONE_CALLS 1000 // between two looks at the input

#ifndef sigev_notify_thread_id // glibc before 2.37 gives the field no name; musl does
#define sigev_notify_thread_id _sigev_un._tid
#endif

// Two probed functions, in the sites.S of the instruction set.
uint64_t victim_one(uint64_t value);
uint64_t victim_window(uint64_t value);

static void ready(void)
{
    printf("ready %p %p\n", (void *)victim_one, (void *)victim_window);
    fflush(stdout);
}

static void wait_for_line(void)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        exit(0); // the test is gone
}

static void fail(const char *what)
{
    fprintf(stderr, "victim: %s (errno %d)\n", what, errno);
    exit(1);
}

static int argument(char **argv, int index, int otherwise)
{
    return argv[1] && argv[2] && index == 2 ? atoi(argv[2]) : otherwise;
}

// ---- hammer: threads that call the probed functions and check every result
// --------------------------

static volatile int hammer_stop;
static volatile int hammer_go;
static uint64_t hammer_calls; // per thread; 0: until stopped

static void hammer_check(uint64_t i)
{
    if (victim_one(i) != 0x1122334455667788 + i || victim_window(i) != 3 * (i + 3))
        fail("wrong result");
}

static void *hammer_main(void *opaque)
{
    (void)opaque;
    while (!hammer_go)
        sched_yield();
    if (hammer_calls) {
        for (uint64_t i = 0; i < hammer_calls; i++)
            hammer_check(i);
    } else {
        for (uint64_t i = 0; !hammer_stop; i++)
            hammer_check(i);
    }
    return NULL;
}

static void threads_run(int count, size_t stack_size, void *(*run)(void *))
{
    pthread_t *thread = calloc((size_t)count, sizeof *thread);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (stack_size)
        pthread_attr_setstacksize(&attr, stack_size);
    for (int i = 0; i < count; i++) {
        if (pthread_create(&thread[i], &attr, run, NULL) != 0)
            fail("pthread_create");
    }
    ready();
    wait_for_line();
    hammer_stop = 1;
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    free(thread);
}

// Runs freely from the start until a line comes.
static int hammer(int threads)
{
    hammer_go = 1;
    threads_run(threads, 0, hammer_main);
    return 0;
}

// The same in the only thread there is.
static int alone(void)
{
    struct pollfd line = {.fd = STDIN_FILENO, .events = POLLIN};
    ready();
    for (uint64_t i = 0; i % ALONE_CALLS || poll(&line, 1, 0) == 0; i++)
        hammer_check(i);
    return 0;
}

// A known number of calls, after a line; then another line ends it.
static int exact(int threads)
{
    pthread_t thread[256];
    hammer_calls = VICTIM_CALLS;
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, hammer_main, NULL);
    ready();
    wait_for_line();
    hammer_go = 1;
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    ready();
    wait_for_line();
    return 0;
}

// The same where the processor's counter may not be read.
static int blind(int threads)
{
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0)
        fail("PR_SET_TSC");
    return exact(threads);
}

// ---- idle crowd
// -------------------------------------------------------------------------------------

static void *idle_main(void *opaque)
{
    (void)opaque;
    while (!hammer_stop) {
        struct timespec pause = {.tv_nsec = 100000000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static int crowd(int threads)
{
    threads_run(threads, 64 << 10, idle_main);
    return 0;
}

static void *small_stack_main(void *opaque)
{
    (void)opaque;
    char room[2048]; // most of what a thread with the smallest stack has
    memset(room, 1, sizeof room);
    for (uint64_t i = 0; !hammer_stop; i++)
        hammer_check(i + (uint64_t)room[i % sizeof room] - 1);
    return NULL;
}

static int small_stacks(int threads)
{
    threads_run(threads, (size_t)sysconf(_SC_THREAD_STACK_MIN), small_stack_main);
    return 0;
}

// ---- a storm of threads
// -------------------------------------------------------------------------------

static void *drop_main(void *opaque)
{
    hammer_check((uint64_t)(uintptr_t)opaque);
    return NULL;
}

static void *storm_main(void *opaque)
{
    (void)opaque;
    while (!hammer_stop) {
        pthread_t thread[4];
        for (int i = 0; i < 4; i++) {
            if (pthread_create(&thread[i], NULL, drop_main, NULL) != 0)
                fail("pthread_create");
        }
        for (int i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
    }
    return NULL;
}

static int storm(int threads)
{
    threads_run(threads, 0, storm_main);
    return 0;
}

// ---- timers: every signal that was sent must arrive
// -----------------------------------------------------

static _Thread_local volatile unsigned long timer_seen, timer_overrun;

static void timer_handler(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    if (info->si_code != SI_TIMER || info->si_value.sival_int != 4711)
        _exit(3); // the signal's own data must not get lost
    timer_seen++;
    timer_overrun += (unsigned long)info->si_overrun;
}

static void *timer_main(void *opaque)
{
    (void)opaque;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 3};
    struct itimerspec period = {{0, 1000000}, {0, 1000000}};
    struct timespec start, end;
    timer_t timer;
    event.sigev_value.sival_int = 4711;
    event.sigev_notify_thread_id = gettid();
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
        fail("timer_create");
    clock_gettime(CLOCK_MONOTONIC, &start);
    timer_settime(timer, 0, &period, NULL);
    for (uint64_t i = 0; !hammer_stop; i++)
        hammer_check(i);
    timer_delete(timer);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ms =
        (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
    double seen = (double)(timer_seen + timer_overrun);
    if (seen < ms * 0.98 - 25 || seen > ms + 2) {
        fprintf(stderr, "victim: %g timer signals in %g ms\n", seen, ms);
        exit(1);
    }
    return NULL;
}

static int timers(int threads)
{
    struct sigaction action = {.sa_sigaction = timer_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN + 3, &action, NULL);
    threads_run(threads, 0, timer_main);
    return 0;
}

// ---- a handler on an alternate stack
// ------------------------------------------------------------------

static volatile int alternate_in;

static void alternate_handler(int signal)
{
    (void)signal;
    alternate_in = 1;
    while (!hammer_stop)
        hammer_check(5);
}

static void *alternate_main(void *opaque)
{
    static char room[64 << 10];
    (void)opaque;
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_handler = alternate_handler, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    return NULL;
}

static int alternate(void)
{
    threads_run(1, 0, alternate_main);
    return alternate_in ? 0 : 1;
}

// ---- vfork, clone
// ---------------------------------------------------------------------------------------

static int vfork_parent(void)
{
    ready();
    struct timespec pause = {.tv_nsec = 400000000};
    pid_t pid = vfork();
    if (pid == 0) {
        syscall(SYS_nanosleep, &pause, NULL);
        _exit(7);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
        fail("vfork child");
    hammer_check(1);
    wait_for_line();
    return 0;
}

static int clone_child(void *opaque)
{
    (void)opaque;
    for (uint64_t i = 0; !hammer_stop; i++)
        hammer_check(i);
    return 9;
}

// A process, not a thread, that shares the memory (and the thread pointer).
static int clone_memory(void)
{
    static char stack[64 << 10] __attribute__((aligned(16)));
    pid_t pid = clone(clone_child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    int status = 0;
    ready();
    wait_for_line();
    hammer_stop = 1;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 9)
        fail("clone child");
    return 0;
}

// ---- others
// ---------------------------------------------------------------------------------------------

static int spin(void)
{
    ready();
    for (uint64_t i = 0; !hammer_stop; i++)
        hammer_check(i);
    return 0;
}

static int not_dumpable(void)
{
    prctl(PR_SET_DUMPABLE, 0);
    ready();
    wait_for_line();
    return 0;
}

static int forker(void)
{
    hammer_go = 1;
    ready();
    for (int i = 0; i < 300; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (uint64_t k = 0; k < 1000; k++)
                hammer_check(k);
            _exit(5);
        }
        int status = 0;
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 5)
            fail("forked child");
        hammer_check((uint64_t)i);
    }
    ready();
    wait_for_line();
    return 0;
}

// Executes itself again and again, each time with other memory.
static int executes(int rounds)
{
    char count[16];
    (void)snprintf(count, sizeof count, "%d", rounds - 1);
    if (rounds > 0) {
        for (uint64_t i = 0; i < 20000; i++)
            hammer_check(i);
        execl("/proc/self/exe", "victim", "exec", count, (char *)NULL);
        fail("exec");
    }
    ready();
    wait_for_line();
    return 0;
}

static int executes_first(int rounds)
{
    ready();
    return executes(rounds);
}

static int executes_after_line(void)
{
    ready();
    wait_for_line();
    return executes(1);
}

// Ignored signals come all the time; a call with a timeout must not notice that it was held
// meanwhile.
static int ignored_signals(void)
{
    struct epoll_event event;
    int fd = epoll_create1(0);
    ready();
    if (epoll_wait(fd, &event, 1, 1500) != 0)
        fail("epoll_wait");
    wait_for_line();
    return 0;
}

// System calls go to a handler: nobody else may make one here.
static int dispatched(void)
{
    static char selector = 0; // SYSCALL_DISPATCH_FILTER_ALLOW
    if (prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &selector) != 0)
        exit(77);
    ready();
    wait_for_line();
    return 0;
}

static int ends_soon(void)
{
    ready();
    for (uint64_t i = 0; i < 2000000; i++)
        hammer_check(i);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int count);
        int (*run_plain)(void);
    } modes[] = {
        {"hammer", hammer, NULL},
        {"alone", NULL, alone},
        {"exact", exact, NULL},
        {"blind", blind, NULL},
        {"crowd", crowd, NULL},
        {"small", small_stacks, NULL},
        {"storm", storm, NULL},
        {"timers", timers, NULL},
        {"alternate", NULL, alternate},
        {"vfork", NULL, vfork_parent},
        {"clone", NULL, clone_memory},
        {"spin", NULL, spin},
        {"private", NULL, not_dumpable},
        {"fork", NULL, forker},
        {"ends", NULL, ends_soon},
        {"exec", executes, NULL},
        {"exec-wait", NULL, executes_after_line},
        {"exec-first", executes_first, NULL},
        {"ignored", NULL, ignored_signals},
        {"dispatch", NULL, dispatched},
        {"calls", NULL, victim_calls},
        {"filter", victim_filter, NULL},
        {"sequence", NULL, victim_sequence},
    };
    if (argc < 2)
        return 2;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0)
            return modes[i].run ? modes[i].run(argument(argv, 2, 4)) : modes[i].run_plain();
    }
    return 2;
}

void victim_ready(void)
{
    ready();
}

void victim_wait(void)
{
    wait_for_line();
}

void victim_check(void)
{
    hammer_check(3);
}

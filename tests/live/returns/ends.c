// Threads and processes that begin or end inside probed functions, one way per mode, argv[1].
// Prints results that no probe may change, and what probes must have counted (told.h).
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "told.h"

#define THREADS 50u
#define DEPTH 20u
#define CHILDREN 40u
#define STACK_SIZE 65536u

extern char **environ;

static volatile int sure = 1; // so that the compiler does not know what never returns

PROBED uint64_t called(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept + 1;
}

// ---- pthread_exit -------------------------------------------------------------------------------

static uint64_t cleaned;
static void cleans(void *opaque)
{
    __atomic_fetch_add(&cleaned, (uint64_t)(uintptr_t)opaque, __ATOMIC_RELAXED);
}

PROBED uint64_t sinks(uint64_t levels)
{
    volatile uint64_t kept = levels, below = 0;
    pthread_cleanup_push(cleans, (void *)(uintptr_t)(levels + 1));
    if (levels)
        below = sinks(levels - 1);
    else if (sure)
        pthread_exit((void *)(uintptr_t)(7 + called(0)));
    pthread_cleanup_pop(0);
    return below + kept;
}

PROBED void *exits_thread(void *opaque)
{
    volatile uint64_t value = sinks((uint64_t)(uintptr_t)opaque); // no jump to it
    return (void *)(uintptr_t)value;
}

static void thread_exits(void)
{
    uint64_t sum = 0;
    for (uint32_t round = 0; round < THREADS / 5; round++) {
        pthread_t thread[5];
        for (size_t i = 0; i < 5; i++)
            pthread_create(&thread[i], NULL, exits_thread, (void *)(uintptr_t)DEPTH);
        for (size_t i = 0; i < 5; i++) {
            void *value = NULL;
            pthread_join(thread[i], &value);
            sum += (uintptr_t)value;
        }
    }
    printf("joined %" PRIu64 " cleaned %" PRIu64 "\n", sum, cleaned);
    expect("exits_thread", THREADS, 0);
    expect("sinks", (uint64_t)THREADS * (DEPTH + 1), 0);
    expect("called", THREADS, THREADS);
}

// The unwinder's library is loaded by the first thread that exits, long after the probes came.
static void told_exits(void)
{
    char line[8];
    printf("ready\n");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin))
        thread_exits();
}

// ---- cancellation -------------------------------------------------------------------------------

static int pipe_ends[2];
static uint32_t blocked;

PROBED uint64_t blocks(uint64_t levels)
{
    volatile uint64_t kept = levels, below = 0;
    char byte = 0;
    pthread_cleanup_push(cleans, (void *)(uintptr_t)(levels + 1));
    if (levels)
        below = blocks(levels - 1);
    else {
        __atomic_fetch_add(&blocked, 1, __ATOMIC_RELEASE);
        below = (uint64_t)read(pipe_ends[0], &byte, 1);
    }
    pthread_cleanup_pop(0);
    return below + kept;
}

PROBED void *cancelled_thread(void *opaque)
{
    volatile uint64_t value = blocks((uint64_t)(uintptr_t)opaque);
    return (void *)(uintptr_t)value;
}

// Never waits: it is cancelled between any two instructions.
PROBED uint64_t spins_on(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept ^ 5;
}

PROBED void *asynchronous_thread(void *opaque)
{
    int old;
    uint64_t value = (uint64_t)(uintptr_t)opaque;
    __atomic_fetch_add(&blocked, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 1000; i++)
        value = spins_on(value);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    while (sure)
        __asm__ volatile("" ::: "memory");
    return NULL;
}

static void cancellations(void)
{
    uint64_t count = 0;
    if (pipe(pipe_ends) != 0)
        fail("pipe");
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *value = NULL;
        blocked = 0;
        pthread_create(&thread, NULL, i % 2 ? asynchronous_thread : cancelled_thread,
                       (void *)(uintptr_t)DEPTH);
        while (__atomic_load_n(&blocked, __ATOMIC_ACQUIRE) == 0)
            sched_yield();
        pthread_cancel(thread);
        pthread_join(thread, &value);
        count += value == PTHREAD_CANCELED;
    }
    printf("cancelled %" PRIu64 " cleaned %" PRIu64 "\n", count, cleaned);
    expect("cancelled_thread", THREADS / 2, 0);
    expect("asynchronous_thread", THREADS / 2, 0);
    expect("blocks", (uint64_t)THREADS / 2 * (DEPTH + 1), 0);
    expect("spins_on", (uint64_t)THREADS / 2 * 1000, (uint64_t)THREADS / 2 * 1000);
}

// ---- threads that vanish ------------------------------------------------------------------------

PROBED uint64_t vanishes(uint64_t levels)
{
    volatile uint64_t kept = levels;
    if (levels)
        return vanishes(levels - 1) + kept;
    if (sure)
        syscall(SYS_exit, 0);
    return 0;
}

static void *vanishing_thread(void *opaque)
{
    vanishes((uint64_t)(uintptr_t)opaque);
    return NULL;
}

// Two hundred threads one after the other get the stacks of those that ended inside.
static void vanished(void)
{
    for (uint32_t i = 0; i < 4 * THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, vanishing_thread, (void *)(uintptr_t)(i % DEPTH));
        pthread_join(thread, NULL);
    }
    uint64_t calls = 0;
    for (uint32_t i = 0; i < 4 * THREADS; i++)
        calls += i % DEPTH + 1;
    expect("vanishes", calls, 0);
    expect("vanishing_thread", 4 * THREADS, 0);
}

// ---- coroutines that another thread resumes -----------------------------------------------------

static ucontext_t maker, taker, traveller;
static char traveller_stack[STACK_SIZE];
static uint64_t travelled;

PROBED void departs(void)
{
    swapcontext(&traveller, &maker);
    travelled += called(1);
}

static void travels(void)
{
    departs();
    __asm__ volatile(""); // or the call would be a jump
}

static void *takes(void *opaque)
{
    (void)opaque;
    traveller.uc_link = &taker;
    // The traveller's own context names the end that it was made with.
    swapcontext(&taker, &traveller);
    return NULL;
}

static void movers(void)
{
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        getcontext(&traveller);
        traveller.uc_stack.ss_sp = traveller_stack;
        traveller.uc_stack.ss_size = sizeof traveller_stack;
        traveller.uc_link = &taker;
        makecontext(&traveller, travels, 0);
        swapcontext(&maker, &traveller);
        pthread_create(&thread, NULL, takes, NULL);
        pthread_join(thread, NULL);
    }
    printf("travelled %" PRIu64 "\n", travelled);
    expect("departs", THREADS, THREADS);
    expect("called", THREADS, THREADS);
    expect("travels", THREADS, THREADS);
    printf("moved departs %u\nmoved travels %u\n", THREADS, THREADS);
    printf("unwound travels %u\n", THREADS); // no call stands before its return address
}

// ---- fork, vfork, clone -------------------------------------------------------------------------

// Returns twice: in the child, too.
PROBED pid_t forks(uint64_t value)
{
    volatile uint64_t kept = called(value);
    pid_t pid = fork();
    return pid + (pid_t)(kept * 0);
}

PROBED int in_child(uint64_t value)
{
    return (int)called(value) % 50;
}

static void fork_inside(void)
{
    int sum = 0;
    fflush(stdout);
    for (uint32_t i = 0; i < CHILDREN; i++) {
        int status = 0;
        pid_t pid = forks(i);
        if (pid == 0)
            _exit(in_child(i));
        waitpid(pid, &status, 0);
        sum += status >> 8 | (status & 255) << 20;
    }
    printf("statuses %d\n", sum);
    expect_family("forks", CHILDREN, CHILDREN, CHILDREN, 2 * CHILDREN);
    expect_family("in_child", 0, 0, CHILDREN, CHILDREN);
    expect_family("called", CHILDREN, CHILDREN, 2 * CHILDREN, 2 * CHILDREN);
}

PROBED int vforks(uint64_t value)
{
    char *words[] = {"sh", "-c", "exit 3", NULL};
    volatile uint64_t kept = value;
    int status = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        called(kept); // in the parent's memory
        if (kept % 2)
            execv("/bin/sh", words);
        _exit(4);
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

PROBED int spawns(void)
{
    char *words[] = {"sh", "-c", "exit 5", NULL};
    int status = 0;
    pid_t pid = 0;
    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ) != 0)
        fail("posix_spawn");
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status) * 10 + WEXITSTATUS(system("exit 6"));
}

static void vfork_inside(void)
{
    int sum = 0;
    for (uint32_t i = 0; i < CHILDREN; i++)
        sum += vforks(i) + spawns();
    printf("statuses %d\n", sum);
    expect("vforks", CHILDREN, CHILDREN);
    expect("spawns", CHILDREN, CHILDREN);
    expect("called", CHILDREN, CHILDREN);
}

PROBED int cloned_main(void *opaque)
{
    return (int)called((uint64_t)(uintptr_t)opaque);
}

PROBED int clones(uint64_t value)
{
    int status = 0;
    char *stack =
        mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED)
        fail("mmap");
    pid_t pid =
        clone(cloned_main, stack + STACK_SIZE, CLONE_VM | SIGCHLD, (void *)(uintptr_t)value);
    waitpid(pid, &status, 0);
    munmap(stack, STACK_SIZE);
    return WEXITSTATUS(status);
}

static void clone_inside(void)
{
    int sum = 0;
    for (uint32_t i = 0; i < CHILDREN; i++)
        sum += clones(i);
    printf("statuses %d\n", sum);
    expect("clones", CHILDREN, CHILDREN);
    expect("cloned_main", CHILDREN, CHILDREN);
    expect("called", CHILDREN, CHILDREN);
}

// ---- exit ---------------------------------------------------------------------------------------

static void at_end(void)
{
    printf("the end %" PRIu64 "\n", called(1));
}

PROBED uint64_t leaves(uint64_t levels)
{
    volatile uint64_t kept = levels;
    if (levels)
        return leaves(levels - 1) + kept;
    if (sure)
        exit(0);
    return 0;
}

static void exit_inside(void)
{
    atexit(at_end);
    expect("leaves", DEPTH + 1, 0);
    expect("at_end", 1, 1);
    expect("called", 1, 1);
    leaves(DEPTH);
}

static const struct mode {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"thread_exits", thread_exits},
    {"told_exits", told_exits},
    {"cancellations", cancellations},
    {"vanished", vanished},
    {"movers", movers},
    {"fork_inside", fork_inside},
    {"vfork_inside", vfork_inside},
    {"clone_inside", clone_inside},
    {"exit_inside", exit_inside},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: %s MODE\n", argv[0]);
    return 2;
}

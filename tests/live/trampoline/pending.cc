// Holds frames of probed functions on several stacks while probes come and go: its own, other threads',
// suspended coroutines'. argv[1] is what it does; it prints "ready" and reads a line wherever the test may
// attach, detach or kill, and ends with 0 if all was computed right.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdexcept>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PROBED extern "C" __attribute__((noinline, noipa))

static ucontext_t main_context, coroutine[4];
static const size_t STACK_SIZE = 65536;

static void wait_for_line(const char *what)
{
    char line[64];
    printf("ready %s\n", what);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        _exit(3);
}

PROBED uint64_t leaf(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept + 1;
}

// ---- frames that wait on the main stack -----------------------------------------------------------

PROBED uint64_t holds(uint64_t depth)
{
    volatile uint64_t kept = depth;
    if (depth)
        return holds(depth - 1) + kept;
    wait_for_line("inside");
    return leaf(0);
}

static int main_stack()
{
    wait_for_line("before");
    uint64_t sum = holds(20);
    wait_for_line("behind");
    sum += holds(5);
    return sum == 1 + 210 + 1 + 15 ? 0 : 1;
}

// ---- frames that wait on coroutines' stacks --------------------------------------------------------

static uint64_t results[4];

PROBED uint64_t suspends(uint64_t index)
{
    volatile uint64_t kept = index;
    swapcontext(&coroutine[index], &main_context);
    return leaf(kept);
}

static void routine(int index)
{
    results[index] = suspends((uint64_t)index) * 10;
}

static int coroutines()
{
    wait_for_line("before");
    for (int i = 0; i < 4; i++) {
        getcontext(&coroutine[i]);
        coroutine[i].uc_stack.ss_sp = malloc(STACK_SIZE);
        coroutine[i].uc_stack.ss_size = STACK_SIZE;
        coroutine[i].uc_link = &main_context;
        makecontext(&coroutine[i], reinterpret_cast<void (*)()>(routine), 1, i);
        swapcontext(&main_context, &coroutine[i]);
    }
    wait_for_line("inside");
    for (int i = 0; i < 4; i++)
        swapcontext(&main_context, &coroutine[i]);
    for (uint64_t i = 0; i < 4; i++) {
        if (results[i] != (i + 1) * 10)
            return 1;
    }
    return 0;
}

// ---- an exception through frames that wait ------------------------------------------------------------

static bool quiet;

PROBED uint64_t throws(uint64_t depth)
{
    volatile uint64_t kept = depth;
    if (depth)
        return throws(depth - 1) + kept;
    if (!quiet)
        wait_for_line("inside");
    throw std::runtime_error("bottom");
}

PROBED uint64_t catches(uint64_t depth)
{
    try {
        return throws(depth);
    } catch (const std::runtime_error &error) {
        return strlen(error.what());
    }
}

static int exceptions()
{
    wait_for_line("before");
    uint64_t first = catches(20), second = catches(3);
    return first == 6 && second == 6 ? 0 : 1;
}

// Frames of another size, where others were left by exceptions before.
PROBED uint64_t wide(uint64_t depth)
{
    volatile uint64_t kept[21];
    kept[depth] = depth;
    return (depth ? wide(depth - 1) : throws(3)) + kept[depth];
}

PROBED uint64_t catches_wide(uint64_t depth)
{
    try {
        return wide(depth);
    } catch (const std::runtime_error &error) {
        return strlen(error.what());
    }
}

static int exceptions_again()
{
    uint64_t sum = 0;
    wait_for_line("before");
    quiet = true;
    for (uint64_t i = 0; i < 20; i++)
        sum += catches(i);
    quiet = false;
    sum += catches_wide(7);
    return sum == 21 * 6 ? 0 : 1;
}

// ---- return addresses that are in a register still --------------------------------------------------------

// Waits until go is set, with its return address where it came, says first that it is inside, and returns.
// early_stores then stores the address where it likes and calls throws_now.
struct early {
    int inside, go;
};
extern "C" uint64_t early_returns(struct early *at);
extern "C" uint64_t early_stores(struct early *at);

extern "C" __attribute__((used)) uint64_t throws_now()
{
    throw std::runtime_error("bottom");
}

#if defined __x86_64__
#define EARLY "movl $1, (%rdi)\n 1: cmpl $0, 4(%rdi)\n je 1b\n"
#define STORES "sub $24, %rsp\n .cfi_adjust_cfa_offset 24\n call throws_now\n add $24, %rsp\n"
#elif defined __aarch64__
#define EARLY "mov w1, #1\n str w1, [x0]\n 1: ldr w1, [x0, #4]\n cbz w1, 1b\n"
#define STORES                                                                                     \
    "sub sp, sp, #48\n .cfi_adjust_cfa_offset 48\n stp x29, x30, [sp, #16]\n"                      \
    ".cfi_offset x29, -32\n .cfi_offset x30, -24\n"                                               \
    "bl throws_now\n ldp x29, x30, [sp, #16]\n add sp, sp, #48\n"
#else
#define EARLY "li a1, 1\n sw a1, 0(a0)\n 1: lw a1, 4(a0)\n beqz a1, 1b\n"
#define STORES                                                                                     \
    "addi sp, sp, -48\n .cfi_adjust_cfa_offset 48\n sd ra, 24(sp)\n .cfi_offset ra, -24\n"        \
    "call throws_now\n ld ra, 24(sp)\n addi sp, sp, 48\n"
#endif
#define FUNCTION(name, code)                                                                       \
    __asm__(".text\n .p2align 2\n .globl " #name "\n .type " #name ", %function\n" #name ":\n"     \
            ".cfi_startproc\n" code "ret\n .cfi_endproc\n .size " #name ", . - " #name "\n");
FUNCTION(early_returns, EARLY)
FUNCTION(early_stores, EARLY STORES)

static struct early early[3];
static volatile int handler_inside, handler_go;

template <uint64_t function(struct early *)> static void *early_thread(void *at)
{
    try {
        (void)function(static_cast<struct early *>(at));
    } catch (const std::runtime_error &error) {
        return at;
    }
    return nullptr;
}

static void early_handler(int)
{
    handler_inside++;
    while (!handler_go)
        sched_yield();
    throw std::runtime_error("handler");
}

// One goes on to store it, one is left by an exception of a handler that stands there, one by one of a handler that
// comes later.
static int registers()
{
    static void *(*const body[3])(void *) = {early_thread<early_stores>, early_thread<early_returns>,
                                             early_thread<early_returns>};
    pthread_t thread[3];
    int bad = 0;
    wait_for_line("before");
    signal(SIGUSR1, early_handler);
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&thread[i], nullptr, body[i], &early[i]) != 0)
            return 1;
        while (!__atomic_load_n(&early[i].inside, __ATOMIC_ACQUIRE))
            sched_yield();
    }
    pthread_kill(thread[1], SIGUSR1);
    while (handler_inside < 1)
        sched_yield();
    wait_for_line("inside");
    __atomic_store_n(&early[0].go, 1, __ATOMIC_RELEASE);
    handler_go = 1;
    pthread_kill(thread[2], SIGUSR1);
    for (int i = 0; i < 3; i++) {
        void *caught;
        pthread_join(thread[i], &caught);
        bad += caught != &early[i];
    }
    return bad ? 1 : 0;
}

// ---- threads on their way from a probe to where their return address is stored ----------------------------------

FUNCTION(stores_at_once, STORES)
#if defined __x86_64__
FUNCTION(lands, "jmp stores_at_once\n")
#elif defined __aarch64__
FUNCTION(lands, "b stores_at_once\n")
#else
FUNCTION(lands, "j stores_at_once\n")
#endif
extern "C" uint64_t lands();

static int handler_pipe[2];

static void waiting_handler(int)
{
    char byte;
    int kept = errno;
    __atomic_add_fetch(&handler_inside, 1, __ATOMIC_RELEASE);
    while (read(handler_pipe[0], &byte, 1) < 0 && errno == EINTR) { // until nobody can write any more
    }
    errno = kept;
}

static void *step_thread(void *at)
{
    raise(SIGUSR2); // whoever steps it takes it from here
    try {
        (void)lands();
    } catch (const std::runtime_error &error) {
        return at;
    }
    return nullptr;
}

// count threads, of which each throws through that function once.
static int steps(int count)
{
    static pthread_t thread[1024];
    static char mark[1024];
    pthread_attr_t attributes;
    int bad = 0;
    signal(SIGUSR1, waiting_handler);
    signal(SIGUSR2, SIG_IGN);
    if (count > 1024 || pipe(handler_pipe) != 0)
        return 2;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 2 * STACK_SIZE);
    try { // what that takes once
        throws_now();
    } catch (const std::runtime_error &error) {
    }
    wait_for_line("before");
    for (int i = 0; i < count; i++)
        bad += pthread_create(&thread[i], &attributes, step_thread, &mark[i]) != 0;
    wait_for_line("inside");
    close(handler_pipe[1]);
    for (int i = 0; i < count && !bad; i++) {
        void *caught = nullptr;
        pthread_join(thread[i], &caught);
        bad += caught != &mark[i];
    }
    return bad ? 1 : 0;
}

// ---- a child that owes returns ------------------------------------------------------------------------

PROBED uint64_t forks(uint64_t depth)
{
    volatile uint64_t kept = depth;
    if (depth)
        return forks(depth - 1) + kept;
    return fork() == 0 ? 1000 : 1;
}

static int children()
{
    int bad = 0, status;
    wait_for_line("before");
    for (int i = 0; i < 20; i++) {
        uint64_t sum = forks(20);
        if (sum >= 1000) // the child: back through all of them, and through new ones
            _exit(sum == 1210 && leaf(4) == 5 ? 0 : 1);
        bad += sum != 211;
        bad += wait(&status) < 0 || status != 0;
    }
    return bad ? 1 : 0;
}

// ---- another unwinder comes ---------------------------------------------------------------------------

PROBED uint64_t opens(const char *file)
{
    return dlopen(file, RTLD_NOW) != nullptr;
}

static int another_unwinder(const char *file)
{
    wait_for_line("before");
    uint64_t opened = opens(file);
    wait_for_line("behind");
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 100; i++)
        sum += leaf(i);
    return opened && sum == 5050 && catches(0) == 6 ? 0 : 1;
}

// ---- a library comes and goes ---------------------------------------------------------------------------

typedef uint64_t (*later)(uint64_t value, uint64_t (*back)(uint64_t));

PROBED uint64_t passes(later function, uint64_t depth)
{
    volatile uint64_t kept = depth;
    if (depth)
        return passes(function, depth - 1) + kept - depth;
    try {
        return function(20, leaf);
    } catch (const std::runtime_error &error) {
        return strlen(error.what());
    }
}

static int library(const char *file)
{
    uint64_t sum = 0;
    wait_for_line("before");
    for (int round = 0; round < 5; round++) {
        void *handle = dlopen(file, RTLD_NOW);
        later throwing = handle ? reinterpret_cast<later>(dlsym(handle, "later_throws")) : nullptr;
        later returning = handle ? reinterpret_cast<later>(dlsym(handle, "later_returns")) : nullptr;
        if (!throwing || !returning)
            return 1;
        for (uint64_t i = 0; i < 20; i++)
            sum += passes(throwing, 5) + returning(i, leaf);
        dlclose(handle);
    }
    return sum == 5 * (20 * 6 + 190 + 40) ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "main_stack"))
        return main_stack();
    if (!strcmp(mode, "coroutines"))
        return coroutines();
    if (!strcmp(mode, "exceptions"))
        return exceptions();
    if (!strcmp(mode, "exceptions_again"))
        return exceptions_again();
    if (!strcmp(mode, "registers"))
        return registers();
    if (!strcmp(mode, "steps") && argc > 2)
        return steps(atoi(argv[2]));
    if (!strcmp(mode, "children"))
        return children();
    if (!strcmp(mode, "another_unwinder") && argc > 2)
        return another_unwinder(argv[2]);
    if (!strcmp(mode, "library") && argc > 2)
        return library(argv[2]);
    return 2;
}

// Functions that are left in every way that one thread knows, one way per mode, argv[1]. Prints
// results that no probe may change, and what probes must have counted (told.h).
#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include "told.h"

#define DEPTH 10000u
#define DEEPEST 100000u
#define ROUNDS 1000u

// ---- recursion ----------------------------------------------------------------------------------

PROBED uint64_t down(uint64_t levels)
{
    volatile uint64_t kept = levels * 3;
    uint64_t below = levels ? down(levels - 1) : 7;
    return below + kept;
}

PROBED uint64_t odd(uint64_t levels);
PROBED uint64_t even(uint64_t levels)
{
    volatile uint64_t kept = 1;
    return levels ? odd(levels - 1) + kept : 0;
}
PROBED uint64_t odd(uint64_t levels)
{
    volatile uint64_t kept = 2;
    return levels ? even(levels - 1) + kept : 0;
}

static void recursion(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 10; i++)
        sum += down(DEPTH) + even(DEPTH);
    printf("sum %" PRIu64 "\n", sum);
    expect("down", 10 * (DEPTH + 1), 10 * (DEPTH + 1));
    expect("even", 10 * (DEPTH / 2 + 1), 10 * (DEPTH / 2 + 1));
    expect("odd", 10 * (DEPTH / 2), 10 * (DEPTH / 2));
}

static void deepest(void)
{
    printf("sum %" PRIu64 "\n", down(DEEPEST));
    expect("down", DEEPEST + 1, DEEPEST + 1);
    printf("unwound down %u\n", DEEPEST / 2);
}

// ---- longjmp ------------------------------------------------------------------------------------

static jmp_buf out;

PROBED uint64_t inner(uint64_t round)
{
    volatile char room[64];
    room[round % 64] = (char)round;
    if (round % 2)
        longjmp(out, (int)round);
    return round + (uint64_t)room[round % 64] * 0;
}

PROBED uint64_t middle(uint64_t round)
{
    volatile uint64_t kept = round;
    return inner(round) + kept;
}

PROBED uint64_t upper(uint64_t round)
{
    volatile uint64_t kept = round;
    return middle(round) + kept;
}

PROBED uint64_t lands(uint64_t round)
{
    int jumped = setjmp(out);
    if (jumped)
        return (uint64_t)jumped * 1000;
    return upper(round);
}

static void jumps(void)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ROUNDS; i++)
        sum = sum * 31 + lands(i);
    printf("sum %" PRIu64 "\n", sum);
    expect("lands", ROUNDS, ROUNDS);
    expect("upper", ROUNDS, ROUNDS / 2);
    expect("middle", ROUNDS, ROUNDS / 2);
    expect("inner", ROUNDS, ROUNDS / 2);
}

// Each call has its return address where the one before, which never returned, had it.
PROBED uint64_t leaps(uint64_t round)
{
    volatile uint64_t kept = round;
    if (round % 3)
        longjmp(out, 1);
    return kept;
}

PROBED uint64_t stays(uint64_t round)
{
    volatile uint64_t kept = round;
    return kept + 1;
}

static void same_place(void)
{
    volatile uint64_t round = 0, sum = 0;
    (void)setjmp(out);
    while (round < ROUNDS * 3) {
        round++;
        sum += stays(round);
        sum += leaps(round);
    }
    printf("sum %" PRIu64 "\n", sum);
    expect("leaps", ROUNDS * 3, ROUNDS);
    expect("stays", ROUNDS * 3, ROUNDS * 3);
}

// setjmp is called in a probed function that is left and entered again.
static uint64_t times_back;
PROBED uint64_t twice(void)
{
    volatile uint64_t landed = 0;
    int value = setjmp(out);
    landed += 1;
    if (value < 5) {
        times_back++;
        longjmp(out, value + 1);
    }
    return landed;
}

static void setjmps(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 100; i++)
        sum += twice();
    printf("sum %" PRIu64 " back %" PRIu64 "\n", sum, times_back);
    expect("twice", 100, 100);
}

// ---- signal handlers ----------------------------------------------------------------------------

static sigjmp_buf handler_out;
static volatile uint64_t handler_rounds;

PROBED uint64_t raises(uint64_t round)
{
    volatile uint64_t kept = round;
    if (round % 2)
        raise(SIGUSR1);
    return kept;
}

PROBED void handles(int number)
{
    (void)number;
    handler_rounds++;
    if (handler_rounds % 3 == 1)
        raise(SIGUSR2);
    if (handler_rounds % 2)
        siglongjmp(handler_out, 1);
}

static void handlers(void)
{
    volatile uint64_t i = 0, landed = 0;
    signal(SIGUSR1, handles);
    signal(SIGUSR2, handles);
    while (i < ROUNDS) {
        i++;
        if (sigsetjmp(handler_out, 1) == 0)
            (void)raises(i);
        else
            landed++;
    }
    printf("landed %" PRIu64 " handled %" PRIu64 "\n", landed, handler_rounds);
    expect("raises", ROUNDS, ROUNDS - landed);
}

// Handlers on a stack of their own: below that of the frames that wait, above it, and put aside while one runs.
// Each calls functions that return there, is interrupted by another on the same stack, and every third jumps out.
#define ALTERNATE_SIZE 65536u
#define ALTERNATE_DEPTH 20u
#define AUTODISARM (1u << 31) // SS_AUTODISARM of linux/signal.h
static uint64_t alternates, deepened;

static void on_alternate(int number)
{
    deepened += number == SIGUSR1;
    if (down(ALTERNATE_DEPTH) != 7 + 3 * ALTERNATE_DEPTH * (ALTERNATE_DEPTH + 1) / 2)
        fail("wrong sum on the alternate stack");
    if (number != SIGUSR1)
        return;
    raise(SIGUSR2);
    if (deepened % 3 == 0)
        siglongjmp(handler_out, 1);
}

PROBED uint64_t interrupted(uint64_t levels)
{
    volatile uint64_t kept = levels;
    if (levels)
        return interrupted(levels - 1) + kept;
    raise(SIGUSR1);
    return 1;
}

static void on_stack_at(void *stack, int flags)
{
    const stack_t on = {.ss_sp = stack, .ss_size = ALTERNATE_SIZE, .ss_flags = flags}, off = {.ss_flags = SS_DISABLE};
    if (sigaltstack(&on, NULL) != 0)
        fail("no alternate stack");
    for (volatile int i = 0; i < 300; i++) {
        alternates++;
        if (sigsetjmp(handler_out, 1) == 0 && interrupted(3) != 7)
            fail("wrong sum of the interrupted");
        if (flags && sigaltstack(&on, NULL) != 0) // a handler that jumped out left it put aside
            fail("no alternate stack again");
    }
    (void)sigaltstack(&off, NULL);
}

static void alternate(void)
{
    static char below[ALTERNATE_SIZE];
    char above[ALTERNATE_SIZE];
    const struct sigaction action = {.sa_handler = on_alternate, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    on_stack_at(below, 0);
    on_stack_at(above, 0);
    on_stack_at(below, (int)AUTODISARM);
    uint64_t returned = 4 * (alternates - deepened / 3), deep = alternates * 2 * (ALTERNATE_DEPTH + 1);
    printf("alternates %" PRIu64 " deepened %" PRIu64 "\n", alternates, deepened);
    expect("interrupted", alternates * 4, returned);
    expect("down", deep, deep);
}

// A handler that comes at any instruction, the probes' own code included, and hits the same probe.
static volatile uint64_t alarms;
PROBED uint64_t busy(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept + 1;
}

static void on_alarm(int number)
{
    (void)number;
    if (busy(5) != 6)
        fail("wrong result in the handler");
    alarms++;
}

static void storm(void)
{
    struct itimerval every = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    uint64_t calls = 0;
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &every, NULL);
    while (alarms < 3000) {
        if (busy(calls) != calls + 1)
            fail("wrong result");
        calls++;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    signal(SIGALRM, SIG_IGN);
    expect("busy", calls + alarms, calls + alarms);
    expect("on_alarm", alarms, alarms);
}

// ---- coroutines ---------------------------------------------------------------------------------

#define COROUTINES 16u
#define SWITCHES 500u

static ucontext_t home, routine[COROUTINES];
static char stacks[COROUTINES][65536];
static uint64_t switched;

PROBED void yields(uint32_t index)
{
    switched++;
    swapcontext(&routine[index], &home);
}

PROBED uint64_t works(uint32_t index)
{
    volatile uint64_t sum = 0;
    for (uint32_t i = 0; i < SWITCHES; i++) {
        sum += i;
        yields(index);
    }
    return sum;
}

static uint64_t results;
static void routine_main(int index)
{
    results += works((uint32_t)index);
}

static void coroutines(void)
{
    for (uint32_t i = 0; i < COROUTINES; i++) {
        getcontext(&routine[i]);
        routine[i].uc_stack.ss_sp = stacks[i];
        routine[i].uc_stack.ss_size = sizeof stacks[i];
        routine[i].uc_link = &home;
        makecontext(&routine[i], (void (*)(void))routine_main, 1, i);
    }
    // The order changes from round to round, so that no stack order holds.
    for (uint32_t round = 0; round <= SWITCHES; round++) {
        for (uint32_t i = 0; i < COROUTINES; i++)
            swapcontext(&home, &routine[(i * 7 + round) % COROUTINES]);
    }
    printf("switched %" PRIu64 " results %" PRIu64 "\n", switched, results);
    expect("works", COROUTINES, COROUTINES);
    expect("yields", COROUTINES * SWITCHES, COROUTINES * SWITCHES);
    expect("routine_main", COROUTINES, COROUTINES);
    printf("unwound routine_main %u\n", COROUTINES); // no call stands before its return address
}

// ---- back traces --------------------------------------------------------------------------------

extern char __executable_start[], etext[];

PROBED uint64_t traces(uint64_t levels)
{
    volatile uint64_t kept = levels;
    void *frame[64];
    if (levels)
        return traces(levels - 1) + kept;
    int count = backtrace(frame, 64);
    printf("%d frames:", count);
    for (int i = 0; i < count; i++) {
        char *at = frame[i];
        if (at >= __executable_start && at < etext)
            printf(" %tx", at - __executable_start);
        else
            printf(" other");
    }
    printf("\n");
    return kept + 1;
}

PROBED uint64_t calls_traces(uint64_t levels)
{
    volatile uint64_t kept = levels;
    return traces(levels) + kept;
}

static void backtraces(void)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 20; i++)
        sum += calls_traces(i);
    printf("sum %" PRIu64 "\n", sum);
    expect("calls_traces", 20, 20);
    expect("traces", 210, 210);
    printf("unwound calls_traces 20\nunwound traces 210\n");
}

// ---- values -------------------------------------------------------------------------------------

struct two {
    uint64_t low, high;
};
struct three {
    uint64_t word[3];
};

PROBED uint64_t gives_u64(uint64_t value)
{
    return value ^ 0x0123456789abcdefu;
}
PROBED int32_t gives_i32(int32_t value)
{
    return -value;
}
PROBED uint8_t gives_u8(uint8_t value)
{
    return (uint8_t)(value + 1);
}
PROBED bool gives_bool(uint64_t value)
{
    return value > 5;
}
PROBED struct two gives_two(uint64_t value)
{
    return (struct two){value * 3, value * 5};
}
PROBED struct three gives_three(uint64_t value)
{
    return (struct three){{value, value + 1, value + 2}};
}
PROBED __int128 gives_i128(int64_t value)
{
    return (__int128)value * INT64_MAX;
}
PROBED double gives_double(double value, uint64_t other)
{
    return value * 1.5 + (double)other;
}
PROBED long double gives_long_double(long double value)
{
    return value / 3;
}
PROBED float gives_float(float value)
{
    return value / 7;
}
static uint64_t effect;
PROBED void gives_nothing(uint64_t value)
{
    effect += value;
}

static void tell_ret(const char *name, uint64_t value, int bits)
{
    printf("ret %s %" PRIu64 " %d\n", name, value, bits);
}

static void values(void)
{
    static const uint64_t samples[] = {0,          1,
                                       5,          6,
                                       UINT8_MAX,  INT32_MAX,
                                       UINT32_MAX, (uint64_t)1 << 53,
                                       INT64_MAX,  (uint64_t)INT64_MIN,
                                       UINT64_MAX, 0xfedcba9876543210u};
    const size_t count = sizeof samples / sizeof *samples;
    for (size_t i = 0; i < count; i++) {
        const uint64_t x = samples[i];
        tell_ret("gives_u64", gives_u64(x), 64);
        tell_ret("gives_i32", (uint32_t)gives_i32((int32_t)(x & INT32_MAX)), 32);
        tell_ret("gives_u8", gives_u8((uint8_t)x), 8);
        tell_ret("gives_bool", gives_bool(x), 8);
        struct two two = gives_two(x);
        tell_ret("gives_two", two.low, 64);
        struct three three = gives_three(x);
        __int128 wide = gives_i128((int64_t)x);
        tell_ret("gives_i128", (uint64_t)wide, 64);
        gives_nothing(x);
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", two.high,
               three.word[0], three.word[1], three.word[2], (uint64_t)(wide >> 64));
        printf("%a %a %La %" PRIu64 "\n", gives_double((double)x, i), (double)gives_float((float)x),
               gives_long_double((long double)x), effect);
    }
    static const char *const names[] = {"gives_u64",   "gives_i32",    "gives_u8",
                                        "gives_bool",  "gives_two",    "gives_three",
                                        "gives_i128",  "gives_double", "gives_long_double",
                                        "gives_float", "gives_nothing"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect(names[i], count, count);
}

// ---- tail calls, and the shortest function
// -------------------------------------------------------

uint64_t tail_direct(uint64_t), tail_cond(uint64_t), tail_pointer(uint64_t), tail_memory(uint64_t);
uint64_t tail_first(uint64_t), tail_second(uint64_t), tail_deep(uint64_t), tail_self(uint64_t);
uint64_t tail_target(uint64_t), tail_other(uint64_t), loops_to_entry(uint64_t),
    two_returns(uint64_t);
uint64_t crosses_page(uint64_t);
void only_ret(void);

PROBED uint64_t compiled_target(uint64_t value)
{
    return value * 2;
}
PROBED uint64_t compiled_tail(uint64_t value)
{
    return compiled_target(value + 1);
}
static uint64_t (*volatile chosen)(uint64_t) = compiled_target;
PROBED uint64_t compiled_indirect(uint64_t value)
{
    return chosen(value + 2);
}

static void tails(void)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        sum = sum * 31 + tail_direct(i) + tail_cond(i) + tail_pointer(i) + tail_memory(i) +
              tail_first(i);
        sum = sum * 31 + tail_deep(i) + loops_to_entry(i % 10 + 1) + two_returns(i) +
              tail_self(i % 5);
        sum = sum * 31 + compiled_tail(i) + compiled_indirect(i) + crosses_page(i);
        only_ret();
    }
    printf("sum %" PRIu64 "\n", sum);
    static const char *const once[] = {
        "tail_direct",   "tail_cond",         "tail_pointer",   "tail_memory", "tail_first",
        "tail_second",   "tail_deep",         "loops_to_entry", "two_returns", "tail_self",
        "compiled_tail", "compiled_indirect", "only_ret",       "crosses_page"};
    for (size_t i = 0; i < sizeof once / sizeof *once; i++)
        expect(once[i], ROUNDS, ROUNDS);
    // direct, second, deep; half of cond and pointer. The other one: memory, and the other halves.
    expect("tail_target", 4 * ROUNDS, 4 * ROUNDS);
    expect("tail_other", 2 * ROUNDS, 2 * ROUNDS);
    expect("compiled_target", 2 * ROUNDS, 2 * ROUNDS);
}

// ---- functions that never return
// -----------------------------------------------------------------

PROBED __attribute__((noreturn)) void never_exits(int status)
{
    printf("leaving\n");
    fflush(stdout);
    exit(status);
}
PROBED __attribute__((noreturn)) void never_jumps(void)
{
    longjmp(out, 1);
}
static volatile sig_atomic_t waiting = 1;
PROBED __attribute__((noreturn)) void never_ends(void)
{
    for (;;)
        waiting++;
}
PROBED __attribute__((noreturn)) void never_aborts(void)
{
    abort();
}

static void alarm_out(int number)
{
    (void)number;
    siglongjmp(handler_out, 1);
}

static void never(void)
{
    if (setjmp(out) == 0)
        never_jumps();
    signal(SIGALRM, alarm_out);
    if (sigsetjmp(handler_out, 1) == 0) {
        ualarm(2000, 0);
        never_ends();
    }
    signal(SIGABRT, alarm_out);
    if (sigsetjmp(handler_out, 1) == 0)
        never_aborts();
    expect("never_jumps", 1, 0);
    expect("never_ends", 1, 0);
    expect("never_aborts", 1, 0);
    expect("never_exits", 1, 0);
    never_exits(0);
}

static const struct mode {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"recursion", recursion},   {"deepest", deepest},       {"jumps", jumps},
    {"same_place", same_place}, {"setjmps", setjmps},       {"handlers", handlers},
    {"alternate", alternate},   {"storm", storm},           {"coroutines", coroutines},
    {"backtraces", backtraces}, {"values", values},         {"tails", tails},
    {"never", never},
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

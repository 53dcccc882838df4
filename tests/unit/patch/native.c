// The agent run by the processor itself, in this very process: detours as the emitter makes them,
// real signals that hit the same probes, threads with blocks of their own. Counts and events are
// exact.
//
// With a number as its argument it prints what a record costs instead: nanoseconds above the bare
// call, the clock's own reading taken off; the best of so many rounds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/layout.h"
#include "arch/arch.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CODE_SIZE 0x20000u
#define DETOURS_OFF 0x10000u // in the code, behind the image
#define DETOUR_ROOM 1024u
#define RING_SLOTS 4096u
#define PAIR_SLOTS TL_PAIR_SLOTS
#define HIST_OFF 128u
#define RING_OFF 24576u
#define PAIR_OFF (RING_OFF + 266240u)
#define STRIDE (PAIR_OFF + 16u * PAIR_SLOTS)
#define COUNTER_OFF(probe) (TL_BLOCK_HEADER_SIZE + 8u * (probe))
#define TID_OFF 0x2d0u // glibc's

_Static_assert(HIST_OFF + 2 * sizeof(struct tl_hist) <= RING_OFF, "histograms");
_Static_assert(RING_OFF + sizeof(struct tl_ring_header) +
                       RING_SLOTS * sizeof(struct tl_ring_slot) <=
                   PAIR_OFF,
               "ring");

static uint8_t *code, *control, *shared;
static tl_addr detour_next;

static uint64_t block_of(size_t index)
{
    return (uint64_t)(uintptr_t)shared + TL_BLOCK_FIRST_OFF + index * STRIDE;
}

static void *map(size_t size, int prot)
{
    void *area = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(area != MAP_FAILED);
    return area;
}

static int setup(void **state)
{
    (void)state;
    struct tl_agent_head head;
    code = map(CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
    control = map(4096 + TL_TABLE_SIZE, PROT_READ | PROT_WRITE);
    shared = map(TL_BLOCK_FIRST_OFF + (size_t)TL_BLOCK_COUNT * STRIDE, PROT_READ | PROT_WRITE);
    assert_true(tl_agent_image_size <= DETOURS_OFF);
    memcpy(code, tl_agent_image, tl_agent_image_size);
    memcpy(&head, code, sizeof head);
    head.control_addr = (uint64_t)(uintptr_t)control;
    head.data_addr = (uint64_t)(uintptr_t)shared;
    head.stride = STRIDE;
    head.hist_off = HIST_OFF;
    head.ring_off = RING_OFF;
    head.pair_off = PAIR_OFF;
    head.ring_mask = RING_SLOTS - 1;
    head.pair_mask = PAIR_SLOTS - 1;
    head.process_count = 1;
    head.tid_off = TID_OFF;
    head.thread_pointer = TL_TP_FS_WORD;
    memcpy(code, &head, sizeof head);
    *(struct tl_control *)(void *)control =
        (struct tl_control){.live = TL_CONTROL_LIVE,
                            .table_addr = (uint64_t)(uintptr_t)control + TL_PAGE_SIZE,
                            .shared_block = block_of(TL_THREAD_SLOTS),
                            .thread_pointer = TL_TP_FS_WORD};
    detour_next = (tl_addr)(uintptr_t)code + DETOURS_OFF;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    munmap(code, CODE_SIZE);
    munmap(control, 4096 + TL_TABLE_SIZE);
    munmap(shared, TL_BLOCK_FIRST_OFF + (size_t)TL_BLOCK_COUNT * STRIDE);
    return 0;
}

static uint64_t counter(uint32_t probe)
{
    uint64_t sum = 0;
    for (size_t i = 0; i <= TL_THREAD_SLOTS; i++)
        sum += *(const volatile uint64_t *)(uintptr_t)(block_of(i) + COUNTER_OFF(probe));
    return sum;
}

// ---- functions with probes ----------------------------------------------------------------------

typedef uint64_t (*function)(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                             uint64_t f);

static const uint8_t nop5[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};

// Puts a probe on the 5-byte nop at `at`.
static void probe_put(uint8_t *at, const struct tl_record *record, tl_regset dead)
{
    const struct tl_arch *arch = &tl_arch_x86_64;
    struct tl_agent_head head;
    struct tl_insn insn;
    struct tl_detour detour;
    tl_addr addr = (tl_addr)(uintptr_t)at, agent = (tl_addr)(uintptr_t)code;
    memcpy(&head, code, sizeof head);
    assert_int_equal(arch->decode(at, sizeof nop5, addr, &insn), 0);
    struct tl_emit_in in = {.action = TL_ACTION_RECORD,
                            .thread_pointer = TL_TP_FS_WORD,
                            .table_addr = head.control_addr + TL_PAGE_SIZE,
                            .control_addr = head.control_addr,
                            .slow_addr = agent + head.slow_count_off,
                            .dead = dead,
                            .insn = &insn,
                            .insn_count = 1,
                            .resume_addr = addr + sizeof nop5};
    for (size_t i = 0; i < TL_RECORD_ENTRIES; i++)
        in.record_addr[i + 1] = head.record_off[i] ? agent + head.record_off[i] : 0;
    in.record[0] = *record;
    assert_int_equal(arch->emit_detour(&in, detour_next, &detour, NULL), 0);
    assert_int_equal(detour.refusal, TL_REFUSE_NONE);
    memcpy((void *)(uintptr_t)detour_next, detour.bytes, detour.size);
    assert_true(arch->emit_jump(addr, detour_next, at));
    detour_next += DETOUR_ROOM;
}

// A function of two nops that returns its first argument; its probes are of the kinds `first` and
// `last`.
static function function_make(enum tl_record_kind first, enum tl_record_kind last, uint32_t probe,
                              tl_regset dead)
{
    static const uint8_t move[] = {0x48, 0x89, 0xf8}; // mov %rdi,%rax
    uint8_t *at = (uint8_t *)(uintptr_t)detour_next;
    detour_next += DETOUR_ROOM;
    memcpy(at, nop5, sizeof nop5);
    memcpy(at + 5, move, sizeof move);
    memcpy(at + 8, nop5, sizeof nop5);
    at[13] = 0xc3;
    if (first)
        probe_put(at,
                  &(struct tl_record){.kind = (uint8_t)first, .counter_off = COUNTER_OFF(probe)},
                  dead);
    if (last)
        probe_put(at + 8,
                  &(struct tl_record){.kind = (uint8_t)last, .counter_off = COUNTER_OFF(probe)},
                  dead);
    return (function)(uintptr_t)at;
}

static struct tl_ring_header *ring_of(size_t block)
{
    return (struct tl_ring_header *)(uintptr_t)(block_of(block) + RING_OFF);
}

// ---- exactness ----------------------------------------------------------------------------------

#define THREADS 4
#define CALLS 1000000
static function probed;
static pthread_barrier_t start;
static _Thread_local volatile uint64_t handled; // calls by this thread's signal handlers
static uint64_t handled_all;

static void on_signal(int number)
{
    (void)number;
    if (probed(7, 1, 2, 3, 4, 5) == 7)
        handled++;
}

static void *thread_run(void *opaque)
{
    (void)opaque;
    uint64_t wrong = 0;
    pthread_barrier_wait(&start);
    for (uint64_t i = 0; i < CALLS; i++)
        wrong += probed(i, i + 1, i + 2, i + 3, i + 4, i + 5) != i;
    // The handler's count is whole once no more signals come here.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    __atomic_fetch_add(&handled_all, handled, __ATOMIC_RELAXED);
    return wrong ? (void *)&handled_all : NULL;
}

// Calls by threads, and by the handlers of a timer that interrupts them. Returns how many.
static uint64_t calls_make(function to_call)
{
    pthread_t thread[THREADS];
    sigset_t alarm, before;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
    const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    probed = to_call;
    handled = handled_all = 0;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigaction(SIGALRM, &action, &old);
    pthread_barrier_init(&start, NULL, THREADS);
    setitimer(ITIMER_REAL, &often, NULL);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, thread_run, NULL), 0);
    pthread_sigmask(SIG_BLOCK, &alarm, &before); // the threads are to be interrupted
    for (size_t i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL); // one may be pending
    sigaction(SIGALRM, &old, NULL);
    pthread_barrier_destroy(&start);
    assert_true(handled_all > 0);
    return (uint64_t)THREADS * CALLS + handled_all + handled;
}

static void hits_are_counted_exactly(void **state)
{
    (void)state;
    uint64_t calls = calls_make(function_make(TL_RECORD_HIT, TL_RECORD_NONE, 0, 0));
    assert_int_equal(counter(0), calls);
}

static void events_are_recorded_or_dropped(void **state)
{
    (void)state;
    uint64_t calls = calls_make(function_make(TL_RECORD_EVENT, TL_RECORD_RETURN, 1, 0)), full = 0;
    assert_int_equal(counter(1), 2 * calls);
    for (size_t i = 0; i <= TL_THREAD_SLOTS; i++) {
        const struct tl_ring_header *ring = ring_of(i);
        const struct tl_ring_slot *slot = (const struct tl_ring_slot *)(const void *)(ring + 1);
        assert_true(ring->head <= RING_SLOTS);
        for (uint64_t k = 0; k < ring->head; k++, full++) {
            bool returned = TL_RING_KIND(slot[k].word) == TL_RING_RETURN;
            assert_true(slot[k].word && TL_RING_PROBE(slot[k].word) == 1 && slot[k].time);
            assert_true(TL_RING_TID(slot[k].word) == TL_RING_TID(slot[0].word));
            assert_true(returned || slot[k].arg[0] == 7 || slot[k].arg[0] + 5 == slot[k].arg[5]);
        }
    }
    assert_true(full >= THREADS * RING_SLOTS);
}

static void latencies_are_paired_exactly(void **state)
{
    (void)state;
    uint64_t calls = calls_make(function_make(TL_RECORD_ENTER, TL_RECORD_EXIT, 0, 0)), paired = 0;
    for (size_t i = 0; i <= TL_THREAD_SLOTS; i++) {
        const struct tl_hist *hist = (const struct tl_hist *)(uintptr_t)(block_of(i) + HIST_OFF);
        assert_true(hist->lost == 0 && hist->unpaired == 0);
        for (size_t k = 0; k < TL_HIST_BUCKETS; k++)
            paired += hist->bucket[k];
    }
    assert_int_equal(paired, calls);
}

// ---- costs --------------------------------------------------------------------------------------

#define BURST 1000u

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double call_cost(function to_call, unsigned rounds)
{
    // The first thread to come has its home slot.
    struct tl_ring_header *ring = ring_of((uint64_t)pthread_self() * TL_HASH >> 56);
    double best = 1e9;
    for (unsigned round = 0; round < rounds; round++) {
        double from = now_ns();
        for (uint64_t i = 0; i < BURST; i++)
            to_call(i, 2, 3, 4, 5, 6);
        double cost = (now_ns() - from) / BURST;
        best = cost < best ? cost : best;
        ring->tail = ring->head; // the reader keeps up
    }
    return best;
}

static double clock_cost(unsigned rounds)
{
    double best = 1e9;
    for (unsigned round = 0; round < rounds; round++) {
        double from = now_ns();
        uint64_t sum = 0;
        for (unsigned i = 0; i < BURST; i++)
            sum += __builtin_ia32_rdtsc();
        __asm__ volatile("" : : "r"(sum));
        double cost = (now_ns() - from) / BURST;
        best = cost < best ? cost : best;
    }
    return best;
}

static int costs_print(unsigned rounds)
{
    static const struct {
        const char *name;
        uint8_t first, last, clocks;
    } cases[] = {
        {"hit", TL_RECORD_HIT, TL_RECORD_NONE, 0},
        {"event, 6 arguments", TL_RECORD_EVENT, TL_RECORD_NONE, 1},
        {"event, return value", TL_RECORD_NONE, TL_RECORD_RETURN, 1},
        {"entry and return", TL_RECORD_ENTER, TL_RECORD_EXIT, 2},
    };
    setup(NULL);
    double bare = call_cost(function_make(TL_RECORD_NONE, TL_RECORD_NONE, 0, 0), rounds);
    double clock = clock_cost(rounds);
    printf("bare call %.1f ns, clock %.1f ns\n", bare, clock);
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        for (int dead = 0; dead < 2; dead++) {
            double cost = call_cost(
                function_make(cases[i].first, cases[i].last, 0, dead ? TL_REGSET_FLAGS : 0),
                rounds);
            printf("%-20s flags %s: %5.1f ns, above the clock %5.1f ns\n", cases[i].name,
                   dead ? "dead" : "live", cost - bare, cost - bare - cases[i].clocks * clock);
        }
    }
    return teardown(NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return costs_print((unsigned)strtoul(argv[1], NULL, 0));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hits_are_counted_exactly, setup, teardown),
        cmocka_unit_test_setup_teardown(events_are_recorded_or_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(latencies_are_paired_exactly, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

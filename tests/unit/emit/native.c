// The agent's image, run by its processor (or what stands in for it): its entries keep what they
// must and use little stack, from whatever state; and with detours as the emitter makes them, in
// threads that signals interrupt, counts, events and times are exact. With atomic instructions and,
// where there are processors that have none, without.
//
//   native IMAGE [SEED]
#include "native_isa.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/layout.h"

#define CODE_SIZE 0x40000u
#define DETOURS_OFF 0x10000u // in the code, behind the image
#define DETOUR_ROOM 1024u
#define CONTROL_ADDR UINT64_C(0x51000000)
#define CONTROL_SIZE (TL_HOMES_OFF + TL_HOMES_SIZE)
#define SHARED_ADDR UINT64_C(0x100000000)
#define RING_SLOTS 4096u
#define PAIR_SLOTS 4096u
#define HIST_OFF 128u
#define RING_OFF 24576u
#define PAIR_OFF (RING_OFF + 266240u)
#define STRIDE (PAIR_OFF + 16u * PAIR_SLOTS)
#define COUNTER_OFF(probe) (TL_BLOCK_HEADER_SIZE + 8u * (probe))
#define STACK_LIMIT 256u // of a detour and all that it calls
#define THREADS 4
#define CALLS 60000
#define STATES 200

_Static_assert(HIST_OFF + 2 * sizeof(struct tl_hist) <= RING_OFF, "histograms");
_Static_assert(RING_OFF + sizeof(struct tl_ring_header) +
                       RING_SLOTS * sizeof(struct tl_ring_slot) <=
                   PAIR_OFF,
               "ring");

static unsigned long long seed;
static uint64_t random_state;
static struct tl_agent_head head;
static tl_addr detour_next;

static uint64_t next(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return random_state ^ random_state >> 29;
}

static void fail(const char *what, const char *where)
{
    fprintf(stderr, "%s: %s\n", where, what);
    exit(1);
}

static uint64_t block_of(size_t index)
{
    return SHARED_ADDR + TL_BLOCK_FIRST_OFF + index * STRIDE;
}

static uint64_t counter(uint32_t probe)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < TL_BLOCK_COUNT; i++)
        sum += *(const volatile uint64_t *)(uintptr_t)(block_of(i) + COUNTER_OFF(probe));
    return sum;
}

// ---- the install
// ----------------------------------------------------------------------------------

static struct tl_control *control_page(void)
{
    return (struct tl_control *)(uintptr_t)CONTROL_ADDR;
}

static void control_fill(enum tl_thread_pointer way)
{
    memset((void *)(uintptr_t)CONTROL_ADDR, 0, CONTROL_SIZE);
    *control_page() = (struct tl_control){.live = TL_CONTROL_LIVE,
                                          .table_addr = CONTROL_ADDR + TL_TABLE_OFF,
                                          .shared_block = block_of(TL_THREAD_SLOTS),
                                          .thread_pointer = way};
}

static void head_put(void)
{
    memcpy((void *)(uintptr_t)native_isa.code_addr, &head, sizeof head);
}

static void blocks_clear(void)
{
    madvise((void *)(uintptr_t)SHARED_ADDR, TL_BLOCK_FIRST_OFF + (size_t)TL_BLOCK_COUNT * STRIDE,
            MADV_DONTNEED);
}

static void install(const char *image)
{
    int file = open(image, O_RDONLY);
    machine_area(native_isa.code_addr, CODE_SIZE, true);
    machine_area(CONTROL_ADDR, (CONTROL_SIZE + 0xffff) & ~0xffffu, false);
    machine_area(SHARED_ADDR, TL_BLOCK_FIRST_OFF + (size_t)TL_BLOCK_COUNT * STRIDE, false);
    if (file < 0 ||
        read(file, (void *)(uintptr_t)native_isa.code_addr, DETOURS_OFF) < (ssize_t)sizeof head)
        fail("can't be read", image);
    close(file);
    memcpy(&head, (void *)(uintptr_t)native_isa.code_addr, sizeof head);
    head.control_addr = CONTROL_ADDR;
    head.data_addr = SHARED_ADDR;
    head.stride = STRIDE;
    head.hist_off = HIST_OFF;
    head.ring_off = RING_OFF;
    head.pair_off = PAIR_OFF;
    head.ring_mask = RING_SLOTS - 1;
    head.pair_mask = PAIR_SLOTS - 1;
    head.process_count = 1;
    head.thread_pointer = native_isa.way;
    head.homes_shift = TL_HOMES_SHIFT_DEFAULT;
    head_put();
    detour_next = native_isa.code_addr + DETOURS_OFF;
}

static struct tl_emit_in input(void)
{
    struct tl_emit_in in = {.action = TL_ACTION_COUNT,
                            .thread_pointer = (enum tl_thread_pointer)head.thread_pointer,
                            .table_addr = CONTROL_ADDR + TL_TABLE_OFF,
                            .control_addr = CONTROL_ADDR,
                            .homes_addr = CONTROL_ADDR + TL_HOMES_OFF,
                            .homes_shift = (uint8_t)head.homes_shift,
                            .atomics = head.atomics != 0,
                            .slow_addr = native_isa.code_addr + head.slow_count_off,
                            .insn_count = 1};
    for (size_t i = 0; i < TL_RECORD_ENTRIES; i++)
        in.record_addr[i + 1] = head.record_off[i] ? native_isa.code_addr + head.record_off[i] : 0;
    return in;
}

// Puts a probe on the nop at `at`. kind NONE: a count.
static void probe_put(tl_addr at, enum tl_record_kind kind, uint32_t probe, tl_regset dead)
{
    struct tl_insn insn;
    struct tl_detour detour;
    uint32_t word = native_isa.nop;
    native_isa.arch->decode((uint8_t *)&word, sizeof word, at, &insn);
    struct tl_emit_in in = input();
    in.insn = &insn;
    in.dead = dead;
    in.counter_off = COUNTER_OFF(probe);
    in.resume_addr = at + 4;
    if (kind != TL_RECORD_NONE) {
        in.action = TL_ACTION_RECORD;
        in.record[0] = (struct tl_record){.kind = (uint8_t)kind, .counter_off = COUNTER_OFF(probe)};
    }
    if (native_isa.arch->emit_detour(&in, detour_next, &detour, NULL) || detour.refusal ||
        !native_isa.arch->emit_jump(at, detour_next, (uint8_t *)&word))
        fail("no detour", "probe");
    memcpy((void *)(uintptr_t)detour_next, detour.bytes, detour.size);
    native_word_put(at, word);
    detour_next += DETOUR_ROOM;
    if (detour_next > native_isa.code_addr + CODE_SIZE - DETOUR_ROOM)
        detour_next = native_isa.code_addr + DETOURS_OFF; // of tests that are over
}

// ---- entries keep everything
// ----------------------------------------------------------------------

struct way {
    const char *name;
    bool shared;
    bool dead; // a child that is not followed: the control region was wiped
};

static const struct way ways[] = {
    {"a block of its own", false, false},
    {"a shared block", true, false},
    {"a silent child", false, true},
};

// How much of the stack below S was written.
static unsigned stack_used(uint64_t sp)
{
    const uint8_t *stack = (const uint8_t *)(uintptr_t)STACK_ADDR;
    for (uint64_t at = 0; at < sp - STACK_ADDR; at++) {
        if (stack[at] != 0xa5)
            return (unsigned)(sp - STACK_ADDR - at);
    }
    return 0;
}

// A word on the stack that points into a detour keeps it from being taken away.
static bool stack_points(uint64_t sp, tl_addr detour)
{
    for (uint64_t at = STACK_ADDR; at < sp; at += 8) {
        uint64_t word = *(const uint64_t *)(uintptr_t)at;
        if (word >= detour && word < detour + DETOUR_ROOM)
            return true;
    }
    return false;
}

static unsigned entry_try(enum tl_record_kind kind, const char *name)
{
    struct machine_state from, to;
    tl_addr detour = detour_next;
    native_state_random(&from, next);
    probe_put(native_isa.site_addr, kind, 1, 0);
    memset((void *)(uintptr_t)STACK_ADDR, 0xa5, STACK_SIZE);
    to = from;
    if (!machine_run(&from, &to))
        fail("goes on for ever", name);
    if (!native_went_on(&from, &to, native_isa.site_addr + 4))
        fail("registers changed", name);
    if (stack_points(native_sp(&from), detour))
        fail("a word that points into the detour stays on the stack", name);
    return stack_used(native_sp(&from));
}

static void entries_keep(void)
{
    static const struct {
        const char *name;
        enum tl_record_kind kind;
    } entry[] = {
        {"count", TL_RECORD_NONE},        {"hit", TL_RECORD_HIT},       {"event", TL_RECORD_EVENT},
        {"Go event", TL_RECORD_GO_EVENT}, {"return", TL_RECORD_RETURN}, {"enter", TL_RECORD_ENTER},
        {"exit", TL_RECORD_EXIT},
    };
    unsigned deepest = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        enum tl_thread_pointer way = ways[w].shared ? TL_TP_SHARED : native_isa.way;
        for (size_t e = 0; e < sizeof entry / sizeof *entry; e++) {
            uint64_t hits = ways[w].dead ? 0 : STATES;
            head.thread_pointer = way;
            head_put();
            blocks_clear();
            for (unsigned i = 0; i < STATES; i++) {
                if (i % 8 == 0 || ways[w].dead) // claims again, now and then
                    control_fill(way);
                if (ways[w].dead)
                    memset((void *)(uintptr_t)CONTROL_ADDR, 0, CONTROL_SIZE);
                unsigned used = entry_try(entry[e].kind, entry[e].name);
                deepest = used > deepest ? used : deepest;
            }
            if (counter(1) != hits)
                fail("counted wrongly", entry[e].name);
        }
    }
    printf("at most %u bytes of stack\n", deepest);
    if (deepest > STACK_LIMIT)
        fail("more stack than is promised", "entries");
    head.thread_pointer = native_isa.way;
    head_put();
}

// ---- threads and signals
// ----------------------------------------------------------------------------

typedef uint64_t (*function)(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                             uint64_t f);
static function probed;
static pthread_barrier_t start;
static _Thread_local volatile uint64_t handled; // calls by this thread's signal handlers
static uint64_t handled_all;

// A function of two nops that returns its first argument; its probes are of the kinds `first` and
// `last`.
static function function_make(enum tl_record_kind first, enum tl_record_kind last, uint32_t probe,
                              tl_regset dead)
{
    tl_addr at = detour_next;
    detour_next += DETOUR_ROOM;
    native_word_put(at, native_isa.nop);
    native_word_put(at + 4, native_isa.nop);
    native_word_put(at + 8, native_isa.nop);
    native_word_put(at + 12, native_isa.ret);
    probe_put(at, first, probe, dead);
    if (last != TL_RECORD_NONE)
        probe_put(at + 8, last, probe, dead);
    return (function)(uintptr_t)at;
}

static void on_alarm(int number)
{
    (void)number;
    if (probed(7, 8, 9, 10, 11, 12) == 7)
        handled++;
}

static void *thread_run(void *opaque)
{
    (void)opaque;
    uint64_t wrong = 0;
    sigset_t all;
    pthread_barrier_wait(&start);
    for (uint64_t i = 0; i < CALLS; i++)
        wrong += probed(i, i + 1, i + 2, i + 3, i + 4, i + 5) != i;
    sigfillset(&all); // the handler's count is whole once no more signals come here
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    __atomic_fetch_add(&handled_all, handled, __ATOMIC_RELAXED);
    return wrong ? &handled_all : NULL;
}

// Calls by threads, and by the handlers of a timer that interrupts them. Returns how many.
static uint64_t calls_make(function to_call)
{
    pthread_t thread[THREADS];
    void *wrong;
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigset_t alarm;
    probed = to_call;
    handled = handled_all = 0;
    signal(SIGALRM, on_alarm);
    pthread_barrier_init(&start, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, thread_run, NULL);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL); // the threads are to be interrupted
    setitimer(ITIMER_REAL, &often, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &wrong);
        if (wrong)
            fail("a call returned something else", "threads");
    }
    setitimer(ITIMER_REAL, &never, NULL);
    return handled_all + (uint64_t)THREADS * CALLS;
}

static void fresh(void)
{
    detour_next = native_isa.code_addr + DETOURS_OFF;
    blocks_clear();
    control_fill(native_isa.way);
}

static void counts_are_exact(void)
{
    for (size_t i = 0; i < NATIVE_DEAD; i++) {
        fresh();
        uint64_t calls =
            calls_make(function_make(TL_RECORD_NONE, TL_RECORD_HIT, 1, native_isa.dead[i]));
        if (counter(1) != 2 * calls)
            fail("counts are not exact", "counts");
    }
}

static void events_are_whole(void)
{
    fresh();
    uint64_t calls = calls_make(function_make(TL_RECORD_EVENT, TL_RECORD_RETURN, 1, 0)), found = 0;
    if (counter(1) != 2 * calls)
        fail("counts are not exact", "events");
    for (size_t i = 0; i < TL_BLOCK_COUNT; i++) {
        const struct tl_ring_header *ring =
            (const struct tl_ring_header *)(uintptr_t)(block_of(i) + RING_OFF);
        const struct tl_ring_slot *slot = (const struct tl_ring_slot *)(ring + 1);
        if (ring->head > RING_SLOTS)
            fail("more than the ring holds", "events");
        for (uint64_t k = 0; k < ring->head; k++) {
            uint64_t first = slot[k].arg[0], kind = TL_RING_KIND(slot[k].word);
            bool entry = kind == TL_RING_ENTRY;
            if (TL_RING_PROBE(slot[k].word) != 1 || (!entry && kind != TL_RING_RETURN) ||
                slot[k].time == 0)
                fail("a slot is not whole", "events");
            for (uint64_t a = 1; entry && a < TL_EVENT_ARGS; a++)
                if (slot[k].arg[a] != first + a)
                    fail("arguments are wrong", "events");
        }
        found += ring->head;
    }
    if (found < RING_SLOTS)
        fail("too few events", "events");
}

static void times_are_paired(void)
{
    uint64_t times = 0, unpaired = 0, lost = 0;
    fresh();
    uint64_t calls = calls_make(function_make(TL_RECORD_ENTER, TL_RECORD_EXIT, 1, 0));
    if (counter(1) != 2 * calls)
        fail("counts are not exact", "times");
    for (size_t i = 0; i < TL_BLOCK_COUNT; i++) {
        const struct tl_hist *hist =
            (const struct tl_hist *)(uintptr_t)(block_of(i) + HIST_OFF) + 1;
        uint64_t here = 0;
        for (size_t k = 0; k < TL_HIST_BUCKETS; k++)
            here += hist->bucket[k];
        if (here && (~hist->min_inverted > hist->max || hist->sum < hist->max))
            fail("a histogram contradicts itself", "times");
        times += here;
        unpaired += hist->unpaired;
        lost += hist->lost;
    }
    if (times + unpaired != calls || lost || unpaired)
        fail("not every call has its time", "times");
}

int main(int argc, char **argv)
{
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (unsigned long long)getpid();
    random_state = seed;
    if (argc < 2)
        fail("no image", argv[0]);
    printf("seed %llu\n", seed);
    machine_begin();
    install(argv[1]);
    for (uint64_t atomics = native_isa.atomics_first; atomics < 2; atomics++) {
        head.atomics = atomics;
        head_put();
        entries_keep();
        counts_are_exact();
        events_are_whole();
        times_are_paired();
    }
    printf("exact in %d threads\n", THREADS);
    return 0;
}

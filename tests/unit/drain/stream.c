// The stream step by step: records that are being written, abandoned, late, too many, from
// elsewhere; and a target that writes whatever it likes.
#include "writer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#define PROBES 3u
#define TAKEN_MAX 4096
#define PATIENCE_NS (TL_STREAM_PATIENCE_MS * 1000000ull)
#define NS_PER_SECOND 1000000000ull

// A stream over one memory, with a clock in nanoseconds; writers stamp with now().
struct bench {
    struct shared shared;
    struct tl_stream *stream;
    struct tl_clock_map clock;
    struct tl_raw_event taken[TAKEN_MAX];
    uint32_t source[TAKEN_MAX];
    size_t count;
    size_t take_max; // then take says -77
};

static uint64_t now(void)
{
    return tl_clock_ticks(true);
}

static void bench_init(struct bench *bench, uint32_t processes, uint32_t ring_slots)
{
    memset(bench, 0, sizeof *bench);
    bench->take_max = SIZE_MAX;
    shared_create(&bench->shared, processes, PROBES, ring_slots);
    ((struct tl_data_header *)bench->shared.memory.data)->coarse_ns = UINT64_MAX;
    tl_clock_map_init(&bench->clock, true);
    assert_int_equal(tl_stream_create(&bench->stream, NULL), 0);
    assert_int_equal(tl_stream_add_memory(bench->stream, &bench->shared.memory, NULL), 0);
}

static void bench_deinit(struct bench *bench)
{
    tl_stream_destroy(bench->stream);
    shared_destroy(&bench->shared);
}

static int event_take(void *opaque, uint32_t source, const struct tl_raw_event *event)
{
    struct bench *bench = opaque;
    if (bench->count < TAKEN_MAX) {
        bench->taken[bench->count] = *event;
        bench->source[bench->count] = source;
    }
    bench->count++;
    return bench->count < bench->take_max ? 0 : -77;
}

static int bench_read(struct bench *bench, bool final)
{
    return tl_stream_read(bench->stream, &bench->clock, final, event_take, bench, NULL);
}

// Reads until count events came. Returns how long it took.
static uint64_t bench_wait(struct bench *bench, size_t count)
{
    uint64_t start = now();
    while (bench->count < count) {
        assert_true(bench_read(bench, false) >= 0);
        assert_true(now() - start < 20 * NS_PER_SECOND);
    }
    return now() - start;
}

// One read, begun when all that was written is old enough: what is not held comes.
static void bench_read_settled(struct bench *bench)
{
    for (uint64_t start = now(); now() - start <= 2 * TL_STREAM_SLACK_NS;)
        continue;
    assert_true(bench_read(bench, false) >= 0);
}

static void values_check(const struct bench *bench, const uint64_t *values, size_t count)
{
    assert_int_equal(bench->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(bench->taken[i].arg[0], values[i]);
        assert_true(!i || bench->taken[i].time_ns >= bench->taken[i - 1].time_ns);
    }
}

static void hit_now(struct writer *writer, uint64_t value)
{
    assert_true(writer_hit(writer, 0, now(), value));
}

// ---- order

static void test_threads_are_merged_by_time(void **state)
{
    (void)state;
    static struct bench bench;
    static struct writer writer[8];
    uint64_t expected[400];
    bench_init(&bench, 2, 256);
    for (uint32_t i = 0; i < 8; i++)
        writer_init(&writer[i], &bench.shared, i * 61, i + 10);
    for (uint64_t i = 0; i < 400; i++) {
        hit_now(&writer[i * i % 7], i);
        expected[i] = i;
    }
    assert_int_equal(bench_read(&bench, true), 400);
    values_check(&bench, expected, 400);
    for (size_t i = 0; i < 400; i++) {
        uint32_t index = (uint32_t)(i * i % 7);
        assert_int_equal(bench.taken[i].tid, index + 10);
        assert_int_equal(bench.taken[i].process, index * 61 / TL_BLOCK_COUNT);
        assert_int_equal(bench.taken[i].kind, TL_RING_ENTRY);
    }
    assert_int_equal(tl_stream_delivered(bench.stream, 0, 0), 400);
    assert_int_equal(tl_stream_delivered(bench.stream, 0, 1), 0);
    assert_int_equal(tl_stream_delivered(bench.stream, 1, 0), 0);
    assert_int_equal(tl_stream_delivered(bench.stream, 0, UINT32_MAX), 0);
    bench_deinit(&bench);
}

// Equal times (a coarse clock) keep each thread's order.
static void test_equal_times_keep_their_order(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer[2];
    uint64_t step = now(), last[2] = {0};
    bench_init(&bench, 1, 64);
    writer_init(&writer[0], &bench.shared, 5, 1);
    writer_init(&writer[1], &bench.shared, 6, 2);
    for (uint64_t i = 1; i <= 100; i++)
        assert_true(writer_hit(&writer[i % 2], 0, step + i / 20, i));
    assert_int_equal(bench_read(&bench, true), 100);
    for (size_t i = 0; i < 100; i++) {
        uint32_t tid = bench.taken[i].tid;
        assert_true(bench.taken[i].arg[0] > last[tid - 1]);
        last[tid - 1] = bench.taken[i].arg[0];
    }
    bench_deinit(&bench);
}

// With a coarse clock nothing is in order that has the time of the last step.
static void test_a_coarse_step_is_not_in_order_before_the_next(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer;
    bench_init(&bench, 1, 64);
    struct tl_data_header *header = bench.shared.memory.data;
    uint64_t step = now();
    header->coarse_ns = step;
    writer_init(&writer, &bench.shared, 5, 1);
    assert_true(writer_hit(&writer, 0, step, 1));
    assert_int_equal(bench_read(&bench, false), 0);
    header->coarse_ns = step + 1000000;
    assert_int_equal(bench_wait(&bench, 1) > 0, 1);
    bench_deinit(&bench);
}

// A handler's record lies behind the one it interrupted and has an earlier time. false: the machine
// stood still for so long that the stream had to go on; says nothing.
static bool nested_run(void)
{
    static struct bench bench;
    struct writer writer;
    uint64_t outer, inner;
    bench_init(&bench, 1, 8);
    writer_init(&writer, &bench.shared, 9, 1);
    hit_now(&writer, 0);
    assert_true(writer_reserve(&writer, 1, &outer));
    assert_true(writer_reserve(&writer, 2, &inner)); // the handler
    writer_fill(&writer, inner, now(), 1);
    uint64_t start = now();
    assert_true(bench_read(&bench, false) <= 1);
    hit_now(&writer, 2); // another handler, in the handler
    writer_finish(&writer, inner, 2, TL_RING_RETURN);
    bench_read_settled(&bench);
    bool told = now() - start < PATIENCE_NS / 2;
    // All that is not older than outer's reservation waits for it.
    assert_true(bench.count <= 1 || !told);
    writer_fill(&writer, outer, now(), 3);
    writer_finish(&writer, outer, 1, TL_RING_ENTRY);
    hit_now(&writer, 4);
    assert_true(bench_read(&bench, true) >= 0);
    values_check(&bench, (const uint64_t[]){0, 1, 2, 3, 4}, 5);
    assert_int_equal(bench.taken[1].kind, TL_RING_RETURN);
    bench_deinit(&bench);
    return told;
}

static void test_nested_records_come_by_their_time(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        if (nested_run())
            return;
    }
    skip();
}

// ---- writers that stand still

// The others wait for a writer that may have an older time, for the patience and no longer.
static void test_a_stopped_writer_holds_the_stream_for_the_patience(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer stopped, other;
    uint64_t position;
    bench_init(&bench, 1, 8);
    writer_init(&stopped, &bench.shared, 1, 1);
    writer_init(&other, &bench.shared, 2, 2);
    assert_int_equal(bench_read(&bench, false), 0);
    assert_true(writer_reserve(&stopped, 1, &position));
    uint64_t time = now();
    hit_now(&other, 1);
    assert_true(bench_wait(&bench, 1) > PATIENCE_NS * 9 / 10);
    hit_now(&other, 2);
    bench_read_settled(&bench);
    assert_int_equal(bench.count, 2);
    // Too late for its time: lost, and the stream says so.
    writer_fill(&stopped, position, time, 99);
    writer_finish(&stopped, position, 1, TL_RING_ENTRY);
    assert_int_equal(bench_read(&bench, false), 0);
    assert_int_equal(tl_stream_delivered(bench.stream, 0, 1), 0);
    // The ring goes on, all of its slots.
    for (uint64_t i = 0; i < 8; i++)
        hit_now(&stopped, 3 + i);
    bench_wait(&bench, 10);
    values_check(&bench, (const uint64_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 10);
    bench_deinit(&bench);
}

// One that reads its clock only after it went on is late in the ring, not in time.
static void test_a_stopped_writer_with_a_fresh_time_is_handed_over(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer stopped, other;
    uint64_t position;
    bench_init(&bench, 1, 8);
    writer_init(&stopped, &bench.shared, 1, 1);
    writer_init(&other, &bench.shared, 2, 2);
    assert_true(writer_reserve(&stopped, 1, &position));
    hit_now(&other, 1);
    bench_wait(&bench, 1);
    writer_fill(&stopped, position, now(), 2);
    writer_finish(&stopped, position, 1, TL_RING_ENTRY);
    bench_wait(&bench, 2);
    values_check(&bench, (const uint64_t[]){1, 2}, 2);
    bench_deinit(&bench);
}

// A handler that jumped out of a record: its place is lost in every round, nothing else is.
static void test_an_abandoned_slot_is_given_up_for_good(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer;
    uint64_t position, expected = 0, abandoned;
    bench_init(&bench, 1, 8);
    writer_init(&writer, &bench.shared, 1, 1);
    for (uint64_t i = 0; i < 3; i++)
        hit_now(&writer, expected++);
    bench_wait(&bench, 3);
    assert_true(writer_reserve(&writer, 1, &abandoned));
    // The ring holds seven behind it, then it is full until the slot is given up.
    uint64_t start = now();
    for (size_t full = 3; full < 10; full++)
        hit_now(&writer, expected++);
    assert_false(writer_hit(&writer, 2, now(), 1000));
    bench_wait(&bench, 10);
    while (!writer_reserve(&writer, 0, &position)) {
        assert_true(bench_read(&bench, false) >= 0);
        assert_true(now() - start < 20 * NS_PER_SECOND);
    }
    assert_true(now() - start > PATIENCE_NS * 9 / 10);
    writer_fill(&writer, position, now(), 2000); // this one has the given-up slot
    writer_finish(&writer, position, 0, TL_RING_ENTRY);
    assert_int_equal(position & 7, abandoned & 7);
    for (unsigned round = 0; round < 100; round++) {
        for (size_t i = 0; i < 7; i++)
            hit_now(&writer, expected++);
        // The late writer comes back in the middle of a later record.
        writer_finish(&writer, abandoned, 1, TL_RING_ENTRY);
        bench_wait(&bench, expected);
        hit_now(&writer, 2000);
    }
    assert_int_equal(bench_read(&bench, true), 0);
    for (size_t i = 0; i < expected; i++)
        assert_int_equal(bench.taken[i].arg[0], i);
    assert_int_equal(tl_stream_delivered(bench.stream, 0, 0), expected);
    assert_int_equal(tl_stream_delivered(bench.stream, 0, 1), 0);
    bench_deinit(&bench);
}

// More writers stopped in one ring than are noted one by one.
static void test_many_stopped_writers_end(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer;
    uint64_t position[100];
    bench_init(&bench, 1, 128);
    writer_init(&writer, &bench.shared, TL_BLOCK_COUNT - 1, 1);
    for (size_t i = 0; i < 100; i++)
        assert_true(writer_reserve(&writer, 1, &position[i]));
    hit_now(&writer, 1);
    bench_wait(&bench, 1);
    for (size_t i = 0; i < 100; i++) {
        writer_fill(&writer, position[i], now(), 5);
        writer_finish(&writer, position[i], 1, TL_RING_ENTRY);
    }
    for (uint64_t i = 0; i < 1000; i++) {
        (void)writer_hit(&writer, 2, now(), 2);
        assert_true(bench_read(&bench, false) >= 0);
    }
    assert_true(bench_read(&bench, true) >= 0);
    uint64_t lost = 1000 - writer.dropped - tl_stream_delivered(bench.stream, 0, 2);
    // Each of the given-up slots costs one record a round.
    assert_true(lost > 0 && lost <= 900);
    assert_int_equal(tl_stream_delivered(bench.stream, 0, 0), 1);
    bench_deinit(&bench);
}

// ---- amounts

static void test_a_full_ring_drops_and_nothing_else_is_lost(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer;
    uint64_t hits[PROBES], kept = 0;
    bench_init(&bench, 1, 16);
    writer_init(&writer, &bench.shared, 77, 1);
    for (uint64_t i = 0; i < 1000; i++) {
        kept += writer_hit(&writer, (uint32_t)(i % PROBES), now(), i);
        if (i % 100 == 99)
            assert_true(bench_read(&bench, false) >= 0);
    }
    assert_true(bench_read(&bench, true) >= 0);
    assert_int_equal(tl_drain_counts(&bench.shared.memory, 0, PROBES, hits, NULL), 0);
    assert_int_equal(hits[0] + hits[1] + hits[2], 1000);
    assert_int_equal(bench.count, kept);
    assert_int_equal(bench.count + writer.dropped, 1000);
    assert_int_equal(bench.count, 160);
    bench_deinit(&bench);
}

// Reading touches only what writers touched: the rest stays without memory.
static void test_blocks_that_nobody_uses_stay_holes(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer;
    struct stat before, after;
    bench_init(&bench, 8, 4096);
    for (uint32_t i = 0; i < 5; i++) {
        writer_init(&writer, &bench.shared, i * 397, 1);
        hit_now(&writer, i);
    }
    assert_int_equal(fstat(bench.shared.fd, &before), 0);
    bench_wait(&bench, 5);
    assert_int_equal(bench_read(&bench, true), 0);
    assert_int_equal(fstat(bench.shared.fd, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
    bench_deinit(&bench);
}

// take ends a read; the next goes on behind it.
static void test_take_can_stop_and_go_on(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer;
    bench_init(&bench, 1, 16);
    writer_init(&writer, &bench.shared, 7, 1);
    for (uint64_t i = 0; i < 10; i++)
        hit_now(&writer, i);
    bench.take_max = 4;
    assert_int_equal(bench_read(&bench, true), -77);
    assert_int_equal(bench.count, 4);
    bench.take_max = SIZE_MAX;
    assert_int_equal(bench_read(&bench, true), 6);
    values_check(&bench, (const uint64_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 10);
    bench_deinit(&bench);
}

struct backlog {
    uint64_t count, last_ns, wrong;
};

static int backlog_take(void *opaque, uint32_t source, const struct tl_raw_event *event)
{
    struct backlog *backlog = opaque;
    (void)source;
    backlog->wrong += event->time_ns < backlog->last_ns || event->arg[0] != backlog->count;
    backlog->last_ns = event->time_ns;
    backlog->count++;
    return 0;
}

// Far more than is held at a time: in order, nothing lost.
static void test_a_backlog_comes_in_order_and_whole(void **state)
{
    (void)state;
    enum { RINGS = 40, SLOTS = 32768 };
    static struct bench bench;
    static struct writer writer[RINGS];
    struct backlog backlog = {0};
    const int total = RINGS * SLOTS;
    uint64_t start = now();
    assert_true(total > (int)TL_STREAM_HELD_MAX);
    bench_init(&bench, 1, SLOTS);
    for (uint32_t i = 0; i < RINGS; i++)
        writer_init(&writer[i], &bench.shared, i, i + 1);
    for (uint64_t i = 0; i < (uint64_t)total; i++)
        assert_true(writer_hit(&writer[i * 7 % RINGS], 0, start - (uint64_t)total + i, i));
    int first = tl_stream_read(bench.stream, &bench.clock, false, backlog_take, &backlog, NULL);
    assert_true(first > 0);
    start = now();
    assert_int_equal(tl_stream_read(bench.stream, &bench.clock, true, backlog_take, &backlog, NULL),
                     total - first);
    print_message("%d events, %llu ns each\n", total - first,
                  (unsigned long long)(now() - start) / (unsigned)(total - first));
    assert_int_equal(backlog.wrong, 0);
    assert_int_equal(backlog.count, total);
    bench_deinit(&bench);
}

// ---- from elsewhere

static void push(struct bench *bench, uint64_t time, uint64_t value, int expected)
{
    const struct tl_raw_event event = {
        .time_ns = time, .probe = 70000, .kind = TL_RING_ENTRY, .arg = {value}};
    assert_int_equal(tl_stream_push(bench->stream, TL_STREAM_SOURCES_MAX - 1, &event, NULL),
                     expected);
}

static void test_events_from_elsewhere_find_their_place(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer;
    bench_init(&bench, 1, 16);
    writer_init(&writer, &bench.shared, 7, 1);
    tl_stream_set_pushed_until(bench.stream, 0);
    uint64_t start = now();
    assert_true(writer_hit(&writer, 0, start, 0));
    assert_true(writer_hit(&writer, 0, start + 20, 2));
    assert_int_equal(bench_read(&bench, false), 0); // more may come from elsewhere
    push(&bench, start + 10, 1, 0);
    push(&bench, start + 30, 3, 0);
    tl_stream_set_pushed_until(bench.stream, start + 25);
    bench_wait(&bench, 3);
    values_check(&bench, (const uint64_t[]){0, 1, 2}, 3);
    assert_int_equal(bench.source[1], TL_STREAM_SOURCES_MAX - 1);
    push(&bench, start + 15, 99, 0); // too late
    tl_stream_set_pushed_until(bench.stream, UINT64_MAX);
    bench_wait(&bench, 4);
    assert_int_equal(bench_read(&bench, true), 0);
    values_check(&bench, (const uint64_t[]){0, 1, 2, 3}, 4);
    assert_int_equal(tl_stream_delivered(bench.stream, TL_STREAM_SOURCES_MAX - 1, 70000), 2);
    const struct tl_raw_event wrong = {.probe = PROBES};
    assert_int_equal(tl_stream_push(bench.stream, 0, &wrong, NULL), TL_E_USAGE);
    assert_int_equal(tl_stream_push(bench.stream, TL_STREAM_SOURCES_MAX, &wrong, NULL), TL_E_LIMIT);
    bench_deinit(&bench);
}

// Between the caller's look elsewhere and the read something happens there: it is not late next
// time.
static void test_events_from_elsewhere_may_come_a_read_later(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer;
    bench_init(&bench, 1, 16);
    writer_init(&writer, &bench.shared, 7, 1);
    push(&bench, now(), 0, 0);
    uint64_t elsewhere = now();
    hit_now(&writer, 2);
    bench_read_settled(&bench); // elsewhere was looked at before its event
    push(&bench, elsewhere, 1, 0);
    bench_wait(&bench, 3);
    values_check(&bench, (const uint64_t[]){0, 1, 2}, 3);
    bench_deinit(&bench);
}

// More than may be held: the oldest go, though their turn has not come.
static void test_what_is_held_is_bounded(void **state)
{
    (void)state;
    static struct bench bench;
    bench_init(&bench, 1, 16);
    tl_stream_set_pushed_until(bench.stream, 0);
    for (uint64_t i = 0; i < TL_STREAM_HELD_MAX; i++)
        push(&bench, 1000 + i, i, 0);
    push(&bench, 1, 1, TL_E_LIMIT);
    assert_int_equal(bench_read(&bench, false), TL_STREAM_HELD_MAX / 2);
    assert_int_equal(bench.taken[TAKEN_MAX - 1].arg[0], TAKEN_MAX - 1);
    push(&bench, 1, 1, 0);
    assert_int_equal(bench_read(&bench, false), 0);
    assert_int_equal(bench_read(&bench, true), TL_STREAM_HELD_MAX / 2);
    bench_deinit(&bench);
}

static void test_memories_have_their_own_numbers(void **state)
{
    (void)state;
    static struct bench bench;
    struct shared other;
    struct writer writer[2];
    bench_init(&bench, 1, 16);
    shared_create(&other, 1, 1, 16);
    assert_int_equal(tl_stream_add_memory(bench.stream, &other.memory, NULL), 1);
    writer_init(&writer[0], &bench.shared, 7, 1);
    writer_init(&writer[1], &other, 7, 2);
    ((struct tl_data_header *)other.memory.data)->coarse_ns = UINT64_MAX;
    for (uint64_t i = 0; i < 10; i++)
        hit_now(&writer[i % 2], i);
    assert_true(writer_hit(&writer[1], 2, now(), 10)); // that memory has no such probe
    assert_int_equal(bench_read(&bench, true), 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(bench.source[i], i % 2);
    assert_int_equal(tl_stream_delivered(bench.stream, 0, 0), 5);
    assert_int_equal(tl_stream_delivered(bench.stream, 1, 0), 5);
    struct tl_drain_memory none = other.memory;
    none.layout.ring_off = 0;
    assert_int_equal(tl_stream_add_memory(bench.stream, &none, NULL), TL_E_FORMAT);
    none = other.memory;
    none.layout.ring_slots = 24;
    assert_int_equal(tl_stream_add_memory(bench.stream, &none, NULL), TL_E_FORMAT);
    bench_deinit(&bench);
    shared_destroy(&other);
}

// A process slot's next owner starts with empty rings, though its last one left records half done.
static void test_a_process_slot_is_used_again(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer writer, kept;
    uint64_t position, expected = 0;
    bench_init(&bench, 3, 8);
    writer_init(&kept, &bench.shared, 2 * TL_BLOCK_COUNT, 1);
    for (uint32_t owner = 0; owner < 5; owner++) {
        writer_init(&writer, &bench.shared, TL_BLOCK_COUNT + owner, 1);
        for (uint64_t i = 0; i < 5; i++)
            hit_now(&writer, expected++);
        assert_true(writer_reserve(&writer, 1, &position)); // killed here
        hit_now(&kept, expected++);
        assert_false(tl_stream_process_drained(bench.stream, 0, 1));
        bench_wait(&bench, expected);
        assert_true(tl_stream_process_drained(bench.stream, 0, 1));
        tl_stream_process_forget(bench.stream, 0, 1);
        assert_int_equal(tl_drain_process_clear(&bench.shared.memory, 1, NULL), 0);
    }
    for (size_t i = 0; i < expected; i++)
        assert_int_equal(bench.taken[i].arg[0], i);
    bench_deinit(&bench);
}

// ---- a hostile target

static bool scribbling;

// Writes what could be right, now and then what could not, and seldom anything anywhere.
static void *scribble(void *argument)
{
    const struct shared *shared = argument;
    struct writer writer;
    uint64_t seed = 88172645463325252ull;
    uint64_t *words = shared->memory.data;
    while (__atomic_load_n(&scribbling, __ATOMIC_RELAXED)) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17; // xorshift
        writer_init(&writer, shared, seed >> 10 & 15, 1);
        struct tl_ring_slot *slot = &writer.slot[seed >> 20 & writer.mask];
        uint64_t head = __atomic_load_n(&writer.header->head, __ATOMIC_RELAXED);
        uint64_t tail = __atomic_load_n(&writer.header->tail, __ATOMIC_RELAXED);
        uint64_t step = seed >> 30 & 7, kind = seed % 100000;
        if (kind < 2)
            __atomic_store_n(&words[(seed >> 10) % (shared->memory.size / 8)], seed,
                             __ATOMIC_RELAXED);
        else if (kind < 4)
            __atomic_store_n(&writer.header->head, seed, __ATOMIC_RELAXED);
        else if (kind < 6)
            __atomic_store_n(&writer.header->tail, seed >> 30, __ATOMIC_RELAXED);
        else if (kind < 5000 && head + step - tail <= writer.mask + 1)
            __atomic_store_n(&writer.header->head, head + step, __ATOMIC_RELAXED);
        else if (seed % 2)
            __atomic_store_n(&slot->time, now() - (seed >> 30 & 1023), __ATOMIC_RELAXED);
        else
            __atomic_store_n(&slot->word, TL_RING_WORD(seed >> 40, seed >> 30 & 3, seed >> 32 & 3),
                             __ATOMIC_RELAXED);
    }
    return NULL;
}

static int hostile_take(void *opaque, uint32_t source, const struct tl_raw_event *event)
{
    struct backlog *backlog = opaque;
    backlog->wrong += source != 0 || event->probe >= PROBES || event->process != 0 ||
                      (event->kind != TL_RING_ENTRY && event->kind != TL_RING_RETURN) ||
                      event->time_ns < backlog->last_ns;
    backlog->last_ns = event->time_ns;
    backlog->count++;
    return 0;
}

static void test_a_hostile_writer_only_gets_wrong_events(void **state)
{
    (void)state;
    static struct bench bench;
    pthread_t thread;
    struct backlog backlog = {0};
    uint64_t slowest = 0, hits[PROBES], reads = 0, sum = 0;
    bench_init(&bench, 1, 64);
    __atomic_store_n(&scribbling, true, __ATOMIC_RELAXED);
    assert_int_equal(pthread_create(&thread, NULL, scribble, &bench.shared), 0);
    for (uint64_t start = now(), last = start; last - start < NS_PER_SECOND; reads++) {
        assert_true(tl_stream_read(bench.stream, &bench.clock, reads % 64 == 63, hostile_take,
                                   &backlog, NULL) >= 0);
        assert_int_equal(tl_drain_counts(&bench.shared.memory, 0, PROBES, hits, NULL), 0);
        uint64_t time = now();
        slowest = time - last > slowest ? time - last : slowest;
        last = time;
    }
    __atomic_store_n(&scribbling, false, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(tl_stream_read(bench.stream, &bench.clock, true, hostile_take, &backlog, NULL) >=
                0);
    for (uint32_t i = 0; i < PROBES; i++)
        sum += tl_stream_delivered(bench.stream, 0, i);
    print_message("%llu reads, %llu events, slowest read %llu us\n", (unsigned long long)reads,
                  (unsigned long long)backlog.count, (unsigned long long)slowest / 1000);
    assert_true(backlog.count > 0);
    assert_int_equal(sum, backlog.count);
    assert_int_equal(backlog.wrong, 0);
    assert_true(slowest < 5 * NS_PER_SECOND);
    bench_deinit(&bench);
}

// A time that lies ahead is no reason to wait for it.
static void test_times_ahead_and_behind_hold_nothing_up(void **state)
{
    (void)state;
    static struct bench bench;
    struct writer liar, other;
    bench_init(&bench, 1, 16);
    writer_init(&liar, &bench.shared, 1, 1);
    writer_init(&other, &bench.shared, 2, 2);
    hit_now(&other, 1);
    bench_wait(&bench, 1);
    const uint64_t times[] = {0, 1, UINT64_MAX, UINT64_MAX / 2, now() + 10 * NS_PER_SECOND};
    for (size_t i = 0; i < TL_ARRAY_COUNT(times); i++)
        assert_true(writer_hit(&liar, 1, times[i], 99));
    hit_now(&other, 2);
    bench_read_settled(&bench);
    assert_int_equal(bench_read(&bench, true), 0);
    values_check(&bench, (const uint64_t[]){1, 2}, 2);
    assert_int_equal(tl_stream_delivered(bench.stream, 0, 1), 0);
    bench_deinit(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_are_merged_by_time),
        cmocka_unit_test(test_equal_times_keep_their_order),
        cmocka_unit_test(test_a_coarse_step_is_not_in_order_before_the_next),
        cmocka_unit_test(test_nested_records_come_by_their_time),
        cmocka_unit_test(test_a_stopped_writer_holds_the_stream_for_the_patience),
        cmocka_unit_test(test_a_stopped_writer_with_a_fresh_time_is_handed_over),
        cmocka_unit_test(test_an_abandoned_slot_is_given_up_for_good),
        cmocka_unit_test(test_many_stopped_writers_end),
        cmocka_unit_test(test_a_full_ring_drops_and_nothing_else_is_lost),
        cmocka_unit_test(test_blocks_that_nobody_uses_stay_holes),
        cmocka_unit_test(test_take_can_stop_and_go_on),
        cmocka_unit_test(test_a_backlog_comes_in_order_and_whole),
        cmocka_unit_test(test_events_from_elsewhere_find_their_place),
        cmocka_unit_test(test_events_from_elsewhere_may_come_a_read_later),
        cmocka_unit_test(test_what_is_held_is_bounded),
        cmocka_unit_test(test_memories_have_their_own_numbers),
        cmocka_unit_test(test_a_process_slot_is_used_again),
        cmocka_unit_test(test_a_hostile_writer_only_gets_wrong_events),
        cmocka_unit_test(test_times_ahead_and_behind_hold_nothing_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

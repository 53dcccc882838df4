// The agent's record entries, in an emulator: what an event holds, what a full ring drops, which
// entry a return is paired with, which bucket a time falls in; that signals at any instruction lose
// nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world.h"

#define SITE_SP (STACK_TOP - 0x100u)
#define SIGNAL_SP (SITE_SP - 0x1000u)
#define TID 4711u

static const enum tl_record_kind kinds[] = {TL_RECORD_HIT,    TL_RECORD_EVENT, TL_RECORD_GO_EVENT,
                                            TL_RECORD_RETURN, TL_RECORD_ENTER, TL_RECORD_EXIT};

static size_t home(void)
{
    return home_of(TLS_ADDR);
}

static void time_set(struct world *world, uint64_t ns)
{
    word_put(world, SHARED_ADDR + offsetof(struct tl_data_header, coarse_ns), ns);
}

// A world whose clock is ours, and whose thread has its block.
static void record_world(struct world *world, enum tl_thread_pointer way)
{
    static const uint64_t counter_off = COUNTER_OFF(PROBES - 1);
    struct call call;
    world_make(world, way);
    head_put(world, offsetof(struct tl_agent_head, clock), TL_CLOCK_COARSE);
    if (way == TL_TP_FS_WORD)
        head_put(world, offsetof(struct tl_agent_head, tid_off), TID_OFF);
    thread_set(world, TLS_ADDR, TID);
    call_count(world, &call, &counter_off, STACK_TOP - 16);
    call_run(world, &call, NULL, NULL);
}

struct record {
    struct call call;
    uint64_t frame[4]; // flags word, rdx, rcx, rax
};

static void record_make(struct world *world, struct record *record, enum tl_record_kind kind,
                        uint32_t probe, uint64_t sp)
{
    call_record(world, &record->call, kind, probe, sp, record->frame);
}

static void record_run(struct world *world, struct record *record)
{
    call_run(world, &record->call, NULL, NULL);
}

static void record_do(struct world *world, enum tl_record_kind kind, uint32_t probe, uint64_t sp)
{
    struct record record;
    record_make(world, &record, kind, probe, sp);
    record_run(world, &record);
}

static struct tl_ring_slot ring_slot(struct world *world, size_t block, uint64_t index)
{
    struct tl_ring_slot slot;
    uc_mem_read(world->uc,
                block_addr(0, block) + RING_OFF + sizeof(struct tl_ring_header) +
                    index % RING_SLOTS * sizeof slot,
                &slot, sizeof slot);
    return slot;
}

static uint64_t ring_head(struct world *world, size_t block)
{
    return word_at(world, block_addr(0, block) + RING_OFF);
}

static struct tl_hist hist(struct world *world, size_t block, uint32_t probe)
{
    struct tl_hist hist;
    uc_mem_read(world->uc, block_addr(0, block) + HIST_OFF + probe * sizeof hist, &hist,
                sizeof hist);
    return hist;
}

// ---- events -------------------------------------------------------------------------------------

enum { RAX, RCX, RDX, RBX, RBP, RSI, RDI, R8, R9 }; // places in call.value
enum { FRAME_RDX = 1, FRAME_RCX, FRAME_RAX };

static void arguments_of(const struct record *record, enum tl_record_kind kind, uint64_t out[6])
{
    const uint64_t *value = record->call.value, *frame = record->frame;
    const uint64_t c[6] = {value[RDI],       value[RSI], frame[FRAME_RDX],
                           frame[FRAME_RCX], value[R8],  value[R9]};
    const uint64_t go[6] = {frame[FRAME_RAX], value[RBX], frame[FRAME_RCX],
                            value[RDI],       value[RSI], value[R8]};
    const uint64_t value_returned[6] = {frame[FRAME_RAX]};
    memcpy(out,
           kind == TL_RECORD_EVENT      ? c
           : kind == TL_RECORD_GO_EVENT ? go
                                        : value_returned,
           sizeof c);
}

static void event_compare(const struct record *record, enum tl_record_kind kind, uint32_t probe,
                          uint64_t time, uint32_t tid, const struct tl_ring_slot *slot)
{
    uint64_t expected[6];
    bool returned = kind == TL_RECORD_RETURN;
    arguments_of(record, kind, expected);
    assert_int_equal(TL_RING_PROBE(slot->word), probe);
    assert_int_equal(TL_RING_KIND(slot->word), returned ? TL_RING_RETURN : TL_RING_ENTRY);
    assert_int_equal(TL_RING_TID(slot->word), tid);
    assert_int_equal(slot->time, time);
    assert_memory_equal(slot->arg, expected, returned ? 8 : 48);
}

static void events_hold_arguments_time_and_thread(void **state)
{
    (void)state;
    for (size_t i = 1; i < 4; i++) {
        struct world world;
        record_world(&world, TL_TP_FS_WORD);
        for (uint32_t probe = 0; probe < 3; probe++) {
            struct record record;
            record_make(&world, &record, kinds[i], probe, SITE_SP);
            time_set(&world, 1000 + probe);
            record_run(&world, &record);
            struct tl_ring_slot slot = ring_slot(&world, home(), probe);
            event_compare(&record, kinds[i], probe, 1000 + probe, TID, &slot);
            assert_int_equal(counter(&world, 0, home(), probe), 1);
        }
        assert_int_equal(ring_head(&world, home()), 3);
        world_deinit(&world);
    }
}

static void the_counter_is_read_where_it_may_be(void **state)
{
    (void)state;
    struct world world;
    record_world(&world, TL_TP_FS_WORD);
    head_put(&world, offsetof(struct tl_agent_head, clock), TL_CLOCK_COUNTER);
    record_do(&world, TL_RECORD_EVENT, 0, SITE_SP);
    record_do(&world, TL_RECORD_EVENT, 0, SITE_SP);
    struct tl_ring_slot first = ring_slot(&world, home(), 0), second = ring_slot(&world, home(), 1);
    assert_true(first.time > UINT32_MAX && second.time > first.time);
    world_deinit(&world);
}

static void a_full_ring_drops_and_counts(void **state)
{
    (void)state;
    struct world world;
    record_world(&world, TL_TP_FS_WORD);
    for (unsigned i = 0; i < RING_SLOTS + 3; i++) {
        time_set(&world, i + 1);
        record_do(&world, TL_RECORD_EVENT, 1, SITE_SP);
    }
    assert_int_equal(ring_head(&world, home()), RING_SLOTS);
    assert_int_equal(counter(&world, 0, home(), 1), RING_SLOTS + 3);
    for (unsigned i = 0; i < RING_SLOTS; i++)
        assert_int_equal(ring_slot(&world, home(), i).time, i + 1);
    // The reader takes two: two more have room.
    word_put(&world, block_addr(0, home()) + RING_OFF + offsetof(struct tl_ring_header, tail), 2);
    for (unsigned i = 0; i < 3; i++)
        record_do(&world, TL_RECORD_EVENT, 1, SITE_SP);
    assert_int_equal(ring_head(&world, home()), RING_SLOTS + 2);
    assert_int_equal(counter(&world, 0, home(), 1), RING_SLOTS + 6);
    world_deinit(&world);
}

static void a_new_threads_first_record_claims_its_block(void **state)
{
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(kinds); i++) {
        struct world world;
        struct record record;
        world_make(&world, TL_TP_FS_WORD);
        record_make(&world, &record, kinds[i], 2, SITE_SP);
        record.call.sp_used -= 64; // not on the hot path
        record_run(&world, &record);
        assert_true(slot_owner(&world, home()) == TLS_ADDR);
        assert_int_equal(counter(&world, 0, home(), 2), 1);
        world_deinit(&world);
    }
}

static void a_silent_child_records_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(kinds); i++) {
        struct world world;
        struct record record;
        world_make(&world, TL_TP_FS_WORD);
        world_fork(&world);
        record_make(&world, &record, kinds[i], 2, SITE_SP);
        record.call.sp_used -= 64;
        record_run(&world, &record);
        assert_int_equal(counter_sum(&world, 0, 2), 0);
        assert_int_equal(ring_head(&world, home()), 0);
        world_deinit(&world);
    }
}

static void threads_of_a_shared_block_record_too(void **state)
{
    (void)state;
    struct world world;
    struct record record;
    record_world(&world, TL_TP_SHARED);
    time_set(&world, 5);
    for (size_t i = 0; i < TL_ARRAY_COUNT(kinds); i++) {
        record_make(&world, &record, kinds[i], 0, SITE_SP);
        record.call.sp_used -= 64;
        record_run(&world, &record);
        assert_int_equal(counter(&world, 0, TL_THREAD_SLOTS, 0), i + 1);
        if (i >= 1 && i <= 3) {
            struct tl_ring_slot slot = ring_slot(&world, TL_THREAD_SLOTS, i - 1);
            event_compare(&record, kinds[i], 0, 5, 0, &slot);
        }
    }
    struct tl_hist times = hist(&world, TL_THREAD_SLOTS, 0);
    assert_int_equal(times.lost, 1);
    assert_int_equal(times.unpaired, 1);
    assert_int_equal(times.sum, 0);
    world_deinit(&world);
}

static void an_event_behind_a_full_table_knows_its_thread(void **state)
{
    (void)state;
    struct world world;
    struct record record;
    record_world(&world, TL_TP_FS_WORD);
    for (size_t i = 0; i < TL_THREAD_SLOTS; i++)
        word_put(&world, TABLE_ADDR + i * TL_THREAD_SLOT_SIZE, 0x1000 + i);
    record_make(&world, &record, TL_RECORD_EVENT, 0, SITE_SP);
    record.call.sp_used -= 64;
    record_run(&world, &record);
    struct tl_ring_slot slot = ring_slot(&world, TL_THREAD_SLOTS, 0);
    event_compare(&record, TL_RECORD_EVENT, 0, 0, TID, &slot);
    world_deinit(&world);
}

// ---- latency ------------------------------------------------------------------------------------

static uint32_t bucket_of(uint64_t value)
{
    if (value >> (TL_HIST_EXPONENT_MAX + 1))
        value = (UINT64_C(1) << (TL_HIST_EXPONENT_MAX + 1)) - 1;
    if (value < 32)
        return (uint32_t)value;
    uint32_t e = 63 - (uint32_t)__builtin_clzll(value);
    return (uint32_t)((e - 4) * 32 + (value >> (e - 5) & 31));
}

static void times_fall_into_their_buckets(void **state)
{
    (void)state;
    struct world world;
    record_world(&world, TL_TP_FS_WORD);
    static uint64_t expected[TL_HIST_BUCKETS];
    uint64_t sum = 0, min = UINT64_MAX, max = 0;
    memset(expected, 0, sizeof expected);
    for (unsigned i = 0; i < 600; i++) {
        unsigned shift = i % 60;
        uint64_t value = i < 70  ? i
                         : i % 5 ? (UINT64_C(1) << shift) - 3 + i % 5
                                 : (uint64_t)rand() << shift >> 20;
        value &= INT64_MAX;
        time_set(&world, 77);
        record_do(&world, TL_RECORD_ENTER, 1, SITE_SP);
        time_set(&world, 77 + value);
        record_do(&world, TL_RECORD_EXIT, 1, SITE_SP);
        expected[bucket_of(value)]++;
        sum += value;
        min = value < min ? value : min;
        max = value > max ? value : max;
    }
    struct tl_hist got = hist(&world, home(), 1);
    assert_memory_equal(got.bucket, expected, sizeof expected);
    assert_true(got.sum == sum && ~got.min_inverted == min && got.max == max);
    assert_true(got.unpaired == 0 && got.lost == 0);
    assert_int_equal(counter(&world, 0, home(), 1), 1200);
    // Another processor's counter is a little behind: no time at all.
    time_set(&world, 100);
    record_do(&world, TL_RECORD_ENTER, 2, SITE_SP);
    time_set(&world, 98);
    record_do(&world, TL_RECORD_EXIT, 2, SITE_SP);
    got = hist(&world, home(), 2);
    assert_true(got.sum == 0 && got.bucket[0] == 1);
    world_deinit(&world);
}

// A program of two stacks: calls, returns, jumps over frames, and switches between the stacks.
#define STACKS 2
#define DEPTH_MAX 200
struct frames {
    uint64_t sp[DEPTH_MAX], entered[DEPTH_MAX];
    uint32_t probe[DEPTH_MAX];
    bool lost[DEPTH_MAX];
    unsigned depth;
};

struct totals {
    uint64_t lost, unpaired, sum;
};

static struct totals totals_read(struct world *world)
{
    struct totals totals = {0};
    for (uint32_t probe = 0; probe < 3; probe++) {
        struct tl_hist one = hist(world, home(), probe);
        totals.lost += one.lost;
        totals.unpaired += one.unpaired;
        totals.sum += one.sum;
    }
    return totals;
}

// Records need no stack of their own at that place: S is only a number to pairs.
static void pair_do(struct world *world, enum tl_record_kind kind, uint32_t probe, uint64_t sp)
{
    struct record record;
    record_make(world, &record, kind, probe, SITE_SP);
    record.call.value[RDX] = sp;
    record_run(world, &record);
}

static void frame_enter(struct world *world, struct frames *stack, uint64_t base, uint64_t now)
{
    unsigned d = stack->depth++;
    stack->sp[d] = (d ? stack->sp[d - 1] : base) - 8 - 8 * (uint64_t)(rand() % 6);
    stack->probe[d] = (uint32_t)rand() % 3;
    stack->entered[d] = now;
    uint64_t lost = totals_read(world).lost;
    time_set(world, now);
    pair_do(world, TL_RECORD_ENTER, stack->probe[d], stack->sp[d]);
    stack->lost[d] = totals_read(world).lost != lost;
}

static void frame_leave(struct world *world, struct frames *stack, uint64_t now)
{
    unsigned d = --stack->depth;
    struct totals before = totals_read(world);
    time_set(world, now);
    pair_do(world, TL_RECORD_EXIT, stack->probe[d], stack->sp[d]);
    struct totals after = totals_read(world);
    assert_int_equal(after.unpaired - before.unpaired, stack->lost[d]);
    assert_int_equal(after.sum - before.sum, stack->lost[d] ? 0 : now - stack->entered[d]);
}

static void returns_are_paired_with_their_own_entries(void **state)
{
    (void)state;
    struct world world;
    static struct frames stacks[STACKS];
    static const uint64_t base[STACKS] = {0x7ffd12345678, 0x7f0011110008};
    unsigned lost = 0, left = 0, jumped = 0;
    record_world(&world, TL_TP_FS_WORD);
    memset(stacks, 0, sizeof stacks);
    unsigned current = 0;
    for (uint64_t now = 1000; now < 8000; now++) {
        struct frames *stack = &stacks[current];
        int choice = rand() % 100;
        if (choice < 2) {
            current = !current;
        } else if (choice < 4 && stack->depth) { // longjmp, an exception: frames vanish
            stack->depth -= (unsigned)rand() % stack->depth;
            jumped++;
        } else if (choice < 53 && stack->depth < DEPTH_MAX) {
            frame_enter(&world, stack, base[current], now);
            lost += stack->lost[stack->depth - 1];
        } else if (stack->depth) {
            frame_leave(&world, stack, now);
            left++;
        }
    }
    print_message("%u returns, %u jumps, %u entries lost\n", left, jumped, lost);
    assert_true(left > 1000 && jumped > 50);
    world_deinit(&world);
}

static void a_pair_that_finds_no_room_is_lost_and_counted(void **state)
{
    (void)state;
    struct world world;
    record_world(&world, TL_TP_FS_WORD);
    uint64_t sp = 0x7ffd00000000;
    for (unsigned i = 0; i < PAIR_SLOTS + 5; i++)
        pair_do(&world, TL_RECORD_ENTER, 0, sp - 8 * i);
    // The table holds a shadow of 64 words; deeper frames meet live ones everywhere.
    assert_int_equal(hist(&world, home(), 0).lost, 5);
    for (unsigned i = PAIR_SLOTS + 5; i-- > 0;)
        pair_do(&world, TL_RECORD_EXIT, 0, sp - 8 * i);
    assert_int_equal(hist(&world, home(), 0).unpaired, 5);
    assert_int_equal(hist(&world, home(), 0).bucket[0], PAIR_SLOTS);
    world_deinit(&world);
}

// What ENTER does with taken slots: the first `count` from its home on hold `key` less 8 * step
// each.
static void taken_try(int64_t first, int64_t step, unsigned count, uint64_t lost)
{
    const uint64_t sp = 0x7ffd00000000, probe = UINT64_C(1) << 48;
    const uint64_t slot = (sp >> 3) + (sp >> TL_PAIR_WRAP_SHIFT) * TL_PAIR_WRAP_STEP;
    struct world world;
    record_world(&world, TL_TP_FS_WORD);
    for (unsigned i = 0; i < count; i++)
        word_put(&world,
                 block_addr(0, home()) + PAIR_OFF +
                     (slot + i) % PAIR_SLOTS * sizeof(struct tl_pair),
                 (sp + (uint64_t)(8 * (first + step * (int64_t)i))) ^ probe);
    pair_do(&world, TL_RECORD_ENTER, 0, sp);
    pair_do(&world, TL_RECORD_EXIT, 0, sp);
    struct tl_hist times = hist(&world, home(), 0);
    assert_true(times.lost == lost && times.unpaired == lost && times.bucket[0] == 1 - lost);
    world_deinit(&world);
}

static void pairs_of_dead_frames_give_way(void **state)
{
    (void)state;
    taken_try(-1, 0, 9, 0);      // deeper by a word: of a frame that was jumped over
    taken_try(-8, 0, 9, 0);      // as far as one can come
    taken_try(-9, 0, 9, 1);      // it came from elsewhere, and may live
    taken_try(1, 1, 9, 1);       // shallower frames live
    taken_try(1, 1, 8, 0);       // the last place is free
    taken_try(1 << 15, 0, 9, 1); // another stack
}

// ---- signals ------------------------------------------------------------------------------------

#define HANDLER_DELAY 5

struct signal {
    enum tl_record_kind kind;
    unsigned when;
    bool reached;
    struct record record;
    uint64_t time; // that the handler's function takes; it comes HANDLER_DELAY later
};

static void signal_at(struct world *world, unsigned step, void *opaque)
{
    struct signal *signal = opaque;
    if (step != signal->when)
        return;
    signal->reached = true;
    bool latency = signal->kind == TL_RECORD_ENTER || signal->kind == TL_RECORD_EXIT;
    uint64_t now = word_at(world, SHARED_ADDR + offsetof(struct tl_data_header, coarse_ns));
    time_set(world, now + HANDLER_DELAY);
    record_make(world, &signal->record, latency ? TL_RECORD_ENTER : signal->kind, 0, SIGNAL_SP);
    record_run(world, &signal->record);
    if (!latency)
        return;
    time_set(world, now + HANDLER_DELAY + signal->time);
    record_do(world, TL_RECORD_EXIT, 0, SIGNAL_SP);
}

static bool event_is(const struct record *record, enum tl_record_kind kind,
                     const struct tl_ring_slot *slot)
{
    uint64_t expected[6];
    arguments_of(record, kind, expected);
    return slot->word && slot->arg[0] == expected[0] &&
           (kind == TL_RECORD_RETURN || memcmp(slot->arg, expected, sizeof expected) == 0);
}

static void events_survive_a_signal_at_any_instruction(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bool more = true;
        for (unsigned when = 0; more; when++) {
            struct world world;
            struct record record;
            struct signal signal = {.kind = kinds[i], .when = when};
            record_world(&world, TL_TP_FS_WORD);
            record_make(&world, &record, kinds[i], 0, SITE_SP);
            call_run(&world, &record.call, signal_at, &signal);
            more = signal.reached;
            assert_int_equal(counter(&world, 0, home(), 0), 1 + more);
            if (i) {
                struct tl_ring_slot slot[2] = {ring_slot(&world, home(), 0),
                                               ring_slot(&world, home(), 1)};
                assert_int_equal(ring_head(&world, home()), 1 + more);
                unsigned mine = event_is(&record, kinds[i], &slot[0]) ? 0 : 1;
                assert_true(event_is(&record, kinds[i], &slot[mine]));
                assert_true(!more || event_is(&signal.record, kinds[i], &slot[!mine]));
            }
            world_deinit(&world);
            assert_true(when < 200);
        }
    }
}

// Both frames have the same home among the pairs. False: it has fewer instructions.
static bool pairs_interrupted(bool at_exit, uint64_t time, unsigned when)
{
    struct world world;
    struct record record;
    struct signal signal = {.kind = TL_RECORD_ENTER, .when = when, .time = time};
    record_world(&world, TL_TP_FS_WORD);
    time_set(&world, 1000);
    record_make(&world, &record, TL_RECORD_ENTER, 0, SITE_SP);
    call_run(&world, &record.call, at_exit ? NULL : signal_at, &signal);
    time_set(&world, 3000);
    record_make(&world, &record, TL_RECORD_EXIT, 0, SITE_SP);
    call_run(&world, &record.call, at_exit ? signal_at : NULL, &signal);
    bool more = signal.reached;
    struct tl_hist times = hist(&world, home(), 0);
    // The clock is read before the handler, or behind it.
    uint64_t own = times.sum - (more ? time : 0), spent = HANDLER_DELAY + time;
    assert_true(own == 2000 || (more && own == (at_exit ? 2000 + spent : 2000 - spent)));
    assert_true(times.bucket[bucket_of(time)] == more && times.bucket[bucket_of(own)] == 1);
    assert_true(~times.min_inverted == (more && time < own ? time : own));
    assert_true(times.max == (more && time > own ? time : own));
    assert_true(times.unpaired == 0 && times.lost == 0);
    assert_int_equal(counter(&world, 0, home(), 0), more ? 4 : 2);
    world_deinit(&world);
    return more;
}

static void pairs_survive_a_signal_at_any_instruction(void **state)
{
    (void)state;
    static const uint64_t times[] = {7, 5000}; // the shortest of all, the longest
    for (int at_exit = 0; at_exit < 2; at_exit++) {
        for (size_t i = 0; i < TL_ARRAY_COUNT(times); i++) {
            unsigned when = 0;
            // A handler at the entry can't take longer than what it interrupts.
            while (pairs_interrupted(at_exit, at_exit ? times[i] : times[i] / 10, when))
                assert_true(++when < 200);
        }
    }
}

int main(void)
{
    const char *seed_text = getenv("TL_SEED");
    unsigned seed = seed_text ? (unsigned)strtoul(seed_text, NULL, 0) : 20240611;
    fprintf(stderr, "patch-record: TL_SEED=%u\n", seed);
    srand(seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_hold_arguments_time_and_thread),
        cmocka_unit_test(the_counter_is_read_where_it_may_be),
        cmocka_unit_test(a_full_ring_drops_and_counts),
        cmocka_unit_test(a_new_threads_first_record_claims_its_block),
        cmocka_unit_test(a_silent_child_records_nothing),
        cmocka_unit_test(threads_of_a_shared_block_record_too),
        cmocka_unit_test(an_event_behind_a_full_table_knows_its_thread),
        cmocka_unit_test(times_fall_into_their_buckets),
        cmocka_unit_test(returns_are_paired_with_their_own_entries),
        cmocka_unit_test(a_pair_that_finds_no_room_is_lost_and_counted),
        cmocka_unit_test(pairs_of_dead_frames_give_way),
        cmocka_unit_test(events_survive_a_signal_at_any_instruction),
        cmocka_unit_test(pairs_survive_a_signal_at_any_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

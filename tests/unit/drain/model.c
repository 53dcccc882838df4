// The ring's protocol, step by step: a thread whose signal handlers write too, and may never return
// to what they interrupted, and a reader, interleaved in every way that a bounded number of
// switches allows. After each run all is known: every finished record came out once and whole, or
// its position was given up, and reserved + dropped is what was tried.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Each atomic access of the reader is a point where the writers may go on.
static void reader_point(void);
#define __atomic_load_n(ptr, order) (reader_point(), __atomic_load_n(ptr, order))
#define __atomic_store_n(ptr, value, order) (reader_point(), __atomic_store_n(ptr, value, order))
#include "drain/ring.c"
#undef __atomic_load_n
#undef __atomic_store_n

#define SLOTS_MAX 4
#define RECORDS_MAX 6
#define DEPTH_MAX 3
#define CHOICES_MAX 256
#define PATIENCE 100u

// One record on its way, by the steps of agent/layout.h.
enum step { READ_HEAD, READ_TAIL, RESERVE, READ_CLOCK, STORE_ARGS, STORE_WORD, DONE };
enum fate { TRIED, DROPPED, RESERVED, FINISHED, ABANDONED };
struct record {
    enum step step;
    enum fate fate;
    uint64_t position, tail;
};

// A thread: what its handlers interrupted lies below.
struct actor {
    int stack[DEPTH_MAX];
    int depth;
};

struct shape {
    uint32_t slots;
    int actors, records, switches, handlers, abandons, stalls;
};

static struct {
    struct tl_ring_header header;
    struct tl_ring_slot slot[SLOTS_MAX];
} memory;

static const struct shape *shape;
static struct record record[RECORDS_MAX];
static struct actor actor[2];
static int record_count, switches, handlers, abandons, stalls;
static bool writers_on; // reader points count
static uint64_t ticks;

// ---- choices: a run is a row of them; the next run changes the last that can be changed

static uint8_t choice[CHOICES_MAX], choice_end[CHOICES_MAX];
static int choice_count, choice_known;

static int choose(int end)
{
    if (end < 2)
        return 0;
    assert_true(choice_count < CHOICES_MAX);
    if (choice_count == choice_known) {
        choice[choice_known] = 0;
        choice_end[choice_known++] = (uint8_t)end;
    }
    assert_int_equal(choice_end[choice_count], end);
    return choice[choice_count++];
}

static bool next_run(void)
{
    while (choice_known && choice[choice_known - 1] + 1 == choice_end[choice_known - 1])
        choice_known--;
    if (!choice_known)
        return false;
    choice[choice_known - 1]++;
    return true;
}

// ---- writers

static uint64_t word_of(int index)
{
    return TL_RING_WORD((uint64_t)index + 1, TL_RING_ENTRY, 0);
}

static bool record_push(struct actor *on)
{
    if (record_count == shape->records || on->depth == DEPTH_MAX)
        return false;
    record[record_count] = (struct record){.step = READ_HEAD};
    on->stack[on->depth++] = record_count++;
    return true;
}

static void record_step(int index)
{
    struct record *r = &record[index];
    struct tl_ring_slot *slot = &memory.slot[r->position & (shape->slots - 1)];
    switch (r->step) {
    case READ_HEAD:
        r->position = memory.header.head;
        r->step = READ_TAIL;
        break;
    case READ_TAIL:
        r->tail = memory.header.tail;
        r->step = RESERVE;
        if (r->position - r->tail >= shape->slots) {
            r->fate = DROPPED;
            r->step = DONE;
        }
        break;
    case RESERVE:
        r->step = READ_HEAD;
        if (memory.header.head == r->position) {
            memory.header.head++;
            r->fate = RESERVED;
            r->step = READ_CLOCK;
        }
        break;
    case READ_CLOCK:
        slot->time = ++ticks;
        r->step = STORE_ARGS;
        break;
    case STORE_ARGS:
        for (int i = 0; i < TL_EVENT_ARGS; i++)
            slot->arg[i] = word_of(index) + (uint64_t)i;
        r->step = STORE_WORD;
        break;
    case STORE_WORD:
        slot->word = word_of(index);
        r->fate = FINISHED;
        r->step = DONE;
        break;
    case DONE:
        break;
    }
}

// One step of a thread; may start a handler, or end one so that what is below is never finished.
static void actor_step(struct actor *on, bool free_choice)
{
    if (!on->depth && !record_push(on))
        return;
    if (free_choice && handlers < shape->handlers && on->depth < DEPTH_MAX &&
        record_count < shape->records && choose(2)) {
        handlers++;
        (void)record_push(on);
    }
    record_step(on->stack[on->depth - 1]);
    if (record[on->stack[on->depth - 1]].step != DONE)
        return;
    on->depth--;
    if (free_choice && on->depth && abandons < shape->abandons && choose(2)) {
        abandons++;
        record[on->stack[--on->depth]].step = DONE;
        if (record[on->stack[on->depth]].fate == RESERVED)
            record[on->stack[on->depth]].fate = ABANDONED;
    }
}

static bool actor_can_go(const struct actor *on)
{
    return on->depth || record_count < shape->records;
}

static void reader_point(void)
{
    if (!writers_on || switches == shape->switches || !choose(2))
        return;
    switches++;
    struct actor *on = &actor[choose(shape->actors)];
    // Any number of steps, at least one.
    do
        actor_step(on, true);
    while (actor_can_go(on) && choose(2));
}

// ---- the reader, and what must hold

static int seen[RECORDS_MAX];

static void slots_check(const struct tl_ring_slot *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int index = (int)TL_RING_TID(out[i].word) - 1;
        assert_true(index >= 0 && index < record_count);
        assert_int_equal(out[i].word, word_of(index));
        for (uint64_t j = 0; j < TL_EVENT_ARGS; j++)
            assert_int_equal(out[i].arg[j], out[i].word + j);
        assert_int_equal(seen[index]++, 0);
    }
}

static void pass_run(struct tl_ring *ring, uint64_t now)
{
    struct tl_ring_slot out[TL_RING_HOLES_MAX];
    size_t taken;
    tl_ring_start(ring);
    slots_check(out, tl_ring_fill(ring, out));
    while ((taken = tl_ring_take(ring, now, out, 2)) != 0)
        slots_check(out, taken);
    slots_check(out, tl_ring_fill(ring, out));
    (void)tl_ring_settle(ring, now, now, PATIENCE);
    assert_true(ring->head - ring->tail <= ring->count && ring->next - ring->tail <= ring->count);
}

static void run_check(const struct tl_ring *ring)
{
    uint64_t reserved = 0;
    for (int i = 0; i < record_count; i++) {
        const struct record *r = &record[i];
        bool given_up =
            r->fate != DROPPED && r->fate != TRIED && slot_is_poisoned(ring, r->position);
        reserved += r->fate == FINISHED || r->fate == ABANDONED;
        if (r->fate == FINISHED && !given_up)
            assert_int_equal(seen[i], 1);
        else if (r->fate != FINISHED)
            assert_int_equal(seen[i], 0);
        // A writer that is never stopped for long is never given up, unless it shares the slot of
        // one that was.
        if (given_up && !shape->stalls && !abandons)
            fail_msg("record %d was given up", i);
    }
    assert_int_equal(memory.header.head, reserved);
    assert_int_equal(ring->next, reserved);
    assert_int_equal(memory.header.tail, reserved);
}

static void one_run(void)
{
    struct tl_ring ring;
    uint64_t now = 1;
    memset(&memory, 0, sizeof memory);
    memset(record, 0, sizeof record);
    memset(actor, 0, sizeof actor);
    memset(seen, 0, sizeof seen);
    record_count = switches = handlers = abandons = stalls = choice_count = 0;
    ticks = 0;
    tl_ring_init(&ring, &memory.header, shape->slots, 0);
    writers_on = true;
    for (int pass = 0; pass < 3; pass++) {
        pass_run(&ring, now);
        now++;
        if (stalls < shape->stalls && choose(2)) {
            stalls++;
            now += PATIENCE;
        }
    }
    writers_on = false;
    for (int i = 0; i < shape->actors; i++) {
        while (actor_can_go(&actor[i]))
            actor_step(&actor[i], false);
    }
    // What was abandoned with nothing behind it is not given up: nobody asks for its room.
    for (int pass = 0; pass < 3; pass++, now += PATIENCE)
        pass_run(&ring, now);
    struct tl_ring_slot out[TL_RING_HOLES_MAX];
    assert_int_equal(tl_ring_fill(&ring, out), 0);
    for (uint32_t i = 0; i < ring.hole_count; i++)
        assert_true(abandons > 0 && ring.hole[i].position >= ring.full_end);
    ring.hole_count = 0;
    tail_publish(&ring);
    run_check(&ring);
    tl_ring_deinit(&ring);
}

static void test_every_interleaving_is_exact(void **state)
{
    (void)state;
    const struct shape shapes[] = {
        {.slots = 2, .actors = 1, .records = 4, .switches = 3},
        {.slots = 2, .actors = 1, .records = 4, .switches = 2, .handlers = 1},
        {.slots = 2, .actors = 1, .records = 4, .switches = 2, .handlers = 1, .abandons = 1},
        {.slots = 2, .actors = 1, .records = 4, .switches = 2, .handlers = 1, .stalls = 1},
        {.slots = 2, .actors = 1, .records = 3, .switches = 2, .handlers = 2, .abandons = 2},
        {.slots = 4,
         .actors = 1,
         .records = 6,
         .switches = 1,
         .handlers = 1,
         .abandons = 1,
         .stalls = 1},
        {.slots = 2, .actors = 2, .records = 4, .switches = 2},
        {.slots = 2, .actors = 2, .records = 3, .switches = 2, .stalls = 1},
        {.slots = 4, .actors = 2, .records = 6, .switches = 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        size_t runs = 0;
        shape = &shapes[i];
        choice_known = 0;
        do {
            one_run();
            runs++;
        } while (next_run());
        print_message("shape %zu: %zu runs\n", i, runs);
        assert_true(runs > 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_interleaving_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

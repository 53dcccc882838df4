// The agent's slow path, one call at a time in an emulator: what it counts where, that it keeps
// every register and uses little stack, and that a signal or a fork at any of its instructions does
// no harm.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world.h"

static const uint64_t counter_0 = COUNTER_OFF(0);

// One hit by the thread whose thread pointer is tp.
static void hit(struct world *world, uint64_t tp)
{
    struct call call;
    thread_set(world, tp, 0);
    call_count(world, &call, &counter_0, STACK_TOP - 16);
    call_run(world, &call, NULL, NULL);
}

// A slot that three of our pointers have as their home.
static size_t crowded_slot(void)
{
    unsigned count[TL_THREAD_SLOTS] = {0};
    for (uint64_t tp = TLS_ADDR; tp < TLS_ADDR + TLS_SIZE - 1024; tp += 16) {
        if (++count[home_of(tp)] == 3)
            return home_of(tp);
    }
    fail();
    return 0;
}

static void a_thread_claims_its_home_slot(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    uint64_t tp = pointer_with_home(crowded_slot(), 0);
    hit(&world, tp);
    hit(&world, tp);
    assert_true(slot_owner(&world, home_of(tp)) == tp);
    assert_int_equal(counter(&world, 0, home_of(tp), 0), 2);
    world_deinit(&world);
}

static void threads_of_one_home_go_to_the_next_slots(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    size_t home = crowded_slot();
    for (unsigned n = 0; n < 3; n++) {
        for (unsigned k = 0; k <= n; k++)
            hit(&world, pointer_with_home(home, n));
    }
    for (unsigned n = 0; n < 3; n++) {
        size_t slot = (home + n) % TL_THREAD_SLOTS;
        assert_true(slot_owner(&world, slot) == pointer_with_home(home, n));
        assert_int_equal(counter(&world, 0, slot, 0), n + 1);
    }
    world_deinit(&world);
}

static void a_full_table_wraps_and_then_shares(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    size_t home = crowded_slot();
    for (size_t i = 0; i < TL_THREAD_SLOTS; i++) { // all but the slot before home
        if (i != (home + TL_THREAD_SLOTS - 1) % TL_THREAD_SLOTS)
            word_put(&world, TABLE_ADDR + i * TL_THREAD_SLOT_SIZE, 0x1000 + i);
    }
    hit(&world, pointer_with_home(home, 0));
    assert_int_equal(counter(&world, 0, (home + TL_THREAD_SLOTS - 1) % TL_THREAD_SLOTS, 0), 1);
    hit(&world, pointer_with_home(home, 1)); // none is left
    hit(&world, pointer_with_home(home, 1));
    assert_int_equal(counter(&world, 0, TL_THREAD_SLOTS, 0), 2);
    world_deinit(&world);
}

static void without_a_thread_pointer_the_block_is_shared(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_SHARED);
    hit(&world, TLS_ADDR);
    assert_int_equal(counter(&world, 0, TL_THREAD_SLOTS, 0), 1);
    for (size_t i = 0; i < TL_THREAD_SLOTS; i++)
        assert_true(slot_owner(&world, i) == 0);
    world_deinit(&world);
}

static void a_forked_child_is_silent(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    world_fork(&world);
    hit(&world, TLS_ADDR);
    for (uint32_t process = 0; process < PROCESSES; process++)
        assert_int_equal(counter_sum(&world, process, 0), 0);
    assert_true(slot_owner(&world, home_of(TLS_ADDR)) == 0);
    assert_int_equal(process_owner(&world, 1), 0);
    world_deinit(&world);
}

// ---- followed children --------------------------------------------------------------------------

static uint64_t silent(struct world *world)
{
    return word_at(world, SHARED_ADDR + offsetof(struct tl_data_header, silent));
}

static void children_get_processes_of_their_own(void **state)
{
    (void)state;
    struct world world;
    const uint64_t tp = TLS_ADDR;
    world_make(&world, TL_TP_FS_WORD);
    head_put(&world, offsetof(struct tl_agent_head, follow), 1);
    head_put(&world, offsetof(struct tl_agent_head, tid_off), TID_OFF);
    hit(&world, tp);
    for (uint32_t child = 1; child < PROCESSES; child++) {
        world_fork(&world);
        thread_set(&world, tp, 100 + child);
        struct call call;
        for (int i = 0; i < 3; i++) {
            call_count(&world, &call, &counter_0, STACK_TOP - 16);
            call.sp_used = 0; // the first call claims; it is not the hot path
            call_run(&world, &call, NULL, NULL);
        }
        assert_int_equal(counter(&world, child, home_of(tp), 0), 3);
        assert_int_equal(process_owner(&world, child), 100 + child);
        assert_int_equal((uint32_t)word_at(&world, CONTROL_ADDR), TL_CONTROL_LIVE);
        assert_int_equal(word_at(&world, CONTROL_ADDR) >> 32, child);
    }
    assert_int_equal(silent(&world), 0);
    for (int i = 0; i < 2; i++) { // no process slot is left
        world_fork(&world);
        for (int k = 0; k < 2; k++) {
            struct call call;
            call_count(&world, &call, &counter_0, STACK_TOP - 16);
            call.sp_used = 0;
            call_run(&world, &call, NULL, NULL);
        }
        assert_int_equal(silent(&world), i + 1);
    }
    assert_int_equal(counter_sum(&world, 0, 0), 1);
    world_deinit(&world);
}

static void followed_children_share_where_threads_do(void **state)
{
    (void)state;
    struct world world;
    struct call call;
    world_make(&world, TL_TP_SHARED);
    head_put(&world, offsetof(struct tl_agent_head, follow), 1);
    world_fork(&world);
    call_count(&world, &call, &counter_0, STACK_TOP - 16);
    call.sp_used = 0;
    call_run(&world, &call, NULL, NULL);
    assert_int_equal(counter(&world, 1, TL_THREAD_SLOTS, 0), 1);
    assert_int_equal(process_owner(&world, 1), 1); // its id is not known
    assert_true(word_at(&world, CONTROL_ADDR + offsetof(struct tl_control, shared_block)) ==
                block_addr(1, TL_THREAD_SLOTS));
    world_deinit(&world);
}

// ---- at every instruction -----------------------------------------------------------------------

struct moment {
    unsigned when; // step
    bool fork, signal;
    bool reached;
};

static void moment_at(struct world *world, unsigned step, void *opaque)
{
    struct moment *moment = opaque;
    if (step != moment->when)
        return;
    moment->reached = true;
    if (moment->fork)
        world_fork(world);
    if (moment->signal) {
        struct call call;
        call_count(world, &call, &counter_0, STACK_TOP - 0x4000);
        call.sp_used = 0;
        call_run(world, &call, NULL, NULL);
    }
}

// One hit that is interrupted, then one that is not. False: it has fewer instructions.
static bool interrupted(struct world *world, bool follow, bool child, struct moment *moment)
{
    struct call call;
    world_reset(world);
    head_put(world, offsetof(struct tl_agent_head, follow), follow);
    if (child)
        world_fork(world);
    call_count(world, &call, &counter_0, STACK_TOP - 16);
    call_run(world, &call, moment_at, moment);
    call_count(world, &call, &counter_0, STACK_TOP - 16);
    call.sp_used = 0;
    call_run(world, &call, NULL, NULL);
    return moment->reached;
}

// The process that the control page and the table speak of, which must be the same. -1: none.
static int process_now(struct world *world)
{
    uint64_t shared = word_at(world, CONTROL_ADDR + offsetof(struct tl_control, shared_block));
    int process = -1;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        if (shared == block_addr(i, TL_THREAD_SLOTS))
            process = (int)i;
    }
    for (size_t i = 0; i < TL_THREAD_SLOTS; i++) {
        if (!slot_owner(world, i))
            continue;
        assert_true(process >= 0);
        assert_true(word_at(world, TABLE_ADDR + i * TL_THREAD_SLOT_SIZE + 8) ==
                    block_addr((uint32_t)process, i));
    }
    return process;
}

static uint64_t hits_all(struct world *world)
{
    uint64_t sum = 0;
    for (uint32_t process = 0; process < PROCESSES; process++)
        sum += counter(world, process, home_of(TLS_ADDR), 0) +
               counter(world, process, TL_THREAD_SLOTS, 0);
    return sum;
}

static void a_signal_at_any_instruction_counts_once(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    for (int child = 0; child < 2; child++) {
        bool more = true;
        for (unsigned when = 0; more; when++) {
            struct moment moment = {.when = when, .signal = true};
            more = interrupted(&world, true, child, &moment);
            int process =
                process_now(&world); // where the handler claims too, the first to publish wins
            assert_true(child ? process == 1 || process == 2 : process == 0);
            assert_int_equal(counter(&world, (uint32_t)process, home_of(TLS_ADDR), 0), 2 + more);
            assert_int_equal(hits_all(&world), 2 + more);
            assert_true(process_owner(&world, (uint32_t)process) == (uint32_t)child);
            assert_true(when < 1000);
        }
    }
    world_deinit(&world);
}

// A handler that forks: we go on as the child.
static void a_fork_at_any_instruction_leaves_nothing_of_the_parents(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    for (unsigned kind = 0; kind < 4; kind++) {
        bool child = kind & 1, signal = kind & 2, more = true;
        for (unsigned when = 0; more; when++) {
            struct moment moment = {.when = when, .fork = true, .signal = signal};
            more = interrupted(&world, true, child, &moment);
            int process = process_now(&world);
            assert_int_equal(hits_all(&world), 2 + (more && signal));
            if (more) { // the parent has a slot of its own, or has not taken one yet
                bool taken = child && process_owner(&world, 1) && process == 2;
                assert_true(process == 1 || taken);
                assert_int_equal(process_owner(&world, (uint32_t)process), 1);
                assert_true(counter(&world, (uint32_t)process, home_of(TLS_ADDR), 0) >=
                            1u + signal);
            }
            assert_true(when < 1000);
        }
    }
    world_deinit(&world);
}

static void a_fork_at_any_instruction_silences(void **state)
{
    (void)state;
    bool more = true;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    for (unsigned when = 0; more; when++) {
        struct moment moment = {.when = when, .fork = true};
        more = interrupted(&world, false, false, &moment);
        assert_int_equal(process_now(&world), more ? -1 : 0);
        assert_true(hits_all(&world) <= (more ? 1u : 2u));
        assert_true(when < 1000);
    }
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_claims_its_home_slot),
        cmocka_unit_test(threads_of_one_home_go_to_the_next_slots),
        cmocka_unit_test(a_full_table_wraps_and_then_shares),
        cmocka_unit_test(without_a_thread_pointer_the_block_is_shared),
        cmocka_unit_test(a_forked_child_is_silent),
        cmocka_unit_test(children_get_processes_of_their_own),
        cmocka_unit_test(followed_children_share_where_threads_do),
        cmocka_unit_test(a_signal_at_any_instruction_counts_once),
        cmocka_unit_test(a_fork_at_any_instruction_leaves_nothing_of_the_parents),
        cmocka_unit_test(a_fork_at_any_instruction_silences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Hooks, in an emulator: what a notice says, how long its thread waits and when it does not, that a
// signal at each instruction posts another.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world.h"

#include <time.h>
#include <unistd.h>

#define SITE_SP (STACK_TOP - 0x100u)
#define SIGNAL_SP (SITE_SP - 0x1000u)
#define TID 4711u
#define STACK_USE 384u // a hook is no hit
#define LONG_AGO 1u
#define HIJACK_ADDR 0x20000000u
#define HIJACK_SIZE 4096u // what a hook reads of it

enum { RAX, RCX, RDX, RBX, RBP, RSI, RDI };

static uint64_t notice_addr(size_t index)
{
    return SHARED_ADDR + TL_NOTICES_OFF + index * sizeof(struct tl_notice);
}

static struct tl_notice notice_at(struct world *world, size_t index)
{
    struct tl_notice notice;
    uc_mem_read(world->uc, notice_addr(index), &notice, sizeof notice);
    return notice;
}

static void state_put(struct world *world, size_t index, uint32_t state)
{
    uc_mem_write(world->uc, notice_addr(index), &state, sizeof state);
}

static uint32_t header_word(struct world *world, size_t off)
{
    return (uint32_t)word_at(world, SHARED_ADDR + off);
}

static void header_put(struct world *world, size_t off, uint64_t value, size_t size)
{
    uc_mem_write(world->uc, SHARED_ADDR + off, &value, size);
}

static uint32_t missed(struct world *world)
{
    return header_word(world, offsetof(struct tl_data_header, missed));
}

// ticks: of the counter, that a millisecond has.
static void hook_world(struct world *world, uint64_t ticks)
{
    world_make(world, TL_TP_FS_WORD);
    head_put(world, offsetof(struct tl_agent_head, clock), TL_CLOCK_COUNTER);
    head_put(world, offsetof(struct tl_agent_head, ticks_per_ms), ticks);
    head_put(world, offsetof(struct tl_agent_head, tid_off), TID_OFF);
    thread_set(world, TLS_ADDR, TID);
}

typedef void (*at_step)(struct world *world, unsigned step, void *opaque);

static void hook(struct world *world, enum tl_notice_kind kind, uint64_t sp, uint64_t argument,
                 at_step at)
{
    struct call call;
    uint64_t frame[4];
    call_record(world, &call, TL_RECORD_HOOK, 0, sp, frame);
    call.sp_used = sp - STACK_USE;
    call.value[RCX] = (uint64_t)kind;
    call.value[RDI] = argument;
    call.value[RSI] = argument + 1;
    call_run(world, &call, at, NULL);
}

// The controller: answers what is asked, and remembers it.
static struct tl_notice asked;
static unsigned answers;

static void answer(struct world *world, unsigned step, void *opaque)
{
    (void)step, (void)opaque;
    for (size_t i = 0; i < TL_NOTICE_SLOTS; i++) {
        struct tl_notice notice = notice_at(world, i);
        if (notice.state != TL_NOTICE_ASKED)
            continue;
        asked = notice;
        answers++;
        state_put(world, i, TL_NOTICE_ANSWERED);
    }
}

static void all_free(struct world *world)
{
    for (size_t i = 0; i < TL_NOTICE_SLOTS; i++)
        assert_int_equal(notice_at(world, i).state, TL_NOTICE_FREE);
}

static void a_notice_is_posted_and_answered(void **state)
{
    (void)state;
    struct world world;
    hook_world(&world, UINT64_C(1) << 40);
    answers = 0;
    hook(&world, TL_NOTICE_EXEC, SITE_SP, 0x1234, answer);
    assert_int_equal(answers, 1);
    assert_int_equal(asked.kind, TL_NOTICE_EXEC);
    assert_int_equal(asked.tid, TID);
    assert_int_equal(asked.process, 0);
    assert_true(asked.argument[0] == 0x1234 && asked.argument[1] == 0x1235);
    assert_int_equal(missed(&world), 0);
    all_free(&world);
    world_deinit(&world);
}

static void nobody_answers_and_the_next_does_not_wait(void **state)
{
    (void)state;
    struct world world;
    hook_world(&world, 1); // a wait of 100 ticks
    hook(&world, TL_NOTICE_LOADER, SITE_SP, 0, NULL);
    assert_int_equal(missed(&world), 1);
    all_free(&world);
    head_put(&world, offsetof(struct tl_agent_head, ticks_per_ms), UINT64_C(1) << 40); // for ever
    hook(&world, TL_NOTICE_LOADER, SITE_SP, 0, NULL);
    assert_int_equal(missed(&world), 2);
    // The controller looked: it is waited for again.
    header_put(&world, offsetof(struct tl_data_header, heard), 2, 4);
    answers = 0;
    hook(&world, TL_NOTICE_LOADER, SITE_SP, 0, answer);
    assert_int_equal(answers, 1);
    assert_int_equal(missed(&world), 2);
    world_deinit(&world);
}

#define TICKS_PER_MS UINT64_C(250000) // fewer than there are: a wait of 100 ms is over sooner
#define STEP_US 500                   // a long wait is few steps
#define TRIES_MAX 50                  // a busy machine makes a wait longer, never shorter

#define WORK_STEPS 100u

static unsigned work_ends_step; // the controller says so then; 0: never

static void linger(struct world *world, unsigned step, void *opaque)
{
    (void)opaque;
    if (work_ends_step && step >= work_ends_step)
        header_put(world, offsetof(struct tl_data_header, working), 0, 4);
    if (notice_at(world, 0).state == TL_NOTICE_ASKED)
        usleep(STEP_US);
}

// How long a thread waits for nobody's answer, ns: the least of some tries, which end when it is
// below enough.
static int64_t wait_of(struct world *world, enum tl_notice_kind kind, int64_t enough)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < TRIES_MAX && least >= enough; i++) {
        struct timespec from, to;
        uint32_t before = missed(world);
        header_put(world, offsetof(struct tl_data_header, heard), before, 4);
        clock_gettime(CLOCK_MONOTONIC, &from);
        hook(world, kind, SITE_SP, 0, linger);
        clock_gettime(CLOCK_MONOTONIC, &to);
        assert_int_equal(missed(world), before + 1);
        int64_t took = (to.tv_sec - from.tv_sec) * INT64_C(1000000000) + to.tv_nsec - from.tv_nsec;
        least = took < least ? took : least;
    }
    return least;
}

// What the loader brings may be an unwinder, which would end at a replaced return address.
static void libraries_are_waited_for_long_while_return_addresses_are_replaced(void **state)
{
    (void)state;
    struct world world;
    uint64_t ended = 1;
    hook_world(&world, TICKS_PER_MS);
    int64_t third = wait_of(&world, TL_NOTICE_TRAP, INT64_MAX) / 3;
    int64_t usual = wait_of(&world, TL_NOTICE_LOADER, third);
    assert_true(usual < third);
    assert_int_equal(uc_mem_map(world.uc, HIJACK_ADDR, HIJACK_SIZE, UC_PROT_ALL), 0);
    head_put(&world, offsetof(struct tl_agent_head, hijack_addr), HIJACK_ADDR);
    assert_true(wait_of(&world, TL_NOTICE_LOADER, INT64_MAX) > 2 * usual);
    assert_true(wait_of(&world, TL_NOTICE_EXEC, third) < third);
    uc_mem_write(world.uc, HIJACK_ADDR + offsetof(struct tl_hijack_head, ended), &ended,
                 sizeof ended);
    assert_true(wait_of(&world, TL_NOTICE_LOADER, third) < third);
    world_deinit(&world);
}

static void a_controller_at_work_is_waited_for_long(void **state)
{
    (void)state;
    struct world world;
    hook_world(&world, TICKS_PER_MS);
    int64_t third = wait_of(&world, TL_NOTICE_TRAP, INT64_MAX) / 3;
    header_put(&world, offsetof(struct tl_data_header, working), 1, 4);
    assert_true(wait_of(&world, TL_NOTICE_LOADER, INT64_MAX) > 2 * third);
    assert_true(wait_of(&world, TL_NOTICE_EXEC, INT64_MAX) > 2 * third);
    header_put(&world, offsetof(struct tl_data_header, working), 0, 4);
    assert_true(wait_of(&world, TL_NOTICE_LOADER, third) < third);
    // One that ends its work without an answer is not waited for any longer.
    work_ends_step = WORK_STEPS;
    header_put(&world, offsetof(struct tl_data_header, working), 1, 4);
    assert_true(wait_of(&world, TL_NOTICE_LOADER, third) < third);
    work_ends_step = 0;
    world_deinit(&world);
}

static void a_controller_that_stopped_looking_is_not_waited_for(void **state)
{
    (void)state;
    struct world world;
    hook_world(&world, 1);
    header_put(&world, offsetof(struct tl_data_header, answered_ticks), LONG_AGO, 8);
    answers = 0;
    hook(&world, TL_NOTICE_EXEC, SITE_SP, 0, answer);
    assert_int_equal(answers, 0);
    assert_int_equal(missed(&world), 1);
    world_deinit(&world);
}

static void all_notices_taken(void **state)
{
    (void)state;
    struct world world;
    hook_world(&world, UINT64_C(1) << 40);
    for (size_t i = 0; i < TL_NOTICE_SLOTS; i++)
        state_put(&world, i, i % 2 ? TL_NOTICE_FILLING : TL_NOTICE_ANSWERED);
    hook(&world, TL_NOTICE_EXEC, SITE_SP, 0, NULL);
    assert_int_equal(missed(&world), 1);
    for (size_t i = 0; i < TL_NOTICE_SLOTS; i++)
        assert_int_equal(notice_at(&world, i).state,
                         i % 2 ? TL_NOTICE_FILLING : TL_NOTICE_ANSWERED);
    world_deinit(&world);
}

static void a_forked_child_says_nothing(void **state)
{
    (void)state;
    struct world world;
    hook_world(&world, UINT64_C(1) << 40);
    world_fork(&world);
    answers = 0;
    hook(&world, TL_NOTICE_EXEC, SITE_SP, 0, answer);
    assert_int_equal(answers, 0);
    assert_int_equal(missed(&world), 0);
    world_deinit(&world);
}

// The first thing that a followed child does.
static void a_followed_child_says_who_it_is(void **state)
{
    (void)state;
    struct world world;
    hook_world(&world, UINT64_C(1) << 40);
    head_put(&world, offsetof(struct tl_agent_head, follow), 1);
    world_fork(&world);
    answers = 0;
    hook(&world, TL_NOTICE_EXEC, SITE_SP, 0, answer);
    assert_int_equal(answers, 1);
    assert_int_equal(asked.process, 1);
    assert_int_equal(process_owner(&world, 1), TID);
    world_deinit(&world);
}

static unsigned handled;

static void handler(struct world *world, unsigned step, void *opaque)
{
    hook(world, TL_NOTICE_TRAP, SIGNAL_SP, step, answer);
    handled++;
    answer(world, step, opaque);
}

static void signals_at_every_instruction(void **state)
{
    (void)state;
    struct world world;
    hook_world(&world, UINT64_C(1) << 40);
    answers = handled = 0;
    hook(&world, TL_NOTICE_EXEC, SITE_SP, 0, handler);
    assert_true(handled > 50);
    assert_int_equal(answers, handled + 1);
    assert_int_equal(missed(&world), 0);
    all_free(&world);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_notice_is_posted_and_answered),
        cmocka_unit_test(nobody_answers_and_the_next_does_not_wait),
        cmocka_unit_test(libraries_are_waited_for_long_while_return_addresses_are_replaced),
        cmocka_unit_test(a_controller_at_work_is_waited_for_long),
        cmocka_unit_test(a_controller_that_stopped_looking_is_not_waited_for),
        cmocka_unit_test(all_notices_taken),
        cmocka_unit_test(a_forked_child_says_nothing),
        cmocka_unit_test(a_followed_child_says_who_it_is),
        cmocka_unit_test(signals_at_every_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

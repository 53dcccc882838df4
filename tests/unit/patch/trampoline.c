// Replaced return addresses, in an emulator: every way in and out of a slot, with every register
// and flag compared, and a signal at each instruction whose handler calls a probed function itself.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world.h"

#define HIJACK_ADDR 0x20000000u
#define TEXT_ADDR 0x40000000u // where return addresses lie
#define TEXT_SIZE 0x10000u
#define OTHER_SP (STACK_TOP - 0x2008u)
// The same home slot as OTHER_SP's: a turn of the table lower, less what the turn is worth.
#define CROWD_ADDR (STACK_ADDR - 0x200000u)
#define CROWD_SP (OTHER_SP - 0x200000u + 8 * TL_HIJACK_WRAP_STEP)
#define LOST 2u // probe k's losses are counted by counter k + LOST
#define STEPS_MAX 20000u
#define FLAGS 0x8d5u // carry, parity, adjust, zero, sign, overflow

enum { RAX, RCX, RDX, RBX, RBP, RSI, RDI };

static void hijack_world(struct world *world)
{
    const struct tl_range text = {TEXT_ADDR, TEXT_ADDR + TEXT_SIZE};
    world_make(world, TL_TP_FS_WORD);
    uint64_t size = tl_page_up(sizeof(struct tl_hijack_head));
    assert_int_equal(uc_mem_map(world->uc, HIJACK_ADDR, size, UC_PROT_ALL), 0);
    assert_int_equal(uc_mem_map(world->uc, CROWD_ADDR, STACK_SIZE, UC_PROT_ALL), 0);
    assert_int_equal(uc_mem_map(world->uc, TEXT_ADDR, TEXT_SIZE, UC_PROT_ALL), 0);
    word_put(world, HIJACK_ADDR + offsetof(struct tl_hijack_head, next), HIJACK_ADDR);
    word_put(world, HIJACK_ADDR + offsetof(struct tl_hijack_head, trampoline),
             IMAGE_ADDR + world->head.trampoline_off);
    word_put(world, HIJACK_ADDR + offsetof(struct tl_hijack_head, range_count), 1);
    uc_mem_write(world->uc, HIJACK_ADDR + offsetof(struct tl_hijack_head, range), &text,
                 sizeof text);
    head_put(world, offsetof(struct tl_agent_head, hijack_addr), HIJACK_ADDR);
    head_put(world, offsetof(struct tl_agent_head, hijack_lost), 8 * LOST);
    head_put(world, offsetof(struct tl_agent_head, hijack_record),
             world->head.record_off[TL_RECORD_HIT - 1]);
}

static uint64_t trampoline(const struct world *world)
{
    return IMAGE_ADDR + world->head.trampoline_off;
}

static uint64_t count_of(struct world *world, uint32_t probe)
{
    return counter(world, 0, home_of(TLS_ADDR), probe);
}

// ---- runs ---------------------------------------------------------------------------------------

typedef void (*at_step)(struct world *world);

static void run(struct world *world, uint64_t pc, uint64_t end, at_step at)
{
    for (unsigned step = 0; at && pc != end; step++) {
        uc_context *context;
        assert_true(step < STEPS_MAX);
        uc_context_alloc(world->uc, &context);
        uc_context_save(world->uc, context);
        at(world);
        uc_context_restore(world->uc, context);
        uc_context_free(context);
        assert_int_equal(uc_emu_start(world->uc, pc, end, 0, 1), 0);
        uc_reg_read(world->uc, UC_X86_REG_RIP, &pc);
    }
    if (!at)
        assert_int_equal(uc_emu_start(world->uc, pc, end, 0, STEPS_MAX), 0);
}

struct machine {
    uint64_t reg[REGISTER_COUNT], sp, flags;
};

static void machine_put(struct world *world, const struct machine *machine)
{
    for (size_t i = 0; i < REGISTER_COUNT; i++)
        uc_reg_write(world->uc, world_registers[i], &machine->reg[i]);
    uc_reg_write(world->uc, UC_X86_REG_RSP, &machine->sp);
    uc_reg_write(world->uc, UC_X86_REG_EFLAGS, &machine->flags);
}

static void machine_random(struct machine *machine)
{
    for (size_t i = 0; i < REGISTER_COUNT; i++)
        machine->reg[i] = (uint64_t)rand() << 33 ^ (uint64_t)rand();
    machine->flags = ((uint64_t)rand() & FLAGS) | 2;
}

static void machine_check(struct world *world, const struct machine *machine, uint64_t kept)
{
    uint64_t value = 0;
    for (size_t i = 0; i < REGISTER_COUNT; i++) {
        uc_reg_read(world->uc, world_registers[i], &value);
        if (kept >> i & 1 && value != machine->reg[i])
            fail_msg("register %zu was not kept", i);
    }
    uc_reg_read(world->uc, UC_X86_REG_RSP, &value);
    assert_true(value == machine->sp);
}

// A function is entered: original is pushed at sp, and the probe's detour calls the agent.
static void enter_with(struct world *world, enum tl_record_kind kind, uint32_t probe, uint64_t sp,
                       struct machine *machine, at_step at)
{
    machine_random(machine);
    machine->reg[RCX] = COUNTER_OFF(probe);
    machine->reg[RDX] = sp;
    machine->sp = sp - TL_RECORD_FRAME;
    word_put(world, machine->sp, RETURN_ADDR);
    machine_put(world, machine);
    run(world, IMAGE_ADDR + world->head.record_off[kind - 1], RETURN_ADDR, at);
    machine->sp += 8;
}

static void enter(struct world *world, uint32_t probe, uint64_t sp, uint64_t original, at_step at)
{
    struct machine machine;
    word_put(world, sp, original);
    enter_with(world, TL_RECORD_HIJACK, probe, sp, &machine, at);
    machine_check(world, &machine, ~UINT64_C(7));
}

// It returns, with random registers; expects to come to original with all of them.
static void leave(struct world *world, uint64_t sp, uint64_t original, at_step at)
{
    struct machine machine;
    uint64_t flags = 0, to = word_at(world, sp);
    machine_random(&machine);
    machine.sp = sp + 8;
    machine_put(world, &machine);
    if (to != original)
        run(world, to, original, at);
    machine_check(world, &machine, ~UINT64_C(0));
    uc_reg_read(world->uc, UC_X86_REG_EFLAGS, &flags);
    assert_int_equal(flags & FLAGS, machine.flags & FLAGS);
    assert_true(word_at(world, sp) == original);
}

// ---- tests --------------------------------------------------------------------------------------

static void returns_are_counted_and_keep_every_register(void **state)
{
    (void)state;
    struct world world;
    hijack_world(&world);
    for (uint32_t i = 0; i < 200; i++) {
        uint64_t sp = OTHER_SP - 16 * (uint64_t)(rand() % 512), original = TEXT_ADDR + 5 + i % 40;
        enter(&world, 0, sp, original, NULL);
        assert_true(word_at(&world, sp) == trampoline(&world));
        assert_int_equal(count_of(&world, 0), i);
        leave(&world, sp, original, NULL);
        assert_int_equal(count_of(&world, 0), i + 1);
    }
    assert_int_equal(count_of(&world, LOST), 0);
    world_deinit(&world);
}

static void frames_return_in_any_order(void **state)
{
    (void)state;
    struct world world;
    hijack_world(&world);
    for (uint32_t i = 0; i < 200; i++) // as far apart as two stacks' frames at least
        enter(&world, i % 2, OTHER_SP - 256 * i, TEXT_ADDR + i, NULL);
    for (uint32_t i = 0; i < 200; i++) { // coroutines need not be last in, first out
        uint32_t k = i * 7 % 200;
        leave(&world, OTHER_SP - 256 * k, TEXT_ADDR + k, NULL);
    }
    assert_int_equal(count_of(&world, 0) + count_of(&world, 1), 200);
    world_deinit(&world);
}

static void a_frame_left_by_a_jump_is_forgotten(void **state)
{
    (void)state;
    struct world world;
    hijack_world(&world);
    enter(&world, 0, OTHER_SP, TEXT_ADDR + 1, NULL);
    enter(&world, 1, OTHER_SP, TEXT_ADDR + 2, NULL); // at the same place, after a longjmp
    leave(&world, OTHER_SP, TEXT_ADDR + 2, NULL);
    assert_int_equal(count_of(&world, 0), 0);
    assert_int_equal(count_of(&world, 1), 1);
    // In a home slot that was another's meanwhile, so that an older slot of the key lies behind.
    enter(&world, 0, CROWD_SP, TEXT_ADDR + 3, NULL);
    enter(&world, 0, OTHER_SP, TEXT_ADDR + 4, NULL);
    leave(&world, CROWD_SP, TEXT_ADDR + 3, NULL);
    enter(&world, 1, OTHER_SP, TEXT_ADDR + 5, NULL);
    leave(&world, OTHER_SP, TEXT_ADDR + 5, NULL);
    assert_int_equal(count_of(&world, 1), 2);
    world_deinit(&world);
}

static void a_tail_call_ends_its_caller(void **state)
{
    (void)state;
    struct world world;
    struct machine machine;
    hijack_world(&world);
    enter(&world, 0, OTHER_SP, TEXT_ADDR + 1, NULL);
    for (uint32_t i = 1; i <= 3; i++) { // the word at sp stays the trampoline's
        enter_with(&world, TL_RECORD_HIJACK, i % 2, OTHER_SP, &machine, NULL);
        machine_check(&world, &machine, ~UINT64_C(7));
        assert_int_equal(count_of(&world, 0) + count_of(&world, 1), i);
    }
    leave(&world, OTHER_SP, TEXT_ADDR + 1, NULL);
    assert_int_equal(count_of(&world, 0), 2);
    assert_int_equal(count_of(&world, 1), 2);
    world_deinit(&world);
}

static void what_is_no_return_address_stays(void **state)
{
    (void)state;
    struct world world;
    hijack_world(&world);
    static const uint64_t words[] = {
        0, 1, TEXT_ADDR - 1, TEXT_ADDR + TEXT_SIZE, IMAGE_ADDR + 64, STACK_TOP};
    for (uint32_t i = 0; i < TL_ARRAY_COUNT(words); i++) {
        enter(&world, 0, OTHER_SP, words[i], NULL);
        assert_true(word_at(&world, OTHER_SP) == words[i]);
        assert_int_equal(count_of(&world, LOST), i + 1);
    }
    enter(&world, 0, OTHER_SP + 3, TEXT_ADDR, NULL); // no place for one
    assert_true(word_at(&world, OTHER_SP + 3) == TEXT_ADDR);
    struct machine machine; // nothing is mapped there
    enter_with(&world, TL_RECORD_HIJACK, 0, STACK_ADDR + STACK_SIZE, &machine, NULL);
    assert_int_equal(count_of(&world, LOST), TL_ARRAY_COUNT(words) + 2);
    world_deinit(&world);
}

static void a_crowd_takes_the_next_slots_and_then_loses(void **state)
{
    (void)state;
    struct world world;
    hijack_world(&world);
    uint64_t home = (OTHER_SP >> 3) + (OTHER_SP >> TL_HIJACK_WRAP_SHIFT) * TL_HIJACK_WRAP_STEP;
    for (uint64_t step = 0; step < TL_HIJACK_STEPS; step++) {
        uint64_t slot = HIJACK_ADDR + offsetof(struct tl_hijack_head, slot) +
                        (home + step) % TL_HIJACK_SLOTS * sizeof(struct tl_hijack_slot);
        enter(&world, 0, OTHER_SP, TEXT_ADDR + 9, NULL);
        leave(&world, OTHER_SP, TEXT_ADDR + 9, NULL);
        word_put(&world, slot, 0x1000 + 8 * step);
    }
    assert_int_equal(count_of(&world, 0), TL_HIJACK_STEPS);
    enter(&world, 0, OTHER_SP, TEXT_ADDR + 9, NULL);
    assert_true(word_at(&world, OTHER_SP) == TEXT_ADDR + 9);
    assert_int_equal(count_of(&world, LOST), 1);
    world_deinit(&world);
}

static void a_second_return_goes_the_same_way(void **state)
{
    (void)state;
    struct world world;
    hijack_world(&world);
    enter(&world, 0, OTHER_SP, TEXT_ADDR + 1, NULL);
    leave(&world, OTHER_SP, TEXT_ADDR + 1, NULL);
    word_put(&world, OTHER_SP, trampoline(&world)); // as it was saved before the first
    leave(&world, OTHER_SP, TEXT_ADDR + 1, NULL);
    assert_int_equal(count_of(&world, 0), 1);
    world_deinit(&world);
}

static void a_forked_child_replaces_none_and_returns_from_all(void **state)
{
    (void)state;
    struct world world;
    hijack_world(&world);
    enter(&world, 0, OTHER_SP, TEXT_ADDR + 1, NULL);
    world_fork(&world);
    enter(&world, 0, OTHER_SP - 64, TEXT_ADDR + 2, NULL);
    assert_true(word_at(&world, OTHER_SP - 64) == TEXT_ADDR + 2);
    leave(&world, OTHER_SP, TEXT_ADDR + 1, NULL);
    assert_int_equal(counter_sum(&world, 0, 0), 0);
    assert_int_equal(counter_sum(&world, 0, LOST), 0);
    world_deinit(&world);
}

// ---- signals ------------------------------------------------------------------------------------

static unsigned handled;

// The handler's function lies in the same home slot as what it interrupts.
static void handler(struct world *world)
{
    enter(world, 1, CROWD_SP, TEXT_ADDR + 77, NULL);
    leave(world, CROWD_SP, TEXT_ADDR + 77, NULL);
    handled++;
}

// It jumps out: its frame stays, and what it interrupted goes on all the same.
static void jumper(struct world *world)
{
    enter(world, 1, CROWD_SP, TEXT_ADDR + 78, NULL);
    handled++;
}

static void signals_at_every_instruction(void **state)
{
    (void)state;
    static const at_step at[] = {handler, jumper};
    for (size_t i = 0; i < TL_ARRAY_COUNT(at); i++) {
        struct world world;
        hijack_world(&world);
        handled = 0;
        for (uint32_t round = 0; round < 3; round++) { // slow, then straight
            enter(&world, 0, OTHER_SP, TEXT_ADDR + 1, at[i]);
            leave(&world, OTHER_SP, TEXT_ADDR + 1, at[i]);
        }
        assert_true(handled > 100);
        assert_int_equal(count_of(&world, 0), 3);
        assert_int_equal(count_of(&world, 1), at[i] == handler ? handled : 0);
        assert_int_equal(count_of(&world, LOST) + count_of(&world, LOST + 1), 0);
        world_deinit(&world);
    }
}

// ---- unwinders ----------------------------------------------------------------------------------

#define CONTEXT_ADDR (STACK_TOP - 0x400u) // cfa, ra, lsda, bases

static uint64_t look_up(struct world *world, uint64_t pc, uint64_t ra, uint64_t cfa)
{
    struct machine machine;
    uint64_t found = 0;
    word_put(world, CONTEXT_ADDR, cfa);
    word_put(world, CONTEXT_ADDR + 8, ra);
    word_put(world, OTHER_SP - 0x100 - TL_RECORD_FRAME, RETURN_ADDR);
    machine_random(&machine);
    machine.reg[RDI] = pc;
    machine.reg[RSI] = CONTEXT_ADDR + 24;
    machine.reg[RDX] = OTHER_SP - 0x100;
    machine.sp = OTHER_SP - 0x100 - TL_RECORD_FRAME;
    machine_put(world, &machine);
    run(world, IMAGE_ADDR + world->head.record_off[TL_RECORD_UNWIND - 1], RETURN_ADDR, NULL);
    machine.sp += 8;
    machine_check(world, &machine, ~(UINT64_C(7) | 1u << RDI));
    uc_reg_read(world->uc, UC_X86_REG_RDI, &found);
    return found;
}

static void an_unwinder_sees_the_true_return_address(void **state)
{
    (void)state;
    struct world world;
    hijack_world(&world);
    uint64_t to = trampoline(&world), original = TEXT_ADDR + 33;
    enter(&world, 0, OTHER_SP, original, NULL);
    assert_true(look_up(&world, to - 1, to, OTHER_SP + 8) == original - 1);
    assert_true(word_at(&world, CONTEXT_ADDR + 8) == original);
    assert_true(look_up(&world, to, to, OTHER_SP + 8) == original); // a signal's frame
    // Other addresses, and other callers of the look-up.
    assert_true(look_up(&world, original, original, OTHER_SP + 8) == original);
    assert_true(look_up(&world, to - 1, original, OTHER_SP + 8) == to - 1);
    assert_true(look_up(&world, to - 1, to, OTHER_SP + 24) == to - 1);
    assert_true(word_at(&world, CONTEXT_ADDR + 8) == to);
    leave(&world, OTHER_SP, original, NULL); // and it is counted all the same
    assert_int_equal(count_of(&world, 0), 1);
    world_deinit(&world);
}

// A second install, whose slots lie elsewhere and whose trampoline is another.
static void an_unwinder_knows_all_installs(void **state)
{
    (void)state;
    struct world world;
    const uint64_t second = HIJACK_ADDR + 0x1000000, to = 0x123450;
    const struct tl_hijack_slot slot = {.key = OTHER_SP, .original = TEXT_ADDR + 44};
    hijack_world(&world);
    uint64_t size = tl_page_up(sizeof(struct tl_hijack_head));
    assert_int_equal(uc_mem_map(world.uc, second, size, UC_PROT_ALL), 0);
    uint64_t home = (OTHER_SP >> 3) + (OTHER_SP >> TL_HIJACK_WRAP_SHIFT) * TL_HIJACK_WRAP_STEP;
    uc_mem_write(world.uc,
                 second + offsetof(struct tl_hijack_head, slot) +
                     (home + 5) % TL_HIJACK_SLOTS * sizeof slot,
                 &slot, sizeof slot);
    word_put(&world, second + offsetof(struct tl_hijack_head, trampoline), to);
    word_put(&world, second + offsetof(struct tl_hijack_head, next), HIJACK_ADDR);
    word_put(&world, HIJACK_ADDR + offsetof(struct tl_hijack_head, next), second);
    assert_true(look_up(&world, to - 1, to, OTHER_SP + 8) == TEXT_ADDR + 43);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returns_are_counted_and_keep_every_register),
        cmocka_unit_test(frames_return_in_any_order),
        cmocka_unit_test(a_frame_left_by_a_jump_is_forgotten),
        cmocka_unit_test(a_tail_call_ends_its_caller),
        cmocka_unit_test(what_is_no_return_address_stays),
        cmocka_unit_test(a_crowd_takes_the_next_slots_and_then_loses),
        cmocka_unit_test(a_second_return_goes_the_same_way),
        cmocka_unit_test(a_forked_child_replaces_none_and_returns_from_all),
        cmocka_unit_test(signals_at_every_instruction),
        cmocka_unit_test(an_unwinder_sees_the_true_return_address),
        cmocka_unit_test(an_unwinder_knows_all_installs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Hits of whole x86-64 detours and the agent behind them, in an emulator, with a signal handler
// that forks at every boundary between two instructions: the child goes on with its control page
// and thread table wiped. It never touches memory that is not there, keeps its registers, and
// counts each hit in one process.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arch/arch.h"
#include "world.h"

#define SITE_ADDR 0x300000u
#define DETOUR_ADDR 0x310000u
#define SITE_SP (STACK_TOP - 0x400u)
#define STEPS_MAX 1000u
#define FLAGS 0x8d5u // OF, SF, ZF, AF, PF, CF

static const uint8_t site[5] = {0x0f, 0x1f, 0x44, 0x00, 0x00}; // a nop

static const struct action {
    enum tl_record_kind kind[2]; // NONE: a count
} actions[] = {
    {{TL_RECORD_NONE}},   {{TL_RECORD_HIT}},  {{TL_RECORD_EVENT}},
    {{TL_RECORD_RETURN}}, {{TL_RECORD_EXIT}}, {{TL_RECORD_ENTER, TL_RECORD_EXIT}},
};

static void detour_put(struct world *world, const struct action *action)
{
    uint8_t patch[sizeof site];
    struct tl_insn insn;
    struct tl_detour detour;
    assert_int_equal(tl_arch_x86_64.decode(site, sizeof site, SITE_ADDR, &insn), 0);
    struct tl_emit_in in = {.action = action->kind[0] ? TL_ACTION_RECORD : TL_ACTION_COUNT,
                            .thread_pointer = (enum tl_thread_pointer)world->head.thread_pointer,
                            .table_addr = TABLE_ADDR,
                            .control_addr = CONTROL_ADDR,
                            .slow_addr = IMAGE_ADDR + world->head.slow_count_off,
                            .counter_off = COUNTER_OFF(0),
                            .insn = &insn,
                            .insn_count = 1,
                            .resume_addr = SITE_ADDR + sizeof site};
    for (size_t i = 0; i < 2 && action->kind[i]; i++) {
        enum tl_record_kind kind = action->kind[i];
        in.record_addr[kind] = IMAGE_ADDR + world->head.record_off[kind - 1];
        in.record[i] = (struct tl_record){.kind = (uint8_t)kind, .counter_off = COUNTER_OFF(0)};
    }
    assert_int_equal(tl_arch_x86_64.emit_detour(&in, DETOUR_ADDR, &detour, NULL), 0);
    assert_int_equal(detour.refusal, 0);
    assert_true(tl_arch_x86_64.emit_jump(SITE_ADDR, DETOUR_ADDR, patch));
    assert_int_equal(uc_mem_map(world->uc, SITE_ADDR, 0x20000, UC_PROT_ALL), 0);
    uc_mem_write(world->uc, DETOUR_ADDR, detour.bytes, detour.size);
    uc_mem_write(world->uc, SITE_ADDR, patch, sizeof patch);
}

// From the site to behind it. Forks before that step. false: it had fewer.
static bool hit(struct world *world, unsigned fork_at)
{
    uint64_t value[REGISTER_COUNT], after, pc = SITE_ADDR, sp = SITE_SP;
    uint64_t flags = ((uint64_t)rand() & FLAGS) | 2;
    bool forked = false;
    for (size_t i = 0; i < REGISTER_COUNT; i++) {
        value[i] = (uint64_t)rand() << 33 ^ (uint64_t)rand();
        uc_reg_write(world->uc, world_registers[i], &value[i]);
    }
    uc_reg_write(world->uc, UC_X86_REG_RSP, &sp);
    uc_reg_write(world->uc, UC_X86_REG_RFLAGS, &flags);
    for (unsigned step = 0; pc != SITE_ADDR + sizeof site; step++) {
        assert_true(step < STEPS_MAX);
        if (step == fork_at) {
            world_fork(world);
            forked = true;
        }
        uc_err error = uc_emu_start(world->uc, pc, SITE_ADDR + sizeof site, 0, 1);
        if (error)
            fail_msg("forked before step %u, fails in step %u at %#llx: %s", fork_at, step,
                     (unsigned long long)pc, uc_strerror(error));
        uc_reg_read(world->uc, UC_X86_REG_RIP, &pc);
    }
    for (size_t i = 0; i < REGISTER_COUNT; i++) {
        uc_reg_read(world->uc, world_registers[i], &after);
        assert_true(after == value[i]);
    }
    uc_reg_read(world->uc, UC_X86_REG_RSP, &after);
    assert_true(after == sp);
    uc_reg_read(world->uc, UC_X86_REG_RFLAGS, &after);
    assert_true((after & FLAGS) == (flags & FLAGS));
    return forked;
}

static uint64_t counted_in(struct world *world, uint32_t process)
{
    return counter(world, process, home_of(TLS_ADDR), 0) +
           counter(world, process, TL_THREAD_SLOTS, 0);
}

// In the process: a hit, or none, then one that the fork comes into, then one that is the child's.
static void rounds_run(struct world *world, const struct action *action, bool claimed, bool follow)
{
    uint64_t each = action->kind[1] ? 2 : 1;
    bool more = true;
    for (unsigned when = 0; more; when++) {
        world_reset(world);
        head_put(world, offsetof(struct tl_agent_head, follow), follow);
        if (claimed)
            hit(world, STEPS_MAX);
        more = hit(world, when);
        hit(world, STEPS_MAX);
        uint64_t parents = counted_in(world, 0), childs = counted_in(world, 1);
        if (!more)
            assert_int_equal(parents, each * (2u + claimed));
        else if (follow)
            assert_int_equal(parents + childs, each * (2u + claimed));
        else
            assert_true(parents <= each * (1u + claimed));
        assert_true(childs >= (more && follow ? each : 0));
        assert_true(follow || childs == 0);
        assert_int_equal(counted_in(world, 2), 0);
    }
}

static void every_detour(bool follow)
{
    static const enum tl_thread_pointer ways[] = {TL_TP_FS_WORD, TL_TP_SHARED};
    for (size_t i = 0; i < TL_ARRAY_COUNT(ways) * TL_ARRAY_COUNT(actions); i++) {
        const struct action *action = &actions[i / TL_ARRAY_COUNT(ways)];
        struct world world;
        world_make(&world, ways[i % TL_ARRAY_COUNT(ways)]);
        head_put(&world, offsetof(struct tl_agent_head, clock), TL_CLOCK_COARSE);
        detour_put(&world, action);
        rounds_run(&world, action, false, follow);
        rounds_run(&world, action, true, follow);
        world_deinit(&world);
    }
}

static void a_child_forked_at_any_instruction_is_silent(void **state)
{
    (void)state;
    every_detour(false);
}

static void a_child_forked_at_any_instruction_counts_its_own(void **state)
{
    (void)state;
    every_detour(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_forked_at_any_instruction_is_silent),
        cmocka_unit_test(a_child_forked_at_any_instruction_counts_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Hits of detours and the agent behind them, one instruction at a time in an emulator: a signal
// whose handler hits the same probe, or a fork, at every boundary between two instructions.
// Nothing is lost, nothing counted twice, no register changed; a child never has a block of its
// parent's to go on with. The handler runs right below the stack pointer, as the kernel lets it,
// and leaves nothing there as it was.
//
//   stepped IMAGE ISA
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unicorn/unicorn.h>

#include "agent/agent.h"
#include "agent/layout.h"
#include "arch/arch.h"

#define IMAGE_ADDR 0x100000u
#define IMAGE_SIZE 0x10000u
#define CONTROL_ADDR 0x200000u
#define CONTROL_SIZE 0x3000u // control page, thread table, homes
#define SITE_ADDR 0x300000u
#define DETOUR_ADDR 0x310000u
#define BOUNCE_ADDR 0x318000u // within a short branch's reach of the site
#define AWAY_ADDR 0x40310000u // not within it
#define STACK_ADDR 0x700000u
#define STACK_SIZE 0x10000u
#define SITE_SP (STACK_ADDR + STACK_SIZE - 256u)
#define TLS_ADDR 0x800000u
#define SHARED_ADDR 0x10000000u
#define PROCESSES 3u
#define RING_SLOTS 8u
#define PAIR_SLOTS 64u
#define HIST_OFF 128u
#define RING_OFF 24576u
#define PAIR_OFF 28672u
#define STRIDE 32768u
#define PROBE 1u
#define COUNTER_OFF (TL_BLOCK_HEADER_SIZE + 8u * PROBE)
#define STEPS_MAX 1000u
#define REGISTERS_MAX 32
#define BELOW 512u // bytes below the stack pointer that a handler spoils
#define WINDOW 3   // instructions that a long branch displaces

_Static_assert(TL_HOMES_OFF + TL_HOMES_SIZE <= CONTROL_SIZE, "control");
_Static_assert(HIST_OFF + (PROBE + 1) * sizeof(struct tl_hist) <= RING_OFF, "histograms");

static uint8_t image[IMAGE_SIZE];
static size_t image_size;

struct world {
    uc_engine *uc;
    struct tl_agent_head head;
    uint64_t end; // where the site goes on
};

// What a hit keeps, but for the stack pointer and flags.
static const int arm64_registers[] = {
    UC_ARM64_REG_X0,  UC_ARM64_REG_X1,  UC_ARM64_REG_X2,  UC_ARM64_REG_X3,  UC_ARM64_REG_X4,
    UC_ARM64_REG_X5,  UC_ARM64_REG_X6,  UC_ARM64_REG_X7,  UC_ARM64_REG_X8,  UC_ARM64_REG_X9,
    UC_ARM64_REG_X10, UC_ARM64_REG_X11, UC_ARM64_REG_X12, UC_ARM64_REG_X13, UC_ARM64_REG_X14,
    UC_ARM64_REG_X15, UC_ARM64_REG_X16, UC_ARM64_REG_X17, UC_ARM64_REG_X18, UC_ARM64_REG_X19,
    UC_ARM64_REG_X20, UC_ARM64_REG_X21, UC_ARM64_REG_X22, UC_ARM64_REG_X23, UC_ARM64_REG_X24,
    UC_ARM64_REG_X25, UC_ARM64_REG_X26, UC_ARM64_REG_X27, UC_ARM64_REG_X28, UC_ARM64_REG_X29,
    UC_ARM64_REG_X30};
static const int riscv64_registers[] = {
    UC_RISCV_REG_X1,  UC_RISCV_REG_X3,  UC_RISCV_REG_X5,  UC_RISCV_REG_X6,  UC_RISCV_REG_X7,
    UC_RISCV_REG_X8,  UC_RISCV_REG_X9,  UC_RISCV_REG_X10, UC_RISCV_REG_X11, UC_RISCV_REG_X12,
    UC_RISCV_REG_X13, UC_RISCV_REG_X14, UC_RISCV_REG_X15, UC_RISCV_REG_X16, UC_RISCV_REG_X17,
    UC_RISCV_REG_X18, UC_RISCV_REG_X19, UC_RISCV_REG_X20, UC_RISCV_REG_X21, UC_RISCV_REG_X22,
    UC_RISCV_REG_X23, UC_RISCV_REG_X24, UC_RISCV_REG_X25, UC_RISCV_REG_X26, UC_RISCV_REG_X27,
    UC_RISCV_REG_X28, UC_RISCV_REG_X29, UC_RISCV_REG_X30, UC_RISCV_REG_X31};

// The processor whose detours they are.
struct processor {
    const char *name;
    const struct tl_arch *arch;
    int uc_arch, uc_mode, model;
    const int *registers;
    size_t register_count;
    int sp, pc, thread; // thread: has the thread pointer
    int flags;          // -1: there are none
    enum tl_thread_pointer way;
    uint32_t nop;
    bool atomics; // some have no atomic instructions; else branches may be too short (away)
};

static const struct processor processors[] = {
    {"arm64", &tl_arch_arm64, UC_ARCH_ARM64, UC_MODE_ARM, UC_CPU_ARM64_MAX, arm64_registers,
     TL_ARRAY_COUNT(arm64_registers), UC_ARM64_REG_SP, UC_ARM64_REG_PC, UC_ARM64_REG_TPIDR_EL0,
     UC_ARM64_REG_NZCV, TL_TP_TPIDR, 0xd503201f, true},
    {"riscv64", &tl_arch_riscv64, UC_ARCH_RISCV, UC_MODE_RISCV64, UC_CPU_RISCV64_ANY,
     riscv64_registers, TL_ARRAY_COUNT(riscv64_registers), UC_RISCV_REG_X2, UC_RISCV_REG_PC,
     UC_RISCV_REG_X4, -1, TL_TP_TP, 0x00000013, false},
};
static const struct processor *processor;

static uint64_t word_at(struct world *world, uint64_t addr)
{
    uint64_t word = 0;
    assert_int_equal(uc_mem_read(world->uc, addr, &word, sizeof word), 0);
    return word;
}

static uint64_t block_addr(uint32_t process, size_t block)
{
    return SHARED_ADDR + TL_BLOCK_FIRST_OFF + (process * TL_BLOCK_COUNT + block) * (uint64_t)STRIDE;
}

static size_t table_home(void)
{
    return (size_t)((uint64_t)TLS_ADDR * TL_HASH >> 56);
}

// Over the two blocks that a thread at TLS_ADDR counts in.
static uint64_t sum_at(struct world *world, uint32_t process, uint64_t off)
{
    return word_at(world, block_addr(process, table_home()) + off) +
           word_at(world, block_addr(process, TL_THREAD_SLOTS) + off);
}

static uint64_t counted(struct world *world)
{
    uint64_t sum = 0;
    for (uint32_t process = 0; process < PROCESSES; process++)
        sum += sum_at(world, process, COUNTER_OFF);
    return sum;
}

// ---- the world
// ------------------------------------------------------------------------------------

static void world_fork(struct world *world)
{
    static const uint8_t zeros[CONTROL_SIZE];
    uc_mem_write(world->uc, CONTROL_ADDR, zeros, sizeof zeros);
}

// As installed, nobody has hit anything.
static void world_reset(struct world *world, bool follow)
{
    static const uint8_t zeros[STRIDE];
    const struct tl_control control = {.live = TL_CONTROL_LIVE,
                                       .table_addr = CONTROL_ADDR + TL_TABLE_OFF,
                                       .shared_block = block_addr(0, TL_THREAD_SLOTS),
                                       .thread_pointer = world->head.thread_pointer};
    world->head.follow = follow;
    uc_mem_write(world->uc, IMAGE_ADDR, &world->head, sizeof world->head);
    world_fork(world);
    uc_mem_write(world->uc, CONTROL_ADDR, &control, sizeof control);
    uc_mem_write(world->uc, SHARED_ADDR, zeros, TL_BLOCK_FIRST_OFF);
    for (uint32_t process = 0; process < PROCESSES; process++) {
        uc_mem_write(world->uc, block_addr(process, table_home()), zeros, STRIDE);
        uc_mem_write(world->uc, block_addr(process, TL_THREAD_SLOTS), zeros, STRIDE);
    }
}

struct action {
    enum tl_record_kind kind[2]; // NONE: a count
};

static const struct action actions[] = {
    {{TL_RECORD_NONE}},   {{TL_RECORD_HIT}},  {{TL_RECORD_EVENT}},
    {{TL_RECORD_RETURN}}, {{TL_RECORD_EXIT}}, {{TL_RECORD_ENTER, TL_RECORD_EXIT}},
};

static struct tl_emit_in detour_input(const struct world *world, const struct action *action)
{
    struct tl_emit_in in = {.action = action->kind[0] ? TL_ACTION_RECORD : TL_ACTION_COUNT,
                            .thread_pointer = (enum tl_thread_pointer)world->head.thread_pointer,
                            .homes_addr = CONTROL_ADDR + TL_HOMES_OFF,
                            .homes_shift = (uint8_t)world->head.homes_shift,
                            .atomics = world->head.atomics != 0,
                            .slow_addr = IMAGE_ADDR + world->head.slow_count_off,
                            .counter_off = COUNTER_OFF};
    for (size_t i = 0; i < 2 && action->kind[i]; i++) {
        enum tl_record_kind kind = action->kind[i];
        in.record_addr[kind] = IMAGE_ADDR + world->head.record_off[kind - 1];
        in.record[i] = (struct tl_record){.kind = (uint8_t)kind, .counter_off = COUNTER_OFF};
    }
    return in;
}

// away: there by a branch that spills a register, back by one that does, through a stub.
static void detour_put(struct world *world, const struct action *action, bool away)
{
    const struct tl_arch *arch = processor->arch;
    const unsigned reg[] = {5, 10}; // spilled on the way there, and back
    uint64_t at = away ? AWAY_ADDR : DETOUR_ADDR;
    struct tl_emit_in in = detour_input(world, action);
    struct tl_insn insn[WINDOW];
    struct tl_detour detour;
    uint8_t code[16];
    in.insn = insn;
    in.insn_count = away ? WINDOW : 1;
    for (unsigned i = 0; i < in.insn_count; i++)
        arch->decode((const uint8_t *)&processor->nop, sizeof processor->nop, SITE_ADDR + 4 * i,
                     &insn[i]);
    world->end = in.resume_addr = SITE_ADDR + 4u * in.insn_count;
    if (away) {
        in.arrive_reg = (uint8_t)reg[0];
        in.bounce_reg = (uint8_t)reg[1];
        in.bounce[0] = (struct tl_bounce){.target = in.resume_addr, .addr = BOUNCE_ADDR};
        in.bounce_count = 1;
        assert_true(arch->emit_reload(BOUNCE_ADDR, in.resume_addr, reg[1], false, code));
        uc_mem_write(world->uc, BOUNCE_ADDR, code, arch->reload_size);
        assert_true(arch->emit_far(SITE_ADDR, at, reg[0], true, code));
    } else {
        assert_true(arch->emit_jump(SITE_ADDR, at, code));
    }
    uc_mem_write(world->uc, SITE_ADDR, code, away ? arch->spill_size : arch->jump_size);
    assert_int_equal(arch->emit_detour(&in, at, &detour, NULL), 0);
    assert_int_equal(detour.refusal, 0);
    uc_mem_write(world->uc, at, detour.bytes, detour.size);
}

static void world_make(struct world *world, enum tl_thread_pointer way, bool atomics)
{
    const uint64_t shared = TL_BLOCK_FIRST_OFF + UINT64_C(1) * PROCESSES * TL_BLOCK_COUNT * STRIDE;
    const uint64_t areas[][2] = {{IMAGE_ADDR, IMAGE_SIZE},
                                 {CONTROL_ADDR, CONTROL_SIZE},
                                 {SITE_ADDR, 0x20000},
                                 {STACK_ADDR, STACK_SIZE},
                                 {AWAY_ADDR, 0x1000},
                                 {TLS_ADDR, 0x1000},
                                 {SHARED_ADDR, (shared + 0xfff) & ~UINT64_C(0xfff)}};
    uint64_t tp = TLS_ADDR;
    assert_int_equal(uc_open(processor->uc_arch, processor->uc_mode, &world->uc), 0);
    assert_int_equal(uc_ctl_set_cpu_model(world->uc, processor->model), 0);
    for (size_t i = 0; i < TL_ARRAY_COUNT(areas); i++)
        assert_int_equal(uc_mem_map(world->uc, areas[i][0], areas[i][1], UC_PROT_ALL), 0);
    uc_mem_write(world->uc, IMAGE_ADDR, image, image_size);
    uc_reg_write(world->uc, processor->thread, &tp);
    struct tl_agent_head *head = &world->head;
    memcpy(head, image, sizeof *head);
    assert_int_equal(head->image_size, image_size);
    head->control_addr = CONTROL_ADDR;
    head->data_addr = SHARED_ADDR;
    head->stride = STRIDE;
    head->hist_off = HIST_OFF;
    head->ring_off = RING_OFF;
    head->pair_off = PAIR_OFF;
    head->ring_mask = RING_SLOTS - 1;
    head->pair_mask = PAIR_SLOTS - 1;
    head->process_count = PROCESSES;
    head->thread_pointer = way;
    head->clock = TL_CLOCK_COARSE;
    head->homes_shift = TL_HOMES_SHIFT_DEFAULT;
    head->atomics = atomics;
}

// ---- hits
// -----------------------------------------------------------------------------------------

struct moment {
    unsigned when; // step
    bool fork, signal;
    bool reached;
};

static void hit(struct world *world, uint64_t sp, struct moment *moment);

static void moment_come(struct world *world, struct moment *moment)
{
    static uint8_t spoilt[BELOW];
    uint64_t sp;
    uc_context *context;
    uc_context_alloc(world->uc, &context);
    uc_context_save(world->uc, context);
    moment->reached = true;
    if (moment->fork)
        world_fork(world);
    if (moment->signal) {
        uc_reg_read(world->uc, processor->sp, &sp);
        memset(spoilt, 0xa5, sizeof spoilt);
        uc_mem_write(world->uc, sp - BELOW, spoilt, sizeof spoilt);
        hit(world, sp - BELOW, NULL);
    }
    uc_context_restore(world->uc, context);
    uc_context_free(context);
}

// From the site to behind it; all registers are kept.
static void hit(struct world *world, uint64_t sp, struct moment *moment)
{
    const struct processor *cpu = processor;
    uint64_t value[REGISTERS_MAX], after, pc = SITE_ADDR, flags = (uint64_t)(rand() & 15) << 28;
    for (size_t i = 0; i < cpu->register_count; i++) {
        value[i] = (uint64_t)rand() << 33 ^ (uint64_t)rand();
        uc_reg_write(world->uc, cpu->registers[i], &value[i]);
    }
    uc_reg_write(world->uc, cpu->sp, &sp);
    if (cpu->flags >= 0)
        uc_reg_write(world->uc, cpu->flags, &flags);
    for (unsigned step = 0; pc != world->end; step++) {
        assert_true(step < STEPS_MAX);
        if (moment && step == moment->when)
            moment_come(world, moment);
        assert_int_equal(uc_emu_start(world->uc, pc, world->end, 0, 1), 0);
        uc_reg_read(world->uc, cpu->pc, &pc);
    }
    for (size_t i = 0; i < cpu->register_count; i++) {
        uc_reg_read(world->uc, cpu->registers[i], &after);
        assert_true(after == value[i]);
    }
    uc_reg_read(world->uc, cpu->sp, &after);
    assert_true(after == sp);
    uc_reg_read(world->uc, cpu->thread, &after);
    assert_true(after == TLS_ADDR);
    if (cpu->flags < 0)
        return;
    uc_reg_read(world->uc, cpu->flags, &after);
    assert_true((after & 0xf0000000) == flags);
}

// The process that the control page, the thread table and the homes speak of: the same. -1: none.
static int process_now(struct world *world)
{
    uint64_t shared = word_at(world, CONTROL_ADDR + offsetof(struct tl_control, shared_block));
    int process = -1;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        if (shared == block_addr(i, TL_THREAD_SLOTS))
            process = (int)i;
    }
    for (size_t i = 0; i < TL_THREAD_SLOTS; i++) {
        uint64_t slot = CONTROL_ADDR + TL_TABLE_OFF + i * TL_THREAD_SLOT_SIZE;
        uint64_t home = word_at(world, CONTROL_ADDR + TL_HOMES_OFF + 8 * i);
        assert_true(process >= 0 || (home == 0 && word_at(world, slot) == 0));
        if (word_at(world, slot))
            assert_true(word_at(world, slot + 8) == block_addr((uint32_t)process, i));
        if (home)
            assert_true(home >= block_addr((uint32_t)process, 0) &&
                        home <= block_addr((uint32_t)process, TL_THREAD_SLOTS));
    }
    return process;
}

// The events in the rings of the first process: all whole.
static uint64_t events_found(struct world *world)
{
    const size_t block[] = {table_home(), TL_THREAD_SLOTS};
    uint64_t sum = 0;
    for (size_t b = 0; b < 2; b++) {
        uint64_t ring = block_addr(0, block[b]) + RING_OFF, head = word_at(world, ring);
        assert_true(head <= RING_SLOTS);
        for (uint64_t i = 0; i < head; i++) {
            uint64_t slot = ring + sizeof(struct tl_ring_header) + i * sizeof(struct tl_ring_slot);
            assert_int_equal(TL_RING_PROBE(word_at(world, slot)), PROBE);
            assert_int_not_equal(TL_RING_KIND(word_at(world, slot)), 0);
        }
        sum += head;
    }
    return sum;
}

static uint64_t hist_at(struct world *world, size_t off)
{
    return sum_at(world, 0, HIST_OFF + PROBE * sizeof(struct tl_hist) + off);
}

// What was recorded besides the counts, nobody having forked.
static void records_check(struct world *world, const struct action *action, uint64_t hits)
{
    bool shared = world->head.thread_pointer == TL_TP_SHARED,
         pairs = action->kind[1] != TL_RECORD_NONE;
    uint64_t timed = pairs && !shared ? hits : 0;
    if (action->kind[0] == TL_RECORD_EVENT || action->kind[0] == TL_RECORD_RETURN)
        assert_int_equal(events_found(world), hits);
    if (action->kind[0] != TL_RECORD_EXIT && !pairs)
        return;
    assert_int_equal(hist_at(world, offsetof(struct tl_hist, bucket)), timed);
    assert_int_equal(hist_at(world, offsetof(struct tl_hist, unpaired)), hits - timed);
    assert_int_equal(hist_at(world, offsetof(struct tl_hist, lost)), pairs ? hits - timed : 0);
}

struct round {
    bool claimed; // the thread has its block and home already
    bool follow, fork, signal;
};

// One hit that is interrupted at `when`, then one that is not. false: it has fewer instructions.
static bool interrupted(struct world *world, const struct round *round, unsigned when)
{
    struct moment moment = {.when = when, .fork = round->fork, .signal = round->signal};
    world_reset(world, round->follow);
    if (round->claimed)
        hit(world, SITE_SP, NULL);
    hit(world, SITE_SP, &moment);
    hit(world, SITE_SP, NULL);
    assert_true(when < STEPS_MAX);
    return moment.reached;
}

static void round_run(struct world *world, const struct action *action, const struct round *round)
{
    uint64_t each = action->kind[1] ? 2 : 1;
    bool more = true;
    for (unsigned when = 0; more; when++) {
        more = interrupted(world, round, when);
        uint64_t hits = 2u + round->claimed + (more && round->signal), sum = counted(world);
        int process = process_now(world);
        if (!round->fork || round->follow)
            assert_int_equal(sum,
                             each * hits); // wherever the fork came, each hit counts in one process
        if (more && round->fork)
            assert_int_equal(process, round->follow ? 1 : -1);
        if (more && round->fork && !round->follow) // at most what was under way
            assert_true(sum <= each * (1u + round->claimed));
        if (more && round->fork && round->follow)
            assert_true(sum_at(world, 1, COUNTER_OFF) >= each * (1u + round->signal));
        if (!round->fork) {
            assert_int_equal(process, 0);
            records_check(world, action, hits);
        }
    }
}

static void world_run(const struct action *action, bool shared, bool variant, struct round round)
{
    struct world world;
    world_make(&world, shared ? TL_TP_SHARED : processor->way, processor->atomics && variant);
    detour_put(&world, action, !processor->atomics && variant);
    for (unsigned claimed = 0; claimed < 2; claimed++) {
        round.claimed = claimed;
        round_run(&world, action, &round);
    }
    uc_close(world.uc);
}

static void rounds_run(bool fork, bool follow, bool signal)
{
    const struct round round = {.follow = follow, .fork = fork, .signal = signal};
    // A world for each: the emulator does not see that code was written over.
    for (size_t i = 0; i < 4 * TL_ARRAY_COUNT(actions); i++)
        world_run(&actions[i / 4], i & 1, i & 2, round);
}

static void a_signal_at_any_instruction_counts_once(void **state)
{
    (void)state;
    rounds_run(false, false, true);
}

static void a_fork_at_any_instruction_silences(void **state)
{
    (void)state;
    rounds_run(true, false, false);
}

static void a_fork_at_any_instruction_leaves_nothing_of_the_parents(void **state)
{
    (void)state;
    rounds_run(true, true, false);
    rounds_run(true, true, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_at_any_instruction_counts_once),
        cmocka_unit_test(a_fork_at_any_instruction_silences),
        cmocka_unit_test(a_fork_at_any_instruction_leaves_nothing_of_the_parents),
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(processors) && argc > 2; i++) {
        if (strcmp(argv[2], processors[i].name) == 0)
            processor = &processors[i];
    }
    FILE *file = processor ? fopen(argv[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "no image\n");
        return 1;
    }
    image_size = fread(image, 1, sizeof image, file);
    fclose(file);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

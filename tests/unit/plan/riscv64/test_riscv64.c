// A riscv64 program with all its functions, or all its instructions, probed: analysed, planned, patched, and run in
// an emulator beside the bare one. What it computes is the same, and every counter is what the bare run counted.
//
// The address space is free right around the program, or full for 64 MiB on each side, as it is around a library:
// then every branch has to go far. The program is built as compilers build, and with 4-byte instructions only.
#include "agent/layout.h"
#include "elf_facts.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unicorn/unicorn.h>

enum {
    BIAS = 0x2000000000,
    PROGRAM_ROOM = 0x400000,
    STACK = 0x3800000000,
    STACK_SIZE = 0x10000,
    END = 0x3900000000, // return address of the program's start
    AGENT = END + 0x800,
    CONTROL = BIAS + 0x20000000, // homes and blocks
    BLOCK = CONTROL + 0x10000,
    BLOCK_SIZE = 0x10000,
    POINTER = 0x3a00012000, // tp
    SITES_MAX = 4096,
    NEIGHBOURS = 64 << 20,
    INSNS_MAX = 400000000,
    ASKED_PER_SITE = 40, // its ways out and hosts that are tried
};

struct program {
    const char *path;
    struct elf_facts elf;
    struct tl_analysis *analysis;
    tl_addr start, text_start, text_end;
    uint64_t result;
    uint64_t *executed; // of the bare run, by half words of text
};

static struct program program[2];

// ---- the machine ------------------------------------------------------------------------------------------

static void must(uc_err error, const char *what)
{
    if (error != UC_ERR_OK) {
        fprintf(stderr, "unicorn: %s: %s\n", what, uc_strerror(error));
        abort();
    }
}

static void executed_add(uc_engine *uc, uint64_t address, uint32_t size, void *opaque)
{
    struct program *p = opaque;
    (void)uc, (void)size;
    uint64_t vaddr = address - BIAS;
    if (vaddr >= p->text_start && vaddr < p->text_end)
        p->executed[(vaddr - p->text_start) / 2]++;
}

static uc_engine *machine_make(const struct program *p)
{
    uc_engine *uc;
    uint64_t sp = STACK + STACK_SIZE - 64, ra = END, tp = POINTER, pc = p->start + BIAS, homes[TL_HOMES];
    must(uc_open(UC_ARCH_RISCV, UC_MODE_RISCV64, &uc), "open");
    must(uc_mem_map(uc, BIAS, PROGRAM_ROOM, UC_PROT_ALL), "map program");
    must(uc_mem_map(uc, STACK, STACK_SIZE, UC_PROT_ALL), "map stack");
    must(uc_mem_map(uc, END, 0x1000, UC_PROT_ALL), "map end");
    must(uc_mem_map(uc, CONTROL, 0x10000 + BLOCK_SIZE, UC_PROT_ALL), "map control");
    for (size_t i = 0; i < p->elf.facts.text_count; i++)
        must(uc_mem_write(uc, BIAS + p->elf.facts.text[i].vaddr, p->elf.facts.text[i].bytes,
                          p->elf.facts.text[i].size), "text");
    for (size_t i = 0; i < p->elf.facts.data_count; i++)
        must(uc_mem_write(uc, BIAS + p->elf.facts.data[i].vaddr, p->elf.facts.data[i].bytes,
                          p->elf.facts.data[i].size), "data");
    for (size_t i = 0; i < TL_HOMES; i++)
        homes[i] = BLOCK;
    must(uc_mem_write(uc, CONTROL + TL_HOMES_OFF, homes, sizeof homes), "homes");
    must(uc_reg_write(uc, UC_RISCV_REG_X2, &sp), "sp");
    must(uc_reg_write(uc, UC_RISCV_REG_X1, &ra), "ra");
    must(uc_reg_write(uc, UC_RISCV_REG_X4, &tp), "tp");
    must(uc_reg_write(uc, UC_RISCV_REG_PC, &pc), "pc");
    // Floating point on: mstatus.FS.
    uint64_t status = 0;
    must(uc_reg_read(uc, UC_RISCV_REG_MSTATUS, &status), "mstatus");
    status |= 0x6000;
    must(uc_reg_write(uc, UC_RISCV_REG_MSTATUS, &status), "mstatus");
    return uc;
}

static bool machine_run(uc_engine *uc, const struct program *p, uint64_t *result)
{
    uc_err error = uc_emu_start(uc, p->start + BIAS, END, 120000000, INSNS_MAX);
    uint64_t pc = 0;
    uc_reg_read(uc, UC_RISCV_REG_PC, &pc);
    uc_reg_read(uc, UC_RISCV_REG_X10, result);
    if (error != UC_ERR_OK || pc != END)
        print_error("%s: stopped at %#llx: %s\n", p->path, (unsigned long long)pc, uc_strerror(error));
    return error == UC_ERR_OK && pc == END;
}

// ---- planning ---------------------------------------------------------------------------------------------

static unsigned asked; // facts of single instructions, by the plan

static int site_ask(struct tl_analysis *analysis, tl_addr vaddr, struct tl_site_facts *out, struct tl_diag *diag)
{
    asked++;
    return tl_analysis_site(analysis, vaddr, out, diag);
}

struct trial {
    struct tl_plan_request request[SITES_MAX];
    size_t count;
    struct tl_plan_module module;
    struct tl_space *space;
    struct tl_plan_set *set;
    unsigned way[TL_WAY_SPILL + 1], refused, hosted;
    unsigned behind; // counts that come behind some of a window's instructions
};
static struct trial trial;

static void trial_add(struct program *p, tl_addr vaddr)
{
    struct tl_plan_request *request = &trial.request[trial.count];
    assert_true(trial.count < SITES_MAX);
    assert_int_equal(tl_analysis_site(p->analysis, vaddr, &request->facts, NULL), 0);
    assert_int_equal(tl_analysis_window(p->analysis, &request->facts, NULL), 0);
    request->bias = BIAS;
    request->counter_off = (uint32_t)(TL_BLOCK_HEADER_SIZE + 8 * trial.count++);
}

// stride 0: entries only; else every so many-th instruction.
static void trial_fill(struct program *p, unsigned stride)
{
    unsigned number = 0;
    trial.count = 0;
    for (size_t i = 0; i < p->elf.facts.function_count; i++) {
        const struct tl_extent *function = &p->elf.facts.functions[i];
        tl_addr vaddr = function->vaddr;
        while (vaddr < function->vaddr + (stride ? function->size : 1)) {
            trial_add(p, vaddr);
            vaddr += trial.request[trial.count - 1].facts.insn[0].size;
            trial.count -= stride && number++ % stride != 0;
        }
    }
}

static void trial_plan_faults(struct program *p, bool crowded, enum tl_fault_policy faults)
{
    const struct tl_range *padding;
    tl_addr around = crowded ? NEIGHBOURS : 0;
    struct tl_range used[] = {{BIAS - around, BIAS + PROGRAM_ROOM + around},
                              {CONTROL, BLOCK + BLOCK_SIZE}, {STACK, STACK + STACK_SIZE}, {END, END + 0x1000}};
    struct tl_space_options space = {.used = used, .used_count = TL_ARRAY_COUNT(used),
                                     .mapping_limit = 1000, .addr_min = TL_SPACE_ADDR_MIN,
                                     .addr_max = tl_arch_riscv64.addr_end};
    struct tl_plan_options options = {
        .arch = &tl_arch_riscv64,
        .faults = faults,
        .emit = {.action = TL_ACTION_COUNT, .thread_pointer = TL_TP_TP, .table_addr = CONTROL,
                 .control_addr = CONTROL, .homes_addr = CONTROL + TL_HOMES_OFF,
                 .homes_shift = TL_HOMES_SHIFT_DEFAULT, .atomics = true, .slow_addr = AGENT},
    };
    trial.module = (struct tl_plan_module){.bias = BIAS, .text = {p->text_start, p->text_end},
                                           .texts = p->elf.facts.text, .text_count = p->elf.facts.text_count,
                                           .site = site_ask, .analysis = p->analysis};
    trial.module.padding_count = tl_analysis_padding(p->analysis, &padding);
    trial.module.padding = padding;
    assert_int_equal(tl_space_create(&space, &trial.space, NULL), 0);
    assert_int_equal(tl_plan_sites(&options, trial.space, &trial.module, 1, trial.request, trial.count,
                                   &trial.set, NULL), 0);
}

static void trial_plan(struct program *p, bool crowded)
{
    trial_plan_faults(p, crowded, TL_FAULT_ANY);
}

// Everything that was planned, as it would be written.
static void trial_write(uc_engine *uc)
{
    const struct tl_plan_detour *detour;
    const struct tl_range *mapping;
    size_t count = tl_space_mappings(trial.space, &mapping);
    for (size_t i = 0; i < count; i++)
        must(uc_mem_map(uc, mapping[i].start, mapping[i].end - mapping[i].start, UC_PROT_ALL), "pool");
    count = tl_plan_detours(trial.set, &detour);
    for (size_t i = 0; i < count; i++)
        must(uc_mem_write(uc, detour[i].addr, detour[i].detour->bytes, detour[i].detour->size), "detour");
    memset(trial.way, 0, sizeof trial.way);
    trial.refused = trial.hosted = trial.behind = 0;
    for (size_t i = 0; i < trial.count; i++) {
        const struct tl_plan *plan = tl_plan_get(trial.set, i);
        if (plan->rung != TL_RUNG_JUMP) {
            trial.refused++;
            continue;
        }
        trial.way[plan->way]++;
        trial.hosted += plan->host != NULL;
        trial.behind += plan->detour->displaced == 0 && plan->detour->insn_count > 1;
        for (unsigned k = 0; k < plan->patch_count; k++) {
            uint8_t now[TL_PATCH_SIZE_MAX];
            const struct tl_patch *patch = &plan->patch[k];
            must(uc_mem_read(uc, patch->addr, now, patch->size), "text");
            // The file's bytes: nobody else has written there.
            assert_memory_equal(now, patch->before, patch->size);
            must(uc_mem_write(uc, patch->addr, patch->after, patch->size), "patch");
        }
    }
}

static void trial_run(struct program *p, unsigned stride, bool crowded)
{
    uint64_t result = 0, counter[SITES_MAX];
    trial_fill(p, stride);
    trial_plan(p, crowded);
    uc_engine *uc = machine_make(p);
    trial_write(uc);
    print_message("%s, %s %u, %s: %zu sites: one %u, window %u, call %u, island %u, far %u, hop %u, spill %u "
                  "(hosts %u), refused %u\n",
                  p->path, stride ? "each" : "entries", stride, crowded ? "crowded" : "free", trial.count,
                  trial.way[TL_WAY_ONE], trial.way[TL_WAY_WINDOW], trial.way[TL_WAY_CALL],
                  trial.way[TL_WAY_ISLAND], trial.way[TL_WAY_FAR], trial.way[TL_WAY_HOP],
                  trial.way[TL_WAY_SPILL], trial.hosted, trial.refused);
    assert_true(machine_run(uc, p, &result));
    assert_int_equal(result, p->result);
    must(uc_mem_read(uc, BLOCK + TL_BLOCK_HEADER_SIZE, counter, 8 * trial.count), "counters");
    for (size_t i = 0; i < trial.count; i++) {
        const struct tl_plan *plan = tl_plan_get(trial.set, i);
        uint64_t expected = p->executed[(trial.request[i].facts.vaddr - p->text_start) / 2];
        if (plan->rung == TL_RUNG_JUMP && counter[i] != expected)
            fail_msg("%#llx, %s: counted %llu of %llu", (unsigned long long)trial.request[i].facts.vaddr,
                     tl_way_text(plan->way), (unsigned long long)counter[i], (unsigned long long)expected);
        if (plan->rung != TL_RUNG_JUMP)
            assert_int_equal(counter[i], 0);
    }
    uc_close(uc);
}

static int trial_end(void **state)
{
    (void)state;
    tl_plan_set_destroy(trial.set);
    tl_space_destroy(trial.space);
    trial.set = NULL;
    trial.space = NULL;
    return 0;
}

// ---- tests ------------------------------------------------------------------------------------------------

static unsigned jumps(void)
{
    return (unsigned)trial.count - trial.refused;
}

static void entries_are_counted_near(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        trial_run(&program[i], 0, false);
        assert_true(100 * jumps() >= 90 * trial.count);
        print_message("behind: %u\n", trial.behind);
        // Only the compressed program has windows here.
        assert_true(i == 1 || trial.behind > 0);
        (void)trial_end(NULL);
    }
}

// Not one branch reaches: the ways of several instructions.
static void entries_are_counted_far(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        trial_run(&program[i], 0, true);
        assert_int_equal(trial.way[TL_WAY_ONE] + trial.way[TL_WAY_WINDOW] + trial.way[TL_WAY_ISLAND], 0);
        assert_true(trial.way[TL_WAY_FAR] > 0 && trial.way[TL_WAY_HOP] > 0 && trial.way[TL_WAY_SPILL] > 0);
        assert_true(100 * jumps() >= 40 * trial.count);
        (void)trial_end(NULL);
    }
}

// One function alone, as most people probe: hosts are free.
static void each_entry_alone_is_counted_far(void **state)
{
    (void)state;
    struct program *p = &program[0];
    unsigned alone = 0, placed = 0;
    for (size_t i = 0; i < p->elf.facts.function_count; i += 2, alone++) {
        uint64_t result = 0, counter = 0;
        trial.count = 0;
        trial_add(p, p->elf.facts.functions[i].vaddr);
        trial_plan(p, true);
        uc_engine *uc = machine_make(p);
        trial_write(uc);
        assert_true(machine_run(uc, p, &result));
        assert_int_equal(result, p->result);
        must(uc_mem_read(uc, BLOCK + TL_BLOCK_HEADER_SIZE, &counter, 8), "counter");
        if (!trial.refused)
            assert_int_equal(counter, p->executed[(trial.request[0].facts.vaddr - p->text_start) / 2]);
        placed += !trial.refused;
        uc_close(uc);
        (void)trial_end(NULL);
    }
    print_message("alone: %u of %u entries\n", placed, alone);
    assert_true(100 * placed >= 85 * alone);
}

static void every_instruction_is_counted(void **state)
{
    (void)state;
    static const unsigned stride[] = {1, 3, 13};
    for (unsigned i = 0; i < 4 * TL_ARRAY_COUNT(stride); i++) {
        trial_run(&program[i & 1], stride[i / 4], (i & 2) != 0);
        // Side by side there is no room for branches of several instructions.
        assert_true(jumps() >= (stride[i / 4] < 5 && i & 2 ? 0 : trial.count / 10));
        (void)trial_end(NULL);
    }
}

// Few places can be hosts where faults are handled, and each site looks for one in several ways: what a plan asks of
// the analysis grows with the text and the sites, not with their product.
static void facts_are_looked_at_once(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct program *p = &program[i];
        unsigned insns = (unsigned)(p->text_end - p->text_start) / (i ? 4 : 2);
        trial_fill(p, 0);
        asked = 0;
        trial_plan_faults(p, true, TL_FAULT_RESUMED);
        print_message("%s: %u instructions at most, %zu sites: asked for %u\n", p->path, insns, trial.count, asked);
        assert_true(asked > trial.count);
        assert_true(asked < 2 * insns + ASKED_PER_SITE * trial.count);
        (void)trial_end(NULL);
    }
}

static int programs_load(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct program *p = &program[i];
        if (!elf_facts_load(p->path, &p->elf) ||
            tl_analysis_create(&p->elf.facts, &p->analysis, NULL) != 0)
            return -1;
        p->start = elf_facts_find(&p->elf, "start", NULL);
        p->text_start = p->elf.facts.text[0].vaddr;
        p->text_end = p->text_start + p->elf.facts.text[0].size;
        p->executed = calloc(p->elf.facts.text[0].size / 2 + 1, sizeof *p->executed);
        uc_engine *uc = machine_make(p);
        uc_hook hook;
        must(uc_hook_add(uc, &hook, UC_HOOK_CODE, (void *)executed_add, p, 1, 0), "hook");
        if (!machine_run(uc, p, &p->result))
            return -1;
        uc_close(uc);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(entries_are_counted_near, trial_end),
        cmocka_unit_test_teardown(entries_are_counted_far, trial_end),
        cmocka_unit_test_teardown(each_entry_alone_is_counted_far, trial_end),
        cmocka_unit_test_teardown(every_instruction_is_counted, trial_end),
        cmocka_unit_test_teardown(facts_are_looked_at_once, trial_end),
    };
    if (argc != 3)
        return 1;
    program[0].path = argv[1];
    program[1].path = argv[2];
    return cmocka_run_group_tests(tests, programs_load, NULL);
}

// Proves the register sets of isa/arm64.isa by running words of every row in an emulator: what is claimed not
// to be read may be changed without any other effect, and what is claimed to be written does not depend on its
// old value; the stack pointer changes only where it is said to.
#include "arch/arch.h"
#include "arch/arm64/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <unicorn/unicorn.h>

#define CODE_ADDR UINT64_C(0x7fff10000000)
#define PAGES_MAX 16
#define WRITES_MAX 160
#define VECTORS 32
#define REG_SP 31
#define REGS 32 // x0 to x30, sp
#define FLAGS 4
#define NOPS UINT64_C(0xd503201fd503201f)
#define MRS_TPIDR_EL0 0xd53bd040u // one system register that exists
#define TRIES 20 // words of a row for one that is run
#define FLAG_SHIFT 28 // v, c, z, n from here

static const tl_regset flag_bits[FLAGS] = {TL_REGSET_V, TL_REGSET_C, TL_REGSET_Z, TL_REGSET_N};

struct state {
    uint64_t reg[REGS], pc, vector[VECTORS][2];
    uint32_t flags;
};

struct machine {
    uc_engine *uc;
    uint64_t page[PAGES_MAX];
    unsigned page_count;
    uint64_t write[WRITES_MAX]; // folded address, size and value
    unsigned write_count;
    bool branches; // memory is nops: the emulator looks at the code that a branch leads to
    uint64_t seed;
};

static uint64_t next_random(struct machine *machine)
{
    machine->seed ^= machine->seed << 13;
    machine->seed ^= machine->seed >> 7;
    machine->seed ^= machine->seed << 17;
    return machine->seed;
}

static bool on_unmapped(uc_engine *uc, uc_mem_type type, uint64_t addr, int size, int64_t value, void *user)
{
    (void)type, (void)value;
    struct machine *machine = user;
    for (uint64_t page = addr & ~0xfffull; page <= ((addr + (uint64_t)size - 1) & ~0xfffull); page += 0x1000) {
        uint64_t words[512];
        for (unsigned i = 0; i < 512; i++) // contents follow from the address
            words[i] = machine->branches ? NOPS : (page + i * 8) * 0x9e3779b97f4a7c15ull;
        if (machine->page_count == PAGES_MAX)
            return false;
        if (uc_mem_map(uc, page, 0x1000, UC_PROT_ALL) != UC_ERR_OK)
            continue; // the other half of the access is mapped already
        machine->page[machine->page_count++] = page;
        uc_mem_write(uc, page, words, sizeof(words));
    }
    return true;
}

static void on_write(uc_engine *uc, uc_mem_type type, uint64_t addr, int size, int64_t value, void *user)
{
    (void)uc, (void)type;
    struct machine *machine = user;
    if (machine->write_count < WRITES_MAX)
        machine->write[machine->write_count++] = (addr * 31 + (uint64_t)size) * 1000003 + (uint64_t)value;
}

static int reg_id(unsigned reg)
{
    if (reg == REG_SP)
        return UC_ARM64_REG_SP;
    return reg < 29 ? UC_ARM64_REG_X0 + (int)reg : reg == 29 ? UC_ARM64_REG_X29 : UC_ARM64_REG_X30;
}

// Runs one instruction from *state and leaves the result there. false: it can't be run here.
static bool run(struct machine *machine, struct state *state)
{
    uc_engine *uc = machine->uc;
    for (unsigned i = 0; i < machine->page_count; i++)
        uc_mem_unmap(uc, machine->page[i], 0x1000);
    machine->page_count = machine->write_count = 0;
    for (unsigned i = 0; i < REGS; i++)
        uc_reg_write(uc, reg_id(i), &state->reg[i]);
    uint64_t flags = state->flags;
    uc_reg_write(uc, UC_ARM64_REG_NZCV, &flags);
    for (int i = 0; i < VECTORS; i++)
        uc_reg_write(uc, UC_ARM64_REG_V0 + i, state->vector[i]);
    if (uc_emu_start(uc, CODE_ADDR, CODE_ADDR + 4, 0, 1) != UC_ERR_OK)
        return false;
    for (unsigned i = 0; i < REGS; i++)
        uc_reg_read(uc, reg_id(i), &state->reg[i]);
    uc_reg_read(uc, UC_ARM64_REG_NZCV, &flags);
    state->flags = (uint32_t)flags & 15u << FLAG_SHIFT;
    uc_reg_read(uc, UC_ARM64_REG_PC, &state->pc);
    for (int i = 0; i < VECTORS; i++)
        uc_reg_read(uc, UC_ARM64_REG_V0 + i, state->vector[i]);
    return true;
}

static void state_random(struct machine *machine, struct state *state)
{
    *state = (struct state){.flags = (uint32_t)next_random(machine) & 15u << FLAG_SHIFT};
    for (unsigned i = 0; i < REGS; i++) {
        state->reg[i] = next_random(machine) & 0xffffffffff0;
        if (next_random(machine) % 4 == 0) // small counts and the like
            state->reg[i] &= 0xf0;
    }
    for (unsigned i = 0; i < VECTORS; i++)
        for (unsigned k = 0; k < 2; k++)
            state->vector[i][k] = next_random(machine);
}

// Whether two results of runs are the same but for general register `reg` and the flags in `flag`.
static bool same_but(const struct machine *machine, const struct state *one, const struct state *two,
                     const uint64_t *writes, unsigned write_count, unsigned reg, uint32_t flag)
{
    for (unsigned i = 0; i < REGS; i++)
        if (i != reg && one->reg[i] != two->reg[i])
            return false;
    return ((one->flags ^ two->flags) & ~flag) == 0 && one->pc == two->pc &&
           memcmp(one->vector, two->vector, sizeof(one->vector)) == 0 && machine->write_count == write_count &&
           memcmp(machine->write, writes, write_count * sizeof(*writes)) == 0;
}

static bool wrong(const struct tl_insn *insn, const char *what, unsigned reg)
{
    char text[160];
    tl_arch_arm64.print(insn, text, sizeof(text));
    print_error("%s (row %s) %s %u\n", text, tl_arm64_row(insn->row)->name, what, reg);
    return false;
}

// Changes one register, or flag, that is said not to be read.
static bool claim_holds(struct machine *machine, const struct tl_insn *insn, const struct state *start,
                        const struct state *before, unsigned which)
{
    uint64_t writes[WRITES_MAX];
    unsigned write_count = machine->write_count;
    memcpy(writes, machine->write, sizeof(writes));
    bool is_reg = which < REGS;
    tl_regset bit = is_reg ? TL_REGSET(which) : flag_bits[which - REGS];
    uint32_t flag = is_reg ? 0 : 1u << (FLAG_SHIFT + which - REGS);
    struct state after = *start;
    if (is_reg)
        after.reg[which] ^= (next_random(machine) | 0x10) & 0xfffffffffff0;
    after.flags ^= flag;
    if (!run(machine, &after) || !same_but(machine, before, &after, writes, write_count, which, flag))
        return wrong(insn, "reads register", which);
    bool differs = is_reg ? before->reg[which] != after.reg[which] : ((before->flags ^ after.flags) & flag) != 0;
    if ((insn->written & bit) != 0 && differs)
        return wrong(insn, "does not write register", which);
    memcpy(machine->write, writes, sizeof(writes));
    machine->write_count = write_count;
    return true;
}

// 1: tested, 0: could not be run, -1: a claim is wrong.
static int claims_hold(struct machine *machine, const struct tl_insn *insn)
{
    struct state start, before, again;
    uint64_t writes[WRITES_MAX];
    uc_mem_write(machine->uc, CODE_ADDR, insn->bytes, insn->size);
    uc_ctl_remove_cache(machine->uc, CODE_ADDR, CODE_ADDR + insn->size);
    machine->branches = insn->flow != TL_FLOW_NEXT;
    state_random(machine, &start);
    before = again = start;
    if (!run(machine, &before))
        return 0;
    unsigned write_count = machine->write_count;
    memcpy(writes, machine->write, sizeof(writes));
    if (!run(machine, &again) || !same_but(machine, &before, &again, writes, write_count, REGS, 0))
        return 0; // counts time
    if (before.reg[REG_SP] != start.reg[REG_SP] && (insn->flags & TL_INSN_WRITES_SP) == 0)
        return wrong(insn, "changes register", REG_SP), -1;
    for (unsigned i = 0; i < REGS; i++)
        if (i != REG_SP && before.reg[i] != start.reg[i] && (insn->written & TL_REGSET(i)) == 0)
            return wrong(insn, "changes without saying so register", i), -1;
    for (unsigned i = 0; i < REGS + FLAGS; i++) {
        tl_regset bit = i < REGS ? TL_REGSET(i) : flag_bits[i - REGS];
        if ((insn->read & bit) == 0 && !claim_holds(machine, insn, &start, &before, i))
            return -1;
    }
    return 1;
}

// Rows of extensions that the emulator has not.
static const char *const unknown_there[] = {
    "add-tag", "minmax-imm", "bc-cond", "cb-reg", "cb-small", "cb-imm", "barrier-nxs", "wait-time",
    "pacga", "minmax-reg", "subp", "subps", "irg", "gmi", "bits-abs", "addpt", "maddpt", "ldop-pair",
    "swp-pair", "ldiapp", "ldiapp-post", "stilp", "stilp-pre", "ldapr-post", "stlr-pre", "block-64",
    "block-64-status", "st-tag", "st-tag-index", "ldg", "stgp", "stgp-index", "ldap1", "stl1",
    "ldapur-simd", "bfcvt", "v-dot-mixed", "v-matrix", "x-dot-mixed", "vf-bfdot", "vf-bfmlal",
    "vf-bfmmla", "vf-bfcvtn", "xf-bfdot", "xf-bfmlal", "cas-user", "casp-user", "ldop-user", "swp-user", "rcwcas",
    "rcwcasp", "rcwop", "rcwop-pair", "ldop-fp", "stop-fp", "ldap", "stlp", "sttp", "sttp-index", "ldtp", "ldtp-index",
    "ldsttp-simd", "ldsttp-simd-index", "gcsstr", "fcvt-to-int-simd", "cvt-from-int-simd", "vf-magnitude", "vf-scale",
    "vf8-lengthen", "vf8-narrow", "vf8-dot", "vf-dot-half", "vf-dot-half-lane", "vf8-multiply", "vf8-multiply-four",
    "vf8-dot-lane", "vf8-dot-lane-half", "vf8-multiply-lane", "vf8-multiply-four-lane", "vf8-matrix", "table-two",
    "table-two-bytes", "table-four", "table-four-bytes",
};

// Rows with words at which the emulator ends the test instead of refusing them.
static const char *const fatal_there[] = {"vf-magnitude-half", "vf-scale-half"};

static bool is_named(const struct row *row, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(row->name, names[i]) == 0)
            return true;
    return false;
}

// It has no scalable vectors and matrices either (DDI 0487, C4.1 "A64 instruction set encoding").
static bool is_unknown_there(const struct row *row)
{
    uint32_t group = row->value >> 25 & 15;
    if (group == 2 || (group == 0 && row->value >> 31 != 0))
        return true;
    return is_named(row, unknown_there, TL_ARRAY_COUNT(unknown_there));
}

static uint64_t number_get(const char *name, uint64_t otherwise)
{
    const char *given = getenv(name);
    return given != NULL ? strtoull(given, NULL, 0) : otherwise;
}

// A word of the row, with register 31 more often than by chance.
static uint32_t word_of(struct machine *machine, const struct row *row)
{
    uint32_t word = (uint32_t)next_random(machine);
    for (unsigned shift = 0; shift <= 16; shift += shift == 0 ? 5 : shift == 5 ? 5 : 6)
        if (next_random(machine) % 6 == 0)
            word |= 31u << shift;
    return (word & ~row->mask) | row->value;
}

static void words_of_all_rows_keep_their_claims(void **state)
{
    (void)state;
    struct machine machine = {.seed = number_get("TL_TEST_SEED", (uint64_t)time(NULL))};
    uint64_t each = number_get("TL_CASES", 12);
    unsigned rows = 0, run_rows = 0, failed = 0;
    uc_hook hook;
    print_message("TL_TEST_SEED=%llu\n", (unsigned long long)machine.seed);
    machine.seed = machine.seed * 2 + 1;
    assert_int_equal(uc_open(UC_ARCH_ARM64, UC_MODE_ARM, &machine.uc), UC_ERR_OK);
    assert_int_equal(uc_ctl_set_cpu_model(machine.uc, UC_CPU_ARM64_MAX), UC_ERR_OK);
    assert_int_equal(uc_mem_map(machine.uc, CODE_ADDR, 0x1000, UC_PROT_ALL), UC_ERR_OK);
    uc_hook_add(machine.uc, &hook, UC_HOOK_MEM_UNMAPPED, (void *)on_unmapped, &machine, 1, 0);
    uc_hook_add(machine.uc, &hook, UC_HOOK_MEM_WRITE, (void *)on_write, &machine, 1, 0);
    for (unsigned number = 1; number < tl_arm64_row_count(); number++) {
        const struct row *row = tl_arm64_row(number);
        unsigned tested = 0;
        if (row->reloc == TL_RELOC_REFUSE || is_named(row, fatal_there, TL_ARRAY_COUNT(fatal_there)))
            continue;
        for (uint64_t i = 0; i < each * TRIES && tested < each; i++) {
            uint32_t word = word_of(&machine, row);
            if (i == 0 && (MRS_TPIDR_EL0 & row->mask) == row->value)
                word = MRS_TPIDR_EL0;
            struct tl_insn insn;
            tl_arch_arm64.decode((const uint8_t *)&word, sizeof(word), CODE_ADDR, &insn);
            if (insn.row != number)
                continue;
            int result = claims_hold(&machine, &insn);
            tested += result > 0;
            failed += result < 0;
        }
        rows++;
        run_rows += tested != 0;
        if ((tested == 0) != is_unknown_there(row)) {
            print_error("row %s: %s\n", row->name, tested == 0 ? "not run (nor in unknown_there)" : "runs after all");
            failed++;
        }
    }
    print_message("%u of %u rows run\n", run_rows, rows);
    assert_int_equal(failed, 0);
    uc_close(machine.uc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_all_rows_keep_their_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

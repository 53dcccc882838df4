// Every simulator of arm64 against Unicorn: random words of each row that names one, on random
// states, once emulated, once done by hand; registers, flags, memory and the way out must be equal.
// And by tables: what Unicorn doesn't show (PSTATE.BTYPE, stack pointers that fault), and what is
// not simulated.
#include "arch/arm64/simulate.h"
#include "arch/arm64/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"

#define NZCV_MASK UINT64_C(0xf0000000)

enum { REG_SP = 31 };
#define BTYPE(n) ((uint64_t)(n) << 10)

struct state {
    uint64_t reg[32]; // the last: sp
    uint64_t pc, nzcv;
    uint8_t vector[32][16];
};

static int reg_id[32], vector_id[32];

static int setup(void **state)
{
    (void)state;
    emulated_setup("simulate-arm64", UC_ARCH_ARM64, UC_MODE_ARM);
    for (int i = 0; i < 32; i++) {
        reg_id[i] = i < 29 ? UC_ARM64_REG_X0 + i : i == 29 ? UC_ARM64_REG_X29 : UC_ARM64_REG_X30;
        vector_id[i] = UC_ARM64_REG_Q0 + i;
    }
    reg_id[REG_SP] = UC_ARM64_REG_SP;
    uint64_t enable = UINT64_C(3) << 20; // CPACR_EL1.FPEN: no trap of vector instructions
    assert_int_equal(uc_reg_write(uc, UC_ARM64_REG_CPACR_EL1, &enable), UC_ERR_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    emulated_teardown();
    return 0;
}

// ---- the emulator -------------------------------------------------------------------------------

static void state_load(const struct state *state, bool vectors)
{
    void *value[32];
    for (int i = 0; i < 32; i++)
        value[i] = (void *)(uintptr_t)&state->reg[i];
    assert_int_equal(uc_reg_write_batch(uc, reg_id, value, 32), UC_ERR_OK);
    assert_int_equal(uc_reg_write(uc, UC_ARM64_REG_NZCV, &state->nzcv), UC_ERR_OK);
    for (int i = 0; vectors && i < 32; i++)
        value[i] = (void *)(uintptr_t)state->vector[i];
    if (vectors)
        assert_int_equal(uc_reg_write_batch(uc, vector_id, value, 32), UC_ERR_OK);
}

static void state_save(struct state *state, bool vectors)
{
    void *value[32];
    for (int i = 0; i < 32; i++)
        value[i] = &state->reg[i];
    assert_int_equal(uc_reg_read_batch(uc, reg_id, value, 32), UC_ERR_OK);
    assert_int_equal(uc_reg_read(uc, UC_ARM64_REG_NZCV, &state->nzcv), UC_ERR_OK);
    state->nzcv &= NZCV_MASK; // the emulator's has more in it
    assert_int_equal(uc_reg_read(uc, UC_ARM64_REG_PC, &state->pc), UC_ERR_OK);
    for (int i = 0; vectors && i < 32; i++)
        value[i] = state->vector[i];
    if (vectors)
        assert_int_equal(uc_reg_read_batch(uc, vector_id, value, 32), UC_ERR_OK);
}

// ---- cases --------------------------------------------------------------------------------------

static void state_random(const struct tl_insn *insn, struct state *out, bool vectors)
{
    for (unsigned i = 0; i < 31; i++) {
        uint64_t word = random_next();
        switch (word % 8) {
        case 0: // small, so that bits are zero
            out->reg[i] = word >> 61;
            break;
        case 1:
            out->reg[i] = word & UINT64_C(0xffffffff00000000);
            break;
        case 2:
        case 3: // somewhere to go
            out->reg[i] = word >> 17 & ~UINT64_C(3);
            break;
        default:
            out->reg[i] = word;
            break;
        }
    }
    out->reg[REG_SP] = MEMORY + STACK_OFF + random_next() % STACK_SIZE / 16 * 16;
    out->pc = insn->addr;
    out->nzcv = random_next() & NZCV_MASK;
    for (unsigned i = 0; vectors && i < 64; i++) {
        uint64_t word = random_next();
        memcpy((uint8_t *)out->vector + 8 * i, &word, 8);
    }
}

static void case_fail(const struct tl_insn *insn, const struct state *before,
                      const struct state *after, const struct tl_simulate_state *by_hand)
{
    char text[128];
    tl_arch_arm64.print(insn, text, sizeof text);
    fprintf(stderr, "%s: pc %llx, by hand %llx; nzcv %llx, by hand %llx\n", text,
            (unsigned long long)after->pc, (unsigned long long)by_hand->pc,
            (unsigned long long)after->nzcv, (unsigned long long)by_hand->flags);
    for (unsigned i = 0; i < 32; i++)
        fprintf(stderr, "  x%u %llx -> %llx, by hand %llx\n", i, (unsigned long long)before->reg[i],
                (unsigned long long)after->reg[i], (unsigned long long)by_hand->general[i]);
    fail_msg("%s (%s, at %llx) differs", text, tl_arm64_row(insn->row)->name,
             (unsigned long long)insn->addr);
}

// One case. True: it was done by hand.
static bool case_run(const struct tl_insn *insn, const struct tl_simulation *simulation,
                     bool vectors)
{
    static uint8_t vector[32][16] __attribute__((aligned(16)));
    struct state before, after;
    state_random(insn, &before, vectors);
    struct tl_simulate_state by_hand = {.pc = before.pc, .flags = before.nzcv, .vector = vector};
    memcpy(by_hand.general, before.reg, sizeof before.reg);
    memcpy(vector, before.vector, sizeof vector);
    struct tl_simulate_state untouched = by_hand;
    writes_forget();
    bool taken = tl_arm64_simulate_taken(simulation, &by_hand);
    if (!tl_arm64_simulate(simulation, &by_hand, &own_memory)) {
        if (memcmp(&by_hand, &untouched, sizeof by_hand) != 0 || writes_own() ||
            (vectors && memcmp(vector, before.vector, sizeof vector) != 0))
            fail_msg("row %s: refused, but something changed", tl_arm64_row(insn->row)->name);
        return false;
    }
    state_load(&before, vectors);
    uc_err error = uc_emu_start(uc, before.pc, 0, 0, 1);
    state_save(&after, vectors);
    // The way out may lead where nothing is mapped: by then the instruction is done.
    if (error && error != UC_ERR_FETCH_UNMAPPED && error != UC_ERR_FETCH_PROT)
        fail_msg("row %s: done by hand, but the processor faults (%d)",
                 tl_arm64_row(insn->row)->name, (int)error);
    if (after.pc != by_hand.pc || after.nzcv != (by_hand.flags & NZCV_MASK) ||
        memcmp(after.reg, by_hand.general, sizeof after.reg) != 0 || !writes_same() ||
        (vectors && memcmp(after.vector, vector, sizeof vector) != 0))
        case_fail(insn, &before, &after, &by_hand);
    bool conditional = simulation->kind == SIMULATE_COND || simulation->kind == SIMULATE_CBZ ||
                       simulation->kind == SIMULATE_TBZ;
    if (conditional && simulation->value != simulation->next)
        assert_int_equal(taken, after.pc == simulation->value);
    return true;
}

// A word of the row, where it has a base register with the stack pointer as that.
static uint32_t word_random(unsigned number)
{
    const struct row *row = tl_arm64_row(number);
    uint32_t word = row->value | ((uint32_t)random_next() & ~row->mask);
    if (row->simulate == SIMULATE_PAIR || row->simulate == SIMULATE_SINGLE)
        word |= 31u << 5;
    return word;
}

// The emulator does not know bc.cond, which is b.cond with a hint.
static bool word_run(const struct simulated_word *word)
{
    uint32_t bits;
    memcpy(&bits, word->insn.bytes, sizeof bits);
    if ((bits & 0xff000010) == 0x54000010) {
        bits &= ~UINT32_C(0x10);
        memcpy(memory + (word->insn.addr - MEMORY), &bits, sizeof bits);
    }
    return case_run(&word->insn, &word->simulation, word->simulation.operand & TRANSFER_VECTOR);
}

static void simulated_equals_emulated(void **state)
{
    (void)state;
    unsigned long cases = cases_wanted(), all = 0;
    unsigned rows = 0;
    for (unsigned n = 1; n < tl_arm64_row_count(); n++)
        rows += tl_arm64_row(n)->simulate != SIMULATE_NONE;
    assert_true(rows > 0);
    for (unsigned n = 1; n < tl_arm64_row_count(); n++) {
        const struct simulated_row row = {&tl_arch_arm64, tl_arm64_row(n)->name, n, word_random,
                                          word_run};
        if (tl_arm64_row(n)->simulate != SIMULATE_NONE)
            all += row_run(&row, cases / rows / STATES + 1);
    }
    printf("simulate-arm64: %lu cases of %u rows\n", all, rows);
    if (all < cases / 2)
        fail_msg("%lu of %lu cases done by hand", all, cases);
}

// ---- by tables ----------------------------------------------------------------------------------

#define AT UINT64_C(0x400000)

static bool simulation_of(uint32_t word, bool guarded, struct tl_simulation *out)
{
    struct tl_insn insn;
    assert_int_equal(tl_arch_arm64.decode((const uint8_t *)&word, sizeof word, AT, &insn), 0);
    bool has = tl_arch_arm64.simulation(&insn, out);
    out->guarded = guarded;
    return has;
}

static void branch_types_are_the_processors(void **state)
{
    (void)state;
    static const struct {
        uint32_t word;
        bool guarded;
        uint8_t before;
        int8_t after; // -1: left to the processor
    } cases[] = {
        {0xd503201f, false, 0, 0}, // nop
        {0xd503201f, false, 3, 0}, {0xd503201f, true, 0, 0},
        {0xd503201f, true, 1, -1}, // no landing pad
        {0xd503245f, true, 1, 0},  // bti c
        {0xd503245f, true, 2, 0},  {0xd503245f, true, 3, -1},
        {0xd503245f, false, 3, 0}, {0xd503249f, true, 1, 0}, // bti j
        {0xd503249f, true, 2, -1}, {0xd503249f, true, 3, 0},
        {0xd50324df, true, 2, 0},                             // bti jc
        {0xd50324df, true, 3, 0},  {0xd503241f, true, 0, 0},  // bti
        {0xd503241f, true, 2, -1}, {0xd61f0040, true, 0, 3},  // br x2
        {0xd61f0040, false, 0, 1}, {0xd61f0200, true, 0, 1},  // br x16
        {0xd61f0220, true, 0, 1},                             // br x17
        {0xd63f0040, true, 0, 2},                             // blr x2
        {0xd63f0200, false, 0, 2},                            // blr x16
        {0xd65f03c0, true, 0, 0},                             // ret
        {0xd65f03c0, false, 3, 0}, {0x14000002, false, 2, 0}, // b
        {0x94000002, true, 0, 0},                             // bl
        {0x10000000, false, 1, 0},                            // adr x0
        {0x10000000, true, 1, -1}, {0xa9bf7bfd, true, 2, -1}, // stp x29, x30, [sp, #-16]!
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct tl_simulation simulation;
        struct tl_simulate_state before = {.pc = AT,
                                           .flags = BTYPE(cases[i].before) | UINT64_C(5) << 28};
        for (unsigned r = 0; r < 32; r++)
            before.general[r] = MEMORY + STACK_OFF + 16 * r;
        struct tl_simulate_state after = before;
        assert_true(simulation_of(cases[i].word, cases[i].guarded, &simulation));
        bool done = tl_arm64_simulate(&simulation, &after, &own_memory);
        if (done != (cases[i].after >= 0))
            fail_msg("%08x, case %zu: %s by hand", cases[i].word, i, done ? "done" : "not done");
        if (done && after.flags != (BTYPE(cases[i].after) | UINT64_C(5) << 28))
            fail_msg("%08x, case %zu: pstate %llx", cases[i].word, i,
                     (unsigned long long)after.flags);
        if (!done)
            assert_memory_equal(&before, &after, sizeof before);
        // What is left to the processor needs a slot.
        if (!done && tl_arch_arm64.simulation_alone(&simulation))
            fail_msg("%08x, case %zu: said to be always done", cases[i].word, i);
    }
}

static void what_would_fault_is_left_to_the_processor(void **state)
{
    (void)state;
    static const struct {
        uint32_t word;
        uint64_t sp, x2;
        bool done;
    } cases[] = {
        {0xa9bf7bfd, MEMORY + STACK_OFF, 0, true},      // stp x29, x30, [sp, #-16]!
        {0xa9bf7bfd, MEMORY + STACK_OFF + 8, 0, false}, // the stack pointer is not aligned
        {0xa9bf7bfd, MEMORY, 0, false},                 // nothing is there
        {0xa8c17bfd, MEMORY + STACK_OFF, 0, true},      // ldp x29, x30, [sp], #16
        {0xa8c17bfd, MEMORY + STACK_OFF + 1, 0, false},
        {0xa8c17bfd, MEMORY + MEMORY_SIZE, 0, false},
        {0xf81f0ffe, MEMORY + STACK_OFF + 4, 0, false},       // str x30, [sp, #-16]!
        {0xd61f0040, 0, 0x400100, true},                      // br x2
        {0xd61f0040, 0, 0x400102, false},                     // not a multiple of 4
        {0xd61f0040, 0, UINT64_C(0x5500000000400100), false}, // a tag
        {0xd63f0040, 0, UINT64_C(0xffff000000000000), false}, // blr x2: the kernel's
        {0xd65f0040, 0, 0x400101, false},                     // ret x2
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct tl_simulation simulation;
        struct tl_simulate_state before = {.pc = AT};
        before.general[2] = cases[i].x2;
        before.general[REG_SP] = cases[i].sp;
        struct tl_simulate_state after = before;
        writes_forget();
        assert_true(simulation_of(cases[i].word, false, &simulation));
        if (tl_arm64_simulate(&simulation, &after, &own_memory) != cases[i].done)
            fail_msg("%08x, case %zu: not as wanted", cases[i].word, i);
        if (!cases[i].done) {
            assert_memory_equal(&before, &after, sizeof before);
            assert_int_equal(writes_own(), 0);
        }
    }
}

static void vectors_that_are_not_at_hand_are_left_to_the_processor(void **state)
{
    (void)state;
    static const uint32_t words[] = {
        0x6dbf27e8, // stp d8, d9, [sp, #-16]!
        0xfd4007e8, // ldr d8, [sp, #8]
        0x1c000040, // ldr s0, .+8
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(words); i++) {
        struct tl_simulation simulation;
        struct tl_simulate_state before = {.pc = AT};
        before.general[REG_SP] = MEMORY + STACK_OFF;
        struct tl_simulate_state after = before;
        assert_true(simulation_of(words[i], false, &simulation));
        assert_false(tl_arm64_simulate(&simulation, &after, &own_memory));
        assert_memory_equal(&before, &after, sizeof before);
    }
}

// No simulator does these: they run by themselves, or are refused.
static void odd_forms_are_not_simulated(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t word;
    } refused[] = {
        {"stp x0, x1, [x2]", 0xa9000440},
        {"ldp x0, x0, [sp]", 0xa94003e0},
        {"ldr x0, [x1]", 0xf9400020},
        {"ldr x0, [sp, x1]", 0xf8616be0},
        {"ldtr x0, [sp]", 0xf84003e0 | 0x800},
        {"strb w0, [sp]", 0x390003e0},
        {"prfm pldl1keep, [sp]", 0xf98003e0},
        {"stgp x0, x1, [sp]", 0x690007e0},
        {"retaa", 0xd65f0bff},
        {"braaz x0", 0xd61f081f},
        {"blraaz x0", 0xd63f081f},
        {"paciasp", 0xd503233f},
        {"autiasp", 0xd50323bf},
        {"wfe", 0xd503205f},
        {"csdb", 0xd503229f},
        {"esb", 0xd503221f},
        {"add x0, x1, x2", 0x8b020020},
        {"svc #0", 0xd4000001},
        {"brk #0", 0xd4200000},
        {"ldxr x0, [sp]", 0xc85f7fe0},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(refused); i++) {
        struct tl_simulation simulation;
        if (simulation_of(refused[i].word, false, &simulation))
            fail_msg("%s: simulated", refused[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated_equals_emulated),
        cmocka_unit_test(branch_types_are_the_processors),
        cmocka_unit_test(what_would_fault_is_left_to_the_processor),
        cmocka_unit_test(vectors_that_are_not_at_hand_are_left_to_the_processor),
        cmocka_unit_test(odd_forms_are_not_simulated),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

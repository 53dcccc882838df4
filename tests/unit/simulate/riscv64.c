// Every simulator of riscv64 against Unicorn: random words of each row that names one, on random
// states, once emulated, once done by hand; registers, memory and the way out must be equal. And by
// tables: forms with a catch, what would fault, and what is not simulated.
#include "arch/riscv64/simulate.h"
#include "arch/riscv64/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"

#define REGS 32
enum { REG_RA = 1, REG_SP = 2, REG_T0 = 5 };

static int reg_id[REGS];

static int setup(void **state)
{
    (void)state;
    emulated_setup("simulate-riscv64", UC_ARCH_RISCV, UC_MODE_RISCV64);
    for (int i = 0; i < REGS; i++)
        reg_id[i] = UC_RISCV_REG_X0 + i;
    reg_id[TL_RISCV64_PC] = UC_RISCV_REG_PC;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    emulated_teardown();
    return 0;
}

// ---- cases --------------------------------------------------------------------------------------

static void state_random(const struct tl_insn *insn, struct tl_simulate_state *out)
{
    memset(out, 0, sizeof *out);
    for (unsigned i = 1; i < REGS; i++) {
        uint64_t word = random_next();
        switch (word % 8) {
        case 0: // small, so that some are equal
            out->general[i] = word >> 62;
            break;
        case 1:
            out->general[i] = -(word >> 62);
            break;
        case 2: // what is equal in another way
            out->general[i] = i > 1 ? out->general[i - 1] : 0;
            break;
        case 3:
        case 4: // somewhere to go, bit 0 included
            out->general[i] = word >> 17;
            break;
        default:
            out->general[i] = word;
            break;
        }
    }
    out->general[REG_SP] = MEMORY + STACK_OFF + random_next() % STACK_SIZE / 8 * 8;
    out->general[TL_RISCV64_PC] = insn->addr;
}

static void state_load(const struct tl_simulate_state *state)
{
    void *value[REGS];
    for (int i = 0; i < REGS; i++)
        value[i] = (void *)(uintptr_t)&state->general[i];
    assert_int_equal(uc_reg_write_batch(uc, reg_id, value, REGS), UC_ERR_OK);
}

static void state_save(struct tl_simulate_state *state)
{
    void *value[REGS];
    memset(state, 0, sizeof *state);
    for (int i = 0; i < REGS; i++)
        value[i] = &state->general[i];
    assert_int_equal(uc_reg_read_batch(uc, reg_id, value, REGS), UC_ERR_OK);
}

static void case_fail(const struct tl_insn *insn, const struct tl_simulate_state *before,
                      const struct tl_simulate_state *after,
                      const struct tl_simulate_state *by_hand)
{
    char text[128];
    tl_arch_riscv64.print(insn, text, sizeof text);
    for (unsigned i = 0; i < REGS; i++)
        fprintf(stderr, "  %s%u %llx -> %llx, by hand %llx\n", i ? "x" : "pc ", i,
                (unsigned long long)before->general[i], (unsigned long long)after->general[i],
                (unsigned long long)by_hand->general[i]);
    fail_msg("%s (%s, at %llx) differs", text, tl_riscv64_row(insn->row)->name,
             (unsigned long long)insn->addr);
}

// One case. True: it was done by hand.
static bool case_run(const struct simulated_word *word)
{
    const struct tl_insn *insn = &word->insn;
    const struct tl_simulation *simulation = &word->simulation;
    struct tl_simulate_state before, after, by_hand;
    state_random(insn, &before);
    by_hand = before;
    writes_forget();
    bool taken = tl_riscv64_simulate_taken(simulation, &by_hand);
    if (!tl_riscv64_simulate(simulation, &by_hand, &own_memory)) {
        if (memcmp(&by_hand, &before, sizeof by_hand) != 0 || writes_own())
            fail_msg("row %s: refused, but something changed", tl_riscv64_row(insn->row)->name);
        return false;
    }
    state_load(&before);
    uc_err error = uc_emu_start(uc, insn->addr, 0, 0, 1);
    state_save(&after);
    // The way out may lead where nothing is mapped: by then the instruction is done.
    if (error && error != UC_ERR_FETCH_UNMAPPED && error != UC_ERR_FETCH_PROT)
        fail_msg("row %s: done by hand, but the processor faults (%d)",
                 tl_riscv64_row(insn->row)->name, (int)error);
    if (memcmp(&after, &by_hand, sizeof after) != 0 || !writes_same())
        case_fail(insn, &before, &after, &by_hand);
    if (simulation->kind == SIMULATE_COND && simulation->value != simulation->next)
        assert_int_equal(taken, after.general[TL_RISCV64_PC] == simulation->value);
    return true;
}

// A word of the row; where it has a base register the stack pointer as that, and mostly words that
// are aligned.
static uint32_t word_random(unsigned number)
{
    const struct row *row = tl_riscv64_row(number);
    uint32_t word = row->value | ((uint32_t)random_next() & ~row->mask);
    if (row->simulate == SIMULATE_SINGLE && row->size == 4) {
        word = (word & ~(31u << 15)) | REG_SP << 15;
        if (random_next() % 4)
            word &= row->value & 0x20 ? ~(7u << 7) : ~(7u << 20);
    }
    return word;
}

static void simulated_equals_emulated(void **state)
{
    (void)state;
    unsigned long cases = cases_wanted(), all = 0;
    unsigned rows = 0;
    for (unsigned n = 1; n < tl_riscv64_row_count(); n++)
        rows += tl_riscv64_row(n)->simulate != SIMULATE_NONE;
    assert_true(rows > 0);
    for (unsigned n = 1; n < tl_riscv64_row_count(); n++) {
        const struct simulated_row row = {&tl_arch_riscv64, tl_riscv64_row(n)->name, n, word_random,
                                          case_run};
        if (tl_riscv64_row(n)->simulate != SIMULATE_NONE)
            all += row_run(&row, cases / rows / STATES + 1);
    }
    printf("simulate-riscv64: %lu cases of %u rows\n", all, rows);
    if (all < cases / 2)
        fail_msg("%lu of %lu cases done by hand", all, cases);
}

// ---- by tables ----------------------------------------------------------------------------------

#define AT UINT64_C(0x400000)

static bool simulation_of(uint32_t word, struct tl_simulation *out)
{
    struct tl_insn insn;
    return tl_arch_riscv64.decode((const uint8_t *)&word, sizeof word, AT, &insn) == 0 &&
           insn.reloc != TL_RELOC_REFUSE && tl_arch_riscv64.simulation(&insn, out);
}

static void forms_with_a_catch(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t word;
        uint64_t pc, ra, x5; // after; ra is 0x500001 and x5 0x600003 before
    } cases[] = {
        {"jalr ra, ra", 0x000080e7, 0x500000, AT + 4, 0x600003},
        {"jalr ra, -1(ra)", 0xfff080e7, 0x500000, AT + 4, 0x600003},
        {"jalr t0, 2(t0)", 0x002282e7, 0x600004, 0x500001, AT + 4},
        {"jalr zero, t0", 0x00028067, 0x600002, 0x500001, 0x600003},
        {"ret", 0x00008067, 0x500000, 0x500001, 0x600003},
        {"c.jr ra", 0x8082, 0x500000, 0x500001, 0x600003},
        {"c.jr t0", 0x8282, 0x600002, 0x500001, 0x600003},
        {"c.jalr ra", 0x9082, 0x500000, AT + 2, 0x600003},
        {"c.jalr t0", 0x9282, 0x600002, AT + 2, 0x600003},
        {"jal ra, .", 0x000000ef, AT, AT + 4, 0x600003},
        {"jal zero, .+0xffffe", 0x7ffff06f, AT + 0xffffe, 0x500001, 0x600003},
        {"jal t0, .-0x100000", 0x800002ef, AT - 0x100000, 0x500001, AT + 4},
        {"c.j .+0x7fe", 0xaffd, AT + 0x7fe, 0x500001, 0x600003},
        {"c.j .-0x800", 0xb001, AT - 0x800, 0x500001, 0x600003},
        {"beq zero, zero, .-0x1000", 0x80000063, AT - 0x1000, 0x500001, 0x600003},
        {"bne zero, zero, .+8", 0x00001463, AT + 4, 0x500001, 0x600003},
        {"bltu zero, t0, .+0xffe", 0x7e506fe3, AT + 0xffe, 0x500001, 0x600003},
        {"bge zero, t0, .+8", 0x00505463, AT + 4, 0x500001, 0x600003},
        {"auipc t0, 0xfffff", 0xfffff297, AT + 4, 0x500001, AT - 0x1000},
        {"auipc t0, 0x80000", 0x80000297, AT + 4, 0x500001, AT - 0x80000000},
        {"nop", 0x00000013, AT + 4, 0x500001, 0x600003},
        {"addi zero, t0, 1", 0x00128013, AT + 4, 0x500001, 0x600003},
        {"c.nop", 0x0001, AT + 2, 0x500001, 0x600003},
        {"c.nop 1", 0x0005, AT + 2, 0x500001, 0x600003},
        {"c.nop -32", 0x1001, AT + 2, 0x500001, 0x600003},
        {"c.addi t0, -32", 0x1281, AT + 2, 0x500001, 0x600003 - 32},
        {"addi t0, zero, -2048", 0x80000293, AT + 4, 0x500001, UINT64_C(-2048)},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct tl_simulation simulation;
        struct tl_simulate_state it = {
            .general = {[TL_RISCV64_PC] = AT, [REG_RA] = 0x500001, [REG_T0] = 0x600003}};
        if (!simulation_of(cases[i].word, &simulation) ||
            !tl_riscv64_simulate(&simulation, &it, &own_memory))
            fail_msg("%s: not simulated", cases[i].text);
        if (it.general[TL_RISCV64_PC] != cases[i].pc || it.general[REG_RA] != cases[i].ra ||
            it.general[REG_T0] != cases[i].x5)
            fail_msg("%s: pc %llx, ra %llx, t0 %llx", cases[i].text,
                     (unsigned long long)it.general[TL_RISCV64_PC],
                     (unsigned long long)it.general[REG_RA],
                     (unsigned long long)it.general[REG_T0]);
    }
}

static void what_would_fault_is_left_to_the_processor(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t word;
        bool guarded;
        uint64_t sp, t0;
        bool done;
    } cases[] = {
        {"sd ra, 8(sp)", 0x00113423, false, MEMORY + STACK_OFF, 0, true},
        {"sd ra, 8(sp), not aligned", 0x00113423, false, MEMORY + STACK_OFF + 4, 0, false},
        {"sd ra, 8(sp), nothing there", 0x00113423, false, MEMORY - 16, 0, false},
        {"c.sdsp s0, 0(sp)", 0xe022, false, MEMORY + MEMORY_SIZE - 8, 0, true},
        {"c.sdsp s0, 0(sp), nothing there", 0xe022, false, MEMORY + MEMORY_SIZE, 0, false},
        {"c.ldsp ra, 8(sp), nothing there", 0x60a2, false, MEMORY + MEMORY_SIZE - 8, 0, false},
        {"c.jr t0", 0x8282, false, 0, 0x00ffffffffffffff, true},
        {"c.jr t0, the kernel's", 0x8282, false, 0, UINT64_C(0xffffffff80000000), false},
        {"c.jr t0, nobody's", 0x8282, false, 0, UINT64_C(1) << 56, false},
        {"jalr ra, -1(t0), behind 0", 0xfff280e7, false, 0, 0, false},
        {"c.jr t0, guarded: free of landing pads", 0x8282, true, 0, 0x400100, true},
        {"c.jr ra, guarded", 0x8082, true, 0, 0, true},
        {"c.jr t2, guarded", 0x8382, true, 0, 0, true},
        {"c.jr t1, guarded: must meet one", 0x8302, true, 0, 0, false},
        {"c.jalr a5, guarded", 0x9782, true, 0, 0, false},
        {"c.jalr a5", 0x9782, false, 0, 0, true},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct tl_simulation simulation;
        struct tl_simulate_state before = {
            .general = {[TL_RISCV64_PC] = AT, [REG_SP] = cases[i].sp, [REG_T0] = cases[i].t0}};
        struct tl_simulate_state after = before;
        writes_forget();
        if (!simulation_of(cases[i].word, &simulation))
            fail_msg("%s: has no simulator", cases[i].text);
        simulation.guarded = cases[i].guarded;
        if (tl_riscv64_simulate(&simulation, &after, &own_memory) != cases[i].done)
            fail_msg("%s: not as wanted", cases[i].text);
        if (!cases[i].done) {
            assert_memory_equal(&before, &after, sizeof before);
            assert_int_equal(writes_own(), 0);
            // What is left to the processor needs a slot.
            if (tl_arch_riscv64.simulation_alone(&simulation))
                fail_msg("%s: said to be always done", cases[i].text);
        }
    }
}

// No simulator does these: they run by themselves, or are refused, or are no instructions.
static void odd_forms_are_not_simulated(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t word;
    } refused[] = {
        {"c.mv a0, a1", 0x852e},
        {"c.add a0, a1", 0x952e},
        {"c.add ra, t0", 0x9096},
        {"c.mv ra, t0", 0x8096},
        {"c.ebreak", 0x9002},
        {"c.jr zero (reserved)", 0x8002},
        {"c.addi4spn with 0 (reserved)", 0x0000},
        {"c.addi16sp with 0 (reserved)", 0x6101},
        {"c.lui a0, 1", 0x6505},
        {"c.addiw a0, 1 (c.jal of 32 bits)", 0x2505},
        {"c.addiw with zero (reserved)", 0x2001},
        {"c.ldsp with zero (reserved)", 0x6002},
        {"c.sd a0, 0(a1)", 0xe188},
        {"c.swsp a0, 0(sp)", 0xc02a},
        {"sd ra, 0(a0)", 0x00153023},
        {"ld ra, 0(a0)", 0x00053083},
        {"lw a0, 0(sp)", 0x00012503},
        {"fsd fa0, 0(sp)", 0x00a13027},
        {"branch with a reserved code 2", 0x00b52463},
        {"branch with a reserved code 3", 0x00b53463},
        {"jalr with a reserved code", 0x000290e7},
        {"addiw a0, a0, 1", 0x0015051b},
        {"add a0, a1, a2", 0x00c58533},
        {"lui a0, 1", 0x00001537},
        {"lpad 1", 0x00001017},
        {"ecall", 0x00000073},
        {"ebreak", 0x00100073},
        {"fence", 0x0ff0000f},
        {"fence.i", 0x0000100f},
        {"pause", 0x0100000f},
        {"lr.d a0, (sp)", 0x1001352f},
        {"csrr a0, fcsr", 0x00302573},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(refused); i++) {
        struct tl_simulation simulation;
        if (simulation_of(refused[i].word, &simulation))
            fail_msg("%s: simulated", refused[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated_equals_emulated),
        cmocka_unit_test(forms_with_a_catch),
        cmocka_unit_test(what_would_fault_is_left_to_the_processor),
        cmocka_unit_test(odd_forms_are_not_simulated),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

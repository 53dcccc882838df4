// Decodes all compressed words, and every so manieth of those of 32 bits, or all: nothing crashes,
// what decode and skim say is the same and makes sense, and branches and pc-relative operands are
// those that a second reading finds, bit by bit from the manual's figures. TL_STRIDE says how many
// words to go on each time.
#include "arch/riscv64/riscv64.h"
#include "arch/riscv64/table.h"

#include "../sets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ADDR UINT64_C(0x123456789a8)
#define STRIDE 257 // a prime
#define PRINT_EACH 16
// Of a hundred words of each length.
#define KNOWN_MIN 40
#define KNOWN_MAX 43
#define COMPRESSED_KNOWN_MIN 96

struct control {
    uint8_t flow, reloc;
    uint64_t target; // 0: none
};

// A number whose bits, from the highest, are the word's bits of these numbers; the lowest is worth
// `unit`.
static uint64_t scattered(uint32_t word, const uint8_t *places, unsigned count, uint64_t unit)
{
    uint64_t number = (word >> places[0] & 1) != 0 ? UINT64_MAX : 0;
    for (unsigned i = 0; i < count; i++)
        number = number << 1 | (word >> places[i] & 1);
    return number * unit;
}

// 2.3 "Immediate Encoding Variants", and 28.4 "Control Transfer Instructions" of "C".
static const uint8_t j_places[] = {31, 19, 18, 17, 16, 15, 14, 13, 12, 20,
                                   30, 29, 28, 27, 26, 25, 24, 23, 22, 21};
static const uint8_t b_places[] = {31, 7, 30, 29, 28, 27, 26, 25, 11, 10, 9, 8};
static const uint8_t cj_places[] = {12, 8, 10, 9, 6, 7, 2, 11, 5, 4, 3};
static const uint8_t cb_places[] = {12, 6, 5, 2, 11, 10, 4, 3};

static struct control full_control(uint32_t word)
{
    uint32_t opcode = word & 0x7f, rd = word >> 7 & 31, rs1 = word >> 15 & 31,
             funct3 = word >> 12 & 7;
    if (opcode == 0x6f) {
        uint64_t target = ADDR + scattered(word, j_places, sizeof(j_places), 2);
        return rd == 0 ? (struct control){TL_FLOW_JUMP, TL_RELOC_BRANCH, target}
                       : (struct control){TL_FLOW_CALL, TL_RELOC_CALL, target};
    }
    if (opcode == 0x67 && funct3 == 0) {
        if (rd != 0)
            return (struct control){TL_FLOW_ICALL, TL_RELOC_ICALL, 0};
        return rs1 == 1 && word >> 20 == 0 ? (struct control){TL_FLOW_RET, TL_RELOC_COPY, 0}
                                           : (struct control){TL_FLOW_IJUMP, TL_RELOC_IJUMP, 0};
    }
    if (opcode == 0x63 && (funct3 & 6) != 2)
        return (struct control){TL_FLOW_COND, TL_RELOC_COND,
                                ADDR + scattered(word, b_places, sizeof(b_places), 2)};
    if (opcode == 0x17 && rd != 0)
        return (struct control){TL_FLOW_NEXT, TL_RELOC_PCREL,
                                ADDR + (uint64_t)(int64_t)(int32_t)(word & ~0xfffu)};
    return (struct control){TL_FLOW_NEXT, TL_RELOC_COPY, 0};
}

static struct control compressed_control(uint32_t word)
{
    uint32_t rs1 = word >> 7 & 31;
    if ((word & 0xe003) == 0xa001)
        return (struct control){TL_FLOW_JUMP, TL_RELOC_BRANCH,
                                ADDR + scattered(word, cj_places, sizeof(cj_places), 2)};
    if ((word & 0xc003) == 0xc001)
        return (struct control){TL_FLOW_COND, TL_RELOC_COND,
                                ADDR + scattered(word, cb_places, sizeof(cb_places), 2)};
    if ((word & 0xf07f) == 0x8002 && rs1 != 0)
        return rs1 == 1 ? (struct control){TL_FLOW_RET, TL_RELOC_COPY, 0}
                        : (struct control){TL_FLOW_IJUMP, TL_RELOC_IJUMP, 0};
    if ((word & 0xf07f) == 0x9002 && rs1 != 0)
        return (struct control){TL_FLOW_ICALL, TL_RELOC_ICALL, 0};
    return (struct control){TL_FLOW_NEXT, TL_RELOC_COPY, 0};
}

// What is not a branch goes on or is refused; what is one is none else.
static bool control_holds(const struct tl_insn *insn, const struct control *control)
{
    bool plain = control->flow == TL_FLOW_NEXT && control->reloc == TL_RELOC_COPY;
    if (plain && insn->reloc == TL_RELOC_REFUSE)
        return insn->target == 0 && (insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_STOP);
    return insn->flow == control->flow && insn->reloc == control->reloc &&
           insn->target == control->target;
}

static unsigned size_of(uint32_t word)
{
    return (word & 3) != 3 || (word & 0x1f) == 0x1f ? 2 : 4;
}

static bool word_holds(uint32_t word, struct tl_insn *insn, bool prints)
{
    uint8_t bytes[] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
                       (uint8_t)(word >> 24)};
    struct tl_insn skimmed;
    char text[160] = "";
    unsigned size = size_of(word);
    if (tl_riscv64_decode(bytes, size, ADDR, insn) != 0 ||
        tl_riscv64_skim(bytes, size, ADDR, &skimmed) != 0)
        return false;
    if (prints) {
        tl_riscv64_print(insn, text, sizeof(text));
        if (text[0] == '\0' || strchr(text, '?') != NULL || !sets_are_whole(&tl_arch_riscv64, insn))
            return false;
    }
    struct control control = size == 4 ? full_control(word)
                             : (word & 0x1f) == 0x1f
                                 ? (struct control){TL_FLOW_NEXT, TL_RELOC_COPY, 0}
                                 : compressed_control(word);
    bool same = insn->flow == skimmed.flow && insn->reloc == skimmed.reloc &&
                insn->target == skimmed.target && insn->row == skimmed.row && insn->size == size &&
                skimmed.size == size;
    bool refused = insn->reloc == TL_RELOC_REFUSE;
    bool sense = refused == (insn->refusal != TL_REFUSE_NONE) &&
                 (insn->row != ROW_UNKNOWN || refused) && (!refused || insn->written == 0) &&
                 ((insn->read | insn->written) & ~(tl_regset)0xfffffffe) == 0;
    return same && sense && control_holds(insn, &control);
}

static void fail_word(uint32_t word, const struct tl_insn *insn)
{
    fail_msg("%08x: row %s, size %u, flow %u, reloc %u, target %llx", (unsigned)word,
             tl_riscv64_row(insn->row)->name, insn->size, insn->flow, insn->reloc,
             (unsigned long long)insn->target);
}

static void words_of_all_kinds_decode(void **state)
{
    (void)state;
    const char *given = getenv("TL_STRIDE");
    uint64_t stride = given != NULL ? strtoull(given, NULL, 0) : STRIDE, count = 0, full = 0,
             known = 0;
    assert_true(stride > 0);
    for (uint64_t upper = 0; upper <= UINT32_MAX >> 2; upper += stride) {
        uint32_t word = (uint32_t)upper << 2 | 3; // the others are compressed
        struct tl_insn insn;
        if (!word_holds(word, &insn, count % PRINT_EACH == 0))
            fail_word(word, &insn);
        count++;
        full += insn.size == 4;
        known += insn.size == 4 && insn.row != ROW_UNKNOWN;
    }
    print_message("%llu words, %llu of them of 32 bits, %llu of these known\n",
                  (unsigned long long)count, (unsigned long long)full, (unsigned long long)known);
    assert_in_range(known * 100 / full, KNOWN_MIN, KNOWN_MAX);
}

static void all_compressed_words_decode(void **state)
{
    (void)state;
    unsigned compressed = 0, known = 0;
    for (uint32_t word = 0; word <= UINT16_MAX; word++) {
        struct tl_insn insn;
        if (size_of(word) != 2)
            continue;
        if (!word_holds(word, &insn, true))
            fail_word(word, &insn);
        if ((word & 3) == 3) {
            assert_int_equal(insn.row, ROW_UNKNOWN); // 48 bits and more
            continue;
        }
        compressed++;
        known += insn.row != ROW_UNKNOWN;
    }
    print_message("%u compressed words, %u of them known\n", compressed, known);
    assert_int_equal(compressed, 0xc000);
    assert_in_range(known * 100 / compressed, COMPRESSED_KNOWN_MIN, 100);
}

static struct tl_insn decoded(uint32_t word)
{
    struct tl_insn insn;
    assert_int_equal(tl_riscv64_decode((const uint8_t *)&word, sizeof(word), ADDR, &insn), 0);
    return insn;
}

// What other profiles than RV64GC's make of these bits.
static void bits_of_other_profiles_are_ours(void **state)
{
    (void)state;
    for (uint32_t word = 0; word <= UINT16_MAX; word++) {
        if ((word & 0xe003) == 0x2001) { // RV32's c.jal
            struct tl_insn insn = decoded(word);
            uint32_t rd = word >> 7 & 31;
            assert_string_equal(tl_riscv64_row(insn.row)->name, rd != 0 ? "c-addiw" : "unknown");
            assert_int_equal(insn.target, 0);
            if (rd != 0)
                assert_int_equal(insn.written, TL_REGSET(rd));
        }
        if ((word & 0xe003) == 0xa002) // Zcmp's cm.push ..., Zcmt's cm.jt ...
            assert_string_equal(tl_riscv64_row(decoded(word).row)->name, "c-fsdsp");
        if ((word & 0xe003) == 0x6000) // RV32's c.flw
            assert_string_equal(tl_riscv64_row(decoded(word).row)->name, "c-ld");
    }
}

static void what_must_be_refused_is(void **state)
{
    (void)state;
    static const struct {
        uint32_t word;
        uint8_t refusal, flow;
        uint16_t flags;
    } cases[] = {
        {0x00000073, TL_REFUSE_SYSCALL, TL_FLOW_NEXT, TL_INSN_SYSCALL},          // ecall
        {0x00100073, TL_REFUSE_TRAP, TL_FLOW_STOP, 0},                           // ebreak
        {0x00009002, TL_REFUSE_TRAP, TL_FLOW_STOP, 0},                           // c.ebreak
        {0xc0001073, TL_REFUSE_TRAP, TL_FLOW_STOP, 0},                           // unimp
        {0x00000000, TL_REFUSE_TRAP, TL_FLOW_STOP, 0},                           // c.unimp
        {0x0000100f, TL_REFUSE_SYSTEM_WRITE, TL_FLOW_NEXT, 0},                   // fence.i
        {0x01151073, TL_REFUSE_SYSTEM_WRITE, TL_FLOW_NEXT, 0},                   // csrw ssp, a0
        {0x30051073, TL_REFUSE_PRIVILEGED, TL_FLOW_NEXT, 0},                     // csrw mstatus, a0
        {0x10200073, TL_REFUSE_PRIVILEGED, TL_FLOW_NEXT, 0},                     // sret
        {0x1005a52f, TL_REFUSE_EXCLUSIVE, TL_FLOW_NEXT, TL_INSN_EXCLUSIVE_LOAD}, // lr.w
        {0x18c5b52f, TL_REFUSE_EXCLUSIVE, TL_FLOW_NEXT, TL_INSN_EXCLUSIVE_STORE}, // sc.d
        {0x12345017, TL_REFUSE_LANDING, TL_FLOW_NEXT, TL_INSN_LANDING},           // lpad
        {0xce104073, TL_REFUSE_RETURN_GUARD, TL_FLOW_NEXT, TL_INSN_SIGNS_LINK},   // sspush ra
        {0x00006081, TL_REFUSE_RETURN_GUARD, TL_FLOW_NEXT, TL_INSN_SIGNS_LINK},   // c.sspush ra
        {0x00006281, TL_REFUSE_RETURN_GUARD, TL_FLOW_NEXT, TL_INSN_SIGNS_LINK},   // c.sspopchk t0
        {0x01f01013, TL_REFUSE_EMULATE, TL_FLOW_NEXT, 0},      // slli zero, zero, 0x1f
        {0x40705013, TL_REFUSE_EMULATE, TL_FLOW_NEXT, 0},      // srai zero, zero, 7
        {0x00b52063, TL_REFUSE_UNKNOWN_INSN, TL_FLOW_STOP, 0}, // a branch with a reserved code
        {0x0000000b, TL_REFUSE_UNKNOWN_INSN, TL_FLOW_STOP, 0}, // custom-0
        {0x0000001f, TL_REFUSE_UNKNOWN_INSN, TL_FLOW_STOP, 0}, // 48 bits
        {0x0000003f, TL_REFUSE_UNKNOWN_INSN, TL_FLOW_STOP, 0}, // 64 bits
        {0xffffffff, TL_REFUSE_UNKNOWN_INSN, TL_FLOW_STOP, 0}, // longer
        {0x00008002, TL_REFUSE_UNKNOWN_INSN, TL_FLOW_STOP, 0}, // c.jr zero
    };
    const uint16_t asked = TL_INSN_SYSCALL | TL_INSN_EXCLUSIVE_LOAD | TL_INSN_EXCLUSIVE_STORE |
                           TL_INSN_LANDING | TL_INSN_SIGNS_LINK;
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct tl_insn insn = decoded(cases[i].word);
        print_message("%08x is row %s\n", (unsigned)cases[i].word, tl_riscv64_row(insn.row)->name);
        assert_int_equal(insn.reloc, TL_RELOC_REFUSE);
        assert_int_equal(insn.refusal, cases[i].refusal);
        assert_int_equal(insn.flow, cases[i].flow);
        assert_int_equal(insn.flags & asked, cases[i].flags);
    }
}

static void only_what_is_at_sp_faults_by_the_stack(void **state)
{
    (void)state;
    static const struct {
        uint32_t word;
        bool stack;
    } cases[] = {
        {0x00813503, true},  // ld a0, 8(sp)
        {0x0005b103, false}, // ld sp, 0(a1)
        {0x00113423, true},  // sd ra, 8(sp)
        {0x0025b423, false}, // sd sp, 8(a1)
        {0x0000e406, true},  // c.sdsp ra, 8(sp)
        {0x00006588, false}, // c.ld a0, 8(a1)
        {0x00012507, true},  // flw fa0, 0(sp)
        {0x0025b52f, false}, // amoadd.d a0, sp, (a1)
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct tl_insn insn = decoded(cases[i].word);
        assert_true((insn.flags & TL_INSN_MAY_FAULT) != 0);
        assert_int_equal((insn.flags & TL_INSN_FAULT_STACK) != 0, cases[i].stack);
    }
}

static void a_cut_instruction_is_none(void **state)
{
    (void)state;
    static const uint8_t nop[] = {0x13, 0, 0, 0}, c_nop[] = {1, 0};
    struct tl_insn insn = {.size = 77};
    for (size_t size = 0; size < sizeof(nop); size++) {
        assert_int_equal(tl_riscv64_decode(nop, size, ADDR, &insn), TL_E_FORMAT);
        assert_int_equal(tl_riscv64_skim(nop, size, ADDR, &insn), TL_E_FORMAT);
    }
    for (size_t size = 0; size < sizeof(c_nop); size++) {
        assert_int_equal(tl_riscv64_decode(c_nop, size, ADDR, &insn), TL_E_FORMAT);
        assert_int_equal(tl_riscv64_skim(c_nop, size, ADDR, &insn), TL_E_FORMAT);
    }
    assert_int_equal(insn.size, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_all_kinds_decode),
        cmocka_unit_test(all_compressed_words_decode),
        cmocka_unit_test(bits_of_other_profiles_are_ours),
        cmocka_unit_test(what_must_be_refused_is),
        cmocka_unit_test(only_what_is_at_sp_faults_by_the_stack),
        cmocka_unit_test(a_cut_instruction_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

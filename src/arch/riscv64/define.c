// What one riscv64 instruction does to one register, for the search for jump tables, and addresses in pieces.
// Follows nothing from instruction to instruction. Keeps: what it can't describe is TL_DEF_OTHER, never
// TL_DEF_POINTER.
//
// Encodings: RISC-V Instruction Set Manual, Volume I: "RV32/64G Instruction Set Listings", "RVC Instruction Set
// Listings", "Zba: address generation".
#include "arch/riscv64/riscv64.h"

#define REG_RA 1u
#define REG_SP 2u
#define REG_FP 8u
#define REG_RESULT 10u // a0

enum { OP_LOAD = 0x03, OP_IMM = 0x13, OP_AUIPC = 0x17, OP_IMM_32 = 0x1b, OP_REG = 0x33, OP_LUI = 0x37,
       OP_REG_32 = 0x3b, OP_JALR = 0x67 };

static uint32_t bits(uint32_t word, unsigned low, unsigned count)
{
    return word >> low & ((1u << count) - 1);
}

static int64_t extended(uint32_t value, unsigned width)
{
    return (int64_t)((uint64_t)value << (64 - width)) >> (64 - width);
}

static uint8_t rd_of(uint32_t word)
{
    return (uint8_t)bits(word, 7, 5);
}

static uint8_t rs1_of(uint32_t word)
{
    return (uint8_t)bits(word, 15, 5);
}

static uint8_t rs2_of(uint32_t word)
{
    return (uint8_t)bits(word, 20, 5);
}

static int64_t imm12_of(uint32_t word)
{
    return extended(bits(word, 20, 12), 12);
}

// Quadrant and funct3 of one of 16 bits.
static unsigned short_form(uint32_t word)
{
    return bits(word, 13, 3) << 2 | bits(word, 0, 2);
}
#define SHORT(quadrant, funct3) ((funct3) << 2 | (quadrant))

static bool short_addition(uint32_t word, struct tl_riscv64_addition *out)
{
    int64_t imm6 = extended(bits(word, 12, 1) << 5 | bits(word, 2, 5), 6);
    out->to = out->from = rd_of(word);
    out->plus = imm6;
    switch (short_form(word)) {
    case SHORT(1, 0): // c.addi
        return true;
    case SHORT(1, 2): // c.li
        out->from = 0;
        return true;
    case SHORT(0, 0): // c.addi4spn
        out->to = (uint8_t)(8 + bits(word, 2, 3));
        out->from = REG_SP;
        out->plus = bits(word, 11, 2) << 4 | bits(word, 7, 4) << 6 | bits(word, 6, 1) << 2 | bits(word, 5, 1) << 3;
        return out->plus != 0;
    case SHORT(1, 3): // c.addi16sp, c.lui
        if (out->to == REG_SP) {
            out->plus = extended(bits(word, 12, 1) << 9 | bits(word, 6, 1) << 4 | bits(word, 5, 1) << 6 |
                                     bits(word, 3, 2) << 7 | bits(word, 2, 1) << 5,
                                 10);
        } else {
            out->from = 0;
            out->plus = imm6 * 4096;
        }
        return out->plus != 0;
    case SHORT(2, 4): // c.mv; with no second register c.jr
        out->from = (uint8_t)bits(word, 2, 5);
        out->plus = 0;
        return bits(word, 12, 1) == 0 && out->from != 0;
    default:
        return false;
    }
}

bool tl_riscv64_addition(const struct tl_insn *insn, struct tl_riscv64_addition *out)
{
    uint32_t word = tl_riscv64_word(insn);
    if (insn->size == 2)
        return short_addition(word, out);
    *out = (struct tl_riscv64_addition){rd_of(word), rs1_of(word), imm12_of(word)};
    switch (bits(word, 0, 7)) {
    case OP_IMM:
        return bits(word, 12, 3) == 0;
    case OP_LUI:
        out->from = 0;
        out->plus = (int32_t)(word & 0xfffff000u);
        return true;
    case OP_AUIPC:
        out->from = 0;
        out->plus = (int64_t)insn->target;
        return true;
    case OP_REG: // add, one operand being zero
        out->plus = 0;
        out->from = rs1_of(word) == 0 ? rs2_of(word) : rs1_of(word);
        return (word & 0xfe007000) == 0 && (rs1_of(word) == 0 || rs2_of(word) == 0);
    default:
        return false;
    }
}

// A general register loaded: how many bytes, and how they are widened. false: no such load.
static bool load_of(const struct tl_insn *insn, struct tl_definition *out)
{
    uint32_t word = tl_riscv64_word(insn), funct3 = bits(word, 12, 3);
    if (insn->size == 4) {
        if (bits(word, 0, 7) != OP_LOAD || funct3 == 7)
            return false;
        out->a = rs1_of(word);
        out->value = (uint64_t)imm12_of(word);
        out->size = (uint8_t)(1u << (funct3 & 3));
        out->is_signed = funct3 < 4;
        return true;
    }
    out->is_signed = true;
    out->a = (uint8_t)(8 + bits(word, 7, 3));
    switch (short_form(word)) {
    case SHORT(0, 2): // c.lw
        out->size = 4;
        out->value = bits(word, 10, 3) << 3 | bits(word, 6, 1) << 2 | bits(word, 5, 1) << 6;
        return true;
    case SHORT(0, 3): // c.ld
        out->size = 8;
        out->value = bits(word, 10, 3) << 3 | bits(word, 5, 2) << 6;
        return true;
    case SHORT(2, 2): // c.lwsp
        out->size = 4;
        out->a = REG_SP;
        out->value = bits(word, 12, 1) << 5 | bits(word, 4, 3) << 2 | bits(word, 2, 2) << 6;
        return true;
    case SHORT(2, 3): // c.ldsp
        out->size = 8;
        out->a = REG_SP;
        out->value = bits(word, 12, 1) << 5 | bits(word, 5, 2) << 3 | bits(word, 2, 3) << 6;
        return true;
    default:
        return false;
    }
}

static void define_load(struct tl_definition *out)
{
    if (out->size != 8) {
        out->kind = TL_DEF_OFFSET;
        return;
    }
    out->kind = out->a == REG_SP || out->a == REG_FP ? TL_DEF_SPILL : TL_DEF_POINTER;
    out->size = 0;
    out->is_signed = false;
}

// Sums of two registers: add, add.uw, sh1add to sh3add and their .uw forms. false: none.
static bool define_sum(const struct tl_insn *insn, struct tl_definition *out)
{
    uint32_t word = tl_riscv64_word(insn);
    if (insn->size == 2) {
        out->a = rd_of(word); // c.add; with no second register c.jalr or c.ebreak
        out->b = (uint8_t)bits(word, 2, 5);
        out->kind = TL_DEF_SUM;
        return short_form(word) == SHORT(2, 4) && bits(word, 12, 1) == 1 && out->b != 0 && out->a != 0;
    }
    bool narrow = bits(word, 0, 7) == OP_REG_32;
    unsigned funct7 = bits(word, 25, 7), funct3 = bits(word, 12, 3);
    if (!narrow && bits(word, 0, 7) != OP_REG)
        return false;
    bool plain = !narrow && funct7 == 0 && funct3 == 0;
    bool zero_extended = narrow && funct7 == 4 && funct3 == 0;
    bool shifted = funct7 == 0x10 && (funct3 == 2 || funct3 == 4 || funct3 == 6);
    if ((!plain && !zero_extended && !shifted) || rs1_of(word) == 0 || rs2_of(word) == 0)
        return false;
    out->kind = TL_DEF_SUM;
    out->a = rs2_of(word);
    out->b = rs1_of(word);
    out->shift = shifted ? (uint8_t)(funct3 / 2) : 0;
    out->size = narrow ? 4 : 0;
    return true;
}

// sext.w, which the index of a table may be: addiw with 0.
static bool is_widening(const struct tl_insn *insn, uint8_t *from)
{
    uint32_t word = tl_riscv64_word(insn);
    if (insn->size == 2) {
        *from = rd_of(word);
        return short_form(word) == SHORT(1, 1) && (word & 0x107c) == 0 && *from != 0; // c.addiw
    }
    *from = rs1_of(word);
    return bits(word, 0, 7) == OP_IMM_32 && bits(word, 12, 3) == 0 && imm12_of(word) == 0;
}

// insn is known to write reg.
static void define_written(const struct tl_insn *insn, struct tl_definition *out)
{
    const struct tl_definition none = *out;
    struct tl_riscv64_addition sum;
    if (tl_riscv64_addition(insn, &sum)) {
        out->kind = sum.from == 0 ? TL_DEF_ADDR : sum.plus == 0 ? TL_DEF_COPY : TL_DEF_SUM;
        out->a = sum.from == 0 ? TL_DEF_REG_NONE : sum.from;
        out->value = (uint64_t)sum.plus;
        return;
    }
    if (load_of(insn, out)) {
        define_load(out);
        return;
    }
    *out = none;
    if (define_sum(insn, out))
        return;
    *out = none;
    if (is_widening(insn, &out->a))
        out->kind = TL_DEF_COPY;
    else
        *out = none;
}

// Where an indirect jump goes: a register and a constant.
static void define_goal(const struct tl_insn *insn, struct tl_definition *out)
{
    uint32_t word = tl_riscv64_word(insn);
    if (insn->flow != TL_FLOW_IJUMP)
        return;
    bool full = insn->size == 4;
    if (full && bits(word, 0, 7) != OP_JALR)
        return;
    out->a = full ? rs1_of(word) : rd_of(word);
    out->value = full ? (uint64_t)imm12_of(word) : 0;
    out->kind = out->value != 0 ? TL_DEF_SUM : TL_DEF_COPY;
}

void tl_riscv64_define(const struct tl_insn *insn, unsigned reg, struct tl_definition *out)
{
    struct tl_insn whole;
    *out = (struct tl_definition){
        .kind = TL_DEF_OTHER, .a = TL_DEF_REG_NONE, .b = TL_DEF_REG_NONE, .index = TL_DEF_REG_NONE};
    if (reg == TL_DEF_REG_NONE) {
        define_goal(insn, out);
        return;
    }
    if (tl_riscv64_decode(insn->bytes, insn->size, insn->addr, &whole) != 0)
        return;
    bool written = (whole.written >> reg & 1) != 0;
    if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL) {
        // A returned value; what other registers hold may be from before the call.
        out->kind = reg == REG_RESULT     ? TL_DEF_POINTER
                    : written || reg == REG_RA ? TL_DEF_OTHER
                                               : TL_DEF_KEEP;
        return;
    }
    // Nothing is said of the registers of what is refused.
    bool refused = whole.reloc == TL_RELOC_REFUSE;
    if (written)
        define_written(insn, out);
    else if (!refused || (whole.flags & TL_INSN_SYSCALL) == 0)
        out->kind = refused && (tl_riscv64_word(insn) >> 7 & 31) == reg ? TL_DEF_OTHER : TL_DEF_KEEP;
}

// auipc and lui have the upper part, an addition of 12 bits the rest.
bool tl_riscv64_address(const struct tl_insn *insn, tl_addr *part, tl_addr *out)
{
    uint32_t word = tl_riscv64_word(insn);
    struct tl_riscv64_addition sum;
    if (!tl_riscv64_addition(insn, &sum))
        return false;
    if (insn->size == 4 && (bits(word, 0, 7) == OP_AUIPC || bits(word, 0, 7) == OP_LUI)) {
        part[sum.to] = sum.to != 0 ? (tl_addr)sum.plus : 0;
        return false;
    }
    if (sum.from == 0 || part[sum.from] == 0 || sum.from == REG_SP)
        return false;
    *out = part[sum.from] + (tl_addr)sum.plus;
    return true;
}

// andi and c.andi with a constant that is not negative.
bool tl_riscv64_below(const struct tl_insn *insn, unsigned *reg, uint64_t *count)
{
    uint32_t word = tl_riscv64_word(insn);
    if (insn->size == 4 && (word & 0x8000707f) == 0x7013) {
        *reg = bits(word, 7, 5);
        *count = (uint64_t)bits(word, 20, 12) + 1;
    } else if (insn->size == 2 && (word & 0xfc03) == 0x8801) {
        *reg = 8 + bits(word, 7, 3);
        *count = (uint64_t)bits(word, 2, 5) + 1;
    } else {
        return false;
    }
    return *reg != 0;
}

// ---- the stack ------------------------------------------------------------------------------------------

void tl_riscv64_stack(const struct tl_insn *insn, struct tl_stack_step *out)
{
    struct tl_insn whole;
    struct tl_riscv64_addition sum;
    uint32_t word = tl_riscv64_word(insn);
    *out = (struct tl_stack_step){
        .sp_from = REG_SP, .fp_from = REG_FP, .copy_reg = TL_DEF_REG_NONE, .moved_by = TL_DEF_REG_NONE};
    if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL)
        return; // the frame pointer is the caller's, as is the stack
    if (tl_riscv64_decode(insn->bytes, insn->size, insn->addr, &whole) != 0)
        return;
    if ((whole.written & TL_REGSET(REG_SP)) != 0)
        out->sp_from = TL_DEF_REG_NONE;
    if ((whole.written & TL_REGSET(REG_FP)) != 0)
        out->fp_from = TL_DEF_REG_NONE;
    if (tl_riscv64_addition(insn, &sum) && sum.from != 0) {
        if (sum.to == REG_SP) {
            out->sp_from = sum.from;
            out->sp_plus = (int32_t)sum.plus;
        } else if (sum.to == REG_FP) {
            out->fp_from = sum.from;
            out->fp_plus = (int32_t)sum.plus;
        } else if (sum.from == REG_SP && sum.to != 0) {
            out->copy_reg = sum.to;
            out->copy_plus = (int32_t)sum.plus;
        }
        return;
    }
    bool full = insn->size == 4 && (word & 0xbe00707f) == OP_REG && rd_of(word) == REG_SP &&
                rs1_of(word) == REG_SP; // add, sub
    if (full) {
        out->moved_by = rs2_of(word);
        out->moved_sign = bits(word, 30, 1) != 0 ? -1 : 1;
    } else if (insn->size == 2 && (word & 0xff83) == 0x9102) { // c.add sp, reg
        out->moved_by = (uint8_t)bits(word, 2, 5);
        out->moved_sign = 1;
    }
}

// One decoded instruction -> what its simulator needs at each hit.
//
// Runs in the controller. Which simulator an instruction has says the table; this file reads
// operands, and refuses forms that the simulators don't do exactly: memory that is not the stack's,
// words of another instruction than the table's row promises. Volume I of the RISC-V ISA Manual
// (unprivileged): "RV32/64G Instruction Set Listings", "RVC Instruction Set Listings".
#include "arch/riscv64/riscv64.h"
#include "arch/riscv64/simulate.h"
#include "arch/riscv64/table.h"

enum { REG_RA = 1, REG_SP = 2 };
enum { OP_LOAD = 0x03, OP_IMM = 0x13, OP_STORE = 0x23, OP_BRANCH = 0x63, OP_JALR = 0x67 };

static uint32_t field(uint32_t word, unsigned at, unsigned width)
{
    return word >> at & ((1u << width) - 1u);
}

static uint64_t widened(uint32_t value, unsigned width)
{
    uint32_t sign = 1u << (width - 1);
    return (uint64_t)((int64_t)(value ^ sign) - (int64_t)sign);
}

// Opcode and funct3 of a word of 32 bits.
static bool is_word(const struct tl_insn *insn, uint32_t opcode, uint32_t funct3)
{
    uint32_t word = tl_riscv64_word(insn);
    return insn->size == 4 && field(word, 0, 7) == opcode && field(word, 12, 3) == funct3;
}

// Quadrant and funct3 of one of 16 bits.
static bool is_short(const struct tl_insn *insn, uint32_t quadrant, uint32_t funct3)
{
    uint32_t word = tl_riscv64_word(insn);
    return insn->size == 2 && field(word, 0, 2) == quadrant && field(word, 13, 3) == funct3;
}

static uint8_t reg_at(uint32_t word, unsigned at)
{
    return (uint8_t)field(word, at, 5);
}

static uint8_t short_reg_at(uint32_t word, unsigned at)
{
    return (uint8_t)(8 + field(word, at, 3));
}

static bool single_operands(const struct tl_insn *insn, uint32_t word, struct tl_simulation *out)
{
    out->base = REG_SP;
    if (is_word(insn, OP_LOAD, 3)) {
        out->reg = reg_at(word, 7);
        out->operand = 1;
        out->value = widened(field(word, 20, 12), 12);
        return reg_at(word, 15) == REG_SP;
    }
    if (is_word(insn, OP_STORE, 3)) {
        out->reg = reg_at(word, 20);
        out->value = widened(field(word, 25, 7) << 5 | field(word, 7, 5), 12);
        return reg_at(word, 15) == REG_SP;
    }
    if (is_short(insn, 2, 3)) { // c.ldsp
        out->reg = reg_at(word, 7);
        out->operand = 1;
        out->value = field(word, 12, 1) << 5 | field(word, 5, 2) << 3 | field(word, 2, 3) << 6;
        return out->reg != 0;
    }
    out->reg = reg_at(word, 2); // c.sdsp
    out->value = field(word, 10, 3) << 3 | field(word, 7, 3) << 6;
    return is_short(insn, 2, 7);
}

static bool cond_operands(const struct tl_insn *insn, uint32_t word, struct tl_simulation *out)
{
    out->value = insn->target;
    if (insn->size == 2) { // c.beqz, c.bnez
        out->reg = short_reg_at(word, 7);
        out->condition = (uint8_t)field(word, 13, 1);
        return is_short(insn, 1, 6) || is_short(insn, 1, 7);
    }
    out->reg = reg_at(word, 15);
    out->reg2 = reg_at(word, 20);
    out->condition = (uint8_t)field(word, 12, 3);
    return field(word, 0, 7) == OP_BRANCH && (out->condition & 6u) != 2;
}

static bool indirect_operands(const struct tl_insn *insn, uint32_t word, struct tl_simulation *out)
{
    if (insn->size == 2) { // c.jr, c.jalr; with a second register c.mv, c.add
        out->base = reg_at(word, 7);
        out->reg = field(word, 12, 1) ? REG_RA : 0;
        return is_short(insn, 2, 4) && out->base != 0 && reg_at(word, 2) == 0;
    }
    out->base = reg_at(word, 15);
    out->reg = reg_at(word, 7);
    out->value = widened(field(word, 20, 12), 12);
    return is_word(insn, OP_JALR, 0);
}

// Of lui and moves the table does not say that they are simulated so.
static bool add_operands(const struct tl_insn *insn, uint32_t word, struct tl_simulation *out)
{
    struct tl_riscv64_addition sum;
    bool is_addi = is_word(insn, OP_IMM, 0) || is_short(insn, 0, 0) || is_short(insn, 1, 0) ||
                   is_short(insn, 1, 2) || (is_short(insn, 1, 3) && reg_at(word, 7) == REG_SP);
    if (!is_addi || !tl_riscv64_addition(insn, &sum))
        return false;
    out->reg = sum.to;
    out->base = sum.from;
    out->value = (uint64_t)sum.plus;
    return true;
}

static bool operands_fill(const struct tl_insn *insn, struct tl_simulation *out)
{
    uint32_t word = tl_riscv64_word(insn);
    switch ((enum simulator)out->kind) {
    case SIMULATE_NOP:
        return true;
    case SIMULATE_SINGLE:
        return single_operands(insn, word, out);
    case SIMULATE_BRANCH:
    case SIMULATE_CALL:
        out->reg = insn->size == 4 ? reg_at(word, 7) : 0;
        out->value = insn->target;
        return true;
    case SIMULATE_COND:
        return cond_operands(insn, word, out);
    case SIMULATE_IBRANCH:
    case SIMULATE_ICALL:
    case SIMULATE_RET:
        return indirect_operands(insn, word, out);
    case SIMULATE_ADR:
        out->reg = reg_at(word, 7);
        out->value = insn->addr + (uint64_t)(int64_t)(int32_t)(word & 0xfffff000u);
        return insn->size == 4;
    case SIMULATE_ADD:
        return add_operands(insn, word, out);
    case SIMULATE_NONE:
        break;
    }
    return false;
}

bool tl_riscv64_simulation(const struct tl_insn *insn, struct tl_simulation *out)
{
    struct tl_simulation made = {.kind = tl_riscv64_row(insn->row)->simulate,
                                 .next = insn->addr + insn->size};
    if (!operands_fill(insn, &made))
        return false;
    *out = made;
    return true;
}

// What needs nothing but registers is always done. Indirect branches may lead where only the
// processor should go.
bool tl_riscv64_simulation_alone(const struct tl_simulation *insn)
{
    switch ((enum simulator)insn->kind) {
    case SIMULATE_NOP:
    case SIMULATE_ADR:
    case SIMULATE_ADD:
        return true;
    case SIMULATE_BRANCH:
    case SIMULATE_CALL:
    case SIMULATE_COND:
        return insn->value >> 56 == 0;
    default:
        return false;
    }
}

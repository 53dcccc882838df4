// One decoded instruction -> what its simulator needs at each hit.
//
// Runs in the controller. Which simulator an instruction has says the table; this file reads
// operands, and refuses forms that the simulators don't do exactly: memory that is not the stack's,
// registers that are loaded twice, branches that authenticate.
#include "arch/arm64/arm64.h"
#include "arch/arm64/simulate.h"
#include "arch/arm64/table.h"

enum { REG_SP = 31, REG_ZERO = 31 };

static uint32_t field(uint32_t word, unsigned at, unsigned width)
{
    return word >> at & ((1u << width) - 1u);
}

static int64_t signed_field(uint32_t word, unsigned at, unsigned width)
{
    uint32_t value = field(word, at, width), sign = 1u << (width - 1);
    return (int64_t)(value ^ sign) - (int64_t)sign;
}

// C4.1.94, "Load/store register pair": opc 30-31, V 26, index form 23-24, L 22.
static bool pair_operands(uint32_t word, struct tl_simulation *out)
{
    static const uint8_t general_size[4] = {4, 4, 8, 0}, vector_size[4] = {4, 8, 16, 0};
    unsigned opc = field(word, 30, 2);
    bool vector = field(word, 26, 1), load = field(word, 22, 1);
    out->size = vector ? vector_size[opc] : general_size[opc];
    out->reg = (uint8_t)field(word, 0, 5);
    out->reg2 = (uint8_t)field(word, 10, 5);
    out->operand = (load ? TRANSFER_LOAD : 0) | (vector ? TRANSFER_VECTOR : 0);
    if (!vector && opc == 1) { // ldpsw; with L = 0 it is stgp
        if (!load)
            return false;
        out->operand |= TRANSFER_SIGNED;
    }
    out->index = field(word, 23, 1) ? (field(word, 24, 1) ? INDEX_PRE : INDEX_POST) : INDEX_NONE;
    out->value = (uint64_t)(signed_field(word, 15, 7) * out->size);
    bool right_below = out->index == INDEX_PRE && (int64_t)out->value == -16;
    if (out->operand == 0 && out->size == 8 && right_below && out->reg != REG_ZERO &&
        out->reg2 != REG_ZERO)
        out->operand = TRANSFER_PUSH;
    // Loading one register twice has no result to rely on.
    return out->size != 0 && field(word, 5, 5) == REG_SP && !(load && out->reg == out->reg2);
}

// C4.1.94, "Load/store register": size 30-31, V 26, opc 22-23; 24 = 1: a scaled offset in 10-21;
// else one in 12-20, and the form in 10-11.
static bool single_operands(uint32_t word, struct tl_simulation *out)
{
    static const uint8_t index_of[4] = {INDEX_NONE, INDEX_POST, UINT8_MAX, INDEX_PRE};
    unsigned size = field(word, 30, 2), opc = field(word, 22, 2);
    bool vector = field(word, 26, 1), scaled = field(word, 24, 1);
    out->operand = (opc ? TRANSFER_LOAD : 0) | (vector ? TRANSFER_VECTOR : 0);
    out->size = (uint8_t)(1u << size);
    if (vector && size == 0 && opc >= 2) { // q
        out->size = 16;
        out->operand = (uint8_t)(TRANSFER_VECTOR | (opc == 3 ? TRANSFER_LOAD : 0));
    } else if (!vector && size == 2 && opc == 2) { // ldrsw
        out->operand |= TRANSFER_SIGNED;
    } else if (size < 2 || opc > 1) {
        return false;
    }
    out->reg = (uint8_t)field(word, 0, 5);
    out->index = scaled ? INDEX_NONE : index_of[field(word, 10, 2)];
    out->value =
        scaled ? (uint64_t)field(word, 10, 12) * out->size : (uint64_t)signed_field(word, 12, 9);
    bool plain = scaled || !field(word, 21, 1); // else a register offset, or an atomic
    return plain && out->index != UINT8_MAX && field(word, 5, 5) == REG_SP;
}

// C4.1.94, "Load register (literal)": opc 30-31, V 26.
static bool literal_operands(const struct tl_insn *insn, uint32_t word, struct tl_simulation *out)
{
    static const uint8_t general_size[4] = {4, 8, 4, 0}, vector_size[4] = {4, 8, 16, 0};
    unsigned opc = field(word, 30, 2);
    bool vector = field(word, 26, 1);
    out->size = vector ? vector_size[opc] : general_size[opc];
    out->operand = TRANSFER_LOAD;
    if (vector)
        out->operand |= TRANSFER_VECTOR;
    else if (opc == 2)
        out->operand |= TRANSFER_SIGNED;
    out->reg = (uint8_t)field(word, 0, 5);
    out->value = insn->target;
    return out->size != 0;
}

// C4.1.93, "Hints": op2 says where a branch may have come from.
static bool landing_operands(uint32_t word, struct tl_simulation *out)
{
    static const uint8_t accepts[4] = {0x0, 0x6, 0xa, 0xe}; // bti, bti c, bti j, bti jc
    out->condition = accepts[field(word, 6, 2)];
    return (word & ~UINT32_C(0xc0)) == 0xd503241f;
}

// C4.1.93, "Unconditional branch (register)": without authentication.
static bool indirect_operands(uint32_t word, uint32_t plain, struct tl_simulation *out)
{
    out->reg = (uint8_t)field(word, 5, 5);
    return (word & ~UINT32_C(0x3e0)) == plain;
}

static bool test_operands(const struct tl_insn *insn, uint32_t word, struct tl_simulation *out)
{
    bool wide = field(word, 31, 1);
    out->reg = (uint8_t)field(word, 0, 5);
    out->condition = (uint8_t)field(word, 24, 1);
    out->value = insn->target;
    if (out->kind == SIMULATE_TBZ)
        out->shift = (uint8_t)(field(word, 19, 5) | (wide ? 32u : 0u));
    else
        out->narrow = !wide;
    return true;
}

static bool operands_fill(const struct tl_insn *insn, struct tl_simulation *out)
{
    uint32_t word = tl_arm64_word(insn);
    switch ((enum simulator)out->kind) {
    case SIMULATE_NOP:
    case SIMULATE_PREFETCH:
        return true;
    case SIMULATE_LANDING:
        return landing_operands(word, out);
    case SIMULATE_PAIR:
        return pair_operands(word, out);
    case SIMULATE_SINGLE:
        return single_operands(word, out);
    case SIMULATE_LITERAL:
        return literal_operands(insn, word, out);
    case SIMULATE_COND:
        out->condition = (uint8_t)field(word, 0, 4);
        out->value = insn->target;
        return true;
    case SIMULATE_BRANCH:
    case SIMULATE_CALL:
        out->value = insn->target;
        return true;
    case SIMULATE_CBZ:
    case SIMULATE_TBZ:
        return test_operands(insn, word, out);
    case SIMULATE_IBRANCH:
        return indirect_operands(word, 0xd61f0000, out);
    case SIMULATE_ICALL:
        return indirect_operands(word, 0xd63f0000, out);
    case SIMULATE_RET:
        return indirect_operands(word, 0xd65f0000, out);
    case SIMULATE_ADR:
        out->reg = (uint8_t)field(word, 0, 5);
        out->value = insn->target;
        return true;
    case SIMULATE_NONE:
        break;
    }
    return false;
}

bool tl_arm64_simulation(const struct tl_insn *insn, struct tl_simulation *out)
{
    struct tl_simulation made = {.kind = tl_arm64_row(insn->row)->simulate,
                                 .next = insn->addr + insn->size};
    if (insn->size != sizeof(uint32_t) || !operands_fill(insn, &made))
        return false;
    *out = made;
    return true;
}

// Only what the kernel wrote last, right below the stack pointer, is known to be memory without a look at all that it
// wrote (signal_frame.h).
bool tl_arm64_simulation_slow(const struct tl_simulation *insn)
{
    bool stores = (insn->kind == SIMULATE_PAIR || insn->kind == SIMULATE_SINGLE) &&
                  !(insn->operand & TRANSFER_LOAD);
    return stores && insn->index != INDEX_POST && (int64_t)insn->value < -(int64_t)TL_FRAME_RECORD_SIZE;
}

// What needs nothing but registers is always done; not in guarded pages, where it faults if a
// branch led to it.
bool tl_arm64_simulation_alone(const struct tl_simulation *insn)
{
    if (insn->guarded)
        return false;
    switch ((enum simulator)insn->kind) {
    case SIMULATE_NOP:
    case SIMULATE_LANDING:
    case SIMULATE_PREFETCH:
    case SIMULATE_ADR:
        return true;
    case SIMULATE_BRANCH:
    case SIMULATE_CALL:
    case SIMULATE_COND:
    case SIMULATE_CBZ:
    case SIMULATE_TBZ:
        return insn->value >> 52 == 0;
    default:
        return false;
    }
}

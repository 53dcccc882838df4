// One decoded instruction -> what its simulator needs at each hit.
//
// Runs in the controller. Which simulator an instruction has says the table; this file reads
// operands, and refuses forms that the simulators don't do exactly: 16-bit pushes and branches,
// operands in fs and gs.
#include "arch/x86_64/simulate.h"
#include "arch/x86_64/table.h"
#include "arch/x86_64/x86_64.h"

enum {
    PREFIX_OPERAND_SIZE = 0x66,
    PREFIX_ADDRESS_SIZE = 0x67,
    PREFIX_FS = 0x64,
    PREFIX_GS = 0x65,
    REX_B = 1 << 0,
    REX_X = 1 << 1,
    REX_R = 1 << 2,
    REX_W = 1 << 3,
    REG_SP = 4,
};

// An instruction cut into pieces: Intel SDM volume 2, "Instruction Format".
struct pieces {
    const struct tl_insn *insn;
    uint8_t at; // of the opcode
    uint8_t rex;
    bool operand16, address32, segment;
};

static struct pieces pieces_of(const struct tl_insn *insn)
{
    struct pieces p = {.insn = insn};
    for (; p.at < insn->size; p.at++) {
        uint8_t byte = insn->bytes[p.at];
        if (byte == PREFIX_OPERAND_SIZE)
            p.operand16 = true;
        else if (byte == PREFIX_ADDRESS_SIZE)
            p.address32 = true;
        else if (byte == PREFIX_FS || byte == PREFIX_GS)
            p.segment = true;
        else if (byte != 0x26 && byte != 0x2e && byte != 0x36 && byte != 0x3e && byte != 0xf2 &&
                 byte != 0xf3)
            break;
    }
    if (p.at < insn->size && (insn->bytes[p.at] & 0xf0) == 0x40)
        p.rex = insn->bytes[p.at++];
    if (p.rex & REX_W)
        p.operand16 = false;
    return p;
}

static uint8_t byte_at(const struct pieces *p, unsigned at)
{
    return at < p->insn->size ? p->insn->bytes[at] : 0;
}

static uint64_t signed_at(const struct pieces *p, unsigned at, unsigned size)
{
    if (size == 1)
        return (uint64_t)(int8_t)byte_at(p, at);
    uint32_t word = 0;
    for (unsigned i = 0; i < 4; i++)
        word |= (uint32_t)byte_at(p, at + i) << 8 * i;
    return (uint64_t)(int32_t)word;
}

// The operand of a ModRM byte at `at`.
static bool modrm_operand(const struct pieces *p, unsigned at, struct tl_simulation *out)
{
    unsigned modrm = byte_at(p, at++), mod = modrm >> 6, rm = modrm & 7u;
    if (at > p->insn->size)
        return false;
    if (mod == 3) {
        out->operand = OPERAND_REG;
        out->reg = (uint8_t)(rm | (p->rex & REX_B ? 8u : 0u));
        return true;
    }
    out->operand = OPERAND_MEM;
    out->narrow = p->address32;
    out->base = (uint8_t)(rm | (p->rex & REX_B ? 8u : 0u));
    if (rm == REG_SP) { // a SIB byte
        unsigned sib = byte_at(p, at++), index = (sib >> 3 & 7u) | (p->rex & REX_X ? 8u : 0u);
        rm = sib & 7u;
        out->base = (uint8_t)(rm | (p->rex & REX_B ? 8u : 0u));
        out->shift = (uint8_t)(sib >> 6);
        out->index = index == REG_SP ? SIMULATE_REG_NONE : (uint8_t)index;
        if (mod == 0 && rm == 5) {
            out->base = SIMULATE_REG_NONE;
            mod = 2;
        }
    } else if (mod == 0 && rm == 5) { // relative to the next instruction
        out->base = SIMULATE_REG_NONE;
        out->value = out->next;
        mod = 2;
    }
    if (mod)
        out->value += signed_at(p, at, mod == 1 ? 1 : 4);
    return true;
}

static bool push_operand(const struct pieces *p, struct tl_simulation *out)
{
    unsigned opcode = byte_at(p, p->at);
    if (p->operand16)
        return false;
    if (opcode >= 0x50 && opcode <= 0x57) {
        out->operand = OPERAND_REG;
        out->reg = (uint8_t)((opcode & 7u) | (p->rex & REX_B ? 8u : 0u));
        return true;
    }
    if (opcode == 0x6a || opcode == 0x68) {
        out->operand = OPERAND_IMM;
        out->value = signed_at(p, p->at + 1u, opcode == 0x6a ? 1 : 4);
        return true;
    }
    return opcode == 0xff && (byte_at(p, p->at + 1u) >> 3 & 7) == 6 &&
           modrm_operand(p, p->at + 1u, out);
}

static bool pop_operand(const struct pieces *p, struct tl_simulation *out)
{
    unsigned opcode = byte_at(p, p->at);
    if (p->operand16)
        return false;
    if (opcode >= 0x58 && opcode <= 0x5f) {
        out->operand = OPERAND_REG;
        out->reg = (uint8_t)((opcode & 7u) | (p->rex & REX_B ? 8u : 0u));
        return true;
    }
    return opcode == 0x8f && (byte_at(p, p->at + 1u) >> 3 & 7) == 0 &&
           modrm_operand(p, p->at + 1u, out);
}

static bool ret_operand(const struct pieces *p, struct tl_simulation *out)
{
    unsigned opcode = byte_at(p, p->at);
    if (p->operand16 || (opcode != 0xc3 && opcode != 0xc2))
        return false;
    if (opcode == 0xc2)
        out->value = (uint64_t)(byte_at(p, p->at + 1u) | byte_at(p, p->at + 2u) << 8);
    return true;
}

static bool indirect_operand(const struct pieces *p, unsigned operation, struct tl_simulation *out)
{
    return !p->operand16 && byte_at(p, p->at) == 0xff &&
           (byte_at(p, p->at + 1u) >> 3 & 7) == operation && modrm_operand(p, p->at + 1u, out);
}

// jcc, loop*: the condition is the low bits of the opcode right before the displacement.
static bool target_operand(const struct pieces *p, unsigned condition_mask,
                           struct tl_simulation *out)
{
    const struct tl_insn *insn = p->insn;
    if (p->operand16 || insn->disp_off == 0)
        return false;
    out->operand = OPERAND_IMM;
    out->value = insn->target;
    out->condition = (uint8_t)(insn->bytes[insn->disp_off - 1] & condition_mask);
    out->narrow = p->address32;
    return true;
}

static bool lea_operand(const struct pieces *p, struct tl_simulation *out)
{
    if (byte_at(p, p->at) != 0x8d || !modrm_operand(p, p->at + 1u, out) ||
        out->operand != OPERAND_MEM)
        return false;
    out->reg = (uint8_t)((byte_at(p, p->at + 1u) >> 3 & 7u) | (p->rex & REX_R ? 8u : 0u));
    out->size = p->rex & REX_W ? 8 : p->operand16 ? 2 : 4;
    return true;
}

static bool operand_fill(enum simulator simulator, const struct pieces *p,
                         struct tl_simulation *out)
{
    switch (simulator) {
    case SIMULATE_NOP:
        return true;
    case SIMULATE_PUSH:
        return push_operand(p, out);
    case SIMULATE_POP:
        return pop_operand(p, out);
    case SIMULATE_RET:
        return ret_operand(p, out);
    case SIMULATE_CALL:
    case SIMULATE_JUMP:
        return target_operand(p, 0, out);
    case SIMULATE_ICALL:
        return indirect_operand(p, 2, out);
    case SIMULATE_IJUMP:
        return indirect_operand(p, 4, out);
    case SIMULATE_COND:
        return target_operand(p, 0xf, out);
    case SIMULATE_LOOP:
        return target_operand(p, 3, out);
    case SIMULATE_LEA:
        return lea_operand(p, out);
    case SIMULATE_NONE:
        break;
    }
    return false;
}

bool tl_x86_64_simulation(const struct tl_insn *insn, struct tl_simulation *out)
{
    enum simulator simulator = tl_x86_64_row(insn->row)->simulate;
    struct pieces p = pieces_of(insn);
    struct tl_simulation made = {.kind = simulator,
                                 .base = SIMULATE_REG_NONE,
                                 .index = SIMULATE_REG_NONE,
                                 .next = insn->addr + insn->size};
    if (!operand_fill(simulator, &p, &made))
        return false;
    // lea takes no notice of segments, and the others touch memory through the stack's.
    if (p.segment && made.operand == OPERAND_MEM && simulator != SIMULATE_LEA)
        return false;
    *out = made;
    return true;
}

// What needs nothing but registers is always done.
bool tl_x86_64_simulation_alone(const struct tl_simulation *insn)
{
    switch ((enum simulator)insn->kind) {
    case SIMULATE_NOP:
    case SIMULATE_LEA:
        return true;
    case SIMULATE_JUMP:
    case SIMULATE_COND:
    case SIMULATE_LOOP:
        return insn->value >> 47 == 0;
    default:
        return false;
    }
}

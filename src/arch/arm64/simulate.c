// The work of nop, bti, stp, ldp, str, ldr on the stack, literal loads, branches and adr, done on
// saved registers.
//
// Freestanding, no library, no state: built for the host's library and into the agent. Decodes
// nothing (simulation.c does). Invariant: all or nothing. What a processor would answer with a
// fault is not done here: the caller lets the instruction run by itself.
#include "arch/arm64/simulate.h"

enum { REG_LINK = 30, REG_SP = 31, REG_ZERO = 31, REG_IP0 = 16, REG_IP1 = 17 };

// PSTATE as a signal frame holds it: Arm ARM (DDI 0487), C5.2.19, "SPSR_EL1".
#define PSTATE_V (UINT64_C(1) << 28)
#define PSTATE_C (UINT64_C(1) << 29)
#define PSTATE_Z (UINT64_C(1) << 30)
#define PSTATE_N (UINT64_C(1) << 31)
#define BTYPE_SHIFT 10
#define BTYPE_MASK (UINT64_C(3) << BTYPE_SHIFT)

// How a branch came: D8.4.6 (branch target identification). Only looked at in guarded pages.
enum { BTYPE_NONE = 0, BTYPE_JUMP_IP = 1, BTYPE_CALL = 2, BTYPE_JUMP = 3 };

#define TRANSFER_SIZE_MAX 32 // a pair of q registers

static unsigned btype_of(const struct tl_simulate_state *state)
{
    return (unsigned)(state->flags >> BTYPE_SHIFT) & 3u;
}

// Goes on at addr, having come there by a branch of that type.
static void go(struct tl_simulate_state *state, uint64_t addr, uint64_t btype)
{
    state->pc = addr;
    state->flags = (state->flags & ~BTYPE_MASK) | btype << BTYPE_SHIFT;
}

static uint64_t reg_read(const struct tl_simulate_state *state, unsigned reg)
{
    return reg == REG_ZERO ? 0 : state->general[reg];
}

static void reg_write(struct tl_simulate_state *state, unsigned reg, uint64_t value)
{
    if (reg != REG_ZERO)
        state->general[reg] = value;
}

// Where a branch leads without a fault, and without the processor changing the address (its tag).
static bool is_user(uint64_t addr)
{
    return addr >> 52 == 0 && addr % 4 == 0;
}

// ---- memory -------------------------------------------------------------------------------------

// Kept apart: so small that a compiler might call memcpy, which the agent has not.
static void bytes_copy(uint8_t *to, const uint8_t *from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        __asm__ volatile("" : : : "memory");
        to[i] = from[i];
    }
}

static void value_store(const struct tl_simulation *insn, const struct tl_simulate_state *state,
                        unsigned reg, uint8_t *buf)
{
    if (insn->operand & TRANSFER_VECTOR) {
        bytes_copy(buf, state->vector[reg], insn->size);
        return;
    }
    uint64_t value = reg_read(state, reg);
    bytes_copy(buf, (const uint8_t *)&value, insn->size);
}

// What is shorter than the register is widened: vectors always with zeros.
static void value_load(const struct tl_simulation *insn, struct tl_simulate_state *state,
                       unsigned reg, const uint8_t *buf)
{
    uint64_t value = 0;
    if (insn->operand & TRANSFER_VECTOR) {
        static const uint8_t zero[16];
        bytes_copy(state->vector[reg], zero, sizeof zero);
        bytes_copy(state->vector[reg], buf, insn->size);
        return;
    }
    bytes_copy((uint8_t *)&value, buf, insn->size);
    if (insn->operand & TRANSFER_SIGNED)
        value = (uint64_t)(int64_t)(int32_t)(uint32_t)value;
    reg_write(state, reg, value);
}

// One access for both registers of a pair. A stack pointer that is not aligned faults (D8.5.2,
// "Stack pointer alignment checking").
static bool transfer(const struct tl_simulation *insn, struct tl_simulate_state *state,
                     const struct tl_simulate_memory *memory)
{
    bool pair = insn->kind == SIMULATE_PAIR;
    size_t size = pair ? 2u * insn->size : insn->size;
    uint64_t base = state->general[REG_SP], moved = base + insn->value;
    uint64_t addr = insn->index == INDEX_POST ? base : moved;
    uint8_t buf[TRANSFER_SIZE_MAX] __attribute__((aligned(16)));
    if (base % 16 != 0 || (insn->operand & TRANSFER_VECTOR && state->vector == NULL))
        return false;
    if (insn->operand & TRANSFER_LOAD) {
        if (!memory->read(memory->opaque, addr, buf, size))
            return false;
        value_load(insn, state, insn->reg, buf);
        if (pair)
            value_load(insn, state, insn->reg2, buf + insn->size);
    } else {
        value_store(insn, state, insn->reg, buf);
        if (pair)
            value_store(insn, state, insn->reg2, buf + insn->size);
        if (!memory->write(memory->opaque, addr, buf, size))
            return false;
    }
    if (insn->index != INDEX_NONE)
        state->general[REG_SP] = moved;
    go(state, insn->next, BTYPE_NONE);
    return true;
}

static bool literal(const struct tl_simulation *insn, struct tl_simulate_state *state,
                    const struct tl_simulate_memory *memory)
{
    uint8_t buf[16] __attribute__((aligned(16)));
    if ((insn->operand & TRANSFER_VECTOR && state->vector == NULL) ||
        !memory->read(memory->opaque, insn->value, buf, insn->size))
        return false;
    value_load(insn, state, insn->reg, buf);
    go(state, insn->next, BTYPE_NONE);
    return true;
}

// ---- branches -----------------------------------------------------------------------------------

// C1.2.4, "Condition code". Bit 0 negates, but for 1111, which is 1110.
static bool condition_holds(unsigned condition, uint64_t pstate)
{
    bool n = pstate & PSTATE_N, z = pstate & PSTATE_Z, c = pstate & PSTATE_C, v = pstate & PSTATE_V;
    bool holds = true;
    switch (condition >> 1) {
    case 0:
        holds = z;
        break;
    case 1:
        holds = c;
        break;
    case 2:
        holds = n;
        break;
    case 3:
        holds = v;
        break;
    case 4:
        holds = c && !z;
        break;
    case 5:
        holds = n == v;
        break;
    case 6:
        holds = n == v && !z;
        break;
    default:
        return true;
    }
    return holds != (condition & 1u);
}

bool tl_arm64_simulate_taken(const struct tl_simulation *insn,
                             const struct tl_simulate_state *state)
{
    uint64_t value = reg_read(state, insn->reg);
    switch ((enum simulator)insn->kind) {
    case SIMULATE_COND:
        return condition_holds(insn->condition, state->flags);
    case SIMULATE_CBZ:
        return ((insn->narrow ? (uint32_t)value : value) != 0) == (insn->condition != 0);
    case SIMULATE_TBZ:
        return (value >> insn->shift & 1u) == insn->condition;
    default:
        return true;
    }
}

static bool direct(const struct tl_simulation *insn, struct tl_simulate_state *state)
{
    bool taken = tl_arm64_simulate_taken(insn, state);
    if (taken && !is_user(insn->value))
        return false;
    if (insn->kind == SIMULATE_CALL)
        state->general[REG_LINK] = insn->next;
    go(state, taken ? insn->value : insn->next, BTYPE_NONE);
    return true;
}

// The register is read before the link is written: `blr x30` goes where x30 was.
static bool indirect(const struct tl_simulation *insn, struct tl_simulate_state *state)
{
    uint64_t to = reg_read(state, insn->reg), btype = BTYPE_NONE;
    if (!is_user(to))
        return false;
    if (insn->kind == SIMULATE_ICALL) {
        btype = BTYPE_CALL;
        state->general[REG_LINK] = insn->next;
    } else if (insn->kind == SIMULATE_IBRANCH) {
        bool by_ip = insn->reg == REG_IP0 || insn->reg == REG_IP1;
        btype = by_ip || !insn->guarded ? BTYPE_JUMP_IP : BTYPE_JUMP;
    }
    go(state, to, btype);
    return true;
}

// ---- all ----------------------------------------------------------------------------------------

bool tl_arm64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                       const struct tl_simulate_memory *memory)
{
    unsigned btype = btype_of(state);
    // A branch led here that only landing pads may be the target of.
    if (insn->guarded && btype != BTYPE_NONE &&
        !(insn->kind == SIMULATE_LANDING && insn->condition >> btype & 1u))
        return false;
    switch ((enum simulator)insn->kind) {
    case SIMULATE_NOP:
    case SIMULATE_LANDING:
    case SIMULATE_PREFETCH:
        go(state, insn->next, BTYPE_NONE);
        return true;
    case SIMULATE_PAIR:
    case SIMULATE_SINGLE:
        return transfer(insn, state, memory);
    case SIMULATE_LITERAL:
        return literal(insn, state, memory);
    case SIMULATE_BRANCH:
    case SIMULATE_CALL:
    case SIMULATE_COND:
    case SIMULATE_CBZ:
    case SIMULATE_TBZ:
        return direct(insn, state);
    case SIMULATE_IBRANCH:
    case SIMULATE_ICALL:
    case SIMULATE_RET:
        return indirect(insn, state);
    case SIMULATE_ADR:
        reg_write(state, insn->reg, insn->value);
        go(state, insn->next, BTYPE_NONE);
        return true;
    case SIMULATE_NONE:
        break;
    }
    return false;
}

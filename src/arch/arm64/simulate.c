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

// How a branch came: D8.4.6 (branch target identification). Only looked at in guarded pages.
enum { BTYPE_NONE = 0, BTYPE_JUMP_IP = 1, BTYPE_CALL = 2, BTYPE_JUMP = 3 };

#define TRANSFER_SIZE_MAX 32 // a pair of q registers

// What needs many registers: apart, since all that need fewer would save them too.
#define NEVER_INLINE __attribute__((noinline))

static unsigned btype_of(const struct tl_simulate_state *state)
{
    return (unsigned)(state->flags >> TL_PSTATE_BTYPE_SHIFT) & 3u;
}

// Goes on at addr, having come there by a branch of that type.
static void go(struct tl_simulate_state *state, uint64_t addr, uint64_t btype)
{
    state->pc = addr;
    state->flags = (state->flags & ~TL_PSTATE_BTYPE) | btype << TL_PSTATE_BTYPE_SHIFT;
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

// Copied by sizes that the compiler knows: else it would call memcpy, which the agent has not.
static void value_store(const struct tl_simulation *insn, const struct tl_simulate_state *state,
                        unsigned reg, uint8_t *buf)
{
    uint64_t value[2] = {0, 0};
    if (insn->operand & TRANSFER_VECTOR)
        __builtin_memcpy(value, state->vector[reg], 16);
    else
        value[0] = reg_read(state, reg);
    if (insn->size == 8)
        __builtin_memcpy(buf, value, 8);
    else if (insn->size == 4)
        __builtin_memcpy(buf, value, 4);
    else
        __builtin_memcpy(buf, value, 16);
}

// What is shorter than the register is widened: vectors always with zeros.
static void value_load(const struct tl_simulation *insn, struct tl_simulate_state *state,
                       unsigned reg, const uint8_t *buf)
{
    uint64_t value[2] = {0, 0};
    if (insn->size == 8)
        __builtin_memcpy(value, buf, 8);
    else if (insn->size == 4)
        __builtin_memcpy(value, buf, 4);
    else
        __builtin_memcpy(value, buf, 16);
    if (insn->operand & TRANSFER_VECTOR)
        __builtin_memcpy(state->vector[reg], value, 16);
    else if (insn->operand & TRANSFER_SIGNED)
        reg_write(state, reg, (uint64_t)(int64_t)(int32_t)(uint32_t)value[0]);
    else
        reg_write(state, reg, value[0]);
}

static void moved_on(const struct tl_simulation *insn, struct tl_simulate_state *state)
{
    if (insn->index != INDEX_NONE)
        state->general[REG_SP] += insn->value;
    go(state, insn->next, BTYPE_NONE);
}

// Vectors and halves of registers.
static bool transfer_parts(const struct tl_simulation *insn, struct tl_simulate_state *state,
                           const struct tl_simulate_memory *memory, uint64_t addr)
{
    bool pair = insn->kind == SIMULATE_PAIR;
    size_t size = pair ? 2u * insn->size : insn->size;
    uint8_t buf[TRANSFER_SIZE_MAX] __attribute__((aligned(16)));
    if (insn->operand & TRANSFER_VECTOR && state->vector == NULL)
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
    moved_on(insn, state);
    return true;
}

// One access for both registers of a pair. A stack pointer that is not aligned faults (D8.5.2,
// "Stack pointer alignment checking").
NEVER_INLINE static bool transfer(const struct tl_simulation *insn, struct tl_simulate_state *state,
                                  const struct tl_simulate_memory *memory)
{
    bool pair = insn->kind == SIMULATE_PAIR;
    uint64_t base = state->general[REG_SP], words[2];
    uint64_t addr = insn->index == INDEX_POST ? base : base + insn->value;
    size_t size = pair ? sizeof words : sizeof words[0];
    if (base % 16 != 0)
        return false;
    if (insn->operand & TRANSFER_VECTOR || insn->size != sizeof words[0])
        return transfer_parts(insn, state, memory, addr);
    if (insn->operand & TRANSFER_LOAD) {
        if (!memory->read(memory->opaque, addr, words, size))
            return false;
        reg_write(state, insn->reg, words[0]);
        if (pair)
            reg_write(state, insn->reg2, words[1]);
    } else {
        words[0] = reg_read(state, insn->reg);
        words[1] = reg_read(state, insn->reg2);
        if (!memory->write(memory->opaque, addr, words, size))
            return false;
    }
    moved_on(insn, state);
    return true;
}

NEVER_INLINE static bool literal(const struct tl_simulation *insn, struct tl_simulate_state *state,
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

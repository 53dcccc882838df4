// The work of nop, jal, jalr, auipc, branches, addi, ld and sd on the stack, done on saved
// registers.
//
// Freestanding, no library, no state: built for the host's library and into the agent. Decodes
// nothing (simulation.c does). Invariant: all or nothing. What a processor would answer with a
// fault is not done here: the caller lets the instruction run by itself. Volume I of the RISC-V ISA
// Manual (unprivileged), "RV32I Base Integer Instruction Set" and "RV64I", says what each does.
#include "arch/riscv64/simulate.h"

enum { REG_RA = 1, REG_SP = 2, REG_T0 = 5, REG_T2 = 7 };

// funct3 of a branch; bit 0 negates.
enum { BRANCH_EQ = 0, BRANCH_LT = 4, BRANCH_LTU = 6 };

static uint64_t reg_read(const struct tl_simulate_state *state, unsigned reg)
{
    return reg == 0 ? 0 : state->general[reg];
}

static void reg_write(struct tl_simulate_state *state, unsigned reg, uint64_t value)
{
    if (reg != 0)
        state->general[reg] = value;
}

static void go(struct tl_simulate_state *state, uint64_t addr)
{
    state->general[TL_RISCV64_PC] = addr;
}

// Where a branch leads without a fault. User space ends at 2^56 at the most (Sv57; Linux
// Documentation/arch/riscv/vm-layout.rst); with fewer levels of pages the fault comes at the
// target, as it would have. An odd target can't be, since bit 0 is cleared or no branch has it; one
// at 2 mod 4 faults only on a processor without compressed instructions, whose program has none
// such either.
static bool is_user(uint64_t addr)
{
    return addr >> 56 == 0;
}

bool tl_riscv64_simulate_taken(const struct tl_simulation *insn,
                               const struct tl_simulate_state *state)
{
    uint64_t left = reg_read(state, insn->reg), right = reg_read(state, insn->reg2);
    bool holds;
    if (insn->kind != SIMULATE_COND)
        return true;
    switch (insn->condition & ~1u) {
    case BRANCH_EQ:
        holds = left == right;
        break;
    case BRANCH_LT:
        holds = (int64_t)left < (int64_t)right;
        break;
    default:
        holds = left < right;
        break;
    }
    return holds != (insn->condition & 1u);
}

// An access that is not aligned may be several: then it is the processor's.
static bool transfer(const struct tl_simulation *insn, struct tl_simulate_state *state,
                     const struct tl_simulate_memory *memory)
{
    uint64_t addr = state->general[REG_SP] + insn->value, word = reg_read(state, insn->reg);
    if (addr % sizeof word != 0)
        return false;
    if (insn->operand) {
        if (!memory->read(memory->opaque, addr, &word, sizeof word))
            return false;
        reg_write(state, insn->reg, word);
    } else if (!memory->write(memory->opaque, addr, &word, sizeof word)) {
        return false;
    }
    go(state, insn->next);
    return true;
}

static bool direct(const struct tl_simulation *insn, struct tl_simulate_state *state)
{
    uint64_t to = tl_riscv64_simulate_taken(insn, state) ? insn->value : insn->next;
    if (!is_user(to))
        return false;
    if (insn->kind != SIMULATE_COND)
        reg_write(state, insn->reg, insn->next);
    go(state, to);
    return true;
}

// The base is read before the link is written: `jalr ra, ra` goes where ra was. In guarded text a
// branch by another register than ra, t0 and t2 must meet a landing pad (Zicfilp, "Landing Pad
// Enforcement"): what the processor keeps in mind about that is not ours to set.
static bool indirect(const struct tl_simulation *insn, struct tl_simulate_state *state)
{
    uint64_t to = (reg_read(state, insn->base) + insn->value) & ~UINT64_C(1);
    bool landing = insn->base != REG_RA && insn->base != REG_T0 && insn->base != REG_T2;
    if (!is_user(to) || (insn->guarded && landing))
        return false;
    reg_write(state, insn->reg, insn->next);
    go(state, to);
    return true;
}

bool tl_riscv64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                         const struct tl_simulate_memory *memory)
{
    switch ((enum simulator)insn->kind) {
    case SIMULATE_NOP:
        go(state, insn->next);
        return true;
    case SIMULATE_SINGLE:
        return transfer(insn, state, memory);
    case SIMULATE_BRANCH:
    case SIMULATE_CALL:
    case SIMULATE_COND:
        return direct(insn, state);
    case SIMULATE_IBRANCH:
    case SIMULATE_ICALL:
    case SIMULATE_RET:
        return indirect(insn, state);
    case SIMULATE_ADR:
        reg_write(state, insn->reg, insn->value);
        go(state, insn->next);
        return true;
    case SIMULATE_ADD:
        reg_write(state, insn->reg, reg_read(state, insn->base) + insn->value);
        go(state, insn->next);
        return true;
    case SIMULATE_NONE:
        break;
    }
    return false;
}

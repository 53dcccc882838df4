// The work of nop, push, pop, ret, call, jmp, jcc, loop and lea, done on saved registers.
//
// Freestanding, no library, no state: built for the host's library and into the agent. Decodes
// nothing (simulation.c does). Invariant: all or nothing. What a processor would answer with a
// fault, or with one that depends on its maker, is not done here: the caller lets the instruction
// run by itself.
#include "arch/x86_64/simulate.h"

enum { REG_CX = 1, REG_SP = 4, WORD = 8 };
enum { FLAG_CF = 1 << 0, FLAG_PF = 1 << 2, FLAG_ZF = 1 << 6, FLAG_SF = 1 << 7, FLAG_OF = 1 << 11 };

// The low half of 48-bit addresses. A branch elsewhere faults, at the branch or at its target:
// Intel SDM volume 2, "CALL", "JMP", "RET", 64-bit mode exceptions. With 57 bits such a branch runs
// by itself.
static bool is_user(uint64_t addr)
{
    return addr >> 47 == 0;
}

// Intel SDM volume 1, "Effective address computation"; 67 cuts it to 32 bits.
static uint64_t address(const struct tl_simulation *insn, const struct tl_simulate_state *state)
{
    uint64_t addr = insn->value;
    if (insn->base != SIMULATE_REG_NONE)
        addr += state->general[insn->base];
    if (insn->index != SIMULATE_REG_NONE)
        addr += state->general[insn->index] << insn->shift;
    return insn->narrow ? (uint32_t)addr : addr;
}

static bool operand_read(const struct tl_simulation *insn, const struct tl_simulate_state *state,
                         const struct tl_simulate_memory *memory, uint64_t *out)
{
    if (insn->operand == OPERAND_MEM)
        return memory->read(memory->opaque, address(insn, state), out, WORD);
    *out = insn->operand == OPERAND_REG ? state->general[insn->reg] : insn->value;
    return true;
}

static bool word_push(struct tl_simulate_state *state, const struct tl_simulate_memory *memory,
                      uint64_t word)
{
    if (!memory->write(memory->opaque, state->general[REG_SP] - WORD, &word, WORD))
        return false;
    state->general[REG_SP] -= WORD;
    return true;
}

static bool push(const struct tl_simulation *insn, struct tl_simulate_state *state,
                 const struct tl_simulate_memory *memory)
{
    uint64_t word;
    if (!operand_read(insn, state, memory, &word) || !word_push(state, memory, word))
        return false;
    state->pc = insn->next;
    return true;
}

// The stack pointer moves first: an address made of it is that behind the pop, and a popped stack pointer
// stays as it was popped (Intel SDM volume 2, "POP").
static bool pop(const struct tl_simulation *insn, struct tl_simulate_state *state,
                const struct tl_simulate_memory *memory)
{
    uint64_t word;
    if (!memory->read(memory->opaque, state->general[REG_SP], &word, WORD))
        return false;
    state->general[REG_SP] += WORD;
    if (insn->operand == OPERAND_REG) {
        state->general[insn->reg] = word;
    } else if (!memory->write(memory->opaque, address(insn, state), &word, WORD)) {
        state->general[REG_SP] -= WORD;
        return false;
    }
    state->pc = insn->next;
    return true;
}

static bool ret(const struct tl_simulation *insn, struct tl_simulate_state *state,
                const struct tl_simulate_memory *memory)
{
    uint64_t to;
    if (!memory->read(memory->opaque, state->general[REG_SP], &to, WORD) || !is_user(to))
        return false;
    state->general[REG_SP] += WORD + insn->value;
    state->pc = to;
    return true;
}

static bool branch(const struct tl_simulation *insn, struct tl_simulate_state *state,
                   const struct tl_simulate_memory *memory, bool links)
{
    uint64_t to;
    if (!operand_read(insn, state, memory, &to) || !is_user(to) ||
        (links && !word_push(state, memory, insn->next)))
        return false;
    state->pc = to;
    return true;
}

// The condition codes of jcc: Intel SDM volume 2, appendix B, "tttn". Bit 0 negates.
static bool condition_holds(unsigned condition, uint64_t flags)
{
    bool sign = (flags & FLAG_SF) != 0, overflow = (flags & FLAG_OF) != 0, holds = false;
    switch (condition >> 1) {
    case 0:
        holds = overflow;
        break;
    case 1:
        holds = (flags & FLAG_CF) != 0;
        break;
    case 2:
        holds = (flags & FLAG_ZF) != 0;
        break;
    case 3:
        holds = (flags & (FLAG_CF | FLAG_ZF)) != 0;
        break;
    case 4:
        holds = sign;
        break;
    case 5:
        holds = (flags & FLAG_PF) != 0;
        break;
    case 6:
        holds = sign != overflow;
        break;
    default:
        holds = sign != overflow || (flags & FLAG_ZF) != 0;
        break;
    }
    return holds != (condition & 1u);
}

// loop*: the low two bits of the opcode, e0 to e3 (Intel SDM volume 2, "LOOP", "Jcc").
static bool loop_taken(const struct tl_simulation *insn, uint64_t count, uint64_t flags)
{
    bool zero = (flags & FLAG_ZF) != 0;
    uint64_t mask = insn->narrow ? UINT32_MAX : UINT64_MAX;
    switch (insn->condition) {
    case 0: // loopne
        return ((count - 1) & mask) != 0 && !zero;
    case 1: // loope
        return ((count - 1) & mask) != 0 && zero;
    case 2: // loop
        return ((count - 1) & mask) != 0;
    default: // jrcxz, jecxz
        return (count & mask) == 0;
    }
}

bool tl_x86_64_simulate_taken(const struct tl_simulation *insn,
                              const struct tl_simulate_state *state)
{
    if (insn->kind == SIMULATE_COND)
        return condition_holds(insn->condition, state->flags);
    if (insn->kind == SIMULATE_LOOP)
        return loop_taken(insn, state->general[REG_CX], state->flags);
    return true;
}

static bool conditional(const struct tl_simulation *insn, struct tl_simulate_state *state)
{
    bool taken = tl_x86_64_simulate_taken(insn, state);
    if (taken && !is_user(insn->value))
        return false;
    if (insn->kind == SIMULATE_LOOP && insn->condition < 3) {
        uint64_t count = state->general[REG_CX] - 1;
        state->general[REG_CX] = insn->narrow ? (uint32_t)count : count;
    }
    state->pc = taken ? insn->value : insn->next;
    return true;
}

// 16 bits leave the rest of the register, 32 clear the upper half.
static bool lea(const struct tl_simulation *insn, struct tl_simulate_state *state)
{
    uint64_t addr = address(insn, state), *reg = &state->general[insn->reg];
    if (insn->size == 2)
        *reg = (*reg & ~(uint64_t)UINT16_MAX) | (uint16_t)addr;
    else
        *reg = insn->size == 4 ? (uint32_t)addr : addr;
    state->pc = insn->next;
    return true;
}

bool tl_x86_64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                        const struct tl_simulate_memory *memory)
{
    switch ((enum simulator)insn->kind) {
    case SIMULATE_NOP:
        state->pc = insn->next;
        return true;
    case SIMULATE_PUSH:
        return push(insn, state, memory);
    case SIMULATE_POP:
        return pop(insn, state, memory);
    case SIMULATE_RET:
        return ret(insn, state, memory);
    case SIMULATE_CALL:
    case SIMULATE_ICALL:
        return branch(insn, state, memory, true);
    case SIMULATE_JUMP:
    case SIMULATE_IJUMP:
        return branch(insn, state, memory, false);
    case SIMULATE_COND:
    case SIMULATE_LOOP:
        return conditional(insn, state);
    case SIMULATE_LEA:
        return lea(insn, state);
    case SIMULATE_NONE:
        break;
    }
    return false;
}

// Simulators of x86-64 instructions. Freestanding: the agent has them too.
#ifndef TL_ARCH_X86_64_SIMULATE_H
#define TL_ARCH_X86_64_SIMULATE_H

#include "arch/simulate.h"

// Which function does the instruction's work: isa/x86_64.isa names them row by row.
enum simulator {
    SIMULATE_NONE,
    SIMULATE_NOP,
    SIMULATE_PUSH,
    SIMULATE_POP,
    SIMULATE_RET,
    SIMULATE_CALL,
    SIMULATE_ICALL,
    SIMULATE_JUMP,
    SIMULATE_IJUMP,
    SIMULATE_COND,
    SIMULATE_LOOP,
    SIMULATE_LEA,
};

// tl_simulation.operand
enum { OPERAND_NONE, OPERAND_REG, OPERAND_IMM, OPERAND_MEM };
#define SIMULATE_REG_NONE 0xff

// Does the instruction's work: registers, flags, memory, pc. false: it can't be done here as the
// processor would do it; nothing was changed.
bool tl_x86_64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                        const struct tl_simulate_memory *memory);
// Whether a conditional branch (COND, LOOP) would be taken. true for all others.
bool tl_x86_64_simulate_taken(const struct tl_simulation *insn,
                              const struct tl_simulate_state *state);

#endif

// Simulators of riscv64 instructions. Freestanding: the agent has them too.
#ifndef TL_ARCH_RISCV64_SIMULATE_H
#define TL_ARCH_RISCV64_SIMULATE_H

#include "arch/simulate.h"

// Which function does the instruction's work: isa/riscv.isa names them row by row. Full and compressed forms
// share them.
enum simulator {
    SIMULATE_NONE,
    SIMULATE_NOP,     // also every hint
    SIMULATE_SINGLE,  // ld, sd, c.ldsp, c.sdsp: base sp
    SIMULATE_BRANCH,  // jal without a link: j, c.j
    SIMULATE_CALL,    // jal
    SIMULATE_COND,    // beq, bne, blt, bge, bltu, bgeu, c.beqz, c.bnez
    SIMULATE_IBRANCH, // jalr without a link: jr, c.jr
    SIMULATE_ICALL,   // jalr, c.jalr
    SIMULATE_RET,     // jalr without a link, by a link register
    SIMULATE_ADR,     // auipc
    SIMULATE_ADD,     // addi, c.addi, c.addi16sp, c.addi4spn, c.li
};

// struct tl_simulation here:
//   reg        register written (a link too), stored, or (COND) compared; 0 is none, and holds 0
//   reg2       COND: what it is compared with
//   base       ADD, IBRANCH, ICALL, RET: register that `value` is added to; SINGLE: sp
//   operand    SINGLE: 1 = loads
//   condition  COND: funct3 of the branch
//   value      target, immediate, displacement; ADR: what is written
//
// struct tl_simulate_state here: general[TL_RISCV64_PC] is the pc, since x0 needs no place; so it has the same
// order as a signal frame's registers. Nothing else of the struct is used.
#define TL_RISCV64_PC 0

// Does the instruction's work: registers, memory, pc. false: it can't be done here as the processor would do
// it; nothing was changed.
bool tl_riscv64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                         const struct tl_simulate_memory *memory);
// Whether a conditional branch (COND) would be taken. true for all others.
bool tl_riscv64_simulate_taken(const struct tl_simulation *insn,
                               const struct tl_simulate_state *state);

#endif

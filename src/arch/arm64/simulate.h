// Simulators of arm64 instructions. Freestanding: the agent has them too.
#ifndef TL_ARCH_ARM64_SIMULATE_H
#define TL_ARCH_ARM64_SIMULATE_H

#include "arch/simulate.h"

// Which function does the instruction's work: isa/arm64.isa names them row by row.
enum simulator {
    SIMULATE_NONE,
    SIMULATE_NOP,      // also hints that nobody has given a meaning
    SIMULATE_LANDING,  // bti
    SIMULATE_PAIR,     // ldp, stp, ldpsw: base sp, any index form
    SIMULATE_SINGLE,   // ldr, str, ldrsw, ldur, stur of 4 bytes and more: the same
    SIMULATE_LITERAL,  // ldr, ldrsw of a literal
    SIMULATE_PREFETCH, // prfm of a literal
    SIMULATE_BRANCH,   // b
    SIMULATE_CALL,     // bl
    SIMULATE_COND,     // b.cond, bc.cond
    SIMULATE_CBZ,      // cbz, cbnz
    SIMULATE_TBZ,      // tbz, tbnz
    SIMULATE_IBRANCH,  // br
    SIMULATE_ICALL,    // blr
    SIMULATE_RET,      // ret
    SIMULATE_ADR,      // adr, adrp
};

// struct tl_simulation here:
//   operand    TRANSFER_*: PAIR, SINGLE, LITERAL
//   reg, reg2  register moved, tested, branched to or written; 31 is the zero register
//   size       bytes of one register in memory
//   index      INDEX_*: PAIR, SINGLE; value is the displacement
//   shift      TBZ: the bit
//   condition  COND: the condition; CBZ, TBZ: 1 = branches if not zero; LANDING: bit n = BTYPE n may
//              land here
//   narrow     CBZ: the lower half only
//   value      target, address of the literal, displacement
// TRANSFER_PUSH: of what it stores, no less and no more: two registers, right below sp, which goes there.
enum {
    TRANSFER_LOAD = 1 << 0,
    TRANSFER_VECTOR = 1 << 1,
    TRANSFER_SIGNED = 1 << 2,
    TRANSFER_PUSH = 1 << 3
};
enum { INDEX_NONE, INDEX_PRE, INDEX_POST };

// PSTATE.BTYPE as a signal frame holds it: Arm ARM (DDI 0487), C5.2.19, "SPSR_EL1".
#define TL_PSTATE_BTYPE_SHIFT 10
#define TL_PSTATE_BTYPE (UINT64_C(3) << TL_PSTATE_BTYPE_SHIFT)

// The kernel's frame record, right below the stack pointer that a signal came at.
#define TL_FRAME_RECORD_SIZE 16u

// Does the instruction's work: registers, PSTATE (tl_simulate_state.flags), memory, pc. false: it
// can't be done here as the processor would do it; nothing was changed.
bool tl_arm64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                       const struct tl_simulate_memory *memory);
// Whether a conditional branch (COND, CBZ, TBZ) would be taken. true for all others.
bool tl_arm64_simulate_taken(const struct tl_simulation *insn,
                             const struct tl_simulate_state *state);

#endif

// Simulators of arm64 instructions. Freestanding: the agent has them too.
#ifndef TL_ARCH_ARM64_SIMULATE_H
#define TL_ARCH_ARM64_SIMULATE_H

#include "arch/simulate.h"

// Which function does the instruction's work: isa/arm64.isa names them row by row.
enum simulator {
    SIMULATE_NONE,
    SIMULATE_NOP,
    SIMULATE_LANDING,
    SIMULATE_PAIR,
    SIMULATE_SINGLE,
    SIMULATE_LITERAL,
    SIMULATE_PREFETCH,
    SIMULATE_BRANCH,
    SIMULATE_CALL,
    SIMULATE_COND,
    SIMULATE_CBZ,
    SIMULATE_TBZ,
    SIMULATE_IBRANCH,
    SIMULATE_ICALL,
    SIMULATE_RET,
    SIMULATE_ADR,
};

#endif

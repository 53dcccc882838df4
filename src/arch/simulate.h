// An instruction's work done by hand, on saved registers: what the controller finds out about it
// once, and what is done with it at each hit. Freestanding; the fields' meaning is the
// architecture's own.
#ifndef TL_ARCH_SIMULATE_H
#define TL_ARCH_SIMULATE_H

#include "base/types.h"

#define TL_SIMULATE_GENERAL_MAX 32

struct tl_simulation {
    uint8_t kind; // 0: the instruction has no simulator
    uint8_t operand, reg, reg2, base, index, shift, size, condition;
    bool narrow;
    bool guarded;   // the instruction lies in a guarded page (arm64: BTI); the planner says so
    uint64_t value; // immediate, displacement or target
    uint64_t next;  // the address behind the instruction
};

struct tl_simulate_state {
    uint64_t general[TL_SIMULATE_GENERAL_MAX]; // by the ISA's numbers
    uint64_t pc, flags;                        // riscv64: the pc is general[0]
    uint8_t (*vector)[16]; // arm64: v0 to v31, NULL: not at hand
};

// Memory as the simulator sees it. false: it can't be had just like that, and the instruction must
// run by itself; nothing was changed.
struct tl_simulate_memory {
    bool (*read)(void *opaque, uint64_t addr, void *buf, size_t size);
    bool (*write)(void *opaque, uint64_t addr, const void *buf, size_t size);
    void *opaque;
};

#endif

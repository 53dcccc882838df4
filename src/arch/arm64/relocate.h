// Relocation of the displaced instruction, inside the emitter.
#ifndef TL_ARCH_ARM64_RELOCATE_H
#define TL_ARCH_ARM64_RELOCATE_H

#include "arch/arm64/writer.h"
#include "emit/emit.h"

// Go keeps the frame pointer of a function's caller in the 8 bytes below the stack pointer: a
// detour leaves them alone, and sp is a multiple of 16. What lies lower while Go clears or copies
// memory is read by nobody who goes on.
#define STACK_BELOW 16

// The next instruction is a fault point.
void tl_arm64_fault_point(struct tl_detour *out, const struct tl_words *w, unsigned sp_words);

// A conditional branch whose taken path is not written yet.
struct tl_arm64_taken {
    bool open;
    uint16_t position; // of the branch
    tl_addr target;
    bool self; // it leads to the displaced instruction instead
};

// Writes the displaced instruction of `in` behind what the writer holds; fills displaced and the
// first boundary of *out. What comes behind it, and *taken, is left to the caller. An enum
// tl_refusal: NONE, or why it can't be moved here.
uint8_t tl_arm64_relocate(const struct tl_emit_in *in, struct tl_words *w, struct tl_detour *out,
                          struct tl_arm64_taken *taken);

// A jump to an address, through a free register where b does not reach.
uint8_t tl_arm64_relocate_jump(const struct tl_emit_in *in, struct tl_words *w, tl_addr to);

// A free register among those in `dead`: 0 to 30, or REG_ZERO if there is none. The platform's own
// (x18) is never taken, and the frame pointer and link register last.
unsigned tl_arm64_register_take(tl_regset dead);

#endif

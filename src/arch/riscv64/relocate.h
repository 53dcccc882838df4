// Relocation of displaced instructions, inside the emitter.
#ifndef TL_ARCH_RISCV64_RELOCATE_H
#define TL_ARCH_RISCV64_RELOCATE_H

#include "arch/riscv64/writer.h"
#include "emit/emit.h"

// A branch whose far end is not written yet: the taken path of a conditional one.
struct tl_riscv64_taken {
    uint16_t position; // of the branch
    tl_addr target;
};

struct tl_riscv64_relocator {
    const struct tl_emit_in *in;
    struct tl_parcels *w;
    struct tl_detour *out;
    uint16_t start[TL_WINDOW_INSNS_MAX]; // offset of each copy
    struct {
        uint16_t position;
        uint8_t insn;
    } fix[TL_WINDOW_INSNS_MAX]; // branches to copies
    uint8_t fix_count;
    struct tl_riscv64_taken
        taken[TL_WINDOW_INSNS_MAX]; // with on_taken, the first is the site's own
    uint8_t taken_count;
};

// The next instruction is a fault point.
void tl_riscv64_fault_point(struct tl_detour *out, const struct tl_parcels *w, unsigned sp_words);

// Writes the copy of displaced instruction `index`, whose boundary is here. An enum tl_refusal:
// NONE, or why it can't be moved here. What comes behind it, taken[] and fix[] are left to the
// caller.
uint8_t tl_riscv64_relocate(struct tl_riscv64_relocator *r, unsigned index);

// A way out of the detour: a jump, one through a register of `dead`, or by a bounce. A target that
// needs one which is not there is noted in *out, and the refusal is TL_REFUSE_NO_REACH.
uint8_t tl_riscv64_relocate_jump(struct tl_riscv64_relocator *r, tl_addr to, tl_regset dead);

// Leads branches between copies to where these are.
void tl_riscv64_relocate_end(struct tl_riscv64_relocator *r);

// A free register among those in `dead`, or X_ZERO if there is none.
unsigned tl_riscv64_register_take(tl_regset dead);

// What may be taken at all: not sp, gp, tp.
#define TL_RISCV64_USABLE                                                                          \
    (TL_REGSET_GENERAL & ~(TL_REGSET(X_ZERO) | TL_REGSET(X_SP) | TL_REGSET(X_GP) | TL_REGSET(X_TP)))

#endif

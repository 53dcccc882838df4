// Relocation of displaced instructions, inside the emitter.
#ifndef TL_ARCH_X86_64_RELOCATE_H
#define TL_ARCH_X86_64_RELOCATE_H

#include "arch/x86_64/writer.h"
#include "emit/emit.h"

// The next instruction is a fault point.
void tl_fault_point_add(struct tl_detour *out, const struct tl_writer *w, unsigned sp_words);

// Writes the displaced instructions of `in` behind what the writer holds, then the branch back;
// fills displaced and boundary of *out. An enum tl_refusal: NONE, or why one of them can't be moved
// here. With on_taken the first one's rel32 is left open: *taken is where it is written.
uint8_t tl_relocate_displaced(const struct tl_emit_in *in, struct tl_writer *w,
                              struct tl_detour *out, uint16_t *taken);

// The rest of a call that was made to the detour: goes to the true target. The return address is on
// the stack.
uint8_t tl_relocate_retargeted(const struct tl_emit_in *in, struct tl_writer *w,
                               struct tl_detour *out);

#endif

// Between the files of this instruction set; nobody else includes it.
#ifndef TL_ARCH_X86_64_X86_64_H
#define TL_ARCH_X86_64_X86_64_H

#include "emit/emit.h"

// emit.c: see arch.h.
int tl_x86_64_emit_detour(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                          struct tl_diag *diag);
bool tl_x86_64_emit_jump(tl_addr at, tl_addr to, uint8_t *out);
bool tl_x86_64_emit_short(tl_addr at, tl_addr to, uint8_t *out);
bool tl_x86_64_emit_retarget(const struct tl_insn *insn, tl_addr to, uint8_t *out);

#endif

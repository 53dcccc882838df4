// What the files of this folder share. Nothing outside it includes this; see arch.h.
#ifndef TL_ARCH_X86_64_X86_64_H
#define TL_ARCH_X86_64_X86_64_H

#include "arch/arch.h"

int tl_x86_64_decode(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out);
int tl_x86_64_skim(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out);
void tl_x86_64_print(const struct tl_insn *insn, char *buf, size_t size);
void tl_x86_64_define(const struct tl_insn *insn, unsigned reg, struct tl_definition *out);
void tl_x86_64_stack(const struct tl_insn *insn, struct tl_stack_step *out);
bool tl_x86_64_reads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth);
bool tl_x86_64_bound(const struct tl_insn *compare, const struct tl_insn *branch, bool taken, unsigned *reg,
                     uint64_t *count);
bool tl_x86_64_below(const struct tl_insn *insn, unsigned *reg, uint64_t *count);
// Name of the table row that described an instruction. Static storage.
const char *tl_x86_64_row_name(unsigned row);

int tl_x86_64_emit_detour(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                          struct tl_diag *diag);
bool tl_x86_64_emit_jump(tl_addr at, tl_addr to, uint8_t *out);
bool tl_x86_64_emit_short(tl_addr at, tl_addr to, uint8_t *out);
bool tl_x86_64_emit_retarget(const struct tl_insn *insn, tl_addr to, uint8_t *out);

bool tl_x86_64_simulation(const struct tl_insn *insn, struct tl_simulation *out);
bool tl_x86_64_simulation_alone(const struct tl_simulation *insn);

#endif

// What the files of this folder share. Nothing outside it includes this; see arch.h.
#ifndef TL_ARCH_RISCV64_RISCV64_H
#define TL_ARCH_RISCV64_RISCV64_H

#include "arch/arch.h"

int tl_riscv64_decode(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out);
int tl_riscv64_skim(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out);
void tl_riscv64_print(const struct tl_insn *insn, char *buf, size_t size);
void tl_riscv64_define(const struct tl_insn *insn, unsigned reg, struct tl_definition *out);
bool tl_riscv64_address(const struct tl_insn *insn, tl_addr *part, tl_addr *out);
bool tl_riscv64_below(const struct tl_insn *insn, unsigned *reg, uint64_t *count);
void tl_riscv64_stack(const struct tl_insn *insn, struct tl_stack_step *out);
// An addition of a constant, whatever its form (li, lui, auipc, mv, addi and their compressed kin): to = from + plus;
// from 0: plus alone. false: it is none.
struct tl_riscv64_addition {
    uint8_t to, from;
    int64_t plus;
};
bool tl_riscv64_addition(const struct tl_insn *insn, struct tl_riscv64_addition *out);
bool tl_riscv64_reads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth);
bool tl_riscv64_stores_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth,
                              int64_t *below);
bool tl_riscv64_loads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t *below);

int tl_riscv64_emit_detour(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                           struct tl_diag *diag);
bool tl_riscv64_emit_jump(tl_addr at, tl_addr to, uint8_t *out);
bool tl_riscv64_emit_short(tl_addr at, tl_addr to, uint8_t *out);
bool tl_riscv64_emit_far(tl_addr at, tl_addr to, unsigned reg, bool spill, uint8_t *out);
bool tl_riscv64_emit_reload(tl_addr at, tl_addr to, unsigned reg, bool falls_through, uint8_t *out);
bool tl_riscv64_emit_retarget(const struct tl_insn *insn, tl_addr to, uint8_t *out);

bool tl_riscv64_simulation(const struct tl_insn *insn, struct tl_simulation *out);
bool tl_riscv64_simulation_alone(const struct tl_simulation *insn);
// Freestanding: also in the agent.
bool tl_riscv64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                         const struct tl_simulate_memory *memory);

// The instruction's bits: 16 of them if it is compressed, the upper half then zero.
static inline uint32_t tl_riscv64_word(const struct tl_insn *insn)
{
    uint32_t word;
    __builtin_memcpy(&word, insn->bytes, sizeof word);
    return insn->size == 2 ? word & 0xffff : word;
}

#endif

// What the files of this folder share. Nothing outside it includes this; see arch.h.
#ifndef TL_ARCH_ARM64_ARM64_H
#define TL_ARCH_ARM64_ARM64_H

#include "arch/arch.h"

int tl_arm64_decode(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out);
int tl_arm64_skim(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out);
void tl_arm64_print(const struct tl_insn *insn, char *buf, size_t size);
void tl_arm64_define(const struct tl_insn *insn, unsigned reg, struct tl_definition *out);
bool tl_arm64_address(const struct tl_insn *insn, tl_addr *part, tl_addr *out);
bool tl_arm64_bound(const struct tl_insn *compare, const struct tl_insn *branch, bool taken, unsigned *reg,
                    uint64_t *count);
bool tl_arm64_below(const struct tl_insn *insn, unsigned *reg, uint64_t *count);
// A load or store that leaves its base register changed: by how much. false: it doesn't.
bool tl_arm64_writes_back(const struct tl_insn *insn, unsigned *base, int64_t *plus);
void tl_arm64_stack(const struct tl_insn *insn, struct tl_stack_step *out);
bool tl_arm64_reads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth);
bool tl_arm64_stores_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth,
                            int64_t *below);
bool tl_arm64_loads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t *below);

int tl_arm64_emit_detour(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                         struct tl_diag *diag);
bool tl_arm64_emit_jump(tl_addr at, tl_addr to, uint8_t *out);
bool tl_arm64_emit_retarget(const struct tl_insn *insn, tl_addr to, uint8_t *out);

bool tl_arm64_simulation(const struct tl_insn *insn, struct tl_simulation *out);
bool tl_arm64_simulation_alone(const struct tl_simulation *insn);
bool tl_arm64_simulation_slow(const struct tl_simulation *insn);
// Freestanding: also in the agent.
bool tl_arm64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                       const struct tl_simulate_memory *memory);

// The instruction's word.
static inline uint32_t tl_arm64_word(const struct tl_insn *insn)
{
    uint32_t word;
    __builtin_memcpy(&word, insn->bytes, sizeof word);
    return word;
}

#endif

// The vector registers of the processor that this is built for: how many, how long at most, and how many in a row are
// given the same bytes.
#ifndef TL_TESTS_VECTORS_H
#define TL_TESTS_VECTORS_H

#define VECTORS_REGS 32u
#define VECTORS_SIZE_MAX 8192u // bytes of one

#ifdef __aarch64__
#define VECTORS_GROUP 1u
#define VECTORS_HWCAP (UINT64_C(1) << 22) // HWCAP_SVE, asm/hwcap.h
#else
#define VECTORS_GROUP 8u
#define VECTORS_HWCAP (UINT64_C(1) << ('V' - 'A')) // COMPAT_HWCAP_ISA_V, asm/hwcap.h
#endif

#ifndef __ASSEMBLER__
#include <stdint.h>

// Sets every byte of each group of registers to seed + its index, counts spins down, and stores all registers. Returns
// bytes of a register; 0: what else belongs to them has changed.
uint64_t vectors_hold(uint8_t seed, uint64_t spins, uint8_t *out);
#endif

#endif

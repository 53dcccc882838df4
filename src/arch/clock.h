// The counter that detours stamp records with, as the controller reads it on the machine that it
// and its targets run on. Each src/arch/<isa>/clock.c has it.
#ifndef TL_ARCH_CLOCK_H
#define TL_ARCH_CLOCK_H

#include "base/types.h"

// Read after all that stands before it in the program, and before all that stands behind.
uint64_t tl_arch_ticks(void);
// Whether the processor promises that it goes on at one rate, asleep or not.
bool tl_arch_ticks_steady(void);

#endif

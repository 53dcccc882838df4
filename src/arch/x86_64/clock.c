// The time-stamp counter. It knows nothing of its rate.
//
// Invariant: no load or store of the caller moves across the reading.
#include "arch/clock.h"

#include <x86intrin.h>

uint64_t tl_arch_ticks(void)
{
    // RDTSC waits for nothing; LFENCE before it waits for earlier instructions, LFENCE behind it
    // holds later ones back (Intel SDM volume 2, RDTSC).
    _mm_lfence();
    uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
}

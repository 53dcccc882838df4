// The time-stamp counter. It knows nothing of its rate.
//
// Invariant: no load or store of the caller moves across the reading.
#include "arch/clock.h"

#include <cpuid.h>
#include <x86intrin.h>

// Intel SDM volume 3, "Invariant TSC": CPUID.80000007H:EDX[8].
#define CPUID_POWER 0x80000007u
#define POWER_EDX_INVARIANT (1u << 8)

bool tl_arch_ticks_steady(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(CPUID_POWER, &a, &b, &c, &d) && d & POWER_EDX_INVARIANT;
}

uint64_t tl_arch_ticks(void)
{
    // RDTSC waits for nothing; LFENCE before it waits for earlier instructions, LFENCE behind it
    // holds later ones back (Intel SDM volume 2, RDTSC).
    _mm_lfence();
    uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
}

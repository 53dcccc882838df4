// The generic timer's virtual count. It knows nothing of its rate.
//
// Invariant: no load or store of the caller moves across the reading.
#include "arch/clock.h"

// Arm ARM (DDI 0487), D11.1, "About the Generic Timer": one rate for the whole system, asleep or
// not.
bool tl_arch_ticks_steady(void)
{
    return true;
}

uint64_t tl_arch_ticks(void)
{
    uint64_t ticks;
    // D11.2.1: a counter may be read before earlier instructions and behind later ones, unless a
    // barrier stands between.
    __asm__ volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(ticks) : : "memory");
    return ticks;
}

// The time counter of the platform. It knows nothing of its rate.
//
// Invariant: no load or store of the caller moves across the reading.
#include "arch/clock.h"

// RISC-V ISA manual, volume I, "Zicntr": one constant rate, and all harts agree. Linux lets programs read it: its
// own vDSO does.
bool tl_arch_ticks_steady(void)
{
    return true;
}

uint64_t tl_arch_ticks(void)
{
    uint64_t ticks;
    // The same, "CSR Access Ordering": for a fence, reading the counter is input.
    __asm__ volatile("fence iorw, iorw; rdtime %0; fence iorw, iorw" : "=r"(ticks) : : "memory");
    return ticks;
}

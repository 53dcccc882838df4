// What the agent's C code leaves to instruction sets whose calls leave the return address in a register and whose
// counts are atomic adds, found by a thread's home. Included by their agent_isa.h, which has TL_AGENT_HEAD,
// tl_agent_thread_pointer_now and tl_agent_slow before.
#ifndef TL_ARCH_AGENT_LINKED_H
#define TL_ARCH_AGENT_LINKED_H

// Of functions that an entry calls. Here the compiler is told so for all of them (agent/meson.build): they
// keep every register but that of the result, two that entries work with, and the link.
#define TL_AGENT_KEEPS

// A part of a function that needs many registers: apart, so that the other parts' calls lie less deep.
#define TL_AGENT_APART __attribute__((noinline))

// Adds 1 to a word of the thread's own block. Atomically: other threads may have their home there.
static inline void tl_agent_own_add(uint64_t addr)
{
    __atomic_fetch_add((uint64_t *)(uintptr_t)addr, 1, __ATOMIC_RELAXED); // only summed
}

// Counts a hit of the calling thread as detours do (emit.c); true: done, or there is nothing to count in.
static inline bool tl_agent_count(uint32_t counter_off)
{
    uint64_t pointer = tl_agent_thread_pointer_now(TL_AGENT_HEAD(thread_pointer));
    uint64_t index = pointer >> (TL_AGENT_HEAD(homes_shift) & 63u) & (TL_HOMES - 1);
    const volatile uint64_t *homes =
        (const volatile uint64_t *)(uintptr_t)(TL_AGENT_HEAD(control_addr) + TL_HOMES_OFF);
    uint64_t block = homes[index];
    if (block)
        tl_agent_own_add(block + counter_off);
    else
        tl_agent_slow(counter_off, index);
    return true;
}

// System call numbers: Linux include/uapi/asm-generic/unistd.h.
enum {
    TL_CALL_SIGACTION = 134,
    TL_CALL_SIGPROCMASK = 135,
    TL_CALL_GETPID = 172,
    TL_CALL_GETTID = 178,
    TL_CALL_TGSIGQUEUEINFO = 240
};

// The return address is in the record frame. A stack pointer that is not aligned is no function's.
static inline bool tl_agent_return_readable(uint64_t sp)
{
    return sp % 16 == 0;
}

// From a function's stack pointer at its entry up to its frame's canonical address (DWARF's CFA).
#define TL_AGENT_CFA_OFF 0

#endif

// The agent on x86-64: registers, clock, system calls, where a return address lies. See arch/agent_isa.h.
#ifndef TL_ARCH_X86_64_AGENT_ISA_H
#define TL_ARCH_X86_64_AGENT_ISA_H

#include "arch/record_layout.h"
#include "arch/x86_64/signal_frame.h"
#include "arch/x86_64/simulate.h"
#include "arch/trampoline_layout.h"
#include "emit/emit.h"

// Of functions that an entry calls: they keep every register but the one of the result.
#define TL_AGENT_KEEPS __attribute__((no_caller_saved_registers))

// A part of a function that needs many registers. Here a call of it would cost more stack than it saves.
#define TL_AGENT_APART inline __attribute__((always_inline))

// A constant of the head, read where it is used: kept in registers they would cost stack.
#define TL_AGENT_HEAD(name)                                                                        \
    ({                                                                                             \
        uint64_t head_value;                                                                       \
        __asm__ volatile("mov tl_agent_" #name "(%%rip), %0" : "=r"(head_value));                  \
        head_value;                                                                                \
    })

_Static_assert(REC_TP_FS_WORD == TL_TP_FS_WORD, "record_layout.h");

// 0: threads can't be told apart in this way.
static inline uint64_t tl_agent_thread_pointer_now(uint64_t way)
{
    uint64_t value = 0;
    if (way == TL_TP_FS_WORD)
        __asm__ volatile("mov %%fs:0, %0" : "=r"(value));
    else if (way == TL_TP_FSBASE)
        __asm__ volatile("rdfsbase %0" : "=r"(value));
    return value;
}

static inline uint64_t tl_agent_ticks(void)
{
    return __builtin_ia32_rdtsc();
}

// 10 to 140 cycles (Intel's optimization manual, "PAUSE latency").
static inline void tl_agent_pause(void)
{
    __builtin_ia32_pause();
}

// Adds 1 to a word of the thread's own block, which only its own signal handlers change too: one
// instruction, so that they can't come between load and store.
static inline void tl_agent_own_add(uint64_t addr)
{
    __asm__ volatile("incq (%0)" : : "r"(addr) : "memory", "cc");
}

// System call numbers: Linux arch/x86/entry/syscalls/syscall_64.tbl.
enum {
    TL_CALL_SIGACTION = 13,
    TL_CALL_SIGPROCMASK = 14,
    TL_CALL_GETPID = 39,
    TL_CALL_GETTID = 186,
    TL_CALL_TGSIGQUEUEINFO = 297
};

static inline int64_t tl_agent_system_call(uint64_t number, uint64_t a, uint64_t b, uint64_t c,
                                           uint64_t d)
{
    int64_t result = (int64_t)number;
    register uint64_t r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

// Whether the place of a return address at stack pointer sp may be read: a stack pointer at a page's
// start may be a stack's very end, with nothing on it.
static inline bool tl_agent_return_readable(uint64_t sp)
{
    return sp % sizeof(uint64_t) == 0 && sp % TL_PAGE_SIZE != 0;
}

// Counts a hit of the calling thread; false: not done, the record's entry is as short.
static inline bool tl_agent_count(uint32_t counter_off)
{
    (void)counter_off;
    return false;
}

// From a function's stack pointer at its entry up to its frame's canonical address (DWARF's CFA).
#define TL_AGENT_CFA_OFF 8

// What is simulated most, without a call: here nothing.
static inline bool tl_agent_simulate_usual(const struct tl_simulation *insn,
                                           struct tl_simulate_state *state,
                                           const struct tl_signal_context *context)
{
    (void)insn, (void)state, (void)context;
    return false;
}

#define tl_agent_simulate tl_x86_64_simulate
#define tl_agent_simulate_taken tl_x86_64_simulate_taken

#endif

// The agent on riscv64: registers, clock, system calls, where a return address lies. See arch/agent_isa.h.
#ifndef TL_ARCH_RISCV64_AGENT_ISA_H
#define TL_ARCH_RISCV64_AGENT_ISA_H

#include "arch/record_layout.h"
#include "arch/riscv64/signal_frame.h"
#include "arch/riscv64/simulate.h"
#include "arch/trampoline_layout.h"
#include "emit/emit.h"

// A constant of the head, read where it is used: kept in registers they would cost stack.
#define TL_AGENT_HEAD(name)                                                                        \
    ({                                                                                             \
        uint64_t head_value;                                                                       \
        __asm__ volatile("ld %0, tl_agent_" #name : "=r"(head_value));                             \
        head_value;                                                                                \
    })

// 0: threads can't be told apart in this way.
static inline uint64_t tl_agent_thread_pointer_now(uint64_t way)
{
    uint64_t value = 0;
    if (way == TL_TP_TP)
        __asm__ volatile("mv %0, tp" : "=r"(value));
    return value;
}

// RISC-V unprivileged manual, "Zicntr": the same for all harts, but for a tick.
static inline uint64_t tl_agent_ticks(void)
{
    uint64_t ticks;
    __asm__ volatile("rdtime %0" : "=r"(ticks));
    return ticks;
}

// Zihintpause: a fence that orders nothing to processors that don't know it.
static inline void tl_agent_pause(void)
{
    __asm__ volatile(".word 0x0100000f" : : : "memory");
}

static inline void tl_agent_slow(uint32_t counter_off, uint64_t index)
{
    register uint64_t t0 __asm__("t0") = counter_off;
    register uint64_t t1 __asm__("t1") = index;
    __asm__ volatile("jal tl_agent_slow_count" : "+r"(t0), "+r"(t1) : : "ra", "memory");
}

#include "arch/agent_linked.h"

static inline int64_t tl_agent_system_call(uint64_t number, uint64_t a, uint64_t b, uint64_t c,
                                           uint64_t d)
{
    register uint64_t a7 __asm__("a7") = number;
    register uint64_t a0 __asm__("a0") = a;
    register uint64_t a1 __asm__("a1") = b;
    register uint64_t a2 __asm__("a2") = c;
    register uint64_t a3 __asm__("a3") = d;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3) : "memory");
    return (int64_t)a0;
}

// What is simulated most, without a call: nop, and the stack pointer's move at a function's entry.
static inline bool tl_agent_simulate_usual(const struct tl_simulation *insn,
                                           struct tl_simulate_state *state,
                                           const struct tl_signal_context *context)
{
    (void)context;
    if (insn->kind == SIMULATE_ADD && insn->reg == 2 && insn->base == 2)
        state->general[2] += insn->value;
    else if (insn->kind != SIMULATE_NOP)
        return false;
    state->general[TL_RISCV64_PC] = insn->next;
    return true;
}

#define tl_agent_simulate tl_riscv64_simulate
#define tl_agent_simulate_taken tl_riscv64_simulate_taken

#endif

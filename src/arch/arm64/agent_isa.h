// The agent on arm64: registers, clock, system calls, where a return address lies. See arch/agent_isa.h.
#ifndef TL_ARCH_ARM64_AGENT_ISA_H
#define TL_ARCH_ARM64_AGENT_ISA_H

#include "arch/record_layout.h"
#include "arch/arm64/signal_frame.h"
#include "arch/arm64/simulate.h"
#include "arch/trampoline_layout.h"
#include "emit/emit.h"

// A constant of the head, read where it is used: kept in registers they would cost stack.
#define TL_AGENT_HEAD(name)                                                                        \
    ({                                                                                             \
        uint64_t head_value;                                                                       \
        __asm__ volatile("ldr %0, tl_agent_" #name : "=r"(head_value));                            \
        head_value;                                                                                \
    })

// 0: threads can't be told apart in this way.
static inline uint64_t tl_agent_thread_pointer_now(uint64_t way)
{
    uint64_t value = 0;
    if (way == TL_TP_TPIDR)
        __asm__ volatile("mrs %0, tpidr_el0" : "=r"(value));
    return value;
}

static inline uint64_t tl_agent_ticks(void)
{
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}

// `yield` does nothing on most processors; a barrier takes some tens of cycles.
static inline void tl_agent_pause(void)
{
    __asm__ volatile("isb" : : : "memory");
}

static inline void tl_agent_slow(uint32_t counter_off, uint64_t index)
{
    register uint64_t x16 __asm__("x16") = counter_off;
    register uint64_t x17 __asm__("x17") = index;
    __asm__ volatile("bl tl_agent_slow_count" : "+r"(x16), "+r"(x17) : : "x30", "memory");
}

#include "arch/agent_linked.h"

static inline int64_t tl_agent_system_call(uint64_t number, uint64_t a, uint64_t b, uint64_t c,
                                           uint64_t d)
{
    register uint64_t x8 __asm__("x8") = number;
    register uint64_t x0 __asm__("x0") = a;
    register uint64_t x1 __asm__("x1") = b;
    register uint64_t x2 __asm__("x2") = c;
    register uint64_t x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return (int64_t)x0;
}

// What is simulated most, without a call: nop, and a push of two registers, whose place is the kernel's
// frame record. false: nothing was done.
static inline bool tl_agent_simulate_usual(const struct tl_simulation *insn,
                                           struct tl_simulate_state *state,
                                           const struct tl_signal_context *context)
{
    if (insn->guarded && state->flags & TL_PSTATE_BTYPE)
        return false;
    if (insn->kind == SIMULATE_PAIR && insn->operand == TRANSFER_PUSH) {
        uint64_t sp = tl_frame_look(context).sp; // the frame's alignment is the stack pointer's then
        if (sp == 0)
            return false;
        __asm__ volatile("stp %0, %1, [%2, #-16]" // as a whole, as the program's own
                         :
                         : "r"(state->general[insn->reg]), "r"(state->general[insn->reg2]), "r"(sp)
                         : "memory");
        state->general[31] = sp - 16;
    } else if (insn->kind != SIMULATE_NOP) {
        return false;
    }
    state->flags &= ~TL_PSTATE_BTYPE; // a function's first instruction may have been called by blr
    state->pc = insn->next;
    return true;
}

#define tl_agent_simulate tl_arm64_simulate
#define tl_agent_simulate_taken tl_arm64_simulate_taken

#endif

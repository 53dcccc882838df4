// What the kernel puts on the stack for a signal handler on x86-64, as far as the agent reads it.
// Freestanding: the agent is built without the kernel's headers.
//
//   sp at the handler's entry -> | restorer | ucontext | siginfo | ... | FPU state
//
// Linux arch/x86/include/asm/sigframe.h (struct rt_sigframe), include/uapi/asm/sigcontext.h
// (struct sigcontext_64), include/uapi/asm-generic/ucontext.h; the same since x86-64 came to Linux.
#ifndef TL_ARCH_X86_64_SIGNAL_FRAME_H
#define TL_ARCH_X86_64_SIGNAL_FRAME_H

#include "arch/simulate.h"

struct tl_signal_context {
    uint64_t flags, link;
    uint64_t stack[3];
    uint64_t general[15]; // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx
    uint64_t sp, pc;
    uint64_t rest[15]; // flags, segments, error, trap number, masks, cr2, FPU state, reserved
    uint64_t mask;
};

struct tl_signal_info {
    int32_t number, error, code, padding;
    uint64_t addr; // of faults
};

struct tl_signal_frame {
    uint64_t restorer;
    struct tl_signal_context context;
    struct tl_signal_info info; // filled only for a handler with SA_SIGINFO
};

_Static_assert(offsetof(struct tl_signal_frame, info) == 8 + 304, "struct rt_sigframe");
_Static_assert(offsetof(struct tl_signal_context, pc) == 168, "struct ucontext");

// Indices of struct tl_signal_context.rest.
enum { TL_CONTEXT_FLAGS = 0, TL_CONTEXT_FPSTATE = 6 };

// A breakpoint's signal, and the code that it has (SI_KERNEL, include/uapi/asm-generic/siginfo.h),
// also where the kernel looked for a uprobe first (Linux arch/x86/kernel/traps.c, do_int3_user;
// kernel/events/uprobes.c, handle_swbp). The pc lies behind it.
enum { TL_SIGNAL_TRAP = 5, TL_SIGNAL_CODE_BREAKPOINT = 0x80, TL_SIGNAL_BREAKPOINT_PC = 1 };

static inline bool tl_signal_breakpoint(uint32_t code)
{
    return code == TL_SIGNAL_CODE_BREAKPOINT;
}

// Signal numbers of faults (include/uapi/asm/signal.h).
enum { TL_SIGNAL_ILL = 4, TL_SIGNAL_BUS = 7, TL_SIGNAL_FPE = 8, TL_SIGNAL_SEGV = 11 };

// At a handler's entry: whether its arguments are those that the kernel gives for this frame.
// Below this word, which a return address always is, nothing has been looked at yet.
static inline bool tl_frame_passed(const struct tl_signal_frame *frame,
                                   const struct tl_signal_info *info,
                                   const struct tl_signal_context *context)
{
    return context == &frame->context && info == &frame->info;
}

// Where the handler returns to; no register says it (link).
static inline uint64_t tl_frame_restorer(const struct tl_signal_frame *frame, uint64_t link)
{
    (void)link;
    return frame->restorer;
}

// Whether the info was filled in. Without SA_SIGINFO it is left as it was.
static inline bool tl_frame_informed(const struct tl_signal_frame *frame,
                                     const struct tl_signal_info *info, uint64_t sig)
{
    (void)info;
    return (uint32_t)frame->info.number == sig;
}

// The kernel's order: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx (struct sigcontext_64).
static inline struct tl_simulate_state *tl_context_load(const struct tl_signal_context *context,
                                                        const struct tl_simulation *simulation,
                                                        struct tl_simulate_state *state)
{
    (void)simulation;
    static const uint8_t number_of[15] = {8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1};
    for (unsigned i = 0; i < 15; i++)
        state->general[number_of[i]] = context->general[i];
    state->general[4] = context->sp;
    state->pc = context->pc;
    state->flags = context->rest[TL_CONTEXT_FLAGS];
    state->vector = NULL;
    return state;
}

// No simulator changes flags.
static inline void tl_context_store(const struct tl_simulate_state *state,
                                    struct tl_signal_context *context)
{
    static const uint8_t number_of[15] = {8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1};
    for (unsigned i = 0; i < 15; i++)
        context->general[i] = state->general[number_of[i]];
    context->sp = state->general[4];
    context->pc = state->pc;
}

static inline void tl_context_go(struct tl_simulate_state *state, uint64_t pc)
{
    state->pc = pc;
}

// ---- memory that can't fault --------------------------------------------------------------------

// The part of the signal frame that lies highest: what FXSAVE stores, and how much lies behind it
// (Linux arch/x86/include/uapi/asm/sigcontext.h, struct _fpx_sw_bytes). The kernel writes its last
// word.
#define TL_FXSAVE_SIZE 512u
#define TL_FXSAVE_SOFTWARE 464u
#define TL_FXSAVE_MAGIC 0x46505853u

struct tl_frame_view {
    uint64_t end;  // of all that the kernel wrote
    uint64_t page; // that it has written to, and that may go on behind the end
};

static inline struct tl_frame_view tl_frame_look(const struct tl_signal_context *context)
{
    uint64_t state = context->rest[TL_CONTEXT_FPSTATE];
    struct tl_frame_view view;
    if (state == 0) { // no such thing: then only the frame itself
        view.end = (uintptr_t)context + sizeof *context + sizeof(struct tl_signal_info);
    } else {
        const uint32_t *software = (const uint32_t *)(uintptr_t)(state + TL_FXSAVE_SOFTWARE);
        view.end = state + (software[0] == TL_FXSAVE_MAGIC ? software[1] : TL_FXSAVE_SIZE);
    }
    view.page = tl_page_down(view.end - 1);
    return view;
}

static inline bool tl_frame_proves(const struct tl_frame_view *view, uint64_t addr, size_t size)
{
    return addr >= view->end && tl_page_down(addr) == view->page &&
           tl_page_down(addr + size - 1) == view->page;
}

// What a simulator reads and writes by (struct tl_simulate_memory); opaque is the view.
static inline bool tl_frame_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    if (size != sizeof(uint64_t) || !tl_frame_proves(opaque, addr, size))
        return false;
    *(uint64_t *)buf = *(const volatile uint64_t *)(uintptr_t)addr;
    return true;
}

static inline bool tl_frame_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    if (size != sizeof(uint64_t) || !tl_frame_proves(opaque, addr, size))
        return false;
    *(volatile uint64_t *)(uintptr_t)addr = *(const uint64_t *)buf;
    return true;
}

#endif

// What the kernel puts on the stack for a signal handler on riscv64, as far as the agent reads it.
// Freestanding: the agent is built without the kernel's headers.
//
//   sp at the handler's entry -> | siginfo 128 | ucontext ... | more state | <- sp before, down to 16 bytes
//
// ra holds where the handler returns to, which is the kernel's own: no program says it here. Only with SA_SIGINFO
// is the info filled in, and do a1 and a2 hold the addresses of it and of the context. The floating-point state
// ends in the head of a first record of more state (vectors, since 6.5); each is followed by another head, up to
// one with magic 0, which the kernel writes last. Older kernels write zeros there: the same. On an alternate stack
// the stack pointer before was elsewhere.
//
// Linux arch/riscv/kernel/signal.c (struct rt_sigframe, setup_sigcontext, get_sigframe),
// include/uapi/asm/sigcontext.h, include/uapi/asm/ptrace.h, include/uapi/asm/ucontext.h.
#ifndef TL_ARCH_RISCV64_SIGNAL_FRAME_H
#define TL_ARCH_RISCV64_SIGNAL_FRAME_H

#include "arch/riscv64/simulate.h"

struct tl_context_record {
    uint32_t magic, size;
};

struct tl_signal_context {
    uint64_t flags, link;
    uint64_t stack[3];
    uint64_t mask;
    uint64_t unused[16];
    union {
        struct {
            uint64_t pc, ra, sp, general[29]; // gp, tp, t0 ...
            uint64_t fp[64];                  // registers and fcsr, in one of three sizes
            uint32_t fcsr, reserved;
            struct tl_context_record record; // the first
        };
        struct tl_simulate_state state; // the registers: general[0] is the pc
    };
};

struct tl_signal_info {
    int32_t number, error, code, padding;
    uint64_t addr; // of faults
    uint64_t rest[13];
};

struct tl_signal_frame {
    struct tl_signal_info info; // filled only for a handler with SA_SIGINFO
    struct tl_signal_context context;
};

_Static_assert(offsetof(struct tl_signal_frame, context) == 128, "struct rt_sigframe");
_Static_assert(offsetof(struct tl_signal_context, pc) == 176, "struct ucontext");
_Static_assert(offsetof(struct tl_signal_context, fp) == 176 + 256, "struct sigcontext");
_Static_assert(offsetof(struct tl_signal_context, state.general[TL_RISCV64_PC]) ==
                       offsetof(struct tl_signal_context, pc) &&
                   offsetof(struct tl_signal_context, state.general[2]) ==
                       offsetof(struct tl_signal_context, sp),
               "struct user_regs_struct");
_Static_assert(offsetof(struct tl_signal_context, record) == 176 + 256 + 520, "struct sigcontext");
_Static_assert(sizeof(struct tl_signal_frame) == 1088, "struct rt_sigframe");

// A breakpoint's signal, and the code that it has (TRAP_BRKPT, include/uapi/asm-generic/siginfo.h; Linux
// arch/riscv/kernel/traps.c, handle_break), or SI_KERNEL: where a uprobe is or was in the process, uprobes see
// each breakpoint first and send the signal (Linux 6.12, kernel/events/uprobes.c, handle_swbp). The pc is that
// of the breakpoint.
enum {
    TL_SIGNAL_TRAP = 5,
    TL_SIGNAL_CODE_BREAKPOINT = 1,
    TL_SIGNAL_CODE_KERNEL = 0x80,
    TL_SIGNAL_BREAKPOINT_PC = 0
};

static inline bool tl_signal_breakpoint(uint32_t code)
{
    return code == TL_SIGNAL_CODE_BREAKPOINT || code == TL_SIGNAL_CODE_KERNEL;
}

// Signal numbers of faults (include/uapi/asm-generic/signal.h).
enum { TL_SIGNAL_ILL = 4, TL_SIGNAL_BUS = 7, TL_SIGNAL_FPE = 8, TL_SIGNAL_SEGV = 11 };

// At a handler's entry: nothing to see before the link register is looked at. What returns to the
// kernel's restorer with this stack pointer has its frame there.
static inline bool tl_frame_passed(const struct tl_signal_frame *frame,
                                   const struct tl_signal_info *info,
                                   const struct tl_signal_context *context)
{
    (void)frame, (void)info, (void)context;
    return true;
}

static inline uint64_t tl_frame_restorer(const struct tl_signal_frame *frame, uint64_t link)
{
    (void)frame;
    return link;
}

// Whether the info was filled in.
static inline bool tl_frame_informed(const struct tl_signal_frame *frame,
                                     const struct tl_signal_info *info, uint64_t sig)
{
    return info == &frame->info && (uint32_t)info->number == sig;
}

// The registers where they are.
static inline struct tl_simulate_state *tl_context_load(struct tl_signal_context *context,
                                                        const struct tl_simulation *simulation,
                                                        struct tl_simulate_state *copy)
{
    (void)simulation, (void)copy;
    return &context->state;
}

static inline void tl_context_store(const struct tl_simulate_state *state,
                                    struct tl_signal_context *context)
{
    (void)state, (void)context;
}

static inline void tl_context_go(struct tl_simulate_state *state, uint64_t pc)
{
    state->general[TL_RISCV64_PC] = pc;
}

// ---- memory that can't fault --------------------------------------------------------------------

#define TL_CONTEXT_ALIGN 16u
#define TL_CONTEXT_RECORDS_MAX 8u // kinds of more state
#define TL_CONTEXT_RECORD_SIZE_MAX (262144u + 256u) // 32 vectors of 65536 bits, and what goes with them

// Where the kernel has just written the end of the records, right below the program's stack pointer.
struct tl_frame_view {
    uint64_t end; // of the frame; 0: it is not right below
};

// A record that lies above the stack pointer is none of a frame that lies below it, and is not read.
static inline struct tl_frame_view tl_frame_look(const struct tl_signal_context *context)
{
    const struct tl_context_record *record = &context->record;
    struct tl_frame_view view = {0};
    for (unsigned i = 0; i < TL_CONTEXT_RECORDS_MAX && (uintptr_t)record < context->sp; i++) {
        if (record->magic == 0) {
            uint64_t end = (uintptr_t)record + sizeof *record + TL_CONTEXT_ALIGN - 1;
            end &= ~(uint64_t)(TL_CONTEXT_ALIGN - 1);
            if (context->sp >= end && context->sp - end < TL_CONTEXT_ALIGN)
                view.end = end;
            break;
        }
        if (record->size < sizeof *record || record->size > TL_CONTEXT_RECORD_SIZE_MAX)
            break;
        record = (const struct tl_context_record *)((uintptr_t)record + record->size);
    }
    return view;
}

// In the page that the record's end lies in: 16 bytes hold both.
static inline bool tl_frame_proves(const struct tl_frame_view *view, uint64_t addr, size_t size)
{
    uint64_t page = tl_page_down(view->end - 1);
    return view->end != 0 && addr >= view->end && tl_page_down(addr) == page &&
           tl_page_down(addr + size - 1) == page;
}

// What a simulator reads and writes by (struct tl_simulate_memory); opaque is the view. Only words that are
// aligned (simulate.c).
static inline bool tl_frame_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    if (size != sizeof(uint64_t) || !tl_frame_proves((const struct tl_frame_view *)opaque, addr, size))
        return false;
    *(uint64_t *)buf = *(const volatile uint64_t *)(uintptr_t)addr;
    return true;
}

static inline bool tl_frame_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    if (size != sizeof(uint64_t) || !tl_frame_proves((const struct tl_frame_view *)opaque, addr, size))
        return false;
    *(volatile uint64_t *)(uintptr_t)addr = *(const uint64_t *)buf;
    return true;
}

#endif

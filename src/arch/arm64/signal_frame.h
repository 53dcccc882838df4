// What the kernel puts on the stack for a signal handler on arm64, as far as the agent reads it.
// Freestanding: the agent is built without the kernel's headers.
//
//   sp at the handler's entry -> | siginfo 128 | ucontext ... records, 4096 | frame record 16 | <- sp before
//
// x30 holds where the handler returns to. Only with SA_SIGINFO is the info filled in, and do x1 and x2
// hold the addresses of it and of the context. Between the last record and the frame record, and in that,
// nothing is read when the handler returns. On an alternate stack, or where there are more records than fit,
// the stack pointer before was elsewhere.
//
// Linux arch/arm64/kernel/signal.c (struct rt_sigframe, setup_rt_frame), include/uapi/asm/sigcontext.h,
// include/uapi/asm/ucontext.h; the same since 4.13 (before that no extra records).
#ifndef TL_ARCH_ARM64_SIGNAL_FRAME_H
#define TL_ARCH_ARM64_SIGNAL_FRAME_H

#include "arch/arm64/simulate.h"

#define TL_CONTEXT_RECORDS_SIZE 4096u

struct tl_signal_context {
    uint64_t flags, link;
    uint64_t stack[3];
    uint64_t mask;
    uint64_t unused[16];
    uint64_t fault_addr;
    union {
        struct {
            uint64_t general[31];
            uint64_t sp, pc, pstate, padding;
        };
        struct tl_simulate_state state; // the same words; the kernel reads no padding
    };
    uint8_t records[TL_CONTEXT_RECORDS_SIZE]; // struct tl_context_record, up to one with magic 0
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
_Static_assert(offsetof(struct tl_signal_context, fault_addr) == 176, "struct ucontext");
_Static_assert(offsetof(struct tl_signal_context, pc) == 440, "struct sigcontext");
_Static_assert(offsetof(struct tl_signal_context, state.general[31]) ==
                   offsetof(struct tl_signal_context, sp),
               "struct sigcontext");
_Static_assert(offsetof(struct tl_signal_context, state.pc) == offsetof(struct tl_signal_context, pc),
               "struct sigcontext");
_Static_assert(offsetof(struct tl_signal_context, state.flags) ==
                   offsetof(struct tl_signal_context, pstate),
               "struct sigcontext");
_Static_assert(offsetof(struct tl_signal_context, records) == 464, "struct sigcontext");
_Static_assert(sizeof(struct tl_signal_frame) == 4688, "struct rt_sigframe");

struct tl_context_record {
    uint32_t magic, size;
};
#define TL_RECORD_FPSIMD 0x46508001u // fpsr, fpcr, then v0 to v31
#define TL_RECORD_FPSIMD_SIZE 528u
#define TL_RECORD_SVE 0x53564501u // with registers, if larger than its head
#define TL_RECORD_SVE_HEAD 16u
#define TL_RECORD_EXTRA 0x45585401u // more records elsewhere

// A breakpoint's signal, and the code that it has (TRAP_BRKPT, include/uapi/asm-generic/siginfo.h); of all
// kernels, and of brk with any number that none of its own hooks asks for (arch/arm64/include/asm/
// brk-imm.h). The pc is that of the breakpoint.
enum { TL_SIGNAL_TRAP = 5, TL_SIGNAL_CODE_BREAKPOINT = 1, TL_SIGNAL_BREAKPOINT_PC = 0 };

static inline bool tl_signal_breakpoint(uint32_t code)
{
    return code == TL_SIGNAL_CODE_BREAKPOINT;
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

// The link register may be signed: hint #7 is xpaclri, which takes the signature off x30, and nothing
// where there are no signatures.
static inline uint64_t tl_frame_restorer(const struct tl_signal_frame *frame, uint64_t link)
{
    register uint64_t x30 __asm__("x30") = link;
    (void)frame;
    __asm__("hint #7" : "+r"(x30));
    return x30;
}

// Whether the info was filled in.
static inline bool tl_frame_informed(const struct tl_signal_frame *frame,
                                     const struct tl_signal_info *info, uint64_t sig)
{
    return info == &frame->info && (uint32_t)info->number == sig;
}

// The first record with that magic; that with magic 0 ends them. NULL: there is none, or the records are
// not what they should be.
static inline struct tl_context_record *tl_context_find(const struct tl_signal_context *context,
                                                        uint32_t magic)
{
    uint32_t at = 0;
    while (at <= TL_CONTEXT_RECORDS_SIZE - sizeof(struct tl_context_record)) {
        const struct tl_context_record *record =
            (const struct tl_context_record *)(const void *)(context->records + at);
        if (record->magic == magic)
            return (struct tl_context_record *)(uintptr_t)record;
        if (record->magic == 0 || record->size < 16 || record->size % 16 != 0 ||
            record->size > TL_CONTEXT_RECORDS_SIZE)
            break;
        at += record->size;
    }
    return NULL;
}

// v0 to v31, where they alone are what is given back. Where the larger registers are in use, writing a vector
// register would have to clear their rest too.
static inline uint8_t (*tl_context_vectors(const struct tl_signal_context *context))[16]
{
    const struct tl_context_record *large = tl_context_find(context, TL_RECORD_SVE);
    struct tl_context_record *record = tl_context_find(context, TL_RECORD_FPSIMD);
    if (!record || record->size != TL_RECORD_FPSIMD_SIZE ||
        (large && large->size > TL_RECORD_SVE_HEAD) || tl_context_find(context, TL_RECORD_EXTRA))
        return NULL;
    return (uint8_t(*)[16])(void *)((uint8_t *)record + 16);
}

// The registers where they are; the vectors are looked for only where the instruction moves one.
static inline struct tl_simulate_state *tl_context_load(struct tl_signal_context *context,
                                                        const struct tl_simulation *simulation,
                                                        struct tl_simulate_state *copy)
{
    (void)copy;
    context->state.vector =
        simulation->operand & TRANSFER_VECTOR ? tl_context_vectors(context) : NULL;
    return &context->state;
}

static inline void tl_context_store(const struct tl_simulate_state *state,
                                    struct tl_signal_context *context)
{
    (void)state, (void)context;
}

static inline void tl_context_go(struct tl_simulate_state *state, uint64_t pc)
{
    state->pc = pc;
}

// ---- memory that can't fault --------------------------------------------------------------------

// The kernel has just written the frame record, right below the stack pointer, and the end of the records.
struct tl_frame_view {
    const struct tl_signal_context *context;
    uint64_t sp; // of the program; 0: the frame is not right below it
};

static inline struct tl_frame_view tl_frame_look(const struct tl_signal_context *context)
{
    uint64_t behind = (uintptr_t)context + sizeof *context + TL_FRAME_RECORD_SIZE;
    return (struct tl_frame_view){context, context->sp == behind ? behind : 0};
}

// From here up to the stack pointer nothing is read again; 0: not known. Apart: few ask, and registers that
// it needs would be saved for all.
__attribute__((noinline)) static uint64_t tl_frame_free(const struct tl_frame_view *view)
{
    uint32_t at = 0;
    while (at <= TL_CONTEXT_RECORDS_SIZE - sizeof(struct tl_context_record)) {
        const struct tl_context_record *record =
            (const struct tl_context_record *)(const void *)(view->context->records + at);
        if (record->magic == 0)
            return (uintptr_t)record + sizeof *record;
        if (record->magic == TL_RECORD_EXTRA || record->size < 16 || record->size % 16 != 0 ||
            record->size > TL_CONTEXT_RECORDS_SIZE)
            break;
        at += record->size;
    }
    return 0;
}

// The pages of the bytes: that of the frame record, or that of the records' end.
static inline bool tl_frame_proves(uint64_t written, uint64_t addr, size_t size)
{
    uint64_t page = tl_page_down(written - 1);
    return tl_page_down(addr) == page && tl_page_down(addr + size - 1) == page;
}

static inline bool tl_frame_readable(const struct tl_frame_view *view, uint64_t addr, size_t size)
{
    return view->sp != 0 && addr >= view->sp && tl_frame_proves(view->sp, addr, size);
}

// What lies no lower than the frame record is free whatever the records are.
static inline bool tl_frame_writable(const struct tl_frame_view *view, uint64_t addr, size_t size)
{
    if (view->sp == 0)
        return false;
    if (addr >= view->sp - TL_FRAME_RECORD_SIZE)
        return tl_frame_proves(view->sp, addr, size);
    uint64_t free = tl_frame_free(view), last = addr + size - 1;
    return free != 0 && addr >= free &&
           (tl_frame_proves(view->sp, addr, 1) || tl_frame_proves(free, addr, 1)) &&
           (tl_frame_proves(view->sp, last, 1) || tl_frame_proves(free, last, 1));
}

// What a simulator reads and writes by (struct tl_simulate_memory); opaque is the view. With the
// instructions that the program's own are of, so that what is seen as a whole stays so.
static inline bool tl_frame_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    const struct tl_frame_view *view = (const struct tl_frame_view *)opaque;
    uint64_t *out = (uint64_t *)buf, low, high;
    if (!tl_frame_readable(view, addr, size))
        return false;
    if (size == 4) {
        *(uint32_t *)buf = *(const volatile uint32_t *)(uintptr_t)addr;
        return true;
    }
    if (size == 8 && addr % 8 == 0) {
        *out = *(const volatile uint64_t *)(uintptr_t)addr;
        return true;
    }
    if (size == 8) {
        __asm__ volatile("ldp %w0, %w1, [%2]" : "=&r"(low), "=r"(high) : "r"(addr) : "memory");
        *out = low | high << 32;
        return true;
    }
    for (size_t i = 0; i < size / 16; i++, addr += 16, out += 2)
        __asm__ volatile("ldp %0, %1, [%2]" : "=&r"(out[0]), "=r"(out[1]) : "r"(addr) : "memory");
    return true;
}

static inline bool tl_frame_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    const struct tl_frame_view *view = (const struct tl_frame_view *)opaque;
    const uint64_t *in = (const uint64_t *)buf;
    if (!tl_frame_writable(view, addr, size))
        return false;
    if (size == 4) {
        *(volatile uint32_t *)(uintptr_t)addr = *(const uint32_t *)buf;
        return true;
    }
    if (size == 8 && addr % 8 == 0) {
        *(volatile uint64_t *)(uintptr_t)addr = *in;
        return true;
    }
    if (size == 8) {
        __asm__ volatile("stp %w0, %w1, [%2]" : : "r"(*in), "r"(*in >> 32), "r"(addr) : "memory");
        return true;
    }
    for (size_t i = 0; i < size / 16; i++, addr += 16, in += 2)
        __asm__ volatile("stp %0, %1, [%2]" : : "r"(in[0]), "r"(in[1]), "r"(addr) : "memory");
    return true;
}

#endif

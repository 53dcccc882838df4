// What the kernel puts on the stack for a signal handler on x86-64, as far as the agent reads it.
// Freestanding: the agent is built without the kernel's headers.
//
//   sp at the handler's entry -> | restorer | ucontext | siginfo | ...
//
// Linux arch/x86/include/asm/sigframe.h (struct rt_sigframe), include/uapi/asm/sigcontext.h
// (struct sigcontext_64), include/uapi/asm-generic/ucontext.h; the same since x86-64 came to Linux.
#ifndef TL_ARCH_X86_64_SIGNAL_FRAME_H
#define TL_ARCH_X86_64_SIGNAL_FRAME_H

#include "base/types.h"

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

// A breakpoint's signal, and the code that it has (SI_KERNEL, include/uapi/asm-generic/siginfo.h).
enum { TL_SIGNAL_TRAP = 5, TL_SIGNAL_CODE_KERNEL = 0x80 };

// Signal numbers of faults (include/uapi/asm/signal.h).
enum { TL_SIGNAL_ILL = 4, TL_SIGNAL_BUS = 7, TL_SIGNAL_FPE = 8, TL_SIGNAL_SEGV = 11 };

#endif

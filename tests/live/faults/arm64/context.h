// What a handler of arm64 sees and changes.
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define INFO_ALWAYS 0 // also for a handler without SA_SIGINFO

static inline uintptr_t context_pc(const ucontext_t *context)
{
    return context->uc_mcontext.pc;
}

static inline void context_pc_add(ucontext_t *context, int bytes)
{
    context->uc_mcontext.pc += (unsigned long long)bytes;
}

static inline uintptr_t context_sp(const ucontext_t *context)
{
    return context->uc_mcontext.sp;
}

// Nothing here fails for a register.
static inline void context_fix(ucontext_t *context)
{
    (void)context;
}

// Calls it with an argument; *sp is the stack pointer at its entry.
static inline long form_call(void (*entry)(void), const unsigned char *at, long *sp)
{
    register uintptr_t x0 __asm__("x0") = (uintptr_t)at;
    register void (*x16)(void) __asm__("x16") = entry;
    __asm__ volatile("mov x17, sp\n\t"
                     "str x17, %2\n\t"
                     "blr x16"
                     : "+r"(x0), "+r"(x16), "=m"(*sp)
                     :
                     : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12",
                       "x13", "x14", "x15", "x17", "x30", "v0", "memory", "cc");
    return (long)x0;
}

// Code that jumps to `to`: ldr x16, 1f; br x16; 1: .quad to. Returns its size.
static inline size_t jump_make(unsigned char *at, uintptr_t to)
{
    const uint32_t code[] = {0x58000050, 0xd61f0200};
    memcpy(at, code, sizeof code);
    memcpy(at + sizeof code, &to, sizeof to);
    return sizeof code + sizeof to;
}

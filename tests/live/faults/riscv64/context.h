// What a handler of riscv64 sees and changes.
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define INFO_ALWAYS 1 // also for a handler without SA_SIGINFO

static inline uintptr_t context_pc(const ucontext_t *context)
{
    return context->uc_mcontext.__gregs[REG_PC];
}

static inline void context_pc_add(ucontext_t *context, int bytes)
{
    context->uc_mcontext.__gregs[REG_PC] += (unsigned long)bytes;
}

static inline uintptr_t context_sp(const ucontext_t *context)
{
    return context->uc_mcontext.__gregs[REG_SP];
}

// Nothing here fails for a register.
static inline void context_fix(ucontext_t *context)
{
    (void)context;
}

// Calls it with an argument; *sp is the stack pointer at its entry.
static inline long form_call(void (*entry)(void), const unsigned char *at, long *sp)
{
    register uintptr_t a0 __asm__("a0") = (uintptr_t)at;
    register void (*t1)(void) __asm__("t1") = entry;
    __asm__ volatile("sd sp, %2\n\t"
                     "jalr t1"
                     : "+r"(a0), "+r"(t1), "=m"(*sp)
                     :
                     : "ra", "t0", "t2", "t3", "t4", "t5", "t6", "a1", "a2", "a3", "a4", "a5", "a6",
                       "a7", "ft0", "memory");
    return (long)a0;
}

// Code that jumps to `to`: auipc t1, 0; ld t1, 16(t1); jr t1; nop; .quad to. Returns its size.
static inline size_t jump_make(unsigned char *at, uintptr_t to)
{
    const uint32_t code[] = {0x00000317, 0x01033303, 0x00030067, 0x00000013};
    memcpy(at, code, sizeof code);
    memcpy(at + sizeof code, &to, sizeof to);
    return sizeof code + sizeof to;
}

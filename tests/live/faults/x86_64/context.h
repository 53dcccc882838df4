// What a handler of x86-64 sees and changes.
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define INFO_ALWAYS 1 // also for a handler without SA_SIGINFO

static inline uintptr_t context_pc(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
}

static inline void context_pc_add(ucontext_t *context, int bytes)
{
    context->uc_mcontext.gregs[REG_RIP] += bytes;
}

static inline uintptr_t context_sp(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
}

// What failed for a register succeeds now.
static inline void context_fix(ucontext_t *context)
{
    context->uc_mcontext.gregs[REG_RCX] = 1;
}

// Calls it with an argument; *sp is the stack pointer at its entry.
static inline long form_call(void (*entry)(void), const unsigned char *at, long *sp)
{
    long result = 7;
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
                     "lea -8(%%rsp), %%rdx\n\t"
                     "mov %%rdx, %1\n\t"
                     "xor %%edx, %%edx\n\t"
                     "call *%3\n\t"
                     "lea 128(%%rsp), %%rsp"
                     : "+a"(result), "=m"(*sp)
                     : "D"(at), "r"(entry), "c"(0L)
                     : "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "memory", "cc");
    return result;
}

// Code that jumps to `to`: movabs $to, %rax; jmp *%rax. Returns its size.
static inline size_t jump_make(unsigned char *at, uintptr_t to)
{
    unsigned char code[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    memcpy(code + 2, &to, sizeof to);
    memcpy(at, code, sizeof code);
    return sizeof code;
}

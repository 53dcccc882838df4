// What hazards.c and hard.c have of x86-64.
#include <stdint.h>
#include <ucontext.h>

// Adds 3; its first instruction has a simulator.
#define PROBED_PUSH                                                                                \
    "    push %rbx\n"                                                                              \
    "    lea 3(%rdi), %rbx\n"                                                                      \
    "    mov %rbx, %rax\n"                                                                         \
    "    pop %rbx\n"                                                                               \
    "    ret\n"
// Times 5; its first instruction has none.
#define PROBED_MOVE                                                                                \
    "    mov %rdi, %rax\n"                                                                         \
    "    imul $5, %rax, %rax\n"                                                                    \
    "    ret\n"
#define OWN_TRAP "int3"

// Two functions that no jump fits: linked low, where a branch back leads nowhere, with code on all
// sides, their second instruction a branch's target. 0x90 as the last byte of a displacement leads
// back.
#define CROWD                                                                                      \
    ".fill 160, 1, 0x90\n"                                                                         \
    "    ret\n"
#define HARD_PUSH                                                                                  \
    "    push %rbx\n"                                                                              \
    "1:  .fill 6, 1, 0x90\n"                                                                       \
    "    dec %esi\n"                                                                               \
    "    jns 1b\n"                                                                                 \
    "    mov %rdi, %rbx\n"                                                                         \
    "    lea 7(%rbx), %rax\n"                                                                      \
    "    pop %rbx\n"                                                                               \
    "    ret\n"
#define HARD_LOAD                                                                                  \
    "    mov (%rdi), %rax\n"                                                                       \
    "1:  .fill 6, 1, 0x90\n"                                                                       \
    "    dec %esi\n"                                                                               \
    "    jns 1b\n"                                                                                 \
    "    ret\n"
#define HARD_ALONE                                                                                 \
    "    nop\n"                                                                                    \
    "    lea 9(%rdi), %rax\n"                                                                      \
    "    ret\n"
#define HARD_TAIL                                                                                  \
    "    nop\n"                                                                                    \
    "    jmp tail_end\n"

static inline uintptr_t context_pc(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
}

static inline uintptr_t context_argument(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.gregs[REG_RDI];
}

static inline void context_argument_set(ucontext_t *context, uintptr_t value)
{
    context->uc_mcontext.gregs[REG_RDI] = (greg_t)value;
}

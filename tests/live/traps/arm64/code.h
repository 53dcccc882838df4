// What hazards.c and hard.c have of arm64.
#include <stdint.h>
#include <ucontext.h>

// Adds 3; its first instruction has a simulator.
#define PROBED_PUSH                                                                                \
    "    stp x29, x30, [sp, #-16]!\n"                                                              \
    "    mov x29, sp\n"                                                                            \
    "    add x0, x0, #3\n"                                                                         \
    "    ldp x29, x30, [sp], #16\n"                                                                \
    "    ret\n"
// Times 5; its first instruction has none.
#define PROBED_MOVE                                                                                \
    "    mov x1, x0\n"                                                                             \
    "    add x0, x1, x1, lsl #2\n"                                                                 \
    "    ret\n"
#define OWN_TRAP "brk #1000"

// A jump fits everywhere; with memory in reach full, only what a simulator does alone is probed.
#define CROWD "    ret\n"
#define HARD_PUSH                                                                                  \
    "    str x19, [sp, #-16]!\n"                                                                   \
    "1:  subs w1, w1, #1\n"                                                                        \
    "    b.pl 1b\n"                                                                                \
    "    mov x19, x0\n"                                                                            \
    "    add x0, x19, #7\n"                                                                        \
    "    ldr x19, [sp], #16\n"                                                                     \
    "    ret\n"
#define HARD_LOAD                                                                                  \
    "    ldr x0, [x0]\n"                                                                           \
    "1:  subs w1, w1, #1\n"                                                                        \
    "    b.pl 1b\n"                                                                                \
    "    ret\n"
#define HARD_ALONE                                                                                 \
    "    nop\n"                                                                                    \
    "    add x0, x0, #9\n"                                                                         \
    "    ret\n"
#define HARD_TAIL                                                                                  \
    "    nop\n"                                                                                    \
    "    b tail_end\n"

static inline uintptr_t context_pc(const ucontext_t *context)
{
    return context->uc_mcontext.pc;
}

static inline uintptr_t context_argument(const ucontext_t *context)
{
    return context->uc_mcontext.regs[0];
}

static inline void context_argument_set(ucontext_t *context, uintptr_t value)
{
    context->uc_mcontext.regs[0] = value;
}

// What hazards.c and hard.c have of riscv64.
#include <stdint.h>
#include <ucontext.h>

// Adds 3; its first instruction has a simulator.
#define PROBED_PUSH                                                                                \
    "    addi sp, sp, -16\n"                                                                       \
    "    sd ra, 8(sp)\n"                                                                           \
    "    addi a0, a0, 3\n"                                                                         \
    "    ld ra, 8(sp)\n"                                                                           \
    "    addi sp, sp, 16\n"                                                                        \
    "    ret\n"
// Times 5; its first instruction has none.
#define PROBED_MOVE                                                                                \
    "    slli a1, a0, 2\n"                                                                         \
    "    add a0, a0, a1\n"                                                                         \
    "    ret\n"
#define OWN_TRAP "ebreak"

// A jump fits everywhere; with memory in reach full, only what a simulator does alone is probed.
#define CROWD "    ret\n"
#define HARD_PUSH                                                                                  \
    "    addi sp, sp, -16\n"                                                                       \
    "1:  addiw a1, a1, -1\n"                                                                       \
    "    bgez a1, 1b\n"                                                                            \
    "    addi a0, a0, 7\n"                                                                         \
    "    addi sp, sp, 16\n"                                                                        \
    "    ret\n"
#define HARD_LOAD                                                                                  \
    "    ld a0, 0(a0)\n"                                                                           \
    "1:  addiw a1, a1, -1\n"                                                                       \
    "    bgez a1, 1b\n"                                                                            \
    "    ret\n"
#define HARD_ALONE                                                                                 \
    "    nop\n"                                                                                    \
    "    addi a0, a0, 9\n"                                                                         \
    "    ret\n"
// Each as long as a branch: the exit is no part of the entry's window.
#define HARD_TAIL                                                                                  \
    "    .option push\n"                                                                           \
    "    .option norvc\n"                                                                          \
    "    nop\n"                                                                                    \
    "    j tail_end\n"                                                                             \
    "    .option pop\n"

static inline uintptr_t context_pc(const ucontext_t *context)
{
    return context->uc_mcontext.__gregs[0];
}

static inline uintptr_t context_argument(const ucontext_t *context)
{
    return context->uc_mcontext.__gregs[10];
}

static inline void context_argument_set(ucontext_t *context, uintptr_t value)
{
    context->uc_mcontext.__gregs[10] = value;
}

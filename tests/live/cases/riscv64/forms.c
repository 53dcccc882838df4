// How the forms of riscv64 are called.
#include "../forms.h"

#include <stddef.h>
#include <sys/auxv.h>
#include <ucontext.h>

#define ALWAYS 0
// A bit a letter: Linux 6.12, arch/riscv/include/uapi/asm/hwcap.h.
#define HWCAP_V (1UL << ('V' - 'A'))

// name, gives nothing back, the feature it needs
#define FORMS(X)                                                                                   \
    X(thunk_a, 0, ALWAYS)                                                                          \
    X(thunk_b, 0, ALWAYS)                                                                          \
    X(short_ret, 0, ALWAYS)                                                                        \
    X(short_pair, 0, ALWAYS)                                                                       \
    X(short_three, 0, ALWAYS)                                                                      \
    X(short_next, 0, ALWAYS)                                                                       \
    X(odd_long, 0, ALWAYS)                                                                         \
    X(odd_short, 0, ALWAYS)                                                                        \
    X(back_to_second, 0, ALWAYS)                                                                   \
    X(over_next, 0, ALWAYS)                                                                        \
    X(loop_bnez, 0, ALWAYS)                                                                        \
    X(loop_short, 0, ALWAYS)                                                                       \
    X(loop_bgez, 0, ALWAYS)                                                                        \
    X(loop_jump, 0, ALWAYS)                                                                        \
    X(loop_jump_short, 0, ALWAYS)                                                                  \
    X(dense_words, 0, ALWAYS)                                                                      \
    X(dense_longs, 0, ALWAYS)                                                                      \
    X(literal_d, 0, ALWAYS)                                                                        \
    X(literal_w, 0, ALWAYS)                                                                        \
    X(literal_wu, 0, ALWAYS)                                                                       \
    X(literal_h, 0, ALWAYS)                                                                        \
    X(literal_bu, 0, ALWAYS)                                                                       \
    X(literal_fw, 0, ALWAYS)                                                                       \
    X(literal_fd, 0, ALWAYS)                                                                       \
    X(literal_address, 0, ALWAYS)                                                                  \
    X(behind_data, 0, ALWAYS)                                                                      \
    X(literal_twice, 0, ALWAYS)                                                                    \
    X(literal_store, 0, ALWAYS)                                                                    \
    X(pad_first, 0, ALWAYS)                                                                        \
    X(branch_beq, 0, ALWAYS)                                                                       \
    X(branch_bne, 0, ALWAYS)                                                                       \
    X(branch_blt, 0, ALWAYS)                                                                       \
    X(branch_bge, 0, ALWAYS)                                                                       \
    X(branch_bltu, 0, ALWAYS)                                                                      \
    X(branch_bgeu, 0, ALWAYS)                                                                      \
    X(branch_beqz, 0, ALWAYS)                                                                      \
    X(branch_bnez, 0, ALWAYS)                                                                      \
    X(tail_t0, 0, ALWAYS)                                                                          \
    X(tail_t1, 0, ALWAYS)                                                                          \
    X(tail_t2, 0, ALWAYS)                                                                          \
    X(tail_offset, 0, ALWAYS)                                                                      \
    X(tail_short, 0, ALWAYS)                                                                       \
    X(tail_far, 0, ALWAYS)                                                                         \
    X(call_register, 0, ALWAYS)                                                                    \
    X(call_link, 0, ALWAYS)                                                                        \
    X(call_short, 0, ALWAYS)                                                                       \
    X(call_short_link, 0, ALWAYS)                                                                  \
    X(call_direct, 0, ALWAYS)                                                                      \
    X(call_far, 0, ALWAYS)                                                                         \
    X(call_other, 0, ALWAYS)                                                                       \
    X(call_other_direct, 0, ALWAYS)                                                                \
    X(call_other_same, 0, ALWAYS)                                                                  \
    X(system_call, 0, ALWAYS)                                                                      \
    X(exclusive_word, 0, ALWAYS)                                                                   \
    X(exclusive_long, 0, ALWAYS)                                                                   \
    X(exclusive_left, 0, ALWAYS)                                                                   \
    X(atomic_add, 0, ALWAYS)                                                                       \
    X(below_stack, 0, ALWAYS)                                                                      \
    X(moves_stack, 0, ALWAYS)                                                                      \
    X(registers_live, 0, ALWAYS)                                                                   \
    X(vectors_live, 0, HWCAP_V)                                                                    \
    X(vector_first, 0, HWCAP_V)                                                                    \
    X(own_trap, 0, ALWAYS)                                                                         \
    X(own_trap_short, 0, ALWAYS)                                                                   \
    X(trap_first, 0, ALWAYS)                                                                       \
    X(alias_one, 0, ALWAYS)
#define X(name, silent, feature) uint64_t name(uint64_t value);
FORMS(X)
#undef X

struct two {
    uint64_t first, second;
};
struct two many_arguments(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t);

const struct form *forms_list(void)
{
    uint64_t here = getauxval(AT_HWCAP);
    static struct form forms[] = {
#define X(name, silent, feature) {#name, name, silent, false},
        FORMS(X)
#undef X
            {NULL, NULL, false, false},
    };
    struct form *form = forms;
#define X(name, silent, feature) form++->absent = (here & (feature)) != (feature);
    FORMS(X)
#undef X
    return forms;
}

// The two lowest bits of an instruction of 32 bits are ones.
void trap_pass(void *context)
{
    unsigned long *pc = &((ucontext_t *)context)->uc_mcontext.__gregs[0];
    *pc += (*(const unsigned char *)*pc & 3) == 3 ? 4 : 2;
}

uint64_t forms_other(uint64_t i)
{
    struct two two = many_arguments(1, 2, 3, 4, 5, 6, 7, i, i + 1, 3 * i);
    return two.first + 5 * two.second;
}

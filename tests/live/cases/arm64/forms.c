// How the forms of arm64 are called.
#include "../forms.h"

#include <stddef.h>
#include <sys/auxv.h>
#include <ucontext.h>

#define ALWAYS 0

// name, gives nothing back, the feature it needs (HWCAP_* of asm/hwcap.h)
#define FORMS(X)                                                                                   \
    X(thunk_a, 0, ALWAYS)                                                                          \
    X(thunk_b, 0, ALWAYS)                                                                          \
    X(short_ret, 0, ALWAYS)                                                                        \
    X(short_pair, 0, ALWAYS)                                                                       \
    X(short_three, 0, ALWAYS)                                                                      \
    X(short_next, 0, ALWAYS)                                                                       \
    X(back_to_second, 0, ALWAYS)                                                                   \
    X(over_next, 0, ALWAYS)                                                                        \
    X(loop_cbnz, 0, ALWAYS)                                                                        \
    X(loop_tbz, 0, ALWAYS)                                                                         \
    X(loop_cond, 0, ALWAYS)                                                                        \
    X(loop_jump, 0, ALWAYS)                                                                        \
    X(dense_bytes, 0, ALWAYS)                                                                      \
    X(dense_halves, 0, ALWAYS)                                                                     \
    X(literal_x, 0, ALWAYS)                                                                        \
    X(literal_w, 0, ALWAYS)                                                                        \
    X(literal_sw, 0, ALWAYS)                                                                       \
    X(literal_s, 0, ALWAYS)                                                                        \
    X(literal_d, 0, ALWAYS)                                                                        \
    X(literal_q, 0, ALWAYS)                                                                        \
    X(literal_prefetch, 0, ALWAYS)                                                                 \
    X(address_near, 0, ALWAYS)                                                                     \
    X(address_page, 0, ALWAYS)                                                                     \
    X(signed_first, 0, ALWAYS)                                                                     \
    X(signed_retaa, 0, HWCAP_PACA)                                                                 \
    X(signed_retab, 0, HWCAP_PACA)                                                                 \
    X(pad_first, 0, ALWAYS)                                                                        \
    X(tail_x9, 0, ALWAYS)                                                                          \
    X(tail_x16, 0, ALWAYS)                                                                         \
    X(tail_x17, 0, ALWAYS)                                                                         \
    X(call_x9, 0, ALWAYS)                                                                          \
    X(call_x16, 0, ALWAYS)                                                                         \
    X(call_x30, 0, ALWAYS)                                                                         \
    X(call_direct, 0, ALWAYS)                                                                      \
    X(system_call, 0, ALWAYS)                                                                      \
    X(exclusive_plain, 0, ALWAYS)                                                                  \
    X(exclusive_ordered, 0, ALWAYS)                                                                \
    X(exclusive_pair, 0, ALWAYS)                                                                   \
    X(atomic_add, 0, HWCAP_ATOMICS)                                                                \
    X(below_stack, 0, ALWAYS)                                                                      \
    X(moves_stack, 0, ALWAYS)                                                                      \
    X(registers_live, 0, ALWAYS)                                                                   \
    X(keeps_nothing, 0, ALWAYS)                                                                    \
    X(scalable_live, 0, HWCAP_SVE)                                                                 \
    X(prefixed, 0, HWCAP_SVE)                                                                      \
    X(prefix_first, 1, HWCAP_SVE)                                                                  \
    X(own_trap, 0, ALWAYS)                                                                         \
    X(trap_first, 0, ALWAYS)                                                                       \
    X(alias_one, 0, ALWAYS)
// Called directly: where pages are guarded, a pointer leads to landing pads only.
#define X(name, silent, feature)                                                                   \
    uint64_t name(uint64_t value);                                                                 \
    static uint64_t name##_call(uint64_t value)                                                    \
    {                                                                                              \
        return name(value);                                                                        \
    }
FORMS(X)
#undef X
void condition_first(void);

struct two {
    uint64_t first, second;
};
struct two many_arguments(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t);

const struct form *forms_list(void)
{
    uint64_t here = getauxval(AT_HWCAP);
    static struct form forms[] = {
#define X(name, silent, feature) {#name, name##_call, silent, false},
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

void trap_pass(void *context)
{
    ((ucontext_t *)context)->uc_mcontext.pc += 4;
}

static uint64_t condition_with(int64_t value)
{
    register uint64_t x0 __asm__("x0") = 0;
    __asm__ volatile("cmp %1, #0\n\tbl condition_first"
                     : "+r"(x0)
                     : "r"(value)
                     : "x16", "x17", "x30", "memory", "cc");
    return x0;
}

uint64_t forms_other(uint64_t i)
{
    struct two two = many_arguments(1, 2, 3, 4, 5, 6, 7, i, i + 1, 3 * i);
    return 13 * condition_with(i % 2 ? -1 : 1) + two.first + 5 * two.second;
}

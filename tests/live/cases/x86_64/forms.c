// How the forms of x86-64 are called.
#include "../forms.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#define FORMS(X)                                                                                   \
    X(thunk_a, 0)                                                                                  \
    X(thunk_b, 0)                                                                                  \
    X(short_pair, 0)                                                                               \
    X(short_ret, 1) X(short_rep, 1) X(short_four, 1) X(short_five, 1) X(early_return, 0)           \
        X(reads_between, 0) X(rip_byte, 0) X(rip_long, 0) X(rip_store, 0) X(push_rex, 0)           \
            X(lock_first, 0) X(xacquire_first, 0) X(many_prefixes, 0) X(red_zone, 0)               \
                X(misaligned, 0) X(registers_live, 0) X(alias_one, 0) X(keeps_nothing, 1)          \
                    X(own_trap, 0)
#define X(name, silent) uint64_t name(uint64_t value);
FORMS(X)
#undef X
uint64_t dense(uint64_t value);
uint64_t call_memory(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t);
uint64_t kernel_only(const uint16_t *value);
uint64_t island_user(uint64_t value);
void jump_back(void);
void loop_short(void);
void jrcxz_first(void);
void jecxz_first(void);
void loopne_first(void);
void jcc_first(void);
void rep_first(void);

static const struct form forms[] = {
#define X(name, silent) {#name, name, silent, false},
    FORMS(X)
#undef X
        {NULL, NULL, false, false},
};

const struct form *forms_list(void)
{
    return forms;
}

void trap_pass(void *context)
{
    (void)context; // the pc is behind it
}

// Calls `form` with the registers that it looks at. edi, ecx and the result are all that matter.
static uint64_t call_with(void (*form)(void), uint64_t rax, uint64_t rcx, uint64_t rdi)
{
    __asm__ volatile("cmp $0, %%rdi\n\tcall *%%rdx"
                     : "+a"(rax), "+c"(rcx), "+D"(rdi)
                     : "d"(form)
                     : "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
    return rax ^ (rcx << 1);
}

static uint64_t raw_forms(uint64_t i)
{
    uint64_t sum = call_with(jump_back, 0, 0, i % 2 ? INT_MAX : 5) & 0xffffffff;
    sum += 3 * call_with(loop_short, 0, 1 + i % 5, 0);
    sum += 5 * call_with(jrcxz_first, 0, i % 2 ? 0x100000000 : 0, 0);
    sum += 7 * call_with(jecxz_first, 0, i % 2 ? 0x100000000 : 1, 0);
    sum += 11 * call_with(loopne_first, 0, 1 + i % 2, i % 3);
    sum += 13 * call_with(jcc_first, 0, 0, i % 2 ? (uint64_t)-1 : 1);
    return sum;
}

static uint64_t copy_form(uint64_t i)
{
    char from[64], to[64] = {0};
    memset(from, (int)(i & 0x7f), sizeof from);
    void *destination = to;
    const void *source = from;
    uint64_t count = i % 64;
    __asm__ volatile("call rep_first"
                     : "+D"(destination), "+S"(source), "+c"(count)
                     :
                     : "rax", "memory");
    return (uint64_t)((char *)destination - to) + (uint64_t)to[0] + (uint64_t)to[63];
}

uint64_t forms_other(uint64_t i)
{
    uint16_t cell = (uint16_t)(1 + i % 9);
    return dense(i % 4) + raw_forms(i) + copy_form(i) + kernel_only(&cell) +
           call_memory(1, 2, 3, 4, 5, 6, i, 8) + island_user(1 + i % 5);
}

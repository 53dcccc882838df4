// What native.c asks of riscv64.
#include "native_isa.h"

#include <stdio.h>
#include <string.h>

enum { SP = 2 };

const struct native_isa native_isa = {
    .arch = &tl_arch_riscv64,
    .way = TL_TP_TP,
    .nop = 0x00000013,
    .ret = 0x00008067,
    .code_addr = FIELD_ADDR + FIELD_SIZE,
    .site_addr = FIELD_ADDR + FIELD_SIZE - 0x1000,
    .atomics_first = 1, // there is no other way
    .dead = {0, TL_REGSET(5) | TL_REGSET(6), TL_REGSET(7) | TL_REGSET(28) | TL_REGSET(29)},
};

void native_word_put(uint64_t addr, uint32_t word)
{
    machine_code_put(addr, &word, sizeof word);
}

// The thread pointer too: nothing is read through it where the head says no place of a thread's id.
void native_state_random(struct machine_state *out, uint64_t (*next)(void))
{
    memset(out, 0, sizeof *out);
    machine_vectors_fill(out, next);
    for (size_t i = 1; i < 32; i++)
        out->reg[i] = next();
    out->reg[SP] = STACK_ADDR + STACK_SIZE / 2;
    out->reg[0] = native_isa.site_addr;
}

uint64_t native_sp(const struct machine_state *state)
{
    return state->reg[SP];
}

bool native_went_on(const struct machine_state *from, const struct machine_state *to, uint64_t pc)
{
    if (!memcmp(from->reg + 1, to->reg + 1, sizeof from->reg - sizeof from->reg[0]) &&
        to->reg[0] == pc && machine_vectors_same(from, to))
        return true;
    for (size_t i = 0; i < 32; i++)
        if (from->reg[i] != to->reg[i])
            fprintf(stderr, "%s%zu: %llx, not %llx\n", i ? "x" : "pc, x", i,
                    (unsigned long long)to->reg[i], (unsigned long long)from->reg[i]);
    return false;
}

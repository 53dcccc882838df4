// What native.c asks of arm64.
#include "native_isa.h"

#include <stdio.h>
#include <string.h>

const struct native_isa native_isa = {
    .arch = &tl_arch_arm64,
    .way = TL_TP_TPIDR,
    .nop = 0xd503201f,
    .ret = 0xd65f03c0,
    .code_addr = 0x41000000,
    .site_addr = SITE_ADDR,
    .atomics_first = 0, // exclusive loops, then the atomic instructions
    .dead = {0, TL_REGSET(16) | TL_REGSET(17), TL_REGSET(16) | TL_REGSET(17) | TL_REGSET(9)},
};

void native_word_put(uint64_t addr, uint32_t word)
{
    machine_word_put(addr, word);
}

// Every other state is in streaming mode with ZA on, where a processor has it: there most vector
// instructions are illegal, and a system call would end the mode.
void native_state_random(struct machine_state *out, uint64_t (*next)(void))
{
    machine_streaming(next() & 1);
    machine_state_blank(out);
    machine_vectors_fill(out, next);
    for (size_t i = 0; i < 31; i++)
        out->reg[i] = next();
    out->sp = STACK_ADDR + STACK_SIZE / 2;
    out->pc = SITE_ADDR;
    out->pstate = next() & FLAGS_MASK;
}

uint64_t native_sp(const struct machine_state *state)
{
    return state->sp;
}

bool native_went_on(const struct machine_state *from, const struct machine_state *to, uint64_t pc)
{
    if (!memcmp(from->reg, to->reg, sizeof from->reg) && from->sp == to->sp && to->pc == pc &&
        from->pstate == to->pstate && machine_vectors_same(from, to))
        return true;
    for (size_t i = 0; i < 31; i++)
        if (from->reg[i] != to->reg[i])
            fprintf(stderr, "x%zu: %llx, not %llx\n", i, (unsigned long long)to->reg[i],
                    (unsigned long long)from->reg[i]);
    fprintf(stderr, "pc %llx, pstate %llx, not %llx\n", (unsigned long long)to->pc,
            (unsigned long long)to->pstate, (unsigned long long)from->pstate);
    return false;
}

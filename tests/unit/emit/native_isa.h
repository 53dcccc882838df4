// What native.c asks of an instruction set: words to make functions of, and the machine's state.
#ifndef TEST_EMIT_NATIVE_ISA_H
#define TEST_EMIT_NATIVE_ISA_H

#include "arch/arch.h"

#include <machine.h> // of the instruction set that is built for, by the order of folders

#define NATIVE_DEAD 3
struct native_isa {
    const struct tl_arch *arch;
    enum tl_thread_pointer way;
    uint32_t nop, ret;
    tl_addr code_addr, site_addr; // the latter in the field, a branch away from the former
    uint64_t atomics_first; // of struct tl_agent_head.atomics, up to 1
    tl_regset dead[NATIVE_DEAD]; // free registers of counts: none, two, three
};
extern const struct native_isa native_isa;

void native_word_put(uint64_t addr, uint32_t word);
// Everything random but the stack pointer, in the middle of the stack, and the pc, at the site.
void native_state_random(struct machine_state *out, uint64_t (*next)(void));
uint64_t native_sp(const struct machine_state *state);
// Whether `to` is `from` gone on to pc; says what is not.
bool native_went_on(const struct machine_state *from, const struct machine_state *to, uint64_t pc);

#endif

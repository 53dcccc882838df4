// Random words and states that a processor takes, where most would fault.
#ifndef TEST_EMIT_SIGN_H
#define TEST_EMIT_SIGN_H

#include "arch/arm64/table.h"
#include "machine.h"

// Gives the pointer that the instruction checks, if it checks one, a right signature.
void pointer_sign(const struct tl_insn *insn, struct machine_state *state, uint64_t (*next)(void));
// A random word of a row. Of those that read a system register only some that there are.
uint32_t word_of(const struct row *row, uint64_t (*next)(void));

#endif

// A stopped thread's system call where the kernel hides it (attach/isa.h), by the numbers of the generic table:
// the same for every such instruction set, but for the places of its registers.
#ifndef TL_ARCH_HIDDEN_CALL_H
#define TL_ARCH_HIDDEN_CALL_H

#include "attach/isa.h"

// Words of struct tl_regs: the pc, the register of the first argument and the result, that of the number; and, of
// ours, number + 1 of the call that the thread was stopped in (0: none), and its first argument.
struct tl_call_words {
    uint8_t pc, first, number, call, argument;
};
extern const struct tl_call_words tl_call_words;

// As tl_regs_call_ended, which the instruction set has.
void tl_hidden_call_ended(struct tl_regs *ended, const struct tl_regs *begun,
                          const struct tl_regs *before);
// The call was put off with a note of how it goes on (ERESTART_RESTARTBLOCK).
bool tl_hidden_call_noted(const struct tl_regs *regs);

#endif

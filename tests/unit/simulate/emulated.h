// What the tests of simulators share: an emulator of the instruction set with one piece of memory, the
// writes that it makes, and the same memory as simulators see it.
#ifndef TL_TEST_SIMULATE_EMULATED_H
#define TL_TEST_SIMULATE_EMULATED_H

#include "arch/arch.h"

#include <unicorn/unicorn.h>

#define MEMORY UINT64_C(0x10000000)
#define MEMORY_SIZE 0x400000u
#define CODE_OFF 0x180000u // arm64: literals lie within 1 MiB of it
#define CODE_SIZE 0x10000u
#define STACK_OFF 0x2c0000u // offsets from the stack pointer reach 64 KiB
#define STACK_SIZE 0x20000u
#define CASES_DEFAULT 100000u // of all rows together
#define STATES 64u            // of one word
#define WORD_TRIES 20         // random words that one with a simulator may take

extern uc_engine *uc;
extern uint8_t *memory;
// By simulators; writes are kept, and not made.
extern const struct tl_simulate_memory own_memory;

// By TL_SEED; prints it.
void emulated_setup(const char *name, uc_arch arch, uc_mode mode);
void emulated_teardown(void);
uint64_t random_next(void);
// How many cases TL_CASES asks for.
unsigned long cases_wanted(void);
// Before each case: neither has written anything.
void writes_forget(void);
unsigned writes_own(void);
// What the emulator wrote, maybe in pieces, is what was written by hand at once.
bool writes_same(void);

// One word of a row, and what must be so of it.
struct simulated_word {
    struct tl_insn insn;
    struct tl_simulation simulation;
};
// At a random place, with its bytes in the emulator's memory. false: it decodes to another row, or has no
// simulator.
bool word_place(const struct tl_arch *arch, uint32_t word, unsigned row, struct simulated_word *out);

// `word` makes one of the row, `run` does one case of a word: true if it was done by hand. Fails where too few
// were. Returns the cases.
struct simulated_row {
    const struct tl_arch *arch;
    const char *name;
    unsigned number;
    uint32_t (*word)(unsigned row);
    bool (*run)(const struct simulated_word *word);
};
unsigned long row_run(const struct simulated_row *row, unsigned long words);

#endif

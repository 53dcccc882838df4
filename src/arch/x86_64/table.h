// The behaviour table of x86-64, as isa/x86_64.isa says it. Private to this folder.
#ifndef TL_ARCH_X86_64_TABLE_H
#define TL_ARCH_X86_64_TABLE_H

#include "analyse/insn.h"
#include "arch/x86_64/simulate.h"

// Shapes of an instruction that a row may ask for. An instruction has exactly one.
enum {
    FORM_PLAIN = 1 << 0,
    FORM_REL = 1 << 1, // direct near branch
    FORM_IND = 1 << 2, // near branch through a register or memory
    FORM_FAR = 1 << 3,
    FORM_REL16 = 1 << 4, // direct near branch with a 66 prefix in force
    FORM_IND16 = 1 << 5, // near branch through a register or memory, or return, with one
    FORM_PRIV = 1 << 6,  // privileged form of a mnemonic that has others too
    FORM_INT80 = 1 << 7,
    FORM_ANY = 0xff,
};

enum pcrel { PCREL_NONE, PCREL_ADJUST };
enum fault { FAULT_NEVER, FAULT_MEMORY, FAULT_FP, FAULT_ALWAYS };

enum {
    TRAIT_SYSCALL = 1 << 0,
    TRAIT_LANDING = 1 << 1,
    TRAIT_NOP = 1 << 2,
    TRAIT_SHORT = 1 << 3,
    TRAIT_WEAK = 1 << 4,  // may leave destinations and flags as they were
    TRAIT_SHIFT = 1 << 5, // flags depend on the count
    TRAIT_FETCH = 1 << 6, // the memory operand is a hint and never faults
    TRAIT_LOGIC = 1 << 7, // an undefined AF does not keep its old value
};

struct row {
    const char *name;
    uint8_t flow, reloc, refusal, pcrel, fault, forms;
    uint8_t simulate; // enum simulator
    uint16_t traits;
};

// Leading bytes that a row picks before any decoding.
#define MARK_BYTES_MAX 8
struct mark {
    uint8_t bytes[MARK_BYTES_MAX];
    uint8_t size;
    uint16_t row;
};

#define ROW_UNKNOWN 0

const struct row *tl_x86_64_row(unsigned number);
// The row for a mnemonic and category (Zydis numbers) in a form; ROW_UNKNOWN: none.
unsigned tl_x86_64_row_find(unsigned mnemonic, unsigned category, unsigned form);
// The mark that bytes start with, or NULL.
const struct mark *tl_x86_64_mark(const uint8_t *bytes, size_t size);

#endif

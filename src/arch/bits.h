// Tables of instructions that are bit patterns, as tools/isabits.py makes them, and what it takes
// to look one up. Shared by the instruction sets that have one; private to src/arch.
#ifndef TL_ARCH_BITS_H
#define TL_ARCH_BITS_H

#include "analyse/insn.h"

enum fault { FAULT_NEVER, FAULT_MEMORY, FAULT_FP, FAULT_ALWAYS };

enum {
    TRAIT_SYSCALL = 1 << 0,
    TRAIT_LANDING = 1 << 1,
    TRAIT_NOP = 1 << 2,
    TRAIT_EXCLUSIVE_LOAD = 1 << 3,
    TRAIT_EXCLUSIVE_STORE = 1 << 4,
    TRAIT_SIGNS_LINK = 1 << 5,
    TRAIT_LEA = 1 << 6,    // its target's address is taken, not what is there
    TRAIT_PAGE = 1 << 7,   // its target counts from the start of its own page of 4 KiB
    TRAIT_BASED = 1 << 8,  // its memory is at one register, its base, and a constant
    TRAIT_JOINED = 1 << 9, // with the instruction behind it
};

// How a field of the word names a register. ZR: the number of the zero register is none. SP: it is
// the stack pointer there. COND: the flags that a condition asks. C: registers from 8 on.
enum { USE_ZR, USE_SP, USE_COND, USE_C };
struct use {
    uint8_t shift, width, kind, plus;
};

// Words that match a row's bits and are not of it.
struct hole {
    uint32_t mask, value;
};

// A number in pieces, the highest first.
struct value {
    struct {
        uint8_t shift, width;
    } piece[8];
    uint8_t pieces;
    bool is_signed;
    uint8_t scale; // shifted left by
};

// One text of a row, for words with (word & mask) == value, whose fields at bits same_a and same_b
// are equal (unless both are 0), and which pass the check. The last of a row has no condition.
struct text {
    uint32_t mask, value;
    uint16_t first_piece;
    uint8_t pieces, same_a, same_b;
    uint8_t check; // enum check of the instruction set's print.h
};

struct piece {
    const char *before;
    const char *choice; // words with | between
    uint8_t kind;       // enum print of print.h
    uint16_t value;
};

struct row {
    const char *name;
    uint32_t mask, value;    // a row of fewer bits has the lowest ones
    tl_regset read, written; // beside those in fields
    uint16_t first_use, first_hole, first_text;
    uint8_t reads, writes, holes, texts; // of uses: reads first
    uint16_t target;                     // of values; 0: none
    uint8_t flow, reloc, refusal, fault;
    uint8_t simulate; // enum simulator of the instruction set
    uint8_t size;     // bytes; 0: unknown
    uint16_t traits;
};

#define ROW_UNKNOWN 0

// What the build makes of one table: arrays that refer to each other by number.
struct bits {
    const struct row *rows;
    const struct use *uses;
    const struct hole *holes;
    const struct value *values;
    const struct text *texts;
    const struct piece *pieces;
    const uint16_t *tree;
    unsigned row_count, root;
    bool (*check)(unsigned check, uint32_t word); // the conditions of texts that bits don't tell
};

// All of the arrays of a generated file, which is included before.
#define BITS_TABLE(check_function)                                                                 \
    {                                                                                              \
        table, uses, holes, values, texts, pieces, tree, TL_ARRAY_COUNT(table), TREE_ROOT,         \
            check_function                                                                         \
    }

// The row of a number, ROW_UNKNOWN's for one that is none.
const struct row *tl_bits_row(const struct bits *bits, unsigned number);
// The number of the row that a word belongs to; ROW_UNKNOWN: unallocated.
unsigned tl_bits_find(const struct bits *bits, uint32_t word);
// The row's text for a word. NULL: it has none.
const struct text *tl_bits_text(const struct bits *bits, const struct row *row, uint32_t word);
// A number in pieces.
int64_t tl_bits_value(const struct bits *bits, unsigned value, uint32_t word);
// The traits as TL_INSN_* flags.
uint16_t tl_bits_flags(const struct row *row);

#endif

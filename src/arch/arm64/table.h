// The behaviour table of arm64, as isa/arm64.isa says it. Private to this folder.
#ifndef TL_ARCH_ARM64_TABLE_H
#define TL_ARCH_ARM64_TABLE_H

#include "analyse/insn.h"
#include "arch/arm64/simulate.h"

enum fault { FAULT_NEVER, FAULT_MEMORY, FAULT_FP, FAULT_ALWAYS };

enum {
    TRAIT_SYSCALL = 1 << 0,
    TRAIT_LANDING = 1 << 1,
    TRAIT_NOP = 1 << 2,
    TRAIT_EXCLUSIVE_LOAD = 1 << 3,
    TRAIT_EXCLUSIVE_STORE = 1 << 4,
    TRAIT_SIGNS_LINK = 1 << 5,
    TRAIT_LEA = 1 << 6,   // its target's address is taken, not what is there
    TRAIT_PAGE = 1 << 7,  // its target counts from the start of its own page of 4 KiB
    TRAIT_BASED = 1 << 8, // its memory is at rn and a constant
    TRAIT_JOINED = 1 << 9, // with the instruction behind it
};

// How a field of the word names a register. ZR: 31 is none. SP: 31 is the stack pointer. COND: the flags
// that a condition asks.
enum { USE_ZR, USE_SP, USE_COND };
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

// One text of a row, for words with (word & mask) == value, whose fields at bits same_a and same_b are
// equal (unless both are 0), and which pass the check. The last of a row has no condition.
struct text {
    uint32_t mask, value;
    uint16_t first_piece;
    uint8_t pieces, same_a, same_b;
    uint8_t check; // enum check of print.h
};

struct piece {
    const char *before;
    const char *choice; // words with | between
    uint8_t kind;       // enum print of print.h
    uint16_t value;
};

struct row {
    const char *name;
    uint32_t mask, value;
    tl_regset read, written; // beside those in fields
    uint16_t first_use, first_hole, first_text;
    uint8_t reads, writes, holes, texts; // of uses: reads first
    uint16_t target;                     // of values; 0: none
    uint8_t flow, reloc, refusal, fault;
    uint8_t simulate; // enum simulator
    uint16_t traits;
};

#define ROW_UNKNOWN 0

// The row of a number, ROW_UNKNOWN's for one that is none.
const struct row *tl_arm64_row(unsigned number);
unsigned tl_arm64_row_count(void);
// The number of the row that a word belongs to; ROW_UNKNOWN: unallocated.
unsigned tl_arm64_row_find(uint32_t word);
const struct use *tl_arm64_row_uses(const struct row *row);
// The row's text for a word, its pieces, and a piece's number. NULL: it has none.
const struct text *tl_arm64_row_text(const struct row *row, uint32_t word);
const struct piece *tl_arm64_text_pieces(const struct text *text);
uint32_t tl_arm64_piece_number(const struct piece *piece, uint32_t word);
// What the row adds to its own address. 0 if it has no target.
int64_t tl_arm64_row_target(const struct row *row, uint32_t word);

#endif

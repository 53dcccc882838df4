// The behaviour table of arm64, as isa/arm64.isa says it. Private to this folder.
#ifndef TL_ARCH_ARM64_TABLE_H
#define TL_ARCH_ARM64_TABLE_H

#include "arch/arm64/simulate.h"
#include "arch/bits.h"

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

// The behaviour table of riscv64, as isa/riscv.isa says it. Private to this folder.
#ifndef TL_ARCH_RISCV64_TABLE_H
#define TL_ARCH_RISCV64_TABLE_H

#include "arch/bits.h"
#include "arch/riscv64/simulate.h"

// The row of a number, ROW_UNKNOWN's for one that is none.
const struct row *tl_riscv64_row(unsigned number);
unsigned tl_riscv64_row_count(void);
// The number of the row that a word belongs to, of which a compressed instruction is the lower
// half; ROW_UNKNOWN: reserved, custom, or none that is known.
unsigned tl_riscv64_row_find(uint32_t word);
const struct use *tl_riscv64_row_uses(const struct row *row);
// The row's text for a word, its pieces, and a piece's number. NULL: it has none.
const struct text *tl_riscv64_row_text(const struct row *row, uint32_t word);
const struct piece *tl_riscv64_text_pieces(const struct text *text);
uint32_t tl_riscv64_piece_number(const struct piece *piece, uint32_t word);
// What the row adds to its own address. 0 if it has no target.
int64_t tl_riscv64_row_target(const struct row *row, uint32_t word);

#endif

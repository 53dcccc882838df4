// The table that the build makes from isa/riscv.isa. Judges nothing.
#include "arch/riscv64/table.h"

#include "arch/riscv64/print.h"

#include "isa_riscv.inc"

static const struct bits bits = BITS_TABLE(NULL); // no text has a condition that needs one

const struct row *tl_riscv64_row(unsigned number)
{
    return tl_bits_row(&bits, number);
}

unsigned tl_riscv64_row_count(void)
{
    return bits.row_count;
}

unsigned tl_riscv64_row_find(uint32_t word)
{
    return tl_bits_find(&bits, word);
}

const struct use *tl_riscv64_row_uses(const struct row *row)
{
    return &uses[row->first_use];
}

const struct text *tl_riscv64_row_text(const struct row *row, uint32_t word)
{
    return tl_bits_text(&bits, row, word);
}

const struct piece *tl_riscv64_text_pieces(const struct text *text)
{
    return &pieces[text->first_piece];
}

uint32_t tl_riscv64_piece_number(const struct piece *piece, uint32_t word)
{
    return (uint32_t)tl_bits_value(&bits, piece->value, word);
}

int64_t tl_riscv64_row_target(const struct row *row, uint32_t word)
{
    return tl_bits_value(&bits, row->target, word);
}

// The table that the build makes from isa/arm64.isa. Judges nothing.
#include "arch/arm64/table.h"

#include "arch/arm64/print.h"

#include "isa_arm64.inc"

static const struct bits bits = BITS_TABLE(tl_arm64_text_check);

const struct row *tl_arm64_row(unsigned number)
{
    return tl_bits_row(&bits, number);
}

unsigned tl_arm64_row_count(void)
{
    return bits.row_count;
}

unsigned tl_arm64_row_find(uint32_t word)
{
    return tl_bits_find(&bits, word);
}

const struct use *tl_arm64_row_uses(const struct row *row)
{
    return &uses[row->first_use];
}

const struct text *tl_arm64_row_text(const struct row *row, uint32_t word)
{
    return tl_bits_text(&bits, row, word);
}

const struct piece *tl_arm64_text_pieces(const struct text *text)
{
    return &pieces[text->first_piece];
}

uint32_t tl_arm64_piece_number(const struct piece *piece, uint32_t word)
{
    return (uint32_t)tl_bits_value(&bits, piece->value, word);
}

int64_t tl_arm64_row_target(const struct row *row, uint32_t word)
{
    return tl_bits_value(&bits, row->target, word);
}

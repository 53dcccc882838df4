// Looks words up in the table that the build makes from isa/arm64.isa. Judges nothing.
// Keeps: an exception is found before what it is an exception of, and no row means refused.
#include "arch/arm64/table.h"

#include "arch/arm64/print.h"

#include "isa_arm64.inc"

#define LEAF 0x8000u // of tree: the rest is the place of a list of rows
#define REG_MASK 31u

const struct row *tl_arm64_row(unsigned number)
{
    return &table[number < TL_ARRAY_COUNT(table) ? number : ROW_UNKNOWN];
}

unsigned tl_arm64_row_count(void)
{
    return TL_ARRAY_COUNT(table);
}

static bool row_has(const struct row *row, uint32_t word)
{
    if ((word & row->mask) != row->value)
        return false;
    for (unsigned i = 0; i < row->holes; i++) {
        const struct hole *hole = &holes[row->first_hole + i];
        if ((word & hole->mask) == hole->value)
            return false;
    }
    return true;
}

unsigned tl_arm64_row_find(uint32_t word)
{
    unsigned at = TREE_ROOT;
    while ((at & LEAF) == 0) {
        unsigned shift = tree[at] >> 8, width = tree[at] & 0xff;
        at = tree[at + 1 + (word >> shift & ((1u << width) - 1))];
    }
    for (const uint16_t *row = &tree[at & ~LEAF]; *row != 0; row++)
        if (row_has(&table[*row], word))
            return *row;
    return ROW_UNKNOWN;
}

const struct use *tl_arm64_row_uses(const struct row *row)
{
    return &uses[row->first_use];
}

const struct text *tl_arm64_row_text(const struct row *row, uint32_t word)
{
    for (unsigned i = 0; i < row->texts; i++) {
        const struct text *text = &texts[row->first_text + i];
        bool same = text->same_a == text->same_b ||
                    ((word >> text->same_a ^ word >> text->same_b) & REG_MASK) == 0;
        if ((word & text->mask) == text->value && same && tl_arm64_text_check(text->check, word))
            return text;
    }
    return NULL;
}

const struct piece *tl_arm64_text_pieces(const struct text *text)
{
    return &pieces[text->first_piece];
}

static int64_t value_of(const struct value *value, uint32_t word)
{
    uint64_t number = 0;
    unsigned width = 0;
    for (unsigned i = 0; i < value->pieces; i++) {
        unsigned bits = value->piece[i].width;
        number = number << bits | (word >> value->piece[i].shift & ((1u << bits) - 1));
        width += bits;
    }
    if (value->is_signed && width != 0)
        number |= -(number >> (width - 1) << width);
    return (int64_t)(number << value->scale);
}

uint32_t tl_arm64_piece_number(const struct piece *piece, uint32_t word)
{
    return (uint32_t)value_of(&values[piece->value], word);
}

int64_t tl_arm64_row_target(const struct row *row, uint32_t word)
{
    return value_of(&values[row->target], word);
}

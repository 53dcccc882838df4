// Looks words up in a table that the build makes from isa/*.isa. Judges nothing.
// Keeps: an exception is found before what it is an exception of, and no row means refused.
#include "arch/bits.h"

#define LEAF 0x8000u // of tree: the rest is the place of a list of rows
#define REG_MASK 31u

const struct row *tl_bits_row(const struct bits *bits, unsigned number)
{
    return &bits->rows[number < bits->row_count ? number : ROW_UNKNOWN];
}

static bool row_has(const struct bits *bits, const struct row *row, uint32_t word)
{
    if ((word & row->mask) != row->value)
        return false;
    for (unsigned i = 0; i < row->holes; i++) {
        const struct hole *hole = &bits->holes[row->first_hole + i];
        if ((word & hole->mask) == hole->value)
            return false;
    }
    return true;
}

unsigned tl_bits_find(const struct bits *bits, uint32_t word)
{
    unsigned at = bits->root;
    while ((at & LEAF) == 0) {
        unsigned shift = bits->tree[at] >> 8, width = bits->tree[at] & 0xff;
        at = bits->tree[at + 1 + (word >> shift & ((1u << width) - 1))];
    }
    for (const uint16_t *row = &bits->tree[at & ~LEAF]; *row != 0; row++)
        if (row_has(bits, &bits->rows[*row], word))
            return *row;
    return ROW_UNKNOWN;
}

const struct text *tl_bits_text(const struct bits *bits, const struct row *row, uint32_t word)
{
    for (unsigned i = 0; i < row->texts; i++) {
        const struct text *text = &bits->texts[row->first_text + i];
        bool same = text->same_a == text->same_b ||
                    ((word >> text->same_a ^ word >> text->same_b) & REG_MASK) == 0;
        if ((word & text->mask) == text->value && same &&
            (text->check == 0 || bits->check(text->check, word)))
            return text;
    }
    return NULL;
}

int64_t tl_bits_value(const struct bits *bits, unsigned number, uint32_t word)
{
    const struct value *value = &bits->values[number];
    uint64_t sum = 0;
    unsigned width = 0;
    for (unsigned i = 0; i < value->pieces; i++) {
        unsigned size = value->piece[i].width;
        sum = sum << size | (word >> value->piece[i].shift & ((1u << size) - 1));
        width += size;
    }
    if (value->is_signed && width != 0)
        sum |= -(sum >> (width - 1) << width);
    return (int64_t)(sum << value->scale);
}

uint16_t tl_bits_flags(const struct row *row)
{
    static const uint16_t flags[][2] = {
        {TRAIT_SYSCALL, TL_INSN_SYSCALL},
        {TRAIT_LANDING, TL_INSN_LANDING},
        {TRAIT_NOP, TL_INSN_NOP},
        {TRAIT_EXCLUSIVE_LOAD, TL_INSN_EXCLUSIVE_LOAD},
        {TRAIT_EXCLUSIVE_STORE, TL_INSN_EXCLUSIVE_STORE},
        {TRAIT_SIGNS_LINK, TL_INSN_SIGNS_LINK},
        {TRAIT_JOINED, TL_INSN_JOINED},
    };
    unsigned set = 0;
    for (size_t i = 0; row->traits != 0 && i < TL_ARRAY_COUNT(flags); i++)
        if ((row->traits & flags[i][0]) != 0)
            set |= flags[i][1];
    return (uint16_t)set;
}

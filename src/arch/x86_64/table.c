// Looks rows up in the behaviour table that the build makes from isa/x86_64.isa. Decodes nothing.
// Keeps: a row by mnemonic wins over the row of its category, and no row means refused.
#include "arch/x86_64/table.h"

#include <Zydis/Zydis.h>
#include <string.h>

#include "isa_x86_64.inc"

const struct row *tl_x86_64_row(unsigned number)
{
    return &table[number < TL_ARRAY_COUNT(table) ? number : ROW_UNKNOWN];
}

unsigned tl_x86_64_row_find(unsigned mnemonic, unsigned category, unsigned form)
{
    unsigned place = mnemonic < TL_ARRAY_COUNT(mnemonic_rows) ? mnemonic_rows[mnemonic] : 0;
    if (place == 0 && category < TL_ARRAY_COUNT(category_rows))
        place = category_rows[category];
    for (const __typeof__(row_lists[0]) *row = &row_lists[place]; *row != 0; row++)
        if ((table[*row].forms & form) != 0)
            return *row;
    return ROW_UNKNOWN;
}

const struct mark *tl_x86_64_mark(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < TL_ARRAY_COUNT(marks); i++)
        if (size >= marks[i].size && memcmp(bytes, marks[i].bytes, marks[i].size) == 0)
            return &marks[i];
    return NULL;
}

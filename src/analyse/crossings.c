// Who comes into a function's code from elsewhere: direct branches, falling through, jump tables.
// Calls of a function's start are left out: they come back. Keeps: once the module is done, every
// way that is known from one function's code into another's is in the list.
#include "analyse/analysis.h"

#include <stdlib.h>

int tl_crossing_add(struct tl_analysis *analysis, tl_addr from, tl_addr to)
{
    if (analysis->crossing_count == analysis->crossing_capacity) {
        size_t capacity = analysis->crossing_capacity == 0 ? 256 : analysis->crossing_capacity * 2;
        struct crossing *crossing = reallocarray(analysis->crossing, capacity, sizeof(*crossing));
        if (crossing == NULL)
            return TL_E_NOMEM;
        analysis->crossing = crossing;
        analysis->crossing_capacity = capacity;
    }
    analysis->crossing[analysis->crossing_count++] = (struct crossing){from, to};
    return 0;
}

static int crossing_compare(const void *one, const void *two)
{
    const struct crossing *a = one, *b = two;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->from > b->from) - (a->from < b->from);
}

int tl_crossings_finish(struct tl_analysis *analysis)
{
    for (size_t i = 0; i < analysis->jump_count; i++) {
        const struct jump *jump = &analysis->jump[i];
        for (size_t k = 0; k < jump->count; k++) {
            tl_addr to = analysis->jump_targets.item[jump->first + k];
            if (tl_function_at(analysis, to) != jump->function &&
                tl_crossing_add(analysis, jump->addr, to) != 0)
                return TL_E_NOMEM;
        }
    }
    if (analysis->crossing_count > 0)
        qsort(analysis->crossing, analysis->crossing_count, sizeof(*analysis->crossing),
              crossing_compare);
    return 0;
}

size_t tl_crossings_lower(const struct tl_analysis *analysis, tl_addr to)
{
    size_t low = 0, high = analysis->crossing_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (analysis->crossing[middle].to < to)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Padding that no code owns: bytes between pieces of known code that are nops, int3 or, at the end
// of the text, zeros. Runs once, when the module is done. Keeps: no run holds a barrier, and no
// control flow that is known arrives at its first byte.
#include "analyse/analysis.h"

#include <stdlib.h>

#define PADDING_INT3 0xcc

static int range_add(struct tl_analysis *analysis, size_t *capacity, tl_addr start, tl_addr end)
{
    if (analysis->padding_count == *capacity) {
        *capacity = *capacity == 0 ? 256 : *capacity * 2;
        struct tl_range *range = reallocarray(analysis->padding, *capacity, sizeof(*range));
        if (range == NULL)
            return TL_E_NOMEM;
        analysis->padding = range;
    }
    analysis->padding[analysis->padding_count++] = (struct tl_range){start, end};
    return 0;
}

// Whether [off, end) of region is nothing but filler.
static bool is_filler(const struct tl_analysis *analysis, const struct region *region, size_t off,
                      size_t end)
{
    size_t zero = end;
    while (end == region->size && zero > off && region->bytes[zero - 1] == 0)
        zero--;
    while (off < zero) {
        struct tl_insn insn;
        if (analysis->arch->insn_align == 1 && region->bytes[off] == PADDING_INT3) {
            off++;
            continue;
        }
        if (analysis->arch->skim(region->bytes + off, end - off, region->vaddr + off, &insn) != 0 ||
            (insn.flags & TL_INSN_NOP) == 0 || (insn.flags & TL_INSN_LANDING) != 0)
            return false;
        off += insn.size;
    }
    return true;
}

// Bytes inside a function count only where all that the function may reach is known.
static bool is_owned(struct tl_analysis *analysis, tl_addr start, tl_addr end)
{
    uint32_t first = tl_function_at(analysis, start), last = tl_function_at(analysis, end - 1);
    return (first != FUNCTION_NONE && tl_group_unproved(analysis, first)) ||
           (last != FUNCTION_NONE && last != first && tl_group_unproved(analysis, last));
}

static int run_take(struct tl_analysis *analysis, const struct region *region, size_t off,
                    size_t end, size_t *capacity)
{
    tl_addr start = region->vaddr + off;
    if (!is_filler(analysis, region, off, end) || is_owned(analysis, start, region->vaddr + end) ||
        tl_in_ranges(analysis->facts.rseq, analysis->facts.rseq_count, start, region->vaddr + end))
        return 0;
    size_t clear = off; // a barrier may be an address that somebody runs from
    while (clear < end && !bit_get(region->barrier, clear))
        clear++;
    return clear == off ? 0 : range_add(analysis, capacity, start, region->vaddr + clear);
}

int tl_padding_find(struct tl_analysis *analysis)
{
    size_t capacity = 0;
    for (size_t i = 0; i < analysis->region_count; i++) {
        const struct region *region = &analysis->region[i];
        for (size_t off = 0; off < region->size;) {
            if (region->body[off / 64] == UINT64_MAX && off % 64 == 0) {
                off += 64;
                continue;
            }
            if (bit_get(region->body, off)) {
                off++;
                continue;
            }
            size_t end = off;
            while (end < region->size && !bit_get(region->body, end))
                end++;
            int status = run_take(analysis, region, off, end, &capacity);
            if (status != 0)
                return status;
            off = end;
        }
    }
    return 0;
}

bool tl_padding_at(const struct tl_analysis *analysis, tl_addr addr, struct tl_range *out)
{
    size_t low = 0, high = analysis->padding_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct tl_range *range = &analysis->padding[middle];
        if (addr >= range->start && addr < range->end) {
            *out = *range;
            return true;
        }
        if (range->start < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

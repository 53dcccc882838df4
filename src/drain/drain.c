// Sums counters out of the memory that the target shares, and empties a process slot for the next.
//
// It keeps no state and trusts nothing it reads: the target can write every byte at any time. Sizes
// and offsets come from the caller, who sealed the memfd.
//
// Invariant: no read lies outside data[0..size), whatever the bytes say.
#include "drain/region.h"

#include <fcntl.h>
#include <string.h>

static int range_check(const struct tl_drain_memory *memory, uint32_t process, uint32_t first,
                       uint32_t count, struct tl_diag *diag)
{
    const struct tl_block_layout *layout = &memory->layout;
    int error = tl_memory_check(memory, diag);
    if (error)
        return error;
    if (process >= layout->process_count)
        return tl_diag_set(diag, TL_E_FORMAT, "counters: there is no process slot %u", process);
    if (first > layout->probe_count || count > layout->probe_count - first)
        return tl_diag_set(diag, TL_E_FORMAT, "counters: there is no probe %u",
                           first + (count ? count - 1 : 0));
    return 0;
}

static void counters_sum(const struct tl_drain_memory *memory, uint32_t process,
                         uint32_t process_count, uint32_t first, uint32_t count, uint64_t *hits)
{
    struct tl_walk walk;
    uint64_t block, start, end;
    uint64_t off = TL_BLOCK_HEADER_SIZE + (uint64_t)first * sizeof(uint64_t);
    memset(hits, 0, count * sizeof *hits);
    tl_walk_init(&walk, memory, process, process_count, off, (uint64_t)count * sizeof(uint64_t));
    while (tl_walk_next(&walk, &block, &start, &end)) {
        uint64_t *hit = hits + (start - tl_block_off(memory, block) - off) / sizeof(uint64_t);
        for (uint64_t at = start; at < end; at += sizeof(uint64_t))
            *hit++ += tl_memory_word(memory, at);
    }
}

int tl_drain_counts(const struct tl_drain_memory *memory, uint32_t first, uint32_t count,
                    uint64_t *hits, struct tl_diag *diag)
{
    int error = range_check(memory, 0, first, count, diag);
    if (!error)
        counters_sum(memory, 0, memory->layout.process_count, first, count, hits);
    return error;
}

int tl_drain_process_counts(const struct tl_drain_memory *memory, uint32_t process, uint32_t first,
                            uint32_t count, uint64_t *hits, struct tl_diag *diag)
{
    int error = range_check(memory, process, first, count, diag);
    if (!error)
        counters_sum(memory, process, 1, first, count, hits);
    return error;
}

int tl_drain_process_clear(const struct tl_drain_memory *memory, uint32_t process,
                           struct tl_diag *diag)
{
    int error = range_check(memory, process, 0, 0, diag);
    if (error)
        return error;
    struct tl_walk walk;
    uint64_t block, start, end;
    // Whole pages go back to the kernel first, so that the walk finds little to zero.
    uint64_t first = tl_block_off(memory, (uint64_t)process * TL_BLOCK_COUNT);
    uint64_t last = tl_block_off(memory, ((uint64_t)process + 1) * TL_BLOCK_COUNT);
    uint64_t page_first = tl_page_up(first), page_last = tl_page_down(last);
    if (memory->fd >= 0 && page_first < page_last)
        (void)fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)page_first,
                        (off_t)(page_last - page_first));
    tl_walk_init(&walk, memory, process, 1, 0, memory->layout.stride);
    while (tl_walk_next(&walk, &block, &start, &end))
        memset((unsigned char *)memory->data + start, 0, end - start);
    return 0;
}

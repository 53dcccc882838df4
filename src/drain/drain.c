// Sums counters out of the memory that the target shares.
//
// It keeps no state and trusts nothing it reads: the target can write every byte at any time. Sizes
// and offsets come from the caller, who sealed the memfd.
//
// Invariant: no read lies outside data[0..size), whatever the bytes say.
#include "drain/drain.h"

#include <string.h>
#include <unistd.h>

#define EXTENTS_MAX 65536 // looked up one by one; what is behind them is read whole

// A word that other threads write while we read. Relaxed: a counter orders nothing; partner: the
// unlocked add of a detour and the atomic add of the agent's slow path.
static uint64_t word_at(const unsigned char *data, uint64_t off)
{
    return __atomic_load_n((const uint64_t *)(const void *)(data + off), __ATOMIC_RELAXED);
}

// Which counters of which blocks; all checked.
struct counters {
    const unsigned char *data;
    uint64_t stride;
    uint64_t off; // of the first wanted counter in a block
    uint64_t block_first, block_end;
    uint32_t count;
};

static int counters_find(const struct tl_drain_memory *memory, uint32_t first, uint32_t count,
                         struct counters *out, struct tl_diag *diag)
{
    const struct tl_block_layout *layout = &memory->layout;
    uint64_t blocks = (uint64_t)layout->process_count * TL_BLOCK_COUNT;
    if (!memory->data || (uintptr_t)memory->data % sizeof(uint64_t) ||
        memory->size < TL_BLOCK_FIRST_OFF || !blocks || layout->stride % sizeof(uint64_t) ||
        layout->stride > (memory->size - TL_BLOCK_FIRST_OFF) / blocks)
        return tl_diag_set(diag, TL_E_FORMAT, "counters: %zu bytes hold no %llu blocks",
                           memory->size, (unsigned long long)blocks);
    if (first > layout->probe_count || count > layout->probe_count - first)
        return tl_diag_set(diag, TL_E_FORMAT, "counters: there is no probe %u",
                           first + (count ? count - 1 : 0));
    *out = (struct counters){.data = memory->data,
                             .stride = layout->stride,
                             .off = TL_BLOCK_HEADER_SIZE + (uint64_t)first * sizeof(uint64_t),
                             .block_end = blocks,
                             .count = count};
    return 0;
}

// Adds what lies in [start, end) of the data.
static void extent_add(const struct counters *counters, uint64_t start, uint64_t end,
                       uint64_t *hits)
{
    for (uint64_t block = counters->block_first; block < counters->block_end; block++) {
        uint64_t base = TL_BLOCK_FIRST_OFF + block * counters->stride + counters->off;
        uint64_t last = base + (uint64_t)counters->count * sizeof(uint64_t);
        uint64_t from = start > base ? (start - base + 7) / 8 : 0;
        for (uint64_t i = from; base + i * 8 < last && base + i * 8 < end; i++)
            hits[i] += word_at(counters->data, base + i * 8);
    }
}

static void counters_sum(const struct tl_drain_memory *memory, const struct counters *counters,
                         uint64_t *hits)
{
    memset(hits, 0, counters->count * sizeof *hits);
    // What swapping took out counts as data (Linux, mm/shmem.c: SEEK_DATA).
    off_t start = memory->fd < 0 ? -1 : lseek(memory->fd, 0, SEEK_DATA);
    if (start < 0)
        extent_add(counters, 0, memory->size, hits);
    for (int i = 0; start >= 0 && (uint64_t)start < memory->size && i < EXTENTS_MAX; i++) {
        off_t end = lseek(memory->fd, start, SEEK_HOLE);
        bool whole = end <= start || i == EXTENTS_MAX - 1; // can't tell: all that is left
        extent_add(counters, (uint64_t)start, whole ? memory->size : (uint64_t)end, hits);
        start = whole ? -1 : lseek(memory->fd, end, SEEK_DATA);
    }
}

int tl_drain_counts(const struct tl_drain_memory *memory, uint32_t first, uint32_t count,
                    uint64_t *hits, struct tl_diag *diag)
{
    struct counters counters;
    int error = counters_find(memory, first, count, &counters, diag);
    if (!error)
        counters_sum(memory, &counters, hits);
    return error;
}

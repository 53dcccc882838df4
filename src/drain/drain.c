// Sums counters out of the memory that the target shares.
//
// It keeps no state and trusts nothing it reads: the target can write every byte at any time. The
// size comes from the caller, who sealed the memfd; the stride is read once and checked against it.
//
// Invariant: no read lies outside data[0..size), whatever the bytes say.
#include "drain/drain.h"

#include <string.h>
#include <unistd.h>

// data = [header page][block 0] ... [block TL_THREAD_SLOTS, the shared one]
#define BLOCK_COUNT (TL_THREAD_SLOTS + 1)
#define EXTENTS_MAX 65536 // looked up one by one; what is behind them is read whole

// A word that other threads write while we read. Relaxed: a counter orders nothing; partner: the
// unlocked add of a detour and the atomic add of the agent's slow path.
static uint64_t word_at(const unsigned char *data, uint64_t off)
{
    return __atomic_load_n((const uint64_t *)(const void *)(data + off), __ATOMIC_RELAXED);
}

// Where the counters of one block lie, from data; all checked.
struct counters {
    const unsigned char *data;
    uint64_t stride; // read once: a second look could see another number
    uint64_t off;    // of the first wanted counter in a block
    uint32_t count;
};

static int counters_find(const void *data, size_t size, uint32_t first, uint32_t count,
                         struct counters *out, struct tl_diag *diag)
{
    if (!data || size < TL_BLOCK_FIRST_OFF || (uintptr_t)data % sizeof(uint64_t))
        return tl_diag_set(diag, TL_E_FORMAT, "counters: %zu bytes hold no header", size);
    if (word_at(data, offsetof(struct tl_data_header, magic)) != TL_DATA_MAGIC)
        return tl_diag_set(diag, TL_E_FORMAT, "counters: the header is not ours");
    uint64_t stride = word_at(data, offsetof(struct tl_data_header, stride));
    uint64_t room = size - TL_BLOCK_FIRST_OFF;
    if (stride < TL_BLOCK_STRIDE_MIN || stride % sizeof(uint64_t) || stride > room / BLOCK_COUNT)
        return tl_diag_set(diag, TL_E_FORMAT,
                           "counters: a stride of %llu bytes does not fit in %zu",
                           (unsigned long long)stride, size);
    uint64_t off = TL_BLOCK_HEADER_SIZE + (uint64_t)first * sizeof(uint64_t);
    if (off + (uint64_t)count * sizeof(uint64_t) > stride)
        return tl_diag_set(diag, TL_E_FORMAT, "counters: there is no probe %u",
                           first + (count ? count - 1 : 0));
    *out = (struct counters){data, stride, off, count};
    return 0;
}

// Adds what lies in [start, end) of the data.
static void extent_add(const struct counters *counters, uint64_t start, uint64_t end,
                       uint64_t *hits)
{
    for (uint64_t block = 0; block < BLOCK_COUNT; block++) {
        uint64_t base = TL_BLOCK_FIRST_OFF + block * counters->stride + counters->off;
        uint64_t last = base + (uint64_t)counters->count * sizeof(uint64_t);
        uint64_t from = start > base ? (start - base + 7) / 8 : 0;
        for (uint64_t i = from; base + i * 8 < last && base + i * 8 < end; i++)
            hits[i] += word_at(counters->data, base + i * 8);
    }
}

int tl_drain_counts(const void *data, size_t size, int fd, uint32_t first, uint32_t count,
                    uint64_t *hits, struct tl_diag *diag)
{
    struct counters counters;
    int error = counters_find(data, size, first, count, &counters, diag);
    if (error)
        return error;
    memset(hits, 0, count * sizeof *hits);
    // What swapping took out counts as data (Linux, mm/shmem.c: SEEK_DATA).
    off_t start = fd < 0 ? -1 : lseek(fd, 0, SEEK_DATA);
    if (start < 0)
        extent_add(&counters, 0, size, hits);
    for (int i = 0; start >= 0 && (uint64_t)start < size && i < EXTENTS_MAX; i++) {
        off_t end = lseek(fd, start, SEEK_HOLE);
        bool whole = end <= start || i == EXTENTS_MAX - 1; // can't tell: all that is left
        extent_add(&counters, (uint64_t)start, whole ? size : (uint64_t)end, hits);
        start = whole ? -1 : lseek(fd, end, SEEK_DATA);
    }
    return 0;
}

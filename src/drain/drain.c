// Sums counters out of the memory that the target shares.
//
// It keeps no state and trusts nothing it reads: the target can write every byte at any time. The
// size comes from the caller, who sealed the memfd; the stride is read once and checked against it.
//
// Invariant: no read lies outside data[0..size), whatever the bytes say.
#include "drain/drain.h"

#include <string.h>

// data = [header page][block 0] ... [block TL_THREAD_SLOTS, the shared one]
#define BLOCK_COUNT (TL_THREAD_SLOTS + 1)

// A word that other threads write while we read. Relaxed: a counter orders nothing; partner: the
// unlocked add of a detour and the atomic add of the agent's slow path.
static uint64_t word_at(const unsigned char *data, uint64_t off)
{
    return __atomic_load_n((const uint64_t *)(const void *)(data + off), __ATOMIC_RELAXED);
}

int tl_drain_count(const void *data, size_t size, uint32_t probe, uint64_t *hits,
                   struct tl_diag *diag)
{
    const unsigned char *bytes = data;
    if (!data || size < TL_BLOCK_FIRST_OFF || (uintptr_t)data % sizeof(uint64_t))
        return tl_diag_set(diag, TL_E_FORMAT, "counters: %zu bytes hold no header", size);
    if (word_at(bytes, offsetof(struct tl_data_header, magic)) != TL_DATA_MAGIC)
        return tl_diag_set(diag, TL_E_FORMAT, "counters: the header is not ours");
    // Once: a second look could see another number.
    uint64_t stride = word_at(bytes, offsetof(struct tl_data_header, stride));
    uint64_t room = size - TL_BLOCK_FIRST_OFF;
    if (stride < TL_BLOCK_STRIDE_MIN || stride % sizeof(uint64_t) || stride > room / BLOCK_COUNT)
        return tl_diag_set(diag, TL_E_FORMAT,
                           "counters: a stride of %llu bytes does not fit in %zu",
                           (unsigned long long)stride, size);
    uint64_t counter_off = TL_BLOCK_HEADER_SIZE + (uint64_t)probe * sizeof(uint64_t);
    if (counter_off + sizeof(uint64_t) > stride)
        return tl_diag_set(diag, TL_E_FORMAT, "counters: there is no probe %u", probe);
    uint64_t total = 0;
    for (uint64_t block = 0; block < BLOCK_COUNT; block++)
        total += word_at(bytes, TL_BLOCK_FIRST_OFF + block * stride + counter_off);
    *hits = total;
    return 0;
}

// Where the parts of all blocks lie, and which of them were ever written. Private to this folder.
#ifndef TL_DRAIN_REGION_H
#define TL_DRAIN_REGION_H

#include "drain/drain.h"

// TL_E_FORMAT: the layout does not fit the memory. After 0 every part that the layout names lies
// inside.
int tl_memory_check(const struct tl_drain_memory *memory, struct tl_diag *diag);

// A walk over one part of each block, [off, off + size) from the block's start.
struct tl_walk {
    const struct tl_drain_memory *memory;
    uint64_t off, size;
    uint64_t block, block_end;
    uint64_t position; // all before it was handed out
    // What the last look said: nothing in [hole_start, data_start), a page from data_start on.
    uint64_t hole_start, data_start, data_end;
    bool blind; // holes can't be asked for: all is read
};

// The blocks of processes [process, process + count). The memory was checked.
void tl_walk_init(struct tl_walk *walk, const struct tl_drain_memory *memory, uint32_t process,
                  uint32_t count, uint64_t off, uint64_t size);
// The next piece that may hold something: offsets into the memory, and whose it is. A piece lies in
// one page (unless the walk is blind). false: no more.
bool tl_walk_next(struct tl_walk *walk, uint64_t *block, uint64_t *start, uint64_t *end);

static inline uint64_t tl_block_off(const struct tl_drain_memory *memory, uint64_t block)
{
    return TL_BLOCK_FIRST_OFF + block * memory->layout.stride;
}

// A word that other threads write while we read. Relaxed: a counter orders nothing; partner: the
// unlocked add of a detour and the atomic add of the agent's slow path.
static inline uint64_t tl_memory_word(const struct tl_drain_memory *memory, uint64_t off)
{
    const unsigned char *data = memory->data;
    return __atomic_load_n((const uint64_t *)(const void *)(data + off), __ATOMIC_RELAXED);
}

#endif

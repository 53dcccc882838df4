// Checks a layout against its memory, and walks over one part of all blocks without touching what
// was never written: to read a hole of a shared memfd makes it memory.
//
// It reads nothing of the memory itself. The target may punch holes or fill them while we walk: a
// piece that was data a moment ago and is a hole now reads as zero.
//
// Invariant: every piece handed out lies inside its block's part, and so inside the memory. Each
// step moves on by a page or a block, so a walk ends whatever the kernel says.
#include "drain/region.h"

#include <errno.h>
#include <unistd.h>

#define WORD sizeof(uint64_t)
#define RING_SLOTS_MAX (1u << 24)

// A part of count items; off 0: there is none.
static bool part_fits(const struct tl_block_layout *layout, uint64_t off, uint64_t head,
                      uint64_t count, uint64_t item_size)
{
    return !off ||
           (off % WORD == 0 && off >= TL_BLOCK_HEADER_SIZE && off <= layout->stride &&
            head <= layout->stride - off && count <= (layout->stride - off - head) / item_size);
}

int tl_memory_check(const struct tl_drain_memory *memory, struct tl_diag *diag)
{
    const struct tl_block_layout *layout = &memory->layout;
    uint64_t blocks = (uint64_t)layout->process_count * TL_BLOCK_COUNT;
    if (!memory->data || (uintptr_t)memory->data % WORD || memory->size < TL_BLOCK_FIRST_OFF ||
        !blocks || layout->process_count > TL_PROCESS_SLOTS_MAX || layout->stride % WORD ||
        layout->stride > (memory->size - TL_BLOCK_FIRST_OFF) / blocks)
        return tl_diag_set(diag, TL_E_FORMAT, "shared memory: %zu bytes hold no %llu blocks",
                           memory->size, (unsigned long long)blocks);
    if (layout->stride < TL_BLOCK_HEADER_SIZE ||
        !part_fits(layout, TL_BLOCK_HEADER_SIZE, 0, layout->probe_count, WORD) ||
        !part_fits(layout, layout->hist_off, 0, layout->hist_count, sizeof(struct tl_hist)) ||
        !part_fits(layout, layout->ring_off, sizeof(struct tl_ring_header), layout->ring_slots,
                   sizeof(struct tl_ring_slot)) ||
        !part_fits(layout, layout->pair_off, 0, layout->pair_slots, sizeof(struct tl_pair)))
        return tl_diag_set(diag, TL_E_FORMAT, "shared memory: a block of %llu bytes is too small",
                           (unsigned long long)layout->stride);
    if (layout->ring_off && (!layout->ring_slots || layout->ring_slots > RING_SLOTS_MAX ||
                             layout->ring_slots & (layout->ring_slots - 1)))
        return tl_diag_set(diag, TL_E_FORMAT, "shared memory: no ring has %u slots",
                           layout->ring_slots);
    return 0;
}

void tl_walk_init(struct tl_walk *walk, const struct tl_drain_memory *memory, uint32_t process,
                  uint32_t count, uint64_t off, uint64_t size)
{
    *walk = (struct tl_walk){.memory = memory,
                             .off = off,
                             .size = size,
                             .block = (uint64_t)process * TL_BLOCK_COUNT,
                             .block_end = ((uint64_t)process + count) * TL_BLOCK_COUNT,
                             .blind = memory->fd < 0};
}

// Looks for data from `from` on. false: there is none.
static bool data_find(struct tl_walk *walk, uint64_t from)
{
    // What swapping took out counts as data (Linux, mm/shmem.c: SEEK_DATA).
    off_t found = lseek(walk->memory->fd, (off_t)from, SEEK_DATA);
    if (found < 0 && errno == ENXIO)
        return false;
    if (found < 0 || (uint64_t)found < from) {
        walk->blind = true; // can't tell: all that is left is read
        return true;
    }
    walk->hole_start = from;
    walk->data_start = (uint64_t)found;
    walk->data_end = tl_page_down(walk->data_start) + TL_PAGE_SIZE;
    return true;
}

bool tl_walk_next(struct tl_walk *walk, uint64_t *block, uint64_t *start, uint64_t *end)
{
    while (walk->block < walk->block_end) {
        uint64_t base = tl_block_off(walk->memory, walk->block) + walk->off;
        uint64_t from = walk->position > base ? walk->position : base;
        uint64_t last = base + walk->size;
        if (from >= last) {
            walk->block++;
            continue;
        }
        bool known = from >= walk->hole_start && from < walk->data_end;
        if (!walk->blind && !known && !data_find(walk, from))
            return false;
        if (!walk->blind && walk->data_start >= last) {
            uint64_t to = (walk->data_start - TL_BLOCK_FIRST_OFF) / walk->memory->layout.stride;
            walk->block = to > walk->block ? to : walk->block + 1;
            continue;
        }
        if (!walk->blind && from < walk->data_start)
            from = walk->data_start;
        *block = walk->block;
        *start = from;
        *end = walk->blind || walk->data_end > last ? last : walk->data_end;
        walk->position = *end;
        return true;
    }
    return false;
}

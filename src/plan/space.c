// Gaps, pools and slots: where detours may lie, and which mappings they need.
//
//   address space   |used|......gap......|used|..gap..|used|
//   pages           .....[P][P]....[P]...      [P]            sorted, in chunks; 4096 / 32 slots
//   each groups          |---- 64 MiB bucket of a gap ----|        an upper bound of the mappings
//   needed
//
// The grain of a page here is TL_PAGE_SIZE; the target's own pages may be larger: gaps, groups and
// mappings are whole pages of its. Where guarded pools (arm64: BTI) are wanted, groups are small and
// each is of one kind.
//
// Decides nothing about sites. Invariants: a page lies wholly in a gap; a slot has one owner; the
// number of groups that hold pages never passes the mapping limit, and merging never yields more
// mappings; no mapping holds pages of both kinds.
#include "plan/space.h"

#include <stdlib.h>
#include <string.h>

#define SLOT_MIN 32u // the map's grain; slots of an ISA are a multiple of it
#define PAGE_GRAINS (TL_PAGE_SIZE / SLOT_MIN)
#define PAGE_WORDS (PAGE_GRAINS / 64u)
#define CHUNK_PAGES 128u
#define GROUP_SIZE ((tl_addr)64 << 20) // no merged mapping is larger
#define GROUP_SIZE_KINDS ((tl_addr)1 << 20) // ... of a group, where each is of one kind
#define MAPPINGS_WANTED 64u            // pages are joined across free holes until so many are left
#define PAGE_SIZE_MAX ((tl_addr)64 << 10)
#define PROBE_PAGES_MAX 64u            // pages looked at when a group's ends are taken

struct page {
    tl_addr addr;
    uint64_t taken[PAGE_WORDS];
    uint8_t run; // longest free run, grains
    bool dense, guarded;
};

struct chunk {
    struct page page[CHUNK_PAGES];
    uint16_t count;
    uint8_t run, run_dense; // the longest of its pages
};

// Pages of one gap within one 64 MiB bucket.
struct group {
    tl_addr start, end; // bucket and gap, cut
    tl_addr low, high;  // pages it held at some time lie between: a hint
    uint32_t pages;
    bool guarded; // its pages, if it has any
};

struct tl_space {
    struct tl_range *gap;
    size_t gap_count;
    struct chunk **chunk;
    size_t chunk_count, chunk_max;
    struct group *group;
    size_t group_count, group_max, group_used; // used: with pages
    size_t mapping_limit;
    tl_addr page_size, group_size;
    bool lean;
    struct tl_range *mapping;
    bool *mapping_guarded;
    size_t mapping_count;
};

// ---- create -----------------------------------------------------------------------------------

static int range_compare(const void *a, const void *b)
{
    const struct tl_range *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

// To whole pages of the target.
static tl_addr target_down(const struct tl_space *space, tl_addr addr)
{
    return addr & ~(space->page_size - 1);
}

static tl_addr target_up(const struct tl_space *space, tl_addr addr)
{
    return target_down(space, addr + space->page_size - 1);
}

static void gaps_fill(struct tl_space *space, const struct tl_range *used, size_t count,
                      tl_addr min, tl_addr max)
{
    tl_addr at = target_up(space, min);
    max = target_down(space, max);
    for (size_t i = 0; i <= count; i++) {
        tl_addr end = i < count ? target_down(space, used[i].start) : max;
        if (end > max)
            end = max;
        if (end > at)
            space->gap[space->gap_count++] = (struct tl_range){at, end};
        if (i < count && target_up(space, used[i].end) > at)
            at = target_up(space, used[i].end);
    }
}

int tl_space_create(const struct tl_space_options *options, struct tl_space **out,
                    struct tl_diag *diag)
{
    tl_addr page_size = options->page_size ? options->page_size : TL_PAGE_SIZE;
    if (page_size < TL_PAGE_SIZE || page_size > PAGE_SIZE_MAX || page_size & (page_size - 1))
        return tl_diag_set(diag, TL_E_USAGE, "pages of %zu bytes are not known", options->page_size);
    struct tl_space *space = calloc(1, sizeof *space);
    struct tl_range *used = malloc((options->used_count + 1) * sizeof *used);
    if (space)
        space->gap = malloc((options->used_count + 1) * sizeof *space->gap);
    if (!space || !used || !space->gap) {
        free(used);
        tl_space_destroy(space);
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu ranges", options->used_count);
    }
    if (options->used_count)
        memcpy(used, options->used, options->used_count * sizeof *used);
    qsort(used, options->used_count, sizeof *used, range_compare);
    space->page_size = page_size;
    space->group_size = GROUP_SIZE;
    gaps_fill(space, used, options->used_count, options->addr_min, options->addr_max);
    space->mapping_limit = options->mapping_limit;
    space->lean = options->lean;
    free(used);
    *out = space;
    return 0;
}

void tl_space_destroy(struct tl_space *space)
{
    if (!space)
        return;
    for (size_t i = 0; i < space->chunk_count; i++)
        free(space->chunk[i]);
    free(space->chunk);
    free(space->group);
    free(space->gap);
    free(space->mapping);
    free(space->mapping_guarded);
    free(space);
}

void tl_space_expect_guarded(struct tl_space *space)
{
    space->group_size = GROUP_SIZE_KINDS;
}

// ---- look-up ----------------------------------------------------------------------------------

// Index of the first gap that ends above addr.
static size_t gap_at(const struct tl_space *space, tl_addr addr)
{
    size_t low = 0, high = space->gap_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (space->gap[middle].end <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool page_in_gap(const struct tl_space *space, tl_addr page)
{
    size_t i = gap_at(space, page);
    return i < space->gap_count && space->gap[i].start <= page;
}

// Index of the last chunk whose first page is at or below addr; 0 if there is none.
static size_t chunk_at(const struct tl_space *space, tl_addr addr)
{
    size_t low = 0, high = space->chunk_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (space->chunk[middle]->page[0].addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : 0;
}

// Index of the first page of a chunk at or above addr.
static unsigned page_at(const struct chunk *chunk, tl_addr addr)
{
    unsigned low = 0, high = chunk->count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (chunk->page[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct page *page_find(const struct tl_space *space, tl_addr addr)
{
    if (!space->chunk_count)
        return NULL;
    struct chunk *chunk = space->chunk[chunk_at(space, addr)];
    unsigned i = page_at(chunk, addr);
    return i < chunk->count && chunk->page[i].addr == addr ? &chunk->page[i] : NULL;
}

// Index of the first group that ends above addr.
static size_t group_at(const struct tl_space *space, tl_addr addr)
{
    size_t low = 0, high = space->group_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (space->group[middle].end <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct group *group_find(const struct tl_space *space, tl_addr page)
{
    size_t i = group_at(space, page);
    return i < space->group_count && space->group[i].start <= page ? &space->group[i] : NULL;
}

// ---- slots of a page --------------------------------------------------------------------------

static bool grain_taken(const struct page *page, unsigned grain)
{
    return page->taken[grain / 64] >> (grain % 64) & 1;
}

static void page_measure(struct page *page)
{
    unsigned run = 0, longest = 0;
    for (unsigned i = 0; i < PAGE_GRAINS; i++) {
        if (i % 64 == 0 && !page->taken[i / 64]) {
            run += 64;
            i += 63;
        } else {
            run = grain_taken(page, i) ? 0 : run + 1;
        }
        if (run > longest)
            longest = run;
    }
    page->run = (uint8_t)longest;
}

static void chunk_measure(struct chunk *chunk)
{
    chunk->run = chunk->run_dense = 0;
    for (unsigned i = 0; i < chunk->count; i++) {
        const struct page *page = &chunk->page[i];
        if (page->run > chunk->run)
            chunk->run = page->run;
        if (page->dense && page->run > chunk->run_dense)
            chunk->run_dense = page->run;
    }
}

// The slots that [addr, addr + size) touches, as whole grains: [start, end).
static struct tl_range touched(tl_addr addr, uint16_t size, uint8_t slot_size)
{
    tl_addr mask = slot_size - (tl_addr)1;
    return (struct tl_range){addr & ~mask, (addr + size + mask) & ~mask};
}

// The first place in a page for `slots` grains that starts within [first, last]; 0: none.
static tl_addr page_place(const struct page *page, const struct tl_place_query *query)
{
    unsigned step = query->slot_size / SLOT_MIN;
    unsigned need = (unsigned)((query->size + SLOT_MIN - 1u) / SLOT_MIN), free_run = 0;
    need = (need + step - 1) / step * step;
    // Backwards, so that the run that starts at a grain is known there.
    tl_addr best = 0;
    for (unsigned i = PAGE_GRAINS; i-- > 0;) {
        free_run = grain_taken(page, i) ? 0 : free_run + 1;
        tl_addr addr = page->addr + (tl_addr)i * SLOT_MIN;
        if (addr < query->first)
            break;
        if (i % step == 0 && free_run >= need && addr <= query->last)
            best = addr;
    }
    return best;
}

// ---- finding ----------------------------------------------------------------------------------

// Would a new page cost a mapping?
static enum tl_place_cost page_cost(const struct tl_space *space, tl_addr page)
{
    const struct group *group = group_find(space, page);
    if (group && group->pages)
        return TL_PLACE_MAPPING;
    return space->group_used < space->mapping_limit ? TL_PLACE_NEW_MAPPING : TL_PLACE_LIMIT;
}

// Whether a page may be of this kind: it is in a gap, and its group holds no page of the other.
static bool page_may(const struct tl_space *space, tl_addr page, bool guarded)
{
    const struct group *group = group_find(space, page);
    return group && group->pages ? group->guarded == guarded : page_in_gap(space, page);
}

// What a detour exactly at addr would cost.
static enum tl_place_cost exact_cost(const struct tl_space *space,
                                     const struct tl_place_query *query, tl_addr addr)
{
    struct tl_range slots = touched(addr, query->size, query->slot_size);
    enum tl_place_cost worst = TL_PLACE_PAGE;
    size_t mappings = 0;
    for (tl_addr at = slots.start; at < slots.end; at = tl_page_down(at) + TL_PAGE_SIZE) {
        tl_addr base = tl_page_down(at), stop = base + TL_PAGE_SIZE;
        const struct page *page = page_find(space, base);
        if (page && page->guarded != query->guarded)
            return TL_PLACE_NONE;
        if (!page) {
            if (!page_may(space, base, query->guarded))
                return TL_PLACE_NONE;
            enum tl_place_cost cost = page_cost(space, base);
            mappings += cost == TL_PLACE_NEW_MAPPING;
            worst = cost > worst ? cost : worst;
            continue;
        }
        stop = slots.end < stop ? slots.end : stop;
        for (tl_addr grain = at; grain < stop; grain += SLOT_MIN) {
            if (grain_taken(page, (unsigned)((grain - base) / SLOT_MIN)))
                return TL_PLACE_NONE;
        }
    }
    // Two new pages may lie in two mappings.
    if (space->group_used + mappings > space->mapping_limit && worst == TL_PLACE_NEW_MAPPING)
        return TL_PLACE_LIMIT;
    return worst;
}

// A range of a few slots: every start in turn, also those that cross a page end.
static enum tl_place_cost narrow_find(const struct tl_space *space,
                                      const struct tl_place_query *query, tl_addr *out)
{
    enum tl_place_cost best = TL_PLACE_NONE;
    bool limit = false;
    for (tl_addr addr = query->first; addr <= query->last;
         addr = (addr / query->slot_size + 1) * query->slot_size) {
        enum tl_place_cost cost = exact_cost(space, query, addr);
        limit |= cost == TL_PLACE_LIMIT;
        if (cost < best) {
            best = cost;
            *out = addr;
        }
    }
    return best == TL_PLACE_NONE && limit ? TL_PLACE_LIMIT : best;
}

static bool pages_find(const struct tl_space *space, const struct tl_place_query *query, bool dense,
                       tl_addr *out)
{
    unsigned need = (query->size + SLOT_MIN - 1u) / SLOT_MIN;
    if (!space->chunk_count)
        return false;
    tl_addr low = tl_page_down(query->first);
    for (size_t c = chunk_at(space, low); c < space->chunk_count; c++) {
        const struct chunk *chunk = space->chunk[c];
        if (chunk->page[0].addr > query->last)
            break;
        if ((dense ? chunk->run_dense : chunk->run) < need)
            continue;
        for (unsigned i = page_at(chunk, low); i < chunk->count; i++) {
            const struct page *page = &chunk->page[i];
            if (page->addr > query->last)
                return false;
            if (page->run < need || (dense && !page->dense) || page->guarded != query->guarded)
                continue;
            tl_addr addr = page_place(page, query);
            if (addr) {
                *out = addr;
                return true;
            }
        }
    }
    return false;
}

// The start of a new page's place: the page itself, or where the query begins.
static tl_addr page_start(tl_addr page, const struct tl_place_query *query)
{
    if (page >= query->first)
        return page;
    tl_addr addr = (query->first + query->slot_size - 1u) & ~(query->slot_size - (tl_addr)1);
    return addr + query->size <= page + TL_PAGE_SIZE ? addr : 0;
}

static bool page_usable(const struct tl_space *space, const struct tl_place_query *query,
                        struct tl_range within, tl_addr page, tl_addr *out)
{
    if (page < within.start || page >= within.end || page_find(space, page) ||
        !page_may(space, page, query->guarded))
        return false;
    tl_addr addr = page_start(page, query);
    if (!addr || addr > query->last)
        return false;
    *out = addr;
    return true;
}

// A new page beside those of a group.
static bool group_page_find(const struct tl_space *space, const struct tl_place_query *query,
                            const struct group *group, tl_addr *out)
{
    struct tl_range within = {tl_page_down(query->first), tl_page_down(query->last) + TL_PAGE_SIZE};
    if (within.start < group->start)
        within.start = group->start;
    if (within.end > group->end)
        within.end = group->end;
    if (within.start >= within.end)
        return false;
    if (page_usable(space, query, within, group->high + TL_PAGE_SIZE, out) ||
        page_usable(space, query, within, group->low - TL_PAGE_SIZE, out))
        return true;
    for (unsigned i = 0; i < PROBE_PAGES_MAX; i++) {
        if (page_usable(space, query, within, within.start + (tl_addr)i * TL_PAGE_SIZE, out))
            return true;
    }
    return false;
}

static tl_addr distance(tl_addr a, tl_addr b)
{
    return a > b ? a - b : b - a;
}

static bool groups_find(const struct tl_space *space, const struct tl_place_query *query,
                        tl_addr *out)
{
    bool found = false;
    for (size_t i = group_at(space, tl_page_down(query->first));
         i < space->group_count && space->group[i].start <= query->last; i++) {
        tl_addr addr;
        if (!space->group[i].pages || space->group[i].guarded != query->guarded ||
            !group_page_find(space, query, &space->group[i], &addr))
            continue;
        if (!found || distance(addr, query->near) < distance(*out, query->near))
            *out = addr;
        found = true;
    }
    return found;
}

// The nearest page outside the groups that lie around `page`: they are full, or of the other kind.
static bool beside_groups(const struct tl_space *space, const struct tl_place_query *query,
                          struct tl_range within, tl_addr page, tl_addr *out)
{
    const struct group *first = group_find(space, page), *last = first;
    const struct group *end = space->group + space->group_count;
    if (!first || !first->pages)
        return false;
    while (last + 1 < end && last[1].start == last->end && last[1].pages)
        last++;
    while (first > space->group && first[-1].end == first->start && first[-1].pages)
        first--;
    tl_addr above = last->end, below = first->start - TL_PAGE_SIZE;
    bool upward = distance(above, query->near) < distance(below, query->near);
    return page_usable(space, query, within, upward ? above : below, out) ||
           page_usable(space, query, within, upward ? below : above, out);
}

// A new page of a gap, the one nearest to the query's wish.
static bool gap_page_find(const struct tl_space *space, const struct tl_place_query *query,
                          tl_addr *out)
{
    bool found = false;
    for (size_t i = gap_at(space, tl_page_down(query->first));
         i < space->gap_count && space->gap[i].start <= query->last; i++) {
        struct tl_range gap = space->gap[i];
        tl_addr low = tl_page_down(query->first), high = tl_page_down(query->last);
        low = low < gap.start ? gap.start : low;
        high = high >= gap.end ? gap.end - TL_PAGE_SIZE : high;
        if (low > high)
            continue;
        tl_addr page = tl_page_down(query->near);
        page = page < low ? low : page > high ? high : page;
        struct tl_range within = {low, high + TL_PAGE_SIZE};
        tl_addr addr;
        if (!page_usable(space, query, within, page, &addr) &&
            !page_usable(space, query, within, page + TL_PAGE_SIZE, &addr) &&
            !beside_groups(space, query, within, page, &addr) &&
            !page_usable(space, query, within, low, &addr))
            continue;
        if (!found || distance(addr, query->near) < distance(*out, query->near))
            *out = addr;
        found = true;
    }
    return found;
}

enum tl_place_cost tl_space_find(const struct tl_space *space, const struct tl_place_query *query,
                                 tl_addr *addr)
{
    if (query->first > query->last)
        return TL_PLACE_NONE;
    if (query->last - query->first < TL_PAGE_SIZE)
        return narrow_find(space, query, addr);
    if (pages_find(space, query, query->dense, addr))
        return TL_PLACE_PAGE;
    if (groups_find(space, query, addr))
        return TL_PLACE_MAPPING;
    if (!gap_page_find(space, query, addr))
        return query->dense && pages_find(space, query, false, addr) ? TL_PLACE_PAGE
                                                                     : TL_PLACE_NONE;
    if (page_cost(space, tl_page_down(*addr)) != TL_PLACE_LIMIT)
        return TL_PLACE_NEW_MAPPING;
    return query->dense && pages_find(space, query, false, addr) ? TL_PLACE_PAGE : TL_PLACE_LIMIT;
}

// ---- taking and giving ------------------------------------------------------------------------

static int group_page_add(struct tl_space *space, tl_addr page, bool guarded)
{
    struct group *group = group_find(space, page);
    if (!group) {
        if (space->group_count == space->group_max) {
            size_t max = space->group_max ? 2 * space->group_max : 64;
            struct group *grown = realloc(space->group, max * sizeof *grown);
            if (!grown)
                return TL_E_NOMEM;
            space->group = grown;
            space->group_max = max;
        }
        const struct tl_range *gap = &space->gap[gap_at(space, page)];
        tl_addr size = space->group_size, start = page / size * size, end = start + size;
        size_t index = group_at(space, page);
        group = &space->group[index];
        // Groups that were made before kinds were expected are larger.
        if (index && group[-1].end > start)
            start = group[-1].end;
        if (index < space->group_count && group->start < end)
            end = group->start;
        memmove(group + 1, group, (space->group_count - index) * sizeof *group);
        space->group_count++;
        *group = (struct group){.start = start > gap->start ? start : gap->start,
                                .end = end < gap->end ? end : gap->end,
                                .low = page,
                                .high = page};
    }
    if (!group->pages++) {
        space->group_used++;
        group->low = group->high = page;
        group->guarded = guarded;
    }
    group->low = page < group->low ? page : group->low;
    group->high = page > group->high ? page : group->high;
    return 0;
}

static void group_page_remove(struct tl_space *space, tl_addr page)
{
    struct group *group = group_find(space, page);
    if (group && !--group->pages)
        space->group_used--;
}

// Room for one more chunk at index; the caller fills it.
static struct chunk *chunk_insert(struct tl_space *space, size_t index)
{
    if (space->chunk_count == space->chunk_max) {
        size_t max = space->chunk_max ? 2 * space->chunk_max : 16;
        struct chunk **grown = realloc(space->chunk, max * sizeof *grown);
        if (!grown)
            return NULL;
        space->chunk = grown;
        space->chunk_max = max;
    }
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return NULL;
    memmove(space->chunk + index + 1, space->chunk + index,
            (space->chunk_count - index) * sizeof *space->chunk);
    space->chunk[index] = chunk;
    space->chunk_count++;
    return chunk;
}

static struct page *page_insert(struct tl_space *space, tl_addr addr, unsigned pool)
{
    if (!space->chunk_count && !chunk_insert(space, 0))
        return NULL;
    size_t index = chunk_at(space, addr);
    struct chunk *chunk = space->chunk[index];
    if (chunk->count == CHUNK_PAGES) {
        struct chunk *upper = chunk_insert(space, index + 1);
        if (!upper)
            return NULL;
        chunk->count = CHUNK_PAGES / 2;
        upper->count = CHUNK_PAGES - CHUNK_PAGES / 2;
        memcpy(upper->page, chunk->page + chunk->count, upper->count * sizeof upper->page[0]);
        chunk_measure(chunk);
        chunk_measure(upper);
        if (addr >= upper->page[0].addr)
            chunk = upper;
    }
    unsigned i = page_at(chunk, addr);
    memmove(&chunk->page[i + 1], &chunk->page[i], (chunk->count - i) * sizeof chunk->page[0]);
    chunk->count++;
    chunk->page[i] = (struct page){
        .addr = addr, .dense = pool & TL_POOL_DENSE, .guarded = pool & TL_POOL_GUARDED};
    return &chunk->page[i];
}

static void page_remove(struct tl_space *space, tl_addr addr)
{
    size_t index = chunk_at(space, addr);
    struct chunk *chunk = space->chunk[index];
    unsigned i = page_at(chunk, addr);
    chunk->count--;
    memmove(&chunk->page[i], &chunk->page[i + 1], (chunk->count - i) * sizeof chunk->page[0]);
    if (chunk->count) {
        chunk_measure(chunk);
        return;
    }
    free(chunk);
    space->chunk_count--;
    memmove(space->chunk + index, space->chunk + index + 1,
            (space->chunk_count - index) * sizeof *space->chunk);
}

static void grains_set(struct tl_space *space, struct page *page, struct tl_range slots, bool taken)
{
    tl_addr start = slots.start > page->addr ? slots.start : page->addr;
    tl_addr end = page->addr + TL_PAGE_SIZE;
    end = slots.end < end ? slots.end : end;
    for (tl_addr at = start; at < end; at += SLOT_MIN) {
        unsigned grain = (unsigned)((at - page->addr) / SLOT_MIN);
        uint64_t bit = (uint64_t)1 << (grain % 64);
        if (taken)
            page->taken[grain / 64] |= bit;
        else
            page->taken[grain / 64] &= ~bit;
    }
    page_measure(page);
    chunk_measure(space->chunk[chunk_at(space, page->addr)]);
}

int tl_space_take(struct tl_space *space, tl_addr addr, uint16_t size, uint8_t slot_size,
                  unsigned pool)
{
    struct tl_range slots = touched(addr, size, slot_size);
    for (tl_addr base = tl_page_down(slots.start); base < slots.end; base += TL_PAGE_SIZE) {
        struct page *page = page_find(space, base);
        if (!page) {
            if (group_page_add(space, base, pool & TL_POOL_GUARDED))
                return TL_E_NOMEM;
            page = page_insert(space, base, pool);
            if (!page) {
                group_page_remove(space, base);
                return TL_E_NOMEM;
            }
        }
        grains_set(space, page, slots, true);
    }
    return 0;
}

void tl_space_give(struct tl_space *space, tl_addr addr, uint16_t size, uint8_t slot_size)
{
    struct tl_range slots = touched(addr, size, slot_size);
    for (tl_addr base = tl_page_down(slots.start); base < slots.end; base += TL_PAGE_SIZE) {
        struct page *page = page_find(space, base);
        if (!page)
            continue;
        grains_set(space, page, slots, false);
        if (page->run == PAGE_GRAINS) {
            page_remove(space, base);
            group_page_remove(space, base);
        }
    }
}

// ---- mappings ---------------------------------------------------------------------------------

// Joins pages across free holes of at most `hole` bytes; returns how many mappings are left. out and
// guarded may be NULL.
static size_t pages_merge(const struct tl_space *space, tl_addr hole, struct tl_range *out,
                          bool *guarded)
{
    size_t count = 0;
    struct tl_range last = {0, 0};
    tl_addr gap_end = 0;
    bool kind = false;
    for (size_t c = 0; c < space->chunk_count; c++) {
        const struct chunk *chunk = space->chunk[c];
        for (unsigned i = 0; i < chunk->count; i++) {
            tl_addr addr = target_down(space, chunk->page[i].addr), end = addr + space->page_size;
            if (!count || addr >= gap_end || chunk->page[i].guarded != kind ||
                (addr > last.end && addr - last.end > hole) || end - last.start > GROUP_SIZE) {
                last.start = addr;
                kind = chunk->page[i].guarded;
                gap_end = space->gap[gap_at(space, addr)].end;
                count++;
            }
            last.end = end;
            if (out) {
                out[count - 1] = last;
                guarded[count - 1] = kind;
            }
        }
    }
    return count;
}

int tl_space_merge(struct tl_space *space, struct tl_diag *diag)
{
    size_t wanted = space->mapping_limit < MAPPINGS_WANTED ? space->mapping_limit : MAPPINGS_WANTED;
    tl_addr hole = 0;
    size_t count = pages_merge(space, hole, NULL, NULL);
    for (hole = TL_PAGE_SIZE; !space->lean && count > wanted && hole < GROUP_SIZE; hole *= 4)
        count = pages_merge(space, hole, NULL, NULL);
    if (space->lean)
        hole = 0;
    else if (count > wanted)
        hole = GROUP_SIZE;
    else
        hole /= 4;
    count = pages_merge(space, hole, NULL, NULL);
    struct tl_range *mapping = realloc(space->mapping, (count + 1) * sizeof *mapping);
    if (mapping)
        space->mapping = mapping;
    bool *guarded = realloc(space->mapping_guarded, (count + 1) * sizeof *guarded);
    if (guarded)
        space->mapping_guarded = guarded;
    if (!mapping || !guarded)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu mappings", count);
    space->mapping_count = pages_merge(space, hole, mapping, guarded);
    return 0;
}

bool tl_space_mapping_guarded(const struct tl_space *space, size_t index)
{
    return index < space->mapping_count && space->mapping_guarded[index];
}

size_t tl_space_mappings(struct tl_space *space, const struct tl_range **out)
{
    *out = space->mapping;
    return space->mapping_count;
}

// The memory of replaced return addresses: made with the install, told what text there is, and
// emptied on the way out.
//
// Does not replace a return address (the agent does) and never frees a slot: a thread may be on its
// way through the trampoline. Invariant: what is put back is what the agent took, at a word that
// still holds the trampoline's address, and lies in executable memory; the target's own words are
// believed no further. Where return addresses come in a register the word lies where the function
// stores it (proved by the session), and is the frame's that came there last: what a live frame
// calls lies below all that it stores, so no other frame came later and began above the word.
// Before that it is in the register (link.c).
#include "base/page.h"
#include "patch/install.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define END_TRIES_MAX 6     // stops, while a thread stands in the agent, or in the kernel
#define END_PAUSE_NS 200000 // before the second; then twice as long each time
#define SLOTS_PER_PAGE (TL_PAGE_SIZE / sizeof(struct tl_hijack_slot))
#define SLOT_PAGES (TL_HIJACK_SLOTS / SLOTS_PER_PAGE)
#define PAGE_THERE                                                                                 \
    (UINT64_C(3) << 62) // present or swapped: Documentation/admin-guide/mm/pagemap.rst

uint64_t tl_hijack_size(void)
{
    return tl_kernel_page_up(sizeof(struct tl_hijack_head));
}

// While the target runs, or stands: plain memory that may be written.
static int words_write(struct tl_target *target, tl_addr addr, const void *buf, size_t size,
                       struct tl_diag *diag)
{
    pid_t pid = tl_target_pid(target);
    struct iovec here = {(void *)(uintptr_t)buf, size}, there = {(void *)(uintptr_t)addr, size};
    if (process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)size)
        return 0;
    return tl_target_write(target, addr, buf, size, NULL, diag); // a kernel without that call
}

// ---- text ---------------------------------------------------------------------------------------

bool tl_map_is_text(const struct tl_map *map)
{
    return (map->prot & TL_PROT_EXEC) && map->inode && !tl_map_is(map, TL_CODE_PATH);
}

// Neighbours are joined. Returns how many; what finds no room is no text: its calls are counted as
// lost.
static size_t ranges_collect(const struct tl_maps *maps, struct tl_range *range)
{
    size_t count = 0;
    for (size_t i = 0; i < maps->count; i++) {
        const struct tl_map *map = &maps->map[i];
        if (!tl_map_is_text(map))
            continue;
        if (count && range[count - 1].end == map->start)
            range[count - 1].end = map->end;
        else if (count < TL_HIJACK_RANGES_MAX)
            range[count++] = (struct tl_range){map->start, map->end};
    }
    return count;
}

int tl_install_hijack_ranges(struct tl_install *install, struct tl_diag *diag)
{
    tl_addr head = install->header.hijack_addr;
    const uint64_t none = 0;
    struct tl_maps maps;
    if (!head)
        return 0;
    int error = tl_maps_read(tl_target_pid(install->target), &maps, diag);
    if (error)
        return error;
    struct tl_range *range = calloc(TL_HIJACK_RANGES_MAX, sizeof *range);
    uint64_t count = range ? ranges_collect(&maps, range) : 0;
    tl_maps_deinit(&maps);
    // Empty in between, so that hardly any thread sees half of it; one that does finds a range of
    // text that was there, or is there now.
    const tl_addr count_addr = head + offsetof(struct tl_hijack_head, range_count);
    error = words_write(install->target, count_addr, &none, sizeof none, diag);
    if (!error && count)
        error = words_write(install->target, head + offsetof(struct tl_hijack_head, range), range,
                            count * sizeof *range, diag);
    if (!error)
        error = words_write(install->target, count_addr, &count, sizeof count, diag);
    free(range);
    return error;
}

// ---- made ---------------------------------------------------------------------------------------

int tl_hijack_map(struct tl_install *install, struct tl_diag *diag)
{
    const struct tl_code_header *header = &install->header;
    if (!header->hijack_addr)
        return 0;
    int error = tl_region_map(install->target, header->hijack_addr, header->hijack_size,
                              PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                              -1, 0, diag);
    if (error)
        return error;
    // A ring of one.
    const uint64_t words[2] = {header->hijack_addr,
                               header->agent_addr + install->head.trampoline_off};
    _Static_assert(offsetof(struct tl_hijack_head, next) == 0 &&
                       offsetof(struct tl_hijack_head, trampoline) == 8,
                   "the words' places");
    error = words_write(install->target, header->hijack_addr, words, sizeof words, diag);
    return error ? error : tl_install_hijack_ranges(install, diag);
}

int tl_install_hijack_places(struct tl_install *install, const uint16_t *place, size_t count,
                             struct tl_diag *diag)
{
    tl_addr head = install->header.hijack_addr;
    if (count > TL_HIJACK_PLACES_MAX)
        count = TL_HIJACK_PLACES_MAX;
    if (!head || !count)
        return 0;
    return words_write(install->target, head + offsetof(struct tl_hijack_head, place), place,
                       count * sizeof *place, diag);
}

bool tl_install_hijacks(const struct tl_install *install)
{
    return install->header.hijack_addr != 0;
}

int tl_install_hijack_join(const struct tl_install *first, struct tl_install *second,
                           struct tl_diag *diag)
{
    tl_addr one = first->header.hijack_addr, two = second->header.hijack_addr;
    struct tl_target *target = second->target; // the first may be there by fork only
    uint64_t next;
    if (!one || !two)
        return 0;
    int error = tl_target_read(target, one, &next, sizeof next, diag);
    if (!error) // at every moment each ring is whole
        error = words_write(target, two, &next, sizeof next, diag);
    if (!error)
        error = words_write(target, one, &two, sizeof two, diag);
    return error;
}

// ---- emptied ------------------------------------------------------------------------------------

bool tl_hijack_is(const struct tl_maps *maps, const struct tl_code_header *header)
{
    const struct tl_map *map = header->hijack_addr ? tl_maps_at(maps, header->hijack_addr) : NULL;
    return map && !map->inode && !map->path[0] && map->start == header->hijack_addr &&
           header->hijack_size == tl_hijack_size() &&
           map->end - map->start == header->hijack_size &&
           map->prot == (TL_PROT_READ | TL_PROT_WRITE);
}

// A slot in use, and where its return address is kept. What is kept below the key may be what an
// older slot, of a frame that was left by a jump, names too.
struct waiting {
    tl_addr place, key; // place 0: not known, or in a register
    uint64_t original, since;
    uint64_t counter; // its index
    size_t order;
};

struct waiting_list {
    struct waiting *slot;
    size_t count, room;
    uint64_t counter_max;
};

// Most of a frame that a tail call to a function without a probe may have made.
#define FRAME_MAX 16384

static int by_place(const void *a, const void *b)
{
    const struct waiting *left = a, *right = b;
    if (left->place != right->place)
        return left->place < right->place ? -1 : 1;
    if (left->since != right->since) // the later one first
        return left->since > right->since ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

static int by_key(const void *a, const void *b)
{
    const struct waiting *left = a, *right = b;
    return left->key < right->key ? -1 : left->key > right->key;
}

static bool waiting_add(struct waiting_list *list, const struct tl_hijack_slot *slot)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : SLOTS_PER_PAGE;
        struct waiting *grown = realloc(list->slot, room * sizeof *grown);
        if (!grown)
            return false;
        list->slot = grown;
        list->room = room;
    }
    uint64_t counter = (slot->counter_off - TL_BLOCK_HEADER_SIZE) / 8;
    if (counter >= TL_HIJACK_PLACES_MAX) // not known
        return true;
    if (counter > list->counter_max)
        list->counter_max = counter;
    list->slot[list->count] =
        (struct waiting){.key = slot->key,
                         .original = slot->original,
                         .since = slot->returned & TL_HIJACK_SINCE ? slot->returned : 0,
                         .counter = counter,
                         .order = list->count};
    list->count++;
    return true;
}

// Whether a frame that came later lies where the word does: then it is not the older one's. keyed:
// by key.
static bool outlived(const struct waiting_list *keyed, const struct waiting *slot)
{
    size_t low = 0, high = keyed->count;
    if (slot->place == slot->key)
        return false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (keyed->slot[middle].key > slot->place)
            high = middle;
        else
            low = middle + 1;
    }
    for (; low < keyed->count && keyed->slot[low].key - slot->place <= FRAME_MAX; low++) {
        if (keyed->slot[low].since > slot->since)
            return true;
    }
    return false;
}

static bool is_code(const struct tl_maps *maps, tl_addr addr)
{
    const struct tl_map *map = tl_maps_at(maps, addr);
    return map && (map->prot & TL_PROT_EXEC);
}

static bool slot_put_back(struct tl_target *target, const struct tl_maps *maps,
                          const struct waiting *slot, tl_addr trampoline)
{
    uint64_t word;
    return is_code(maps, slot->original) &&
           tl_target_read(target, slot->place, &word, sizeof word, NULL) == 0 &&
           word == trampoline &&
           tl_target_write(target, slot->place, &slot->original, sizeof slot->original, NULL,
                           NULL) == 0;
}

static size_t list_put_back(struct tl_target *target, const struct tl_maps *maps,
                            struct waiting_list *list, tl_addr trampoline)
{
    struct waiting_list keyed = {.slot = malloc((list->count + 1) * sizeof *keyed.slot),
                                 .count = list->count};
    size_t count = 0;
    if (!keyed.slot)
        return 0;
    if (list->count) {
        memcpy(keyed.slot, list->slot, list->count * sizeof *keyed.slot);
        qsort(keyed.slot, list->count, sizeof *keyed.slot, by_key);
        qsort(list->slot, list->count, sizeof *list->slot, by_place);
    }
    for (size_t i = 0; i < list->count; i++) {
        const struct waiting *slot = &list->slot[i];
        bool older = i && list->slot[i - 1].place == slot->place && slot->place != slot->key;
        count += slot->place && !older && !outlived(&keyed, slot) &&
                 slot_put_back(target, maps, slot, trampoline);
    }
    free(keyed.slot);
    return count;
}

struct registers {
    const struct waiting_list *list;
    const struct tl_maps *maps;
};

// A function that has its return address in a register still has called nothing: one that came
// later, and was entered near by, is not below it, and the slot is that of a dead frame.
#define NEAR 1024u
static bool entered_since(const struct waiting_list *list, const struct waiting *found)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct waiting *slot = &list->slot[i];
        if (slot->since > found->since && slot->key > found->place &&
            slot->key - found->place <= NEAR)
            return true;
    }
    return false;
}

// The frame's that came last, of all that were entered with that stack pointer, or store the
// address there.
static uint64_t link_original(const struct tl_link *link, void *opaque)
{
    const struct registers *registers = opaque;
    const struct waiting *found = NULL;
    for (size_t i = 0; i < registers->list->count; i++) {
        const struct waiting *slot = &registers->list->slot[i];
        bool fits = link->entry ? slot->key == link->entry : slot->place == link->place;
        if (fits && (!found || slot->since > found->since))
            found = slot;
    }
    if (!found || !is_code(registers->maps, found->original) ||
        (!link->entry && entered_since(registers->list, found)))
        return 0;
    return found->original;
}

// The kernel's page, counted from that of the first slot, that part `index` of the slots lies in.
static size_t page_index(tl_addr slots, size_t index)
{
    return (size_t)((slots + index * TL_PAGE_SIZE) / tl_page_size() - slots / tl_page_size());
}

// Which pages of the slots are memory: the others were never used. Not known: all may be.
static void pages_find(pid_t pid, tl_addr slots, uint64_t map[SLOT_PAGES])
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/pagemap", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size = (page_index(slots, SLOT_PAGES - 1) + 1) * sizeof *map;
    if (fd < 0 ||
        pread(fd, map, size, (off_t)(slots / tl_page_size() * sizeof *map)) != (ssize_t)size)
        memset(map, 0xff, size);
    if (fd >= 0)
        close(fd);
}

static bool page_collect(struct tl_target *target, tl_addr page, struct waiting_list *list)
{
    struct tl_hijack_slot slot[SLOTS_PER_PAGE];
    bool whole = true;
    if (tl_target_read(target, page, slot, sizeof slot, NULL) != 0)
        return true;
    for (size_t i = 0; i < SLOTS_PER_PAGE && whole; i++)
        whole = !slot[i].key || waiting_add(list, &slot[i]);
    return whole;
}

// By what the controller wrote there of the functions.
static void places_find(struct tl_target *target, const struct tl_code_header *header,
                        struct waiting_list *list)
{
    tl_addr addr = header->hijack_addr + offsetof(struct tl_hijack_head, place);
    size_t size = (size_t)(list->counter_max + 1) * sizeof(uint16_t);
    uint16_t *place = malloc(size);
    if (place && tl_target_read(target, addr, place, size, NULL) == 0) {
        for (size_t i = 0; i < list->count; i++) {
            struct waiting *slot = &list->slot[i];
            uint16_t here = place[slot->counter];
            if (here != 0 && here != TL_HIJACK_NOWHERE)
                slot->place = slot->key - (here - TL_HIJACK_AT_KEY) * UINT64_C(8);
        }
    }
    free(place);
}

// Where replaced return addresses lead, by the target's own word. 0: there are none.
static tl_addr trampoline_addr(struct tl_target *target, const struct tl_code_header *header)
{
    tl_addr addr = 0, at = header->hijack_addr + offsetof(struct tl_hijack_head, trampoline);
    if (!header->hijack_addr || tl_target_read(target, at, &addr, sizeof addr, NULL) != 0 ||
        addr - header->agent_addr >= header->agent_size)
        return 0;
    return addr;
}

size_t tl_hijack_put_back(struct tl_target *target, const struct tl_code_header *header,
                          const struct tl_writes *writes)
{
    struct tl_maps maps;
    struct waiting_list list = {.slot = NULL};
    uint64_t trampoline = trampoline_addr(target, header);
    size_t count = 0;
    if (!trampoline || tl_maps_read(tl_target_pid(target), &maps, NULL) != 0)
        return 0;
    uint64_t *there = malloc(SLOT_PAGES * sizeof *there);
    const tl_addr slots = header->hijack_addr + offsetof(struct tl_hijack_head, slot);
    bool ours = there && tl_hijack_is(&maps, header);
    if (ours) {
        const uint64_t ended = 1;
        (void)tl_target_write(target, header->hijack_addr + offsetof(struct tl_hijack_head, ended),
                              &ended, sizeof ended, NULL, NULL);
        pages_find(tl_target_pid(target), slots, there);
    }
    bool whole = ours;
    for (size_t i = 0; whole && i < SLOT_PAGES; i++) {
        if (there[page_index(slots, i)] & PAGE_THERE)
            whole = page_collect(target, slots + i * TL_PAGE_SIZE, &list);
    }
    if (ours) {
        places_find(target, header, &list);
        count = list_put_back(target, &maps, &list, trampoline);
        struct registers registers = {&list, &maps};
        const struct tl_link_search search = {.target = target,
                                              .maps = &maps,
                                              .writes = writes,
                                              .agent = tl_code_agent(header),
                                              .replaced = trampoline,
                                              .original = link_original,
                                              .opaque = &registers};
        count += list.count ? tl_links_put_back(&search) : 0;
    }
    free(list.slot);
    free(there);
    tl_maps_deinit(&maps);
    return count;
}

bool tl_hijack_put_back_whole(struct tl_install *install)
{
    struct tl_target *target = install->target;
    struct tl_thread_view view;
    struct tl_maps maps;
    bool whole = true;
    if (!install->header.hijack_addr)
        return true;
    (void)tl_hijack_put_back(target, &install->header, &install->writes);
    if (tl_maps_read(tl_target_pid(target), &maps, NULL) != 0)
        return false;
    for (size_t i = 0; i < tl_target_thread_count(target) && whole; i++) {
        if (tl_target_thread_view(target, i, &view) != 0)
            continue;
        const struct tl_map *map = tl_maps_at(&maps, view.pc);
        whole = !view.link_hidden && (!map || !tl_map_is(map, TL_CODE_PATH));
    }
    tl_maps_deinit(&maps);
    return whole;
}

static int end_run(void *opaque)
{
    struct tl_install *install = opaque;
    bool held = tl_target_thread_count(install->target) != 0, whole = false;
    int error = 0;
    for (int i = 0; i < END_TRIES_MAX && !error && !whole; i++) {
        const struct timespec pause = {.tv_nsec = END_PAUSE_NS << (i ? i - 1 : 0)};
        if (i)
            nanosleep(&pause, NULL);
        error = tl_patch_stop(install->target, NULL, NULL);
        if (!error)
            whole = tl_hijack_put_back_whole(install);
        if (!held)
            tl_target_resume(install->target);
        else
            break;
    }
    return error;
}

int tl_install_hijack_end(struct tl_install *install, struct tl_diag *diag)
{
    if (!install->header.hijack_addr || !tl_target_alive(install->target))
        return 0;
    int error = tl_target_run(install->target, end_run, install, NULL);
    if (!error || !tl_target_alive(install->target)) // it ended meanwhile: so did they
        return 0;
    return tl_diag_set(diag, error, "pid %d: return addresses could not be put back",
                       (int)tl_target_pid(install->target));
}

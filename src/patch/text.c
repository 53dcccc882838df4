// The bytes of the target's text: compared, written, put back.
//
// Patches that lie near each other are read and written as one group, so that each write is one
// system call whose bytes change together. Everything here runs while all tasks are stopped.
// Invariant: a byte is only ever changed from what is expected there: the file's when writing, ours
// when putting back.
#include "attach/isa.h"
#include "base/page.h"
#include "patch/install.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANK_MAX 255u
#define RANK_ROUNDS_MAX 64u
#define STANDING_TRIES_MAX 50u
#define STANDING_WAIT_US 1000u

struct tl_text_group {
    tl_addr addr;
    size_t size;         // read: with the bytes that the last patch relies on
    size_t write_size;   // up to the last patch's end: what follows may be the next group's
    size_t first, count; // of writes
    uint8_t *bytes;      // as read; NULL: can't be read
};

static tl_addr write_end(const struct tl_write *write)
{
    return write->patch.addr + write->patch.size + write->patch.relied;
}

static void group_load(struct tl_target *target, const struct tl_writes *writes,
                       struct tl_text_group *group, tl_addr end)
{
    group->addr = writes->write[group->first].patch.addr;
    const struct tl_patch *last = &writes->write[group->first + group->count - 1].patch;
    group->size = (size_t)(end - group->addr);
    group->write_size = (size_t)(last->addr + last->size - group->addr);
    group->bytes = group->size ? malloc(group->size) : NULL;
    if (group->bytes && tl_target_read(target, group->addr, group->bytes, group->size, NULL) != 0) {
        free(group->bytes);
        group->bytes = NULL;
    }
}

int tl_text_load(struct tl_target *target, struct tl_writes *writes, struct tl_text_view *out,
                 struct tl_diag *diag)
{
    struct tl_text_view text = {0};
    int error = tl_maps_read(tl_target_pid(target), &text.maps, diag);
    if (error)
        return error;
    text.group = calloc(writes->count ? writes->count : 1, sizeof *text.group);
    if (!text.group) {
        tl_maps_deinit(&text.maps);
        return tl_diag_set(diag, TL_E_NOMEM, "pid %d: out of memory", (int)tl_target_pid(target));
    }
    for (size_t i = 0; i < writes->count;) {
        struct tl_text_group *group = &text.group[text.group_count++];
        group->first = i;
        tl_addr start = writes->write[i].patch.addr, end = start;
        do {
            end = write_end(&writes->write[i]) > end ? write_end(&writes->write[i]) : end;
            i++;
            group->count++;
        } while (i < writes->count &&
                 tl_page_down(writes->write[i].patch.addr) == tl_page_down(start)); // small groups
        group_load(target, writes, group, end);
    }
    *out = text;
    return 0;
}

void tl_text_deinit(struct tl_text_view *text)
{
    for (size_t i = 0; i < text->group_count; i++)
        free(text->group[i].bytes);
    free(text->group);
    tl_maps_deinit(&text->maps);
    *text = (struct tl_text_view){0};
}

// The bytes from addr on, as loaded. NULL: can't be read. Groups may overlap by relied bytes; the
// last that starts at or before addr is the one that holds the patch there.
static uint8_t *bytes_at(const struct tl_text_view *text, tl_addr addr)
{
    size_t low = 0, high = text->group_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (addr < text->group[middle].addr)
            high = middle;
        else
            low = middle + 1;
    }
    const struct tl_text_group *group = low ? &text->group[low - 1] : NULL;
    if (!group || !group->bytes || addr >= group->addr + group->size)
        return NULL;
    return group->bytes + (addr - group->addr);
}

const struct tl_write *tl_writes_at(const struct tl_writes *writes, tl_addr addr)
{
    size_t low = 0, high = writes->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct tl_write *write = &writes->write[middle];
        if (addr < write->patch.addr)
            high = middle;
        else if (addr >= write->patch.addr + write->patch.size)
            low = middle + 1;
        else
            return write;
    }
    return NULL;
}

bool tl_text_relied(const struct tl_text_view *text, const struct tl_writes *writes,
                    const struct tl_write *write)
{
    for (unsigned i = write->patch.size; i < (unsigned)write->patch.size + write->patch.relied;
         i++) {
        tl_addr addr = write->patch.addr + i;
        const struct tl_write *other = tl_writes_at(writes, addr);
        const uint8_t *byte = bytes_at(text, addr);
        if (other && other->state == TL_WRITE_PLANNED)
            byte = &other->patch.after[addr - other->patch.addr];
        if (!byte || *byte != write->patch.after[i])
            return false;
    }
    return true;
}

// The rank that one write must have at least, as the others' are now.
static uint8_t rank_needed(const struct tl_writes *writes, const struct tl_write *write,
                           const uint8_t *plan_rank)
{
    unsigned rank = write->order ? plan_rank[write->plan] : 0u;
    for (unsigned i = 0; i < write->patch.relied; i++) {
        const struct tl_write *other =
            tl_writes_at(writes, write->patch.addr + write->patch.size + i);
        if (other && other->rank + 1u > rank)
            rank = other->rank + 1u;
    }
    return (uint8_t)(rank < RANK_MAX ? rank : RANK_MAX);
}

void tl_writes_rank(struct tl_writes *writes)
{
    size_t plan_count = 0;
    for (size_t i = 0; i < writes->count; i++) {
        writes->write[i].rank = writes->write[i].order;
        if (writes->write[i].plan >= plan_count)
            plan_count = writes->write[i].plan + 1;
    }
    // Rank that the next patch of a plan needs: one more than its predecessor's.
    uint8_t *plan_rank = calloc(plan_count + 1, sizeof *plan_rank);
    bool changed = plan_rank != NULL;
    for (unsigned round = 0; changed && round < RANK_ROUNDS_MAX; round++) {
        changed = false;
        for (unsigned order = 0; order < TL_SITE_PATCHES_MAX; order++) {
            for (size_t i = writes->count; i-- > 0;) {
                struct tl_write *write = &writes->write[i];
                if (write->order != order)
                    continue;
                uint8_t rank = rank_needed(writes, write, plan_rank);
                if (rank > write->rank) {
                    write->rank = rank;
                    changed = true;
                }
                plan_rank[write->plan] = (uint8_t)(write->rank + (write->rank < RANK_MAX ? 1 : 0));
            }
        }
    }
    free(plan_rank);
}

// The mapping is the same piece of the same file.
static bool mapping_matches(const struct tl_map *map, const struct tl_write *write)
{
    return map && map->inode == write->inode && map->dev_major == write->dev_major &&
           map->dev_minor == write->dev_minor &&
           map->file_off + (write->patch.addr - map->start) == write->file_off;
}

enum tl_refusal tl_text_check(const struct tl_text_view *text, const struct tl_write *write)
{
    const struct tl_map *map = tl_maps_at(&text->maps, write->patch.addr);
    if (!map)
        return TL_REFUSE_UNLOADED;
    if (map->prot & (TL_PROT_SHARED | TL_PROT_WRITE))
        return TL_REFUSE_TEXT_SHARED;
    if (!(map->prot & TL_PROT_EXEC) || map->inode == 0 ||
        write->patch.addr + write->patch.size > map->end)
        return TL_REFUSE_NOT_CODE;
    if (!mapping_matches(map, write))
        return TL_REFUSE_UNLOADED;
    const uint8_t *bytes = bytes_at(text, write->patch.addr);
    if (!bytes || memcmp(bytes, write->patch.before, write->patch.size) != 0)
        return TL_REFUSE_CHANGED_BYTES;
    return TL_REFUSE_NONE;
}

bool tl_text_intact(const struct tl_text_view *text, const struct tl_write *write, bool *gone)
{
    const struct tl_map *map = tl_maps_at(&text->maps, write->patch.addr);
    const uint8_t *bytes = bytes_at(text, write->patch.addr);
    *gone = !mapping_matches(map, write);
    size_t size = (size_t)write->patch.size + write->patch.relied;
    return !*gone && bytes && memcmp(bytes, write->patch.after, size) == 0;
}

bool tl_text_without_ours(const struct tl_text_view *text, const struct tl_write *write)
{
    const uint8_t *bytes = bytes_at(text, write->patch.addr);
    return !bytes || memcmp(bytes, write->patch.before, write->patch.size) == 0;
}

// Writes a group with some of its patches changed. On success the loaded bytes are the new ones.
static int group_write(struct tl_target *target, struct tl_text_group *group, const uint8_t *bytes,
                       struct tl_diag *diag)
{
    int error = tl_target_write(target, group->addr, bytes, group->write_size, NULL, diag);
    if (!error)
        memcpy(group->bytes, bytes, group->write_size);
    return error;
}

static unsigned rank_highest(const struct tl_writes *writes)
{
    unsigned highest = 0;
    for (size_t i = 0; i < writes->count; i++)
        highest = writes->write[i].rank > highest ? writes->write[i].rank : highest;
    return highest;
}

// Every byte is ours, the file's, or a breakpoint that somebody set since. Anything else is another
// tool's code, of which no byte may be touched even where it happens to equal ours.
static bool patch_is_ours(const struct tl_patch *patch, const uint8_t *at)
{
    for (size_t i = 0; i < patch->size; i++) {
        if (at[i] != patch->after[i] && at[i] != patch->before[i] &&
            at[i] != tl_breakpoint.bytes[i % tl_breakpoint.size])
            return false;
    }
    return true;
}

// Puts one patch back in a group's new bytes. True: something of ours was there.
static bool patch_put_back(const struct tl_text_view *text, struct tl_write *write, uint8_t *at)
{
    bool ours = false;
    if (!mapping_matches(tl_maps_at(&text->maps, write->patch.addr), write) ||
        !patch_is_ours(&write->patch, at))
        return false;
    for (size_t i = 0; i < write->patch.size; i++) {
        if (at[i] != write->patch.after[i] || at[i] == write->patch.before[i])
            continue;
        at[i] = write->patch.before[i];
        ours = true;
    }
    return ours;
}

bool tl_text_has_ours(const struct tl_text_view *text, const struct tl_write *write)
{
    struct tl_write copy = *write;
    uint8_t bytes[TL_PATCH_SIZE_MAX];
    const uint8_t *at = bytes_at(text, write->patch.addr);
    if (!at)
        return false;
    memcpy(bytes, at, write->patch.size);
    return patch_put_back(text, &copy, bytes);
}

// ---- branches of several instructions ---------------------------------------------------------------

static bool is_long(const struct tl_write *write)
{
    return tl_branch_size && write->patch.size > tl_branch_size && write->state == TL_WRITE_DONE;
}

// Looks for threads that stand in our code, or inside of a long branch, or will come back there.
struct standing {
    const struct tl_text_view *text;
    const struct tl_writes *writes;
    struct tl_range passed; // means nothing on a stack
    bool found;
};

static void standing_word(tl_addr addr, uint64_t word, void *opaque)
{
    (void)addr;
    struct standing *standing = opaque;
    const struct tl_write *write = tl_writes_at(standing->writes, word);
    const struct tl_map *map = tl_maps_at(&standing->text->maps, word);
    if (word >= standing->passed.start && word < standing->passed.end)
        return;
    standing->found |= write && word > write->patch.addr && is_long(write);
    standing->found |= map && map->prot & TL_PROT_EXEC && tl_map_is(map, TL_CODE_PATH);
}

static bool anybody_standing(struct tl_target *target, const struct tl_text_view *text,
                             const struct tl_writes *writes)
{
    struct standing standing = {.text = text, .writes = writes};
    for (size_t i = 0; i < tl_target_thread_count(target) && !standing.found; i++) {
        struct tl_thread_view view;
        if (tl_target_thread_view(target, i, &view) != 0)
            return true;
        standing.passed = (struct tl_range){0, 0};
        standing_word(0, view.pc, &standing);
        standing.passed = text->agent;
        standing.found |= !tl_stack_words(target, &view, standing_word, &standing);
    }
    return standing.found;
}

bool tl_text_wait(struct tl_target *target, size_t left, bool held, unsigned *tries)
{
    if (!left || *tries == STANDING_TRIES_MAX)
        return false;
    ++*tries;
    if (held)
        tl_target_resume_others(target);
    else
        tl_target_resume(target);
    (void)usleep(STANDING_WAIT_US);
    return true;
}

// What is to be put back in one call.
struct put_back {
    bool (*pick)(const struct tl_write *write, void *opaque);
    void *opaque;
    bool keep_long;
    size_t left;
};

// Puts back what pick() chose in one group and one rank. Returns how many patches, or TL_E_*.
static int group_put_back(struct tl_target *target, struct tl_text_view *text,
                          struct tl_writes *writes, struct tl_text_group *group, unsigned rank,
                          struct put_back *put_back, struct tl_diag *diag)
{
    uint8_t *bytes = group->bytes ? malloc(group->size) : NULL;
    int ours = 0;
    if (bytes)
        memcpy(bytes, group->bytes, group->size);
    for (size_t k = group->first; k < group->first + group->count; k++) {
        struct tl_write *write = &writes->write[k];
        if ((write->state != TL_WRITE_DONE && write->state != TL_WRITE_CLOSED) ||
            write->rank != rank || !put_back->pick(write, put_back->opaque))
            continue;
        if (put_back->keep_long && is_long(write)) {
            put_back->left++;
            continue;
        }
        if (bytes)
            ours += patch_put_back(text, write, bytes + (write->patch.addr - group->addr));
        write->state = TL_WRITE_CLOSED;
    }
    int error = ours ? group_write(target, group, bytes, diag) : 0;
    free(bytes);
    return error ? error : ours;
}

static int all_put_back(struct tl_target *target, struct tl_text_view *text, struct tl_writes *writes,
                        struct put_back *put_back, struct tl_diag *diag)
{
    int count = 0, error = 0;
    for (unsigned rank = rank_highest(writes) + 1; rank-- > 0;) {
        for (size_t i = 0; i < text->group_count; i++) {
            int ours = group_put_back(target, text, writes, &text->group[i], rank, put_back, diag);
            if (ours < 0)
                error = ours;
            else
                count += ours;
        }
    }
    return error ? error : count;
}

int tl_text_put_back(struct tl_target *target, struct tl_text_view *text, struct tl_writes *writes,
                     bool (*pick)(const struct tl_write *write, void *opaque), void *opaque,
                     size_t *left, struct tl_diag *diag)
{
    struct put_back put_back = {.pick = pick, .opaque = opaque};
    for (size_t i = 0; i < writes->count && !put_back.keep_long; i++)
        put_back.keep_long = is_long(&writes->write[i]) && pick(&writes->write[i], opaque);
    if (put_back.keep_long)
        put_back.keep_long = anybody_standing(target, text, writes);
    int count = all_put_back(target, text, writes, &put_back, diag);
    if (left)
        *left = put_back.left;
    return count;
}

static bool pick_all(const struct tl_write *write, void *opaque)
{
    (void)write;
    (void)opaque;
    return true;
}

// Writes what is planned in one group and one rank.
static int group_apply(struct tl_target *target, struct tl_writes *writes,
                       struct tl_text_group *group, unsigned rank, struct tl_diag *diag)
{
    uint8_t *bytes = NULL;
    for (size_t k = group->first; k < group->first + group->count; k++) {
        struct tl_write *write = &writes->write[k];
        if (write->state != TL_WRITE_PLANNED || write->rank != rank || !group->bytes)
            continue;
        if (!bytes) {
            bytes = malloc(group->size);
            if (!bytes)
                return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
            memcpy(bytes, group->bytes, group->size);
        }
        memcpy(bytes + (write->patch.addr - group->addr), write->patch.after, write->patch.size);
        write->state = TL_WRITE_DONE; // even a failed write may have written a part
    }
    int error = bytes ? group_write(target, group, bytes, diag) : 0;
    free(bytes);
    return error;
}

int tl_text_write(struct tl_target *target, struct tl_text_view *text, struct tl_writes *writes,
                  struct tl_diag *diag)
{
    int error = 0;
    unsigned highest = rank_highest(writes);
    for (unsigned rank = 0; rank <= highest && !error; rank++) {
        for (size_t i = text->group_count; i-- > 0 && !error;)
            error = group_apply(target, writes, &text->group[i], rank, diag);
    }
    if (error) { // what is written so far is read again: a write may have stopped half-way
        struct tl_text_view now;
        if (tl_text_load(target, writes, &now, NULL) == 0) {
            struct put_back put_back = {.pick = pick_all}; // nobody has run since
            (void)all_put_back(target, &now, writes, &put_back, NULL);
            tl_text_deinit(&now);
        }
    }
    return error;
}

// The file of the mapping that was looked at last.
struct open_file {
    const struct tl_map *map;
    int fd;
};

static bool page_returnable(struct tl_target *target, const struct tl_maps *maps,
                            struct open_file *file, tl_addr page)
{
    const struct tl_map *map = tl_maps_at(maps, page);
    if (!map || (map->prot & (TL_PROT_WRITE | TL_PROT_SHARED)))
        return false;
    if (map != file->map) {
        if (file->fd >= 0)
            close(file->fd);
        file->map = map;
        file->fd = tl_proc_open_mapped(tl_target_pid(target), map, NULL);
    }
    return file->fd >= 0 && tl_target_page_equals(target, map, file->fd, page);
}

void tl_text_pages_return(struct tl_target *target, const struct tl_writes *writes)
{
    struct open_file file = {NULL, -1};
    struct tl_maps maps;
    tl_addr run = 0, run_end = 0, seen = 0, page_size = tl_page_size();
    if (tl_maps_read(tl_target_pid(target), &maps, NULL) != 0)
        return;
    for (size_t i = 0; i < writes->count; i++) {
        const struct tl_patch *patch = &writes->write[i].patch;
        if (writes->write[i].state != TL_WRITE_CLOSED)
            continue;
        tl_addr last = tl_kernel_page_down(patch->addr + patch->size - 1);
        for (tl_addr page = tl_kernel_page_down(patch->addr); page <= last; page += page_size) {
            if (page < seen)
                continue;
            seen = page + page_size;
            if (!page_returnable(target, &maps, &file, page))
                continue;
            if (page != run_end) {
                if (run_end > run)
                    (void)tl_region_advise(target, run, run_end - run, MADV_DONTNEED, NULL);
                run = page;
            }
            run_end = page + page_size;
        }
    }
    if (run_end > run)
        (void)tl_region_advise(target, run, run_end - run, MADV_DONTNEED, NULL);
    if (file.fd >= 0)
        close(file.fd);
    tl_maps_deinit(&maps);
}

// What earlier controllers left in the target: sites still written, idle regions, half-done
// mappings.
//
// Everything read from the target is only a hint. Text is touched only where device, inode and
// offset of the mapping and our own bytes match, and gets the file's bytes. A region goes only when
// no pc and no word on any stack points into it.
#include "base/page.h"
#include "patch/install.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_CHUNK 4096u
#define REGIONS_MAX 65536u
#define HEADERS_MAX 64u
#define PINS_MAX 1024u // pages that something points into; more: nothing is unmapped

// ---- stacks -------------------------------------------------------------------------------------

static bool range_words(struct tl_target *target, struct tl_range range,
                        void (*visit)(tl_addr addr, uint64_t word, void *opaque), void *opaque)
{
    uint64_t words[STACK_CHUNK / 8];
    if (range.end - range.start > TL_STACK_SEARCH_MAX)
        return false;
    for (tl_addr at = range.start; at < range.end;) {
        size_t size = STACK_CHUNK - (size_t)(at % STACK_CHUNK);
        size = size < range.end - at ? size : (size_t)(range.end - at);
        if (tl_target_read(target, at, words, size, NULL) != 0)
            return false;
        for (size_t i = 0; i < size / 8; i++)
            visit(at + i * 8, words[i], opaque);
        at += size;
    }
    return true;
}

bool tl_stack_words(struct tl_target *target, const struct tl_thread_view *view,
                    void (*visit)(tl_addr addr, uint64_t word, void *opaque), void *opaque)
{
    if (view->link) // as good as a word: who has just called has it nowhere else
        visit(0, view->link, opaque);
    return range_words(target, view->stack, visit, opaque) &&
           range_words(target, view->alt_stack, visit, opaque);
}

// ---- regions ------------------------------------------------------------------------------------

struct header_at {
    tl_addr addr;
    struct tl_code_header header;
};

// A mapping of ours. Those of one install belong together: as long as a detour of it may still be run,
// its agent, control page and counters stay.
struct region {
    struct tl_range range;
    uint32_t owner; // index in header[], or HEADERS_MAX: nobody's
    bool pool;      // detours and nothing else
    bool code;      // instructions: a pc or a word may point into it
    bool pinned;    // one does
};

struct leftovers {
    struct region region[REGIONS_MAX]; // as maps has them, by address
    size_t region_count;
    struct header_at header[HEADERS_MAX];
    size_t header_count;
};

bool tl_map_is(const struct tl_map *map, const char *path)
{
    return strncmp(map->path, path, strlen(path)) == 0;
}

static bool maps_hold(const struct tl_maps *maps, tl_addr addr, uint64_t size, const char *path)
{
    const struct tl_map *map = tl_maps_at(maps, addr);
    return map && size && size <= map->end - addr && tl_map_is(map, path);
}

// A control region that a header names: private, anonymous, just that size, and wiped on fork ("wf"
// in smaps), which nothing but such a region is likely to be.
static bool is_control(pid_t pid, const struct tl_maps *maps, const struct tl_code_header *header)
{
    const struct tl_map *map = tl_maps_at(maps, header->control_addr);
    if (!map || map->inode || map->path[0] || map->start != header->control_addr ||
        header->control_size != tl_control_size() || map->end - map->start != tl_control_size() ||
        map->prot != (TL_PROT_READ | TL_PROT_WRITE))
        return false;
    char path[64], start[32], *line = NULL;
    size_t room = 0;
    bool here = false, wiped = false;
    (void)snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
    (void)snprintf(start, sizeof start, "%llx-", (unsigned long long)map->start);
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &room, file) > 0) {
        if (strncmp(line, start, strlen(start)) == 0)
            here = true;
        else if (here && strncmp(line, "VmFlags:", 8) == 0) {
            wiped = strstr(line, " wf") != NULL;
            break;
        }
    }
    free(line);
    if (file)
        fclose(file);
    return wiped;
}

static void region_add(struct leftovers *leftovers, const struct tl_map *map)
{
    bool code = tl_map_is(map, TL_CODE_PATH);
    if (leftovers->region_count < REGIONS_MAX)
        leftovers->region[leftovers->region_count++] = (struct region){
            {map->start, map->end}, HEADERS_MAX, code && map->file_off != 0, code, false};
}

static void map_look(struct tl_target *target, const struct tl_maps *maps, const struct tl_map *map,
                     struct leftovers *out)
{
    struct header_at at = {.addr = map->start};
    if (tl_map_is(map, TL_DATA_PATH) || tl_map_is(map, TL_CODE_PATH))
        region_add(out, map);
    if (!tl_map_is(map, TL_CODE_PATH) || map->file_off != 0 || out->header_count == HEADERS_MAX ||
        tl_target_read(target, map->start, &at.header, sizeof at.header, NULL) != 0 ||
        at.header.magic != TL_CODE_MAGIC || at.header.version != TL_LAYOUT_VERSION)
        return;
    out->header[out->header_count++] = at;
    if (is_control(tl_target_pid(target), maps, &at.header))
        region_add(out, tl_maps_at(maps, at.header.control_addr));
    if (tl_hijack_is(maps, &at.header))
        region_add(out, tl_maps_at(maps, at.header.hijack_addr));
}

static int region_compare(const void *a, const void *b)
{
    const struct region *left = a, *right = b;
    return (left->range.start > right->range.start) - (left->range.start < right->range.start);
}

// The region that addr lies in; NULL: none. Regions are sorted.
static struct region *region_at(struct leftovers *leftovers, tl_addr addr)
{
    size_t low = 0, high = leftovers->region_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct region *region = &leftovers->region[middle];
        if (addr < region->range.start)
            high = middle;
        else if (addr >= region->range.end)
            low = middle + 1;
        else
            return region;
    }
    return NULL;
}

static void region_own(struct leftovers *leftovers, tl_addr addr, uint32_t owner)
{
    struct region *region = region_at(leftovers, addr);
    if (!region)
        return;
    region->owner = owner;
    region->pool = false;
}

// What is left of a pool: earlier attaches may have taken parts of it away.
static void pool_own(struct leftovers *leftovers, const struct tl_range *pool, uint32_t owner)
{
    for (size_t i = 0; i < leftovers->region_count; i++) {
        struct region *region = &leftovers->region[i];
        if (region->pool && region->range.start < pool->end && pool->start < region->range.end)
            region->owner = owner;
    }
}

// Which regions belong to which header. What a header says is only a hint: it names regions that were
// found in maps, or nothing.
static void regions_own(struct tl_target *target, struct leftovers *leftovers)
{
    qsort(leftovers->region, leftovers->region_count, sizeof leftovers->region[0], region_compare);
    for (uint32_t i = 0; i < leftovers->header_count; i++) {
        const struct tl_code_header *header = &leftovers->header[i].header;
        region_own(leftovers, leftovers->header[i].addr, i);
        if (header->control_size) // else another's: an install of breakpoints has none
            region_own(leftovers, header->control_addr, i);
        region_own(leftovers, header->data_addr, i);
        region_own(leftovers, header->hijack_addr, i);
        region_own(leftovers, header->log_addr, i);
        for (uint32_t k = 0; k < header->pool_count && k < TL_POOLS_MAX; k++) {
            struct tl_range pool;
            if (tl_target_read(target, header->pool_addr + k * sizeof pool, &pool, sizeof pool,
                               NULL) != 0)
                break;
            pool_own(leftovers, &pool, i);
        }
    }
}

static int leftovers_find(struct tl_target *target, struct leftovers **out, struct tl_diag *diag)
{
    struct tl_maps maps;
    int error = tl_maps_read(tl_target_pid(target), &maps, diag);
    if (error)
        return error;
    struct leftovers *leftovers = malloc(sizeof *leftovers);
    if (!leftovers) {
        tl_maps_deinit(&maps);
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    }
    leftovers->region_count = leftovers->header_count = 0;
    for (size_t i = 0; i < maps.count; i++)
        map_look(target, &maps, &maps.map[i], leftovers);
    tl_maps_deinit(&maps);
    regions_own(target, leftovers);
    *out = leftovers;
    return 0;
}

static bool controller_lives(const struct tl_code_header *header)
{
    struct tl_proc_status status;
    return header->controller_pid > 0 && header->controller_pid != getpid() &&
           tl_proc_status_read(header->controller_pid, &status, NULL) == 0 &&
           status.start_time == header->controller_start && status.state != 'Z';
}

// ---- the undo log -------------------------------------------------------------------------------

static int write_compare(const void *a, const void *b)
{
    const struct tl_write *left = a, *right = b;
    return (left->patch.addr > right->patch.addr) - (left->patch.addr < right->patch.addr);
}

// The file's bytes replace what the log says was there.
static bool file_bytes(struct tl_target *target, const struct tl_maps *maps, struct tl_write *write)
{
    const struct tl_map *map = tl_maps_at(maps, write->patch.addr);
    if (!map || (map->prot & (TL_PROT_SHARED | TL_PROT_WRITE)) || map->inode != write->inode ||
        map->dev_major != write->dev_major || map->dev_minor != write->dev_minor ||
        map->file_off + (write->patch.addr - map->start) != write->file_off)
        return false;
    int fd = tl_proc_open_mapped(tl_target_pid(target), map, NULL);
    if (fd < 0)
        return true; // can't be opened from here: the log's own bytes must do
    ssize_t got = pread(fd, write->patch.before, write->patch.size, (off_t)write->file_off);
    close(fd);
    return got == (ssize_t)write->patch.size;
}

static int log_read(struct tl_target *target, const struct tl_code_header *header,
                    struct tl_writes *out, struct tl_diag *diag)
{
    struct tl_maps maps;
    pid_t pid = tl_target_pid(target);
    int error = tl_maps_read(pid, &maps, diag);
    if (error)
        return error;
    uint64_t size = (uint64_t)header->log_count * sizeof(struct tl_log_patch);
    struct tl_log_patch *log = NULL;
    struct tl_write *write = NULL;
    size_t count = 0;
    if (header->log_count > TL_LOG_PATCHES_MAX ||
        !maps_hold(&maps, header->log_addr, size, TL_CODE_PATH)) {
        error = tl_diag_set(diag, TL_E_FORMAT, "pid %d: the undo log in it is damaged", (int)pid);
    } else {
        log = malloc(size ? size : 1);
        write = calloc(header->log_count ? header->log_count : 1, sizeof *write);
        error = log && write ? tl_target_read(target, header->log_addr, log, size, diag)
                             : tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    }
    for (size_t i = 0; !error && i < header->log_count; i++) {
        struct tl_write *entry = &write[count];
        if (log[i].size == 0 || log[i].size > TL_PATCH_SIZE_MAX)
            continue;
        *entry = (struct tl_write){.inode = log[i].inode,
                                   .file_off = log[i].file_off,
                                   .dev_major = log[i].dev_major,
                                   .dev_minor = log[i].dev_minor,
                                   .rank = log[i].rank,
                                   .state = TL_WRITE_DONE,
                                   .patch = {.addr = log[i].addr, .size = log[i].size}};
        memcpy(entry->patch.before, log[i].before, log[i].size);
        memcpy(entry->patch.after, log[i].after, log[i].size);
        count += file_bytes(target, &maps, entry);
    }
    free(log);
    tl_maps_deinit(&maps);
    if (error) {
        free(write);
        return error;
    }
    qsort(write, count, sizeof *write, write_compare);
    *out = (struct tl_writes){write, count};
    return 0;
}

static bool pick_all(const struct tl_write *write, void *opaque)
{
    (void)write;
    (void)opaque;
    return true;
}

static int header_state_write(struct tl_target *target, tl_addr addr, uint32_t state,
                              struct tl_diag *diag)
{
    return tl_target_write(target, addr + offsetof(struct tl_code_header, state), &state,
                           sizeof state, NULL, diag);
}

// All stopped: puts back what one header's log names. Returns the number of patches; *left are still there.
static int header_undo(struct tl_target *target, const struct header_at *at,
                       struct tl_writes *writes, size_t *left, struct tl_diag *diag)
{
    struct tl_text_view text;
    int error = tl_text_load(target, writes, &text, diag);
    if (error)
        return error;
    text.agent = tl_code_agent(&at->header);
    int count = tl_text_put_back(target, &text, writes, pick_all, NULL, left, diag);
    tl_text_deinit(&text);
    if (count >= 0 && !*left) {
        error = header_state_write(target, at->addr, TL_CODE_IDLE, diag);
        if (!error)
            tl_text_pages_return(target, writes);
    }
    return count < 0 ? count : error ? error : count;
}

// ---- what a controller that was killed in the middle left elsewhere
// ---------------------------------

// Descriptors of ours in the target, which are only open while a call of ours needs them.
static void descriptors_close(struct tl_target *target)
{
    char path[64], link[256];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)tl_target_pid(target));
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        ssize_t size = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);
        if (size <= 0)
            continue;
        link[size] = '\0';
        if (strncmp(link, TL_CODE_PATH, strlen(TL_CODE_PATH)) == 0 ||
            strncmp(link, TL_DATA_PATH, strlen(TL_DATA_PATH)) == 0) {
            const uint64_t args[6] = {strtoull(entry->d_name, NULL, 10)};
            int64_t result;
            (void)tl_target_syscall(target, SYS_close, args, &result, NULL);
        }
    }
    closedir(dir);
}

static int leftovers_undo(struct tl_target *target, const struct leftovers *leftovers, size_t *left,
                          struct tl_diag *diag)
{
    int count = 0, error = 0;
    *left = 0;
    for (size_t i = 0; i < leftovers->header_count; i++) {
        const struct tl_code_header *header = &leftovers->header[i].header;
        struct tl_writes writes = {0};
        size_t standing = 0;
        bool written = header->state == TL_CODE_PREPARED;
        int undone = written ? log_read(target, header, &writes, diag) : 0;
        // Of idle ones too: a thread may have been about to replace one when its controller left.
        (void)tl_hijack_put_back(target, header, written && !undone ? &writes : NULL);
        if (written && !undone)
            undone = header_undo(target, &leftovers->header[i], &writes, &standing, diag);
        free(writes.write);
        *left += standing;
        if (undone < 0)
            error = undone;
        else
            count += undone;
    }
    return error ? error : count;
}

static int busy(struct tl_target *target, const struct leftovers *leftovers, struct tl_diag *diag)
{
    for (size_t i = 0; i < leftovers->header_count; i++) {
        const struct tl_code_header *header = &leftovers->header[i].header;
        if (header->state != TL_CODE_IDLE && controller_lives(header))
            return tl_diag_set(diag, TL_E_BUSY,
                               "pid %d: another trapless (pid %d) is at work on it: end it first",
                               (int)tl_target_pid(target), header->controller_pid);
    }
    return 0;
}

// ---- taking old code away -----------------------------------------------------------------------

// Where a pc or a word on a stack points, in code regions.
struct pins {
    struct leftovers *leftovers;
    tl_addr page[PINS_MAX];
    size_t count;
    bool all; // too many, or a stack that can't be searched
};

static void pin_word(tl_addr addr, uint64_t word, void *opaque)
{
    (void)addr;
    struct pins *pins = opaque;
    const struct region *region = region_at(pins->leftovers, word);
    tl_addr page = tl_kernel_page_down(word);
    if (!region || !region->code)
        return;
    for (size_t i = 0; i < pins->count; i++) {
        if (pins->page[i] == page)
            return;
    }
    if (pins->count == PINS_MAX)
        pins->all = true;
    else
        pins->page[pins->count++] = page;
}

static int page_compare(const void *a, const void *b)
{
    tl_addr left = *(const tl_addr *)a, right = *(const tl_addr *)b;
    return (left > right) - (left < right);
}

static void pins_find(struct tl_target *target, struct pins *pins)
{
    for (size_t i = 0; i < tl_target_thread_count(target) && !pins->all; i++) {
        struct tl_thread_view view;
        pins->all = tl_target_thread_view(target, i, &view) != 0 || view.link_hidden;
        if (pins->all)
            break;
        pin_word(0, view.pc, pins);
        pins->all |= !tl_stack_words(target, &view, pin_word, pins);
    }
    qsort(pins->page, pins->count, sizeof pins->page[0], page_compare);
}

static bool owner_pinned(const struct leftovers *leftovers, uint32_t owner)
{
    for (size_t i = 0; i < leftovers->region_count; i++) {
        if (leftovers->region[i].owner == owner && leftovers->region[i].pinned)
            return true;
    }
    return false;
}

// Unmaps a region but for the pages that are pointed into and their neighbours: a detour may begin in
// the page before, and end in the one behind.
static void region_trim(struct tl_target *target, const struct region *region,
                        const struct pins *pins)
{
    tl_addr from = region->range.start;
    for (size_t i = 0; i < pins->count; i++) {
        tl_addr keep = pins->page[i] - tl_page_size(), end = pins->page[i] + 2 * tl_page_size();
        if (pins->page[i] < region->range.start || pins->page[i] >= region->range.end)
            continue;
        if (keep > from)
            (void)tl_region_unmap(target, from, keep - from, NULL);
        from = end > from ? end : from;
    }
    if (from < region->range.end)
        (void)tl_region_unmap(target, from, region->range.end - from, NULL);
}

// Everything of installs that nothing points into, and the unused pools of the others.
static void regions_reclaim(struct tl_target *target, struct leftovers *leftovers)
{
    struct pins *pins = calloc(1, sizeof *pins);
    if (!pins)
        return;
    pins->leftovers = leftovers;
    pins_find(target, pins);
    for (size_t i = 0; i < pins->count; i++)
        region_at(leftovers, pins->page[i])->pinned = true;
    // Who is in the handler of breakpoints holds addresses of several installs in registers.
    for (size_t i = 0; i < leftovers->header_count; i++)
        pins->all |= pins->count && leftovers->header[i].header.trap_count;
    for (size_t i = 0; i < leftovers->region_count && !pins->all; i++) {
        const struct region *region = &leftovers->region[i];
        bool needed = region->owner == HEADERS_MAX ? pins->count != 0
                                                   : owner_pinned(leftovers, region->owner);
        if (!needed || region->pool)
            region_trim(target, region, pins);
    }
    free(pins);
}

// ---- the handler of breakpoints -----------------------------------------------------------------

// Memory in the target for the arguments of a call: a control page.
static tl_addr scratch_find(struct leftovers *leftovers)
{
    for (size_t i = 0; i < leftovers->header_count; i++) {
        tl_addr control = leftovers->header[i].header.control_addr;
        const struct region *region = region_at(leftovers, control);
        if (region && !region->code && region->range.start == control &&
            region->range.end - region->range.start == tl_control_size())
            return control + TL_SCRATCH_OFF;
    }
    return 0;
}

// SIGTRAP leads to none of our code any more. false: it does, and must go on to do so, as some thread may be
// on the way there.
static bool trap_forget(struct tl_target *target, struct leftovers *leftovers)
{
    struct tl_signal_action action;
    struct tl_proc_status status;
    tl_addr scratch = scratch_find(leftovers);
    if (tl_proc_status_read(tl_target_pid(target), &status, NULL) != 0 ||
        !(status.sig_caught & UINT64_C(1) << (SIGTRAP - 1)))
        return true;
    if (!scratch || tl_trap_action(target, scratch, &action, NULL) != 0)
        return false;
    const struct region *region = region_at(leftovers, action.handler);
    if (!region || !region->code)
        return true;
    bool stepped = false, idle = true;
    for (size_t i = 0; i < leftovers->header_count; i++)
        stepped |= leftovers->header[i].header.trap_stepped != 0;
    if (stepped) { // somebody in a slot may yet get to the breakpoint at its end
        struct pins *pins = calloc(1, sizeof *pins);
        if (!pins)
            return false;
        pins->leftovers = leftovers;
        pins_find(target, pins);
        idle = pins->count == 0 && !pins->all;
        free(pins);
    }
    return idle && tl_trap_forget(target, scratch);
}

// ---- entries ------------------------------------------------------------------------------------

struct leftover_job {
    struct tl_target *target;
    bool unmap;
    struct tl_diag *diag;
};

static int clear_held(struct tl_target *target, struct leftovers *leftovers, bool unmap, size_t *left,
                      struct tl_diag *diag)
{
    int count = leftovers_undo(target, leftovers, left, diag);
    if (count < 0 || *left)
        return count;
    descriptors_close(target);
    (void)tl_target_sweep(target);
    bool idle = trap_forget(target, leftovers);
    if (unmap && idle)
        regions_reclaim(target, leftovers);
    return count;
}

static int leftover_run(void *opaque)
{
    struct leftover_job *job = opaque;
    struct tl_target *target = job->target;
    struct leftovers *leftovers = NULL;
    bool held = tl_target_thread_count(target) != 0;
    int error = leftovers_find(target, &leftovers, job->diag);
    if (error)
        return error;
    if (leftovers->region_count == 0 && job->unmap) {
        free(leftovers);
        return 0;
    }
    unsigned tries = 0;
    size_t left = 0;
    int count = 0;
    error = busy(target, leftovers, job->diag);
    do {
        if (error >= 0)
            error = tl_patch_hold(target, true, job->diag);
        if (!error)
            error = clear_held(target, leftovers, job->unmap, &left, job->diag);
        count += error > 0 ? error : 0;
    } while (error >= 0 && tl_text_wait(target, left, held, &tries));
    if (error >= 0)
        error = left ? tl_diag_set(job->diag, TL_E_BUSY,
                                   "pid %d: %zu branches of an earlier trapless are still in its text: a "
                                   "thread stands in what they lead to; try again later",
                                   (int)tl_target_pid(target), left)
                     : count;
    if (!held)
        tl_target_resume(target);
    free(leftovers);
    return error;
}

int tl_leftovers_clear(struct tl_target *target, struct tl_diag *diag)
{
    struct leftover_job job = {target, true, diag};
    int count = tl_target_run(target, leftover_run, &job, diag);
    return count < 0 ? count : 0;
}

int tl_patch_detach_leftover(struct tl_target *target, struct tl_diag *diag)
{
    struct leftover_job job = {target, false, diag};
    return tl_target_run(target, leftover_run, &job, diag);
}

// After the plan: pools and detours, the undo log, then the text of the stopped target.
//
// Order: map, write detours and log, mark the header, stop all, move threads, write text, let go.
// The text changes only after the log is complete in the target, and only where nobody stands in
// the way. Invariant: a site is written whole - window, island, loopers - or not at all.
#include "base/page.h"
#include "patch/install.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PROT_GUARDED 0x10 // PROT_BTI, arch/arm64/include/uapi/asm/mman.h; asked for only there

// A window with an interior, of a site or of its host.
struct window_entry {
    tl_addr addr;
    unsigned size;
    tl_addr detour_addr;
    const struct tl_detour *detour;
    size_t index; // of the site's plan
};

// Sorted by address, for look-ups of pcs and stack words.
struct window_list {
    struct window_entry *entry;
    size_t count;
};

// Everything one commit works with.
struct commit {
    struct tl_install *install;
    const struct tl_commit_input *input;
    struct tl_install_result *results;
    struct tl_diag *diag;
    bool interior; // some window has one
    struct window_list windows;
};

static bool plan_written(const struct commit *commit, size_t plan)
{
    return commit->results[plan].refusal == TL_REFUSE_NONE;
}

static void plan_skip(struct commit *commit, size_t plan, enum tl_refusal refusal)
{
    if (commit->results[plan].refusal == TL_REFUSE_NONE)
        commit->results[plan].refusal = refusal;
}

// ---- what will be written
// -------------------------------------------------------------------------

static int write_compare(const void *a, const void *b)
{
    const struct tl_write *left = a, *right = b;
    return (left->patch.addr > right->patch.addr) - (left->patch.addr < right->patch.addr);
}

static size_t patches_count(const struct tl_commit_input *input)
{
    size_t count = 0;
    for (size_t i = 0; i < input->plan_count; i++)
        count += input->plan[i]->rung != TL_RUNG_REFUSED ? input->plan[i]->patch_count : 0;
    return count;
}

static int needs_keep(struct commit *commit)
{
    struct tl_install *install = commit->install;
    free(install->needs);
    install->plan_count = commit->input->plan_count;
    install->needs = calloc(install->plan_count + 1, sizeof *install->needs);
    if (!install->needs)
        return tl_diag_set(commit->diag, TL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < install->plan_count; i++) {
        const struct tl_plan *plan = commit->input->plan[i];
        install->needs[i].count = plan->needs_count;
        memcpy(install->needs[i].plan, plan->needs, sizeof install->needs[i].plan);
        install->needs[i].guard = plan->action & TL_ACTION_GUARD;
        install->needs[i].faults = plan->rung != TL_RUNG_REFUSED && plan->faults;
        install->needs[i].faults_interior = install->needs[i].faults && plan->interior;
    }
    return 0;
}

// Collects the patches, with the file that each is in.
static int writes_collect(struct commit *commit)
{
    const struct tl_commit_input *input = commit->input;
    struct tl_install *install = commit->install;
    struct tl_maps maps;
    size_t count = patches_count(input), n = 0;
    int error = tl_maps_read(tl_target_pid(install->target), &maps, commit->diag);
    if (error)
        return error;
    struct tl_write *write = count <= TL_LOG_PATCHES_MAX ? calloc(count + 1, sizeof *write) : NULL;
    if (!write) {
        tl_maps_deinit(&maps);
        return tl_diag_set(commit->diag, TL_E_NOMEM, "no room for %zu patches", count);
    }
    for (size_t i = 0; i < input->plan_count; i++) {
        const struct tl_plan *plan = input->plan[i];
        commit->results[i].refusal = plan->rung != TL_RUNG_REFUSED ? TL_REFUSE_NONE : plan->refusal;
        if (plan->rung == TL_RUNG_REFUSED)
            continue;
        commit->interior |= plan->interior;
        for (size_t k = 0; k < plan->patch_count; k++) {
            const struct tl_map *map = tl_maps_at(&maps, plan->patch[k].addr);
            write[n] = (struct tl_write){.patch = plan->patch[k], .plan = i, .order = (uint8_t)k};
            if (map) {
                write[n].inode = map->inode;
                write[n].dev_major = map->dev_major;
                write[n].dev_minor = map->dev_minor;
                write[n].file_off = map->file_off + (plan->patch[k].addr - map->start);
            }
            n++;
        }
    }
    tl_maps_deinit(&maps);
    qsort(write, n, sizeof *write, write_compare);
    install->writes = (struct tl_writes){write, n};
    tl_writes_rank(&install->writes);
    return needs_keep(commit);
}

// ---- pools and log
// --------------------------------------------------------------------------------

static uint64_t range_size(struct tl_range range)
{
    return range.end - range.start;
}

// The log region: undo log, the table of mappings, the rows of faults, those of ways back, breakpoints.
static uint64_t log_size(const struct commit *commit)
{
    return tl_kernel_page_up(commit->install->writes.count * sizeof(struct tl_log_patch) +
                      (commit->input->mapping_count + 1) * sizeof(struct tl_range) +
                      (commit->install->row_count + commit->install->resume_count) *
                          sizeof(struct tl_fault_row) +
                      commit->input->trap_count * sizeof(struct tl_trap_row));
}

static int log_write(struct commit *commit, const struct tl_memfd *memfd, tl_addr log_addr)
{
    struct tl_install *install = commit->install;
    const struct tl_writes *writes = &install->writes;
    size_t log_bytes = writes->count * sizeof(struct tl_log_patch);
    size_t pool_bytes = commit->input->mapping_count * sizeof(struct tl_range);
    struct tl_log_patch *log = calloc(writes->count ? writes->count : 1, sizeof *log);
    if (!log)
        return tl_diag_set(commit->diag, TL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < writes->count; i++) {
        const struct tl_write *write = &writes->write[i];
        log[i] = (struct tl_log_patch){.addr = write->patch.addr,
                                       .inode = write->inode,
                                       .file_off = write->file_off,
                                       .dev_major = write->dev_major,
                                       .dev_minor = write->dev_minor,
                                       .size = write->patch.size,
                                       .rank = write->rank};
        memcpy(log[i].before, write->patch.before, write->patch.size);
        memcpy(log[i].after, write->patch.after, write->patch.size);
    }
    int error = tl_memfd_write(memfd, log, log_bytes, 0, commit->diag);
    free(log);
    if (!error)
        error = tl_memfd_write(memfd, commit->input->mapping, pool_bytes, log_bytes, commit->diag);
    if (!error)
        error = tl_memfd_write(memfd, install->row, install->row_count * sizeof *install->row,
                               log_bytes + pool_bytes, commit->diag);
    size_t row_bytes = install->row_count * sizeof *install->row;
    if (!error)
        error = tl_memfd_write(memfd, install->resume,
                               install->resume_count * sizeof *install->resume,
                               log_bytes + pool_bytes + row_bytes, commit->diag);
    size_t resume_bytes = install->resume_count * sizeof *install->resume;
    if (!error)
        error = tl_memfd_write(memfd, commit->input->trap,
                               commit->input->trap_count * sizeof *commit->input->trap,
                               log_bytes + pool_bytes + row_bytes + resume_bytes, commit->diag);
    install->header.log_addr = log_addr;
    install->header.log_count = (uint32_t)writes->count;
    install->header.pool_addr = log_addr + log_bytes;
    install->header.pool_count = (uint32_t)commit->input->mapping_count;
    install->header.fault_addr = log_addr + log_bytes + pool_bytes;
    install->header.fault_count = (uint32_t)install->row_count;
    install->header.resume_addr = install->header.fault_addr + row_bytes;
    install->header.resume_count = install->resume_count;
    install->header.trap_addr = install->header.resume_addr + resume_bytes;
    install->header.trap_count = (uint32_t)commit->input->trap_count;
    return error;
}

// Index of the mapping that holds addr, or mapping_count.
static size_t mapping_find(const struct tl_commit_input *input, tl_addr addr)
{
    size_t low = 0, high = input->mapping_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (addr < input->mapping[middle].start)
            high = middle;
        else if (addr >= input->mapping[middle].end)
            low = middle + 1;
        else
            return middle;
    }
    return input->mapping_count;
}

static int detours_write(struct commit *commit, const struct tl_memfd *memfd, const uint64_t *offs)
{
    const struct tl_commit_input *input = commit->input;
    for (size_t i = 0; i < input->detour_count; i++) {
        const struct tl_plan_detour *detour = &input->detour[i];
        size_t m = mapping_find(input, detour->addr);
        if (m == input->mapping_count ||
            detour->detour->size > input->mapping[m].end - detour->addr)
            return tl_diag_set(commit->diag, TL_E_USAGE, "detour at 0x%llx lies in no mapping",
                               (unsigned long long)detour->addr);
        int error =
            tl_memfd_write(memfd, detour->detour->bytes, detour->detour->size,
                           offs[m] + (detour->addr - input->mapping[m].start), commit->diag);
        if (error)
            return error;
    }
    return 0;
}

// Sites whose detours, or those of their loopers, lie in a mapping that could not be had.
static void mapping_lost(struct commit *commit, size_t mapping, enum tl_refusal refusal)
{
    const struct tl_commit_input *input = commit->input;
    for (size_t i = 0; i < input->detour_count; i++) {
        const struct tl_plan_detour *detour = &input->detour[i];
        if (mapping_find(input, detour->addr) != mapping)
            continue;
        for (size_t p = 0; p < input->plan_count; p++) {
            const struct tl_plan *plan = input->plan[p];
            bool hit = plan->addr == detour->site;
            for (size_t k = 0; k < plan->patch_count; k++)
                hit |= plan->patch[k].addr == detour->site;
            if (hit && plan->rung != TL_RUNG_REFUSED)
                plan_skip(commit, p, refusal);
        }
    }
}

static int mappings_map(struct commit *commit, const struct tl_memfd *memfd, const uint64_t *offs,
                        tl_addr log_addr)
{
    struct tl_install *install = commit->install;
    const struct tl_commit_input *input = commit->input;
    struct tl_target *target = install->target;
    install->mapped = calloc(input->mapping_count + 1, sizeof *install->mapped);
    if (!install->mapped)
        return tl_diag_set(commit->diag, TL_E_NOMEM, "out of memory");
    int error = tl_region_map(target, log_addr, log_size(commit), PROT_READ, MAP_PRIVATE,
                              memfd->remote, 0, commit->diag);
    if (error)
        return error;
    install->mapped[install->mapped_count++] =
        (struct tl_range){log_addr, log_addr + log_size(commit)};
    for (size_t i = 0; i < input->mapping_count; i++) {
        struct tl_range range = input->mapping[i];
        int prot = PROT_READ | PROT_EXEC | (input->guarded && input->guarded[i] ? PROT_GUARDED : 0);
        error = tl_region_map(target, range.start, range_size(range), prot, MAP_PRIVATE,
                              memfd->remote, offs[i], commit->diag);
        if (error == TL_E_AGAIN)
            mapping_lost(commit, i, TL_REFUSE_NO_REACH);
        else if (error)
            return error;
        else
            install->mapped[install->mapped_count++] = range;
    }
    return 0;
}

static void mappings_unmap(struct tl_install *install)
{
    for (size_t i = 0; i < install->mapped_count; i++)
        (void)tl_region_unmap(install->target, install->mapped[i].start,
                              range_size(install->mapped[i]), NULL);
    install->mapped_count = 0;
}

static int log_place(struct commit *commit, tl_addr *out)
{
    struct tl_range *used;
    size_t count, map_count, extra = commit->input->mapping_count;
    int error = tl_region_used(commit->install->target, &used, &count, &map_count, commit->diag);
    if (error)
        return error;
    struct tl_range *all = realloc(used, (count + extra + 1) * sizeof *all);
    if (!all) {
        free(used);
        return tl_diag_set(commit->diag, TL_E_NOMEM, "out of memory");
    }
    // The mappings of the plan are not there yet. Both lists are sorted: merge from the back.
    size_t i = count, k = extra;
    for (size_t n = count + extra; n-- > 0;) {
        if (k && (!i || commit->input->mapping[k - 1].start > all[i - 1].start))
            all[n] = commit->input->mapping[--k];
        else
            all[n] = all[--i];
    }
    *out = tl_region_place(all, count + extra, log_size(commit));
    free(all);
    if (!*out)
        return tl_diag_set(commit->diag, TL_E_REACH, "no free address range for the undo log");
    return 0;
}

static int pools_make(struct commit *commit)
{
    const struct tl_commit_input *input = commit->input;
    struct tl_install *install = commit->install;
    struct tl_memfd memfd;
    tl_addr log_addr = 0;
    uint64_t off = log_size(commit);
    uint64_t *offs = calloc(input->mapping_count + 1, sizeof *offs);
    if (!offs)
        return tl_diag_set(commit->diag, TL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < input->mapping_count; i++) {
        offs[i] = off;
        off += range_size(input->mapping[i]);
    }
    install->times.pages_private = (size_t)(off / tl_page_size());
    int error = log_place(commit, &log_addr);
    if (!error)
        error = tl_memfd_create(install->target, install->header.control_addr + TL_SCRATCH_OFF,
                                TL_CODE_NAME, true, off, &memfd, commit->diag);
    if (!error) {
        error = log_write(commit, &memfd, log_addr);
        if (!error)
            error = detours_write(commit, &memfd, offs);
        if (!error)
            error = mappings_map(commit, &memfd, offs, log_addr);
        tl_memfd_close(install->target, &memfd);
        if (error)
            mappings_unmap(install);
    }
    free(offs);
    return error;
}

static int header_write(struct tl_install *install, uint32_t state, struct tl_diag *diag)
{
    install->header.state = state;
    if (state == TL_CODE_IDLE) // given up: the rows go with the log
        install->header.trap_count = install->header.fault_count = 0;
    return tl_target_write(install->target, install->code_addr, &install->header,
                           sizeof install->header, NULL, diag);
}

// ---- under the stop
// -------------------------------------------------------------------------------

static void texts_check(struct commit *commit, const struct tl_text_view *text)
{
    for (size_t i = 0; i < commit->install->writes.count; i++) {
        const struct tl_write *write = &commit->install->writes.write[i];
        enum tl_refusal refusal = tl_text_check(text, write);
        if (refusal != TL_REFUSE_NONE)
            plan_skip(commit, write->plan, refusal);
    }
}

static int window_compare(const void *a, const void *b)
{
    const struct window_entry *left = a, *right = b;
    return (left->addr > right->addr) - (left->addr < right->addr);
}

static int windows_list(struct commit *commit, struct window_list *out)
{
    const struct tl_commit_input *input = commit->input;
    struct window_list list = {calloc(2 * input->plan_count + 1, sizeof *list.entry), 0};
    if (!list.entry)
        return tl_diag_set(commit->diag, TL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < input->plan_count; i++) {
        const struct tl_plan *plan = input->plan[i];
        if (plan->rung != TL_RUNG_JUMP || !plan->interior)
            continue;
        list.entry[list.count++] = (struct window_entry){plan->addr, plan->window_size,
                                                         plan->detour_addr, plan->detour, i};
        const struct tl_plan_host *host = plan->host;
        if (host)
            list.entry[list.count++] = (struct window_entry){host->addr, host->window_size,
                                                             host->detour_addr, host->detour, i};
    }
    qsort(list.entry, list.count, sizeof *list.entry, window_compare);
    *out = list;
    return 0;
}

// The window that addr lies strictly inside of. NULL: none.
static const struct window_entry *window_find(const struct window_list *list, tl_addr addr)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct window_entry *entry = &list->entry[middle];
        if (addr <= entry->addr)
            high = middle;
        else if (addr >= entry->addr + entry->size)
            low = middle + 1;
        else
            return &list->entry[middle];
    }
    return NULL;
}

static void stack_word(tl_addr addr, uint64_t word, void *opaque)
{
    (void)addr;
    struct commit *commit = opaque;
    const struct window_list *list = &commit->windows;
    const struct window_entry *entry;
    if (word <= list->entry[0].addr ||
        word >= list->entry[list->count - 1].addr + list->entry[list->count - 1].size)
        return;
    entry = window_find(list, word);
    if (entry)
        plan_skip(commit, entry->index, TL_REFUSE_STACK_WORD);
}

static const struct tl_boundary *boundary_find(const struct window_entry *entry, tl_addr pc)
{
    for (size_t i = 0; entry->detour && i < entry->detour->boundary_count; i++) {
        if (entry->addr + entry->detour->boundary[i].insn_off == pc)
            return &entry->detour->boundary[i];
    }
    return NULL;
}

static void thread_look(struct commit *commit, size_t index)
{
    const struct window_list *list = &commit->windows;
    struct tl_thread_view view;
    struct tl_target *target = commit->install->target;
    if (tl_target_thread_view(target, index, &view) != 0)
        return;
    const struct window_entry *entry = window_find(list, view.pc);
    if (entry && (view.in_kernel || !boundary_find(entry, view.pc)))
        plan_skip(commit, entry->index, TL_REFUSE_STACK_WORD);
    if (!tl_stack_words(target, &view, stack_word, commit)) {
        for (size_t i = 0; i < list->count; i++)
            plan_skip(commit, list->entry[i].index, TL_REFUSE_STACK_WORD);
    }
}

// Moves the pc of a thread that stands inside a window to the same instruction's copy in the
// detour.
static int thread_move(struct commit *commit, size_t index)
{
    const struct window_list *list = &commit->windows;
    struct tl_thread_view view;
    struct tl_target *target = commit->install->target;
    if (tl_target_thread_view(target, index, &view) != 0 || view.in_kernel)
        return 0;
    const struct window_entry *entry = window_find(list, view.pc);
    if (!entry || !plan_written(commit, entry->index))
        return 0;
    const struct tl_boundary *boundary = boundary_find(entry, view.pc);
    return tl_target_thread_set_pc(target, index, entry->detour_addr + boundary->off,
                                   commit->diag);
}

static int threads_look_all(struct commit *commit)
{
    size_t count = tl_target_thread_count(commit->install->target);
    int error = commit->interior ? windows_list(commit, &commit->windows) : 0;
    for (size_t i = 0; i < count && !error && commit->windows.count; i++)
        thread_look(commit, i);
    return error;
}

static int threads_move_all(struct commit *commit)
{
    int error = 0;
    size_t count = tl_target_thread_count(commit->install->target);
    for (size_t i = 0; i < count && commit->windows.count && !error; i++)
        error = thread_move(commit, i);
    return error;
}

static void states_set(struct commit *commit)
{
    for (size_t i = 0; i < commit->install->writes.count; i++) {
        struct tl_write *write = &commit->install->writes.write[i];
        write->state = plan_written(commit, write->plan) ? TL_WRITE_PLANNED : TL_WRITE_SKIPPED;
    }
}

// Sites that can fault are nothing without the probes of the fault handlers.
static bool unguarded_skip(struct commit *commit)
{
    const struct tl_install *install = commit->install;
    bool lost = false, changed = false;
    for (size_t i = 0; i < install->plan_count; i++)
        lost |= install->needs[i].guard && !plan_written(commit, i);
    for (size_t i = 0; lost && i < install->plan_count; i++) {
        if (install->needs[i].faults && plan_written(commit, i)) {
            plan_skip(commit, i, TL_REFUSE_FAULT_DISPLACED);
            changed = true;
        }
    }
    return changed;
}

// Skips sites that rely on others that are skipped, until none is left.
static void dependents_skip(struct commit *commit, const struct tl_text_view *text)
{
    struct tl_install *install = commit->install;
    bool changed = true;
    while (changed) { // each round skips at least one site
        changed = unguarded_skip(commit);
        states_set(commit);
        for (size_t i = 0; i < install->writes.count; i++) {
            const struct tl_write *write = &install->writes.write[i];
            if (write->state == TL_WRITE_PLANNED &&
                !tl_text_relied(text, &install->writes, write)) {
                plan_skip(commit, write->plan, TL_REFUSE_WINDOW_PROBE);
                changed = true;
            }
        }
        for (size_t i = 0; i < install->plan_count; i++) {
            for (size_t k = 0; k < install->needs[i].count; k++) {
                if (plan_written(commit, i) && !plan_written(commit, install->needs[i].plan[k])) {
                    plan_skip(commit, i, TL_REFUSE_LOOP_TARGET);
                    changed = true;
                }
            }
        }
    }
}

static int text_change(struct commit *commit)
{
    struct tl_install *install = commit->install;
    struct tl_text_view text;
    int error = tl_text_load(install->target, &install->writes, &text, commit->diag);
    if (error)
        return error;
    texts_check(commit, &text);
    error = threads_look_all(commit);
    dependents_skip(commit, &text);
    if (!error)
        error = threads_move_all(commit);
    if (!error)
        error = tl_text_write(install->target, &text, &install->writes, commit->diag);
    tl_text_deinit(&text);
    return error;
}

// ---- commit
// ---------------------------------------------------------------------------------------

static int commit_stopped(struct commit *commit)
{
    struct tl_install *install = commit->install;
    int error = tl_facts_check(install, commit->diag); // what one thread said, all are asked now
    if (!error && commit->input->stopped)
        error = commit->input->stopped(commit->input->opaque, commit->diag);
    if (!error)
        error = text_change(commit);
    if (error) {
        (void)header_write(install, TL_CODE_IDLE, NULL);
        mappings_unmap(install);
    } else {
        install->committed = true;
    }
    return error;
}

// Bytes of the pools that become memory: a mapping's pages without a detour never do.
static uint64_t detour_pages_size(const struct tl_commit_input *input)
{
    uint64_t pages = 0;
    tl_addr last = 0;
    for (size_t i = 0; i < input->detour_count; i++) {
        tl_addr page = tl_kernel_page_down(input->detour[i].addr);
        tl_addr end = input->detour[i].addr + input->detour[i].detour->size;
        // Neighbours in the list share a page.
        pages += (tl_kernel_page_up(end) - page) / tl_page_size() - (page == last);
        last = tl_kernel_page_down(end - 1);
    }
    return pages * tl_page_size();
}

static int commit_held(struct commit *commit)
{
    struct tl_install *install = commit->install;
    uint64_t needed = detour_pages_size(commit->input);
    int error = writes_collect(commit);
    if (!error && tl_faults_rows(install, commit->input, install->beside) != 0)
        error = tl_diag_set(commit->diag, TL_E_NOMEM, "out of memory");
    if (!error) // each written text page is copied as well
        error = tl_target_headroom(install->target,
                                   needed + log_size(commit) + install->writes.count * UINT64_C(64),
                                   commit->diag);
    if (!error)
        error = pools_make(commit);
    if (error)
        return error;
    error = header_write(install, TL_CODE_PREPARED, commit->diag);
    if (error) {
        mappings_unmap(install);
        return error;
    }
    uint64_t start = tl_now_ns();
    install->times.borrowed_ms += (double)(start - install->borrowed_since_ns) / 1e6;
    install->stopped_since_ns = start;
    error = tl_patch_hold(install->target, true, commit->diag);
    if (error) { // all were let go
        if (error == TL_E_BUSY && tl_target_borrow(install->target, NULL) == 0) {
            (void)header_write(install, TL_CODE_IDLE, NULL);
            mappings_unmap(install);
        }
        return error;
    }
    return commit_stopped(commit);
}

static int commit_run(void *opaque)
{
    struct commit *commit = opaque;
    struct tl_install *install = commit->install;
    struct tl_target *target = install->target;
    bool held = tl_target_thread_count(target) != 0;
    install->borrowed_since_ns = tl_now_ns();
    install->stopped_since_ns = 0;
    int error = tl_patch_hold(target, false, commit->diag);
    if (!error)
        error = commit_held(commit);
    if (!held) // what the caller held, a launched program before its first instruction, stays held
        tl_target_resume(target);
    if (install->stopped_since_ns)
        install->times.stopped_ms = (double)(tl_now_ns() - install->stopped_since_ns) / 1e6;
    if (error) {
        free(install->writes.write);
        free(install->mapped);
        install->writes = (struct tl_writes){0};
        install->mapped = NULL;
        install->mapped_count = 0;
    }
    return error;
}

int tl_install_commit_input(struct tl_install *install, const struct tl_commit_input *input,
                            struct tl_install_result *results, struct tl_diag *diag)
{
    struct commit commit = {install, input, results, diag, false, {NULL, 0}};
    if (install->committed)
        return tl_diag_set(diag, TL_E_USAGE, "committed already");
    int error = tl_target_run(install->target, commit_run, &commit, diag);
    free(commit.windows.entry);
    return error;
}

int tl_commit_mappings(struct tl_commit_input *input, struct tl_space *space, bool **guarded,
                       struct tl_diag *diag)
{
    input->mapping_count = tl_space_mappings(space, &input->mapping);
    *guarded = calloc(input->mapping_count + 1, sizeof **guarded);
    if (!*guarded)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < input->mapping_count; i++)
        (*guarded)[i] = tl_space_mapping_guarded(space, i);
    input->guarded = *guarded;
    return 0;
}

int tl_install_commit(struct tl_install *install, struct tl_space *space,
                      const struct tl_plan_set *plans, size_t plan_count,
                      struct tl_install_result *results, struct tl_diag *diag)
{
    struct tl_commit_input input = {.plan_count = plan_count};
    bool *guarded = NULL;
    const struct tl_plan **plan = calloc(plan_count + 1, sizeof *plan);
    if (!plan)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < plan_count; i++)
        plan[i] = tl_plan_get(plans, i);
    input.plan = plan;
    input.detour_count = tl_plan_detours(plans, &input.detour);
    int error = tl_commit_mappings(&input, space, &guarded, diag);
    if (!error)
        error = tl_install_commit_input(install, &input, results, diag);
    free(guarded);
    free(plan);
    return error;
}

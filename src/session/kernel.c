// The kernel rung: the kernel's own uprobes for the sites that no jump was proved safe for.
//
// Invariant: no kernel probe is placed where a window or a patch of ours lies, or on a byte that a
// pun relies on: the kernel's breakpoint would be a part of our branch, and lead it astray.
#include "session/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KERNEL_EVENTS_DEFAULT 16384u
#define KERNEL_EVENTS_MAX (1u << 20)
#define KERNEL_EVENT_BYTES 96u // with the ring's own header

// What the placing needs; freed at its end.
struct kernel_work {
    struct tl_uprobe_site *sites;
    size_t *index; // session site of each
    int *errors;
    int *fds; // one per module, -1 not opened
    char (*paths)[64];
    size_t count, module_count;
};

static void work_deinit(struct kernel_work *work)
{
    for (size_t i = 0; work->fds && i < work->module_count; i++) {
        if (work->fds[i] >= 0)
            close(work->fds[i]);
    }
    free(work->sites);
    free(work->index);
    free(work->errors);
    free(work->fds);
    free(work->paths);
}

static int work_init(struct kernel_work *work, size_t site_max, size_t module_count)
{
    *work = (struct kernel_work){.module_count = module_count};
    work->sites = calloc(site_max, sizeof *work->sites);
    work->index = calloc(site_max, sizeof *work->index);
    work->errors = calloc(site_max, sizeof *work->errors);
    work->fds = calloc(module_count + 1, sizeof *work->fds);
    work->paths = calloc(module_count + 1, sizeof *work->paths);
    if (!work->sites || !work->index || !work->errors || !work->fds || !work->paths)
        return TL_E_NOMEM;
    for (size_t i = 0; i <= module_count; i++)
        work->fds[i] = -1;
    return 0;
}

static bool site_file_off(const struct tl_module *module, tl_addr vaddr, uint64_t *off)
{
    const struct tl_segment *segment = NULL;
    size_t count = tl_image_segments(module->image, &segment);
    for (size_t i = 0; i < count; i++) {
        if (vaddr >= segment[i].vaddr && vaddr < segment[i].vaddr + segment[i].file_size) {
            *off = vaddr - segment[i].vaddr + segment[i].file_off;
            return true;
        }
    }
    return false;
}

static const char *module_path(struct tl_batch *batch, struct kernel_work *work, size_t index)
{
    if (work->fds[index] < 0) {
        struct tl_module *module = tl_modules_get(batch->modules, index);
        for (size_t i = 0; i < batch->maps.count; i++) {
            const struct tl_map *map = &batch->maps.map[i];
            if (map->inode != module->inode || map->dev_major != module->dev_major ||
                map->dev_minor != module->dev_minor)
                continue;
            work->fds[index] = tl_proc_open_mapped(batch->session->options.pid, map, NULL);
            break;
        }
        if (work->fds[index] < 0)
            return NULL;
        (void)snprintf(work->paths[index], sizeof work->paths[index], "/proc/self/fd/%d",
                       work->fds[index]);
    }
    return work->paths[index];
}

// Go's runtime interrupts its threads by signals until they stop, every 100 us (preemptall, Go 1.19).
// Its code on that path checks no stack; where kernel probes make it slow the program stands still.
static bool in_go_runtime(const struct tl_batch *batch, size_t index)
{
    const struct tl_site *site = &batch->sites.site[index];
    const struct tl_module *module = tl_modules_get(batch->modules, site->module);
    const struct tl_module_facts *facts = NULL;
    tl_addr behind;
    bool named = site->names && strncmp(site->names, "runtime", strlen("runtime")) != 0;
    return !named && module->analysis && !tl_image_facts(module->image, &facts, NULL) &&
           site->vaddr >= facts->go_text.start && site->vaddr < facts->go_text.end &&
           !tl_analysis_stack_check(module->analysis, site->function, &behind);
}

// Reasons that the kernel does not share.
static bool kernel_may(enum tl_refusal refusal)
{
    return refusal == TL_REFUSE_NONE || tl_refusal_of_jump(refusal) ||
           refusal == TL_REFUSE_SYSCALL || refusal == TL_REFUSE_PC_USE;
}

// Why nobody may write a breakpoint there: it may be data, or lie between a load-exclusive and its
// store. For who asks for the kernel, where nothing was analysed.
static enum tl_refusal site_refusal(struct tl_module *module, tl_addr vaddr)
{
    struct tl_site_facts facts = {0};
    if (tl_module_analyse(module, NULL) ||
        tl_analysis_site(module->analysis, vaddr, &facts, NULL) || facts.insn_count == 0)
        return TL_REFUSE_UNKNOWN_CODE;
    const struct tl_insn *insn = &facts.insn[0];
    enum tl_refusal refusal = (enum tl_refusal)facts.refusal;
    if (refusal == TL_REFUSE_NONE && insn->reloc == TL_RELOC_REFUSE)
        refusal = (enum tl_refusal)insn->refusal;
    return kernel_may(refusal) ? TL_REFUSE_NONE : refusal;
}

// A site goes to the kernel if it was asked for, or if no jump was found for a reason that the
// kernel does not share.
static bool site_wants_kernel(const struct tl_batch *batch, size_t index)
{
    const struct tl_session_site *state = &batch->state[index];
    if (batch->session->options.mode == TL_MODE_LATENCY)
        return false; // it pairs nothing
    if (batch->session->options.method == TL_METHOD_KERNEL)
        return state->refusal == TL_REFUSE_NONE;
    // The kernel replaces return addresses too, and puts no true ones back for an unwinder: a C++
    // exception then ends the program. Only who asks for it gets it.
    if (batch->sites.site[index].kind == TL_PROBE_RETURN)
        return false;
    if (state->rung != TL_RUNG_REFUSED || in_go_runtime(batch, index))
        return false;
    return state->refusal != TL_REFUSE_NONE && kernel_may((enum tl_refusal)state->refusal);
}

static void sites_collect(struct tl_batch *batch, struct kernel_work *work)
{
    for (size_t i = 0; i < batch->state_count; i++) {
        if (!site_wants_kernel(batch, i))
            continue;
        const struct tl_site *site = &batch->sites.site[i];
        struct tl_module *module = tl_modules_get(batch->modules, site->module);
        uint64_t off = 0;
        bool asked = batch->session->options.method == TL_METHOD_KERNEL;
        enum tl_refusal refusal = asked ? site_refusal(module, site->vaddr) : TL_REFUSE_NONE;
        if (refusal) {
            batch->state[i].refusal = refusal;
            continue;
        }
        const char *path = module_path(batch, work, site->module);
        if (!path || !site_file_off(module, site->vaddr, &off)) {
            batch->state[i].refusal = TL_REFUSE_NO_FILE_OFFSET;
            continue;
        }
        struct tl_insn insn;
        if (tl_session_insn(module, site->vaddr, &insn) && batch->arch->uprobe_breaks(&insn)) {
            batch->state[i].refusal = TL_REFUSE_KERNEL_WRONG;
            continue;
        }
        if (tl_batch_covers(batch, site->addr, 1))
            continue; // the jump's refusal stands
        work->index[work->count] = i;
        work->sites[work->count++] = (struct tl_uprobe_site){
            .path = path, .file_off = off, .ret = site->kind == TL_PROBE_RETURN};
    }
}

// As much room as the rings of a few busy threads have.
static uint32_t ring_bytes(const struct tl_batch *batch)
{
    const struct tl_session_options *options = &batch->session->options;
    uint64_t events = options->ring_events ? options->ring_events : KERNEL_EVENTS_DEFAULT;
    if (options->mode != TL_MODE_EVENTS)
        return 0;
    return events > KERNEL_EVENTS_MAX ? KERNEL_EVENT_BYTES * KERNEL_EVENTS_MAX
                                      : (uint32_t)(KERNEL_EVENT_BYTES * events);
}

// Takes over what was placed.
static int placed_take(struct tl_batch *batch, const struct kernel_work *work)
{
    bool asked = batch->session->options.method == TL_METHOD_KERNEL;
    batch->uprobe_site = calloc(work->count + 1, sizeof *batch->uprobe_site);
    if (!batch->uprobe_site)
        return TL_E_NOMEM;
    batch->uprobe_count = work->count;
    for (size_t k = 0; k < work->count; k++) {
        struct tl_session_site *state = &batch->state[work->index[k]];
        batch->uprobe_site[k] = (uint32_t)work->index[k];
        state->kernel_errno = work->errors[k];
        if (!work->errors[k]) {
            state->rung = TL_RUNG_KERNEL;
            state->uprobe = (uint32_t)k;
        } else if (asked) {
            state->refusal = TL_REFUSE_KERNEL_SITE;
        }
    }
    return 0;
}

// The kernel's probes pair no entry with its return.
static void times_refuse(struct tl_batch *batch)
{
    const struct tl_session_options *options = &batch->session->options;
    for (size_t i = 0; i < batch->state_count; i++) {
        if (options->method == TL_METHOD_KERNEL && options->mode == TL_MODE_LATENCY &&
            batch->state[i].refusal == TL_REFUSE_NONE)
            batch->state[i].refusal = TL_REFUSE_RECORD_KERNEL;
    }
}

int tl_session_kernel(struct tl_batch *batch, struct tl_diag *diag)
{
    size_t wanted = 0;
    times_refuse(batch);
    for (size_t i = 0; i < batch->state_count; i++)
        wanted += site_wants_kernel(batch, i);
    if (!wanted)
        return 0;
    bool asked = batch->session->options.method == TL_METHOD_KERNEL;
    struct tl_diag why = {{0}};
    int error = tl_uprobes_available(&why);
    if (error) {
        tl_session_note(batch->session, "kernel probes: %s\n", why.text);
        return asked ? tl_diag_set(diag, error, "%s", why.text) : 0;
    }
    struct kernel_work work;
    error = work_init(&work, wanted, tl_modules_count(batch->modules));
    if (!error)
        sites_collect(batch, &work);
    if (!error && work.count) {
        error = tl_uprobes_create(batch->pid, work.sites, work.count, ring_bytes(batch),
                                  work.errors, &batch->uprobes, &why);
        if (!error)
            error = placed_take(batch, &work);
    }
    work_deinit(&work);
    if (error && !asked) {
        tl_session_note(batch->session, "kernel probes: %s\n", why.text);
        return 0;
    }
    return error ? tl_diag_set(diag, error, "%s", why.text) : 0;
}

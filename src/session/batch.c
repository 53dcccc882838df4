// One placing of probes in one process: find, analyse, plan, emit, patch, and later back.
//
// It decides nothing about instructions or memory. Invariant: a probe that needs several points (every
// exit of a function) is placed whole or not at all.
#include "session/follow.h"
#include "session/internal.h"
#include "session/trampoline.h"
#include "session/traps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_TRIES_MAX 3 // plans for one attach, when the target's threads change what is sound
#define PLAN_TRIES_MAX (TL_EXIT_EARLY_MAX + 4) // ... when exits can't be patched and another way is taken
#define RING_EVENTS_DEFAULT 4096u
#define RING_EVENTS_MAX (1u << 22)
#define PROCESS_ROOM (UINT64_C(32) << 30) // address space for blocks of followed children
#define PROCESSES_MIN 8u
#define PROCESS_ROOM_MAX (UINT64_C(64) << 30)

// ---- life ---------------------------------------------------------------------------------------

// only: what of the process is looked at (taken over); NULL: all of it.
static int modules_load(struct tl_batch *batch, struct tl_maps *only, struct tl_diag *diag)
{
    const struct tl_session_options *options = &batch->session->options;
    struct tl_image_options image = {.debug_dir = options->debug_dir};
    if (options->file)
        return tl_modules_of_file(options->file, &image, &batch->modules, diag);
    char root[64];
    (void)snprintf(root, sizeof root, "/proc/%d/root", (int)batch->pid);
    image.root = root;
    int error = only ? 0 : tl_maps_read(batch->pid, &batch->maps, diag);
    if (!error)
        tl_maps_marks_read(batch->pid, &batch->maps);
    if (!error)
        error = tl_modules_of_process(batch->pid, &batch->maps, &image, &batch->modules, diag);
    if (!error && batch->session->batch_count == 1)
        tl_session_note(batch->session, "%s", tl_modules_notes(batch->modules));
    for (size_t i = 0; !error && i < batch->session->batch_count; i++) {
        const struct tl_batch *other = batch->session->batch[i];
        if (other != batch && other->modules)
            tl_modules_share(batch->modules, other->modules);
    }
    return error;
}

// A process is of this machine's kind, or it would not have been opened.
static int arch_find(struct tl_batch *batch, struct tl_diag *diag)
{
    const struct tl_module *first =
        tl_modules_count(batch->modules) ? tl_modules_get(batch->modules, 0) : NULL;
    uint16_t machine =
        batch->session->options.file && first ? tl_image_machine(first->image) : tl_machine;
    batch->arch = tl_arch_find(machine);
    if (!batch->arch)
        return tl_diag_set(diag, TL_E_UNSUPPORTED, "%s: is for machine %u, which is not supported",
                           first ? first->path : "the program", machine);
    return 0;
}

int tl_batch_create(struct tl_session *session, struct tl_target *target, bool target_owned,
                    struct tl_maps *only, struct tl_batch **out, struct tl_diag *diag)
{
    struct tl_batch *batch = session->batch_count < TL_BATCHES_MAX ? calloc(1, sizeof *batch) : NULL;
    if (!batch) {
        if (target_owned)
            tl_target_close(target);
        if (only)
            tl_maps_deinit(only);
        return tl_diag_set(diag, TL_E_LIMIT, "probes were placed %u times in one run",
                           TL_BATCHES_MAX);
    }
    batch->session = session;
    batch->target = target;
    batch->target_owned = target_owned;
    batch->pid = target ? tl_target_pid(target) : session->options.pid;
    batch->stream_source = -1;
    session->batch[session->batch_count++] = batch;
    if (only)
        batch->maps = *only;
    int error = modules_load(batch, only, diag);
    if (!error)
        error = arch_find(batch, diag);
    if (!error)
        *out = batch;
    return error;
}

void tl_batch_destroy(struct tl_batch *batch)
{
    if (!batch)
        return;
    tl_uprobes_destroy(batch->uprobes);
    free(batch->uprobe_site);
    tl_session_guards_destroy(batch);
    tl_session_trampoline_destroy(batch);
    tl_session_traps_destroy(batch);
    tl_install_destroy(batch->install);
    tl_plan_set_destroy(batch->plans);
    tl_space_destroy(batch->space);
    if (batch->target_owned)
        tl_target_close(batch->target);
    tl_sites_deinit(&batch->sites);
    tl_modules_destroy(batch->modules);
    tl_maps_deinit(&batch->maps);
    for (size_t i = 0; i < batch->state_count; i++)
        free(batch->state[i].exit_level);
    free(batch->state);
    free(batch->points);
    free(batch->requests);
    free(batch->plan_modules);
    free(batch->results);
    free(batch);
}

// ---- what is to be probed -----------------------------------------------------------------------

static int target_read(void *opaque, tl_addr addr, void *buf, size_t size)
{
    return tl_target_read(opaque, addr, buf, size, NULL);
}

// Without a target, for a plan alone.
static int process_read(void *opaque, tl_addr addr, void *buf, size_t size)
{
    const struct tl_batch *batch = opaque;
    return tl_proc_read_memory(batch->pid, addr, buf, size) ? 0 : TL_E_PERM;
}

static int state_grow(struct tl_batch *batch, struct tl_diag *diag)
{
    size_t count = batch->sites.count;
    if (count == batch->state_count)
        return 0;
    struct tl_session_site *state = realloc(batch->state, count * sizeof *state);
    if (!state)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu sites", count);
    batch->state = state;
    for (size_t i = batch->state_count; i < count; i++) {
        const struct tl_site *site = &batch->sites.site[i];
        state[i] = (struct tl_session_site){.rung = TL_RUNG_REFUSED,
                                            .refusal = site->refusal,
                                            .counter = (uint32_t)i,
                                            .line = UINT32_MAX};
        if (batch->session->options.mode == TL_MODE_LATENCY && !state[i].refusal && !site->entry)
            state[i].refusal = TL_REFUSE_NOT_FUNCTION;
    }
    batch->state_count = count;
    return 0;
}

int tl_batch_add(struct tl_batch *batch, const char *probe, struct tl_diag *diag)
{
    struct tl_probe_spec spec;
    int error = tl_probe_parse(probe, &spec, diag);
    if (error)
        return error;
    struct tl_find_context context = {
        .modules = batch->modules,
        .pid = batch->pid,
        .read = batch->target ? target_read : process_read,
        .opaque = batch->target ? (void *)batch->target : (void *)batch,
    };
    int matched = tl_find_sites(&context, &spec, &batch->sites, diag);
    tl_probe_spec_deinit(&spec);
    if (matched < 0)
        return matched;
    error = batch->session->options.all_insns ? tl_session_expand(batch, diag) : 0;
    if (!error)
        error = state_grow(batch, diag);
    return error ? error : matched;
}

uint32_t tl_batch_index(const struct tl_batch *batch)
{
    uint32_t index = 0;
    while (batch->session->batch[index] != batch)
        index++;
    return index;
}

// The one of a session's first `count` lines with this text. Later batches are small, so a look
// through all is enough.
static struct tl_session_line *line_find(struct tl_session *session, size_t count, const char *probe)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(session->lines[i].probe, probe) == 0)
            return &session->lines[i];
    }
    return NULL;
}

int tl_batch_lines(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_session *session = batch->session;
    uint32_t number = tl_batch_index(batch);
    int error = tl_sites_distinct(batch->modules, &batch->sites, diag);
    if (error)
        return error;
    batch->lines_before = session->line_count;
    size_t before = session->line_count, max = before + batch->sites.count;
    struct tl_session_line *lines = realloc(session->lines, (max + 1) * sizeof *lines);
    if (!lines)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu probes", max);
    session->lines = lines;
    for (size_t i = 0; i < batch->sites.count; i++) {
        struct tl_session_line *line = line_find(session, before, batch->sites.site[i].probe);
        if (!line) {
            line = &lines[session->line_count];
            *line = (struct tl_session_line){.probe = strdup(batch->sites.site[i].probe)};
            if (!line->probe)
                return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
            session->line_count++;
        }
        line->batch = number;
        line->site = (uint32_t)i;
        batch->state[i].line = (uint32_t)(line - lines);
    }
    return 0;
}

// ---- planning -----------------------------------------------------------------------------------

static void progress(const struct tl_batch *batch, const char *what, size_t done, size_t total)
{
    const struct tl_session_options *options = &batch->session->options;
    if (options->progress)
        options->progress(options->opaque, what, done, total);
}

static int plan_all(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_plan_options plan = {.arch = batch->arch, .faults = batch->faults};
    plan.shadow_stack = tl_batch_shadow_stack(batch);
    plan.emit.action = TL_ACTION_COUNT;
    tl_install_emit_input(batch->install, &plan.emit);
    struct tl_space_options space = {.lean = tl_proc_maps_cost(batch->pid)};
    tl_install_space(batch->install, &space);
    int error = tl_space_create(&space, &batch->space, diag);
    if (error)
        return error;
    return tl_plan_sites(&plan, batch->space, batch->plan_modules,
                         tl_modules_count(batch->modules), batch->requests, batch->request_count,
                         &batch->plans, diag);
}

static void plans_drop(struct tl_batch *batch, size_t own)
{
    tl_session_unguard(batch, own);
    tl_plan_set_destroy(batch->plans);
    batch->plans = NULL;
    tl_space_destroy(batch->space);
    batch->space = NULL;
    free(batch->results);
    batch->results = NULL;
}

// With every fault handler guarded at entry and returns, else at its entry, else with nothing displaced
// that can fault. Beside another batch, whose guards know only its own detours, the last at once.
static int plan_guarded(struct tl_batch *batch, struct tl_diag *diag)
{
    static const enum tl_fault_policy policies[] = {TL_FAULT_RESUMED, TL_FAULT_LONE};
    tl_addr handler[TL_FAULT_HANDLERS_MAX];
    size_t own = batch->request_count;
    if (batch->beside) {
        batch->faults = tl_install_fault_handlers(batch->install, handler) ? TL_FAULT_NONE
                                                                            : TL_FAULT_ANY;
        return plan_all(batch, diag);
    }
    for (size_t i = 0; i < TL_ARRAY_COUNT(policies); i++) {
        bool possible = false;
        int error = tl_session_guard(batch, policies[i], &possible, diag);
        if (!error && possible)
            error = plan_all(batch, diag);
        if (error || (possible && tl_session_guards_planned(batch)))
            return error;
        plans_drop(batch, own);
    }
    return plan_all(batch, diag);
}

// People's requests, and our own beside them.
static int requests_make(struct tl_batch *batch, struct tl_diag *diag)
{
    int error = tl_batch_requests(batch, diag);
    if (!error)
        error = tl_session_hooks(batch, diag);
    if (!error)
        error = tl_session_traps_hooks(batch, diag);
    return error ? error : tl_session_unwinders(batch, diag);
}

// Plans until every probe that is left has a place for each of its points.
static int plan_whole(struct tl_batch *batch, struct tl_diag *diag)
{
    for (int i = 0;; i++) {
        size_t own = batch->request_count;
        progress(batch, "planning", 0, own);
        int error = plan_guarded(batch, diag);
        if (error)
            return error;
        size_t changed = tl_session_unwinders_fallback(batch); // once in a life
        if (i + 1 < PLAN_TRIES_MAX)
            changed += tl_batch_points_fallback(batch, 0, batch->state_count);
        if (!changed)
            return 0;
        plans_drop(batch, own);
        error = tl_batch_points(batch, 0, batch->state_count, diag);
        if (!error)
            error = requests_make(batch, diag);
        if (error || !batch->request_count)
            return error;
    }
}

// ---- placing ------------------------------------------------------------------------------------

static int plan_and_write(struct tl_batch *batch, struct tl_diag *diag)
{
    int error = plan_whole(batch, diag);
    if (error || !batch->request_count)
        return error;
    batch->results = calloc(batch->request_count, sizeof *batch->results);
    if (!batch->results)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    progress(batch, "writing", 0, batch->request_count);
    error = tl_session_trampoline_places(batch, diag);
    if (error)
        return error;
    return tl_install_commit(batch->install, batch->space, batch->plans, batch->request_count,
                             batch->results, diag);
}

static uint32_t ring_slots(const struct tl_session_options *options)
{
    uint32_t wanted = options->ring_events ? options->ring_events : RING_EVENTS_DEFAULT, slots = 64;
    while (slots < wanted && slots < RING_EVENTS_MAX)
        slots *= 2;
    return slots;
}

// How many processes at a time there is room for, each with so many bytes of blocks: address space
// only, until something is recorded. 1: none but the target.
static uint32_t process_slots(const struct tl_batch *batch, uint64_t process_bytes)
{
    uint64_t count = PROCESS_ROOM / process_bytes;
    if (count < PROCESSES_MIN)
        count = PROCESSES_MIN;
    if (count > TL_PROCESS_SLOTS_MAX)
        count = TL_PROCESS_SLOTS_MAX;
    if (count * process_bytes <= PROCESS_ROOM_MAX && !tl_proc_maps_cost(batch->pid))
        return (uint32_t)count;
    tl_session_note(batch->session, "children are not followed: their records would need more address "
                                    "space than the program may have\n");
    return 1;
}

static void install_options(struct tl_batch *batch, struct tl_install_options *out)
{
    const struct tl_session_options *options = &batch->session->options;
    *out = (struct tl_install_options){
        .probe_count = batch->sites.count ? (uint32_t)batch->sites.count : 1, // hooks only
        .code_size_hint = batch->request_count * TL_SITE_PATCHES_MAX * sizeof(struct tl_log_patch),
        .beside = batch->beside ? batch->beside->install : NULL,
        .clock = options->mode != TL_MODE_COUNT || tl_session_hooks_poll_ms(batch->session),
        .process_count = 1,
    };
    uint64_t thread = TL_BLOCK_HEADER_SIZE + UINT64_C(8) * out->probe_count;
    if (options->mode == TL_MODE_LATENCY) {
        out->hist_count = out->probe_count;
        thread += UINT64_C(1) * out->hist_count * sizeof(struct tl_hist) +
                  TL_PAIR_SLOTS * sizeof(struct tl_pair);
    }
    if (options->mode == TL_MODE_EVENTS) {
        out->ring_slots = ring_slots(options);
        thread += UINT64_C(1) * out->ring_slots * sizeof(struct tl_ring_slot);
    }
    if (options->follow)
        out->process_count = process_slots(batch, thread * TL_BLOCK_COUNT);
    out->follow = out->process_count > 1;
    tl_session_trampoline_options(batch, out);
}

// Times need threads that can be told apart, and records a clock. Without them all is refused.
static bool records_possible(struct tl_batch *batch)
{
    enum tl_record_mode mode = batch->session->options.mode;
    enum tl_refusal refusal = TL_REFUSE_NONE;
    struct tl_install_facts facts;
    struct tl_emit_in emit = {0};
    tl_install_facts(batch->install, &facts);
    tl_install_emit_input(batch->install, &emit);
    if (mode != TL_MODE_COUNT && facts.no_clock)
        refusal = TL_REFUSE_NO_CLOCK;
    else if (mode == TL_MODE_LATENCY && emit.thread_pointer == TL_TP_SHARED)
        refusal = TL_REFUSE_NO_THREAD;
    for (size_t i = 0; refusal && i < batch->state_count; i++) {
        if (batch->state[i].refusal == TL_REFUSE_NONE)
            batch->state[i].refusal = refusal;
    }
    return refusal == TL_REFUSE_NONE;
}

// Plans against the live target and writes; again when the target showed something else than before.
static int jump_rung(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_install_options install;
    install_options(batch, &install);
    if (install.hist_count > TL_PAIR_PROBES_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "%u functions: at most %u can be timed at once",
                           install.hist_count, TL_PAIR_PROBES_MAX);
    int error = tl_install_prepare(batch->target, &install, &batch->install, diag);
    if (error || !records_possible(batch))
        return error;
    size_t own = batch->request_count;
    error = tl_session_trampoline_join(batch, diag);
    if (!error)
        error = plan_and_write(batch, diag);
    for (int i = 1; error == TL_E_AGAIN && i < COMMIT_TRIES_MAX; i++) {
        plans_drop(batch, own);
        error = requests_make(batch, diag);
        own = batch->request_count;
        if (!error)
            error = plan_and_write(batch, diag);
    }
    return error;
}

// A site of several points that lost one is taken away whole.
static int sites_complete(struct tl_batch *batch, struct tl_diag *diag)
{
    for (size_t i = 0; i < batch->state_count; i++) {
        const struct tl_session_site *state = &batch->state[i];
        bool lost = state->flags & TL_SESSION_PLANNED && state->point_count > 1 &&
                    (state->rung != TL_RUNG_JUMP || state->closed);
        for (uint32_t k = 0; lost && k < state->point_count; k++) {
            uint32_t request = batch->points[state->point_first + k].request;
            if (tl_plan_get(batch->plans, request)->rung != TL_RUNG_JUMP ||
                batch->results[request].refusal != TL_REFUSE_NONE ||
                !tl_batch_request_alone(batch, request, (uint32_t)i))
                continue;
            int error = tl_install_close_site(batch->install, request, batch->results, diag);
            if (error)
                return error;
        }
    }
    return 0;
}

// The install alone, for breakpoints without any jump.
static int traps_prepare(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_install_options install;
    int error = tl_batch_points(batch, 0, batch->sites.count, diag);
    if (!error)
        error = tl_batch_requests(batch, diag);
    if (error || !batch->request_count)
        return error;
    install_options(batch, &install);
    return tl_install_prepare(batch->target, &install, &batch->install, diag);
}

static int rungs_place(struct tl_batch *batch, struct tl_diag *diag)
{
    enum tl_method method = batch->session->options.method;
    int error = 0;
    if (method == TL_METHOD_AUTO || method == TL_METHOD_JUMP) {
        error = tl_batch_points(batch, 0, batch->sites.count, diag);
        if (!error)
            error = requests_make(batch, diag);
        if (!error && batch->request_count)
            error = jump_rung(batch, diag);
        if (error)
            return error;
        if (batch->results) {
            tl_session_take_plans(batch, 0, batch->state_count);
            error = sites_complete(batch, diag);
        }
    }
    if (!error && (method == TL_METHOD_AUTO || method == TL_METHOD_KERNEL))
        error = tl_session_kernel(batch, diag);
    if (!error && method != TL_METHOD_AUTO && tl_session_traps_wanted(batch->session))
        error = traps_prepare(batch, diag);
    return error ? error : tl_session_traps(batch, diag);
}

// A line that another batch placed is told as placed; that this one could not is said apart.
static void refusals_note(struct tl_batch *batch)
{
    struct tl_session *session = batch->session;
    const struct tl_session_site *first = NULL;
    size_t count = 0;
    for (size_t i = 0; batch != session->batch[0] && i < batch->state_count; i++) {
        const struct tl_session_site *state = &batch->state[i];
        if (state->rung != TL_RUNG_REFUSED || state->line >= batch->lines_before)
            continue;
        first = first ? first : state;
        count++;
    }
    if (count)
        tl_follow_note(session, "%s: not probed: %zu that %s probed elsewhere %s refused: %s\n",
                       session->lines[first->line].probe, count, count == 1 ? "is" : "are",
                       count == 1 ? "was" : "were", tl_refusal_text(first->refusal));
}

int tl_batch_place(struct tl_batch *batch, struct tl_diag *diag)
{
    double start = tl_session_now_ms();
    batch->attached = true;
    int error = rungs_place(batch, diag);
    if (!error)
        error = tl_session_trampoline_check(batch, diag);
    struct tl_install_times times = {0};
    if (batch->install)
        tl_install_times(batch->install, &times);
    if (times.stopped_ms > batch->stopped_ms)
        batch->stopped_ms = times.stopped_ms;
    if (!error) {
        refusals_note(batch);
        tl_session_hooks_check(batch);
    }
    batch->attach_ms = tl_session_now_ms() - start;
    return error;
}

size_t tl_batch_placed(const struct tl_batch *batch)
{
    size_t placed = 0;
    for (size_t i = 0; i < batch->state_count; i++)
        placed += batch->state[i].rung != TL_RUNG_REFUSED;
    return placed;
}

// ---- while it runs ------------------------------------------------------------------------------

static void latency_refresh(struct tl_batch *batch, const struct tl_drain_memory *memory, size_t i)
{
    struct tl_session_site *state = &batch->state[i];
    struct tl_hist hist = {0};
    if (state->rung == TL_RUNG_REFUSED || tl_drain_hist(memory, state->counter, &hist, NULL))
        return;
    state->dropped = hist.lost;
    state->hits = hist.lost + tl_hist_count(&hist);
}

void tl_batch_refresh(struct tl_batch *batch)
{
    size_t count = batch->state_count;
    struct tl_drain_memory memory = {0};
    if (batch->install)
        tl_install_memory(batch->install, &memory);
    uint64_t *jump = memory.data ? calloc(count, sizeof *jump) : NULL;
    if (jump && tl_drain_counts(&memory, 0, (uint32_t)count, jump, NULL)) {
        free(jump);
        jump = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        struct tl_session_site *state = &batch->state[i];
        uint64_t hits = 0;
        if (state->rung == TL_RUNG_KERNEL) { // what was counted stays when they are gone
            if (batch->uprobes && !tl_uprobes_count(batch->uprobes, state->uprobe, &hits, NULL))
                state->hits = hits;
        } else if (batch->session->options.mode == TL_MODE_LATENCY) {
            // A large read: only of what was hit, and while it runs tl_session_latency does it.
            if (jump && jump[state->counter] && !batch->attached)
                latency_refresh(batch, &memory, i);
        } else if (state->rung != TL_RUNG_REFUSED && jump) {
            state->hits = jump[state->counter];
        }
    }
    free(jump);
    tl_session_trampoline_refresh(batch);
}

// Takes over what was closed meanwhile.
static int closed_take(struct tl_batch *batch, struct tl_diag *diag)
{
    bool whole = true;
    for (size_t i = 0; i < batch->state_count; i++) {
        struct tl_session_site *state = &batch->state[i];
        if (!(state->flags & TL_SESSION_PLANNED) || state->rung != TL_RUNG_JUMP || state->closed)
            continue;
        for (uint32_t k = 0; k < state->point_count && !state->closed; k++) {
            uint32_t request = batch->points[state->point_first + k].request;
            if (batch->results[request].refusal == TL_REFUSE_NONE)
                continue;
            state->closed = true;
            state->refusal = batch->results[request].refusal;
            whole &= state->point_count == 1;
        }
    }
    return whole ? 0 : sites_complete(batch, diag);
}

static int alive_verify(struct tl_batch *batch, struct tl_diag *diag)
{
    int trapped = tl_session_traps_verify(batch, diag);
    if (trapped || !batch->install || !batch->results)
        return trapped;
    int gone = tl_install_verify(batch->install, batch->results, diag);
    if (gone < 0)
        return gone;
    int error = gone ? 0 : tl_session_guards_refresh(batch, diag);
    if (!error && !gone)
        error = tl_session_trampoline_check(batch, diag);
    if (!error)
        error = closed_take(batch, diag);
    return error ? error : gone;
}

int tl_batch_verify(struct tl_batch *batch, struct tl_diag *diag)
{
    if (!tl_target_alive(batch->target))
        return 1;
    int gone = alive_verify(batch, diag);
    return gone == TL_E_GONE ? 1 : gone; // it ended under our eyes
}

int tl_batch_detach(struct tl_batch *batch, struct tl_diag *diag)
{
    if (!batch->attached)
        return 0;
    int error = 0;
    batch->attached = false;
    if (batch->uprobes)
        tl_uprobes_stop(batch->uprobes);
    (void)tl_batch_kernel_events(batch, NULL);
    tl_batch_refresh(batch);
    tl_uprobes_destroy(batch->uprobes); // before our text: its pages may hold the kernel's bytes
    batch->uprobes = NULL;
    error = tl_session_traps_detach(batch, diag);
    if (batch->install && (batch->results || batch->traps)) {
        int jumps = tl_install_detach(batch->install, error ? NULL : diag);
        error = error ? error : jumps;
        struct tl_install_times times = {0};
        tl_install_times(batch->install, &times);
        if (times.detach_stopped_ms > batch->stopped_ms)
            batch->stopped_ms = times.detach_stopped_ms;
        int guards = tl_session_guards_detach(batch, error ? NULL : diag);
        error = error ? error : guards;
    }
    if (batch->target && batch->target_owned)
        tl_target_resume(batch->target);
    batch->attached = error == TL_E_BUSY; // to be called again: what is done is not done twice
    return error;
}

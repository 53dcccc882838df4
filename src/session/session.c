// One run from names to totals. This file owns the life of a session and the order of the stages; it
// decides nothing about instructions or memory.
//
// Invariant: whatever was placed in the target is taken back by tl_session_detach or
// tl_session_destroy, and a failed attach leaves the target as it was.
#include "session/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COMMIT_TRIES_MAX 3 // plans for one attach, when the target's threads change what is sound

double tl_session_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void tl_session_note(struct tl_session *session, const char *format, ...)
{
    size_t used = strlen(session->notes);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(session->notes + used, sizeof session->notes - used, format, args);
    va_end(args);
}

static int modules_load(struct tl_session *session, struct tl_diag *diag)
{
    struct tl_image_options image = {.debug_dir = session->options.debug_dir};
    if (session->options.file)
        return tl_modules_of_file(session->options.file, &image, &session->modules, diag);
    pid_t pid = session->options.pid;
    char root[64];
    (void)snprintf(root, sizeof root, "/proc/%d/root", (int)pid);
    image.root = root;
    int error = tl_maps_read(pid, &session->maps, diag);
    if (error)
        return error;
    error = tl_modules_of_process(pid, &session->maps, &image, &session->modules, diag);
    if (!error)
        tl_session_note(session, "%s", tl_modules_notes(session->modules));
    return error;
}

int tl_session_create(const struct tl_session_options *options, struct tl_session **out,
                      struct tl_diag *diag)
{
    struct tl_session *session = calloc(1, sizeof *session);
    if (!session)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    size_t size = options->size < sizeof session->options ? options->size
                                                           : sizeof session->options;
    memcpy(&session->options, options, size);
    int error = 0;
    if (session->options.argv) {
        error = tl_target_launch(session->options.argv, NULL, &session->target, diag);
        if (!error)
            session->options.pid = tl_target_pid(session->target);
    } else if (session->options.pid && !session->options.read_only) {
        error = tl_target_open(session->options.pid, NULL, &session->target, diag);
    }
    if (!error)
        error = modules_load(session, diag);
    if (error) {
        tl_session_destroy(session);
        return error;
    }
    *out = session;
    return 0;
}

void tl_session_destroy(struct tl_session *session)
{
    if (!session)
        return;
    if (session->attached)
        (void)tl_session_detach(session, NULL);
    tl_uprobes_destroy(session->uprobes);
    tl_session_guards_destroy(session);
    tl_install_destroy(session->install);
    tl_plan_set_destroy(session->plans);
    tl_space_destroy(session->space);
    tl_target_close(session->target);
    tl_sites_deinit(&session->sites);
    tl_modules_destroy(session->modules);
    tl_maps_deinit(&session->maps);
    free(session->state);
    free(session->requests);
    free(session->plan_modules);
    free(session->results);
    free(session);
}

static int target_read(void *opaque, tl_addr addr, void *buf, size_t size)
{
    return tl_target_read(opaque, addr, buf, size, NULL);
}

static int state_grow(struct tl_session *session, struct tl_diag *diag)
{
    size_t count = session->sites.count;
    if (count == session->state_count)
        return 0;
    struct tl_session_site *state = realloc(session->state, count * sizeof *state);
    if (!state)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu sites", count);
    session->state = state;
    for (size_t i = session->state_count; i < count; i++) {
        state[i] = (struct tl_session_site){.rung = TL_RUNG_REFUSED,
                                            .refusal = session->sites.site[i].refusal};
    }
    session->state_count = count;
    return 0;
}

int tl_session_add(struct tl_session *session, const char *probe, struct tl_diag *diag)
{
    struct tl_probe_spec spec;
    int error = tl_probe_parse(probe, &spec, diag);
    if (error)
        return error;
    struct tl_find_context context = {
        .modules = session->modules,
        .pid = session->options.pid,
        .read = session->target ? target_read : NULL,
        .opaque = session->target,
    };
    int matched = tl_find_sites(&context, &spec, &session->sites, diag);
    tl_probe_spec_deinit(&spec);
    if (matched < 0)
        return matched;
    error = session->options.all_insns ? tl_session_expand(session, diag) : 0;
    if (!error)
        error = state_grow(session, diag);
    return error ? error : matched;
}

static void progress(struct tl_session *session, const char *what, size_t done, size_t total)
{
    if (session->options.progress)
        session->options.progress(session->options.opaque, what, done, total);
}

static int plan_all(struct tl_session *session, struct tl_diag *diag)
{
    struct tl_plan_options plan = {.arch = &tl_arch_x86_64, .faults = session->faults};
    struct tl_proc_status status;
    plan.shadow_stack = !tl_proc_status_read(session->options.pid, &status, NULL) &&
                        status.shadow_stack;
    plan.emit.action = TL_ACTION_COUNT;
    tl_install_emit_input(session->install, &plan.emit);
    struct tl_space_options space = {.addr_min = TL_SPACE_ADDR_MIN,
                                     .addr_max = TL_SPACE_ADDR_MAX,
                                     .lean = tl_proc_maps_cost(session->options.pid)};
    space.used_count =
        tl_install_used_ranges(session->install, &space.used, &space.mapping_limit);
    int error = tl_space_create(&space, &session->space, diag);
    if (error)
        return error;
    return tl_plan_sites(&plan, session->space, session->plan_modules,
                         tl_modules_count(session->modules), session->requests,
                         session->request_count, &session->plans, diag);
}

static void plans_drop(struct tl_session *session, size_t own)
{
    tl_session_unguard(session, own);
    tl_plan_set_destroy(session->plans);
    session->plans = NULL;
    tl_space_destroy(session->space);
    session->space = NULL;
    free(session->results);
    session->results = NULL;
}

// With every fault handler guarded at entry and returns, else at its entry, else with nothing displaced
// that can fault.
static int plan_guarded(struct tl_session *session, struct tl_diag *diag)
{
    static const enum tl_fault_policy policies[] = {TL_FAULT_RESUMED, TL_FAULT_LONE};
    size_t own = session->request_count;
    for (size_t i = 0; i < TL_ARRAY_COUNT(policies); i++) {
        bool possible = false;
        int error = tl_session_guard(session, policies[i], &possible, diag);
        if (!error && possible)
            error = plan_all(session, diag);
        if (error || (possible && tl_session_guards_planned(session)))
            return error;
        plans_drop(session, own);
    }
    return plan_all(session, diag);
}

static int plan_and_write(struct tl_session *session, struct tl_diag *diag)
{
    progress(session, "planning", 0, session->request_count);
    int error = plan_guarded(session, diag);
    if (error)
        return error;
    session->results = calloc(session->request_count, sizeof *session->results);
    if (!session->results)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    progress(session, "writing", 0, session->request_count);
    return tl_install_commit(session->install, session->space, session->plans,
                             session->request_count, session->results, diag);
}

// Plans against the live target and writes; again when the target showed something else than before.
static int jump_rung(struct tl_session *session, struct tl_diag *diag)
{
    struct tl_install_options install = {.probe_count = (uint32_t)session->sites.count,
                                         .code_size_hint = session->request_count *
                                                           TL_SITE_PATCHES_MAX *
                                                           sizeof(struct tl_log_patch)};
    size_t own = session->request_count;
    int error = tl_install_prepare(session->target, &install, &session->install, diag);
    if (error)
        return error;
    error = plan_and_write(session, diag);
    for (int i = 1; error == TL_E_AGAIN && i < COMMIT_TRIES_MAX; i++) {
        plans_drop(session, own);
        error = plan_and_write(session, diag);
    }
    return error;
}

static size_t placed_count(const struct tl_session *session)
{
    size_t placed = 0;
    for (size_t i = 0; i < session->state_count; i++)
        placed += session->state[i].rung != TL_RUNG_REFUSED;
    return placed;
}

static int place_all(struct tl_session *session, struct tl_diag *diag)
{
    int error = 0;
    if (session->options.method != TL_METHOD_KERNEL) {
        error = tl_session_requests(session, 0, session->sites.count, diag);
        if (!error && session->request_count)
            error = jump_rung(session, diag);
        if (error)
            return error;
        if (session->request_count)
            tl_session_take_plans(session);
    }
    if (session->options.method != TL_METHOD_JUMP)
        error = tl_session_kernel(session, diag);
    return error;
}

int tl_session_attach(struct tl_session *session, struct tl_diag *diag)
{
    if (!session->sites.count)
        return tl_diag_set(diag, TL_E_NOMATCH, "no probe matched");
    double start = tl_session_now_ms();
    int error = tl_sites_distinct(session->modules, &session->sites, diag);
    if (error)
        return error;
    for (size_t i = 0; i < session->sites.count; i++)
        session->state[i].counter = (uint32_t)i;
    session->attached = true;
    error = place_all(session, diag);
    if (!error && !placed_count(session)) {
        error = tl_diag_set(diag, TL_E_NOMATCH, "none of %zu probes could be placed: %s",
                            session->sites.count, tl_session_site(session, 0)->reason);
    }
    if (error) {
        (void)tl_session_detach(session, NULL);
        return error;
    }
    tl_target_resume(session->target);
    struct tl_install_times times = {0};
    if (session->install)
        tl_install_times(session->install, &times);
    session->stopped_ms = times.stopped_ms;
    session->attach_ms = tl_session_now_ms() - start;
    return 0;
}

static void hits_refresh(struct tl_session *session)
{
    size_t count = session->state_count;
    struct tl_drain_memory memory = {0};
    if (session->install)
        tl_install_memory(session->install, &memory);
    uint64_t *jump = memory.data ? calloc(count, sizeof *jump) : NULL;
    if (jump && tl_drain_counts(&memory, 0, (uint32_t)count, jump, NULL)) {
        free(jump);
        jump = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        struct tl_session_site *state = &session->state[i];
        uint64_t hits = 0;
        if (state->rung == TL_RUNG_KERNEL && session->uprobes) {
            if (!tl_uprobes_count(session->uprobes, state->uprobe, &hits, NULL))
                state->hits = hits;
        } else if (state->rung == TL_RUNG_JUMP && jump) {
            state->hits = jump[state->counter];
        }
    }
    free(jump);
}

int tl_session_poll(struct tl_session *session, struct tl_diag *diag)
{
    hits_refresh(session);
    if (!tl_target_alive(session->target))
        return 1;
    if (!session->install || !session->results)
        return 0;
    int gone = tl_install_verify(session->install, session->results, diag);
    if (gone < 0)
        return gone;
    int error = gone ? 0 : tl_session_guards_refresh(session, diag);
    if (error)
        return error;
    for (size_t i = 0; i < session->state_count; i++) {
        struct tl_session_site *state = &session->state[i];
        if (!(state->flags & TL_SESSION_PLANNED) || state->rung != TL_RUNG_JUMP || state->closed)
            continue;
        enum tl_refusal refusal = session->results[state->request].refusal;
        if (refusal != TL_REFUSE_NONE) {
            state->closed = true;
            state->refusal = refusal;
        }
    }
    return gone;
}

int tl_session_detach(struct tl_session *session, struct tl_diag *diag)
{
    if (!session->attached)
        return 0;
    double start = tl_session_now_ms();
    session->attached = false;
    int error = 0;
    if (session->uprobes)
        tl_uprobes_stop(session->uprobes);
    hits_refresh(session);
    tl_uprobes_destroy(session->uprobes); // before our text: its pages may hold the kernel's bytes
    session->uprobes = NULL;
    if (session->install && session->results) {
        error = tl_install_detach(session->install, diag);
        struct tl_install_times times = {0};
        tl_install_times(session->install, &times);
        if (times.detach_stopped_ms > session->stopped_ms)
            session->stopped_ms = times.detach_stopped_ms;
        int guards = tl_session_guards_detach(session, error ? NULL : diag);
        error = error ? error : guards;
    }
    if (session->target)
        tl_target_resume(session->target);
    hits_refresh(session); // hits between the first look and the stop
    session->detach_ms = tl_session_now_ms() - start;
    return error;
}

int tl_session_exit_fd(const struct tl_session *session)
{
    return session->target ? tl_target_exit_fd(session->target) : -1;
}

int tl_session_wait_status(const struct tl_session *session)
{
    return session->target ? tl_target_wait_status(session->target) : -1;
}

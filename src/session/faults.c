// Guards: probes of our own at the entries of the target's fault handlers, so that a displaced
// instruction's fault is shown at its own address. Not reported, not counted.
//
// Handlers that are there at attach are guarded with the sites, in one plan. Later ones get an
// install of their own beside the first, whose undo log is complete; what can't be guarded any more
// is closed. Invariant: while a site that can fault is in the text, every handler that is known is
// guarded.
#include "session/internal.h"

#include <stdio.h>
#include <stdlib.h>

#define COMMIT_TRIES_MAX 5 // each as long as a stop may take
#define HANDLER_EXITS_MAX 32 // more returns of one handler than this are not guarded

// The request for a guard at a handler; false: it lies in no module that is known.
static bool handler_request(struct tl_batch *batch, tl_addr addr, struct tl_plan_request *out)
{
    for (size_t i = 0; i < tl_modules_count(batch->modules); i++) {
        struct tl_module *module = tl_modules_get(batch->modules, i);
        const struct tl_segment *segment = NULL;
        size_t segments = tl_image_segments(module->image, &segment);
        tl_addr vaddr = addr - (tl_addr)module->bias;
        bool inside = false;
        for (size_t k = 0; k < segments; k++)
            inside |= segment[k].prot & TL_PROT_EXEC && vaddr >= segment[k].vaddr &&
                      vaddr - segment[k].vaddr < segment[k].file_size;
        if (!inside)
            continue;
        if (tl_module_analyse(module, NULL))
            return false;
        *out = (struct tl_plan_request){.bias = module->bias,
                                        .module = (uint32_t)i,
                                        .counter_off = TL_BLOCK_HEADER_SIZE,
                                        .action = TL_ACTION_CALL};
        return !tl_analysis_site(module->analysis, tl_analysis_entry(module->analysis, vaddr),
                                 &out->facts, NULL);
    }
    return false;
}

// The request for the same address among those of people's probes.
static struct tl_plan_request *request_twin(struct tl_batch *batch,
                                            const struct tl_plan_request *request)
{
    for (size_t i = 0; i < batch->request_count; i++) {
        struct tl_plan_request *other = &batch->requests[i];
        if (other->module == request->module && other->facts.vaddr == request->facts.vaddr)
            return other;
    }
    return NULL;
}

static int request_append(struct tl_batch *batch, const struct tl_plan_request *request,
                          struct tl_diag *diag)
{
    if (batch->request_count == batch->request_max) {
        size_t max = batch->request_max + TL_FAULT_HANDLERS_MAX;
        struct tl_plan_request *grown = realloc(batch->requests, max * sizeof *grown);
        if (!grown)
            return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu sites", max);
        batch->requests = grown;
        batch->request_max = max;
    }
    batch->requests[batch->request_count++] = *request;
    return 0;
}

static bool guarded(const struct tl_batch *batch, tl_addr handler)
{
    for (size_t i = 0; i < batch->guarded_count; i++) {
        if (batch->guarded[i] == handler)
            return true;
    }
    return false;
}

static void guarded_add(struct tl_batch *batch, tl_addr handler)
{
    if (batch->guarded_count < TL_ARRAY_COUNT(batch->guarded))
        batch->guarded[batch->guarded_count++] = handler;
}

// ---- at attach ----------------------------------------------------------------------------------

// A probe of ours at an instruction; where a person's is, one detour does both.
static int guard_add(struct tl_batch *batch, const struct tl_plan_request *request,
                     struct tl_diag *diag)
{
    struct tl_plan_request *twin = request_twin(batch, request);
    if (!twin)
        return request_append(batch, request, diag);
    twin->action |= request->action;
    return 0;
}

// Probes at every return of the handler whose entry is `entry`. *all: each is known.
static int exits_add(struct tl_batch *batch, const struct tl_plan_request *entry, bool *all,
                     struct tl_diag *diag)
{
    struct tl_module *module = tl_modules_get(batch->modules, entry->module);
    tl_addr exits[HANDLER_EXITS_MAX];
    size_t count = 0;
    *all = entry->facts.function.size &&
           tl_session_exits(module, entry->facts.function.vaddr, exits, HANDLER_EXITS_MAX, &count);
    for (size_t i = 0; *all && i < count; i++) {
        struct tl_plan_request request = *entry;
        request.action = TL_ACTION_LEAVE;
        int error = tl_analysis_site(module->analysis, exits[i], &request.facts, diag);
        if (!error)
            error = guard_add(batch, &request, diag);
        if (error)
            return error;
    }
    return 0;
}

int tl_session_guard(struct tl_batch *batch, enum tl_fault_policy policy, bool *possible,
                     struct tl_diag *diag)
{
    tl_addr handler[TL_FAULT_HANDLERS_MAX];
    size_t count = tl_install_fault_handlers(batch->install, handler);
    batch->faults = count ? policy : TL_FAULT_ANY;
    *possible = true;
    for (size_t i = 0; *possible && i < count; i++) {
        struct tl_plan_request request;
        *possible = handler_request(batch, handler[i], &request);
        if (!*possible)
            break;
        guarded_add(batch, handler[i]);
        int error = guard_add(batch, &request, diag);
        if (!error && policy == TL_FAULT_RESUMED)
            error = exits_add(batch, &request, possible, diag);
        if (error)
            return error;
    }
    return count ? tl_session_modules(batch, diag) : 0;
}

bool tl_session_guards_planned(const struct tl_batch *batch)
{
    bool planned = true;
    for (size_t i = 0; i < batch->request_count; i++) {
        if (batch->requests[i].action & TL_ACTION_GUARD)
            planned &= tl_plan_get(batch->plans, i)->rung == TL_RUNG_JUMP;
    }
    return planned;
}

void tl_session_unguard(struct tl_batch *batch, size_t own)
{
    batch->faults = TL_FAULT_NONE;
    batch->guarded_count = 0;
    batch->request_count = own;
    for (size_t i = 0; i < own; i++)
        batch->requests[i].action &= ~(unsigned)TL_ACTION_GUARD;
}

// ---- later --------------------------------------------------------------------------------------

// Takes a person's probe out of the text, to be put back as one that guards too.
static int twin_take(struct tl_batch *batch, struct tl_plan_request *request, uint32_t *user,
                     struct tl_diag *diag)
{
    struct tl_plan_request *twin = request_twin(batch, request);
    *user = TL_GUARD_NO_USER;
    if (!twin)
        return 0;
    size_t index = (size_t)(twin - batch->requests);
    if (tl_plan_get(batch->plans, index)->rung != TL_RUNG_JUMP ||
        batch->results[index].refusal != TL_REFUSE_NONE)
        return 0;
    int error = tl_install_close_site(batch->install, index, batch->results, diag);
    *user = (uint32_t)index;
    request->action = TL_ACTION_COUNT_CALL;
    request->counter_off = twin->counter_off;
    return error;
}

static int guard_requests(struct tl_batch *batch, struct tl_session_guard *guard,
                          struct tl_plan_request *requests, struct tl_diag *diag)
{
    tl_addr handler[TL_FAULT_HANDLERS_MAX];
    size_t count = tl_install_fault_handlers(guard->install, handler);
    for (size_t i = 0; i < count; i++) {
        struct tl_plan_request *request = &requests[guard->count];
        bool repeats = false;
        if (guarded(batch, handler[i]))
            continue;
        if (!handler_request(batch, handler[i], request))
            return tl_diag_set(diag, TL_E_UNSUPPORTED, "0x%llx is in no module that is known",
                               (unsigned long long)handler[i]);
        for (size_t k = 0; k < guard->count; k++)
            repeats |= requests[k].module == request->module &&
                       requests[k].facts.vaddr == request->facts.vaddr;
        guarded_add(batch, handler[i]);
        if (repeats)
            continue;
        int error = twin_take(batch, request, &guard->user[guard->count], diag);
        if (error)
            return error;
        guard->count++;
    }
    return tl_session_modules(batch, diag);
}

static int guard_commit(struct tl_batch *batch, struct tl_session_guard *guard,
                        const struct tl_plan_request *requests, struct tl_diag *diag)
{
    struct tl_plan_options plan = {.arch = batch->arch, .faults = TL_FAULT_LONE};
    struct tl_space_options options = {0};
    struct tl_space *space = NULL;
    struct tl_plan_set *plans = NULL;
    struct tl_emit_in own = {0};
    tl_install_emit_input(batch->install, &plan.emit); // people's counters are there
    tl_install_emit_input(guard->install, &own);
    plan.emit.call_addr = own.call_addr;
    plan.emit.leave_addr = own.leave_addr;
    tl_install_space(guard->install, &options);
    int error = tl_space_create(&options, &space, diag);
    if (!error)
        error = tl_plan_sites(&plan, space, batch->plan_modules,
                              tl_modules_count(batch->modules), requests, guard->count, &plans,
                              diag);
    for (int i = 0; !error && i < COMMIT_TRIES_MAX; i++) {
        error = tl_install_commit(guard->install, space, plans, guard->count, guard->results, diag);
        // Some thread has no pointer of its own, which is known now; or one did not stop in time.
        if (error != TL_E_AGAIN && error != TL_E_BUSY)
            break;
        error = i + 1 < COMMIT_TRIES_MAX ? 0 : error;
    }
    tl_plan_set_destroy(plans);
    tl_space_destroy(space);
    return error;
}

static int guards_place(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_install_options options = {.probe_count = 1, .beside = batch->install};
    struct tl_plan_request *requests;
    if (batch->guard_count == TL_SESSION_GUARDS_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "handlers came %u times", TL_SESSION_GUARDS_MAX);
    requests = calloc(TL_FAULT_HANDLERS_MAX, sizeof *requests);
    if (!requests)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    struct tl_session_guard *guard = &batch->guard[batch->guard_count];
    *guard = (struct tl_session_guard){0};
    int error = TL_E_BUSY; // no thread could be stopped in time: a busy machine
    for (int i = 0; error == TL_E_BUSY && i < COMMIT_TRIES_MAX; i++)
        error = tl_install_prepare(batch->target, &options, &guard->install, diag);
    if (!error) {
        batch->guard_count++;
        error = guard_requests(batch, guard, requests, diag);
    }
    if (!error && guard->count)
        error = guard_commit(batch, guard, requests, diag);
    free(requests);
    for (size_t i = 0; !error && i < guard->count; i++) {
        if (guard->results[i].refusal != TL_REFUSE_NONE)
            error = tl_diag_set(diag, TL_E_UNSUPPORTED, "%s",
                                tl_refusal_text(guard->results[i].refusal));
        else if (guard->user[i] != TL_GUARD_NO_USER)
            batch->results[guard->user[i]].refusal = TL_REFUSE_NONE;
    }
    return error;
}

static int faulting_close(struct tl_batch *batch, const char *why, struct tl_diag *diag)
{
    batch->faults = TL_FAULT_NONE;
    tl_session_note(batch->session, "a handler of faults is without a probe (%s): probes whose "
                             "instruction can fault are closed\n", why);
    return tl_install_close_faulting(batch->install, true, batch->results, diag);
}

// A guard that somebody else wrote over is none.
static int guards_verify(struct tl_batch *batch, struct tl_diag *diag)
{
    for (size_t i = 0; i < batch->guard_count; i++) {
        struct tl_session_guard *guard = &batch->guard[i];
        bool lost = false;
        int gone = guard->count ? tl_install_verify(guard->install, guard->results, diag) : 0;
        if (gone)
            return gone < 0 ? gone : 0;
        for (size_t k = 0; k < guard->count; k++) {
            if (guard->results[k].refusal == TL_REFUSE_NONE)
                continue;
            lost = true;
            if (guard->user[k] != TL_GUARD_NO_USER)
                batch->results[guard->user[k]].refusal = guard->results[k].refusal;
        }
        if (lost && batch->faults != TL_FAULT_NONE)
            return faulting_close(batch, tl_refusal_text(TL_REFUSE_CHANGED_BYTES), diag);
    }
    return 0;
}

int tl_session_guards_refresh(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_diag why = {{0}};
    int error = guards_verify(batch, diag);
    if (error || !tl_install_faults_changed(batch->install) ||
        batch->faults == TL_FAULT_NONE)
        return error;
    batch->faults = TL_FAULT_LONE;
    error = tl_install_close_faulting(batch->install, false, batch->results, diag);
    if (!error && guards_place(batch, &why))
        error = faulting_close(batch, why.text, diag);
    return error;
}

int tl_session_guards_detach(struct tl_batch *batch, struct tl_diag *diag)
{
    int error = 0;
    for (size_t i = 0; i < batch->guard_count; i++) {
        int result = tl_install_detach(batch->guard[i].install, diag);
        error = error ? error : result;
    }
    return error;
}

void tl_session_guards_destroy(struct tl_batch *batch)
{
    for (size_t i = 0; i < batch->guard_count; i++)
        tl_install_destroy(batch->guard[i].install);
}

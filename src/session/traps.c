// The signal rungs: breakpoints for sites that got neither a jump nor a kernel probe, or where a
// person asked for them.
//
// Chooses sites and passes their requests on; what a breakpoint is and when the target allows one
// is stage plan's and patch's. Invariants: a probe of several points is placed whole or not at all;
// no breakpoint lies in a window or a patch of a jump, nor in the C library, which blocks all
// signals around work of its own.
#include "session/traps.h"

#include "patch/trap.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TRAP_RUNGS                                                                                 \
    (TL_RUNG_BIT(TL_RUNG_SIMULATE) | TL_RUNG_BIT(TL_RUNG_SLOT) | TL_RUNG_BIT(TL_RUNG_STEP))
#define NOT_CHOSEN UINT32_MAX
#define MASK_WORD_OFF 8 // of sa_mask in struct sigaction, glibc's and musl's
#define BLOCK 0         // SIG_BLOCK and SIG_SETMASK, include/uapi/asm-generic/signal-defs.h
#define SETMASK 2

struct tl_batch_traps {
    struct tl_traps *traps;
    struct tl_install_result *results;
    enum tl_rung *rung; // as results: one a chosen request
    uint32_t *chosen;   // per request of the batch: its index here, or NOT_CHOSEN
    struct tl_plan_request *request;
    size_t count;
    uint64_t faults_caught; // fault signals that were handled when the breakpoints came
    enum tl_fault_policy faults;
};

static unsigned method_rungs(const struct tl_session *session)
{
    switch (session->options.method) {
    case TL_METHOD_AUTO:
        return session->options.allow_traps ? TRAP_RUNGS : 0;
    case TL_METHOD_SIMULATE:
        return TL_RUNG_BIT(TL_RUNG_SIMULATE);
    case TL_METHOD_SLOT:
        return TL_RUNG_BIT(TL_RUNG_SLOT);
    case TL_METHOD_STEP:
        return TL_RUNG_BIT(TL_RUNG_STEP);
    default:
        return 0;
    }
}

bool tl_session_traps_wanted(const struct tl_session *session)
{
    return method_rungs(session) != 0;
}

// ---- which sites --------------------------------------------------------------------------------

// Refusals that a breakpoint does not share.
static bool refusal_wants(enum tl_refusal refusal)
{
    return tl_refusal_of_jump(refusal) || refusal == TL_REFUSE_KERNEL_SITE ||
           refusal == TL_REFUSE_EXIT_UNPATCHED;
}

static bool site_wants(const struct tl_batch *batch, size_t index)
{
    const struct tl_session_site *state = &batch->state[index];
    if (!(state->flags & TL_SESSION_PLANNED) || !state->point_count ||
        state->return_way == TL_SITE_TRAMPOLINE)
        return false;
    if (batch->session->options.method == TL_METHOD_AUTO)
        return state->rung == TL_RUNG_REFUSED && refusal_wants(state->refusal);
    return state->refusal == TL_REFUSE_NONE;
}

// The C library and the loader.
static bool is_libc(const struct tl_module *module)
{
    const char *soname = tl_image_soname(module->image);
    const char *base = strrchr(module->path, '/');
    base = base ? base + 1 : module->path;
    return (soname &&
            (strncmp(soname, "libc.", 5) == 0 || strncmp(soname, "libpthread.", 11) == 0 ||
             strncmp(soname, "ld-", 3) == 0)) ||
           strncmp(base, "ld-", 3) == 0;
}

static enum tl_refusal request_refusal(const struct tl_batch *batch, uint32_t index)
{
    const struct tl_plan_request *request = &batch->requests[index];
    if (is_libc(tl_modules_get(batch->modules, request->module)))
        return TL_REFUSE_TRAP_LIBC;
    tl_addr addr = request->facts.vaddr + (tl_addr)request->bias;
    return tl_batch_covers(batch, addr, request->facts.insn[0].size) ? TL_REFUSE_WINDOW_PROBE
                                                                     : TL_REFUSE_NONE;
}

static enum tl_refusal site_refusal(const struct tl_batch *batch,
                                    const struct tl_session_site *state)
{
    enum tl_refusal refusal = TL_REFUSE_NONE;
    for (uint32_t k = 0; k < state->point_count && !refusal; k++)
        refusal = request_refusal(batch, batch->points[state->point_first + k].request);
    return refusal;
}

static void request_choose(struct tl_batch *batch, struct tl_batch_traps *traps, uint32_t request)
{
    if (traps->chosen[request] != NOT_CHOSEN)
        return;
    traps->chosen[request] = (uint32_t)traps->count;
    traps->request[traps->count++] = batch->requests[request];
}

static void sites_choose(struct tl_batch *batch, struct tl_batch_traps *traps)
{
    for (size_t i = 0; i < batch->state_count; i++) {
        struct tl_session_site *state = &batch->state[i];
        if (!site_wants(batch, i))
            continue;
        enum tl_refusal refusal = site_refusal(batch, state);
        if (refusal) {
            state->refusal = refusal;
            continue;
        }
        for (uint32_t k = 0; k < state->point_count; k++)
            request_choose(batch, traps, batch->points[state->point_first + k].request);
    }
}

// ---- placing ------------------------------------------------------------------------------------

static struct tl_batch_traps *traps_alloc(const struct tl_batch *batch)
{
    struct tl_batch_traps *traps = calloc(1, sizeof *traps);
    if (!traps)
        return NULL;
    traps->results = calloc(batch->request_count + 1, sizeof *traps->results);
    traps->rung = calloc(batch->request_count + 1, sizeof *traps->rung);
    traps->chosen = calloc(batch->request_count + 1, sizeof *traps->chosen);
    traps->request = calloc(batch->request_count + 1, sizeof *traps->request);
    for (size_t i = 0; traps->chosen && i < batch->request_count; i++)
        traps->chosen[i] = NOT_CHOSEN;
    return traps;
}

static struct tl_traps *earlier_traps(const struct tl_batch *batch)
{
    const struct tl_session *session = batch->session;
    for (size_t i = 0; i < session->batch_count; i++) {
        const struct tl_batch *other = session->batch[i];
        if (other && other != batch && other->pid == batch->pid && !other->gone && other->traps)
            return other->traps->traps;
    }
    return NULL;
}

// The program's accesses by its stack pointer are not checked against tags (arm64: MTE), the handler's
// to the same place would be, and could fault.
static bool memory_tagged(const struct tl_batch *batch)
{
    bool found = false;
    for (size_t i = 0; i < batch->maps.count; i++)
        found |= batch->maps.map[i].tagged;
    return found;
}

static int plan_and_commit(struct tl_batch *batch, struct tl_batch_traps *traps,
                           struct tl_diag *diag)
{
    struct tl_space_options space_options;
    struct tl_trap_options options;
    struct tl_space *space = NULL;
    struct tl_trap_set *set = NULL;
    tl_traps_space(traps->traps, &space_options);
    space_options.lean = tl_proc_maps_cost(batch->pid);
    tl_traps_plan_options(traps->traps, &options);
    options.rungs = method_rungs(batch->session);
    if (memory_tagged(batch))
        options.rungs &= ~TL_RUNG_BIT(TL_RUNG_SIMULATE);
    options.faults = traps->faults;
    options.shadow_stack |= tl_batch_shadow_stack(batch);
    int error = tl_space_create(&space_options, &space, diag);
    if (!error)
        error = tl_plan_traps(&options, space, traps->request, traps->count, &set, diag);
    if (!error)
        error = tl_traps_commit(traps->traps, space, set, traps->count, traps->results, diag);
    for (size_t i = 0; !error && i < traps->count; i++)
        traps->rung[i] = tl_trap_plan(set, i)->rung;
    tl_trap_set_destroy(set);
    tl_space_destroy(space);
    return error;
}

// What handlers of faults may be shown. With jumps in the batch, what held for those.
static void faults_learn(const struct tl_batch *batch, struct tl_batch_traps *traps)
{
    tl_addr handler[TL_FAULT_HANDLERS_MAX];
    bool handled = tl_install_fault_handlers(batch->install, handler) != 0;
    traps->faults_caught = tl_faults_caught(batch->pid);
    traps->faults = TL_FAULT_ANY;
    if (handled)
        traps->faults = batch->results && !batch->beside ? batch->faults : TL_FAULT_NONE;
}

// The site has all its points, or NONE of them: then the first refusal.
static enum tl_refusal site_result(const struct tl_batch *batch,
                                   const struct tl_session_site *state, enum tl_rung *rung)
{
    const struct tl_batch_traps *traps = batch->traps;
    *rung = TL_RUNG_REFUSED;
    for (uint32_t k = 0; k < state->point_count; k++) {
        uint32_t index = traps->chosen[batch->points[state->point_first + k].request];
        if (index == NOT_CHOSEN)
            return TL_REFUSE_WINDOW_PROBE;
        if (traps->results[index].refusal != TL_REFUSE_NONE)
            return traps->results[index].refusal;
        if (traps->rung[index] > *rung)
            *rung = traps->rung[index];
    }
    return TL_REFUSE_NONE;
}

static bool is_trap(enum tl_rung rung)
{
    return rung == TL_RUNG_SIMULATE || rung == TL_RUNG_SLOT || rung == TL_RUNG_STEP;
}

// Whether some probe that is in needs the chosen request.
static bool request_needed(const struct tl_batch *batch, uint32_t index)
{
    for (size_t i = 0; i < batch->state_count; i++) {
        const struct tl_session_site *state = &batch->state[i];
        if (!is_trap(state->rung) || state->closed)
            continue;
        for (uint32_t k = 0; k < state->point_count; k++) {
            if (batch->traps->chosen[batch->points[state->point_first + k].request] == index)
                return true;
        }
    }
    return false;
}

// Points of probes that are not whole are taken away.
static int rest_close(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_batch_traps *traps = batch->traps;
    int error = 0;
    for (size_t i = 0; !error && i < traps->count; i++) {
        if (traps->results[i].refusal == TL_REFUSE_NONE && !request_needed(batch, (uint32_t)i))
            error = tl_traps_close_site(traps->traps, i, traps->results, diag);
    }
    return error;
}

static int sites_take(struct tl_batch *batch, struct tl_diag *diag)
{
    bool whole = true;
    for (size_t i = 0; i < batch->state_count; i++) {
        struct tl_session_site *state = &batch->state[i];
        enum tl_rung rung;
        if (!site_wants(batch, i) || site_refusal(batch, state))
            continue;
        enum tl_refusal refusal = site_result(batch, state, &rung);
        if (refusal == TL_REFUSE_NONE)
            state->rung = rung; // the refusal says why not the rung above
        else if (!is_trap(state->rung))
            state->refusal = refusal;
        whole &= refusal == TL_REFUSE_NONE || state->point_count == 1;
    }
    return whole ? 0 : rest_close(batch, diag);
}

int tl_session_traps(struct tl_batch *batch, struct tl_diag *diag)
{
    if (!tl_session_traps_wanted(batch->session) || !batch->install || !batch->request_count)
        return 0;
    struct tl_batch_traps *traps = traps_alloc(batch);
    batch->traps = traps;
    if (!traps || !traps->results || !traps->rung || !traps->chosen || !traps->request)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu sites", batch->request_count);
    sites_choose(batch, traps);
    if (!traps->count)
        return 0;
    faults_learn(batch, traps);
    bool asked = batch->session->options.method != TL_METHOD_AUTO;
    struct tl_diag why = {{0}};
    int error = tl_traps_create(batch->install, earlier_traps(batch), &traps->traps, &why);
    if (!error)
        error = plan_and_commit(batch, traps, &why);
    if (!error) {
        double stopped_ms = tl_traps_stopped_ms(traps->traps);
        batch->stopped_ms = stopped_ms > batch->stopped_ms ? stopped_ms : batch->stopped_ms;
        return sites_take(batch, diag);
    }
    if (asked || error == TL_E_GONE)
        return tl_diag_set(diag, error, "%s", why.text);
    tl_session_note(batch->session, "breakpoints: %s\n", why.text);
    tl_traps_destroy(traps->traps);
    traps->traps = NULL;
    return 0;
}

// The rung of a site whose requests' plans are all in the set, or its first refusal.
static enum tl_refusal site_explain(const struct tl_batch *batch, const struct tl_trap_set *set,
                                    const struct tl_session_site *state, enum tl_rung *rung)
{
    enum tl_refusal refusal = TL_REFUSE_NONE;
    *rung = TL_RUNG_REFUSED;
    for (uint32_t k = 0; k < state->point_count && !refusal; k++) {
        uint32_t request = batch->points[state->point_first + k].request;
        const struct tl_plan *plan = tl_trap_plan(set, request);
        refusal = is_libc(tl_modules_get(batch->modules, batch->requests[request].module))
                      ? TL_REFUSE_TRAP_LIBC
                      : plan->refusal;
        if (plan->rung > *rung)
            *rung = plan->rung;
    }
    return refusal;
}

int tl_session_traps_explain(struct tl_batch *batch, const struct tl_plan_options *plan,
                             size_t first, size_t count, struct tl_diag *diag)
{
    const struct tl_trap_options options = {.arch = plan->arch,
                                            .rungs = method_rungs(batch->session),
                                            .emit = plan->emit,
                                            .faults = plan->faults,
                                            .shadow_stack = plan->shadow_stack,
                                            .alone = true};
    bool asked = batch->session->options.method != TL_METHOD_AUTO;
    struct tl_trap_set *set = NULL;
    if (!options.rungs || !batch->request_count)
        return 0;
    int error =
        tl_plan_traps(&options, batch->space, batch->requests, batch->request_count, &set, diag);
    for (size_t i = first; !error && i < first + count; i++) {
        struct tl_session_site *state = &batch->state[i];
        enum tl_rung rung;
        if (!(state->flags & TL_SESSION_PLANNED) || !state->point_count ||
            (!asked && !site_wants(batch, i)))
            continue;
        enum tl_refusal refusal = site_explain(batch, set, state, &rung);
        if (refusal || asked)
            state->refusal = refusal;
        state->rung = refusal ? TL_RUNG_REFUSED : rung;
    }
    tl_trap_set_destroy(set);
    return error;
}

// ---- while they are in --------------------------------------------------------------------------

static int closed_take(struct tl_batch *batch, struct tl_diag *diag)
{
    bool whole = true;
    for (size_t i = 0; i < batch->state_count; i++) {
        struct tl_session_site *state = &batch->state[i];
        enum tl_rung rung;
        if (!is_trap(state->rung) || state->closed)
            continue;
        enum tl_refusal refusal = site_result(batch, state, &rung);
        if (refusal == TL_REFUSE_NONE)
            continue;
        state->closed = true;
        state->refusal = refusal;
        whole &= state->point_count == 1;
    }
    return whole ? 0 : rest_close(batch, diag);
}

static int traps_verify(struct tl_batch *batch, bool asked, struct tl_diag *diag)
{
    struct tl_batch_traps *traps = batch->traps;
    if (!traps || !traps->traps)
        return 0;
    int error = tl_traps_check(traps->traps, asked, traps->results, diag);
    if (error)
        return error;
    // A new handler of faults has no guard that knows of slots, or the guards that did are lost.
    uint64_t caught = tl_faults_caught(batch->pid);
    if (traps->faults != TL_FAULT_NONE &&
        (caught & ~traps->faults_caught ||
         (traps->faults != TL_FAULT_ANY && batch->faults == TL_FAULT_NONE))) {
        traps->faults = TL_FAULT_NONE;
        error = tl_traps_close_faulting(traps->traps, traps->results, diag);
    }
    (void)tl_traps_copies_close(traps->traps, NULL);
    return error ? error : closed_take(batch, diag);
}

int tl_session_traps_verify(struct tl_batch *batch, struct tl_diag *diag)
{
    return traps_verify(batch, false, diag);
}

// ---- notices ------------------------------------------------------------------------------------

static bool has_trap(pid_t pid, tl_addr set_addr)
{
    uint64_t word = 0;
    return tl_proc_read_memory(pid, set_addr, &word, sizeof word) && word >> (SIGTRAP - 1) & 1;
}

// Whether what the thread is about to do takes SIGTRAP away from us. Arguments are words of the
// target's: any value is read from there, or means nothing.
static bool notice_takes(pid_t pid, uint32_t kind, uint64_t first, uint64_t second)
{
    if (second == 0)
        return false;
    if (kind == TL_NOTICE_TRAP)
        return (uint32_t)first == SIGTRAP || has_trap(pid, second + MASK_WORD_OFF);
    return kind == TL_NOTICE_MASK && ((uint32_t)first == BLOCK || (uint32_t)first == SETMASK) &&
           has_trap(pid, second);
}

void tl_session_trap_notice(struct tl_batch *batch)
{
    struct tl_drain_memory memory = {0};
    struct tl_batch_traps *traps = batch->traps;
    bool takes = false, child = false;
    if (!traps || !traps->traps)
        return;
    tl_install_memory(batch->install, &memory);
    if (!memory.data)
        return;
    const struct tl_notice *notice =
        (const struct tl_notice *)((const uint8_t *)memory.data + TL_NOTICES_OFF);
    for (size_t i = 0; i < TL_NOTICE_SLOTS && !takes; i++) {
        // Acquire, with the thread's release: the rest is there.
        if (__atomic_load_n(&notice[i].state, __ATOMIC_ACQUIRE) != TL_NOTICE_ASKED)
            continue;
        uint32_t process = __atomic_load_n(&notice[i].process, __ATOMIC_RELAXED);
        pid_t pid = tl_session_process_pid(batch->session, batch, process);
        takes = pid > 0 && notice_takes(pid, __atomic_load_n(&notice[i].kind, __ATOMIC_RELAXED),
                                        __atomic_load_n(&notice[i].argument[0], __ATOMIC_RELAXED),
                                        __atomic_load_n(&notice[i].argument[1], __ATOMIC_RELAXED));
        child |= takes && process != 0;
    }
    if (!takes)
        return;
    // A child has the same text: what ends in one ends in all.
    if (!tl_traps_close(traps->traps, TL_REFUSE_TRAP_HANDLED, traps->results, NULL))
        (void)closed_take(batch, NULL);
    if (child || batch->session->options.follow)
        (void)tl_traps_copies_close(traps->traps, NULL);
}

static int module_hooks(struct tl_batch *batch, uint32_t index, struct tl_diag *diag)
{
    static const struct {
        const char *name;
        enum tl_notice_kind kind;
    } hooks[] = {{"sigaction", TL_NOTICE_TRAP}, {"pthread_sigmask", TL_NOTICE_MASK}};
    struct tl_module *module = tl_modules_get(batch->modules, index);
    const struct tl_symbol *symbol;
    size_t count = tl_image_symbols(module->image, &symbol);
    bool done[TL_ARRAY_COUNT(hooks)] = {false};
    int error = 0;
    for (size_t i = 0; !error && i < count; i++) {
        for (size_t k = 0; !error && k < TL_ARRAY_COUNT(hooks); k++) {
            if (done[k] || symbol[i].ifunc || strcmp(symbol[i].name, hooks[k].name) != 0)
                continue;
            const struct tl_record record = {.kind = TL_RECORD_HOOK,
                                             .counter_off = (uint32_t)hooks[k].kind};
            size_t request;
            error = tl_module_analyse(module, diag);
            if (!error)
                error = tl_batch_request_own(batch, index,
                                             tl_analysis_entry(module->analysis, symbol[i].vaddr),
                                             &record, &request, diag);
            done[k] = true;
        }
    }
    return error;
}

// In libc; where there is none, in the program, which may be static. With breakpoints only there
// are no jumps for hooks: then only the looks at each poll tell.
int tl_session_traps_hooks(struct tl_batch *batch, struct tl_diag *diag)
{
    size_t count = tl_modules_count(batch->modules);
    bool libc = false;
    int error = 0;
    if (!tl_session_traps_wanted(batch->session) || batch->beside ||
        batch->session->options.method != TL_METHOD_AUTO)
        return 0;
    for (size_t i = 0; !error && i < count; i++) {
        if (!is_libc(tl_modules_get(batch->modules, i)))
            continue;
        libc = true;
        error = module_hooks(batch, (uint32_t)i, diag);
    }
    for (size_t i = 0; !error && !libc && i < count; i++) {
        if (tl_modules_get(batch->modules, i)->main)
            error = module_hooks(batch, (uint32_t)i, diag);
    }
    return error;
}

// ---- the end ------------------------------------------------------------------------------------

int tl_session_traps_detach(struct tl_batch *batch, struct tl_diag *diag)
{
    if (!batch->traps || !batch->traps->traps)
        return 0;
    int error = tl_traps_detach(batch->traps->traps, diag);
    if (!error && tl_traps_left(batch->traps->traps))
        tl_session_note(batch->session, "the handler of SIGTRAP stays in the target: a thread may "
                                        "still be on its way there\n");
    return error;
}

int tl_session_traps_copies_detach(struct tl_batch *batch, struct tl_diag *diag)
{
    return batch->traps && batch->traps->traps ? tl_traps_copies_detach(batch->traps->traps, diag)
                                               : 0;
}

void tl_session_traps_destroy(struct tl_batch *batch)
{
    struct tl_batch_traps *traps = batch->traps;
    if (!traps)
        return;
    tl_traps_destroy(traps->traps);
    free(traps->results);
    free(traps->rung);
    free(traps->chosen);
    free(traps->request);
    free(traps);
    batch->traps = NULL;
}

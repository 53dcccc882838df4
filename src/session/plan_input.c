// Turns points into the planner's requests and takes its answers back.
//
// Points at one instruction share a request: one detour does for all of them, in the order entry first,
// then exits.
#include "session/internal.h"

#include <stdlib.h>

bool tl_batch_shadow_stack(const struct tl_batch *batch)
{
    struct tl_proc_status status;
    bool found = batch->pid && !tl_proc_status_read(batch->pid, &status, NULL) && status.shadow_stack;
    for (size_t i = 0; i < batch->maps.count; i++)
        found |= batch->maps.map[i].shadow_stack;
    return found;
}

// The module's text is mapped guarded (arm64: BTI).
static bool module_guarded(const struct tl_batch *batch, const struct tl_module *module)
{
    const struct tl_segment *segment = NULL;
    size_t count = batch->maps.count ? tl_image_segments(module->image, &segment) : 0;
    for (size_t i = 0; i < count; i++) {
        const struct tl_map *map =
            segment[i].prot & TL_PROT_EXEC
                ? tl_maps_at(&batch->maps, segment[i].vaddr + (tl_addr)module->bias)
                : NULL;
        if (map && map->guarded)
            return true;
    }
    return false;
}

// Bias, padding and text range of every module that is analysed by now.
int tl_session_modules(struct tl_batch *batch, struct tl_diag *diag)
{
    size_t count = tl_modules_count(batch->modules);
    free(batch->plan_modules);
    batch->plan_modules = calloc(count ? count : 1, sizeof *batch->plan_modules);
    if (!batch->plan_modules)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu modules", count);
    for (size_t i = 0; i < count; i++) {
        struct tl_module *module = tl_modules_get(batch->modules, i);
        struct tl_plan_module *input = &batch->plan_modules[i];
        input->bias = module->bias;
        input->guarded = module_guarded(batch, module);
        if (!module->analysis)
            continue;
        input->padding_count = tl_analysis_padding(module->analysis, &input->padding);
        const struct tl_module_facts *facts = NULL;
        int error = tl_image_facts(module->image, &facts, diag);
        if (error)
            return error;
        input->texts = facts->text;
        input->text_count = facts->text_count;
        input->analysis = module->analysis;
        input->site = tl_analysis_site;
        if (facts->text_count) {
            const struct tl_text *last = &facts->text[facts->text_count - 1];
            input->text = (struct tl_range){facts->text[0].vaddr, last->vaddr + last->size};
        }
    }
    return 0;
}

// ---- points -> requests -------------------------------------------------------------------------

struct order {
    uint32_t module, point;
    tl_addr vaddr;
};

static int order_compare(const void *left, const void *right)
{
    const struct order *a = left, *b = right;
    if (a->module != b->module)
        return a->module < b->module ? -1 : 1;
    if (a->vaddr != b->vaddr)
        return a->vaddr < b->vaddr ? -1 : 1;
    return (a->point > b->point) - (a->point < b->point);
}

static bool point_is_entry(uint8_t kind, enum tl_probe_kind site)
{
    return kind == TL_RECORD_EVENT || kind == TL_RECORD_GO_EVENT || kind == TL_RECORD_ENTER ||
           kind == TL_RECORD_HIJACK || (kind == TL_RECORD_HIT && site == TL_PROBE_ENTRY);
}

// Go passes arguments in registers of its own.
static uint8_t go_kind(uint8_t kind, const struct tl_site_facts *facts)
{
    return kind == TL_RECORD_EVENT && facts->go ? (uint8_t)TL_RECORD_GO_EVENT : kind;
}

// One more thing that the request's detour does. false: no room.
static bool record_add(struct tl_plan_request *request, uint8_t kind, uint32_t counter_off,
                       int32_t sp_off)
{
    if (kind == TL_RECORD_HIT && !(request->action & TL_ACTION_COUNT)) {
        request->action |= TL_ACTION_COUNT;
        request->counter_off = counter_off;
        return true;
    }
    for (size_t i = 0; i < TL_SITE_RECORDS_MAX; i++) {
        if (request->record[i].kind != TL_RECORD_NONE)
            continue;
        request->record[i] = (struct tl_record){
            .kind = kind, .counter_off = counter_off, .sp_off = sp_off};
        request->action |= TL_ACTION_RECORD;
        return true;
    }
    return false;
}

static int request_begin(struct tl_batch *batch, uint32_t module, tl_addr vaddr,
                         struct tl_diag *diag)
{
    struct tl_module *owner = tl_modules_get(batch->modules, module);
    int error = tl_module_analyse(owner, diag);
    if (error)
        return error;
    if (batch->request_count == batch->request_max) {
        size_t max = batch->request_max ? 2 * batch->request_max : 1024;
        struct tl_plan_request *grown = realloc(batch->requests, max * sizeof *grown);
        if (!grown)
            return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu sites", max);
        batch->requests = grown;
        batch->request_max = max;
    }
    struct tl_plan_request *request = &batch->requests[batch->request_count];
    *request = (struct tl_plan_request){.bias = owner->bias, .module = module};
    error = tl_analysis_site(owner->analysis, vaddr, &request->facts, diag);
    if (!error)
        batch->request_count++;
    return error;
}

// All points of order[0..count), which are at one instruction.
static int request_fill(struct tl_batch *batch, const struct order *order, size_t count,
                        struct tl_diag *diag)
{
    int error = request_begin(batch, order->module, order->vaddr, diag);
    if (error)
        return error;
    uint32_t index = (uint32_t)batch->request_count - 1;
    struct tl_plan_request *request = &batch->requests[index];
    bool entry = false, exit = false;
    request->no_stack = request->shared = request->facts.no_stack;
    request->on_taken = batch->points[order->point].on_taken;
    for (size_t i = 0; i < count; i++) {
        struct tl_point *point = &batch->points[order[i].point];
        const struct tl_site *site = &batch->sites.site[point->site];
        uint32_t counter_off = TL_BLOCK_HEADER_SIZE + 8u * batch->state[point->site].counter;
        bool is_entry = point_is_entry(point->kind, site->kind);
        entry |= is_entry && site->entry;
        exit |= !is_entry;
        if (point->on_taken != request->on_taken ||
            !record_add(request, go_kind(point->kind, &request->facts), counter_off,
                        point->sp_off))
            request->facts.refusal = TL_REFUSE_WINDOW_PROBE;
        point->request = index;
    }
    // An entry's loops are led past what it does; an exit there is meant each time.
    if (entry && exit && request->facts.looped && !request->facts.refusal)
        request->facts.refusal = TL_REFUSE_LOOP_TARGET;
    request->facts.entry = request->facts.entry && entry;
    return 0;
}

int tl_batch_requests(struct tl_batch *batch, struct tl_diag *diag)
{
    size_t count = batch->point_count;
    const struct tl_session_options *options = &batch->session->options;
    struct order *order = calloc(count + 1, sizeof *order);
    if (!order)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu sites", count);
    for (size_t i = 0; i < count; i++) {
        const struct tl_point *point = &batch->points[i];
        order[i] = (struct order){.module = batch->sites.site[point->site].module,
                                  .point = (uint32_t)i,
                                  .vaddr = point->vaddr};
    }
    qsort(order, count, sizeof *order, order_compare);
    batch->request_count = 0;
    int error = 0;
    for (size_t i = 0, end; !error && i < count; i = end) {
        for (end = i + 1; end < count && order[end].module == order[i].module &&
                          order[end].vaddr == order[i].vaddr;)
            end++;
        error = request_fill(batch, &order[i], end - i, diag);
        if (options->progress && i % 1024 == 0)
            options->progress(options->opaque, "analysing", i, count);
    }
    free(order);
    if (!error)
        error = tl_session_modules(batch, diag);
    for (size_t i = 0; !error && i < batch->request_count; i++)
        batch->requests[i].guarded = batch->plan_modules[batch->requests[i].module].guarded;
    return error;
}

int tl_batch_request_own(struct tl_batch *batch, uint32_t module, tl_addr vaddr,
                         const struct tl_record *record, size_t *request, struct tl_diag *diag)
{
    for (size_t i = 0; i < batch->request_count; i++) {
        if (batch->requests[i].module != module || batch->requests[i].facts.vaddr != vaddr)
            continue;
        *request = i;
        return record_add(&batch->requests[i], record->kind, record->counter_off, record->sp_off)
                   ? 0
                   : tl_diag_set(diag, TL_E_LIMIT, "too many probes at one instruction");
    }
    int error = request_begin(batch, module, vaddr, diag);
    if (error)
        return error;
    *request = batch->request_count - 1;
    (void)record_add(&batch->requests[*request], record->kind, record->counter_off, record->sp_off);
    return 0;
}

bool tl_batch_request_alone(const struct tl_batch *batch, uint32_t request, uint32_t site)
{
    for (size_t i = 0; i < batch->point_count; i++) {
        const struct tl_point *point = &batch->points[i];
        const struct tl_session_site *other = &batch->state[point->site];
        if (point->request == request && point->site != site && other->rung == TL_RUNG_JUMP &&
            !other->closed)
            return false;
    }
    return true;
}

bool tl_refusal_of_jump(enum tl_refusal refusal)
{
    switch (refusal) {
    case TL_REFUSE_NO_REACH:
    case TL_REFUSE_NO_WINDOW:
    case TL_REFUSE_WINDOW_TARGET:
    case TL_REFUSE_WINDOW_UNPROVED:
    case TL_REFUSE_WINDOW_SYSCALL:
    case TL_REFUSE_WINDOW_CALL:
    case TL_REFUSE_WINDOW_END:
    case TL_REFUSE_WINDOW_PROBE:
    case TL_REFUSE_STACK_WORD:
    case TL_REFUSE_FAULT_DISPLACED:
    case TL_REFUSE_MAP_LIMIT:
    case TL_REFUSE_NO_STACK:
        return true;
    default:
        return false;
    }
}

bool tl_batch_covers(const struct tl_batch *batch, tl_addr addr, uint64_t size)
{
    tl_addr end = addr + size;
    for (size_t i = 0; batch->plans && batch->results && i < batch->request_count; i++) {
        const struct tl_plan *plan = tl_plan_get(batch->plans, i);
        if (plan->rung != TL_RUNG_JUMP || batch->results[i].refusal != TL_REFUSE_NONE)
            continue;
        if (plan->addr < end && addr < plan->addr + plan->window_size)
            return true;
        for (size_t k = 0; k < plan->patch_count; k++) {
            const struct tl_patch *patch = &plan->patch[k];
            if (patch->addr < end && addr < patch->addr + patch->size + patch->relied)
                return true;
        }
    }
    return false;
}

// ---- plans -> sites -----------------------------------------------------------------------------

// The first of the site's requests that got no place, or the first of all.
static uint32_t deciding_request(const struct tl_batch *batch, const struct tl_session_site *state)
{
    uint32_t first = batch->points[state->point_first].request;
    for (uint32_t i = 0; i < state->point_count; i++) {
        uint32_t request = batch->points[state->point_first + i].request;
        if (tl_plan_get(batch->plans, request)->rung != TL_RUNG_JUMP ||
            (batch->results && batch->results[request].refusal != TL_REFUSE_NONE))
            return request;
    }
    return first;
}

void tl_session_take_plans(struct tl_batch *batch, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        struct tl_session_site *state = &batch->state[i];
        if (!(state->flags & TL_SESSION_PLANNED) || state->refusal != TL_REFUSE_NONE)
            continue;
        uint32_t request = deciding_request(batch, state);
        const struct tl_plan *plan = tl_plan_get(batch->plans, request);
        state->rung = plan->rung;
        state->refusal = plan->refusal;
        state->way = plan->way;
        state->window_size = plan->window_size;
        state->interior = plan->interior;
        if (batch->results && plan->rung == TL_RUNG_JUMP &&
            batch->results[request].refusal != TL_REFUSE_NONE) {
            state->rung = TL_RUNG_REFUSED;
            state->refusal = batch->results[request].refusal;
        }
    }
}

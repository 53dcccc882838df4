// The signal rungs: which of them a site gets, and its slot.
//
// A slot is a detour without an action, so that there is one emitter; the handler acts before it
// sets the pc there. Touches one instruction a site, so nothing has to be proved about what lies
// around it. Invariant: whatever the simulator may decline at a hit has a slot too.
#include "plan/trap.h"

#include "plan/layout.h"

#include <stdlib.h>
#include <string.h>

#define EMIT_TRIES_MAX 4
#define ROWS_A_SITE 2 // its own breakpoint, and the one behind a stepped instruction

struct tl_trap_set {
    struct tl_plan *plan;
    struct tl_patch *patch; // one a plan
    struct tl_plan_detour *slot;
    struct tl_trap_row *row;
    size_t count, slot_count, row_count;
};

struct trap_run {
    const struct tl_trap_options *options;
    struct tl_space *space;
    struct tl_trap_set *set;
};

// One site while it is planned.
struct trap_site {
    const struct tl_plan_request *request;
    struct tl_insn insn; // at its runtime address
    struct tl_simulation simulation;
    bool has_simulation;
    enum tl_rung rung;
    tl_addr slot_addr; // 0: none
    struct tl_detour slot;
};

static bool allowed(const struct trap_run *run, enum tl_rung rung)
{
    return run->options->rungs & TL_RUNG_BIT(rung);
}

static void insn_take(const struct trap_run *run, struct trap_site *site)
{
    struct tl_insn *insn = &site->insn;
    tl_addr bias = (tl_addr)site->request->bias;
    *insn = site->request->facts.insn[0];
    insn->addr += bias;
    if (insn->flow == TL_FLOW_COND || insn->flow == TL_FLOW_JUMP || insn->flow == TL_FLOW_CALL ||
        insn->flags & TL_INSN_PCREL_DATA)
        insn->target += bias;
    site->has_simulation = run->options->arch->simulation(insn, &site->simulation);
    site->simulation.guarded = site->request->guarded;
}

static bool links(const struct tl_insn *insn)
{
    return insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL || insn->flow == TL_FLOW_RET;
}

static enum tl_refusal rung_choose(const struct trap_run *run, struct trap_site *site)
{
    const struct tl_site_facts *facts = &site->request->facts;
    if (facts->refusal)
        return (enum tl_refusal)facts->refusal;
    if (facts->insn_count == 0)
        return TL_REFUSE_UNKNOWN_INSN;
    if (facts->entry && facts->looped) // its loops would count
        return TL_REFUSE_LOOP_TARGET;
    insn_take(run, site);
    if (site->insn.reloc == TL_RELOC_REFUSE)
        return (enum tl_refusal)site->insn.refusal;
    if (run->options->shadow_stack && links(&site->insn))
        return TL_REFUSE_SHADOW_STACK;
    if (site->request->on_taken && !site->has_simulation)
        return TL_REFUSE_NO_SIMULATOR;
    const struct tl_arch *arch = run->options->arch;
    bool slow = arch->simulation_slow && arch->simulation_slow(&site->simulation);
    if (allowed(run, TL_RUNG_SIMULATE) && site->has_simulation && !(slow && allowed(run, TL_RUNG_SLOT)))
        site->rung = TL_RUNG_SIMULATE;
    else if (allowed(run, TL_RUNG_SLOT))
        site->rung = TL_RUNG_SLOT;
    else if (allowed(run, TL_RUNG_STEP))
        site->rung = TL_RUNG_STEP;
    else
        return TL_REFUSE_NO_SIMULATOR;
    return TL_REFUSE_NONE;
}

// ---- the slot -----------------------------------------------------------------------------------

// Registers that a branch back may change: dead before the next instruction, whose fault would show
// them.
static tl_regset back_dead(const struct trap_site *site)
{
    const struct tl_site_facts *facts = &site->request->facts;
    return facts->insn_count < 2 ? 0 : tl_dead_before(&facts->insn[1], facts->dead_behind);
}

static enum tl_refusal slot_emit(const struct trap_run *run, struct trap_site *site, tl_addr at)
{
    struct tl_emit_in in = {
        .action = TL_ACTION_NONE,
        .thread_pointer = run->options->emit.thread_pointer,
        .no_stack = site->request->no_stack,
        .guarded = site->request->guarded,
        .insn = &site->insn,
        .insn_count = 1,
        .resume_addr = site->insn.addr + site->insn.size,
        .stepped = site->rung == TL_RUNG_STEP,
        .dead_resume = back_dead(site),
    };
    if (run->options->arch->emit_detour(&in, at, &site->slot, NULL))
        return TL_REFUSE_NO_SLOT;
    return (enum tl_refusal)site->slot.refusal;
}

static tl_addr shift(tl_addr addr, int64_t by)
{
    tl_addr moved = addr + (tl_addr)by;
    if (by < 0)
        return moved > addr ? 0 : moved;
    return moved < addr ? UINT64_MAX : moved;
}

// Within a branch's reach of addr, wherever in the slot that branch is.
static void query_clip(const struct trap_run *run, tl_addr addr, struct tl_place_query *query)
{
    const struct tl_arch *arch = run->options->arch;
    tl_addr first = shift(addr, arch->jump_reach_min + TL_DETOUR_SIZE_MAX);
    tl_addr last = shift(addr, arch->jump_reach_max - TL_DETOUR_SIZE_MAX);
    query->first = first > query->first ? first : query->first;
    query->last = last < query->last ? last : query->last;
}

static struct tl_place_query slot_query(const struct trap_run *run, const struct trap_site *site)
{
    unsigned unit = run->options->arch->slot_size;
    struct tl_place_query query = {.last = UINT64_MAX,
                                   .slot_size = (uint8_t)unit,
                                   .guarded = site->request->guarded,
                                   .dense = true,
                                   .near = site->insn.addr / unit * unit};
    // Where there are longer branches than a patch's, what does not go back, or by a register, may
    // lie anywhere.
    bool anywhere = run->options->arch->far_size &&
                    (site->rung == TL_RUNG_STEP || back_dead(site) & run->options->arch->far_regs);
    if (!anywhere)
        query_clip(run, site->insn.addr, &query);
    struct tl_place_query clipped = query;
    bool constant = run->options->arch->far_size && site->insn.flags & TL_INSN_PCREL_DATA;
    if (site->insn.target && !constant)
        query_clip(run, site->insn.target, &clipped);
    return clipped.first <= clipped.last ? clipped : query;
}

static int slot_place(const struct trap_run *run, struct trap_site *site, enum tl_refusal *refusal)
{
    struct tl_place_query query = slot_query(run, site);
    *refusal = slot_emit(run, site, query.near);
    for (unsigned i = 0; i < EMIT_TRIES_MAX && *refusal == TL_REFUSE_NONE; i++) {
        query.size = site->slot.size;
        enum tl_place_cost cost = tl_space_find(run->space, &query, &site->slot_addr);
        if (cost >= TL_PLACE_NONE) {
            *refusal = cost == TL_PLACE_LIMIT ? TL_REFUSE_MAP_LIMIT : TL_REFUSE_NO_REACH;
            return 0;
        }
        *refusal = slot_emit(run, site, site->slot_addr);
        if (*refusal == TL_REFUSE_NONE && site->slot.size <= query.size)
            return run->options->alone
                       ? 0
                       : tl_space_take(run->space, site->slot_addr, site->slot.size,
                                       query.slot_size,
                                       TL_POOL_DENSE | (query.guarded ? TL_POOL_GUARDED : 0));
    }
    if (*refusal == TL_REFUSE_NONE)
        *refusal = TL_REFUSE_NO_REACH;
    return 0;
}

// ---- what is kept -------------------------------------------------------------------------------

static const struct tl_detour *slot_keep(struct tl_trap_set *set, const struct trap_site *site)
{
    size_t size = offsetof(struct tl_detour, bytes) + site->slot.size;
    struct tl_detour *kept = malloc(size);
    if (!kept)
        return NULL;
    memcpy(kept, &site->slot, size);
    set->slot[set->slot_count++] =
        (struct tl_plan_detour){.addr = site->slot_addr, .detour = kept, .site = site->insn.addr};
    return kept;
}

static void records_fill(const struct trap_run *run, const struct trap_site *site,
                         struct tl_trap_row *row)
{
    const struct tl_plan_request *request = site->request;
    const tl_addr *entry = run->options->emit.record_addr;
    if (request->action & TL_ACTION_COUNT)
        row->record[row->record_count++] =
            (struct tl_trap_record){entry[TL_RECORD_HIT], request->counter_off, 0};
    for (size_t i = 0; request->action & TL_ACTION_RECORD && i < TL_SITE_RECORDS_MAX; i++) {
        if (request->record[i].kind == TL_RECORD_NONE)
            break;
        row->record[row->record_count++] =
            (struct tl_trap_record){entry[request->record[i].kind], request->record[i].counter_off,
                                    request->record[i].sp_off};
    }
}

static void rows_keep(struct trap_run *run, const struct trap_site *site)
{
    struct tl_trap_set *set = run->set;
    struct tl_trap_row *row = &set->row[set->row_count++];
    *row = (struct tl_trap_row){
        .addr = site->insn.addr,
        .resume = site->slot_addr,
        .on_taken = site->request->on_taken,
        .simulated = site->rung == TL_RUNG_SIMULATE,
    };
    if (row->simulated || row->on_taken)
        row->simulation = site->simulation;
    records_fill(run, site, row);
    // The breakpoint is the slot's last boundary; what never goes on has none.
    if (site->rung == TL_RUNG_STEP && site->slot.boundary_count > 1)
        set->row[set->row_count++] = (struct tl_trap_row){
            .addr = site->slot_addr + site->slot.boundary[1].off,
            .resume = site->insn.addr + site->insn.size,
        };
}

static int site_keep(struct trap_run *run, struct trap_site *site, size_t index)
{
    struct tl_trap_set *set = run->set;
    const struct tl_arch *arch = run->options->arch;
    struct tl_plan *plan = &set->plan[index];
    struct tl_patch *patch = &set->patch[index];
    patch->addr = site->insn.addr;
    // All of the instruction, so that a change of its other bytes is noticed too.
    patch->size = site->insn.size;
    memcpy(patch->before, site->insn.bytes, patch->size);
    memcpy(patch->after, site->insn.bytes, patch->size);
    memcpy(patch->after, arch->breakpoint, arch->breakpoint_size);
    bool kept = site->slot_addr && !run->options->alone;
    plan->detour = kept ? slot_keep(set, site) : NULL;
    if (kept && !plan->detour)
        return TL_E_NOMEM;
    plan->rung = site->rung;
    plan->refusal = TL_REFUSE_NONE;
    plan->window_size = site->insn.size;
    plan->faults = site->slot_addr && site->insn.flags & TL_INSN_MAY_FAULT;
    plan->detour_addr = site->slot_addr;
    plan->detour_size = site->slot_addr ? site->slot.size : 0;
    plan->patch = patch;
    plan->patch_count = 1;
    rows_keep(run, site);
    return 0;
}

static int site_plan(struct trap_run *run, const struct tl_plan_request *request, size_t index)
{
    struct trap_site site = {.request = request};
    enum tl_refusal refusal = rung_choose(run, &site);
    int error = 0;
    bool slotless = site.rung == TL_RUNG_SIMULATE && !refusal &&
                    run->options->arch->simulation_alone(&site.simulation);
    if (!refusal && !slotless && run->options->faults == TL_FAULT_NONE &&
        site.insn.flags & TL_INSN_MAY_FAULT)
        refusal = TL_REFUSE_FAULT_DISPLACED;
    if (!refusal && !slotless)
        error = slot_place(run, &site, &refusal);
    // A stepped slot needs no way back.
    if (!error && refusal == TL_REFUSE_NO_REACH && site.rung != TL_RUNG_STEP && !slotless &&
        run->options->arch->far_size && allowed(run, TL_RUNG_STEP)) {
        site.rung = TL_RUNG_STEP;
        error = slot_place(run, &site, &refusal);
    }
    if (error || !refusal)
        return error ? error : site_keep(run, &site, index);
    run->set->plan[index].refusal = refusal;
    return 0;
}

static int row_compare(const void *left, const void *right)
{
    const struct tl_trap_row *a = left, *b = right;
    return (a->addr > b->addr) - (a->addr < b->addr);
}

static struct tl_trap_set *set_create(const struct tl_plan_request *requests, size_t count)
{
    struct tl_trap_set *set = calloc(1, sizeof *set);
    if (!set)
        return NULL;
    set->plan = calloc(count + 1, sizeof *set->plan);
    set->patch = calloc(count + 1, sizeof *set->patch);
    set->slot = calloc(count + 1, sizeof *set->slot);
    set->row = calloc(ROWS_A_SITE * count + 1, sizeof *set->row);
    set->count = count;
    if (!set->plan || !set->patch || !set->slot || !set->row) {
        tl_trap_set_destroy(set);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        set->plan[i].addr = requests[i].facts.vaddr + (tl_addr)requests[i].bias;
    return set;
}

int tl_plan_traps(const struct tl_trap_options *options, struct tl_space *space,
                  const struct tl_plan_request *requests, size_t request_count,
                  struct tl_trap_set **out, struct tl_diag *diag)
{
    struct trap_run run = {options, space, set_create(requests, request_count)};
    int error = run.set ? 0 : TL_E_NOMEM;
    for (size_t i = 0; i < request_count; i++) {
        if (requests[i].guarded)
            tl_space_expect_guarded(space);
    }
    for (size_t i = 0; !error && i < request_count; i++)
        error = site_plan(&run, &requests[i], i);
    if (!error && !options->alone)
        error = tl_space_merge(space, diag);
    if (error) {
        tl_trap_set_destroy(run.set);
        return tl_diag_set(diag, error, "out of memory for %zu sites", request_count);
    }
    qsort(run.set->row, run.set->row_count, sizeof *run.set->row, row_compare);
    *out = run.set;
    return 0;
}

const struct tl_plan *tl_trap_plan(const struct tl_trap_set *set, size_t index)
{
    return &set->plan[index];
}

size_t tl_trap_slots(const struct tl_trap_set *set, const struct tl_plan_detour **out)
{
    *out = set->slot;
    return set->slot_count;
}

size_t tl_trap_rows(const struct tl_trap_set *set, const struct tl_trap_row **out)
{
    *out = set->row;
    return set->row_count;
}

void tl_trap_set_destroy(struct tl_trap_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->slot_count; i++)
        free((void *)(uintptr_t)set->slot[i].detour);
    free(set->plan);
    free(set->patch);
    free(set->slot);
    free(set->row);
    free(set);
}

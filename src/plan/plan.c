// Plans the sites of a run together: order, looping branches, the set that owns the results.
//
// Sites are planned from the highest address down, so that the bytes a pun relies on are final. A
// branch that leads back to a probed entry is a site of its own, without an action, planned before
// its entry; its detour is written when the entry's place is known.
//
// Does not know the ways to jump (layout.c) nor the address space (space.c). Invariants: each
// request gets a plan or a refusal; a refused site has nothing reserved; an entry whose loops can't
// be moved is refused.
#include "plan/around.h"
#include "plan/layout.h"

#include <stdlib.h>
#include <string.h>

#define NO_ITEM UINT32_MAX
#define LOOPERS_MAX 4u
// A branch to here is out of reach from anywhere in user space: sizes hold for every distance.
#define FAR_AWAY ((tl_addr)1 << 62)
#define ARENA_BLOCK_SIZE (64u << 10)

enum item_state { ITEM_PENDING, ITEM_BUSY, ITEM_PLACED, ITEM_REFUSED };

// A request, or a looping branch that nobody asked for.
struct item {
    tl_addr addr;                          // runtime
    const struct tl_plan_request *request; // NULL: a looping branch only
    const struct tl_site_facts *facts;
    uint32_t index; // of the request
    uint32_t module;
    uint32_t owner; // item of the entry that this branch leads back to
    uint32_t looper[LOOPERS_MAX];
    uint8_t looper_count;
    bool self_loop;   // a looping branch is the site itself, or in its window
    bool window_only; // in its window
    bool loop_refused;
    uint8_t state; // enum item_state
    uint8_t refusal;
    struct tl_layout *layout; // kept only while something still changes
    tl_addr detour_addr, displaced_addr;
};

struct arena_block {
    struct arena_block *next;
    size_t used;
    _Alignas(16) uint8_t data[];
};

struct tl_plan_set {
    struct tl_plan *plan;
    size_t plan_count;
    struct tl_plan_detour *detour;
    size_t detour_count, detour_max;
    struct arena_block *arena;
};

// The work on one run.
struct run {
    struct tl_planner planner;
    struct tl_plan_set *set;
    struct item *item;
    size_t item_count, item_max;
    uint32_t *order; // items, highest address first
    tl_addr *site;
    struct tl_layout layout; // the one being tried
    struct tl_host host;     // and its host
    struct tl_diag *diag;
};

// ---- the set ----------------------------------------------------------------------------------

static void *arena_copy(struct tl_plan_set *set, const void *data, size_t size)
{
    size_t room = (size + 15) & ~(size_t)15;
    if (!set->arena || ARENA_BLOCK_SIZE - set->arena->used < room) {
        struct arena_block *block = malloc(sizeof *block + ARENA_BLOCK_SIZE);
        if (!block)
            return NULL;
        block->next = set->arena;
        block->used = 0;
        set->arena = block;
    }
    void *copy = set->arena->data + set->arena->used;
    set->arena->used += room;
    return memcpy(copy, data, size);
}

void tl_plan_set_destroy(struct tl_plan_set *set)
{
    if (!set)
        return;
    while (set->arena) {
        struct arena_block *next = set->arena->next;
        free(set->arena);
        set->arena = next;
    }
    free(set->plan);
    free(set->detour);
    free(set);
}

const struct tl_plan *tl_plan_get(const struct tl_plan_set *set, size_t index)
{
    return &set->plan[index];
}

size_t tl_plan_detours(const struct tl_plan_set *set, const struct tl_plan_detour **out)
{
    *out = set->detour;
    return set->detour_count;
}

static int detour_add(struct tl_plan_set *set, tl_addr addr, const struct tl_detour *detour,
                      tl_addr site, const struct tl_detour **out)
{
    if (set->detour_count == set->detour_max) {
        size_t max = set->detour_max ? 2 * set->detour_max : 64;
        struct tl_plan_detour *grown = realloc(set->detour, max * sizeof *grown);
        if (!grown)
            return TL_E_NOMEM;
        set->detour = grown;
        set->detour_max = max;
    }
    // Most of its room is not used: thousands of detours would fill the memory with it.
    const struct tl_detour *copy =
        arena_copy(set, detour, offsetof(struct tl_detour, bytes) + detour->size);
    if (!copy)
        return TL_E_NOMEM;
    set->detour[set->detour_count++] =
        (struct tl_plan_detour){.addr = addr, .detour = copy, .site = site};
    if (out)
        *out = copy;
    return 0;
}

// ---- items ------------------------------------------------------------------------------------

static int item_compare(const void *a, const void *b, void *opaque)
{
    const struct run *run = opaque;
    const struct item *x = &run->item[*(const uint32_t *)a], *y = &run->item[*(const uint32_t *)b];
    if (x->addr != y->addr)
        return x->addr > y->addr ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int run_sort(struct run *run)
{
    run->order = malloc((run->item_count + 1) * sizeof *run->order);
    run->site = malloc((run->item_count + 1) * sizeof *run->site);
    if (!run->order || !run->site)
        return TL_E_NOMEM;
    for (uint32_t i = 0; i < run->item_count; i++)
        run->order[i] = i;
    qsort_r(run->order, run->item_count, sizeof *run->order, item_compare, run);
    for (size_t i = 0; i < run->item_count; i++)
        run->site[run->item_count - 1 - i] = run->item[run->order[i]].addr;
    run->planner.site = run->site;
    run->planner.site_count = run->item_count;
    return 0;
}

static void run_unsort(struct run *run)
{
    free(run->order);
    free(run->site);
    run->order = NULL;
    run->site = NULL;
}

static struct item *item_add(struct run *run)
{
    if (run->item_count == run->item_max) {
        size_t max = run->item_max ? 2 * run->item_max : 64;
        struct item *grown = realloc(run->item, max * sizeof *grown);
        if (!grown)
            return NULL;
        run->item = grown;
        run->item_max = max;
    }
    struct item *item = &run->item[run->item_count++];
    *item = (struct item){.index = NO_ITEM, .owner = NO_ITEM};
    return item;
}

// The item at addr among the first `count` of the order; NO_ITEM: none.
static uint32_t item_find(const struct run *run, size_t count, tl_addr addr)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (run->item[run->order[middle]].addr > addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && run->item[run->order[low]].addr == addr ? run->order[low] : NO_ITEM;
}

// Can a window at this site take the looping branch in?
static bool window_holds(const struct run *run, const struct item *item, tl_addr looper)
{
    unsigned size = run->planner.arch->jump_size;
    return looper > item->addr && looper < item->addr + size && item->facts->insn[0].size < size &&
           item->facts->window_max >= size;
}

// Only a direct branch can be led elsewhere.
static bool branch_leads(const struct tl_site_facts *facts, tl_addr vaddr)
{
    return facts->insn_count && facts->insn[0].target == vaddr &&
           (facts->insn[0].flow == TL_FLOW_COND || facts->insn[0].flow == TL_FLOW_JUMP);
}

static bool looper_known(const struct run *run, const struct item *item, tl_addr addr)
{
    for (unsigned i = 0; i < item->looper_count; i++) {
        if (run->item[item->looper[i]].addr == addr)
            return true;
    }
    return false;
}

static const struct tl_site_facts *looper_facts(struct run *run, const struct item *item,
                                                tl_addr vaddr)
{
    const struct tl_plan_module *module = &run->planner.modules[item->module];
    struct tl_site_facts facts;
    if (!module->site || module->site(module->analysis, vaddr, &facts, NULL) || facts.refusal)
        return NULL;
    if (!branch_leads(&facts, item->facts->vaddr))
        return NULL;
    return arena_copy(run->set, &facts, sizeof facts);
}

// Finds or makes the items of an entry's looping branches.
static int loopers_add(struct run *run, uint32_t self, size_t requested)
{
    const struct tl_site_facts *facts = run->item[self].facts;
    run->item[self].loop_refused = facts->looper_more || facts->looper_count > LOOPERS_MAX;
    for (unsigned i = 0; i < facts->looper_count && !run->item[self].loop_refused; i++) {
        tl_addr addr =
            facts->loopers[i] + (tl_addr)run->planner.modules[run->item[self].module].bias;
        struct item *item = &run->item[self];
        if (addr == item->addr) {
            item->self_loop = true;
            continue;
        }
        if (looper_known(run, item, addr))
            continue;
        uint32_t looper = item_find(run, requested, addr);
        if (looper != NO_ITEM && !branch_leads(run->item[looper].facts, facts->vaddr)) {
            item->loop_refused = true;
            break;
        }
        if (looper == NO_ITEM && window_holds(run, item, addr)) {
            item->self_loop = item->window_only = true;
            continue;
        }
        if (looper == NO_ITEM) {
            const struct tl_site_facts *found = looper_facts(run, item, facts->loopers[i]);
            if (!found) {
                item->loop_refused = true;
                break;
            }
            uint32_t module = item->module;
            struct item *added = item_add(run);
            if (!added)
                return TL_E_NOMEM;
            added->addr = addr;
            added->facts = found;
            added->module = module;
            looper = (uint32_t)(run->item_count - 1);
        }
        item = &run->item[self];
        run->item[looper].owner = self;
        item->looper[item->looper_count++] = looper;
    }
    return 0;
}

static bool item_loops(const struct item *item)
{
    return item->facts->entry && item->facts->looped;
}

static int items_make(struct run *run, const struct tl_plan_request *requests, size_t first,
                      size_t count)
{
    run->item_count = 0;
    if (run->item_max < count) {
        free(run->item);
        run->item_max = 0;
        run->item = malloc((count + count / 8 + 8) * sizeof *run->item);
        if (!run->item)
            return TL_E_NOMEM;
        run->item_max = count + count / 8 + 8;
    }
    for (size_t i = 0; i < count; i++) {
        const struct tl_plan_request *request = &requests[first + i];
        struct item *item = item_add(run);
        if (!item)
            return TL_E_NOMEM;
        item->request = request;
        item->facts = &request->facts;
        item->index = (uint32_t)(first + i);
        item->module = request->module;
        item->addr = request->facts.vaddr + (tl_addr)request->bias;
    }
    int error = run_sort(run);
    bool added = false;
    for (size_t i = 0; !error && i < count; i++) {
        if (!item_loops(&run->item[i]) || run->item[i].facts->refusal)
            continue;
        error = loopers_add(run, (uint32_t)i, count);
        added = true;
    }
    if (error || !added)
        return error;
    run_unsort(run);
    return run_sort(run);
}

// ---- planning one item ------------------------------------------------------------------------

static int patches_keep(struct run *run, const struct item *item, const struct tl_layout *layout,
                        struct tl_plan *plan)
{
    struct tl_patch patch[TL_SITE_PATCHES_MAX];
    unsigned count = 0;
    // Looping branches first: they do no harm while the entry is as it was.
    for (unsigned i = 0; i < item->looper_count; i++) {
        const struct item *looper = &run->item[item->looper[i]];
        if (looper->request) {
            plan->needs[plan->needs_count++] = looper->index;
            continue;
        }
        for (unsigned k = 0; k < looper->layout->patch_count; k++)
            patch[count++] = looper->layout->patch[k];
    }
    for (unsigned k = 0; k < layout->patch_count; k++)
        patch[count++] = layout->patch[k];
    plan->patch = arena_copy(run->set, patch, count * sizeof patch[0]);
    plan->patch_count = (uint8_t)count;
    return plan->patch ? 0 : TL_E_NOMEM;
}

static int host_keep(struct run *run, struct tl_plan *plan)
{
    const struct tl_layout *layout = &run->planner.host->layout;
    struct tl_plan_host host = {.addr = layout->insn[0].addr,
                                .window_size = layout->window_size,
                                .detour_addr = layout->reserved[0].addr};
    plan->faults |= tl_layout_faults(layout);
    plan->interior = true;
    int error = run->planner.options->alone
                    ? 0
                    : detour_add(run->set, host.detour_addr, &layout->detour, host.addr, &host.detour);
    plan->host = error ? NULL : arena_copy(run->set, &host, sizeof host);
    return error ? error : plan->host ? 0 : TL_E_NOMEM;
}

static int detours_keep(struct run *run, const struct item *item, const struct tl_layout *layout,
                        struct tl_plan *plan)
{
    if (run->planner.options->alone || layout->retarget)
        return 0;
    int error = detour_add(run->set, layout->reserved[0].addr, &layout->detour, item->addr,
                           plan ? &plan->detour : NULL);
    if (!error && layout->stub.size)
        error = detour_add(run->set, layout->reserved[1].addr, &layout->stub, item->addr, NULL);
    return error;
}

static int plan_keep(struct run *run, struct item *item, const struct tl_layout *layout)
{
    struct tl_plan *plan = &run->set->plan[item->index];
    unsigned slot = run->planner.arch->slot_size;
    plan->rung = TL_RUNG_JUMP;
    plan->refusal = TL_REFUSE_NONE;
    plan->way = layout->way;
    plan->window_size = layout->window_size;
    plan->interior = layout->interior;
    plan->faults = tl_layout_faults(layout);
    plan->action = layout->in.action;
    plan->detour_addr = layout->reserved[0].addr;
    plan->detour_size = (uint16_t)((layout->detour.size + slot - 1) / slot * slot);
    int error = patches_keep(run, item, layout, plan);
    if (!error && layout->hosted)
        error = host_keep(run, plan);
    return error ? error : detours_keep(run, item, layout, plan);
}

// Only addresses near all long looping branches, and near the short-reaching detours of others, will
// do: they are to lead into the detour.
static void detour_bound(const struct run *run, const struct item *item, struct tl_spot *spot)
{
    spot->detour_within = (struct tl_range){0, UINT64_MAX};
    for (unsigned i = 0; i < item->looper_count; i++) {
        const struct item *looper = &run->item[item->looper[i]];
        if (!looper->layout || !(looper->layout->retarget || tl_planner_short(&run->planner)))
            continue;
        bool detour = !looper->layout->retarget;
        tl_addr end = detour ? looper->detour_addr : looper->addr + looper->facts->insn[0].size;
        tl_addr low = end + (tl_addr)run->planner.arch->jump_reach_min;
        tl_addr high = end + (tl_addr)(run->planner.arch->jump_reach_max - TL_DETOUR_SIZE_MAX);
        low = low > end ? 0 : low;
        low += detour ? TL_DETOUR_SIZE_MAX : 0;
        if (low > spot->detour_within.start)
            spot->detour_within.start = low;
        if (high < spot->detour_within.end)
            spot->detour_within.end = high;
    }
}

static enum tl_action item_action(const struct run *run, const struct item *item)
{
    if (!item->request)
        return TL_ACTION_NONE;
    return item->request->action ? item->request->action : run->planner.options->emit.action;
}

static void spot_fill(const struct run *run, const struct item *item, struct tl_spot *spot)
{
    *spot = (struct tl_spot){
        .facts = item->facts,
        .module = &run->planner.modules[item->module],
        .addr = item->addr,
        .counter_off = item->request ? item->request->counter_off : 0,
        .action = item_action(run, item),
        .request = item->request,
        .looped = item_loops(item),
        .window_only = item->window_only,
        .no_interior = !item->request,
    };
    detour_bound(run, item, spot);
    if (item->owner != NO_ITEM) {
        spot->diverts = true;
        spot->divert_from = run->item[item->owner].addr;
        spot->divert_to = tl_planner_short(&run->planner) ? spot->divert_from : FAR_AWAY;
    } else if (item->self_loop) {
        spot->diverts = true;
        spot->divert_from = item->addr;
    }
}

// Gives up a looping branch whose entry got no probe. One that is probed itself goes on as it was.
static void looper_release(struct run *run, uint32_t index)
{
    struct item *looper = &run->item[index];
    looper->owner = NO_ITEM;
    if (looper->request || looper->state != ITEM_PLACED)
        return;
    tl_layout_undo(&run->planner, looper->layout);
    free(looper->layout);
    looper->layout = NULL;
    looper->state = ITEM_REFUSED;
}

// Nobody else may rely on a refused site's bytes, or cover it: another kind of probe may go there.
static int item_refuse(struct run *run, struct item *item, uint8_t refusal)
{
    item->state = ITEM_REFUSED;
    item->refusal = refusal;
    for (unsigned i = 0; i < item->looper_count; i++)
        looper_release(run, item->looper[i]);
    if (!item->request)
        return 0;
    run->set->plan[item->index].refusal = refusal;
    size_t size = item->facts->insn_count ? item->facts->insn[0].size : 1;
    return tl_owned_add(run->planner.owned, item->addr, size, TL_OWNED_UNKNOWN, NULL);
}

static int item_plan(struct run *run, uint32_t index);

// Looping branches come before their entry, wherever they lie.
static int loopers_plan(struct run *run, struct item *item, bool *placed)
{
    *placed = !item->loop_refused;
    for (unsigned i = 0; i < item->looper_count; i++) {
        int error = item_plan(run, item->looper[i]);
        if (error)
            return error;
        *placed &= run->item[item->looper[i]].state == ITEM_PLACED;
    }
    // An entry that is a looping branch of another one has a displaced part that moves.
    if (item->looper_count && item->owner != NO_ITEM)
        *placed = false;
    return 0;
}

static bool item_repeats(const struct run *run, uint32_t index)
{
    const struct item *item = &run->item[index];
    return item->request && item_find(run, run->item_count, item->addr) != index;
}

static int item_plan(struct run *run, uint32_t index)
{
    struct item *item = &run->item[index];
    struct tl_spot spot;
    bool placed;
    uint8_t refusal = item->facts->refusal;
    if (item->state != ITEM_PENDING)
        return 0;
    item->state = ITEM_BUSY;
    if (!refusal && item_repeats(run, index))
        refusal = TL_REFUSE_WINDOW_PROBE;
    if (refusal)
        return item_refuse(run, item, refusal);
    int error = loopers_plan(run, item, &placed);
    if (error)
        return error;
    if (!placed)
        return item_refuse(run, item, TL_REFUSE_LOOP_TARGET);
    spot_fill(run, item, &spot);
    error = tl_layout_choose(&run->planner, &spot, &run->layout, &refusal);
    if (error)
        return error;
    if (refusal) {
        bool loop = item->window_only;
        return item_refuse(run, item, loop ? (uint8_t)TL_REFUSE_LOOP_TARGET : refusal);
    }
    item->state = ITEM_PLACED;
    item->detour_addr = run->layout.retarget ? 0 : run->layout.reserved[0].addr;
    item->displaced_addr = item->detour_addr + run->layout.detour.displaced;
    // Whatever waits for another item's place is finished later.
    if (item->request && item->owner == NO_ITEM && !item->looper_count)
        return plan_keep(run, item, &run->layout);
    item->layout = malloc(sizeof *item->layout);
    if (!item->layout)
        return TL_E_NOMEM;
    // A looping branch is let go if its entry is refused, so no pun may count on its bytes.
    for (unsigned i = 0; !item->request && i < run->layout.patch_count; i++) {
        error = tl_owned_add(run->planner.owned, run->layout.patch[i].addr,
                             run->layout.patch[i].size, TL_OWNED_UNKNOWN, NULL);
        if (error)
            return error;
    }
    *item->layout = run->layout;
    item->layout->in.insn = item->layout->insn;
    return 0;
}

// ---- finishing --------------------------------------------------------------------------------

// Writes the detour of a looping branch, now that the entry's place is known, or the entry was
// refused.
static bool looper_finish(struct run *run, struct item *item)
{
    const struct item *owner = item->owner == NO_ITEM ? NULL : &run->item[item->owner];
    struct tl_layout *layout = item->layout;
    if (layout->retarget)
        return owner && tl_layout_retarget(&run->planner, layout, owner->displaced_addr);
    layout->in.divert_from = owner ? owner->addr : 0;
    layout->in.divert_to = owner ? owner->displaced_addr : 0;
    return tl_layout_emit(&run->planner, layout);
}

static int run_finish(struct run *run)
{
    int error = 0;
    for (size_t i = 0; i < run->item_count && !error; i++) {
        struct item *item = &run->item[i];
        if (item->state != ITEM_PLACED || !item->layout || item->looper_count)
            continue;
        // Room was kept for the farthest target, so a nearer one fits.
        if (!looper_finish(run, item))
            return tl_diag_set(run->diag, TL_E_REACH, "%#llx: a looping branch lost its reach",
                               (unsigned long long)item->addr);
        if (item->request)
            error = plan_keep(run, item, item->layout);
        else
            error = detours_keep(run, item, item->layout, NULL);
    }
    for (size_t i = 0; i < run->item_count && !error; i++) {
        struct item *item = &run->item[i];
        if (item->state == ITEM_PLACED && item->layout && item->looper_count)
            error = plan_keep(run, item, item->layout);
    }
    return error;
}

static void run_clear(struct run *run)
{
    for (size_t i = 0; i < run->item_count; i++) {
        free(run->item[i].layout);
        run->item[i].layout = NULL;
    }
    run_unsort(run);
}

static int batch_plan(struct run *run, const struct tl_plan_request *requests, size_t first,
                      size_t count)
{
    int error = items_make(run, requests, first, count);
    for (size_t i = 0; !error && i < run->item_count; i++)
        error = item_plan(run, run->order[i]);
    if (!error)
        error = run_finish(run);
    return error;
}

// One site as if it were the only one.
static int alone_plan(struct run *run, const struct tl_plan_request *requests, size_t index)
{
    int error = batch_plan(run, requests, index, 1);
    // The site itself gives up its layout when it is done, so its reservation is found in the plan.
    const struct tl_plan *plan = &run->set->plan[index];
    for (size_t i = run->item_count; i-- > 0;) {
        if (run->item[i].state == ITEM_PLACED && run->item[i].layout)
            tl_layout_undo(&run->planner, run->item[i].layout);
    }
    if (plan->rung == TL_RUNG_JUMP && !run->item[0].layout)
        tl_layout_undo(&run->planner, &run->layout);
    tl_owned_reset(run->planner.owned);
    run_clear(run);
    return error;
}

static int set_create(const struct tl_plan_module *modules, const struct tl_plan_request *requests,
                      size_t count, size_t module_count, struct tl_plan_set **out,
                      struct tl_diag *diag)
{
    for (size_t i = 0; i < count; i++) {
        if (requests[i].module >= module_count)
            return tl_diag_set(diag, TL_E_USAGE, "request %zu: no module %u", i,
                               requests[i].module);
        if (requests[i].bias != modules[requests[i].module].bias)
            return tl_diag_set(diag, TL_E_USAGE, "request %zu: its bias is not its module's", i);
    }
    struct tl_plan_set *set = calloc(1, sizeof *set);
    if (set)
        set->plan = calloc(count + 1, sizeof *set->plan);
    if (!set || !set->plan || count >= NO_ITEM) {
        tl_plan_set_destroy(set);
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu plans", count);
    }
    set->plan_count = count;
    for (size_t i = 0; i < count; i++)
        set->plan[i].addr = requests[i].facts.vaddr + (tl_addr)requests[i].bias;
    *out = set;
    return 0;
}

int tl_plan_sites(const struct tl_plan_options *options, struct tl_space *space,
                  const struct tl_plan_module *modules, size_t module_count,
                  const struct tl_plan_request *requests, size_t request_count,
                  struct tl_plan_set **out, struct tl_diag *diag)
{
    struct run run = {
        .planner = {.options = options, .arch = options->arch, .space = space, .modules = modules},
        .diag = diag,
    };
    run.planner.host = &run.host;
    int error = set_create(modules, requests, request_count, module_count, &run.set, diag);
    if (error || !run.set)
        return error;
    for (size_t i = 0; i < module_count; i++) {
        if (modules[i].guarded)
            tl_space_expect_guarded(space);
    }
    run.planner.owned = tl_owned_create();
    run.planner.around = tl_around_create(module_count);
    if (!run.planner.owned || !run.planner.around)
        error = TL_E_NOMEM;
    if (options->alone) {
        for (size_t i = 0; !error && i < request_count; i++)
            error = alone_plan(&run, requests, i);
    } else if (!error) {
        error = batch_plan(&run, requests, 0, request_count);
        run_clear(&run);
    }
    if (!error)
        error = tl_space_merge(space, diag);
    tl_owned_destroy(run.planner.owned);
    tl_around_destroy(run.planner.around);
    free(run.item);
    if (error) {
        tl_plan_set_destroy(run.set);
        return error == TL_E_NOMEM
                   ? tl_diag_set(diag, error, "out of memory for %zu sites", request_count)
                   : error;
    }
    *out = run.set;
    return 0;
}

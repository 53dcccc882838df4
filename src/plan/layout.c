// The ways to jump, one after the other, for one site.
//
// Does not order the sites, and does not read what it writes: bytes of text come from the facts and
// the file. Invariants: a refused site has nothing reserved; the bytes of one patch are owned by
// nobody else; no window covers another site.
#include "plan/layout.h"

#include "plan/around.h"
#include "plan/hop.h"
#include "plan/place.h"

#include <string.h>

const char *tl_way_text(enum tl_way way)
{
    static const char *const text[] = {
        [TL_WAY_NONE] = "none", [TL_WAY_ONE] = "one",       [TL_WAY_CALL] = "call",
        [TL_WAY_PUN] = "pun",   [TL_WAY_WINDOW] = "window", [TL_WAY_ISLAND] = "island",
        [TL_WAY_FAR] = "far",   [TL_WAY_HOP] = "hop",       [TL_WAY_SPILL] = "spill",
    };
    return (unsigned)way < TL_ARRAY_COUNT(text) ? text[way] : "none";
}

void tl_layout_undo(struct tl_planner *planner, const struct tl_layout *layout)
{
    for (unsigned i = layout->reserved_count; i-- > 0;)
        tl_space_give(planner->space, layout->reserved[i].addr, layout->reserved[i].size,
                      planner->arch->slot_size);
    for (unsigned i = 0; i < layout->patch_count; i++) {
        const struct tl_patch *patch = &layout->patch[i];
        tl_owned_remove(planner->owned, patch->addr, patch->size,
                        TL_OWNED_WRITTEN | TL_OWNED_UNKNOWN);
        tl_owned_remove(planner->owned, patch->addr + patch->size, patch->relied, TL_OWNED_RELIED);
    }
    if (layout->hosted)
        tl_layout_undo(planner, &planner->host->layout);
}

// ---- what is displaced ------------------------------------------------------------------------

static bool insn_goes_on(const struct tl_insn *insn)
{
    return insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_COND;
}

static void insn_add(const struct tl_spot *spot, struct tl_layout *layout)
{
    struct tl_insn *insn = &layout->insn[layout->in.insn_count];
    *insn = spot->facts->insn[layout->in.insn_count++];
    insn->addr += (tl_addr)spot->module->bias;
    bool direct =
        insn->flow == TL_FLOW_COND || insn->flow == TL_FLOW_JUMP || insn->flow == TL_FLOW_CALL;
    if (direct || insn->flags & TL_INSN_PCREL_DATA)
        insn->target += (tl_addr)spot->module->bias;
    layout->window_size = (uint8_t)(layout->window_size + insn->size);
}

// What the request says of the action.
static void action_fill(const struct tl_spot *spot, struct tl_emit_in *in)
{
    in->action = spot->action;
    in->counter_off = spot->counter_off;
    if (!spot->request)
        return;
    memcpy(in->record, spot->request->record, sizeof in->record);
    in->on_taken = spot->request->on_taken;
    in->no_stack = spot->request->no_stack;
    if (spot->request->shared)
        in->thread_pointer = TL_TP_SHARED;
}

static unsigned free_count(const struct tl_planner *planner, tl_regset regs)
{
    return (unsigned)__builtin_popcountll(regs & planner->arch->general_regs);
}

// Dead before instruction `index` of the window.
static tl_regset dead_inside(const struct tl_planner *planner, const struct tl_spot *spot, unsigned index)
{
    const struct tl_insn *insn = &spot->facts->insn[index];
    tl_regset dead = index == 1 ? spot->facts->dead_behind
                                : tl_around_dead(planner, spot->module,
                                                 insn->addr + (tl_addr)spot->module->bias);
    // The instruction's fault shows the registers too.
    return tl_dead_before(insn, dead);
}

// The count comes behind some of the displaced instructions where that spares saving registers, or where they are
// no fewer: a prologue leaves room to save them. Nothing may come in between: what leads to the displaced
// instructions only must not count.
static void behind_choose(const struct tl_planner *planner, const struct tl_spot *spot, struct tl_emit_in *in)
{
    const struct tl_site_facts *facts = spot->facts;
    unsigned enough = planner->arch->behind_regs, most = 0, before = free_count(planner, in->dead);
    if (before >= enough || in->action != TL_ACTION_COUNT || in->on_taken || spot->looped || spot->diverts)
        return;
    for (unsigned i = 1; i <= in->insn_count && i < facts->insn_count && most < enough &&
                         facts->insn[i - 1].flow == TL_FLOW_NEXT; i++) {
        tl_regset dead = dead_inside(planner, spot, i);
        unsigned count = free_count(planner, dead);
        if (count < before || (in->behind && count <= most))
            continue;
        in->behind = (uint8_t)i;
        in->dead_behind = dead;
        most = count;
    }
}

static void layout_begin(const struct tl_planner *planner, const struct tl_spot *spot,
                         struct tl_layout *layout, enum tl_way way)
{
    layout->way = way;
    layout->window_size = 0;
    layout->interior = false;
    layout->retarget = layout->hosted = false;
    layout->reserved_count = layout->patch_count = 0;
    layout->stub.size = 0;
    layout->in = planner->options->emit;
    layout->in.guarded = spot->module->guarded;
    action_fill(spot, &layout->in);
    layout->in.dead = tl_dead_before(&spot->facts->insn[0], spot->facts->dead);
    layout->in.insn = layout->insn;
    layout->in.insn_count = 0;
    layout->in.call_retarget = false;
    layout->in.arrive_reg = layout->in.bounce_count = 0;
    layout->in.dead_resume = layout->in.dead_target = 0;
    layout->in.divert_from = spot->diverts ? spot->divert_from : 0;
    layout->in.divert_to = spot->diverts ? spot->divert_to : 0;
}

// Displaces the first instruction only.
static void one_begin(const struct tl_planner *planner, const struct tl_spot *spot,
                      struct tl_layout *layout, enum tl_way way)
{
    layout_begin(planner, spot, layout, way);
    insn_add(spot, layout);
    layout->in.resume_addr = spot->addr + layout->window_size;
}

uint8_t tl_layout_window(const struct tl_planner *planner, const struct tl_spot *spot,
                         struct tl_layout *layout, enum tl_way way, unsigned need)
{
    const struct tl_site_facts *facts = spot->facts;
    layout_begin(planner, spot, layout, way);
    if (facts->window_max < need)
        return facts->window_end_refusal ? facts->window_end_refusal : (uint8_t)TL_REFUSE_NO_WINDOW;
    while (layout->window_size < need) {
        if (layout->in.insn_count == facts->insn_count ||
            layout->in.insn_count == TL_WINDOW_INSNS_MAX)
            return TL_REFUSE_WINDOW_END;
        const struct tl_insn *insn = &facts->insn[layout->in.insn_count];
        layout->interior |= layout->window_size > 0;
        insn_add(spot, layout);
        if (insn->flags & TL_INSN_SYSCALL)
            return TL_REFUSE_WINDOW_SYSCALL;
        if (insn->reloc == TL_RELOC_REFUSE)
            return insn->refusal;
        bool call = insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL;
        if (call && layout->window_size < need)
            return TL_REFUSE_WINDOW_CALL;
        if (!insn_goes_on(insn))
            break; // what follows is never run: facts say how far it may be written
    }
    if (layout->window_size < need)
        layout->window_size = (uint8_t)need;
    for (unsigned i = 1; i < layout->in.insn_count; i++)
        layout->in.dead &= tl_dead_later(planner, &facts->insn[i], facts->dead);
    layout->in.resume_addr = spot->addr + layout->window_size;
    behind_choose(planner, spot, &layout->in);
    return TL_REFUSE_NONE;
}

bool tl_layout_faults(const struct tl_layout *layout)
{
    for (unsigned i = 0; i < layout->in.insn_count && !layout->in.call_retarget; i++) {
        if (layout->insn[i].flags & TL_INSN_MAY_FAULT)
            return true;
    }
    return false;
}

// A handler may go back to any instruction behind the first if its copy is as whole as itself: no
// part of it has run when it faults.
static bool resumable(const struct tl_layout *layout)
{
    for (unsigned i = 1; i < layout->in.insn_count; i++) {
        const struct tl_insn *insn = &layout->insn[i];
        if (insn->flags & TL_INSN_MAY_FAULT && insn->reloc != TL_RELOC_COPY &&
            insn->reloc != TL_RELOC_PCREL && insn->reloc != TL_RELOC_CALL)
            return false;
    }
    return true;
}

static bool faults_allowed(const struct tl_planner *planner, const struct tl_layout *layout)
{
    switch (planner->options->faults) {
    case TL_FAULT_ANY:
        return true;
    case TL_FAULT_RESUMED:
        return resumable(layout);
    case TL_FAULT_LONE:
        return !layout->interior || !tl_layout_faults(layout);
    case TL_FAULT_NONE:
        break;
    }
    return !tl_layout_faults(layout);
}

// ---- what is in the way -----------------------------------------------------------------------

// Does another site of this run start strictly inside [addr, addr + size)?
static bool site_inside(const struct tl_planner *planner, tl_addr addr, unsigned size)
{
    size_t low = 0, high = planner->site_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (planner->site[middle] <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low < planner->site_count && planner->site[low] < addr + size;
}

// A site that is asked for begins in these bytes and has no place yet. What is not written for it
// alone (islands of other sites) leaves them to it.
static bool wanted_later(const struct tl_planner *planner, tl_addr addr, unsigned size)
{
    for (tl_addr at = addr; at < addr + size; at++) {
        if (site_inside(planner, at - 1, 2) &&
            !tl_owned_any(planner->owned, at, 1, TL_OWNED_WRITTEN))
            return true;
    }
    return false;
}

bool tl_layout_free(const struct tl_planner *planner, tl_addr addr, unsigned size)
{
    return !tl_owned_any(planner->owned, addr, size,
                         TL_OWNED_WRITTEN | TL_OWNED_RELIED | TL_OWNED_UNKNOWN) &&
           !site_inside(planner, addr, size);
}

// A displaced call is a push and a jump, which a shadow stack does not see; a call that gets a new
// target is still a call.
static bool is_call(const struct tl_insn *insn)
{
    return insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL;
}

static bool call_displaced(const struct tl_layout *layout)
{
    for (unsigned i = 0; i < layout->in.insn_count && !layout->in.call_retarget; i++) {
        if (is_call(&layout->insn[i]))
            return true;
    }
    return false;
}

uint8_t tl_layout_check(const struct tl_planner *planner, const struct tl_spot *spot,
                        const struct tl_layout *layout, unsigned written)
{
    if (!faults_allowed(planner, layout))
        return TL_REFUSE_FAULT_DISPLACED;
    if (planner->options->shadow_stack && call_displaced(layout))
        return TL_REFUSE_SHADOW_STACK;
    if (!tl_layout_free(planner, spot->addr, written))
        return TL_REFUSE_WINDOW_PROBE;
    return TL_REFUSE_NONE;
}

// ---- the ways ---------------------------------------------------------------------------------

// An action that wants the stack as it is before the site: an agent that is called, and records
// that go by the stack pointer.
static bool wants_stack(const struct tl_spot *spot)
{
    if (spot->action & TL_ACTION_GUARD)
        return true;
    for (size_t i = 0; spot->action & TL_ACTION_RECORD && i < TL_SITE_RECORDS_MAX; i++) {
        enum tl_record_kind kind = spot->request->record[i].kind;
        if (kind != TL_RECORD_NONE && kind != TL_RECORD_HIT && kind != TL_RECORD_EVENT &&
            kind != TL_RECORD_GO_EVENT)
            return true;
    }
    return false;
}

static int call_try(struct tl_planner *planner, const struct tl_spot *spot,
                    struct tl_layout *layout, uint8_t *refusal)
{
    uint8_t code[TL_PATCH_SIZE_MAX];
    const struct tl_insn *insn = &spot->facts->insn[0];
    bool call = insn->reloc == TL_RELOC_CALL ||
                (insn->reloc == TL_RELOC_ICALL && insn->flags & TL_INSN_PCREL_DATA);
    *refusal = TL_REFUSE_NO_WINDOW;
    if (!call || spot->looped || wants_stack(spot) || !planner->arch->emit_retarget)
        return 0;
    one_begin(planner, spot, layout, TL_WAY_CALL);
    layout->in.call_retarget = true;
    // The call has run, at its own address; what it wrote is the callee's.
    layout->in.dead = spot->facts->dead & ~insn->written;
    if (!planner->arch->emit_retarget(&layout->insn[0], layout->in.resume_addr, code))
        return 0;
    if (!tl_layout_free(planner, spot->addr, insn->size)) {
        *refusal = TL_REFUSE_WINDOW_PROBE;
        return 0;
    }
    return tl_place_call(planner, spot, layout, refusal);
}

static int one_try(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                   uint8_t *refusal)
{
    *refusal = TL_REFUSE_NO_WINDOW;
    if (spot->facts->insn[0].size < planner->arch->jump_size)
        return 0;
    one_begin(planner, spot, layout, TL_WAY_ONE);
    behind_choose(planner, spot, &layout->in);
    *refusal = tl_layout_check(planner, spot, layout, planner->arch->jump_size);
    if (*refusal)
        return 0;
    return tl_place_branch(planner, spot, layout, spot->addr, planner->arch->jump_size, refusal);
}

static int pun_try(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                   uint8_t *refusal)
{
    unsigned size = spot->facts->insn[0].size;
    *refusal = TL_REFUSE_NO_WINDOW;
    if (size >= planner->arch->jump_size || spot->window_only)
        return 0;
    one_begin(planner, spot, layout, TL_WAY_PUN);
    *refusal = tl_layout_check(planner, spot, layout, size);
    return *refusal ? 0 : tl_place_branch(planner, spot, layout, spot->addr, size, refusal);
}

static bool range_holds(const struct tl_range *range, size_t count, tl_addr start, tl_addr end)
{
    size_t low = tl_ranges_from(range, count, start);
    return low < count && range[low].start <= start && end <= range[low].end;
}

// A window. quiet: only one whose rest is padding, so that nobody can stand inside.
static int window_try(struct tl_planner *planner, const struct tl_spot *spot,
                      struct tl_layout *layout, bool quiet, uint8_t *refusal)
{
    unsigned size = planner->arch->jump_size;
    *refusal = tl_layout_window(planner, spot, layout, TL_WAY_WINDOW, size);
    if (*refusal)
        return 0;
    const struct tl_insn *last = &layout->insn[layout->in.insn_count - 1];
    tl_addr end = last->addr + last->size, bias = (tl_addr)spot->module->bias;
    // Code behind the last instruction that is not known padding may be run by somebody yet.
    if (end < spot->addr + size && !range_holds(spot->module->padding, spot->module->padding_count,
                                                end - bias, spot->addr + size - bias))
        layout->interior = true;
    *refusal = TL_REFUSE_NO_WINDOW;
    if (layout->interior && (quiet || spot->no_interior))
        return 0;
    *refusal = tl_layout_check(planner, spot, layout, size);
    return *refusal ? 0 : tl_place_branch(planner, spot, layout, spot->addr, size, refusal);
}

// ---- islands ----------------------------------------------------------------------------------

// Puts the branch of an island at `at`, then the short jump to it at the site. The site's bytes are
// spoken for first: padding behind it may be its own window, padding in front a pun that ends in
// it.
static int island_place(struct tl_planner *planner, const struct tl_spot *spot,
                        struct tl_layout *layout, tl_addr at, unsigned own, unsigned short_own,
                        uint8_t *refusal)
{
    uint8_t after[TL_PATCH_SIZE_MAX];
    const struct tl_arch *arch = planner->arch;
    unsigned relied = arch->short_size - short_own;
    *refusal = TL_REFUSE_NO_WINDOW;
    if (!arch->emit_short(spot->addr, at, after) ||
        (own < arch->jump_size && wanted_later(planner, at + own, arch->jump_size - own)))
        return 0;
    bool relied_before =
        tl_owned_any(planner->owned, spot->addr + short_own, relied, TL_OWNED_RELIED);
    int error = tl_owned_add(planner->owned, spot->addr, short_own, TL_OWNED_WRITTEN, after);
    if (!error && relied)
        error = tl_owned_add(planner->owned, spot->addr + short_own, relied, TL_OWNED_RELIED, NULL);
    if (!error && tl_layout_free(planner, at, own))
        error = tl_place_branch(planner, spot, layout, at, own, refusal);
    if (error)
        return error;
    if (!*refusal)
        return tl_place_patch(planner, spot, layout, spot->addr, after, short_own, relied, 0);
    tl_owned_remove(planner->owned, spot->addr, short_own, TL_OWNED_WRITTEN);
    if (!relied_before)
        tl_owned_remove(planner->owned, spot->addr + short_own, relied, TL_OWNED_RELIED);
    return 0;
}

// Islands in one run of padding. Its last bytes come first: its first may be the end of a short
// function's window. Fewer than a branch needs make a pun with the next function's first bytes.
static int padding_try(struct tl_planner *planner, const struct tl_spot *spot,
                       struct tl_layout *layout, struct tl_range run, unsigned short_own,
                       uint8_t *refusal)
{
    unsigned jump_size = planner->arch->jump_size;
    for (unsigned puns = 0; puns < 2; puns++) {
        for (tl_addr at = run.end - 1; at >= run.start; at--) {
            unsigned room = run.end - at < jump_size ? (unsigned)(run.end - at) : jump_size;
            if ((room < jump_size) != puns)
                continue;
            int error = island_place(planner, spot, layout, at, room, short_own, refusal);
            if (error || !*refusal)
                return error;
            if (!puns && *refusal != TL_REFUSE_NO_WINDOW)
                return 0; // no place for the detour: another island does not help
        }
    }
    return 0;
}

// The one place a short jump can lead to whose displacement is the next instruction's first byte.
static int short_pun_try(struct tl_planner *planner, const struct tl_spot *spot,
                         struct tl_layout *layout, uint8_t *refusal)
{
    uint8_t disp;
    const struct tl_plan_module *module = spot->module;
    tl_addr bias = (tl_addr)module->bias;
    one_begin(planner, spot, layout, TL_WAY_ISLAND);
    *refusal = tl_layout_check(planner, spot, layout, 1);
    if (*refusal)
        return 0;
    *refusal = TL_REFUSE_NO_WINDOW;
    if (tl_owned_any(planner->owned, spot->addr + 1, 1, TL_OWNED_UNKNOWN) ||
        (!tl_owned_value(planner->owned, spot->addr + 1, &disp) &&
         !tl_place_text(spot, spot->addr + 1, &disp)))
        return 0;
    tl_addr at = spot->addr + planner->arch->short_size + (tl_addr)(int64_t)(int8_t)disp;
    unsigned room = planner->arch->jump_size;
    while (room &&
           !range_holds(module->padding, module->padding_count, at - bias, at - bias + room))
        room--;
    if (!room)
        return 0;
    return island_place(planner, spot, layout, at, room, 1, refusal);
}

static int island_try(struct tl_planner *planner, const struct tl_spot *spot,
                      struct tl_layout *layout, uint8_t *refusal)
{
    const struct tl_arch *arch = planner->arch;
    const struct tl_plan_module *module = spot->module;
    *refusal = TL_REFUSE_NO_WINDOW;
    if (!arch->short_size || spot->window_only)
        return 0;
    if (spot->facts->insn[0].size < arch->short_size) {
        int error = short_pun_try(planner, spot, layout, refusal);
        if (error || !*refusal)
            return error;
        *refusal = tl_layout_window(planner, spot, layout, TL_WAY_ISLAND, arch->short_size);
        if (!*refusal && layout->interior && spot->no_interior)
            *refusal = TL_REFUSE_NO_WINDOW;
        if (*refusal)
            return 0;
    } else {
        one_begin(planner, spot, layout, TL_WAY_ISLAND);
        behind_choose(planner, spot, &layout->in);
    }
    *refusal = tl_layout_check(planner, spot, layout, arch->short_size);
    if (*refusal)
        return 0;
    *refusal = TL_REFUSE_NO_WINDOW;
    tl_addr end = spot->addr + arch->short_size - (tl_addr)module->bias;
    tl_addr low = end + (tl_addr)(int64_t)arch->short_reach_min;
    tl_addr high = end + (tl_addr)(int64_t)arch->short_reach_max;
    size_t first = tl_ranges_from(module->padding, module->padding_count, low);
    for (; first < module->padding_count && module->padding[first].start <= high; first++) {
        struct tl_range run = module->padding[first];
        run.start = run.start < low ? low : run.start;
        // A run that goes on past the reach: islands may start within it only.
        tl_addr stop = high + arch->jump_size;
        run.end = run.end > stop ? stop : run.end;
        run.start += (tl_addr)module->bias;
        run.end += (tl_addr)module->bias;
        int error = padding_try(planner, spot, layout, run, arch->short_size, refusal);
        if (error || !*refusal)
            return error;
    }
    return 0;
}

// ---- looping branches -------------------------------------------------------------------------

// A looping branch with a long displacement gets a new one; no detour.
static int retarget_try(struct tl_planner *planner, const struct tl_spot *spot,
                        struct tl_layout *layout, uint8_t *refusal)
{
    uint8_t code[TL_PATCH_SIZE_MAX];
    *refusal = TL_REFUSE_NO_WINDOW;
    one_begin(planner, spot, layout, TL_WAY_ONE);
    const struct tl_insn *insn = &layout->insn[0];
    // As far as any branch, since nobody knows yet how far.
    tl_addr far = insn->addr + insn->size + (tl_addr)planner->arch->jump_reach_max;
    if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL ||
        !planner->arch->emit_retarget || !planner->arch->emit_retarget(insn, far, code) ||
        !tl_layout_free(planner, spot->addr, insn->size))
        return 0;
    *refusal = TL_REFUSE_NONE;
    layout->retarget = true;
    // Where it will lead is not known yet.
    return tl_place_patch(planner, spot, layout, spot->addr, insn->bytes, insn->size, 0,
                          TL_OWNED_UNKNOWN);
}

bool tl_layout_retarget(const struct tl_planner *planner, struct tl_layout *layout, tl_addr to)
{
    return planner->arch->emit_retarget(&layout->insn[0], to, layout->patch[0].after);
}

bool tl_layout_emit(const struct tl_planner *planner, struct tl_layout *layout)
{
    struct tl_detour detour;
    layout->in.insn = layout->insn;
    if (planner->arch->emit_detour(&layout->in, layout->reserved[0].addr, &detour, NULL) ||
        detour.refusal || detour.size > layout->reserved[0].size)
        return false;
    layout->detour = detour;
    return true;
}

// ---- the choice -------------------------------------------------------------------------------

// Of two reasons, the one that tells more: what would have to be different.
static uint8_t refusal_better(uint8_t window, uint8_t pun)
{
    if (window != TL_REFUSE_NO_WINDOW && window != TL_REFUSE_NONE)
        return window;
    return pun == TL_REFUSE_NONE ? (uint8_t)TL_REFUSE_NO_WINDOW : pun;
}

static int short_choose(struct tl_planner *planner, const struct tl_spot *spot,
                        struct tl_layout *layout, uint8_t *refusal)
{
    uint8_t quiet, pun, window;
    int error = window_try(planner, spot, layout, true, &quiet);
    if (error || !quiet) {
        *refusal = quiet;
        return error;
    }
    error = pun_try(planner, spot, layout, &pun);
    if (error || !pun) {
        *refusal = pun;
        return error;
    }
    error = window_try(planner, spot, layout, false, &window);
    if (error || !window) {
        *refusal = window;
        return error;
    }
    error = island_try(planner, spot, layout, refusal);
    if (!error && *refusal)
        *refusal = refusal_better(window, pun);
    return error;
}

// The ways of the ISA's own branches.
static int near_choose(struct tl_planner *planner, const struct tl_spot *spot,
                       struct tl_layout *layout, uint8_t *refusal)
{
    if (spot->facts->insn[0].size >= planner->arch->jump_size)
        return one_try(planner, spot, layout, refusal);
    return short_choose(planner, spot, layout, refusal);
}

int tl_layout_choose(struct tl_planner *planner, const struct tl_spot *spot,
                     struct tl_layout *layout, uint8_t *refusal)
{
    if (!spot->facts->insn_count) {
        *refusal = TL_REFUSE_UNKNOWN_INSN;
        return 0;
    }
    if (spot->module->guarded && spot->facts->insn[0].flags & TL_INSN_LANDING) {
        *refusal = TL_REFUSE_LANDING;
        return 0;
    }
    if (spot->facts->insn[0].reloc == TL_RELOC_REFUSE) {
        *refusal = spot->facts->insn[0].refusal;
        return 0;
    }
    int error;
    if (spot->action == TL_ACTION_NONE) {
        error = retarget_try(planner, spot, layout, refusal);
        if (error || !*refusal)
            return error;
    }
    error = call_try(planner, spot, layout, refusal);
    if (error || !*refusal)
        return error;
    if (planner->options->shadow_stack && is_call(&spot->facts->insn[0])) {
        *refusal = TL_REFUSE_SHADOW_STACK;
        return 0;
    }
    error = near_choose(planner, spot, layout, refusal);
    if (error || !*refusal || !planner->arch->far_size)
        return error;
    uint8_t near = *refusal;
    error = tl_hop_choose(planner, spot, layout, refusal);
    if (!error && *refusal)
        *refusal = near;
    return error;
}

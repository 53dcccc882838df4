// Places detours: the displacement that a branch may have, the free memory it may point to, and the
// bytes that come of it.
//
//   pun of a 2-byte instruction:   |e9 d0|d1 d2 d3|   d0 is ours; d1..d3 are the bytes that follow,
//   as
//                                  | own | relied |   they will be when all higher sites are
//                                  written
//
// Does not choose among the ways. Invariants: a byte that a pun relies on has a known final value
// and is never written by anybody else; nothing is reserved when a function refuses.
#include "plan/place.h"

#include <string.h>

#define EMIT_TRIES_MAX 4
#define FAR_MARGIN (4 << 20) // two short branches and a detour, twice

// ---- text -------------------------------------------------------------------------------------

bool tl_place_text(const struct tl_spot *spot, tl_addr addr, uint8_t *out)
{
    tl_addr vaddr = addr - (tl_addr)spot->module->bias;
    const struct tl_site_facts *facts = spot->facts;
    tl_addr at = facts->vaddr;
    for (unsigned i = 0; i < facts->insn_count && vaddr >= at; i++) {
        const struct tl_insn *insn = &facts->insn[i];
        if (vaddr - at < insn->size) {
            *out = insn->bytes[vaddr - at];
            return true;
        }
        at += insn->size;
    }
    for (size_t i = 0; i < spot->module->text_count; i++) {
        const struct tl_text *text = &spot->module->texts[i];
        if (vaddr >= text->vaddr && vaddr - text->vaddr < text->size) {
            *out = text->bytes[vaddr - text->vaddr];
            return true;
        }
    }
    return false;
}

// What a byte will hold when everything planned so far is written.
static bool text_final(const struct tl_planner *planner, const struct tl_spot *spot, tl_addr addr,
                       uint8_t *out)
{
    if (tl_owned_any(planner->owned, addr, 1, TL_OWNED_UNKNOWN))
        return false;
    return tl_owned_value(planner->owned, addr, out) || tl_place_text(spot, addr, out);
}

int tl_place_patch(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                   tl_addr at, const uint8_t *after, unsigned size, unsigned relied, unsigned ways)
{
    struct tl_patch *patch = &layout->patch[layout->patch_count];
    *patch = (struct tl_patch){.addr = at, .size = (uint8_t)size, .relied = (uint8_t)relied};
    memcpy(patch->after, after, size + relied);
    for (unsigned i = 0; i < size; i++)
        (void)tl_place_text(spot, at + i, &patch->before[i]);
    int error = tl_owned_add(planner->owned, at, size, TL_OWNED_WRITTEN | ways, after);
    if (!error && relied)
        error = tl_owned_add(planner->owned, at + size, relied, TL_OWNED_RELIED, NULL);
    layout->patch_count++;
    return error;
}

// ---- reach ------------------------------------------------------------------------------------

static tl_addr addr_shift(tl_addr addr, int64_t by)
{
    tl_addr sum = addr + (tl_addr)by;
    if (by < 0)
        return sum > addr ? 0 : sum;
    return sum < addr ? UINT64_MAX : sum;
}

static void query_clip(struct tl_place_query *query, tl_addr first, tl_addr last)
{
    query->first = query->first > first ? query->first : first;
    query->last = query->last < last ? query->last : last;
}

// Narrows a query to where a branch in a detour, wherever it is, reaches addr.
static void query_clip_target(const struct tl_planner *planner, tl_addr addr,
                              struct tl_place_query *query)
{
    query_clip(query, addr_shift(addr, -planner->arch->jump_reach_max),
               addr_shift(addr, -(planner->arch->jump_reach_min + TL_DETOUR_SIZE_MAX)));
}

// Narrows a query to where the displaced instructions reach the targets of their branches and what
// comes behind them, unless nothing is left.
static void query_clip_branches(const struct tl_planner *planner, const struct tl_layout *layout,
                                struct tl_place_query *query)
{
    struct tl_place_query clipped = *query;
    query_clip_target(planner, layout->in.resume_addr, &clipped);
    for (unsigned i = 0; i < layout->in.insn_count; i++) {
        const struct tl_insn *insn = &layout->insn[i];
        if (insn->flow == TL_FLOW_COND || insn->flow == TL_FLOW_JUMP || insn->flow == TL_FLOW_CALL)
            query_clip_target(planner, insn->target, &clipped);
    }
    if (clipped.first <= clipped.last)
        *query = clipped;
}

// Narrows a query to where every pc-relative operand of the displaced instructions stays in reach,
// unless nothing is left: then the emitter may find another form.
static void query_clip_data(const struct tl_planner *planner, const struct tl_layout *layout,
                            struct tl_place_query *query)
{
    struct tl_place_query clipped = *query;
    for (unsigned i = 0; i < layout->in.insn_count; i++) {
        const struct tl_insn *insn = &layout->insn[i];
        if (!(insn->flags & TL_INSN_PCREL_DATA) || insn->flags & TL_INSN_PCREL_LEA)
            continue;
        query_clip_target(planner, insn->target, &clipped);
    }
    if (clipped.first <= clipped.last)
        *query = clipped;
}

// ---- the detour -------------------------------------------------------------------------------

static uint8_t detour_emit(const struct tl_planner *planner, struct tl_layout *layout, tl_addr at)
{
    if (planner->arch->emit_detour(&layout->in, at, &layout->detour, NULL))
        return TL_REFUSE_PC_USE;
    return layout->detour.refusal;
}

static uint8_t cost_refusal(enum tl_place_cost cost)
{
    return cost == TL_PLACE_LIMIT ? TL_REFUSE_MAP_LIMIT : TL_REFUSE_NO_REACH;
}

static int detour_take(struct tl_planner *planner, struct tl_layout *layout, tl_addr addr,
                       uint16_t size, bool dense)
{
    unsigned pool = (dense ? TL_POOL_DENSE : 0) | (layout->in.guarded ? TL_POOL_GUARDED : 0);
    int error = tl_space_take(planner->space, addr, size, planner->arch->slot_size, pool);
    if (!error)
        layout->reserved[layout->reserved_count++] = (struct tl_reserved){addr, size};
    return error;
}

// Finds a place for the detour where the query allows, and emits it there. The size depends a
// little on the place (alignment of literals, reach), so what was found is tried, and asked for
// again if it grew.
static uint8_t detour_place(const struct tl_planner *planner, struct tl_layout *layout,
                            struct tl_place_query *query, tl_addr *addr)
{
    uint8_t refusal = detour_emit(planner, layout, query->near);
    if (refusal)
        return refusal;
    for (unsigned i = 0; i < EMIT_TRIES_MAX; i++) {
        query->size = layout->detour.size;
        enum tl_place_cost cost = tl_space_find(planner->space, query, addr);
        if (cost >= TL_PLACE_NONE)
            return cost_refusal(cost);
        refusal = detour_emit(planner, layout, *addr);
        if (refusal)
            return refusal;
        if (layout->detour.size <= query->size)
            return TL_REFUSE_NONE;
    }
    return TL_REFUSE_NO_REACH;
}

static struct tl_place_query query_near(const struct tl_planner *planner,
                                        const struct tl_spot *spot)
{
    return (struct tl_place_query){
        .first = spot->detour_within.start,
        .last = spot->detour_within.end,
        .slot_size = planner->arch->slot_size,
        .guarded = spot->module->guarded,
        .near = spot->addr & ~(planner->arch->slot_size - (tl_addr)1),
    };
}

// A place that a branch ending at `end` reaches.
static uint8_t reach_place(const struct tl_planner *planner, const struct tl_spot *spot,
                           struct tl_layout *layout, tl_addr end, tl_addr *addr)
{
    struct tl_place_query query = query_near(planner, spot);
    query.dense = true;
    query_clip(&query, addr_shift(end, planner->arch->jump_reach_min),
               addr_shift(end, planner->arch->jump_reach_max));
    struct tl_place_query clipped = query;
    query_clip_data(planner, layout, &clipped);
    query_clip_branches(planner, layout, &clipped);
    uint8_t refusal = detour_place(planner, layout, &clipped, addr);
    bool narrower = clipped.first != query.first || clipped.last != query.last;
    // Farther from the data another form may do, or the refusal tells more.
    if (refusal == TL_REFUSE_NO_REACH && narrower)
        refusal = detour_place(planner, layout, &query, addr);
    return refusal;
}

// ---- puns -------------------------------------------------------------------------------------

// One way to write a pun: so many prefixes, so many displacement bytes of our own.
struct pun {
    uint8_t prefixes, free;
    tl_addr end;    // of the branch
    uint32_t fixed; // displacement with the free bytes 0
    struct tl_place_query query;
};

// false: a byte behind is not known.
static bool pun_form(const struct tl_planner *planner, const struct tl_spot *spot,
                     const struct tl_layout *layout, tl_addr at, unsigned own, unsigned prefixes,
                     struct pun *pun)
{
    unsigned jump_size = planner->arch->jump_size, disp_size = jump_size - 1u;
    *pun = (struct pun){.prefixes = (uint8_t)prefixes, .free = (uint8_t)(own - 1 - prefixes)};
    pun->end = at + prefixes + jump_size;
    for (unsigned i = pun->free; i < disp_size; i++) {
        uint8_t byte;
        if (!text_final(planner, spot, at + own + i - pun->free, &byte))
            return false;
        pun->fixed |= (uint32_t)byte << (8 * i);
    }
    tl_addr first = pun->end + (tl_addr)(int64_t)(int32_t)pun->fixed;
    pun->query = query_near(planner, spot);
    query_clip(&pun->query, first, first + ((tl_addr)1 << (8 * pun->free)) - 1);
    query_clip_data(planner, layout, &pun->query);
    return pun->query.first <= pun->query.last;
}

static int pun_write(struct tl_planner *planner, const struct tl_spot *spot,
                     struct tl_layout *layout, tl_addr at, unsigned own, const struct pun *pun,
                     tl_addr to)
{
    uint8_t after[TL_PATCH_SIZE_MAX];
    uint32_t disp = (uint32_t)(to - pun->end);
    memset(after, planner->arch->pun_prefix, pun->prefixes);
    after[pun->prefixes] = planner->arch->pun_opcode;
    memcpy(after + pun->prefixes + 1, &disp, sizeof disp);
    unsigned relied = pun->prefixes + planner->arch->jump_size - own;
    return tl_place_patch(planner, spot, layout, at, after, own, relied, 0);
}

// The detour does not fit where the pun points, but a branch to it may.
static int stub_place(struct tl_planner *planner, const struct tl_spot *spot,
                      struct tl_layout *layout, tl_addr at, unsigned own, const struct pun *pun,
                      uint8_t *refusal)
{
    struct tl_place_query query = pun->query;
    tl_addr stub, detour;
    query.size = planner->arch->jump_size;
    enum tl_place_cost cost = tl_space_find(planner->space, &query, &stub);
    *refusal = cost_refusal(cost);
    if (cost >= TL_PLACE_NONE)
        return 0;
    int error = tl_space_take(planner->space, stub, query.size, query.slot_size,
                              spot->module->guarded ? TL_POOL_GUARDED : 0);
    if (error)
        return error;
    *refusal = reach_place(planner, spot, layout, stub + query.size, &detour);
    if (!*refusal && !planner->arch->emit_jump(stub, detour, layout->stub.bytes))
        *refusal = TL_REFUSE_NO_REACH;
    if (*refusal) {
        tl_space_give(planner->space, stub, query.size, query.slot_size);
        return 0;
    }
    layout->stub.size = query.size;
    layout->stub.displaced = query.size;
    error = detour_take(planner, layout, detour, layout->detour.size, true);
    if (error) {
        tl_space_give(planner->space, stub, query.size, query.slot_size);
        return error;
    }
    layout->reserved[layout->reserved_count++] = (struct tl_reserved){stub, query.size};
    return pun_write(planner, spot, layout, at, own, pun, stub);
}

// The form that costs least, for a detour of `size` bytes.
static enum tl_place_cost pun_find(const struct tl_planner *planner, const struct tl_spot *spot,
                                   const struct tl_layout *layout, tl_addr at, unsigned own,
                                   uint16_t size, struct pun *best, tl_addr *best_addr)
{
    enum tl_place_cost best_cost = TL_PLACE_NONE;
    bool limit = false;
    for (unsigned prefixes = 0; prefixes < own && best_cost > TL_PLACE_PAGE; prefixes++) {
        struct pun pun;
        tl_addr addr;
        if (!pun_form(planner, spot, layout, at, own, prefixes, &pun))
            continue;
        pun.query.size = size;
        enum tl_place_cost cost = tl_space_find(planner->space, &pun.query, &addr);
        limit |= cost == TL_PLACE_LIMIT;
        if (cost >= best_cost)
            continue;
        best_cost = cost;
        *best = pun;
        *best_addr = addr;
    }
    return best_cost == TL_PLACE_NONE && limit ? TL_PLACE_LIMIT : best_cost;
}

static int pun_place(struct tl_planner *planner, const struct tl_spot *spot,
                     struct tl_layout *layout, tl_addr at, unsigned own, uint8_t *refusal)
{
    struct pun pun = {.prefixes = 0};
    tl_addr addr = 0;
    enum tl_place_cost cost = TL_PLACE_NONE;
    *refusal = detour_emit(planner, layout, spot->addr & ~(planner->arch->slot_size - (tl_addr)1));
    if (*refusal)
        return 0;
    // As in detour_place: what was found is tried, and asked for again if it grew.
    for (unsigned i = 0; i < EMIT_TRIES_MAX; i++) {
        uint16_t size = layout->detour.size;
        cost = pun_find(planner, spot, layout, at, own, size, &pun, &addr);
        if (cost >= TL_PLACE_NONE)
            break;
        *refusal = detour_emit(planner, layout, addr);
        if (*refusal)
            return 0;
        if (layout->detour.size > size)
            continue;
        int error = detour_take(planner, layout, addr, size, false);
        return error ? error : pun_write(planner, spot, layout, at, own, &pun, addr);
    }
    for (unsigned prefixes = 0; prefixes < own; prefixes++) {
        if (!pun_form(planner, spot, layout, at, own, prefixes, &pun))
            continue;
        int error = stub_place(planner, spot, layout, at, own, &pun, refusal);
        if (error || !*refusal)
            return error;
    }
    *refusal = cost_refusal(cost);
    return 0;
}

// ---- all branches -----------------------------------------------------------------------------

int tl_place_branch(struct tl_planner *planner, const struct tl_spot *spot,
                    struct tl_layout *layout, tl_addr at, unsigned own, uint8_t *refusal)
{
    const struct tl_arch *arch = planner->arch;
    uint8_t after[TL_PATCH_SIZE_MAX];
    tl_addr addr;
    if (own < arch->jump_size) {
        *refusal = TL_REFUSE_NO_WINDOW;
        return arch->pun_opcode ? pun_place(planner, spot, layout, at, own, refusal) : 0;
    }
    *refusal = reach_place(planner, spot, layout, at + arch->jump_size, &addr);
    if (!*refusal && !arch->emit_jump(at, addr, after))
        *refusal = TL_REFUSE_NO_REACH;
    if (*refusal)
        return 0;
    int error = detour_take(planner, layout, addr, layout->detour.size, true);
    if (error)
        return error;
    return tl_place_patch(planner, spot, layout, at, after, arch->jump_size, 0, 0);
}

int tl_place_far(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                 tl_addr at, uint8_t *refusal)
{
    struct tl_place_query query = query_near(planner, spot);
    tl_addr addr;
    query.dense = true;
    // The detour's own long branches lead back from anywhere in it.
    query_clip(&query, addr_shift(at, INT32_MIN + FAR_MARGIN), addr_shift(at, INT32_MAX - FAR_MARGIN));
    layout->detour.far_count = 0;
    *refusal = detour_place(planner, layout, &query, &addr);
    return *refusal ? 0 : detour_take(planner, layout, addr, layout->detour.size, true);
}

int tl_place_call(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                  uint8_t *refusal)
{
    const struct tl_insn *insn = &layout->insn[0];
    uint8_t after[TL_PATCH_SIZE_MAX];
    tl_addr addr;
    *refusal = reach_place(planner, spot, layout, insn->addr + insn->size, &addr);
    if (!*refusal && !planner->arch->emit_retarget(insn, addr, after))
        *refusal = TL_REFUSE_NO_REACH;
    if (*refusal)
        return 0;
    int error = detour_take(planner, layout, addr, layout->detour.size, true);
    if (error)
        return error;
    return tl_place_patch(planner, spot, layout, insn->addr, after, insn->size, 0, 0);
}

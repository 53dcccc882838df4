// Ways to a detour that the ISA's branch does not reach (riscv64: 1 MiB, and libraries lie side by side).
//
//   far    |auipc r|jalr r|                                     r is dead at the site
//   spill  |sp -= 16|store r|auipc r|jalr r|                    the detour takes r back
//   hop    |jal|  ...  |one of these|                           in padding that no code owns
//
// The detour has ways out of its own: to what comes behind the window, and where displaced branches lead. One
// that is too far goes through a register that is dead there, or through a *bounce*: a stub in reach of the target
// that takes a spilled register back. A bounce lies in padding; the one behind the window may be the window's own
// last bytes, from where it falls through.
//
// Where no padding is in reach, a *host* gives room: straight code that nobody asked for, displaced like a site's,
// so that all of its window but the branch is free. It goes with its site.
//
// Does not prove anything: dead registers and padding are analyse's, windows layout.c's. Invariants: patches in
// padding come before the site's; a window's bytes are one patch; nothing is reserved when a site is refused.
#include "plan/hop.h"

#include "plan/around.h"
#include "plan/place.h"

#include <string.h>

#define BOUNCE_TRIES_MAX 4

// Where the long branch stands.
struct hop {
    tl_addr at;
    unsigned reg;
    bool spill;
    tl_addr own; // where the window's own way back may stand; 0: nowhere
};

static unsigned reg_lowest(tl_regset set)
{
    return set ? (unsigned)__builtin_ctzll(set) : 0;
}

static unsigned hop_size(const struct tl_arch *arch, bool spill)
{
    return spill ? arch->spill_size : arch->far_size;
}

// ---- what is dead where the detour leads ----------------------------------------------------------------

static void dead_fill(const struct tl_planner *planner, const struct tl_spot *spot,
                      struct tl_layout *layout)
{
    struct tl_emit_in *in = &layout->in;
    bool goes_on = true;
    in->dead_target = TL_REGSET_ALL;
    for (unsigned i = 0; i < in->insn_count; i++) {
        const struct tl_insn *insn = &layout->insn[i];
        goes_on = insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_COND;
        if (insn->flow == TL_FLOW_COND || insn->flow == TL_FLOW_JUMP || insn->flow == TL_FLOW_CALL)
            in->dead_target &= tl_around_dead(planner, spot->module, insn->target);
    }
    in->dead_resume = goes_on ? tl_around_dead(planner, spot->module, in->resume_addr) : 0;
}

// ---- room ------------------------------------------------------------------------------------------------

// `size` bytes in one run of padding, from its end: its first bytes may be the end of a short function's window.
static tl_addr run_room(const struct tl_planner *planner, struct tl_range run, unsigned size)
{
    tl_addr align = planner->arch->insn_align;
    if (run.end - run.start < size)
        return 0;
    for (tl_addr at = (run.end - size) & ~(align - 1); at >= run.start; at -= align) {
        if (!tl_owned_any(planner->owned, at, size,
                          TL_OWNED_WRITTEN | TL_OWNED_RELIED | TL_OWNED_UNKNOWN))
            return at;
    }
    return 0;
}

// `size` bytes of padding as near to addr as can be, at most `reach` away. 0: none.
static tl_addr room_find(const struct tl_planner *planner, const struct tl_spot *spot, tl_addr addr,
                         uint64_t reach, unsigned size)
{
    const struct tl_plan_module *module = spot->module;
    tl_addr bias = (tl_addr)module->bias, vaddr = addr - bias;
    size_t up = tl_ranges_from(module->padding, module->padding_count, vaddr), down = up;
    for (;;) {
        uint64_t above = up < module->padding_count && module->padding[up].start > vaddr
                             ? module->padding[up].start - vaddr
                             : 0;
        uint64_t below = down ? vaddr - module->padding[down - 1].start : 0;
        bool can_up = up < module->padding_count && above < reach;
        bool can_down = down && below < reach;
        if (!can_up && !can_down)
            return 0;
        bool take_up = can_up && (!can_down || above <= below);
        struct tl_range run = module->padding[take_up ? up++ : --down];
        // The far part of a long run may be out of reach.
        if (run.end > vaddr + reach)
            run.end = vaddr + reach;
        run.start += bias;
        run.end += bias;
        tl_addr at = run_room(planner, run, size);
        if (at)
            return at;
    }
}

// ---- hosts -----------------------------------------------------------------------------------------------

#define HOST_APART 24u   // bytes behind a site that are left to it
#define HOST_LESS_MAX 8u // places with less room than asked for that are kept in mind

// Displaces `run` bytes of straight code at `facts`. *refusal: not here.
static int host_place(struct tl_planner *planner, const struct tl_spot *spot, const struct tl_site_facts *facts,
                      unsigned run, uint8_t *refusal)
{
    const struct tl_arch *arch = planner->arch;
    struct tl_host *host = planner->host;
    struct tl_layout *layout = &host->layout;
    struct tl_spot at = {.facts = facts,
                         .module = spot->module,
                         .addr = facts->vaddr + (tl_addr)spot->module->bias,
                         .detour_within = {0, UINT64_MAX}};
    *refusal = tl_layout_window(planner, &at, layout, TL_WAY_FAR, run);
    unsigned reg = reg_lowest(layout->in.dead & arch->far_regs);
    if (!*refusal && !reg)
        *refusal = TL_REFUSE_NO_WINDOW;
    if (*refusal)
        return 0;
    layout->in.arrive_reg = layout->in.bounce_count = 0;
    dead_fill(planner, &at, layout);
    int error = tl_place_far(planner, &at, layout, at.addr, refusal);
    if (error || *refusal)
        return error;
    layout->in.bounce_reg = (uint8_t)reg; // what its branch goes through
    host->used = arch->far_size;
    return 0;
}

// Whether nobody has these bytes. Those that somebody else has are gone for all.
static bool straight_free(const struct tl_planner *planner, const struct tl_spot *spot,
                          struct tl_straight *straight)
{
    tl_addr addr = straight->vaddr + (tl_addr)spot->module->bias;
    if (tl_layout_free(planner, addr - HOST_APART, HOST_APART + straight->size))
        return true;
    bool own = straight->vaddr < spot->facts->vaddr + TL_PATCH_SIZE_MAX + HOST_APART &&
               spot->facts->vaddr < straight->vaddr + straight->size;
    straight->gone = !own && !planner->options->alone;
    return false;
}

static int host_try(struct tl_planner *planner, const struct tl_spot *spot, struct tl_straight *straight,
                    uint8_t *refusal)
{
    struct tl_site_facts facts;
    *refusal = TL_REFUSE_NO_REACH;
    straight->gone = true; // what is wrong with it now is so for each site
    if (spot->module->site(spot->module->analysis, straight->vaddr, &facts, NULL))
        return 0;
    int error = host_place(planner, spot, &facts, straight->size, refusal);
    straight->gone = *refusal != TL_REFUSE_NONE;
    return error;
}

// The nearest straight code with room for `more` bytes beside its branch, or else for `size`.
static int host_find(struct tl_planner *planner, const struct tl_spot *spot, uint64_t reach, unsigned size,
                     unsigned more, uint8_t *refusal)
{
    struct tl_straight_search search = {.vaddr = spot->facts->vaddr, .reach = reach,
                                        .size_min = planner->arch->far_size + size};
    struct tl_straight *straight, *less[HOST_LESS_MAX];
    unsigned less_count = 0;
    *refusal = TL_REFUSE_NO_REACH;
    while ((straight = tl_around_straight(planner, spot->module, &search))) {
        if (!straight_free(planner, spot, straight))
            continue;
        if (straight->size < planner->arch->far_size + more) {
            if (less_count < HOST_LESS_MAX)
                less[less_count++] = straight;
            continue;
        }
        int error = host_try(planner, spot, straight, refusal);
        if (error || !*refusal)
            return error;
    }
    for (unsigned i = 0; i < less_count; i++) {
        int error = host_try(planner, spot, less[i], refusal);
        if (error || !*refusal)
            return error;
    }
    return 0;
}

static uint64_t branch_reach(const struct tl_arch *arch)
{
    return (uint64_t)arch->jump_reach_max - arch->reload_size;
}

// Writes the host's branch, the islands being in its patch already. false: out of reach.
static bool host_finish(const struct tl_planner *planner, struct tl_layout *layout)
{
    const struct tl_layout *host = &planner->host->layout;
    return !layout->hosted ||
           planner->arch->emit_far(host->insn[0].addr, host->reserved[0].addr, host->in.bounce_reg,
                                   false, layout->patch[planner->host->patch].after);
}

// The layout's host, with room for `size` bytes. One that has more may serve a way out too.
static int host_take(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                     uint64_t reach, unsigned size, uint8_t *refusal)
{
    uint8_t code[TL_PATCH_SIZE_MAX];
    struct tl_host *host = planner->host;
    int error = host_find(planner, spot, reach, size, size + planner->arch->reload_size, refusal);
    if (error || *refusal)
        return error;
    layout->hosted = true;
    host->patch = layout->patch_count;
    for (unsigned i = 0; i < host->layout.window_size; i++)
        (void)tl_place_text(spot, host->layout.insn[0].addr + i, &code[i]);
    return tl_place_patch(planner, spot, layout, host->layout.insn[0].addr, code,
                          host->layout.window_size, 0, TL_OWNED_UNKNOWN);
}

// `size` bytes near addr: in padding, or what is left of a host. *bytes is where they are to be written.
static int room_take(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                     tl_addr addr, uint64_t reach, unsigned size, tl_addr *at, uint8_t **bytes,
                     uint8_t *refusal)
{
    struct tl_host *host = planner->host;
    *at = room_find(planner, spot, addr, reach, size);
    *refusal = TL_REFUSE_NONE;
    if (*at) {
        const uint8_t code[TL_PATCH_SIZE_MAX] = {0};
        *bytes = layout->patch[layout->patch_count].after;
        return tl_place_patch(planner, spot, layout, *at, code, size, 0, TL_OWNED_UNKNOWN);
    }
    *refusal = TL_REFUSE_NO_REACH;
    if (!spot->module->site)
        return 0;
    *refusal = TL_REFUSE_NONE;
    int error = layout->hosted ? 0 : host_take(planner, spot, layout, reach, size, refusal);
    if (error || *refusal)
        return error;
    if (host->used + size > host->layout.window_size) {
        *refusal = TL_REFUSE_NO_REACH;
        return 0;
    }
    *at = host->layout.insn[0].addr + host->used;
    *bytes = layout->patch[host->patch].after + host->used;
    host->used = (uint8_t)(host->used + size);
    return 0;
}

// ---- ways out ----------------------------------------------------------------------------------------------

// Adds a stub for each way out that the emitter found too far.
static int bounces_add(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                       const struct hop *hop, uint8_t *refusal)
{
    const struct tl_arch *arch = planner->arch;
    struct tl_emit_in *in = &layout->in;
    *refusal = TL_REFUSE_NO_REACH;
    if (in->no_stack)
        return 0;
    for (unsigned i = 0; i < layout->detour.far_count; i++) {
        tl_addr target = layout->detour.far_target[i];
        tl_addr at = hop->own && target == in->resume_addr ? hop->own : 0;
        *refusal = TL_REFUSE_NO_REACH;
        if (in->bounce_count == TL_BOUNCES_MAX)
            return 0;
        if (!at) {
            uint8_t *code;
            int error = room_take(planner, spot, layout, target, branch_reach(arch), arch->reload_size,
                                  &at, &code, refusal);
            if (error || *refusal)
                return error;
            if (!arch->emit_reload(at, target, in->bounce_reg, false, code)) {
                *refusal = TL_REFUSE_NO_REACH;
                return 0;
            }
        }
        in->bounce[in->bounce_count++] = (struct tl_bounce){.target = target, .addr = at};
    }
    *refusal = TL_REFUSE_NONE;
    return 0;
}

// Places the detour and the stubs that it needs, and reserves all of it.
static int detour_place(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                        const struct hop *hop, uint8_t *refusal)
{
    struct tl_emit_in *in = &layout->in;
    in->arrive_reg = hop->spill ? (uint8_t)hop->reg : 0;
    in->bounce_count = 0;
    in->bounce_reg = (uint8_t)reg_lowest(planner->arch->far_regs);
    dead_fill(planner, spot, layout);
    for (unsigned i = 0; i < BOUNCE_TRIES_MAX; i++) {
        int error = tl_place_far(planner, spot, layout, hop->at, refusal);
        if (error || *refusal != TL_REFUSE_NO_REACH || !layout->detour.far_count)
            return error;
        error = bounces_add(planner, spot, layout, hop, refusal);
        if (error || *refusal)
            return error;
    }
    *refusal = TL_REFUSE_NO_REACH;
    return 0;
}

// ---- the ways ------------------------------------------------------------------------------------------------

// Bytes up to the instruction that never goes on, itself included, where a window may hold them all: then there is
// no way back to find. 0: there is none.
static unsigned run_size(const struct tl_spot *spot)
{
    const struct tl_site_facts *facts = spot->facts;
    unsigned size = 0;
    for (unsigned i = 0; i < facts->insn_count && i < TL_WINDOW_INSNS_MAX; i++) {
        const struct tl_insn *insn = &facts->insn[i];
        size += insn->size;
        if (size > facts->window_max || insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL)
            return 0;
        if (insn->flow != TL_FLOW_NEXT && insn->flow != TL_FLOW_COND)
            return size;
    }
    return 0;
}

static int undo(struct tl_planner *planner, struct tl_layout *layout, int error)
{
    tl_layout_undo(planner, layout);
    layout->reserved_count = layout->patch_count = 0;
    layout->hosted = false;
    return error;
}

// The register for the long branch. 0: none.
static unsigned reg_choose(const struct tl_planner *planner, const struct tl_layout *layout, bool spill)
{
    tl_regset regs = planner->arch->far_regs;
    return reg_lowest(spill ? regs : regs & layout->in.dead);
}

// What is displaced: as much as the branch covers; that and the way back, which stands in the window's last
// bytes; all up to an instruction that never goes on.
enum extent { EXTENT_BRANCH, EXTENT_BACK, EXTENT_RUN };

// Displaces `need` bytes and chooses the long branch's register. The window is spoken for before its ways out look
// for room, for padding may be its last bytes; all of it, written or not, is nobody else's. text: its bytes as they
// are, of which stays what is never run.
static int window_take(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                       enum tl_way way, unsigned need, struct hop *hop, uint8_t text[TL_PATCH_SIZE_MAX],
                       uint8_t *refusal)
{
    *refusal = tl_layout_window(planner, spot, layout, way, need);
    if (!*refusal) {
        hop->reg = reg_choose(planner, layout, hop->spill);
        if (!hop->reg || (hop->spill && layout->in.no_stack) || layout->window_size > TL_PATCH_SIZE_MAX)
            *refusal = TL_REFUSE_NO_WINDOW;
    }
    if (!*refusal)
        *refusal = tl_layout_check(planner, spot, layout, layout->window_size);
    if (*refusal)
        return 0;
    for (unsigned i = 0; i < layout->window_size; i++)
        (void)tl_place_text(spot, spot->addr + i, &text[i]);
    return tl_owned_add(planner->owned, spot->addr, layout->window_size, TL_OWNED_UNKNOWN, NULL);
}

// A long branch at the site.
static int site_try(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                    bool spill, enum extent extent, uint8_t *refusal)
{
    const struct tl_arch *arch = planner->arch;
    uint8_t after[TL_PATCH_SIZE_MAX];
    unsigned size = hop_size(arch, spill), back = arch->reload_size - arch->jump_size;
    unsigned run = run_size(spot);
    bool own = extent == EXTENT_BACK;
    *refusal = TL_REFUSE_NO_WINDOW;
    if (extent == EXTENT_RUN && run <= size)
        return 0;
    struct hop hop = {.at = spot->addr, .spill = spill};
    int error = window_take(planner, spot, layout, spill ? TL_WAY_SPILL : TL_WAY_FAR,
                            own ? size + back : extent == EXTENT_RUN ? run : size, &hop, after, refusal);
    if (error || *refusal)
        return error;
    hop.own = own ? layout->in.resume_addr - back : 0;
    error = detour_place(planner, spot, layout, &hop, refusal);
    tl_owned_remove(planner->owned, spot->addr, layout->window_size, TL_OWNED_UNKNOWN);
    if (error || *refusal)
        return undo(planner, layout, error);
    bool written = arch->emit_far(spot->addr, layout->reserved[0].addr, hop.reg, spill, after) &&
                   (!own || arch->emit_reload(hop.own, layout->in.resume_addr, layout->in.bounce_reg,
                                              true, after + layout->window_size - back)) &&
                   host_finish(planner, layout);
    if (!written) {
        *refusal = TL_REFUSE_NO_REACH;
        return undo(planner, layout, 0);
    }
    return tl_place_patch(planner, spot, layout, spot->addr, after, layout->window_size, 0, 0);
}

// A branch at the site to an island that goes far.
static int hop_try(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                   bool spill, bool is_short, enum extent extent, uint8_t *refusal)
{
    const struct tl_arch *arch = planner->arch;
    uint8_t branch[TL_PATCH_SIZE_MAX], *island = NULL;
    unsigned size = hop_size(arch, spill), own = is_short ? arch->short_size : arch->jump_size;
    uint64_t reach = is_short ? (uint64_t)arch->short_reach_max : branch_reach(arch);
    unsigned run = run_size(spot);
    *refusal = TL_REFUSE_NO_WINDOW;
    if (extent == EXTENT_RUN && run <= own)
        return 0;
    struct hop hop = {.spill = spill};
    int error = window_take(planner, spot, layout, TL_WAY_HOP, extent == EXTENT_RUN ? run : own, &hop,
                            branch, refusal);
    if (error || *refusal)
        return error;
    bool (*emit)(tl_addr, tl_addr, uint8_t *) = is_short ? arch->emit_short : arch->emit_jump;
    error = room_take(planner, spot, layout, spot->addr, reach, size, &hop.at, &island, refusal);
    if (!error && !*refusal && !emit(spot->addr, hop.at, branch))
        *refusal = TL_REFUSE_NO_REACH;
    if (!error && !*refusal)
        error = detour_place(planner, spot, layout, &hop, refusal);
    tl_owned_remove(planner->owned, spot->addr, layout->window_size, TL_OWNED_UNKNOWN);
    if (!error && !*refusal &&
        !(arch->emit_far(hop.at, layout->reserved[0].addr, hop.reg, spill, island) &&
          host_finish(planner, layout)))
        *refusal = TL_REFUSE_NO_REACH;
    if (error || *refusal)
        return undo(planner, layout, error);
    return tl_place_patch(planner, spot, layout, spot->addr, branch, layout->window_size, 0, 0);
}

int tl_hop_choose(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                  uint8_t *refusal)
{
    // In the order of what a hit costs.
    static const struct {
        bool hop, spill, is_short; // is_short: the branch to the island
        uint8_t extent;            // enum extent
    } way[] = {
        {false, false, false, EXTENT_BRANCH}, {false, false, false, EXTENT_RUN},
        {false, false, false, EXTENT_BACK},   {true, false, false, EXTENT_BRANCH},
        {true, false, false, EXTENT_RUN},     {true, false, true, EXTENT_BRANCH},
        {true, false, true, EXTENT_RUN},      {false, true, false, EXTENT_BRANCH},
        {false, true, false, EXTENT_RUN},     {false, true, false, EXTENT_BACK},
        {true, true, false, EXTENT_BRANCH},   {true, true, false, EXTENT_RUN},
        {true, true, true, EXTENT_BRANCH},    {true, true, true, EXTENT_RUN},
    };
    uint8_t first = TL_REFUSE_NO_REACH;
    if (spot->looped || spot->diverts || spot->no_interior) {
        *refusal = first;
        return 0;
    }
    for (size_t i = 0; i < TL_ARRAY_COUNT(way); i++) {
        int error = way[i].hop ? hop_try(planner, spot, layout, way[i].spill, way[i].is_short,
                                         (enum extent)way[i].extent, refusal)
                               : site_try(planner, spot, layout, way[i].spill,
                                          (enum extent)way[i].extent, refusal);
        if (error || !*refusal)
            return error;
    }
    *refusal = first;
    return 0;
}

// One site's way to jump: tried, reserved, taken back. Inside the stage.
#ifndef TL_PLAN_LAYOUT_H
#define TL_PLAN_LAYOUT_H

#include "plan/owned.h"
#include "plan/plan.h"
#include "plan/space.h"

#define TL_LAYOUT_PATCHES_MAX (TL_BOUNCES_MAX + 3) // ways out, island, host and site
#define TL_LAYOUT_DETOURS_MAX 2 // the detour, and a stub where only a branch to it fits

struct tl_around; // around.h

// What all sites of one run share.
struct tl_planner {
    const struct tl_plan_options *options;
    const struct tl_arch *arch;
    struct tl_space *space;
    struct tl_owned *owned;
    const struct tl_plan_module *modules;
    // Runtime addresses of all sites of the run, ascending.
    const tl_addr *site;
    size_t site_count;
    struct tl_host *host; // of the layout that is being tried
    struct tl_around *around;
};

// A site as the ways see it.
struct tl_spot {
    const struct tl_site_facts *facts;
    const struct tl_plan_module *module;
    tl_addr addr; // runtime
    uint32_t counter_off;
    enum tl_action action;
    const struct tl_plan_request *request; // what else its action is; NULL: an auxiliary site
    bool looped; // an entry with looping branches: its detour must hold the displaced instructions
    bool window_only;    // a looping branch lies in the window and has no other way
    bool no_interior;    // must be written if anything is: no window that a thread could stand in
    bool diverts;        // a looping branch itself
    tl_addr divert_from; // where it leads
    tl_addr divert_to;   // 0: its own displaced instructions; else a place holder of any distance
    struct tl_range detour_within; // where the detour may start
};

// A branch of this ISA has no longer form, so that everything must lie in its reach.
static inline bool tl_planner_short(const struct tl_planner *planner)
{
    return planner->arch->jump_reach_max < INT32_MAX;
}

// The first of sorted ranges, apart from each other, that ends behind addr; count: none.
static inline size_t tl_ranges_from(const struct tl_range *range, size_t count, tl_addr addr)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (range[middle].end <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// What of `dead` is dead before insn. A fault leads to a handler that may go on anywhere, having changed nothing: no
// register is dead on that way. But a stack that overflows is made larger, and the instruction run again, or it is
// the end; and a module's own data is there.
static inline tl_regset tl_dead_before(const struct tl_insn *insn, tl_regset dead)
{
    const uint16_t safe = TL_INSN_FAULT_STACK | TL_INSN_PCREL_DATA;
    return insn->flags & TL_INSN_MAY_FAULT && !(insn->flags & safe) ? 0 : dead;
}

// The same of an instruction behind the site's first, in its window or where a detour leads. Nobody is shown its
// registers where nobody handles faults.
static inline tl_regset tl_dead_later(const struct tl_planner *planner, const struct tl_insn *insn, tl_regset dead)
{
    return planner->options->faults == TL_FAULT_ANY ? dead : tl_dead_before(insn, dead);
}

struct tl_reserved {
    tl_addr addr;
    uint16_t size;
};

struct tl_host;

struct tl_layout {
    enum tl_way way;
    uint8_t window_size;
    bool interior;
    struct tl_emit_in in;
    struct tl_insn insn[TL_WINDOW_INSNS_MAX]; // runtime
    struct tl_detour detour;
    struct tl_detour stub;                              // size 0: none
    struct tl_reserved reserved[TL_LAYOUT_DETOURS_MAX]; // [0] the detour, [1] the stub
    uint8_t reserved_count;
    struct tl_patch patch[TL_LAYOUT_PATCHES_MAX];
    uint8_t patch_count;
    bool hosted; // tl_planner.host is part of it
    bool retarget; // a looping branch whose own displacement is changed later; no detour
};

// Displaces instructions until `need` bytes are covered; those of the first one: only it. Refuses what a window
// may not hold.
uint8_t tl_layout_window(const struct tl_planner *planner, const struct tl_spot *spot,
                         struct tl_layout *layout, enum tl_way way, unsigned need);
// Whether the window may be displaced and its first `written` bytes written.
uint8_t tl_layout_check(const struct tl_planner *planner, const struct tl_spot *spot,
                        const struct tl_layout *layout, unsigned written);
// Nobody writes these bytes or counts on them, and no site begins behind the first of them.
bool tl_layout_free(const struct tl_planner *planner, tl_addr addr, unsigned size);

// What a host is made of (hop.c).
struct tl_host {
    struct tl_layout layout; // no patch of its own: tl_host.patch of the site's layout
    uint8_t patch;           // index
    uint8_t used;            // bytes of the window: the branch, and islands
};

// Tries the ways in the order of enum tl_way. 0 or TL_E_NOMEM; *refusal is TL_REFUSE_NONE when the
// layout is reserved.
int tl_layout_choose(struct tl_planner *planner, const struct tl_spot *spot,
                     struct tl_layout *layout, uint8_t *refusal);
// Can a displaced instruction fault?
bool tl_layout_faults(const struct tl_layout *layout);
// Takes all reservations of a layout back.
void tl_layout_undo(struct tl_planner *planner, const struct tl_layout *layout);
// Emits again at the reserved place, the input having changed. false: it no longer fits.
bool tl_layout_emit(const struct tl_planner *planner, struct tl_layout *layout);
// Fills the patch of a retargeted looping branch. false: out of reach.
bool tl_layout_retarget(const struct tl_planner *planner, struct tl_layout *layout, tl_addr to);

#endif

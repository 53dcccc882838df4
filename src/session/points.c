// Which instructions one probe needs a place at: the site itself, or every exit of its function.
//
// A return is probed at the exits, with the stack untouched; where an exit is not known or can't be
// patched, by the trampoline. Invariant: a site's points are planned together, and
// the site falls to its next way as a whole.
#include "session/internal.h"

#include <stdlib.h>


static bool needs_return(const struct tl_batch *batch, size_t index)
{
    return batch->session->options.mode == TL_MODE_LATENCY ||
           batch->sites.site[index].kind == TL_PROBE_RETURN;
}

// ---- the way ------------------------------------------------------------------------------------

static void refuse(struct tl_session_site *state, enum tl_refusal refusal)
{
    state->rung = TL_RUNG_REFUSED;
    state->refusal = refusal;
}

// Goroutines move between threads, and their stacks move in memory: an entry is not found again, and no
// return address may be replaced.
static bool site_is_go(struct tl_batch *batch, size_t index)
{
    const struct tl_site *site = &batch->sites.site[index];
    struct tl_module *module = tl_modules_get(batch->modules, site->module);
    struct tl_site_facts facts;
    return tl_image_go(module->image) && !tl_module_analyse(module, NULL) &&
           !tl_analysis_site(module->analysis, site->vaddr, &facts, NULL) && facts.go;
}

// Behind exits that can't be had: the trampoline, or a refusal.
static void way_below_exits(struct tl_batch *batch, size_t index, enum tl_refusal why)
{
    struct tl_session_site *state = &batch->state[index];
    const struct tl_session_options *options = &batch->session->options;
    state->exit_refusal = (uint8_t)why;
    state->exit_count = 0;
    state->return_way = TL_SITE_NO_RETURN;
    if (options->return_way == TL_RETURN_EXIT) {
        refuse(state, why);
        return;
    }
    enum tl_refusal no_trampoline = site_is_go(batch, index)
                                        ? TL_REFUSE_TRAMPOLINE
                                        : tl_session_trampoline_refusal(batch, index);
    if (no_trampoline == TL_REFUSE_NONE)
        state->return_way = TL_SITE_TRAMPOLINE;
    else
        refuse(state, options->return_way == TL_RETURN_TRAMPOLINE ? no_trampoline : why);
}

// The exits of the site's function; a refusal when not all are known, or there is none.
static enum tl_refusal exits_ask(struct tl_batch *batch, size_t index, struct tl_exit *exits,
                                 size_t *count)
{
    const struct tl_site *site = &batch->sites.site[index];
    struct tl_module *module = tl_modules_get(batch->modules, site->module);
    enum tl_refusal refusal = TL_REFUSE_NONE;
    *count = 0;
    if (tl_module_analyse(module, NULL) ||
        tl_analysis_exits(module->analysis, site->function ? site->function : site->vaddr, exits,
                          TL_EXITS_MAX, count, &refusal, NULL))
        refusal = TL_REFUSE_EXIT_UNKNOWN;
    if (!refusal && !*count)
        refusal = TL_REFUSE_NO_EXIT;
    if (refusal)
        *count = 0;
    return refusal;
}

// Leaves the exits, where they are to be probed.
static void way_choose(struct tl_batch *batch, size_t index, struct tl_exit *exits, size_t *count)
{
    struct tl_session_site *state = &batch->state[index];
    if (batch->session->options.mode == TL_MODE_LATENCY && site_is_go(batch, index)) {
        refuse(state, TL_REFUSE_NO_THREAD);
        return;
    }
    enum tl_refusal refusal = exits_ask(batch, index, exits, count);
    if (refusal == TL_REFUSE_NO_EXIT) {
        refuse(state, refusal);
    } else if (batch->session->options.return_way == TL_RETURN_TRAMPOLINE) {
        way_below_exits(batch, index, TL_REFUSE_NONE);
    } else if (refusal) {
        way_below_exits(batch, index, refusal);
    } else {
        state->return_way = TL_SITE_EXITS;
        state->exit_count = (uint32_t)*count;
    }
}

// ---- points -------------------------------------------------------------------------------------

static int point_add(struct tl_batch *batch, const struct tl_point *point)
{
    if (batch->point_count == batch->point_max) {
        size_t max = batch->point_max ? 2 * batch->point_max : 1024;
        struct tl_point *grown = realloc(batch->points, max * sizeof *grown);
        if (!grown)
            return TL_E_NOMEM;
        batch->points = grown;
        batch->point_max = max;
    }
    batch->points[batch->point_count++] = *point;
    return 0;
}

static enum tl_record_kind entry_kind(const struct tl_batch *batch)
{
    switch (batch->session->options.mode) {
    case TL_MODE_EVENTS:
        return TL_RECORD_EVENT;
    case TL_MODE_LATENCY:
        return TL_RECORD_ENTER;
    default:
        return TL_RECORD_HIT;
    }
}

static enum tl_record_kind exit_kind(const struct tl_batch *batch)
{
    switch (batch->session->options.mode) {
    case TL_MODE_EVENTS:
        return TL_RECORD_RETURN;
    case TL_MODE_LATENCY:
        return TL_RECORD_EXIT;
    default:
        return TL_RECORD_HIT;
    }
}

static bool point_is_exit(uint8_t kind, enum tl_probe_kind site)
{
    return kind == TL_RECORD_RETURN || kind == TL_RECORD_EXIT ||
           (kind == TL_RECORD_HIT && site == TL_PROBE_RETURN);
}

static int exits_add(struct tl_batch *batch, size_t index, const struct tl_exit *exits,
                     size_t count)
{
    int error = 0;
    const uint8_t *level = batch->state[index].exit_level;
    for (size_t i = 0; !error && i < count; i++) {
        struct tl_point point = {.site = (uint32_t)index,
                                 .vaddr = exits[i].vaddr,
                                 .exit = (uint32_t)i,
                                 .kind = (uint8_t)exit_kind(batch),
                                 .on_taken = exits[i].kind == TL_EXIT_COND_TAIL};
        if (level && level[i] && level[i] <= exits[i].early_count) {
            point.vaddr = exits[i].early[level[i] - 1].vaddr;
            point.sp_off = exits[i].early[level[i] - 1].sp_off;
            point.on_taken = false;
        }
        error = point_add(batch, &point);
    }
    return error;
}

static int site_points(struct tl_batch *batch, size_t index, const struct tl_exit *exits,
                       size_t exit_count)
{
    struct tl_session_site *state = &batch->state[index];
    const struct tl_site *site = &batch->sites.site[index];
    struct tl_point entry = {.site = (uint32_t)index, .vaddr = site->vaddr};
    int error = 0;
    state->point_first = (uint32_t)batch->point_count;
    // Before the new entry's time is taken: a jump to the function itself ends the call that it comes from.
    if (state->return_way == TL_SITE_TRAMPOLINE) {
        entry.kind = TL_RECORD_HIJACK;
        error = point_add(batch, &entry);
    }
    if (!error && (site->kind == TL_PROBE_ENTRY || batch->session->options.mode == TL_MODE_LATENCY)) {
        entry.kind = (uint8_t)entry_kind(batch);
        error = point_add(batch, &entry);
    }
    if (!error && state->return_way == TL_SITE_EXITS)
        error = exits_add(batch, index, exits, exit_count);
    state->point_count = (uint32_t)(batch->point_count - state->point_first);
    if (state->point_count)
        state->flags |= TL_SESSION_PLANNED;
    return error;
}

int tl_batch_points(struct tl_batch *batch, size_t first, size_t count, struct tl_diag *diag)
{
    struct tl_exit *exits = calloc(TL_EXITS_MAX, sizeof *exits);
    int error = exits ? 0 : TL_E_NOMEM;
    batch->point_count = 0;
    for (size_t i = first; !error && i < first + count; i++) {
        struct tl_session_site *state = &batch->state[i];
        state->flags &= ~TL_SESSION_PLANNED;
        state->point_count = 0;
        size_t exit_count = 0;
        if (state->refusal == TL_REFUSE_NONE && state->return_way == TL_SITE_EXITS)
            (void)exits_ask(batch, i, exits, &exit_count); // known, as when it was chosen
        else if (state->refusal == TL_REFUSE_NONE && state->return_way == TL_SITE_NO_RETURN &&
                 needs_return(batch, i))
            way_choose(batch, i, exits, &exit_count);
        if (state->refusal == TL_REFUSE_NONE)
            error = site_points(batch, i, exits, exit_count);
    }
    free(exits);
    return error ? tl_diag_set(diag, error, "out of memory for %zu sites", count) : 0;
}

// ---- when a place is missing ----------------------------------------------------------------------

#define CROWD_BYTES 16u // no branch and the bytes it needs are longer

// An entry that lost its bytes to another probe.
struct crowded {
    uint32_t module;
    tl_addr vaddr;
};

static int crowded_compare(const void *left, const void *right)
{
    const struct crowded *a = left, *b = right;
    if (a->module != b->module)
        return a->module < b->module ? -1 : 1;
    return (a->vaddr > b->vaddr) - (a->vaddr < b->vaddr);
}

struct crowd {
    struct crowded *entry; // sorted
    size_t count;
};

static const struct tl_plan *point_plan(const struct tl_batch *batch, const struct tl_point *point)
{
    return tl_plan_get(batch->plans, point->request);
}

static struct crowd crowd_find(const struct tl_batch *batch)
{
    struct crowd crowd = {.entry = calloc(batch->point_count + 1, sizeof *crowd.entry)};
    for (size_t i = 0; crowd.entry && i < batch->point_count; i++) {
        const struct tl_point *point = &batch->points[i];
        const struct tl_site *site = &batch->sites.site[point->site];
        if (point_is_exit(point->kind, site->kind) ||
            point_plan(batch, point)->refusal != TL_REFUSE_WINDOW_PROBE)
            continue;
        crowd.entry[crowd.count++] = (struct crowded){site->module, point->vaddr};
    }
    if (crowd.entry)
        qsort(crowd.entry, crowd.count, sizeof *crowd.entry, crowded_compare);
    return crowd;
}

static bool crowd_near(const struct crowd *crowd, uint32_t module, tl_addr vaddr)
{
    size_t low = 0, high = crowd->count;
    tl_addr from = vaddr > CROWD_BYTES ? vaddr - CROWD_BYTES : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct crowded key = {module, from};
        if (crowded_compare(&crowd->entry[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < crowd->count && crowd->entry[low].module == module &&
           crowd->entry[low].vaddr <= vaddr + CROWD_BYTES;
}

// An exit needs another place: it has none, or it took an entry's.
static bool point_moves(const struct tl_batch *batch, const struct tl_point *point,
                        const struct crowd *crowd)
{
    const struct tl_site *site = &batch->sites.site[point->site];
    return point_is_exit(point->kind, site->kind) &&
           (point_plan(batch, point)->rung != TL_RUNG_JUMP ||
            crowd_near(crowd, site->module, point->vaddr));
}

// Each of the site's exits that must move gets its next place. false: one has no more.
static bool exits_earlier(struct tl_batch *batch, size_t index, const struct crowd *crowd,
                          const struct tl_exit *exits, size_t count)
{
    struct tl_session_site *state = &batch->state[index];
    for (uint32_t i = 0; i < state->point_count; i++) {
        const struct tl_point *point = &batch->points[state->point_first + i];
        if (!point_moves(batch, point, crowd))
            continue;
        if (!state->exit_level)
            state->exit_level = calloc(count + 1, sizeof *state->exit_level);
        if (!state->exit_level || point->exit >= count ||
            ++state->exit_level[point->exit] > exits[point->exit].early_count)
            return false;
    }
    return true;
}

// Without its entry a site is refused, whatever its exits are; unless an exit took its place.
static bool entry_lost(const struct tl_batch *batch, size_t index)
{
    const struct tl_session_site *state = &batch->state[index];
    const struct tl_point *point = &batch->points[state->point_first];
    return !point_is_exit(point->kind, batch->sites.site[index].kind) &&
           point_plan(batch, point)->rung != TL_RUNG_JUMP &&
           point_plan(batch, point)->refusal != TL_REFUSE_WINDOW_PROBE;
}

static bool site_moves(const struct tl_batch *batch, size_t index, const struct crowd *crowd)
{
    const struct tl_session_site *state = &batch->state[index];
    bool moves = false;
    if (!(state->flags & TL_SESSION_PLANNED) || state->return_way != TL_SITE_EXITS ||
        state->refusal != TL_REFUSE_NONE || entry_lost(batch, index))
        return false;
    for (uint32_t i = 0; i < state->point_count; i++)
        moves |= point_moves(batch, &batch->points[state->point_first + i], crowd);
    return moves;
}

size_t tl_batch_points_fallback(struct tl_batch *batch, size_t first, size_t count)
{
    struct tl_exit *exits = calloc(TL_EXITS_MAX, sizeof *exits);
    struct crowd crowd = crowd_find(batch);
    size_t changed = 0;
    for (size_t i = first; exits && crowd.entry && i < first + count; i++) {
        if (!site_moves(batch, i, &crowd))
            continue;
        size_t exit_count;
        (void)exits_ask(batch, i, exits, &exit_count); // known: they have points
        if (!exits_earlier(batch, i, &crowd, exits, exit_count))
            way_below_exits(batch, i, TL_REFUSE_EXIT_UNPATCHED);
        changed++;
    }
    free(crowd.entry);
    free(exits);
    return changed;
}

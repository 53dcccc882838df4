// Every way out of a function. Follows control flow from the entry through the function and through
// its parts that lie elsewhere, with the depth of the stack at each instruction. Does not trust an
// end that other functions share, a return at another depth than the entry's, or an indirect jump
// whose targets may be missing. Keeps: an answer with exits holds each instruction by which the
// function can be left for good, and none by which it can't.
//
//   caller's frame | return address | pushed registers, locals ...
//                  ^ depth 0 (sp at the entry)       ^ negative: sp further down
#include "analyse/graph.h"

#include <stdlib.h>

#define EXIT_PIECES_MAX 16 // the function and its moved-away parts
#define CONSTANT_STEPS_MAX 16 // instructions between a large frame's size and its use
#define STUB_INSNS_MAX 4   // adrp, ldr, add, br
#define DEPTH_UNKNOWN INT32_MIN
#define DEPTH_UNWOUND                                                                              \
    (INT32_MIN + 1) // wherever an unwinder put it: the depth of the function's calls
#define DEPTH_MAX (1 << 30)

// How much a depth can be trusted; a better one replaces a worse one.
enum rank {
    RANK_NONE,     // the instruction was not reached yet
    RANK_PAD,      // reached from a landing pad
    RANK_DOUBTFUL, // reached only behind a call that may never return
    RANK_CERTAIN,
};

struct place_state {
    int32_t sp, fp;  // against sp at the entry, or DEPTH_...
    uint8_t rank;    // enum rank
    int32_t kept_sp; // what `kept` holds
    uint8_t kept;    // register that holds a copy of sp and survives calls, or NONE
    uint8_t base;    // register that held sp + 8 at the entry (a realigned frame), or NONE
    bool tabled;     // an indirect jump of the function leads here
};

struct piece {
    uint32_t function;
    struct graph *graph;
    struct place_state *state; // of each node
};

struct exit_walk {
    struct tl_analysis *analysis;
    tl_addr start, entry; // of the function: with and without the landing instruction
    struct piece piece[EXIT_PIECES_MAX]; // [0]: the function itself
    size_t piece_count;
    struct addr_list work;     // piece << 32 | node
    struct place_state call;   // at all its calls, merged
    bool labels, labels_known; // an address inside is taken
    bool unknown;
    int status;
    struct tl_exit *out;
    size_t max, count;
};

enum way_kind { WAY_INSIDE, WAY_PART, WAY_TAIL, WAY_UNKNOWN };

static bool depth_known(int32_t depth)
{
    return depth != DEPTH_UNKNOWN && depth != DEPTH_UNWOUND;
}

static int32_t depth_add(int32_t depth, int32_t plus)
{
    if (!depth_known(depth))
        return depth;
    int64_t sum = (int64_t)depth + plus;
    return sum > DEPTH_MAX || sum < -DEPTH_MAX ? DEPTH_UNKNOWN : (int32_t)sum;
}

static int32_t depth_merge(int32_t one, int32_t two)
{
    if (one == DEPTH_UNWOUND || two == DEPTH_UNWOUND)
        return one == DEPTH_UNWOUND ? two : one;
    return one == two ? one : DEPTH_UNKNOWN;
}

// ---- pieces -------------------------------------------------------------------------------------

static tl_addr extent_end(const struct tl_extent *extent)
{
    return extent->vaddr + extent->size;
}

// A function that only the unwind table or a part's name knows, and that nobody calls.
static bool is_part_like(const struct exit_walk *walk, uint32_t function)
{
    const struct tl_extent *extent = &walk->analysis->facts.functions[function];
    return !walk->analysis->function[function].called && (extent->part || !extent->symbol);
}

static bool piece_find(const struct exit_walk *walk, tl_addr addr, size_t *piece, uint32_t *node)
{
    for (size_t i = 0; i < walk->piece_count; i++) {
        *node = tl_graph_find(walk->piece[i].graph, addr);
        *piece = i;
        if (*node != NODE_NONE)
            return true;
    }
    return false;
}

// Whether addr lies in a piece, as code or not.
static bool piece_holds(const struct exit_walk *walk, tl_addr addr)
{
    for (size_t i = 0; i < walk->piece_count; i++) {
        const struct tl_extent *extent = &walk->analysis->facts.functions[walk->piece[i].function];
        if (addr - extent->vaddr < extent->size)
            return true;
    }
    return false;
}

// Functions that overlap share code in ways that nobody noted.
static bool is_overlapped(const struct exit_walk *walk, uint32_t function)
{
    const struct tl_analysis *analysis = walk->analysis;
    const struct tl_extent *extent = &analysis->facts.functions[function];
    return (function > 0 && analysis->function[function - 1].reach > extent->vaddr) ||
           (function + 1 < analysis->facts.function_count && extent[1].vaddr < extent_end(extent) &&
            !is_part_like(walk, function + 1));
}

static void piece_add(struct exit_walk *walk, uint32_t function)
{
    if (walk->piece_count == EXIT_PIECES_MAX || is_overlapped(walk, function) ||
        tl_group_unproved(walk->analysis, function)) {
        walk->unknown = true;
        return;
    }
    struct piece *piece = &walk->piece[walk->piece_count];
    piece->function = function;
    walk->status = tl_graph_create(walk->analysis, function, &piece->graph);
    if (walk->status == TL_E_LIMIT) {
        walk->status = 0;
        walk->unknown = true;
    }
    if (walk->status != 0 || walk->unknown)
        return;
    piece->state = calloc((size_t)piece->graph->count + 1, sizeof(*piece->state));
    if (piece->state == NULL) {
        tl_graph_destroy(piece->graph);
        walk->status = TL_E_NOMEM;
        return;
    }
    walk->piece_count++;
}

// ---- where a branch leads -----------------------------------------------------------------------

// A procedure linkage stub or a linker's far branch: a jump through a word of data, and nothing before it; or,
// where an address takes several instructions and no function owns the code, those and the jump.
static bool is_stub(const struct exit_walk *walk, tl_addr addr)
{
    const struct tl_analysis *analysis = walk->analysis;
    tl_addr at = tl_entry_landing(analysis, addr);
    bool addressed = false;
    for (unsigned i = 0; i < STUB_INSNS_MAX; i++) {
        struct tl_insn insn;
        if (!tl_decode_at(analysis, at, true, &insn))
            return false;
        if (insn.flow == TL_FLOW_IJUMP)
            return i == 0 ? (insn.flags & TL_INSN_PCREL_DATA) != 0 : addressed;
        if (insn.flow != TL_FLOW_NEXT || tl_function_at(analysis, at) != FUNCTION_NONE)
            return false;
        addressed = addressed || (insn.flags & TL_INSN_PCREL_LEA) != 0;
        at += insn.size;
    }
    return false;
}

// More than one function jumps to the start of this one.
static bool is_jumped_by_many(const struct exit_walk *walk, uint32_t function)
{
    const struct tl_analysis *analysis = walk->analysis;
    const struct tl_extent *extent = &analysis->facts.functions[function];
    uint32_t first = FUNCTION_NONE;
    for (size_t i = tl_crossings_lower(analysis, extent->vaddr);
         i < analysis->crossing_count && analysis->crossing[i].to == extent->vaddr; i++) {
        uint32_t from = tl_function_at(analysis, analysis->crossing[i].from);
        if (first != FUNCTION_NONE && from != first)
            return true;
        first = from;
    }
    return false;
}

// Whether the entry's facts call the branch at `from` one that leads back and is no call.
static bool is_looper(struct exit_walk *walk, tl_addr from)
{
    struct tl_site_facts facts;
    walk->status = tl_analysis_site(walk->analysis, walk->entry, &facts, NULL);
    if (walk->status != 0)
        return false;
    walk->unknown |= facts.looper_more;
    for (unsigned i = 0; i < facts.looper_count; i++)
        if (facts.loopers[i] == from)
            return true;
    return false;
}

// A branch to another function's code. It must start where the function can be entered, or be in a
// part that belongs to this one.
static enum way_kind way_foreign(const struct exit_walk *walk, tl_addr to)
{
    uint32_t function = tl_function_at(walk->analysis, to);
    if (is_stub(walk, to))
        return WAY_TAIL;
    if (function == FUNCTION_NONE)
        return WAY_UNKNOWN;
    const struct tl_extent *extent = &walk->analysis->facts.functions[function];
    bool start = to == extent->vaddr || to == tl_entry_landing(walk->analysis, extent->vaddr);
    if (!is_part_like(walk, function))
        return start ? WAY_TAIL : WAY_UNKNOWN;
    return start && !extent->part && is_jumped_by_many(walk, function) ? WAY_TAIL : WAY_PART;
}

// piece: the one that holds the branch.
static enum way_kind way_of(struct exit_walk *walk, size_t piece, tl_addr from, tl_addr to)
{
    size_t to_piece;
    uint32_t node;
    if (to == walk->start && walk->start != walk->entry)
        return WAY_TAIL; // through the landing instruction: a probe of the entry counts it
    if (to == walk->entry && piece != 0)
        return is_looper(walk, from) ? WAY_INSIDE : WAY_TAIL;
    if (piece_find(walk, to, &to_piece, &node))
        return WAY_INSIDE;
    return piece_holds(walk, to) ? WAY_UNKNOWN : way_foreign(walk, to);
}

// ---- the walk -----------------------------------------------------------------------------------

static bool state_same(const struct place_state *one, const struct place_state *two)
{
    return one->sp == two->sp && one->fp == two->fp && one->rank == two->rank &&
           one->kept == two->kept && one->kept_sp == two->kept_sp && one->base == two->base &&
           one->tabled == two->tabled;
}

static void state_merge(struct exit_walk *walk, size_t piece, uint32_t node,
                        const struct place_state *from)
{
    struct place_state *into = &walk->piece[piece].state[node];
    struct place_state merged = *from;
    merged.tabled |= into->tabled;
    if (into->rank > from->rank)
        merged = *into;
    if (into->rank == from->rank) {
        merged.sp = depth_merge(into->sp, from->sp);
        merged.fp = depth_merge(into->fp, from->fp);
        merged.base = into->base == from->base ? into->base : TL_DEF_REG_NONE;
        if (into->kept != from->kept || into->kept_sp != from->kept_sp)
            merged.kept = TL_DEF_REG_NONE;
    }
    if (state_same(&merged, into))
        return;
    *into = merged;
    if (tl_addr_list_push(&walk->work, (tl_addr)piece << 32 | node) != 0)
        walk->status = TL_E_NOMEM;
}

static void state_merge_at(struct exit_walk *walk, tl_addr addr, const struct place_state *state)
{
    size_t piece;
    uint32_t node;
    if (piece_find(walk, addr, &piece, &node))
        state_merge(walk, piece, node, state);
    else
        walk->unknown = true;
}

// One register plus a constant, before the instruction.
static int32_t depth_from(const struct exit_walk *walk, const struct place_state *state,
                          uint8_t from, int32_t plus)
{
    if (from == walk->analysis->arch->sp_reg)
        return depth_add(state->sp, plus);
    if (from == walk->analysis->arch->fp_reg && state->fp != DEPTH_UNKNOWN)
        return depth_add(state->fp, plus);
    if (from != TL_DEF_REG_NONE && from == state->kept)
        return depth_add(state->kept_sp, plus);
    // A realigned frame is left by the register that pointed behind the return address.
    return from != TL_DEF_REG_NONE && from == state->base ? depth_add(8, plus) : DEPTH_UNKNOWN;
}

// What a register holds before the instruction at addr, if a straight run before it says so.
static bool constant_before(const struct exit_walk *walk, tl_addr addr, unsigned reg, int32_t *out)
{
    for (unsigned step = 0; step < CONSTANT_STEPS_MAX; step++) {
        struct tl_insn insn;
        struct tl_definition def;
        if (tl_is_barrier(walk->analysis, addr))
            return false;
        addr = tl_code_before(walk->analysis, addr);
        if (addr == 0 || !tl_decode_at(walk->analysis, addr, true, &insn))
            return false;
        walk->analysis->arch->define(&insn, reg, &def);
        if (def.kind == TL_DEF_ADDR && def.value < DEPTH_MAX) {
            *out = (int32_t)def.value;
            return true;
        }
        if (def.kind != TL_DEF_KEEP)
            return false;
    }
    return false;
}

static struct place_state state_behind(const struct exit_walk *walk, const struct node *node,
                                       const struct place_state *before)
{
    struct tl_stack_step step;
    struct tl_insn insn;
    struct place_state after = *before;
    after.tabled = false;
    if (!tl_decode_at(walk->analysis, node->addr, true, &insn))
        return after;
    walk->analysis->arch->stack(&insn, &step);
    after.sp = depth_from(walk, before, step.sp_from, step.sp_plus);
    after.fp = depth_from(walk, before, step.fp_from, step.fp_plus);
    int32_t moved;
    if (step.moved_sign != 0 && constant_before(walk, node->addr, step.moved_by, &moved))
        after.sp = depth_add(before->sp, step.moved_sign * moved);
    if (step.copy_reg != TL_DEF_REG_NONE && depth_add(before->sp, step.copy_plus) == 8)
        after.base = step.copy_reg;
    // A whole copy is worth more than the address of something on the stack.
    bool copies = step.copy_reg != TL_DEF_REG_NONE && depth_known(before->sp) &&
                  (walk->analysis->arch->kept_regs >> step.copy_reg & 1) != 0;
    if (copies && (step.copy_plus == 0 || before->kept == TL_DEF_REG_NONE)) {
        after.kept = step.copy_reg;
        after.kept_sp = depth_add(before->sp, step.copy_plus);
    } else if (before->kept != TL_DEF_REG_NONE) {
        struct tl_definition def;
        walk->analysis->arch->define(&insn, before->kept, &def);
        if (def.kind != TL_DEF_KEEP)
            after.kept = TL_DEF_REG_NONE;
    }
    return after;
}

static void branch_follow(struct exit_walk *walk, size_t piece, const struct node *node, tl_addr to,
                          const struct place_state *state)
{
    enum way_kind way = way_of(walk, piece, node->addr, to);
    if (way == WAY_PART)
        piece_add(walk, tl_function_at(walk->analysis, to));
    if (walk->status == 0 && !walk->unknown && (way == WAY_PART || way == WAY_INSIDE))
        state_merge_at(walk, to, state);
}

// Whether addr is known to be where a pointer leads, and is not how one enters a function or pad.
static bool is_label(const struct exit_walk *walk, tl_addr addr)
{
    const struct tl_analysis *analysis = walk->analysis;
    const struct addr_list *const lists[] = {&analysis->pointers, &analysis->leas};
    if (addr == walk->entry || tl_function_starting(analysis, addr) != FUNCTION_NONE)
        return false;
    for (size_t i = 0; i < TL_ARRAY_COUNT(lists); i++) {
        size_t at = tl_addr_list_lower(lists[i], addr);
        if (at < lists[i]->count && lists[i]->item[at] == addr)
            return true;
    }
    return false;
}

// Asked when all pieces are known.
static bool has_labels(struct exit_walk *walk)
{
    for (size_t i = 0; i < walk->piece_count && !walk->labels_known; i++) {
        const struct graph *graph = walk->piece[i].graph;
        for (uint32_t k = 0; k < graph->count && !walk->labels; k++)
            walk->labels = is_label(walk, graph->node[k].addr);
    }
    walk->labels_known = true;
    return walk->labels;
}

static void labels_follow(struct exit_walk *walk, const struct place_state *state)
{
    struct place_state to = *state;
    to.tabled = true;
    for (size_t i = 0; i < walk->piece_count; i++) {
        const struct graph *graph = walk->piece[i].graph;
        for (uint32_t k = 0; k < graph->count; k++)
            if (is_label(walk, graph->node[k].addr))
                state_merge(walk, i, k, &to);
    }
}

// An indirect jump. Through tables: all targets are inside. Else a pointer made elsewhere: with
// something on the stack it can only lead to a label of the function's own.
static void jump_follow(struct exit_walk *walk, size_t piece, const struct node *node,
                        const struct place_state *state)
{
    const struct jump *jump = tl_jump_at(walk->analysis, node->addr);
    struct place_state to = *state;
    to.tabled = true;
    if (jump == NULL)
        walk->unknown = true;
    else if (jump->resolved)
        for (size_t i = 0; i < jump->count && !walk->unknown && walk->status == 0; i++)
            branch_follow(walk, piece, node, walk->analysis->jump_targets.item[jump->first + i],
                          &to);
    else if (state->sp != 0)
        labels_follow(walk, state);
}

// Whether the call before this instruction may be one that never returns: behind such a call stands
// what others jump to, or filler before that.
static bool may_end(const struct exit_walk *walk, const struct node *behind)
{
    return tl_is_barrier(walk->analysis, behind->addr) || (behind->flags & TL_INSN_NOP) != 0;
}

// The depth at the function's calls. One with nothing on the stack grows the stack, or never
// returns: no unwinder comes back behind it.
static void call_take(struct exit_walk *walk, const struct place_state *at)
{
    struct place_state *call = &walk->call;
    if (at->sp == 0)
        return;
    call->sp = call->rank == RANK_NONE ? at->sp : depth_merge(call->sp, at->sp);
    call->fp = call->rank == RANK_NONE ? at->fp : depth_merge(call->fp, at->fp);
    call->rank = RANK_PAD;
}

static void node_follow(struct exit_walk *walk, size_t index, uint32_t at)
{
    const struct piece *piece = &walk->piece[index];
    const struct node *node = &piece->graph->node[at];
    struct place_state before = piece->state[at];
    struct place_state after = state_behind(walk, node, &before);
    switch (node->flow) {
    case TL_FLOW_CALL:
    case TL_FLOW_ICALL:
        call_take(walk, &before);
        if (node->next == NODE_NONE)
            return; // it never returns
        if (before.rank == RANK_CERTAIN && may_end(walk, &piece->graph->node[node->next]))
            after.rank = RANK_DOUBTFUL;
        state_merge(walk, index, node->next, &after);
        return;
    case TL_FLOW_COND:
        branch_follow(walk, index, node, node->target, &after);
        __attribute__((fallthrough));
    case TL_FLOW_NEXT:
        if (walk->unknown || walk->status != 0)
            return;
        if (node->next != NODE_NONE)
            state_merge(walk, index, node->next, &after);
        else if ((node->flags & TL_INSN_NOP) == 0 || before.rank == RANK_CERTAIN)
            walk->unknown = true; // runs into code of somebody else, not only behind a last call
        return;
    case TL_FLOW_JUMP:
        branch_follow(walk, index, node, node->target, &after);
        return;
    case TL_FLOW_IJUMP:
        jump_follow(walk, index, node, &before);
        return;
    default:
        return;
    }
}

static void work_drain(struct exit_walk *walk)
{
    while (walk->work.count > 0 && !walk->unknown && walk->status == 0) {
        tl_addr item = walk->work.item[--walk->work.count];
        node_follow(walk, (size_t)(item >> 32), (uint32_t)item);
    }
}

// Where Go's runtime may go on after a panic: code that nothing else of the function leads to.
static void blocks_follow(struct exit_walk *walk, size_t index, const struct place_state *state)
{
    const struct piece *piece = &walk->piece[index];
    for (uint32_t i = 1; i < piece->graph->count && !walk->unknown && walk->status == 0; i++) {
        const struct node *node = &piece->graph->node[i];
        if (piece->state[i].rank != RANK_NONE || piece->graph->node[i - 1].next == i ||
            !tl_is_go(walk->analysis, node->addr))
            continue;
        state_merge(walk, index, i, state);
        work_drain(walk);
    }
}

// Landing pads are entered by the unwinder, at the depth of the calls.
static void pads_follow(struct exit_walk *walk, size_t index)
{
    const struct tl_extent *extent = &walk->analysis->facts.functions[walk->piece[index].function];
    const struct addr_list *pads = &walk->analysis->pads;
    struct place_state state = {.sp = walk->call.sp,
                                .fp = walk->call.fp,
                                .rank = RANK_PAD,
                                .kept = TL_DEF_REG_NONE,
                                .base = walk->piece[0].state[0].base};
    if (walk->call.rank == RANK_NONE || !depth_known(state.sp))
        state.sp = DEPTH_UNWOUND;
    if (walk->call.rank == RANK_NONE)
        state.fp = DEPTH_UNKNOWN;
    for (size_t i = tl_addr_list_lower(pads, extent->vaddr);
         i < pads->count && pads->item[i] < extent_end(extent) && !walk->unknown; i++)
        state_merge_at(walk, pads->item[i], &state);
    work_drain(walk);
    blocks_follow(walk, index, &state);
}

static bool has_pads(const struct exit_walk *walk, uint32_t function)
{
    const struct tl_extent *extent = &walk->analysis->facts.functions[function];
    const struct addr_list *pads = &walk->analysis->pads;
    size_t i = tl_addr_list_lower(pads, extent->vaddr);
    return i < pads->count && pads->item[i] < extent_end(extent);
}

static bool is_reached(const struct exit_walk *walk, tl_addr addr)
{
    size_t piece;
    uint32_t node;
    return piece_find(walk, addr, &piece, &node) &&
           walk->piece[piece].state[node].rank != RANK_NONE;
}

// Who else comes into a piece: parts that only an unwinder enters belong to it, anybody else shares
// its ends.
static void others_follow(struct exit_walk *walk, size_t index)
{
    const struct tl_analysis *analysis = walk->analysis;
    const struct tl_extent *extent = &analysis->facts.functions[walk->piece[index].function];
    for (size_t i = tl_crossings_lower(analysis, extent->vaddr);
         i < analysis->crossing_count && analysis->crossing[i].to < extent_end(extent); i++) {
        const struct crossing *crossing = &analysis->crossing[i];
        if (crossing->to == walk->start || crossing->to == walk->entry ||
            piece_holds(walk, crossing->from) || !is_reached(walk, crossing->to))
            continue;
        uint32_t from = tl_function_at(analysis, crossing->from);
        if (from == FUNCTION_NONE || !is_part_like(walk, from) || !has_pads(walk, from))
            walk->unknown = true;
        else
            piece_add(walk, from);
        if (walk->unknown || walk->status != 0)
            return;
    }
}

static void walk_all(struct exit_walk *walk)
{
    struct place_state entry = {.rank = RANK_CERTAIN,
                                .fp = DEPTH_UNKNOWN,
                                .kept = TL_DEF_REG_NONE,
                                .base = TL_DEF_REG_NONE};
    state_merge_at(walk, walk->start, &entry);
    for (size_t done = 0; !walk->unknown && walk->status == 0;) {
        work_drain(walk);
        if (done == walk->piece_count || walk->unknown || walk->status != 0)
            break;
        for (; done < walk->piece_count && !walk->unknown; done++)
            pads_follow(walk, done);
        work_drain(walk);
        for (size_t i = 0; i < walk->piece_count && !walk->unknown && walk->status == 0; i++)
            others_follow(walk, i);
    }
}

// ---- the answer ---------------------------------------------------------------------------------

// Whether an instruction gives a register back that the function saved on its stack.
static bool is_restoring(const struct exit_walk *walk, const struct node *node)
{
    const struct tl_arch *arch = walk->analysis->arch;
    tl_regset saved = (arch->kept_regs | (tl_regset)1 << arch->fp_reg) & node->written;
    struct tl_insn insn;
    struct tl_definition def;
    if (saved == 0 || (saved & (saved - 1)) != 0 || (node->written & ~saved) != 0 ||
        !tl_decode_at(walk->analysis, node->addr, true, &insn))
        return false;
    arch->define(&insn, (unsigned)__builtin_ctzll(saved), &def);
    return def.kind == TL_DEF_SPILL;
}

// An instruction that only gives back: pop, add to the stack pointer, leave, a load of a saved
// register.
static bool is_unwinding(const struct exit_walk *walk, const struct node *node)
{
    return node->flow == TL_FLOW_NEXT && (node->written & walk->analysis->arch->value_regs) == 0 &&
           ((node->flags & TL_INSN_WRITES_SP) != 0 || is_restoring(walk, node));
}

static void early_take(const struct exit_walk *walk, const struct piece *piece, uint32_t at,
                       struct tl_exit *exit)
{
    const struct node *node = piece->graph->node;
    while (exit->early_count < TL_EXIT_EARLY_MAX && at > 0 && node[at - 1].next == at &&
           !tl_is_barrier(walk->analysis, node[at].addr) &&
           tl_code_before(walk->analysis, node[at].addr) == node[at - 1].addr &&
           is_unwinding(walk, &node[at - 1]) && depth_known(piece->state[at - 1].sp)) {
        at--;
        exit->early[exit->early_count++] =
            (struct tl_exit_early){.vaddr = node[at].addr, .sp_off = piece->state[at].sp};
    }
}

static void exit_add(struct exit_walk *walk, const struct piece *piece, uint32_t at,
                     enum tl_exit_kind kind)
{
    int32_t depth = piece->state[at].sp;
    if ((depth != 0 && depth != DEPTH_UNWOUND) || walk->count == walk->max) {
        walk->unknown = true;
        return;
    }
    struct tl_exit *exit = &walk->out[walk->count++];
    *exit = (struct tl_exit){.vaddr = piece->graph->node[at].addr, .kind = (uint8_t)kind};
    // Where no instruction is shorter than a branch an exit always has room for it.
    const struct tl_arch *arch = walk->analysis->arch;
    if (kind != TL_EXIT_COND_TAIL && arch->jump_size > arch->insn_align)
        early_take(walk, piece, at, exit);
}

static void jump_exit_take(struct exit_walk *walk, const struct piece *piece, uint32_t at)
{
    const struct jump *jump = tl_jump_at(walk->analysis, piece->graph->node[at].addr);
    size_t to_piece;
    uint32_t to;
    if (jump != NULL && jump->resolved) {
        for (size_t i = 0; i < jump->count; i++) // a table of tail calls is no single exit
            walk->unknown |= !piece_find(walk, walk->analysis->jump_targets.item[jump->first + i],
                                         &to_piece, &to);
    } else if (jump != NULL && has_labels(walk)) {
        walk->unknown |= piece->state[at].sp == 0; // to a label or out: nobody knows
    } else if (jump == NULL || piece->state[at].sp != 0) {
        walk->unknown = true;
    } else {
        exit_add(walk, piece, at, TL_EXIT_ITAIL);
    }
}

static void branch_exit_take(struct exit_walk *walk, size_t index, uint32_t at)
{
    const struct piece *piece = &walk->piece[index];
    const struct node *node = &piece->graph->node[at];
    enum way_kind way = way_of(walk, index, node->addr, node->target);
    if (way == WAY_TAIL)
        exit_add(walk, piece, at, node->flow == TL_FLOW_COND ? TL_EXIT_COND_TAIL : TL_EXIT_TAIL);
    else if (way != WAY_INSIDE || (node->target == walk->entry && piece->state[at].sp != 0))
        walk->unknown = true;
}

// An address that is taken, or stored, is entered by somebody who is not known.
static bool is_entered_unknown(const struct exit_walk *walk, const struct node *node,
                               const struct place_state *state)
{
    const struct addr_list *pads = &walk->analysis->pads;
    if (!tl_is_entered(walk->analysis, node->addr) || state->tabled || node->addr == walk->entry ||
        tl_is_go(walk->analysis, node->addr) ||
        tl_function_starting(walk->analysis, node->addr) != FUNCTION_NONE)
        return false;
    size_t at = tl_addr_list_lower(pads, node->addr);
    return at == pads->count || pads->item[at] != node->addr;
}

static void exits_take(struct exit_walk *walk, size_t index)
{
    const struct piece *piece = &walk->piece[index];
    for (uint32_t i = 0; i < piece->graph->count && !walk->unknown && walk->status == 0; i++) {
        const struct node *node = &piece->graph->node[i];
        const struct place_state *state = &piece->state[i];
        if (state->rank == RANK_NONE)
            continue;
        walk->unknown = is_entered_unknown(walk, node, state);
        switch (node->flow) {
        case TL_FLOW_RET:
            exit_add(walk, piece, i, TL_EXIT_RET);
            break;
        case TL_FLOW_JUMP:
        case TL_FLOW_COND:
            branch_exit_take(walk, index, i);
            break;
        case TL_FLOW_IJUMP:
            jump_exit_take(walk, piece, i);
            break;
        case TL_FLOW_CALL: // of the function's own middle: its returns are not all the function's
            if (node->target != walk->start && node->target != walk->entry &&
                piece_holds(walk, node->target))
                walk->unknown = true;
            break;
        default:
            break;
        }
    }
}

static int exit_compare(const void *one, const void *two)
{
    tl_addr a = ((const struct tl_exit *)one)->vaddr, b = ((const struct tl_exit *)two)->vaddr;
    return (a > b) - (a < b);
}

int tl_analysis_exits(struct tl_analysis *analysis, tl_addr function, struct tl_exit *out,
                      size_t max, size_t *count, enum tl_refusal *refusal, struct tl_diag *diag)
{
    struct exit_walk walk = {.analysis = analysis, .start = function, .out = out, .max = max};
    uint32_t index = tl_function_starting(analysis, function);
    int status = tl_code_module(analysis);
    if (status == 0 && index != FUNCTION_NONE) {
        walk.entry = tl_entry_landing(analysis, function);
        piece_add(&walk, index);
        if (!walk.unknown && walk.status == 0)
            walk_all(&walk);
        for (size_t i = 0; i < walk.piece_count; i++)
            exits_take(&walk, i);
        status = walk.status;
    }
    for (size_t i = 0; i < walk.piece_count; i++) {
        tl_graph_destroy(walk.piece[i].graph);
        free(walk.piece[i].state);
    }
    tl_addr_list_deinit(&walk.work);
    if (status != 0)
        return tl_diag_set(diag, status, "can't analyse the exits of the function at 0x%llx",
                           (unsigned long long)function);
    if (index == FUNCTION_NONE || walk.unknown) {
        *refusal = TL_REFUSE_EXIT_UNKNOWN;
        *count = 0;
        return 0;
    }
    *refusal = walk.count > 0 ? TL_REFUSE_NONE : TL_REFUSE_NO_EXIT;
    *count = walk.count;
    if (walk.count > 0)
        qsort(out, walk.count, sizeof(*out), exit_compare);
    return 0;
}

// Which instructions lie between a load-exclusive and its store-exclusive. A probe there would write to
// memory or branch away in between, and the store might never succeed (Arm ARM, B2.9.5 "Load-Exclusive and
// Store-Exclusive instruction usage restrictions").
//
//   retry: ldaxr x1, [x0]     begins          in = an exclusive may be open here: a path leads here from a
//          cmp   x1, x2       in, to               load-exclusive, and no store lies on it
//          b.ne  out          in, to          to = a path leads from here to a store-exclusive, and no load
//          stlxr w3, x4, [x0] ends                lies on it
//          cbnz  w3, retry    not in          refused: what is both
//   out:   ret                in, not to
//
// Follows the function's own flow graph; calls come back. Does not follow others' code. Keeps: where the way
// is not known (an indirect jump that may lead before a store, a way out to other code that has one, a store
// that is reached from the function's start), everything that may be in between is refused.
#include "analyse/graph.h"

#include <stdlib.h>

#define IN 1u // marks
#define TO 2u
#define BOTH (IN | TO)

struct marks {
    struct tl_analysis *analysis;
    const struct graph *graph;
    uint8_t *mark;
    uint32_t *work;
    uint32_t work_count;
    bool jumps; // an exclusive may be open at an indirect jump that may lead anywhere
    bool lost;  // ... or where other code with a store is entered
};

static bool ends(const struct node *node)
{
    return (node->flags & TL_INSN_EXCLUSIVE_STORE) != 0;
}

static bool begins(const struct node *node)
{
    return (node->flags & TL_INSN_EXCLUSIVE_LOAD) != 0;
}

static void mark_set(struct marks *marks, uint32_t node, unsigned mark)
{
    if (node == NODE_NONE || (marks->mark[node] & mark) != 0)
        return;
    marks->mark[node] |= (uint8_t)mark;
    marks->work[marks->work_count++] = node;
}

// Whether the function that holds addr has a store-exclusive: not read well enough to be sure.
static bool has_store(struct tl_analysis *analysis, tl_addr addr)
{
    uint32_t function = tl_function_at(analysis, addr);
    struct graph *graph;
    if (function == FUNCTION_NONE || tl_code_function(analysis, function) != 0 ||
        tl_graph_create(analysis, function, &graph) != 0)
        return true;
    bool found = false;
    for (uint32_t i = 0; i < graph->count && !found; i++)
        found = ends(&graph->node[i]);
    tl_graph_destroy(graph);
    return found;
}

// A jump to a function's start is a call that does not come back.
static bool is_called(const struct tl_analysis *analysis, tl_addr target)
{
    uint32_t start = tl_function_starting(analysis, target);
    return start != FUNCTION_NONE && analysis->facts.functions[start].symbol &&
           !analysis->facts.functions[start].part;
}

// Whether an exclusive that is open may be closed where this jump out of the function leads.
static bool stays_open(const struct marks *marks, tl_addr target)
{
    return !is_called(marks->analysis, target) && has_store(marks->analysis, target);
}

// Ways out of the function.
static bool leaves_open(const struct marks *marks, const struct node *node)
{
    bool jumps = node->flow == TL_FLOW_COND || node->flow == TL_FLOW_JUMP;
    bool runs_out = (node->flow == TL_FLOW_COND || node->flow == TL_FLOW_NEXT) &&
                    node->next == NODE_NONE;
    if (runs_out && has_store(marks->analysis, node->addr + node->size))
        return true;
    return jumps && node->to == NODE_NONE && stays_open(marks, node->target);
}

// Where an indirect jump leads that is the second half of a branch farther than one instruction reaches: right
// behind the one that makes the address, with no other way there. false: it is none.
static bool far_target(const struct marks *marks, uint32_t at, tl_addr *target)
{
    const struct graph *graph = marks->graph;
    const struct tl_arch *arch = marks->analysis->arch;
    const struct node *node = &graph->node[at];
    struct tl_insn jump, half;
    struct tl_definition goal, part;
    if (at == 0 || graph->node[at - 1].next != at || graph->node[at - 1].flow != TL_FLOW_NEXT ||
        graph->pred_first[at + 1] - graph->pred_first[at] != 1 ||
        tl_is_entered(marks->analysis, node->addr) ||
        !tl_decode_at(marks->analysis, node->addr, true, &jump) ||
        !tl_decode_at(marks->analysis, graph->node[at - 1].addr, true, &half))
        return false;
    arch->define(&jump, TL_DEF_REG_NONE, &goal);
    if ((goal.kind != TL_DEF_COPY && goal.kind != TL_DEF_SUM) || goal.a == TL_DEF_REG_NONE ||
        goal.b != TL_DEF_REG_NONE)
        return false;
    arch->define(&half, goal.a, &part);
    *target = part.value + (goal.kind == TL_DEF_SUM ? goal.value : 0);
    return part.kind == TL_DEF_ADDR;
}

static void in_follow(struct marks *marks, uint32_t at)
{
    const struct node *node = &marks->graph->node[at];
    if (ends(node))
        return;
    mark_set(marks, node->next, IN);
    mark_set(marks, node->to, IN);
    marks->lost = marks->lost || leaves_open(marks, node);
    if (node->flow != TL_FLOW_IJUMP)
        return;
    tl_addr far;
    if (far_target(marks, at, &far)) {
        uint32_t to = tl_graph_find(marks->graph, far);
        mark_set(marks, to, IN);
        marks->jumps = marks->jumps || to != NODE_NONE; // no predecessor there knows of it
        marks->lost = marks->lost || (to == NODE_NONE && stays_open(marks, far));
        return;
    }
    const struct jump *jump = tl_jump_at(marks->analysis, node->addr);
    marks->jumps = marks->jumps || jump == NULL || !jump->resolved;
    for (size_t i = 0; jump != NULL && i < jump->count; i++)
        mark_set(marks,
                 tl_graph_find(marks->graph, marks->analysis->jump_targets.item[jump->first + i]), IN);
}

static void in_fill(struct marks *marks)
{
    for (uint32_t i = 0; i < marks->graph->count; i++)
        if (begins(&marks->graph->node[i])) {
            mark_set(marks, marks->graph->node[i].next, IN);
            mark_set(marks, marks->graph->node[i].to, IN);
        }
    while (marks->work_count > 0)
        in_follow(marks, marks->work[--marks->work_count]);
}

static void to_follow(struct marks *marks)
{
    const struct graph *graph = marks->graph;
    while (marks->work_count > 0) {
        uint32_t at = marks->work[--marks->work_count];
        for (uint32_t i = graph->pred_first[at]; i < graph->pred_first[at + 1]; i++)
            if (!begins(&graph->node[graph->pred[i]]))
                mark_set(marks, graph->pred[i], TO);
    }
}

// Backwards from the stores.
static void to_fill(struct marks *marks)
{
    for (uint32_t i = 0; i < marks->graph->count; i++)
        if (ends(&marks->graph->node[i]))
            mark_set(marks, i, TO);
    to_follow(marks);
}

// Who may come in before a store from where nobody looked: an exclusive may be open there.
static bool enters(const struct marks *marks, uint32_t node)
{
    const struct graph *graph = marks->graph;
    return (marks->mark[node] & TO) != 0 &&
           (graph->pred_first[node] == graph->pred_first[node + 1] ||
            tl_is_entered(marks->analysis, graph->node[node].addr));
}

// An address that the code takes, and may jump to.
static bool is_taken(const struct tl_analysis *analysis, tl_addr addr)
{
    for (size_t i = 0; i < analysis->leas.count; i++)
        if (analysis->leas.item[i] == addr)
            return true;
    return false;
}

// A store-exclusive in bytes that no known way leads to.
static bool hides_store(const struct marks *marks)
{
    const struct tl_extent *extent = &marks->analysis->facts.functions[marks->graph->function];
    struct tl_insn insn;
    for (uint64_t off = 0; off < extent->size; off += marks->analysis->arch->insn_align)
        if (!tl_code_starts(marks->analysis, extent->vaddr + off) &&
            tl_decode_at(marks->analysis, extent->vaddr + off, true, &insn) &&
            (insn.flags & TL_INSN_EXCLUSIVE_STORE) != 0)
            return true;
    return false;
}

static void open_fill(struct marks *marks)
{
    const struct graph *graph = marks->graph;
    marks->lost = marks->lost || (marks->jumps && hides_store(marks));
    for (uint32_t i = 0; i < graph->count; i++) {
        bool taken = marks->jumps && (marks->mark[i] & TO) != 0 &&
                     is_taken(marks->analysis, graph->node[i].addr);
        if (taken || enters(marks, i)) {
            marks->lost = marks->lost || marks->jumps;
            mark_set(marks, i, IN);
        }
    }
    while (marks->work_count > 0) {
        uint32_t at = marks->work[--marks->work_count];
        const struct node *node = &graph->node[at];
        if (ends(node) || (marks->mark[at] & TO) == 0)
            continue;
        mark_set(marks, node->next, IN);
        mark_set(marks, node->to, IN);
    }
}

// Tables' edges are not among the predecessors: a jump with an exclusive open is a way to a store.
static void jumps_fill(struct marks *marks)
{
    tl_addr far;
    for (uint32_t i = 0; i < marks->graph->count; i++)
        if (marks->graph->node[i].flow == TL_FLOW_IJUMP && (marks->mark[i] & IN) != 0 &&
            (!far_target(marks, i, &far) || tl_graph_find(marks->graph, far) != NODE_NONE))
            mark_set(marks, i, TO);
    to_follow(marks);
}

int tl_exclusive_mark(struct tl_analysis *analysis, struct graph *graph)
{
    bool any = false, stores = false;
    for (uint32_t i = 0; i < graph->count; i++) {
        any = any || begins(&graph->node[i]) || ends(&graph->node[i]);
        stores = stores || ends(&graph->node[i]);
    }
    if (!any)
        return 0;
    struct marks marks = {.analysis = analysis, .graph = graph};
    int status = tl_graph_link_back(graph);
    marks.mark = calloc((size_t)graph->count + 1, sizeof(*marks.mark));
    marks.work = calloc((size_t)graph->count + 1, sizeof(*marks.work));
    if (marks.mark == NULL || marks.work == NULL)
        status = TL_E_NOMEM;
    if (status == 0) {
        in_fill(&marks);
        to_fill(&marks);
        open_fill(&marks);
        if (stores)
            jumps_fill(&marks);
        for (uint32_t i = 0; i < graph->count; i++) {
            struct node *node = &graph->node[i];
            node->exclusive = begins(node) || ends(node) || marks.mark[i] == BOTH ||
                              (marks.lost && (marks.mark[i] & IN) != 0);
        }
    }
    free(marks.mark);
    free(marks.work);
    return status;
}

// Code that no function owns has no graph: an exclusive anywhere near it is too near.
static bool gap_has(const struct tl_analysis *analysis, tl_addr addr)
{
    const unsigned step = analysis->arch->insn_align;
    struct tl_insn insn;
    for (int side = -1; side <= 1; side += 2) {
        for (tl_addr at = addr; tl_region_at(analysis, at) != NULL &&
                                tl_function_at(analysis, at) == FUNCTION_NONE;
             at += (tl_addr)(side * (int)step)) {
            if (tl_code_starts(analysis, at) && tl_decode_at(analysis, at, true, &insn) &&
                (insn.flags & (TL_INSN_EXCLUSIVE_LOAD | TL_INSN_EXCLUSIVE_STORE)) != 0)
                return true;
        }
    }
    return false;
}

bool tl_is_exclusive(struct tl_analysis *analysis, tl_addr addr, uint32_t function)
{
    if (analysis->arch->insn_align == 1)
        return false; // x86-64 has none
    if (function == FUNCTION_NONE)
        return gap_has(analysis, addr);
    const struct graph *graph = tl_flow_graph(analysis, function);
    uint32_t node = graph == NULL ? NODE_NONE : tl_graph_find(graph, addr);
    return node == NODE_NONE || graph->node[node].exclusive; // too large to be followed: anything
}

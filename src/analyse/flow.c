// Live registers by backward data flow over a function. Knows no calling convention: at returns,
// indirect exits and calls of unknown code everything is live; a direct call or jump into a known
// function needs what that function may read first, followed at most FLOW_DEPTH_MAX functions deep.
// Keeps: a register is reported dead only if every path writes it whole before any instruction
// reads it.
#include "analyse/graph.h"

#include <stdlib.h>

#define FLOW_ALL (TL_REGSET_GENERAL | TL_REGSET_EACH_FLAG) // more than any ISA has: they are never dead
#define FLOW_PASSES_MAX 64

static tl_regset live_at(struct tl_analysis *analysis, tl_addr addr, unsigned depth);

// What is live where a jump found by tables may lead.
static tl_regset live_behind_jump(struct tl_analysis *analysis, const struct graph *graph,
                                  const struct node *node)
{
    const struct jump *jump = tl_jump_at(analysis, node->addr);
    if (jump == NULL || !jump->resolved)
        return FLOW_ALL;
    tl_regset live = 0;
    for (size_t i = 0; i < jump->count && live != FLOW_ALL; i++) {
        uint32_t to = tl_graph_find(graph, analysis->jump_targets.item[jump->first + i]);
        live |= to == NODE_NONE ? FLOW_ALL : graph->node[to].live;
    }
    return live;
}

// Registers live just behind node, along all its ways on. *stable: false if they come from nodes
// and may still grow; else they need be computed only once.
static tl_regset live_behind(struct tl_analysis *analysis, const struct graph *graph,
                             const struct node *node, unsigned depth)
{
    tl_regset live = 0;
    switch (node->flow) {
    case TL_FLOW_COND:
    case TL_FLOW_NEXT:
        live = node->next != NODE_NONE ? graph->node[node->next].live
                                       : live_at(analysis, node->addr + node->size, depth);
        if (node->flow == TL_FLOW_NEXT)
            return live;
        __attribute__((fallthrough));
    case TL_FLOW_JUMP:
        return live | (node->to != NODE_NONE ? graph->node[node->to].live
                                             : live_at(analysis, node->target, depth));
    case TL_FLOW_CALL:
        return live_at(analysis, node->target, depth);
    case TL_FLOW_IJUMP:
        return live_behind_jump(analysis, graph, node);
    default:
        return FLOW_ALL;
    }
}

static void graph_solve(struct tl_analysis *analysis, struct graph *graph, unsigned depth)
{
    bool changed = true;
    for (unsigned pass = 0; changed; pass++) {
        changed = false;
        for (uint32_t i = graph->count; i-- > 0;) {
            struct node *node = &graph->node[i];
            tl_regset live = (live_behind(analysis, graph, node, depth) & ~node->written) |
                             (node->read & FLOW_ALL);
            if (pass >= FLOW_PASSES_MAX) // will not settle in time: everything is live
                live = FLOW_ALL;
            if ((live | node->live) != node->live) {
                node->live |= live;
                changed = true;
            }
        }
    }
}

// The solved graph of a function. Owned by the cache; valid until the next call.
static const struct graph *graph_solved(struct tl_analysis *analysis, uint32_t function,
                                        unsigned depth)
{
    struct graph *graph;
    for (unsigned i = 0; i < FLOW_CACHE_SIZE; i++)
        if (analysis->flow_cache[i].graph != NULL && analysis->flow_cache[i].depth >= depth &&
            analysis->flow_cache[i].function == function)
            return analysis->flow_cache[i].graph;
    if (tl_code_function(analysis, function) != 0 ||
        tl_graph_create(analysis, function, &graph) != 0)
        return NULL;
    if (tl_exclusive_mark(analysis, graph) != 0) {
        tl_graph_destroy(graph);
        return NULL;
    }
    analysis->function[function].busy = true;
    graph_solve(analysis, graph, depth);
    analysis->function[function].busy = false;
    unsigned slot = analysis->flow_next++ % FLOW_CACHE_SIZE;
    tl_graph_destroy(analysis->flow_cache[slot].graph);
    analysis->flow_cache[slot].graph = graph;
    analysis->flow_cache[slot].function = function;
    analysis->flow_cache[slot].depth = depth;
    return graph;
}

// depth: how many more functions may be entered.
static tl_regset live_at(struct tl_analysis *analysis, tl_addr addr, unsigned depth)
{
    uint32_t function = tl_function_at(analysis, addr);
    if (function == FUNCTION_NONE || depth == 0 || analysis->function[function].busy)
        return FLOW_ALL;
    bool entry = analysis->facts.functions[function].vaddr == addr;
    if (entry && analysis->function[function].live_depth >= depth)
        return analysis->function[function].entry_live;
    const struct graph *graph = graph_solved(analysis, function, depth - 1);
    uint32_t node = graph == NULL ? NODE_NONE : tl_graph_find(graph, addr);
    tl_regset live = node == NODE_NONE ? FLOW_ALL : graph->node[node].live;
    if (entry) {
        analysis->function[function].entry_live = live;
        analysis->function[function].live_depth = (uint8_t)depth;
    }
    return live;
}

const struct graph *tl_flow_graph(struct tl_analysis *analysis, uint32_t function)
{
    return graph_solved(analysis, function, FLOW_DEPTH_MAX);
}

tl_regset tl_flow_live(struct tl_analysis *analysis, tl_addr addr)
{
    return live_at(analysis, addr, FLOW_DEPTH_MAX + 1);
}

void tl_flow_forget(struct tl_analysis *analysis)
{
    for (unsigned i = 0; i < FLOW_CACHE_SIZE; i++) {
        tl_graph_destroy(analysis->flow_cache[i].graph);
        analysis->flow_cache[i].graph = NULL;
    }
    for (size_t i = 0; analysis->function != NULL && i < analysis->facts.function_count; i++)
        analysis->function[i].live_depth = 0;
}

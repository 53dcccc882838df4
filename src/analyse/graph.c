// Builds the control flow graph of one function from the start bits. Decodes nothing that is not
// known code. Keeps: nodes are in address order, and an edge exists only where both ends are nodes.
#include "analyse/graph.h"

#include <stdlib.h>

uint32_t tl_graph_find(const struct graph *graph, tl_addr addr)
{
    uint32_t low = 0, high = graph->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (graph->node[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low < graph->count && graph->node[low].addr == addr ? low : NODE_NONE;
}

static int nodes_fill(const struct tl_analysis *analysis, const struct region *region, tl_addr low,
                      tl_addr high, struct graph *graph)
{
    uint32_t capacity = 0;
    for (tl_addr addr = low; addr < high; addr++) {
        size_t off = addr - region->vaddr;
        if (off % 64 == 0 && region->start[off / 64] == 0) {
            addr += 63; // nothing starts in these 64 bytes
            continue;
        }
        if (!bit_get(region->start, off))
            continue;
        struct tl_insn insn;
        if (!tl_decode_at(analysis, addr, false, &insn))
            continue;
        if (graph->count == capacity) {
            if (capacity >= GRAPH_NODES_MAX)
                return TL_E_LIMIT;
            capacity = capacity == 0 ? 64 : capacity * 2;
            struct node *node = reallocarray(graph->node, capacity, sizeof(*node));
            if (node == NULL)
                return TL_E_NOMEM;
            graph->node = node;
        }
        graph->node[graph->count++] = (struct node){.addr = addr,
                                                    .target = insn.target,
                                                    .next = NODE_NONE,
                                                    .to = NODE_NONE,
                                                    .read = insn.read,
                                                    .written = insn.written,
                                                    .flags = insn.flags,
                                                    .size = insn.size,
                                                    .flow = insn.flow};
    }
    return 0;
}

static void edges_fill(struct graph *graph)
{
    for (uint32_t i = 0; i < graph->count; i++) {
        struct node *node = &graph->node[i];
        tl_addr behind = node->addr + node->size;
        if (node->flow == TL_FLOW_NEXT || node->flow == TL_FLOW_COND ||
            node->flow == TL_FLOW_CALL || node->flow == TL_FLOW_ICALL)
            node->next = i + 1 < graph->count && graph->node[i + 1].addr == behind
                             ? i + 1
                             : tl_graph_find(graph, behind);
        if (node->flow == TL_FLOW_COND || node->flow == TL_FLOW_JUMP)
            node->to = tl_graph_find(graph, node->target);
    }
}

int tl_graph_create(const struct tl_analysis *analysis, uint32_t function, struct graph **out)
{
    const struct tl_extent *extent = &analysis->facts.functions[function];
    const struct region *region = tl_region_at(analysis, extent->vaddr);
    struct graph *graph = calloc(1, sizeof(*graph));
    if (graph == NULL)
        return TL_E_NOMEM;
    graph->function = function;
    int status = 0;
    if (region != NULL) {
        tl_addr high = region->vaddr + region->size;
        if (extent->vaddr + extent->size < high)
            high = extent->vaddr + extent->size;
        status = nodes_fill(analysis, region, extent->vaddr, high, graph);
    }
    if (status != 0) {
        tl_graph_destroy(graph);
        return status;
    }
    edges_fill(graph);
    *out = graph;
    return 0;
}

int tl_graph_link_back(struct graph *graph)
{
    if (graph->pred_first != NULL)
        return 0;
    uint32_t *first = calloc((size_t)graph->count + 2, sizeof(*first));
    uint32_t *pred = calloc((size_t)graph->count * 2 + 1, sizeof(*pred));
    if (first == NULL || pred == NULL) {
        free(first);
        free(pred);
        return TL_E_NOMEM;
    }
    for (uint32_t i = 0; i < graph->count; i++) {
        if (graph->node[i].next != NODE_NONE)
            first[graph->node[i].next + 2]++;
        if (graph->node[i].to != NODE_NONE)
            first[graph->node[i].to + 2]++;
    }
    for (uint32_t i = 2; i < graph->count + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < graph->count; i++) {
        if (graph->node[i].next != NODE_NONE)
            pred[first[graph->node[i].next + 1]++] = i;
        if (graph->node[i].to != NODE_NONE)
            pred[first[graph->node[i].to + 1]++] = i;
    }
    graph->pred_first = first;
    graph->pred = pred;
    return 0;
}

void tl_graph_destroy(struct graph *graph)
{
    if (graph == NULL)
        return;
    free(graph->node);
    free(graph->pred_first);
    free(graph->pred);
    tl_addr_list_deinit(&graph->taken);
    free(graph);
}

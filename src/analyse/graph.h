// The control flow graph of one function, instruction by instruction.
#ifndef TL_ANALYSE_GRAPH_H
#define TL_ANALYSE_GRAPH_H

#include "analyse/analysis.h"

#define NODE_NONE UINT32_MAX
#define GRAPH_NODES_MAX (1u << 20)

struct node {
    tl_addr addr;
    tl_addr target; // of a direct branch or call, or of a pc-relative operand
    uint32_t next;  // node behind it, or NODE_NONE
    uint32_t to;    // node of a direct jump's target, or NODE_NONE
    tl_regset read, written;
    tl_regset live; // flow.c: just before it
    uint16_t flags;
    uint8_t size, flow;
    bool exclusive; // exclusive.c: between a load- and a store-exclusive, or one of them
};

struct graph {
    uint32_t function;
    struct node *node; // by address
    uint32_t count;
    // Predecessors by next and to: pred[pred_first[n] .. pred_first[n + 1]). NULL until asked for.
    uint32_t *pred_first, *pred;
    struct addr_list taken; // tables.c: addresses that it takes, once taken_known
    bool taken_known;
};

// TL_E_NOMEM, or TL_E_LIMIT when the function is too large.
int tl_graph_create(const struct tl_analysis *analysis, uint32_t function, struct graph **out);
int tl_graph_link_back(struct graph *graph);
void tl_graph_destroy(struct graph *graph);
uint32_t tl_graph_find(const struct graph *graph, tl_addr addr); // or NODE_NONE

#endif

// What the files of this stage share. Nothing outside it includes this.
#ifndef TL_ANALYSE_ANALYSIS_H
#define TL_ANALYSE_ANALYSIS_H

#include "analyse/analyse.h"
#include "arch/arch.h"

#define FUNCTION_NONE UINT32_MAX

// Growing list of addresses. Zeroed is empty.
struct addr_list {
    tl_addr *item;
    size_t count, capacity;
};
int tl_addr_list_push(struct addr_list *list, tl_addr addr);           // TL_E_NOMEM
void tl_addr_list_sort(struct addr_list *list);                        // and drops repeats
size_t tl_addr_list_lower(const struct addr_list *list, tl_addr addr); // first item >= addr
void tl_addr_list_deinit(struct addr_list *list);

// One run of text, with four bits for each byte.
//
//   bytes    55 48 89 e5 c3 90 90 | 53
//   start     1  1  0  0  1  0  0 |  1   a decoded instruction starts here
//   body      1  1  1  1  1  0  0 |  1   the byte belongs to a decoded instruction
//   barrier   1  0  0  0  0  0  0 |  1   control flow or a data reference may arrive here
//   entered   1  0  0  0  0  0  0 |  0   ... and not only by direct branches and calls
struct region {
    tl_addr vaddr;
    const uint8_t *bytes;
    size_t size;
    uint64_t *start, *body, *barrier, *entered;
};

static inline bool bit_get(const uint64_t *map, size_t index)
{
    return (map[index / 64] >> (index % 64) & 1) != 0;
}

static inline void bit_set(uint64_t *map, size_t index)
{
    map[index / 64] |= (uint64_t)1 << (index % 64);
}

struct function_state {
    tl_addr reach;        // highest end of this function and all before it
    uint32_t group;       // functions whose code leads into each other's middle: union-find parent
    bool decoded;         // all that direct control flow reaches from its start and pads
    uint32_t jumps;       // indirect jumps in it
    bool called;          // its start is called, or its address is taken
    bool unproved;        // an indirect jump of it may lead anywhere
    bool bad;             // control flow ran into bytes that are no instruction
    bool busy;            // its data flow is being computed
    uint8_t live_depth;   // 1 + depth that entry_live was computed with; 0: not yet
    tl_regset entry_live; // registers and single flags live at its start
};

// An indirect jump and where it may lead.
struct jump {
    tl_addr addr;
    uint32_t function;
    bool done;
    bool resolved;       // by tables: targets are all it may reach; else: a pointer, or unknown
    size_t first, count; // in jump_targets
};

// A jump through a table, and a place in the same function that it leads to.
struct edge {
    tl_addr from, to;
    uint32_t function;
    uint32_t before; // as edge_last: the next one of the chain
};
#define EDGE_CHAINS 4096

// A branch, or falling through, from code of one function into another's.
struct crossing {
    tl_addr from, to;
};

struct graph; // graph.h

#define FLOW_CACHE_SIZE 8

struct tl_analysis {
    struct tl_module_facts facts;
    const struct tl_arch *arch;
    struct region *region;
    size_t region_count;
    struct function_state *function;
    struct addr_list pointers, pads;
    struct addr_list leas; // addresses taken by the code; the first leas_sorted are in order
    size_t leas_sorted;
    struct addr_list reads;   // what the code reads, where it is the start of an untyped function
    struct addr_list pending; // targets outside the function that named them
    struct crossing *crossing; // sorted by `to` when module_done
    size_t crossing_count, crossing_capacity;
    struct addr_list gaps;    // where a call at a function's end would return to
    struct jump *jump;        // sorted by address when module_done
    size_t jump_count, jump_capacity;
    struct addr_list jump_targets;
    struct edge *edge;
    size_t edge_count, edge_capacity;
    uint32_t edge_last[EDGE_CHAINS]; // by where it leads: 1 + index of the last edge, or 0
    size_t code_count;        // instructions decoded so far
    struct graph *jump_graph; // tables.c: of the function looked at last, when code_count was ...
    size_t jump_graph_count;
    struct tl_range *padding;
    size_t padding_count;
    bool module_done;
    bool lazy; // see tl_analysis_set_lazy
    struct {
        uint32_t function;
        unsigned depth;
        struct graph *graph;
    } flow_cache[FLOW_CACHE_SIZE];
    unsigned flow_next;
};

// analysis.c: looking things up
struct region *tl_region_at(const struct tl_analysis *analysis, tl_addr addr);
uint32_t tl_function_at(const struct tl_analysis *analysis, tl_addr addr); // innermost, or NONE
uint32_t tl_function_starting(const struct tl_analysis *analysis, tl_addr addr); // or NONE
bool tl_code_starts(const struct tl_analysis *analysis, tl_addr addr);
bool tl_is_barrier(const struct tl_analysis *analysis, tl_addr addr);
bool tl_is_entered(const struct tl_analysis *analysis, tl_addr addr);
// Outside text: ignored. Entered is a barrier too.
void tl_set_barrier(struct tl_analysis *analysis, tl_addr addr);
void tl_set_entered(struct tl_analysis *analysis, tl_addr addr);
void tl_set_called(struct tl_analysis *analysis, tl_addr addr); // if a function starts there
// The instruction start before addr whose bytes reach beyond it, or 0.
tl_addr tl_code_covering(const struct tl_analysis *analysis, tl_addr addr);
// A signal-return trampoline starts at addr.
bool tl_is_sigreturn(const struct tl_analysis *analysis, tl_addr addr);
// Data inside the text, as far as mapping symbols say.
bool tl_is_literal(const struct tl_analysis *analysis, tl_addr addr);
// Whether an instruction can start here at all.
bool tl_may_start(const struct tl_analysis *analysis, tl_addr addr);
// The instruction that ends right where addr starts and falls through to it; 0: none, or not one.
tl_addr tl_code_before(const struct tl_analysis *analysis, tl_addr addr);
bool tl_decode_at(const struct tl_analysis *analysis, tl_addr addr, bool skim, struct tl_insn *out);
bool tl_in_ranges(const struct tl_range *range, size_t count, tl_addr start, tl_addr end);
uint32_t tl_group_of(struct tl_analysis *analysis, uint32_t function);
void tl_group_join(struct tl_analysis *analysis, uint32_t one, uint32_t two);
bool tl_group_unproved(struct tl_analysis *analysis, uint32_t function);
void tl_group_set_unproved(struct tl_analysis *analysis, uint32_t function);

// code.c: which bytes are code
int tl_code_function(struct tl_analysis *analysis, uint32_t function); // direct control flow only
// All of one function that can be found without the module, or else the module.
int tl_code_complete(struct tl_analysis *analysis, uint32_t function);
int tl_code_module(struct tl_analysis *analysis);
// Decodes what direct control flow reaches from addr. trial: only if that agrees with its function
// and with the code that is known.
int tl_code_flood(struct tl_analysis *analysis, tl_addr addr, bool trial);

// entry.c
bool tl_is_go(const struct tl_analysis *analysis, tl_addr addr);
tl_addr tl_entry_landing(const struct tl_analysis *analysis, tl_addr vaddr); // behind endbr64, bti

// exclusive.c: marks what lies between load- and store-exclusives in a graph
int tl_exclusive_mark(struct tl_analysis *analysis, struct graph *graph);
bool tl_is_exclusive(struct tl_analysis *analysis, tl_addr addr, uint32_t function);

// crossings.c: who comes from elsewhere
int tl_crossing_add(struct tl_analysis *analysis, tl_addr from, tl_addr to);
int tl_crossings_finish(struct tl_analysis *analysis); // adds what tables hold, sorts
size_t tl_crossings_lower(const struct tl_analysis *analysis, tl_addr to); // first with .to >= to

// tables.c: where an indirect jump leads; decodes that. jump is a copy: the array may move.
int tl_tables_resolve(struct tl_analysis *analysis, struct jump *jump, bool bounded_only);
void tl_tables_forget(struct tl_analysis *analysis);
// The jump at addr, or NULL.
const struct jump *tl_jump_at(const struct tl_analysis *analysis, tl_addr addr);

// padding.c
int tl_padding_find(struct tl_analysis *analysis);
bool tl_padding_at(const struct tl_analysis *analysis, tl_addr addr, struct tl_range *out);

// flow.c: live registers and single flags just before addr; all of them where unknown.
#define FLOW_DEPTH_MAX 2 // a third level was measured to find nothing more in libc and redis
tl_regset tl_flow_live(struct tl_analysis *analysis, tl_addr addr);
// The function's graph, solved. Owned by the cache; valid until the next call. NULL: can't be had.
const struct graph *tl_flow_graph(struct tl_analysis *analysis, uint32_t function);
void tl_flow_forget(struct tl_analysis *analysis);

#endif

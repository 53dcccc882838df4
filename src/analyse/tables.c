// Where indirect jumps lead. Only jumps whose target is computed from a table of offsets need their
// table: whole pointers come from relocations, data words, lea or calls, which are barriers
// already. Does not trust a shape that it can't follow: the function is then unproved. Keeps: a
// jump counts as resolved only if every way its target can be computed was followed to tables whose
// entries all were read.
#include "analyse/graph.h"

#include <stdlib.h>
#include <string.h>

#define TABLE_ENTRIES_MAX 65536
#define CANDIDATES_MAX 256 // addresses that may be a table or a base, for one jump
#define REACH_DEFS_MAX 64
#define COMPARE_STEPS_MAX 8 // instructions between a compare and its branch
#define BOUND_STEPS_MAX 24 // instructions between a bounds check and the load
#define FOREIGN_MAX 64     // entries in a row that are none of the function's own
#define OFFSET_SIZE 4      // bytes of a table entry that needs no shift
#define SUM_DEPTH_MAX 3    // additions followed to find a constant
#define REG_COUNT 32u

struct definition_at {
    uint32_t node;
    struct tl_definition def;
};

// What may have defined a register.
struct reach {
    struct definition_at item[REACH_DEFS_MAX];
    uint32_t count;
    bool outside; // or the function's caller, or an exception's unwinder
};

struct search {
    struct tl_analysis *analysis;
    struct graph *graph;
    uint32_t *seen;        // for each node, registers already asked for
    struct addr_list work; // node << 8 | register
};

struct candidates {
    tl_addr item[CANDIDATES_MAX];
    size_t count;
    bool overflow;
};

static bool is_plain_pointer(const struct tl_definition *def)
{
    return def->kind == TL_DEF_POINTER && def->size == 0;
}

static int ask(struct search *search, uint32_t node, unsigned reg)
{
    if (reg >= REG_COUNT)
        return TL_E_LIMIT;
    if ((search->seen[node] >> reg & 1) != 0)
        return 0;
    search->seen[node] |= 1u << reg;
    return tl_addr_list_push(&search->work, (uint64_t)node << 8 | reg);
}

// Whether the registers' sets say that reg is left as it was.
static bool keeps(const struct tl_arch *arch, const struct node *node, unsigned reg)
{
    return arch->sets_are_whole && reg < REG_COUNT &&
           ((node->read | node->written) >> reg & 1) == 0 && node->flow != TL_FLOW_CALL &&
           node->flow != TL_FLOW_ICALL && (node->flags & TL_INSN_SYSCALL) == 0;
}

static void define(const struct search *search, uint32_t node, unsigned reg,
                   struct tl_definition *def)
{
    const struct tl_arch *arch = search->analysis->arch;
    const struct node *at = &search->graph->node[node];
    struct tl_insn insn;
    *def = (struct tl_definition){.kind = TL_DEF_OTHER};
    if (keeps(arch, at, reg))
        def->kind = TL_DEF_KEEP;
    else if (tl_decode_at(search->analysis, at->addr, true, &insn))
        arch->define(&insn, reg, def);
}

// One definition met on the way back: followed, or kept as a result.
static int reach_step(struct search *search, uint32_t node, unsigned reg, struct reach *out)
{
    struct tl_definition def;
    define(search, node, reg, &def);
    int status = 0;
    switch (def.kind) {
    case TL_DEF_KEEP:
        return ask(search, node, reg);
    case TL_DEF_COPY:
        return ask(search, node, def.a);
    case TL_DEF_EITHER:
        status = ask(search, node, reg);
        return status != 0 ? status : ask(search, node, def.a);
    case TL_DEF_PICK:
        status = ask(search, node, def.a);
        return status != 0 ? status : ask(search, node, def.b);
    default:
        if (out->count == REACH_DEFS_MAX)
            return TL_E_LIMIT;
        out->item[out->count++] = (struct definition_at){node, def};
        return 0;
    }
}

static bool in_list(const struct addr_list *list, tl_addr addr)
{
    size_t at = tl_addr_list_lower(list, addr);
    return at < list->count && list->item[at] == addr;
}

static unsigned edge_chain(tl_addr to)
{
    return (unsigned)(to / 2 % EDGE_CHAINS); // code of two instruction sets is at even addresses
}

// Goes on before the jumps whose tables lead here. *outside: somebody else may come here too.
static int ask_jumps(struct search *search, uint32_t node, unsigned reg, bool *outside)
{
    const struct tl_analysis *analysis = search->analysis;
    tl_addr addr = search->graph->node[node].addr;
    bool found = false;
    int status = 0;
    for (uint32_t i = analysis->edge_last[edge_chain(addr)]; i != 0 && status == 0;
         i = analysis->edge[i - 1].before) {
        const struct edge *edge = &analysis->edge[i - 1];
        bool here = edge->to == addr && edge->function == search->graph->function;
        uint32_t from = here ? tl_graph_find(search->graph, edge->from) : NODE_NONE;
        if (from == NODE_NONE)
            continue;
        found = true;
        status = ask(search, from, reg);
    }
    *outside = !found || node == 0 || in_list(&analysis->pointers, addr) ||
               in_list(&analysis->pads, addr);
    return status;
}

// All definitions of reg that reach the point just before node.
static int reach(struct search *search, uint32_t node, unsigned reg, struct reach *out)
{
    const struct graph *graph = search->graph;
    memset(search->seen, 0, graph->count * sizeof(*search->seen));
    search->work.count = 0;
    out->count = 0;
    out->outside = false;
    int status = ask(search, node, reg);
    while (status == 0 && search->work.count > 0) {
        uint64_t item = search->work.item[--search->work.count];
        uint32_t at = (uint32_t)(item >> 8);
        uint32_t first = graph->pred_first[at], end = graph->pred_first[at + 1];
        bool outside = first == end || at == 0;
        if (outside || tl_is_entered(search->analysis, graph->node[at].addr))
            status = ask_jumps(search, at, (unsigned)(item & 0xff), &outside);
        out->outside = out->outside || outside;
        for (uint32_t i = first; i < end && status == 0; i++)
            status = reach_step(search, graph->pred[i], (unsigned)(item & 0xff), out);
    }
    return status;
}

static void candidate_add(struct candidates *list, tl_addr addr)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->item[i] == addr)
            return;
    if (list->count == CANDIDATES_MAX)
        list->overflow = true;
    else
        list->item[list->count++] = addr;
}

// Every address that the function takes, in the order of its code; looked for once.
static int taken_find(struct search *search)
{
    const struct tl_arch *arch = search->analysis->arch;
    struct graph *graph = search->graph;
    tl_addr part[TL_ADDRESS_PARTS] = {0};
    int status = 0;
    for (uint32_t i = 0; status == 0 && !graph->taken_known && i < graph->count; i++) {
        const struct node *taker = &graph->node[i];
        struct tl_insn insn;
        tl_addr taken = taker->target;
        bool takes = (taker->flags & TL_INSN_PCREL_LEA) != 0;
        if (arch->address != NULL)
            takes = tl_decode_at(search->analysis, taker->addr, true, &insn) &&
                    arch->address(&insn, part, &taken);
        if (takes)
            status = tl_addr_list_push(&graph->taken, taken);
    }
    graph->taken_known = status == 0;
    return status;
}

// What reg may hold as a constant address before node. *exact: it holds nothing else. An address may
// be made of a page and a constant that is added.
static int constants_deep(struct search *search, uint32_t node, unsigned reg, tl_addr plus,
                          unsigned depth, struct candidates *out, bool *exact)
{
    struct reach found;
    int status = reach(search, node, reg, &found);
    *exact = status == 0 && !found.outside && found.count > 0;
    if (status != 0 && status != TL_E_LIMIT)
        return status;
    for (uint32_t i = 0; i < found.count; i++) {
        const struct tl_definition *def = &found.item[i].def;
        bool inner = false;
        if (def->kind == TL_DEF_ADDR) {
            candidate_add(out, def->value + plus);
            continue;
        }
        if (def->kind == TL_DEF_SUM && def->b == TL_DEF_REG_NONE && depth > 0) {
            status = constants_deep(search, found.item[i].node, def->a, def->value + plus,
                                    depth - 1, out, &inner);
            if (status != 0)
                return status;
        }
        *exact = *exact && inner;
    }
    return 0;
}

static int constants_exact(struct search *search, uint32_t node, unsigned reg, tl_addr plus,
                           struct candidates *out, bool *exact)
{
    return constants_deep(search, node, reg, plus, SUM_DEPTH_MAX, out, exact);
}

// The same; where it may hold something else, also every address that the function takes.
static int constants(struct search *search, uint32_t node, unsigned reg, tl_addr plus,
                     struct candidates *out)
{
    bool exact;
    int status = constants_exact(search, node, reg, plus, out, &exact);
    if (status == 0 && !exact)
        status = taken_find(search);
    for (size_t i = 0; status == 0 && !exact && i < search->graph->taken.count; i++)
        candidate_add(out, search->graph->taken.item[i] + plus);
    return status;
}

// The one sum of two registers that reg is before node, if it is nothing else: where loads add no register (riscv64),
// table and index are added before.
static int sum_before(struct search *search, uint32_t node, unsigned reg, struct definition_at *out)
{
    struct reach found;
    *out = (struct definition_at){.def = {.kind = TL_DEF_OTHER}};
    int status = reach(search, node, reg, &found);
    if (status != 0)
        return status == TL_E_LIMIT ? 0 : status;
    if (found.count == 1 && !found.outside && found.item[0].def.kind == TL_DEF_SUM &&
        found.item[0].def.b != TL_DEF_REG_NONE)
        *out = found.item[0];
    return 0;
}

// Where the table of a load may begin. Of two registers that are added, the one that holds only
// constants is the table and the other the index.
static int load_tables(struct search *search, uint32_t node, const struct tl_definition *load,
                       struct candidates *out)
{
    if (load->a == TL_DEF_REG_NONE && load->b == TL_DEF_REG_NONE) {
        candidate_add(out, load->value);
        return 0;
    }
    if (load->a != TL_DEF_REG_NONE && load->b == TL_DEF_REG_NONE) {
        struct definition_at sum;
        int status = sum_before(search, node, load->a, &sum);
        if (status != 0)
            return status;
        if (sum.def.kind == TL_DEF_SUM) {
            sum.def.value += load->value;
            return load_tables(search, sum.node, &sum.def, out);
        }
    }
    const unsigned regs[] = {load->a, load->b};
    for (unsigned i = 0; i < 2; i++) {
        struct candidates found = {0};
        bool exact;
        if (regs[i] == TL_DEF_REG_NONE)
            continue;
        int status = constants_exact(search, node, regs[i], load->value, &found, &exact);
        if (status != 0)
            return status;
        if (exact) {
            *out = found;
            return 0;
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        int status =
            regs[i] == TL_DEF_REG_NONE ? 0 : constants(search, node, regs[i], load->value, out);
        if (status != 0)
            return status;
    }
    return 0;
}

// Whether nothing between two nodes, in one straight run, changes reg.
static bool unchanged(const struct search *search, uint32_t from, uint32_t to, unsigned reg)
{
    for (uint32_t i = from; i < to; i++) {
        struct tl_definition def;
        if (search->graph->node[i].next != i + 1)
            return false;
        define(search, i, reg, &def);
        if (def.kind != TL_DEF_KEEP)
            return false;
    }
    return from <= to;
}

// The only node that leads to this one, by falling through or by a direct branch (*taken); NODE_NONE: there
// may be more.
static uint32_t only_before(const struct search *search, uint32_t node, bool *taken)
{
    const struct graph *graph = search->graph;
    *taken = false;
    if (node == 0)
        return NODE_NONE;
    if (graph->node[node - 1].next == node &&
        !tl_is_barrier(search->analysis, graph->node[node].addr))
        return node - 1;
    uint32_t first = graph->pred_first[node];
    if (graph->pred_first[node + 1] != first + 1 ||
        tl_is_entered(search->analysis, graph->node[node].addr))
        return NODE_NONE;
    uint32_t before = graph->pred[first];
    *taken = graph->node[before].next != node;
    return before;
}

// Whether reg before the node at `at` is the lowest `size` bytes of index, cut off in the straight run before.
static bool is_cut(const struct search *search, uint32_t at, unsigned reg, unsigned index,
                   unsigned size)
{
    const struct graph *graph = search->graph;
    struct tl_definition def, kept;
    for (unsigned step = 0; step < COMPARE_STEPS_MAX && size != 0; step++) {
        if (at == 0 || graph->node[at - 1].next != at ||
            tl_is_barrier(search->analysis, graph->node[at].addr))
            return false;
        at--;
        define(search, at, reg, &def);
        define(search, at, index, &kept);
        if (kept.kind != TL_DEF_KEEP)
            return false;
        if (def.kind != TL_DEF_KEEP)
            return def.kind == TL_DEF_COPY && def.a == index && def.size == size;
    }
    return false;
}

// The bound that a conditional branch proves, with what made the flags in the straight run before it.
// cut: only so many of the index's bytes count, if not 0.
static bool branch_bound(const struct search *search, uint32_t at, bool taken, unsigned index,
                         unsigned cut, uint64_t *count)
{
    const struct graph *graph = search->graph;
    struct tl_insn compare, branch;
    struct tl_definition def;
    unsigned reg;
    if (!search->analysis->arch->bound ||
        !tl_decode_at(search->analysis, graph->node[at].addr, true, &branch))
        return false;
    for (unsigned step = 0; step < COMPARE_STEPS_MAX; step++) {
        if (at == 0 || graph->node[at - 1].next != at ||
            tl_is_barrier(search->analysis, graph->node[at].addr))
            return false;
        at--;
        if ((graph->node[at].written & (TL_REGSET_EACH_FLAG | TL_REGSET_FLAGS)) != 0)
            break;
        define(search, at, index, &def);
        if (def.kind != TL_DEF_KEEP || graph->node[at].flow != TL_FLOW_NEXT)
            return false;
    }
    return tl_decode_at(search->analysis, graph->node[at].addr, true, &compare) &&
           search->analysis->arch->bound(&compare, &branch, taken, &reg, count) &&
           (reg == index || is_cut(search, at, reg, index, cut)) && *count <= TABLE_ENTRIES_MAX;
}

// The bound that an index has from the instruction that made it; 0: none.
static uint64_t made_bound(const struct search *search, uint32_t at, unsigned index)
{
    struct tl_insn insn;
    unsigned reg;
    uint64_t count;
    return tl_decode_at(search->analysis, search->graph->node[at].addr, true, &insn) &&
                   search->analysis->arch->below(&insn, &reg, &count) && reg == index &&
                   count <= TABLE_ENTRIES_MAX
               ? count
               : 0;
}

// The number of entries that a check or a mask before the load allows; 0: none found.
static uint64_t table_bound(const struct search *search, uint32_t node, unsigned index)
{
    unsigned cut = 0;
    for (unsigned step = 0; step < BOUND_STEPS_MAX && index < REG_COUNT; step++) {
        struct tl_definition def;
        uint64_t count;
        bool taken;
        // Only one way may lead here.
        uint32_t before = only_before(search, node, &taken);
        if (before == NODE_NONE)
            return 0;
        node = before;
        if (search->graph->node[node].flow == TL_FLOW_COND) {
            if (branch_bound(search, node, taken, index, cut, &count))
                return count;
            continue; // another check in between changes no register
        }
        define(search, node, index, &def);
        if (def.kind == TL_DEF_COPY) {
            index = def.a;
            cut = def.size != 0 ? def.size : cut;
        } else if (def.kind != TL_DEF_KEEP) {
            return made_bound(search, node, index);
        }
    }
    return 0;
}

static bool bytes_read(const struct tl_analysis *analysis, tl_addr addr, void *out, size_t size)
{
    for (size_t i = 0; i < analysis->facts.data_count; i++) {
        const struct tl_data *data = &analysis->facts.data[i];
        if (addr - data->vaddr < data->size && data->size - (addr - data->vaddr) >= size) {
            memcpy(out, data->bytes + (addr - data->vaddr), size);
            return true;
        }
    }
    const struct region *region = tl_region_at(analysis, addr);
    if (region == NULL || region->size - (addr - region->vaddr) < size)
        return false;
    memcpy(out, region->bytes + (addr - region->vaddr), size);
    return true;
}

// Where the next thing whose address is taken begins behind a table's start: of the addresses in
// order; table_end_new: of those found later, from `first` on.
static tl_addr table_end(const struct tl_analysis *analysis, tl_addr table)
{
    const struct addr_list sorted = {.item = analysis->leas.item, .count = analysis->leas_sorted};
    size_t next = tl_addr_list_lower(&sorted, table + 1);
    return next < sorted.count ? sorted.item[next] : UINT64_MAX;
}

static tl_addr table_end_new(const struct tl_analysis *analysis, tl_addr table, size_t first,
                             tl_addr end)
{
    for (size_t i = first; i < analysis->leas.count; i++)
        if (analysis->leas.item[i] > table && analysis->leas.item[i] < end)
            end = analysis->leas.item[i];
    return end;
}

// How the entries of a table become addresses: `size` bytes, widened, shifted left.
struct entries {
    unsigned size, shift;
    bool is_signed;
};

static bool entry_read(const struct tl_analysis *analysis, tl_addr addr, const struct entries *form,
                       tl_addr *offset)
{
    uint64_t value = 0;
    if (!bytes_read(analysis, addr, &value, form->size))
        return false;
    unsigned spare = 64 - 8 * form->size;
    if (form->is_signed)
        value = (uint64_t)((int64_t)(value << spare) >> spare);
    *offset = value << form->shift;
    return true;
}

// The form of the entries that `load` reads and `sum` adds. The offsets of x86 are four bytes and signed,
// loaded so or added so. false: no form that is known. Short entries make no sense without a shift.
static bool entries_form(const struct tl_definition *load, const struct tl_definition *sum,
                         bool shifted, struct entries *out)
{
    *out = (struct entries){.size = load->size, .is_signed = load->is_signed};
    if (shifted) {
        out->shift = sum->shift;
        if (sum->size != 0 && sum->size < load->size)
            return false;
        if (sum->size == load->size)
            out->is_signed = sum->is_signed;
    }
    if (load->size == OFFSET_SIZE && (!shifted || sum->size == 0))
        out->is_signed = true;
    return load->size == OFFSET_SIZE || (load->size < OFFSET_SIZE && out->shift != 0);
}

// Reads one table of `bound` entries (0: unknown, then it ends where the next address is taken, or
// an entry leads out of the text). Each entry is decoded before the next is read: it may be what
// shows where the next table begins. Returns how many there are: 0, this is no table of this jump.
//
// Short entries prove little by themselves: they must all lead to code of the function, and to landing
// instructions or none.
static bool entry_fits(const struct tl_analysis *analysis, const struct jump *jump, tl_addr target,
                       bool first, bool *landing)
{
    struct tl_insn insn;
    if (tl_function_at(analysis, target) != jump->function || !tl_may_start(analysis, target) ||
        !tl_decode_at(analysis, target, true, &insn) || insn.refusal == TL_REFUSE_UNKNOWN_INSN)
        return false;
    bool lands = (insn.flags & TL_INSN_LANDING) != 0;
    *landing = first ? lands : *landing;
    return lands == *landing;
}

static size_t table_read(struct tl_analysis *analysis, const struct jump *jump, tl_addr table,
                         tl_addr base, const struct entries *form, uint64_t bound,
                         struct addr_list *targets, int *status)
{
    uint64_t limit = bound != 0 ? bound : TABLE_ENTRIES_MAX;
    size_t count = 0, first = targets->count, seen = analysis->leas_sorted;
    tl_addr end = table_end(analysis, table);
    bool own = false; // at least one entry must lead into the function itself
    bool landing = false;
    for (; count < limit && *status == 0; count++) {
        tl_addr offset, entry = table + count * form->size;
        end = bound != 0 ? end : table_end_new(analysis, table, seen, end);
        seen = analysis->leas.count;
        if (bound == 0 && entry >= end)
            break;
        if (!entry_read(analysis, entry, form, &offset))
            break;
        tl_addr target = base + offset;
        if (tl_region_at(analysis, target) == NULL ||
            (form->size < OFFSET_SIZE && !entry_fits(analysis, jump, target, count == 0, &landing)))
            break;
        *status = tl_addr_list_push(targets, target);
        if (tl_function_at(analysis, target) != jump->function)
            continue;
        own = true;
        if (bound == 0 && *status == 0)
            *status = tl_code_flood(analysis, target, true);
    }
    if (*status != 0 || !own || (bound != 0 && count < bound)) {
        targets->count = first;
        return 0;
    }
    return count;
}

// A table of whole addresses, as programs at fixed addresses have them. Its entries are barriers
// anyway (they are data words that equal text addresses); this finds the code. Without a bound it
// is read until FOREIGN_MAX entries in a row lead out of the function (a cold part). Returns how
// many entries there are; 0: no table.
static size_t words_read(struct tl_analysis *analysis, const struct jump *jump, tl_addr table,
                         uint64_t bound, struct addr_list *targets, int *status)
{
    uint64_t limit = bound != 0 ? bound : TABLE_ENTRIES_MAX;
    size_t count = 0, first = targets->count, foreign = 0;
    bool own = false;
    for (; count < limit && *status == 0 && (bound != 0 || foreign < FOREIGN_MAX); count++) {
        tl_addr target;
        if (!bytes_read(analysis, table + count * sizeof(target), &target, sizeof(target)))
            break;
        bool inside = tl_function_at(analysis, target) == jump->function;
        if (!inside && tl_region_at(analysis, target) == NULL)
            break;
        own = own || inside;
        foreign = inside ? 0 : foreign + 1;
        if (!inside && bound == 0)
            continue;
        *status = tl_addr_list_push(targets, target);
        if (bound == 0 && *status == 0)
            *status = tl_code_flood(analysis, target, true);
    }
    if (*status != 0 || !own || (bound != 0 && count < bound)) {
        targets->count = first;
        return 0;
    }
    return count;
}

// A jump through a table of whole addresses. *complete: all that it may reach is in targets.
static int words_follow(struct search *search, const struct jump *jump, uint32_t node,
                        const struct tl_definition *load, struct addr_list *targets, bool *complete)
{
    struct candidates places = {0};
    int status = 0;
    uint64_t bound = table_bound(search, node, load->index);
    if (load->a == TL_DEF_REG_NONE)
        candidate_add(&places, load->value);
    else
        status = constants(search, node, load->a, load->value, &places);
    size_t found = 0;
    for (size_t i = 0; i < places.count && status == 0; i++)
        found += words_read(search->analysis, jump, places.item[i], bound, targets, &status) > 0;
    *complete = bound != 0 && found > 0 && found == places.count && !places.overflow;
    return status;
}

// A sum that a jump goes to: one operand loaded from a table, the other its base.
static int sum_follow(struct search *search, const struct jump *jump, uint32_t node,
                      const struct tl_definition *sum, bool bounded_only, struct addr_list *targets,
                      bool *resolved)
{
    for (unsigned side = 0; side < 2; side++) {
        unsigned loaded = side == 0 ? sum->a : sum->b, other = side == 0 ? sum->b : sum->a;
        struct reach found;
        if (loaded == TL_DEF_REG_NONE)
            continue;
        int status = reach(search, node, loaded, &found);
        if (status == TL_E_NOMEM)
            return status;
        size_t loads = 0;
        for (uint32_t i = 0; status == 0 && i < found.count; i++)
            loads += found.item[i].def.kind == TL_DEF_OFFSET;
        if (loads == 0)
            continue;
        *resolved = *resolved && status == 0 && loads == found.count && !found.outside;
        for (uint32_t i = 0; i < found.count; i++) {
            const struct tl_definition *load = &found.item[i].def;
            uint32_t at = found.item[i].node;
            struct candidates tables = {0}, bases = {0};
            struct entries form;
            if (load->kind != TL_DEF_OFFSET ||
                !entries_form(load, sum, side == 1, &form)) {
                *resolved = false;
                continue;
            }
            uint64_t bound = table_bound(search, at, load->index);
            if (bounded_only && bound == 0)
                return TL_E_BUSY; // later, when more tables are known
            if (form.size < OFFSET_SIZE && bound == 0) { // where it ends would be a guess
                *resolved = false;
                continue;
            }
            status = load_tables(search, at, load, &tables);
            if (other == TL_DEF_REG_NONE)
                candidate_add(&bases, sum->value);
            else if (status == 0)
                status = constants(search, node, other, sum->value, &bases);
            if (status != 0)
                return status;
            bool same = load->a == other && unchanged(search, at + 1, node, other);
            size_t hits = 0;
            for (size_t t = 0; t < tables.count; t++)
                for (size_t b = 0; b < bases.count; b++) {
                    if (same && bases.item[b] - sum->value + load->value != tables.item[t])
                        continue;
                    hits += table_read(search->analysis, jump, tables.item[t], bases.item[b], &form,
                                       bound, targets, &status) > 0;
                    if (status != 0)
                        return status;
                }
            *resolved = *resolved && hits > 0 && !tables.overflow && !bases.overflow;
        }
        return 0;
    }
    *resolved = false; // neither operand comes from a table
    return 0;
}

// A target that the function kept on its stack may be any sum it computed, or any word of a table
// that it loaded.
static int spill_follow(struct search *search, const struct jump *jump, bool bounded_only,
                        struct addr_list *targets, bool *resolved)
{
    struct graph *graph = search->graph;
    for (uint32_t i = 0; i < graph->count; i++) {
        for (unsigned reg = 0; reg < REG_COUNT; reg++) {
            struct tl_definition def;
            if ((graph->node[i].written >> reg & 1) == 0)
                continue;
            define(search, i, reg, &def);
            if (def.kind == TL_DEF_POINTER && !is_plain_pointer(&def) &&
                search->analysis->facts.position_fixed) {
                bool table;
                int status = words_follow(search, jump, i, &def, targets, &table);
                if (status != 0)
                    return status;
            }
            if (def.kind != TL_DEF_SUM)
                continue;
            struct reach one, two;
            bool loads = false;
            two.count = 0;
            if (reach(search, i, def.a, &one) != 0 ||
                (def.b != TL_DEF_REG_NONE && reach(search, i, def.b, &two) != 0)) {
                *resolved = false;
                continue;
            }
            for (uint32_t k = 0; k < one.count; k++)
                loads = loads || one.item[k].def.kind == TL_DEF_OFFSET;
            for (uint32_t k = 0; k < two.count; k++)
                loads = loads || two.item[k].def.kind == TL_DEF_OFFSET;
            // Sums of other loads are numbers; only those that read as tables are kept.
            bool ignored = true;
            int status =
                loads ? sum_follow(search, jump, i, &def, bounded_only, targets, &ignored) : 0;
            if (status != 0)
                return status;
        }
    }
    return 0;
}

// The common case, without a graph: a straight run before the jump loads a whole pointer.
#define QUICK_STEPS_MAX 16

static bool quick_pointer(const struct tl_analysis *analysis, tl_addr addr)
{
    struct tl_insn insn;
    struct tl_definition def;
    if (!tl_decode_at(analysis, addr, true, &insn))
        return false;
    analysis->arch->define(&insn, TL_DEF_REG_NONE, &def);
    for (unsigned step = 0; step < QUICK_STEPS_MAX && def.kind == TL_DEF_COPY; step++) {
        unsigned reg = def.a;
        do {
            tl_addr before = tl_is_barrier(analysis, addr) ? 0 : tl_code_before(analysis, addr);
            if (before == 0 || !tl_decode_at(analysis, before, true, &insn))
                return false;
            analysis->arch->define(&insn, reg, &def);
            addr = before;
        } while (def.kind == TL_DEF_KEEP && ++step < QUICK_STEPS_MAX);
    }
    return is_plain_pointer(&def);
}

enum outcome { OUTCOME_POINTER, OUTCOME_TABLES, OUTCOME_UNPROVED };

static int jump_follow(struct search *search, const struct jump *jump, bool bounded_only,
                       struct addr_list *targets, enum outcome *outcome)
{
    struct tl_definition where;
    uint32_t node = tl_graph_find(search->graph, jump->addr);
    *outcome = OUTCOME_UNPROVED;
    if (node == NODE_NONE)
        return 0;
    define(search, node, TL_DEF_REG_NONE, &where);
    struct reach found = {0};
    int status = 0;
    if (where.kind == TL_DEF_COPY)
        status = reach(search, node, where.a, &found);
    else
        found.item[found.count++] = (struct definition_at){node, where};
    if (status == TL_E_LIMIT)
        return 0;
    bool tables = false, pointers = found.outside, resolved = true;
    for (uint32_t i = 0; i < found.count && status == 0; i++) {
        const struct definition_at *item = &found.item[i];
        switch (item->def.kind) {
        case TL_DEF_ADDR:
            pointers = true;
            break;
        case TL_DEF_POINTER: {
            bool table = false;
            if (!is_plain_pointer(&item->def) && search->analysis->facts.position_fixed)
                status = words_follow(search, jump, item->node, &item->def, targets, &table);
            tables = tables || table;
            pointers = pointers || !table;
            break;
        }
        case TL_DEF_SPILL:
            pointers = true;
            status = spill_follow(search, jump, bounded_only, targets, &resolved);
            break;
        case TL_DEF_SUM:
            if (item->def.b == TL_DEF_REG_NONE) { // an address in two parts
                struct candidates whole = {0};
                bool exact;
                status = constants_exact(search, item->node, item->def.a, item->def.value, &whole,
                                         &exact);
                if (status == 0 && exact) {
                    pointers = true;
                    break;
                }
            }
            tables = true;
            status =
                sum_follow(search, jump, item->node, &item->def, bounded_only, targets, &resolved);
            break;
        case TL_DEF_OFFSET: // a small address, whole: a data word of a program at fixed addresses
            pointers = true;
            resolved = resolved && item->def.size == OFFSET_SIZE &&
                       search->analysis->facts.position_fixed;
            break;
        default:
            resolved = false;
        }
    }
    if (status == 0 && resolved)
        *outcome = tables && !pointers ? OUTCOME_TABLES : OUTCOME_POINTER;
    return status;
}

void tl_tables_forget(struct tl_analysis *analysis)
{
    tl_graph_destroy(analysis->jump_graph);
    analysis->jump_graph = NULL;
}

// The function's graph as the code is known now. One is kept: jumps come function by function.
static int graph_get(struct tl_analysis *analysis, uint32_t function, struct graph **out)
{
    struct graph *graph = analysis->jump_graph;
    if (graph == NULL || graph->function != function ||
        analysis->jump_graph_count != analysis->code_count) {
        tl_tables_forget(analysis);
        graph = NULL;
        int status = tl_graph_create(analysis, function, &graph);
        if (status == 0)
            status = tl_graph_link_back(graph);
        if (status != 0) {
            tl_graph_destroy(graph);
            return status;
        }
        analysis->jump_graph = graph;
        analysis->jump_graph_count = analysis->code_count;
    }
    *out = graph;
    return 0;
}

static int edge_add(struct tl_analysis *analysis, const struct jump *jump, tl_addr to)
{
    uint32_t *last = &analysis->edge_last[edge_chain(to)];
    if (analysis->edge_count == analysis->edge_capacity) {
        size_t capacity = analysis->edge_capacity == 0 ? 256 : analysis->edge_capacity * 2;
        struct edge *edge = reallocarray(analysis->edge, capacity, sizeof(*edge));
        if (edge == NULL || capacity > UINT32_MAX)
            return TL_E_NOMEM;
        analysis->edge = edge;
        analysis->edge_capacity = capacity;
    }
    analysis->edge[analysis->edge_count++] =
        (struct edge){jump->addr, to, jump->function, *last};
    *last = (uint32_t)analysis->edge_count;
    return 0;
}

// Notes what was found about a jump and decodes where it leads.
static int outcome_take(struct tl_analysis *analysis, struct jump *jump, enum outcome outcome,
                        struct addr_list *targets)
{
    jump->done = true;
    jump->resolved = outcome == OUTCOME_TABLES;
    tl_addr_list_sort(targets);
    jump->first = analysis->jump_targets.count;
    jump->count = targets->count;
    if (outcome == OUTCOME_UNPROVED)
        tl_group_set_unproved(analysis, jump->function);
    int status = 0;
    for (size_t i = 0; i < targets->count && status == 0; i++) {
        tl_set_entered(analysis, targets->item[i]);
        status = tl_addr_list_push(&analysis->jump_targets, targets->item[i]);
        if (status != 0 || tl_function_at(analysis, targets->item[i]) != jump->function)
            continue;
        status = jump->resolved ? edge_add(analysis, jump, targets->item[i]) : 0;
        if (status == 0)
            status = tl_code_flood(analysis, targets->item[i], true);
    }
    return status;
}

int tl_tables_resolve(struct tl_analysis *analysis, struct jump *jump, bool bounded_only)
{
    struct search search = {.analysis = analysis};
    enum outcome outcome = OUTCOME_UNPROVED;
    struct addr_list targets = {0};
    // Code that no function owns never gets a window.
    if (jump->function == FUNCTION_NONE || quick_pointer(analysis, jump->addr)) {
        jump->done = true;
        return 0;
    }
    int status = graph_get(analysis, jump->function, &search.graph);
    if (status == 0) {
        search.seen = calloc((size_t)search.graph->count + 1, sizeof(*search.seen));
        status = search.seen == NULL ? TL_E_NOMEM
                                     : jump_follow(&search, jump, bounded_only, &targets, &outcome);
    }
    if (status == 0)
        status = outcome_take(analysis, jump, outcome, &targets);
    free(search.seen);
    tl_addr_list_deinit(&search.work);
    tl_addr_list_deinit(&targets);
    if (status == TL_E_LIMIT) { // too large to follow
        jump->done = true;
        tl_group_set_unproved(analysis, jump->function);
    }
    return status == TL_E_BUSY || status == TL_E_LIMIT ? 0 : status;
}

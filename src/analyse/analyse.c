// The facts of one site, and the other questions of analyse.h. Decides no rung and no layout.
// Keeps: window_max covers a byte beyond the first instruction only when the whole module was
// decoded and nothing known leads strictly inside.
#include "analyse/graph.h"

#include <stdio.h>
#include <string.h>

#define WINDOW_MAX UINT8_MAX
#define PIECES_MAX 32 // other functions looked at for branches back to an entry

// Why an instruction, wherever it stands, can't be among those that a branch displaces.
static enum tl_refusal insn_refusal(const struct tl_analysis *analysis, const struct tl_insn *insn)
{
    const struct tl_module_facts *facts = &analysis->facts;
    tl_addr end = insn->addr + insn->size;
    if (tl_in_ranges(facts->rseq, facts->rseq_count, insn->addr, end))
        return TL_REFUSE_RSEQ;
    if (tl_in_ranges(facts->avoid, facts->avoid_count, insn->addr, end))
        return TL_REFUSE_TLS_RESOLVER;
    if (tl_is_sigreturn(analysis, insn->addr))
        return TL_REFUSE_SIGRETURN;
    if ((insn->flags & TL_INSN_SYSCALL) != 0)
        return TL_REFUSE_SYSCALL;
    return insn->reloc == TL_RELOC_REFUSE ? (enum tl_refusal)insn->refusal : TL_REFUSE_NONE;
}

// What only its surroundings refuse at a site of its own.
static enum tl_refusal site_refusal(struct tl_analysis *analysis, uint32_t function,
                                    const struct tl_insn *insn)
{
    struct tl_insn before;
    const struct tl_arch *arch = analysis->arch;
    if (tl_is_exclusive(analysis, insn->addr, function))
        return TL_REFUSE_EXCLUSIVE;
    bool joined = (insn->flags & TL_INSN_JOINED) != 0;
    if (arch->insn_align == arch->insn_size_max && tl_code_starts(analysis, insn->addr - insn->size) &&
        tl_decode_at(analysis, insn->addr - insn->size, true, &before))
        joined = joined || (before.flags & TL_INSN_JOINED) != 0;
    return joined ? TL_REFUSE_JOINED : TL_REFUSE_NONE;
}

// A decoded instruction that begins strictly inside [addr, addr + size), or covers addr from
// before.
static bool is_shared(const struct tl_analysis *analysis, tl_addr addr, size_t size)
{
    for (size_t i = 1; i < size; i++)
        if (tl_code_starts(analysis, addr + i))
            return true;
    return tl_code_covering(analysis, addr) != 0;
}

static void site_insns(const struct tl_analysis *analysis, struct tl_site_facts *site)
{
    const struct region *region = tl_region_at(analysis, site->vaddr);
    size_t off = site->vaddr - region->vaddr, room = region->size - off;
    site->byte_count = (uint8_t)(room < TL_SITE_BYTES_MAX ? room : TL_SITE_BYTES_MAX);
    memcpy(site->bytes, region->bytes + off, site->byte_count);
    while (site->insn_count < TL_SITE_INSNS_MAX &&
           tl_decode_at(analysis, site->vaddr + site->insn_bytes, false,
                        &site->insn[site->insn_count])) {
        site->insn_bytes = (uint8_t)(site->insn_bytes + site->insn[site->insn_count].size);
        site->insn_count++;
    }
}

static bool goes_on(const struct tl_insn *insn)
{
    return insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_COND;
}

// Behind an instruction that never goes on: padding that no code owns belongs to the window.
static void window_pad(const struct tl_analysis *analysis, struct tl_site_facts *site)
{
    struct tl_range range;
    tl_addr end = site->vaddr + site->window_max;
    if (tl_padding_at(analysis, end, &range))
        end = range.end;
    site->window_end_refusal =
        tl_is_barrier(analysis, end) ? TL_REFUSE_WINDOW_TARGET : TL_REFUSE_WINDOW_END;
    if (end - site->vaddr > WINDOW_MAX)
        end = site->vaddr + WINDOW_MAX;
    site->window_max = (uint8_t)(end - site->vaddr);
}

// Why the window can't take insn, which starts at its end.
static enum tl_refusal window_stop(const struct tl_analysis *analysis, const struct tl_insn *insn)
{
    if (tl_is_barrier(analysis, insn->addr))
        return TL_REFUSE_WINDOW_TARGET;
    if (!tl_code_starts(analysis, insn->addr))
        return TL_REFUSE_WINDOW_END;
    enum tl_refusal refusal = insn_refusal(analysis, insn);
    if (refusal == TL_REFUSE_SYSCALL)
        return TL_REFUSE_WINDOW_SYSCALL;
    if (refusal != TL_REFUSE_NONE)
        return refusal;
    for (size_t i = 1; i < insn->size; i++)
        if (tl_is_barrier(analysis, insn->addr + i) || tl_code_starts(analysis, insn->addr + i))
            return TL_REFUSE_WINDOW_TARGET;
    return TL_REFUSE_NONE;
}

static void site_window(struct tl_analysis *analysis, uint32_t function, struct tl_site_facts *site)
{
    if (function == FUNCTION_NONE || tl_group_unproved(analysis, function)) {
        site->window_end_refusal = TL_REFUSE_WINDOW_UNPROVED;
        return;
    }
    const struct tl_insn *last = &site->insn[0];
    for (unsigned i = 1;; i++) {
        if (last->flow == TL_FLOW_CALL || last->flow == TL_FLOW_ICALL) {
            site->window_end_refusal = TL_REFUSE_WINDOW_CALL;
            return;
        }
        if (!goes_on(last)) {
            window_pad(analysis, site);
            return;
        }
        if (i >= site->insn_count) {
            site->window_end_refusal = TL_REFUSE_WINDOW_END;
            return;
        }
        last = &site->insn[i];
        // A goroutine that waits may have been stopped at any instruction, and its stack is nowhere
        // that it could be looked for.
        enum tl_refusal stop =
            tl_is_go(analysis, last->addr) ? TL_REFUSE_STACK_WORD : window_stop(analysis, last);
        if (stop != TL_REFUSE_NONE) {
            site->window_end_refusal = (uint8_t)stop;
            return;
        }
        site->window_max = (uint8_t)(site->window_max + last->size);
    }
}

static void looper_add(struct tl_site_facts *site, tl_addr addr)
{
    site->looped = true;
    if (site->looper_count < TL_ARRAY_COUNT(site->loopers))
        site->loopers[site->looper_count++] = addr;
    else
        site->looper_more = true;
}

static bool branches_to(const struct node *node, tl_addr addr)
{
    return (node->flow == TL_FLOW_COND || node->flow == TL_FLOW_JUMP) && node->target == addr;
}

// Branches of another piece of the same function (a cold part) that lead back to the entry. A piece
// belongs to the function if the function jumps to it, it jumps into the function's middle, and
// nobody calls it, which only the whole module shows.
static int loopers_of_piece(struct tl_analysis *analysis, uint32_t function, uint32_t piece,
                            struct tl_site_facts *site)
{
    struct graph *graph;
    int status = tl_code_function(analysis, piece);
    if (status == 0)
        status = tl_graph_create(analysis, piece, &graph);
    if (status != 0)
        return status;
    const struct tl_extent *extent = &analysis->facts.functions[function];
    bool joined = false, looped = false;
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct node *node = &graph->node[i];
        looped = looped || branches_to(node, site->vaddr);
        joined =
            joined || ((node->flow == TL_FLOW_COND || node->flow == TL_FLOW_JUMP) &&
                       node->target > site->vaddr && node->target - extent->vaddr < extent->size);
    }
    if (joined && looped)
        status = tl_code_module(analysis);
    bool counts = status == 0 && joined && looped && !analysis->function[piece].called;
    for (uint32_t i = 0; i < graph->count && counts; i++)
        if (branches_to(&graph->node[i], site->vaddr))
            looper_add(site, graph->node[i].addr);
    tl_graph_destroy(graph);
    return status;
}

// Adds the function that a jump leads to, if it may be a piece of this one.
static void piece_add(const struct tl_analysis *analysis, uint32_t function, tl_addr target,
                      uint32_t *piece, unsigned *count)
{
    uint32_t other = tl_function_at(analysis, target);
    if (other == FUNCTION_NONE || other == function || analysis->function[other].called)
        return;
    for (unsigned i = 0; i < *count; i++)
        if (piece[i] == other)
            return;
    if (*count < PIECES_MAX)
        piece[(*count)++] = other;
}

static int site_loopers(struct tl_analysis *analysis, uint32_t function, struct tl_site_facts *site)
{
    const struct graph *graph = tl_flow_graph(analysis, function);
    uint32_t piece[PIECES_MAX];
    unsigned piece_count = 0;
    int status = 0;
    if (graph == NULL) { // too large: there may be any
        site->looped = site->looper_more = true;
        return 0;
    }
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct node *node = &graph->node[i];
        if (branches_to(node, site->vaddr))
            looper_add(site, node->addr);
        if (node->to == NODE_NONE && (node->flow == TL_FLOW_COND || node->flow == TL_FLOW_JUMP))
            piece_add(analysis, function, node->target, piece, &piece_count);
    }
    for (unsigned i = 0; i < piece_count && status == 0; i++)
        status = loopers_of_piece(analysis, function, piece[i], site);
    return status;
}

// Whether the site is a function's entry. What only the unwind table knows may be a cold part: it
// counts as a function if somebody calls it or takes its address, which the whole module shows.
static int site_entry(struct tl_analysis *analysis, uint32_t function, struct tl_site_facts *site)
{
    if (function == FUNCTION_NONE ||
        tl_analysis_entry(analysis, site->function.vaddr) != site->vaddr)
        return 0;
    bool known = site->function.symbol || analysis->function[function].called;
    int status = known ? 0 : tl_code_module(analysis);
    site->entry = known || (status == 0 && analysis->function[function].called);
    return status;
}

// Whether the window could grow to anything useful at all, were there no barrier.
static bool needs_module(const struct tl_analysis *analysis, const struct tl_site_facts *site)
{
    const struct tl_insn *insn = &site->insn[0];
    return insn->size < analysis->arch->jump_size && insn->flow != TL_FLOW_CALL &&
           insn->flow != TL_FLOW_ICALL && insn->reloc != TL_RELOC_REFUSE;
}

static tl_regset site_dead(struct tl_analysis *analysis, tl_addr vaddr)
{
    tl_regset live = tl_flow_live(analysis, vaddr);
    tl_regset dead = analysis->arch->general_regs & ~live & ~((tl_regset)1 << analysis->arch->sp_reg);
    return (live & TL_REGSET_EACH_FLAG) == 0 ? dead | TL_REGSET_FLAGS : dead;
}

// A name without a type, whose bytes known code reads, and where no known code leads.
static int site_read(struct tl_analysis *analysis, uint32_t function, bool *read)
{
    *read = false;
    if (function == FUNCTION_NONE || !analysis->facts.functions[function].untyped)
        return 0;
    int status = tl_code_module(analysis);
    tl_addr start = analysis->facts.functions[function].vaddr;
    size_t i = tl_addr_list_lower(&analysis->reads, start), k = tl_crossings_lower(analysis, start);
    *read = i < analysis->reads.count && analysis->reads.item[i] == start &&
            !analysis->function[function].called &&
            !(k < analysis->crossing_count && analysis->crossing[k].to == start);
    return status;
}

// Finds the code around vaddr, with the whole module only where the function alone does not tell.
static int site_decode(struct tl_analysis *analysis, tl_addr vaddr, uint32_t function)
{
    int status = tl_code_complete(analysis, function);
    if (status == 0 && !tl_code_starts(analysis, vaddr))
        status = tl_code_module(analysis);
    return status;
}

void tl_analysis_set_lazy(struct tl_analysis *analysis, bool lazy)
{
    analysis->lazy = lazy;
}

int tl_analysis_window(struct tl_analysis *analysis, struct tl_site_facts *site,
                       struct tl_diag *diag)
{
    if (!site->window_pending)
        return 0;
    int status = tl_code_module(analysis);
    if (status != 0)
        return tl_diag_set(diag, status, "can't analyse the module around 0x%llx",
                           (unsigned long long)site->vaddr);
    return tl_analysis_site(analysis, site->vaddr, site, diag);
}

// Go functions without a stack check may run with no stack left.
static void site_go(struct tl_analysis *analysis, uint32_t function, struct tl_site_facts *site)
{
    tl_addr behind;
    site->go = tl_is_go(analysis, site->vaddr);
    site->no_stack =
        site->go && (function == FUNCTION_NONE ||
                     !tl_analysis_stack_check(analysis, site->function.vaddr, &behind) ||
                     (site->vaddr >= site->function.vaddr && site->vaddr < behind));
}

int tl_analysis_site(struct tl_analysis *analysis, tl_addr vaddr, struct tl_site_facts *out,
                     struct tl_diag *diag)
{
    struct tl_site_facts site = {.vaddr = vaddr};
    bool read = false;
    uint32_t function = tl_function_at(analysis, vaddr);
    if (tl_region_at(analysis, vaddr) == NULL) {
        site.refusal = TL_REFUSE_NOT_CODE;
        *out = site;
        return 0;
    }
    int status = site_decode(analysis, vaddr, function);
    if (status == 0)
        status = site_read(analysis, function, &read);
    if (status != 0)
        return tl_diag_set(diag, status, "can't analyse the code at 0x%llx",
                           (unsigned long long)vaddr);
    if (function != FUNCTION_NONE)
        site.function = analysis->facts.functions[function];
    site_go(analysis, function, &site);
    site_insns(analysis, &site);
    if (read || !tl_code_starts(analysis, vaddr)) {
        site.refusal = tl_code_covering(analysis, vaddr) != 0 ? TL_REFUSE_NOT_BOUNDARY
                                                              : TL_REFUSE_UNKNOWN_CODE;
        *out = site;
        return 0;
    }
    site.refusal = (uint8_t)insn_refusal(analysis, &site.insn[0]);
    if (site.refusal == TL_REFUSE_NONE)
        site.refusal = (uint8_t)site_refusal(analysis, function, &site.insn[0]);
    if (site.refusal == TL_REFUSE_NONE && is_shared(analysis, vaddr, site.insn[0].size))
        site.refusal = TL_REFUSE_OVERLAP;
    if (site.refusal != TL_REFUSE_NONE) {
        *out = site;
        return 0;
    }
    site.window_max = site.insn[0].size;
    site.window_pending = needs_module(analysis, &site) && analysis->lazy && !analysis->module_done;
    if (!site.window_pending && needs_module(analysis, &site))
        status = tl_code_module(analysis);
    if (status == 0 && !site.window_pending)
        site_window(analysis, function, &site);
    if (status == 0)
        status = site_entry(analysis, function, &site);
    if (status == 0 && site.entry)
        status = site_loopers(analysis, function, &site);
    if (status != 0)
        return tl_diag_set(diag, status, "can't analyse the code around 0x%llx",
                           (unsigned long long)vaddr);
    site.dead = site_dead(analysis, vaddr);
    if (analysis->arch->behind_regs != 0 && site.insn[0].flow == TL_FLOW_NEXT)
        site.dead_behind = site_dead(analysis, vaddr + site.insn[0].size);
    *out = site;
    return 0;
}

bool tl_analysis_boundaries(struct tl_analysis *analysis, tl_addr vaddr, tl_addr *below,
                            tl_addr *above)
{
    uint32_t function = tl_function_at(analysis, vaddr);
    if (function == FUNCTION_NONE || site_decode(analysis, vaddr, function) != 0)
        return false;
    const struct tl_extent *extent = &analysis->facts.functions[function];
    tl_addr low = vaddr, high = vaddr + 1;
    while (low > extent->vaddr && !tl_code_starts(analysis, low))
        low--;
    while (high - extent->vaddr < extent->size && !tl_code_starts(analysis, high))
        high++;
    if (!tl_code_starts(analysis, low))
        return false;
    *below = low;
    *above = high; // the function's end counts as one
    return true;
}

size_t tl_analysis_insns(struct tl_analysis *analysis, tl_addr function, tl_addr *vaddrs,
                         size_t max)
{
    uint32_t index = tl_function_starting(analysis, function);
    const struct region *region = tl_region_at(analysis, function);
    if (index == FUNCTION_NONE || region == NULL || tl_code_module(analysis) != 0)
        return 0;
    size_t off = function - region->vaddr, count = 0;
    uint64_t size = analysis->facts.functions[index].size;
    size_t end = size < region->size - off ? off + size : region->size;
    for (; off < end; off++) {
        if (!bit_get(region->start, off))
            continue;
        if (count < max)
            vaddrs[count] = region->vaddr + off;
        count++;
    }
    return count;
}

size_t tl_analysis_padding(struct tl_analysis *analysis, const struct tl_range **out)
{
    if (tl_code_module(analysis) != 0)
        return 0;
    *out = analysis->padding;
    return analysis->padding_count;
}

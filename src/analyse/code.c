// Which bytes are code: recursive descent from functions, landing pads, branch targets and jump
// tables. Never runs linearly through bytes that no control flow reaches. Keeps: a bit in `start`
// is set only where known control flow arrives; every address that control flow or a data reference
// may reach by other ways than falling through has its bit in `barrier` once the module is done.
#include "analyse/analysis.h"

#include <stdlib.h>
#include <string.h>

// One descent, kept inside [low, high); what leads out of it becomes pending.
struct flood {
    struct tl_analysis *analysis;
    struct region *region;
    tl_addr low, high;
    uint32_t function;
    struct addr_list work;
    // What the ISA adds addresses up from, register by register (tl_arch.address): in one function,
    // whatever way led there.
    tl_addr part[TL_ADDRESS_PARTS];
};

static int jump_add(struct tl_analysis *analysis, tl_addr addr, uint32_t function)
{
    if (analysis->jump_count == analysis->jump_capacity) {
        size_t capacity = analysis->jump_capacity == 0 ? 64 : analysis->jump_capacity * 2;
        struct jump *jump = reallocarray(analysis->jump, capacity, sizeof(*jump));
        if (jump == NULL)
            return TL_E_NOMEM;
        analysis->jump = jump;
        analysis->jump_capacity = capacity;
    }
    analysis->jump[analysis->jump_count++] = (struct jump){.addr = addr, .function = function};
    if (function != FUNCTION_NONE)
        analysis->function[function].jumps++;
    return 0;
}

const struct jump *tl_jump_at(const struct tl_analysis *analysis, tl_addr addr)
{
    if (!analysis->module_done) { // few, and not in order yet
        for (size_t i = 0; i < analysis->jump_count; i++)
            if (analysis->jump[i].addr == addr)
                return &analysis->jump[i];
        return NULL;
    }
    size_t low = 0, high = analysis->jump_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (analysis->jump[middle].addr == addr)
            return &analysis->jump[middle];
        if (analysis->jump[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

// In a program at fixed addresses any four bytes of an instruction may be an address of its text.
static void note_constants(struct tl_analysis *analysis, const struct tl_insn *insn)
{
    for (unsigned i = 1; i + 4 <= insn->size; i++) {
        uint32_t word;
        memcpy(&word, insn->bytes + i, sizeof(word));
        tl_set_barrier(analysis, word);
        if (tl_region_at(analysis, word) != NULL)
            tl_set_called(analysis, word);
        if (i + 8 <= insn->size) {
            uint64_t wide;
            memcpy(&wide, insn->bytes + i, sizeof(wide));
            tl_set_barrier(analysis, wide);
        }
    }
}

static int note_target(struct flood *flood, const struct tl_insn *insn)
{
    struct tl_analysis *analysis = flood->analysis;
    tl_set_barrier(analysis, insn->target);
    if (insn->flow == TL_FLOW_CALL)
        tl_set_called(analysis, insn->target);
    if (insn->target >= flood->low && insn->target < flood->high)
        return tl_addr_list_push(&flood->work, insn->target);
    // A jump into the middle of another function: the two are one piece of code.
    bool middle = tl_function_starting(analysis, insn->target) == FUNCTION_NONE;
    if (insn->flow != TL_FLOW_CALL && middle)
        tl_group_join(analysis, flood->function, tl_function_at(analysis, insn->target));
    // A call of a function comes back, and needs no note.
    if ((insn->flow != TL_FLOW_CALL || middle) &&
        tl_crossing_add(analysis, insn->addr, insn->target) != 0)
        return TL_E_NOMEM;
    return tl_addr_list_push(&analysis->pending, insn->target);
}

// A read of an untyped function's first bytes, as if they were data.
static int note_read(struct tl_analysis *analysis, tl_addr addr)
{
    uint32_t function = tl_function_starting(analysis, addr);
    if (function == FUNCTION_NONE || !analysis->facts.functions[function].untyped)
        return 0;
    return tl_addr_list_push(&analysis->reads, addr);
}

// What one instruction tells about other addresses.
static int note_insn(struct flood *flood, const struct tl_insn *insn)
{
    struct tl_analysis *analysis = flood->analysis;
    tl_addr taken = insn->target;
    bool takes = (insn->flags & TL_INSN_PCREL_LEA) != 0;
    if ((insn->flags & TL_INSN_PCREL_DATA) != 0) {
        tl_set_barrier(analysis, insn->target);
        if (!takes && note_read(analysis, insn->target) != 0)
            return TL_E_NOMEM;
    }
    if (analysis->arch->address != NULL)
        takes = analysis->arch->address(insn, flood->part, &taken);
    if (takes) {
        tl_set_barrier(analysis, taken);
        tl_set_called(analysis, taken);
        if (tl_addr_list_push(&analysis->leas, taken) != 0)
            return TL_E_NOMEM;
    }
    if (analysis->facts.position_fixed)
        note_constants(analysis, insn);
    switch (insn->flow) {
    case TL_FLOW_COND:
    case TL_FLOW_JUMP:
    case TL_FLOW_CALL:
        return note_target(flood, insn);
    case TL_FLOW_IJUMP:
        return jump_add(analysis, insn->addr, flood->function);
    default:
        return 0;
    }
}

static bool flows_on(const struct tl_insn *insn)
{
    return insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_COND || insn->flow == TL_FLOW_CALL ||
           insn->flow == TL_FLOW_ICALL;
}

// Control flow that leaves [low, high) by falling through its end.
static int leave(struct flood *flood, tl_addr last, tl_addr addr, bool behind_call)
{
    if (behind_call) // many calls at an end never return; gaps_fill() decides
        return tl_addr_list_push(&flood->analysis->gaps, addr);
    tl_group_join(flood->analysis, flood->function, tl_function_at(flood->analysis, addr));
    if (tl_crossing_add(flood->analysis, last, addr) != 0)
        return TL_E_NOMEM;
    return tl_addr_list_push(&flood->analysis->pending, addr);
}

// Go's runtime goes to places in a function that only its own tables name (where deferred calls run
// after a panic), and Go keeps no data in its text: what lies behind the end of a run is code too.
static int go_on(struct flood *flood, tl_addr addr)
{
    if (!tl_is_go(flood->analysis, addr) || flood->function == FUNCTION_NONE ||
        addr >= flood->high || bit_get(flood->region->start, addr - flood->region->vaddr))
        return 0;
    tl_set_entered(flood->analysis, addr);
    return tl_addr_list_push(&flood->work, addr);
}

// Follows one straight run from addr until it ends or meets known code.
static int flood_run(struct flood *flood, tl_addr addr)
{
    struct region *region = flood->region;
    bool behind_call = false;
    for (tl_addr last = addr;;) {
        if (addr < flood->low || addr >= flood->high)
            return leave(flood, last, addr, behind_call);
        size_t off = addr - region->vaddr;
        if (bit_get(region->start, off))
            return 0;
        struct tl_insn insn;
        if (!tl_may_start(flood->analysis, addr) ||
            flood->analysis->arch->skim(region->bytes + off, region->size - off, addr, &insn) !=
                0) {
            if (flood->function != FUNCTION_NONE)
                flood->analysis->function[flood->function].bad = true;
            return 0;
        }
        bit_set(region->start, off);
        flood->analysis->code_count++;
        for (size_t i = 0; i < insn.size; i++)
            bit_set(region->body, off + i);
        int status = note_insn(flood, &insn);
        if (status != 0)
            return status;
        if (!flows_on(&insn))
            return go_on(flood, addr + insn.size);
        behind_call = insn.flow == TL_FLOW_CALL || insn.flow == TL_FLOW_ICALL;
        last = addr;
        addr += insn.size;
    }
}

static int flood_all(struct flood *flood)
{
    while (flood->work.count > 0) {
        int status = flood_run(flood, flood->work.item[--flood->work.count]);
        if (status != 0)
            return status;
    }
    return 0;
}

// A flood over the function that holds addr, or over the gap between functions around it.
static bool flood_init(struct flood *flood, struct tl_analysis *analysis, tl_addr addr)
{
    *flood = (struct flood){.analysis = analysis, .region = tl_region_at(analysis, addr)};
    if (flood->region == NULL)
        return false;
    flood->low = flood->region->vaddr;
    flood->high = flood->region->vaddr + flood->region->size;
    flood->function = tl_function_at(analysis, addr);
    const struct tl_extent *functions = analysis->facts.functions;
    if (flood->function != FUNCTION_NONE) {
        const struct tl_extent *extent = &functions[flood->function];
        if (extent->vaddr > flood->low)
            flood->low = extent->vaddr;
        if (extent->vaddr + extent->size < flood->high)
            flood->high = extent->vaddr + extent->size;
        return true;
    }
    size_t low = 0, high = analysis->facts.function_count;
    while (low < high) { // the first function behind addr
        size_t middle = low + (high - low) / 2;
        if (functions[middle].vaddr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < analysis->facts.function_count && functions[low].vaddr < flood->high)
        flood->high = functions[low].vaddr;
    if (low > 0 && analysis->function[low - 1].reach > flood->low)
        flood->low = analysis->function[low - 1].reach;
    return true;
}

// How many addresses may wait unsorted before each table looks through them.
#define LEAS_UNSORTED_MAX 16384

static void leas_sort(struct tl_analysis *analysis)
{
    tl_addr_list_sort(&analysis->leas);
    analysis->leas_sorted = analysis->leas.count;
}

// Resolves the jumps that are not done; what they reach is decoded.
static int jumps_resolve(struct tl_analysis *analysis, bool bounded_only)
{
    for (size_t i = 0; i < analysis->jump_count; i++) {
        struct jump jump = analysis->jump[i];
        if (jump.done)
            continue;
        if (analysis->leas.count - analysis->leas_sorted > LEAS_UNSORTED_MAX)
            leas_sort(analysis);
        int status = tl_tables_resolve(analysis, &jump, bounded_only);
        analysis->jump[i] = jump; // decoding may have moved the array
        if (status != 0)
            return status;
    }
    return 0;
}

static int function_flood(struct tl_analysis *analysis, uint32_t function)
{
    const struct tl_extent *extent = &analysis->facts.functions[function];
    struct flood flood;
    analysis->function[function].decoded = true;
    if (!flood_init(&flood, analysis, extent->vaddr))
        return 0; // a symbol outside the text
    // The unwind entry of a signal frame starts a byte early, since unwinders look up pc - 1.
    bool early = !extent->symbol && tl_is_sigreturn(analysis, extent->vaddr + 1);
    tl_set_barrier(analysis, extent->vaddr + early);
    int status = extent->doubted ? 0 : tl_addr_list_push(&flood.work, extent->vaddr + early);
    size_t pad = tl_addr_list_lower(&analysis->pads, flood.low);
    for (; status == 0 && pad < analysis->pads.count && analysis->pads.item[pad] < flood.high;
         pad++)
        status = tl_addr_list_push(&flood.work, analysis->pads.item[pad]);
    if (status == 0)
        status = flood_all(&flood);
    tl_addr_list_deinit(&flood.work);
    return status;
}

int tl_code_function(struct tl_analysis *analysis, uint32_t function)
{
    if (function == FUNCTION_NONE || analysis->module_done || analysis->function[function].decoded)
        return 0;
    return function_flood(analysis, function);
}

// A trial: would a descent from addr stay in its function and agree with the code that is known?
#define TRIAL_INSNS_MAX 64

static bool trial_agrees(const struct tl_analysis *analysis, tl_addr addr,
                         const struct flood *flood)
{
    for (unsigned count = 0; count < TRIAL_INSNS_MAX; count++) {
        struct tl_insn insn;
        if (addr < flood->low || addr >= flood->high)
            return false;
        if (tl_code_starts(analysis, addr))
            return true;
        const struct region *region = flood->region;
        if (bit_get(region->body, addr - region->vaddr) || !tl_may_start(analysis, addr) ||
            !tl_decode_at(analysis, addr, true, &insn) || insn.row == 0)
            return false;
        if (!flows_on(&insn))
            return true;
        addr += insn.size;
    }
    return true;
}

int tl_code_flood(struct tl_analysis *analysis, tl_addr addr, bool trial)
{
    struct flood flood;
    if (tl_code_starts(analysis, addr) || !flood_init(&flood, analysis, addr) ||
        (trial && !trial_agrees(analysis, addr, &flood)))
        return 0;
    int status = tl_addr_list_push(&flood.work, addr);
    if (status == 0)
        status = flood_all(&flood);
    tl_addr_list_deinit(&flood.work);
    return status;
}

static int pending_flood(struct tl_analysis *analysis)
{
    int status = 0;
    while (analysis->pending.count > 0 && status == 0)
        status = tl_code_flood(analysis, analysis->pending.item[--analysis->pending.count], false);
    return status;
}

// Labels whose address is stored (computed goto) are code if their function jumps through memory.
static int pointers_flood(struct tl_analysis *analysis)
{
    int status = 0;
    for (size_t i = 0; i < analysis->pointers.count && status == 0; i++) {
        tl_addr addr = analysis->pointers.item[i];
        uint32_t function = tl_function_at(analysis, addr);
        if (function != FUNCTION_NONE && analysis->function[function].jumps > 0)
            status = tl_code_flood(analysis, addr, true);
    }
    return status;
}

// Nops behind a call at a function's end may be run when the call returns after all, so they are
// owned; anything else there is left unknown.
static void gaps_fill(struct tl_analysis *analysis)
{
    for (size_t i = 0; i < analysis->gaps.count; i++) {
        tl_addr addr = analysis->gaps.item[i];
        struct tl_insn insn;
        while (!tl_code_starts(analysis, addr) && tl_decode_at(analysis, addr, true, &insn) &&
               (insn.flags & TL_INSN_NOP) != 0) {
            struct region *region = tl_region_at(analysis, addr);
            bit_set(region->start, addr - region->vaddr);
            for (size_t k = 0; k < insn.size; k++)
                bit_set(region->body, addr - region->vaddr + k);
            addr += insn.size;
        }
    }
    tl_addr_list_deinit(&analysis->gaps);
}

// Words of data that equal an address of the text: 8 bytes anywhere, 4 bytes where addresses are
// fixed. A word that only looks like an address costs a little coverage.
static void words_scan(struct tl_analysis *analysis, const uint8_t *bytes, size_t size,
                       tl_addr vaddr)
{
    bool narrow = analysis->facts.position_fixed;
    size_t step = narrow ? 4 : 8;
    tl_addr low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < analysis->region_count; i++) {
        const struct region *region = &analysis->region[i];
        low = region->vaddr < low ? region->vaddr : low;
        high = region->vaddr + region->size > high ? region->vaddr + region->size : high;
    }
    for (size_t off = (size_t)(-vaddr & (step - 1)); off + 4 <= size; off += step) {
        uint64_t word = 0;
        if (off + 8 <= size)
            memcpy(&word, bytes + off, 8);
        uint32_t half;
        memcpy(&half, bytes + off, 4);
        if (word >= low && word < high) {
            tl_set_barrier(analysis, word);
            tl_set_called(analysis, word);
        } else if (narrow && half >= low && half < high) {
            tl_set_barrier(analysis, half);
            tl_set_called(analysis, half);
        }
    }
}

// The same for one function alone, as far as its tables have a proved length; else the module.
static bool function_resolve(struct tl_analysis *analysis, uint32_t function, int *status)
{
    bool done = true;
    for (size_t i = 0; i < analysis->jump_count && *status == 0; i++) {
        struct jump jump = analysis->jump[i];
        if (jump.function != function || jump.done)
            continue;
        *status = tl_tables_resolve(analysis, &jump, true);
        analysis->jump[i] = jump;
        done = done && jump.done;
    }
    return done;
}

int tl_code_complete(struct tl_analysis *analysis, uint32_t function)
{
    int status = tl_code_function(analysis, function);
    if (status != 0 || analysis->module_done)
        return status;
    if (function == FUNCTION_NONE)
        return tl_code_module(analysis);
    const struct tl_extent *extent = &analysis->facts.functions[function];
    bool done = true;
    for (size_t count = 0; status == 0 && done && analysis->code_count != count;) {
        count = analysis->code_count;
        done = function_resolve(analysis, function, &status);
        size_t i = tl_addr_list_lower(&analysis->pointers, extent->vaddr);
        for (; status == 0 && analysis->function[function].jumps > 0 &&
               i < analysis->pointers.count &&
               analysis->pointers.item[i] - extent->vaddr < extent->size;
             i++)
            status = tl_code_flood(analysis, analysis->pointers.item[i], true);
    }
    return status != 0 || done ? status : tl_code_module(analysis);
}

static int jump_compare(const void *one, const void *two)
{
    tl_addr a = ((const struct jump *)one)->addr, b = ((const struct jump *)two)->addr;
    return (a > b) - (a < b);
}

// A jump was resolved with the paths that were known then. Where a function has several, those
// found later may bring other tables: all are followed once more.
static int jumps_repeat(struct tl_analysis *analysis)
{
    for (size_t i = 0; i < analysis->jump_count; i++)
        if (analysis->jump[i].function != FUNCTION_NONE &&
            analysis->function[analysis->jump[i].function].jumps > 1)
            analysis->jump[i].done = false;
    int status = jumps_resolve(analysis, false);
    return status != 0 ? status : pending_flood(analysis);
}

int tl_code_module(struct tl_analysis *analysis)
{
    int status = 0;
    if (analysis->module_done)
        return 0;
    for (size_t i = 0; i < analysis->jump_count; i++)
        analysis->jump[i].done = false; // what was followed without the module is followed again
    for (uint32_t i = 0; i < analysis->facts.function_count && status == 0; i++)
        if (!analysis->function[i].decoded)
            status = function_flood(analysis, i);
    if (status == 0)
        status = pending_flood(analysis);
    // Tables with a proved length first: what they reach shows where other tables begin.
    for (bool bounded = true; status == 0; bounded = false) {
        size_t jumps, count;
        do {
            leas_sort(analysis);
            jumps = analysis->jump_count;
            count = analysis->leas.count;
            status = jumps_resolve(analysis, bounded);
            if (status == 0)
                status = pending_flood(analysis);
            if (status == 0 && !bounded)
                status = pointers_flood(analysis);
            if (status == 0)
                status = pending_flood(analysis);
        } while (status == 0 && (analysis->jump_count > jumps || analysis->leas.count > count));
        if (!bounded)
            break;
    }
    if (status == 0)
        status = jumps_repeat(analysis);
    if (status != 0)
        return status;
    gaps_fill(analysis);
    for (size_t i = 0; i < analysis->facts.data_count; i++)
        words_scan(analysis, analysis->facts.data[i].bytes, analysis->facts.data[i].size,
                   analysis->facts.data[i].vaddr);
    if (analysis->facts.position_fixed)
        for (size_t i = 0; i < analysis->region_count; i++)
            words_scan(analysis, analysis->region[i].bytes, analysis->region[i].size,
                       analysis->region[i].vaddr);
    if (analysis->jump_count > 0)
        qsort(analysis->jump, analysis->jump_count, sizeof(*analysis->jump), jump_compare);
    for (uint32_t i = 0; i < analysis->facts.function_count; i++)
        if (analysis->function[i].bad)
            tl_group_set_unproved(analysis, i);
    leas_sort(analysis);
    tl_addr_list_sort(&analysis->reads);
    status = tl_crossings_finish(analysis);
    if (status != 0)
        return status;
    tl_flow_forget(analysis);
    tl_tables_forget(analysis);
    analysis->module_done = true;
    return tl_padding_find(analysis);
}

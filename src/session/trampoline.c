// Which returns may be probed by replacing the return address, and what must be probed besides: unwinders.
//
// Judges by modules' symbols and the function's own code; the replacing is the agent's. Invariant: a return
// address is only replaced in a process all of whose known unwinders have a probe at their look-up, and in
// functions that do nothing else with it than return to it.
#include "session/trampoline.h"

#include <stdlib.h>
#include <string.h>

#define UNWINDERS_MAX 8u
#define CODE_MAX 65536u // bytes of one function that are looked at; longer ones are believed

struct unwinder {
    uint32_t module;
    tl_addr vaddr;
    size_t request; // valid while `requested`
};

struct tl_trampolines {
    enum tl_refusal refusal; // of every site of the process
    struct unwinder unwinder[UNWINDERS_MAX];
    size_t count;
    bool requested;
};

// ---- the process --------------------------------------------------------------------------------

static enum tl_refusal unwinders_find(struct tl_batch *batch, struct tl_trampolines *out)
{
    for (size_t i = 0; i < tl_modules_count(batch->modules); i++) {
        struct tl_module *module = tl_modules_get(batch->modules, i);
        tl_addr find_fde = 0;
        switch (tl_image_unwinder(module->image, &find_fde)) {
        case TL_UNWINDER_NONE:
            break;
        case TL_UNWINDER_LIBGCC:
            if (out->count == UNWINDERS_MAX || tl_module_analyse(module, NULL))
                return TL_REFUSE_NO_UNWINDER;
            out->unwinder[out->count++] = (struct unwinder){
                .module = (uint32_t)i,
                .vaddr = tl_analysis_entry(module->analysis, find_fde)};
            break;
        case TL_UNWINDER_OTHER:
            return TL_REFUSE_NO_UNWINDER;
        case TL_UNWINDER_WALKER:
            return TL_REFUSE_TRAMPOLINE;
        }
    }
    return TL_REFUSE_NONE;
}

static enum tl_refusal process_refusal(struct tl_batch *batch, struct tl_trampolines *out)
{
    struct tl_proc_status status;
    if (batch->pid && (tl_proc_status_read(batch->pid, &status, NULL) || status.shadow_stack))
        return TL_REFUSE_TRAMPOLINE;
    return unwinders_find(batch, out);
}

// NULL: no memory.
static struct tl_trampolines *trampolines_of(struct tl_batch *batch)
{
    if (batch->trampolines)
        return batch->trampolines;
    struct tl_trampolines *made = calloc(1, sizeof *made);
    if (made)
        made->refusal = process_refusal(batch, made);
    batch->trampolines = made;
    return made;
}

void tl_session_trampoline_destroy(struct tl_batch *batch)
{
    free(batch->trampolines);
    batch->trampolines = NULL;
}

// ---- the function -------------------------------------------------------------------------------

// Functions that keep their return address, return by it twice, or ask who called them.
static const char *const keepers[] = {
    "setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp", "_sigsetjmp", // kept in the buffer
    "getcontext", "__getcontext", "swapcontext", "__swapcontext",              // ... in the context
    "vfork", "__vfork", "__libc_vfork", "syscall", "clone", "__clone", "clone3", "__clone3", // twice
    "dlopen", "__dlopen", "dlmopen", "__dlmopen", "dlsym", "__dlsym", "dlvsym", "__dlvsym", // who called?
    "_dl_sym", "_dl_vsym", "_dl_open", "mcount", "_mcount", "__fentry__",
};
static const char *const keeper_starts[] = {"__morestack", "_dl_runtime_", "_dl_tlsdesc_", "_Unwind_"};

static bool is_keeper(const char *name)
{
    for (size_t i = 0; i < TL_ARRAY_COUNT(keepers); i++) {
        if (strcmp(name, keepers[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < TL_ARRAY_COUNT(keeper_starts); i++) {
        if (strncmp(name, keeper_starts[i], strlen(keeper_starts[i])) == 0)
            return true;
    }
    return false;
}

static bool keeper_named(const struct tl_module *module, tl_addr function)
{
    const struct tl_symbol *symbol;
    size_t low = 0, high = tl_image_symbols(module->image, &symbol), count = high;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (symbol[middle].vaddr < function)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && symbol[low].vaddr == function; low++) {
        if (is_keeper(symbol[low].name))
            return true;
    }
    return false;
}

// How far the return address lies above the stack pointer and the frame pointer, in code that is read
// straight on: behind a return or a jump, as deep as it has been.
struct frame {
    int64_t sp, fp, deepest;
};

static int64_t frame_reg(const struct tl_arch *arch, const struct frame *frame, uint8_t from,
                         int32_t plus)
{
    int64_t depth = from == arch->sp_reg   ? frame->sp
                    : from == arch->fp_reg ? frame->fp
                                           : TL_DEPTH_UNKNOWN;
    return depth == TL_DEPTH_UNKNOWN ? depth : depth - plus;
}

static void frame_step(const struct tl_arch *arch, struct frame *frame, const struct tl_insn *insn)
{
    struct tl_stack_step step;
    if (insn->flow == TL_FLOW_RET || insn->flow == TL_FLOW_JUMP || insn->flow == TL_FLOW_IJUMP ||
        insn->flow == TL_FLOW_STOP) {
        frame->sp = frame->deepest;
        return;
    }
    arch->stack(insn, &step);
    struct frame after = {.sp = frame_reg(arch, frame, step.sp_from, step.sp_plus),
                          .fp = frame_reg(arch, frame, step.fp_from, step.fp_plus),
                          .deepest = frame->deepest};
    if (after.sp > after.deepest)
        after.deepest = after.sp;
    *frame = after;
}

// Whether the function's code leaves its return address to its returns.
static bool code_leaves_it(struct tl_module *module, tl_addr function, uint64_t size)
{
    const struct tl_arch *arch = &tl_arch_x86_64;
    struct frame frame = {.fp = TL_DEPTH_UNKNOWN};
    struct tl_insn insn;
    if (size > CODE_MAX)
        size = CODE_MAX;
    for (tl_addr at = function; at < function + size; at += insn.size) {
        if (!tl_session_insn(module, at, &insn))
            return true; // data, or padding: what was seen was well
        if (arch->reads_return(&insn, frame.sp, frame.fp))
            return false;
        frame_step(arch, &frame, &insn);
        if (frame.sp < 0 && frame.sp != TL_DEPTH_UNKNOWN) // it gives back what it never took: only a part
            return false;
    }
    return true;
}

enum tl_refusal tl_session_trampoline_refusal(struct tl_batch *batch, size_t index)
{
    const struct tl_site *site = &batch->sites.site[index];
    struct tl_module *module = tl_modules_get(batch->modules, site->module);
    const struct tl_trampolines *all = trampolines_of(batch);
    struct tl_site_facts facts;
    if (!all)
        return TL_REFUSE_TRAMPOLINE;
    if (all->refusal != TL_REFUSE_NONE)
        return all->refusal;
    tl_addr function = site->function ? site->function : site->vaddr;
    if (!site->entry || keeper_named(module, function))
        return TL_REFUSE_TRAMPOLINE;
    if (tl_module_analyse(module, NULL) ||
        tl_analysis_site(module->analysis, site->vaddr, &facts, NULL) || !facts.function.size)
        return TL_REFUSE_TRAMPOLINE;
    return code_leaves_it(module, facts.function.vaddr, facts.function.size) ? TL_REFUSE_NONE
                                                                             : TL_REFUSE_TRAMPOLINE;
}

// ---- placing ------------------------------------------------------------------------------------

void tl_session_trampoline_options(struct tl_batch *batch, struct tl_install_options *options)
{
    bool needed = batch->session->options.mode == TL_MODE_LATENCY;
    for (size_t i = 0; i < batch->sites.count && !needed; i++)
        needed = batch->sites.site[i].kind == TL_PROBE_RETURN;
    if (!needed || batch->session->options.return_way == TL_RETURN_EXIT)
        return;
    const struct tl_trampolines *all = trampolines_of(batch);
    if (!all || all->refusal != TL_REFUSE_NONE)
        return;
    options->hijack = true;
    options->hijack_lost = options->probe_count;
    options->probe_count *= 2;
}

static bool batch_hijacks(const struct tl_batch *batch)
{
    for (size_t i = 0; i < batch->point_count; i++) {
        if (batch->points[i].kind == TL_RECORD_HIJACK)
            return true;
    }
    return false;
}

int tl_session_unwinders(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_trampolines *all = batch->trampolines;
    const struct tl_record record = {.kind = TL_RECORD_UNWIND};
    if (!all)
        return 0;
    all->requested = false;
    if (!batch_hijacks(batch))
        return 0;
    for (size_t i = 0; i < all->count; i++) {
        struct unwinder *unwinder = &all->unwinder[i];
        int error = tl_batch_request_own(batch, unwinder->module, unwinder->vaddr, &record,
                                         &unwinder->request, diag);
        if (error)
            return error;
    }
    all->requested = true;
    return 0;
}

size_t tl_session_unwinders_fallback(struct tl_batch *batch)
{
    struct tl_trampolines *all = batch->trampolines;
    bool planned = true;
    size_t changed = 0;
    if (!all || !all->requested)
        return 0;
    for (size_t i = 0; i < all->count; i++)
        planned &= tl_plan_get(batch->plans, all->unwinder[i].request)->rung == TL_RUNG_JUMP;
    for (size_t i = 0; i < batch->state_count && !planned; i++) {
        struct tl_session_site *state = &batch->state[i];
        if (state->return_way != TL_SITE_TRAMPOLINE || state->refusal != TL_REFUSE_NONE)
            continue;
        state->return_way = TL_SITE_NO_RETURN;
        state->rung = TL_RUNG_REFUSED;
        state->refusal = TL_REFUSE_NO_UNWINDER;
        changed++;
    }
    if (!planned)
        all->refusal = TL_REFUSE_NO_UNWINDER;
    return changed;
}

// ---- losses -------------------------------------------------------------------------------------

void tl_session_trampoline_refresh(struct tl_batch *batch)
{
    uint32_t count = (uint32_t)batch->sites.count;
    struct tl_drain_memory memory = {0};
    if (!batch->trampolines || !batch->install || !batch_hijacks(batch))
        return;
    tl_install_memory(batch->install, &memory);
    uint64_t *lost = memory.data ? calloc(count, sizeof *lost) : NULL;
    if (!lost || tl_drain_counts(&memory, count, count, lost, NULL)) {
        free(lost);
        return;
    }
    for (size_t i = 0; i < batch->state_count; i++) {
        struct tl_session_site *state = &batch->state[i];
        if (state->return_way != TL_SITE_TRAMPOLINE || state->rung != TL_RUNG_JUMP)
            continue;
        state->hits += lost[state->counter];
        if (batch->session->options.mode == TL_MODE_COUNT)
            state->dropped = lost[state->counter];
        else if (batch->session->options.mode == TL_MODE_LATENCY)
            state->dropped += lost[state->counter];
    }
    free(lost);
}

// Which returns may be probed by replacing the return address, and what must be probed besides:
// unwinders.
//
// Judges by modules' symbols and the function's own code; the replacing is the agent's. Invariant:
// a return address is only replaced in a process all of whose known unwinders have a probe at their
// look-up, and in functions that do nothing else with it than return to it.
#include "session/trampoline.h"
#include "session/follow.h"

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
    enum tl_refusal found;   // what the batch's own modules say
    enum tl_refusal refusal; // of every site of the process
    bool ended;              // all was taken away again
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
                .module = (uint32_t)i, .vaddr = tl_analysis_entry(module->analysis, find_fde)};
            break;
        case TL_UNWINDER_OTHER:
            return TL_REFUSE_NO_UNWINDER;
        case TL_UNWINDER_WALKER:
            return TL_REFUSE_TRAMPOLINE;
        }
    }
    return TL_REFUSE_NONE;
}

static bool batch_hijacks(const struct tl_batch *batch)
{
    for (size_t i = 0; i < batch->point_count; i++) {
        if (batch->points[i].kind == TL_RECORD_HIJACK)
            return true;
    }
    return false;
}

// The next batch from *at on that was placed earlier in the process, or came into it by fork. NULL:
// no more.
static struct tl_batch *earlier_next(const struct tl_batch *batch, size_t *at)
{
    struct tl_session *session = batch->session;
    while (*at < session->batch_count) {
        struct tl_batch *other = session->batch[(*at)++];
        if (other && other != batch && other->install && !other->gone &&
            (other->pid == batch->pid || other == batch->beside))
            return other;
    }
    return NULL;
}

static bool earlier_hijacks(const struct tl_batch *batch)
{
    struct tl_batch *other;
    for (size_t at = 0; (other = earlier_next(batch, &at));) {
        if (batch_hijacks(other))
            return true;
    }
    return false;
}

// A later batch knows its own modules only: an earlier one must have seen to the others.
static enum tl_refusal earlier_refusal(const struct tl_batch *batch)
{
    struct tl_batch *other;
    bool seen = !batch->beside;
    if (batch->beside && batch->beside->pid != batch->pid)
        return TL_REFUSE_NO_UNWINDER;
    for (size_t at = 0; (other = earlier_next(batch, &at));) {
        const struct tl_trampolines *theirs = other->trampolines;
        if (theirs && theirs->refusal != TL_REFUSE_NONE)
            return theirs->refusal;
        seen |= !other->beside && theirs && (!theirs->count || theirs->requested);
    }
    return seen ? TL_REFUSE_NONE : TL_REFUSE_NO_UNWINDER;
}

// Nothing is replaced yet, but in a library that comes later it is asked for.
static bool batch_prepares(const struct tl_batch *batch)
{
    return batch->session->options.return_way == TL_RETURN_TRAMPOLINE && !batch->beside &&
           batch->target && tl_session_may_match_later(batch->session) &&
           !tl_proc_maps_cost(batch->pid);
}

static enum tl_refusal process_refusal(struct tl_batch *batch, struct tl_trampolines *out)
{
    struct tl_proc_status status;
    if (batch->pid &&
        (tl_proc_status_read(batch->pid, &status, NULL) || tl_batch_shadow_stack(batch)))
        return TL_REFUSE_TRAMPOLINE;
    if (batch->pid && tl_proc_maps_cost(batch->pid)) // the slots are megabytes of address space
        return TL_REFUSE_TRAMPOLINE;
    out->found = unwinders_find(batch, out);
    return out->found ? out->found : earlier_refusal(batch);
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
    "setjmp",      "_setjmp",      "__setjmp",     "sigsetjmp",
    "__sigsetjmp", "_sigsetjmp",                                    // kept in the buffer
    "getcontext",  "__getcontext", "swapcontext",  "__swapcontext", // ... in the context
    "vfork",       "__vfork",      "__libc_vfork", "syscall",
    "clone",       "__clone",      "clone3",       "__clone3", // twice
    "dlopen",      "__dlopen",     "dlmopen",      "__dlmopen",
    "dlsym",       "__dlsym",      "dlvsym",       "__dlvsym", // who called?
    "_dl_sym",     "_dl_vsym",     "_dl_open",     "mcount",
    "_mcount",     "__fentry__",
};
static const char *const keeper_starts[] = {"__morestack", "_dl_runtime_", "_dl_tlsdesc_",
                                            "_Unwind_"};

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

// How far the return address lies above the stack pointer and the frame pointer, in code that is
// read straight on: behind a return or a jump, as deep as it has been.
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
    const tl_regset frame_regs = (tl_regset)1 << arch->fp_reg;
    if (insn->flow == TL_FLOW_RET || insn->flow == TL_FLOW_JUMP || insn->flow == TL_FLOW_IJUMP ||
        insn->flow == TL_FLOW_STOP) {
        frame->sp = frame->deepest;
        return;
    }
    if (!(insn->flags & TL_INSN_WRITES_SP) && !(insn->written & frame_regs))
        return;
    arch->stack(insn, &step);
    struct frame after = {.sp = frame_reg(arch, frame, step.sp_from, step.sp_plus),
                          .fp = frame_reg(arch, frame, step.fp_from, step.fp_plus),
                          .deepest = frame->deepest};
    if (after.sp > after.deepest)
        after.deepest = after.sp;
    *frame = after;
}

// Takes over where the function stores its return address. false: at several places, or who knows
// where.
static bool place_take(const struct tl_arch *arch, const struct tl_insn *insn,
                       const struct frame *frame, uint16_t *place)
{
    int64_t below;
    if (!arch->stores_return || !arch->stores_return(insn, frame->sp, frame->fp, &below))
        return true;
    if (below == TL_DEPTH_UNKNOWN || below <= 0 || below % 8 != 0 ||
        below / 8 + TL_HIJACK_AT_KEY >= TL_HIJACK_NOWHERE)
        return false;
    uint16_t here = (uint16_t)(below / 8 + TL_HIJACK_AT_KEY);
    bool first = *place == TL_HIJACK_NOWHERE;
    if (first)
        *place = here;
    return *place == here;
}

// Whether the function's code leaves its return address to its returns, and where it keeps it.
static bool code_leaves_it(struct tl_module *module, tl_addr function, uint64_t size,
                           uint16_t *place)
{
    const struct tl_arch *arch = tl_session_arch(module);
    struct frame frame = {.fp = TL_DEPTH_UNKNOWN};
    struct tl_insn insn;
    bool calls = false;
    *place = arch->stores_return ? TL_HIJACK_NOWHERE : TL_HIJACK_AT_KEY;
    if (size > CODE_MAX)
        size = CODE_MAX;
    for (tl_addr at = function; at < function + size; at += insn.size) {
        if (!tl_session_insn(module, at, &insn))
            break; // data, or padding: what was seen was well
        calls |= insn.flow == TL_FLOW_CALL || insn.flow == TL_FLOW_ICALL;
        // Where it lies on the stack, nothing reads it that can't fault.
        bool can = insn.flow == TL_FLOW_RET || insn.flags & TL_INSN_MAY_FAULT || arch->insn_align > 1;
        if (can && arch->reads_return(&insn, frame.sp, frame.fp))
            return false;
        if (!place_take(arch, &insn, &frame, place))
            return false;
        frame_step(arch, &frame, &insn);
        if (frame.sp < 0 &&
            frame.sp != TL_DEPTH_UNKNOWN) // it gives back what it never took: only a part
            return false;
    }
    // A call takes its register, and it is not kept: it returns by another way.
    return !calls || *place != TL_HIJACK_NOWHERE;
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
    return code_leaves_it(module, facts.function.vaddr, facts.function.size,
                          &batch->state[index].link_place)
               ? TL_REFUSE_NONE
               : TL_REFUSE_TRAMPOLINE;
}

// ---- placing ------------------------------------------------------------------------------------

void tl_session_trampoline_options(struct tl_batch *batch, struct tl_install_options *options)
{
    bool needed = batch->session->options.mode == TL_MODE_LATENCY;
    for (size_t i = 0; i < batch->sites.count && !needed; i++)
        needed = batch->sites.site[i].kind == TL_PROBE_RETURN;
    // Whether it may be is not asked before some site comes to it: that costs a look at every
    // module.
    const struct tl_trampolines *all = batch->trampolines;
    needed &= batch->session->options.return_way != TL_RETURN_EXIT &&
              !tl_proc_maps_cost(batch->pid) && (!all || all->refusal == TL_REFUSE_NONE);
    if (!needed && !(all && all->requested))
        return;
    if (!options->probe_count) // unwinders only
        options->probe_count = 1;
    options->hijack = true;
    options->hijack_lost = options->probe_count;
    options->probe_count *= 2;
}

int tl_session_trampoline_places(struct tl_batch *batch, struct tl_diag *diag)
{
    if (!tl_install_hijacks(batch->install) || !batch->state_count)
        return 0;
    uint16_t *place = calloc(batch->state_count, sizeof *place);
    if (!place)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < batch->state_count; i++) {
        const struct tl_session_site *state = &batch->state[i];
        if (state->return_way == TL_SITE_TRAMPOLINE && state->counter < batch->state_count)
            place[state->counter] = state->link_place;
    }
    int error = tl_install_hijack_places(batch->install, place, batch->state_count, diag);
    free(place);
    return error;
}

int tl_session_trampoline_join(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_batch *other;
    for (size_t at = 0; (other = earlier_next(batch, &at));) {
        if (tl_install_hijacks(other->install))
            return tl_install_hijack_join(other->install, batch->install, diag);
    }
    return 0;
}

bool tl_session_trampoline_needs(struct tl_batch *batch)
{
    return earlier_hijacks(batch) && trampolines_of(batch) &&
           (batch->trampolines->count || batch->trampolines->found != TL_REFUSE_NONE);
}

bool tl_session_trampoline_wants_loader(const struct tl_batch *batch)
{
    return batch->trampolines && batch_hijacks(batch);
}

int tl_session_unwinders(struct tl_batch *batch, struct tl_diag *diag)
{
    const struct tl_record record = {.kind = TL_RECORD_UNWIND};
    bool prepares = batch_prepares(batch);
    struct tl_trampolines *all = prepares ? trampolines_of(batch) : batch->trampolines;
    if (!all)
        return 0;
    all->requested = false;
    if (!batch_hijacks(batch) && !earlier_hijacks(batch) && !prepares)
        return 0;
    for (size_t i = 0; i < all->count; i++) {
        struct unwinder *unwinder = &all->unwinder[i];
        int error = tl_batch_request_own(batch, unwinder->module, unwinder->vaddr, &record,
                                         &unwinder->request, diag);
        if (error)
            return error;
    }
    all->requested = true;
    return all->count ? tl_session_modules(batch, diag) : 0; // more of them may be analysed now
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

// ---- the way back -------------------------------------------------------------------------------

static bool site_replaces(const struct tl_session_site *state)
{
    return state->return_way == TL_SITE_TRAMPOLINE && !state->closed &&
           state->rung == TL_RUNG_JUMP && state->point_count;
}

// The return addresses are put back, and no more are replaced; then the batch's sites of this kind
// are taken away.
static int batch_retreat(struct tl_batch *batch, struct tl_diag *diag)
{
    int error = tl_install_hijack_end(batch->install, diag);
    for (size_t i = 0; i < batch->state_count && !error; i++) {
        struct tl_session_site *state = &batch->state[i];
        if (!site_replaces(state))
            continue;
        uint32_t request = batch->points[state->point_first].request;
        error = tl_install_close_site(batch->install, request, batch->results, diag);
        batch->results[request].refusal = state->refusal = TL_REFUSE_NO_UNWINDER;
        state->closed = true;
    }
    if (batch->trampolines) {
        batch->trampolines->refusal = TL_REFUSE_NO_UNWINDER;
        batch->trampolines->ended = true;
    }
    return error;
}

static bool unwinders_placed(const struct tl_batch *batch)
{
    const struct tl_trampolines *all = batch->trampolines;
    for (size_t i = 0; i < all->count; i++) {
        size_t request = all->unwinder[i].request;
        enum tl_refusal refusal = batch->results[request].refusal;
        if (tl_plan_get(batch->plans, request)->rung != TL_RUNG_JUMP ||
            (refusal != TL_REFUSE_NONE && refusal != TL_REFUSE_UNLOADED))
            return false;
    }
    return true;
}

int tl_session_trampoline_check(struct tl_batch *batch, struct tl_diag *diag)
{
    const struct tl_trampolines *all = batch->trampolines;
    struct tl_batch *other;
    if (!all || all->ended)
        return 0;
    bool lost = all->requested && !(batch->results && unwinders_placed(batch));
    bool strange = all->found != TL_REFUSE_NONE && earlier_hijacks(batch);
    if (!lost && !strange)
        return 0;
    int error = batch->install && batch->results ? batch_retreat(batch, diag) : 0;
    for (size_t at = 0; !error && (other = earlier_next(batch, &at));) {
        if (other->results && other->pid == batch->pid)
            error = batch_retreat(other, diag);
    }
    return error;
}

void tl_session_trampoline_text(struct tl_session *session, pid_t pid)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_batch *batch = session->batch[i];
        if (batch && batch->pid == pid && batch->install && !batch->gone && batch->trampolines)
            (void)tl_install_hijack_ranges(batch->install, NULL); // only losses otherwise
    }
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

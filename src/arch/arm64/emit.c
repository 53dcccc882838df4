// Writes detours: find the block that the thread's home names, add to it, run the displaced
// instruction, branch back.
//
// Does not choose the place, nor prove registers dead. Invariants: the count is atomic, so threads
// may share a block and a signal may land anywhere; no system call; nothing is stored below the
// stack pointer, which moves by multiples of 16 (with no_stack, not at all); vector registers are
// not touched; every register and flag that is not proved dead has its value again before the
// displaced instruction, or, where the count comes behind it, before the next one.
//
//   record frame (emit.h); each record's call; undo
//   [spill]
//   mrs A, tpidr_el0; ubfx A, A, #homes_shift, #8; adrp B, homes; ldr B, [B, A, lsl #3]
//   cbz B, slow; add B, B, #counter; mov wA, #1; stadd A, [B]
//   done: [restore]
//   push x30; call agent; pop x30         only at the entry of a fault handler
//   displaced instruction; b resume
//   a conditional branch's taken path
//   slow: record frame; call agent; undo; b done
//   literals
//
// Without the atomic instructions: ldxr A, [B]; add A, A, #1; stxr wC, A, [B]; cbnz wC, back.
#include "arch/arm64/arm64.h"

#include "agent/layout.h"
#include "arch/arm64/relocate.h"

#define SCRATCH_MAX 3
#define FRAME TL_RECORD_FRAME_ARM64
#define HOME_INDEX_BITS 8

_Static_assert(1u << HOME_INDEX_BITS == TL_HOMES, "homes");

// Which registers the count works with. Those to spill come first.
struct scratch {
    uint8_t reg[SCRATCH_MAX];
    uint8_t count, spill_count;
};

// Branches to the slow path, to be closed when it is written.
struct slow {
    bool open;
    uint16_t position;
    uint16_t done; // where it goes back to
    uint8_t index; // the register that holds the home's; REG_ZERO: it is 0
};

struct detour_work {
    const struct tl_emit_in *in;
    struct tl_words *w;
    struct tl_detour *out;
    struct slow slow;
};

static struct scratch scratch_choose(const struct tl_emit_in *in, tl_regset dead)
{
    // The platform register (x18) is left alone: AAPCS64, "General-purpose Registers".
    tl_regset usable = TL_REGSET_GENERAL & ~TL_REGSET(REG_SP) & ~TL_REGSET(18);
    struct scratch s = {.count = in->atomics ? 2 : SCRATCH_MAX};
    tl_regset taken = 0;
    dead &= usable;
    unsigned have = (unsigned)__builtin_popcountll(dead);
    s.spill_count = have < s.count ? (uint8_t)(s.count - have) : 0;
    for (uint8_t i = 0; i < s.count; i++) {
        tl_regset from = i < s.spill_count ? usable & ~dead : dead;
        s.reg[i] = (uint8_t)tl_arm64_register_take(from & ~taken);
        taken |= TL_REGSET(s.reg[i]);
    }
    return s;
}

static void scratch_save(struct detour_work *work, const struct scratch *s)
{
    struct tl_words *w = work->w;
    if (s->spill_count == 0)
        return;
    tl_arm64_fault_point(work->out, w, 0);
    if (s->spill_count == 1)
        tl_words_put(w, A64_STR_PUSH(s->reg[0], 16 + STACK_BELOW));
    else
        tl_words_put(
            w, A64_STP_PUSH(s->reg[0], s->reg[1], (s->spill_count == 2 ? 16 : 32) + STACK_BELOW));
    if (s->spill_count == 3)
        tl_words_put(w, A64_STR_X(s->reg[2], REG_SP, 16));
}

static void scratch_restore(struct tl_words *w, const struct scratch *s)
{
    if (s->spill_count == 3)
        tl_words_put(w, A64_LDR_X(s->reg[2], REG_SP, 16));
    if (s->spill_count == 1)
        tl_words_put(w, A64_LDR_POP(s->reg[0], 16 + STACK_BELOW));
    else if (s->spill_count)
        tl_words_put(
            w, A64_LDP_POP(s->reg[0], s->reg[1], (s->spill_count == 2 ? 16 : 32) + STACK_BELOW));
}

// ---- the count ----------------------------------------------------------------------------------

// b = the home's word.
static void home_load(struct detour_work *work, uint8_t a, uint8_t b)
{
    const struct tl_emit_in *in = work->in;
    struct tl_words *w = work->w;
    bool shared = in->thread_pointer == TL_TP_SHARED;
    if (!shared) {
        tl_words_put(w, A64_MRS_TPIDR(a));
        tl_words_put(w, A64_UBFX_X(a, a, in->homes_shift, HOME_INDEX_BITS));
    }
    unsigned low = tl_words_put_page(w, b, in->homes_addr, shared ? 8 : TL_PAGE_SIZE);
    tl_words_put(w, shared ? A64_LDR_X(b, b, low) : A64_LDR_X_INDEX(b, b, a));
    work->slow.index = shared ? REG_ZERO : a;
}

// b += counter_off; a is lost.
static void counter_find(struct tl_words *w, uint8_t a, uint8_t b, uint32_t counter_off)
{
    if (counter_off >> 24 == 0) {
        tl_words_put_add(w, b, b, counter_off);
    } else {
        tl_words_put_constant(w, a, counter_off);
        tl_words_put(w, A64_ADD_X(b, b, a));
    }
}

static uint8_t count_write(struct detour_work *work, tl_regset dead)
{
    const struct tl_emit_in *in = work->in;
    struct tl_words *w = work->w;
    struct scratch s = scratch_choose(in, dead);
    uint8_t a = s.reg[0], b = s.reg[1], c = s.reg[2];
    // A home that is empty has to be filled, with a call, or passed over.
    if (in->no_stack && (s.spill_count || in->thread_pointer != TL_TP_SHARED))
        return TL_REFUSE_NO_STACK;
    scratch_save(work, &s);
    home_load(work, a, b);
    work->slow.position = tl_words_open(w, A64_CBZ_X(b));
    work->slow.open = true;
    counter_find(w, a, b, in->counter_off);
    if (in->atomics) {
        tl_words_put_constant(w, a, 1);
        tl_words_put(w, A64_STADD_X(a, b));
    } else {
        uint16_t again = w->size;
        tl_words_put(w, A64_LDXR_X(a, b));
        tl_words_put(w, A64_ADD_IMM(a, a, 1));
        tl_words_put(w, A64_STXR_X(c, a, b));
        tl_words_close(w, tl_words_open(w, A64_CBNZ_W(c)), again);
    }
    work->slow.done = w->size;
    if (in->no_stack) {
        tl_words_close(w, work->slow.position, w->size);
        work->slow.open = false;
    }
    scratch_restore(w, &s);
    return TL_REFUSE_NONE;
}

// A call that may change x30.
static void agent_call(struct tl_words *w, tl_addr to)
{
    if (tl_words_put_aimed(w, A64_BL, to))
        return;
    tl_words_put_address(w, REG_LINK, to);
    tl_words_put(w, A64_BLR(REG_LINK)); // reads its register before it writes the link
}

// The agent claims a block, fills the home and counts. Scratch registers hold nothing any more.
static void slow_path(struct detour_work *work)
{
    struct tl_words *w = work->w;
    tl_words_close(w, work->slow.position, w->size);
    tl_words_put(w, A64_STP_PUSH(REG_IP0, REG_IP1, FRAME));
    tl_words_put(w, A64_STR_X(REG_LINK, REG_SP, 16));
    tl_words_put(w, A64_MOV_W(REG_IP1, work->slow.index));
    tl_words_put_constant(w, REG_IP0, work->in->counter_off);
    agent_call(w, work->in->slow_addr);
    tl_words_put(w, A64_LDR_X(REG_LINK, REG_SP, 16));
    tl_words_put(w, A64_LDP_POP(REG_IP0, REG_IP1, FRAME));
    tl_words_close(w, tl_words_open(w, A64_B), work->slow.done);
}

// ---- records and guards -------------------------------------------------------------------------

static bool records_known(const struct tl_emit_in *in)
{
    if (!(in->action & TL_ACTION_RECORD))
        return true;
    for (size_t i = 0; i < TL_SITE_RECORDS_MAX && in->record[i].kind; i++) {
        const struct tl_record *record = &in->record[i];
        if (record->kind >= TL_RECORD_KIND_COUNT || !in->record_addr[record->kind] ||
            record->counter_off > INT32_MAX || record->sp_off > 0 ||
            record->sp_off <= -(1 << 24) + FRAME)
            return false;
    }
    return in->record[0].kind != TL_RECORD_NONE;
}

// The record frame (TL_RECORD_FRAME_ARM64): all its records are called in one.
static void records_call(struct detour_work *work)
{
    const struct tl_emit_in *in = work->in;
    struct tl_words *w = work->w;
    bool flags = !(in->dead & TL_REGSET_FLAGS);
    tl_arm64_fault_point(work->out, w, 0);
    tl_words_put(w, A64_STP_PUSH(REG_IP0, REG_IP1, FRAME));
    if (flags)
        tl_words_put(w, A64_MRS_NZCV(REG_IP0));
    tl_words_put(w, A64_STP(REG_LINK, REG_IP0, 16));
    for (size_t i = 0; i < TL_SITE_RECORDS_MAX && in->record[i].kind; i++) {
        tl_words_put_constant(w, REG_IP0, in->record[i].counter_off);
        tl_words_put_add(w, REG_IP1, REG_SP, (uint32_t)(FRAME - in->record[i].sp_off));
        agent_call(w, in->record_addr[in->record[i].kind]);
    }
    tl_words_put(w, A64_LDP(REG_LINK, REG_IP0, 16));
    if (flags)
        tl_words_put(w, A64_MSR_NZCV(REG_IP0));
    tl_words_put(w, A64_LDP_POP(REG_IP0, REG_IP1, FRAME));
}

// The agent keeps every register and flag but x30.
static void guard_call(struct detour_work *work, tl_addr to)
{
    tl_arm64_fault_point(work->out, work->w, 0);
    tl_words_put(work->w, A64_STR_PUSH(REG_LINK, 16));
    agent_call(work->w, to);
    tl_words_put(work->w, A64_LDR_POP(REG_LINK, 16));
}

// ---- the detour ---------------------------------------------------------------------------------

static uint8_t action_write(struct detour_work *work)
{
    const struct tl_emit_in *in = work->in;
    if (in->no_stack && (in->action | TL_ACTION_COUNT) != TL_ACTION_COUNT)
        return TL_REFUSE_NO_STACK;
    // Before the count, which leaves anything in dead registers: they may be arguments.
    if (in->action & TL_ACTION_RECORD)
        records_call(work);
    if (in->action & TL_ACTION_COUNT) {
        uint8_t refusal = count_write(work, in->dead);
        if (refusal)
            return refusal;
    }
    if (in->action & TL_ACTION_CALL)
        guard_call(work, in->call_addr);
    if (in->action & TL_ACTION_LEAVE)
        guard_call(work, in->leave_addr);
    return TL_REFUSE_NONE;
}

// The way of a conditional branch that is taken.
static uint8_t taken_write(struct detour_work *work, const struct tl_arm64_taken *taken)
{
    uint8_t refusal = TL_REFUSE_NONE;
    tl_words_close(work->w, taken->position, work->w->size);
    if (work->in->on_taken)
        refusal = action_write(work);
    if (refusal)
        return refusal;
    if (!taken->self)
        return tl_arm64_relocate_jump(work->in, work->w, taken->target);
    tl_words_close(work->w, tl_words_open(work->w, A64_B), work->out->displaced);
    return TL_REFUSE_NONE;
}

// A call that was made to the detour has its return address in x30 already: on to the true target.
static uint8_t retargeted_write(struct detour_work *work)
{
    if (work->in->insn[0].reloc != TL_RELOC_CALL)
        return TL_REFUSE_UNKNOWN_INSN;
    work->out->displaced = work->w->size;
    work->out->insn_count = 0;
    work->out->boundary_count =
        0; // the call ran at its own place: no state here equals one before it
    return tl_arm64_relocate_jump(work->in, work->w, work->in->insn[0].target);
}

static uint8_t displaced_write(struct detour_work *work, bool behind)
{
    const struct tl_emit_in *in = work->in;
    const struct tl_insn *insn = &in->insn[0];
    struct tl_arm64_taken taken = {.open = false};
    uint8_t refusal = tl_arm64_relocate(in, work->w, work->out, &taken);
    if (!refusal && behind)
        refusal = count_write(work, in->dead_behind);
    if (refusal)
        return refusal;
    if (insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_COND) {
        struct tl_detour *out = work->out;
        out->boundary[out->boundary_count++] = (struct tl_boundary){
            .off = work->w->size, .insn_off = (uint8_t)(in->resume_addr - insn->addr)};
        if (in->stepped)
            tl_words_put(work->w, A64_BRK);
        else
            refusal = tl_arm64_relocate_jump(in, work->w, in->resume_addr);
    }
    return !refusal && taken.open ? taken_write(work, &taken) : refusal;
}

static uint8_t detour_write(struct detour_work *work)
{
    const struct tl_emit_in *in = work->in;
    uint8_t refusal = TL_REFUSE_NONE;
    tl_detour_begin(work->out);
    // Behind the instruction only if nothing need be saved there: a fault of that store could not
    // be shown.
    bool behind = in->behind && scratch_choose(in, in->dead_behind).spill_count == 0;
    if (!in->on_taken && !behind)
        refusal = action_write(work);
    if (!refusal)
        refusal = in->call_retarget ? retargeted_write(work) : displaced_write(work, behind);
    if (refusal)
        return refusal;
    if (work->slow.open)
        slow_path(work);
    tl_words_put_literals(work->w);
    return TL_REFUSE_NONE;
}

static bool input_known(const struct tl_emit_in *in)
{
    bool behind = in->behind && (in->action != TL_ACTION_COUNT || in->on_taken ||
                                 in->call_retarget || in->insn[0].flow != TL_FLOW_NEXT);
    return records_known(in) && !behind && !(in->on_taken && in->call_retarget) &&
           in->homes_shift <= 64 - HOME_INDEX_BITS;
}

int tl_arm64_emit_detour(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                         struct tl_diag *diag)
{
    if (in->insn_count != 1 || in->counter_off > INT32_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: %u instructions, counter %u",
                           (unsigned long long)at, in->insn_count, in->counter_off);
    if (!input_known(in))
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: an action that can't be written",
                           (unsigned long long)at);
    struct tl_detour detour;
    struct tl_words w = {.bytes = detour.bytes, .capacity = sizeof detour.bytes, .at = at};
    struct detour_work work = {.in = in, .w = &w, .out = &detour};
    detour.refusal = detour_write(&work);
    if (w.full)
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: more than %d bytes",
                           (unsigned long long)at, TL_DETOUR_SIZE_MAX);
    detour.size = detour.refusal ? 0 : w.size;
    __builtin_memcpy(out, &detour, offsetof(struct tl_detour, bytes) + detour.size);
    return 0;
}

bool tl_arm64_emit_jump(tl_addr at, tl_addr to, uint8_t *out)
{
    uint32_t word = A64_B;
    if (!tl_word_aim(&word, (int64_t)(to - at)))
        return false;
    __builtin_memcpy(out, &word, sizeof word);
    return true;
}

bool tl_arm64_emit_retarget(const struct tl_insn *insn, tl_addr to, uint8_t *out)
{
    uint32_t word = tl_arm64_word(insn);
    if ((insn->reloc != TL_RELOC_CALL && insn->reloc != TL_RELOC_BRANCH &&
         insn->reloc != TL_RELOC_COND) ||
        !tl_word_aim(&word, (int64_t)(to - insn->addr)))
        return false;
    __builtin_memcpy(out, &word, sizeof word);
    return true;
}

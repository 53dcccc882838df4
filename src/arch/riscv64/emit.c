// Writes detours: find the block that the thread's home names, add to it, run the displaced
// instructions, branch back.
//
// Does not choose the place, nor prove registers dead. Invariants: the count is atomic, so threads
// may share a block and a signal may land anywhere; no system call; nothing is stored below the
// stack pointer, which moves by multiples of 16 (with no_stack, not at all); neither floating-point
// nor vector registers are touched; every register that is not proved dead has its value again
// before the displaced instructions, or, where the count comes behind some of them, before the next.
//
//   ld R, 0(sp); addi sp, sp, 16                      if the branch here put R on the stack
//   record frame (emit.h); each record's call; undo
//   [spill]
//   srli A, tp, #homes_shift - 3; andi A, A, #0x7f8; auipc B, homes; add B, B, A; ld B, homes(B)
//   beqz B, slow; addi B, B, #counter; li A, 1; amoadd.d x0, A, (B)
//   done: [restore]
//   addi sp, sp, -16; sd ra, 0(sp); call agent; undo  only at the entry of a fault handler
//   displaced instructions; j resume
//   conditional branches' taken paths
//   slow: record frame; call agent; undo; j done
//   literals
#include "arch/riscv64/riscv64.h"

#include "agent/layout.h"
#include "arch/riscv64/relocate.h"

#define SCRATCH_COUNT 2
#define FRAME TL_RECORD_FRAME_RISCV64
#define FRAME_RA (FRAME - 8)
#define FRAME_T0 (FRAME - 16)
#define FRAME_T1 (FRAME - 24)
#define SPILL_BYTES 16
#define FRAME_SLOTS 64u       // what c.sdsp reaches
#define FRAME_OPENED_MAX 2032 // bytes, so that a fault point can say it
#define HOME_INDEX_BITS 8
#define HOME_SIZE_BITS 3 // a home is a word of 8 bytes
#define HOMES_MASK ((TL_HOMES - 1u) << HOME_SIZE_BITS)

_Static_assert(1u << HOME_INDEX_BITS == TL_HOMES, "homes");
_Static_assert(HOMES_MASK < 2048, "an immediate");

// Which registers the count works with. Those to spill come first.
struct scratch {
    uint8_t reg[SCRATCH_COUNT];
    uint8_t spill_count;
    uint16_t slot[SCRATCH_COUNT]; // from the stack pointer
};

// The part of a prologue that has run before a count: room of its own on the stack, where registers can be saved
// without moving the stack pointer. What lies there is nobody's yet, but for what was stored.
//
//   old sp ->  |  ra  |  s0  | free | free |  <- sp
struct frame {
    uint16_t size; // 0: none
    uint64_t used; // by words from the stack pointer
};

// The branch to the slow path, to be closed when it is written.
struct slow {
    bool open;
    uint16_t position;
    uint16_t done; // where it goes back to
    uint8_t index; // the register that holds the home's offset; X_ZERO: it is 0
};

struct detour_work {
    const struct tl_emit_in *in;
    struct tl_parcels *w;
    struct tl_detour *out;
    struct slow slow;
};

static struct scratch scratch_choose(tl_regset dead)
{
    struct scratch s = {.spill_count = 0};
    tl_regset taken = 0;
    dead &= TL_RISCV64_USABLE;
    unsigned have = (unsigned)__builtin_popcountll(dead);
    s.spill_count = have < SCRATCH_COUNT ? (uint8_t)(SCRATCH_COUNT - have) : 0;
    for (uint8_t i = 0; i < SCRATCH_COUNT; i++) {
        tl_regset from = i < s.spill_count ? TL_RISCV64_USABLE & ~dead : dead;
        s.reg[i] = (uint8_t)tl_riscv64_register_take(from & ~taken);
        taken |= TL_REGSET(s.reg[i]);
    }
    return s;
}

// Gives the spilled registers their slots. false: the frame has too few.
static bool scratch_slots(struct scratch *s, const struct frame *frame)
{
    unsigned slot = frame->size / 8u < FRAME_SLOTS ? frame->size / 8u : FRAME_SLOTS, given = 0;
    while (slot-- > 0 && given < s->spill_count) {
        if (!(frame->used >> slot & 1))
            s->slot[given++] = (uint16_t)(8 * slot);
    }
    return given == s->spill_count;
}

// frame: of size 0, the stack pointer moves.
static void scratch_save(struct detour_work *work, struct scratch *s, const struct frame *frame)
{
    const struct frame own = {.size = SPILL_BYTES};
    if (s->spill_count && !frame->size)
        tl_parcels_put_stack(work->w, -SPILL_BYTES);
    frame = frame->size ? frame : &own;
    (void)scratch_slots(s, frame);
    for (unsigned i = 0; i < s->spill_count; i++) {
        tl_riscv64_fault_point(work->out, work->w, frame->size / 8u);
        tl_parcels_put(work->w, RVC_SDSP(s->reg[i], s->slot[i]));
    }
}

static void scratch_restore(struct tl_parcels *w, const struct scratch *s, const struct frame *frame)
{
    for (unsigned i = 0; i < s->spill_count; i++)
        tl_parcels_put(w, RVC_LDSP(s->reg[i], s->slot[i]));
    if (s->spill_count && !frame->size)
        tl_parcels_put_stack(w, SPILL_BYTES);
}

// ---- prologues
// ----------------------------------------------------------------------------------------

// A store of 8 bytes at a distance from the stack pointer.
static bool stack_store(const struct tl_insn *insn, uint32_t *off)
{
    uint32_t word = tl_riscv64_word(insn);
    if (insn->size == 2) {
        *off = (word >> 10 & 7) << 3 | (word >> 7 & 7) << 6;
        return (word & 0xe003) == 0xe002; // c.sdsp
    }
    *off = (word >> 25 & 63) << 5 | (word >> 7 & 31);
    return (word & 0x800ff07f) == 0x00013023; // sd, upwards
}

// Whether insn leaves all as it was before the site but for the stack pointer, for the frame below it and for what
// is dead there: then a fault that comes behind may be shown at the site, and all of it run again.
static bool frame_step(const struct tl_emit_in *in, const struct tl_insn *insn, struct frame *frame)
{
    struct tl_riscv64_addition sum;
    uint32_t off;
    bool adds = tl_riscv64_addition(insn, &sum);
    if (adds && sum.to == X_SP) {
        if (frame->size || sum.from != X_SP || sum.plus >= 0 || sum.plus < -FRAME_OPENED_MAX || sum.plus % 16)
            return false;
        frame->size = (uint16_t)-sum.plus;
        return true;
    }
    if (stack_store(insn, &off)) {
        if (off % 8 || off + 8 > frame->size)
            return false;
        if (off / 8 < FRAME_SLOTS)
            frame->used |= (uint64_t)1 << off / 8;
        return true;
    }
    return adds && !(insn->written & ~in->dead);
}

// Whether the count may come where in->behind says, and is no dearer there. frame: where it saves registers.
static bool behind_fits(const struct tl_emit_in *in, struct frame *frame)
{
    struct scratch before = scratch_choose(in->dead), behind = scratch_choose(in->dead_behind);
    if (!in->behind || !behind.spill_count)
        return in->behind;
    if (in->no_stack || behind.spill_count > before.spill_count)
        return false;
    for (unsigned i = 0; i < in->behind; i++) {
        if (!frame_step(in, &in->insn[i], frame))
            return false;
    }
    return frame->size && scratch_slots(&behind, frame);
}

// ---- the count
// ----------------------------------------------------------------------------------------

// b = the home's word.
static void home_load(struct detour_work *work, uint8_t a, uint8_t b)
{
    const struct tl_emit_in *in = work->in;
    struct tl_parcels *w = work->w;
    bool shared = in->thread_pointer == TL_TP_SHARED;
    if (!shared) {
        tl_parcels_put(w, RV_SRLI(a, X_TP, in->homes_shift - HOME_SIZE_BITS));
        tl_parcels_put(w, RV_ANDI(a, a, HOMES_MASK));
    }
    int32_t low = tl_parcels_put_page(w, b, in->homes_addr);
    if (!shared)
        tl_parcels_put(w, RVC_ADD(b, a));
    tl_parcels_put(w, RV_LD(b, b, low));
    work->slow.index = shared ? X_ZERO : a;
}

static uint8_t count_write(struct detour_work *work, tl_regset dead, const struct frame *frame)
{
    const struct tl_emit_in *in = work->in;
    struct tl_parcels *w = work->w;
    struct scratch s = scratch_choose(dead);
    uint8_t a = s.reg[0], b = s.reg[1];
    // A home that is empty has to be filled, with a call, or passed over.
    if (in->no_stack && (s.spill_count || in->thread_pointer != TL_TP_SHARED))
        return TL_REFUSE_NO_STACK;
    scratch_save(work, &s, frame);
    home_load(work, a, b);
    work->slow.position = tl_parcels_open(w, RV_BEQ(b, X_ZERO));
    work->slow.open = true;
    if (in->counter_off < 2048) {
        tl_parcels_put_add(w, b, b, (int32_t)in->counter_off);
    } else {
        tl_parcels_put_constant(w, a, (int32_t)in->counter_off);
        tl_parcels_put(w, RVC_ADD(b, a));
    }
    tl_parcels_put_constant(w, a, 1);
    tl_parcels_put(w, RV_AMOADD_D(X_ZERO, a, b));
    work->slow.done = w->size;
    if (in->no_stack) {
        tl_parcels_close(w, work->slow.position, w->size);
        work->slow.open = false;
    }
    scratch_restore(w, &s, frame);
    return TL_REFUSE_NONE;
}

// A call that may change ra.
static void agent_call(struct tl_parcels *w, tl_addr to)
{
    if (tl_parcels_put_aimed(w, RV_JAL(X_RA), to))
        return;
    int32_t low = tl_parcels_put_page(w, X_RA, to);
    tl_parcels_put(w, RV_JALR(X_RA, X_RA, low)); // reads its register before it writes the link
}

// The agent claims a block, fills the home and counts. Scratch registers hold nothing any more.
static void slow_path(struct detour_work *work)
{
    struct tl_parcels *w = work->w;
    tl_parcels_close(w, work->slow.position, w->size);
    tl_parcels_put_stack(w, -FRAME);
    tl_parcels_put(w, RVC_SDSP(X_RA, FRAME_RA));
    tl_parcels_put(w, RVC_SDSP(X_T0, FRAME_T0));
    tl_parcels_put(w, RVC_SDSP(X_T1, FRAME_T1));
    tl_parcels_put(w, RV_SRLI(X_T1, work->slow.index, HOME_SIZE_BITS));
    tl_parcels_put_constant(w, X_T0, (int32_t)work->in->counter_off);
    agent_call(w, work->in->slow_addr);
    tl_parcels_put(w, RVC_LDSP(X_RA, FRAME_RA));
    tl_parcels_put(w, RVC_LDSP(X_T0, FRAME_T0));
    tl_parcels_put(w, RVC_LDSP(X_T1, FRAME_T1));
    tl_parcels_put_stack(w, FRAME);
    tl_parcels_close(w, tl_parcels_open(w, RV_JAL(X_ZERO)), work->slow.done);
}

// ---- records and guards
// -------------------------------------------------------------------------------

static bool records_known(const struct tl_emit_in *in)
{
    if (!(in->action & TL_ACTION_RECORD))
        return true;
    for (size_t i = 0; i < TL_SITE_RECORDS_MAX && in->record[i].kind; i++) {
        const struct tl_record *record = &in->record[i];
        if (record->kind >= TL_RECORD_KIND_COUNT || !in->record_addr[record->kind] ||
            record->counter_off > INT32_MAX || record->sp_off > 0 ||
            record->sp_off <= INT32_MIN + FRAME)
            return false;
    }
    return in->record[0].kind != TL_RECORD_NONE;
}

static void frame_store(struct detour_work *work, unsigned reg, unsigned off)
{
    tl_riscv64_fault_point(work->out, work->w, FRAME / 8);
    tl_parcels_put(work->w, RVC_SDSP(reg, off));
}

// The record frame (TL_RECORD_FRAME_RISCV64): all its records are called in one.
static void records_call(struct detour_work *work)
{
    const struct tl_emit_in *in = work->in;
    struct tl_parcels *w = work->w;
    bool t0 = !(in->dead & TL_REGSET(X_T0)), t1 = !(in->dead & TL_REGSET(X_T1));
    tl_parcels_put_stack(w, -FRAME);
    frame_store(work, X_RA, FRAME_RA);
    if (t0)
        frame_store(work, X_T0, FRAME_T0);
    if (t1)
        frame_store(work, X_T1, FRAME_T1);
    for (size_t i = 0; i < TL_SITE_RECORDS_MAX && in->record[i].kind; i++) {
        tl_parcels_put_constant(w, X_T0, (int32_t)in->record[i].counter_off);
        tl_parcels_put_add(w, X_T1, X_SP, FRAME - in->record[i].sp_off);
        agent_call(w, in->record_addr[in->record[i].kind]);
    }
    tl_parcels_put(w, RVC_LDSP(X_RA, FRAME_RA));
    if (t0)
        tl_parcels_put(w, RVC_LDSP(X_T0, FRAME_T0));
    if (t1)
        tl_parcels_put(w, RVC_LDSP(X_T1, FRAME_T1));
    tl_parcels_put_stack(w, FRAME);
}

// The agent keeps every register but ra.
static void guard_call(struct detour_work *work, tl_addr to)
{
    tl_parcels_put_stack(work->w, -SPILL_BYTES);
    tl_riscv64_fault_point(work->out, work->w, SPILL_BYTES / 8);
    tl_parcels_put(work->w, RVC_SDSP(X_RA, 0));
    agent_call(work->w, to);
    tl_parcels_put(work->w, RVC_LDSP(X_RA, 0));
    tl_parcels_put_stack(work->w, SPILL_BYTES);
}

// ---- the detour
// ---------------------------------------------------------------------------------------

static uint8_t action_write(struct detour_work *work)
{
    const struct tl_emit_in *in = work->in;
    if (in->no_stack && (in->action | TL_ACTION_COUNT) != TL_ACTION_COUNT)
        return TL_REFUSE_NO_STACK;
    // Before the count, which leaves anything in dead registers: they may be arguments.
    if (in->action & TL_ACTION_RECORD)
        records_call(work);
    if (in->action & TL_ACTION_COUNT) {
        const struct frame none = {.size = 0};
        uint8_t refusal = count_write(work, in->dead, &none);
        if (refusal)
            return refusal;
    }
    if (in->action & TL_ACTION_CALL)
        guard_call(work, in->call_addr);
    if (in->action & TL_ACTION_LEAVE)
        guard_call(work, in->leave_addr);
    return TL_REFUSE_NONE;
}

// What came here by a branch that needed a register which was not free.
static uint8_t arrive_write(struct detour_work *work)
{
    if (!work->in->arrive_reg)
        return TL_REFUSE_NONE;
    if (work->in->no_stack)
        return TL_REFUSE_NO_STACK;
    tl_riscv64_fault_point(work->out, work->w, SPILL_BYTES / 8);
    tl_parcels_put(work->w, RVC_LDSP(work->in->arrive_reg, 0));
    tl_parcels_put_stack(work->w, SPILL_BYTES);
    return TL_REFUSE_NONE;
}

// The first refusal stands, but all that is too far is found.
static void refusal_add(uint8_t *refusal, uint8_t other)
{
    if (*refusal == TL_REFUSE_NONE || *refusal == TL_REFUSE_NO_REACH)
        *refusal = other ? other : *refusal;
}

// The ways of conditional branches that are taken.
static uint8_t taken_write(struct detour_work *work, struct tl_riscv64_relocator *r)
{
    uint8_t refusal = TL_REFUSE_NONE;
    for (unsigned i = 0; i < r->taken_count; i++) {
        tl_parcels_close(work->w, r->taken[i].position, work->w->size);
        if (i == 0 && work->in->on_taken)
            refusal_add(&refusal, action_write(work));
        refusal_add(&refusal,
                    tl_riscv64_relocate_jump(r, r->taken[i].target, work->in->dead_target));
    }
    return refusal;
}

// A call that was made to the detour has its return address in the link already: on to the true
// target.
static uint8_t retargeted_write(struct detour_work *work)
{
    struct tl_riscv64_relocator r = {.in = work->in, .w = work->w, .out = work->out};
    const struct tl_insn *insn = &work->in->insn[0];
    tl_regset link = TL_REGSET(tl_riscv64_word(insn) >> 7 & 31);
    if (insn->reloc != TL_RELOC_CALL)
        return TL_REFUSE_UNKNOWN_INSN;
    work->out->displaced = work->w->size;
    work->out->insn_count = 0;
    work->out->boundary_count =
        0; // the call ran at its own place: no state here equals one before it
    return tl_riscv64_relocate_jump(&r, insn->target, work->in->dead_target & ~link);
}

// behind: how many copies come before the count; 0: it is written.
static uint8_t displaced_write(struct detour_work *work, unsigned behind, const struct frame *frame)
{
    const struct tl_emit_in *in = work->in;
    const struct tl_insn *last = &in->insn[in->insn_count - 1];
    struct tl_detour *out = work->out;
    struct tl_riscv64_relocator r = {.in = in, .w = work->w, .out = out};
    uint8_t refusal = TL_REFUSE_NONE;
    out->displaced = work->w->size;
    out->insn_count = in->insn_count;
    out->boundary_count = 0;
    for (unsigned i = 0; i < in->insn_count; i++) {
        refusal_add(&refusal, tl_riscv64_relocate(&r, i));
        if (i + 1 == behind)
            refusal_add(&refusal, count_write(work, in->dead_behind, frame));
    }
    if (last->flow == TL_FLOW_NEXT || last->flow == TL_FLOW_COND) {
        out->boundary[out->boundary_count++] = (struct tl_boundary){
            .off = work->w->size, .insn_off = (uint8_t)(in->resume_addr - in->insn[0].addr)};
        if (in->stepped)
            tl_parcels_put(work->w, RVC_EBREAK);
        else
            refusal_add(&refusal, tl_riscv64_relocate_jump(&r, in->resume_addr, in->dead_resume));
    }
    tl_riscv64_relocate_end(&r);
    refusal_add(&refusal, taken_write(work, &r));
    return refusal;
}

static uint8_t detour_write(struct detour_work *work)
{
    const struct tl_emit_in *in = work->in;
    struct frame frame = {.size = 0};
    bool behind = behind_fits(in, &frame);
    uint8_t refusal = arrive_write(work);
    if (!in->on_taken && !behind)
        refusal_add(&refusal, action_write(work));
    refusal_add(&refusal, in->call_retarget ? retargeted_write(work)
                                            : displaced_write(work, behind ? in->behind : 0, &frame));
    if (refusal)
        return refusal;
    if (work->slow.open)
        slow_path(work);
    tl_parcels_put_literals(work->w);
    return TL_REFUSE_NONE;
}

static bool input_known(const struct tl_emit_in *in)
{
    bool behind = in->behind && (in->action != TL_ACTION_COUNT || in->on_taken || in->call_retarget ||
                                 in->behind > in->insn_count);
    for (unsigned i = 0; i < in->behind && !behind; i++)
        behind = in->insn[i].flow != TL_FLOW_NEXT;
    // What a bounce takes back can't be what a branch is led by.
    bool bounce = in->bounce_count > TL_BOUNCES_MAX ||
                  (in->bounce_count && !(TL_RISCV64_USABLE >> in->bounce_reg & 1));
    bool arrive =
        in->arrive_reg && (!(TL_RISCV64_USABLE >> in->arrive_reg & 1) || in->call_retarget);
    bool home = !(in->action & TL_ACTION_COUNT) ||
                (in->homes_shift >= HOME_SIZE_BITS && in->homes_shift <= 64 - HOME_INDEX_BITS);
    return records_known(in) && !behind && !bounce && !arrive && home &&
           !(in->on_taken && in->call_retarget);
}

int tl_riscv64_emit_detour(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                           struct tl_diag *diag)
{
    if (!in->insn_count || in->insn_count > TL_WINDOW_INSNS_MAX || in->counter_off > INT32_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: %u instructions, counter %u",
                           (unsigned long long)at, in->insn_count, in->counter_off);
    if (!input_known(in))
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: an action that can't be written",
                           (unsigned long long)at);
    struct tl_detour detour;
    struct tl_parcels w = {.bytes = detour.bytes, .capacity = sizeof detour.bytes, .at = at};
    struct detour_work work = {.in = in, .w = &w, .out = &detour};
    tl_detour_begin(&detour);
    detour.refusal = detour_write(&work);
    if (w.full)
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: more than %d bytes",
                           (unsigned long long)at, TL_DETOUR_SIZE_MAX);
    detour.size = detour.refusal ? 0 : w.size;
    __builtin_memcpy(out, &detour, offsetof(struct tl_detour, bytes) + detour.size);
    return 0;
}

// ---- single branches
// ----------------------------------------------------------------------------------

static bool branch_write(uint32_t word, tl_addr at, tl_addr to, uint8_t *out)
{
    if (!tl_parcel_aim(&word, (int64_t)(to - at)))
        return false;
    __builtin_memcpy(out, &word, tl_parcel_size(word));
    return true;
}

bool tl_riscv64_emit_jump(tl_addr at, tl_addr to, uint8_t *out)
{
    return branch_write(RV_JAL(X_ZERO), at, to, out);
}

bool tl_riscv64_emit_short(tl_addr at, tl_addr to, uint8_t *out)
{
    return branch_write(RVC_J, at, to, out);
}

bool tl_riscv64_emit_far(tl_addr at, tl_addr to, unsigned reg, bool spill, uint8_t *out)
{
    struct tl_parcels w = {.bytes = out, .capacity = spill ? 12 : 8, .at = at};
    uint32_t high;
    int32_t low;
    if (spill) {
        tl_parcels_put_stack(&w, -SPILL_BYTES);
        tl_parcels_put(&w, RVC_SDSP(reg, 0));
    }
    if (!tl_parcel_split((int64_t)(to - tl_parcels_here(&w)), &high, &low))
        return false;
    tl_parcels_put(&w, RV_AUIPC(reg, high));
    tl_parcels_put(&w, RV_JALR(X_ZERO, reg, low));
    return true;
}

bool tl_riscv64_emit_reload(tl_addr at, tl_addr to, unsigned reg, bool falls_through, uint8_t *out)
{
    struct tl_parcels w = {.bytes = out, .capacity = 8, .at = at};
    tl_parcels_put(&w, RVC_LDSP(reg, 0));
    tl_parcels_put_stack(&w, SPILL_BYTES);
    if (falls_through)
        return to == tl_parcels_here(&w);
    return tl_parcels_put_aimed(&w, RV_JAL(X_ZERO), to);
}

bool tl_riscv64_emit_retarget(const struct tl_insn *insn, tl_addr to, uint8_t *out)
{
    return (insn->reloc == TL_RELOC_CALL || insn->reloc == TL_RELOC_BRANCH ||
            insn->reloc == TL_RELOC_COND) &&
           branch_write(tl_riscv64_word(insn), insn->addr, to, out);
}

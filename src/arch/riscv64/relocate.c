// Moves instructions to another address so that they do there what they did before: auipc, branches
// of every kind, calls with their true return address.
//
// Does not decide which instructions may be displaced, nor where the copy lies. Invariants: at each
// recorded boundary registers and stack equal those at the original instruction; no register that
// is not proved dead is written, but for those that the instruction itself writes; nothing is
// stored below the stack pointer. What this file does not know is refused.
#include "arch/riscv64/relocate.h"
#include "arch/riscv64/riscv64.h"

enum {
    OPCODE_MASK = 0x7f,
    OPCODE_AUIPC = 0x17,
    OPCODE_JALR = 0x67,
    OPCODE_BRANCH = 0x63,
    ARRIVE_BYTES = 16, // of stack, for the register that a branch puts there
};

// jalr x0 through x1 or x5 would take an entry off the processor's return stack: those come last.
// RISC-V ISA manual volume I, "Unconditional Jumps". Through x7 it never needs a landing pad
// (Zicfilp).
unsigned tl_riscv64_register_take(tl_regset dead)
{
    static const uint8_t order[] = {7,  6,  28, 29, 30, 31, 17, 16, 15, 14, 13, 12, 11, 10,
                                    27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 9,  8,  5,  1};
    for (size_t i = 0; i < sizeof order; i++) {
        if (dead >> order[i] & 1)
            return order[i];
    }
    return X_ZERO;
}

void tl_riscv64_fault_point(struct tl_detour *out, const struct tl_parcels *w, unsigned sp_words)
{
    if (out->fault_count < TL_FAULT_POINTS_MAX)
        out->fault[out->fault_count++] =
            (struct tl_fault_point){.off = w->size, .sp_words = (uint8_t)sp_words};
}

// Free before displaced instruction `index` and behind it, and neither read nor written by it.
static tl_regset scratch_regs(const struct tl_emit_in *in, unsigned index)
{
    tl_regset dead = in->dead;
    for (unsigned i = 0; i <= index; i++)
        dead &= ~(in->insn[i].read | in->insn[i].written);
    return dead;
}

// ---- ways out
// -----------------------------------------------------------------------------------------

static void far_note(struct tl_detour *out, tl_addr to)
{
    for (unsigned i = 0; i < out->far_count; i++) {
        if (out->far_target[i] == to)
            return;
    }
    if (out->far_count < TL_BOUNCES_MAX)
        out->far_target[out->far_count++] = to;
}

static uint8_t bounce_jump(struct tl_riscv64_relocator *r, const struct tl_bounce *bounce)
{
    unsigned reg = r->in->bounce_reg;
    if (r->in->no_stack)
        return TL_REFUSE_NO_STACK;
    tl_parcels_put_stack(r->w, -ARRIVE_BYTES);
    if (r->out->fault_out_count < TL_BOUNCES_MAX)
        r->out->fault_out[r->out->fault_out_count++] = (struct tl_fault_out){
            .off = (uint16_t)r->w->size, .sp_words = ARRIVE_BYTES / 8, .to = bounce->target};
    tl_parcels_put(r->w, RVC_SDSP(reg, 0));
    tl_parcels_put_far(r->w, reg, bounce->addr);
    return TL_REFUSE_NONE;
}

uint8_t tl_riscv64_relocate_jump(struct tl_riscv64_relocator *r, tl_addr to, tl_regset dead)
{
    const struct tl_emit_in *in = r->in;
    if (tl_parcels_put_jump(r->w, to))
        return TL_REFUSE_NONE;
    unsigned scratch = tl_riscv64_register_take(dead & TL_RISCV64_USABLE);
    if (scratch != X_ZERO) {
        tl_parcels_put_far(r->w, scratch, to);
        return TL_REFUSE_NONE;
    }
    for (unsigned i = 0; i < in->bounce_count && i < TL_BOUNCES_MAX; i++) {
        if (in->bounce[i].target == to)
            return bounce_jump(r, &in->bounce[i]);
    }
    far_note(r->out, to);
    return TL_REFUSE_NO_REACH;
}

// ---- branches
// -----------------------------------------------------------------------------------------

// Where a displaced branch goes: index of a copy, or -1 and an address. Refuses a target inside the
// window that is no instruction of it.
static uint8_t branch_goal(const struct tl_riscv64_relocator *r, const struct tl_insn *from,
                           int *insn, tl_addr *addr)
{
    const struct tl_emit_in *in = r->in;
    tl_addr target = from->target;
    bool diverts = in->divert_from || in->divert_to;
    *insn = -1;
    *addr = target;
    if (diverts && target == in->divert_from) {
        *addr = in->divert_to;
        if (!in->divert_to)
            *insn = 0;
        return TL_REFUSE_NONE;
    }
    // A branch to the site itself is a new hit, and must leave the detour once the probe is gone.
    if (target <= in->insn[0].addr || target >= in->resume_addr)
        return TL_REFUSE_NONE;
    for (uint8_t i = 1; i < in->insn_count; i++) {
        if (in->insn[i].addr == target) {
            *insn = i;
            return TL_REFUSE_NONE;
        }
    }
    return TL_REFUSE_WINDOW_TARGET;
}

static void copy_branch(struct tl_riscv64_relocator *r, uint32_t word, unsigned insn)
{
    r->fix[r->fix_count].insn = (uint8_t)insn;
    r->fix[r->fix_count++].position = tl_parcels_open(r->w, word);
}

void tl_riscv64_relocate_end(struct tl_riscv64_relocator *r)
{
    for (unsigned i = 0; i < r->fix_count; i++)
        tl_parcels_close(r->w, r->fix[i].position, r->start[r->fix[i].insn]);
}

static uint8_t branch_emit(struct tl_riscv64_relocator *r, const struct tl_insn *insn)
{
    int copy;
    tl_addr goal;
    uint8_t refusal = branch_goal(r, insn, &copy, &goal);
    if (refusal)
        return refusal;
    if (copy < 0)
        return tl_riscv64_relocate_jump(r, goal, r->in->dead_target);
    copy_branch(r, RV_JAL(X_ZERO), (unsigned)copy);
    return TL_REFUSE_NONE;
}

// The branch in its long form. c.beqz, c.bnez: RISC-V ISA manual volume I, "Control Transfer
// Instructions".
static bool cond_word(uint32_t word, uint32_t *out)
{
    uint32_t reg = 8 + (word >> 7 & 7);
    if ((word & 0xe003) == 0xc001)
        *out = RV_BEQ(reg, X_ZERO);
    else if ((word & 0xe003) == 0xe001)
        *out = RV_BNE(reg, X_ZERO);
    else if ((word & OPCODE_MASK) == OPCODE_BRANCH && tl_parcel_aim(&word, 0))
        *out = word;
    else
        return false;
    return true;
}

// One that is led elsewhere, or whose taken path acts, gets the long form: how far it is may
// change.
static uint8_t cond_emit(struct tl_riscv64_relocator *r, const struct tl_insn *insn, bool acts)
{
    int copy;
    tl_addr goal;
    uint32_t word;
    uint8_t refusal = branch_goal(r, insn, &copy, &goal);
    if (refusal)
        return refusal;
    bool diverts = goal != insn->target;
    if (!cond_word(tl_riscv64_word(insn), &word) || (acts && (diverts || copy >= 0)))
        return TL_REFUSE_PC_USE;
    if (copy >= 0) {
        copy_branch(r, word, (unsigned)copy);
        return TL_REFUSE_NONE;
    }
    if (!acts && !diverts && tl_parcels_put_aimed(r->w, word, goal))
        return TL_REFUSE_NONE;
    r->taken[r->taken_count].target = goal;
    r->taken[r->taken_count++].position = tl_parcels_open(r->w, word);
    return TL_REFUSE_NONE;
}

// ---- calls
// --------------------------------------------------------------------------------------------

static uint8_t call_emit(struct tl_riscv64_relocator *r, const struct tl_insn *insn)
{
    unsigned link = tl_riscv64_word(insn) >> 7 & 31;
    if ((tl_riscv64_word(insn) & OPCODE_MASK) != (RV_JAL(0) & OPCODE_MASK) || link == X_ZERO)
        return TL_REFUSE_PC_USE;
    if (insn->target > r->in->insn[0].addr && insn->target < r->in->resume_addr)
        return TL_REFUSE_WINDOW_TARGET;
    tl_parcels_put_address(r->w, link, insn->addr + insn->size);
    return tl_riscv64_relocate_jump(r, insn->target, r->in->dead_target & ~TL_REGSET(link));
}

// jalr and c.jalr: where they go and what they write.
struct indirect {
    unsigned link, base;
    int32_t offset;
};

static bool indirect_parse(const struct tl_insn *insn, struct indirect *out)
{
    uint32_t word = tl_riscv64_word(insn);
    if (insn->size == 4 && (word & 0x707f) == OPCODE_JALR)
        *out = (struct indirect){word >> 7 & 31, word >> 15 & 31, (int32_t)word >> 20};
    else if (insn->size == 2 && (word & 0xf07f) == 0x9002)
        *out = (struct indirect){X_RA, word >> 7 & 31, 0};
    else
        return false;
    return true;
}

static bool is_auipc(const struct tl_insn *insn)
{
    return insn->size == 4 && (tl_riscv64_word(insn) & OPCODE_MASK) == OPCODE_AUIPC;
}

static tl_addr auipc_value(const struct tl_insn *insn)
{
    return insn->addr + (tl_addr)(int64_t)(int32_t)(tl_riscv64_word(insn) & 0xfffff000u);
}

// Whether a displaced auipc before instruction `index` gives the call its target.
static bool target_known(const struct tl_emit_in *in, unsigned index, const struct indirect *call,
                         tl_addr *target)
{
    for (unsigned i = index; i-- > 0;) {
        const struct tl_insn *insn = &in->insn[i];
        if (!(insn->written & TL_REGSET(call->base)) && insn->flow == TL_FLOW_NEXT)
            continue;
        if (!is_auipc(insn) || (tl_riscv64_word(insn) >> 7 & 31) != call->base)
            return false;
        *target = (auipc_value(insn) + (tl_addr)(int64_t)call->offset) & ~(tl_addr)1;
        return true;
    }
    return false;
}

// The link is set to what follows the original, then a jump.
static uint8_t icall_emit(struct tl_riscv64_relocator *r, const struct tl_insn *insn,
                          unsigned index)
{
    struct indirect call;
    tl_addr target, after = insn->addr + insn->size;
    tl_regset scratch = scratch_regs(r->in, index) & TL_RISCV64_USABLE;
    if (!indirect_parse(insn, &call) || call.link == X_ZERO)
        return TL_REFUSE_PC_USE;
    // auipc ra; jalr ra: where it goes is known, so no register is needed to keep it.
    if (call.base == call.link && target_known(r->in, index, &call, &target)) {
        if (target > r->in->insn[0].addr && target < r->in->resume_addr)
            return TL_REFUSE_WINDOW_TARGET;
        tl_parcels_put_address(r->w, call.link, after);
        return tl_riscv64_relocate_jump(r, target, scratch);
    }
    unsigned base = call.base;
    if (base == call.link) { // read before it is written
        base = tl_riscv64_register_take(scratch);
        if (base == X_ZERO)
            return TL_REFUSE_PC_USE;
        tl_parcels_put(r->w, RVC_MV(base, call.base));
    }
    tl_parcels_put_address(r->w, call.link, after);
    tl_parcels_put(r->w, call.offset || base == X_ZERO ? RV_JALR(X_ZERO, base, call.offset)
                                                       : RVC_JR(base));
    return TL_REFUSE_NONE;
}

// ---- all of them
// --------------------------------------------------------------------------------------

// auipc becomes the constant that it would make at its own place.
static uint8_t pcrel_emit(struct tl_riscv64_relocator *r, const struct tl_insn *insn)
{
    unsigned rd = tl_riscv64_word(insn) >> 7 & 31;
    if (!is_auipc(insn))
        return TL_REFUSE_PC_USE;
    if (rd == X_ZERO)
        tl_parcels_put(r->w, RV_NOP);
    else
        tl_parcels_put_address(r->w, rd, auipc_value(insn));
    return TL_REFUSE_NONE;
}

static uint8_t insn_emit(struct tl_riscv64_relocator *r, unsigned index)
{
    const struct tl_insn *insn = &r->in->insn[index];
    bool acts = r->in->on_taken && index == 0;
    if (acts && insn->reloc != TL_RELOC_COND)
        return TL_REFUSE_PC_USE;
    switch ((enum tl_reloc)insn->reloc) {
    case TL_RELOC_COPY:
    case TL_RELOC_IJUMP:
        tl_parcels_put(r->w, tl_riscv64_word(insn));
        return TL_REFUSE_NONE;
    case TL_RELOC_PCREL:
        return pcrel_emit(r, insn);
    case TL_RELOC_BRANCH:
        return branch_emit(r, insn);
    case TL_RELOC_COND:
        return cond_emit(r, insn, acts);
    case TL_RELOC_CALL:
        return call_emit(r, insn);
    case TL_RELOC_ICALL:
        return icall_emit(r, insn, index);
    case TL_RELOC_LOOP:
    case TL_RELOC_REFUSE:
        break;
    }
    return insn->refusal ? insn->refusal : (uint8_t)TL_REFUSE_UNKNOWN_INSN;
}

// A site that does nothing is left out of its detour: its boundary is the next one's. Only the
// first instruction, as a fault has one place; hints are kept, and what a slot is for.
static bool left_out(const struct tl_emit_in *in, unsigned index)
{
    uint32_t word = tl_riscv64_word(&in->insn[index]);
    return index == 0 && (word == RV_NOP || word == RVC_NOP) && in->action && !in->stepped;
}

uint8_t tl_riscv64_relocate(struct tl_riscv64_relocator *r, unsigned index)
{
    const struct tl_insn *insn = &r->in->insn[index];
    bool call = insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL;
    if (call && index + 1u < r->in->insn_count)
        return TL_REFUSE_WINDOW_CALL;
    r->start[index] = r->w->size;
    r->out->boundary[r->out->boundary_count++] = (struct tl_boundary){
        .off = r->w->size, .insn_off = (uint8_t)(insn->addr - r->in->insn[0].addr)};
    if (left_out(r->in, index))
        return TL_REFUSE_NONE;
    if (index == 0) // any: a processor may not know the instruction
        tl_riscv64_fault_point(r->out, r->w, 0);
    return insn_emit(r, index);
}

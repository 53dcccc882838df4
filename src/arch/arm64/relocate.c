// Moves an instruction to another address so that it does there what it did before: pc-relative
// data, branches of every kind, calls with their true return address.
//
// Does not decide which instructions may be displaced, nor where the copy lies. Invariants: at each
// recorded boundary registers, flags and stack equal those at the original instruction; no flag and
// no register that is not proved dead is written, but for those that the instruction itself writes;
// PSTATE.BTYPE is what the instruction would leave, or a landing pad is met that takes both. What
// this file does not know is refused.
#include "arch/arm64/relocate.h"
#include "arch/arm64/arm64.h"

struct relocator {
    const struct tl_emit_in *in;
    struct tl_words *w;
    struct tl_detour *out;
    struct tl_arm64_taken *taken;
};

void tl_arm64_fault_point(struct tl_detour *out, const struct tl_words *w, unsigned sp_words)
{
    if (out->fault_count < TL_FAULT_POINTS_MAX)
        out->fault[out->fault_count++] =
            (struct tl_fault_point){.off = w->size, .sp_words = (uint8_t)sp_words};
}

unsigned tl_arm64_register_take(tl_regset dead)
{
    // Those that calls change anyway come first.
    static const uint8_t order[] = {16, 17, 9, 10, 11, 12, 13, 14, 15, 8,  7,  6,  5,  4,  3,
                                    2,  1,  0, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30, 29};
    for (size_t i = 0; i < sizeof order; i++) {
        if (dead >> order[i] & 1)
            return order[i];
    }
    return REG_ZERO;
}

// Free before the displaced instruction, and not what it reads or writes.
static tl_regset scratch_regs(const struct tl_emit_in *in)
{
    return in->dead & ~in->insn[0].read & ~in->insn[0].written;
}

// ---- branches -----------------------------------------------------------------------------------

// br leaves BTYPE 01 in a page that is not guarded, where it means nothing to what is not guarded
// either. In a guarded page its target would have to be a landing pad (Arm ARM, D8.4.6
// "PSTATE.BTYPE").
uint8_t tl_arm64_relocate_jump(const struct tl_emit_in *in, struct tl_words *w, tl_addr to)
{
    if (tl_words_put_aimed(w, A64_B, to))
        return TL_REFUSE_NONE;
    unsigned scratch = tl_arm64_register_take(scratch_regs(in));
    if (scratch == REG_ZERO || in->guarded)
        return TL_REFUSE_NO_REACH;
    tl_words_put_address(w, scratch, to);
    tl_words_put(w, A64_BR(scratch));
    return TL_REFUSE_NONE;
}

// Where a displaced branch goes: an address, or (*self) the displaced instruction again.
static tl_addr branch_goal(const struct tl_emit_in *in, bool *self)
{
    tl_addr target = in->insn[0].target;
    bool diverts = (in->divert_from || in->divert_to) && target == in->divert_from;
    *self = diverts && !in->divert_to;
    return diverts && in->divert_to ? in->divert_to : target;
}

static uint8_t branch_emit(struct relocator *r)
{
    bool self;
    tl_addr goal = branch_goal(r->in, &self);
    if (!self)
        return tl_arm64_relocate_jump(r->in, r->w, goal);
    tl_words_close(r->w, tl_words_open(r->w, A64_B), r->out->displaced);
    return TL_REFUSE_NONE;
}

// Every form is kept as it is, condition and registers; only where it leads changes.
static uint8_t cond_emit(struct relocator *r, uint32_t word)
{
    bool self;
    tl_addr goal = branch_goal(r->in, &self);
    if (!tl_word_aim(&word, 0))
        return TL_REFUSE_PC_USE;
    // One that is led elsewhere gets the long form: how far it is may change.
    bool diverts = goal == r->in->divert_to && goal != 0;
    if (!self && !r->in->on_taken && !diverts && tl_words_put_aimed(r->w, word, goal))
        return TL_REFUSE_NONE;
    if (r->in->on_taken && (self || goal != r->in->insn[0].target))
        return TL_REFUSE_PC_USE;
    *r->taken = (struct tl_arm64_taken){
        .open = true, .position = tl_words_open(r->w, word), .target = goal, .self = self};
    return TL_REFUSE_NONE;
}

// ---- calls --------------------------------------------------------------------------------------

static void link_put(struct relocator *r)
{
    tl_words_put_address(r->w, REG_LINK, r->in->insn[0].addr + 4);
}

static uint8_t call_emit(struct relocator *r)
{
    link_put(r);
    return tl_words_put_aimed(r->w, A64_B, r->in->insn[0].target) ? TL_REFUSE_NONE
                                                                  : TL_REFUSE_NO_REACH;
}

// blr leaves BTYPE 10, which bti c takes. So does it take 01, which br leaves from x16 and x17, and
// from any register in a page that is not guarded; else br leaves 11, which only bti j takes.
static uint8_t icall_emit(struct relocator *r, uint32_t word)
{
    unsigned target = word >> 5 & 31, goes = target;
    tl_regset scratch = scratch_regs(r->in);
    if ((word & 0xfffffc1f) !=
        A64_BLR(0)) // the signed forms fault with the link register as it was
        return TL_REFUSE_PC_USE;
    bool ip = target == REG_IP0 || target == REG_IP1;
    if (r->in->guarded)
        scratch &= TL_REGSET(REG_IP0) | TL_REGSET(REG_IP1);
    if (target == REG_LINK || (r->in->guarded && !ip)) {
        goes = tl_arm64_register_take(scratch);
        if (goes == REG_ZERO)
            return TL_REFUSE_PC_USE;
        tl_words_put(r->w, A64_MOV_X(goes, target));
    }
    link_put(r);
    tl_words_put(r->w, A64_BR(goes));
    return TL_REFUSE_NONE;
}

// ---- pc-relative data ---------------------------------------------------------------------------

// A load by what a literal load loads: its word with base and offset 0, and the unit of its offset.
// C4.1, "Load register (literal)" and "Load/store register (unsigned immediate)".
static bool literal_form(uint32_t word, uint32_t *load, unsigned *scale)
{
    static const struct {
        uint32_t load;
        uint8_t scale;
    } form[2][4] = {
        {{0xb9400000, 4}, {0xf9400000, 8}, {0xb9800000, 4}, {0xf9800000, 8}}, // w, x, sw, prfm
        {{0xbd400000, 4}, {0xfd400000, 8}, {0x3dc00000, 16}, {0, 0}},         // s, d, q
    };
    unsigned vector = word >> 26 & 1, size = word >> 30;
    *load = form[vector][size].load | (word & 31);
    *scale = form[vector][size].scale;
    return form[vector][size].load != 0;
}

static void literal_through(struct relocator *r, uint32_t load, unsigned scale, unsigned base,
                            unsigned sp_words)
{
    unsigned low = tl_words_put_page(r->w, base, r->in->insn[0].target, scale);
    tl_arm64_fault_point(r->out, r->w, sp_words);
    tl_words_put(r->w, load | low / scale << 10 | base << 5);
}

// Through the register that is loaded, a free one, or one that is saved on the stack.
static uint8_t literal_emit(struct relocator *r, uint32_t word)
{
    uint32_t load;
    unsigned scale, rt = word & 31, free;
    bool vector = word >> 26 & 1, prefetch = !vector && word >> 30 == 3;
    if (!literal_form(word, &load, &scale))
        return TL_REFUSE_PC_USE;
    if (tl_words_put_aimed(r->w, word, r->in->insn[0].target))
        return TL_REFUSE_NONE;
    if (!vector && !prefetch && rt != REG_ZERO) {
        literal_through(r, load, scale, rt, 0);
        return TL_REFUSE_NONE;
    }
    free = tl_arm64_register_take(scratch_regs(r->in));
    if (free != REG_ZERO) {
        literal_through(r, load, scale, free, 0);
        return TL_REFUSE_NONE;
    }
    if (r->in->no_stack)
        return TL_REFUSE_NO_STACK;
    tl_words_put(r->w, A64_STR_PUSH(REG_IP0, 16 + STACK_BELOW));
    literal_through(r, load, scale, REG_IP0, (16 + STACK_BELOW) / 8);
    tl_words_put(r->w, A64_LDR_POP(REG_IP0, 16 + STACK_BELOW));
    return TL_REFUSE_NONE;
}

static uint8_t pcrel_emit(struct relocator *r, uint32_t word)
{
    unsigned rd = word & 31;
    if ((word & 0x3b000000) == 0x18000000)
        return literal_emit(r, word);
    if ((word & 0x1f000000) != 0x10000000) // adr, adrp
        return TL_REFUSE_PC_USE;
    if (rd == REG_ZERO)
        tl_words_put(r->w, A64_NOP);
    else
        tl_words_put_address(r->w, rd, r->in->insn[0].target);
    return TL_REFUSE_NONE;
}

// ---- all of them --------------------------------------------------------------------------------

static uint8_t insn_emit(struct relocator *r)
{
    const struct tl_insn *insn = &r->in->insn[0];
    uint32_t word = tl_arm64_word(insn);
    if (r->in->on_taken && insn->reloc != TL_RELOC_COND)
        return TL_REFUSE_PC_USE;
    switch ((enum tl_reloc)insn->reloc) {
    case TL_RELOC_COPY:
    case TL_RELOC_IJUMP: // from a page that is guarded or not as its own is, so BTYPE is too
        tl_words_put(r->w, word);
        return TL_REFUSE_NONE;
    case TL_RELOC_PCREL:
        return pcrel_emit(r, word);
    case TL_RELOC_BRANCH:
        return branch_emit(r);
    case TL_RELOC_COND:
        return cond_emit(r, word);
    case TL_RELOC_CALL:
        return call_emit(r);
    case TL_RELOC_ICALL:
        return icall_emit(r, word);
    case TL_RELOC_LOOP:
    case TL_RELOC_REFUSE:
        break;
    }
    return insn->refusal ? insn->refusal : (uint8_t)TL_REFUSE_UNKNOWN_INSN;
}

uint8_t tl_arm64_relocate(const struct tl_emit_in *in, struct tl_words *w, struct tl_detour *out,
                          struct tl_arm64_taken *taken)
{
    struct relocator r = {.in = in, .w = w, .out = out, .taken = taken};
    out->displaced = w->size;
    out->insn_count = 1;
    out->boundary[0] = (struct tl_boundary){.off = w->size};
    out->boundary_count = 1;
    tl_arm64_fault_point(out, w, 0);
    return insn_emit(&r);
}

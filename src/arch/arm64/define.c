// What one arm64 instruction does to one register, for the search for jump tables. Follows nothing from
// instruction to instruction. Keeps: what it can't describe is TL_DEF_OTHER, never TL_DEF_POINTER.
//
// Encodings: Arm ARM (DDI 0487), C4.1 "A64 instruction set encoding".
#include "arch/arm64/arm64.h"

#define REG_SP 31u
#define REG_FP 29u
#define REG_LINK 30u

static uint32_t bits(uint32_t word, unsigned low, unsigned count)
{
    return word >> low & ((1u << count) - 1);
}

static int64_t signed_bits(uint32_t word, unsigned low, unsigned count)
{
    return (int64_t)((uint64_t)bits(word, low, count) << (64 - count)) >> (64 - count);
}

static uint8_t rn_of(uint32_t word)
{
    return (uint8_t)bits(word, 5, 5);
}

static uint8_t rm_of(uint32_t word)
{
    return (uint8_t)bits(word, 16, 5);
}

// The place that a load's base names: the function's own stack, as far as anybody knows, or elsewhere.
static uint8_t pointer_kind(unsigned base)
{
    return base == REG_SP || base == REG_FP ? TL_DEF_SPILL : TL_DEF_POINTER;
}

// What keeps low bits of a register: sxtw, uxtb, uxth, and the same by `and`.
static bool define_cut(uint32_t word, struct tl_definition *out)
{
    static const struct {
        uint32_t word;
        uint8_t size;
    } forms[] = {{0x93407c00, 0}, {0x53001c00, 1}, {0x53003c00, 2}, {0x12001c00, 1},
                 {0x12003c00, 2}, {0x92401c00, 1}, {0x92403c00, 2}};
    for (unsigned i = 0; i < TL_ARRAY_COUNT(forms); i++) {
        if ((word & 0xfffffc00) != forms[i].word)
            continue;
        out->kind = TL_DEF_COPY;
        out->a = rn_of(word);
        out->size = forms[i].size;
        return true;
    }
    return false;
}

// Data processing with an immediate: adr, adrp, add, sub, moves, extensions.
static bool define_immediate(const struct tl_insn *insn, uint32_t word, struct tl_definition *out)
{
    uint64_t imm12 = (uint64_t)bits(word, 10, 12) << (bits(word, 22, 1) ? 12 : 0);
    uint64_t imm16 = (uint64_t)bits(word, 5, 16) << (16 * bits(word, 21, 2));
    if ((word & 0x1f000000) == 0x10000000) { // adr, adrp
        out->kind = TL_DEF_ADDR;
        out->value = insn->target;
    } else if ((word & 0xbf800000) == 0x91000000) { // add, sub; 64 bits, flags as they were
        out->value = bits(word, 30, 1) ? 0 - imm12 : imm12;
        out->a = rn_of(word);
        out->kind = imm12 != 0 ? TL_DEF_SUM : TL_DEF_COPY;
    } else if ((word & 0x7f800000) == 0x52800000) { // movz
        out->kind = TL_DEF_ADDR;
        out->value = imm16;
    } else if ((word & 0x7f800000) == 0x12800000) { // movn
        out->kind = TL_DEF_ADDR;
        out->value = bits(word, 31, 1) ? ~imm16 : (uint32_t)~imm16;
    } else {
        return define_cut(word, out);
    }
    return true;
}

// add with a register that is cut, widened and shifted: `extended` has the option, else a shift left.
static void define_sum(uint32_t word, bool extended, struct tl_definition *out)
{
    unsigned option = extended ? bits(word, 13, 3) : 3;
    out->kind = TL_DEF_SUM;
    out->a = rn_of(word);
    out->b = rm_of(word);
    out->shift = (uint8_t)(extended ? bits(word, 10, 3) : bits(word, 10, 6));
    out->size = (uint8_t)((option & 3) == 3 ? 0 : 1u << (option & 3));
    out->is_signed = (option & 4) != 0;
}

// Data processing with registers.
static bool define_register(uint32_t word, unsigned reg, struct tl_definition *out)
{
    if ((word & 0x7fe0ffe0) == 0x2a0003e0) { // mov
        out->a = rm_of(word);
        out->kind = out->a == 31 ? TL_DEF_ADDR : TL_DEF_COPY;
    } else if ((word & 0xffe00000) == 0x8b200000) {
        define_sum(word, true, out);
    } else if ((word & 0xffe00000) == 0x8b000000) { // the last two fields: shifted left
        define_sum(word, false, out);
        if (out->b == 31 || out->a == 31)
            out->kind = TL_DEF_OTHER;
    } else if ((word & 0xffe00c00) == 0x9a800000) { // csel
        uint8_t one = rn_of(word), two = rm_of(word);
        if (one == 31 || two == 31)
            return true;
        out->kind = one == reg || two == reg ? TL_DEF_EITHER : TL_DEF_PICK;
        out->a = one == reg ? two : one;
        out->b = two;
    } else if ((word & 0xff200000) == 0xca000000) {
        out->kind = TL_DEF_POINTER; // eor: how C libraries decode the pointers of a jmp_buf
    } else if ((word & 0xffff5000) == 0xdac11000 || (word & 0xfffffbe0) == 0xdac143e0) {
        out->kind = TL_DEF_KEEP; // aut*, xpac*: the same pointer, without its signature
    } else {
        return false;
    }
    return true;
}

// [base, index]: what is loaded at a scale comes from a table at the base; so do bytes.
static void define_indexed(uint32_t word, unsigned size, struct tl_definition *out)
{
    bool scaled = bits(word, 12, 1) != 0, whole = (bits(word, 13, 3) & 3) == 3;
    out->a = rn_of(word);
    if (scaled || size == 1 || !whole)
        out->index = rm_of(word);
    else
        out->b = rm_of(word);
}

// One general register loaded, by size and opc: LDR (literal) apart. false: no such load.
static bool define_load(uint32_t word, struct tl_definition *out)
{
    unsigned size = 1u << bits(word, 30, 2), opc = bits(word, 22, 2);
    if ((word & 0x3e000000) != 0x38000000 || opc == 0 || (size == 8 && opc != 1))
        return false; // a vector register, a store, a prefetch
    bool unsigned_off = bits(word, 24, 1) != 0; // of a scaled offset without sign
    bool indexed = !unsigned_off && bits(word, 21, 1) != 0 && bits(word, 10, 2) == 2;
    if (!unsigned_off && !indexed && bits(word, 21, 1) != 0)
        return false; // atomics
    out->a = rn_of(word);
    if (unsigned_off)
        out->value = (uint64_t)bits(word, 10, 12) * size;
    else if (!indexed)
        out->value = (uint64_t)signed_bits(word, 12, 9);
    if (size == 8) {
        bool table = indexed && bits(word, 12, 1) != 0;
        out->kind = table ? (uint8_t)TL_DEF_POINTER : pointer_kind(out->a);
        out->size = table ? 8 : 0;
        out->index = table ? rm_of(word) : TL_DEF_REG_NONE;
        return true;
    }
    out->kind = TL_DEF_OFFSET;
    out->size = (uint8_t)size;
    out->is_signed = opc >= 2;
    if (indexed)
        define_indexed(word, size, out);
    return true;
}

// A load or store that leaves its base changed: by how much.
static bool writes_back(uint32_t word, int64_t *plus)
{
    bool single = (word & 0x3b200400) == 0x38000400; // pre and post: bit 11 tells
    unsigned pair = bits(word, 23, 2);
    if (single) {
        *plus = signed_bits(word, 12, 9);
        return true;
    }
    if ((word & 0x3a000000) != 0x28000000 || (pair != 1 && pair != 3))
        return false;
    unsigned opc = bits(word, 30, 2), vector = bits(word, 26, 1);
    unsigned scale = vector ? 2 + opc : opc == 2 ? 3 : opc == 1 && !bits(word, 22, 1) ? 4 : 2;
    *plus = signed_bits(word, 15, 7) * (1 << scale);
    return true;
}

bool tl_arm64_writes_back(const struct tl_insn *insn, unsigned *base, int64_t *plus)
{
    uint32_t word = tl_arm64_word(insn);
    *base = rn_of(word);
    return writes_back(word, plus);
}

// insn is known to write reg.
static void define_written(const struct tl_insn *insn, uint32_t word, unsigned reg,
                           struct tl_definition *out)
{
    int64_t plus;
    bool destination = bits(word, 0, 5) == reg;
    bool pair_load = (word & 0xbe400000) == 0xa8400000; // ldp of 64 bits
    if (rn_of(word) == reg && writes_back(word, &plus) && !(destination && bits(word, 22, 1))) {
        out->kind = TL_DEF_SUM;
        out->a = (uint8_t)reg;
        out->value = (uint64_t)plus;
    } else if (pair_load && (destination || bits(word, 10, 5) == reg)) {
        out->kind = pointer_kind(rn_of(word));
    } else if (!destination) {
        return;
    } else if ((word & 0xff000000) == 0x58000000 || // ldr, literal
               (word & 0xfffffc00) == 0xc8dffc00 || (word & 0xfffffc00) == 0xf8bfc000) { // ldar, ldapr
        out->kind = TL_DEF_POINTER;
    } else if (!define_immediate(insn, word, out) && !define_register(word, reg, out)) {
        (void)define_load(word, out);
    }
}

// cas writes its first register only where it found something else, and a copy or set may be anywhere.
static bool may_write(uint32_t word, unsigned reg)
{
    if (reg == REG_SP) // 31 is the zero register there
        return false;
    if ((word & 0x3fa07c00) == 0x08a07c00) // cas
        return rm_of(word) == reg;
    if ((word & 0xbfa07c00) == 0x08207c00) // casp
        return (rm_of(word) & ~1u) == (reg & ~1u);
    return (word & 0x3b200c00) == 0x19000400 && // cpy*, set*
           (bits(word, 0, 5) == reg || rn_of(word) == reg || rm_of(word) == reg);
}

void tl_arm64_define(const struct tl_insn *insn, unsigned reg, struct tl_definition *out)
{
    uint32_t word = tl_arm64_word(insn);
    struct tl_insn whole;
    *out = (struct tl_definition){
        .kind = TL_DEF_OTHER, .a = TL_DEF_REG_NONE, .b = TL_DEF_REG_NONE, .index = TL_DEF_REG_NONE};
    if (reg == TL_DEF_REG_NONE) {
        if (insn->flow != TL_FLOW_IJUMP)
            return;
        out->kind = TL_DEF_COPY;
        out->a = rn_of(word);
        return;
    }
    if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL) {
        // A returned value; what other registers hold may be from before the call.
        out->kind = reg == 0 ? TL_DEF_POINTER : reg == REG_LINK ? TL_DEF_OTHER : TL_DEF_KEEP;
        return;
    }
    if (tl_arm64_decode(insn->bytes, insn->size, insn->addr, &whole) != 0 || may_write(word, reg))
        return;
    // Nothing is said of the registers of what is refused: an exclusive, a system register.
    bool refused = whole.reloc == TL_RELOC_REFUSE &&
                   (bits(word, 0, 5) == reg || rn_of(word) == reg || rm_of(word) == reg ||
                    bits(word, 10, 5) == reg || (insn->flags & TL_INSN_SYSCALL) != 0);
    // Of scalable vectors and matrices it is only said what may be read.
    bool scalable = (word & 0x1e000000) == 0x04000000 || (word & 0x9e000000) == 0x80000000;
    if ((whole.written >> reg & 1) != 0)
        define_written(insn, word, reg, out);
    else if (!refused && (!scalable || (whole.read >> reg & 1) == 0))
        out->kind = TL_DEF_KEEP;
}

// adr has it whole; adrp has the page, and an add with 12 bits the rest.
bool tl_arm64_address(const struct tl_insn *insn, tl_addr *part, tl_addr *out)
{
    uint32_t word = tl_arm64_word(insn);
    if ((word & 0x9f000000) == 0x90000000) {
        part[bits(word, 0, 5)] = insn->target;
    } else if ((word & 0x9f000000) == 0x10000000) {
        *out = insn->target;
        return true;
    } else if ((word & 0xffc00000) == 0x91000000 && part[rn_of(word)] != 0) {
        *out = part[rn_of(word)] + bits(word, 10, 12);
        return true;
    }
    return false;
}

bool tl_arm64_bound(const struct tl_insn *compare, const struct tl_insn *branch, bool taken,
                    unsigned *reg, uint64_t *count)
{
    uint32_t word = tl_arm64_word(compare), jump = tl_arm64_word(branch), cond = bits(jump, 0, 4);
    // Behind b.hi: not above; behind b.hs: below. Where b.ls, b.lo lead, the same. Compares with a constant only.
    if ((jump & 0xff000000) != 0x54000000 || (word & 0x7f80001f) != 0x7100001f || rn_of(word) == 31)
        return false;
    bool inclusive = cond == (taken ? 9 : 8);
    if (!inclusive && cond != (taken ? 3 : 2))
        return false;
    *reg = rn_of(word);
    *count = ((uint64_t)bits(word, 10, 12) << (bits(word, 22, 1) ? 12 : 0)) + (inclusive ? 1 : 0);
    return true;
}

// and, ands with a constant of ones from bit 0 on; ubfm that takes a field to bit 0 (lsr, ubfx, uxtb, uxth).
bool tl_arm64_below(const struct tl_insn *insn, unsigned *reg, uint64_t *count)
{
    uint32_t word = tl_arm64_word(insn), from = bits(word, 16, 6), last = bits(word, 10, 6);
    bool wide = bits(word, 31, 1) != 0;
    bool is_and = (word & 0x1f800000) == 0x12000000 && (bits(word, 29, 2) & 1) == bits(word, 30, 1);
    bool is_field = (word & 0x7f800000) == 0x53000000;
    if (bits(word, 22, 1) != wide || (!is_and && !is_field) || (is_and && from != 0) ||
        last < from || last > (wide ? 63u : 31u) || bits(word, 0, 5) == 31)
        return false;
    *reg = bits(word, 0, 5);
    *count = last - from < 63 ? (uint64_t)1 << (last - from + 1) : UINT64_MAX;
    return true;
}

// One x86-64 instruction -> facts. Lengths and operands come from Zydis, behaviour from the table.
// Judges no site and knows no surroundings. Keeps: a register counts as written only when the
// instruction replaces all 64 bits of it on every path, a flag only when the manual defines its new
// value; what the table does not describe, or describes for other forms only, is refused.
#include "arch/x86_64/x86_64.h"

#include "arch/x86_64/decoder.h"
#include "arch/x86_64/table.h"

#include <stdio.h>
#include <string.h>

// The modes are an array in Zydis 4.0 and bits in 4.1; meson asks which.
#ifdef TL_ZYDIS_MODE_BITS
#define MODES(a, b, c, d, e, f)                                                                    \
    1u << (a) | 1u << (b) | 1u << (c) | 1u << (d) | 1u << (e) | 1u << (f)
#else
#define MODES(a, b, c, d, e, f)                                                                    \
    {                                                                                              \
        [a] = ZYAN_TRUE, [b] = ZYAN_TRUE, [c] = ZYAN_TRUE, [d] = ZYAN_TRUE, [e] = ZYAN_TRUE,       \
        [f] = ZYAN_TRUE                                                                            \
    }
#endif

const ZydisDecoder tl_x86_64_decoder = {
    .machine_mode = ZYDIS_MACHINE_MODE_LONG_64,
    .stack_width = ZYDIS_STACK_WIDTH_64,
    .decoder_mode =
        MODES(ZYDIS_DECODER_MODE_MPX, ZYDIS_DECODER_MODE_CET, ZYDIS_DECODER_MODE_LZCNT,
              ZYDIS_DECODER_MODE_TZCNT, ZYDIS_DECODER_MODE_WBNOINVD, ZYDIS_DECODER_MODE_CLDEMOTE),
};

unsigned tl_x86_64_reg_number(ZydisRegister reg)
{
    if (reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15)
        return (unsigned)(reg - ZYDIS_REGISTER_RAX);
    if (reg >= ZYDIS_REGISTER_EAX && reg <= ZYDIS_REGISTER_R15D)
        return (unsigned)(reg - ZYDIS_REGISTER_EAX);
    if (reg >= ZYDIS_REGISTER_AX && reg <= ZYDIS_REGISTER_R15W)
        return (unsigned)(reg - ZYDIS_REGISTER_AX);
    if (reg >= ZYDIS_REGISTER_AL && reg <= ZYDIS_REGISTER_BL)
        return (unsigned)(reg - ZYDIS_REGISTER_AL);
    if (reg >= ZYDIS_REGISTER_AH && reg <= ZYDIS_REGISTER_BH)
        return (unsigned)(reg - ZYDIS_REGISTER_AH);
    if (reg >= ZYDIS_REGISTER_SPL && reg <= ZYDIS_REGISTER_R15B)
        return (unsigned)(reg - ZYDIS_REGISTER_SPL) + 4;
    return REG_NONE;
}

static tl_regset reg_bit(ZydisRegister reg)
{
    unsigned number = tl_x86_64_reg_number(reg);
    return number == REG_NONE ? 0 : (tl_regset)1 << number;
}

// Writing a 32-bit register clears the upper half; 8 and 16 bits leave the rest (AMD APM volume 1,
// "64-bit mode", zero extension of results).
static bool reg_replaces(ZydisRegister reg)
{
    return reg >= ZYDIS_REGISTER_EAX && reg <= ZYDIS_REGISTER_R15;
}

static tl_regset flag_bits(ZydisAccessedFlagsMask mask)
{
    tl_regset bits = 0;
    bits |= (mask & ZYDIS_CPUFLAG_CF) != 0 ? TL_REGSET_CF : 0;
    bits |= (mask & ZYDIS_CPUFLAG_PF) != 0 ? TL_REGSET_PF : 0;
    bits |= (mask & ZYDIS_CPUFLAG_AF) != 0 ? TL_REGSET_AF : 0;
    bits |= (mask & ZYDIS_CPUFLAG_ZF) != 0 ? TL_REGSET_ZF : 0;
    bits |= (mask & ZYDIS_CPUFLAG_SF) != 0 ? TL_REGSET_SF : 0;
    bits |= (mask & ZYDIS_CPUFLAG_OF) != 0 ? TL_REGSET_OF : 0;
    return bits;
}

static bool has_prefix(const ZydisDecodedInstruction *zydis, uint8_t value)
{
    for (unsigned i = 0; i < zydis->raw.prefix_count; i++)
        if (zydis->raw.prefixes[i].value == value)
            return true;
    return false;
}

static bool is_repeated(const ZydisDecodedInstruction *zydis)
{
    return (zydis->attributes &
            (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
}

static unsigned form_of(const ZydisDecodedInstruction *zydis)
{
    ZydisInstructionCategory category = zydis->meta.category;
    if ((zydis->attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) != 0)
        return FORM_PRIV;
    if (zydis->mnemonic == ZYDIS_MNEMONIC_INT && zydis->raw.imm[0].value.u == 0x80)
        return FORM_INT80;
    if (category != ZYDIS_CATEGORY_CALL && category != ZYDIS_CATEGORY_COND_BR &&
        category != ZYDIS_CATEGORY_UNCOND_BR && category != ZYDIS_CATEGORY_RET)
        return FORM_PLAIN;
    if (zydis->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
        return FORM_FAR;
    // REX.W overrides 66 (Intel SDM volume 2, "REX prefixes"): data16 rex.W call __tls_get_addr.
    bool wide = zydis->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY && zydis->raw.rex.W != 0;
    if (has_prefix(zydis, 0x66) && !wide)
        return zydis->raw.imm[0].is_relative ? FORM_REL16 : FORM_IND16;
    if (category == ZYDIS_CATEGORY_RET)
        return FORM_PLAIN;
    return zydis->raw.imm[0].is_relative ? FORM_REL : FORM_IND;
}

static void refuse(struct tl_insn *out, enum tl_refusal refusal)
{
    out->reloc = TL_RELOC_REFUSE;
    out->refusal = (uint8_t)refusal;
}

// Where the instruction points by its own address: a branch target or a memory operand.
static void set_pc_use(struct tl_insn *out, const ZydisDecodedInstruction *zydis,
                       const struct row *row)
{
    tl_addr next = out->addr + zydis->length;
    if (zydis->raw.imm[0].is_relative) {
        out->target = next + (uint64_t)zydis->raw.imm[0].value.s;
        out->disp_off = zydis->raw.imm[0].offset;
        out->disp_size = (uint8_t)(zydis->raw.imm[0].size / 8);
        // A relative operand where the row knows of none.
        if (out->reloc != TL_RELOC_REFUSE && (row->forms & FORM_REL) == 0)
            refuse(out, TL_REFUSE_PC_USE);
        return;
    }
    // mod 00, r/m 101 in 64-bit mode (Intel SDM volume 2, "RIP-relative addressing").
    if ((zydis->attributes & ZYDIS_ATTRIB_HAS_MODRM) == 0 || zydis->raw.modrm.mod != 0 ||
        zydis->raw.modrm.rm != 5 || out->flags & TL_INSN_NOP || zydis->raw.disp.size != 32)
        return;
    out->target = next + (uint64_t)zydis->raw.disp.value;
    out->disp_off = zydis->raw.disp.offset;
    out->disp_size = 4;
    out->flags |= TL_INSN_PCREL_DATA;
    if (zydis->mnemonic == ZYDIS_MNEMONIC_LEA)
        out->flags |= TL_INSN_PCREL_LEA;
    if (out->reloc == TL_RELOC_COPY)
        out->reloc = TL_RELOC_PCREL;
    // With a 67 prefix the address is cut to 32 bits, which no other displacement can repeat.
    if (out->reloc != TL_RELOC_REFUSE && (row->pcrel != PCREL_ADJUST || zydis->address_width != 64))
        refuse(out, TL_REFUSE_PC_USE);
}

static void set_row(struct tl_insn *out, unsigned number, const struct row *row)
{
    out->row = (uint16_t)number;
    out->flow = row->flow;
    out->reloc = row->reloc;
    out->refusal = row->refusal;
    uint16_t traits = row->traits;
    out->flags |= (traits & TRAIT_SYSCALL) != 0 ? TL_INSN_SYSCALL : 0;
    out->flags |= (traits & TRAIT_LANDING) != 0 ? TL_INSN_LANDING : 0;
    out->flags |= (traits & TRAIT_NOP) != 0 ? TL_INSN_NOP : 0;
    out->flags |= (traits & TRAIT_SHORT) != 0 ? TL_INSN_SHORT_ONLY : 0;
}

// A marked instruction is its mark and the instruction behind it, as one: never to be torn.
static int decode_marked(const struct mark *mark, size_t size, struct tl_insn *out)
{
    ZydisDecodedInstruction zydis;
    size_t room = size < TL_INSN_SIZE_MAX ? size : TL_INSN_SIZE_MAX;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(
            &tl_x86_64_decoder, NULL, out->bytes + mark->size, room - mark->size, &zydis)))
        return TL_E_FORMAT;
    set_row(out, mark->row, tl_x86_64_row(mark->row));
    out->size = (uint8_t)(mark->size + zydis.length);
    memset(out->bytes + out->size, 0, sizeof(out->bytes) - out->size);
    out->flags |= TL_INSN_MAY_FAULT;
    out->read = TL_REGSET_ALL;
    return 0;
}

// The part that needs no operands. Returns 0 with *zydis filled; 1: out is complete already.
static int decode_head(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out,
                       ZydisDecodedInstruction *zydis, ZydisDecoderContext *context)
{
    memset(out, 0, sizeof(*out));
    out->addr = addr;
    size_t room = size < TL_INSN_SIZE_MAX ? size : TL_INSN_SIZE_MAX;
    memcpy(out->bytes, bytes, room);
    const struct mark *mark = tl_x86_64_mark(bytes, room);
    if (mark != NULL && decode_marked(mark, size, out) == 0)
        return 1;
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeInstruction(&tl_x86_64_decoder, context, bytes, room, zydis)))
        return TL_E_FORMAT;
    out->size = zydis->length;
    memset(out->bytes + out->size, 0, sizeof(out->bytes) - out->size);
    unsigned number = tl_x86_64_row_find(zydis->mnemonic, zydis->meta.category, form_of(zydis));
    const struct row *row = tl_x86_64_row(number);
    set_row(out, number, row);
    set_pc_use(out, zydis, row);
    return 0;
}

int tl_x86_64_skim(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out)
{
    ZydisDecodedInstruction zydis;
    struct tl_insn insn;
    int status = decode_head(bytes, size, addr, &insn, &zydis, NULL);
    if (status < 0)
        return status;
    *out = insn;
    return 0;
}

// Flags that a shift or rotate surely defines. A masked count of 0 changes none; a count above 1
// leaves OF undefined (Intel SDM volume 2, SAL/SAR/SHL/SHR, RCL/RCR/ROL/ROR, SHLD).
static tl_regset shift_flags(const ZydisDecodedInstruction *zydis, tl_regset defined)
{
    if (zydis->operand_width < 32)
        return 0;
    uint64_t count;
    if (zydis->raw.imm[0].size != 0)
        count = zydis->raw.imm[0].value.u & (zydis->operand_width == 64 ? 63u : 31u);
    else if (zydis->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && (zydis->opcode & 0xfe) == 0xd0)
        count = 1; // the short form that shifts by one
    else
        return 0; // by cl
    if (count == 0)
        return 0;
    if (zydis->mnemonic == ZYDIS_MNEMONIC_RCL || zydis->mnemonic == ZYDIS_MNEMONIC_RCR)
        return count == 1 ? TL_REGSET_CF : 0;
    return count == 1 ? defined & ~TL_REGSET_AF : defined & ~(TL_REGSET_AF | TL_REGSET_OF);
}

static void set_flag_use(struct tl_insn *out, const ZydisDecodedInstruction *zydis,
                         const struct row *row)
{
    const ZydisAccessedFlags *flags = zydis->cpu_flags;
    if (flags == NULL)
        return;
    tl_regset read = flag_bits(flags->tested);
    tl_regset written =
        flag_bits((flags->modified | flags->set_0 | flags->set_1) & ~flags->undefined);
    if ((row->traits & TRAIT_LOGIC) != 0)
        written |= flag_bits(flags->undefined & ZYDIS_CPUFLAG_AF);
    if ((row->traits & TRAIT_SHIFT) != 0)
        written = shift_flags(zydis, written);
    out->read |= read != 0 ? read | TL_REGSET_FLAGS : 0;
    out->written |= written;
    if ((written & TL_REGSET_EACH_FLAG) == TL_REGSET_EACH_FLAG)
        out->written |= TL_REGSET_FLAGS;
}

// xor r,r and sub r,r give 0 whatever r holds.
static bool is_zeroing(const ZydisDecodedInstruction *zydis, const ZydisDecodedOperand *operands)
{
    return (zydis->mnemonic == ZYDIS_MNEMONIC_XOR || zydis->mnemonic == ZYDIS_MNEMONIC_SUB) &&
           operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
           operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
           operands[0].reg.value == operands[1].reg.value && reg_replaces(operands[0].reg.value);
}

static bool may_fault(const ZydisDecodedInstruction *zydis, const struct row *row, bool memory)
{
    switch (row->fault) {
    case FAULT_NEVER:
        return false;
    case FAULT_MEMORY:
        return memory;
    case FAULT_FP:
        switch (zydis->meta.exception_class) {
        case ZYDIS_EXCEPTION_CLASS_NONE: // Zydis knows no class: may
        case ZYDIS_EXCEPTION_CLASS_SSE2:
        case ZYDIS_EXCEPTION_CLASS_SSE3:
        case ZYDIS_EXCEPTION_CLASS_AVX2:
        case ZYDIS_EXCEPTION_CLASS_AVX3:
        case ZYDIS_EXCEPTION_CLASS_AVX11:
        case ZYDIS_EXCEPTION_CLASS_E2:
        case ZYDIS_EXCEPTION_CLASS_E3:
        case ZYDIS_EXCEPTION_CLASS_E11:
            return true;
        default:
            return memory;
        }
    default:
        return true;
    }
}

static void set_operand_use(struct tl_insn *out, const ZydisDecodedInstruction *zydis,
                            const ZydisDecodedOperand *operands, const struct row *row)
{
    bool memory = false, named = false;
    for (unsigned i = 0; i < zydis->operand_count; i++) {
        const ZydisDecodedOperand *operand = &operands[i];
        if (operand->type == ZYDIS_OPERAND_TYPE_MEMORY) {
            named = named || operand->visibility != ZYDIS_OPERAND_VISIBILITY_HIDDEN ||
                    operand->mem.base != ZYDIS_REGISTER_RSP;
            out->read |= reg_bit(operand->mem.base);
            if (operand->mem.type != ZYDIS_MEMOP_TYPE_VSIB)
                out->read |= reg_bit(operand->mem.index);
            memory = memory || operand->mem.type != ZYDIS_MEMOP_TYPE_AGEN;
            continue;
        }
        if (operand->type != ZYDIS_OPERAND_TYPE_REGISTER)
            continue;
        ZydisRegister reg = operand->reg.value;
        if ((operand->actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0)
            out->read |= reg_bit(reg);
        if ((operand->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
            tl_x86_64_reg_number(reg) == REG_RSP)
            out->flags |= TL_INSN_WRITES_SP;
        if ((operand->actions & ZYDIS_OPERAND_ACTION_WRITE) != 0 && reg_replaces(reg))
            out->written |= reg_bit(reg);
    }
    if (may_fault(zydis, row, memory && (row->traits & TRAIT_FETCH) == 0))
        out->flags |= TL_INSN_MAY_FAULT;
    bool linked =
        out->flow == TL_FLOW_CALL || out->flow == TL_FLOW_ICALL || out->flow == TL_FLOW_RET;
    if ((out->flags & TL_INSN_MAY_FAULT) != 0 && !named && (linked || row->fault == FAULT_MEMORY))
        out->flags |= TL_INSN_FAULT_STACK;
    if (is_zeroing(zydis, operands))
        out->read = 0;
}

int tl_x86_64_decode(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out)
{
    ZydisDecodedInstruction zydis;
    ZydisDecoderContext context;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    struct tl_insn insn;
    int status = decode_head(bytes, size, addr, &insn, &zydis, &context);
    if (status < 0)
        return status;
    if (status > 0) {
        *out = insn;
        return 0;
    }
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeOperands(&tl_x86_64_decoder, &context, &zydis, operands,
                                                 zydis.operand_count)))
        return TL_E_FORMAT;
    const struct row *row = tl_x86_64_row(insn.row);
    set_operand_use(&insn, &zydis, operands, row);
    set_flag_use(&insn, &zydis, row);
    if ((row->traits & TRAIT_WEAK) != 0 || is_repeated(&zydis))
        insn.written = 0; // with a count of 0 a repeated instruction writes nothing
    if ((row->traits & TRAIT_NOP) != 0)
        insn.read = insn.written = 0;
    // What is refused, or enters the kernel, may look at anything.
    if (insn.reloc == TL_RELOC_REFUSE || (insn.flags & TL_INSN_SYSCALL) != 0) {
        insn.read = TL_REGSET_ALL | TL_REGSET_EACH_FLAG;
        insn.written = 0;
    }
    *out = insn;
    return 0;
}

const char *tl_x86_64_row_name(unsigned row)
{
    return tl_x86_64_row(row)->name;
}

void tl_x86_64_print(const struct tl_insn *insn, char *buf, size_t size)
{
    ZydisFormatter formatter;
    ZydisDecodedInstruction zydis;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (size == 0)
        return;
    snprintf(buf, size, "(bad)");
    const struct mark *mark = tl_x86_64_mark(insn->bytes, insn->size);
    if (mark != NULL) {
        snprintf(buf, size, "%s", tl_x86_64_row(mark->row)->name);
        return;
    }
    if (!ZYAN_SUCCESS(ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_INTEL)) ||
        !ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&tl_x86_64_decoder, insn->bytes, insn->size, &zydis, operands)))
        return;
    char text[256];
    if (ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&formatter, &zydis, operands,
                                                     zydis.operand_count_visible, text,
                                                     sizeof(text), insn->addr, NULL)))
        snprintf(buf, size, "%s", text);
}

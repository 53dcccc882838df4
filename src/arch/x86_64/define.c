// What one instruction does to one register, for the search for jump tables. Follows nothing from
// instruction to instruction. Keeps: what it can't describe is TL_DEF_OTHER, never TL_DEF_POINTER.
#include "arch/x86_64/x86_64.h"

#include "arch/x86_64/decoder.h"

static uint8_t reg_or_none(ZydisRegister reg)
{
    unsigned number = tl_x86_64_reg_number(reg);
    return number == REG_NONE ? TL_DEF_REG_NONE : (uint8_t)number;
}

static bool is_reg(const ZydisDecodedOperand *operand)
{
    return operand->type == ZYDIS_OPERAND_TYPE_REGISTER &&
           tl_x86_64_reg_number(operand->reg.value) != REG_NONE;
}

// A pointer loaded by rsp or rbp is the function's own, as far as anybody knows. One loaded with a
// scaled index comes from a table.
static void describe_pointer(const ZydisDecodedOperand *memory, struct tl_definition *out)
{
    unsigned base = tl_x86_64_reg_number(memory->mem.base);
    bool stack = base == REG_RSP || base == REG_RBP;
    out->kind = stack ? TL_DEF_SPILL : TL_DEF_POINTER;
    if (stack || memory->mem.scale != 8 || memory->mem.index == ZYDIS_REGISTER_NONE)
        return;
    out->a = base == REG_NONE ? TL_DEF_REG_NONE : (uint8_t)base;
    out->index = reg_or_none(memory->mem.index);
    out->size = 8;
    out->value = (uint64_t)memory->mem.disp.value;
}

// The memory operand of a load as a place: register a + index + value.
static void describe_load(const ZydisDecodedInstruction *zydis, const ZydisDecodedOperand *memory,
                          tl_addr addr, struct tl_definition *out)
{
    out->kind = TL_DEF_OFFSET;
    out->size = (uint8_t)(memory->size / 8);
    out->value = (uint64_t)memory->mem.disp.value;
    if (memory->mem.base == ZYDIS_REGISTER_RIP) {
        out->value += addr + zydis->length;
        return;
    }
    out->a = reg_or_none(memory->mem.base);
    // [base + index] with scale 1: either may be the table.
    if (memory->mem.index != ZYDIS_REGISTER_NONE && memory->mem.scale <= 1)
        out->b = reg_or_none(memory->mem.index);
    else
        out->index = reg_or_none(memory->mem.index);
}

static void define_move(const ZydisDecodedInstruction *zydis, const ZydisDecodedOperand *source,
                        tl_addr addr, struct tl_definition *out)
{
    switch (source->type) {
    case ZYDIS_OPERAND_TYPE_IMMEDIATE:
        out->kind = TL_DEF_ADDR;
        out->value = source->imm.value.u;
        return;
    case ZYDIS_OPERAND_TYPE_REGISTER:
        out->a = reg_or_none(source->reg.value);
        out->kind = out->a == TL_DEF_REG_NONE ? TL_DEF_POINTER : TL_DEF_COPY;
        return;
    case ZYDIS_OPERAND_TYPE_MEMORY:
        if (source->size == 64)
            describe_pointer(source, out);
        else
            describe_load(zydis, source, addr, out);
        return;
    default:
        return;
    }
}

static void define_lea(const ZydisDecodedInstruction *zydis, const ZydisDecodedOperand *source,
                       tl_addr addr, struct tl_definition *out)
{
    const ZydisDecodedOperandMem *mem = &source->mem;
    bool has_index = mem->index != ZYDIS_REGISTER_NONE;
    if (mem->base == ZYDIS_REGISTER_RIP) {
        out->kind = TL_DEF_ADDR;
        out->value = addr + zydis->length + (uint64_t)mem->disp.value;
    } else if (mem->base != ZYDIS_REGISTER_NONE && (!has_index || mem->scale <= 1)) {
        out->a = reg_or_none(mem->base);
        out->b = has_index ? reg_or_none(mem->index) : TL_DEF_REG_NONE;
        out->value = (uint64_t)mem->disp.value;
        out->kind = has_index || out->value != 0 ? TL_DEF_SUM : TL_DEF_COPY;
    } else if (mem->base == ZYDIS_REGISTER_NONE && !has_index) {
        out->kind = TL_DEF_ADDR;
        out->value = (uint64_t)mem->disp.value;
    }
}

// insn is known to write reg, which is its first operand.
static void define_first(const ZydisDecodedInstruction *zydis, const ZydisDecodedOperand *operands,
                         tl_addr addr, unsigned reg, struct tl_definition *out)
{
    const ZydisDecodedOperand *source = &operands[1];
    switch (zydis->mnemonic) {
    case ZYDIS_MNEMONIC_MOV:
        // 8 and 16 bits of a register make no pointer; 32 bits do where addresses are small.
        if (operands[0].size >= 32)
            define_move(zydis, source, addr, out);
        return;
    case ZYDIS_MNEMONIC_MOVSXD:
    case ZYDIS_MNEMONIC_MOVSX:
    case ZYDIS_MNEMONIC_MOVZX:
        if (source->type == ZYDIS_OPERAND_TYPE_MEMORY) {
            describe_load(zydis, source, addr, out);
            out->is_signed = zydis->mnemonic != ZYDIS_MNEMONIC_MOVZX;
        } else {
            define_move(zydis, source, addr, out);
        }
        return;
    case ZYDIS_MNEMONIC_LEA:
        define_lea(zydis, source, addr, out);
        return;
    case ZYDIS_MNEMONIC_ADD:
        out->a = (uint8_t)reg;
        if (is_reg(source)) {
            out->kind = TL_DEF_SUM;
            out->b = reg_or_none(source->reg.value);
        } else if (source->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
            out->kind = TL_DEF_SUM;
            out->value = source->imm.value.u;
        }
        return;
    case ZYDIS_MNEMONIC_POP:
        out->kind = TL_DEF_SPILL;
        return;
    case ZYDIS_MNEMONIC_XOR:
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
        // How C libraries decode the pointers that they keep in a jmp_buf.
        out->kind = TL_DEF_POINTER;
        return;
    default:
        return;
    }
}

void tl_x86_64_define(const struct tl_insn *insn, unsigned reg, struct tl_definition *out)
{
    ZydisDecodedInstruction zydis;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    *out = (struct tl_definition){
        .kind = TL_DEF_OTHER, .a = TL_DEF_REG_NONE, .b = TL_DEF_REG_NONE, .index = TL_DEF_REG_NONE};
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&tl_x86_64_decoder, insn->bytes, insn->size, &zydis, operands)))
        return;
    if (reg == TL_DEF_REG_NONE) {
        if (operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY && operands[0].size == 64)
            describe_pointer(&operands[0], out);
        else if (is_reg(&operands[0])) {
            out->kind = TL_DEF_COPY;
            out->a = reg_or_none(operands[0].reg.value);
        }
        return;
    }
    if (zydis.meta.category == ZYDIS_CATEGORY_CALL) {
        // A returned value; what other registers hold may be from before the call.
        out->kind = reg == REG_RAX ? TL_DEF_POINTER : TL_DEF_KEEP;
        return;
    }
    if (zydis.mnemonic == ZYDIS_MNEMONIC_CDQE && reg == REG_RAX) {
        out->kind = TL_DEF_KEEP;
        return;
    }
    if (zydis.meta.category == ZYDIS_CATEGORY_CMOV && is_reg(&operands[0]) &&
        tl_x86_64_reg_number(operands[0].reg.value) == reg) {
        // What is loaded from memory is a pointer, which adds nothing to the old value; from the
        // stack it may be anything, and stays TL_DEF_OTHER.
        struct tl_definition loaded = *out;
        out->a = is_reg(&operands[1]) ? reg_or_none(operands[1].reg.value) : TL_DEF_REG_NONE;
        if (out->a != TL_DEF_REG_NONE) {
            out->kind = TL_DEF_EITHER;
        } else {
            describe_pointer(&operands[1], &loaded);
            out->kind = loaded.kind == TL_DEF_POINTER ? TL_DEF_KEEP : TL_DEF_OTHER;
        }
        return;
    }
    bool writes = false;
    for (unsigned i = 0; i < zydis.operand_count; i++)
        writes =
            writes || (is_reg(&operands[i]) && tl_x86_64_reg_number(operands[i].reg.value) == reg &&
                       (operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0);
    if (!writes)
        out->kind = TL_DEF_KEEP;
    else if (is_reg(&operands[0]) && tl_x86_64_reg_number(operands[0].reg.value) == reg)
        define_first(&zydis, operands, insn->addr, reg, out);
}

bool tl_x86_64_bound(const struct tl_insn *compare, const struct tl_insn *branch, bool taken,
                     unsigned *reg, uint64_t *count)
{
    ZydisDecodedInstruction zydis;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&tl_x86_64_decoder, branch->bytes, branch->size,
                                             &zydis, operands)))
        return false;
    bool inclusive = zydis.mnemonic == (taken ? ZYDIS_MNEMONIC_JBE : ZYDIS_MNEMONIC_JNBE);
    if (!inclusive && zydis.mnemonic != (taken ? ZYDIS_MNEMONIC_JB : ZYDIS_MNEMONIC_JNB))
        return false;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&tl_x86_64_decoder, compare->bytes, compare->size,
                                             &zydis, operands)) ||
        zydis.mnemonic != ZYDIS_MNEMONIC_CMP || !is_reg(&operands[0]) ||
        operands[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
        return false;
    // A sign-extended constant of a narrower compare is meant in the width of the register.
    uint64_t limit = operands[1].imm.value.u;
    if (operands[0].size < 64)
        limit &= ((uint64_t)1 << operands[0].size) - 1;
    if (limit == UINT64_MAX)
        return false;
    *reg = tl_x86_64_reg_number(operands[0].reg.value);
    *count = limit + (inclusive ? 1 : 0);
    return true;
}

// and with a constant.
bool tl_x86_64_below(const struct tl_insn *insn, unsigned *reg, uint64_t *count)
{
    ZydisDecodedInstruction zydis;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&tl_x86_64_decoder, insn->bytes, insn->size, &zydis,
                                             operands)) ||
        zydis.mnemonic != ZYDIS_MNEMONIC_AND || !is_reg(&operands[0]) || operands[0].size < 32 ||
        operands[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
        return false;
    uint64_t mask = operands[1].imm.value.u;
    if (operands[0].size < 64)
        mask &= ((uint64_t)1 << operands[0].size) - 1;
    if (mask == UINT64_MAX)
        return false;
    *reg = tl_x86_64_reg_number(operands[0].reg.value);
    *count = mask + 1;
    return true;
}

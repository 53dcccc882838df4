// What one instruction does to the stack pointer and to the frame pointer, for the search for a
// function's exits. Follows nothing from instruction to instruction. Keeps: what it can't describe
// is TL_DEF_REG_NONE, never a register.
#include "arch/x86_64/x86_64.h"

#include "arch/x86_64/decoder.h"

// Bytes that a push or pop moves: the size of its hidden stack operand.
static int32_t stack_size(const ZydisDecodedInstruction *zydis, const ZydisDecodedOperand *operands)
{
    for (unsigned i = zydis->operand_count_visible; i < zydis->operand_count; i++)
        if (operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY &&
            tl_x86_64_reg_number(operands[i].mem.base) == REG_RSP)
            return operands[i].size / 8;
    return 0;
}

static bool is_whole(const ZydisDecodedOperand *operand, unsigned reg)
{
    return operand->type == ZYDIS_OPERAND_TYPE_REGISTER && operand->size == 64 &&
           tl_x86_64_reg_number(operand->reg.value) == reg;
}

// The source of a move, an addition or an address as register + constant.
static uint8_t source_describe(const ZydisDecodedInstruction *zydis,
                               const ZydisDecodedOperand *operands, int32_t *plus)
{
    const ZydisDecodedOperand *source = &operands[1];
    unsigned from = REG_NONE;
    *plus = 0;
    switch (zydis->mnemonic) {
    case ZYDIS_MNEMONIC_MOV:
        if (source->type == ZYDIS_OPERAND_TYPE_REGISTER && source->size == 64)
            from = tl_x86_64_reg_number(source->reg.value);
        break;
    case ZYDIS_MNEMONIC_ADD:
    case ZYDIS_MNEMONIC_SUB:
        if (source->type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
            break;
        from = tl_x86_64_reg_number(operands[0].reg.value);
        *plus = (int32_t)source->imm.value.s;
        if (zydis->mnemonic == ZYDIS_MNEMONIC_SUB)
            *plus = (int32_t)(0 - (uint32_t)*plus);
        break;
    case ZYDIS_MNEMONIC_LEA:
        if (source->mem.index != ZYDIS_REGISTER_NONE || zydis->address_width != 64)
            break;
        from = tl_x86_64_reg_number(source->mem.base);
        *plus = (int32_t)source->mem.disp.value;
        break;
    default:
        break;
    }
    return from == REG_NONE ? TL_DEF_REG_NONE : (uint8_t)from;
}

// Whatever else writes one of the two.
static void written_lose(const ZydisDecodedInstruction *zydis, const ZydisDecodedOperand *operands,
                         struct tl_stack_step *out)
{
    for (unsigned i = 0; i < zydis->operand_count; i++) {
        if (operands[i].type != ZYDIS_OPERAND_TYPE_REGISTER ||
            (operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0)
            continue;
        unsigned reg = tl_x86_64_reg_number(operands[i].reg.value);
        if (reg == REG_RSP)
            out->sp_from = TL_DEF_REG_NONE;
        if (reg == REG_RBP)
            out->fp_from = TL_DEF_REG_NONE;
    }
}

void tl_x86_64_stack(const struct tl_insn *insn, struct tl_stack_step *out)
{
    ZydisDecodedInstruction zydis;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    *out =
        (struct tl_stack_step){.sp_from = REG_RSP, .fp_from = REG_RBP, .copy_reg = TL_DEF_REG_NONE};
    if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL)
        return; // what it pushes is gone when it returns; the frame pointer is the caller's
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&tl_x86_64_decoder, insn->bytes, insn->size, &zydis, operands)))
        return;
    written_lose(&zydis, operands, out);
    switch (zydis.mnemonic) {
    case ZYDIS_MNEMONIC_PUSH:
    case ZYDIS_MNEMONIC_PUSHF:
    case ZYDIS_MNEMONIC_PUSHFQ:
        out->sp_from = REG_RSP;
        out->sp_plus = -stack_size(&zydis, operands);
        return;
    case ZYDIS_MNEMONIC_POP:
    case ZYDIS_MNEMONIC_POPF:
    case ZYDIS_MNEMONIC_POPFQ:
        if (is_whole(&operands[0], REG_RSP))
            return;
        out->sp_from = REG_RSP;
        out->sp_plus = stack_size(&zydis, operands);
        return;
    case ZYDIS_MNEMONIC_LEAVE:
        out->sp_from = REG_RBP;
        out->sp_plus = 8;
        return;
    default:
        break;
    }
    if (zydis.operand_count == 0 || (operands[0].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0)
        return; // compared only
    int32_t plus;
    uint8_t from = source_describe(&zydis, operands, &plus);
    if (is_whole(&operands[0], REG_RSP)) {
        out->sp_from = from;
        out->sp_plus = plus;
    } else if (is_whole(&operands[0], REG_RBP)) {
        out->fp_from = from;
        out->fp_plus = plus;
    } else if (from == REG_RSP && operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER) {
        out->copy_reg = (uint8_t)tl_x86_64_reg_number(operands[0].reg.value);
        out->copy_plus = plus;
    }
}

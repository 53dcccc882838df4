// Whether an instruction does anything with its function's return address but return to it.
//
// Follows nothing from instruction to instruction: the caller says how deep the stack is. Keeps: an
// operand that may be the return address counts, whatever is done with it.
#include "arch/x86_64/x86_64.h"

#include "arch/x86_64/decoder.h"

static bool is_return_address(const ZydisDecodedOperand *operand, int64_t sp_depth,
                              int64_t fp_depth)
{
    if (operand->type != ZYDIS_OPERAND_TYPE_MEMORY || operand->mem.type != ZYDIS_MEMOP_TYPE_MEM ||
        (operand->actions & ZYDIS_OPERAND_ACTION_MASK_READ) == 0 ||
        operand->mem.index != ZYDIS_REGISTER_NONE)
        return false;
    int64_t off = operand->mem.disp.has_displacement ? operand->mem.disp.value : 0;
    unsigned base = tl_x86_64_reg_number(operand->mem.base);
    return (base == REG_RSP && sp_depth != TL_DEPTH_UNKNOWN && off == sp_depth) ||
           (base == REG_RBP && fp_depth != TL_DEPTH_UNKNOWN && off == fp_depth);
}

bool tl_x86_64_reads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth)
{
    ZydisDecodedInstruction zydis;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&tl_x86_64_decoder, insn->bytes, insn->size, &zydis, operands)))
        return true;
    if (insn->flow == TL_FLOW_RET) // ret imm16 drops arguments too
        return zydis.operand_count_visible != 0 || zydis.mnemonic != ZYDIS_MNEMONIC_RET;
    for (unsigned i = 0; i < zydis.operand_count; i++) {
        if (is_return_address(&operands[i], sp_depth, fp_depth))
            return true;
    }
    return false;
}

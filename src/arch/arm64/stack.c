// What one arm64 instruction does to the stack pointer and to the frame pointer, for the search for a
// function's exits. Follows nothing from instruction to instruction. Keeps: what it can't describe is
// TL_DEF_REG_NONE, never a register.
//
// Encodings: Arm ARM (DDI 0487), C4.1 "A64 instruction set encoding".
#include "arch/arm64/arm64.h"

#define REG_SP 31u
#define REG_FP 29u

// Whatever writes one of the two in a way that is not known.
static void written_lose(const struct tl_insn *insn, struct tl_stack_step *out)
{
    struct tl_insn whole;
    if (tl_arm64_decode(insn->bytes, insn->size, insn->addr, &whole) != 0)
        return;
    if ((whole.written >> REG_SP & 1) != 0 || (whole.flags & TL_INSN_WRITES_SP) != 0)
        out->sp_from = TL_DEF_REG_NONE;
    if ((whole.written >> REG_FP & 1) != 0)
        out->fp_from = TL_DEF_REG_NONE;
}

// add and sub of 64 bits with a constant, flags as they were; mov from and to sp is one of them.
static bool describe_sum(uint32_t word, unsigned *to, uint8_t *from, int32_t *plus)
{
    if ((word & 0xbf800000) != 0x91000000)
        return false;
    int32_t imm = (int32_t)((word >> 10 & 0xfff) << ((word >> 22 & 1) != 0 ? 12 : 0));
    *to = word & 31;
    *from = (uint8_t)(word >> 5 & 31);
    *plus = (word >> 30 & 1) != 0 ? -imm : imm;
    return true;
}

void tl_arm64_stack(const struct tl_insn *insn, struct tl_stack_step *out)
{
    uint32_t word = tl_arm64_word(insn);
    unsigned to;
    uint8_t from;
    int32_t plus;
    int64_t moved;
    *out =
        (struct tl_stack_step){.sp_from = REG_SP, .fp_from = REG_FP, .copy_reg = TL_DEF_REG_NONE};
    if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL)
        return; // the frame pointer is the caller's, as is the stack
    written_lose(insn, out);
    if (describe_sum(word, &to, &from, &plus)) {
        if (to == REG_SP) {
            out->sp_from = from;
            out->sp_plus = plus;
        } else if (to == REG_FP) {
            out->fp_from = from;
            out->fp_plus = plus;
        } else if (from == REG_SP) {
            out->copy_reg = (uint8_t)to;
            out->copy_plus = plus;
        }
    } else if ((word & 0xbfe0ffff) == 0x8b2063ff) { // add, sub sp, sp, xN
        out->moved_by = (uint8_t)(word >> 16 & 31);
        out->moved_sign = (word >> 30 & 1) != 0 ? -1 : 1;
    } else if (tl_arm64_writes_back(insn, &to, &moved)) {
        if (to == REG_SP) {
            out->sp_from = REG_SP;
            out->sp_plus = (int32_t)moved;
        } else if (to == REG_FP) {
            out->fp_from = REG_FP;
            out->fp_plus = (int32_t)moved;
        }
    }
}

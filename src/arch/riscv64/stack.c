// What one instruction does to the stack pointer and the frame pointer: whatever writes one of them
// leaves it unknown.
#include "arch/riscv64/riscv64.h"

#define SP 2
#define FP 8

void tl_riscv64_stack(const struct tl_insn *insn, struct tl_stack_step *out)
{
    *out = (struct tl_stack_step){
        .sp_from = SP, .fp_from = FP, .copy_reg = TL_DEF_REG_NONE, .moved_by = TL_DEF_REG_NONE};
    if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL)
        return; // the frame pointer is the caller's, as is the stack
    if (insn->written & TL_REGSET(SP))
        out->sp_from = TL_DEF_REG_NONE;
    if (insn->written & TL_REGSET(FP))
        out->fp_from = TL_DEF_REG_NONE;
}

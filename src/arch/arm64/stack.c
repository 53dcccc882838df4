// What an arm64 instruction does to the stack pointer.
#include "arch/arm64/arm64.h"

void tl_arm64_stack(const struct tl_insn *insn, struct tl_stack_step *out)
{
    (void)insn;
    *out = (struct tl_stack_step){
        .sp_from = TL_DEF_REG_NONE, .fp_from = TL_DEF_REG_NONE, .copy_reg = TL_DEF_REG_NONE};
}

// Whether the registers that an instruction's sets do not name are left as they were: the search for jump tables takes it so
// (arch.h, sets_are_whole).
#ifndef TL_TESTS_SETS_H
#define TL_TESTS_SETS_H

#include "arch/arch.h"

static inline bool sets_are_whole(const struct tl_arch *arch, const struct tl_insn *insn)
{
    if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL || (insn->flags & TL_INSN_SYSCALL) != 0)
        return true;
    const tl_regset unnamed = arch->general_regs & ~(insn->read | insn->written);
    for (unsigned reg = 0; reg < 32; reg++) {
        struct tl_definition def;
        if ((unnamed >> reg & 1) == 0)
            continue;
        arch->define(insn, reg, &def);
        if (def.kind != TL_DEF_KEEP)
            return false;
    }
    return true;
}

#endif

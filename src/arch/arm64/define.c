// What an arm64 instruction does to a register, for the search for jump tables.
#include "arch/arm64/arm64.h"

void tl_arm64_define(const struct tl_insn *insn, unsigned reg, struct tl_definition *out)
{
    (void)insn, (void)reg;
    *out = (struct tl_definition){.kind = TL_DEF_OTHER};
}

bool tl_arm64_bound(const struct tl_insn *compare, const struct tl_insn *branch, unsigned *reg,
                    uint64_t *count)
{
    (void)compare, (void)branch, (void)reg, (void)count;
    return false;
}

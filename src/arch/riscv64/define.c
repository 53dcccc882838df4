// What one instruction does to one register, for the search for jump tables, and addresses in
// pieces. Knows additions to an auipc only: everything else is told as something else, so that
// tables are not found.
#include "arch/riscv64/riscv64.h"

#define AUIPC 0x17u
#define ADDI 0x13u

void tl_riscv64_define(const struct tl_insn *insn, unsigned reg, struct tl_definition *out)
{
    (void)insn;
    (void)reg;
    *out = (struct tl_definition){
        .kind = TL_DEF_OTHER, .a = TL_DEF_REG_NONE, .b = TL_DEF_REG_NONE, .index = TL_DEF_REG_NONE};
}

bool tl_riscv64_address(const struct tl_insn *insn, tl_addr *part, tl_addr *out)
{
    uint32_t word = tl_riscv64_word(insn), rd = word >> 7 & 31, rs1 = word >> 15 & 31;
    if (insn->size == 4 && (word & 0x7f) == AUIPC && rd != 0) {
        part[rd] = insn->target;
    } else if (insn->size == 4 && (word & 0x707f) == ADDI && part[rs1] != 0) {
        *out = part[rs1] + (tl_addr)(int64_t)((int32_t)word >> 20);
        return true;
    }
    return false;
}

bool tl_riscv64_bound(const struct tl_insn *compare, const struct tl_insn *branch, bool taken,
                      unsigned *reg, uint64_t *count)
{
    (void)compare;
    (void)branch;
    (void)taken;
    (void)reg;
    (void)count;
    return false;
}

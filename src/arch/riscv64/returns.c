// Whether an instruction does anything with its function's return address but save it, load it again and
// return to it; and where it saves it.
//
// Follows nothing from instruction to instruction. The address comes in ra; where a function saves it is its own
// choice, so a load from there to another register shows only where gcc and clang keep it: right below the frame
// pointer. Keeps: ra counts, whatever is done with it.
#include "arch/riscv64/riscv64.h"

#define REG_RA 1u
#define REG_SP 2u
#define REG_FP 8u
#define RECORD_LINK (-8) // from the frame pointer

// sd with the stack or a frame as base, c.sdsp.
static bool saves(const struct tl_insn *insn)
{
    uint32_t word = tl_riscv64_word(insn), base = word >> 15 & 31;
    if (insn->size == 2)
        return (word & 0xe003) == 0xe002;
    return (word & 0x707f) == 0x3023 && (base == REG_SP || base == REG_FP);
}

// ld that takes the frame record's return address elsewhere than to ra.
static bool loads_record(const struct tl_insn *insn)
{
    uint32_t word = tl_riscv64_word(insn);
    return insn->size == 4 && (word & 0x707f) == 0x3003 && (word >> 15 & 31) == REG_FP &&
           (int32_t)word >> 20 == RECORD_LINK && (word >> 7 & 31) != REG_RA;
}

bool tl_riscv64_reads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth)
{
    struct tl_insn whole;
    (void)sp_depth, (void)fp_depth;
    if (tl_riscv64_decode(insn->bytes, insn->size, insn->addr, &whole) != 0)
        return true;
    if (whole.flow == TL_FLOW_RET || (whole.flags & TL_INSN_SYSCALL) != 0 ||
        whole.flow == TL_FLOW_CALL || whole.flow == TL_FLOW_STOP)
        return false; // a return goes by ra alone
    if ((whole.read & TL_REGSET(REG_RA)) == 0)
        return loads_record(insn);
    return !saves(insn);
}

bool tl_riscv64_stores_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth,
                              int64_t *below)
{
    uint32_t word = tl_riscv64_word(insn);
    bool half = insn->size == 2;
    int64_t depth = half || (word >> 15 & 31) == REG_SP ? sp_depth : fp_depth;
    int64_t off = half ? (int64_t)((word >> 10 & 7) << 3 | (word >> 7 & 7) << 6)
                       : ((int32_t)(word & 0xfe000000) >> 20) + (int32_t)(word >> 7 & 31);
    if (!saves(insn) || (half ? word >> 2 & 31 : word >> 20 & 31) != REG_RA)
        return false;
    *below = depth == TL_DEPTH_UNKNOWN ? depth : depth - off;
    return true;
}

bool tl_riscv64_loads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t *below)
{
    uint32_t word = tl_riscv64_word(insn);
    if (insn->size != 4 || (word & 0x707f) != 0x3003 || (word >> 15 & 31) != REG_SP ||
        (word >> 7 & 31) != REG_RA)
        return false;
    *below = sp_depth == TL_DEPTH_UNKNOWN ? sp_depth : sp_depth - ((int32_t)word >> 20);
    return true;
}

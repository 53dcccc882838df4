// Whether an instruction does anything with its function's return address but save it, load it again and
// return to it; and where it saves it.
//
// Follows nothing from instruction to instruction. The address comes in x30; where a function saves it
// is its own choice, so a load from there to another register shows only where gcc and clang keep frame
// records: behind the frame pointer. Keeps: x30 counts, whatever is done with it; and signed addresses,
// which nobody may replace, count too.
//
// Encodings: Arm ARM (DDI 0487), C4.1 "A64 instruction set encoding".
#include "arch/arm64/arm64.h"

#define REG_SP 31u
#define REG_FP 29u
#define REG_LINK 30u
#define RET_LINK 0xd65f03c0u // ret
#define RECORD_LINK 8        // where a frame record holds the return address

// str and stp of 64 bits with the stack or a frame as base.
static bool saves(uint32_t word)
{
    unsigned base = word >> 5 & 31;
    bool single = (word & 0xffc00000) == 0xf9000000 || (word & 0xffe00000) == 0xf8000000;
    bool pair = (word & 0xfe400000) == 0xa8000000;
    return (single || pair) && (base == REG_SP || base == REG_FP);
}

// ldr and ldp that take the frame record's return address elsewhere than to x30.
static bool loads_record(uint32_t word)
{
    unsigned to = word & 31, base = word >> 5 & 31;
    if (base != REG_FP)
        return false;
    if ((word & 0xffc00000) == 0xf9400000)
        return (word >> 10 & 0xfff) * 8 == RECORD_LINK && to != REG_LINK;
    if ((word & 0xffe00000) == 0xf8400000)
        return (word >> 12 & 0x1ff) == RECORD_LINK && to != REG_LINK;
    if ((word & 0xfe400000) != 0xa8400000)
        return false;
    int32_t off = (int32_t)((word >> 15 & 0x7f) << 25) >> 25;
    if ((word >> 23 & 3) == 1) // what moves the base behind the load
        off = 0;
    return (off == RECORD_LINK / 8 && to != REG_LINK) ||
           (off + 1 == RECORD_LINK / 8 && (word >> 10 & 31) != REG_LINK);
}

bool tl_arm64_reads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth)
{
    uint32_t word = tl_arm64_word(insn);
    struct tl_insn whole;
    (void)sp_depth, (void)fp_depth;
    if (tl_arm64_decode(insn->bytes, insn->size, insn->addr, &whole) != 0)
        return true;
    if (whole.flow == TL_FLOW_RET)
        return word != RET_LINK;
    if ((whole.flags & TL_INSN_SIGNS_LINK) != 0)
        return true;
    if ((whole.flags & TL_INSN_SYSCALL) != 0 || whole.flow == TL_FLOW_CALL ||
        whole.flow == TL_FLOW_STOP) // nothing that a function does with its own address
        return false;
    if ((whole.read >> REG_LINK & 1) == 0)
        return loads_record(word);
    return !saves(word);
}

// Where a store of a pair, or of one register, goes from its base. Moved behind the store: 0.
static int64_t pair_off(uint32_t word)
{
    int64_t off = (int32_t)((word >> 15 & 0x7f) << 25) >> 25;
    return (word >> 23 & 3) == 1 ? 0 : off * 8;
}

static int64_t single_off(uint32_t word)
{
    if ((word & 0xffc00000) == 0xf9000000)
        return (word >> 10 & 0xfff) * 8;
    return (word >> 10 & 3) == 1 ? 0 : (int32_t)((word >> 12 & 0x1ff) << 23) >> 23;
}

// Of a store, as a word of it.
static bool stores(uint32_t word, int64_t depth, int64_t *below)
{
    int64_t off;
    if (!saves(word))
        return false;
    if ((word & 0xfe400000) == 0xa8000000) {
        if ((word & 31) != REG_LINK && (word >> 10 & 31) != REG_LINK)
            return false;
        off = pair_off(word) + ((word & 31) == REG_LINK ? 0 : 8);
    } else {
        if ((word & 31) != REG_LINK)
            return false;
        off = single_off(word);
    }
    *below = depth == TL_DEPTH_UNKNOWN ? depth : depth - off;
    return true;
}

bool tl_arm64_stores_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth,
                            int64_t *below)
{
    uint32_t word = tl_arm64_word(insn);
    return stores(word, (word >> 5 & 31) == REG_SP ? sp_depth : fp_depth, below);
}

bool tl_arm64_loads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t *below)
{
    const uint32_t load = 0x400000; // the bit that makes a load of a store, single and pair
    uint32_t word = tl_arm64_word(insn);
    return (word & load) && (word >> 5 & 31) == REG_SP && stores(word & ~load, sp_depth, below);
}

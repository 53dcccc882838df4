// Who reads its own return address on arm64.
#include "arch/arm64/arm64.h"

bool tl_arm64_reads_return(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth)
{
    (void)insn, (void)sp_depth, (void)fp_depth;
    return true;
}

// Prints arm64 instructions.
#include "arch/arm64/arm64.h"

void tl_arm64_print(const struct tl_insn *insn, char *buf, size_t size)
{
    (void)insn;
    if (size > 0)
        buf[0] = '\0';
}

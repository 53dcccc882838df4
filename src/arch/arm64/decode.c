// Decodes arm64 instructions.
#include "arch/arm64/arm64.h"

int tl_arm64_decode(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out)
{
    (void)bytes, (void)size, (void)addr, (void)out;
    return TL_E_FORMAT;
}

int tl_arm64_skim(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out)
{
    return tl_arm64_decode(bytes, size, addr, out);
}

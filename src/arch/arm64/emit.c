// Writes detours.
#include "arch/arm64/arm64.h"

int tl_arm64_emit_detour(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                         struct tl_diag *diag)
{
    (void)in, (void)at, (void)out;
    return tl_diag_set(diag, TL_E_LIMIT, "not here");
}

bool tl_arm64_emit_jump(tl_addr at, tl_addr to, uint8_t *out)
{
    (void)at, (void)to, (void)out;
    return false;
}

bool tl_arm64_emit_retarget(const struct tl_insn *insn, tl_addr to, uint8_t *out)
{
    (void)insn, (void)to, (void)out;
    return false;
}

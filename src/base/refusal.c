// The sentences of refusals and the names of rungs.
#include "base/refusal.h"

static const char *const refusal_text[TL_REFUSAL_COUNT] = {
#define X(name, sentence) [TL_REFUSE_##name] = sentence,
    TL_REFUSALS(X)
#undef X
};

static const char *const rung_text[TL_RUNG_COUNT] = {
    [TL_RUNG_REFUSED] = "refused",   [TL_RUNG_JUMP] = "jump", [TL_RUNG_KERNEL] = "kernel",
    [TL_RUNG_SIMULATE] = "simulate", [TL_RUNG_SLOT] = "slot", [TL_RUNG_STEP] = "step",
};

const char *tl_refusal_text(enum tl_refusal refusal)
{
    return (unsigned)refusal < TL_REFUSAL_COUNT ? refusal_text[refusal] : "unknown reason";
}

const char *tl_rung_text(enum tl_rung rung)
{
    return (unsigned)rung < TL_RUNG_COUNT ? rung_text[rung] : "unknown";
}

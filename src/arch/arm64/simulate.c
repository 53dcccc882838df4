// Does the work of arm64 instructions.
#include "arch/arm64/arm64.h"

bool tl_arm64_simulate(const struct tl_simulation *insn, struct tl_simulate_state *state,
                       const struct tl_simulate_memory *memory)
{
    (void)insn, (void)state, (void)memory;
    return false;
}

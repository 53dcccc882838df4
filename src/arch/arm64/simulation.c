// What the simulators of arm64 instructions need.
#include "arch/arm64/arm64.h"

bool tl_arm64_simulation(const struct tl_insn *insn, struct tl_simulation *out)
{
    (void)insn, (void)out;
    return false;
}

bool tl_arm64_simulation_alone(const struct tl_simulation *insn)
{
    (void)insn;
    return false;
}

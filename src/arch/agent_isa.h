// What the agent's C code leaves to the ISA that it is built for. Freestanding; only for code inside the image.
#ifndef TL_ARCH_AGENT_ISA_H
#define TL_ARCH_AGENT_ISA_H

#if defined(__x86_64__)
#include "arch/x86_64/agent_isa.h"
#elif defined(__aarch64__)
#include "arch/arm64/agent_isa.h"
#elif defined(__riscv) && __riscv_xlen == 64
#include "arch/riscv64/agent_isa.h"
#else
#error "there is no agent for this architecture"
#endif

#endif

// Where the registers of a probed program lie in what the kernel hands to a program of a probe on arm64.
// Linux arch/arm64/include/uapi/asm/ptrace.h (struct user_pt_regs); the same since arm64 came to Linux.
#ifndef TL_ARCH_ARM64_KERNEL_REGISTERS_H
#define TL_ARCH_ARM64_KERNEL_REGISTERS_H

// Offsets of x0 to x5: AAPCS64, "Parameter passing".
#define TL_KERNEL_REGISTER_ARGS {0, 8, 16, 24, 32, 40}
#define TL_KERNEL_REGISTER_RETURN 0 // x0

#endif

// Where the registers of a probed program lie in what the kernel hands to a program of a probe on riscv64.
// Linux arch/riscv/include/uapi/asm/ptrace.h (struct user_regs_struct); the same since riscv came to Linux.
#ifndef TL_ARCH_RISCV64_KERNEL_REGISTERS_H
#define TL_ARCH_RISCV64_KERNEL_REGISTERS_H

// Offsets of a0 to a5: RISC-V ELF psABI, "Integer Calling Convention".
#define TL_KERNEL_REGISTER_ARGS {80, 88, 96, 104, 112, 120}
#define TL_KERNEL_REGISTER_RETURN 80 // a0

#endif

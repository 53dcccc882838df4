// Where the registers of a probed program lie in what the kernel hands to a program of a probe on x86-64.
// Linux arch/x86/include/uapi/asm/ptrace.h (struct pt_regs); the same since x86-64 came to Linux.
#ifndef TL_ARCH_X86_64_KERNEL_REGISTERS_H
#define TL_ARCH_X86_64_KERNEL_REGISTERS_H

// Offsets of rdi, rsi, rdx, rcx, r8, r9: System V ABI AMD64, "Parameter Passing".
#define TL_KERNEL_REGISTER_ARGS {112, 104, 96, 88, 72, 64}
#define TL_KERNEL_REGISTER_RETURN 80 // rax

#endif

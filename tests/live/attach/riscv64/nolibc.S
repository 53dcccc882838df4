// The start, the two functions and the system call of nolibc.c.

        .text
        .globl _start
_start:
        .option push
        .option norelax
        lla gp, __global_pointer$
        .option pop
        li s0, 0
        call start_main

        .p2align 4
        .globl bare_one
bare_one:
        ld a1, 1f
        add a0, a0, a1
        ret
        .p2align 3
1:      .quad 0x1122334455667788

        .p2align 4
        .globl bare_window
bare_window:
        addi sp, sp, -16
        sd ra, 8(sp)
        addi a0, a0, 3
        slli a1, a0, 1
        add a0, a0, a1
        ld ra, 8(sp)
        addi sp, sp, 16
        ret

        .p2align 4
        .globl call
call:
        mv a7, a0
        mv a0, a1
        mv a1, a2
        mv a2, a3
        mv a3, a4
        mv a4, a5
        ecall
        ret

        .section .note.GNU-stack, "", @progbits

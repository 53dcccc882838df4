// The start, the two functions and the system call of nolibc.c.

        .text
        .globl _start
_start: mov x29, #0
        bl start_main

        .p2align 4
        .globl bare_one
bare_one:
        ldr x1, 1f
        add x0, x0, x1
        ret
        .p2align 3
1:      .quad 0x1122334455667788

        .p2align 4
        .globl bare_window
bare_window:
        stp x29, x30, [sp, #-16]!
        mov x29, sp
        add x0, x0, #3
        add x0, x0, x0, lsl #1
        ldp x29, x30, [sp], #16
        ret

        .p2align 4
        .globl call
call:
        mov x8, x0
        mov x0, x1
        mov x1, x2
        mov x2, x3
        mov x3, x4
        mov x4, x5
        svc #0
        ret

        .section .note.GNU-stack, "", @progbits

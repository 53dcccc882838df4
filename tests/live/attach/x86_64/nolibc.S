// The start, the two functions and the system call of nolibc.c.

        .text
        .globl _start
_start: xor %ebp, %ebp
        and $-16, %rsp
        call start_main

        .p2align 4
        .globl bare_one
bare_one:
        movabs $0x1122334455667788, %rax
        add %rdi, %rax
        ret

        .p2align 4
        .globl bare_window
bare_window:
        push %rbx
        mov %rdi, %rbx
        add $3, %rbx
        lea (%rbx,%rbx,2), %rax
        pop %rbx
        ret

        .p2align 4
        .globl call
call:
        mov %rdi, %rax
        mov %rsi, %rdi
        mov %rdx, %rsi
        mov %rcx, %rdx
        mov %r8, %r10
        mov %r9, %r8
        syscall
        ret

        .section .note.GNU-stack, "", @progbits

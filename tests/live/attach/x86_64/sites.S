// Two probed functions. victim_one starts with an instruction of ten bytes; victim_window with short ones, whose
// interior a window covers. victim_spin is what victim_calls.c spins in, inside a restartable sequence.

        .text
        .p2align 4
        .globl victim_one
        .type victim_one, @function
victim_one:
        movabs $0x1122334455667788, %rax
        add %rdi, %rax
        ret
        .size victim_one, . - victim_one

        .p2align 4
        .globl victim_window
        .type victim_window, @function
victim_window:
        push %rbx
        mov %rdi, %rbx
        add $3, %rbx
        lea (%rbx,%rbx,2), %rax
        pop %rbx
        ret
        .size victim_window, . - victim_window

        // int victim_spin(uint64_t *rseq_cs, unsigned long spins): 1 if it was aborted.
        .p2align 4
        .globl victim_spin
        .type victim_spin, @function
victim_spin:
        lea 3f(%rip), %rax
        mov %rax, (%rdi)
        .globl victim_sequence_start
victim_sequence_start:
1:      mov %rsi, %rcx
5:      pause
        dec %rcx
        jnz 5b
2:      xor %eax, %eax
        ret
        .byte 0x0f, 0xb9, 0x3d // the signature, RSEQ_SIG
        .long 0x53053053
        .globl victim_sequence_abort
victim_sequence_abort:
4:      mov $1, %eax
        ret
        .size victim_spin, . - victim_spin

        .section __rseq_cs, "aw"
        .balign 32
3:      .long 0, 0
        .quad 1b, 2b - 1b, 4b

        .section .note.GNU-stack, "", @progbits

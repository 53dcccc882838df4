// Two probed functions, and what victim_calls.c spins in inside a restartable sequence.

        .text
        .p2align 4
        .globl victim_one
        .type victim_one, @function
victim_one:
        ldr x1, 1f              // relative to its place
        add x0, x0, x1
        ret
        .p2align 3
1:      .quad 0x1122334455667788
        .size victim_one, . - victim_one

        .p2align 4
        .globl victim_window
        .type victim_window, @function
victim_window:
        stp x29, x30, [sp, #-16]!
        mov x29, sp
        add x0, x0, #3
        add x0, x0, x0, lsl #1
        ldp x29, x30, [sp], #16
        ret
        .size victim_window, . - victim_window

        // int victim_spin(uint64_t *rseq_cs, unsigned long spins): 1 if it was aborted.
        .p2align 4
        .globl victim_spin
        .type victim_spin, @function
victim_spin:
        adrp x2, 3f
        add x2, x2, :lo12:3f
        str x2, [x0]
        .globl victim_sequence_start
victim_sequence_start:
1:      mov x3, x1
5:      yield
        subs x3, x3, #1
        b.ne 5b
2:      mov w0, #0
        ret
        .inst 0xd428bc00        // the signature, RSEQ_SIG: brk #0x45e0
        .globl victim_sequence_abort
victim_sequence_abort:
4:      mov w0, #1
        ret
        .size victim_spin, . - victim_spin

        .section __rseq_cs, "aw"
        .balign 32
3:      .long 0, 0
        .quad 1b, 2b - 1b, 4b

        .section .note.GNU-stack, "", @progbits

// Two probed functions, and what victim_calls.c spins in inside a restartable sequence.

        .text
        .p2align 4
        .globl victim_one
        .type victim_one, @function
victim_one:
        ld a1, 1f               // auipc and ld: relative to its place
        add a0, a0, a1
        ret
        .p2align 3
1:      .quad 0x1122334455667788
        .size victim_one, . - victim_one

        // Its first two instructions are compressed: one branch takes the place of both.
        .p2align 4
        .globl victim_window
        .type victim_window, @function
victim_window:
        addi sp, sp, -16
        sd ra, 8(sp)
        addi a0, a0, 3
        slli a1, a0, 1
        add a0, a0, a1
        ld ra, 8(sp)
        addi sp, sp, 16
        ret
        .size victim_window, . - victim_window

        // int victim_spin(uint64_t *rseq_cs, unsigned long spins): 1 if it was aborted.
        .p2align 4
        .globl victim_spin
        .type victim_spin, @function
victim_spin:
        lla a2, 3f
        sd a2, 0(a0)
        .globl victim_sequence_start
victim_sequence_start:
1:      mv a3, a1
5:      nop
        addi a3, a3, -1
        bnez a3, 5b
2:      li a0, 0
        ret
        .word 0xf1401073        // the signature, RSEQ_SIG: csrw mhartid, x0
        .globl victim_sequence_abort
victim_sequence_abort:
4:      li a0, 1
        ret
        .size victim_spin, . - victim_spin

        .section __rseq_cs, "aw"
        .balign 32
3:      .long 0, 0
        .quad 1b, 2b - 1b, 4b

        .section .note.GNU-stack, "", @progbits

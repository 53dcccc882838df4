// struct {long result; unsigned long wrong;} home_whole(first, second, third, number): makes the system call of that
// number, or with 0 counts first down, with every register full, and looks at each of them afterwards.

        .option norelax
        .macro all do
        .irp n, 1, 5, 6, 7, 8, 9, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        \do \n
        .endr
        .endm
        .macro fill n
        li x\n, 0x5a17c3e924680000 + \n * 0x101
        fmv.d.x f\n, x\n
        .endm
        .macro look n
        li a0, 0x5a17c3e924680000 + \n * 0x101
        bne x\n, a0, 8f
        fmv.x.d a0, f\n
        bne x\n, a0, 8f
        .endm
        .macro keep do, fdo
        \do ra, 0(sp)
        \do s0, 8(sp)
        \do s1, 16(sp)
        \do s2, 24(sp)
        \do s3, 32(sp)
        \do s4, 40(sp)
        \do s5, 48(sp)
        \do s6, 56(sp)
        \do s7, 64(sp)
        \do s8, 72(sp)
        \do s9, 80(sp)
        \do s10, 88(sp)
        \do s11, 96(sp)
        \fdo fs0, 104(sp)
        \fdo fs1, 112(sp)
        \fdo fs2, 120(sp)
        \fdo fs3, 128(sp)
        \fdo fs4, 136(sp)
        \fdo fs5, 144(sp)
        \fdo fs6, 152(sp)
        \fdo fs7, 160(sp)
        \fdo fs8, 168(sp)
        \fdo fs9, 176(sp)
        \fdo fs10, 184(sp)
        \fdo fs11, 192(sp)
        .endm

        .text
        .p2align 4
        .globl home_whole
        .type home_whole, @function
home_whole:
        addi sp, sp, -256
        keep sd, fsd
        sd a1, 208(sp)
        sd a2, 216(sp)
        mv a7, a3
        li a3, 0
        all fill
        fsrmi 1
        beqz a7, 2f
        ecall
        j 3f
2:      addi a0, a0, -1
        bnez a0, 2b
        bnez a7, 8f
3:      sd a0, 232(sp)
        all look
        bnez a3, 8f
        frrm a0
        addi a0, a0, -1
        bnez a0, 8f
        ld a0, 208(sp)
        bne a0, a1, 8f
        ld a0, 216(sp)
        bne a0, a2, 8f
        li a1, 0
        j 9f
8:      li a1, 1
9:      fsrmi 0
        ld a0, 232(sp)
        keep ld, fld
        addi sp, sp, 256
        ret
        .size home_whole, . - home_whole

        .section .note.GNU-stack, "", @progbits

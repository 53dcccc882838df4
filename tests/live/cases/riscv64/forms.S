// Short functions, each the heart of one hard case. A comment names the case; forms.c calls them a
// known number of times. Instructions are of 32 bits, but where one begins with c.
        .option norelax
        .option norvc
        .text

        .macro form name, align=4
        .p2align \align
        .globl \name
        .type \name, @function
\name:
        .endm
        .macro formend name
        .size \name, . - \name
        .endm
        // One instruction of 16 bits.
        .macro short code:vararg
        .option push
        .option rvc
        \code
        .option pop
        .endm

// C005, C006: a function that is one branch; two ways to the same code, of which only one counts.
form thunk_a
        j thunk_target
formend thunk_a
form thunk_b
        short c.j thunk_target
formend thunk_b
form thunk_target
        addi a0, a0, 7
        ret
formend thunk_target

// C009, C010: as short as they get, without padding between them.
form short_ret
        short c.jr ra
formend short_ret
form short_pair, 1
        addiw a0, a0, 0
        short c.jr ra
formend short_pair
form short_three, 1
        short c.addi a0, 1
        short c.addi a0, 2
        short c.jr ra
formend short_three
form short_next, 1
        short c.addi a0, 3
        short c.addi a0, 4
        short c.jr ra
formend short_next

// C054: at the odd half of a word.
        .p2align 2
        short c.nop
form odd_long, 1
        addi a0, a0, 1
        addi a0, a0, 2
        ret
formend odd_long
        .p2align 2
        short c.nop
form odd_short, 1
        short c.addi a0, 5
        addi a0, a0, 2
        short c.jr ra
formend odd_short

// C001: a loop back to the second instruction.
form back_to_second
        short c.li a1, 0
1:      short c.addi a1, 3
        short c.addi a0, -1
        bgez a0, 1b
        mv a0, a1
        ret
formend back_to_second

// C002: a branch over the next instructions.
form over_next
        short c.beqz a0, 1f
        short c.addi a0, 1
        short c.addi a0, 1
1:      ret
formend over_next

// C012: a loop back to the entry, by each kind of branch. One call is one hit.
form loop_bnez
        addi a0, a0, -1
        bltz a0, 1f
        bnez a0, loop_bnez
1:      ret
formend loop_bnez
form loop_short
        short c.addi a0, -1
        bltz a0, 1f
        short c.bnez a0, loop_short
1:      ret
formend loop_short
form loop_bgez
        addi a0, a0, -1
        bgez a0, loop_bgez
        ret
formend loop_bgez
form loop_jump
        beqz a0, 1f
        addi a0, a0, -1
        j loop_jump
1:      li a0, 11
        ret
formend loop_jump
form loop_jump_short
        short c.beqz a0, 1f
        short c.addi a0, -1
        short c.j loop_jump_short
1:      li a0, 13
        ret
formend loop_jump_short

// C016: tables of words from a label, and of addresses; cases of two short instructions behind them.
        .macro cases first
        short c.li a0, \first
        short c.jr ra
        short c.li a0, \first + 1
        short c.jr ra
        short c.li a0, \first + 2
        short c.jr ra
        short c.li a0, \first + 3
        short c.jr ra
        .endm
form dense_words
        andi a0, a0, 3
        li a4, 3
        bgtu a0, a4, 1f
        slli a0, a0, 2
        lla a1, 3f
        add a0, a0, a1
        lw a0, 0(a0)
        add a0, a0, a1
        jr a0
1:      cases 11
formend dense_words
form dense_longs
        andi a0, a0, 3
        li a4, 3
        bgtu a0, a4, 2f
        slli a0, a0, 3
        lla a1, 4f
        add a0, a0, a1
        ld a0, 0(a0)
        jr a0
2:      cases 21
formend dense_longs
        .section .rodata
        .p2align 2
3:      .word 1b - 3b, 1b + 4 - 3b, 1b + 8 - 3b, 1b + 12 - 3b
        .section .data.rel.ro, "aw"
        .p2align 3
4:      .quad 2b, 2b + 4, 2b + 8, 2b + 12
        .text

// C017, C064: what is read relative to the program counter, of every width and kind; data between functions.
        .macro literal name, load, to, take:vararg
form \name
1:      auipc a1, %pcrel_hi(numbers)
        \load \to, %pcrel_lo(1b)(a1)
        \take
        ret
formend \name
        .endm
        literal literal_d, ld, a0
        literal literal_w, lw, a0
        literal literal_wu, lwu, a0
        literal literal_h, lh, a0
        literal literal_bu, lbu, a0
        literal literal_fw, flw, ft0, fmv.x.w a0, ft0
        literal literal_fd, fld, ft0, fmv.x.d a0, ft0
        .p2align 4
numbers:
        .quad 0x87654321f2345678, 0xfedcba9887654321
form literal_address
        lla a0, numbers
        ld a0, 8(a0)
        ret
formend literal_address
        .p2align 4
        .word 0x12345678
// C017: data ends here, where the assembler's mark names other extensions than before.
form behind_data, 2
        short c.addi a0, 6
        short c.addi a0, 6
        short c.jr ra
formend behind_data
// Its second half is used twice, and far from the first.
form literal_twice
1:      auipc a2, %pcrel_hi(cell)
        addi a1, a0, 1
        lw a3, %pcrel_lo(1b)(a2)
        add a1, a1, a3
        lw a3, %pcrel_lo(1b)(a2)
        add a0, a1, a3
        ret
formend literal_twice
form literal_store
        add a1, a0, a0
1:      auipc a2, %pcrel_hi(stored)
        sw a1, %pcrel_lo(1b)(a2)
        ret
formend literal_store

// C111: a landing pad, which other processors take for a hint.
form pad_first
        auipc zero, 0 // lpad 0
        addi a0, a0, 9
        ret
formend pad_first

// C064: every branch at the entry, both ways.
        .macro branching name, branch:vararg
form \name
        \branch, 1f
        addi a0, a0, 1
        ret
1:      addi a0, a0, 2
        ret
formend \name
        .endm
        branching branch_beq, beq a0, zero
        branching branch_bne, bne a0, zero
        branching branch_blt, blt zero, a0
        branching branch_bge, bge zero, a0
        branching branch_bltu, bltu zero, a0
        branching branch_bgeu, bgeu zero, a0
        branching branch_beqz, short c.beqz a0
        branching branch_bnez, short c.bnez a0

// C064: tail branches through registers, with an offset too, and far ones.
        .macro tail_form name, reg
form \name
        lla \reg, tail_target
        jr \reg
formend \name
        .endm
        tail_form tail_t0, t0
        tail_form tail_t1, t1
        tail_form tail_t2, t2
form tail_offset
        lla t1, tail_target
        addi t1, t1, -1024
        jr 1024(t1)
formend tail_offset
form tail_short
        lla t1, tail_target
        short c.jr t1
formend tail_short
form tail_far
        tail tail_target
formend tail_far
form tail_target
        addi a0, a0, 13
        ret
formend tail_target

// C039: calls of each kind; the link register is the function's own. What they give back tells that register too.
        .macro calling name, call:vararg
form \name
        addi sp, sp, -16
        sd ra, 8(sp)
        lla t1, linked
        mv ra, t1
        \call
1:      lla a1, 1b
        sub a0, a0, a1
        ld ra, 8(sp)
        addi sp, sp, 16
        ret
formend \name
        .endm
        calling call_register, jalr t1
        calling call_link, jalr ra, 0(ra)
        calling call_short, short c.jalr t1
        calling call_short_link, short c.jalr ra
        calling call_direct, jal linked
        calling call_far, call linked
form linked
        add a0, a0, ra
        ret
formend linked
// By the other link register, as compilers' own helpers are called.
form call_other
        lla t1, linked_other
        jalr t0, 0(t1)
        ret
formend call_other
form call_other_direct
        jal t0, linked_other
        ret
formend call_other_direct
form call_other_same
        lla t0, linked_other
        jalr t0, 0(t0)
        ret
formend call_other_same
form linked_other
        addi a0, a0, 17
        jr t0
formend linked_other

// C035: a system call's number is in a7 between the two.
form system_call
        li a7, 172 // getpid
        mv a1, a0
        ecall
        sgtz a0, a0
        ret
formend system_call

// C056: exclusive pairs: words, with acquire and release; short and long instructions between them.
form exclusive_word
        lla a1, shared
1:      lr.w a2, (a1)
        addi a2, a2, 1
        sc.w a3, a2, (a1)
        bnez a3, 1b
        mv a0, a2
        ret
formend exclusive_word
form exclusive_long
        lla a1, shared + 8
1:      lr.d.aq a2, (a1)
        short c.add a2, a0
        sc.d.rl a3, a2, (a1)
        bnez a3, 1b
        mv a0, a2
        ret
formend exclusive_long
// Left early, as a compare and swap is.
form exclusive_left
        lla a1, shared
1:      lr.w a2, (a1)
        bne a2, a0, 2f
        sc.w a3, a0, (a1)
        bnez a3, 1b
2:      mv a0, a2
        ret
formend exclusive_left

// The same by one instruction, which is no exclusive.
form atomic_add
        lla a1, shared + 16
        amoadd.d a2, a0, (a1)
        amoswap.w.aqrl a3, a0, (a1)
        amomaxu.d a4, a2, (a1)
        add a0, a2, a3
        add a0, a0, a4
        ret
formend atomic_add

// C069: what lies right below the stack pointer.
form below_stack
        sd a0, -8(sp)
        nop
        sd a0, -16(sp)
        nop
        ld a1, -8(sp)
        ld a2, -16(sp)
        add a0, a1, a2
        ret
formend below_stack

// What moves the stack pointer.
form moves_stack
        short c.addi sp, -16
        short c.sdsp a0, 8(sp)
        addi sp, sp, -32
        sd a0, 16(sp)
        short c.ldsp a1, 16(sp)
        short c.addi16sp sp, 32
        short c.ldsp a0, 8(sp)
        short c.addi16sp sp, 16
        add a0, a0, a1
        ret
formend moves_stack

// C036, C065, C066: all registers that a callee may change and the state of floating point are as before. Gives
// back 0.
        .macro each do:vararg
        .irp n, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
        \do \n
        .endr
        .endm
        .macro each_of_all do:vararg
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        \do \n
        .endr
        .endm
        .macro general_set n
        li x\n, 0x1111 + 0x101 * \n
        .endm
        .macro general_compare n
        li s2, 0x1111 + 0x101 * \n
        xor s2, s2, x\n
        or s1, s1, s2
        .endm
        .macro float_set n
        li s2, 0x2000 + \n
        fmv.d.x f\n, s2
        .endm
        .macro float_compare n
        li t0, 0x2000 + \n
        fmv.x.d t1, f\n
        xor t0, t0, t1
        or s1, s1, t0
        .endm
        .macro floats_kept do, n=32
        .irp r, fs0, fs1, fs2, fs3, fs4, fs5, fs6, fs7, fs8, fs9, fs10, fs11
        \do \r, floats_at(sp)
        .set floats_at, floats_at + 8
        .endr
        .endm
form registers_live
        addi sp, sp, -128
        sd ra, 0(sp)
        sd s0, 8(sp)
        sd s1, 16(sp)
        sd s2, 24(sp)
        .set floats_at, 32
        floats_kept fsd
        frcsr s0
        each_of_all float_set
        li s1, 0x63 // round up; two flags
        fscsr s1
        li s1, 0
        each general_set
        jal keeps_all
        each general_compare
        frcsr s2
        xori s2, s2, 0x63
        or s1, s1, s2
        each_of_all float_compare
        fscsr s0
        mv a0, s1
        .set floats_at, 32
        floats_kept fld
        ld ra, 0(sp)
        ld s0, 8(sp)
        ld s1, 16(sp)
        ld s2, 24(sp)
        addi sp, sp, 128
        ret
formend registers_live
form keeps_all
        nop
        addi s2, s2, 0
        jal t0, keeps_more
        li t0, 0x1111 + 0x101 * 5
        ret
formend keeps_all
form keeps_more
        short c.nop
        short c.jr t0
formend keeps_more

// All vectors, and what the next instruction takes from the one that sets them up. Gives back 0.
        .option push
        .option arch, +v
        .macro vector_set n
        li t0, 0x3000 + \n
        vmv.v.x v\n, t0
        .endm
        .macro vector_compare n
        li t0, 0x3000 + \n
        vmsne.vx v0, v\n, t0
        vcpop.m t0, v0
        or a0, a0, t0
        .endm
form vectors_live
        addi sp, sp, -16
        sd ra, 8(sp)
        vsetvli a1, zero, e64, m1, ta, ma
        each_of_all vector_set
        csrwi vxrm, 2
        csrwi vxsat, 1
        vsetivli a2, 3, e8, m1, tu, mu
        csrr a3, vtype
        jal keeps_vectors
        csrr a0, vtype
        xor a0, a0, a3
        csrr t0, vl
        xor t0, t0, a2
        or a0, a0, t0
        csrr t0, vxrm
        xori t0, t0, 2
        or a0, a0, t0
        csrr t0, vxsat
        xori t0, t0, 1
        or a0, a0, t0
        vsetvli a1, zero, e64, m1, ta, ma
        each_of_all vector_compare
        csrwi vxsat, 0
        ld ra, 8(sp)
        addi sp, sp, 16
        ret
formend vectors_live
form keeps_vectors
        nop
        ret
formend keeps_vectors
form vector_first
        vsetivli a1, 2, e64, m1, ta, ma
        vmv.v.x v1, a0
        vadd.vi v1, v1, 5
        vmv.x.s a0, v1
        ret
formend vector_first
        .option pop

// C193: a trap of the program's own, and code around it.
form own_trap
        nop
        ebreak
        addi a0, a0, 3
        ret
formend own_trap
form own_trap_short
        nop
        short c.ebreak
        addi a0, a0, 4
        ret
formend own_trap_short
form trap_first
        short c.ebreak
        addi a0, a0, 5
        ret
formend trap_first

// C090: two names of one address.
form alias_one
        .globl alias_two
        .type alias_two, @function
        .set alias_two, alias_one
        addi a0, a0, 2
        ret
formend alias_one

// C067: arguments in all eight registers and on the stack; a result in two.
form many_arguments
        ld t0, 0(sp)
        ld t1, 8(sp)
        add a0, a0, a1
        add a2, a2, a3
        add a4, a4, a5
        add a6, a6, a7
        add a0, a0, a2
        add a4, a4, a6
        add a0, a0, a4
        xor a1, t0, t1
        ret
formend many_arguments

        .data
        .p2align 4
        .globl cell
cell:   .word 2
        .globl stored
stored: .word 0
        .p2align 4
shared: .quad 0, 0, 0

        .section .note.GNU-stack, "", @progbits

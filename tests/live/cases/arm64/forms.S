// Short functions, each the heart of one hard case. A comment names the case; forms.c calls them a
// known number of times.
        .arch armv8.5-a+sve
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
        // Entered through a pointer: a landing pad, where pages are guarded.
        .macro pad
        hint #34 // bti c
        .endm

// C005, C006: a function that is one branch; two ways to the same code, of which only one counts.
form thunk_a
        b thunk_target
formend thunk_a
form thunk_b
        b thunk_target
formend thunk_b
form thunk_target
        add x0, x0, #7
        ret
formend thunk_target

// C009, C010: as short as they get, without padding between them.
form short_ret
        ret
formend short_ret
form short_pair, 2
        mov w0, w0
        ret
formend short_pair
form short_three, 2
        add x0, x0, #1
        add x0, x0, #2
        ret
formend short_three
form short_next, 2
        add x0, x0, #3
        add x0, x0, #4
        ret
formend short_next

// C001: a loop back to the second instruction.
form back_to_second
        mov x1, #0
1:      add x1, x1, #3
        subs x0, x0, #1
        tbz x0, #63, 1b
        mov x0, x1
        ret
formend back_to_second

// C002: a branch over the next instructions.
form over_next
        cbz x0, 1f
        add x0, x0, #1
        add x0, x0, #1
1:      ret
formend over_next

// C012: a loop back to the entry, by each kind of branch. One call is one hit.
form loop_cbnz
        sub x0, x0, #1
        tbnz x0, #63, 1f
        cbnz x0, loop_cbnz
1:      ret
formend loop_cbnz
form loop_tbz
        sub x0, x0, #1
        tbz x0, #63, loop_tbz
        ret
formend loop_tbz
form loop_cond
        subs x0, x0, #1
        b.pl loop_cond
        ret
formend loop_cond
form loop_jump
        cbz x0, 1f
        sub x0, x0, #1
        b loop_jump
1:      mov w0, #11
        ret
formend loop_jump

// C016: tables of bytes and of halfwords; cases of two instructions behind them.
form dense_bytes
        and x0, x0, #3
        adr x1, 3f
        ldrb w2, [x1, x0]
        adr x3, 1f
        add x3, x3, w2, sxtb #2
        br x3
1:      hint #36 // bti j
        mov w0, #11
        ret
        hint #36
        mov w0, #22
        ret
        hint #36
        mov w0, #33
        ret
        hint #36
        mov w0, #44
        ret
formend dense_bytes
form dense_halves
        and w0, w0, #3
        adrp x1, 4f
        add x1, x1, :lo12:4f
        ldrh w2, [x1, w0, uxtw #1]
        adr x3, 1f
        add x3, x3, w2, sxth #2
        br x3
1:      hint #36
        mov w0, #55
        ret
        hint #36
        mov w0, #66
        ret
        hint #36
        mov w0, #77
        ret
        hint #36
        mov w0, #88
        ret
formend dense_halves
        .p2align 2
3:      .byte 0, 3, 6, 9
        .section .rodata
        .p2align 1
4:      .hword 0, 3, 6, 9
        .text

// C017, C031, C034: literals of every width and kind, and prefetching one; data between functions.
        .macro literal name, load, take:vararg
form \name
        \load
        \take
        ret
formend \name
        .endm
        literal literal_x, "ldr x0, numbers"
        literal literal_w, "ldr w0, numbers+4"
        literal literal_sw, "ldrsw x0, numbers+4"
        literal literal_s, "ldr s0, numbers+8", fmov w0, s0
        literal literal_d, "ldr d0, numbers+8", fmov x0, d0
        literal literal_q, "ldr q0, numbers", mov x0, v0.d[1]
        literal literal_prefetch, "prfm pldl1keep, numbers"
        .p2align 4
numbers:
        .quad 0x8765432112345678, 0xfedcba9887654321

// C033: addresses.
form address_near
        adr x1, numbers
        ldr x1, [x1]
        add x0, x0, x1
        ret
formend address_near
form address_page
        adrp x8, cell
        ldr w8, [x8, :lo12:cell]
        add x0, x0, x8
        ret
formend address_page

// C109, C111: signed return addresses, landing pads, both returns.
form signed_first
        hint #25 // paciasp
        stp x29, x30, [sp, #-16]!
        mov x29, sp
        bl thunk_target
        ldp x29, x30, [sp], #16
        hint #29 // autiasp
        ret
formend signed_first
form signed_retaa
        paciasp
        str x30, [sp, #-16]!
        add x0, x0, #3
        ldr x30, [sp], #16
        retaa
formend signed_retaa
form signed_retab
        pacibsp
        str x30, [sp, #-16]!
        add x0, x0, #5
        ldr x30, [sp], #16
        retab
formend signed_retab
form pad_first
        bti jc
        add x0, x0, #9
        ret
formend pad_first

// C035, C114: tail branches through registers, to code that looks at them.
        .macro tail name, reg
form \name
        adr \reg, tail_target
        br \reg
formend \name
        .endm
        tail tail_x9, x9
        tail tail_x16, x16
        tail tail_x17, x17
form tail_target
        hint #38 // bti jc
        add x0, x0, #13
        ret
formend tail_target

// C039: calls of each kind; the link register is the function's own.
        .macro calling name, reg
form \name
        pad
        str x30, [sp, #-16]!
        adr \reg, tail_target
        blr \reg
        ldr x30, [sp], #16
        ret
formend \name
        .endm
        calling call_x16, x16
        calling call_x9, x9
        calling call_x30, x30
form call_direct
        pad
        str x30, [sp, #-16]!
        bl thunk_target
        adr x1, .
        sub x0, x0, x1
        add x0, x0, x30
        ldr x30, [sp], #16
        ret
formend call_direct

// C035: a system call's number is in x8 between the two.
form system_call
        mov x8, #172 // getpid
        mov x1, x0
        svc #0
        cmp x0, #0
        cset w0, gt
        ret
formend system_call

// C045: flags decide at the entry, and are kept by what is probed there.
form condition_first
        b.lt 1f
        mov x0, #1
        ret
1:      mov x0, #2
        ret
formend condition_first

// C057: exclusive pairs: words, a pair of words, with acquire and release.
        .macro exclusive name, load, store, first, more:vararg
form \name
        adrp x9, shared
        add x9, x9, :lo12:shared
1:      \load \first, [x9]
        add x2, x2, #1
        \store w4, \first, [x9]
        cbnz w4, 1b
        \more
        mov x0, x2
        ret
formend \name
        .endm
        exclusive exclusive_plain, ldxr, stxr, x2
        exclusive exclusive_ordered, ldaxr, stlxr, x2
form exclusive_pair
        adrp x9, shared
        add x9, x9, :lo12:shared
1:      ldxp x2, x3, [x9]
        add x2, x2, #1
        add x3, x3, #2
        stxp w4, x2, x3, [x9]
        cbnz w4, 1b
        eor x0, x2, x3
        ret
formend exclusive_pair

// The same by one instruction, which is no exclusive.
form atomic_add
        adrp x9, shared
        add x9, x9, :lo12:shared
        mov x2, #2
        ldaddal x2, x0, [x9]
        swp x0, x1, [x9]
        cas x1, x0, [x9]
        mov x0, x1
        ret
formend atomic_add

// C069: what lies right below the stack pointer.
form below_stack
        str x0, [sp, #-8]
        nop
        str x0, [sp, #-16]
        nop
        ldr x1, [sp, #-8]
        ldr x2, [sp, #-16]
        add x0, x1, x2
        ret
formend below_stack

// C032: frames of 16 bytes, and what moves the stack pointer.
form moves_stack
        sub sp, sp, #16
        str x0, [sp]
        str x0, [sp, #-16]!
        ldr x1, [sp], #16
        ldr x0, [sp], #16
        add x0, x0, x1
        ret
formend moves_stack

// C036, C065, C066: all registers that a callee may change, the flags, the vectors and the state of floating point
// are as before. Gives back 0.
form keeps_nothing
        add x17, x17, #0
        ret
formend keeps_nothing
        .macro each do:vararg
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17
        \do \n
        .endr
        .endm
        .macro each_vector do:vararg
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        \do \n
        .endr
        .endm
        .macro general_set n
        mov x\n, #0x1111 + 0x101 * \n
        .endm
        .macro general_compare n
        sub x\n, x\n, #((0x1111 + 0x101 * \n) & 0xfff)
        sub x\n, x\n, #((0x1111 + 0x101 * \n) & 0xfff000)
        orr x20, x20, x\n
        .endm
        .macro vector_set n
        mov w9, #0x2000 + \n
        dup v\n\().2d, x9
        .endm
        .macro vector_compare n
        mov w9, #0x2000 + \n
        dup v0.2d, x9
        eor v0.16b, v0.16b, v\n\().16b
        mov x10, v0.d[0]
        mov x11, v0.d[1]
        orr x20, x20, x10
        orr x20, x20, x11
        .endm
form registers_live
        stp x29, x30, [sp, #-112]!
        stp x19, x20, [sp, #16]
        stp d8, d9, [sp, #32]
        stp d10, d11, [sp, #48]
        stp d12, d13, [sp, #64]
        stp d14, d15, [sp, #80]
        mrs x19, fpcr
        str x19, [sp, #96]
        each_vector vector_set
        mov x20, #0
        mov w9, #0x9f
        msr fpsr, x9
        mov w9, #0x400000 // round up
        msr fpcr, x9
        each general_set
        mov w19, #0x90000000 // N and V
        msr nzcv, x19
        bl keeps_flags
        mrs x19, nzcv
        each general_compare
        mov w9, #0x90000000
        eor x19, x19, x9
        orr x20, x20, x19
        mrs x9, fpsr
        sub x9, x9, #0x9f
        orr x20, x20, x9
        mrs x9, fpcr
        eor x9, x9, #0x400000
        orr x20, x20, x9
        // v0 first: the others are compared by way of it.
        mov x10, v0.d[0]
        mov x11, v0.d[1]
        mov w9, #0x2000
        eor x10, x10, x9
        eor x11, x11, x9
        orr x20, x20, x10
        orr x20, x20, x11
        .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vector_compare \n
        .endr
        mov x0, x20
        ldr x19, [sp, #96]
        msr fpcr, x19
        ldp d14, d15, [sp, #80]
        ldp d12, d13, [sp, #64]
        ldp d10, d11, [sp, #48]
        ldp d8, d9, [sp, #32]
        ldp x19, x20, [sp, #16]
        ldp x29, x30, [sp], #112
        ret
formend registers_live
form keeps_flags
        nop
        mov w19, w19
        ret
formend keeps_flags

// Scalable vectors and predicates, all of them, and what is before and behind movprfx. Gives back 0.
        .macro scalable_set n
        index z\n\().d, #\n - 16, #3
        .endm
        .macro scalable_compare n
        index z0.d, #\n - 16, #3
        cmpne p1.d, p0/z, z0.d, z\n\().d
        cntp x9, p0, p1.d
        orr x10, x10, x9
        .endm
form scalable_live
        stp x29, x30, [sp, #-80]!
        stp d8, d9, [sp, #16]
        stp d10, d11, [sp, #32]
        stp d12, d13, [sp, #48]
        stp d14, d15, [sp, #64]
        each_vector scalable_set
        ptrue p4.s
        whilelo p5.b, xzr, x0
        setffr
        bl keeps_scalable
        mov x10, #0
        ptrue p0.b
        rdffr p1.b
        eors p1.b, p0/z, p0.b, p1.b
        cset w9, ne
        orr x10, x10, x9
        ptrue p1.s
        eors p1.b, p0/z, p1.b, p4.b
        cset w9, ne
        orr x10, x10, x9
        ptrue p0.d
        sub z0.d, z0.d, z1.d // itself first: it is needed for the others
        cmpne p1.d, p0/z, z0.d, #-1
        cntp x9, p0, p1.d
        orr x10, x10, x9
        .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        scalable_compare \n
        .endr
        mov x0, x10
        ldp d14, d15, [sp, #64]
        ldp d12, d13, [sp, #48]
        ldp d10, d11, [sp, #32]
        ldp d8, d9, [sp, #16]
        ldp x29, x30, [sp], #80
        ret
formend scalable_live
form keeps_scalable
        nop
        add x1, x0, #1
        ret
formend keeps_scalable
form prefixed
        ptrue p0.d
        index z1.d, #5, #1
        index z2.d, #7, #2
        movprfx z0, z1
        add z0.d, p0/m, z0.d, z2.d
        fmov x0, d0
        ret
formend prefixed
form prefix_first
        movprfx z0, z1
        add z0.d, z0.d, #1
        ret
formend prefix_first

// C193: a trap of the program's own, and code around it.
form own_trap
        nop
        brk #0x3e8
        add x0, x0, #3
        ret
formend own_trap
form trap_first
        brk #1
        add x0, x0, #5
        ret
formend trap_first

// C090: two names of one address.
form alias_one
        .globl alias_two
        .type alias_two, @function
        .set alias_two, alias_one
        add x0, x0, #2
        ret
formend alias_one

// C067: arguments in all eight registers and on the stack; a result in two.
form many_arguments
        ldp x9, x10, [sp]
        add x0, x0, x1
        add x2, x2, x3
        add x4, x4, x5
        add x6, x6, x7
        add x0, x0, x2
        add x4, x4, x6
        add x0, x0, x4
        eor x1, x9, x10
        ret
formend many_arguments

        .data
        .p2align 4
        .globl cell
cell:   .word 2
        .globl stored
stored: .word 0
        .p2align 4
shared: .quad 0, 0

        .section .note.GNU-stack, "", @progbits
        // Guarded pages, where the linker is asked for them.
        .section .note.gnu.property, "a"
        .p2align 3
        .word 4, 16, 5
        .asciz "GNU"
        .word 0xc0000000, 4, 3, 0

// Every kind of instruction that a breakpoint may be set on, each once. form_run loads registers and flags
// from form_in, runs one and stores what it left into form_out. x17 is the form's address at its start; d31 is lost
// at its end.
//
//   FORM "name", registers that hold addresses of form_data
//       what has to come before
//   SITE
//       the instruction
//       what comes behind; x0 is often a mark of the way that was taken
//   DONE
//
// What lies below the stack pointer at the end is compared with nothing; what a form leaves above it is all
// written, for a signal may have used it before.
        .arch armv8.5-a+sve

        .macro FORM name, near=0
771:
        .pushsection .rodata.form_names, "a"
773:    .asciz  "\name"
        .popsection
        .pushsection .data.rel.ro.form_table, "aw"
        .quad   771b, 772f, 773b, \near
        .popsection
        .endm
        .macro SITE
772:
        .endm
        .macro DONE
        b       form_back
        .endm

        .section .data.rel.ro.form_table, "aw"
        .balign 8
        .globl  form_table
form_table:

        .text
        .set    N_0, 1
        .set    N_1, 2
        .set    N_2, 4
        .set    N_9, 0x200

// void form_run(const void *code). sp is loaded too: all but x17 comes from form_in.
        .globl  form_run
        .type   form_run, %function
form_run:
        stp     x29, x30, [sp, #-160]!
        stp     x19, x20, [sp, #16]
        stp     x21, x22, [sp, #32]
        stp     x23, x24, [sp, #48]
        stp     x25, x26, [sp, #64]
        stp     x27, x28, [sp, #80]
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        mov     x17, x0
        adrp    x1, form_stack
        mov     x2, sp
        str     x2, [x1, :lo12:form_stack]
        str     x18, [x1, :lo12:form_platform]
        adrp    x30, form_in
        add     x30, x30, :lo12:form_in
        ldr     x1, [x30, #256]
        msr     nzcv, x1
        ldr     x1, [x30, #248]
        mov     sp, x1
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
        ldr     x\n, [x30, #8 * \n]
        .endr
        br      x17

form_back:
        fmov    d31, x30
        adrp    x30, form_out
        add     x30, x30, :lo12:form_out
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
        str     x\n, [x30, #8 * \n]
        .endr
        str     d31, [x30, #240]
        mov     x0, sp
        str     x0, [x30, #248]
        mrs     x0, nzcv
        str     x0, [x30, #256]
        adrp    x1, form_stack
        ldr     x2, [x1, :lo12:form_stack]
        ldr     x18, [x1, :lo12:form_platform]
        mov     sp, x2
        ldp     d14, d15, [sp, #144]
        ldp     d12, d13, [sp, #128]
        ldp     d10, d11, [sp, #112]
        ldp     d8, d9, [sp, #96]
        ldp     x27, x28, [sp, #80]
        ldp     x25, x26, [sp, #64]
        ldp     x23, x24, [sp, #48]
        ldp     x21, x22, [sp, #32]
        ldp     x19, x20, [sp, #16]
        ldp     x29, x30, [sp], #160
        ret
        .size   form_run, . - form_run

        .macro ONE name, code:vararg
        FORM "\name"
SITE;   \code
DONE
        .endm

// ---- nothing, hints, landing pads
        ONE "nop", nop
        ONE "yield", yield
        ONE "hint that nobody has", hint #100
        ONE "bti", bti
        ONE "bti c", bti c
        ONE "bti jc", bti jc

// ---- addresses and literals
        ONE "adr", adr x0, form_data
        ONE "adr xzr", adr xzr, form_data
        ONE "adrp", adrp x30, form_data
        ONE "ldr x", ldr x0, form_data
        ONE "ldr w", ldr w0, form_data+4
        ONE "ldr x30", ldr x30, form_data+8
        ONE "ldr xzr", ldr xzr, form_data
        ONE "ldrsw", ldrsw x0, form_data+12
        ONE "prfm", prfm pldl1keep, form_data
        .irp width, s, d, q
        FORM "ldr \width"
        movi    v0.2d, #-1
SITE;   ldr     \width\()0, form_data+16
        mov     x0, v0.d[0]
        mov     x1, v0.d[1]
DONE
        .endr

// ---- pairs on the stack
        ONE "ldp", ldp x0, x1, [sp, #16]
        ONE "ldp w", ldp w0, w1, [sp, #24]
        ONE "ldp behind", ldp x29, x30, [sp], #32
        ONE "ldp before", ldp x29, x30, [sp, #32]!
        ONE "ldpsw", ldpsw x0, x1, [sp, #8]
        ONE "ldpsw behind", ldpsw x0, x1, [sp], #16
        ONE "ldnp", ldnp x0, x1, [sp, #32]
        ONE "ldp zr", ldp xzr, x1, [sp, #32]
        ONE "stp", stp x0, x1, [sp, #16]
        ONE "stp w", stp w0, w1, [sp, #8]
        ONE "stp before", stp x29, x30, [sp, #-16]!
        ONE "stp behind", stp x0, x1, [sp], #32
        ONE "stnp", stnp x0, xzr, [sp, #48]
        FORM "stp data", N_9
SITE;   stp     x0, x1, [x9, #16]
DONE

// ---- pairs of vector registers
        .macro VECTORS name, code:vararg
        FORM "\name"
        dup     v0.2d, x3
        dup     v1.2d, x4
SITE;   \code
        mov     x0, v0.d[0]
        mov     x1, v0.d[1]
        mov     x2, v1.d[0]
        mov     x3, v1.d[1]
DONE
        .endm
        VECTORS "ldp q", ldp q0, q1, [sp, #32]
        VECTORS "ldp d behind", ldp d0, d1, [sp], #16
        VECTORS "ldp s", ldp s0, s1, [sp, #8]
        VECTORS "stp q", stp q0, q1, [sp, #32]
        VECTORS "stp d before", stp d0, d1, [sp, #-16]!
        VECTORS "stp q behind", stp q0, q1, [sp], #32

// ---- one register on the stack
        ONE "ldr sp", ldr x0, [sp, #8]
        ONE "ldr w sp", ldr w0, [sp, #4]
        ONE "ldr behind", ldr x30, [sp], #16
        ONE "ldr before", ldr x30, [sp, #32]!
        ONE "ldrsw sp", ldrsw x0, [sp, #12]
        ONE "ldrsw behind", ldrsw x0, [sp], #16
        ONE "ldur", ldur x0, [sp, #3]
        ONE "ldursw", ldursw x0, [sp, #5]
        ONE "ldrb", ldrb w0, [sp, #5]
        ONE "ldrsh", ldrsh w0, [sp, #6]
        ONE "ldrb behind", ldrb w0, [sp], #16
        ONE "ldtr", ldtr x0, [sp, #8]
        ONE "str", str x0, [sp, #8]
        ONE "str w", str w0, [sp, #4]
        FORM "str before"
SITE;   str     x30, [sp, #-16]!
        str     xzr, [sp, #8]
DONE
        ONE "str behind", str x0, [sp], #16
        ONE "stur", stur x0, [sp, #3]
        ONE "strb", strb w0, [sp, #5]
        FORM "strb before"
SITE;   strb    w0, [sp, #-16]!
        stur    xzr, [sp, #1]
        str     xzr, [sp, #8]
DONE
        VECTORS "ldr q sp", ldr q0, [sp, #16]
        VECTORS "ldr d behind", ldr d0, [sp], #16
        VECTORS "ldur q", ldur q0, [sp, #5]
        VECTORS "ldr b", ldr b0, [sp, #5]
        VECTORS "str q sp", str q0, [sp, #16]
        FORM "str d before"
        fmov    d0, x3
SITE;   str     d0, [sp, #-16]!
        str     xzr, [sp, #8]
DONE
        VECTORS "str q behind", str q0, [sp], #16
        VECTORS "stur s", stur s0, [sp, #5]
        // What is there only until the next signal: not stepped.
        FORM "stur below"
SITE;   stur    x1, [sp, #-8]
        ldur    x0, [sp, #-8]
DONE
        FORM "stp far below"
SITE;   stp     x1, x2, [sp, #-512]
        ldp     x1, x2, [sp, #-512]
DONE

// ---- branches
        FORM "b"
SITE;   b       1f
        mov     x0, #1
        DONE
1:      mov     x0, #2
DONE
        FORM "b back"
        b       2f
1:      mov     x0, #5
        DONE
2:
SITE;   b       1b
        .macro EITHER name, code:vararg
        FORM "\name"
SITE;   \code
        mov     x0, #1
        DONE
1:      mov     x0, #2
DONE
        .endm
        .irp c, eq, ne, cs, cc, mi, pl, vs, vc, hi, ls, ge, lt, gt, le, al, nv
        EITHER "b.\c", b.\c 1f
        .endr
        .macro BIT name, mask, code:vararg
        FORM "\name"
        and     x1, x1, #\mask
SITE;   \code
        mov     x0, #1
        DONE
1:      mov     x0, #2
DONE
        .endm
        BIT "cbz", 1, cbz x1, 1f
        BIT "cbnz", 1, cbnz x1, 1f
        BIT "cbz w", 0xffffffff00000001, cbz w1, 1f
        BIT "cbnz w", 0xffffffff00000001, cbnz w1, 1f
        EITHER "cbz xzr", cbz xzr, 1f
        EITHER "tbz", tbz x1, #3, 1f
        EITHER "tbnz", tbnz x1, #63, 1f
        EITHER "tbz w", tbz w1, #31, 1f

// ---- calls, jumps and returns through registers
        .macro LINKING name, reg, code:vararg
        FORM "\name"
        .ifnb \reg
        adr     \reg, 1f
        .endif
SITE;   \code
2:      mov     x0, #1
        DONE
1:      adr     x1, 2b
        sub     x2, x30, x1
        mov     x0, #2
DONE
        .endm
        LINKING "bl", , bl 1f
        LINKING "blr", x1, blr x1
        LINKING "blr x16", x16, blr x16
        LINKING "blr x30", x30, blr x30
        .macro GOING name, reg, code:vararg
        FORM "\name"
        adr     \reg, 1f
SITE;   \code
        mov     x0, #1
        DONE
1:      mov     x0, #2
DONE
        .endm
        GOING "br", x9, br x9
        GOING "br x16", x16, br x16
        GOING "ret", x30, ret
        GOING "ret x5", x5, ret x5

// ---- what no simulator does: slots
        ONE "mov sp", mov x0, sp
        ONE "movz", mov x0, #0x1234
        ONE "movk", movk x0, #0x1234, lsl #48
        ONE "add", adds x0, x1, x2, lsl #3
        ONE "sub extended", subs x0, x1, w2, sxtw #2
        ONE "bitfield", ubfx x0, x1, #5, #17
        ONE "madd", madd x0, x1, x2, x3
        ONE "div", udiv x0, x1, x2
        ONE "csel", csel x0, x1, x2, hi
        ONE "ccmp", ccmp x1, #3, #5, ne
        ONE "crc", crc32x w0, w1, x2
        ONE "rbit", rbit x0, x1
        ONE "flags", mrs x0, nzcv
        ONE "flags set", msr nzcv, x1
        ONE "barrier", dmb ish
        FORM "sub sp"
SITE;   sub     sp, sp, #64
        mov     x0, sp
        add     sp, sp, #64
DONE
        FORM "ldr data", N_1
SITE;   ldr     x0, [x1, #8]
DONE
        FORM "ldr indexed", N_2
        and     x3, x3, #7
SITE;   ldr     w0, [x2, w3, uxtw #2]
DONE
        FORM "str data", N_9
SITE;   str     x1, [x9], #8
DONE
        FORM "ldadd", N_9
SITE;   ldaddal x1, x0, [x9]
DONE
        FORM "cas", N_9
        ldr     x0, [x9]
SITE;   cas     x0, x1, [x9]
DONE
        FORM "ldar", N_9
SITE;   ldar    x0, [x9]
DONE
        FORM "paciasp"
SITE;   paciasp
        xpaclri
DONE
        FORM "autiasp"
        paciasp
SITE;   autiasp
DONE
        FORM "retaa"
        adr     x30, 1f
        paciasp
SITE;   retaa
        mov     x0, #1
        DONE
1:      mov     x0, #2
DONE
        FORM "fadd"
        fmov    d0, x1
        fmov    d1, x2
SITE;   fadd    d0, d0, d1
        fmov    x0, d0
DONE
        FORM "sqadd"
        fmov    d0, x1
        fmov    d1, x2
SITE;   sqadd   d0, d0, d1
        fmov    x0, d0
DONE
        FORM "aes"
        dup     v0.2d, x1
        dup     v1.2d, x2
        .arch_extension crypto
SITE;   aese    v0.16b, v1.16b
        mov     x0, v0.d[1]
DONE
        FORM "scalable"
        ptrue   p0.d
        index   z0.d, x0, x1
SITE;   add     z0.d, z0.d, z0.d
        lastb   x0, p0, z0.d
DONE
        // All of the scalable registers lives through the signal.
        FORM "scalable beside"
        ptrue   p0.d
        index   z7.d, x0, x1
        index   z30.d, x2, x3
SITE;   ldp     x4, x5, [sp, #16]
        lastb   x0, p0, z7.d
        lastb   x1, p0, z30.d
DONE
        FORM "scalable beside a vector"
        ptrue   p0.d
        index   z7.d, x0, x1
        index   z0.d, x2, x3
SITE;   ldr     q0, [sp, #16]
        lastb   x0, p0, z7.d
        lastb   x1, p0, z0.d
        fmov    x2, d0
DONE
        .pushsection .data.rel.ro.form_table, "aw"
        .quad   0, 0, 0, 0
        .popsection

        .bss
        .balign 64
        .globl  form_in
        .globl  form_out
        .globl  form_data
form_in: .skip   264
        .balign 64
form_out: .skip  264
        .balign 64
form_stack: .skip 8
form_platform: .skip 8
        .balign 64
form_data: .skip 256

        .section .note.GNU-stack, "", %progbits

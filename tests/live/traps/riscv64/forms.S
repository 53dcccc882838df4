// Every kind of instruction that a breakpoint may be set on, each once, full and compressed. form_run loads
// registers from form_in, runs one and stores what it left into form_out. t6 is the form's address at its start;
// gp is lost at its end.
//
//   FORM "name", registers that hold addresses of form_data
//       what has to come before
//   SITE
//       the instruction
//       what comes behind; a0 is often a mark of the way that was taken
//   DONE
        .option norelax

        .macro FORM name, near=0
        .balign 4
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
        j       form_back
        .endm

        .section .data.rel.ro.form_table, "aw"
        .balign 8
        .globl  form_table
form_table:

        .text
        .set    N_A1, 1 << 11
        .set    N_A2, 1 << 12

// void form_run(const void *code). sp is loaded too: all but gp, tp and t6 comes from form_in.
        .globl  form_run
        .type   form_run, %function
form_run:
        addi    sp, sp, -112
        sd      ra, 0(sp)
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        sd      s\n, 8 + 8 * \n(sp)
        .endr
        lla     t0, form_host
        sd      sp, 0(t0)
        sd      gp, 8(t0)
        sd      a0, 16(t0)
        lla     t6, form_in
        .irp n, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
        ld      x\n, 8 * \n(t6)
        .endr
        lla     t6, form_host
        ld      t6, 16(t6)
        jr      t6

form_back:
        lla     gp, form_out
        .irp n, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        sd      x\n, 8 * \n(gp)
        .endr
        lla     t0, form_host
        ld      sp, 0(t0)
        ld      gp, 8(t0)
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        ld      s\n, 8 + 8 * \n(sp)
        .endr
        ld      ra, 0(sp)
        addi    sp, sp, 112
        ret
        .size   form_run, . - form_run

        .macro ONE name, code:vararg
        FORM "\name"
SITE;   \code
DONE
        .endm
        // Full, whatever the assembler would make of it.
        .macro FULL name, code:vararg
        FORM "\name"
        .option push
        .option norvc
SITE;   \code
        .option pop
DONE
        .endm

// ---- nothing, and hints
        FULL "nop", nop
        FULL "addi hint", addi zero, a0, 5
        FULL "slti hint", slti zero, a0, 5
        FULL "andi hint", andi zero, a0, 5
        FULL "slli hint", slli zero, a0, 3
        FULL "srli hint", srli zero, a0, 3
        FULL "srai hint", srai zero, a0, 3
        FULL "lui hint", lui zero, 5
        FULL "add hint", add zero, a0, a1
        FULL "sub hint", sub zero, a0, a1
        FULL "sra hint", sra zero, a0, a1
        FULL "addiw hint", addiw zero, a0, 1
        FULL "addw hint", addw zero, a0, a1
        ONE "prefetch.i", .word 0x00056013
        ONE "c.nop", c.nop
        ONE "c.nop hint", .half 0x0005
        ONE "c.li hint", .half 0x4005
        ONE "c.lui hint", .half 0x6005
        ONE "c.slli hint", .half 0x0006
        ONE "c.slli by 0", .half 0x0502
        ONE "c.srli by 0", .half 0x8101
        ONE "c.srai by 0", .half 0x8501
        ONE "c.mv hint", .half 0x802a
        ONE "c.add hint", .half 0x902a

// ---- sums
        FULL "addi", addi a0, a1, -2048
        FULL "addi li", addi a0, zero, 2047
        FULL "addi mv", addi a0, s3, 0
        FULL "addi same", addi a0, a0, 1
        FORM "addi sp down"
        .option push
        .option norvc
SITE;   addi    sp, sp, -64
        .option pop
        mv      a0, sp
        addi    sp, sp, 64
DONE
        FULL "addi sp up", addi sp, sp, 16
        ONE "c.addi", c.addi a0, -32
        ONE "c.addi ra", c.addi ra, 31
        ONE "c.li", c.li a0, -32
        ONE "c.addi16sp", c.addi16sp sp, 112
        FORM "c.addi16sp down"
SITE;   c.addi16sp sp, -512
        mv      a0, sp
        addi    sp, sp, 512
DONE
        ONE "c.addi4spn", c.addi4spn a0, sp, 1020
        ONE "c.addi4spn least", c.addi4spn s0, sp, 4

// ---- auipc
        FORM "auipc"
SITE;   auipc   a0, 0
DONE
        FORM "auipc far"
SITE;   auipc   ra, 0x7ffff
DONE
        FORM "auipc back"
SITE;   auipc   t6, 0x80000
DONE
        FORM "auipc of a pair"
SITE;   auipc   a0, %pcrel_hi(form_data)
        addi    a0, a0, %pcrel_lo(772b)
DONE

// ---- the stack
        FULL "sd ra", sd ra, 8(sp)
        FULL "sd s0", sd s0, 0(sp)
        FULL "sd zero", sd zero, 240(sp)
        FULL "sd sp", sd sp, 16(sp)
        FULL "ld ra", ld ra, 8(sp)
        FULL "ld s0", ld s0, 248(sp)
        FULL "ld zero", ld zero, 0(sp)
        // A signal behind it would find no stack: not stepped.
        FORM "ld sp, no stack below"
        mv      a0, sp
        .option push
        .option norvc
SITE;   ld      sp, 16(sp)
        .option pop
        mv      a1, sp
        mv      sp, a0
DONE
        FULL "ld not aligned", ld a0, 3(sp)
        FULL "sd not aligned", sd a0, 5(sp)
        ONE "c.sdsp ra", c.sdsp ra, 8(sp)
        ONE "c.sdsp s0", c.sdsp s0, 0(sp)
        ONE "c.sdsp zero", c.sdsp zero, 248(sp)
        ONE "c.ldsp ra", c.ldsp ra, 8(sp)
        ONE "c.ldsp s0", c.ldsp s0, 248(sp)
        FORM "push"
        addi    sp, sp, -32
SITE;   c.sdsp  ra, 24(sp)
        c.sdsp  s0, 16(sp)
        sd      zero, 8(sp)
        sd      zero, 0(sp)
DONE
        // What is there only until the next signal: not stepped.
        FULL "sd far below", sd a1, -2048(sp)

// ---- branches
        .macro EITHER name, code:vararg
        FORM "\name"
        .option push
        .option norvc
SITE;   \code
        .option pop
        li      a0, 1
        DONE
1:      li      a0, 2
DONE
        .endm
        .irp c, beq, bne, blt, bge, bltu, bgeu
        EITHER "\c", \c a1, a2, 1f
        EITHER "\c same", \c a1, a1, 1f
        EITHER "\c zero", \c a1, zero, 1f
        EITHER "zero \c", \c zero, a1, 1f
        // Of what differs rarely.
        FORM "\c of bits"
        andi    a1, a1, 1
        andi    a2, a2, 1
        neg     a2, a2
SITE;   \c      a1, a2, 1f
        li      a0, 1
        DONE
1:      li      a0, 2
DONE
        FORM "\c back"
        j       2f
1:      li      a0, 5
        DONE
        .option push
        .option norvc
2:
SITE;   \c      a1, a2, 1b
        .option pop
        li      a0, 6
DONE
        FORM "\c furthest"
        j       2f
        .balign 4
1:      li      a0, 5
        DONE
        .org    1b + 4096
        .option push
        .option norvc
2:
SITE;   \c      a1, a2, 1b
        .option pop
        li      a0, 6
DONE
        .endr
        .macro SHORT name, code:vararg
        FORM "\name"
        andi    a1, a1, 1
SITE;   \code
        li      a0, 1
        DONE
1:      li      a0, 2
DONE
        .endm
        SHORT "c.beqz", c.beqz a1, 1f
        SHORT "c.bnez", c.bnez a1, 1f
        FORM "c.beqz furthest"
        andi    s1, s1, 1
        j       2f
        .balign 4
1:      li      a0, 5
        DONE
        .org    1b + 256
2:
SITE;   c.beqz  s1, 1b
        li      a0, 6
DONE

// ---- jumps
        FORM "j"
        .option push
        .option norvc
SITE;   j       1f
        .option pop
        li      a0, 1
        DONE
1:      li      a0, 2
DONE
        FORM "j back"
        j       2f
1:      li      a0, 5
        DONE
        .option push
        .option norvc
2:
SITE;   j       1b
        .option pop
DONE
        FORM "c.j"
SITE;   c.j     1f
        li      a0, 1
        DONE
1:      li      a0, 2
DONE
        FORM "c.j furthest"
        .option push
        .option norvc
        j       2f
        .option pop
        .balign 4
1:      li      a0, 5
        DONE
        .org    1b + 2048
2:
SITE;   c.j     1b
DONE

// ---- calls, jumps and returns through registers: the link counts from the form's start
        .macro LINKING name, reg, link, code:vararg
        FORM "\name"
        mv      a3, t6
        .ifnb \reg
        lla     \reg, 1f
        .endif
SITE;   \code
        li      a0, 1
        DONE
1:      sub     a1, \link, a3
        li      a0, 2
DONE
        .endm
        .option push
        .option norvc
        LINKING "jal ra", , ra, jal ra, 1f
        LINKING "jal t0", , t0, jal t0, 1f
        LINKING "jal a5", , a5, jal a5, 1f
        LINKING "jalr ra, a1", a1, ra, jalr ra, 0(a1)
        LINKING "jalr t0, a1", a1, t0, jalr t0, 0(a1)
        LINKING "jalr ra, t0", t0, ra, jalr ra, 0(t0)
        LINKING "jalr ra, ra", ra, ra, jalr ra, 0(ra)
        LINKING "jalr ra, ra, odd", ra, ra, jalr ra, 1(ra)
        .option pop
        LINKING "c.jalr a1", a1, ra, c.jalr a1
        LINKING "c.jalr t0", t0, ra, c.jalr t0
        LINKING "c.jalr ra", ra, ra, c.jalr ra
        .macro GOING name, reg, off, code:vararg
        FORM "\name"
        lla     \reg, 1f
        addi    \reg, \reg, \off
SITE;   \code
        li      a0, 1
        DONE
1:      li      a0, 2
DONE
        .endm
        .option push
        .option norvc
        GOING "jr", a1, 0, jr a1
        GOING "jr odd", a1, 1, jr a1
        GOING "jr with an offset", s11, -2047, jalr zero, 2047(s11)
        GOING "jr back and odd", t2, 2047, jalr zero, -2046(t2)
        GOING "ret", ra, 0, ret
        GOING "ret odd", ra, 1, ret
        GOING "ret t0", t0, 0, jr t0
        .option pop
        GOING "c.jr", a1, 0, c.jr a1
        GOING "c.jr odd", a1, 1, c.jr a1
        GOING "c.jr t0", t0, 0, c.jr t0
        GOING "c.ret", ra, 0, c.jr ra
        GOING "c.ret odd", ra, 1, c.jr ra

// ---- what no simulator does: slots
        ONE "c.mv", c.mv a0, a1
        ONE "c.add", c.add a0, a1
        ONE "c.add ra", c.add ra, t0
        ONE "c.lui", c.lui a0, 5
        ONE "c.addiw", c.addiw a0, 1
        ONE "c.slli", c.slli a0, 7
        ONE "c.and", c.and a0, a1
        ONE "c.lwsp", c.lwsp a0, 8(sp)
        ONE "c.swsp", c.swsp a0, 8(sp)
        FULL "lui", lui a0, 0x12345
        FULL "sltu", sltu a0, a1, a2
        FULL "mulhsu", mulhsu a0, a1, a2
        FULL "div", div a0, a1, a2
        FULL "divuw", divuw a0, a1, a2
        FULL "fence", fence rw, rw
        FORM "c.ld", N_A1
SITE;   c.ld    a0, 8(a1)
DONE
        FORM "lhu", N_A1
SITE;   lhu     a0, 6(a1)
DONE
        FORM "sd data", N_A2
SITE;   sd      a1, 16(a2)
DONE
        FORM "amoadd", N_A2
SITE;   amoadd.d.aqrl a0, a1, (a2)
DONE
        FORM "amoswap.w", N_A2
SITE;   amoswap.w a0, a1, (a2)
DONE
        FORM "fadd"
        fmv.d.x fa0, a1
        fmv.d.x fa1, a2
SITE;   fadd.d  fa0, fa0, fa1
        fmv.x.d a0, fa0
DONE
        FORM "fld", N_A1
SITE;   fld     fa0, 8(a1)
        fmv.x.d a0, fa0
DONE
        FORM "csr"
SITE;   csrr    a0, fcsr
        andi    a0, a0, 0xe0
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
form_host: .skip 24
        .balign 64
form_data: .skip 256

        .section .note.GNU-stack, "", %progbits

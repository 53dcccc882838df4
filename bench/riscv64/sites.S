// The bench's sites, each exactly the case of its name, and the loop that calls them. Every function
// stands alone on 16 bytes, with the assembler's own padding between, as compilers lay them out.

    .text
    .option norelax

    .macro site name
    .globl tl_site_\name
    .type tl_site_\name, @function
    .p2align 4
tl_site_\name:
    .endm

    .macro site_end name
    .size tl_site_\name, . - tl_site_\name
    .endm

    site nop                    // four bytes that do nothing
    .option push
    .option norvc
    nop
    .option pop
    ret
    site_end nop

    site cnop                   // two bytes that do nothing
    c.nop
    c.jr ra
    site_end cnop

    site push                   // the usual frame
    c.addi16sp sp, -16
    c.sdsp ra, 8(sp)
    c.ldsp ra, 8(sp)
    c.addi16sp sp, 16
    c.jr ra
    site_end push

    site ret                    // nothing but the return
    .option push
    .option norvc
    jalr zero, 0(ra)
    .option pop
    site_end ret

    site cret                   // the same in two bytes
    c.jr ra
    site_end cret

    site loop                   // a backward branch to the second instruction
    li a0, 0
1:  addi a0, a0, 1
    slti a1, a0, 2
    bnez a1, 1b
    ret
    site_end loop

// What one read of the clock costs, beside `ret`: never probed.
    .globl tl_bench_clock
    .type tl_bench_clock, @function
    .p2align 4
tl_bench_clock:
    rdtime a0
    ret
    .size tl_bench_clock, . - tl_bench_clock

// 1,000 functions, 256 bytes apart as those of real programs are: a text of many pages, and probes on
// all of them. Functions tl_many_0 to tl_many_999.
    .altmacro
    .macro many number
    .globl tl_many_\number
    .type tl_many_\number, @function
    .p2align 8
tl_many_\number:
    addi sp, sp, -16
    sd ra, 8(sp)
    ld ra, 8(sp)
    addi sp, sp, 16
    ret
    .size tl_many_\number, . - tl_many_\number
    .endm
    .set many_index, 0
    .rept 1000
    many %many_index
    .set many_index, many_index + 1
    .endr
    .noaltmacro

// uint64_t tl_bench_calls(void (*site)(void), uint64_t calls): real calls through a pointer. Returns
// how many were made.
    .globl tl_bench_calls
    .type tl_bench_calls, @function
    .p2align 6
tl_bench_calls:
    addi sp, sp, -32
    sd ra, 24(sp)
    sd s0, 16(sp)
    sd s1, 8(sp)
    sd s2, 0(sp)
    mv s0, a0
    mv s1, a1
    li s2, 0
    .p2align 4
1:  beq s2, s1, 2f
    mv a0, s2
    jalr s0
    addi s2, s2, 1
    j 1b
2:  mv a0, s2
    ld ra, 24(sp)
    ld s0, 16(sp)
    ld s1, 8(sp)
    ld s2, 0(sp)
    addi sp, sp, 32
    ret
    .size tl_bench_calls, . - tl_bench_calls

    .section .note.GNU-stack, "", @progbits

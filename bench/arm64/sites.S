// The bench's sites, each exactly the case of its name, and the loop that calls them. Every function
// stands alone on 16 bytes, with the assembler's own padding between, as compilers lay them out.

    .text

    .macro site name
    .globl tl_site_\name
    .type tl_site_\name, %function
    .p2align 4
tl_site_\name:
    .endm

    .macro site_end name
    .size tl_site_\name, . - tl_site_\name
    .endm

    site nop                    // one word that does nothing
    nop
    ret
    site_end nop

    site push                   // the usual frame
    stp x29, x30, [sp, #-16]!
    mov x29, sp
    ldp x29, x30, [sp], #16
    ret
    site_end push

    site ret                    // nothing but the return
    ret
    site_end ret

    site bti_entry              // a landing pad that must keep its place
    bti c
    stp x29, x30, [sp, #-16]!
    mov x29, sp
    ldp x29, x30, [sp], #16
    ret
    site_end bti_entry

    site loop                   // a backward branch to the second word
    mov w0, #0
1:  add w0, w0, #1
    cmp w0, #2
    b.ne 1b
    ret
    site_end loop

// What one read of the clock costs, beside `ret`: never probed.
    .globl tl_bench_clock
    .type tl_bench_clock, %function
    .p2align 4
tl_bench_clock:
    mrs x0, cntvct_el0
    ret
    .size tl_bench_clock, . - tl_bench_clock

// 1,000 functions, 256 bytes apart as those of real programs are: a text of many pages, and probes on
// all of them. Functions tl_many_0 to tl_many_999.
    .altmacro
    .macro many number
    .globl tl_many_\number
    .type tl_many_\number, %function
    .p2align 8
tl_many_\number:
    stp x29, x30, [sp, #-16]!
    mov x29, sp
    ldp x29, x30, [sp], #16
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
    .type tl_bench_calls, %function
    .p2align 6
tl_bench_calls:
    stp x29, x30, [sp, #-48]!
    mov x29, sp
    stp x19, x20, [sp, #16]
    str x21, [sp, #32]
    mov x19, x0
    mov x20, x1
    mov x21, #0
    .p2align 4
1:  cmp x21, x20
    b.eq 2f
    mov x0, x21
    blr x19
    add x21, x21, #1
    b 1b
2:  mov x0, x21
    ldp x19, x20, [sp, #16]
    ldr x21, [sp, #32]
    ldp x29, x30, [sp], #48
    ret
    .size tl_bench_calls, . - tl_bench_calls

    .section .note.GNU-stack, "", @progbits

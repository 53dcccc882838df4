// The bench's sites, each exactly the case of its name, and the loop that calls them. Every function
// stands alone on 16 bytes, with the assembler's own padding between, as compilers lay them out.

    .text

    .macro site name
    .globl tl_site_\name
    .type tl_site_\name, @function
    .p2align 4
tl_site_\name:
    .endm

    .macro site_end name
    .size tl_site_\name, . - tl_site_\name
    .endm

    site nop                    // one byte that does nothing
    nop
    ret
    site_end nop

    site nop5                   // the compilers' room for a patch
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    ret
    site_end nop5

    site push                   // the usual frame
    push %rbp
    mov %rsp, %rbp
    pop %rbp
    ret
    site_end push

    site ret                    // nothing but the return
    ret
    site_end ret

    site endbr64                // a landing pad that must keep its place
    endbr64
    push %rbp
    mov %rsp, %rbp
    pop %rbp
    ret
    site_end endbr64

    site loop                   // a backward branch into the bytes that a 5-byte branch needs
    xor %eax, %eax
1:  inc %eax
    cmp $2, %eax
    jne 1b
    ret
    site_end loop

    site short                  // three bytes in all
    xor %eax, %eax
    ret
    site_end short

// What one read of the clock costs, beside `ret`: never probed.
    .globl tl_bench_clock
    .type tl_bench_clock, @function
    .p2align 4
tl_bench_clock:
    rdtsc
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
    push %rbp
    mov %rsp, %rbp
    pop %rbp
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
    push %rbx
    push %r12
    push %r13
    mov %rdi, %rbx
    mov %rsi, %r12
    xor %r13d, %r13d
    .p2align 4
1:  cmp %r12, %r13
    je 2f
    mov %r13, %rdi
    call *%rbx
    inc %r13
    jmp 1b
2:  mov %r13, %rax
    pop %r13
    pop %r12
    pop %rbx
    ret
    .size tl_bench_calls, . - tl_bench_calls

    .section .note.GNU-stack, "", @progbits

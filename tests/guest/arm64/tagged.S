// Instructions on tagged memory (FEAT_MTE; tests/guest/tagged.c).
        .arch armv8.5-a+memtag
        .text

        .macro  function name
        .globl  \name
        .type   \name, %function
        .p2align 4
\name:
        .endm

// uint64_t tagged_push(uint64_t x): x + 1. The usual frame, on the tagged stack.
        function tagged_push
        stp     x29, x30, [sp, #-16]!
        mov     x29, sp
        add     x0, x0, #1
        ldp     x29, x30, [sp], #16
        ret
        .size   tagged_push, . - tagged_push

// uint64_t tagged_load(const uint64_t *at): one access by a pointer that is checked.
        function tagged_load
        ldr     x0, [x0]
        ret
        .size   tagged_load, . - tagged_load

// uint64_t tagged_call(uint64_t sp, function, uint64_t x): the call with that stack pointer.
        function tagged_call
        stp     x29, x30, [sp, #-32]!
        str     x19, [sp, #16]
        mov     x19, sp
        mov     x29, x1
        mov     sp, x0
        mov     x0, x2
        blr     x29
        mov     sp, x19
        ldr     x19, [sp, #16]
        ldp     x29, x30, [sp], #32
        ret
        .size   tagged_call, . - tagged_call

// void tagged_set(uint64_t addr): the 16 bytes there get the pointer's tag.
        function tagged_set
        stg     x0, [x0]
        ret
        .size   tagged_set, . - tagged_set

        .section .note.GNU-stack, "", %progbits

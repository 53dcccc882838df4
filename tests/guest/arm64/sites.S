// Two sites that the kernel's uprobe of arm64 gets wrong: a literal to a vector register, and the words between a
// load-exclusive and its store-exclusive.
        .text

        .p2align 4
        .globl load_literal
        .type load_literal, %function
load_literal:                   // double load_literal(void): 1.5
        ldr d0, 1f
        ret
        .p2align 3
1:      .double 1.5
        .size load_literal, . - load_literal

        .p2align 4
        .globl exclusive_add
        .type exclusive_add, %function
exclusive_add:                  // uint64_t exclusive_add(uint64_t *value): one more
1:      ldxr x1, [x0]
        add x1, x1, #1
        stxr w2, x1, [x0]
        cbnz w2, 1b
        mov x0, x1
        ret
        .size exclusive_add, . - exclusive_add

        .section .note.GNU-stack, "", %progbits

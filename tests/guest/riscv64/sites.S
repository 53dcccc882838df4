// An address in pieces, which a copy elsewhere would get wrong, and the words between a load-reserved and its
// store-conditional, where a trap may keep the store from ever succeeding.
        .text
        .option norvc
        .option norelax

        .p2align 4
        .globl load_literal
        .type load_literal, %function
load_literal:                   // double load_literal(void): 1.5
        auipc t0, %pcrel_hi(1f)
        fld fa0, %pcrel_lo(load_literal)(t0)
        ret
        .p2align 3
1:      .double 1.5
        .size load_literal, . - load_literal

        .p2align 4
        .globl exclusive_add
        .type exclusive_add, %function
exclusive_add:                  // uint64_t exclusive_add(uint64_t *value): one more
1:      lr.d a1, (a0)
        addi a1, a1, 1
        sc.d a2, a1, (a0)
        bnez a2, 1b
        mv a0, a1
        ret
        .size exclusive_add, . - exclusive_add

        .section .note.GNU-stack, "", %progbits

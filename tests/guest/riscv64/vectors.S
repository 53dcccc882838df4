// uint64_t vectors_hold(uint8_t seed, uint64_t spins, uint8_t *out): see vectors.h. The type (vl, vtype) and the
// rounding mode are looked at too.
        .option arch, +v
        .text
        .p2align 2
        .globl vectors_hold
        .type vectors_hold, %function
vectors_hold:
        vsetvli t0, zero, e8, m8, ta, ma
        csrr    t1, vtype
        csrwi   vxrm, 2
        vmv.v.x v0, a0
        addi    a0, a0, 1
        vmv.v.x v8, a0
        addi    a0, a0, 1
        vmv.v.x v16, a0
        addi    a0, a0, 1
        vmv.v.x v24, a0
1:      addi    a1, a1, -1
        bnez    a1, 1b
        csrr    t2, vl
        csrr    t3, vtype
        csrr    t4, vxrm
        csrr    a0, vlenb
        vsetvli t0, zero, e8, m8, ta, ma
        vse8.v  v0, (a2)
        add     a2, a2, t0
        vse8.v  v8, (a2)
        add     a2, a2, t0
        vse8.v  v16, (a2)
        add     a2, a2, t0
        vse8.v  v24, (a2)
        bne     t2, t0, 2f
        bne     t3, t1, 2f
        addi    t4, t4, -2
        bnez    t4, 2f
        ret
2:      li      a0, 0
        ret
        .size vectors_hold, . - vectors_hold

        .section .note.GNU-stack, "", %progbits

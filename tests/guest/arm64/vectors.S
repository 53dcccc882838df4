// uint64_t vectors_hold(uint8_t seed, uint64_t spins, uint8_t *out): see vectors.h. A predicate and the first-fault
// register are looked at too.
        .arch armv8.2-a+sve
        .text
        .p2align 2
        .globl vectors_hold
        .type vectors_hold, %function
vectors_hold:
        ptrue   p1.b
        setffr
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        dup     z\n\().b, w0
        add     w0, w0, #1
        .endr
1:      subs    x1, x1, #1
        b.ne    1b
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        str     z\n, [x2]
        addvl   x2, x2, #1
        .endr
        cntb    x0
        cntp    x3, p1, p1.b
        rdffr   p2.b
        cntp    x4, p1, p2.b
        cmp     x3, x0
        ccmp    x4, x0, #0, eq
        csel    x0, x0, xzr, eq
        ret
        .size vectors_hold, . - vectors_hold

        .section .note.GNU-stack, "", %progbits

// What C can't name: the vector unit's registers.
        .option arch, +v
        .text
        .globl  vectors_store, vectors_load, vector_bytes
// a0: vl, vtype, vstart, vcsr; a1: 32 registers, one behind the other.
vectors_store:
        csrr    t0, vl
        sd      t0, 0(a0)
        csrr    t0, vtype
        sd      t0, 8(a0)
        csrr    t0, vstart
        sd      t0, 16(a0)
        csrr    t0, vcsr
        sd      t0, 24(a0)
        csrw    vstart, zero
        csrr    t1, vlenb
        slli    t1, t1, 3
        vs8r.v  v0, (a1)
        add     a1, a1, t1
        vs8r.v  v8, (a1)
        add     a1, a1, t1
        vs8r.v  v16, (a1)
        add     a1, a1, t1
        vs8r.v  v24, (a1)
        ret

vectors_load:
        csrw    vstart, zero
        csrr    t1, vlenb
        slli    t1, t1, 3
        vl8re8.v v0, (a1)
        add     a1, a1, t1
        vl8re8.v v8, (a1)
        add     a1, a1, t1
        vl8re8.v v16, (a1)
        add     a1, a1, t1
        vl8re8.v v24, (a1)
        ld      t0, 0(a0)
        ld      t1, 8(a0)
        vsetvl  zero, t0, t1
        ld      t0, 24(a0)
        csrw    vcsr, t0
        ld      t0, 16(a0)
        csrw    vstart, t0
        ret

vector_bytes:
        csrr    a0, vlenb
        ret
        .section .note.GNU-stack, "", %progbits

// What detours of the test call instead of the agent: they write down what they were given and spoil all that an
// entry may. Position-free: copied to where the test wants them.
#define LOG 0x26000000

        .option norelax
        .text
        .globl  stub_start, stub_slow, stub_record, stub_guard, stub_end
stub_start:

// tl_agent_slow_count: all but t0, t1 and ra are kept.
stub_slow:
        addi    sp, sp, -16
        sd      a0, 0(sp)
        sd      a1, 8(sp)
        li      a0, LOG
        ld      a1, 0(a0)
        addi    a1, a1, 1
        sd      a1, 0(a0)
        sd      t0, 8(a0)
        sd      t1, 16(a0)
        addi    a1, sp, 16
        sd      a1, 24(a0)
        j       leave

// A record's entry: the same.
stub_record:
        addi    sp, sp, -16
        sd      a0, 0(sp)
        sd      a1, 8(sp)
        li      a0, LOG
        ld      a1, 32(a0)
        addi    a1, a1, 1
        sd      a1, 32(a0)
        sd      t0, 40(a0)
        sd      t1, 48(a0)
        addi    a1, sp, 16
        sd      a1, 56(a0)
        ld      a1, 40(sp)      // ra as at the site
        sd      a1, 64(a0)
        sd      a1, 16(sp)      // a word of the frame is the agent's own
leave:
        ld      a0, 0(sp)
        ld      a1, 8(sp)
        addi    sp, sp, 16
        li      t0, -5
        li      t1, -6
        ret

// The entry for fault handlers: all but ra is kept.
stub_guard:
        addi    sp, sp, -16
        sd      a0, 0(sp)
        sd      a1, 8(sp)
        li      a0, LOG
        ld      a1, 72(a0)
        addi    a1, a1, 1
        sd      a1, 72(a0)
        addi    a1, sp, 16
        sd      a1, 80(a0)
        ld      a1, 16(sp)
        sd      a1, 88(a0)
        ld      a0, 0(sp)
        ld      a1, 8(sp)
        addi    sp, sp, 16
        ret
stub_end:
        .section .note.GNU-stack, "", %progbits

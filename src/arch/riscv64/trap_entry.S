// Around the SIGTRAP handler: a record's entry called with the site's registers, and where the handler
// returns to.
        .text

// \op saves or loads the registers, each in its own word of what \base points to.
.macro  registers op, base, numbers:vararg
        .irp    n, \numbers
        \op     x\n, 8 * \n(\base)
        .endr
.endm
.macro  registers_from_a3 op, base
        registers \op, \base, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
.endm

// a0 = entry, a1 = counter_off, a2 = the site's general registers by number, a3 = S. The entry gets the record
// frame (emit/emit.h) here, on the handler's stack: it finds its saved words by its own stack pointer, and
// the site's stack by t1. What it may change is a0 and the frame's ra: they are put back into the
// registers. Keeps all but a0, t0, t1 and ra, as the agent's C functions do.
//
//   sp + 32 + 8 * n    the caller's xn
//   sp                 the record frame
        .set    kept, 32
        .set    frame, kept + 8 * 32
        .globl  tl_agent_trap_record
        .hidden tl_agent_trap_record
        .type   tl_agent_trap_record, %function
tl_agent_trap_record:
        addi    sp, sp, -frame
        addi    t0, sp, kept
        registers sd, t0, 1, 7, 8, 9, 10, 11, 12
        registers_from_a3 sd, t0
        ld      t0, 8 * 1(a2)
        sd      t0, 24(sp)
        ld      t0, 8 * 5(a2)
        sd      t0, 16(sp)
        ld      t0, 8 * 6(a2)
        sd      t0, 8(sp)
        mv      t0, a1
        mv      t1, a3
        mv      ra, a2
        registers ld, ra, 7, 8, 9, 10, 11, 12
        registers_from_a3 ld, ra
        ld      ra, kept + 8 * 10(sp)
        jalr    ra
        ld      t0, kept + 8 * 12(sp)
        ld      t1, 24(sp)
        sd      a0, 8 * 10(t0)
        sd      t1, 8 * 1(t0)
        addi    t0, sp, kept
        registers ld, t0, 1, 7, 8, 9, 11, 12
        registers_from_a3 ld, t0
        sd      zero, 8 * 1(t0) // too deep for tl_agent_trap_entry
        sd      zero, 8 * 10(t0)
        addi    sp, sp, frame
        ret
        .size   tl_agent_trap_record, . - tl_agent_trap_record

// The handler. What it leaves on the stack is overwritten, since words that point into code of ours keep that
// code from being taken away (patch/leftover.c). What lies deeper is no such word. The signal frame gives all
// registers back. It returns to the restorer below, whose address stands on the stack meanwhile: by that word who
// takes breakpoints away knows that a thread is in here (patch/trap.c).
        .set    trap_stack, 256
        .globl  tl_agent_trap_entry
        .hidden tl_agent_trap_entry
        .type   tl_agent_trap_entry, %function
tl_agent_trap_entry:
        addi    sp, sp, -16
        lla     ra, tl_agent_restorer
        sd      ra, 0(sp)
        jal     tl_agent_trap
        addi    sp, sp, 16
        .set    below, 16
        .rept   trap_stack / 8
        sd      zero, -below + 8(sp)
        .set    below, below + 8
        .endr
        .size   tl_agent_trap_entry, . - tl_agent_trap_entry

// The words by which unwinders and debuggers know such a place: li a7, 139; ecall (rt_sigreturn).
        .globl  tl_agent_restorer
        .hidden tl_agent_restorer
        .type   tl_agent_restorer, %function
tl_agent_restorer:
        .word   0x08b00893
        .word   0x00000073
        .size   tl_agent_restorer, . - tl_agent_restorer

        .section .note.GNU-stack, "", %progbits

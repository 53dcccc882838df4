// The agent image's head and its entries from detours. emit/emit.h says how each is called.
//
// tl_agent_block and the functions for handlers keep all registers but a0, t0, t1 and ra (agent/meson.build says
// so to the compiler). No entry leaves a word in memory that points into a detour.
#include "arch/agent_head.h"
#include "arch/record_layout.h"

// t0 = the counter's offset, t1 = the home's index. All but t0, t1 and ra keep their values.
//
// Claims a block, fills the home, counts. A signal handler of this thread may have forked at any instruction,
// and this is the child: its control region has been wiped, and a block that is still held here is the parent's.
// So a block has to be one of the process that the shared block's address stands for, and once it is in the home
// that address has to be the same; a fork from there on wipes the home too.
        .text
        .globl  tl_agent_slow_count
        .hidden tl_agent_slow_count
        .type   tl_agent_slow_count, %function
tl_agent_slow_count:
        addi    sp, sp, -64
        sd      a0, 0(sp)
        sd      a1, 8(sp)
        sd      a2, 16(sp)
        sd      a3, 24(sp)
        sd      t0, 32(sp)
        sd      t1, 40(sp)
        sd      ra, 48(sp)
1:      jal     tl_agent_block
        andi    a0, a0, ~(1 << REC_BLOCK_SHARED_BIT)
        beqz    a0, 4f
        ld      a1, tl_agent_control_addr
        ld      a2, REC_SHARED_BLOCK(a1)
        sub     a3, a2, a0
        ld      t0, tl_agent_stride
        slli    t0, t0, REC_THREAD_SLOTS_SHIFT
        bgtu    a3, t0, 1b
        li      a3, REC_HOMES_OFF
        add     a3, a3, a1
        ld      t1, 40(sp)
        slli    t1, t1, 3
        add     t1, t1, a3
        sd      a0, 0(t1)
        ld      t0, 0(a3)
        bnez    t0, 2f
        sd      a2, 0(a3) // the home of sites that don't ask for the thread
2:      ld      t0, REC_SHARED_BLOCK(a1)
        bne     t0, a2, 5f
        ld      t0, 32(sp)
        add     a0, a0, t0
        li      a2, 1
        amoadd.d zero, a2, (a0)
4:      ld      ra, 48(sp)
        sd      zero, 48(sp)
        ld      a3, 24(sp)
        ld      a2, 16(sp)
        ld      a1, 8(sp)
        ld      a0, 0(sp)
        addi    sp, sp, 64
        ret
5:      sd      zero, 0(t1)
        sd      zero, 0(a3)
        j       1b
        .size   tl_agent_slow_count, . - tl_agent_slow_count

// At the first instruction of a function that handles faults, and at its returns. a0 to a2 as they are there;
// the function is given the stack pointer and ra as they are there besides. All registers stay.
        .set    saved, 48
.macro  entry name, function
        .globl  \name
        .hidden \name
        .type   \name, %function
\name:
        addi    sp, sp, -saved
        sd      a0, 0(sp)
        sd      a3, 8(sp)
        sd      a4, 16(sp)
        sd      t0, 24(sp)
        sd      t1, 32(sp)
        sd      ra, 40(sp)
        addi    a3, sp, saved + 16
        ld      a4, saved(sp)
        jal     \function
        ld      ra, 40(sp)
        sd      zero, 40(sp)
        ld      t1, 32(sp)
        ld      t0, 24(sp)
        ld      a4, 16(sp)
        ld      a3, 8(sp)
        ld      a0, 0(sp)
        addi    sp, sp, saved
        ret
        .size   \name, . - \name
.endm
        entry   tl_agent_fault_entry, tl_agent_fault
        entry   tl_agent_leave_entry, tl_agent_leave

        .section .note.GNU-stack, "", %progbits

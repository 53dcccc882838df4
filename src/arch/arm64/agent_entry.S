// The agent image's head and its entries from detours. emit/emit.h says how each is called.
//
// tl_agent_block and the functions for handlers keep all registers but x0, x16, x17 and x30 (agent/meson.build
// says so to the compiler). No entry leaves a word in memory that points into a detour.
#include "arch/agent_head.h"
#include "arch/record_layout.h"

        .arch_extension lse

// w16 = the counter's offset, w17 = the home's index. All but x16, x17 and x30 keep their values.
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
        stp     x0, x1, [sp, #-64]!
        stp     x2, x3, [sp, #16]
        stp     x16, x17, [sp, #32]
        mrs     x0, nzcv
        stp     x30, x0, [sp, #48]
1:      bl      tl_agent_block
        and     x0, x0, #~(1 << REC_BLOCK_SHARED_BIT)
        cbz     x0, 4f
        ldr     x1, tl_agent_control_addr
        ldr     x2, [x1, #REC_SHARED_BLOCK]
        sub     x3, x2, x0
        ldr     x16, tl_agent_stride
        cmp     x3, x16, lsl #REC_THREAD_SLOTS_SHIFT
        b.hi    1b
        add     x3, x1, #REC_HOMES_OFF
        ldr     w17, [sp, #40]
        str     x0, [x3, w17, uxtw #3]
        ldr     x16, [x3]
        cbnz    x16, 2f
        str     x2, [x3] // the home of sites that don't ask for the thread
2:      ldr     x16, [x1, #REC_SHARED_BLOCK]
        cmp     x16, x2
        b.ne    5f
        ldr     w16, [sp, #32]
        add     x0, x0, x16
        ldr     w2, tl_agent_atomics
        cbz     w2, 3f
        stadd   x2, [x0] // the head's constant is 1 where it is not 0
        b       4f
3:      ldxr    x2, [x0]
        add     x2, x2, #1
        stxr    w16, x2, [x0]
        cbnz    w16, 3b
4:      ldp     x30, x0, [sp, #48]
        str     xzr, [sp, #48]
        msr     nzcv, x0
        ldp     x2, x3, [sp, #16]
        ldp     x0, x1, [sp], #64
        ret
5:      str     xzr, [x3, w17, uxtw #3]
        str     xzr, [x3]
        b       1b
        .size   tl_agent_slow_count, . - tl_agent_slow_count

// At the first instruction of a function that handles faults, and at its returns. x0 to x2 as they are there;
// the function is given the stack pointer and x30 as they are there besides. Registers and flags stay.
        .set    saved, 64
.macro  entry name, function
        .globl  \name
        .hidden \name
        .type   \name, %function
\name:
        stp     x0, x3, [sp, #-saved]!
        stp     x4, x16, [sp, #16]
        stp     x17, x30, [sp, #32]
        mrs     x16, nzcv
        str     x16, [sp, #48]
        add     x3, sp, #saved + 16
        ldr     x4, [sp, #saved]
        bl      \function
        ldr     x16, [sp, #48]
        msr     nzcv, x16
        ldp     x17, x30, [sp, #32]
        str     xzr, [sp, #40]
        ldp     x4, x16, [sp, #16]
        ldp     x0, x3, [sp], #saved
        ret
        .size   \name, . - \name
.endm
        entry   tl_agent_fault_entry, tl_agent_fault
        entry   tl_agent_leave_entry, tl_agent_leave

        .section .note.GNU-stack, "", %progbits

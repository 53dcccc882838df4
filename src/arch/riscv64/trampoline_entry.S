// Replaced return addresses: at a function's entry, at its return, and where an unwinder looks one up.
// trampoline.c does the work and says what is kept true.
//
// The key is the stack pointer at the function's entry: what a live frame calls lies lower.
#include "arch/trampoline_layout.h"

        .text

// In \to the entry of the record that a replaced return makes; \t is lost.
.macro  record_entry to, t
        lla     \to, tl_agent_head_start
        ld      \t, tl_agent_hijack_record
        add     \to, \to, \t
.endm

// ---- a function's entry, in the record frame: t0 = counter_off, t1 = S, [sp + 24] = ra ---------------
//
// The detour loads ra from the frame: what is written there is where the function returns to.

        .globl  tl_agent_hijack_entry
        .hidden tl_agent_hijack_entry
        .type   tl_agent_hijack_entry, %function
tl_agent_hijack_entry:
        addi    sp, sp, -48
        sd      a0, 0(sp)
        sd      a1, 8(sp)
        sd      a2, 16(sp)
        sd      t1, 24(sp)
        sd      ra, 32(sp)
        mv      a0, t0
        mv      a1, t1
        addi    a2, sp, 48 + 24
        jal     tl_agent_hijack // keeps all but a0, t0, t1, ra
        ld      a2, 16(sp)
        ld      a1, 8(sp)
        mv      t0, a0
        ld      a0, 0(sp)
        beqz    t0, 1f
        // A tail call: the function that was here has ended. Its record, for this frame's S.
        record_entry ra, t1
        ld      t1, 24(sp)
        jalr    ra
1:      ld      ra, 32(sp)
        sd      zero, 32(sp)    // no word that points into a detour stays behind
        addi    sp, sp, 48
        ret
        .size   tl_agent_hijack_entry, . - tl_agent_hijack_entry

// ---- where replaced return addresses lead: sp = S -------------------------------------------------
//
// Whatever the function left is kept, all registers, but ra, which is the original again.
//
//   S - 32 ...    the record frame
//   S - 48        a0, a1

        .globl  tl_agent_trampoline
        .hidden tl_agent_trampoline
        .type   tl_agent_trampoline, %function
        .p2align 5
        nop // an unwinder looks one byte before
tl_agent_trampoline:
        addi    sp, sp, -48
        sd      a0, 0(sp)
        sd      a1, 8(sp)
        sd      t1, 16 + 8(sp)
        sd      t0, 16 + 16(sp)
        sd      zero, 16 + 24(sp)
        addi    a0, sp, 48
        addi    a1, sp, 16 + 24
        jal     tl_agent_hijack_return // keeps all but a0, t0, t1, ra; the original is in the frame
        mv      t0, a0
        ld      a1, 8(sp) // as the function left them: the record may be an event's
        ld      a0, 0(sp)
        addi    sp, sp, 16
        beqz    t0, 1f
        record_entry ra, t1
        addi    t1, sp, 32
        jalr    ra
1:      ld      ra, 24(sp)
        ld      t0, 16(sp)
        ld      t1, 8(sp)
        addi    sp, sp, 32
        ret
        .size   tl_agent_trampoline, . - tl_agent_trampoline

// ---- the entry of _Unwind_Find_FDE, in the record frame: a0 = address, a1 = &context->bases ----------

        .globl  tl_agent_unwind_entry
        .hidden tl_agent_unwind_entry
        .type   tl_agent_unwind_entry, %function
tl_agent_unwind_entry:
        addi    sp, sp, -16
        sd      ra, 0(sp)
        jal     tl_agent_unwind // keeps all but a0, t0, t1, ra
        ld      ra, 0(sp)
        sd      zero, 0(sp)
        addi    sp, sp, 16
        ret
        .size   tl_agent_unwind_entry, . - tl_agent_unwind_entry

        .section .note.GNU-stack, "", %progbits

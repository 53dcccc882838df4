// Replaced return addresses: at a function's entry, at its return, and where an unwinder looks one up.
// trampoline.c does the work and says what is kept true.
//
// The key is the stack pointer at the function's entry: what a live frame calls lies lower.
#include "arch/trampoline_layout.h"

        .text

// In x\to the entry of the record that a replaced return makes; x\t is lost.
.macro  record_entry to, t
        adr     x\to, tl_agent_head_start
        ldr     x\t, tl_agent_hijack_record
        add     x\to, x\to, x\t
.endm

// ---- a function's entry, in the record frame: w16 = counter_off, x17 = S, [sp + 16] = x30 ------------
//
// The detour loads x30 from the frame: what is written there is where the function returns to.

        .globl  tl_agent_hijack_entry
        .hidden tl_agent_hijack_entry
        .type   tl_agent_hijack_entry, %function
tl_agent_hijack_entry:
        stp     x0, x1, [sp, #-48]!
        stp     x2, x17, [sp, #16]
        str     x30, [sp, #32]
        mov     w0, w16
        mov     x1, x17
        add     x2, sp, #48 + 16
        bl      tl_agent_hijack // keeps all but x0, x16, x17, x30
        cbz     w0, 1f
        // A tail call: the function that was here has ended. Its record, for this frame's S.
        mov     w16, w0
        record_entry 2, 1
        str     x2, [sp, #40]
        ldp     x0, x1, [sp]
        ldp     x2, x17, [sp, #16]
        ldr     x30, [sp, #40]
        blr     x30
        b       2f
1:      ldp     x0, x1, [sp]
        ldr     x2, [sp, #16]
2:      ldr     x30, [sp, #32]
        stp     xzr, xzr, [sp, #32] // no word that points into a detour stays behind
        add     sp, sp, #48
        ret
        .size   tl_agent_hijack_entry, . - tl_agent_hijack_entry

// ---- where replaced return addresses lead: sp = S -------------------------------------------------
//
// Whatever the function left is kept, all registers and flags, but x30, which is the original again. By
// `ret`: a branch of another type might not land there.
//
//   S - 32 ...    the record frame
//   S - 48        x0, x1

        .globl  tl_agent_trampoline
        .hidden tl_agent_trampoline
        .type   tl_agent_trampoline, %function
        .p2align 5
        nop // an unwinder looks one byte before
tl_agent_trampoline:
        stp     x16, x17, [sp, #-32]!
        mrs     x16, nzcv
        stp     xzr, x16, [sp, #16]
        stp     x0, x1, [sp, #-16]!
        add     x0, sp, #48
        add     x1, sp, #16 + 16
        bl      tl_agent_hijack_return // keeps all but x0, x16, x17, x30; the original is in the frame
        mov     w16, w0
        cbz     w0, 1f
        add     x17, sp, #48
        record_entry 30, 0
        ldp     x0, x1, [sp], #16 // as the function left them: the record may be an event's
        blr     x30
        b       2f
1:      ldp     x0, x1, [sp], #16
2:      ldp     x30, x16, [sp, #16]
        msr     nzcv, x16
        ldp     x16, x17, [sp], #32
        ret
        .size   tl_agent_trampoline, . - tl_agent_trampoline

// ---- the entry of _Unwind_Find_FDE, in the record frame: x0 = address, x1 = &context->bases ----------

        .globl  tl_agent_unwind_entry
        .hidden tl_agent_unwind_entry
        .type   tl_agent_unwind_entry, %function
tl_agent_unwind_entry:
        str     x30, [sp, #-16]!
        bl      tl_agent_unwind // keeps all but x0, x16, x17, x30
        ldr     x30, [sp]
        str     xzr, [sp], #16
        ret
        .size   tl_agent_unwind_entry, . - tl_agent_unwind_entry

        .section .note.GNU-stack, "", %progbits

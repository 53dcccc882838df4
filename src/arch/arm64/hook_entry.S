// The hook's entry, called in the record frame (emit/emit.h): w16 = kind of notice, x17 = S. All but x16,
// x17, x30 and flags are kept.
        .text
        .globl  tl_agent_hook_entry
        .hidden tl_agent_hook_entry
        .type   tl_agent_hook_entry, %function
tl_agent_hook_entry:
        stp     x0, x1, [sp, #-32]! // struct hook_frame
        str     x30, [sp, #16]
        mov     w0, w16
        mov     x1, sp
        bl      tl_agent_hook   // keeps all but x0, x16, x17, x30
        ldr     x30, [sp, #16]
        str     xzr, [sp, #16]  // no word that points into a detour stays behind
        ldp     x0, x1, [sp], #32
        ret
        .size   tl_agent_hook_entry, . - tl_agent_hook_entry

        .section .note.GNU-stack, "", %progbits

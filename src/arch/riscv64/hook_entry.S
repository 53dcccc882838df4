// The hook's entry, called in the record frame (emit/emit.h): t0 = kind of notice, t1 = S. All but t0, t1 and ra
// are kept.
        .text
        .globl  tl_agent_hook_entry
        .hidden tl_agent_hook_entry
        .type   tl_agent_hook_entry, %function
tl_agent_hook_entry:
        addi    sp, sp, -32
        sd      a0, 0(sp) // struct hook_frame
        sd      a1, 8(sp)
        sd      ra, 16(sp)
        mv      a0, t0
        mv      a1, sp
        jal     tl_agent_hook   // keeps all but a0, t0, t1, ra
        ld      ra, 16(sp)
        sd      zero, 16(sp)    // no word that points into a detour stays behind
        ld      a1, 8(sp)
        ld      a0, 0(sp)
        addi    sp, sp, 32
        ret
        .size   tl_agent_hook_entry, . - tl_agent_hook_entry

        .section .note.GNU-stack, "", %progbits

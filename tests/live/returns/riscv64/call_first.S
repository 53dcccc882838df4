// calls_first begins with the call of what throws, so its detour makes that call. The return address is where
// the caller left it.
        .text
        .p2align 4
        .globl calls_first
        .type calls_first, @function
calls_first:
        .cfi_startproc
        .cfi_register ra, s1
        call may_throw
        mv ra, s1
        .cfi_restore ra
        ret
        .cfi_endproc
        .size calls_first, . - calls_first

        // Keeps its own return address in the frame, and that of calls_first in s1.
        .p2align 4
        .globl aligns_first
        .type aligns_first, @function
aligns_first:
        .cfi_startproc
        addi sp, sp, -32
        .cfi_adjust_cfa_offset 32
        sd s0, 16(sp)
        .cfi_offset s0, -16
        sd ra, 24(sp)
        .cfi_offset ra, -8
        sd s1, 8(sp)
        .cfi_offset s1, -24
        lla s1, 1f
        call calls_first
1:      ld s1, 8(sp)
        .cfi_restore s1
        ld s0, 16(sp)
        .cfi_restore s0
        ld ra, 24(sp)
        .cfi_restore ra
        addi sp, sp, 32
        .cfi_adjust_cfa_offset -32
        ret
        .cfi_endproc
        .size aligns_first, . - aligns_first
        .section .note.GNU-stack, "", @progbits

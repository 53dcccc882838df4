// calls_first begins with the call of what throws, so its detour makes that call. The return address is where
// the caller left it.
        .text
        .p2align 4
        .globl calls_first
        .type calls_first, @function
calls_first:
        .cfi_startproc
        .cfi_register x30, x19
        bl may_throw
        mov x30, x19
        .cfi_restore x30
        ret
        .cfi_endproc
        .size calls_first, . - calls_first

        // Keeps its own return address in the frame, and that of calls_first in x19.
        .p2align 4
        .globl aligns_first
        .type aligns_first, @function
aligns_first:
        .cfi_startproc
        stp x29, x30, [sp, #-32]!
        .cfi_adjust_cfa_offset 32
        .cfi_offset x29, -32
        .cfi_offset x30, -24
        mov x29, sp
        str x19, [sp, #16]
        .cfi_offset x19, -16
        adr x19, 1f
        bl calls_first
1:      ldr x19, [sp, #16]
        .cfi_restore x19
        ldp x29, x30, [sp], #32
        .cfi_adjust_cfa_offset -32
        .cfi_restore x29
        .cfi_restore x30
        ret
        .cfi_endproc
        .size aligns_first, . - aligns_first
        .section .note.GNU-stack, "", @progbits

// calls_first begins with the call of what throws, so its detour makes that call.
        .text
        .p2align 4
        .globl calls_first
        .type calls_first, @function
calls_first:
        .cfi_startproc
        call may_throw
        ret
        .cfi_endproc
        .size calls_first, . - calls_first

        // Calls it with the stack pointer that makes may_throw's own an aligned one.
        .p2align 4
        .globl aligns_first
        .type aligns_first, @function
aligns_first:
        .cfi_startproc
        sub $16, %rsp
        .cfi_adjust_cfa_offset 16
        call calls_first
        add $16, %rsp
        .cfi_adjust_cfa_offset -16
        ret
        .cfi_endproc
        .size aligns_first, . - aligns_first
        .section .note.GNU-stack, "", @progbits

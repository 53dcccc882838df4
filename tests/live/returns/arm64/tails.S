// Tail calls of every form, and functions that are short or lead back to their own entry.

        .macro begin name
        .p2align 4
        .globl \name
        .type \name, @function
\name:
        .cfi_startproc
        .endm
        .macro end name
        .cfi_endproc
        .size \name, . - \name
        .endm

        .text

begin tail_target
        lsl x0, x0, #1
        add x0, x0, #1
        ret
end tail_target

begin tail_other
        add x0, x0, x0, lsl #1
        add x0, x0, #2
        ret
end tail_other

begin only_ret
        ret
end only_ret

begin tail_direct
        add x0, x0, #3
        b tail_target
end tail_direct

        // Odd: the other function is entered by the conditional branch itself. Half of those on to a third way.
begin tail_cond
        tst x0, #1
        b.ne tail_other
        add x0, x0, #1
        b tail_target
end tail_cond

begin tail_pointer
        adrp x1, tail_targets
        add x1, x1, :lo12:tail_targets
        and x2, x0, #1
        ldr x16, [x1, x2, lsl #3]
        br x16
end tail_pointer

begin tail_memory
        add x0, x0, #1
        adrp x16, tail_slot
        ldr x16, [x16, :lo12:tail_slot]
        br x16
end tail_memory

        // A chain: the first one ends when the second begins.
begin tail_first
        add x0, x0, #5
        b tail_second
end tail_first

begin tail_second
        add x0, x0, #7
        b tail_target
end tail_second

        // With a frame that is taken down before the jump.
begin tail_deep
        stp x29, x30, [sp, #-48]!
        .cfi_adjust_cfa_offset 48
        .cfi_offset x29, -48
        .cfi_offset x30, -40
        mov x29, sp
        str x19, [sp, #16]
        mov x19, x0
        str x19, [sp, #32]
        ldr x0, [sp, #32]
        ldr x19, [sp, #16]
        ldp x29, x30, [sp], #48
        .cfi_adjust_cfa_offset -48
        .cfi_restore x29
        .cfi_restore x30
        b tail_target
end tail_deep

        // Both a loop to the entry and the only way on. One call is one entry and one return.
begin tail_self
        cbz x0, 1f
        sub x0, x0, #1
        b tail_self
1:      mov w0, #11
        ret
end tail_self

begin loops_to_entry
        subs x0, x0, #1
        b.ne loops_to_entry
        mov w0, #13
        ret
end loops_to_entry

begin two_returns
        tbz x0, #1, 1f
        mov w0, #1
        ret
1:      mov w0, #2
        ret
end two_returns

        // The last word of one page and the first of the next.
        .p2align 12
        .skip 4092, 0
        .globl crosses_page
        .type crosses_page, @function
crosses_page:
        .cfi_startproc
        add x0, x0, #1
        add x0, x0, #0x345, lsl #12
        add x0, x0, #0x678
        mov w1, #0x12000000
        add x0, x0, x1
        ret
        .cfi_endproc
        .size crosses_page, . - crosses_page

        .section .data.rel.local, "aw"
        .p2align 3
tail_targets:
        .quad tail_target
        .quad tail_other
tail_slot:
        .quad tail_other

        .section .note.GNU-stack, "", @progbits

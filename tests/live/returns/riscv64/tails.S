// Tail calls of every form, and functions that are short or lead back to their own entry.

        .option norelax
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
        slli a0, a0, 1
        addi a0, a0, 1
        ret
end tail_target

begin tail_other
        slli a1, a0, 1
        add a0, a0, a1
        addi a0, a0, 2
        ret
end tail_other

begin only_ret
        ret
end only_ret

begin tail_direct
        addi a0, a0, 3
        j tail_target
end tail_direct

        // Odd: the other function is entered by the conditional branch itself. Half of those on to a third way.
begin tail_cond
        andi a1, a0, 1
        bnez a1, tail_other
        addi a0, a0, 1
        j tail_target
end tail_cond

begin tail_pointer
        lla a1, tail_targets
        andi a2, a0, 1
        slli a2, a2, 3
        add a1, a1, a2
        ld a5, 0(a1)
        jr a5
end tail_pointer

begin tail_memory
        addi a0, a0, 1
        ld t1, tail_slot
        jr t1
end tail_memory

        // A chain: the first one ends when the second begins.
begin tail_first
        addi a0, a0, 5
        j tail_second
end tail_first

begin tail_second
        addi a0, a0, 7
        j tail_target
end tail_second

        // With a frame that is taken down before the jump.
begin tail_deep
        addi sp, sp, -48
        .cfi_adjust_cfa_offset 48
        sd ra, 40(sp)
        .cfi_offset ra, -8
        sd s0, 32(sp)
        .cfi_offset s0, -16
        mv s0, a0
        sd s0, 8(sp)
        ld a0, 8(sp)
        ld s0, 32(sp)
        .cfi_restore s0
        ld ra, 40(sp)
        .cfi_restore ra
        addi sp, sp, 48
        .cfi_adjust_cfa_offset -48
        j tail_target
end tail_deep

        // Both a loop to the entry and the only way on. One call is one entry and one return.
begin tail_self
        beqz a0, 1f
        addi a0, a0, -1
        j tail_self
1:      li a0, 11
        ret
end tail_self

begin loops_to_entry
        addi a0, a0, -1
        bnez a0, loops_to_entry
        li a0, 13
        ret
end loops_to_entry

begin two_returns
        andi a1, a0, 2
        beqz a1, 1f
        li a0, 1
        ret
1:      li a0, 2
        ret
end two_returns

        // Its first instruction lies across two pages.
        .p2align 12
        .skip 4094, 0
        .globl crosses_page
        .type crosses_page, @function
crosses_page:
        .cfi_startproc
        .option push
        .option norvc
        addi a0, a0, 1
        .option pop
        li a1, 0x12345678
        add a0, a0, a1
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

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
        lea 1(%rdi,%rdi), %rax
        ret
end tail_target

begin tail_other
        lea 2(%rdi,%rdi,2), %rax
        ret
end tail_other

begin only_ret
        ret
end only_ret

begin tail_direct
        add $3, %rdi
        jmp tail_target
end tail_direct

        // Odd: the other function is entered by the conditional branch itself. Half of those on to a third way.
begin tail_cond
        test $1, %dil
        jnz tail_other
        add $1, %rdi
        jmp tail_target
end tail_cond

begin tail_pointer
        lea tail_targets(%rip), %rax
        mov %rdi, %rcx
        and $1, %ecx
        mov (%rax,%rcx,8), %rax
        jmp *%rax
end tail_pointer

begin tail_memory
        inc %rdi
        jmp *tail_slot(%rip)
end tail_memory

        // A chain: the first one ends when the second begins.
begin tail_first
        add $5, %rdi
        jmp tail_second
end tail_first

begin tail_second
        add $7, %rdi
        jmp tail_target
end tail_second

        // With a frame that is taken down before the jump.
begin tail_deep
        push %rbx
        .cfi_adjust_cfa_offset 8
        mov %rdi, %rbx
        sub $32, %rsp
        .cfi_adjust_cfa_offset 32
        mov %rbx, 8(%rsp)
        mov 8(%rsp), %rdi
        add $32, %rsp
        .cfi_adjust_cfa_offset -32
        pop %rbx
        .cfi_adjust_cfa_offset -8
        jmp tail_target
end tail_deep

        // Both a loop to the entry and the only way on. One call is one entry and one return.
begin tail_self
        test %rdi, %rdi
        jz 1f
        dec %rdi
        jmp tail_self
1:      mov $11, %eax
        ret
end tail_self

begin loops_to_entry
        dec %rdi
        jnz loops_to_entry
        mov $13, %eax
        ret
end loops_to_entry

begin two_returns
        test $2, %dil
        jz 1f
        mov $1, %eax
        ret
1:      mov $2, %eax
        rep ret
end two_returns

        // The branch on the first instruction leaves the page and ends in the first byte of the branch on the
        // second: two pages' writes meet.
        .p2align 12
        .skip 4095, 0xcc
        .globl crosses_page
        .type crosses_page, @function
crosses_page:
        .cfi_startproc
        lea 1(%rdi), %rax
        lea 0x12345678(%rax), %rax
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

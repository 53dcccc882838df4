// Functions whose probed instruction faults, one for each way to jump, and entries of handlers.
//
// The program is linked to a low address, where a branch with a negative 32-bit displacement leads
// nowhere: the byte that a pun's displacement ends in says whether there can be one. NAME_at tells
// where the faulting instruction and the one after it start; symbols there would be barriers.
        .text

.macro begin name, align=64
        .balign \align, 0xcc
        .globl  \name
        .type   \name, @function
\name:
.endm

.macro end name
        .size   \name, . - \name
        .pushsection .rodata
        .globl  \name\()_at
\name\()_at:
        .byte   .L\name\()_fault - \name, .L\name\()_next - \name
        .popsection
.endm

// Code, not padding, for more bytes than a short jump reaches.
.macro crowd name
        .globl  \name
        .type   \name, @function
\name:
        .fill   160, 1, 0x90
        ret
        .size   \name, . - \name
.endm

// One instruction, long enough.
begin one_load
.Lone_load_fault:
        mov     0x1000(%rdi), %rax
.Lone_load_next:
        ret
end one_load

// A pun: it ends in 51 59, or 51 51 59.
begin pun_load
.Lpun_load_fault:
        mov     (%rdi), %rax
.Lpun_load_next:
        push    %rcx
        pop     %rcx
        ret
end pun_load

begin pun_divide
.Lpun_divide_fault:
        idiv    %ecx
.Lpun_divide_next:
        push    %rcx
        push    %rcx
        pop     %rcx
        pop     %rcx
        ret
end pun_divide

// No pun (it would end in 90), no window (the second instruction is a branch target): an island.
begin island_load
.Lisland_load_fault:
        mov     (%rdi), %eax
.Lisland_load_next:
1:      nop
        nop
        nop
        nop
        nop
        test    %ecx, %ecx
        js      1b
        ret
end island_load
        .fill   24, 1, 0xcc

// No pun, no padding in reach: a window, and the fault is in its second instruction.
crowd crowd_before
begin window_later, 1
        nop
.Lwindow_later_fault:
        mov     (%rdi), %rdx
.Lwindow_later_next:
        nop
        nop
        ret
end window_later
crowd crowd_between

// No pun, and the fault is in a window's first instruction.
begin window_first, 1
.Lwindow_first_fault:
        mov     (%rdi), %eax
.Lwindow_first_next:
        nop
        nop
        nop
        nop
        ret
end window_first
crowd crowd_after

// The same with a pun: the fault is in the text itself.
begin pun_later
        nop
.Lpun_later_fault:
        mov     (%rdi), %rdx
.Lpun_later_next:
        push    %rcx
        pop     %rcx
        ret
end pun_later

// An instruction that processors of today do not know (FMA4).
begin one_unknown
.Lone_unknown_fault:
        vfmaddpd %xmm3, %xmm2, %xmm1, %xmm0
.Lone_unknown_next:
        ret
end one_unknown

// A call whose target is read from memory: four instructions stand for it in a detour.
begin one_call
        push    %rbx
.Lone_call_fault:
        call    *0x12345(%rdi)
.Lone_call_next:
        pop     %rbx
        ret
end one_call

// Handlers with room for a branch at their entry and, in the padding, at their return.
.macro handler name
begin \name
        mov     $0x1234, %eax
        sub     $8, %rsp
        call    handle
        add     $8, %rsp
        ret
        .size   \name, . - \name
.endm
handler handler_plain
handler handler_other
handler handler_late

// direct_at_end(handler, sig, end): rdi, esi, rdx. The return address is the last word of the stack.
        .globl  direct_at_end
        .type   direct_at_end, @function
direct_at_end:
        push    %rbx
        mov     %rsp, %rbx
        mov     %rdi, %rax
        mov     %esi, %edi
        mov     %rdx, %rsp
        lea     304(%rdx), %rsi
        call    *%rax
        mov     %rbx, %rsp
        pop     %rbx
        ret
        .size   direct_at_end, . - direct_at_end

        .section .note.GNU-stack, "", @progbits

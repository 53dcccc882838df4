// Replaced return addresses: at a function's entry, at its return, and where an unwinder looks one up. The
// straight path of the first two; trampoline.c has the rest and says what is kept true.
#include "arch/trampoline_layout.h"

        .text

// rdi = the slot that S in rdx has its home in; rax and \spare are lost.
.macro  slot_home spare
        mov     %rdx, %rax
        shr     $HIJACK_WRAP_SHIFT, %rax
        lea     (%rax,%rax,2), %rdi
        mov     %rdx, %\spare
        shr     $3, %\spare
        add     %\spare, %rdi
        and     $HIJACK_SLOT_MASK, %edi
        shl     $HIJACK_SLOT_SHIFT, %rdi
        add     tl_agent_hijack_addr(%rip), %rdi
        add     $HIJACK_SLOT, %rdi
.endm

// ---- a function's entry, in the record frame: ecx = counter_off, rdx = S, [S] = the return address ----
//
// Straight: the process records, S is where the ABI puts it, the return address was looked at before, and
// the home slot is free or S's own. Everything else: tl_agent_hijack.

        .globl  tl_agent_hijack_entry
        .hidden tl_agent_hijack_entry
        .type   tl_agent_hijack_entry, @function
        .p2align 5
tl_agent_hijack_entry:
        push    %rsi
        push    %rdi
        push    %r8
        mov     tl_agent_control_addr(%rip), %rax
        cmpl    $HIJACK_LIVE, (%rax)
        jne     1f
        mov     %edx, %eax
        and     $15, %eax
        cmp     $8, %eax
        jne     1f
        mov     (%rdx), %rsi
        test    %rsi, %rsi // an empty place of what was proved holds 0 too
        jz      1f
        mov     %esi, %eax
        and     $HIJACK_PROVEN_MASK, %eax
        mov     tl_agent_hijack_addr(%rip), %rdi
        cmp     %rsi, HIJACK_PROVEN(%rdi,%rax,8)
        jne     1f
        slot_home r8
        mov     (%rdi), %rax
        cmp     %rdx, %rax
        je      2f // of a frame that was left by a jump
        test    %rax, %rax
        jnz     1f
        lock cmpxchg %rdx, (%rdi)
        jne     1f
2:      mov     %rsi, HIJACK_ORIGINAL(%rdi)
        mov     %rcx, HIJACK_COUNTER(%rdi)
        movq    $0, HIJACK_RETURNED(%rdi)
        lea     tl_agent_trampoline(%rip), %rax
        mov     %rax, (%rdx)
        // Asked last: who stands still before, while all is ended and put back, finds it.
        mov     tl_agent_hijack_addr(%rip), %rax
        cmpl    $0, HIJACK_ENDED(%rax)
        jne     4f
        pop     %r8
        pop     %rdi
        pop     %rsi
        ret

4:      mov     %rsi, (%rdx)
1:      mov     %ecx, %edi
        mov     %rdx, %rsi      // and where the return address lies: rdx
        cld
        call    tl_agent_hijack // keeps all but rax
        movq    $0, -8(%rsp)    // no word that points into the image stays behind
        pop     %r8
        pop     %rdi
        pop     %rsi
        test    %eax, %eax
        jz      3f
        // A tail call: the function that was here has ended. Its record, in the same frame.
        mov     %eax, %ecx
        lea     tl_agent_head_start(%rip), %rax
        add     tl_agent_hijack_record(%rip), %rax
        jmp     *%rax
3:      ret
        .size   tl_agent_hijack_entry, . - tl_agent_hijack_entry

// ---- where replaced return addresses lead: rsp = S + 8 --------------------------------------------
//
// Whatever the function left is kept, all registers and flags. Below S + 8 nothing is anybody's: the call
// and the function have used it.
//
//   S             the original return address again
//   S - 8, S - 16 rsi, rdi
//   S - 136 ...   the record frame

        .globl  tl_agent_trampoline
        .hidden tl_agent_trampoline
        .type   tl_agent_trampoline, @function
        .p2align 5
tl_agent_trampoline:
        lea     -136(%rsp), %rsp
        push    %rax
        push    %rcx
        push    %rdx
        lahf
        seto    %al
        push    %rax
        lea     160(%rsp), %rdx // S
        mov     %rsi, -8(%rdx)
        mov     %rdi, -16(%rdx)
        slot_home rcx
        cmp     %rdx, (%rdi)
        jne     1f
        mov     HIJACK_ORIGINAL(%rdi), %rsi
        mov     HIJACK_COUNTER(%rdi), %rcx
        mov     %rsi, (%rdx)
        mov     %rdx, HIJACK_RETURNED(%rdi)
        movq    $0, (%rdi) // last: another thread may take it
2:      mov     -16(%rdx), %rdi // as the function left them: the record may be an event's
        mov     -8(%rdx), %rsi
        lea     tl_agent_head_start(%rip), %rax
        add     tl_agent_hijack_record(%rip), %rax
        call    *%rax
        movq    $0, -8(%rsp) // no word that points into the image stays behind
3:      pop     %rax
        add     $0x7f, %al // the overflow flag
        sahf
        pop     %rdx
        pop     %rcx
        pop     %rax
        lea     136(%rsp), %rsp
        jmp     *-8(%rsp)

1:      mov     %rdx, %rdi
        mov     %rdx, %rsi
        cld
        call    tl_agent_hijack_return // keeps all but rax; the original is at S again
        movq    $0, -8(%rsp)
        mov     %eax, %ecx
        test    %eax, %eax
        jnz     2b
        mov     -16(%rdx), %rdi
        mov     -8(%rdx), %rsi
        jmp     3b
        .size   tl_agent_trampoline, . - tl_agent_trampoline

// ---- the entry of _Unwind_Find_FDE, in the record frame: rdi = address, rsi = &context->bases --------

        .globl  tl_agent_unwind_entry
        .hidden tl_agent_unwind_entry
        .type   tl_agent_unwind_entry, @function
tl_agent_unwind_entry:
        cld
        call    tl_agent_unwind // keeps all but rax
        movq    $0, -8(%rsp)
        mov     %rax, %rdi
        ret
        .size   tl_agent_unwind_entry, . - tl_agent_unwind_entry

        .section .note.GNU-stack, "", @progbits

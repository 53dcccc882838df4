// The hook's entry, called in the record frame (emit/emit.h): ecx = kind of notice, rdx = S. All but rax,
// rcx, rdx and flags are kept.
        .text
        .globl  tl_agent_hook_entry
        .hidden tl_agent_hook_entry
        .type   tl_agent_hook_entry, @function
tl_agent_hook_entry:
        push    %rsi            // struct hook_frame
        push    %rdi
        mov     %rsp, %rsi
        mov     %ecx, %edi
        cld
        call    tl_agent_hook   // keeps all but rax
        movq    $0, -8(%rsp)    // its return address: no word that points into the image stays behind
        pop     %rdi
        pop     %rsi
        ret
        .size   tl_agent_hook_entry, . - tl_agent_hook_entry

        .section .note.GNU-stack, "", @progbits

// The agent image's head and its entries from detours.
//
// For a count a detour pushes the counter's offset and calls: [return][counter_off]. Every general register keeps
// its value, vector registers are not touched, flags are lost.
#include "arch/agent_head.h"
#include "arch/record_layout.h"

        .text
        .globl  tl_agent_slow_count
        .hidden tl_agent_slow_count
        .type   tl_agent_slow_count, @function
tl_agent_slow_count:
        push    %rax
        call    tl_agent_block
        test    %rax, %rax
        jz      2f
        btr     $REC_BLOCK_SHARED_BIT, %rax
        jc      1f
        add     16(%rsp), %rax
        // One instruction, so that a signal can't come between load and store. No lock: only this
        // thread writes its block.
        incq    (%rax)
        jmp     2f
1:      add     16(%rsp), %rax
        lock incq (%rax)
2:      pop     %rax
        ret
        .size   tl_agent_slow_count, . - tl_agent_slow_count

// At the first instruction of a function that handles faults, and at its returns, the stack pointer
// TL_CALL_SKIP (128) bytes lower. Registers and flags stay; those that C code preserves are left to
// it.
        .set    saved, 10 * 8
.macro  entry name, function
        .globl  \name
        .hidden \name
        .type   \name, @function
\name:
        pushfq
        push    %rax
        push    %rcx
        push    %rdx
        push    %rsi
        push    %rdi
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        cld
        lea     saved + 8 + 128(%rsp), %rcx
        call    \function
        pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rdi
        pop     %rsi
        pop     %rdx
        pop     %rcx
        pop     %rax
        popfq
        ret
        .size   \name, . - \name
.endm
        entry   tl_agent_fault_entry, tl_agent_fault
        entry   tl_agent_leave_entry, tl_agent_leave

        .section .note.GNU-stack, "", @progbits

// The agent image's head and its entries from detours.
//
// For a count a detour pushes the counter's offset and calls: [return][counter_off]. Every general register keeps
// its value, vector registers are not touched, flags are lost.
#include "arch/x86_64/record_layout.h"

.macro  constant name
        .globl  \name
        .hidden \name
\name:
        .quad   0
.endm

        .section .head, "ax"
        .globl  tl_agent_head_start
        .hidden tl_agent_head_start
tl_agent_head_start:
        constant tl_agent_control_addr
        constant tl_agent_code_addr
        constant tl_agent_data_addr
        constant tl_agent_stride
        constant tl_agent_hist_off
        constant tl_agent_ring_off
        constant tl_agent_pair_off
        constant tl_agent_ring_mask
        constant tl_agent_pair_mask
        constant tl_agent_process_count
        constant tl_agent_follow
        constant tl_agent_tid_off
        constant tl_agent_clock
        constant tl_agent_ticks_per_ms
        constant tl_agent_thread_pointer
        constant tl_agent_hijack_addr
        constant tl_agent_hijack_lost
        constant tl_agent_hijack_record
        .fill   2, 8, 0
        .quad   tl_agent_slow_count - tl_agent_head_start
        .quad   tl_agent_fault_entry - tl_agent_head_start
        .quad   tl_agent_leave_entry - tl_agent_head_start
        .quad   tl_agent_record_hit - tl_agent_head_start // record_off, by enum tl_record_kind - 1
        .quad   tl_agent_record_event - tl_agent_head_start
        .quad   tl_agent_record_go_event - tl_agent_head_start
        .quad   tl_agent_record_return - tl_agent_head_start
        .quad   tl_agent_record_enter - tl_agent_head_start
        .quad   tl_agent_record_exit - tl_agent_head_start
        .quad   tl_agent_hijack_entry - tl_agent_head_start
        .quad   tl_agent_unwind_entry - tl_agent_head_start
        .quad   tl_agent_hook_entry - tl_agent_head_start
        .quad   tl_agent_trampoline - tl_agent_head_start
        .quad   tl_agent_trap_entry - tl_agent_head_start
        .quad   tl_agent_restorer - tl_agent_head_start
        .quad   tl_agent_image_end - tl_agent_head_start

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

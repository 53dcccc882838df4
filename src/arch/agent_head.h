// The head of the agent's image, as agent/agent.h describes it. For the assembler: agent_entry.S begins with it.
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
        constant tl_agent_homes_shift
        constant tl_agent_atomics
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

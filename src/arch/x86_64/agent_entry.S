// The agent image's head and its entry from detours.
//
// A detour pushes the counter's offset and calls: [return][counter_off]. Every general register keeps
// its value, vector registers are not touched, flags are lost.
        .section .head, "ax"
        .globl  tl_agent_head_start
        .hidden tl_agent_head_start
        .globl  tl_agent_control_addr
        .hidden tl_agent_control_addr
tl_agent_head_start:
tl_agent_control_addr:
        .quad   0
        .quad   tl_agent_slow_count - tl_agent_head_start
        .quad   tl_agent_image_end - tl_agent_head_start

        .text
        .globl  tl_agent_slow_count
        .hidden tl_agent_slow_count
        .type   tl_agent_slow_count, @function
tl_agent_slow_count:
        push    %rdi
        mov     16(%rsp), %rdi
        call    tl_agent_count
        pop     %rdi
        ret
        .size   tl_agent_slow_count, . - tl_agent_slow_count

        .section .note.GNU-stack, "", @progbits

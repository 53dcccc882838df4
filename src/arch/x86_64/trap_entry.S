// Around the SIGTRAP handler: a record's entry called with the site's registers, and where the handler
// returns to.
        .text

// rdi = entry, rsi = counter_off, rdx = the site's general registers by number, rcx = S. The entry gets the record
// frame (emit/emit.h) here, on the handler's stack: it finds its saved words by its own stack pointer, and
// the site's stack by rdx. It keeps all but rax, rcx, rdx and flags.
        .globl  tl_agent_trap_record
        .hidden tl_agent_trap_record
        .type   tl_agent_trap_record, @function
tl_agent_trap_record:
        push    %rbx
        push    %rbp
        push    %r12
        push    %r13
        push    %r14
        push    %r15
        push    %rdi
        mov     %rdx, %rax
        push    0(%rax)                 // rax
        push    8(%rax)                 // rcx
        push    16(%rax)                // rdx
        push    $0                      // flags word
        mov     %rcx, %r10
        mov     %esi, %ecx
        mov     %r10, %rdx              // S
        mov     24(%rax), %rbx
        mov     40(%rax), %rbp
        mov     48(%rax), %rsi
        mov     56(%rax), %rdi
        mov     64(%rax), %r8
        mov     72(%rax), %r9
        mov     80(%rax), %r10
        mov     88(%rax), %r11
        mov     96(%rax), %r12
        mov     104(%rax), %r13
        mov     112(%rax), %r14
        mov     120(%rax), %r15
        mov     0(%rax), %rax
        call    *32(%rsp)
        cld
        add     $40, %rsp
        pop     %r15
        pop     %r14
        pop     %r13
        pop     %r12
        pop     %rbp
        pop     %rbx
        ret
        .size   tl_agent_trap_record, . - tl_agent_trap_record

// The handler. What it leaves on the stack is overwritten, since words that point into code of ours keep that
// code from being taken away (patch/leftover.c). tl_agent_trap and tl_agent_trap_record use more than that.
        .set    trap_stack, 44 * 8
        .globl  tl_agent_trap_entry
        .hidden tl_agent_trap_entry
        .type   tl_agent_trap_entry, @function
tl_agent_trap_entry:
        sub     $8, %rsp
        call    tl_agent_trap
        add     $8, %rsp
        lea     -trap_stack(%rsp), %rdi
        mov     $trap_stack / 8, %ecx
        xor     %eax, %eax
        rep stosq
        pop     %rdx                    // tl_agent_restorer
        mov     %rax, -8(%rsp)
        jmp     *%rdx
        .size   tl_agent_trap_entry, . - tl_agent_trap_entry

// The bytes by which unwinders and debuggers know such a place: mov $15, %rax; syscall (rt_sigreturn).
        .globl  tl_agent_restorer
        .hidden tl_agent_restorer
        .type   tl_agent_restorer, @function
        .p2align 4
        nop
tl_agent_restorer:
        .byte   0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00
        syscall
        .size   tl_agent_restorer, . - tl_agent_restorer

        .section .note.GNU-stack, "", @progbits

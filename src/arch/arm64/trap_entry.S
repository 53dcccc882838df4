// Around the SIGTRAP handler: a record's entry called with the site's registers, and where the handler
// returns to.
        .text

// x0 = entry, w1 = counter_off, x2 = the site's general registers by number, x3 = S. The entry gets the record
// frame (emit/emit.h) here, on the handler's stack: it finds its saved words by its own stack pointer, and
// the site's stack by x17. What it may change is x0 and the frame's x30: they are put back into the
// registers. Keeps all but x0, x16, x17 and x30, as the agent's C functions do.
        .set    general, 40     // saved x2
        .set    kept, 32
        .set    frame, kept + 8 * 32
        .globl  tl_agent_trap_record
        .hidden tl_agent_trap_record
        .type   tl_agent_trap_record, %function
tl_agent_trap_record:
        sub     sp, sp, #frame
        stp     x0, x2, [sp, #kept]
        stp     x1, x3, [sp, #kept + 16]
        stp     x4, x5, [sp, #kept + 32]
        stp     x6, x7, [sp, #kept + 48]
        stp     x8, x9, [sp, #kept + 64]
        stp     x10, x11, [sp, #kept + 80]
        stp     x12, x13, [sp, #kept + 96]
        stp     x14, x15, [sp, #kept + 112]
        stp     x18, x19, [sp, #kept + 128]
        stp     x20, x21, [sp, #kept + 144]
        stp     x22, x23, [sp, #kept + 160]
        stp     x24, x25, [sp, #kept + 176]
        stp     x26, x27, [sp, #kept + 192]
        stp     x28, x29, [sp, #kept + 208]
        str     x30, [sp, #kept + 224]
        ldp     x4, x5, [x2, #16 * 8]
        stp     x4, x5, [sp]
        ldr     x4, [x2, #30 * 8]
        stp     x4, xzr, [sp, #16]
        mov     w16, w1
        mov     x17, x3
        mov     x30, x2
        ldp     x0, x1, [x30]
        ldp     x2, x3, [x30, #2 * 8]
        ldp     x4, x5, [x30, #4 * 8]
        ldp     x6, x7, [x30, #6 * 8]
        ldp     x8, x9, [x30, #8 * 8]
        ldp     x10, x11, [x30, #10 * 8]
        ldp     x12, x13, [x30, #12 * 8]
        ldp     x14, x15, [x30, #14 * 8]
        ldp     x18, x19, [x30, #18 * 8]
        ldp     x20, x21, [x30, #20 * 8]
        ldp     x22, x23, [x30, #22 * 8]
        ldp     x24, x25, [x30, #24 * 8]
        ldp     x26, x27, [x30, #26 * 8]
        ldp     x28, x29, [x30, #28 * 8]
        ldr     x30, [sp, #kept]
        blr     x30
        ldr     x16, [sp, #general]
        ldr     x17, [sp, #16]
        str     x0, [x16]
        str     x17, [x16, #30 * 8]
        mov     x2, x16
        ldp     x1, x3, [sp, #kept + 16]
        ldp     x4, x5, [sp, #kept + 32]
        ldp     x6, x7, [sp, #kept + 48]
        ldp     x8, x9, [sp, #kept + 64]
        ldp     x10, x11, [sp, #kept + 80]
        ldp     x12, x13, [sp, #kept + 96]
        ldp     x14, x15, [sp, #kept + 112]
        ldp     x18, x19, [sp, #kept + 128]
        ldp     x20, x21, [sp, #kept + 144]
        ldp     x22, x23, [sp, #kept + 160]
        ldp     x24, x25, [sp, #kept + 176]
        ldp     x26, x27, [sp, #kept + 192]
        ldp     x28, x29, [sp, #kept + 208]
        ldr     x30, [sp, #kept + 224]
        str     xzr, [sp, #kept] // too deep for tl_agent_trap_entry
        add     sp, sp, #frame
        ret
        .size   tl_agent_trap_record, . - tl_agent_trap_record

// The handler. What it leaves on the stack is overwritten, since words that point into code of ours keep that
// code from being taken away (patch/leftover.c). What lies deeper is no such word. The signal frame gives all
// registers back.
        .set    trap_stack, 256
        .globl  tl_agent_trap_entry
        .hidden tl_agent_trap_entry
        .type   tl_agent_trap_entry, %function
tl_agent_trap_entry:
        str     x30, [sp, #-16]!
        bl      tl_agent_trap
        ldr     x30, [sp], #16  // tl_agent_restorer
        .set    below, 16
        .rept   trap_stack / 16
        stp     xzr, xzr, [sp, #-below]
        .set    below, below + 16
        .endr
        ret
        .size   tl_agent_trap_entry, . - tl_agent_trap_entry

// The words by which unwinders and debuggers know such a place: mov x8, #139; svc #0 (rt_sigreturn).
        .globl  tl_agent_restorer
        .hidden tl_agent_restorer
        .type   tl_agent_restorer, %function
        .p2align 4
        nop
tl_agent_restorer:
        .inst   0xd2801168
        .inst   0xd4000001
        .size   tl_agent_restorer, . - tl_agent_restorer

        .section .note.GNU-stack, "", %progbits

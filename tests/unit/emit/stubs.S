// What detours of the test call instead of the agent: they write down what they were given and spoil all that
// an entry may. Position-free: copied to where the test wants them.
#define LOG 0x26000000

        .text
        .globl  stub_start, stub_slow, stub_record, stub_guard, stub_end
stub_start:

// tl_agent_slow_count: all but x16, x17 and x30 are kept, flags too.
stub_slow:
        stp     x0, x1, [sp, #-16]!
        ldr     x0, =LOG
        ldr     x1, [x0]
        add     x1, x1, #1
        str     x1, [x0]
        stp     x16, x17, [x0, #8]
        add     x1, sp, #16
        str     x1, [x0, #24]
        ldp     x0, x1, [sp], #16
        mov     x16, #-5
        mov     x17, #-6
        ret

// A record's entry: flags are lost besides.
stub_record:
        stp     x0, x1, [sp, #-16]!
        ldr     x0, =LOG
        ldr     x1, [x0, #32]
        add     x1, x1, #1
        str     x1, [x0, #32]
        stp     x16, x17, [x0, #40]
        add     x1, sp, #16
        str     x1, [x0, #56]
        ldr     x1, [sp, #32] // x30 as at the site
        str     x1, [x0, #64]
        mrs     x1, nzcv
        mvn     x1, x1
        and     x1, x1, #0xf0000000
        msr     nzcv, x1
        ldp     x0, x1, [sp], #16
        mov     x16, #-7
        mov     x17, #-8
        ret

// The entry for fault handlers: all but x30 is kept.
stub_guard:
        stp     x0, x1, [sp, #-16]!
        ldr     x0, =LOG
        ldr     x1, [x0, #72]
        add     x1, x1, #1
        str     x1, [x0, #72]
        add     x1, sp, #16
        str     x1, [x0, #80]
        ldr     x1, [sp, #16]
        str     x1, [x0, #88]
        ldp     x0, x1, [sp], #16
        ret
        .ltorg
stub_end:
        .section .note.GNU-stack, "", %progbits

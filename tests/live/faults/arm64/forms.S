// Functions whose probed instruction faults, and entries of handlers. NAME_at tells where the faulting
// instruction and the one after it start. Each begins with a landing pad, for where pages are guarded; its entry's
// probe lies behind that.
        .arch armv8.2-a+sve
        .text

.macro begin name
        .balign 64
        .globl  \name
        .type   \name, %function
\name:
        hint    #34 // bti c
.endm

.macro end name
        .size   \name, . - \name
        .pushsection .rodata
        .globl  \name\()_at
\name\()_at:
        .byte   .L\name\()_fault - \name, .L\name\()_next - \name
        .popsection
.endm

// One instruction that faults, and what comes before it.
.macro form name, code:vararg
.L\name\()_fault:
        \code
.L\name\()_next:
        ret
        end \name
.endm

begin one_load
        form one_load, ldr x0, [x0, #0x1000]
begin one_store
        form one_store, strb wzr, [x0]
begin pair_load
        form pair_load, ldp x0, x1, [x0, #16]

// The address register is as it was.
begin post_load
        mov     x1, x0
.Lpost_load_fault:
        ldr     x2, [x1], #24
.Lpost_load_next:
        sub     x0, x1, x0
        ret
end post_load
begin pre_store
        mov     x1, x0
.Lpre_store_fault:
        stp     x0, x2, [x1, #-16]!
.Lpre_store_next:
        sub     x0, x1, x0
        ret
end pre_store

begin vector_load
        form vector_load, ldr q0, [x0]
begin scalable_load
        ptrue   p0.d
.Lscalable_load_fault:
        ld1d    {z0.d}, p0/z, [x0]
.Lscalable_load_next:
        ret
end scalable_load
begin atomic_add
        .arch_extension lse
        form atomic_add, ldadd x1, x2, [x0]
begin exclusive_load
.Lexclusive_load_fault:
        ldxr    x0, [x0]
.Lexclusive_load_next:
        clrex
        ret
end exclusive_load

// The fault is in the text itself.
begin later_load
        nop
.Llater_load_fault:
        ldr     x0, [x0]
.Llater_load_next:
        ret
end later_load

// Literals on a page that can't be read.
begin literal_load
        form literal_load, ldr x0, literal_page
begin literal_vector
.Lliteral_vector_fault:
        ldr     d0, literal_page
.Lliteral_vector_next:
        fmov    x0, d0
        ret
end literal_vector

// What faults is the instruction that they lead to.
begin tail_branch
        mov     x16, x0
.Ltail_branch_fault:
        br      x16
.Ltail_branch_next:
        ret
end tail_branch
begin bad_call
        str     x30, [sp, #-16]!
        mov     x16, x0
.Lbad_call_fault:
        blr     x16
.Lbad_call_next:
        ldr     x30, [sp], #16
        ret
end bad_call
begin bad_return
        mov     x9, x0
.Lbad_return_fault:
        ret     x9
.Lbad_return_next:
        ret
end bad_return

begin bad_stack
        mov     x9, sp
        sub     sp, sp, #8
.Lbad_stack_fault:
        ldr     x0, [sp]
.Lbad_stack_next:
        mov     sp, x9
        ret
end bad_stack

// smax x0, x0, x1: an instruction of the common short sequences, which the emulated processors do not know.
begin one_unknown
        form one_unknown, .inst 0x9ac16000

// Handlers. The kernel gives no addresses of info and context to one without SA_SIGINFO; they lie at the
// stack pointer all the same.
.macro handler name
begin \name
        mov     x1, sp
        add     x2, sp, #128
        stp     x29, x30, [sp, #-16]!
        mov     x29, sp
        bl      handle
        ldp     x29, x30, [sp], #16
        ret
        .size   \name, . - \name
.endm
handler handler_plain
handler handler_other
handler handler_late

// direct_at_end(handler, sig, end): the frame's info at the stack pointer, its context behind that.
begin direct_at_end
        stp     x29, x30, [sp, #-32]!
        mov     x29, sp
        str     x19, [sp, #16]
        mov     x19, sp
        mov     x16, x0
        mov     w0, w1
        mov     sp, x2
        mov     x1, sp
        add     x2, x1, #128
        blr     x16
        mov     sp, x19
        ldr     x19, [sp, #16]
        ldp     x29, x30, [sp], #32
        ret
        .size   direct_at_end, . - direct_at_end

        .balign 0x10000
        .globl  literal_page
literal_page:
        .quad   0x1122334455667788
        .balign 0x10000

        .section .note.GNU-stack, "", %progbits
        // Guarded pages, where the linker is asked for them.
        .section .note.gnu.property, "a"
        .p2align 3
        .word   4, 16, 5
        .asciz  "GNU"
        .word   0xc0000000, 4, 3, 0

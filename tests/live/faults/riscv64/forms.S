// Functions whose probed instruction faults, one for each way to jump, and entries of handlers. NAME_at tells
// where the faulting instruction and the one after it start. Instructions are of 32 bits, but where one begins
// with c.
        .option norelax
        .option norvc
        .text

        .macro short code:vararg
        .option push
        .option rvc
        \code
        .option pop
        .endm

.macro begin name
        .balign 64
        .globl  \name
        .type   \name, %function
\name:
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
        form one_load, ld a0, 1024(a0)
begin one_store
        form one_store, sb zero, (a0)
begin float_load
        form float_load, fld ft0, 8(a0)
begin atomic_add
        form atomic_add, amoadd.d a1, a2, (a0)
begin exclusive_load
        form exclusive_load, lr.d a0, (a0)

// Two bytes before what a branch leads to: an island in the padding behind it.
begin island_load
.Lisland_load_fault:
        short   c.ld a0, 8(a0)
.Lisland_load_next:
1:      addi    a5, a5, 1
        bne     zero, zero, 1b
        ret
end island_load

// A window of two instructions; its first one faults, or its second.
begin window_first
.Lwindow_first_fault:
        short   c.lw a1, (a0)
.Lwindow_first_next:
        short   c.li a0, 3
        short   c.addi a0, 4
        ret
end window_first
begin window_later
        short   c.mv a1, a0
.Lwindow_later_fault:
        short   c.sw a0, 4(a1)
.Lwindow_later_next:
        short   c.li a0, 5
        short   c.addi a0, 6
        ret
end window_later

// The fault is in the text itself.
begin later_load
        addi    a1, a1, 0
.Llater_load_fault:
        ld      a0, (a0)
.Llater_load_next:
        ret
end later_load

// Text that can't be read, by a register that the instruction before made.
begin literal_load
.Lliteral_load_auipc:
        auipc   a1, %pcrel_hi(literal_page)
.Lliteral_load_fault:
        ld      a0, %pcrel_lo(.Lliteral_load_auipc)(a1)
.Lliteral_load_next:
        ret
end literal_load

// What faults is the instruction that they lead to.
begin tail_branch
        mv      t1, a0
.Ltail_branch_fault:
        jr      t1
.Ltail_branch_next:
        ret
end tail_branch
begin bad_call
        addi    sp, sp, -16
        sd      ra, 8(sp)
        mv      t1, a0
.Lbad_call_fault:
        jalr    t1
.Lbad_call_next:
        ld      ra, 8(sp)
        addi    sp, sp, 16
        ret
end bad_call
begin bad_return
        mv      t0, a0
.Lbad_return_fault:
        jr      t0
.Lbad_return_next:
        ret
end bad_return

// A vector instruction: there are none, or nothing has set them up.
        .option push
        .option arch, +v
begin one_unknown
        form one_unknown, vadd.vv v1, v2, v3
        .option pop

// Handlers.
.macro handler name
begin \name
        addi    sp, sp, -16
        sd      ra, 8(sp)
        call    handle
        ld      ra, 8(sp)
        addi    sp, sp, 16
        ret
        .size   \name, . - \name
.endm
handler handler_plain
handler handler_other
handler handler_late

// direct_at_end(handler, sig, end): the frame's info at the stack pointer, its context behind that.
begin direct_at_end
        addi    sp, sp, -16
        sd      ra, 8(sp)
        sd      s0, (sp)
        mv      s0, sp
        mv      t1, a0
        mv      a0, a1
        mv      sp, a2
        mv      a1, sp
        addi    a2, a1, 128
        jalr    t1
        mv      sp, s0
        ld      s0, (sp)
        ld      ra, 8(sp)
        addi    sp, sp, 16
        ret
        .size   direct_at_end, . - direct_at_end

        .balign 0x10000
        .globl  literal_page
literal_page:
        .quad   0x1122334455667788
        .balign 0x10000

        .section .note.GNU-stack, "", %progbits

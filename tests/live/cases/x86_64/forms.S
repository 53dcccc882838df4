// Short functions, each the heart of one hard case. A comment names the case; drive.c calls them a
// known number of times and prints what they return.
    .text

    .macro form name
    .p2align 4
    .globl \name
    .type \name, @function
\name:
    .endm
    .macro formend name
    .size \name, . - \name
    .endm

// C006: two ways to the same code; only the one that is probed may count.
    form thunk_a
    jmp thunk_target
    formend thunk_a
    form thunk_b
    jmp thunk_target
    formend thunk_b
    form thunk_target
    lea 7(%rdi), %rax
    ret
    formend thunk_target

// C017: data between functions, with a name that does not say so.
between:
    .quad 0x1122334455667788
    form reads_between
    mov between(%rip), %rax
    ret
    formend reads_between

// C009, C010, C011: as short as they get, without padding between them.
    form short_pair
    mov %edi, %eax
    ret
    formend short_pair
    .globl short_ret
    .type short_ret, @function
short_ret:
    ret
    .size short_ret, . - short_ret
    .globl short_rep
    .type short_rep, @function
short_rep:
    rep ret
    .size short_rep, . - short_rep
    .globl short_four
    .type short_four, @function
short_four:
    nop
    nop
    nop
    ret
    .size short_four, . - short_four
    .globl short_five
    .type short_five, @function
short_five:
    nop
    nop
    nop
    nop
    ret
    .size short_five, . - short_five

// C012: a jump back into the bytes that a branch at the entry would need. Adds 1 with an overflow
// once, so the body runs twice for INT_MAX.
    form jump_back
    nop
    inc %eax
    add $1, %edi
    jo jump_back + 1
    ret
    formend jump_back

// C014: an early return right behind endbr64.
    form early_return
    endbr64
    test %edi, %edi
    jne 1f
    xor %eax, %eax
    ret
1:  lea 1(%rdi), %eax
    ret
    formend early_return

// C016: cases of three bytes behind a table. dense_case is the first case; each is probed.
    form dense
    mov %edi, %edi
    xor %eax, %eax
    lea 3f(%rip), %rdx
    movslq (%rdx,%rdi,4), %rcx
    add %rdx, %rcx
    jmp *%rcx
dense_case:
    mov $11, %al
    ret
    mov $22, %al
    ret
    mov $33, %al
    ret
    mov $44, %al
    ret
    formend dense
    .section .rodata
    .p2align 2
3:  .long dense_case - 3b, dense_case + 3 - 3b, dense_case + 6 - 3b, dense_case + 9 - 3b
    .text

// C037: an immediate behind the displacement.
    form rip_byte
    cmpb $3, cell(%rip)
    setb %al
    movzbl %al, %eax
    ret
    formend rip_byte
    form rip_long
    cmpl $0x01020304, cell(%rip)
    setb %al
    movzbl %al, %eax
    ret
    formend rip_long
    form rip_store
    movl $0x0a0b0c0d, stored(%rip)
    mov stored(%rip), %eax
    ret
    formend rip_store

// C039: the first instruction is a call through memory, with arguments on the stack.
    form call_memory
    call *returns_five_at(%rip)
    add 8(%rsp), %rax
    add 16(%rsp), %rax
    ret
    formend call_memory
    form returns_five
    mov $5, %eax
    ret
    formend returns_five

// C044: branches with eight bits only; the 32-bit count must leave a high half alone.
    form loop_short
1:  inc %eax
    loop 1b
    ret
    formend loop_short
    form jrcxz_first
    jrcxz 1f
    mov $1, %eax
    ret
1:  mov $2, %eax
    ret
    formend jrcxz_first
    form jecxz_first
    jecxz 1f
    mov $1, %eax
    ret
1:  mov $2, %eax
    ret
    formend jecxz_first
    form loopne_first
    loopne 1f
    mov %rcx, %rax
    ret
1:  lea 100(%rcx), %rax
    ret
    formend loopne_first

// C045: the probed instruction is a conditional jump.
    form jcc_first
    jl 1f
    mov $1, %eax
    ret
1:  mov $2, %eax
    ret
    formend jcc_first

// C046: prefixes that a decoder may not know.
    form push_rex
    push %r12
    mov %rdi, %r12
    lea (%r12,%r12), %rax
    pop %r12
    ret
    formend push_rex
    form lock_first
    lock xaddl %edi, stored(%rip)
    mov %edi, %eax
    ret
    formend lock_first
    form xacquire_first
    xacquire lock incl stored(%rip)
    mov stored(%rip), %eax
    ret
    formend xacquire_first
    form rep_first
    rep movsb
    mov %rdi, %rax
    ret
    formend rep_first
    form many_prefixes
    .byte 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00
    mov $9, %eax
    ret
    formend many_prefixes

// C069: a leaf's data below the stack pointer.
    form red_zone
    mov %rdi, -8(%rsp)
    mov %rdi, -128(%rsp)
    nop
    nop
    mov -8(%rsp), %rax
    add -128(%rsp), %rax
    ret
    formend red_zone

// C070: the stack at 0 and at 8 beyond 16 bytes.
    form misaligned
    push %rbx
    nop
    push %rbx
    nop
    pop %rbx
    pop %rbx
    lea 1(%rdi), %rax
    ret
    formend misaligned

// C036, C065, C066: every register that an ABI lets a callee change is compared behind the call.
// Returns 0 if all of them, the flags and some vector registers are as before.
    form keeps_nothing
    add $0, %r10
    ret
    formend keeps_nothing
    form registers_live
    push %rbx
    mov $0x1111, %eax
    mov $0x2222, %ecx
    mov $0x3333, %edx
    mov $0x4444, %esi
    mov $0x5555, %edi
    mov $0x6666, %r8d
    mov $0x7777, %r9d
    mov $0x8888, %r10d
    mov $0x9999, %r11d
    movq %rax, %xmm0
    movq %rcx, %xmm5
    movq %rdx, %xmm15
    cld
    stc
    call keeps_flags
    setc %bl
    sub $0x1111, %rax
    sub $0x2222, %rcx
    sub $0x3333, %rdx
    sub $0x4444, %rsi
    sub $0x5555, %rdi
    sub $0x6666, %r8
    sub $0x7777, %r9
    sub $0x8888, %r10
    sub $0x9999, %r11
    or %rcx, %rax
    or %rdx, %rax
    or %rsi, %rax
    or %rdi, %rax
    or %r8, %rax
    or %r9, %rax
    or %r10, %rax
    or %r11, %rax
    movq %xmm0, %rcx
    sub $0x1111, %rcx
    or %rcx, %rax
    movq %xmm5, %rcx
    sub $0x2222, %rcx
    or %rcx, %rax
    movq %xmm15, %rcx
    sub $0x3333, %rcx
    or %rcx, %rax
    movzbl %bl, %ecx
    xor $1, %ecx
    or %rcx, %rax
    pop %rbx
    ret
    formend registers_live
    form keeps_flags
    nop
    nopl 8(%rax)
    ret
    formend keeps_flags

// C193: a trap of the program's own, and code around it.
    form own_trap
    nop
    int3
    lea 3(%rdi), %rax
    ret
    formend own_trap

// C090: two names of one address.
    form alias_one
    .globl alias_two
    .type alias_two, @function
    .set alias_two, alias_one
    lea 2(%rdi), %rax
    ret
    formend alias_one

// An island whose last bytes are the first of the next function, which only the kernel can probe: the
// kernel's breakpoint there would be a part of the branch. In a program linked low no branch of
// island_user's leads anywhere else: the first bytes behind it make every other one negative, and the
// fillers leave no other padding within a short branch.
    form filler_before
    .fill 140, 1, 0x90
    ret
    formend filler_before
    xchg %ax, %ax
    .globl kernel_only
    .type kernel_only, @function
kernel_only:
    movzwl (%rdi), %edx
1:  mov %rdi, %rax
    sub $1, %edx
    jg 1b
    movzwl (%rdi), %eax
    ret
    .size kernel_only, . - kernel_only
    .globl island_user
    .type island_user, @function
island_user:
    push %r12
2:  mov $0x3fc, %r12
    sub $1, %rdi
    jg 2b
    lea 1(%r12), %rax
    pop %r12
    ret
    .size island_user, . - island_user
    .globl filler_behind
    .type filler_behind, @function
filler_behind:
    .fill 140, 1, 0x90
    ret
    .size filler_behind, . - filler_behind

    .data
    .p2align 3
    .globl cell
cell: .long 2
    .globl stored
stored: .long 0
returns_five_at: .quad returns_five

    .section .note.GNU-stack, "", @progbits

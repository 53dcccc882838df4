// Instruction forms that a probe may displace. Each is a window of one or more instructions; tests run it
// bare and displaced. Data and branch targets lie in the same section, so that it can be copied
// anywhere as a whole.
//
// READ forms are not run, since the emulator knows them wrong or not at all; their copies are read back.
//
// FORM name, pointers, code: `pointers` is a set of registers (bit n: register n) that hold addresses of
// scratch memory when the window is entered.

    .macro FORM name, pointers, code
771:
    \code
772:
    .byte 0xf4 // hlt: never reached, a window's end is another form's start otherwise
    .pushsection .rodata.forms_names, "a"
773: .asciz "\name"
    .popsection
    .pushsection .data.rel.ro.forms_table, "aw"
    .quad 771b, 772b, 773b, \pointers
    .popsection
    .endm

    .macro READ code
774:
    \code
775:
    .byte 0xf4
    .pushsection .data.rel.ro.forms_read, "aw"
    .quad 774b, 775b, 0, 0
    .popsection
    .endm

    .set RAX, 1
    .set RCX, 2
    .set RDX, 4
    .set RBX, 8
    .set RBP, 0x20
    .set RSI, 0x40
    .set RDI, 0x80
    .set R12, 0x1000
    .set R13, 0x2000

    .section .data.rel.ro.forms_table, "aw"
    .balign 8
    .globl forms_table
    .hidden forms_table
forms_table:

    .section .data.rel.ro.forms_read, "aw"
    .balign 8
    .globl forms_read
    .hidden forms_read
forms_read:

    .section .text.forms, "ax"
    .balign 4096
    .globl forms_text
    .hidden forms_text
forms_text:
    .skip 512, 0x90
out_before:
    .skip 512, 0x90
    // Plain instructions.
    FORM "push", 0, "push %rbp"
    FORM "push r12", 0, "push %r12"
    FORM "pop", 0, "pop %rbx"
    FORM "pushf", 0, "pushf"
    FORM "popf", 0, "pushf; popf"
    FORM "leave", RBP, "leave"
    FORM "ret", 0, "ret"
    FORM "ret imm", 0, "ret $24"
    FORM "rep ret", 0, "rep ret"
    FORM "red zone", 0, "mov -8(%rsp),%rax; mov %rcx,-128(%rsp)"
    FORM "xlat", RBX, "movzbl %al,%eax; xlat"
    FORM "movs", RSI|RDI, "movsq"
    FORM "rep movs", RSI|RDI, "mov $3,%ecx; rep movsb"
    FORM "lock xadd", RSI, "lock xadd %rax,(%rsi)"
    FORM "lahf", 0, "lahf; sahf"
    FORM "setcc", 0, "seto %al; setc %bl"
    FORM "adc", 0, "adc %rcx,%rdx; sbb $7,%ebx"
    FORM "movabs", 0, "movabs $0x1122334455667788,%r9"
    FORM "segment", 0, "mov %fs:8,%rax"
    // pc-relative data, in every place an operand can have it.
    FORM "mov load 8", 0, "mov data+3(%rip),%bh"
    FORM "mov load 16", 0, "mov data+2(%rip),%ax"
    FORM "mov load 32", 0, "mov data+4(%rip),%r10d"
    FORM "mov load 64", 0, "mov data+8(%rip),%r15"
    FORM "mov store 8", 0, "mov %dil,data+5(%rip)"
    FORM "mov store 64", 0, "mov %r8,data+16(%rip)"
    FORM "mov imm 8", 0, "movb $0x5a,data+1(%rip)"
    FORM "mov imm 16", 0, "movw $0x1234,data+1(%rip)"
    FORM "mov imm 32", 0, "movl $0x12345678,data+1(%rip)"
    FORM "mov imm 64", 0, "movq $-2,data+1(%rip)"
    FORM "cmp imm 8", 0, "cmpb $0,data+9(%rip)"
    FORM "cmp imm 32", 0, "cmpl $0x70000000,data+9(%rip)"
    FORM "cmp imm 64", 0, "cmpq $-1,data+9(%rip)"
    FORM "cmp reg", 0, "cmp data+9(%rip),%r11"
    FORM "test imm", 0, "testl $0x8001,data+9(%rip)"
    FORM "add imm", 0, "addw $0x777,data+32(%rip)"
    FORM "sub reg", 0, "sub %rbx,data+32(%rip)"
    FORM "inc", 0, "incl data+40(%rip)"
    FORM "lock inc", 0, "lock incq data+40(%rip)"
    FORM "neg", 0, "negq data+48(%rip)"
    FORM "not", 0, "notb data+48(%rip)"
    FORM "mul", 0, "mulq data+56(%rip)"
    FORM "imul imm 8", 0, "imul $7,data+56(%rip),%rcx"
    FORM "imul imm 32", 0, "imul $70000,data+56(%rip),%r13"
    FORM "shl imm", 0, "shlq $5,data+64(%rip)"
    FORM "shl 1", 0, "shll data+64(%rip)"
    FORM "rol cl", 0, "rolq %cl,data+64(%rip)"
    FORM "shld cl", 0, "shld %cl,%rax,data+64(%rip)"
    FORM "bt imm", 0, "btl $3,data+64(%rip)"
    FORM "bts imm", 0, "btsq $35,data+64(%rip)"
    FORM "xchg", 0, "xchg %rax,data+72(%rip)"
    FORM "xadd", 0, "lock xadd %edx,data+72(%rip)"
    FORM "cmpxchg", 0, "lock cmpxchg %rcx,data+72(%rip)"
    FORM "cmpxchg16b", 0, "lock cmpxchg16b data+80(%rip)"
    FORM "movzx", 0, "movzbl data+80(%rip),%esi"
    FORM "movsx", 0, "movslq data+80(%rip),%r14"
    FORM "setcc store", 0, "setle data+81(%rip)"
    FORM "cmov", 0, "cmovb data+88(%rip),%rdx"
    FORM "push mem", 0, "pushq data+88(%rip)"
    FORM "pop mem", 0, "popq data+88(%rip)"
    FORM "movaps load", 0, "movaps data+96(%rip),%xmm1"
    FORM "movups store", 0, "movups %xmm2,data+97(%rip)"
    FORM "pshufd imm", 0, "pshufd $0x1b,data+96(%rip),%xmm0"
    FORM "cvtsi2sd", 0, "cvtsi2sdq data+96(%rip),%xmm3"
    FORM "pcmpistri", 0, "pcmpistri $0x0c,data+96(%rip),%xmm1"
    FORM "palignr", 0, "palignr $5,data+96(%rip),%xmm2"
    FORM "lea 64", 0, "lea data+100(%rip),%rdi"
    FORM "lea r13", 0, "lea data+100(%rip),%r13"
    FORM "lea 32", 0, "lea data+100(%rip),%r9d"
    FORM "lea 16", 0, "lea data+100(%rip),%dx"
    FORM "lea code", 0, "lea out_after(%rip),%rax"
    FORM "two pc-relative", 0, "mov data+8(%rip),%rax; cmpl $3,data+4(%rip)"
    FORM "load then use", 0, "mov table(%rip),%rcx; movl $1,(%rcx)"
    // Direct jumps and conditional branches, short and long, both ways.
    FORM "jmp short", 0, "jmp 1f; 1:"
    FORM "jmp long", 0, "{disp32} jmp out_after"
    FORM "jmp back", 0, "jmp out_before"
    FORM "jo", 0, "jo out_after"
    FORM "jno", 0, "jno out_after"
    FORM "jb", 0, "jb out_before"
    FORM "jae", 0, "jae out_before"
    FORM "je", 0, "je out_after"
    FORM "jne", 0, "jne out_after"
    FORM "jbe", 0, "jbe out_after"
    FORM "ja", 0, "ja out_after"
    FORM "js", 0, "js out_after"
    FORM "jns", 0, "jns out_after"
    FORM "jp", 0, "jp out_after"
    FORM "jnp", 0, "jnp out_after"
    FORM "jl", 0, "jl out_after"
    FORM "jge", 0, "jge out_after"
    FORM "jle", 0, "jle out_after"
    FORM "jg", 0, "jg out_after"
    FORM "jcc hinted", 0, "ds jne out_after"
    FORM "jcc short", 0, ".byte 0x74, 0x30"
    FORM "jcc short back", 0, ".byte 0x75, 0xf0"
    FORM "jcc self", 0, ".byte 0x72, 0xfe"
    FORM "test je", 0, "test %eax,%eax; je out_after"
    FORM "test jne ret", 0, "test %edi,%edi; .byte 0x75, 0x20; ret"
    FORM "loop", 0, "loop .+20"
    FORM "loope", 0, "loope .+20"
    FORM "loopne", 0, "loopne .-20"
    FORM "loop 32", 0, "addr32 loop .+20"
    FORM "jrcxz", 0, "jrcxz .+20"
    FORM "jecxz", 0, "jecxz .+20"
    FORM "loop self", 0, ".byte 0xe2, 0xfe"
    FORM "dec jne self", 0, "dec %ecx; .byte 0x75, 0xfc"
    // Into the window's own instructions.
    FORM "jcc inside", 0, "test %al,%al; .byte 0x74, 0x01; nop; inc %edx"
    FORM "jmp inside", 0, ".byte 0xeb, 0x01; nop; inc %edx"
    FORM "loop inside", 0, "mov $3,%ecx; inc %edx; .byte 0xe2, 0xfc"
    FORM "jrcxz inside", 0, ".byte 0xe3, 0x02; inc %edx; inc %ebx"
    // Calls: the return address is the original one.
    FORM "call", 0, "call out_after"
    FORM "call back", 0, "call out_before"
    FORM "call next", 0, "call 1f; 1:"
    FORM "call prefixed", 0, ".byte 0x66, 0x66, 0x48; call out_after"
    FORM "push call", 0, "push %rbp; call out_after"
    FORM "call rax", RAX, "call *%rax"
    FORM "call r12", R12, "call *%r12"
    FORM "notrack call", RDX, "notrack call *%rdx"
    FORM "call (rax)", RAX, "call *(%rax)"
    FORM "call 8(rax)", RAX, "call *8(%rax)"
    FORM "call (r12)", R12, "call *(%r12)"
    FORM "call (r13)", R13, "call *(%r13)"
    FORM "call sib", RBX, "mov $2,%ecx; call *0x100(%rbx,%rcx,8)"
    FORM "call (rsp)", 0, "call *(%rsp)"
    FORM "call 8(rsp)", 0, "call *8(%rsp)"
    FORM "call 124(rsp)", 0, "call *124(%rsp)"
    FORM "call 4096(rsp)", 0, "call *4096(%rsp)"
    FORM "call -8(rsp)", 0, "call *-8(%rsp)"
    FORM "call -12(rsp)", 0, "call *-12(%rsp)"
    FORM "call -128(rsp)", 0, "call *-128(%rsp)"
    FORM "call fs", 0, "call *%fs:16"
    FORM "call pc-relative", 0, "call *data+8(%rip)"
    FORM "jmp pc-relative", 0, "jmp *data+8(%rip)"
    FORM "jmp rax", RAX, "jmp *%rax"
    FORM "jmp (rax)", RAX, "jmp *(%rax)"
    FORM "jmp sib", RBX, "mov $2,%ecx; notrack jmp *(%rbx,%rcx,8)"
    FORM "prologue", 0, "push %rbp; mov %rsp,%rbp; sub $0x20,%rsp"
    FORM "enter", 0, "enter $16,$0"
    FORM "five bytes", 0, "push %rax; push %rbx; push %rcx; push %rdx; pop %rax"
    READ "shld $9,%rax,data(%rip)"
    READ "shrdl $9,%eax,data(%rip)"
    READ "movbe data(%rip),%r9"
    READ "crc32b data(%rip),%eax"
    READ "adcx data(%rip),%rbx"
    READ "prefetchnta data(%rip)"
    READ "clflush data(%rip)"
    READ "vmovdqu data(%rip),%ymm3"
    READ "vmovdqu %ymm13,data(%rip)"
    READ "vpaddd data(%rip),%ymm9,%ymm1"
    READ "vpshufd $7,data(%rip),%ymm9"
    READ "vpinsrw $3,data(%rip),%xmm1,%xmm2"
    READ "vblendvps %xmm1,data(%rip),%xmm4,%xmm5"
    READ "vfmadd231pd data(%rip),%ymm12,%ymm15"
    READ "vaesenc data(%rip),%xmm1,%xmm2"
    READ "vcvtph2ps data(%rip),%ymm2"
    READ "andn data(%rip),%rcx,%rdx"
    READ "mulx data(%rip),%r8,%r9"
    READ "rorx $3,data(%rip),%r10"
    READ "pdepq data(%rip),%rax,%rbx"
    READ "vmovdqu64 data(%rip),%zmm17"
    READ "vmovdqu32 %zmm31,data(%rip)"
    READ "vpaddd data(%rip){1to16},%zmm1,%zmm2{%k1}"
    READ "vpternlogd $0x96,data(%rip),%zmm20,%zmm21"
    READ "vpcmpub $2,data(%rip),%zmm1,%k2"
    READ "vcmpps $5,data(%rip),%ymm16,%k3{%k4}"
    READ "kmovq data(%rip),%k1"
    // The B bit means nothing to a pc-relative operand, but would to the register that stands for it.
    READ ".byte 0x49, 0x8b, 0x05; .long data - . - 4"
    READ ".byte 0xc4, 0xc1, 0x71, 0xfe, 0x0d; .long data - . - 4"
    READ ".byte 0x62, 0xd1, 0xfe, 0x48, 0x6f, 0x05; .long data - . - 4"
    READ "fldl data(%rip)"
    READ "fistpll data(%rip)"
    READ "fldcw data(%rip)"
    READ "ldmxcsr data(%rip)"
    .skip 512, 0x90
out_after:
    .skip 512, 0x90
    .balign 4096
    .globl forms_data
    .hidden forms_data
forms_data:
    .skip 64
data:
    .skip 256
table:
    .skip 8
    .balign 4096
    .globl forms_end
    .hidden forms_end
forms_end:

    .section .data.rel.ro.forms_table, "aw"
    .quad 0, 0, 0, 0
    .section .data.rel.ro.forms_read, "aw"
    .quad 0, 0, 0, 0
    .section .note.GNU-stack, "", @progbits

// Every kind of instruction that a breakpoint may be set on, each once. form_run loads registers and flags
// from form_in, runs one and stores what it left into form_out.
//
//   FORM "name", registers that hold addresses of form_data
//       what has to come before
//   SITE
//       the instruction
//       what comes behind; rax is often a mark of the way that was taken
//   DONE
        .intel_syntax noprefix

        .macro FORM name, near=0
771:
        .pushsection .rodata.form_names, "a"
773:    .asciz  "\name"
        .popsection
        .pushsection .data.rel.ro.form_table, "aw"
        .quad   771b, 772f, 773b, \near
        .popsection
        .endm
        .macro SITE
772:
        .endm
        .macro DONE
        jmp     form_back
        .endm

        .section .data.rel.ro.form_table, "aw"
        .balign 8
        .globl  form_table
form_table:

        .text
        .set    N_AX, 1
        .set    N_CX, 2
        .set    N_DX, 4
        .set    N_BX, 8
        .set    N_BP, 0x20
        .set    N_SI, 0x40
        .set    N_DI, 0x80
        .set    N_R12, 0x1000
        .set    N_R13, 0x2000

// void form_run(const void *code). rsp is loaded too: all but the code's address comes from form_in.
        .globl  form_run
        .type   form_run, @function
form_run:
        push    rbx
        push    rbp
        push    r12
        push    r13
        push    r14
        push    r15
        mov     form_code[rip], rdi
        mov     form_stack[rip], rsp
        push    form_in+128[rip]
        popfq
        mov     rax, form_in[rip]
        mov     rcx, form_in+8[rip]
        mov     rdx, form_in+16[rip]
        mov     rbx, form_in+24[rip]
        mov     rsp, form_in+32[rip]
        mov     rbp, form_in+40[rip]
        mov     rsi, form_in+48[rip]
        mov     rdi, form_in+56[rip]
        mov     r8, form_in+64[rip]
        mov     r9, form_in+72[rip]
        mov     r10, form_in+80[rip]
        mov     r11, form_in+88[rip]
        mov     r12, form_in+96[rip]
        mov     r13, form_in+104[rip]
        mov     r14, form_in+112[rip]
        mov     r15, form_in+120[rip]
        jmp     form_code[rip]

form_back:
        mov     form_out[rip], rax
        mov     form_out+8[rip], rcx
        mov     form_out+16[rip], rdx
        mov     form_out+24[rip], rbx
        mov     form_out+32[rip], rsp
        mov     form_out+40[rip], rbp
        mov     form_out+48[rip], rsi
        mov     form_out+56[rip], rdi
        mov     form_out+64[rip], r8
        mov     form_out+72[rip], r9
        mov     form_out+80[rip], r10
        mov     form_out+88[rip], r11
        mov     form_out+96[rip], r12
        mov     form_out+104[rip], r13
        mov     form_out+112[rip], r14
        mov     form_out+120[rip], r15
        mov     rsp, form_stack[rip]
        pushfq
        pop     form_out+128[rip]
        cld
        pop     r15
        pop     r14
        pop     r13
        pop     r12
        pop     rbp
        pop     rbx
        ret
        .size   form_run, . - form_run

// ---- nothing
        FORM "nop"
SITE;   nop
DONE
        FORM "nop long"
SITE;   .byte   0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
DONE
        FORM "endbr64"
SITE;   endbr64
DONE
        FORM "endbr32"
SITE;   endbr32
DONE
        FORM "pause"
SITE;   pause
DONE

// ---- push
        FORM "push rax"
SITE;   push    rax
DONE
        FORM "push rsp"
SITE;   push    rsp
DONE
        FORM "push r13"
SITE;   push    r13
DONE
        FORM "push imm8"
SITE;   push    -7
DONE
        FORM "push imm32"
SITE;   push    0x12345678
DONE
        FORM "push stack"
SITE;   push    [rsp+16]
DONE
        FORM "push memory", N_AX
SITE;   push    [rax+8]
DONE
        FORM "push indexed", N_R12
        mov     ecx, 3
SITE;   push    [r12+rcx*8]
DONE
        FORM "push rip"
SITE;   push    form_data[rip]
DONE
        FORM "push 16"
SITE;   push    ax
DONE
        FORM "pushfq"
SITE;   pushfq
        pop     rax
        and     rax, 0xcd5
DONE

// ---- pop
        FORM "pop rbx"
SITE;   pop     rbx
DONE
        FORM "pop r15"
SITE;   pop     r15
DONE
        FORM "pop rsp"
        lea     rax, [rsp+64]
        mov     [rsp], rax
SITE;   pop     rsp
DONE
        FORM "pop stack"
SITE;   pop     [rsp+8]
DONE
        FORM "pop own"
SITE;   pop     [rsp]
DONE
        FORM "pop memory", N_DX
SITE;   pop     [rdx+16]
DONE
        FORM "pop rip"
SITE;   pop     form_data+24[rip]
DONE
        FORM "popfq"
        push    0x8d7
SITE;   popfq
DONE
        FORM "leave"
        lea     rbp, [rsp+40]
SITE;   leave
DONE
        FORM "enter"
SITE;   enter   32, 0
DONE

// ---- return
        FORM "ret"
        lea     rax, 1f[rip]
        push    rax
SITE;   ret
        ud2
1:
DONE
        FORM "ret imm"
        lea     rax, 1f[rip]
        push    rax
SITE;   ret     24
        ud2
1:
DONE
        FORM "rep ret"
        lea     rax, 1f[rip]
        push    rax
SITE;   .byte   0xf3, 0xc3
        ud2
1:
DONE

// ---- call
        FORM "call near"
SITE;   call    1f
        mov     eax, 1
        DONE
1:      mov     eax, 2
        ret
        FORM "call short of data16"
SITE;   .byte   0x66, 0x66, 0x48, 0xe8
        .long   1f - . - 4
        mov     eax, 1
        DONE
1:      pop     rcx
        lea     rdx, form_back[rip]
        sub     rcx, rdx
DONE
        FORM "call register"
        lea     rax, 1f[rip]
SITE;   call    rax
        mov     eax, 1
        DONE
1:      mov     ecx, 2
        ret
        FORM "call r11"
        lea     r11, 1f[rip]
SITE;   call    r11
        DONE
1:      mov     ecx, 2
        ret
        FORM "call stack"
        lea     rax, 1f[rip]
        mov     [rsp+8], rax
SITE;   call    [rsp+8]
        DONE
1:      mov     ecx, 2
        ret
        FORM "call memory", N_DI
        lea     rax, 1f[rip]
        mov     [rdi+8], rax
SITE;   call    [rdi+8]
        DONE
1:      mov     ecx, 2
        ret
        FORM "call rip"
        lea     rax, 1f[rip]
        mov     form_data[rip], rax
SITE;   call    form_data[rip]
        DONE
1:      mov     ecx, 2
        ret

// ---- jump
        FORM "jmp short"
SITE;   jmp     1f
        ud2
1:
DONE
        FORM "jmp near"
SITE;   .byte   0xe9
        .long   1f - . - 4
        ud2
1:
DONE
        FORM "jmp back"
        jmp     2f
1:      mov     eax, 5
        DONE
2:
SITE;   jmp     1b
        FORM "jmp register"
        lea     rdx, 1f[rip]
SITE;   jmp     rdx
        ud2
1:
DONE
        FORM "jmp memory", N_SI
        lea     rax, 1f[rip]
        mov     [rsi], rax
SITE;   jmp     [rsi]
        ud2
1:
DONE
        FORM "jmp stack"
        lea     rax, 1f[rip]
        mov     [rsp+16], rax
SITE;   notrack jmp [rsp+16]
        ud2
1:
DONE

// ---- conditional jump, short and near
        .macro CONDITION op
        FORM "\op"
SITE;   \op     1f
        mov     eax, 1
        DONE
1:      mov     eax, 2
DONE
        .endm
        .irp op, jo, jno, jb, jae, je, jne, jbe, ja, js, jns, jp, jnp, jl, jge, jle, jg
        CONDITION \op
        .endr
        FORM "jne near"
SITE;   .byte   0x0f, 0x85
        .long   1f - . - 4
        mov     eax, 1
        DONE
1:      mov     eax, 2
DONE
        .macro LOOPING name, low, code:vararg
        FORM "\name"
        pushfq
        and     ecx, \low
        popfq
SITE;   \code
        mov     eax, 1
        DONE
1:      mov     eax, 2
DONE
        .endm
        LOOPING "loop", 3, loop 1f
        LOOPING "loope", 3, loope 1f
        LOOPING "loopne", 3, loopne 1f
        LOOPING "jrcxz", 1, jrcxz 1f
        LOOPING "jecxz", 1, jecxz 1f
        LOOPING "loop 32", 3, addr32 loop 1f

// ---- lea
        FORM "lea rip"
SITE;   lea     rax, form_data[rip]
DONE
        FORM "lea indexed"
SITE;   lea     rdi, [rsi+rax*4+8]
DONE
        FORM "lea 32"
SITE;   lea     r9d, [r12+r13*2-0x80]
DONE
        FORM "lea 16"
SITE;   lea     ax, [rbp+r8]
DONE
        FORM "lea narrow"
SITE;   lea     rdx, [eax+ecx*8+0x1000]
DONE
        FORM "lea rsp"
SITE;   lea     rsp, [rsp-0x28]
DONE

// ---- what no simulator does: slots
        FORM "mov register"
SITE;   mov     rbp, rsp
DONE
        FORM "mov immediate"
SITE;   movabs  rax, 0x1122334455667788
DONE
        FORM "mov load", N_BX
SITE;   mov     rax, [rbx]
DONE
        FORM "mov store rip"
SITE;   mov     dword ptr form_data+8[rip], 0x12345678
DONE
        FORM "mov red zone"
SITE;   mov     [rsp-128], rdx
        mov     rax, [rsp-128]
DONE
        FORM "mov fs"
SITE;   mov     rax, fs:0
        sub     rax, fs:0
DONE
        FORM "movzx"
SITE;   movzx   eax, byte ptr form_data+3[rip]
DONE
        FORM "xchg", N_R13
SITE;   xchg    rax, [r13]
DONE
        FORM "add"
SITE;   add     rax, form_data[rip]
DONE
        FORM "sub rsp"
SITE;   sub     rsp, 0x18
DONE
        FORM "imul"
SITE;   imul    eax, ecx, 7
DONE
        FORM "lock xadd", N_DI
SITE;   lock xadd [rdi], rax
DONE
        FORM "cmpxchg"
SITE;   lock cmpxchg form_data[rip], rdx
DONE
        FORM "div"
        xor     edx, edx
        or      ecx, 1
SITE;   div     ecx
        test    eax, eax
DONE
        FORM "xor"
SITE;   xor     eax, edx
DONE
        FORM "shift"
SITE;   shl     rax, 3
        test    rax, rax
DONE
        FORM "bt"
SITE;   bt      rax, 5
        setc    al
        test    al, al
DONE
        FORM "bsf"
        or      rcx, 256
SITE;   bsf     rax, rcx
        test    eax, eax
DONE
        FORM "cmov"
SITE;   cmovz   rax, form_data[rip]
DONE
        FORM "setcc"
SITE;   setnz   al
DONE
        FORM "stc"
SITE;   stc
DONE
        FORM "rep movsb", N_SI|N_DI
        mov     ecx, 13
SITE;   rep movsb
DONE
        FORM "cvt"
SITE;   cvtsi2sd xmm0, rax
        movq    rax, xmm0
DONE
        FORM "cqo"
SITE;   cqo
DONE
        FORM "mfence"
SITE;   mfence
DONE
        FORM "prefetch"
SITE;   prefetcht0 form_data[rip]
DONE
        FORM "xlatb", N_BX
        and     eax, 63
SITE;   xlatb
DONE
        FORM "x87"
SITE;   fnstcw  [rsp]
DONE
        FORM "sse"
        movq    xmm0, rax
SITE;   paddq   xmm0, form_vector[rip]
        movq    rax, xmm0
DONE
        .pushsection .data.rel.ro.form_table, "aw"
        .quad   0, 0, 0, 0
        .popsection

        .section .data
        .balign 16
        .globl  form_vector
form_vector:
        .quad   0x123456789abcdef, 0x1f
        .bss
        .balign 64
        .globl  form_in
        .globl  form_out
        .globl  form_data
form_in: .skip   136
        .balign 64
form_out: .skip  136
form_code: .skip 8
form_stack: .skip 8
        .balign 64
form_data: .skip 256

        .section .note.GNU-stack, "", @progbits

# A restartable sequence as the kernel's linux/rseq.h describes it, and one that only the pointer array names.
    .text
    .globl main
    .type main,@function
main:
    nop
rseq_start:
    mov $1,%eax
    mov $2,%eax
rseq_commit:
    nop
    ret
    .long 0x53053053
rseq_abort:
    jmp main
    .size main,.-main
    .globl second
    .type second,@function
second:
    nop
    mov $3,%eax
second_commit:
    ret
    .long 0x53053053
second_abort:
    jmp second
    .size second,.-second

# Keeps every register by its own convention.
    .globl __morestack_probe
    .type __morestack_probe,@function
__morestack_probe:
    nop
    ret
    .size __morestack_probe,.-__morestack_probe

    .section __rseq_cs,"aw"
    .balign 32
    .long 0, 0
    .quad rseq_start, rseq_commit - rseq_start, rseq_abort
    .section .data.rel.ro,"aw"
    .balign 32
elsewhere:
    .long 0, 0
    .quad second, second_commit - second, second_abort
    .section __rseq_cs_ptr_array,"aw"
    .quad elsewhere
    .section .note.GNU-stack,"",@progbits

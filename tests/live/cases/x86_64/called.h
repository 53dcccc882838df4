// called() of modes.c: gives back its argument and 1.
#define CALLED_TEXT                                                                                \
    "    push %rbx\n"                                                                              \
    "    lea 1(%rdi), %rbx\n"                                                                      \
    "    mov %rbx, %rax\n"                                                                         \
    "    pop %rbx\n"                                                                               \
    "    ret\n"
#define CALLED_CODE "\x53\x48\x8d\x5f\x01\x48\x89\xd8\x5b\xc3" // the same, assembled

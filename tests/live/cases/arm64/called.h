// called() of modes.c: gives back its argument and 1.
#define CALLED_TEXT                                                                                \
    "    str x19, [sp, #-16]!\n"                                                                   \
    "    add x19, x0, #1\n"                                                                        \
    "    mov x0, x19\n"                                                                            \
    "    ldr x19, [sp], #16\n"                                                                     \
    "    ret\n"
// The same, assembled.
#define CALLED_CODE                                                                                \
    "\xf3\x0f\x1f\xf8\x13\x04\x00\x91\xe0\x03\x13\xaa\xf3\x07\x41\xf8\xc0\x03\x5f\xd6"

// called() of modes.c: gives back its argument and 1.
#define CALLED_TEXT                                                                                \
    "    .option push\n"                                                                           \
    "    .option rvc\n"                                                                            \
    "    addi sp, sp, -16\n"                                                                       \
    "    sd s1, 0(sp)\n"                                                                           \
    "    addi s1, a0, 1\n"                                                                         \
    "    mv a0, s1\n"                                                                              \
    "    ld s1, 0(sp)\n"                                                                           \
    "    addi sp, sp, 16\n"                                                                        \
    "    ret\n"                                                                                    \
    "    .option pop\n"
// The same, assembled.
#define CALLED_CODE "\x41\x11\x26\xe0\x93\x04\x15\x00\x26\x85\x82\x64\x41\x01\x82\x80"

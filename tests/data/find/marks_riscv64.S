// Data between functions of other extensions: the assembler's mark of code names the extensions where they change.
        .option norelax
        .text
        .macro function name
        .globl \name
        .type \name, @function
\name:
        ret
        .size \name, . - \name
        .endm
        .option norvc
        .globl _start
function _start
        .quad 0x1122334455667788
        .option rvc
function compressed
        .quad 0x1122334455667788
function as_before
        .quad 0x1122334455667788

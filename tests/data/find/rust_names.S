# Functions with the names that rustc writes: the legacy form and v0, plain, generic and in an impl.
    .text
    .macro function name
    .globl \name
    .type \name,@function
\name:
    xor %eax,%eax
    ret
    .size \name,.-\name
    .endm
    function _ZN5krate6module8function17h0123456789abcdefE
    function _RNvNtCs1234_5krate6module5plain
    function _RINvNtCs1234_5krate6module7genericlE
    function _RNvMNtCs1234_5krate6moduleNtB2_5Thing6method
    .globl main
    .type main,@function
main:
    xor %eax,%eax
    ret
    .size main,.-main
    .section .note.GNU-stack,"",@progbits

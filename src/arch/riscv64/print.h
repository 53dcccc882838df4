// The words in which isa/riscv.isa says how a number is printed. Private to this folder.
#ifndef TL_ARCH_RISCV64_PRINT_H
#define TL_ARCH_RISCV64_PRINT_H

// {FIELD+FIELD:word} of a text.
enum print {
    PRINT_NONE,
    PRINT_CHOICE, // one of the words of the text itself
    PRINT_X,      // general register by its name in the calling convention
    PRINT_XC,     // of a field of 3 bits
    PRINT_F,      // floating point register
    PRINT_FC,
    PRINT_V,        // vector register
    PRINT_D,        // decimal, signed
    PRINT_H,        // 0xhexadecimal
    PRINT_UPPER,    // the same of 20 bits
    PRINT_LABEL,    // the target
    PRINT_CSR,      // control and status register, the highest 12 bits of the word
    PRINT_CSR_FROM, // what is written there: a register or a number
    PRINT_ORDER,    // what a fence orders
    PRINT_VTYPE,
    PRINT_FLI, // a floating point constant
};

// No text has a condition that bits alone don't tell.
enum check { CHECK_NONE };

#endif

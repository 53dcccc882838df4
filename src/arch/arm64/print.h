// The words in which isa/arm64.isa says how a number is printed. Private to this folder.
#ifndef TL_ARCH_ARM64_PRINT_H
#define TL_ARCH_ARM64_PRINT_H

#include "base/types.h"

// {FIELD+FIELD:word} of a text. Registers: r is w or x as the highest bit says, x and w are those, s behind:
// 31 is the stack pointer.
enum print {
    PRINT_NONE,
    PRINT_CHOICE,      // one of the words of the text itself
    PRINT_R,
    PRINT_RS,
    PRINT_X,
    PRINT_XS,
    PRINT_W,
    PRINT_RB,          // x if its bit 5 is set
    PRINT_RZ,          // x if the size (the two highest bits) is 3
    PRINT_RLD,         // as the size and the opc of a load say
    PRINT_R30,         // x if bit 30 is set
    PRINT_R30_NEXT,    // the register behind it
    PRINT_RX,          // extension and register: x for a whole one, in 64 bits
    PRINT_RO,          // the same of an address
    PRINT_FPAIR,       // s, d or q by the two bits above
    PRINT_FSIZE,       // b, h, s, d or q by the three bits above
    PRINT_U,           // #decimal
    PRINT_I,           // #decimal, signed
    PRINT_H,           // #hexadecimal
    PRINT_C,           // c and the number
    PRINT_LABEL,       // the target
    PRINT_BACK,        // an address that lies as many words before
    PRINT_COND,
    PRINT_COND_NOT,
    PRINT_SHIFT,       // kind and amount, nothing if it is by nothing
    PRINT_EXTEND,      // the same of an extension
    PRINT_EXT,         // the same of an address
    PRINT_OFF,         // ", #decimal", nothing if 0
    PRINT_OFF_SIZE,    // the same, in units of the access
    PRINT_PAIR_OFF,
    PRINT_PAIR_IMM,
    PRINT_BITMASK,
    PRINT_BITMASK_MOV, // with the comment of a move
    PRINT_WIDE,
    PRINT_BITFIELD,
    PRINT_PRFOP,
    PRINT_PSTATE,
    PRINT_SYSREG,
    PRINT_SYS,
    PRINT_BARRIER,
    PRINT_HINT,
};

// ?word: a condition that bits alone don't tell.
enum check {
    CHECK_NONE,
    CHECK_BITMASK_MOV, // no wide move has the same constant
    CHECK_WIDE_MOV,    // the constant of a wide move is written so
    CHECK_COND,        // the condition has an opposite
};
bool tl_arm64_text_check(unsigned check, uint32_t word);

#endif

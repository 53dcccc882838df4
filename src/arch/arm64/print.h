// The words in which isa/arm64.isa says how a number is printed. Private to this folder.
#ifndef TL_ARCH_ARM64_PRINT_H
#define TL_ARCH_ARM64_PRINT_H

#include "analyse/insn.h"

// {FIELD+FIELD:word} of a text. Registers: r is w or x as the highest bit says, x and w are those, s behind:
// 31 is the stack pointer.
enum print {
    PRINT_NONE,
    PRINT_CHOICE,      // one of the words of the text itself
    PRINT_R,
    PRINT_RS,
    PRINT_X,
    PRINT_XS,
    PRINT_X_NEXT,
    PRINT_W,
    PRINT_WSP,
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
    // Vectors, in print_vector.c. V: lanes as size and q say; LONG, W: lanes twice as wide (W: of a whole
    // register); VF: of s or d, HALF: half as wide, FULL: of a whole register, LOW: two of them.
    PRINT_V,
    PRINT_V_LONG,
    PRINT_VW,
    PRINT_VF,
    PRINT_VF_HALF,
    PRINT_VF_FULL,
    PRINT_VF_LOW,
    PRINT_V_2H, // two halves
    PRINT_V2H,  // two or four
    PRINT_VB,   // lanes of b, h, s in as many bytes as q says
    PRINT_VH,
    PRINT_VS,
    PRINT_V16B,
    PRINT_V8H,
    PRINT_V4S,
    PRINT_V2D,
    PRINT_V5,  // as imm5 says
    PRINT_VI,  // as immh says
    PRINT_VWI, // twice as wide
    PRINT_H_REG,
    PRINT_S_REG,
    PRINT_D_REG,
    PRINT_Q_REG,
    PRINT_FT,     // as ftype says
    PRINT_F_LONG, // twice as wide as size says
    PRINT_FI,     // as immh says
    PRINT_FI_LONG,
    PRINT_F5, // as imm5 says
    PRINT_W5, // a general register, as imm5 says
    PRINT_TOP,
    PRINT_ELEM,  // a lane as imm5 says
    PRINT_ELEM4, // its size as imm5 says, its place as imm4
    PRINT_S_LANE,
    PRINT_TLIST,
    PRINT_VIDX, // a lane by size, l, m, rm and h
    PRINT_FIDX,
    PRINT_HIDX,
    PRINT_CIDX,
    PRINT_CSIDX,
    PRINT_BIDX,
    PRINT_B2IDX,
    PRINT_SHR,
    PRINT_SHL,
    PRINT_MINUS64,
    PRINT_FIMM,
    PRINT_MASK64,
    PRINT_VLIST,
    PRINT_VREP,
    PRINT_VLANE,
    PRINT_POST,
    PRINT_Z,
    PRINT_ZS, // its lanes as size says
    PRINT_P,
    // Scalable vectors, in print_scalable.c. N: a plain number; times 2, 4, 8; S: the lowest places of one that begins
    // again at 16. With what is added to it behind.
    PRINT_N,
    PRINT_N_1,
    PRINT_N_2,
    PRINT_N_3,
    PRINT_N_8,
    PRINT_N_12,
    PRINT_N2,
    PRINT_N2_1,
    PRINT_N2_2,
    PRINT_N2_16,
    PRINT_N2_17,
    PRINT_N4,
    PRINT_N4_3,
    PRINT_N8,
    PRINT_S8,
    PRINT_S8_8,
    PRINT_S4,
    PRINT_S4_4,
    PRINT_S4_8,
    PRINT_S4_12,
    PRINT_ZT,     // size by the highest bit of tsz
    PRINT_ZT2,    // the next larger
    PRINT_ZT13,   // size by the 13 bits of a mask
    PRINT_ZLOW,   // size by the lowest bit
    PRINT_ZELEM,  // a lane by what is above that
    PRINT_ZK,     // 20 to 23 and 28 to 31
    PRINT_ZMASK,  // the mask
    PRINT_ZCPY,   // a byte with its sign, shifted by 8 or not
    PRINT_ZADD,   // the same without a sign
    PRINT_ZCOUNT, // times and pattern, nothing for once all
    PRINT_ZPRF,
    PRINT_P_1,    // the predicate behind it
    PRINT_ZEROED, // tiles, a bit each
    PRINT_MINUS16,
    PRINT_OPEN,   // {
    PRINT_ZVL,    // ", #decimal, mul vl", nothing if 0; times 2 to 4
    PRINT_ZVL2,
    PRINT_ZVL3,
    PRINT_ZVL4,
};

// ?word: a condition that bits alone don't tell.
enum check {
    CHECK_NONE,
    CHECK_BITMASK_MOV, // no wide move has the same constant
    CHECK_WIDE_MOV,    // the constant of a wide move is written so
    CHECK_COND,        // the condition has an opposite
};
#define TEXT_SIZE 128
struct text_out {
    char text[TEXT_SIZE];
    size_t used;
    const struct tl_insn *insn;
    uint32_t word;
};

void __attribute__((format(printf, 2, 3))) tl_arm64_put(struct text_out *out, const char *format, ...);
// false: not a kind of vectors.
bool tl_arm64_put_vector(struct text_out *out, unsigned kind, uint32_t number);
bool tl_arm64_put_scalable(struct text_out *out, unsigned kind, uint32_t number);
bool tl_arm64_text_check(unsigned check, uint32_t word);

#endif

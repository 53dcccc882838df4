// Writes arm64 code into a bounded buffer: words, branches, addresses, literals. Shared by the
// files of the emitter.
//
// A full buffer sets `full` and drops what does not fit; the caller looks once, at the end.
// Positions are offsets from the start of the buffer, which lies at `at` in the target. Encodings:
// Arm ARM (DDI 0487), C6.2 "Alphabetical list of A64 base instructions".
#ifndef TL_ARCH_ARM64_WRITER_H
#define TL_ARCH_ARM64_WRITER_H

#include "base/types.h"

#define TL_WORDS_LITERALS_MAX 16
#define TL_WORDS_REFS_MAX 24

// Registers by number; 31 is the zero register or the stack pointer, as the instruction says.
enum { REG_IP0 = 16, REG_IP1 = 17, REG_FP = 29, REG_LINK = 30, REG_SP = 31, REG_ZERO = 31 };

struct tl_words {
    uint8_t *bytes;
    uint16_t size, capacity;
    bool full; // something did not fit
    tl_addr at;
    uint64_t literal[TL_WORDS_LITERALS_MAX];
    uint16_t literal_count;
    struct {
        uint16_t position; // of the load
        uint8_t literal;
    } ref[TL_WORDS_REFS_MAX];
    uint16_t ref_count;
};

static inline tl_addr tl_words_here(const struct tl_words *w)
{
    return w->at + w->size;
}

// Words with their fields filled in.
#define A64_B 0x14000000u
#define A64_BL 0x94000000u
#define A64_BR(rn) (0xd61f0000u | (uint32_t)(rn) << 5)
#define A64_BLR(rn) (0xd63f0000u | (uint32_t)(rn) << 5)
#define A64_CBZ_X(rt) (0xb4000000u | (uint32_t)(rt))
#define A64_CBNZ_W(rt) (0x35000000u | (uint32_t)(rt))
#define A64_NOP 0xd503201fu
#define A64_BRK 0xd42e8d80u // tl_arch_arm64.breakpoint
#define A64_MOV_X(rd, rm) (0xaa0003e0u | (uint32_t)(rm) << 16 | (uint32_t)(rd))
#define A64_MOV_W(rd, rm) (0x2a0003e0u | (uint32_t)(rm) << 16 | (uint32_t)(rd))
#define A64_ADD_IMM(rd, rn, imm)                                                                   \
    (0x91000000u | (uint32_t)(imm) << 10 | (uint32_t)(rn) << 5 | (uint32_t)(rd))
#define A64_ADD_IMM_12(rd, rn, imm) (A64_ADD_IMM(rd, rn, imm) | 1u << 22) // imm << 12
#define A64_ADD_X(rd, rn, rm)                                                                      \
    (0x8b000000u | (uint32_t)(rm) << 16 | (uint32_t)(rn) << 5 | (uint32_t)(rd))
#define A64_UBFX_X(rd, rn, low, width)                                                             \
    (0xd3400000u | (uint32_t)(low) << 16 | ((uint32_t)(low) + (width)-1u) << 10 |                  \
     (uint32_t)(rn) << 5 | (uint32_t)(rd))
#define A64_MRS_TPIDR(rt) (0xd53bd040u | (uint32_t)(rt))
#define A64_MRS_NZCV(rt) (0xd53b4200u | (uint32_t)(rt))
#define A64_MSR_NZCV(rt) (0xd51b4200u | (uint32_t)(rt))
#define A64_LDR_X(rt, rn, off)                                                                     \
    (0xf9400000u | (uint32_t)((off) / 8) << 10 | (uint32_t)(rn) << 5 | (uint32_t)(rt))
#define A64_STR_X(rt, rn, off)                                                                     \
    (0xf9000000u | (uint32_t)((off) / 8) << 10 | (uint32_t)(rn) << 5 | (uint32_t)(rt))
#define A64_LDR_X_INDEX(rt, rn, rm) /* [rn, rm, lsl #3] */                                         \
    (0xf8607800u | (uint32_t)(rm) << 16 | (uint32_t)(rn) << 5 | (uint32_t)(rt))
#define A64_STR_PUSH(rt, size) /* str rt, [sp, #-size]! */                                         \
    (0xf8000c00u | ((uint32_t) - (size)&0x1ffu) << 12 | (uint32_t)REG_SP << 5 | (uint32_t)(rt))
#define A64_LDR_POP(rt, size) /* ldr rt, [sp], #size */                                            \
    (0xf8400400u | (uint32_t)(size) << 12 | (uint32_t)REG_SP << 5 | (uint32_t)(rt))
#define A64_PAIR(rt, rt2, off)                                                                     \
    ((((uint32_t)((off) / 8)) & 0x7fu) << 15 | (uint32_t)(rt2) << 10 | (uint32_t)REG_SP << 5 |     \
     (uint32_t)(rt))
#define A64_STP_PUSH(rt, rt2, size) (0xa9800000u | A64_PAIR(rt, rt2, -(size)))
#define A64_LDP_POP(rt, rt2, size) (0xa8c00000u | A64_PAIR(rt, rt2, size))
#define A64_STP(rt, rt2, off) (0xa9000000u | A64_PAIR(rt, rt2, off)) // [sp, #off]
#define A64_LDP(rt, rt2, off) (0xa9400000u | A64_PAIR(rt, rt2, off))
#define A64_STADD_X(rs, rn) (0xf820001fu | (uint32_t)(rs) << 16 | (uint32_t)(rn) << 5)
#define A64_LDXR_X(rt, rn) (0xc85f7c00u | (uint32_t)(rn) << 5 | (uint32_t)(rt))
#define A64_STXR_X(rs, rt, rn)                                                                     \
    (0xc8007c00u | (uint32_t)(rs) << 16 | (uint32_t)(rn) << 5 | (uint32_t)(rt))

void tl_words_put(struct tl_words *w, uint32_t word);
// Sets the displacement of a direct branch or of a literal load, from its own address. false: that
// is no such word, or out of reach.
bool tl_word_aim(uint32_t *word, int64_t disp);
// A branch of any form, or a literal load, that leads to an address. false: out of reach, nothing
// is written.
bool tl_words_put_aimed(struct tl_words *w, uint32_t word, tl_addr to);
// The same with an open end, to be closed. Returns where it lies.
uint16_t tl_words_open(struct tl_words *w, uint32_t word);
// Leads the branch at position to offset `to`.
void tl_words_close(struct tl_words *w, uint16_t position, uint16_t to);
// rd = value: by its distance from here, else as a literal.
void tl_words_put_address(struct tl_words *w, unsigned rd, uint64_t value);
// The same, but for the low 12 bits if adrp does the rest: those are returned, to be added by a
// load; `scale`, a power of two, divides them.
unsigned tl_words_put_page(struct tl_words *w, unsigned rd, uint64_t value, unsigned scale);
// A constant of 32 bits.
void tl_words_put_constant(struct tl_words *w, unsigned rd, uint32_t value);
// rd = rn + value; value below 2^24. rn may be the stack pointer.
void tl_words_put_add(struct tl_words *w, unsigned rd, unsigned rn, uint32_t value);
// Writes the literals, 8-byte aligned in the target, and fills in their references.
void tl_words_put_literals(struct tl_words *w);

#endif

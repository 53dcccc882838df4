// Writes riscv64 code into a bounded buffer: instructions of one or two parcels (16 bits each),
// branches, addresses, literals. Shared by the files of the emitter.
//
// A full buffer sets `full` and drops what does not fit; the caller looks once, at the end.
// Positions are offsets from the start of the buffer, which lies at `at` in the target. Where a
// compressed form says the same it is taken. Encodings: RISC-V ISA manual volume I, "RV32I Base
// Integer Instruction Set", "RV64I", "C Extension".
#ifndef TL_ARCH_RISCV64_WRITER_H
#define TL_ARCH_RISCV64_WRITER_H

#include "base/types.h"

#define TL_PARCELS_LITERALS_MAX 16
#define TL_PARCELS_REFS_MAX 32

enum { X_ZERO = 0, X_RA = 1, X_SP = 2, X_GP = 3, X_TP = 4, X_T0 = 5, X_T1 = 6, X_T2 = 7 };

struct tl_parcels {
    uint8_t *bytes;
    uint16_t size, capacity;
    bool full; // something did not fit
    tl_addr at;
    uint64_t literal[TL_PARCELS_LITERALS_MAX];
    uint16_t literal_count;
    struct {
        uint16_t position; // of the auipc; the load is behind it
        uint8_t literal;
    } ref[TL_PARCELS_REFS_MAX];
    uint16_t ref_count;
};

static inline tl_addr tl_parcels_here(const struct tl_parcels *w)
{
    return w->at + w->size;
}

// Words with their fields filled in.
#define RV_I(opcode, funct3, rd, rs1, imm)                                                         \
    ((uint32_t)(imm) << 20 | (uint32_t)(rs1) << 15 | (uint32_t)(funct3) << 12 |                    \
     (uint32_t)(rd) << 7 | (uint32_t)(opcode))
#define RV_ADDI(rd, rs1, imm) RV_I(0x13, 0, rd, rs1, imm)
#define RV_ADDIW(rd, rs1, imm) RV_I(0x1b, 0, rd, rs1, imm)
#define RV_ANDI(rd, rs1, imm) RV_I(0x13, 7, rd, rs1, imm)
#define RV_SRLI(rd, rs1, shift) RV_I(0x13, 5, rd, rs1, shift)
#define RV_LD(rd, rs1, imm) RV_I(0x03, 3, rd, rs1, imm)
#define RV_JALR(rd, rs1, imm) RV_I(0x67, 0, rd, rs1, imm)
#define RV_AUIPC(rd, high) ((uint32_t)(high) << 12 | (uint32_t)(rd) << 7 | 0x17u)
#define RV_LUI(rd, high) ((uint32_t)(high) << 12 | (uint32_t)(rd) << 7 | 0x37u)
#define RV_JAL(rd) ((uint32_t)(rd) << 7 | 0x6fu)
#define RV_BRANCH(funct3, rs1, rs2)                                                                \
    ((uint32_t)(rs2) << 20 | (uint32_t)(rs1) << 15 | (uint32_t)(funct3) << 12 | 0x63u)
#define RV_BEQ(rs1, rs2) RV_BRANCH(0, rs1, rs2)
#define RV_BNE(rs1, rs2) RV_BRANCH(1, rs1, rs2)
#define RV_AMOADD_D(rd, rs2, rs1) (RV_I(0x2f, 3, rd, rs1, 0) | (uint32_t)(rs2) << 20)
#define RV_NOP RV_ADDI(0, 0, 0)
#define RVC_NOP 0x0001u
#define RVC_J 0xa001u
#define RVC_EBREAK 0x9002u
#define RVC_MV(rd, rs2) (0x8002u | (uint32_t)(rd) << 7 | (uint32_t)(rs2) << 2)
#define RVC_ADD(rd, rs2) (0x9002u | (uint32_t)(rd) << 7 | (uint32_t)(rs2) << 2)
#define RVC_JR(rs1) (0x8002u | (uint32_t)(rs1) << 7)
#define RVC_ADDI(rd, imm)                                                                          \
    (0x0001u | ((uint32_t)(imm) >> 5 & 1) << 12 | (uint32_t)(rd) << 7 | ((uint32_t)(imm)&31) << 2)
#define RVC_LI(rd, imm) (RVC_ADDI(rd, imm) | 0x4000u)
#define RVC_SDSP(rs2, off)                                                                         \
    (0xe002u | ((uint32_t)(off) >> 3 & 7) << 10 | ((uint32_t)(off) >> 6 & 7) << 7 |                \
     (uint32_t)(rs2) << 2)
#define RVC_LDSP(rd, off)                                                                          \
    (0x6002u | ((uint32_t)(off) >> 5 & 1) << 12 | (uint32_t)(rd) << 7 |                            \
     ((uint32_t)(off) >> 3 & 3) << 5 | ((uint32_t)(off) >> 6 & 7) << 2)

// One instruction: two bytes if its lowest two bits say so.
void tl_parcels_put(struct tl_parcels *w, uint32_t word);
unsigned tl_parcel_size(uint32_t word);
// Sets the displacement of a direct branch or call, from its own address. false: that is no such
// word, or out of reach.
bool tl_parcel_aim(uint32_t *word, int64_t disp);
// The parts of a distance for auipc and what adds the rest. false: out of their reach.
bool tl_parcel_split(int64_t disp, uint32_t *high, int32_t *low);
// A branch of any form that leads to an address. false: out of reach, nothing is written.
bool tl_parcels_put_aimed(struct tl_parcels *w, uint32_t word, tl_addr to);
// A jump in the shortest form. false: out of reach.
bool tl_parcels_put_jump(struct tl_parcels *w, tl_addr to);
// A branch with an open end, to be closed. Returns where it lies.
uint16_t tl_parcels_open(struct tl_parcels *w, uint32_t word);
// Leads the branch at position to offset `to`.
void tl_parcels_close(struct tl_parcels *w, uint16_t position, uint16_t to);
// rd = value: by its distance from here, else as a literal.
void tl_parcels_put_address(struct tl_parcels *w, unsigned rd, uint64_t value);
// The same but for a rest of 12 bits with a sign, which is returned, to be added by a load or a
// jump.
int32_t tl_parcels_put_page(struct tl_parcels *w, unsigned rd, uint64_t value);
// A jump to anywhere, through rd.
void tl_parcels_put_far(struct tl_parcels *w, unsigned rd, tl_addr to);
// A constant of 32 bits, its sign extended.
void tl_parcels_put_constant(struct tl_parcels *w, unsigned rd, int32_t value);
// rd = rs1 + value. Where value has more than 12 bits, rd and rs1 must be two.
void tl_parcels_put_add(struct tl_parcels *w, unsigned rd, unsigned rs1, int32_t value);
// sp += bytes, a multiple of 16, at most 496 up or 512 down.
void tl_parcels_put_stack(struct tl_parcels *w, int32_t bytes);
// Writes the literals, 8-byte aligned in the target, and fills in their references.
void tl_parcels_put_literals(struct tl_parcels *w);

#endif

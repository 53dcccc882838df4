// What every stage after decoding knows of an instruction: facts, the same struct on every
// instruction set. Pure: no pointer to the bytes, no library type.
#ifndef TL_ANALYSE_INSN_H
#define TL_ANALYSE_INSN_H

#include "base/refusal.h"
#include "base/types.h"

#define TL_INSN_SIZE_MAX 15

// How control leaves the instruction.
enum tl_flow {
    TL_FLOW_NEXT,  // to the next instruction only
    TL_FLOW_COND,  // direct conditional branch: target and next (jcc, loop, jrcxz)
    TL_FLOW_JUMP,  // direct unconditional branch to target
    TL_FLOW_IJUMP, // branch to where a register or memory says
    TL_FLOW_CALL,  // direct call of target
    TL_FLOW_ICALL, // indirect call
    TL_FLOW_RET,   // return
    TL_FLOW_STOP,  // never goes on (ud2, hlt, int3 ...)
};

// What a displaced copy needs. One value per instruction, from the ISA table.
enum tl_reloc {
    TL_RELOC_COPY,     // position free: copied byte for byte
    TL_RELOC_PCREL,    // a pc-relative data operand at disp_off/disp_size is adjusted, or made absolute
    TL_RELOC_BRANCH,   // direct jump, widened and adjusted
    TL_RELOC_COND,     // direct conditional branch, widened and adjusted
    TL_RELOC_LOOP,     // short-only conditional branch (loop*, jcxz): rewritten around a short branch
    TL_RELOC_CALL,     // direct call: original return address pushed, then a jump
    TL_RELOC_ICALL,    // indirect call through a register or memory: the same
    TL_RELOC_IJUMP,    // indirect jump; copied, its pc-relative operand adjusted if it has one
    TL_RELOC_REFUSE,   // never displaced; `refusal` says why
};

// Bit sets of struct tl_insn.flags.
enum {
    TL_INSN_MAY_FAULT = 1 << 0,   // touches memory, divides, ...: can raise a synchronous signal
    TL_INSN_SYSCALL = 1 << 1,     // enters the kernel
    TL_INSN_PCREL_DATA = 1 << 2,  // target holds the address of a pc-relative data operand
    TL_INSN_PCREL_LEA = 1 << 3,   // ... whose address, not content, is taken (x86 lea)
    TL_INSN_WRITES_SP = 1 << 4,   // changes the stack pointer
    TL_INSN_LANDING = 1 << 5,     // endbr64 / bti: must keep its place
    TL_INSN_NOP = 1 << 6,         // does nothing
    TL_INSN_SHORT_ONLY = 1 << 7,  // branch without a long form (loop, jrcxz)
    TL_INSN_FAULT_STACK = 1 << 8, // MAY_FAULT only for the stack that it uses without naming it
    TL_INSN_EXCLUSIVE_LOAD = 1 << 9,   // begins an exclusive region (arm64 ldxr ..., riscv lr)
    TL_INSN_EXCLUSIVE_STORE = 1 << 10, // ends one (stxr ..., sc, clrex)
    TL_INSN_JOINED = 1 << 12, // says how the next instruction works: nothing may come between (arm64 movprfx)
    TL_INSN_SIGNS_LINK = 1 << 11, // signs the return address, or gives it back unsigned (paciasp, autiasp)
};

// Register sets: bit n is general register n in the ISA's own numbering (x86-64: rax=0, rcx, rdx,
// rbx, rsp, rbp, rsi, rdi, r8..r15; arm64: x0 to x30, sp=31, and xzr in no set). Bit TL_REG_FLAGS is the
// arithmetic flags as a whole. Bits 40 to 45 are those flags one by one, for data flow; a decoder sets
// them beside TL_REGSET_FLAGS, which in `read` means any of them and in `written` all of them.
// tl_site_facts.dead holds no single flag.
typedef uint64_t tl_regset;
#define TL_REG_FLAGS 63
#define TL_REGSET(reg) ((tl_regset)1 << (reg))
#define TL_REGSET_CF TL_REGSET(40) // x86-64
#define TL_REGSET_PF TL_REGSET(41)
#define TL_REGSET_AF TL_REGSET(42)
#define TL_REGSET_ZF TL_REGSET(43)
#define TL_REGSET_SF TL_REGSET(44)
#define TL_REGSET_OF TL_REGSET(45)
#define TL_REGSET_N TL_REGSET(40) // arm64
#define TL_REGSET_Z TL_REGSET(41)
#define TL_REGSET_C TL_REGSET(42)
#define TL_REGSET_V ((tl_regset)0x38 << 40) // all that is left of EACH_FLAG
#define TL_REGSET_EACH_FLAG ((tl_regset)0x3f << 40)
#define TL_REGSET_FLAGS TL_REGSET(TL_REG_FLAGS)
#define TL_REGSET_GENERAL ((tl_regset)0xffffffff)
#define TL_REGSET_ALL (TL_REGSET_GENERAL | TL_REGSET_FLAGS)

struct tl_insn {
    tl_addr addr;      // where it was decoded, in the address space of the analysis (vaddr)
    tl_addr target;    // direct branch or call target, or pc-relative operand address; else 0
    uint8_t bytes[TL_INSN_SIZE_MAX + 1]; // size of them are valid
    uint8_t size;      // bytes, 1..15
    uint8_t flow;      // enum tl_flow
    uint8_t reloc;     // enum tl_reloc
    uint8_t refusal;   // enum tl_refusal, for TL_RELOC_REFUSE
    uint8_t disp_off;  // byte offset of the pc-relative displacement or branch offset field
    uint8_t disp_size; // its size in bytes (1 or 4); 0: none
    uint16_t flags;    // TL_INSN_*
    uint16_t row;      // row of the ISA table that described it
    tl_regset read;    // read on some path of the instruction
    tl_regset written; // written whole on every path, so that the old value is dead
};

#endif

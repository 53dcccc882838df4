// The face of one instruction set. Everything the stages need of an architecture goes through this
// struct; nothing outside src/arch/<isa>/ sees inside. The porting guide (CONTRIBUTING.md) stands on it.
#ifndef TL_ARCH_ARCH_H
#define TL_ARCH_ARCH_H

#include "analyse/insn.h"
#include "arch/simulate.h"
#include "base/diag.h"
#include "emit/emit.h"

// What one instruction does to one register, as far as the search for jump tables asks.
enum tl_definition_kind {
    TL_DEF_KEEP,    // leaves it as it was, or only widens it
    TL_DEF_COPY,    // register a; its lowest `size` bytes only, if that is said
    TL_DEF_EITHER,  // its old value or register a
    TL_DEF_PICK,    // register a or register b
    TL_DEF_SUM,     // register a + register b (if not NONE) + value; b cut to `size` bytes (if not 0)
                    // and widened, then shifted left by `shift`
    TL_DEF_ADDR,    // the constant `value`
    TL_DEF_POINTER, // a whole pointer that was made elsewhere: loaded, returned, decoded. size not 0:
                    // loaded from register a (if not NONE) + value + a scaled register
    TL_DEF_SPILL,   // a whole pointer from the stack, where the function itself may have put it
    TL_DEF_OFFSET,  // a load of `size` bytes, widened: from registers a and b (if not NONE) + value,
                    // or a and a scaled register `index`
    TL_DEF_OTHER,   // something else
};
#define TL_DEF_REG_NONE 0xff
struct tl_definition {
    uint8_t kind;
    uint8_t a, b, index; // registers, or TL_DEF_REG_NONE
    uint8_t size; // bytes in memory
    uint8_t shift;
    bool is_signed; // TL_DEF_OFFSET, TL_DEF_SUM: widened by sign
    tl_addr value;
};

// What one instruction does to the stack pointer and the frame pointer: each becomes a register plus
// a constant. TL_DEF_REG_NONE: nobody knows. A call counts as if it had returned.
struct tl_stack_step {
    uint8_t sp_from, fp_from;
    uint8_t copy_reg; // another register that becomes the old stack pointer + copy_plus, or NONE
    int32_t sp_plus, fp_plus, copy_plus;
    // Where sp_from is NONE: the stack pointer is moved by what this register holds, up (1) or down (-1).
    uint8_t moved_by;
    int8_t moved_sign; // 0: it is not
};

#define TL_DEPTH_UNKNOWN INT64_MIN

#define TL_ADDRESS_PARTS 32

struct tl_arch {
    const char *name;       // "x86_64"
    uint16_t elf_machine;   // EM_X86_64
    uint8_t insn_size_max;  // 15
    uint8_t insn_align;     // 1
    uint8_t sp_reg;         // the stack pointer's number among the general registers
    uint8_t jump_size;      // 5: the branch a patch is made of
    uint8_t slot_size;      // pool slot, bytes (power of two)
    int64_t jump_reach_min; // lowest and highest displacement of that branch, from its end
    int64_t jump_reach_max;

    // Where Linux puts things without randomness, for what is planned without a process: end of the
    // addresses that programs get, a position-independent program, a library of it.
    tl_addr addr_end, program_base, library_base;
    enum tl_thread_pointer thread_pointer; // how threads of a usual C library find their block

    // Decodes one instruction at bytes[0..size) as if at addr. 0, or TL_E_FORMAT (no instruction,
    // or cut short). On an instruction the table refuses: 0, reloc = TL_RELOC_REFUSE.
    int (*decode)(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out);

    // The same without register use: size, flow, reloc, target, flags but MAY_FAULT and WRITES_SP.
    int (*skim)(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out);

    // What insn does to general register reg. For the register that an indirect jump goes to, reg
    // is TL_DEF_REG_NONE: then a COPY of that register, or what memory holds.
    void (*define)(const struct tl_insn *insn, unsigned reg, struct tl_definition *out);

    // Whether insn completes an address of code or data, where one instruction holds only a part of it. part
    // is the caller's: a word for each register, zeros before a function. NULL: TL_INSN_PCREL_LEA has it
    // whole.
    bool (*address)(const struct tl_insn *insn, tl_addr *part, tl_addr *out);

    // Going on behind `branch` (taken: going where it leads), right behind `compare`, proves that register
    // *reg is, unsigned, below *count. false: they prove no such thing. Bounds of jump tables. NULL (riscv64):
    // what an index is compared with is in a register, so tables are read to their end.
    bool (*bound)(const struct tl_insn *compare, const struct tl_insn *branch, bool taken,
                  unsigned *reg, uint64_t *count);
    // Whether what insn leaves in general register *reg is, unsigned, below *count: a masked index.
    bool (*below)(const struct tl_insn *insn, unsigned *reg, uint64_t *count);

    // The stack pointer and fp_reg, the register that frames are kept in. kept_regs: those that a
    // C function gives back as they were. For the depth of a stack only, never for dead registers.
    tl_regset general_regs; // all that data flow follows, the stack pointer included
    uint8_t fp_reg;
    uint8_t link_reg; // where stores_return is: the register that calls leave their return address in
    uint8_t record_link; // and how far above the stack pointer at the agent's entries the record frame has it (emit.h)
    // What changes a part of a register, or may change it, reads it: so what neither set of a
    // decoded instruction names is TL_DEF_KEEP for `define`, calls and system calls aside.
    bool sets_are_whole;
    tl_regset kept_regs;
    tl_regset value_regs; // what functions are given arguments and give values back in
    void (*stack)(const struct tl_insn *insn, struct tl_stack_step *out);

    // Whether insn may read its function's return address, or returns in another way than just to it. That lies
    // sp_depth bytes above the stack pointer and fp_depth above the frame pointer.
    bool (*reads_return)(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth);
    // Where it comes in a register: whether insn stores that register on the stack, and how far below the stack
    // pointer at the function's entry (TL_DEPTH_UNKNOWN). NULL: it lies at that stack pointer from the start.
    bool (*stores_return)(const struct tl_insn *insn, int64_t sp_depth, int64_t fp_depth,
                          int64_t *below);
    // The same of loads into that register; by the stack pointer alone, as our own code does it.
    bool (*loads_return)(const struct tl_insn *insn, int64_t sp_depth, int64_t *below);

    // Whether a uprobe of the kernel makes this instruction do something else.
    bool (*uprobe_breaks)(const struct tl_insn *insn);

    // As text (x86-64: Intel syntax; arm64: as binutils print it). Cuts; always terminates.
    void (*print)(const struct tl_insn *insn, char *buf, size_t size);

    // Emits the detour for `in` as if at `at`. See emit.h.
    int (*emit_detour)(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                       struct tl_diag *diag);

    // How many free registers a count wants. Where fewer are dead before an instruction than behind it, and
    // fewer than these, the count comes behind it (tl_emit_in.behind). 0: never.
    uint8_t behind_regs;

    // Writes a jump_size-byte branch from `at` to `to` into out; false: out of reach.
    bool (*emit_jump)(tl_addr at, tl_addr to, uint8_t *out);

    // Puns: the branch is pun_prefix (0 to jump_size - 2 times, without effect), pun_opcode, and a
    // little-endian displacement of jump_size - 1 bytes. pun_opcode 0: this ISA has none.
    uint8_t pun_prefix, pun_opcode;

    // A shorter branch, to islands. short_size 0: none. Reach counts from its end.
    uint8_t short_size;
    int16_t short_reach_min, short_reach_max;
    bool (*emit_short)(tl_addr at, tl_addr to, uint8_t *out);

    // A longer branch, where jump_size bytes do not reach everything (0, NULL: they do): far_size bytes
    // through register reg, which is dead; or spill_size bytes, which put reg on the stack first, in 16
    // bytes. What was spilled is taken back by the detour (tl_emit_in.arrive_reg), or by a stub of
    // reload_size bytes, which then branches to `to`; one that lies right before `to` falls through, and
    // is a branch shorter (reload_size - 4). false: out of reach.
    uint8_t far_size, spill_size, reload_size;
    tl_regset far_regs; // what reg may be
    bool (*emit_far)(tl_addr at, tl_addr to, unsigned reg, bool spill, uint8_t *out);
    bool (*emit_reload)(tl_addr at, tl_addr to, unsigned reg, bool falls_through, uint8_t *out);

    // Rewrites a direct branch or call, or an indirect call with room for a direct one, so that it
    // leads to `to`, in the same number of bytes, at insn->addr. false: can't. NULL: never.
    bool (*emit_retarget)(const struct tl_insn *insn, tl_addr to, uint8_t *out);

    // What the simulator of insn (at its runtime address) needs at each hit. false: it has none.
    bool (*simulation)(const struct tl_insn *insn, struct tl_simulation *out);
    // It needs registers only, so that it can always be done.
    bool (*simulation_alone)(const struct tl_simulation *insn);
    // A slot costs less at a hit. NULL: never.
    bool (*simulation_slow)(const struct tl_simulation *insn);
    // Does the work. false: not here; nothing was changed.
    bool (*simulate)(const struct tl_simulation *insn, struct tl_simulate_state *state,
                     const struct tl_simulate_memory *memory);

    // The breakpoint: what is written over the first breakpoint_size bytes of a site for the signal
    // rungs. The pc that its signal shows lies breakpoint_pc bytes behind the site.
    uint8_t breakpoint[4], breakpoint_size, breakpoint_pc;
};

// Every table is built on every host. NULL: not an architecture we know.
const struct tl_arch *tl_arch_find(uint16_t elf_machine);
extern const struct tl_arch tl_arch_x86_64;
extern const struct tl_arch tl_arch_arm64;
extern const struct tl_arch tl_arch_riscv64;

#endif

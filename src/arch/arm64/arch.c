// The face of arm64: one const struct, and what is too small for a file of its own.
#include "arch/arm64/arm64.h"

#include <elf.h>

// Linux knows neither branches with a hint (FEAT_HBC) nor those that compare (FEAT_CMPBR), and takes
// literal loads to vector registers for plain loads: it runs all of them out of line, where they go to
// places relative to its own page, or read them (arch/arm64/kernel/probes/decode-insn.c, measured on 7.2).
// C4.1 of the Arm ARM (DDI 0487), "A64 instruction set encoding".
static bool uprobe_breaks(const struct tl_insn *insn)
{
    uint32_t word = tl_arm64_word(insn);
    bool vector_literal = (word & 0x3f000000) == 0x1c000000;
    bool hinted = (word & 0xff000010) == 0x54000010;
    bool compares = (word & 0x7e000000) == 0x74000000;
    // Signing with the program counter (FEAT_PAuth_LR) it does not know either.
    bool own_address = insn->refusal == TL_REFUSE_PC_USE;
    return vector_literal || hinted || compares || own_address;
}

const struct tl_arch tl_arch_arm64 = {
    .name = "arm64",
    .elf_machine = EM_AARCH64,
    .insn_size_max = 4,
    .insn_align = 4,
    .sp_reg = 31,
    .jump_size = 4, // b: 26 bits, words, from its own address
    .slot_size = 32,
    .jump_reach_min = -0x8000000 - 4,
    .jump_reach_max = 0x7fffffc - 4,
    // 48-bit addresses (arch/arm64/include/asm/elf.h: ELF_ET_DYN_BASE is two thirds of them).
    .addr_end = 0x1000000000000 - 0x1000,
    .program_base = 0xaaaaaaaa0000,
    .library_base = 0xfffff7000000,
    .thread_pointer = TL_TP_TPIDR,
    .decode = tl_arm64_decode,
    .skim = tl_arm64_skim,
    .define = tl_arm64_define,
    .sets_are_whole = true,
    .address = tl_arm64_address,
    .bound = tl_arm64_bound,
    .below = tl_arm64_below,
    .general_regs = 0xffffffff,
    .fp_reg = 29,
    .link_reg = 30,
    .record_link = 16,
    .kept_regs = 0x3ff80000, // x19 to x29: AAPCS64, "General-purpose Registers"
    .value_regs = 0x1ff,     // x0 to x8
    .stack = tl_arm64_stack,
    .reads_return = tl_arm64_reads_return,
    .stores_return = tl_arm64_stores_return,
    .loads_return = tl_arm64_loads_return,
    .uprobe_breaks = uprobe_breaks,
    .print = tl_arm64_print,
    .emit_detour = tl_arm64_emit_detour,
    .behind_regs = 2,
    .emit_jump = tl_arm64_emit_jump,
    .emit_retarget = tl_arm64_emit_retarget,
    .simulation = tl_arm64_simulation,
    .simulation_alone = tl_arm64_simulation_alone,
    .simulation_slow = tl_arm64_simulation_slow,
    .simulate = tl_arm64_simulate,
    .breakpoint = {0x80, 0x8d, 0x2e, 0xd4}, // brk #0x746c, which nobody else uses
    .breakpoint_size = 4,
    .breakpoint_pc = 0,
};

// The face of riscv64: one const struct, and what is too small for a file of its own.
#include "arch/riscv64/riscv64.h"

#include <elf.h>

#include "arch/riscv64/relocate.h"

// Linux simulates c.jr and c.jalr without clearing bit 0 of the target, which kills the program (a
// return address never has it set); stands still at a branch with a reserved code; makes a nop of
// lpad; takes what is 48 bits long or more for 32; and its trap ends the reservation of lr
// (arch/riscv/kernel/probes, seen on 6.12 and 7.2).
static bool uprobe_breaks(const struct tl_insn *insn)
{
    uint32_t word = tl_riscv64_word(insn);
    bool indirect = insn->size == 2 && (word & 0xe07f) == 0x8002 && (word >> 7 & 31) != 0;
    bool reserved = (word & 0x607f) == 0x2063;
    bool longer = (word & 0x1f) == 0x1f;
    bool reserves = insn->flags & (TL_INSN_EXCLUSIVE_LOAD | TL_INSN_EXCLUSIVE_STORE);
    return (indirect && insn->flow != TL_FLOW_RET) || reserved || longer || reserves ||
           insn->flags & TL_INSN_LANDING;
}

const struct tl_arch tl_arch_riscv64 = {
    .name = "riscv64",
    .elf_machine = EM_RISCV,
    .insn_size_max = 4,
    .insn_align = 2,
    .sp_reg = X_SP,
    .jump_size = 4, // jal: 20 bits, halfwords, from its own address
    .slot_size = 32,
    .jump_reach_min = -0x100000 - 4,
    .jump_reach_max = 0xffffe - 4,
    // Sv39, which every Linux processor has (arch/riscv/include/asm/elf.h: ELF_ET_DYN_BASE is two
    // thirds).
    .addr_end = 0x4000000000 - 0x1000,
    .program_base = 0x2aaaaaa000,
    .library_base = 0x3ff7000000,
    .thread_pointer = TL_TP_TP,
    .decode = tl_riscv64_decode,
    .skim = tl_riscv64_skim,
    .define = tl_riscv64_define,
    .sets_are_whole = true,
    .address = tl_riscv64_address,
    .below = tl_riscv64_below,
    .general_regs = 0xfffffffe,
    .fp_reg = 8,
    .link_reg = 1,
    .record_link = 24,
    .kept_regs = 0xffc0300, // s0 to s11: RISC-V psABI, "Integer Register Convention"
    .value_regs = 0x3fc00,  // a0 to a7
    .stack = tl_riscv64_stack,
    .reads_return = tl_riscv64_reads_return,
    .stores_return = tl_riscv64_stores_return,
    .loads_return = tl_riscv64_loads_return,
    .uprobe_breaks = uprobe_breaks,
    .print = tl_riscv64_print,
    .emit_detour = tl_riscv64_emit_detour,
    .behind_regs = 2,
    .emit_jump = tl_riscv64_emit_jump,
    .short_size = 2, // c.j: 11 bits, halfwords, from its own address
    .short_reach_min = -0x800 - 2,
    .short_reach_max = 0x7fe - 2,
    .emit_short = tl_riscv64_emit_short,
    .far_size = 8,
    .spill_size = 12,
    .reload_size = 8,
    .far_regs = TL_RISCV64_USABLE,
    .emit_far = tl_riscv64_emit_far,
    .emit_reload = tl_riscv64_emit_reload,
    .emit_retarget = tl_riscv64_emit_retarget,
    .simulation = tl_riscv64_simulation,
    .simulation_alone = tl_riscv64_simulation_alone,
    .simulate = tl_riscv64_simulate,
    .breakpoint = {0x02, 0x90}, // c.ebreak
    .breakpoint_size = 2,
    .breakpoint_pc = 0,
};

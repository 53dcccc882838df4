// The face of x86-64: one const struct, and what is too small for a file of its own.
#include "arch/x86_64/simulate.h"
#include "arch/x86_64/x86_64.h"

#include <elf.h>
#include <string.h>

#define OPCODE_NOP 0x90
#define REX 0x40 // with B, the opcode of nop exchanges rax and r8
#define REX_B 0x01

// Linux skips whatever has the opcode of nop, with any prefix: xchg %rax,%r8 is not done (measured
// on 6.18; branch_setup_xol_ops in arch/x86/kernel/uprobes.c).
static bool uprobe_breaks(const struct tl_insn *insn)
{
    static const char prefixes[] = "\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3";
    unsigned at = 0;
    while (at < insn->size && insn->bytes[at] != 0 && strchr(prefixes, insn->bytes[at]) != NULL)
        at++;
    return at + 2u == insn->size && (insn->bytes[at] & 0xf0) == REX &&
           (insn->bytes[at] & REX_B) != 0 && insn->bytes[at + 1] == OPCODE_NOP;
}

const struct tl_arch tl_arch_x86_64 = {
    .name = "x86_64",
    .elf_machine = EM_X86_64,
    .insn_size_max = TL_INSN_SIZE_MAX,
    .insn_align = 1,
    .sp_reg = 4,    // rsp
    .jump_size = 5, // jmp rel32
    .slot_size = 32,
    .jump_reach_min = INT32_MIN,
    .jump_reach_max = INT32_MAX,
    // Four-level page tables (Linux, arch/x86/include/asm/page_64_types.h: DEFAULT_MAP_WINDOW);
    // ELF_ET_DYN_BASE of arch/x86/include/asm/elf.h; libraries below the stack's room.
    .addr_end = 0x7ffffffff000,
    .program_base = 0x555555554000,
    .library_base = 0x7ffff7000000,
    .thread_pointer = TL_TP_FS_WORD,
    .decode = tl_x86_64_decode,
    .skim = tl_x86_64_skim,
    .define = tl_x86_64_define,
    .general_regs = 0xffff,
    .fp_reg = 5,          // rbp
    .kept_regs = 0xf008,  // rbx, r12 to r15
    .value_regs = 0x03c7, // rax, rcx, rdx, rsi, rdi, r8, r9
    .stack = tl_x86_64_stack,
    .uprobe_breaks = uprobe_breaks,
    .reads_return = tl_x86_64_reads_return,
    .bound = tl_x86_64_bound,
    .below = tl_x86_64_below,
    .print = tl_x86_64_print,
    .emit_detour = tl_x86_64_emit_detour,
    .emit_jump = tl_x86_64_emit_jump,
    // 2e (cs) in front of jmp rel32 changes nothing: Intel SDM volume 2, "Instruction Prefixes".
    .pun_prefix = 0x2e,
    .pun_opcode = 0xe9,
    .short_size = 2, // jmp rel8
    .short_reach_min = INT8_MIN,
    .short_reach_max = INT8_MAX,
    .emit_short = tl_x86_64_emit_short,
    .emit_retarget = tl_x86_64_emit_retarget,
    .simulation = tl_x86_64_simulation,
    .simulation_alone = tl_x86_64_simulation_alone,
    .simulate = tl_x86_64_simulate,
    .breakpoint = {0xcc}, // int3: Intel SDM volume 2, "INT n/INTO/INT3/INT1"
    .breakpoint_size = 1,
    .breakpoint_pc = 1,
};

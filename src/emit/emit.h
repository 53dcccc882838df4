// Stage emit: plan -> bytes. Pure; no allocation.
//
// A detour on x86-64, in order:
//   [record frame, call the agent, restore]          events, latency: see TL_RECORD_FRAME
//   [skip red zone] [spill registers] [save flags]   only what data flow does not prove dead
//   find the thread's block, count (or act)
//   [restore]
//   [call the agent]                                 a fault handler's entry
//   displaced instructions, relocated
//   branch back to the first instruction behind the window (unless the last one never goes on)
//   out-of-line slow path; 8-byte aligned literals (table address, agent entry)
// With on_taken the displaced instructions come first, the action and a jump to the target behind them.
// On arm64 the same order; there is no red zone, a count adds atomically to the block that the thread's home
// names (agent/layout.h) and needs no flags, and with `behind` the displaced instruction comes before it.
// On riscv64 as on arm64, but windows hold several instructions, a branch that came through a spilled register is
// undone first (arrive_reg), and each way out may need a register or a stub of its own (bounce).
#ifndef TL_EMIT_EMIT_H
#define TL_EMIT_EMIT_H

#include "analyse/insn.h"
#include "base/diag.h"

#define TL_DETOUR_SIZE_MAX 768
#define TL_WINDOW_INSNS_MAX 12

// How a thread finds its block (agent/layout.h).
enum tl_thread_pointer {
    TL_TP_SHARED,   // not sound here: one shared block, atomic adds
    TL_TP_FS_WORD,  // the word at %fs:0 is the thread pointer (glibc, musl)
    TL_TP_FSBASE,   // rdfsbase
    TL_TP_TPIDR,    // arm64: mrs tpidr_el0
    TL_TP_TP,       // riscv64: the register tp itself
};

// What happens at the site before the displaced instructions.
enum tl_action {
    TL_ACTION_NONE = 0,  // nothing: only displace (an auxiliary site)
    TL_ACTION_COUNT = 1, // add 1 to the thread's counter
    TL_ACTION_CALL = 2,  // call call_addr; x86-64: TL_CALL_SKIP bytes below the stack pointer
    TL_ACTION_LEAVE = 4, // the same with leave_addr
    TL_ACTION_RECORD = 8, // the agent's entries for record[], in their order
    // A site may have all of them: records, count, call, leave.
    TL_ACTION_COUNT_CALL = TL_ACTION_COUNT | TL_ACTION_CALL,
    TL_ACTION_GUARD = TL_ACTION_CALL | TL_ACTION_LEAVE,
};

// x86-64: the red zone, which a called agent leaves alone. agent_entry.S counts on it.
#define TL_CALL_SKIP 128

// What one record does. Each is an entry of the agent (struct tl_agent_head.record_off), called in the
// record frame below. All but HOOK add 1 to the probe's counter, those of a function's exit included.
enum tl_record_kind {
    TL_RECORD_NONE,
    TL_RECORD_HIT,    // the counter only (where one site has several probes)
    TL_RECORD_EVENT,  // an event with the first six argument registers of the C calling convention
    TL_RECORD_GO_EVENT, // ... of Go's ABIInternal
    TL_RECORD_RETURN, // an event with the return value
    TL_RECORD_ENTER,  // the entry of a latency pair
    TL_RECORD_EXIT,   // ... and its return: a time into the probe's histogram
    TL_RECORD_HIJACK, // replaces the return address (trampoline); counts at the return
    TL_RECORD_UNWIND, // the entry of an unwinder: puts true return addresses back
    TL_RECORD_HOOK,   // tells the controller and waits (struct tl_notice); counter_off is the kind
    TL_RECORD_KIND_COUNT,
};
#define TL_RECORD_ENTRIES (TL_RECORD_KIND_COUNT - 1)

struct tl_record {
    uint8_t kind; // enum tl_record_kind
    uint32_t counter_off; // byte offset of the probe's counter in a block: its number is
                          // (counter_off - TL_BLOCK_HEADER_SIZE) / 8
    // The stack pointer at the site, against what it is at the function's entry (0 or below): S of the
    // record is the latter's.
    int32_t sp_off;
};
#define TL_SITE_RECORDS_MAX 4

// The record frame, x86-64. S is the stack pointer at the site (for a call that got a new target:
// after its push). Flags may be lost, direction flag too; vector registers are not touched.
//
//   S                     whatever the program has there (at a function's entry: the return address)
//   S - 128               red zone
//   S - 136   rax         the site's value
//   S - 144   rcx
//   S - 152   rdx
//   S - 160   flags word  lahf/seto form in ax, or anything if flags are dead
//   S - 168   return address into the detour                  <- rsp at the agent's entry
//
// in: ecx = counter_off, rdx = S, all other registers as at the site. The agent keeps all but rax, rcx,
// rdx and flags. The detour zeroes the return address's word afterwards (see return_forget).
#define TL_RECORD_FRAME 168

// The record frame, arm64. S is the stack pointer at the site (for a call that got a new target: the
// same). Flags may be lost; vector registers are not touched.
//
//   S - 16    left alone: Go keeps the frame pointer of a function's caller at S - 8
//   S - 24    nzcv, or anything if flags are dead
//   S - 32    x30    the site's value; what lies here when the last record is done is x30 again
//   S - 40    x17    the site's value, or anything if it is dead
//   S - 48    x16    the same                                       <- sp at the agent's entry
//
// in: w16 = counter_off, x17 = S of the record (sp_off counts), x30 = return address into the detour, all
// other registers as at the site. The agent keeps all but x16, x17, x30 and flags, and leaves no x30 in
// memory. Its entries have no landing pad.
//
// tl_agent_slow_count is called in the same frame (below the registers that the count spilled, flags never
// saved): w16 = counter_off, w17 = index among the homes. It keeps flags too.
// TL_ACTION_CALL and LEAVE: sp = S - 16, and [sp] = x30 as at the site, [sp + 8] anything; x30 = return address
// into the detour. The agent keeps all but x30.
#define TL_RECORD_FRAME_ARM64 48

// The record frame, riscv64. S is the stack pointer at the site (for a call that got a new target: the
// same). Neither floating-point nor vector registers are touched.
//
//   S - 8     ra     the site's value; what lies here when the last record is done is ra again
//   S - 16    t0     the site's value, or anything if it is dead
//   S - 24    t1     the same
//   S - 32    the agent's own                                       <- sp at the agent's entry
//
// in: t0 = counter_off, t1 = S of the record (sp_off counts), ra = return address into the detour, all other
// registers as at the site. The agent keeps all but t0, t1, ra, and leaves no ra in memory.
//
// tl_agent_slow_count is called in the same frame (below the registers that the count spilled): t0 =
// counter_off, t1 = index among the homes.
// TL_ACTION_CALL and LEAVE: sp = S - 16, and [sp] = ra as at the site, [sp + 8] anything; ra = return address
// into the detour. The agent keeps all but ra.
#define TL_RECORD_FRAME_RISCV64 32

// A stub near a branch's target that the detour can go to from anywhere, one register being spilled in 16 bytes
// of stack: the stub takes it back and branches to `target`.
struct tl_bounce {
    tl_addr target, addr;
};
#define TL_BOUNCES_MAX 3 // a window's branches: two of conditional ones, and the way back

struct tl_emit_in {
    enum tl_action action;
    enum tl_thread_pointer thread_pointer;
    tl_addr table_addr;     // thread table (struct tl_thread_slot[]) in the target
    tl_addr control_addr;   // control word page (struct tl_control) in the target
    // Where counting is atomic anyway (arm64): the table of homes (agent/layout.h), the lowest bit of
    // the thread pointer that the home's index is made of, and whether the processor has the atomic
    // instructions (arm64: LSE).
    tl_addr homes_addr;
    uint8_t homes_shift;
    bool atomics;
    bool guarded;           // the detour lies in a guarded page, as its site does (arm64: BTI)
    tl_addr slow_addr;      // the agent's slow path entry (tl_agent_slow_count)
    tl_addr call_addr;      // the agent's entry for TL_ACTION_CALL; it keeps all registers and flags
    tl_addr leave_addr;     // ... for TL_ACTION_LEAVE
    tl_addr record_addr[TL_RECORD_KIND_COUNT]; // the agent's entries by kind
    struct tl_record record[TL_SITE_RECORDS_MAX]; // for TL_ACTION_RECORD; NONE ends
    // insn[0] is a conditional branch out of the function (a tail call): the action belongs to the
    // taken path only, between the branch and its target.
    bool on_taken;
    // The stack below the stack pointer must not be used: a detour that needs some is refused
    // (TL_REFUSE_NO_STACK).
    bool no_stack;
    uint32_t counter_off;   // byte offset of the probe's counter in a block
    tl_regset dead;         // dead before the site
    // The count comes behind so many of the displaced instructions, where dead_behind are free: a hit counts when
    // they have run, not when one faulted, and who is led to the copy of one of them counts too. Only with action
    // COUNT, and instructions that go on to the next (tl_arch.behind_regs says when). `displaced` is then 0, or what
    // the relocation needs before it. 0: before all.
    uint8_t behind;
    tl_regset dead_behind;
    const struct tl_insn *insn; // the displaced instructions, at their RUNTIME addresses and targets
    uint8_t insn_count;
    bool call_retarget;     // insn[0] is a direct call whose patched target is this detour: the call has
                            // pushed the true return address; act, then jump to insn[0].target
    tl_addr resume_addr;    // where the displaced code goes on (first byte behind the window, at runtime)
    // A looper (auxiliary site): a branch whose target is `divert_from` goes to `divert_to` instead.
    // divert_to 0: to the displaced instructions of this very detour (the looping branch is one of them).
    // Both 0: nothing is diverted.
    tl_addr divert_from, divert_to;
    bool stepped; // a breakpoint stands in place of the branch back
    // Where branches are short (tl_arch.far_size). arrive_reg: the register that the branch to this detour
    // put on the stack, in 16 bytes, and that the detour takes back first; 0: none. dead_resume: dead at
    // resume_addr; dead_target: dead at the target of every displaced direct branch. bounce: stubs for ways
    // out that no dead register leads to; bounce_reg is what they take back.
    uint8_t arrive_reg;
    uint8_t bounce_count, bounce_reg;
    struct tl_bounce bounce[TL_BOUNCES_MAX];
    tl_regset dead_resume, dead_target;
};

// Boundaries of the displaced copy: state at detour + off equals state at original + insn_off.
struct tl_boundary {
    uint16_t off;      // in the detour
    uint8_t insn_off;  // from the site's address
};

// An instruction that can fault with the state before the site still there, but for the pc and for
// dead registers, and the stack pointer sp_words words too low: pushes of the action, and what
// stands for the first displaced instruction.
struct tl_fault_point {
    uint16_t off; // in the detour
    uint8_t sp_words;
};

// A store of a way out that can fault: all is done, and the state is that at `to`, but for dead registers and the
// stack pointer.
struct tl_fault_out {
    uint16_t off; // in the detour
    uint8_t sp_words;
    tl_addr to;
};

// Pushes of the action (three for the count, four for records), and the parts of an indirect call.
#define TL_FAULT_POINTS_MAX 12

struct tl_detour {
    uint16_t size;       // all, with the literals
    uint16_t displaced;  // offset of the first displaced instruction (the action lies before it, but for on_taken)
    uint8_t insn_count;  // displaced
    // One for each displaced instruction, and one for the branch back, if there is one.
    struct tl_boundary boundary[TL_WINDOW_INSNS_MAX + 1];
    uint8_t boundary_count;
    struct tl_fault_point fault[TL_FAULT_POINTS_MAX]; // ascending
    uint8_t fault_count;
    struct tl_fault_out fault_out[TL_BOUNCES_MAX];
    uint8_t fault_out_count;
    uint8_t refusal;     // enum tl_refusal: nothing was emitted because an instruction can't be displaced here
    // With TL_REFUSE_NO_REACH: what is too far, and could be met by a bounce.
    uint8_t far_count;
    tl_addr far_target[TL_BOUNCES_MAX];
    uint8_t bytes[TL_DETOUR_SIZE_MAX]; // last: a plan set keeps only `size` of them
};

// For an emitter, before it writes: it has none of what not every instruction set has.
static inline void tl_detour_begin(struct tl_detour *out)
{
    out->boundary_count = out->fault_count = out->fault_out_count = out->far_count = 0;
}

#endif

// Stage emit: plan -> bytes. Pure; no allocation.
//
// A detour on x86-64, in order:
//   [skip red zone] [spill registers] [save flags]   only what data flow does not prove dead
//   find the thread's block, count (or act)
//   [restore]
//   displaced instructions, relocated
//   branch back to the first instruction behind the window (unless the last one never goes on)
//   out-of-line slow path; 8-byte aligned literals (table address, agent entry)
#ifndef TL_EMIT_EMIT_H
#define TL_EMIT_EMIT_H

#include "analyse/insn.h"
#include "base/diag.h"

#define TL_DETOUR_SIZE_MAX 512
#define TL_WINDOW_INSNS_MAX 8

// How a thread finds its block (agent/layout.h).
enum tl_thread_pointer {
    TL_TP_SHARED,   // not sound here: one shared block, atomic adds
    TL_TP_FS_WORD,  // the word at %fs:0 is the thread pointer (glibc, musl)
    TL_TP_FSBASE,   // rdfsbase
};

// What happens at the site before the displaced instructions.
enum tl_action {
    TL_ACTION_NONE,  // nothing: only displace (an auxiliary site)
    TL_ACTION_COUNT, // add 1 to the thread's counter
};

struct tl_emit_in {
    enum tl_action action;
    enum tl_thread_pointer thread_pointer;
    tl_addr table_addr;     // thread table (struct tl_thread_slot[]) in the target
    tl_addr control_addr;   // control word page (struct tl_control) in the target
    tl_addr slow_addr;      // the agent's slow path entry (tl_agent_slow_count)
    uint32_t counter_off;   // byte offset of the probe's counter in a block
    tl_regset dead;         // dead before the site
    const struct tl_insn *insn; // the displaced instructions, at their RUNTIME addresses and targets
    uint8_t insn_count;
    bool call_retarget;     // insn[0] is a direct call whose patched target is this detour: the call has
                            // pushed the true return address; act, then jump to insn[0].target
    tl_addr resume_addr;    // where the displaced code goes on (first byte behind the window, at runtime)
    // A looper (auxiliary site): a branch whose target is `divert_from` goes to `divert_to` instead.
    // divert_to 0: to the displaced instructions of this very detour (the looping branch is one of them).
    // Both 0: nothing is diverted.
    tl_addr divert_from, divert_to;
};

// Boundaries of the displaced copy: state at detour + off equals state at original + insn_off.
struct tl_boundary {
    uint16_t off;      // in the detour
    uint8_t insn_off;  // from the site's address
};

struct tl_detour {
    uint16_t size;       // all, with the literals
    uint16_t displaced;  // offset of the first displaced instruction (the action lies before it)
    // One for each displaced instruction, and one for the branch back.
    struct tl_boundary boundary[TL_WINDOW_INSNS_MAX + 1];
    uint8_t boundary_count;
    uint8_t refusal;     // enum tl_refusal: nothing was emitted because an instruction can't be displaced here
    uint8_t bytes[TL_DETOUR_SIZE_MAX]; // last: a plan set keeps only `size` of them
};

#endif

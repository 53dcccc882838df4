// Where an entry probe of a function goes: behind its landing instruction (on arm64 that may be the one that
// signs the return address, or stand before it), and in Go behind its stack check. A Go function begins by
// comparing the stack pointer with its stack's limit; too low, it calls the runtime, which moves the stack, and
// starts again. Behind the check a call arrives once.
//
//   start:  cmp 16(%r14), %rsp            grow:  spill arguments
//           jbe grow                             call runtime.morestack_noctxt
//   behind: sub $24, %rsp ...                    reload arguments
//                                                jmp start
//
// Knows no name and no constant of Go's: what counts is that a branch at the start leads to a call
// and from there back. Keeps: behind the check, no instruction of the function has moved the stack
// pointer.
#include "analyse/analysis.h"

#define CHECK_INSNS_MAX 10 // at the start
#define GROW_INSNS_MAX 40  // of the code that calls the runtime: it spills and reloads arguments

tl_addr tl_entry_landing(const struct tl_analysis *analysis, tl_addr vaddr)
{
    struct tl_insn insn;
    if (!tl_decode_at(analysis, vaddr, true, &insn) || (insn.flags & TL_INSN_LANDING) == 0)
        return vaddr;
    vaddr += insn.size;
    // All functions that sign it are then entered in the same state.
    const uint16_t signs = TL_INSN_LANDING | TL_INSN_SIGNS_LINK;
    if ((insn.flags & TL_INSN_SIGNS_LINK) == 0 && tl_decode_at(analysis, vaddr, true, &insn) &&
        (insn.flags & signs) == signs)
        vaddr += insn.size;
    return vaddr;
}

// Whether the code at addr calls something and then jumps back to start.
static bool starts_again(const struct tl_analysis *analysis, tl_addr addr, tl_addr start)
{
    bool called = false;
    for (unsigned i = 0; i < GROW_INSNS_MAX; i++) {
        struct tl_insn insn;
        if (!tl_decode_at(analysis, addr, false, &insn))
            return false;
        addr += insn.size;
        switch (insn.flow) {
        case TL_FLOW_CALL:
            if (called)
                return false;
            called = true;
            break;
        case TL_FLOW_JUMP:
            return called && insn.target == start;
        case TL_FLOW_NEXT:
            if ((insn.flags & TL_INSN_WRITES_SP) != 0)
                return false;
            break;
        default:
            return false;
        }
    }
    return false;
}

bool tl_is_go(const struct tl_analysis *analysis, tl_addr addr)
{
    const struct tl_range *go = &analysis->facts.go_text;
    return addr >= go->start && addr < go->end;
}

bool tl_analysis_stack_check(struct tl_analysis *analysis, tl_addr function, tl_addr *behind)
{
    tl_addr addr = tl_entry_landing(analysis, function), found = 0;
    for (unsigned i = 0; i < CHECK_INSNS_MAX; i++) {
        struct tl_insn insn;
        if (!tl_decode_at(analysis, addr, false, &insn))
            break;
        addr += insn.size;
        if (insn.flow == TL_FLOW_COND && starts_again(analysis, insn.target, function))
            found = addr; // a very large frame takes two branches
        else if (insn.flow != TL_FLOW_NEXT || (insn.flags & TL_INSN_WRITES_SP) != 0)
            break;
    }
    if (found == 0)
        return false;
    *behind = found;
    return true;
}

tl_addr tl_analysis_entry(struct tl_analysis *analysis, tl_addr vaddr)
{
    tl_addr behind;
    if (tl_is_go(analysis, vaddr) && tl_analysis_stack_check(analysis, vaddr, &behind))
        return behind;
    return tl_entry_landing(analysis, vaddr);
}

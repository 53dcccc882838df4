// Finds the instructions by which a fault handler returns: its own, and those of what it jumps to
// (a part the compiler moved away, a function called in its place).
//
// Invariant: when every exit is found, the handler can leave by no other instruction but one that
// never comes back to the faulting instruction by itself. Where control goes through a register or
// memory nothing is known, and the answer is no.
#include "session/internal.h"

#include <stdlib.h>

#define EXIT_FUNCTIONS_MAX 8u
#define EXIT_INSNS_MAX 4096u // of one function

struct exit_walk {
    struct tl_module *module;
    tl_addr function[EXIT_FUNCTIONS_MAX];
    size_t function_count;
    tl_addr *vaddrs; // EXIT_INSNS_MAX
    tl_addr *exits;
    size_t exit_count, exit_max;
};

static bool function_add(struct exit_walk *walk, tl_addr vaddr)
{
    for (size_t i = 0; i < walk->function_count; i++) {
        if (walk->function[i] == vaddr)
            return true;
    }
    if (walk->function_count == EXIT_FUNCTIONS_MAX)
        return false;
    walk->function[walk->function_count++] = vaddr;
    return true;
}

static bool insn_walk(struct exit_walk *walk, const struct tl_insn *insn)
{
    struct tl_site_facts facts;
    switch ((enum tl_flow)insn->flow) {
    case TL_FLOW_RET:
        if (walk->exit_count == walk->exit_max)
            return false;
        walk->exits[walk->exit_count++] = insn->addr;
        return true;
    case TL_FLOW_JUMP:
    case TL_FLOW_COND:
        if (tl_analysis_site(walk->module->analysis, insn->target, &facts, NULL) ||
            !facts.function.size)
            return false;
        return function_add(walk, facts.function.vaddr);
    case TL_FLOW_IJUMP:
        return false;
    default:
        return true;
    }
}

static bool function_walk(struct exit_walk *walk, tl_addr function)
{
    size_t count = tl_analysis_insns(walk->module->analysis, function, walk->vaddrs,
                                     EXIT_INSNS_MAX);
    if (!count || count > EXIT_INSNS_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct tl_insn insn;
        if (!tl_session_insn(walk->module, walk->vaddrs[i], &insn) || !insn_walk(walk, &insn))
            return false;
    }
    return true;
}

bool tl_session_exits(struct tl_module *module, tl_addr function, tl_addr *exits, size_t max,
                      size_t *count)
{
    struct exit_walk walk = {.module = module, .exits = exits, .exit_max = max};
    bool found = function_add(&walk, function);
    walk.vaddrs = calloc(EXIT_INSNS_MAX, sizeof *walk.vaddrs);
    found &= walk.vaddrs != NULL;
    for (size_t i = 0; found && i < walk.function_count; i++)
        found = function_walk(&walk, walk.function[i]);
    free(walk.vaddrs);
    *count = walk.exit_count;
    return found;
}

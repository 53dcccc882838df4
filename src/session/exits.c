// Finds the instructions by which a fault handler returns: its own, and those of the functions that
// it jumps to in its place.
//
// Invariant: when every exit is found, the handler can leave by no other instruction but one that
// never comes back to the faulting instruction by itself. Where control goes through a register or
// memory nothing is known, and the answer is no.
#include "session/internal.h"

#include <stdlib.h>

#define EXIT_FUNCTIONS_MAX 8u

struct exit_walk {
    struct tl_module *module;
    tl_addr function[EXIT_FUNCTIONS_MAX];
    size_t function_count;
    struct tl_exit *found; // TL_EXITS_MAX
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

static bool exit_take(struct exit_walk *walk, const struct tl_exit *exit)
{
    struct tl_site_facts facts;
    struct tl_insn insn;
    switch ((enum tl_exit_kind)exit->kind) {
    case TL_EXIT_RET:
        if (walk->exit_count == walk->exit_max)
            return false;
        walk->exits[walk->exit_count++] = exit->vaddr;
        return true;
    case TL_EXIT_TAIL:
    case TL_EXIT_COND_TAIL:
        return tl_session_insn(walk->module, exit->vaddr, &insn) &&
               !tl_analysis_site(walk->module->analysis, insn.target, &facts, NULL) &&
               facts.function.size && function_add(walk, facts.function.vaddr);
    case TL_EXIT_ITAIL:
    default:
        return false;
    }
}

static bool function_walk(struct exit_walk *walk, tl_addr function)
{
    enum tl_refusal refusal;
    size_t count;
    if (tl_analysis_exits(walk->module->analysis, function, walk->found, TL_EXITS_MAX, &count,
                          &refusal, NULL) ||
        (refusal != TL_REFUSE_NONE && refusal != TL_REFUSE_NO_EXIT))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!exit_take(walk, &walk->found[i]))
            return false;
    }
    return true;
}

bool tl_session_exits(struct tl_module *module, tl_addr function, tl_addr *exits, size_t max,
                      size_t *count)
{
    struct exit_walk walk = {.module = module, .exits = exits, .exit_max = max};
    bool found = function_add(&walk, function);
    walk.found = calloc(TL_EXITS_MAX, sizeof *walk.found);
    found &= walk.found != NULL;
    for (size_t i = 0; found && i < walk.function_count; i++)
        found = function_walk(&walk, walk.function[i]);
    free(walk.found);
    *count = walk.exit_count;
    return found;
}

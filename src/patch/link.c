// Return addresses that are replaced and still in their register: of stopped threads, and of what
// signal handlers interrupted.
//
// Whose one is, the function's own code says, read from where the thread stands: it goes on to
// store the register, or to return by it. What calls before is past that, and has the register in
// no use. Puts back what the caller knows the original of; leaves alone what it can't tell.
// Invariant: all ways on from there that say something say the same, and a function that comes by a
// jump says nothing by its stores.
#include "arch/arch.h"
#include "attach/isa.h"
#include "patch/install.h"

#include <string.h>

#define STEPS_MAX 512u // instructions that are looked at

struct step {
    tl_addr addr;
    int64_t sp, fp; // above the stack pointer where the walk began
    bool jumped;
};

struct walk {
    struct tl_target *target;
    const struct tl_maps *maps;
    const struct tl_writes
        *writes; // of patches, whose bytes are not the program's. NULL: not known
    const struct tl_arch *arch;
    tl_addr sp;
    struct step step[STEPS_MAX];
    size_t count;
    bool torn; // too long, or two ways say different things
    struct tl_link link;
};

static void step_add(struct walk *walk, struct step step)
{
    for (size_t i = 0; i < walk->count; i++) {
        if (walk->step[i].addr == step.addr) {
            walk->torn |= walk->step[i].sp != step.sp;
            return;
        }
    }
    if (walk->count == STEPS_MAX)
        walk->torn = true;
    else
        walk->step[walk->count++] = step;
}

static void told(struct walk *walk, tl_addr *what, tl_addr addr)
{
    walk->torn |= *what && *what != addr;
    *what = addr;
}

static bool insn_read(const struct walk *walk, tl_addr addr, struct tl_insn *out)
{
    uint8_t bytes[TL_INSN_SIZE_MAX];
    const struct tl_map *map = tl_maps_at(walk->maps, addr);
    size_t size = walk->arch->insn_size_max;
    if (!map || !tl_map_is_text(map))
        return false;
    size = size < map->end - addr ? size : (size_t)(map->end - addr);
    if (tl_target_read(walk->target, addr, bytes, size, NULL) != 0)
        return false;
    for (size_t i = 0; walk->writes && i < size; i++) {
        const struct tl_write *write = tl_writes_at(walk->writes, addr + i);
        if (write && write->state == TL_WRITE_DONE)
            bytes[i] = write->patch.before[addr + i - write->patch.addr];
    }
    return walk->arch->decode(bytes, size, addr, out) == 0;
}

static int64_t moved(const struct walk *walk, const struct step *step, uint8_t from, int32_t plus)
{
    int64_t base = from == walk->arch->sp_reg   ? step->sp
                   : from == walk->arch->fp_reg ? step->fp
                                                : TL_DEPTH_UNKNOWN;
    return base == TL_DEPTH_UNKNOWN ? base : base + plus;
}

// Goes on behind an instruction that leaves the register as it is.
static void next_add(struct walk *walk, const struct step *step, const struct tl_insn *insn)
{
    struct tl_stack_step change;
    struct step next = *step;
    walk->arch->stack(insn, &change);
    next.addr = insn->addr + insn->size;
    next.sp = moved(walk, step, change.sp_from, change.sp_plus);
    next.fp = moved(walk, step, change.fp_from, change.fp_plus);
    if (next.sp == TL_DEPTH_UNKNOWN)
        return;
    if (insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_COND)
        step_add(walk, next);
    next.addr = insn->target;
    next.jumped |= insn->flow == TL_FLOW_JUMP;
    if (insn->flow == TL_FLOW_COND || insn->flow == TL_FLOW_JUMP)
        step_add(walk, next);
}

static void step_take(struct walk *walk, const struct step *step)
{
    struct tl_insn insn;
    int64_t below;
    if (!insn_read(walk, step->addr, &insn))
        return;
    if (insn.flow == TL_FLOW_RET) {
        told(walk, &walk->link.entry, walk->sp + (uint64_t)step->sp);
        return;
    }
    int64_t fp = step->fp == TL_DEPTH_UNKNOWN ? step->fp : -step->fp;
    if (walk->arch->stores_return(&insn, -step->sp, fp, &below)) {
        if (below == TL_DEPTH_UNKNOWN)
            walk->torn = true;
        else if (!step->jumped)
            told(walk, &walk->link.place, walk->sp - (uint64_t)below);
        return;
    }
    if (insn.flow == TL_FLOW_NEXT || insn.flow == TL_FLOW_COND || insn.flow == TL_FLOW_JUMP) {
        if (!(insn.written & TL_REGSET(walk->arch->link_reg)))
            next_add(walk, step, &insn);
    }
}

// false: not found.
static bool link_find(const struct tl_link_search *search, tl_addr pc, tl_addr sp,
                      struct tl_link *out)
{
    struct walk walk = {.target = search->target,
                        .maps = search->maps,
                        .writes = search->writes,
                        .arch = tl_arch_find(tl_machine),
                        .sp = sp};
    step_add(&walk, (struct step){.addr = pc, .fp = TL_DEPTH_UNKNOWN});
    for (size_t i = 0; i < walk.count && !walk.torn; i++)
        step_take(&walk, &walk.step[i]);
    *out = walk.link;
    return !walk.torn && (out->entry || out->place);
}

struct stack_search {
    const struct tl_link_search *search;
    size_t count;
};

static void stack_word(tl_addr addr, uint64_t word, void *opaque)
{
    struct stack_search *stack = opaque;
    const struct tl_link_search *search = stack->search;
    uint8_t bytes[TL_SAVED_REGS_SIZE_MAX];
    struct tl_link link;
    tl_addr pc, sp;
    if (!addr || word != search->replaced ||
        tl_target_read(search->target, addr - tl_saved_regs.link_off, bytes, tl_saved_regs.size,
                       NULL) != 0 ||
        !tl_saved_regs_are(bytes, &pc, &sp) || !link_find(search, pc, sp, &link))
        return;
    uint64_t original = search->original(&link, search->opaque);
    stack->count += original && tl_target_write(search->target, addr, &original, sizeof original,
                                                NULL, NULL) == 0;
}

size_t tl_links_put_back(const struct tl_link_search *search)
{
    struct stack_search stack = {search, 0};
    if (!tl_saved_regs.size)
        return 0;
    for (size_t i = 0; i < tl_target_thread_count(search->target); i++) {
        struct tl_thread_view view;
        struct tl_link link;
        if (tl_target_thread_view(search->target, i, &view) != 0)
            continue;
        uint64_t original =
            view.link == search->replaced && link_find(search, view.pc, view.sp, &link)
                ? search->original(&link, search->opaque)
                : 0;
        stack.count +=
            original && tl_target_thread_set_link(search->target, i, original, NULL) == 0;
        (void)tl_stack_words(search->target, &view, stack_word, &stack);
    }
    return stack.count;
}

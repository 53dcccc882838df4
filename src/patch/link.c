// Return addresses that are replaced and still in their register: of stopped threads, and of what
// signal handlers interrupted.
//
// Whose one is, the function's own code says, read from where the thread stands: it goes on to
// store the register, or to return by it. What calls before is past that, and has the register in
// no use. Who stands in our code, or in the agent for it, comes from there to the function's by a
// branch back; a detour keeps the register in a frame while it calls the agent. Puts back what the
// caller knows the original of; leaves alone what it can't tell.
// Invariant: all ways on from there that say something say the same, and a function that comes by a
// jump says nothing by its stores.
#include "arch/arch.h"
#include "attach/isa.h"
#include "patch/install.h"

#include <string.h>

#define STEPS_MAX 512u    // instructions that are looked at
#define WINDOW_MAX 16u    // bytes
#define AGENT_REACH 1024u // of a stack that the agent needs at most
#define IN_REGISTER                                                                                \
    0u // where what a function takes for its return address is when the walk begins; or its address
#define LOST 1u // in neither

struct step {
    tl_addr addr;
    int64_t sp, fp; // above the stack pointer where the walk began
    tl_addr from;   // IN_REGISTER, LOST, or an address
    tl_addr saved;  // where our code has stored the register. 0: nowhere
    tl_addr kept;   // from, then
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
    tl_addr from; // of what was told
};

static void step_add(struct walk *walk, struct step step)
{
    for (size_t i = 0; i < walk->count; i++) {
        if (walk->step[i].addr == step.addr) {
            walk->torn |= walk->step[i].sp != step.sp || walk->step[i].from != step.from;
            return;
        }
    }
    if (walk->count == STEPS_MAX)
        walk->torn = true;
    else
        walk->step[walk->count++] = step;
}

static void told(struct walk *walk, const struct step *step, tl_addr *what, tl_addr addr)
{
    if (step->from == LOST)
        return;
    walk->torn |= (walk->link.entry || walk->link.place) && walk->from != step->from;
    walk->torn |= *what && *what != addr;
    walk->from = step->from;
    *what = addr;
}

static bool is_ours(const struct tl_maps *maps, tl_addr addr)
{
    const struct tl_map *map = tl_maps_at(maps, addr);
    return map && map->prot & TL_PROT_EXEC && tl_map_is(map, TL_CODE_PATH);
}

static bool insn_read(const struct walk *walk, tl_addr addr, struct tl_insn *out)
{
    uint8_t bytes[TL_INSN_SIZE_MAX];
    const struct tl_map *map = tl_maps_at(walk->maps, addr);
    size_t size = walk->arch->insn_size_max;
    if (!map || !(tl_map_is_text(map) || is_ours(walk->maps, addr)))
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

// A branch inside of our code, or from there to behind a patch, whose window may be longer than it.
static bool comes_back(const struct walk *walk, tl_addr from, tl_addr to)
{
    bool back = is_ours(walk->maps, to);
    if (!is_ours(walk->maps, from))
        return false;
    for (tl_addr i = 1; i <= WINDOW_MAX && !back && walk->writes; i++)
        back = tl_writes_at(walk->writes, to - i) != NULL;
    return back;
}

// Goes on behind an instruction.
static void next_add(struct walk *walk, const struct step *step, const struct tl_insn *insn)
{
    struct tl_stack_step change;
    struct step next = *step;
    bool back = comes_back(walk, insn->addr, insn->target);
    walk->arch->stack(insn, &change);
    next.addr = insn->addr + insn->size;
    next.sp = moved(walk, step, change.sp_from, change.sp_plus);
    next.fp = moved(walk, step, change.fp_from, change.fp_plus);
    if (next.sp == TL_DEPTH_UNKNOWN)
        return;
    if (insn->flow != TL_FLOW_JUMP)
        step_add(walk, next);
    if (insn->flow != TL_FLOW_COND && insn->flow != TL_FLOW_JUMP)
        return;
    // What our code has stored and not taken back is the function's own store.
    if (back && next.saved && !is_ours(walk->maps, insn->target)) {
        told(walk, &next, &walk->link.place, next.saved);
        return;
    }
    next.addr = insn->target;
    next.jumped |= insn->flow == TL_FLOW_JUMP && !back;
    step_add(walk, next);
}

// In our code, which keeps the register in a frame while it calls the agent.
static void our_step_take(struct walk *walk, const struct step *step, const struct tl_insn *insn)
{
    struct step here = *step;
    int64_t below;
    if (walk->arch->loads_return(insn, -step->sp, &below)) {
        tl_addr at = walk->sp - (uint64_t)below;
        here.from = at == step->saved ? step->kept : at;
        here.saved = 0;
    } else if (walk->arch->stores_return(insn, -step->sp, TL_DEPTH_UNKNOWN, &below)) {
        here.saved =
            below != TL_DEPTH_UNKNOWN && step->from != LOST ? walk->sp - (uint64_t)below : 0;
        here.kept = step->from;
    } else if (insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL ||
               insn->written & TL_REGSET(walk->arch->link_reg)) {
        here.from = LOST;
    }
    if (insn->flow != TL_FLOW_IJUMP && insn->flow != TL_FLOW_STOP)
        next_add(walk, &here, insn);
}

static void step_take(struct walk *walk, const struct step *step)
{
    struct tl_insn insn;
    int64_t below;
    if (!insn_read(walk, step->addr, &insn))
        return;
    if (insn.flow == TL_FLOW_RET) {
        told(walk, step, &walk->link.entry, walk->sp + (uint64_t)step->sp);
        return;
    }
    if (is_ours(walk->maps, step->addr)) {
        our_step_take(walk, step, &insn);
        return;
    }
    int64_t fp = step->fp == TL_DEPTH_UNKNOWN ? step->fp : -step->fp;
    if (walk->arch->stores_return(&insn, -step->sp, fp, &below)) {
        if (below == TL_DEPTH_UNKNOWN)
            walk->torn = true;
        else if (!step->jumped)
            told(walk, step, &walk->link.place, walk->sp - (uint64_t)below);
        return;
    }
    if (insn.flow == TL_FLOW_NEXT || insn.flow == TL_FLOW_COND || insn.flow == TL_FLOW_JUMP) {
        if (!(insn.written & TL_REGSET(walk->arch->link_reg)))
            next_add(walk, step, &insn);
    }
}

// What belongs into the register of a function that goes on at pc, and where it has it:
// IN_REGISTER, or in a frame of our code's. 0: not known.
static uint64_t link_find(const struct tl_link_search *search, tl_addr pc, tl_addr sp,
                          tl_addr *from)
{
    struct walk walk = {.target = search->target,
                        .maps = search->maps,
                        .writes = search->writes,
                        .arch = tl_arch_find(tl_machine),
                        .sp = sp};
    step_add(&walk, (struct step){.addr = pc, .fp = TL_DEPTH_UNKNOWN});
    for (size_t i = 0; i < walk.count && !walk.torn; i++)
        step_take(&walk, &walk.step[i]);
    if (walk.torn || !(walk.link.entry || walk.link.place))
        return 0;
    *from = walk.from;
    return search->original(&walk.link, search->opaque);
}

// ---- where they stand ---------------------------------------------------------------------------

// A thread, or what a handler has interrupted, at pc.
struct stand {
    tl_addr pc, sp;
    uint64_t link;
};

static bool is_detour(const struct tl_link_search *search, tl_addr addr)
{
    return is_ours(search->maps, addr) && (addr < search->agent.start || addr >= search->agent.end);
}

// In the agent: each word of the stack that leads to the trampoline may be that of a record frame;
// the way back to the detour is in the register, or on the stack too. What the detour's code then
// says of it decides.
static uint64_t agent_find(const struct tl_link_search *search, const struct stand *stand,
                           tl_addr *from)
{
    const struct tl_arch *arch = tl_arch_find(tl_machine);
    uint64_t word[AGENT_REACH / sizeof(uint64_t)], original;
    size_t size = sizeof word;
    tl_addr back = is_detour(search, stand->link) ? stand->link : 0;
    while (size && tl_target_read(search->target, stand->sp, word, size, NULL) != 0)
        size /= 2; // the stack ends
    for (size_t i = 0; i < size / sizeof *word && !back; i++)
        back = is_detour(search, word[i]) ? word[i] : 0;
    for (size_t i = 0; i < size / sizeof *word && back; i++) {
        tl_addr at = stand->sp + i * sizeof *word;
        if (word[i] != search->replaced)
            continue;
        original = link_find(search, back, at - arch->record_link, from);
        if (original && *from == at)
            return original;
    }
    return 0;
}

// What belongs to who stands there, and where it has it. 0: nothing that was replaced, or not
// known.
static uint64_t stand_find(const struct tl_link_search *search, const struct stand *stand,
                           tl_addr *from)
{
    uint64_t word = stand->link, original;
    bool ours = is_ours(search->maps, stand->pc);
    if (ours && !is_detour(search, stand->pc))
        return agent_find(search, stand, from);
    if (!ours && stand->link != search->replaced)
        return 0;
    original = link_find(search, stand->pc, stand->sp, from);
    if (original && *from != IN_REGISTER &&
        tl_target_read(search->target, *from, &word, sizeof word, NULL) != 0)
        return 0;
    return word == search->replaced ? original : 0;
}

static bool word_put_back(const struct tl_link_search *search, tl_addr addr, uint64_t original)
{
    return tl_target_write(search->target, addr, &original, sizeof original, NULL, NULL) == 0;
}

struct stack_search {
    const struct tl_link_search *search;
    struct tl_range ours; // from the first mapping of our code to the last
    size_t count;
};

// A word that leads to our code may be a register that the kernel keeps for a handler: the link, or
// the pc.
static void stack_word(tl_addr addr, uint64_t word, void *opaque)
{
    struct stack_search *stack = opaque;
    const struct tl_link_search *search = stack->search;
    uint8_t bytes[TL_SAVED_REGS_SIZE_MAX];
    struct stand stand;
    tl_addr from;
    if (!addr || word - stack->ours.start >= stack->ours.end - stack->ours.start)
        return;
    tl_addr regs =
        addr - (word == search->replaced ? tl_saved_regs.link_off : tl_saved_regs.pc_off);
    if (tl_target_read(search->target, regs, bytes, tl_saved_regs.size, NULL) != 0 ||
        !tl_saved_regs_are(bytes, &stand.pc, &stand.sp) ||
        (word != search->replaced && stand.pc != word))
        return;
    memcpy(&stand.link, bytes + tl_saved_regs.link_off, sizeof stand.link);
    uint64_t original = stand_find(search, &stand, &from);
    if (original)
        stack->count += word_put_back(
            search, from == IN_REGISTER ? regs + tl_saved_regs.link_off : from, original);
}

static struct tl_range ours_find(const struct tl_maps *maps)
{
    struct tl_range ours = {0, 0};
    for (size_t i = 0; i < maps->count; i++) {
        const struct tl_map *map = &maps->map[i];
        if (!is_ours(maps, map->start))
            continue;
        ours.start = ours.end ? ours.start : map->start;
        ours.end = map->end;
    }
    return ours;
}

size_t tl_links_put_back(const struct tl_link_search *search)
{
    struct stack_search stack = {search, ours_find(search->maps), 0};
    if (!tl_saved_regs.size)
        return 0;
    for (size_t i = 0; i < tl_target_thread_count(search->target); i++) {
        struct tl_thread_view view;
        tl_addr from;
        if (tl_target_thread_view(search->target, i, &view) != 0)
            continue;
        const struct stand stand = {view.pc, view.sp, view.link};
        uint64_t original = stand_find(search, &stand, &from);
        if (original && from == IN_REGISTER)
            stack.count += tl_target_thread_set_link(search->target, i, original, NULL) == 0;
        else if (original)
            stack.count += word_put_back(search, from, original);
        (void)tl_stack_words(search->target, &view, stack_word, &stack);
    }
    return stack.count;
}

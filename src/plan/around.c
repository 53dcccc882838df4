// Facts of code that nobody asked for: what is dead where a detour leads, and which straight code could make room.
//
// A search for room meets the same places for each site and each way, and their facts cost a decoder's work. So
// text is looked through once, in pieces, and only where a search comes by:
//
//   piece   |addi|addi|auipc|mv|mv| call |ld|addi|slli|add|xor|or| ...
//            `------ straight ----'       `---- straight --------'
//
// Does not place anything. Invariants: what is kept does not depend on the site that asked; straight code of one
// piece does not overlap; with `alone` nothing is gone, for then each site is the only one.
#include "plan/around.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_SIZE 4096u
#define PIECE_STRAIGHT_MAX (PIECE_SIZE / 16) // no ISA's longer branch and what it makes room for take less
#define LOOKED_MAX 32u // pieces that one search looks through for the first time
#define DEAD_CACHE 1024u

struct piece {
    bool looked;
    uint16_t count;
    struct tl_straight *straight;
};

struct module_around {
    struct piece *piece; // NULL: not looked at yet
    size_t count;
};

struct tl_around {
    struct {
        tl_addr addr; // 0: empty
        tl_regset dead;
    } dead[DEAD_CACHE];
    size_t module_count;
    struct module_around module[];
};

struct tl_around *tl_around_create(size_t module_count)
{
    struct tl_around *around =
        calloc(1, sizeof *around + module_count * sizeof around->module[0]);
    if (around)
        around->module_count = module_count;
    return around;
}

void tl_around_destroy(struct tl_around *around)
{
    for (size_t i = 0; around && i < around->module_count; i++) {
        for (size_t k = 0; k < around->module[i].count; k++)
            free(around->module[i].piece[k].straight);
        free(around->module[i].piece);
    }
    free(around);
}

// ---- dead registers -----------------------------------------------------------------------------------------

tl_regset tl_around_dead(const struct tl_planner *planner, const struct tl_plan_module *module, tl_addr addr)
{
    struct tl_site_facts facts;
    size_t index = addr / planner->arch->insn_align % DEAD_CACHE;
    if (planner->around->dead[index].addr == addr)
        return planner->around->dead[index].dead;
    bool known = module->site &&
                 !module->site(module->analysis, addr - (tl_addr)module->bias, &facts, NULL) && !facts.refusal;
    tl_regset dead = known ? tl_dead_later(planner, &facts.insn[0], facts.dead) : 0;
    planner->around->dead[index].addr = addr;
    planner->around->dead[index].dead = dead;
    return dead;
}

// ---- straight code ------------------------------------------------------------------------------------------

static bool plain(const struct tl_planner *planner, const struct tl_insn *insn)
{
    bool moves = insn->reloc == TL_RELOC_COPY || insn->reloc == TL_RELOC_PCREL;
    // Where faults are handled: nobody guards what nobody asked for.
    return moves && (planner->options->faults == TL_FAULT_ANY || !(insn->flags & TL_INSN_MAY_FAULT));
}

// Bytes of straight code from the place on: as many whole instructions as a window may hold. *behind is where it is
// worth to look next if they are too few.
static unsigned straight_size(const struct tl_planner *planner, const struct tl_site_facts *facts, tl_addr *behind)
{
    unsigned size = 0, i = 0;
    for (; i < facts->insn_count && i < TL_WINDOW_INSNS_MAX; i++) {
        const struct tl_insn *insn = &facts->insn[i];
        unsigned end = size + insn->size;
        if (end > TL_PATCH_SIZE_MAX)
            break;
        *behind = facts->vaddr + (end > facts->window_max && size ? size : end);
        if (end > facts->window_max || !plain(planner, insn))
            break;
        size = end;
        if (insn->flow != TL_FLOW_NEXT)
            break;
    }
    return size;
}

static int piece_look(const struct tl_planner *planner, const struct tl_plan_module *module, struct piece *piece,
                      tl_addr start, tl_addr end)
{
    struct tl_straight found[PIECE_STRAIGHT_MAX];
    const struct tl_arch *arch = planner->arch;
    unsigned least = arch->far_size + arch->reload_size;
    size_t count = 0, stride = arch->insn_align;
    piece->looked = true;
    for (tl_addr vaddr = start; vaddr < end && count < PIECE_STRAIGHT_MAX;) {
        struct tl_site_facts facts;
        if (module->site(module->analysis, vaddr, &facts, NULL))
            break;
        tl_addr behind = vaddr + arch->insn_align;
        // What no function owns may be long, and is dear to judge: it is left in longer and longer steps.
        stride = facts.function.size ? arch->insn_align : 2 * stride;
        if (!facts.function.size) {
            vaddr += stride;
            continue;
        }
        if (facts.refusal || facts.go || facts.no_stack) {
            if (facts.refusal != TL_REFUSE_NOT_BOUNDARY && facts.insn_count)
                behind = vaddr + facts.insn[0].size;
            vaddr = behind;
            continue;
        }
        unsigned size = straight_size(planner, &facts, &behind);
        if (size < least) {
            vaddr = behind;
        } else if (!(tl_dead_before(&facts.insn[0], facts.dead) & arch->far_regs)) {
            vaddr += facts.insn[0].size;
        } else {
            found[count++] = (struct tl_straight){.vaddr = vaddr, .size = (uint8_t)size};
            vaddr += size;
        }
    }
    if (!count)
        return 0;
    piece->straight = malloc(count * sizeof found[0]);
    if (!piece->straight)
        return TL_E_NOMEM;
    memcpy(piece->straight, found, count * sizeof found[0]);
    piece->count = (uint16_t)count;
    return 0;
}

static struct module_around *module_find(const struct tl_planner *planner, const struct tl_plan_module *module)
{
    struct module_around *own = &planner->around->module[module - planner->modules];
    if (!own->piece) {
        size_t count = (module->text.end - module->text.start) / PIECE_SIZE + 1;
        own->piece = calloc(count, sizeof *own->piece);
        own->count = own->piece ? count : 0;
    }
    return own;
}

// The piece of this turn: the site's own, the one below, the one above, and so on. NULL: none there.
static struct piece *piece_turn(const struct module_around *own, size_t first, size_t side, size_t *index)
{
    size_t apart = (side + 1) / 2;
    *index = side % 2 ? first - apart : first + apart; // wraps below 0
    return *index < own->count ? &own->piece[*index] : NULL;
}

struct tl_straight *tl_around_straight(const struct tl_planner *planner, const struct tl_plan_module *module,
                                       struct tl_straight_search *search)
{
    struct module_around *own = module_find(planner, module);
    size_t first = (search->vaddr - module->text.start) / PIECE_SIZE;
    for (; search->side <= 2 * (search->reach / PIECE_SIZE + 1); search->side++, search->index = 0) {
        size_t index;
        struct piece *piece = piece_turn(own, first, search->side, &index);
        if (!piece)
            continue;
        tl_addr start = module->text.start + index * PIECE_SIZE, end = start + PIECE_SIZE;
        if (!piece->looked && (search->looked++ >= LOOKED_MAX ||
                               piece_look(planner, module, piece, start,
                                          end < module->text.end ? end : module->text.end)))
            return NULL;
        while (search->index < piece->count) {
            struct tl_straight *straight = &piece->straight[search->index++];
            tl_addr apart = straight->vaddr > search->vaddr ? straight->vaddr - search->vaddr
                                                            : search->vaddr - straight->vaddr;
            if (!straight->gone && straight->size >= search->size_min &&
                apart + TL_PATCH_SIZE_MAX < search->reach)
                return straight;
        }
    }
    return NULL;
}

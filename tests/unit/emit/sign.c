// Pointers as instructions want them that check a signature, and words of rows of which few are
// allocated.
#include "sign.h"

#include <stddef.h>
#include <string.h>

#include "arch/arm64/arm64.h"
#include "arch/arm64/writer.h"

// Where rows that check a signature have their pointer, what it is signed with, and the two bits or
// one that choose the key, of which the first is `key` (C6.2).
enum { WITH_ZERO = 32, WITH_SP, WITH_LOW, WITH_NEXT, AT_LOW, AT_NEXT };
static const struct {
    const char *row;
    uint8_t pointer,
        with; // a register's number, or a field: the lowest five bits, or the next five
    uint8_t key, shift, bits;
} form[] = {
    {"braz", AT_NEXT, WITH_ZERO, 0, 10, 1},  {"bra", AT_NEXT, WITH_LOW, 0, 10, 1},
    {"blraz", AT_NEXT, WITH_ZERO, 0, 10, 1}, {"blra", AT_NEXT, WITH_LOW, 0, 10, 1},
    {"reta", 30, WITH_SP, 0, 10, 1},         {"aut1716", 17, 16, 0, 6, 1},
    {"autsp", 30, WITH_SP, 0, 6, 1},         {"autz", 30, WITH_ZERO, 0, 6, 1},
    {"aut", AT_LOW, WITH_NEXT, 0, 10, 2},    {"aut-zero", AT_LOW, WITH_ZERO, 0, 10, 2},
    {"ldra", AT_NEXT, WITH_ZERO, 2, 23, 1},  {"ldra-index", AT_NEXT, WITH_ZERO, 2, 23, 1},
};

static uint64_t signed_pointer(uint64_t pointer, uint64_t modifier, unsigned key)
{
    register uint64_t x0 __asm__("x0") = pointer;
    register uint64_t x1 __asm__("x1") = modifier;
    switch (key) { // pacia, pacib, pacda, pacdb x0, x1
    case 0:
        __asm__(".inst 0xdac10020" : "+r"(x0) : "r"(x1));
        break;
    case 1:
        __asm__(".inst 0xdac10420" : "+r"(x0) : "r"(x1));
        break;
    case 2:
        __asm__(".inst 0xdac10820" : "+r"(x0) : "r"(x1));
        break;
    default:
        __asm__(".inst 0xdac10c20" : "+r"(x0) : "r"(x1));
    }
    return x0;
}

void pointer_sign(const struct tl_insn *insn, struct machine_state *state, uint64_t (*next)(void))
{
    const char *name = tl_arm64_row(insn->row)->name;
    uint32_t word = tl_arm64_word(insn);
    uint64_t to = insn->flow == TL_FLOW_NEXT ? DATA_ADDR + 0x1000 + next() % 0x2000 / 8 * 8
                                             : FIELD_ADDR + next() % 0x100000 / 4 * 4;
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        if (strcmp(form[i].row, name) != 0)
            continue;
        unsigned at = form[i].pointer, with = form[i].with;
        unsigned key = form[i].key + (word >> form[i].shift & ((1u << form[i].bits) - 1));
        at = at == AT_LOW ? word & 31 : at == AT_NEXT ? word >> 5 & 31 : at;
        with = with == WITH_LOW ? word & 31 : with == WITH_NEXT ? word >> 5 & 31 : with;
        uint64_t modifier = with == WITH_ZERO                     ? 0
                            : with == WITH_SP || with == REG_ZERO ? state->sp
                                                                  : state->reg[with];
        if (at != REG_ZERO)
            state->reg[at] = signed_pointer(to, modifier, key);
    }
}

uint32_t word_of(const struct row *row, uint64_t (*next)(void))
{
    // mrs of nzcv, fpcr, fpsr, tpidr_el0, tpidrro_el0, ctr_el0, dczid_el0.
    static const uint32_t named[] = {0xd53b4200, 0xd53b4400, 0xd53b4420, 0xd53bd040,
                                     0xd53bd060, 0xd53b0020, 0xd53b00e0};
    uint64_t some = next();
    uint32_t word = named[(some >> 32) % (sizeof named / sizeof *named)] | (some & 31);
    return (word & row->mask) == row->value ? word : row->value | ((uint32_t)some & ~row->mask);
}

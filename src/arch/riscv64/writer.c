// Writes branches, addresses and literals. Decides nothing about what a detour does. Invariant:
// nothing is written outside bytes[0 .. capacity), and a writer that is full stays full.
#include "arch/riscv64/writer.h"

#define LITERAL_SIZE 8u
#define LOW_MIN (-2048)
#define LOW_MAX 2047

unsigned tl_parcel_size(uint32_t word)
{
    return (word & 3) == 3 ? 4 : 2;
}

void tl_parcels_put(struct tl_parcels *w, uint32_t word)
{
    unsigned size = tl_parcel_size(word);
    if (w->full || w->capacity - w->size < (int)size) {
        w->full = true;
        return;
    }
    __builtin_memcpy(w->bytes + w->size, &word, size);
    w->size = (uint16_t)(w->size + size);
}

// ---- branches
// -----------------------------------------------------------------------------------------

// Where the bits of a displacement lie: `width` of them from bit `from` of it go to bit `to` of the
// word. The last one of a form has the sign.
struct piece {
    uint8_t from, width, to;
};
#define PIECES_MAX 8
struct form {
    uint32_t mask, value;
    struct piece piece[PIECES_MAX];
};

// RISC-V ISA manual volume I, "Immediate Encoding Variants" and "Control Transfer Instructions" of
// C.
static const struct form forms[] = {
    {0x0000007f, 0x0000006f, {{1, 10, 21}, {11, 1, 20}, {12, 8, 12}, {20, 1, 31}}}, // jal
    {0x0000007f, 0x00000063, {{1, 4, 8}, {5, 6, 25}, {11, 1, 7}, {12, 1, 31}}},     // b<cond>
    {0x0000e003,                                                                    // c.j
     0x0000a001,
     {{1, 3, 3}, {4, 1, 11}, {5, 1, 2}, {6, 1, 7}, {7, 1, 6}, {8, 2, 9}, {10, 1, 8}, {11, 1, 12}}},
    {0x0000c003,
     0x0000c001,
     {{1, 2, 3}, {3, 2, 10}, {5, 1, 2}, {6, 2, 5}, {8, 1, 12}}}, // c.beqz, c.bnez
};

static uint32_t piece_mask(const struct piece *piece)
{
    return ((UINT32_C(1) << piece->width) - 1) << piece->to;
}

bool tl_parcel_aim(uint32_t *word, int64_t disp)
{
    const struct form *form = NULL;
    unsigned last = 0;
    uint32_t aimed = *word;
    for (size_t i = 0; i < TL_ARRAY_COUNT(forms) && !form; i++) {
        if ((*word & forms[i].mask) == forms[i].value)
            form = &forms[i];
    }
    if (!form || disp % 2 != 0)
        return false;
    while (last + 1 < PIECES_MAX && form->piece[last + 1].width)
        last++;
    int64_t half = INT64_C(1) << form->piece[last].from;
    if (disp < -half || disp >= half)
        return false;
    for (unsigned i = 0; i <= last; i++) {
        uint32_t mask = piece_mask(&form->piece[i]);
        aimed =
            (aimed & ~mask) | ((uint32_t)(disp >> form->piece[i].from) << form->piece[i].to & mask);
    }
    *word = aimed;
    return true;
}

bool tl_parcels_put_aimed(struct tl_parcels *w, uint32_t word, tl_addr to)
{
    if (!tl_parcel_aim(&word, (int64_t)(to - tl_parcels_here(w))))
        return false;
    tl_parcels_put(w, word);
    return true;
}

bool tl_parcels_put_jump(struct tl_parcels *w, tl_addr to)
{
    return tl_parcels_put_aimed(w, RVC_J, to) || tl_parcels_put_aimed(w, RV_JAL(X_ZERO), to);
}

uint16_t tl_parcels_open(struct tl_parcels *w, uint32_t word)
{
    uint16_t position = w->size;
    tl_parcels_put(w, word);
    return position;
}

void tl_parcels_close(struct tl_parcels *w, uint16_t position, uint16_t to)
{
    uint32_t word = 0;
    if (w->full)
        return;
    __builtin_memcpy(&word, w->bytes + position, 2);
    unsigned size = tl_parcel_size(word);
    __builtin_memcpy(&word, w->bytes + position, size);
    if (!tl_parcel_aim(&word, (int64_t)to - position))
        w->full = true; // a form whose reach is less than a detour
    __builtin_memcpy(w->bytes + position, &word, size);
}

// ---- addresses and constants
// --------------------------------------------------------------------------

bool tl_parcel_split(int64_t disp, uint32_t *high, int32_t *low)
{
    if (disp < INT32_MIN + (int64_t)LOW_MIN || disp > INT32_MAX + (int64_t)LOW_MIN)
        return false;
    uint64_t rounded = (uint64_t)(disp - LOW_MIN);
    *high = (uint32_t)(rounded >> 12) & 0xfffff;
    *low = (int32_t)(rounded & 0xfff) + LOW_MIN;
    return true;
}

static void literal_load(struct tl_parcels *w, unsigned rd, uint64_t value)
{
    uint16_t index = 0;
    while (index < w->literal_count && w->literal[index] != value)
        index++;
    if (index == TL_PARCELS_LITERALS_MAX || w->ref_count == TL_PARCELS_REFS_MAX) {
        w->full = true;
        return;
    }
    if (index == w->literal_count)
        w->literal[w->literal_count++] = value;
    w->ref[w->ref_count].position = w->size;
    w->ref[w->ref_count].literal = (uint8_t)index;
    w->ref_count++;
    tl_parcels_put(w, RV_AUIPC(rd, 0));
    tl_parcels_put(w, RV_LD(rd, rd, 0));
}

void tl_parcels_put_literals(struct tl_parcels *w)
{
    if (!w->literal_count)
        return;
    while (tl_parcels_here(w) % LITERAL_SIZE && !w->full)
        tl_parcels_put(w, 0); // never run; defined to be illegal
    uint16_t first = w->size;
    if (w->full || w->capacity - w->size < (int)(LITERAL_SIZE * w->literal_count)) {
        w->full = true;
        return;
    }
    __builtin_memcpy(w->bytes + first, w->literal, LITERAL_SIZE * w->literal_count);
    w->size = (uint16_t)(first + LITERAL_SIZE * w->literal_count);
    for (uint16_t i = 0; i < w->ref_count; i++) {
        uint16_t position = w->ref[i].position;
        uint32_t load, distance = first + LITERAL_SIZE * w->ref[i].literal - position;
        __builtin_memcpy(&load, w->bytes + position + 4, sizeof load);
        load |= distance << 20; // a detour is smaller than the reach
        __builtin_memcpy(w->bytes + position + 4, &load, sizeof load);
    }
}

int32_t tl_parcels_put_page(struct tl_parcels *w, unsigned rd, uint64_t value)
{
    uint32_t high;
    int32_t low;
    if (!tl_parcel_split((int64_t)(value - tl_parcels_here(w)), &high, &low)) {
        literal_load(w, rd, value);
        return 0;
    }
    tl_parcels_put(w, RV_AUIPC(rd, high));
    return low;
}

void tl_parcels_put_address(struct tl_parcels *w, unsigned rd, uint64_t value)
{
    int32_t low = tl_parcels_put_page(w, rd, value);
    if (low != 0)
        tl_parcels_put_add(w, rd, rd, low);
}

void tl_parcels_put_far(struct tl_parcels *w, unsigned rd, tl_addr to)
{
    int32_t low = tl_parcels_put_page(w, rd, to);
    tl_parcels_put(w, low ? RV_JALR(X_ZERO, rd, low) : RVC_JR(rd));
}

static bool fits_6(int32_t value)
{
    return value >= -32 && value <= 31;
}

static bool fits_12(int32_t value)
{
    return value >= LOW_MIN && value <= LOW_MAX;
}

void tl_parcels_put_constant(struct tl_parcels *w, unsigned rd, int32_t value)
{
    int32_t low = (int32_t)((uint32_t)value << 20) >> 20;
    if (fits_6(value)) {
        tl_parcels_put(w, RVC_LI(rd, value));
    } else if (fits_12(value)) {
        tl_parcels_put(w, RV_ADDI(rd, X_ZERO, value));
    } else {
        tl_parcels_put(w, RV_LUI(rd, ((uint32_t)value - (uint32_t)low) >> 12));
        if (low)
            tl_parcels_put(w, RV_ADDIW(rd, rd, low)); // wraps at 32 bits
    }
}

void tl_parcels_put_add(struct tl_parcels *w, unsigned rd, unsigned rs1, int32_t value)
{
    if (rd == rs1 && fits_6(value) && value) {
        tl_parcels_put(w, RVC_ADDI(rd, value));
    } else if (fits_12(value)) {
        tl_parcels_put(w, RV_ADDI(rd, rs1, value));
    } else {
        tl_parcels_put_constant(w, rd, value);
        tl_parcels_put(w, RVC_ADD(rd, rs1));
    }
}

void tl_parcels_put_stack(struct tl_parcels *w, int32_t bytes)
{
    uint32_t imm = (uint32_t)bytes;
    if (fits_6(bytes))
        tl_parcels_put(w, RVC_ADDI(X_SP, bytes));
    else // c.addi16sp
        tl_parcels_put(w, 0x6101u | (imm >> 9 & 1) << 12 | (imm >> 4 & 1) << 6 |
                              (imm >> 6 & 1) << 5 | (imm >> 7 & 3) << 3 | (imm >> 5 & 1) << 2);
}

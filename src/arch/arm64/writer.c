// Writes branches, addresses and literals. Decides nothing about what a detour does. Invariant:
// nothing is written outside bytes[0 .. capacity), and a writer that is full stays full.
#include "arch/arm64/writer.h"

#define LITERAL_SIZE 8u
#define PAGE ((int64_t)4096) // adrp's, whatever the kernel's pages are

void tl_words_put(struct tl_words *w, uint32_t word)
{
    if (w->full || w->capacity - w->size < (int)sizeof word) {
        w->full = true;
        return;
    }
    __builtin_memcpy(w->bytes + w->size, &word, sizeof word);
    w->size = (uint16_t)(w->size + sizeof word);
}

// Width and place of the displacement, in words. C4.1 "Branches, Exception Generating and System
// instructions", "Loads and Stores".
static bool aim_field(uint32_t word, unsigned *low, unsigned *width)
{
    *low = 5;
    *width = 19;
    if ((word & 0x7c000000) == 0x14000000) { // b, bl
        *low = 0;
        *width = 26;
    } else if ((word & 0x7e000000) == 0x36000000) { // tbz, tbnz
        *width = 14;
    } else if ((word & 0x7e000000) == 0x74000000) { // cb<cc>
        *width = 9;
    } else if ((word & 0xff000000) != 0x54000000 && // b.cond, bc.cond
               (word & 0x7e000000) != 0x34000000 && // cbz, cbnz
               (word & 0x3b000000) != 0x18000000) { // ldr, ldrsw, prfm of a literal
        return false;
    }
    return true;
}

bool tl_word_aim(uint32_t *word, int64_t disp)
{
    unsigned low, width;
    if (!aim_field(*word, &low, &width) || disp % 4 != 0)
        return false;
    int64_t words = disp / 4, half = INT64_C(1) << (width - 1);
    if (words < -half || words >= half)
        return false;
    uint32_t mask = ((UINT32_C(1) << width) - 1) << low;
    *word = (*word & ~mask) | ((uint32_t)words << low & mask);
    return true;
}

bool tl_words_put_aimed(struct tl_words *w, uint32_t word, tl_addr to)
{
    if (!tl_word_aim(&word, (int64_t)(to - tl_words_here(w))))
        return false;
    tl_words_put(w, word);
    return true;
}

uint16_t tl_words_open(struct tl_words *w, uint32_t word)
{
    uint16_t position = w->size;
    tl_words_put(w, word);
    return position;
}

void tl_words_close(struct tl_words *w, uint16_t position, uint16_t to)
{
    uint32_t word;
    if (w->full)
        return;
    __builtin_memcpy(&word, w->bytes + position, sizeof word);
    if (!tl_word_aim(&word, (int64_t)to - position))
        w->full = true; // a form whose reach is less than a detour
    __builtin_memcpy(w->bytes + position, &word, sizeof word);
}

static void literal_load(struct tl_words *w, unsigned rd, uint64_t value)
{
    uint16_t index = 0;
    while (index < w->literal_count && w->literal[index] != value)
        index++;
    if (index == TL_WORDS_LITERALS_MAX || w->ref_count == TL_WORDS_REFS_MAX) {
        w->full = true;
        return;
    }
    if (index == w->literal_count)
        w->literal[w->literal_count++] = value;
    w->ref[w->ref_count].position = w->size;
    w->ref[w->ref_count].literal = (uint8_t)index;
    w->ref_count++;
    tl_words_put(w, 0x58000000u | rd); // ldr xd, literal
}

void tl_words_put_literals(struct tl_words *w)
{
    if (!w->literal_count)
        return;
    while (tl_words_here(w) % LITERAL_SIZE && !w->full)
        tl_words_put(w, 0); // udf #0: never run
    uint16_t first = w->size;
    for (uint16_t i = 0; i < w->literal_count; i++) {
        tl_words_put(w, (uint32_t)w->literal[i]);
        tl_words_put(w, (uint32_t)(w->literal[i] >> 32));
    }
    for (uint16_t i = 0; i < w->ref_count; i++)
        tl_words_close(w, w->ref[i].position, (uint16_t)(first + LITERAL_SIZE * w->ref[i].literal));
}

// adr and adrp: 21 bits, the low two apart.
static void adr_put(struct tl_words *w, uint32_t opcode, unsigned rd, int64_t value)
{
    tl_words_put(w, opcode | ((uint32_t)value & 3) << 29 | ((uint32_t)(value >> 2) & 0x7ffff) << 5 |
                        rd);
}

static bool adr_reaches(int64_t value)
{
    return value >= -(INT64_C(1) << 20) && value < INT64_C(1) << 20;
}

unsigned tl_words_put_page(struct tl_words *w, unsigned rd, uint64_t value, unsigned scale)
{
    unsigned low = (unsigned)(value & (PAGE - 1));
    int64_t disp = (int64_t)(value - tl_words_here(w));
    int64_t pages = (int64_t)(value / PAGE) - (int64_t)(tl_words_here(w) / PAGE);
    if (adr_reaches(pages) && low % scale == 0) {
        adr_put(w, 0x90000000u, rd, pages); // adrp
        return low;
    }
    if (adr_reaches(disp)) {
        adr_put(w, 0x10000000u, rd, disp);
    } else if (adr_reaches(pages)) {
        adr_put(w, 0x90000000u, rd, pages);
        tl_words_put(w, A64_ADD_IMM(rd, rd, low));
    } else {
        literal_load(w, rd, value);
    }
    return 0;
}

void tl_words_put_address(struct tl_words *w, unsigned rd, uint64_t value)
{
    tl_words_put_page(w, rd, value, (unsigned)PAGE);
}

void tl_words_put_constant(struct tl_words *w, unsigned rd, uint32_t value)
{
    tl_words_put(w, 0x52800000u | (value & 0xffff) << 5 | rd); // movz wd
    if (value >> 16)
        tl_words_put(w, 0x72a00000u | value >> 16 << 5 | rd); // movk wd, lsl #16
}

void tl_words_put_add(struct tl_words *w, unsigned rd, unsigned rn, uint32_t value)
{
    uint32_t low = value & 0xfff, high = value >> 12;
    if (high)
        tl_words_put(w, A64_ADD_IMM_12(rd, rn, high));
    if (low || !high)
        tl_words_put(w, A64_ADD_IMM(rd, high ? rd : rn, low));
}

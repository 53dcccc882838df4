// What the texts of scalable vector instructions hold beside plain numbers: registers that a field
// stands for in part, sizes and lanes in one number, patterns, constants. The rest is in print.c
// and print_vector.c. Keeps: a kind that it does not know is left to the caller.
#include "arch/arm64/print.h"

#include <inttypes.h>

#define VECTORS 32
#define PREDICATES 16
#define FOURTHS 4 // tuples of four begin at every fourth register, or are four apart
#define EIGHTHS 8
#define ALL_BITS 6 // log2 of the bits of the widest element

static const char sizes[] = "bhsdq";

// The register behind a field: its place in a tuple, and how far apart tuples or their parts are.
// With a stride the highest bit counts 16 and the others fill the lowest places (DDI 0487,
// "Multi-vector operands").
static const struct {
    uint8_t kind, times, stride, more;
} numbers[] = {
    {PRINT_N, 1, 0, 0},      {PRINT_N_1, 1, 0, 1},    {PRINT_N_2, 1, 0, 2},
    {PRINT_N_3, 1, 0, 3},    {PRINT_N_8, 1, 0, 8},    {PRINT_N_12, 1, 0, 12},
    {PRINT_N2, 2, 0, 0},     {PRINT_N2_1, 2, 0, 1},   {PRINT_N2_2, 2, 0, 2},
    {PRINT_N2_16, 2, 0, 16}, {PRINT_N2_17, 2, 0, 17}, {PRINT_N4, 4, 0, 0},
    {PRINT_N4_3, 4, 0, 3},   {PRINT_N8, 8, 0, 0},     {PRINT_S8, 1, 8, 0},
    {PRINT_S8_8, 1, 8, 8},   {PRINT_S4, 1, 4, 0},     {PRINT_S4_4, 1, 4, 4},
    {PRINT_S4_8, 1, 4, 8},   {PRINT_S4_12, 1, 4, 12},
};

static bool put_register_number(struct text_out *out, unsigned kind, uint32_t number)
{
    for (size_t i = 0; i < TL_ARRAY_COUNT(numbers); i++) {
        if (numbers[i].kind != kind)
            continue;
        unsigned stride = numbers[i].stride;
        uint32_t first =
            stride == 0 ? number * numbers[i].times : number / stride * 16 + number % stride;
        bool wraps = kind == PRINT_N_1 || kind == PRINT_N_2 || kind == PRINT_N_3;
        tl_arm64_put(out, "%" PRIu32,
                     wraps ? (first + numbers[i].more) % VECTORS : first + numbers[i].more);
        return true;
    }
    return false;
}

static unsigned highest_bit(uint32_t number)
{
    return number != 0 ? 31u - (unsigned)__builtin_clz(number) : 0;
}

static unsigned lowest_bit(uint32_t number)
{
    return number != 0 ? (unsigned)__builtin_ctz(number) : 0;
}

// The bits of a constant of 13 bits that say how wide its element is: the highest, and the lowest
// six inverted.
static unsigned mask_element(uint32_t number)
{
    return highest_bit(number >> 12 << ALL_BITS | (~number & 0x3f));
}

// The constant that bits n, immr and imms stand for in a vector, as one element (DDI 0487,
// "DecodeBitMasks").
static uint64_t mask_value(uint32_t number)
{
    unsigned element = 1u << mask_element(number);
    unsigned ones = (number & (element - 1) & 0x3f) + 1, turn = number >> 6 & (element - 1) & 0x3f;
    uint64_t all = element == 64 ? UINT64_MAX : ((uint64_t)1 << element) - 1;
    uint64_t value = ones >= 64 ? UINT64_MAX : ((uint64_t)1 << ones) - 1;
    if (turn != 0)
        value = (value >> turn | value << (element - turn)) & all;
    for (unsigned at = element; at < 8; at *= 2)
        value |= value << at;
    return value;
}

// How many elements of a vector a pattern takes (DDI 0487, "DecodePredCount"), and how many times.
static void put_count(struct text_out *out, uint32_t number)
{
    static const uint16_t powers[] = {16, 32, 64, 128, 256};
    uint32_t pattern = number & 31, times = number >> 5;
    if (pattern == 31 && times == 0)
        return;
    if (pattern == 0)
        tl_arm64_put(out, ", pow2");
    else if (pattern <= 8)
        tl_arm64_put(out, ", vl%" PRIu32, pattern);
    else if (pattern < 9 + TL_ARRAY_COUNT(powers))
        tl_arm64_put(out, ", vl%u", powers[pattern - 9]);
    else if (pattern < 29)
        tl_arm64_put(out, ", #%" PRIu32, pattern);
    else
        tl_arm64_put(out, pattern == 31 ? ", all" : pattern == 30 ? ", mul3" : ", mul4");
    if (times != 0)
        tl_arm64_put(out, ", mul #%" PRIu32, times + 1);
}

static void put_prefetch(struct text_out *out, uint32_t number)
{
    if ((number >> 1 & 3) == 3)
        tl_arm64_put(out, "#%" PRIu32, number);
    else
        tl_arm64_put(out, "p%sl%" PRIu32 "%s", number >> 3 != 0 ? "st" : "ld",
                     (number >> 1 & 3) + 1, (number & 1) != 0 ? "strm" : "keep");
}

static void put_shifted(struct text_out *out, uint32_t number, bool is_signed)
{
    int32_t value = is_signed ? (int8_t)number : (uint8_t)number;
    if (value == 0 && number >> 8 != 0)
        tl_arm64_put(out, "#0, lsl #8");
    else
        tl_arm64_put(out, "#%" PRId32, number >> 8 != 0 ? value * 256 : value);
}

// Tiles of 64 bit elements, a bit each; larger tiles are sets of them (DDI 0487, "ZERO (tiles)").
static void put_tiles(struct text_out *out, uint32_t number)
{
    static const uint8_t of_size[] = {0xff, 0x55, 0x11, 0x01}; // tile 0 of each size
    const char *before = "{";
    for (unsigned size = 0; size < TL_ARRAY_COUNT(of_size); size++)
        for (unsigned tile = 0; tile < 1u << size; tile++) {
            uint32_t part = (uint32_t)of_size[size] << tile;
            if ((number & part) != part)
                continue;
            number &= ~part;
            if (size == 0)
                tl_arm64_put(out, "%sza", before);
            else
                tl_arm64_put(out, "%sza%u.%c", before, tile, sizes[size]);
            before = ", ";
        }
    tl_arm64_put(out, "%s}", *before == '{' ? "{" : "");
}

static bool put_size(struct text_out *out, unsigned kind, uint32_t number)
{
    switch (kind) {
    case PRINT_ZT:
        tl_arm64_put(out, "%c", sizes[highest_bit(number) & 3]);
        return true;
    case PRINT_ZT2:
        tl_arm64_put(out, "%c", sizes[(highest_bit(number) & 3) + 1]);
        return true;
    case PRINT_ZLOW: {
        unsigned size = lowest_bit(number);
        tl_arm64_put(out, "%c", sizes[size < 5 ? size : 0]);
        return true;
    }
    case PRINT_ZT13: {
        unsigned element = mask_element(number);
        tl_arm64_put(out, "%c", sizes[element < 3 ? 0 : element - 3]);
        return true;
    }
    default:
        return false;
    }
}

static bool put_constant(struct text_out *out, unsigned kind, uint32_t number)
{
    switch (kind) {
    case PRINT_OPEN:
        tl_arm64_put(out, "{");
        return true;
    case PRINT_ZK:
        tl_arm64_put(out, "%" PRIu32, 20 + (number >> 2) * EIGHTHS + number % FOURTHS);
        return true;
    case PRINT_ZELEM:
        tl_arm64_put(out, "%" PRIu32, number >> (lowest_bit(number) + 1));
        return true;
    case PRINT_ZMASK:
        tl_arm64_put(out, "#0x%" PRIx64, mask_value(number));
        return true;
    case PRINT_ZCPY:
    case PRINT_ZADD:
        put_shifted(out, number, kind == PRINT_ZCPY);
        return true;
    case PRINT_ZCOUNT:
        put_count(out, number);
        return true;
    case PRINT_ZPRF:
        put_prefetch(out, number);
        return true;
    case PRINT_ZEROED:
        put_tiles(out, number);
        return true;
    case PRINT_P_1:
        tl_arm64_put(out, "%" PRIu32, (number + 1) % PREDICATES);
        return true;
    case PRINT_MINUS16:
        tl_arm64_put(out, "#%" PRIu32, 16 - number);
        return true;
    case PRINT_ZVL:
    case PRINT_ZVL2:
    case PRINT_ZVL3:
    case PRINT_ZVL4:
        if (number != 0)
            tl_arm64_put(out, ", #%" PRId32 ", mul vl",
                         (int32_t)number * (int32_t)(kind - PRINT_ZVL + 1));
        return true;
    default:
        return false;
    }
}

bool tl_arm64_put_scalable(struct text_out *out, unsigned kind, uint32_t number)
{
    return put_register_number(out, kind, number) || put_size(out, kind, number) ||
           put_constant(out, kind, number);
}

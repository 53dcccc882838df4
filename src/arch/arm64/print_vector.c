// What the texts of vector instructions hold: registers with arrangements and lanes, lists, constants, shifts.
// The rest is in print.c. Keeps: a kind that it does not know is left to the caller.
#include "arch/arm64/print.h"

#include <inttypes.h>

static uint32_t bits(uint32_t word, unsigned shift, unsigned width)
{
    return word >> shift & ((1u << width) - 1);
}

// Lanes of 1 << size bytes in 8 bytes, or 16 with q.
static void put_vector(struct text_out *out, uint32_t reg, unsigned size, bool q)
{
    tl_arm64_put(out, "v%u.%u%c", reg & 31, (q ? 16 : 8) >> size, "bhsdq"[size < 4 ? size : 4]);
}

static void put_lane(struct text_out *out, uint32_t reg, unsigned size, unsigned lane)
{
    tl_arm64_put(out, "v%u.%c[%u]", reg & 31, "bhsd"[size & 3], lane);
}

static void put_scalar(struct text_out *out, uint32_t reg, unsigned size)
{
    tl_arm64_put(out, "%c%u", "bhsdq"[size < 4 ? size : 4], reg & 31);
}

static unsigned lowest_bit(uint32_t number)
{
    return number != 0 ? (unsigned)__builtin_ctz(number) : 0;
}

static unsigned highest_bit(uint32_t number)
{
    return number != 0 ? 31u - (unsigned)__builtin_clz(number) : 0;
}

static void put_list(struct text_out *out, uint32_t first, unsigned count, const char *lanes)
{
    uint32_t last = (first + count - 1) & 31;
    tl_arm64_put(out, "{");
    if (count > 1)
        tl_arm64_put(out, "v%u.%s-v%u.%s}", first, lanes, last, lanes);
    else
        tl_arm64_put(out, "v%u.%s}", first, lanes);
}

static const char *const arrangements[] = {"8b", "16b", "4h", "8h", "2s", "4s", "1d", "2d"};

// Loads and stores of structures: bit 24 tells lanes from whole registers (DDI 0487, C4.1.94 and on).
static bool structure_is_lane(uint32_t word)
{
    return bits(word, 24, 1) != 0;
}

static unsigned structure_registers(uint32_t word)
{
    static const uint8_t of_opcode[16] = {4, 0, 4, 0, 3, 0, 3, 1, 2, 0, 2};
    if (structure_is_lane(word))
        return bits(word, 13, 1) * 2 + bits(word, 21, 1) + 1;
    return of_opcode[bits(word, 12, 4)];
}

static unsigned lane_size(uint32_t word)
{
    unsigned op = bits(word, 14, 2), size = bits(word, 10, 2);
    if (op == 3)
        return size;
    return op == 2 && size == 1 ? 3 : op;
}

static bool put_structure(struct text_out *out, unsigned kind)
{
    uint32_t word = out->word, rt = bits(word, 0, 5), q = bits(word, 30, 1);
    unsigned count = structure_registers(word), size = lane_size(word);
    switch (kind) {
    case PRINT_VLIST:
    case PRINT_VREP:
        put_list(out, rt, count, arrangements[bits(word, 10, 2) * 2 + q]);
        return true;
    case PRINT_VLANE: {
        unsigned place = q << 3 | bits(word, 12, 1) << 2 | bits(word, 10, 2);
        char lane[2] = {"bhsd"[size & 3], 0};
        put_list(out, rt, count, lane);
        tl_arm64_put(out, "[%u]", place >> size);
        return true;
    }
    case PRINT_POST:
        tl_arm64_put(out, "#%u", structure_is_lane(word) ? count << size : count * (q != 0 ? 16 : 8));
        return true;
    default:
        return false;
    }
}

// Numbers whose lowest five bits are the register.
static bool put_register(struct text_out *out, unsigned kind, uint32_t number)
{
    uint32_t above = number >> 5, q = above & 1;
    switch (kind) {
    case PRINT_V:
        put_vector(out, number, above >> 1, q);
        return true;
    case PRINT_V_LONG:
        put_vector(out, number, (above >> 1) + 1, q);
        return true;
    case PRINT_VW:
        put_vector(out, number, above + 1, true);
        return true;
    case PRINT_VF:
        put_vector(out, number, 2 + (above >> 1), q);
        return true;
    case PRINT_VF_HALF:
        put_vector(out, number, 1 + (above >> 1), q);
        return true;
    case PRINT_VF_FULL:
        put_vector(out, number, 2 + above, true);
        return true;
    case PRINT_VF_LOW:
        put_vector(out, number, 2 + above, q);
        return true;
    case PRINT_V_2H:
    case PRINT_V2H:
        tl_arm64_put(out, "v%u.%uh", number & 31, q != 0 ? 4 : 2);
        return true;
    case PRINT_VB:
    case PRINT_VH:
    case PRINT_VS:
        put_vector(out, number, kind == PRINT_VB ? 0 : kind == PRINT_VH ? 1 : 2, q);
        return true;
    case PRINT_V16B:
    case PRINT_V8H:
    case PRINT_V4S:
    case PRINT_V2D:
        put_vector(out, number, kind - PRINT_V16B, true);
        return true;
    case PRINT_V5:
        put_vector(out, number, lowest_bit(above >> 1), q);
        return true;
    case PRINT_VI:
        put_vector(out, number, highest_bit(above >> 1), q);
        return true;
    case PRINT_VWI:
        put_vector(out, number, highest_bit(above) + 1, true);
        return true;
    default:
        return false;
    }
}

static bool put_scalar_register(struct text_out *out, unsigned kind, uint32_t number)
{
    uint32_t above = number >> 5;
    switch (kind) {
    case PRINT_H_REG:
    case PRINT_S_REG:
    case PRINT_D_REG:
    case PRINT_Q_REG:
        put_scalar(out, number, 1 + kind - PRINT_H_REG);
        return true;
    case PRINT_FT:
        put_scalar(out, number, above == 3 ? 1 : 2 + above);
        return true;
    case PRINT_F_LONG:
        put_scalar(out, number, above + 1);
        return true;
    case PRINT_FI:
    case PRINT_FI_LONG:
        put_scalar(out, number, highest_bit(above) + (kind == PRINT_FI_LONG));
        return true;
    case PRINT_F5:
        put_scalar(out, number, lowest_bit(above));
        return true;
    case PRINT_W5:
        tl_arm64_put(out, "%c", (above & 15) == 8 ? 'x' : 'w');
        tl_arm64_put(out, (number & 31) == 31 ? "zr" : "%u", number & 31);
        return true;
    case PRINT_TOP:
        put_lane(out, number, 3, 1);
        return true;
    case PRINT_ELEM:
        put_lane(out, number, lowest_bit(above), above >> (lowest_bit(above) + 1));
        return true;
    case PRINT_ELEM4:
        put_lane(out, number, lowest_bit(above >> 4), (above & 15) >> lowest_bit(above >> 4));
        return true;
    case PRINT_S_LANE:
        put_lane(out, number >> 2, 2, number & 3);
        return true;
    case PRINT_Z:
        tl_arm64_put(out, "z%u", number);
        return true;
    case PRINT_ZS:
        tl_arm64_put(out, "z%u.%c", number & 31, "bhsd"[above & 3]);
        return true;
    case PRINT_P:
        tl_arm64_put(out, "p%u", number);
        return true;
    case PRINT_TLIST:
        put_list(out, number & 31, above + 1, "16b");
        return true;
    default:
        return false;
    }
}

// One lane of a register, named by the bits size, l, m, rm (4) and h.
static bool put_index(struct text_out *out, unsigned kind, uint32_t number)
{
    uint32_t h = number & 1, low = number >> 1 & 15, m = number >> 5 & 1, l = number >> 6 & 1, size = number >> 7;
    uint32_t reg = m << 4 | low, two = h << 1 | l, three = two << 1 | m;
    switch (kind) {
    case PRINT_VIDX:
        if (size == 1)
            put_lane(out, low, 1, three);
        else
            put_lane(out, reg, 2, two);
        return true;
    case PRINT_FIDX:
        put_lane(out, reg, 2 + size, size != 0 ? h : two);
        return true;
    case PRINT_HIDX:
        put_lane(out, low, 1, three);
        return true;
    case PRINT_CIDX:
        put_lane(out, reg, 1, two);
        return true;
    case PRINT_CSIDX:
        put_lane(out, reg, 2, h);
        return true;
    case PRINT_BIDX:
    case PRINT_B2IDX:
        tl_arm64_put(out, "v%u.%s[%u]", reg, kind == PRINT_BIDX ? "4b" : "2h", two);
        return true;
    default:
        return false;
    }
}

// Eight bits as a floating point number (DDI 0487, "VFPExpandImm").
static double small_float(uint32_t number)
{
    int power = (int)((number >> 4 & 7) ^ 4) - 3;
    double value = (double)(16 + (number & 15)) / 16;
    for (; power > 0; power--)
        value *= 2;
    for (; power < 0; power++)
        value /= 2;
    return (number & 0x80) != 0 ? -value : value;
}

static uint64_t byte_mask(uint32_t number)
{
    uint64_t mask = 0;
    for (unsigned i = 0; i < 8; i++)
        mask |= (number >> i & 1) != 0 ? (uint64_t)0xff << 8 * i : 0;
    return mask;
}

static bool put_number(struct text_out *out, unsigned kind, uint32_t number)
{
    unsigned size = 8u << highest_bit(number >> 3);
    switch (kind) {
    case PRINT_SHR:
        tl_arm64_put(out, "#%u", 2 * size - number);
        return true;
    case PRINT_SHL:
        tl_arm64_put(out, "#%u", number - size);
        return true;
    case PRINT_MINUS64:
        tl_arm64_put(out, "#%u", 64 - number);
        return true;
    case PRINT_FIMM:
        tl_arm64_put(out, "#%.18e", small_float(number));
        return true;
    case PRINT_MASK64:
        tl_arm64_put(out, "#0x%" PRIx64, byte_mask(number));
        return true;
    default:
        return false;
    }
}

bool tl_arm64_put_vector(struct text_out *out, unsigned kind, uint32_t number)
{
    return put_register(out, kind, number) || put_scalar_register(out, kind, number) ||
           put_index(out, kind, number) || put_number(out, kind, number) || put_structure(out, kind);
}

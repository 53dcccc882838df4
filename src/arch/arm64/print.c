// One A64 word -> its text, as the table's rows say it, in the words of the Arm manual. Decides nothing.
// Keeps: what a row has no text for, or no row describes, is shown as a number.
#include "arch/arm64/print.h"

#include "arch/arm64/arm64.h"
#include "arch/arm64/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tl_arm64_put(struct text_out *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(out->text + out->used, sizeof(out->text) - out->used, format, args);
    va_end(args);
    size_t room = sizeof(out->text) - 1 - out->used;
    out->used += size < 0 ? 0 : (size_t)size < room ? (size_t)size : room;
}

static uint32_t bits(uint32_t word, unsigned shift, unsigned width)
{
    return word >> shift & ((1u << width) - 1);
}

// The n-th of words with | between, without end.
static void put_choice(struct text_out *out, const char *words, uint32_t number)
{
    while (number-- != 0 && (words = strchr(words, '|')) != NULL)
        words++;
    if (words != NULL)
        tl_arm64_put(out, "%.*s", (int)strcspn(words, "|"), words);
}

static void put_reg(struct text_out *out, bool wide, uint32_t number, bool sp)
{
    if ((number & 31) != 31)
        tl_arm64_put(out, "%c%u", wide ? 'x' : 'w', number & 31);
    else if (sp)
        tl_arm64_put(out, wide ? "sp" : "wsp");
    else
        tl_arm64_put(out, wide ? "xzr" : "wzr");
}

static const char conditions[] = "eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al|nv";

// Bits n, immr and imms as the constant they stand for (DDI 0487, "DecodeBitMasks").
static uint64_t bitmask_value(uint32_t word)
{
    unsigned size = bits(word, 31, 1) != 0 ? 64 : 32;
    uint32_t imms = bits(word, 10, 6), immr = bits(word, 16, 6);
    uint32_t key = bits(word, 22, 1) << 6 | (~imms & 0x3f);
    if (key < 2)
        return 0;
    unsigned element = 1u << (31 - __builtin_clz(key));
    unsigned ones = (imms & (element - 1)) + 1, turn = immr & (element - 1);
    uint64_t mask = element == 64 ? UINT64_MAX : ((uint64_t)1 << element) - 1;
    uint64_t value = ones == 64 ? UINT64_MAX : ((uint64_t)1 << ones) - 1;
    if (turn != 0)
        value = (value >> turn | value << (element - turn)) & mask;
    for (unsigned at = element; at < size; at *= 2)
        value |= value << at;
    return value;
}

static uint64_t wide_value(uint32_t word)
{
    uint64_t value = (uint64_t)bits(word, 5, 16) << 16 * bits(word, 21, 2);
    if (bits(word, 29, 2) == 0)
        value = ~value;
    return bits(word, 31, 1) != 0 ? value : (uint32_t)value;
}

static bool is_wide(uint64_t value, unsigned size)
{
    for (unsigned shift = 0; shift < size; shift += 16)
        if ((value & ~((uint64_t)0xffff << shift)) == 0)
            return true;
    return false;
}

bool tl_arm64_text_check(unsigned check, uint32_t word)
{
    unsigned size = bits(word, 31, 1) != 0 ? 64 : 32;
    uint32_t imm16 = bits(word, 5, 16);
    switch (check) {
    case CHECK_BITMASK_MOV: {
        uint64_t value = bitmask_value(word);
        uint64_t other = size == 64 ? ~value : (uint32_t)~value;
        return !is_wide(value, size) && !is_wide(other, size);
    }
    case CHECK_WIDE_MOV:
        if (imm16 == 0 && bits(word, 21, 2) != 0)
            return false;
        return bits(word, 29, 2) != 0 || size == 64 || imm16 != 0xffff;
    case CHECK_COND:
        return bits(word, 13, 3) != 7;
    default:
        return true;
    }
}

static void put_shift(struct text_out *out, uint32_t number)
{
    static const char kinds[] = "lsl|lsr|asr|ror";
    if (number == 0)
        return;
    tl_arm64_put(out, ", ");
    put_choice(out, kinds, number >> 6);
    tl_arm64_put(out, " #%u", number & 63);
}

static const char extensions[] = "uxtb|uxth|uxtw|uxtx|sxtb|sxth|sxtw|sxtx";

// With the stack pointer, the extension that changes nothing is written lsl, or not at all.
static void put_extend(struct text_out *out, uint32_t number)
{
    uint32_t option = number >> 3, amount = number & 7, word = out->word;
    bool sp = bits(word, 5, 5) == 31 || (bits(word, 0, 5) == 31 && bits(word, 29, 1) == 0);
    bool plain = sp && option == (bits(word, 31, 1) != 0 ? 3 : 2);
    if (plain && amount == 0)
        return;
    tl_arm64_put(out, ", ");
    put_choice(out, plain ? "lsl" : extensions, plain ? 0 : option);
    if (plain || amount != 0)
        tl_arm64_put(out, " #%u", amount);
}

static unsigned access_shift(uint32_t word)
{
    unsigned size = bits(word, 30, 2);
    return bits(word, 26, 1) != 0 && bits(word, 23, 1) != 0 ? 4 : size;
}

static void put_ext(struct text_out *out, bool scaled)
{
    uint32_t option = bits(out->word, 13, 3);
    bool plain = option == 3;
    if (plain && !scaled)
        return;
    tl_arm64_put(out, ", ");
    put_choice(out, plain ? "lsl" : extensions, plain ? 0 : option);
    if (scaled)
        tl_arm64_put(out, " #%u", access_shift(out->word));
}

static int32_t pair_offset(uint32_t word)
{
    uint32_t opc = bits(word, 30, 2);
    unsigned shift = bits(word, 26, 1) != 0 ? 2 + opc : 2 + (opc >> 1);
    return ((int32_t)(word << 10) >> 25) * (1 << shift);
}

static void put_off(struct text_out *out, int32_t offset)
{
    if (offset != 0)
        tl_arm64_put(out, ", #%" PRId32, offset);
}

// The names of sbfm, bfm and ubfm, by what they do (DDI 0487, C6.2 "SBFM", "BFM", "UBFM").
static void put_bitfield(struct text_out *out)
{
    uint32_t word = out->word;
    bool wide = bits(word, 31, 1) != 0;
    uint32_t size = wide ? 64 : 32, opc = bits(word, 29, 2), immr = bits(word, 16, 6), imms = bits(word, 10, 6);
    uint32_t rn = bits(word, 5, 5), rd = bits(word, 0, 5);
    const char *name = NULL;
    if (opc != 1 && imms == size - 1)
        name = opc == 0 ? "asr" : "lsr";
    else if (opc == 2 && imms + 1 == immr)
        name = "lsl";
    bool extends = immr == 0 && (opc == 0 ? imms == 7 || imms == 15 || (wide && imms == 31)
                                          : opc == 2 && !wide && (imms == 7 || imms == 15));
    if (extends) {
        tl_arm64_put(out, "%cxt%c ", opc == 0 ? 's' : 'u', imms == 7 ? 'b' : imms == 15 ? 'h' : 'w');
        put_reg(out, wide, rd, false);
        tl_arm64_put(out, ", ");
        put_reg(out, false, rn, false);
        return;
    }
    bool inserts = imms < immr;
    const char *names = inserts ? "sbfiz|bfi|ubfiz" : "sbfx|bfxil|ubfx";
    bool clears = opc == 1 && inserts && rn == 31;
    if (name != NULL || clears)
        tl_arm64_put(out, "%s ", clears ? "bfc" : name);
    else
        put_choice(out, names, opc), tl_arm64_put(out, " ");
    put_reg(out, wide, rd, false);
    if (!clears) {
        tl_arm64_put(out, ", ");
        put_reg(out, wide, rn, false);
    }
    if (name != NULL)
        tl_arm64_put(out, ", #%u", *name == 'l' && name[2] == 'l' ? size - immr : immr);
    else if (inserts)
        tl_arm64_put(out, ", #%u, #%u", (size - immr) % size, imms + 1);
    else
        tl_arm64_put(out, ", #%u, #%u", immr, imms - immr + 1);
}

static void put_prfop(struct text_out *out, uint32_t number)
{
    if ((number >> 3) == 3) {
        tl_arm64_put(out, "#0x%02x", number);
        return;
    }
    put_choice(out, "pld|pli|pst", number >> 3);
    put_choice(out, "l1|l2|l3|slc", number >> 1 & 3);
    put_choice(out, "keep|strm", number & 1);
}

static void put_barrier(struct text_out *out, uint32_t crm, uint32_t op)
{
    static const char options[] = "#0x00|oshld|oshst|osh|#0x04|nshld|nshst|nsh|#0x08|ishld|ishst|ish|#0x0c|ld|st|sy";
    if (op == 3 || (op == 0 && (crm == 0 || crm == 4))) {
        tl_arm64_put(out, op == 3 ? "sb" : crm == 0 ? "ssbb" : "pssbb");
    } else if (op == 2) {
        tl_arm64_put(out, crm == 15 ? "isb" : "isb #0x%x", crm);
    } else {
        tl_arm64_put(out, op == 0 ? "dsb " : "dmb ");
        put_choice(out, options, crm);
    }
}

// System registers that programs have (bits 19 to 5 of the word), and operations on caches.
static const struct {
    uint16_t number;
    const char *name;
} system_names[] = {
    {0x5801, "ctr_el0"},     {0x5807, "dczid_el0"},     {0x5920, "rndr"},       {0x5921, "rndrrs"},
    {0x5a10, "nzcv"},        {0x5a11, "daif"},          {0x5a12, "svcr"},       {0x5a15, "dit"},
    {0x5a16, "ssbs"},        {0x5a17, "tco"},           {0x5a20, "fpcr"},       {0x5a21, "fpsr"},
    {0x5ce0, "pmcr_el0"},    {0x5ce8, "pmccntr_el0"},   {0x5e82, "tpidr_el0"},  {0x5e83, "tpidrro_el0"},
    {0x5e85, "tpidr2_el0"},  {0x5f00, "cntfrq_el0"},    {0x5f01, "cntpct_el0"}, {0x5f02, "cntvct_el0"},
    {0x5f05, "cntpctss_el0"}, {0x5f06, "cntvctss_el0"}, {0x5f11, "cntp_ctl_el0"}, {0x5f19, "cntv_ctl_el0"},
    {0x5f1a, "cntv_cval_el0"}, {0x4000, "midr_el1"},    {0x4005, "mpidr_el1"},  {0x4006, "revidr_el1"},
    {0x4020, "id_aa64pfr0_el1"}, {0x4030, "id_aa64isar0_el1"}, {0x4031, "id_aa64isar1_el1"},
    {0x4038, "id_aa64mmfr0_el1"}, {0x4080, "sctlr_el1"}, {0x1808, "mdccsr_el0"},
    {0x1ba1, "dc zva"},      {0x1ba3, "dc gva"},        {0x1ba4, "dc gzva"},    {0x1ba9, "ic ivau"},
    {0x1bd1, "dc cvac"},     {0x1bd9, "dc cvau"},       {0x1be1, "dc cvap"},    {0x1be9, "dc cvadp"},
    {0x1bf1, "dc civac"},    {0x1b9c, "cfp rctx"},      {0x1b9d, "dvp rctx"},   {0x1b9f, "cpp rctx"},
    {0x0438, "tlbi vmalle1"},
};

static const char *system_name(uint32_t number)
{
    for (size_t i = 0; i < TL_ARRAY_COUNT(system_names); i++)
        if (system_names[i].number == number)
            return system_names[i].name;
    return NULL;
}

static void put_system(struct text_out *out, bool is_register)
{
    uint32_t word = out->word, rt = bits(word, 0, 5), op2 = bits(word, 5, 3);
    const char *name = system_name(bits(word, 5, is_register ? 15 : 14));
    if (is_register && name != NULL) {
        tl_arm64_put(out, "%s", name);
        return;
    }
    if (is_register) {
        tl_arm64_put(out, "s%u_%u_c%u_c%u_%u", bits(word, 19, 2), bits(word, 16, 3), bits(word, 12, 4),
            bits(word, 8, 4), op2);
        return;
    }
    if (name != NULL)
        tl_arm64_put(out, "%s", name);
    else
        tl_arm64_put(out, "sys #%u, C%u, C%u, #%u", bits(word, 16, 3), bits(word, 12, 4), bits(word, 8, 4), op2);
    if (rt != 31 || (name != NULL && strncmp(name, "tlbi", 4) != 0)) {
        tl_arm64_put(out, ", ");
        put_reg(out, true, rt, false);
    }
}

static void put_pstate(struct text_out *out)
{
    static const struct {
        uint8_t number; // op1 and op2
        const char *name;
    } names[] = {{003, "uao"}, {004, "pan"}, {005, "spsel"}, {010, "allint"}, {031, "ssbs"},
                 {032, "dit"}, {034, "tco"}, {036, "daifset"}, {037, "daifclr"}};
    uint32_t word = out->word, number = bits(word, 16, 3) << 3 | bits(word, 5, 3);
    for (size_t i = 0; i < TL_ARRAY_COUNT(names); i++)
        if (names[i].number == number) {
            tl_arm64_put(out, "%s", names[i].name);
            return;
        }
    tl_arm64_put(out, "s0_%u_c4_c%u_%u", bits(word, 16, 3), bits(word, 8, 4), bits(word, 5, 3));
}

// Whether a load's register is a whole one: a plain load of 8 bytes, or one that widens by sign to 64 bits.
static bool load_is_wide(uint32_t word)
{
    uint32_t opc = bits(word, 22, 2);
    return opc == 2 || (opc == 1 && bits(word, 30, 2) == 3);
}

static bool put_piece_reg(struct text_out *out, unsigned kind, uint32_t number)
{
    uint32_t word = out->word;
    bool sf = bits(word, 31, 1) != 0, sp = kind == PRINT_RS || kind == PRINT_XS;
    switch (kind) {
    case PRINT_R:
    case PRINT_RS:
        put_reg(out, sf, number, sp);
        return true;
    case PRINT_X:
    case PRINT_XS:
        put_reg(out, true, number, sp);
        return true;
    case PRINT_X_NEXT:
        put_reg(out, true, number + 1, false);
        return true;
    case PRINT_W:
    case PRINT_WSP:
        put_reg(out, false, number, kind == PRINT_WSP);
        return true;
    case PRINT_RB:
        put_reg(out, number >> 5 != 0, number, false);
        return true;
    case PRINT_RZ:
        put_reg(out, bits(word, 30, 2) == 3, number, false);
        return true;
    case PRINT_RLD:
        put_reg(out, load_is_wide(word), number, false);
        return true;
    case PRINT_R30:
    case PRINT_R30_NEXT:
        put_reg(out, bits(word, 30, 1) != 0, number + (kind == PRINT_R30_NEXT), false);
        return true;
    case PRINT_RX:
    case PRINT_RO:
        put_reg(out, (number >> 5 & 3) == 3 && (sf || kind == PRINT_RO), number, false);
        return true;
    case PRINT_FPAIR:
        tl_arm64_put(out, "%c%u", "sdq?"[number >> 5], number & 31);
        return true;
    case PRINT_FSIZE:
        tl_arm64_put(out, "%c%u", "bhsdq???"[number >> 5], number & 31);
        return true;
    default:
        return false;
    }
}

static bool put_piece_number(struct text_out *out, unsigned kind, uint32_t number)
{
    uint32_t word = out->word;
    switch (kind) {
    case PRINT_U:
        tl_arm64_put(out, "#%" PRIu32, number);
        return true;
    case PRINT_I:
        tl_arm64_put(out, "#%" PRId32, (int32_t)number);
        return true;
    case PRINT_H:
        tl_arm64_put(out, "#0x%" PRIx32, number);
        return true;
    case PRINT_C:
        tl_arm64_put(out, "C%" PRIu32, number);
        return true;
    case PRINT_LABEL:
        tl_arm64_put(out, "0x%" PRIx64, out->insn->target);
        return true;
    case PRINT_BACK:
        tl_arm64_put(out, "0x%" PRIx64, out->insn->addr - (uint64_t)number * 4);
        return true;
    case PRINT_OFF:
        put_off(out, (int32_t)number);
        return true;
    case PRINT_OFF_SIZE:
        put_off(out, (int32_t)(bits(word, 10, 12) << access_shift(word)));
        return true;
    case PRINT_PAIR_OFF:
        put_off(out, pair_offset(word));
        return true;
    case PRINT_PAIR_IMM:
        tl_arm64_put(out, "#%" PRId32, pair_offset(word));
        return true;
    case PRINT_BITMASK:
    case PRINT_BITMASK_MOV:
        tl_arm64_put(out, "#0x%" PRIx64, bitmask_value(word));
        return true;
    case PRINT_WIDE:
        tl_arm64_put(out, "#0x%" PRIx64, wide_value(word));
        return true;
    default:
        return false;
    }
}

static void put_piece(struct text_out *out, const struct piece *piece)
{
    uint32_t number = tl_arm64_piece_number(piece, out->word);
    tl_arm64_put(out, "%s", piece->before);
    if (put_piece_reg(out, piece->kind, number) || put_piece_number(out, piece->kind, number) ||
        tl_arm64_put_vector(out, piece->kind, number) || tl_arm64_put_scalable(out, piece->kind, number))
        return;
    switch (piece->kind) {
    case PRINT_CHOICE:
        put_choice(out, piece->choice, number);
        break;
    case PRINT_COND:
    case PRINT_COND_NOT:
        put_choice(out, conditions, number ^ (piece->kind == PRINT_COND_NOT));
        break;
    case PRINT_SHIFT:
        put_shift(out, number);
        break;
    case PRINT_EXTEND:
        put_extend(out, number);
        break;
    case PRINT_EXT:
        put_ext(out, number != 0);
        break;
    case PRINT_BITFIELD:
        put_bitfield(out);
        break;
    case PRINT_PRFOP:
        put_prfop(out, number);
        break;
    case PRINT_PSTATE:
        put_pstate(out);
        break;
    case PRINT_SYSREG:
    case PRINT_SYS:
        put_system(out, piece->kind == PRINT_SYSREG);
        break;
    case PRINT_BARRIER:
        put_barrier(out, number >> 2, number & 3);
        break;
    case PRINT_HINT:
        tl_arm64_put(out, "hint #0x%x", number);
        break;
    default:
        break;
    }
}

void tl_arm64_print(const struct tl_insn *insn, char *buf, size_t size)
{
    struct text_out out = {.insn = insn, .word = tl_arm64_word(insn)};
    const struct text *text = tl_arm64_row_text(tl_arm64_row(insn->row), out.word);
    if (size == 0)
        return;
    if (text == NULL)
        tl_arm64_put(&out, ".inst 0x%08" PRIx32, out.word);
    for (unsigned i = 0; text != NULL && i < text->pieces; i++)
        put_piece(&out, &tl_arm64_text_pieces(text)[i]);
    snprintf(buf, size, "%s", out.text);
}

// One riscv64 instruction -> its text, as the table's rows say it, in the words of binutils without
// aliases: so a compressed instruction shows as one. Decides nothing. Keeps: what a row has no text
// for, or no row describes, is shown as a number.
#include "arch/riscv64/print.h"

#include "arch/riscv64/riscv64.h"
#include "arch/riscv64/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_SIZE 128
#define WORDS_MAX 64 // of a choice

struct text_out {
    char text[TEXT_SIZE];
    size_t used;
    const struct tl_insn *insn;
    uint32_t word;
};

static void __attribute__((format(printf, 2, 3))) put(struct text_out *out, const char *format, ...)
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

// The pick-th of words with | between.
static void put_choice(struct text_out *out, const char *words, uint32_t pick)
{
    for (unsigned i = 0; i < pick && i < WORDS_MAX; i++) {
        const char *bar = strchr(words, '|');
        if (bar == NULL)
            return;
        words = bar + 1;
    }
    put(out, "%.*s", (int)strcspn(words, "|"), words);
}

// psABI, "Register Convention".
static void put_x(struct text_out *out, uint32_t number)
{
    put_choice(out,
               "zero|ra|sp|gp|tp|t0|t1|t2|s0|s1|a0|a1|a2|a3|a4|a5|a6|a7|s2|s3|s4|s5|s6|s7|s8|s9|"
               "s10|s11|t3|t4|t5|t6",
               number);
}

static void put_f(struct text_out *out, uint32_t number)
{
    put_choice(out,
               "ft0|ft1|ft2|ft3|ft4|ft5|ft6|ft7|fs0|fs1|fa0|fa1|fa2|fa3|fa4|fa5|fa6|fa7|fs2|fs3|"
               "fs4|fs5|fs6|fs7|fs8|"
               "fs9|fs10|fs11|ft8|ft9|ft10|ft11",
               number);
}

// The registers that programs meet; others by number.
static const struct {
    uint16_t number;
    const char *name;
} csr_names[] = {
    {0x001, "fflags"},  {0x002, "frm"},  {0x003, "fcsr"},  {0x008, "vstart"}, {0x009, "vxsat"},
    {0x00a, "vxrm"},    {0x00f, "vcsr"}, {0x015, "seed"},  {0xc00, "cycle"},  {0xc01, "time"},
    {0xc02, "instret"}, {0xc20, "vl"},   {0xc21, "vtype"}, {0xc22, "vlenb"},  {0xf14, "mhartid"},
};
#define CSR_COUNTER 0xc03 // hpmcounter3 to hpmcounter31
#define CSR_COUNTERS 29

static void put_csr(struct text_out *out)
{
    uint32_t number = bits(out->word, 20, 12);
    for (size_t i = 0; i < TL_ARRAY_COUNT(csr_names); i++)
        if (csr_names[i].number == number) {
            put(out, "%s", csr_names[i].name);
            return;
        }
    if (number - CSR_COUNTER < CSR_COUNTERS)
        put(out, "hpmcounter%" PRIu32, number - CSR_COUNTER + 3);
    else
        put(out, "0x%" PRIx32, number);
}

static void put_csr_from(struct text_out *out)
{
    uint32_t number = bits(out->word, 15, 5);
    if (bits(out->word, 14, 1) != 0)
        put(out, "%" PRIu32, number);
    else
        put_x(out, number);
}

static void put_order(struct text_out *out, uint32_t set)
{
    if (set == 0)
        put(out, "unknown");
    for (unsigned i = 0; i < 4; i++)
        if ((set & 8 >> i) != 0)
            put(out, "%c", "iorw"[i]);
}

// V, 3.4 "Vector type register". What is reserved there shows as a number.
static void put_vtype(struct text_out *out, uint32_t number)
{
    uint32_t lmul = bits(number, 0, 3), sew = bits(number, 3, 3);
    if (number >> 8 != 0 || lmul == 4 || sew > 3) {
        put(out, "%" PRIu32, number);
        return;
    }
    put(out, "e%u,", 8u << sew);
    put_choice(out, "m1|m2|m4|m8||mf8|mf4|mf2", lmul);
    put(out, ",%s,%s", bits(number, 6, 1) != 0 ? "ta" : "tu",
        bits(number, 7, 1) != 0 ? "ma" : "mu");
}

static bool put_register(struct text_out *out, unsigned kind, uint32_t number)
{
    switch (kind) {
    case PRINT_X:
        put_x(out, number);
        return true;
    case PRINT_XC:
        put_x(out, number + 8);
        return true;
    case PRINT_F:
        put_f(out, number);
        return true;
    case PRINT_FC:
        put_f(out, number + 8);
        return true;
    case PRINT_V:
        put(out, "v%" PRIu32, number);
        return true;
    default:
        return false;
    }
}

// Zfa, "Load-immediate instructions", as binutils write them.
static const char fli_values[] = "-0x1p+0|min|0x1p-16|0x1p-15|0x1p-8|0x1p-7|0x1p-4|0x1p-3|0x1p-2|"
                                 "0x1.4p-2|0x1.8p-2|0x1.cp-2|0x1p-1|0x1.4p-1|"
                                 "0x1.8p-1|0x1.cp-1|0x1p+0|0x1.4p+0|0x1.8p+0|0x1.cp+0|0x1p+1|0x1."
                                 "4p+1|0x1.8p+1|0x1p+2|0x1p+3|0x1p+4|0x1p+7|0x1p+8|"
                                 "0x1p+15|0x1p+16|inf|nan";

static void put_piece(struct text_out *out, const struct piece *piece)
{
    uint32_t number = tl_riscv64_piece_number(piece, out->word);
    put(out, "%s", piece->before);
    if (put_register(out, piece->kind, number))
        return;
    switch (piece->kind) {
    case PRINT_CHOICE:
        put_choice(out, piece->choice, number);
        break;
    case PRINT_D:
        put(out, "%" PRId32, (int32_t)number);
        break;
    case PRINT_H:
        put(out, "0x%" PRIx32, number);
        break;
    case PRINT_UPPER:
        put(out, "0x%" PRIx32, number & 0xfffff);
        break;
    case PRINT_LABEL:
        put(out, "0x%" PRIx64, out->insn->target);
        break;
    case PRINT_CSR:
        put_csr(out);
        break;
    case PRINT_CSR_FROM:
        put_csr_from(out);
        break;
    case PRINT_ORDER:
        put_order(out, number);
        break;
    case PRINT_VTYPE:
        put_vtype(out, number);
        break;
    case PRINT_FLI:
        put_choice(out, fli_values, number);
        break;
    default:
        break;
    }
}

void tl_riscv64_print(const struct tl_insn *insn, char *buf, size_t size)
{
    struct text_out out = {.insn = insn, .word = tl_riscv64_word(insn)};
    const struct text *text = tl_riscv64_row_text(tl_riscv64_row(insn->row), out.word);
    if (size == 0)
        return;
    if (text == NULL && insn->size == 2)
        put(&out, ".2byte 0x%04" PRIx32, out.word);
    else if (text == NULL)
        put(&out, ".4byte 0x%08" PRIx32, out.word);
    for (unsigned i = 0; text != NULL && i < text->pieces; i++)
        put_piece(&out, &tl_riscv64_text_pieces(text)[i]);
    snprintf(buf, size, "%s", out.text);
}

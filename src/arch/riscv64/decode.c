// One instruction of 16 or 32 bits -> facts, all from the table. Judges no site and knows no
// surroundings. Keeps: a register counts as written only when the instruction replaces all 64 bits
// of it on every path; x0 is in no set; what the table does not describe is refused. Of a longer
// instruction only the first 16 bits are looked at: it is refused, and nothing goes on behind them.
#include "arch/riscv64/riscv64.h"

#include "arch/riscv64/table.h"

#include <string.h>

// Unprivileged ISA, 1.5 "Base Instruction-Length Encoding": what the lowest bits say.
#define FULL 0x3u  // not compressed
#define LONG 0x1fu // 48 bits and more
#define COMPRESSED_SIZE 2
#define FULL_SIZE 4
#define REG_SP 2
#define COMPRESSED_FIRST 8 // of a field of 3 bits

static tl_regset use_bits(const struct use *use, uint32_t word)
{
    uint32_t field = word >> use->shift & ((1u << use->width) - 1);
    if (use->kind == USE_C)
        return TL_REGSET(COMPRESSED_FIRST + field);
    return field == 0 ? 0 : TL_REGSET((field + use->plus) & 31);
}

static tl_regset uses_bits(const struct use *uses, unsigned count, uint32_t word)
{
    tl_regset bits = 0;
    for (unsigned i = 0; i < count; i++)
        bits |= use_bits(&uses[i], word);
    return bits;
}

static void set_target(struct tl_insn *out, const struct row *row, uint32_t word)
{
    if (row->target == 0)
        return;
    out->target = out->addr + (uint64_t)tl_riscv64_row_target(row, word);
    if (row->reloc == TL_RELOC_PCREL)
        out->flags |= TL_INSN_PCREL_DATA;
    if ((row->traits & TRAIT_LEA) != 0)
        out->flags |= TL_INSN_PCREL_LEA;
}

// The part that needs no registers.
static const struct row *decode_head(uint32_t word, uint8_t size, tl_addr addr, struct tl_insn *out)
{
    *out = (struct tl_insn){.addr = addr, .size = size};
    memcpy(out->bytes, &word, size);
    unsigned number = (word & LONG) == LONG ? ROW_UNKNOWN : tl_riscv64_row_find(word);
    const struct row *row = tl_riscv64_row(number);
    out->row = (uint16_t)number;
    out->flow = row->flow;
    out->reloc = row->reloc;
    out->refusal = row->refusal;
    out->flags = tl_bits_flags(row);
    set_target(out, row, word);
    return row;
}

// 0: cut short.
static uint8_t word_read(const uint8_t *bytes, size_t size, uint32_t *word)
{
    if (size < COMPRESSED_SIZE)
        return 0;
    uint32_t low = bytes[0] | (uint32_t)bytes[1] << 8;
    if ((low & FULL) != FULL || (low & LONG) == LONG) {
        *word = low;
        return COMPRESSED_SIZE;
    }
    if (size < FULL_SIZE)
        return 0;
    *word = low | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    return FULL_SIZE;
}

int tl_riscv64_skim(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out)
{
    uint32_t word;
    uint8_t used = word_read(bytes, size, &word);
    if (used == 0)
        return TL_E_FORMAT;
    decode_head(word, used, addr, out);
    return 0;
}

// Whether its memory is at the stack pointer and a constant: where a field names the base, it is
// the first one.
static bool is_on_stack(const struct row *row, const struct use *uses, uint32_t word)
{
    if ((row->traits & TRAIT_BASED) == 0)
        return false;
    tl_regset base = row->read != 0 ? row->read : row->reads != 0 ? use_bits(uses, word) : 0;
    return (base & TL_REGSET(REG_SP)) != 0;
}

int tl_riscv64_decode(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out)
{
    uint32_t word;
    uint8_t used = word_read(bytes, size, &word);
    if (used == 0)
        return TL_E_FORMAT;
    const struct row *row = decode_head(word, used, addr, out);
    const struct use *uses = tl_riscv64_row_uses(row);
    out->read = row->read | uses_bits(uses, row->reads, word);
    out->written = row->written | uses_bits(uses + row->reads, row->writes, word);
    if ((out->written & TL_REGSET(REG_SP)) != 0)
        out->flags |= TL_INSN_WRITES_SP;
    if (row->fault != FAULT_NEVER)
        out->flags |= TL_INSN_MAY_FAULT;
    if (row->fault == FAULT_MEMORY && is_on_stack(row, uses, word))
        out->flags |= TL_INSN_FAULT_STACK;
    // What is refused, or enters the kernel, may look at anything.
    if (out->reloc == TL_RELOC_REFUSE) {
        out->read = TL_REGSET_GENERAL & ~TL_REGSET(0);
        out->written = 0;
    }
    return 0;
}

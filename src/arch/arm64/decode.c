// One A64 word -> facts, all from the table. Judges no site and knows no surroundings. Keeps: a register
// counts as written only when the instruction replaces all 64 bits of it on every path, a flag only when it
// gets a value that the manual defines; what the table does not describe is refused.
#include "arch/arm64/arm64.h"

#include "arch/arm64/table.h"

#include <string.h>

#define INSN_SIZE 4
#define PAGE_MASK 0xfffull // adrp counts in 4 KiB whatever the page size

// The flags that a condition asks (DDI 0487, C1.2.4 "Condition code"). Any of the last two: none.
static tl_regset cond_flags(uint32_t cond)
{
    static const tl_regset asked[] = {
        TL_REGSET_Z,
        TL_REGSET_C,
        TL_REGSET_N,
        TL_REGSET_V,
        TL_REGSET_C | TL_REGSET_Z,
        TL_REGSET_N | TL_REGSET_V,
        TL_REGSET_N | TL_REGSET_Z | TL_REGSET_V,
        0,
    };
    tl_regset flags = asked[cond >> 1 & 7];
    return flags != 0 ? flags | TL_REGSET_FLAGS : 0;
}

static tl_regset use_bits(const struct use *use, uint32_t word)
{
    uint32_t field = word >> use->shift & ((1u << use->width) - 1);
    if (use->kind == USE_COND)
        return cond_flags(field);
    field += use->plus;
    return field == 31 && use->kind == USE_ZR ? 0 : TL_REGSET(field & 31);
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
    tl_addr from = (row->traits & TRAIT_PAGE) != 0 ? out->addr & ~PAGE_MASK : out->addr;
    out->target = from + (uint64_t)tl_arm64_row_target(row, word);
    if (row->reloc == TL_RELOC_PCREL)
        out->flags |= TL_INSN_PCREL_DATA;
    if ((row->traits & TRAIT_LEA) != 0)
        out->flags |= TL_INSN_PCREL_LEA;
}

// The part that needs no registers.
static const struct row *decode_head(uint32_t word, tl_addr addr, struct tl_insn *out)
{
    *out = (struct tl_insn){.addr = addr, .size = INSN_SIZE};
    memcpy(out->bytes, &word, sizeof(word));
    unsigned number = tl_arm64_row_find(word);
    const struct row *row = tl_arm64_row(number);
    out->row = (uint16_t)number;
    out->flow = row->flow;
    out->reloc = row->reloc;
    out->refusal = row->refusal;
    out->flags = tl_bits_flags(row);
    set_target(out, row, word);
    return row;
}

static bool word_read(const uint8_t *bytes, size_t size, uint32_t *word)
{
    if (size < INSN_SIZE)
        return false;
    *word = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    return true;
}

int tl_arm64_skim(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out)
{
    uint32_t word;
    if (!word_read(bytes, size, &word))
        return TL_E_FORMAT;
    decode_head(word, addr, out);
    return 0;
}

int tl_arm64_decode(const uint8_t *bytes, size_t size, tl_addr addr, struct tl_insn *out)
{
    uint32_t word;
    if (!word_read(bytes, size, &word))
        return TL_E_FORMAT;
    const struct row *row = decode_head(word, addr, out);
    const struct use *uses = tl_arm64_row_uses(row);
    out->read = row->read | uses_bits(uses, row->reads, word);
    tl_regset written = row->written | uses_bits(uses + row->reads, row->writes, word);
    out->written = written;
    if ((written & TL_REGSET(31)) != 0)
        out->flags |= TL_INSN_WRITES_SP;
    if (row->fault != FAULT_NEVER)
        out->flags |= TL_INSN_MAY_FAULT;
    // At the stack pointer and a constant only the stack's own end can be met.
    if (row->fault == FAULT_MEMORY && (row->traits & TRAIT_BASED) != 0 && (out->read & TL_REGSET(31)) != 0)
        out->flags |= TL_INSN_FAULT_STACK;
    // What is refused, or enters the kernel, may look at anything.
    if (out->reloc == TL_RELOC_REFUSE) {
        out->read = TL_REGSET_ALL | TL_REGSET_EACH_FLAG;
        out->written = 0;
    }
    return 0;
}

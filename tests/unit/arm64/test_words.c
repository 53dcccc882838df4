// Decodes every so manieth of all 2^32 words, or all of them: nothing crashes, what decode and skim say is the
// same and makes sense, and branches and pc-relative operands are those that a second reading, by masks from
// the manual, finds. TL_STRIDE says how many words to go on each time.
#include "arch/arch.h"
#include "arch/arm64/table.h"

#include "../sets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ADDR UINT64_C(0x123456789a8)
#define STRIDE 1009 // a prime
#define ALLOCATED_MIN 35 // of a hundred words
#define ALLOCATED_MAX 45

// DDI 0487, C4.1.66 "Branches, Exception generating and System instructions", and the two groups with labels.
static const struct {
    uint32_t mask, value;
    uint8_t flow, reloc;
    uint8_t shift, width, scale; // of the offset
} known[] = {
    {0xfc000000, 0x14000000, TL_FLOW_JUMP, TL_RELOC_BRANCH, 0, 26, 2},
    {0xfc000000, 0x94000000, TL_FLOW_CALL, TL_RELOC_CALL, 0, 26, 2},
    {0xff000000, 0x54000000, TL_FLOW_COND, TL_RELOC_COND, 5, 19, 2},
    {0x7e000000, 0x34000000, TL_FLOW_COND, TL_RELOC_COND, 5, 19, 2},
    {0x7e000000, 0x36000000, TL_FLOW_COND, TL_RELOC_COND, 5, 14, 2},
    {0x7f000000, 0x74000000, TL_FLOW_COND, TL_RELOC_COND, 5, 9, 2},
    {0x7f004000, 0x75000000, TL_FLOW_COND, TL_RELOC_COND, 5, 9, 2},
    {0xfffffc1f, 0xd61f0000, TL_FLOW_IJUMP, TL_RELOC_IJUMP, 0, 0, 0},
    {0xfefff800, 0xd61f0800, TL_FLOW_IJUMP, TL_RELOC_IJUMP, 0, 0, 0},
    {0xfffffc1f, 0xd63f0000, TL_FLOW_ICALL, TL_RELOC_ICALL, 0, 0, 0},
    {0xfefff800, 0xd63f0800, TL_FLOW_ICALL, TL_RELOC_ICALL, 0, 0, 0},
    {0xfffffc1f, 0xd65f0000, TL_FLOW_RET, TL_RELOC_COPY, 0, 0, 0},
    {0xfffffbff, 0xd65f0bff, TL_FLOW_RET, TL_RELOC_COPY, 0, 0, 0},
    {0xfffffbe0, 0xd65f0be0, TL_FLOW_RET, TL_RELOC_REFUSE, 0, 0, 0},
    {0xffc0001f, 0x5500001f, TL_FLOW_RET, TL_RELOC_REFUSE, 0, 0, 0},
    {0xbf000000, 0x18000000, TL_FLOW_NEXT, TL_RELOC_PCREL, 5, 19, 2},
    {0xff000000, 0x98000000, TL_FLOW_NEXT, TL_RELOC_PCREL, 5, 19, 2},
    {0xff000000, 0xd8000000, TL_FLOW_NEXT, TL_RELOC_PCREL, 5, 19, 2},
    {0x3f000000, 0x1c000000, TL_FLOW_NEXT, TL_RELOC_PCREL, 5, 19, 2},
    {0x1f000000, 0x10000000, TL_FLOW_NEXT, TL_RELOC_PCREL, 0, 0, 0}, // adr, adrp: the target by adr_target
};

// The lowest bits of a number, with their sign.
static uint64_t extended(uint64_t number, unsigned width)
{
    return (uint64_t)((int64_t)(number << (64 - width)) >> (64 - width));
}

static uint64_t adr_target(uint32_t word)
{
    uint64_t offset = extended((uint64_t)(word >> 5 & 0x7ffff) << 2 | (word >> 29 & 3), 21);
    return word >> 31 != 0 ? (ADDR & ~UINT64_C(0xfff)) + (offset << 12) : ADDR + offset;
}

static bool pcrel_holds(const struct tl_insn *insn, uint32_t word)
{
    for (size_t i = 0; i < TL_ARRAY_COUNT(known); i++) {
        if ((word & known[i].mask) != known[i].value)
            continue;
        if (insn->row == ROW_UNKNOWN) // part of it is not allocated
            return insn->target == 0;
        uint64_t target = 0;
        if (known[i].mask == 0x1f000000)
            target = adr_target(word);
        else if (known[i].width != 0)
            target = ADDR + (extended(word >> known[i].shift, known[i].width) << known[i].scale);
        return insn->flow == known[i].flow && insn->reloc == known[i].reloc && insn->target == target;
    }
    return insn->target == 0 && (insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_STOP) &&
           (insn->reloc == TL_RELOC_COPY || insn->reloc == TL_RELOC_REFUSE);
}

static bool word_holds(uint32_t word, struct tl_insn *insn, bool prints)
{
    uint8_t bytes[] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16), (uint8_t)(word >> 24)};
    struct tl_insn skimmed;
    char text[160] = "";
    if (tl_arch_arm64.decode(bytes, sizeof(bytes), ADDR, insn) != 0 ||
        tl_arch_arm64.skim(bytes, sizeof(bytes), ADDR, &skimmed) != 0)
        return false;
    if (prints) {
        tl_arch_arm64.print(insn, text, sizeof(text));
        if (text[0] == '\0' || strchr(text, '?') != NULL || !sets_are_whole(&tl_arch_arm64, insn))
            return false;
    }
    bool same = insn->flow == skimmed.flow && insn->reloc == skimmed.reloc && insn->target == skimmed.target &&
                insn->row == skimmed.row && insn->size == sizeof(bytes) && skimmed.size == sizeof(bytes);
    bool refused = insn->reloc == TL_RELOC_REFUSE;
    bool sense = refused == (insn->refusal != TL_REFUSE_NONE) && (insn->row != ROW_UNKNOWN || refused) &&
                 (!refused || insn->written == 0);
    return same && sense && pcrel_holds(insn, word);
}

static void words_of_all_kinds_decode(void **state)
{
    (void)state;
    const char *given = getenv("TL_STRIDE");
    uint64_t stride = given != NULL ? strtoull(given, NULL, 0) : STRIDE, count = 0, allocated = 0;
    assert_true(stride > 0);
    for (uint64_t word = 0; word <= UINT32_MAX; word += stride) {
        struct tl_insn insn;
        if (!word_holds((uint32_t)word, &insn, count % 16 == 0))
            fail_msg("%08x: row %s, flow %u, reloc %u, target %llx", (unsigned)word, tl_arm64_row(insn.row)->name,
                     insn.flow, insn.reloc, (unsigned long long)insn.target);
        count++;
        allocated += insn.row != ROW_UNKNOWN;
    }
    print_message("%llu words, %llu of them allocated\n", (unsigned long long)count, (unsigned long long)allocated);
    assert_in_range(allocated * 100 / count, ALLOCATED_MIN, ALLOCATED_MAX);
}

static void a_cut_word_is_none(void **state)
{
    (void)state;
    static const uint8_t nop[] = {0x1f, 0x20, 0x03, 0xd5};
    struct tl_insn insn = {.size = 77};
    for (size_t size = 0; size < sizeof(nop); size++) {
        assert_int_equal(tl_arch_arm64.decode(nop, size, ADDR, &insn), TL_E_FORMAT);
        assert_int_equal(tl_arch_arm64.skim(nop, size, ADDR, &insn), TL_E_FORMAT);
        assert_int_equal(insn.size, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_all_kinds_decode),
        cmocka_unit_test(a_cut_word_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

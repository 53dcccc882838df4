// What the differential test can't see of arm64 detours: how many instructions a hit costs, what is
// out of reach, what landing pads ask of a branch, where registers may not be used.
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "arch/arch.h"
#include "base/types.h"

#define SITE ((tl_addr)0x555555600000)
#define DETOUR (SITE + 0x200000)
#define HOMES (SITE - 0x400000)
#define SLOW (SITE + 0x300000)
#define X(n) TL_REGSET(n)

enum { NOP = 0xd503201f, PUSH = 0xa9bf7bfd /* stp x29, x30, [sp, #-16]! */, RET = 0xd65f03c0 };

static const struct tl_arch *const arch = &tl_arch_arm64;
static struct tl_insn insn;
static struct tl_detour detour;

static struct tl_emit_in input(uint32_t word)
{
    assert_int_equal(arch->decode((uint8_t *)&word, sizeof word, SITE, &insn), 0);
    return (struct tl_emit_in){.action = TL_ACTION_COUNT,
                               .thread_pointer = TL_TP_TPIDR,
                               .homes_addr = HOMES,
                               .homes_shift = 12,
                               .atomics = true,
                               .slow_addr = SLOW,
                               .counter_off = 64,
                               .insn = &insn,
                               .insn_count = 1,
                               .resume_addr = SITE + 4};
}

static unsigned emit(const struct tl_emit_in *in, tl_addr at)
{
    assert_int_equal(arch->emit_detour(in, at, &detour, NULL), 0);
    return detour.refusal;
}

static uint32_t word_at(unsigned off)
{
    uint32_t word;
    memcpy(&word, detour.bytes + off, sizeof word);
    return word;
}

// Instructions on the straight path, the displaced one not among them: up to the branch back, and
// the branch at the site.
static unsigned added(void)
{
    return detour.boundary[1].off / 4u + 1;
}

static void a_hit_costs_so_many_instructions(void **state)
{
    static const struct {
        const char *name;
        uint32_t word;
        tl_regset dead, behind;
        bool atomics, shared;
        unsigned added;
    } row[] = {
        {"two dead registers", NOP, X(16) | X(17), 0, true, false, 10},
        {"many", PUSH, 0x3ffff & ~X(0), 0, true, false, 10},
        {"none", PUSH, 0, 0, true, false, 12},
        {"one", PUSH, X(16), 0, true, false, 12},
        {"two behind", PUSH, 0, X(29) | X(30), true, false, 10},
        {"one behind is no gain", PUSH, 0, X(29), true, false, 12},
        {"no atomic instructions", NOP, X(9) | X(10) | X(11), 0, false, false, 12},
        {"no atomic instructions, two dead", NOP, X(9) | X(10), 0, false, false, 14},
        {"no atomic instructions, none dead", NOP, 0, 0, false, false, 16},
        {"shared", NOP, X(9) | X(10), 0, true, true, 8},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        in.dead = row[i].dead;
        in.behind = row[i].behind != 0;
        in.dead_behind = row[i].behind;
        in.atomics = row[i].atomics;
        in.thread_pointer = row[i].shared ? TL_TP_SHARED : TL_TP_TPIDR;
        assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
        printf("%s: %u instructions added\n", row[i].name, added());
        assert_int_equal(added(), row[i].added);
    }
}

// The words themselves, once, for a reader; objdump's text beside them.
static void a_count_reads_like_this(void **state)
{
    static const uint32_t word[] = {
        0xd53bd050, // mrs x16, tpidr_el0
        0xd34c4e10, // ubfx x16, x16, #12, #8
        0x90ffd011, // adrp x17, homes
        0xf8707a31, // ldr x17, [x17, x16, lsl #3]
        0xb40000d1, // cbz x17, slow
        0x91010231, // add x17, x17, #64
        0x52800030, // mov w16, #1
        0xf830023f, // stadd x16, [x17]
        0xa9bf7bfd, // stp x29, x30, [sp, #-16]!
        0x17f7fff8, // b resume
        0xa9bd47f0, // slow: stp x16, x17, [sp, #-48]!
        0xf9000bfe, // str x30, [sp, #16]
        0x2a1003f1, // mov w17, w16
        0x52800810, // mov w16, #64
        0x9403fff2, // bl agent
        0xf9400bfe, // ldr x30, [sp, #16]
        0xa8c347f0, // ldp x16, x17, [sp], #48
        0x17fffff7, // b done
    };
    (void)state;
    struct tl_emit_in in = input(PUSH);
    in.dead = X(16) | X(17);
    assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
    assert_int_equal(detour.size, sizeof word);
    for (size_t i = 0; i < TL_ARRAY_COUNT(word); i++) {
        if (word_at(4 * (unsigned)i) != word[i])
            printf("word %zu is %08x\n", i, word_at(4 * (unsigned)i));
        assert_int_equal(word_at(4 * (unsigned)i), word[i]);
    }
    assert_int_equal(detour.displaced, 32);
    assert_int_equal(detour.boundary[0].off, 32);
    assert_int_equal(detour.boundary[1].off, 36);
    assert_int_equal(detour.boundary[1].insn_off, 4);
}

static void the_patch_reaches_what_the_face_says(void **state)
{
    const struct {
        tl_addr to;
        bool reaches;
    } row[] = {
        {SITE + 4 + (tl_addr)arch->jump_reach_max, true},
        {SITE + 8 + (tl_addr)arch->jump_reach_max, false},
        {SITE + 4 + (tl_addr)arch->jump_reach_min, true},
        {SITE + (tl_addr)arch->jump_reach_min, false},
        {SITE + 2, false},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        uint32_t word = 0x94000000; // bl
        uint8_t code[4];
        assert_int_equal(arch->emit_jump(SITE, row[i].to, code), row[i].reaches);
        arch->decode((uint8_t *)&word, sizeof word, SITE, &insn);
        assert_int_equal(arch->emit_retarget(&insn, row[i].to, code), row[i].reaches);
        if (row[i].reaches) {
            arch->decode(code, sizeof code, SITE, &insn);
            assert_int_equal(insn.target, row[i].to);
            assert_int_equal(insn.flow, TL_FLOW_CALL);
        }
    }
}

// br leaves another BTYPE than blr, by the register and by its own page.
static void indirect_calls_meet_their_landing_pads(void **state)
{
    static const struct {
        const char *name;
        uint32_t word;
        tl_regset dead;
        bool guarded;
        unsigned refusal;
        uint32_t branch; // the last word, but for the link's literal
    } row[] = {
        {"blr x3", 0xd63f0060, 0, false, TL_REFUSE_NONE, 0xd61f0060},
        {"blr x16, guarded", 0xd63f0200, 0, true, TL_REFUSE_NONE, 0xd61f0200},
        {"blr x17, guarded", 0xd63f0220, 0, true, TL_REFUSE_NONE, 0xd61f0220},
        {"blr x3, guarded", 0xd63f0060, 0, true, TL_REFUSE_PC_USE, 0},
        {"blr x3, guarded, x9 dead", 0xd63f0060, X(9), true, TL_REFUSE_PC_USE, 0},
        {"blr x3, guarded, x17 dead", 0xd63f0060, X(17), true, TL_REFUSE_NONE, 0xd61f0220},
        {"blr x30", 0xd63f03c0, 0, false, TL_REFUSE_PC_USE, 0},
        {"blr x30, x9 dead", 0xd63f03c0, X(9), false, TL_REFUSE_NONE, 0xd61f0120},
        {"blr x30, guarded, x16 dead", 0xd63f03c0, X(16), true, TL_REFUSE_NONE, 0xd61f0200},
        {"blraaz x3", 0xd63f087f, X(9), false, TL_REFUSE_PC_USE, 0},
        {"br x3 is copied", 0xd61f0060, 0, true, TL_REFUSE_NONE, 0xd61f0060},
        {"braa x3, x4 is copied", 0xd71f0864, 0, true, TL_REFUSE_NONE, 0xd71f0864},
        {"retaa is copied", 0xd65f0bff, 0, true, TL_REFUSE_NONE, 0xd65f0bff},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        in.action = TL_ACTION_NONE;
        in.dead = row[i].dead;
        in.guarded = row[i].guarded;
        printf("%s\n", row[i].name);
        assert_int_equal(emit(&in, DETOUR), row[i].refusal);
        if (row[i].refusal == TL_REFUSE_NONE)
            assert_int_equal(word_at(detour.size - 4u), row[i].branch);
    }
}

// Behind a branch that does not reach, a free register; none in a guarded page, and none for a
// call.
static void what_is_out_of_reach_is_refused(void **state)
{
    enum { B_BACK = 0x16000000 /* b .-128 MiB */, BL_BACK = 0x96000000, CBZ = 0xb4000040 };
    static const struct {
        const char *name;
        uint32_t word;
        tl_regset dead;
        bool guarded, retarget;
        unsigned refusal;
    } row[] = {
        {"b", B_BACK, 0, false, false, TL_REFUSE_NO_REACH},
        {"b, x9 dead", B_BACK, X(9), false, false, TL_REFUSE_NONE},
        {"b, x9 dead, guarded", B_BACK, X(9), true, false, TL_REFUSE_NO_REACH},
        {"bl, x9 dead", BL_BACK, X(9), false, false, TL_REFUSE_NO_REACH},
        {"bl with a new target", BL_BACK, 0, false, true, TL_REFUSE_NO_REACH},
        {"bl with a new target, x9 dead", BL_BACK, X(9), false, true, TL_REFUSE_NONE},
        {"cbz", CBZ, 0, false, false, TL_REFUSE_NONE},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        in.action = TL_ACTION_NONE;
        in.dead = row[i].dead;
        in.guarded = row[i].guarded;
        in.call_retarget = row[i].retarget;
        printf("%s\n", row[i].name);
        assert_int_equal(emit(&in, SITE + 0x2000000), row[i].refusal);
    }
}

// A branch that leads back to the function's entry goes past the probe; a call does not.
static void looping_branches_are_diverted(void **state)
{
    enum { B = 0x17fffff0 /* b .-64 */, CBZ = 0xb4fffe00 /* cbz x0, .-64 */, BL = 0x97fffff0 };
    static const tl_addr entry = SITE - 64, elsewhere = DETOUR + 0x1000;
    static const struct {
        const char *name;
        uint32_t word;
        tl_addr from, to; // to 0: the displaced instruction itself
        unsigned branch;  // offset of the one that is diverted
        tl_addr goal;
    } row[] = {
        {"b", B, entry, elsewhere, 0, elsewhere},
        {"b, itself", B, entry, 0, 0, DETOUR},
        {"cbz", CBZ, entry, elsewhere, 8, elsewhere}, // as long for any distance
        {"cbz, itself", CBZ, entry, 0, 8, DETOUR},
        {"another branch", B, SITE - 32, elsewhere, 0, entry},
        {"bl", BL, entry, elsewhere, 8, entry}, // behind adrp and add
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        struct tl_insn branch;
        in.action = TL_ACTION_NONE;
        in.divert_from = row[i].from;
        in.divert_to = row[i].to;
        printf("%s\n", row[i].name);
        assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
        arch->decode(detour.bytes + row[i].branch, 4, DETOUR + row[i].branch, &branch);
        assert_int_equal(branch.target, row[i].goal);
    }
}

// A Go function without a stack check.
static void nothing_is_stored_where_there_is_no_stack(void **state)
{
    enum { LDR_D0 = 0x5c000040 /* ldr d0, .+8 */ };
    static const struct {
        const char *name;
        uint32_t word;
        enum tl_action action;
        bool shared;
        tl_regset dead;
        unsigned refusal;
    } row[] = {
        {"shared, two dead", NOP, TL_ACTION_COUNT, true, X(9) | X(10), TL_REFUSE_NONE},
        {"shared, one dead", NOP, TL_ACTION_COUNT, true, X(9), TL_REFUSE_NO_STACK},
        {"the thread's own", NOP, TL_ACTION_COUNT, false, X(9) | X(10), TL_REFUSE_NO_STACK},
        {"a record", NOP, TL_ACTION_RECORD, true, X(9) | X(10), TL_REFUSE_NO_STACK},
        {"a literal", LDR_D0, TL_ACTION_NONE, true, 0, TL_REFUSE_NO_STACK},
        {"a literal, one dead", LDR_D0, TL_ACTION_NONE, true, X(9), TL_REFUSE_NONE},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        in.action = row[i].action;
        in.thread_pointer = row[i].shared ? TL_TP_SHARED : TL_TP_TPIDR;
        in.dead = row[i].dead;
        in.no_stack = true;
        in.record[0] = (struct tl_record){TL_RECORD_EVENT, 64, 0};
        in.record_addr[TL_RECORD_EVENT] = SLOW;
        printf("%s\n", row[i].name);
        assert_int_equal(emit(&in, DETOUR), row[i].refusal);
        for (unsigned off = 0; off < detour.size && !row[i].refusal; off += 4)
            assert_int_not_equal(word_at(off) & 0xffc003e0, 0xf80003e0 | 0x00000c00); // a push
    }
}

static void the_platform_register_is_left_alone(void **state)
{
    (void)state;
    for (unsigned atomics = 0; atomics < 2; atomics++) {
        struct tl_emit_in in = input(NOP);
        in.atomics = atomics;
        in.dead = X(18);
        assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
        assert_int_equal(added(), atomics ? 12 : 16);
        for (unsigned off = 0; off < detour.displaced; off += 4)
            assert_int_not_equal(word_at(off) & 31, 18);
    }
}

// Go keeps the frame pointer of a function's caller right below the stack pointer.
static void what_lies_right_below_the_stack_pointer_is_left_alone(void **state)
{
    static const struct {
        uint32_t word;
        enum tl_action action;
        tl_regset dead;
        bool atomics;
    } row[] = {
        {NOP, TL_ACTION_COUNT, 0, true},           {NOP, TL_ACTION_COUNT, X(9), true},
        {NOP, TL_ACTION_COUNT, X(9) | X(10), true}, {NOP, TL_ACTION_COUNT, 0, false},
        {NOP, TL_ACTION_RECORD, 0, true},           {0x5c000040 /* ldr d0, .+8 */, TL_ACTION_NONE, 0, true},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        unsigned pushes = 0;
        in.action = row[i].action;
        in.dead = row[i].dead;
        in.atomics = row[i].atomics;
        in.record[0] = (struct tl_record){TL_RECORD_EVENT, 64, 0};
        in.record_addr[TL_RECORD_EVENT] = SLOW;
        assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
        for (unsigned off = 0; off < detour.size; off += 4) {
            uint32_t word = word_at(off);
            int32_t imm7 = (int32_t)(word << 10) >> 25, imm9 = (int32_t)(word << 11) >> 23;
            bool pair = (word & 0xffc003e0) == 0xa98003e0, single = (word & 0xffe00fe0) == 0xf8000fe0;
            pushes += pair || single;
            if (pair)
                assert_true(imm7 * 8 <= -32);
            if (single)
                assert_true(imm9 <= -24);
        }
        assert_true(pushes > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_right_below_the_stack_pointer_is_left_alone),
        cmocka_unit_test(a_hit_costs_so_many_instructions),
        cmocka_unit_test(a_count_reads_like_this),
        cmocka_unit_test(the_patch_reaches_what_the_face_says),
        cmocka_unit_test(indirect_calls_meet_their_landing_pads),
        cmocka_unit_test(what_is_out_of_reach_is_refused),
        cmocka_unit_test(looping_branches_are_diverted),
        cmocka_unit_test(nothing_is_stored_where_there_is_no_stack),
        cmocka_unit_test(the_platform_register_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

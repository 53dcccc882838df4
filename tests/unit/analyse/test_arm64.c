// Facts of sites in an arm64 victim: entries behind landing pads, exclusive regions and what else is refused,
// dead registers, jump tables, exits, loops. The victim is assembled when the test runs, and read the whole
// way, from its ELF file on.
#include "bare_victim.h"

#include "arch/arch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LOCAL(name, body)                                                                          \
    ".type " name ",%function\n.p2align 4\n" name ":\n" body "\n.size " name ",.-" name "\n"
#define FUNCTION(name, body) ".globl " name "\n" LOCAL(name, body)
// Known to the unwind table only.
#define HIDDEN(name, body) ".p2align 4\nat_" name ":\n.cfi_startproc\n" body "\n.cfi_endproc\n"

// Labels at_... are places that the tables below name.
// clang-format off
static const char victim_text[] =
    ".text\n"
    // Entries.
    FUNCTION("plain", "stp x29, x30, [sp, #-16]!\nmov x29, sp\nbl callee\nldp x29, x30, [sp], #16\nret")
    FUNCTION("pad_c", "bti c\nat_pad_c: mov w0, #1\nret")
    FUNCTION("pad_jc", "bti jc\nat_pad_jc: mov w0, #1\nret")
    FUNCTION("signs", "paciasp\nat_signs: stp x29, x30, [sp, #-16]!\nldp x29, x30, [sp], #16\nretaa")
    FUNCTION("signs_b", "pacibsp\nat_signs_b: nop\nretab")
    FUNCTION("pad_signs", "bti c\npaciasp\nat_pad_signs: nop\nautiasp\nret")
    FUNCTION("no_pad", "nop\nret")
    FUNCTION("callee", "mov x0, x1\nret")
    // Exclusives: ex0 before, ex1 .. in between, ex9 behind.
    FUNCTION("adds", "at_adds0: nop\nat_adds1: ldxr w1, [x0]\nat_adds2: add w1, w1, #1\n"
                     "at_adds3: stxr w2, w1, [x0]\nat_adds9: cbnz w2, at_adds1\nret")
    FUNCTION("swaps", "at_swaps1: ldaxr x3, [x0]\nat_swaps2: cmp x3, x1\nat_swaps3: b.ne at_swaps9\n"
                      "at_swaps4: stlxr w4, x2, [x0]\nat_swaps8: cbnz w4, at_swaps1\nat_swaps9: cset w0, eq\nret")
    FUNCTION("clears", "at_clears1: ldxr w1, [x0]\nat_clears2: cbz w1, at_clears3\nstxr w2, wzr, [x0]\nret\n"
                       "at_clears3: nop\nat_clears4: clrex\nat_clears9: nop\nret")
    FUNCTION("calls_between", "stp x29, x30, [sp, #-16]!\nat_between1: ldxp x2, x3, [x1]\n"
                              "at_between2: bl callee\nat_between3: nop\nat_between4: stxp w4, x2, x3, [x1]\n"
                              "at_between9: ldp x29, x30, [sp], #16\nret")
    FUNCTION("jumps_between", "at_jb1: ldxr x1, [x0]\nadr x2, at_jb3\nadd x2, x2, x1\nat_jb2: br x2\nret\n"
                              "at_jb3: stxr w3, x1, [x0]\nat_jb9: nop\nret")
    FUNCTION("far_away", "at_far1: ldxr x1, [x0]\nat_far2: b at_far5\n.skip 800, 0x1f\nat_far5: nop\n"
                         "stxr w3, x1, [x0]\nat_far9: ret")
    FUNCTION("opens", "ldxr x1, [x0]\nat_opens: add x1, x1, #1\nb at_closes\n")
    FUNCTION("closes", "at_closes0: nop\nat_closes: nop\nstxr w3, x1, [x0]\nat_closes9: nop\nret")
    FUNCTION("two_loops", "at_two0: cbz x1, 2f\n1: ldxr w2, [x0]\nat_two1: stxr w3, w2, [x0]\nat_two2: cbnz w3, 1b\n"
                          "at_two3: nop\n2: ldxr w2, [x0]\nat_two4: nop\nstxr w3, w2, [x0]\nat_two5: cbnz w3, 2b\nret")
    FUNCTION("acquires", "at_acquires: ldar x1, [x0]\nat_releases: stlr x1, [x0]\nat_cas: cas x1, x2, [x0]\nret")
    // What else is refused.
    FUNCTION("traps", "at_svc: svc #0\nat_brk: brk #1\n")
    FUNCTION("udf", "at_udf: .inst 0\n")
    FUNCTION("copies", "at_cpyp: cpyp [x0]!, [x1]!, x2!\nat_cpym: cpym [x0]!, [x1]!, x2!\n"
                       "at_cpye: cpye [x0]!, [x1]!, x2!\nat_copied: nop\nret")
    FUNCTION("prefixes", "at_prefix: movprfx z0, z1\nat_prefixed: add z0.s, p0/m, z0.s, z2.s\nat_unprefixed: nop\nret")
    FUNCTION("restorer", "at_restorer: mov x8, #139\nat_restorer2: svc #0")
    FUNCTION("holds_data", "ldr x0, at_literal\nret\nat_literal: .xword 0xd503201fd503201f\nat_behind_data: nop\nret")
    // Dead registers.
    FUNCTION("dead_args", "mov x9, x0\nmov w10, #1\nadd x0, x9, x10\nret")
    FUNCTION("dead_flags", "cmp x0, #1\ncset w0, eq\nret")
    FUNCTION("dead_carry", "at_dead_carry: mov x9, #1\nadcs x0, x0, x1\nret")
    FUNCTION("dead_link", "at_dead_link: bl callee\nmov x30, x19\nret")
    FUNCTION("dead_movk", "movk x9, #1\nmov x0, x9\nret")
    FUNCTION("dead_half", "mov w9, #1\nldp x9, x10, [x0]\nret")
    FUNCTION("dead_csel", "cmp x1, #0\ncsel x9, x0, x1, eq\nmov x0, x9\nret")
    // Jump tables.
    FUNCTION("table_b", "bti c\ncmp w0, #2\nb.hi at_tb_exit\nadrp x1, table_of_bytes\n"
                        "add x1, x1, :lo12:table_of_bytes\nldrb w1, [x1, w0, uxtw]\nadr x2, at_tb_base\n"
                        "add x1, x2, w1, sxtb #2\nat_tb_jump: br x1\nat_tb_base: bti j\nnop\nat_tb_ret1: ret\n"
                        "at_tb_2: bti j\nat_tb_tail: b callee\nat_tb_3: bti j\nmov x0, #3\nat_tb_exit: ret")
    FUNCTION("table_h", "cmp w0, #1\nb.ls 1f\nat_th_exit: ret\n1: adrp x1, table_of_halves\n"
                        "add x1, x1, :lo12:table_of_halves\nldrh w1, [x1, w0, uxtw #1]\nadr x2, at_th_base\n"
                        "add x1, x2, w1, sxth #2\nat_th_jump: br x1\nat_th_base: nop\nat_th_ret1: ret\n"
                        "at_th_2: nop\nat_th_ret2: ret")
    FUNCTION("table_clang", "cmp x0, #1\nb.hi at_tc_exit\nadrp x8, table_of_words\n"
                            "add x8, x8, :lo12:table_of_words\nldrsw x9, [x8, x0, lsl #2]\nadd x8, x8, x9\n"
                            "at_tc_jump: br x8\nat_tc_1: nop\nat_tc_exit: ret\nat_tc_2: nop\nat_tc_ret: ret")
    FUNCTION("table_mask", "and x0, x0, #1\nadr x1, 1f\nldrb w2, [x1, x0]\nadr x3, at_tm_base\n"
                           "add x3, x3, w2, sxtb #2\nbr x3\nat_tm_base: nop\nat_tm_ret1: ret\nat_tm_2: nop\n"
                           "at_tm_ret2: ret\n1: .byte (at_tm_base-at_tm_base)/4, (at_tm_2-at_tm_base)/4, 0x7f, 0x7f")
    FUNCTION("table_field", "ubfx w0, w0, #3, #1\nadrp x1, table_of_halves_too\n"
                            "add x1, x1, :lo12:table_of_halves_too\nldrh w2, [x1, w0, uxtw #1]\nadr x3, at_tf_base\n"
                            "add x3, x3, w2, sxth #2\nbr x3\nat_tf_base: nop\nat_tf_ret1: ret\nat_tf_2: nop\n"
                            "at_tf_ret2: ret")
    FUNCTION("table_loose", "adrp x1, table_of_bytes\nadd x1, x1, :lo12:table_of_bytes\nldrb w1, [x1, w0, uxtw]\n"
                            "adr x2, at_tl_base\nadd x1, x2, w1, sxtb #2\nbr x1\nat_tl_base: ret")
    // Exits.
    FUNCTION("exits_cond", "cbz x0, callee\nat_ec1: tbnz w1, #3, callee\nat_ec2: ret")
    FUNCTION("exits_far", "sub sp, sp, #16\nldr x16, [x0]\nadd sp, sp, #16\nat_ef: br x16")
    FUNCTION("exits_plt", "at_ep: b outside")
    FUNCTION("exits_frame", "stp x29, x30, [sp, #-32]!\nmov x12, #0x4030\nmov x29, sp\nsub sp, sp, x12\nstr x0, [sp]\n"
                            "mov x12, #0x4030\nadd sp, sp, x12\nldp x29, x30, [sp], #32\nat_efr: ret")
    FUNCTION("exits_frame2", "stp x29, x30, [sp, #-32]!\nmov x29, sp\nsub sp, sp, x1\nnop\nmov sp, x29\n"
                             "ldp x29, x30, [sp], #32\nat_efr2: ret")
    FUNCTION("exits_lost", "sub sp, sp, x1\nret")
    FUNCTION("exits_never", "1: wfi\nb 1b")
    FUNCTION("exits_signed", "paciasp\nstp x29, x30, [sp, #-32]!\nldp x29, x30, [sp], #32\nat_es: retaa")
    // Loops.
    FUNCTION("looped", "bti c\nat_loop: subs x0, x0, #1\nat_loop1: cbz x0, at_loop\nat_loop2: b.eq at_loop\n"
                       "at_loop3: b at_loop")
    // Taken addresses.
    HIDDEN("taken", "bti c\nmov x0, #1\nret")
    HIDDEN("alone", "mov x0, #1\nret")
    FUNCTION("takes", "adrp x0, at_taken\nldr x1, [x2]\nadd x0, x0, :lo12:at_taken\nret")
    ".section .rodata\n"
    "table_of_bytes: .byte (at_tb_base-at_tb_base)/4, (at_tb_2-at_tb_base)/4, (at_tb_3-at_tb_base)/4, 0x7f\n"
    ".p2align 1\ntable_of_halves: .hword (at_th_base-at_th_base)/4, (at_th_2-at_th_base)/4, 0x7fff\n"
    "table_of_halves_too: .hword (at_tf_base-at_tf_base)/4, (at_tf_2-at_tf_base)/4, 0x7fff\n"
    ".p2align 2\ntable_of_words: .word at_tc_1-table_of_words, at_tc_2-table_of_words\n";
// clang-format on

static struct bare_victim shared;

static int victim_setup(void **state)
{
    (void)state;
    return bare_victim_open(&shared, "aarch64-linux-gnu", victim_text, "armv9.3-a");
}

static int victim_teardown(void **state)
{
    (void)state;
    bare_victim_close(&shared);
    return 0;
}

static tl_addr named(const char *name)
{
    return bare_victim_named(&shared, name);
}

static struct tl_site_facts site_at(tl_addr addr)
{
    struct tl_site_facts site;
    assert_int_equal(tl_analysis_site(shared.analysis, addr, &site, NULL), 0);
    return site;
}

static void entries_lie_behind_landing_pads(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned behind;
    } entries[] = {{"plain", 0}, {"pad_c", 4},     {"pad_jc", 4}, {"signs", 4},
                   {"signs_b", 4}, {"pad_signs", 8}, {"no_pad", 0}};
    for (size_t i = 0; i < TL_ARRAY_COUNT(entries); i++) {
        tl_addr function = named(entries[i].name);
        tl_addr entry = tl_analysis_entry(shared.analysis, function);
        if (entry - function != entries[i].behind)
            fail_msg("%s: entry at +%d", entries[i].name, (int)(entry - function));
        struct tl_site_facts site = site_at(entry);
        assert_true(site.entry);
        assert_int_equal(site.refusal, TL_REFUSE_NONE);
        assert_int_equal(site.insn[0].size, 4);
    }
    assert_false(site_at(named("signs")).entry);
}

static const struct refused {
    const char *name;
    enum tl_refusal refusal;
} refused[] = {
    {"at_adds0", TL_REFUSE_NONE},
    {"at_adds1", TL_REFUSE_EXCLUSIVE},
    {"at_adds2", TL_REFUSE_EXCLUSIVE},
    {"at_adds3", TL_REFUSE_EXCLUSIVE},
    {"at_adds9", TL_REFUSE_NONE},
    {"at_swaps1", TL_REFUSE_EXCLUSIVE},
    {"at_swaps2", TL_REFUSE_EXCLUSIVE},
    {"at_swaps3", TL_REFUSE_EXCLUSIVE},
    {"at_swaps4", TL_REFUSE_EXCLUSIVE},
    {"at_swaps8", TL_REFUSE_NONE},
    {"at_swaps9", TL_REFUSE_NONE},
    {"at_clears2", TL_REFUSE_EXCLUSIVE},
    {"at_clears3", TL_REFUSE_EXCLUSIVE},
    {"at_clears4", TL_REFUSE_EXCLUSIVE},
    {"at_clears9", TL_REFUSE_NONE},
    {"calls_between", TL_REFUSE_NONE},
    {"at_between2", TL_REFUSE_EXCLUSIVE},
    {"at_between3", TL_REFUSE_EXCLUSIVE},
    {"at_between4", TL_REFUSE_EXCLUSIVE},
    {"at_between9", TL_REFUSE_NONE},
    {"at_jb2", TL_REFUSE_EXCLUSIVE},
    {"at_far2", TL_REFUSE_EXCLUSIVE},
    {"at_far5", TL_REFUSE_EXCLUSIVE},
    {"at_far9", TL_REFUSE_NONE},
    {"at_opens", TL_REFUSE_EXCLUSIVE},
    {"at_closes", TL_REFUSE_EXCLUSIVE},
    {"at_closes9", TL_REFUSE_NONE},
    {"at_two0", TL_REFUSE_NONE},
    {"at_two1", TL_REFUSE_EXCLUSIVE},
    {"at_two2", TL_REFUSE_NONE},
    {"at_two3", TL_REFUSE_NONE},
    {"at_two4", TL_REFUSE_EXCLUSIVE},
    {"at_two5", TL_REFUSE_NONE},
    {"at_acquires", TL_REFUSE_NONE},
    {"at_releases", TL_REFUSE_NONE},
    {"at_cas", TL_REFUSE_NONE},
    {"at_svc", TL_REFUSE_SYSCALL},
    {"at_brk", TL_REFUSE_TRAP},
    {"at_udf", TL_REFUSE_TRAP},
    {"at_cpyp", TL_REFUSE_COPY_MIDDLE},
    {"at_cpym", TL_REFUSE_COPY_MIDDLE},
    {"at_cpye", TL_REFUSE_COPY_MIDDLE},
    {"at_copied", TL_REFUSE_NONE},
    {"at_prefix", TL_REFUSE_JOINED},
    {"at_prefixed", TL_REFUSE_JOINED},
    {"at_unprefixed", TL_REFUSE_NONE},
    {"at_restorer", TL_REFUSE_SIGRETURN},
    {"at_restorer2", TL_REFUSE_SYSCALL},
    {"holds_data", TL_REFUSE_NONE},
    {"at_literal", TL_REFUSE_UNKNOWN_CODE},
};

static void refusals_name_their_reason(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(refused); i++) {
        struct tl_site_facts site = site_at(named(refused[i].name));
        if (site.refusal == refused[i].refusal)
            continue;
        wrong++;
        print_error("%s: '%s', not '%s'\n", refused[i].name,
                    tl_refusal_text((enum tl_refusal)site.refusal),
                    tl_refusal_text(refused[i].refusal));
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(site_at(named("plain") + 2).refusal, TL_REFUSE_NOT_BOUNDARY);
}

#define R(n) ((tl_regset)1 << (n))
#define FL TL_REGSET_FLAGS

static const struct dead {
    const char *name;
    tl_regset dead, behind;
} deads[] = {
    {"plain", R(0), R(0) | R(29) | R(30)},
    {"dead_args", R(9) | R(10), R(0) | R(10)},
    {"dead_flags", FL, R(0)},
    {"at_dead_carry", R(9), 0},
    {"at_dead_link", R(0) | R(30), 0}, // a call: nothing is known behind it
    {"dead_movk", R(0), R(0)},
    {"dead_half", R(9) | R(10), R(9) | R(10)},
    {"dead_csel", FL | R(9), R(9)},
    {"exits_cond", 0, 0},
};

static void registers_are_dead_by_data_flow_only(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(deads); i++) {
        struct tl_site_facts site = site_at(named(deads[i].name));
        if (site.dead == deads[i].dead && site.dead_behind == deads[i].behind)
            continue;
        wrong++;
        print_error("%s: dead %#llx, behind %#llx\n", deads[i].name, (unsigned long long)site.dead,
                    (unsigned long long)site.dead_behind);
    }
    assert_int_equal(wrong, 0);
}

static const struct leaves {
    const char *name;
    enum tl_refusal refusal;
    struct {
        const char *at;
        enum tl_exit_kind kind;
    } exit[4];
} leaves[] = {
    {"table_b", TL_REFUSE_NONE,
     {{"at_tb_ret1", TL_EXIT_RET}, {"at_tb_tail", TL_EXIT_TAIL}, {"at_tb_exit", TL_EXIT_RET}}},
    {"table_h", TL_REFUSE_NONE,
     {{"at_th_exit", TL_EXIT_RET}, {"at_th_ret1", TL_EXIT_RET}, {"at_th_ret2", TL_EXIT_RET}}},
    {"table_clang", TL_REFUSE_NONE, {{"at_tc_exit", TL_EXIT_RET}, {"at_tc_ret", TL_EXIT_RET}}},
    {"table_mask", TL_REFUSE_NONE, {{"at_tm_ret1", TL_EXIT_RET}, {"at_tm_ret2", TL_EXIT_RET}}},
    {"table_field", TL_REFUSE_NONE, {{"at_tf_ret1", TL_EXIT_RET}, {"at_tf_ret2", TL_EXIT_RET}}},
    {"table_loose", TL_REFUSE_EXIT_UNKNOWN, {{0}}},
    {"exits_cond", TL_REFUSE_NONE,
     {{"exits_cond", TL_EXIT_COND_TAIL}, {"at_ec1", TL_EXIT_COND_TAIL}, {"at_ec2", TL_EXIT_RET}}},
    {"exits_far", TL_REFUSE_NONE, {{"at_ef", TL_EXIT_ITAIL}}},
    {"exits_plt", TL_REFUSE_NONE, {{"at_ep", TL_EXIT_TAIL}}},
    {"exits_frame", TL_REFUSE_NONE, {{"at_efr", TL_EXIT_RET}}},
    {"exits_frame2", TL_REFUSE_NONE, {{"at_efr2", TL_EXIT_RET}}},
    {"exits_lost", TL_REFUSE_EXIT_UNKNOWN, {{0}}},
    {"exits_never", TL_REFUSE_NO_EXIT, {{0}}},
    {"exits_signed", TL_REFUSE_NONE, {{"at_es", TL_EXIT_RET}}},
};

static void every_way_out_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(leaves); i++) {
        struct tl_exit exit[8];
        size_t count, wanted = 0;
        enum tl_refusal refusal;
        assert_int_equal(tl_analysis_exits(shared.analysis, named(leaves[i].name), exit, 8, &count,
                                           &refusal, NULL),
                         0);
        if (refusal != leaves[i].refusal)
            fail_msg("%s: '%s'", leaves[i].name, tl_refusal_text(refusal));
        for (; wanted < 4 && leaves[i].exit[wanted].at != NULL; wanted++) {
            if (wanted >= count || exit[wanted].vaddr != named(leaves[i].exit[wanted].at) ||
                exit[wanted].kind != leaves[i].exit[wanted].kind)
                fail_msg("%s: exit %zu of %zu", leaves[i].name, wanted, count);
            assert_int_equal(exit[wanted].early_count, 0); // each has room for a branch
        }
        assert_int_equal(count, wanted);
    }
}

static void loops_to_an_entry_are_found(void **state)
{
    (void)state;
    struct tl_site_facts site = site_at(tl_analysis_entry(shared.analysis, named("looped")));
    assert_true(site.entry && site.looped && !site.looper_more);
    assert_int_equal(site.looper_count, 3);
    assert_int_equal(site.loopers[0], named("at_loop1"));
    assert_int_equal(site.loopers[2], named("at_loop3"));
    assert_false(site_at(named("at_adds0")).looped);
}

static void a_function_whose_address_is_taken_is_one(void **state)
{
    (void)state;
    tl_addr entry = tl_analysis_entry(shared.analysis, named("at_taken"));
    assert_int_equal(entry, named("at_taken") + 4);
    assert_true(site_at(entry).entry);
    assert_false(site_at(named("at_alone")).entry);
}

static void the_return_address_is_seen_to_be_read(void **state)
{
    (void)state;
    static const struct {
        uint32_t word;
        bool reads;
    } table[] = {
        {0xd65f03c0, false}, // ret
        {0xd65f0260, true},  // ret x19
        {0xd65f0bff, true},  // retaa
        {0xd503233f, true},  // paciasp
        {0xa9bf7bfd, false}, // stp x29, x30, [sp, #-16]!
        {0xf81f0ffe, false}, // str x30, [sp, #-16]!
        {0xf9000bfe, false}, // str x30, [sp, #16]
        {0xf900001e, true},  // str x30, [x0]
        {0xa8c17bfd, false}, // ldp x29, x30, [sp], #16
        {0xf94007be, false}, // ldr x30, [x29, #8]
        {0xf94007a0, true},  // ldr x0, [x29, #8]
        {0xa94087a0, true},  // ldp x0, x1, [x29, #8]
        {0xf9400ba0, false}, // ldr x0, [x29, #16]
        {0xaa1e03e0, true},  // mov x0, x30
        {0xd63f03c0, true},  // blr x30
        {0xd63f0000, false}, // blr x0
        {0x94000000, false}, // bl .
        {0xd4000001, false}, // svc #0
        {0xaa0103e0, false}, // mov x0, x1
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        struct tl_insn insn;
        assert_int_equal(tl_arch_arm64.decode((const uint8_t *)&table[i].word, 4, 0, &insn), 0);
        if (tl_arch_arm64.reads_return(&insn, 0, 0) != table[i].reads)
            fail_msg("%08x", table[i].word);
    }
}

// With the stack pointer 32 bytes below that of the entry, the frame pointer 48.
static void the_place_of_the_return_address_is_seen(void **state)
{
    (void)state;
    enum { NO = -1 };
    static const struct {
        uint32_t word;
        int64_t below;
    } table[] = {
        {0xa9bf7bfd, 40}, // stp x29, x30, [sp, #-16]!
        {0xa9017bfd, 8},  // stp x29, x30, [sp, #16]
        {0xa90077fe, 32}, // stp x30, x29, [sp]
        {0xa8817bfd, 24}, // stp x29, x30, [sp], #16
        {0xa90053f3, NO}, // stp x19, x20, [sp]
        {0xf81f0ffe, 48}, // str x30, [sp, #-16]!
        {0xf80107fe, 32}, // str x30, [sp], #16
        {0xf9000bfe, 16}, // str x30, [sp, #16]
        {0xf81f83fe, 40}, // stur x30, [sp, #-8]
        {0xf90007be, 40}, // str x30, [x29, #8]
        {0xf9000bf3, NO}, // str x19, [sp, #16]
        {0xf900001e, NO}, // str x30, [x0]
        {0xa8c17bfd, NO}, // ldp x29, x30, [sp], #16
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        struct tl_insn insn;
        int64_t below = NO;
        assert_int_equal(tl_arch_arm64.decode((const uint8_t *)&table[i].word, 4, 0, &insn), 0);
        bool stores = tl_arch_arm64.stores_return(&insn, 32, 48, &below);
        if (stores != (table[i].below != NO) || below != table[i].below)
            fail_msg("%08x: %d, %d", table[i].word, stores, (int)below);
        if (stores && tl_arch_arm64.stores_return(&insn, TL_DEPTH_UNKNOWN, TL_DEPTH_UNKNOWN, &below))
            assert_true(below == TL_DEPTH_UNKNOWN);
    }
}

static void our_own_loads_of_it_are_seen(void **state)
{
    (void)state;
    enum { NO = -1 };
    static const struct {
        const struct tl_arch *arch;
        uint32_t word;
        int64_t below;
    } table[] = {
        {&tl_arch_arm64, 0xa9417bf0, 8},    // ldp x16, x30, [sp, #16]
        {&tl_arch_arm64, 0xa94143fe, 16},   // ldp x30, x16, [sp, #16]
        {&tl_arch_arm64, 0xf9400bfe, 16},   // ldr x30, [sp, #16]
        {&tl_arch_arm64, 0xf84107fe, 32},   // ldr x30, [sp], #16
        {&tl_arch_arm64, 0xa94147f0, NO},   // ldp x16, x17, [sp, #16]
        {&tl_arch_arm64, 0xf9400bbe, NO},   // ldr x30, [x29, #16]
        {&tl_arch_arm64, 0xa90143fe, NO},   // stp x30, x16, [sp, #16]
        {&tl_arch_riscv64, 0x01813083, 8},  // ld ra, 24(sp)
        {&tl_arch_riscv64, 0x01043083, NO}, // ld ra, 16(s0)
        {&tl_arch_riscv64, 0x00813283, NO}, // ld t0, 8(sp)
        {&tl_arch_riscv64, 0x00113c23, NO}, // sd ra, 24(sp)
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        struct tl_insn insn;
        int64_t below = NO;
        assert_int_equal(table[i].arch->decode((const uint8_t *)&table[i].word, 4, 0, &insn), 0);
        bool loads = table[i].arch->loads_return(&insn, 32, &below);
        if (loads != (table[i].below != NO) || below != table[i].below)
            fail_msg("%08x: %d, %d", table[i].word, loads, (int)below);
    }
}

// The same of the other instruction set whose calls leave it in a register.
static void the_place_is_seen_on_riscv64_too(void **state)
{
    (void)state;
    enum { NO = -1 };
    static const struct {
        uint32_t word;
        int64_t below;
    } table[] = {
        {0x00113423, 24}, // sd ra, 8(sp)
        {0xfe113c23, 40}, // sd ra, -8(sp)
        {0xfe143c23, 56}, // sd ra, -8(s0)
        {0x00813023, NO}, // sd s0, 0(sp)
        {0x00153423, NO}, // sd ra, 8(a0)
        {0xe406, 24},     // sd ra, 8(sp), compressed
        {0xf606, -264},   // sd ra, 296(sp), compressed
        {0xe022, NO},     // sd s0, 0(sp), compressed
        {0x60a2, NO},     // ld ra, 8(sp), compressed
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        struct tl_insn insn;
        int64_t below = NO;
        assert_int_equal(tl_arch_riscv64.decode((const uint8_t *)&table[i].word, 4, 0, &insn), 0);
        bool stores = tl_arch_riscv64.stores_return(&insn, 32, 48, &below);
        if (stores != (table[i].below != NO) || below != table[i].below)
            fail_msg("%08x: %d, %d", table[i].word, stores, (int)below);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_lie_behind_landing_pads),
        cmocka_unit_test(refusals_name_their_reason),
        cmocka_unit_test(registers_are_dead_by_data_flow_only),
        cmocka_unit_test(every_way_out_is_found),
        cmocka_unit_test(loops_to_an_entry_are_found),
        cmocka_unit_test(a_function_whose_address_is_taken_is_one),
        cmocka_unit_test(the_return_address_is_seen_to_be_read),
        cmocka_unit_test(the_place_of_the_return_address_is_seen),
        cmocka_unit_test(our_own_loads_of_it_are_seen),
        cmocka_unit_test(the_place_is_seen_on_riscv64_too),
    };
    return cmocka_run_group_tests(tests, victim_setup, victim_teardown);
}

// What the differential test can't see of riscv64 detours: how many instructions a hit costs, how
// far branches of each kind go, what is out of reach, what a window may hold, where registers may
// not be used.
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "arch/arch.h"
#include "base/types.h"

#define SITE ((tl_addr)0x2aaab00000)
#define DETOUR (SITE + 0x80000)
#define AWAY (SITE + 0x20000000)
#define HOMES (SITE - 0x400000)
#define SLOW (SITE + 0x100000)
#define X(n) TL_REGSET(n)

enum {
    NOP = 0x00000013,
    C_NOP = 0x0001,
    C_NOP_HINT = 0x0005,   // c.nop 1
    ADD = 0x00150513,      // addi a0, a0, 1
    C_PUSH = 0x1141,       // c.addi sp, -16
    C_SD_RA = 0xe406,      // c.sdsp ra, 8(sp)
    AUIPC_RA = 0x00001097, // auipc ra, 1
    JALR_RA = 0x018080e7,  // jalr ra, 24(ra)
    AUIPC_T1 = 0x00001317,
    JALR_RA_T1 = 0x018300e7,
    JAL_RA = 0x7f1ff0ef, // jal ra, .+1 MiB-16
    J = 0x7f1ff06f,
    BEQZ_A0 = 0x06050c63, // beqz a0, .+120
    C_BEQZ_A0 = 0xcd19,   // c.beqz a0, .+30
    C_J = 0xa829,         // c.j .+26
    C_JALR_A5 = 0x9782,
    C_JALR_RA = 0x9082,
    RET = 0x8082,
};

static const struct tl_arch *const arch = &tl_arch_riscv64;
static struct tl_insn insn[TL_WINDOW_INSNS_MAX];
static struct tl_detour detour;

// A count at a window of these words; 0 ends it.
static struct tl_emit_in input(const uint32_t *word)
{
    struct tl_emit_in in = {.action = TL_ACTION_COUNT,
                            .thread_pointer = TL_TP_TP,
                            .homes_addr = HOMES,
                            .homes_shift = 12,
                            .slow_addr = SLOW,
                            .counter_off = 64,
                            .insn = insn,
                            .resume_addr = SITE};
    while (in.insn_count < TL_WINDOW_INSNS_MAX && word[in.insn_count]) {
        struct tl_insn *at = &insn[in.insn_count];
        assert_int_equal(
            arch->decode((const uint8_t *)&word[in.insn_count++], 4, in.resume_addr, at), 0);
        in.resume_addr += at->size;
    }
    return in;
}

static unsigned emit(const struct tl_emit_in *in, tl_addr at)
{
    assert_int_equal(arch->emit_detour(in, at, &detour, NULL), 0);
    return detour.refusal;
}

// The instruction of the detour at an offset.
static struct tl_insn insn_at(unsigned off, tl_addr at)
{
    struct tl_insn decoded;
    assert_int_equal(arch->decode(detour.bytes + off, detour.size - off, at + off, &decoded), 0);
    return decoded;
}

static unsigned insns_between(unsigned from, unsigned to, tl_addr at)
{
    unsigned count = 0;
    for (; from < to; count++)
        from += insn_at(from, at).size;
    assert_int_equal(from, to);
    return count;
}

static void a_hit_costs_so_many_instructions(void **state)
{
    static const struct {
        const char *name;
        tl_regset dead, behind, resume;
        unsigned arrive;
        bool away, shared;
        unsigned there; // instructions of the branch to the detour
        unsigned added;
    } row[] = {
        {"two dead registers, near", X(6) | X(7), 0, 0, 0, false, false, 1, 11},
        {"many", 0xf00000e2, 0, 0, 0, false, false, 1, 11},
        {"none", 0, 0, 0, 0, false, false, 1, 17},
        {"one", X(7), 0, 0, 0, false, false, 1, 15},
        {"two behind", 0, X(5) | X(6), 0, 0, false, false, 1, 11},
        {"one behind is no gain", 0, X(5), 0, 0, false, false, 1, 17},
        {"far, by dead registers", X(6) | X(7), 0, X(7), 0, true, false, 2, 13},
        {"spilled on the way there", X(6) | X(7), 0, X(7), 5, true, false, 4, 17},
        {"shared", X(6) | X(7), 0, 0, 0, false, true, 1, 8},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input((const uint32_t[]){ADD, ADD, ADD, 0});
        tl_addr at = row[i].away ? AWAY : DETOUR;
        in.dead = row[i].dead;
        in.behind = row[i].behind != 0;
        in.dead_behind = row[i].behind;
        in.dead_resume = row[i].resume;
        in.arrive_reg = (uint8_t)row[i].arrive;
        in.thread_pointer = row[i].shared ? TL_TP_SHARED : TL_TP_TP;
        assert_int_equal(emit(&in, at), TL_REFUSE_NONE);
        unsigned last = detour.boundary[detour.boundary_count - 1].off, back = row[i].away ? 2 : 1;
        unsigned added = row[i].there + insns_between(0, last, at) - in.insn_count + back;
        printf("%s: %u instructions added\n", row[i].name, added);
        assert_int_equal(added, row[i].added);
    }
}

// Behind the parts of a prologue: the frame that it opens is room to save registers in.
static void a_prologue_saves_the_count_its_own_frame(void **state)
{
    enum { OPEN = 0x1101, STORE_RA = 0xec06, STORE_S0 = 0xe822, OPEN_SMALL = 0x1141, STORE_LOW = 0xe022,
           STORE_RA_SMALL = 0xe406, LOAD = 0x00053503 };
    static const struct {
        const char *name;
        uint32_t word[4];
        unsigned behind;
        tl_regset dead, dead_behind;
        bool no_stack;
        unsigned added;
    } row[] = {
        {"nothing is dead", {OPEN, STORE_RA}, 1, 0, 0, false, 15},
        {"ra is", {OPEN, STORE_RA}, 2, 0, X(1), false, 13},
        {"ra and s0 are", {OPEN, STORE_RA, STORE_S0}, 3, 0, X(1) | X(8), false, 11},
        {"one slot for two", {OPEN_SMALL, STORE_RA_SMALL, ADD}, 2, 0, 0, false, 17},
        {"one slot for one", {OPEN_SMALL, STORE_RA_SMALL, ADD}, 2, 0, X(1), false, 13},
        {"no slot", {OPEN_SMALL, STORE_RA_SMALL, STORE_LOW}, 3, 0, X(1), false, 17},
        {"no stack", {OPEN, STORE_RA}, 2, 0, X(1), true, 0},
        {"what could not be run again", {OPEN, STORE_RA, LOAD}, 3, 0, X(1), false, 17},
        {"what writes what is read", {ADD, OPEN}, 2, 0, X(1), false, 17},
        {"no frame", {STORE_RA, ADD}, 2, 0, X(1), false, 17},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        in.behind = (uint8_t)row[i].behind;
        in.dead = row[i].dead;
        in.dead_behind = row[i].dead_behind;
        in.no_stack = row[i].no_stack;
        unsigned refusal = emit(&in, DETOUR);
        assert_int_equal(refusal, row[i].no_stack ? TL_REFUSE_NO_STACK : TL_REFUSE_NONE);
        if (refusal)
            continue;
        unsigned last = detour.boundary[detour.boundary_count - 1].off;
        unsigned added = insns_between(0, last, DETOUR) - in.insn_count + 2;
        printf("%s: %u instructions added\n", row[i].name, added);
        assert_int_equal(added, row[i].added);
        bool framed = added == 15 || added == 13;
        for (unsigned k = 0; framed && k < detour.fault_count; k++)
            assert_true(!detour.fault[k].sp_words || detour.fault[k].sp_words == (row[i].word[0] == OPEN ? 4 : 2));
    }
}

// What does nothing need not be done, but where it is a hint, or all that a slot has.
static void a_site_that_does_nothing_is_left_out(void **state)
{
    static const struct {
        uint32_t word[3];
        bool stepped;
        unsigned displaced; // instructions that are there
    } row[] = {
        {{NOP}, false, 0},        {{C_NOP}, false, 0},      {{C_NOP, ADD}, false, 1},
        {{ADD, C_NOP}, false, 2}, {{C_NOP_HINT}, false, 1}, {{0x0100000f}, false, 1}, // pause
        {{NOP}, true, 1},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        in.stepped = row[i].stepped;
        assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
        assert_int_equal(detour.boundary_count, in.insn_count + 1);
        unsigned last = detour.boundary[in.insn_count].off;
        assert_int_equal(insns_between(detour.displaced, last, DETOUR), row[i].displaced);
        for (size_t k = 0; k < detour.fault_count; k++)
            assert_true(row[i].displaced || detour.fault[k].off < detour.displaced);
    }
}

// The parcels themselves, once, for a reader; objdump's text beside them.
static void a_count_reads_like_this(void **state)
{
    static const uint32_t word[] = {
        0x00925393, // srli t2, tp, 9
        0x7f83f393, // andi t2, t2, 2040
        0xffb80317, // auipc t1, homes
        0x931e,     // add t1, t1, t2
        0xff833303, // ld t1, homes(t1)
        0x00030b63, // beqz t1, slow
        0x04030313, // addi t1, t1, 64
        0x4385,     // li t2, 1
        0x0073302f, // amoadd.d zero, t2, (t1)
        0x1141,     // addi sp, sp, -16
        0xe406,     // sd ra, 8(sp)
        0xfe17f06f, // j resume
        0x1101,     // slow: addi sp, sp, -32
        0xec06,     // sd ra, 24(sp)
        0xe816,     // sd t0, 16(sp)
        0xe41a,     // sd t1, 8(sp)
        0x0033d313, // srli t1, t2, 3
        0x04000293, // li t0, 64
        0x7c97f0ef, // jal agent
        0x60e2,     // ld ra, 24(sp)
        0x62c2,     // ld t0, 16(sp)
        0x6322,     // ld t1, 8(sp)
        0x6105,     // addi sp, sp, 32
        0xfddff06f, // j done
    };
    unsigned off = 0;
    (void)state;
    struct tl_emit_in in = input((const uint32_t[]){C_PUSH, C_SD_RA, 0});
    in.dead = X(6) | X(7);
    assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
    for (size_t i = 0; i < TL_ARRAY_COUNT(word); i++) {
        uint32_t there = 0;
        unsigned size = (word[i] & 3) == 3 ? 4 : 2;
        memcpy(&there, detour.bytes + off, size);
        if (there != word[i])
            printf("instruction %zu is %08x\n", i, there);
        assert_int_equal(there, word[i]);
        off += size;
    }
    assert_int_equal(detour.size, off);
    assert_int_equal(detour.displaced, 32);
    assert_int_equal(detour.boundary_count, 3);
    assert_int_equal(detour.boundary[1].off, 34);
    assert_int_equal(detour.boundary[1].insn_off, 2);
    assert_int_equal(detour.boundary[2].off, 36);
    assert_int_equal(detour.boundary[2].insn_off, 4);
}

static void branches_reach_what_the_face_says(void **state)
{
    const tl_addr jump = SITE + arch->jump_size, hop = SITE + arch->short_size;
    const struct {
        const char *name;
        bool (*emit)(tl_addr at, tl_addr to, uint8_t *out);
        tl_addr to;
        bool reaches;
    } row[] = {
        {"highest", arch->emit_jump, jump + (tl_addr)arch->jump_reach_max, true},
        {"too high", arch->emit_jump, jump + (tl_addr)arch->jump_reach_max + 2, false},
        {"lowest", arch->emit_jump, jump + (tl_addr)arch->jump_reach_min, true},
        {"too low", arch->emit_jump, jump + (tl_addr)arch->jump_reach_min - 2, false},
        {"odd", arch->emit_jump, SITE + 9, false},
        {"short, highest", arch->emit_short, hop + (tl_addr)arch->short_reach_max, true},
        {"short, too high", arch->emit_short, hop + (tl_addr)arch->short_reach_max + 2, false},
        {"short, lowest", arch->emit_short, hop + (tl_addr)arch->short_reach_min, true},
        {"short, too low", arch->emit_short, hop + (tl_addr)arch->short_reach_min - 2, false},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        uint8_t code[4];
        struct tl_insn branch;
        printf("%s\n", row[i].name);
        assert_int_equal(row[i].emit(SITE, row[i].to, code), row[i].reaches);
        if (row[i].reaches) {
            assert_int_equal(arch->decode(code, sizeof code, SITE, &branch), 0);
            assert_int_equal(branch.target, row[i].to);
            assert_int_equal(branch.flow, TL_FLOW_JUMP);
        }
    }
}

static void a_branch_is_led_elsewhere_in_its_own_size(void **state)
{
    static const struct {
        const char *name;
        uint32_t word;
        int64_t min, max; // from its own address
    } row[] = {
        {"jal ra", JAL_RA, -0x100000, 0xffffe},
        {"j", J, -0x100000, 0xffffe},
        {"beqz", BEQZ_A0, -0x1000, 0xffe},
        {"c.beqz", C_BEQZ_A0, -0x100, 0xfe},
        {"c.j", C_J, -0x800, 0x7fe},
        {"c.jalr", C_JALR_A5, 0, -2},
        {"ret", RET, 0, -2},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_insn branch, led;
        uint8_t code[4] = {0};
        assert_int_equal(arch->decode((const uint8_t *)&row[i].word, 4, SITE, &branch), 0);
        printf("%s\n", row[i].name);
        assert_false(arch->emit_retarget(&branch, SITE + (tl_addr)row[i].min - 2, code));
        assert_false(arch->emit_retarget(&branch, SITE + (tl_addr)row[i].max + 2, code));
        for (unsigned end = 0; end < 2 && row[i].min < row[i].max; end++) {
            tl_addr to = SITE + (tl_addr)(end ? row[i].max : row[i].min);
            assert_true(arch->emit_retarget(&branch, to, code));
            assert_int_equal(arch->decode(code, sizeof code, SITE, &led), 0);
            assert_int_equal(led.target, to);
            assert_int_equal(led.size, branch.size);
            assert_int_equal(led.row, branch.row);
            assert_true(led.read == branch.read && led.written == branch.written);
        }
    }
}

// Twelve bytes there, eight back; two gibibytes, less what the last twelve bits take.
static void long_branches_reach_two_gibibytes(void **state)
{
    static const int64_t disp[] = {0x7ffff7fe, 0x7ffff800, -0x80000800LL, -0x80000802LL, 0x1ffe,
                                   2,          0};
    static const bool reaches[] = {true, false, true, false, true, true, true};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(disp); i++) {
        for (unsigned spill = 0; spill < 2; spill++) {
            uint8_t code[12], size = spill ? arch->spill_size : arch->far_size;
            struct tl_insn first, second;
            tl_addr from = SITE + (spill ? 4 : 0), value;
            assert_int_equal(arch->emit_far(SITE, from + (tl_addr)disp[i], 7, spill, code),
                             reaches[i]);
            if (!reaches[i])
                continue;
            uint32_t word;
            memcpy(&word, code + size - 4, sizeof word);
            assert_int_equal(arch->decode(code + size - 8, 8, from, &first), 0);
            assert_int_equal(arch->decode(code + size - 4, 4, from + 4, &second), 0);
            value = first.target + (tl_addr)(int64_t)((int32_t)word >> 20);
            assert_true(value == from + (tl_addr)disp[i]);
            assert_true(first.written == X(7) && second.read == X(7) && second.written == 0);
        }
    }
    uint8_t code[8];
    assert_true(arch->emit_reload(SITE, SITE + 4 + 0xffffe, 7, false, code));
    assert_false(arch->emit_reload(SITE, SITE + 4 + 0x100000, 7, false, code));
    assert_true(arch->emit_reload(SITE, SITE + 4 - 0x100000, 7, false, code));
    assert_true(arch->emit_reload(SITE, SITE + 4, 7, true, code));
    assert_false(arch->emit_reload(SITE, SITE + 8, 7, true, code));
}

// What no register leads to is told, all of it at once, and goes by bounces then.
static void what_is_too_far_is_told(void **state)
{
    static const struct {
        const char *name;
        uint32_t word[TL_WINDOW_INSNS_MAX + 1];
        tl_regset dead, resume, target;
        bool no_stack;
        unsigned refusal;
        unsigned count;
        tl_addr far[TL_BOUNCES_MAX];
    } row[] = {
        {"goes on", {NOP}, 0, 0, 0, false, TL_REFUSE_NO_REACH, 1, {SITE + 4}},
        {"goes on, a dead register", {NOP}, 0, X(30), 0, false, TL_REFUSE_NONE, 0, {0}},
        {"goes on, tp and gp are none",
         {NOP},
         0,
         X(2) | X(3) | X(4),
         0,
         false,
         TL_REFUSE_NO_REACH,
         1,
         {SITE + 4}},
        {"a branch", {BEQZ_A0}, 0, 0, 0, false, TL_REFUSE_NO_REACH, 2, {SITE + 4, SITE + 120}},
        {"a branch, behind it", {BEQZ_A0}, 0, X(7), 0, false, TL_REFUSE_NO_REACH, 1, {SITE + 120}},
        {"a branch, where it leads",
         {BEQZ_A0},
         0,
         0,
         X(7),
         false,
         TL_REFUSE_NO_REACH,
         1,
         {SITE + 4}},
        {"a jump", {NOP, C_J}, 0, X(7), 0, false, TL_REFUSE_NO_REACH, 1, {SITE + 4 + 26}},
        {"a call", {JAL_RA}, 0, 0, 0, false, TL_REFUSE_NO_REACH, 1, {SITE + 0xffff0}},
        {"a call, its link is not free",
         {JAL_RA},
         0,
         0,
         X(1),
         false,
         TL_REFUSE_NO_REACH,
         1,
         {SITE + 0xffff0}},
        {"a call, a dead register", {JAL_RA}, 0, 0, X(28), false, TL_REFUSE_NONE, 0, {0}},
        {"a call in two",
         {AUIPC_RA, JALR_RA},
         0,
         X(7),
         X(7),
         false,
         TL_REFUSE_NO_REACH,
         1,
         {SITE + 0x1018}},
        {"a call in two, dead", {AUIPC_RA, JALR_RA}, X(7), 0, 0, false, TL_REFUSE_NONE, 0, {0}},
        {"a call in two, another link",
         {AUIPC_T1, JALR_RA_T1},
         0,
         0,
         0,
         false,
         TL_REFUSE_NONE,
         0,
         {0}},
        {"a return", {NOP, RET}, 0, 0, 0, false, TL_REFUSE_NONE, 0, {0}},
        {"no stack", {NOP}, 0, 0, 0, true, TL_REFUSE_NO_REACH, 1, {SITE + 4}},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        in.action = TL_ACTION_NONE;
        in.dead = row[i].dead;
        in.dead_resume = row[i].resume;
        in.dead_target = row[i].target;
        in.no_stack = row[i].no_stack;
        printf("%s\n", row[i].name);
        assert_int_equal(emit(&in, AWAY), row[i].refusal);
        assert_int_equal(detour.far_count, row[i].count);
        for (unsigned k = 0; k < row[i].count; k++) {
            assert_true(detour.far_target[k] == row[i].far[k]);
            in.bounce[k] =
                (struct tl_bounce){.target = row[i].far[k], .addr = SITE + 0x1000 + 8 * k};
        }
        in.bounce_count = (uint8_t)row[i].count;
        in.bounce_reg = 8;
        assert_int_equal(emit(&in, AWAY), row[i].no_stack ? TL_REFUSE_NO_STACK : TL_REFUSE_NONE);
        assert_int_equal(detour.far_count, 0);
    }
}

// A call between two others would return into the window; a branch into an instruction's middle has
// no copy.
static void what_a_window_may_not_hold_is_refused(void **state)
{
    enum { BEQZ_BACK = 0xfe050ee3 /* beqz a0, .-4 */, BEQZ_INTO = 0xfe050fe3 /* beqz a0, .-2 */ };
    static const struct {
        const char *name;
        uint32_t word[TL_WINDOW_INSNS_MAX + 1];
        tl_regset dead;
        unsigned refusal;
    } row[] = {
        {"a call at the end", {NOP, JAL_RA}, 0, TL_REFUSE_NONE},
        {"a call before the end", {JAL_RA, NOP}, 0, TL_REFUSE_WINDOW_CALL},
        {"one behind a jump that is too far", {C_J, JAL_RA, NOP}, 0, TL_REFUSE_WINDOW_CALL},
        {"an indirect one", {C_JALR_A5, NOP}, 0, TL_REFUSE_WINDOW_CALL},
        {"a branch to a copy", {C_PUSH, NOP, BEQZ_BACK}, 0, TL_REFUSE_NONE},
        {"a branch into one", {C_PUSH, NOP, BEQZ_INTO}, 0, TL_REFUSE_WINDOW_TARGET},
        {"a branch to the site", {NOP, BEQZ_BACK}, 0, TL_REFUSE_NONE},
        {"through the link", {NOP, C_JALR_RA}, 0, TL_REFUSE_PC_USE},
        {"through the link, one dead", {NOP, C_JALR_RA}, X(28), TL_REFUSE_NONE},
        {"through the link, which is dead", {NOP, C_JALR_RA}, X(1), TL_REFUSE_PC_USE},
        {"ecall", {NOP, 0x00000073}, 0, TL_REFUSE_SYSCALL},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input(row[i].word);
        in.action = TL_ACTION_NONE;
        in.dead = row[i].dead;
        printf("%s\n", row[i].name);
        assert_int_equal(emit(&in, DETOUR), row[i].refusal);
        if (row[i].refusal) // no bounce helps
            assert_int_equal(emit(&in, AWAY), row[i].refusal);
    }
}

// A loop inside a window stays in its copy, one to the site leaves it.
static void branches_inside_a_window_stay_in_the_copy(void **state)
{
    enum { BEQZ_BACK = 0xfe050ee3 /* beqz a0, .-4 */, C_BEQZ_BACK = 0xdd75 /* c.beqz a0, .-4 */ };
    static const uint32_t branch[] = {BEQZ_BACK, C_BEQZ_BACK};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(branch); i++) {
        struct tl_emit_in in = input((const uint32_t[]){C_PUSH, NOP, branch[i], 0});
        in.action = TL_ACTION_NONE;
        assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
        assert_true(insn_at(6, DETOUR).target == DETOUR + 2);
        in = input((const uint32_t[]){NOP, branch[i], 0});
        in.action = TL_ACTION_NONE;
        assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
        struct tl_insn taken = insn_at(4, DETOUR);
        assert_true(insn_at((unsigned)(taken.target - DETOUR), DETOUR).target == SITE);
    }
}

// A branch that leads back to the function's entry goes past the probe; a call does not.
static void looping_branches_are_diverted(void **state)
{
    enum { JAL_BACK = 0xfc1ff0ef /* jal ra, .-64 */, J_BACK = 0xfc1ff06f, BEQZ_BACK = 0xfc0500e3 };
    static const tl_addr entry = SITE - 64, elsewhere = DETOUR + 0x1000;
    static const struct {
        const char *name;
        uint32_t word;
        tl_addr from, to; // to 0: the displaced instruction itself
        unsigned branch;  // offset of the one that is diverted
        tl_addr goal;
    } row[] = {
        {"j", J_BACK, entry, elsewhere, 0, elsewhere},
        {"j, itself", J_BACK, entry, 0, 0, DETOUR},
        {"beqz", BEQZ_BACK, entry, elsewhere, 8, elsewhere}, // as long for any distance
        {"beqz, itself", BEQZ_BACK, entry, 0, 0, DETOUR},
        {"another branch", J_BACK, SITE - 32, elsewhere, 0, entry},
        {"jal ra", JAL_BACK, entry, elsewhere, 6, entry}, // behind auipc and c.addi
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input((const uint32_t[]){row[i].word, 0});
        in.action = TL_ACTION_NONE;
        in.divert_from = row[i].from;
        in.divert_to = row[i].to;
        printf("%s\n", row[i].name);
        assert_int_equal(emit(&in, DETOUR), TL_REFUSE_NONE);
        assert_true(insn_at(row[i].branch, DETOUR).target == row[i].goal);
    }
}

// Nothing is stored where there is no stack, and sp, gp, tp are never worked with.
static void registers_with_a_purpose_are_left_alone(void **state)
{
    static const struct {
        const char *name;
        enum tl_action action;
        bool shared, arrives;
        tl_regset dead;
        unsigned refusal;
    } row[] = {
        {"shared, two dead", TL_ACTION_COUNT, true, false, X(6) | X(7), TL_REFUSE_NONE},
        {"shared, sp, gp, tp and one dead", TL_ACTION_COUNT, true, false, X(2) | X(3) | X(4) | X(7),
         TL_REFUSE_NO_STACK},
        {"the thread's own", TL_ACTION_COUNT, false, false, X(6) | X(7), TL_REFUSE_NO_STACK},
        {"a record", TL_ACTION_RECORD, true, false, X(6) | X(7), TL_REFUSE_NO_STACK},
        {"a guard", TL_ACTION_GUARD, true, false, X(6) | X(7), TL_REFUSE_NO_STACK},
        {"one was spilled", TL_ACTION_NONE, true, true, 0, TL_REFUSE_NO_STACK},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(row); i++) {
        struct tl_emit_in in = input((const uint32_t[]){NOP, NOP, NOP, 0});
        in.action = row[i].action;
        in.thread_pointer = row[i].shared ? TL_TP_SHARED : TL_TP_TP;
        in.dead = row[i].dead;
        in.arrive_reg = row[i].arrives ? 7 : 0;
        in.record[0] = (struct tl_record){TL_RECORD_EVENT, 64, 0};
        in.record_addr[TL_RECORD_EVENT] = SLOW;
        for (unsigned no_stack = 0; no_stack < 2; no_stack++) {
            in.no_stack = no_stack != 0;
            printf("%s, %s\n", row[i].name, no_stack ? "no stack" : "a stack");
            assert_int_equal(emit(&in, DETOUR),
                             no_stack ? row[i].refusal : (unsigned)TL_REFUSE_NONE);
            for (unsigned off = 0; off < detour.size;) {
                struct tl_insn step = insn_at(off, DETOUR);
                assert_true((step.written & (X(3) | X(4))) == 0);
                assert_true(!no_stack || (step.written & X(2)) == 0);
                off += step.size;
            }
        }
    }
}

// With all actions, at a window of branches none of which reaches, and everything else as far.
static void the_largest_detour_fits(void **state)
{
    uint32_t word[TL_WINDOW_INSNS_MAX + 1] = {0};
    (void)state;
    for (unsigned i = 0; i < TL_WINDOW_INSNS_MAX; i++)
        word[i] = BEQZ_A0;
    struct tl_emit_in in = input(word);
    in.action = TL_ACTION_RECORD | TL_ACTION_COUNT | TL_ACTION_GUARD;
    in.slow_addr = in.call_addr = UINT64_C(0x7000000000);
    in.leave_addr = in.homes_addr = UINT64_C(0x6000000000);
    in.counter_off = 0x12345678;
    in.dead_resume = in.dead_target = X(7);
    in.arrive_reg = 6;
    in.record_addr[TL_RECORD_EVENT] = UINT64_C(0x5000000000);
    for (unsigned i = 0; i < TL_SITE_RECORDS_MAX; i++)
        in.record[i] = (struct tl_record){TL_RECORD_EVENT, 0x12345678, -0x123450};
    assert_int_equal(emit(&in, AWAY), TL_REFUSE_NONE);
    printf("%u bytes of %d, %u points that may fault\n", detour.size, TL_DETOUR_SIZE_MAX,
           detour.fault_count);
    assert_true(detour.fault_count < TL_FAULT_POINTS_MAX);
    for (unsigned i = 1; i < detour.fault_count; i++)
        assert_true(detour.fault[i - 1].off < detour.fault[i].off);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_costs_so_many_instructions),
        cmocka_unit_test(a_prologue_saves_the_count_its_own_frame),
        cmocka_unit_test(a_site_that_does_nothing_is_left_out),
        cmocka_unit_test(a_count_reads_like_this),
        cmocka_unit_test(branches_reach_what_the_face_says),
        cmocka_unit_test(a_branch_is_led_elsewhere_in_its_own_size),
        cmocka_unit_test(long_branches_reach_two_gibibytes),
        cmocka_unit_test(what_is_too_far_is_told),
        cmocka_unit_test(what_a_window_may_not_hold_is_refused),
        cmocka_unit_test(branches_inside_a_window_stay_in_the_copy),
        cmocka_unit_test(looping_branches_are_diverted),
        cmocka_unit_test(registers_with_a_purpose_are_left_alone),
        cmocka_unit_test(the_largest_detour_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

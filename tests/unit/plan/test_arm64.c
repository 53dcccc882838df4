// Plans for arm64 sites made by hand: each takes one instruction, reach to the word, guarded pools, calls that
// get a new target, counts behind the instruction, loops. What a detour does is tested in tests/unit/emit.
#include "arch/arch.h"
#include "plan/plan.h"
#include "plan/trap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BIAS ((tl_addr)0xaaaaaaaa0000)
#define TEXT ((tl_addr)0x10000) // vaddr
#define TEXT_SIZE 0x10000u
#define SPACE_END ((tl_addr)1 << 48)
#define MIB ((tl_addr)1 << 20)
#define INSN_SIZE 4u
#define SITES_MAX 8

static struct {
    uint8_t text[TEXT_SIZE];
    struct tl_text run;
    struct tl_plan_options options;
    struct tl_plan_module module;
    struct tl_plan_request request[SITES_MAX];
    size_t count;
    struct tl_space *space;
    struct tl_plan_set *set;
} w;

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    w.run = (struct tl_text){TEXT, w.text, TEXT_SIZE};
    tl_addr far = 0x700000000000;
    w.options = (struct tl_plan_options){
        .arch = &tl_arch_arm64,
        .emit = {.action = TL_ACTION_COUNT,
                 .thread_pointer = TL_TP_TPIDR,
                 .table_addr = far,
                 .control_addr = far,
                 .homes_addr = far + 0x2000,
                 .homes_shift = 12,
                 .atomics = true,
                 .slow_addr = far + 0x10000},
    };
    w.module = (struct tl_plan_module){.bias = (int64_t)BIAS,
                                       .text = {TEXT, TEXT + TEXT_SIZE},
                                       .texts = &w.run,
                                       .text_count = 1};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tl_plan_set_destroy(w.set);
    tl_space_destroy(w.space);
    return 0;
}

// A site at TEXT + off; the words of what lies there and behind.
static struct tl_site_facts *site(uint32_t off, uint32_t word, uint32_t behind)
{
    struct tl_plan_request *request = &w.request[w.count++];
    struct tl_site_facts *facts = &request->facts;
    const uint32_t words[] = {word, behind};
    memcpy(w.text + off, words, sizeof words);
    *facts = (struct tl_site_facts){.vaddr = TEXT + off,
                                    .insn_count = 2,
                                    .insn_bytes = 2 * INSN_SIZE,
                                    .window_max = INSN_SIZE};
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(w.options.arch->decode(w.text + off + i * INSN_SIZE, INSN_SIZE,
                                                TEXT + off + i * INSN_SIZE, &facts->insn[i]),
                         0);
    request->bias = (int64_t)BIAS;
    request->counter_off = 64;
    return facts;
}

// Only [start, end), relative to the text's start, is free, and of that what the text leaves.
static void plan(int64_t start, int64_t end)
{
    tl_addr text = BIAS + TEXT;
    struct tl_range used[] = {{0, text + (tl_addr)start},
                              {text, text + TEXT_SIZE},
                              {text + (tl_addr)end, SPACE_END}};
    struct tl_space_options options = {.used = used,
                                       .used_count = TL_ARRAY_COUNT(used),
                                       .mapping_limit = 1000,
                                       .addr_min = 0x10000,
                                       .addr_max = SPACE_END,
                                       .page_size = 4096};
    assert_int_equal(tl_space_create(&options, &w.space, NULL), 0);
    assert_int_equal(
        tl_plan_sites(&w.options, w.space, &w.module, 1, w.request, w.count, &w.set, NULL), 0);
}

static const struct tl_plan *placed(size_t index, enum tl_way way)
{
    const struct tl_plan *p = tl_plan_get(w.set, index);
    if (p->rung != TL_RUNG_JUMP)
        fail_msg("site %zu: refused: %s", index, tl_refusal_text(p->refusal));
    assert_string_equal(tl_way_text(p->way), tl_way_text(way));
    assert_false(p->interior);
    return p;
}

static void refused(size_t index, enum tl_refusal refusal)
{
    const struct tl_plan *p = tl_plan_get(w.set, index);
    assert_int_equal(p->rung, TL_RUNG_REFUSED);
    assert_string_equal(tl_refusal_text(p->refusal), tl_refusal_text(refusal));
}

// Where a patched b or bl leads.
static tl_addr branch_target(const struct tl_patch *patch)
{
    uint32_t word;
    memcpy(&word, patch->after, sizeof word);
    assert_int_equal(patch->size, INSN_SIZE);
    assert_int_equal(word & 0x7c000000, 0x14000000);
    return patch->addr + (tl_addr)((int64_t)((uint64_t)word << 38) >> 36);
}

#define NOP 0xd503201fu
#define RET 0xd65f03c0u
#define ADD_X0 0x91000400u      // add x0, x0, #1
#define PUSH 0xa9bf7bfdu        // stp x29, x30, [sp, #-16]!
#define BTI_C 0xd503245fu
#define PACIASP 0xd503233fu
#define LDR_X0_X0 0xf9400000u   // ldr x0, [x0]
#define B(words) (0x14000000u | ((uint32_t)(words) & 0x3ffffffu))
#define BL(words) (0x94000000u | ((uint32_t)(words) & 0x3ffffffu))
#define CBNZ_X0(words) (0xb5000000u | ((uint32_t)(words) & 0x7ffffu) << 5)

static void every_site_takes_one_instruction(void **state)
{
    (void)state;
    static const uint32_t words[] = {NOP, RET, ADD_X0, PUSH, B(64), CBNZ_X0(64), LDR_X0_X0};
    for (size_t i = 0; i < TL_ARRAY_COUNT(words); i++)
        site((uint32_t)(INSN_SIZE * i), words[i], i + 1 < TL_ARRAY_COUNT(words) ? words[i + 1] : NOP);
    plan(-(int64_t)(64 * MIB), 0x100000);
    for (size_t i = 0; i < TL_ARRAY_COUNT(words); i++) {
        const struct tl_plan *p = placed(i, TL_WAY_ONE);
        assert_int_equal(p->window_size, INSN_SIZE);
        assert_int_equal(p->patch_count, 1);
        assert_memory_equal(p->patch[0].before, &words[i], INSN_SIZE);
        assert_int_equal(branch_target(&p->patch[0]), p->detour_addr);
    }
}

static void a_call_gets_a_new_target(void **state)
{
    (void)state;
    site(0, BL(0x400), NOP);
    plan(0, 0x100000);
    const struct tl_plan *p = placed(0, TL_WAY_CALL);
    assert_int_equal(branch_target(&p->patch[0]), p->detour_addr);
    assert_int_equal(p->patch[0].after[3] >> 2, 0x25); // bl
}

// The last page that is in reach, and the first that is not.
static void branches_reach_128_mib(void **state)
{
    (void)state;
    static const struct {
        int64_t start, end;
        enum tl_refusal refusal;
    } gaps[] = {
        {-(int64_t)(128 * MIB), -(int64_t)(128 * MIB) + 0x1000, TL_REFUSE_NONE},
        {-(int64_t)(128 * MIB) - 0x1000, -(int64_t)(128 * MIB), TL_REFUSE_NO_REACH},
        {(int64_t)(128 * MIB) - 0x1000, (int64_t)(128 * MIB), TL_REFUSE_NONE},
        {(int64_t)(128 * MIB), (int64_t)(128 * MIB) + 0x1000, TL_REFUSE_NO_REACH},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(gaps); i++) {
        tl_addr text = BIAS + TEXT;
        setup(NULL);
        site(0, NOP, NOP);
        struct tl_range used[] = {{0, text + (tl_addr)gaps[i].start},
                                  {text + (tl_addr)gaps[i].end, SPACE_END}};
        struct tl_space_options options = {.used = used,
                                           .used_count = 2,
                                           .mapping_limit = 1000,
                                           .addr_min = 0x10000,
                                           .addr_max = SPACE_END};
        assert_int_equal(tl_space_create(&options, &w.space, NULL), 0);
        assert_int_equal(tl_plan_sites(&w.options, w.space, &w.module, 1, w.request, 1, &w.set, NULL),
                         0);
        if (gaps[i].refusal)
            refused(0, gaps[i].refusal);
        else
            assert_int_equal(branch_target(&placed(0, TL_WAY_ONE)->patch[0]),
                             tl_plan_get(w.set, 0)->detour_addr);
        teardown(NULL);
        w.set = NULL;
        w.space = NULL;
    }
}

// A displaced branch reaches its target only from some of the places that its site reaches.
static void detours_lie_in_reach_of_a_branchs_target_too(void **state)
{
    (void)state;
    site(0, B(0x1800000), NOP); // 96 MiB up
    plan(-(int64_t)(100 * MIB), (int64_t)(8 * MIB));
    const struct tl_plan *p = placed(0, TL_WAY_ONE);
    tl_addr target = BIAS + TEXT + 96 * MIB;
    assert_true(target - p->detour_addr < 128 * MIB);
}

static void landing_pads_keep_their_place_where_pages_are_guarded(void **state)
{
    (void)state;
    for (unsigned guarded = 0; guarded < 2; guarded++) {
        const struct tl_range *mapping;
        setup(NULL);
        site(0, BTI_C, NOP);
        site(8, PACIASP, NOP);
        site(16, NOP, NOP);
        w.module.guarded = guarded;
        plan(0, 0x100000);
        for (size_t i = 0; i < 2; i++) {
            if (guarded)
                refused(i, TL_REFUSE_LANDING);
            else
                placed(i, TL_WAY_ONE);
        }
        placed(2, TL_WAY_ONE);
        assert_int_equal(tl_space_mappings(w.space, &mapping), 1);
        assert_int_equal(tl_space_mapping_guarded(w.space, 0), guarded);
        teardown(NULL);
    }
    w.set = NULL;
    w.space = NULL;
}

// Where registers are free behind the instruction only, the count comes there: `displaced` is 0.
static void a_count_comes_behind_where_that_spares_registers(void **state)
{
    (void)state;
    const tl_regset frame = TL_REGSET(29) | TL_REGSET(30), other = TL_REGSET(9) | TL_REGSET(10);
    static const struct {
        uint32_t word, next;
        bool dead_before, records;
        bool behind;
    } table[] = {
        {PUSH, NOP, false, false, true},
        {PUSH, NOP, true, false, false}, // enough are free before it
        {PUSH, LDR_X0_X0, false, false, false}, // the next may fault, and show what is lost
        {B(64), NOP, false, false, false}, // does not go on
        {PUSH, NOP, false, true, false},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        setup(NULL);
        struct tl_site_facts *facts = site(0, table[i].word, table[i].next);
        facts->dead = table[i].dead_before ? other : 0;
        facts->dead_behind = frame;
        if (table[i].records) {
            w.request[0].action = TL_ACTION_RECORD;
            w.request[0].record[0] = (struct tl_record){.kind = TL_RECORD_HIT, .counter_off = 64};
            w.options.emit.record_addr[TL_RECORD_HIT] = 0x700000010000;
        }
        plan(0, 0x100000);
        bool behind = placed(0, TL_WAY_ONE)->detour->displaced == 0;
        if (behind != table[i].behind)
            fail_msg("row %zu", i);
        teardown(NULL);
    }
    w.set = NULL;
    w.space = NULL;
}

static int looper_site(struct tl_analysis *analysis, tl_addr vaddr, struct tl_site_facts *out,
                       struct tl_diag *diag)
{
    (void)analysis, (void)diag;
    *out = (struct tl_site_facts){
        .vaddr = vaddr, .insn_count = 1, .insn_bytes = INSN_SIZE, .window_max = INSN_SIZE};
    return w.options.arch->decode(w.text + (vaddr - TEXT), INSN_SIZE, vaddr, &out->insn[0]);
}

// Loops back to an entry: a far branch gets a new displacement, a near one a detour of its own.
static void loops_are_led_past_the_count(void **state)
{
    (void)state;
    struct tl_site_facts *facts = site(0x100, ADD_X0, NOP);
    const uint32_t near = CBNZ_X0(-2), far = B(-3);
    memcpy(w.text + 0x108, &near, sizeof near);
    memcpy(w.text + 0x10c, &far, sizeof far);
    facts->entry = facts->looped = true;
    facts->loopers[0] = TEXT + 0x108;
    facts->loopers[1] = TEXT + 0x10c;
    facts->looper_count = 2;
    w.module.site = looper_site;
    plan(-(int64_t)(64 * MIB), 0x100000);
    const struct tl_plan *p = placed(0, TL_WAY_ONE);
    const struct tl_plan_detour *detours;
    tl_addr displaced = p->detour_addr + p->detour->displaced;
    assert_int_equal(tl_plan_detours(w.set, &detours), 2); // its own, and the near looper's
    assert_int_equal(p->patch_count, 3);
    for (unsigned i = 0; i < 3; i++) {
        tl_addr to = branch_target(&p->patch[i]), vaddr = p->patch[i].addr - BIAS;
        if (vaddr == TEXT + 0x10c)
            assert_int_equal(to, displaced);
        else if (vaddr == TEXT + 0x100)
            assert_int_equal(to, p->detour_addr);
        else
            assert_true(vaddr == TEXT + 0x108 && to != displaced);
    }
    assert_int_equal(p->patch[2].addr, BIAS + TEXT + 0x100); // the entry last
}

// Programs at both ends of address spaces of 39, 48 and 52 bits, with each size of pages: what is mapped lies
// inside, in whole pages, and the detour's literals hold all bits of the agent's address.
static void each_size_of_addresses_and_pages_is_planned_for(void **state)
{
    (void)state;
    static const unsigned bits[] = {39, 48, 52}, pages[] = {4096, 16384, 65536};
    for (unsigned i = 0; i < 2 * TL_ARRAY_COUNT(bits) * TL_ARRAY_COUNT(pages); i++) {
        const tl_addr page = pages[i / 2 % 3], end = ((tl_addr)1 << bits[i / 6]) - page;
        const tl_addr text = i % 2 ? end - TEXT_SIZE : 0x10000, agent = end / 2 + 0x123454;
        const struct tl_range used[] = {{text, text + TEXT_SIZE}}, *mapping;
        const struct tl_space_options options = {.used = used,
                                                 .used_count = 1,
                                                 .mapping_limit = 1000,
                                                 .addr_min = 0x10000,
                                                 .addr_max = end,
                                                 .page_size = page};
        setup(NULL);
        site(0, PUSH, NOP);
        w.module.bias = w.request[0].bias = (int64_t)(text - TEXT);
        w.options.emit.slow_addr = agent;
        assert_int_equal(tl_space_create(&options, &w.space, NULL), 0);
        assert_int_equal(
            tl_plan_sites(&w.options, w.space, &w.module, 1, w.request, 1, &w.set, NULL), 0);
        const struct tl_plan *p = placed(0, TL_WAY_ONE);
        assert_int_equal(branch_target(&p->patch[0]), p->detour_addr);
        assert_int_equal(tl_space_mappings(w.space, &mapping), 1);
        assert_true(mapping->start >= 0x10000 && mapping->end <= end);
        assert_int_equal((mapping->start | mapping->end) % page, 0);
        assert_true(p->detour_addr >= mapping->start &&
                    p->detour_addr + p->detour_size <= mapping->end);
        assert_non_null(memmem(p->detour->bytes, p->detour->size, &agent, sizeof agent));
        teardown(NULL);
    }
    w.set = NULL;
    w.space = NULL;
}

// A push of more than 16 bytes is simulated only where it may not have a slot: proving that its memory is there takes
// longer.
static void deep_stores_have_slots(void **state)
{
    enum {
        SIMULATE = TL_RUNG_BIT(TL_RUNG_SIMULATE),
        SLOT = TL_RUNG_BIT(TL_RUNG_SLOT),
        BOTH = SIMULATE | SLOT
    };
    static const struct {
        uint32_t word;
        unsigned rungs;
        enum tl_rung rung;
    } cases[] = {
        {0xa9bf7bfd, BOTH, TL_RUNG_SIMULATE},     // stp x29, x30, [sp, #-16]!
        {0xa9be7bfd, BOTH, TL_RUNG_SLOT},         // stp x29, x30, [sp, #-32]!
        {0xa9be7bfd, SIMULATE, TL_RUNG_SIMULATE}, // the same
        {0x6db823e9, BOTH, TL_RUNG_SLOT},         // stp d9, d8, [sp, #-128]!
        {0xf81f0fe0, BOTH, TL_RUNG_SIMULATE},     // str x0, [sp, #-16]!
        {0xf8100fe0, BOTH, TL_RUNG_SLOT},         // str x0, [sp, #-256]!
        {0xa9027bfd, BOTH, TL_RUNG_SIMULATE},     // stp x29, x30, [sp, #32]
        {0xa8c27bfd, BOTH, TL_RUNG_SIMULATE},     // ldp x29, x30, [sp], #32
        {0xa93e7bfd, BOTH, TL_RUNG_SLOT},         // stp x29, x30, [sp, #-32]
        {0xa97e7bfd, BOTH, TL_RUNG_SIMULATE},     // ldp x29, x30, [sp, #-32]
        {0xd503201f, BOTH, TL_RUNG_SIMULATE},     // nop
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        const struct tl_trap_options options = {
            .arch = &tl_arch_arm64, .rungs = cases[i].rungs, .faults = TL_FAULT_ANY};
        const struct tl_space_options space = {.mapping_limit = 100,
                                               .page_size = 4096,
                                               .addr_min = TL_SPACE_ADDR_MIN,
                                               .addr_max = SPACE_END};
        struct tl_plan_request request = {.bias = (int64_t)BIAS, .action = TL_ACTION_COUNT};
        struct tl_trap_set *set = NULL;
        request.facts.vaddr = TEXT;
        request.facts.insn_count = 1;
        assert_int_equal(tl_arch_arm64.decode((const uint8_t *)&cases[i].word, INSN_SIZE, TEXT,
                                              &request.facts.insn[0]),
                         0);
        assert_int_equal(tl_space_create(&space, &w.space, NULL), 0);
        assert_int_equal(tl_plan_traps(&options, w.space, &request, 1, &set, NULL), 0);
        if (tl_trap_plan(set, 0)->rung != cases[i].rung)
            fail_msg("%08x: %s", cases[i].word, tl_rung_text(tl_trap_plan(set, 0)->rung));
        tl_trap_set_destroy(set);
        tl_space_destroy(w.space);
    }
    w.space = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_site_takes_one_instruction, setup, teardown),
        cmocka_unit_test_setup_teardown(a_call_gets_a_new_target, setup, teardown),
        cmocka_unit_test_setup_teardown(branches_reach_128_mib, setup, teardown),
        cmocka_unit_test_setup_teardown(detours_lie_in_reach_of_a_branchs_target_too, setup, teardown),
        cmocka_unit_test_setup_teardown(landing_pads_keep_their_place_where_pages_are_guarded, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_count_comes_behind_where_that_spares_registers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(each_size_of_addresses_and_pages_is_planned_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(deep_stores_have_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(loops_are_led_past_the_count, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Sites of the signal rungs as planned: rung or refusal, slot, rows for the agent.
#include "assemble.h"
#include "plan/trap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BIAS 0x555555000000
#define VADDR 0x1000
#define SITE (VADDR + BIAS)
#define ENTRY_HIT 0x111000
#define ENTRY_RETURN 0x222000
#define SIMULATE TL_RUNG_BIT(TL_RUNG_SIMULATE)
#define SLOT TL_RUNG_BIT(TL_RUNG_SLOT)
#define STEP TL_RUNG_BIT(TL_RUNG_STEP)

// What a case changes.
enum { LOOPED = 1, ON_TAKEN = 2, NO_FAULTS = 4, SHADOW = 8, FULL = 16, NEVER = 32 };

static const struct plan_case {
    const char *text;
    unsigned rungs, with;
    enum tl_rung rung;
    enum tl_refusal refusal;
    bool slot;
} cases[] = {
    {"nop", SIMULATE | SLOT | STEP, 0, TL_RUNG_SIMULATE, TL_REFUSE_NONE, false},
    {"lea rax, [rip+0x100]", SIMULATE, 0, TL_RUNG_SIMULATE, TL_REFUSE_NONE, false},
    {"je .+0x20", SIMULATE, 0, TL_RUNG_SIMULATE, TL_REFUSE_NONE, false},
    {"push rbx", SIMULATE | SLOT, 0, TL_RUNG_SIMULATE, TL_REFUSE_NONE, true},
    {"ret", SIMULATE, 0, TL_RUNG_SIMULATE, TL_REFUSE_NONE, true},
    {"call .+0x100", SIMULATE | SLOT, 0, TL_RUNG_SIMULATE, TL_REFUSE_NONE, true},
    {"mov rax, rbx", SIMULATE | SLOT | STEP, 0, TL_RUNG_SLOT, TL_REFUSE_NONE, true},
    {"mov rax, rbx", SIMULATE, 0, TL_RUNG_REFUSED, TL_REFUSE_NO_SIMULATOR, false},
    {"mov eax, [rip+0x100]", SLOT, 0, TL_RUNG_SLOT, TL_REFUSE_NONE, true},
    {"push rbx", SLOT, 0, TL_RUNG_SLOT, TL_REFUSE_NONE, true},
    {"push rbx", STEP, 0, TL_RUNG_STEP, TL_REFUSE_NONE, true},
    {"ret", STEP, 0, TL_RUNG_STEP, TL_REFUSE_NONE, true},
    {"syscall", SIMULATE | SLOT | STEP, 0, TL_RUNG_REFUSED, TL_REFUSE_SYSCALL, false},
    {"int3", SLOT, 0, TL_RUNG_REFUSED, TL_REFUSE_TRAP, false},
    {"push rbx", SIMULATE | SLOT, LOOPED, TL_RUNG_REFUSED, TL_REFUSE_LOOP_TARGET, false},
    {"je .+0x20", SLOT, ON_TAKEN, TL_RUNG_SLOT, TL_REFUSE_NONE, true},
    {"mov rax, rbx", SLOT, ON_TAKEN, TL_RUNG_REFUSED, TL_REFUSE_NO_SIMULATOR, false},
    {"push rbx", SIMULATE | SLOT, NO_FAULTS, TL_RUNG_REFUSED, TL_REFUSE_FAULT_DISPLACED, false},
    {"mov rax, [rbx]", SLOT, NO_FAULTS, TL_RUNG_REFUSED, TL_REFUSE_FAULT_DISPLACED, false},
    {"mov rax, rbx", SLOT, NO_FAULTS, TL_RUNG_SLOT, TL_REFUSE_NONE, true},
    {"nop", SIMULATE, NO_FAULTS, TL_RUNG_SIMULATE, TL_REFUSE_NONE, false},
    {"call .+0x100", SIMULATE | SLOT, SHADOW, TL_RUNG_REFUSED, TL_REFUSE_SHADOW_STACK, false},
    {"ret", SIMULATE | SLOT, SHADOW, TL_RUNG_REFUSED, TL_REFUSE_SHADOW_STACK, false},
    {"push rbx", SIMULATE, SHADOW, TL_RUNG_SIMULATE, TL_REFUSE_NONE, true},
    {"mov rax, rbx", SLOT, FULL, TL_RUNG_REFUSED, TL_REFUSE_NO_REACH, false},
    {"nop", SIMULATE, FULL, TL_RUNG_SIMULATE, TL_REFUSE_NONE, false},
    {"nop", SIMULATE, NEVER, TL_RUNG_REFUSED, TL_REFUSE_RSEQ, false},
};

static struct tl_space *space_make(bool full)
{
    static const struct tl_range some[] = {{SITE & ~0xfffull, (SITE & ~0xfffull) + 0x10000}};
    static const struct tl_range all[] = {{TL_SPACE_ADDR_MIN, TL_SPACE_ADDR_MAX}};
    struct tl_space_options options = {.used = full ? all : some,
                                       .used_count = 1,
                                       .mapping_limit = 100,
                                       .addr_min = TL_SPACE_ADDR_MIN,
                                       .addr_max = TL_SPACE_ADDR_MAX};
    struct tl_space *space = NULL;
    assert_int_equal(tl_space_create(&options, &space, NULL), 0);
    return space;
}

static void request_make(const struct snippet *snippet, unsigned with, tl_addr vaddr,
                         struct tl_plan_request *out)
{
    *out = (struct tl_plan_request){
        .bias = BIAS,
        .action = TL_ACTION_COUNT | TL_ACTION_RECORD,
        .counter_off = 72,
        .record = {{.kind = TL_RECORD_RETURN, .counter_off = 80, .sp_off = -16}},
        .on_taken = with & ON_TAKEN,
    };
    struct tl_site_facts *facts = &out->facts;
    facts->vaddr = vaddr;
    facts->refusal = with & NEVER ? TL_REFUSE_RSEQ : TL_REFUSE_NONE;
    facts->entry = facts->looped = with & LOOPED;
    facts->insn_count = 1;
    assert_int_equal(tl_arch_x86_64.decode(snippet->bytes, snippet->size, vaddr, &facts->insn[0]),
                     0);
}

static void options_make(unsigned rungs, unsigned with, struct tl_trap_options *out)
{
    *out = (struct tl_trap_options){
        .arch = &tl_arch_x86_64,
        .rungs = rungs,
        .faults = with & NO_FAULTS ? TL_FAULT_NONE : TL_FAULT_ANY,
        .shadow_stack = with & SHADOW,
    };
    out->emit.record_addr[TL_RECORD_HIT] = ENTRY_HIT;
    out->emit.record_addr[TL_RECORD_RETURN] = ENTRY_RETURN;
}

static void row_check(const struct plan_case *it, const struct tl_trap_set *set,
                      const struct tl_plan *plan)
{
    const struct tl_trap_row *row;
    const struct tl_plan_detour *slot;
    size_t rows = tl_trap_rows(set, &row), slots = tl_trap_slots(set, &slot), own = 0;
    bool goes_on = plan->detour && plan->detour->boundary_count == 2;
    assert_int_equal(slots, it->slot);
    assert_int_equal(rows, it->rung == TL_RUNG_STEP && goes_on ? 2 : 1);
    while (own < rows && row[own].addr != SITE)
        own++;
    assert_true(own < rows);
    assert_int_equal(row[own].resume, plan->detour_addr);
    assert_int_equal(row[own].simulated, it->rung == TL_RUNG_SIMULATE);
    assert_int_equal(row[own].record_count, 2);
    assert_int_equal(row[own].record[0].entry, ENTRY_HIT);
    assert_int_equal(row[own].record[0].counter_off, 72);
    assert_int_equal(row[own].record[1].entry, ENTRY_RETURN);
    assert_int_equal(row[own].record[1].counter_off, 80);
    assert_int_equal(row[own].record[1].sp_off, -16);
    if (rows == 2) { // the breakpoint behind the stepped instruction
        const struct tl_trap_row *behind = &row[1 - own];
        assert_int_equal(behind->addr, plan->detour_addr + plan->detour->boundary[1].off);
        assert_int_equal(behind->resume, SITE + plan->window_size);
        assert_int_equal(plan->detour->bytes[plan->detour->boundary[1].off], 0xcc);
        assert_int_equal(behind->record_count, 0);
        assert_true(row[0].addr < row[1].addr);
    }
}

static void each_site_gets_its_rung(void **state)
{
    (void)state;
    static struct snippet snippets[TL_ARRAY_COUNT(cases)];
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++)
        snippets[i].text = cases[i].text;
    assert_true(assemble(snippets, TL_ARRAY_COUNT(cases)));
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        const struct plan_case *it = &cases[i];
        struct tl_plan_request request;
        struct tl_trap_options options;
        struct tl_trap_set *set = NULL;
        struct tl_space *space = space_make(it->with & FULL);
        request_make(&snippets[i], it->with, VADDR, &request);
        options_make(it->rungs, it->with, &options);
        assert_int_equal(tl_plan_traps(&options, space, &request, 1, &set, NULL), 0);
        const struct tl_plan *plan = tl_trap_plan(set, 0);
        if (plan->rung != it->rung || plan->refusal != it->refusal)
            fail_msg("%s, case %zu: %s, %s", it->text, i, tl_rung_text(plan->rung),
                     tl_refusal_text(plan->refusal));
        if (plan->rung != TL_RUNG_REFUSED) {
            assert_int_equal(plan->patch_count, 1);
            assert_int_equal(plan->patch[0].addr, SITE);
            assert_int_equal(plan->patch[0].size, snippets[i].size);
            assert_memory_equal(plan->patch[0].before, snippets[i].bytes, snippets[i].size);
            assert_int_equal(plan->patch[0].after[0], 0xcc);
            assert_memory_equal(plan->patch[0].after + 1, snippets[i].bytes + 1,
                                snippets[i].size - 1);
            row_check(it, set, plan);
        }
        tl_trap_set_destroy(set);
        tl_space_destroy(space);
    }
}

// Slots lie in the mappings that are asked for, and none over another.
static void slots_do_not_overlap(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static struct snippet snippet = {.text = "mov rax, rbx"};
    struct tl_plan_request *requests = calloc(COUNT, sizeof *requests);
    struct tl_trap_options options;
    struct tl_trap_set *set = NULL;
    struct tl_space *space = space_make(false);
    const struct tl_range *mapping;
    const struct tl_plan_detour *slot;
    const struct tl_trap_row *row;
    assert_true(assemble(&snippet, 1));
    for (unsigned i = 0; i < COUNT; i++)
        request_make(&snippet, 0, VADDR + 8 * (COUNT - i), &requests[i]);
    options_make(SLOT | STEP, 0, &options);
    assert_int_equal(tl_plan_traps(&options, space, requests, COUNT, &set, NULL), 0);
    size_t mappings = tl_space_mappings(space, &mapping), slots = tl_trap_slots(set, &slot);
    assert_int_equal(slots, COUNT);
    assert_int_equal(tl_trap_rows(set, &row), COUNT);
    for (size_t i = 0; i < slots; i++) {
        size_t in = 0;
        for (size_t k = 0; k < mappings; k++)
            in += slot[i].addr >= mapping[k].start &&
                  slot[i].addr + slot[i].detour->size <= mapping[k].end;
        assert_int_equal(in, 1);
        for (size_t k = 0; k < i; k++)
            assert_true(slot[k].addr + slot[k].detour->size <= slot[i].addr ||
                        slot[i].addr + slot[i].detour->size <= slot[k].addr);
        assert_true(i == 0 || row[i - 1].addr < row[i].addr);
    }
    tl_trap_set_destroy(set);
    tl_space_destroy(space);
    free(requests);
}

// riscv64, whose short branches do not reach far: neighbours take all within 16 MiB. What is
// stepped goes to a slot anywhere, what goes on there needs a dead register, and is stepped where
// it has none.
static void slots_out_of_a_branchs_reach(void **state)
{
    enum {
        MV = 0x852e /* c.mv a0, a1 */,
        LD = 0x0005b503 /* ld a0, 0(a1) */,
        BEQZ = 0x00050463,
        ROOM = 0x1000000
    };
    static const struct {
        const char *name;
        uint32_t word, next;
        tl_regset dead;
        unsigned rungs;
        enum tl_rung rung;
        bool far;
    } table[] = {
        {"stepped", MV, MV, 0, STEP, TL_RUNG_STEP, true},
        {"no register", MV, MV, 0, SLOT, TL_RUNG_REFUSED, true},
        {"sp, gp and tp are none", MV, MV, 0x1c, SLOT, TL_RUNG_REFUSED, true},
        {"a dead register", MV, MV, 1 << 7, SLOT, TL_RUNG_SLOT, true},
        {"a fault behind it would show it", MV, LD, 1 << 7, SLOT, TL_RUNG_REFUSED, true},
        {"stepped instead", MV, MV, 0, SLOT | STEP, TL_RUNG_STEP, true},
        {"a branch has to reach its target", BEQZ, MV, 1 << 7, STEP, TL_RUNG_REFUSED, true},
        {"near", MV, MV, 0, SLOT | STEP, TL_RUNG_SLOT, false},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        const struct tl_arch *arch = &tl_arch_riscv64;
        const tl_addr page = SITE & ~0xfffull;
        const struct tl_range used = {page - (table[i].far ? ROOM : 0),
                                      page + (table[i].far ? ROOM : 0x10000)};
        const struct tl_space_options space_options = {.used = &used,
                                                       .used_count = 1,
                                                       .mapping_limit = 100,
                                                       .addr_min = TL_SPACE_ADDR_MIN,
                                                       .addr_max = TL_SPACE_ADDR_MAX};
        struct tl_plan_request request = {
            .bias = BIAS, .action = TL_ACTION_COUNT, .counter_off = 72};
        struct tl_site_facts *facts = &request.facts;
        struct tl_trap_options options;
        struct tl_trap_set *set = NULL;
        struct tl_space *space = NULL;
        options_make(table[i].rungs, 0, &options);
        options.arch = arch;
        facts->vaddr = VADDR;
        facts->insn_count = 2;
        facts->dead_behind = table[i].dead;
        assert_int_equal(arch->decode((const uint8_t *)&table[i].word, 4, VADDR, &facts->insn[0]),
                         0);
        assert_int_equal(arch->decode((const uint8_t *)&table[i].next, 4,
                                      VADDR + facts->insn[0].size, &facts->insn[1]),
                         0);
        assert_int_equal(tl_space_create(&space_options, &space, NULL), 0);
        assert_int_equal(tl_plan_traps(&options, space, &request, 1, &set, NULL), 0);
        const struct tl_plan *plan = tl_trap_plan(set, 0);
        if (plan->rung != table[i].rung)
            fail_msg("%s: %s, %s", table[i].name, tl_rung_text(plan->rung),
                     tl_refusal_text(plan->refusal));
        if (plan->rung == TL_RUNG_REFUSED)
            assert_int_equal(plan->refusal, TL_REFUSE_NO_REACH);
        else
            assert_int_equal(plan->detour_addr + 0x100000 < SITE ||
                                 plan->detour_addr > SITE + 0x100000,
                             table[i].far);
        if (plan->rung == TL_RUNG_STEP) {
            const struct tl_detour *slot = plan->detour;
            assert_memory_equal(slot->bytes + slot->boundary[1].off, arch->breakpoint, 2);
            assert_int_equal(slot->size, slot->boundary[1].off + 2);
        }
        tl_trap_set_destroy(set);
        tl_space_destroy(space);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_site_gets_its_rung),
        cmocka_unit_test(slots_do_not_overlap),
        cmocka_unit_test(slots_out_of_a_branchs_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

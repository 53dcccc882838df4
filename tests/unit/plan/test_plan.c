// Plans for small programs made by hand: each way to jump where it must and must not be taken,
// reach to the byte, neighbours, loops, refusals.
#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define BIAS ((tl_addr)0x555555554000)
#define TEXT (BIAS + PROGRAM_VADDR)
#define SPACE_END ((tl_addr)0x7ffffffff000)
#define REQUESTS_MAX 64

static struct program program;

struct world {
    struct tl_plan_options options;
    struct tl_plan_module module;
    struct tl_plan_request request[REQUESTS_MAX];
    size_t count;
    struct tl_range used[16];
    size_t used_count;
    size_t mapping_limit;
    struct tl_space *space;
    struct tl_plan_set *set;
};

static struct world w;

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    w.options = (struct tl_plan_options){
        .arch = &tl_arch_x86_64,
        .emit = {.action = TL_ACTION_COUNT,
                 .thread_pointer = TL_TP_FS_WORD,
                 .table_addr = 0x7f0000000000,
                 .slow_addr = 0x7f0000010000},
    };
    w.mapping_limit = 1000;
    w.used[w.used_count++] = (struct tl_range){TEXT, TEXT + PROGRAM_SIZE};
    program_begin(&program);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tl_plan_set_destroy(w.set);
    tl_space_destroy(w.space);
    return 0;
}

// Everything but [start, end) is used.
static void only_free(tl_addr start, tl_addr end)
{
    w.used[0] = (struct tl_range){0, start};
    w.used[1] = (struct tl_range){end, SPACE_END};
    w.used_count = 2;
}

static void probe(tl_addr vaddr)
{
    struct tl_plan_request *request = &w.request[w.count];
    unsigned index = program_at(&program, vaddr);
    assert_true(index < program.insn_count);
    program_facts(&program, index, &request->facts);
    request->bias = (int64_t)BIAS;
    request->counter_off = (uint32_t)(64 + 8 * w.count);
    w.count++;
}

static void plan(void)
{
    struct tl_space_options options = {.used = w.used,
                                       .used_count = w.used_count,
                                       .mapping_limit = w.mapping_limit,
                                       .addr_min = 0x10000,
                                       .addr_max = SPACE_END};
    w.module.bias = (int64_t)BIAS;
    w.module.padding = program.padding;
    w.module.padding_count = program.padding_count;
    w.module.text = (struct tl_range){PROGRAM_VADDR, PROGRAM_VADDR + program.size};
    w.module.texts = &program.text;
    w.module.text_count = 1;
    if (!w.module.analysis) {
        w.module.site = program_site;
        w.module.analysis = (struct tl_analysis *)(void *)&program;
    }
    if (!w.space)
        assert_int_equal(tl_space_create(&options, &w.space, NULL), 0);
    tl_plan_set_destroy(w.set);
    assert_int_equal(
        tl_plan_sites(&w.options, w.space, &w.module, 1, w.request, w.count, &w.set, NULL), 0);
}

static const struct tl_plan *placed(size_t index, enum tl_way way)
{
    const struct tl_plan *p = tl_plan_get(w.set, index);
    if (p->rung != TL_RUNG_JUMP)
        fail_msg("site %zu: refused: %s", index, tl_refusal_text(p->refusal));
    assert_string_equal(tl_way_text(p->way), tl_way_text(way));
    return p;
}

static void refused(size_t index, enum tl_refusal refusal)
{
    const struct tl_plan *p = tl_plan_get(w.set, index);
    assert_int_equal(p->rung, TL_RUNG_REFUSED);
    assert_string_equal(tl_refusal_text(p->refusal), tl_refusal_text(refusal));
    assert_int_equal(p->patch_count, 0);
    assert_null(p->detour);
}

// Where the branch that ends a patch leads.
static tl_addr patch_target(const struct tl_patch *patch)
{
    int32_t disp;
    unsigned size = (unsigned)patch->size + patch->relied;
    memcpy(&disp, patch->after + size - 4, 4);
    return patch->addr + size + (tl_addr)(int64_t)disp;
}

#define FUNCTION(padding, ...)                                                                     \
    do {                                                                                           \
        static const uint8_t code[] = {__VA_ARGS__};                                               \
        program_function(&program, code, sizeof code, padding);                                    \
    } while (0)

#define MOV5 0xb8, 1, 2, 3, 4 // mov $..,%eax
#define RET 0xc3

// ---- one instruction, reach --------------------------------------------------------------------

static void a_long_instruction_is_patched_alone(void **state)
{
    (void)state;
    FUNCTION(0, 0x48, 0xc7, 0xc0, 1, 2, 3, 4, RET); // 7 bytes
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_ONE);
    assert_false(p->interior);
    assert_int_equal(p->window_size, 7);
    assert_int_equal(p->patch_count, 1);
    assert_int_equal(p->patch[0].size, 5);
    assert_int_equal(p->patch[0].relied, 0);
    assert_memory_equal(p->patch[0].before, program.bytes, 5);
    assert_int_equal(p->patch[0].after[0], 0xe9);
    assert_true(patch_target(&p->patch[0]) == p->detour_addr);
    assert_int_equal(p->detour_size % 32, 0);
}

// One page is free, at the end of the reach; the site moves through its own page byte by byte.
static void reach_try(bool above, unsigned spare)
{
    bool fits;
    setup(NULL);
    unsigned fill = 100 + spare;
    program_function(&program, "\xc3", 1, fill - 1);
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    tl_addr site = PROGRAM_VADDR + fill, end = BIAS + site + 5;
    probe(site);
    tl_addr page;
    if (above) {
        tl_addr last = end + INT32_MAX; // the farthest start
        page = (last + TL_PAGE_SIZE / 2) & ~(tl_addr)(TL_PAGE_SIZE - 1);
        only_free(page, page + TL_PAGE_SIZE);
        fits = page <= last;
    } else {
        tl_addr first = end + (tl_addr)(int64_t)INT32_MIN;
        page = tl_page_down(first);
        only_free(page, page + TL_PAGE_SIZE);
        // The detour needs its slots behind the first start in reach.
        const unsigned slots = 128; // 4 slots: the far branch back and its literal
        fits = ((first + 31) & ~31ull) + slots <= page + TL_PAGE_SIZE;
    }
    plan();
    const struct tl_plan *p = tl_plan_get(w.set, 0);
    assert_int_equal(p->rung == TL_RUNG_JUMP, fits);
    if (fits)
        assert_true(patch_target(&p->patch[0]) == p->detour_addr);
    else
        assert_int_equal(p->refusal, TL_REFUSE_NO_REACH);
    teardown(NULL);
    w.set = NULL;
    w.space = NULL;
}

static void reach_ends_at_the_byte(void **state)
{
    (void)state;
    teardown(NULL);
    for (unsigned spare = 0; spare < TL_PAGE_SIZE; spare++)
        for (int above = 0; above < 2; above++)
            reach_try(above, spare);
    setup(NULL);
}

static void the_farthest_start_is_reached(void **state)
{
    (void)state;
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    // TEXT + 5 + INT32_MAX lies 4 bytes into its page.
    tl_addr last = TEXT + 5 + INT32_MAX;
    assert_int_equal(last % TL_PAGE_SIZE, 4);
    only_free(tl_page_down(last), tl_page_down(last) + TL_PAGE_SIZE);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_ONE);
    assert_true(p->detour_addr == tl_page_down(last));
    // The way back is farther than a rel32: through a literal.
    assert_true(p->detour->size > 100);
    tl_plan_set_destroy(w.set);
    tl_space_destroy(w.space);
    w.set = NULL;
    w.space = NULL;
    only_free(tl_page_down(last) + TL_PAGE_SIZE, tl_page_down(last) + 2 * TL_PAGE_SIZE);
    plan();
    refused(0, TL_REFUSE_NO_REACH);
}

// ---- calls -------------------------------------------------------------------------------------

static void a_direct_call_gets_a_new_target(void **state)
{
    (void)state;
    FUNCTION(0, 0xe8, 1, 0, 0, 0, RET, 0x90, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_CALL);
    assert_int_equal(p->patch[0].after[0], 0xe8);
    assert_true(patch_target(&p->patch[0]) == p->detour_addr);
    assert_false(p->interior);
}

static void a_call_through_the_got_becomes_a_padded_call(void **state)
{
    (void)state;
    FUNCTION(0, 0xff, 0x15, 0x10, 0, 0, 0, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_CALL);
    assert_int_equal(p->patch[0].size, 6);
    assert_int_equal(p->patch[0].after[0], 0x67);
    assert_int_equal(p->patch[0].after[1], 0xe8);
    assert_true(patch_target(&p->patch[0]) == p->detour_addr);
}

// ---- puns
// ----------------------------------------------------------------------------------------

// push %rbp, then bytes that make a displacement of 0x10cccccc.
#define PUN1 0x55, 0xb8, 0xcc, 0xcc, 0x10, 0x00, RET

static tl_addr pun1_target(void)
{
    return TEXT + 5 + 0x10ccccb8;
}

static void a_pun_of_one_byte_has_one_place(void **state)
{
    (void)state;
    FUNCTION(0, PUN1);
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_PUN);
    assert_true(p->detour_addr == pun1_target());
    assert_int_equal(p->patch[0].size, 1);
    assert_int_equal(p->patch[0].relied, 4);
    assert_memory_equal(p->patch[0].after + 1, program.bytes + 1, 4);
    assert_false(p->interior);
}

static void a_pun_without_its_place_falls_back_to_a_window(void **state)
{
    (void)state;
    FUNCTION(0, PUN1);
    program_end(&program);
    probe(PROGRAM_VADDR);
    w.used[w.used_count++] =
        (struct tl_range){tl_page_down(pun1_target()), tl_page_down(pun1_target()) + TL_PAGE_SIZE};
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_WINDOW);
    assert_int_equal(p->window_size, 6);
    assert_true(p->interior);
}

static void a_stub_does_where_the_detour_has_no_room(void **state)
{
    (void)state;
    FUNCTION(0, PUN1);
    program_end(&program);
    probe(PROGRAM_VADDR);
    tl_addr page = tl_page_down(pun1_target());
    assert_int_equal(pun1_target() - page, 0xcbd);
    // Another detour lies right behind.
    struct tl_space_options options = {.used = w.used,
                                       .used_count = w.used_count,
                                       .mapping_limit = 1000,
                                       .addr_min = 0x10000,
                                       .addr_max = SPACE_END};
    assert_int_equal(tl_space_create(&options, &w.space, NULL), 0);
    extern int tl_space_take(struct tl_space *, tl_addr, uint16_t, uint8_t, unsigned);
    assert_int_equal(tl_space_take(w.space, page + 0xce0, 32, 32, false), 0);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_PUN);
    assert_true(patch_target(&p->patch[0]) == pun1_target());
    assert_true(p->detour_addr != pun1_target());
    const struct tl_plan_detour *detours;
    assert_int_equal(tl_plan_detours(w.set, &detours), 2);
    int32_t disp;
    assert_true(detours[1].addr == pun1_target());
    memcpy(&disp, detours[1].detour->bytes + 1, 4);
    assert_true(pun1_target() + 5 + (tl_addr)(int64_t)disp == p->detour_addr);
}

static void a_pun_counts_on_the_bytes_of_its_patched_neighbour(void **state)
{
    (void)state;
    FUNCTION(0, 0x55, MOV5, RET); // push; mov
    program_end(&program);
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR + 1);
    plan();
    const struct tl_plan *mov = placed(1, TL_WAY_ONE);
    const struct tl_plan *push = tl_plan_get(w.set, 0);
    if (push->rung == TL_RUNG_JUMP) {
        assert_memory_equal(push->patch[0].after + 1, mov->patch[0].after, 4);
        assert_int_equal(push->patch[0].after[1], 0xe9);
    } else {
        assert_int_equal(push->refusal, TL_REFUSE_WINDOW_PROBE);
    }
}

static void puns_of_longer_instructions_choose_their_place(void **state)
{
    (void)state;
    FUNCTION(0, 0x48, 0x89, 0xe5, 0x00, 0x90, RET, 0x90, 0x90, 0x90); // 3 bytes, then .. 90 c3 ..
    program.bytes[3] = 0x90;
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = tl_plan_get(w.set, 0);
    assert_int_equal(p->rung, TL_RUNG_JUMP);
    if (p->way == TL_WAY_PUN)
        assert_true(patch_target(&p->patch[0]) == p->detour_addr);
}

static void no_pun_counts_on_bytes_that_are_not_known(void **state)
{
    (void)state;
    FUNCTION(0, 0x55, RET); // the text ends here
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    refused(0, TL_REFUSE_WINDOW_END);
}

// ---- windows
// ---------------------------------------------------------------------------------------

static void padding_behind_a_return_is_a_window_without_interior(void **state)
{
    (void)state;
    FUNCTION(15, RET);
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_WINDOW);
    assert_false(p->interior);
    assert_int_equal(p->detour->boundary_count, 1); // ret, and no way back
}

static void no_patch_runs_into_the_next_function(void **state)
{
    (void)state;
    FUNCTION(3, RET);
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = tl_plan_get(w.set, 0);
    if (p->rung == TL_RUNG_JUMP)
        assert_true(p->patch[p->patch_count - 1].size <= 4);
}

static void no_window_covers_another_site(void **state)
{
    (void)state;
    FUNCTION(0, PUN1);
    program_end(&program);
    w.used[w.used_count++] =
        (struct tl_range){tl_page_down(pun1_target()), tl_page_down(pun1_target()) + TL_PAGE_SIZE};
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR + 1);
    w.request[1].facts.refusal = TL_REFUSE_RSEQ; // nobody may write it, nor count on it
    plan();
    refused(0, TL_REFUSE_WINDOW_PROBE);
    refused(1, TL_REFUSE_RSEQ);
}

static void a_window_ends_at_a_system_call_or_a_call(void **state)
{
    (void)state;
    FUNCTION(0, 0x55, 0x53, 0x0f, 0x05, 0x90, RET);
    FUNCTION(0, 0x55, 0xff, 0xd0, 0x90, 0x90, RET);
    program_end(&program);
    only_free(TEXT + 0x40000000, TEXT + 0x40001000); // no place for puns
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR + 6);
    w.request[0].facts.window_max = 6; // even if the facts said so
    w.request[1].facts.window_max = 6;
    plan();
    refused(0, TL_REFUSE_WINDOW_SYSCALL);
    refused(1, TL_REFUSE_WINDOW_CALL);
}

// ---- islands
// ---------------------------------------------------------------------------------------

static void a_short_jump_leads_to_an_island_in_padding(void **state)
{
    (void)state;
    // xor %eax,%eax; loop target behind it; then padding.
    FUNCTION(9, 0x31, 0xc0, 0xff, 0xc8, 0x75, 0xfc, RET);
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    only_free(TEXT + 0x40000000, TEXT + 0x40001000);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_ISLAND);
    assert_int_equal(p->patch_count, 2);
    assert_true(p->patch[0].addr >= BIAS + program.padding[0].start);
    assert_true(p->patch[0].addr + 5 <= BIAS + program.padding[0].end);
    assert_true(patch_target(&p->patch[0]) == p->detour_addr);
    assert_true(p->patch[1].addr == TEXT && p->patch[1].size == 2 && p->patch[1].after[0] == 0xeb);
    assert_true(TEXT + 2 + (tl_addr)(int64_t)(int8_t)p->patch[1].after[1] == p->patch[0].addr);
    assert_false(p->interior);
}

static void an_island_is_used_once(void **state)
{
    (void)state;
    FUNCTION(0, 0x31, 0xc0, 0xff, 0xc8, 0x75, 0xfc, 0x31, 0xc0, 0xff, 0xc8, 0x75, 0xfc, RET);
    FUNCTION(6, RET);
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    only_free(TEXT + 0x40000000, TEXT + 0x40001000);
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR + 6);
    plan();
    placed(1, TL_WAY_ISLAND);
    refused(0, TL_REFUSE_WINDOW_TARGET);
}

// ---- loops
// -------------------------------------------------------------------------------------------

static const struct tl_patch *patch_at(const struct tl_plan *p, tl_addr addr)
{
    for (unsigned i = 0; i < p->patch_count; i++)
        if (p->patch[i].addr == addr)
            return &p->patch[i];
    return NULL;
}

static void a_long_looping_branch_is_led_past_the_action(void **state)
{
    (void)state;
    FUNCTION(0, MOV5, 0x0f, 0x85, 0xf5, 0xff, 0xff, 0xff, RET); // jne to the entry
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_ONE);
    assert_int_equal(p->patch_count, 2);
    const struct tl_patch *branch = patch_at(p, TEXT + 5);
    assert_non_null(branch);
    assert_int_equal(branch->size, 6);
    assert_int_equal(branch->after[1], 0x85);
    assert_true(patch_target(branch) == p->detour_addr + p->detour->displaced);
    assert_true(&p->patch[1] != branch); // before the entry itself
}

static void a_short_looping_branch_gets_a_detour_of_its_own(void **state)
{
    (void)state;
    FUNCTION(0, MOV5, 0x75, 0xf9, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_ONE);
    const struct tl_plan_detour *detours;
    assert_int_equal(tl_plan_detours(w.set, &detours), 2);
    assert_non_null(patch_at(p, TEXT + 5));
    // Its detour: jne to the displaced part; jmp back.
    const struct tl_plan_detour *own = &detours[detours[0].site == TEXT];
    assert_true(own->site == TEXT + 5);
    int32_t disp;
    assert_memory_equal(own->detour->bytes, "\x0f\x85", 2);
    memcpy(&disp, own->detour->bytes + 2, 4);
    assert_true(own->addr + 6 + (tl_addr)(int64_t)disp == p->detour_addr + p->detour->displaced);
}

static void a_probed_looping_branch_is_needed(void **state)
{
    (void)state;
    FUNCTION(0, MOV5, 0x0f, 0x85, 0xf5, 0xff, 0xff, 0xff, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR + 5);
    plan();
    const struct tl_plan *entry = placed(0, TL_WAY_ONE);
    const struct tl_plan *branch = placed(1, TL_WAY_ONE);
    assert_int_equal(entry->patch_count, 1);
    assert_int_equal(entry->needs_count, 1);
    assert_int_equal(entry->needs[0], 1);
    int32_t disp;
    const uint8_t *copy = branch->detour->bytes + branch->detour->displaced;
    assert_memory_equal(copy, "\x0f\x85", 2);
    memcpy(&disp, copy + 2, 4);
    assert_true(branch->detour_addr + branch->detour->displaced + 6 + (tl_addr)(int64_t)disp ==
                entry->detour_addr + entry->detour->displaced);
}

static void a_looping_branch_below_its_entry_covers_no_site_between(void **state)
{
    (void)state;
    FUNCTION(0, 0x75, 0x07, 0x53, 0x55, 0x5d, 0x5b, RET, 0x90, 0x90, MOV5, RET);
    program_end(&program);
    only_free(TEXT + 0x40000000, TEXT + 0x40001000); // no puns
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR + 2);
    probe(PROGRAM_VADDR + 9);
    w.request[0].facts.entry = false;
    w.request[2].facts.entry = w.request[2].facts.looped = true;
    w.request[2].facts.loopers[0] = PROGRAM_VADDR;
    w.request[2].facts.looper_count = 1;
    plan();
    refused(0, TL_REFUSE_WINDOW_PROBE); // planned first of all, though it lies lowest
    refused(2, TL_REFUSE_LOOP_TARGET);
    w.request[1] = w.request[2];
    w.count = 2;
    tl_space_destroy(w.space);
    w.space = NULL;
    plan();
    placed(0, TL_WAY_WINDOW);
    placed(1, TL_WAY_ONE);
}

static void a_branch_to_itself_loops_in_its_own_detour(void **state)
{
    (void)state;
    FUNCTION(0, 0x0f, 0x85, 0xfa, 0xff, 0xff, 0xff, RET); // jne to itself
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_ONE);
    int32_t disp;
    memcpy(&disp, p->detour->bytes + p->detour->displaced + 2, 4);
    assert_int_equal(disp, -6);
}

static void loops_that_are_not_known_are_refused(void **state)
{
    (void)state;
    FUNCTION(0, MOV5, 0x75, 0xf9, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    w.module.analysis = (struct tl_analysis *)(void *)&program; // and no `site`
    plan();
    refused(0, TL_REFUSE_LOOP_TARGET);
    w.module.site = program_site;
    w.request[0].facts.looper_more = true;
    plan();
    refused(0, TL_REFUSE_LOOP_TARGET);
}

static void a_refused_entry_lets_its_loops_go(void **state)
{
    (void)state;
    FUNCTION(0, 0x55, 0x0f, 0x85, 0xf9, 0xff, 0xff, 0xff, MOV5, RET);
    program_end(&program);
    only_free(TEXT + 0x40000000, TEXT + 0x40001000);
    probe(PROGRAM_VADDR); // push; its window holds the branch, whose bytes a pun would need
    w.request[0].facts.window_max = 1;
    plan();
    refused(0, TL_REFUSE_WINDOW_END);
    const struct tl_plan_detour *detours;
    const struct tl_range *mapping;
    assert_int_equal(tl_plan_detours(w.set, &detours), 0);
    assert_int_equal(tl_space_mappings(w.space, &mapping), 0);
}

// ---- the rest
// ------------------------------------------------------------------------------------------

static void the_mapping_limit_refuses_in_its_own_words(void **state)
{
    (void)state;
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    w.mapping_limit = 0;
    plan();
    refused(0, TL_REFUSE_MAP_LIMIT);
}

static void faulting_instructions_stay_where_faults_can_not_be_shown(void **state)
{
    (void)state;
    FUNCTION(0, 0x8b, 0x87, 0, 1, 0, 0, RET); // mov 0x100(%rdi),%eax
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR + 7);
    w.options.faults = TL_FAULT_NONE;
    plan();
    refused(0, TL_REFUSE_FAULT_DISPLACED);
    placed(1, TL_WAY_ONE);
}

// call *%rax is copied as push and jump; call rel32 keeps being a call.
static void no_call_is_displaced_under_a_shadow_stack(void **state)
{
    (void)state;
    FUNCTION(0, 0xff, 0xd0, 0x90, 0x90, RET);
    FUNCTION(0, 0xe8, 1, 0, 0, 0, RET, 0x90, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR + 5);
    plan();
    assert_int_equal(tl_plan_get(w.set, 0)->rung, TL_RUNG_JUMP);
    w.options.shadow_stack = true;
    plan();
    refused(0, TL_REFUSE_SHADOW_STACK);
    placed(1, TL_WAY_CALL);
}

static void an_address_asked_twice_is_placed_once(void **state)
{
    (void)state;
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    probe(PROGRAM_VADDR);
    plan();
    placed(0, TL_WAY_ONE);
    refused(1, TL_REFUSE_WINDOW_PROBE);
}

static void alone_reserves_nothing(void **state)
{
    (void)state;
    FUNCTION(0, 0x55, MOV5, 0x75, 0xf8, MOV5, RET);
    program_end(&program);
    w.options.alone = true;
    for (tl_addr at = 0; at < 2; at++)
        probe(PROGRAM_VADDR + at);
    plan();
    const struct tl_range *mapping;
    assert_int_equal(tl_space_mappings(w.space, &mapping), 0);
    assert_int_equal(tl_plan_get(w.set, 0)->rung, TL_RUNG_JUMP);
    assert_int_equal(tl_plan_get(w.set, 1)->rung, TL_RUNG_JUMP);
    assert_null(tl_plan_get(w.set, 0)->detour);
}

static void a_module_or_bias_that_is_not_there_is_a_usage_error(void **state)
{
    (void)state;
    struct tl_plan_set *set;
    struct tl_diag diag;
    FUNCTION(0, MOV5, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    plan();
    w.request[0].module = 1;
    assert_int_equal(tl_plan_sites(&w.options, w.space, &w.module, 1, w.request, 1, &set, &diag),
                     TL_E_USAGE);
    w.request[0].module = 0;
    w.request[0].bias++;
    assert_int_equal(tl_plan_sites(&w.options, w.space, &w.module, 1, w.request, 1, &set, &diag),
                     TL_E_USAGE);
}

static void data_keeps_its_detour_in_reach(void **state)
{
    (void)state;
    // mov 0x7ff00000(%rip),%eax: memory above the text is out of reach of its data less 1 MiB
    // below.
    FUNCTION(0, 0x8b, 0x05, 0, 0, 0xf0, 0x7f, RET);
    program_end(&program);
    probe(PROGRAM_VADDR);
    w.request[0].facts.dead = 0;
    w.used[w.used_count++] = (struct tl_range){TEXT + PROGRAM_SIZE, SPACE_END};
    w.used[w.used_count++] = (struct tl_range){TEXT - 0x80000, TEXT}; // 512 KiB
    plan();
    const struct tl_plan *p = placed(0, TL_WAY_ONE);
    int32_t disp;
    memcpy(&disp, p->detour->bytes + p->detour->displaced + 2, 4);
    assert_true(p->detour_addr + p->detour->displaced + 6 + (tl_addr)(int64_t)disp ==
                TEXT + 6 + 0x7ff00000);
    tl_space_destroy(w.space);
    w.space = NULL;
    w.used[w.used_count++] = (struct tl_range){TEXT - 0x200000, TEXT}; // 2 MiB
    plan();
    refused(0, TL_REFUSE_PC_USE);
}

// Ten thousand entries: what grows with the square of the sites, or looks at every page, shows.
static void ten_thousand_sites_take_no_time(void **state)
{
    (void)state;
    enum { COUNT = 10000, SIZE = 32 };
    static const uint8_t code[SIZE] = {0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0xc3};
    uint8_t *bytes = malloc((size_t)COUNT * SIZE);
    struct tl_plan_request *request = calloc(COUNT, sizeof *request);
    struct tl_space_options options = {
        .mapping_limit = 65000, .addr_min = 0x10000, .addr_max = SPACE_END};
    for (unsigned i = 0; i < COUNT; i++) {
        memcpy(bytes + (size_t)i * SIZE, code, SIZE);
        bytes[i * SIZE + 3] = (uint8_t)(0xe0 + i % 32); // displacements differ
        struct tl_site_facts *facts = &request[i].facts;
        facts->vaddr = PROGRAM_VADDR + (tl_addr)i * SIZE;
        for (unsigned at = 0; at < 8; at += facts->insn[facts->insn_count++].size)
            assert_int_equal(tl_arch_x86_64.decode(bytes + i * SIZE + at, 8 - at, facts->vaddr + at,
                                                   &facts->insn[facts->insn_count]),
                             0);
        facts->window_max = 8;
        facts->entry = true;
        request[i].bias = (int64_t)BIAS;
        request[i].counter_off = 64 + 8 * i;
    }
    struct tl_text text = {PROGRAM_VADDR, bytes, (size_t)COUNT * SIZE};
    struct tl_range used = {tl_page_down(TEXT), tl_page_up(TEXT + COUNT * SIZE)};
    options.used = &used;
    options.used_count = 1;
    w.module = (struct tl_plan_module){.bias = (int64_t)BIAS, .texts = &text, .text_count = 1};
    assert_int_equal(tl_space_create(&options, &w.space, NULL), 0);
    clock_t start = clock();
    assert_int_equal(tl_plan_sites(&w.options, w.space, &w.module, 1, request, COUNT, &w.set, NULL),
                     0);
    double ms = 1e3 * (double)(clock() - start) / CLOCKS_PER_SEC;
    fprintf(stderr, "10,000 sites: %.1f ms\n", ms);
    assert_true(ms < 2000); // 30 on an idle machine, without a sanitiser
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(tl_plan_get(w.set, i)->rung, TL_RUNG_JUMP);
    free(bytes);
    free(request);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_long_instruction_is_patched_alone),
        TEST(reach_ends_at_the_byte),
        TEST(the_farthest_start_is_reached),
        TEST(a_direct_call_gets_a_new_target),
        TEST(a_call_through_the_got_becomes_a_padded_call),
        TEST(a_pun_of_one_byte_has_one_place),
        TEST(a_pun_without_its_place_falls_back_to_a_window),
        TEST(a_stub_does_where_the_detour_has_no_room),
        TEST(a_pun_counts_on_the_bytes_of_its_patched_neighbour),
        TEST(puns_of_longer_instructions_choose_their_place),
        TEST(no_pun_counts_on_bytes_that_are_not_known),
        TEST(padding_behind_a_return_is_a_window_without_interior),
        TEST(no_patch_runs_into_the_next_function),
        TEST(no_window_covers_another_site),
        TEST(a_window_ends_at_a_system_call_or_a_call),
        TEST(a_short_jump_leads_to_an_island_in_padding),
        TEST(an_island_is_used_once),
        TEST(a_long_looping_branch_is_led_past_the_action),
        TEST(a_short_looping_branch_gets_a_detour_of_its_own),
        TEST(a_probed_looping_branch_is_needed),
        TEST(a_looping_branch_below_its_entry_covers_no_site_between),
        TEST(a_branch_to_itself_loops_in_its_own_detour),
        TEST(loops_that_are_not_known_are_refused),
        TEST(a_refused_entry_lets_its_loops_go),
        TEST(the_mapping_limit_refuses_in_its_own_words),
        TEST(faulting_instructions_stay_where_faults_can_not_be_shown),
        TEST(no_call_is_displaced_under_a_shadow_stack),
        TEST(an_address_asked_twice_is_placed_once),
        TEST(alone_reserves_nothing),
        TEST(a_module_or_bias_that_is_not_there_is_a_usage_error),
        TEST(data_keeps_its_detour_in_reach),
        TEST(ten_thousand_sites_take_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

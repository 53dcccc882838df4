// Random programs with probes on some or all of their instructions: planned, patched, run in an
// emulator beside the bare program. What they compute is equal, and every counter is exact.
// Besides, what a plan says is checked for itself: no two detours overlap, none lies in used
// memory, all lie in the mappings, no patch touches another or what a pun relies on.
#include "agent/layout.h"
#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROGRAMS 8 // times TL_ROUNDS
#define STEPS_MAX 200000
#define RUNS 2
#define RUN_TIMEOUT_US 20000000

enum {
    BIAS = 0x555555554000,
    TEXT = BIAS + PROGRAM_VADDR,
    STACK = 0x7ffd00000000,
    STACK_SIZE = 0x10000,
    END = 0x7ffe00000000, // return address of the outermost call
    AGENT = END + 0x800,  // hlt: nobody goes there
    TABLE = 0x300000000000,
    BLOCKS = 0x310000000000,
    BLOCKS_SIZE = 0x8000,
    FS = 0x340000000000,
    SITES_MAX = PROGRAM_INSNS_MAX,
};

static struct program program;
static struct machine m;
static unsigned tally[TL_WAY_ISLAND + 1], tally_refused[TL_REFUSAL_COUNT], tally_loops;

struct trial {
    struct tl_plan_request request[SITES_MAX];
    unsigned insn[SITES_MAX]; // of each request
    uint64_t hits[SITES_MAX];
    unsigned count;
    struct tl_plan_module module;
    struct tl_space *space;
    struct tl_plan_set *set;
    struct tl_range used[64];
    unsigned used_count;
    size_t mapping_limit;
    uint8_t owner[PROGRAM_SIZE]; // 1: written, 2: relied on
};

static struct trial trial;

// ---- planning ---------------------------------------------------------------------------------

static int range_compare(const void *a, const void *b)
{
    const struct tl_range *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

// The program's own mapping, and other mappings here and there, so that some puns find no place.
static void space_make(size_t mapping_limit)
{
    trial.used_count = 0;
    trial.mapping_limit = mapping_limit;
    trial.used[trial.used_count++] = (struct tl_range){TEXT, TEXT + PROGRAM_SIZE};
    unsigned others = (unsigned)(machine_random(&m) % 40);
    for (unsigned i = 0; i < others; i++) {
        tl_addr start = TEXT - (1ull << 31) + (machine_random(&m) & 0xfffff000u);
        tl_addr size = (machine_random(&m) % 0x8000u + 1) << 12;
        if (start + size > TEXT - 0x100000 && start < TEXT + PROGRAM_SIZE + 0x100000)
            continue;
        trial.used[trial.used_count++] = (struct tl_range){start, start + size};
    }
    qsort(trial.used, trial.used_count, sizeof trial.used[0], range_compare);
    struct tl_space_options options = {
        .used = trial.used,
        .used_count = trial.used_count,
        .mapping_limit = mapping_limit,
        .addr_min = 0x10000,
        .addr_max = 0x7ffffffff000,
    };
    assert_int_equal(tl_space_create(&options, &trial.space, NULL), 0);
}

static void sites_choose(unsigned percent)
{
    trial.count = 0;
    for (unsigned i = 0; i < program.insn_count; i++) {
        struct tl_site_facts facts;
        program_facts(&program, i, &facts);
        if (!facts.entry && machine_random(&m) % 100 >= percent)
            continue;
        trial.insn[trial.count] = i;
        trial.hits[trial.count] = 0;
        trial.request[trial.count] = (struct tl_plan_request){
            .facts = facts, .bias = BIAS, .counter_off = TL_BLOCK_HEADER_SIZE + 8 * trial.count};
        trial.count++;
    }
    // In any order.
    for (unsigned i = trial.count; i-- > 1;) {
        unsigned k = (unsigned)(machine_random(&m) % (i + 1)), insn = trial.insn[i];
        struct tl_plan_request request = trial.request[i];
        trial.request[i] = trial.request[k];
        trial.request[k] = request;
        trial.insn[i] = trial.insn[k];
        trial.insn[k] = insn;
    }
    for (unsigned i = 0; i < trial.count; i++)
        trial.request[i].counter_off = TL_BLOCK_HEADER_SIZE + 8 * i;
}

static void plan_make(void)
{
    struct tl_plan_options options = {
        .arch = &tl_arch_x86_64,
        .emit = {.action = TL_ACTION_COUNT,
                 .thread_pointer = TL_TP_FS_WORD,
                 .table_addr = TABLE,
                 .slow_addr = AGENT},
    };
    trial.module = (struct tl_plan_module){
        .bias = BIAS,
        .padding = program.padding,
        .padding_count = program.padding_count,
        .text = {PROGRAM_VADDR, PROGRAM_VADDR + program.size},
        .texts = &program.text,
        .text_count = 1,
        .site = program_site,
        .analysis = (struct tl_analysis *)(void *)&program,
    };
    assert_int_equal(tl_plan_sites(&options, trial.space, &trial.module, 1, trial.request,
                                   trial.count, &trial.set, NULL),
                     0);
}

// ---- what a plan must keep --------------------------------------------------------------------

static int detour_compare(const void *a, const void *b)
{
    const struct tl_plan_detour *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void detours_check(void)
{
    const struct tl_plan_detour *detours;
    const struct tl_range *mapping;
    size_t count = tl_plan_detours(trial.set, &detours);
    size_t mapping_count = tl_space_mappings(trial.space, &mapping);
    assert_true(mapping_count <= trial.mapping_limit);
    struct tl_plan_detour *sorted = malloc((count + 1) * sizeof *sorted);
    memcpy(sorted, detours, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, detour_compare);
    for (size_t i = 0; i < count; i++) {
        tl_addr start = sorted[i].addr, end = start + sorted[i].detour->size;
        if (i + 1 < count)
            assert_true(((end + 31) & ~31ull) <= (sorted[i + 1].addr & ~31ull));
        bool mapped = false;
        for (size_t k = 0; k < mapping_count; k++)
            mapped |= start >= mapping[k].start && end <= mapping[k].end;
        assert_true(mapped);
    }
    for (size_t k = 0; k < mapping_count; k++) {
        assert_true(mapping[k].end - mapping[k].start <= 64u << 20);
        for (unsigned u = 0; u < trial.used_count; u++)
            assert_true(mapping[k].end <= trial.used[u].start ||
                        mapping[k].start >= trial.used[u].end);
    }
    free(sorted);
}

static void patch_check(const struct tl_patch *patch)
{
    for (unsigned i = 0; i < patch->size; i++) {
        size_t off = patch->addr + i - TEXT;
        assert_true(off < program.size);
        assert_int_equal(patch->before[i], program.bytes[off]);
        if (trial.owner[off] & 1)
            fail_msg("patch at %#llx: byte %u is written twice", (unsigned long long)patch->addr,
                     i);
        trial.owner[off] |= 1;
    }
    for (unsigned i = 0; i < patch->relied; i++)
        trial.owner[patch->addr + patch->size + i - TEXT] |= 2;
}

// ---- running ----------------------------------------------------------------------------------

static void memory_make(void)
{
    uint8_t zero[TL_TABLE_SIZE] = {0};
    uint64_t word = FS;
    struct tl_thread_slot slot = {FS, BLOCKS};
    machine_write(&m, FS, &word, 8);
    machine_fs(&m, FS);
    machine_write(&m, TABLE, zero, sizeof zero);
    machine_write(&m, TABLE + ((FS * TL_HASH) >> 56) * 16, &slot, sizeof slot);
    machine_write(&m, TEXT, program.bytes, sizeof program.bytes);
    for (unsigned i = 0; i < BLOCKS_SIZE; i += sizeof zero)
        machine_write(&m, BLOCKS + i, zero, sizeof zero);
}

static void patches_write(void)
{
    const struct tl_plan_detour *detours;
    size_t count = tl_plan_detours(trial.set, &detours);
    for (size_t i = 0; i < count; i++) {
        for (tl_addr page = tl_page_down(detours[i].addr);
             page < detours[i].addr + detours[i].detour->size; page += TL_PAGE_SIZE)
            (void)uc_mem_map(m.uc, page, TL_PAGE_SIZE, UC_PROT_ALL); // may be there
        machine_write(&m, detours[i].addr, detours[i].detour->bytes, detours[i].detour->size);
    }
    memset(trial.owner, 0, sizeof trial.owner);
    for (unsigned i = 0; i < trial.count; i++) {
        const struct tl_plan *plan = tl_plan_get(trial.set, i);
        for (unsigned k = 0; k < plan->patch_count; k++) {
            patch_check(&plan->patch[k]);
            machine_write(&m, plan->patch[k].addr, plan->patch[k].after, plan->patch[k].size);
        }
    }
    // A pun's last bytes are what it counted on, whoever wrote them.
    for (unsigned i = 0; i < trial.count; i++) {
        const struct tl_plan *plan = tl_plan_get(trial.set, i);
        for (unsigned k = 0; k < plan->patch_count; k++) {
            const struct tl_patch *patch = &plan->patch[k];
            uint8_t bytes[TL_PATCH_SIZE_MAX];
            machine_read(&m, patch->addr, bytes, patch->size + patch->relied);
            assert_memory_equal(bytes, patch->after, patch->size + patch->relied);
        }
    }
}

static void unmap_detours(void)
{
    const struct tl_plan_detour *detours;
    size_t count = tl_plan_detours(trial.set, &detours);
    for (size_t i = 0; i < count; i++)
        for (tl_addr page = tl_page_down(detours[i].addr);
             page < detours[i].addr + detours[i].detour->size; page += TL_PAGE_SIZE)
            (void)uc_mem_unmap(m.uc, page, TL_PAGE_SIZE);
}

static uint64_t rip_read(void)
{
    uint64_t rip;
    uc_reg_read(m.uc, UC_X86_REG_RIP, &rip);
    return rip;
}

static void machine_begin(const struct state *begin, unsigned function)
{
    uint64_t end = END;
    struct state s = *begin;
    s.rip = BIAS + program.function[function].start;
    machine_write(&m, s.reg[RSP], &end, 8);
    machine_load(&m, &s);
}

// Steps the bare program and counts what the probes should: an entry is not hit by its own loops.
static void bare_run(const struct state *begin, unsigned function, uint64_t *hits, unsigned *steps)
{
    machine_begin(begin, function);
    unsigned last = program.insn_count;
    memset(hits, 0, program.insn_count * sizeof *hits);
    for (*steps = 0; rip_read() != END; ++*steps) {
        assert_true(*steps < STEPS_MAX);
        unsigned at = program_at(&program, rip_read() - BIAS);
        assert_true(at < program.insn_count);
        bool entry = program.insn[at].addr == program.function[program.function_of[at]].start;
        bool looped =
            last < program.insn_count && program.insn[last].target == program.insn[at].addr &&
            (program.insn[last].flow == TL_FLOW_COND || program.insn[last].flow == TL_FLOW_JUMP);
        if (!entry || !looped)
            hits[at]++;
        last = at;
        assert_int_equal(machine_step(&m), 0);
    }
}

static void results_compare(const struct state *bare, const struct state *probed,
                            const uint8_t *text, const uint8_t *stack, tl_addr rsp)
{
    uint8_t now[PROGRAM_SIZE], stack_now[STACK_SIZE];
    machine_read(&m, TEXT, now, sizeof now);
    machine_read(&m, STACK, stack_now, sizeof stack_now);
    assert_memory_equal(now + PROGRAM_DATA, text + PROGRAM_DATA, PROGRAM_SIZE - PROGRAM_DATA);
    size_t from = rsp - 128 - STACK;
    assert_memory_equal(stack_now + from, stack + from, STACK_SIZE - from);
    for (int i = 0; i < 16; i++)
        if (bare->reg[i] != probed->reg[i])
            fail_msg("register %d is %#llx, not %#llx", i, (unsigned long long)probed->reg[i],
                     (unsigned long long)bare->reg[i]);
    assert_int_equal(bare->flags, probed->flags);
}

static void state_make(struct state *s)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < 16; i++)
        s->reg[i] = machine_random(&m);
    s->reg[RSP] = STACK + STACK_SIZE - 0x1000;
    s->reg[15] = machine_random(&m) % 12;
    s->flags = machine_random(&m) & ARITHMETIC_FLAGS;
}

static void run_compare(void)
{
    static uint8_t text[PROGRAM_SIZE], stack[STACK_SIZE];
    static uint64_t hits[PROGRAM_INSNS_MAX];
    struct state begin, bare, probed;
    unsigned steps, function = program.function_count - 1;
    state_make(&begin);
    memory_make();
    machine_fill(&m, STACK, STACK_SIZE);
    machine_fill(&m, TEXT + PROGRAM_DATA, PROGRAM_SIZE - PROGRAM_DATA);
    uint8_t data[PROGRAM_SIZE - PROGRAM_DATA];
    machine_read(&m, TEXT + PROGRAM_DATA, data, sizeof data);
    machine_read(&m, STACK, stack, sizeof stack);
    bare_run(&begin, function, hits, &steps);
    machine_save(&m, &bare);
    machine_read(&m, TEXT, text, sizeof text);
    uint8_t stack_bare[STACK_SIZE];
    machine_read(&m, STACK, stack_bare, sizeof stack_bare);
    memory_make();
    machine_write(&m, TEXT + PROGRAM_DATA, data, sizeof data);
    machine_write(&m, STACK, stack, sizeof stack);
    patches_write();
    machine_begin(&begin, function);
    uc_err error =
        uc_emu_start(m.uc, BIAS + program.function[function].start, END, RUN_TIMEOUT_US, 0);
    machine_save(&m, &probed);
    if (error || probed.rip != END)
        fail_msg("probed run: %s at %#llx", uc_strerror(error), (unsigned long long)probed.rip);
    results_compare(&bare, &probed, text, stack_bare, begin.reg[RSP]);
    for (unsigned i = 0; i < trial.count; i++) {
        uint64_t counted, expected = hits[trial.insn[i]];
        machine_read(&m, BLOCKS + trial.request[i].counter_off, &counted, 8);
        const struct tl_plan *plan = tl_plan_get(trial.set, i);
        if (plan->rung != TL_RUNG_JUMP)
            expected = 0;
        if (counted != expected)
            fail_msg("site %#llx (%s): %llu hits counted, not %llu", (unsigned long long)plan->addr,
                     tl_way_text(plan->way), (unsigned long long)counted,
                     (unsigned long long)expected);
    }
}

static void program_try(unsigned percent, size_t mapping_limit)
{
    space_make(mapping_limit);
    sites_choose(percent);
    plan_make();
    detours_check();
    for (unsigned i = 0; i < trial.count; i++) {
        const struct tl_plan *plan = tl_plan_get(trial.set, i);
        if (plan->rung == TL_RUNG_JUMP) {
            tally[plan->way]++;
            tally_loops += trial.request[i].facts.looped;
        } else {
            tally_refused[plan->refusal]++;
            assert_int_not_equal(plan->refusal, TL_REFUSE_NONE);
            assert_int_equal(plan->patch_count, 0);
        }
    }
    for (unsigned i = 0; i < RUNS; i++)
        run_compare();
    unmap_detours();
    tl_plan_set_destroy(trial.set);
    tl_space_destroy(trial.space);
}

static void tally_print(const char *what)
{
    unsigned jumps = 0, refused = 0;
    for (unsigned i = 0; i <= TL_WAY_ISLAND; i++)
        jumps += tally[i];
    for (unsigned i = 0; i < TL_REFUSAL_COUNT; i++)
        refused += tally_refused[i];
    fprintf(stderr,
            "%s: %u jumps (one %u, call %u, pun %u, window %u, island %u; %u loops), %u refused\n",
            what, jumps, tally[TL_WAY_ONE], tally[TL_WAY_CALL], tally[TL_WAY_PUN],
            tally[TL_WAY_WINDOW], tally[TL_WAY_ISLAND], tally_loops, refused);
    for (unsigned i = 0; i < TL_REFUSAL_COUNT; i++)
        if (tally_refused[i])
            fprintf(stderr, "    %u: %s\n", tally_refused[i], tl_refusal_text((enum tl_refusal)i));
}

static void programs_try(const char *what, unsigned percent, size_t mapping_limit)
{
    memset(tally, 0, sizeof tally);
    memset(tally_refused, 0, sizeof tally_refused);
    tally_loops = 0;
    const char *rounds = getenv("TL_ROUNDS");
    unsigned programs = PROGRAMS * (rounds ? (unsigned)strtoul(rounds, NULL, 0) : 1);
    for (unsigned i = 0; i < programs; i++) {
        program_random(&program, &m);
        program_try(percent, mapping_limit);
    }
    tally_print(what);
}

static void entries_only(void **state)
{
    (void)state;
    programs_try("entries", 0, 65530);
}

static void some_instructions(void **state)
{
    (void)state;
    programs_try("20 % of instructions", 20, 65530);
    assert_true(tally[TL_WAY_ONE] && tally[TL_WAY_CALL] && tally[TL_WAY_PUN] &&
                tally[TL_WAY_WINDOW] && tally_loops);
}

static void all_instructions(void **state)
{
    (void)state;
    programs_try("all instructions", 100, 65530);
}

static void few_mappings(void **state)
{
    (void)state;
    programs_try("8 mappings", 100, 8);
    assert_true(tally_refused[TL_REFUSE_MAP_LIMIT] > 0 || tally[TL_WAY_WINDOW] > 0);
}

static int setup(void **state)
{
    (void)state;
    machine_init(&m, seed_get("plan-programs"));
    machine_map(&m, TEXT, PROGRAM_SIZE);
    machine_map(&m, STACK, STACK_SIZE);
    machine_map(&m, END, 0x1000);
    machine_write(&m, AGENT, "\xf4", 1);
    machine_map(&m, TABLE, TL_TABLE_SIZE);
    machine_map(&m, BLOCKS, BLOCKS_SIZE);
    machine_map(&m, FS, 0x1000);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    machine_deinit(&m);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_only),
        cmocka_unit_test(some_instructions),
        cmocka_unit_test(all_instructions),
        cmocka_unit_test(few_mappings),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

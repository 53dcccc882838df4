// Pools and slots: edges of pages, gaps and reach, the mapping limit, merging; and random taking
// and giving against a plain map of slots.
#include "machine.h"
#include "plan/space.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOT 32u
#define PAGE 0x1000u

static struct tl_space *space_make(const struct tl_range *used, size_t count, size_t limit)
{
    struct tl_space_options options = {.used = used,
                                       .used_count = count,
                                       .mapping_limit = limit,
                                       .addr_min = 0x10000,
                                       .addr_max = 0x7ffffffff000};
    struct tl_space *space;
    assert_int_equal(tl_space_create(&options, &space, NULL), 0);
    return space;
}

static enum tl_place_cost find(const struct tl_space *space, tl_addr first, tl_addr last,
                               uint16_t size, tl_addr *addr)
{
    struct tl_place_query query = {
        .first = first, .last = last, .size = size, .slot_size = SLOT, .near = first};
    return tl_space_find(space, &query, addr);
}

static void take(struct tl_space *space, tl_addr addr, uint16_t size)
{
    assert_int_equal(tl_space_take(space, addr, size, SLOT, false), 0);
}

// One free page between used ones.
static struct tl_space *one_page(tl_addr page)
{
    struct tl_range used[] = {{0, page}, {page + PAGE, 0x7ffffffff000}};
    return space_make(used, 2, 100);
}

static void an_exact_place_takes_every_slot_it_touches(void **state)
{
    (void)state;
    tl_addr at = 0x100000 + 3 * SLOT + 31, addr;
    struct tl_space *space = one_page(0x100000);
    assert_int_equal(find(space, at, at, 34, &addr), TL_PLACE_NEW_MAPPING);
    assert_int_equal(addr, at);
    take(space, at, 34); // one byte of slot 3, slot 4, one byte of slot 5
    assert_int_equal(find(space, 0x100000 + 3 * SLOT, 0x100000 + 3 * SLOT, 1, &addr),
                     TL_PLACE_NONE);
    assert_int_equal(find(space, 0x100000 + 6 * SLOT - 1, 0x100000 + 6 * SLOT - 1, 1, &addr),
                     TL_PLACE_NONE);
    assert_int_equal(find(space, 0x100000 + 6 * SLOT, 0x100000 + 6 * SLOT, 1, &addr),
                     TL_PLACE_PAGE);
    assert_int_equal(find(space, 0x100000 + 3 * SLOT - 1, 0x100000 + 3 * SLOT - 1, 1, &addr),
                     TL_PLACE_PAGE);
    tl_space_give(space, at, 34, SLOT);
    assert_int_equal(find(space, at, at, 34, &addr), TL_PLACE_NEW_MAPPING);
    tl_space_destroy(space);
}

static void a_page_fills_to_its_last_slot_and_no_further(void **state)
{
    (void)state;
    struct tl_space *space = one_page(0x100000);
    tl_addr addr;
    for (unsigned i = 0; i < PAGE / (3 * SLOT); i++) { // 42 of 3 slots, 2 slots are left
        assert_true(find(space, 0, UINT64_MAX, 3 * SLOT - 5, &addr) <= TL_PLACE_NEW_MAPPING);
        assert_int_equal(addr, 0x100000 + i * 3 * SLOT);
        take(space, addr, 3 * SLOT - 5);
    }
    assert_int_equal(find(space, 0, UINT64_MAX, 2 * SLOT + 1, &addr), TL_PLACE_NONE);
    assert_int_equal(find(space, 0, UINT64_MAX, 2 * SLOT, &addr), TL_PLACE_PAGE);
    assert_int_equal(addr, 0x101000 - 2 * SLOT);
    take(space, addr, 2 * SLOT);
    assert_int_equal(find(space, 0, UINT64_MAX, 1, &addr), TL_PLACE_NONE);
    tl_space_give(space, addr, 2 * SLOT, SLOT);
    assert_int_equal(find(space, 0, UINT64_MAX, 2 * SLOT, &addr), TL_PLACE_PAGE);
    tl_space_destroy(space);
}

static void a_full_pool_grows_beside_itself(void **state)
{
    (void)state;
    struct tl_range used[] = {{0x400000, 0x500000}};
    struct tl_space *space = space_make(used, 1, 100);
    const struct tl_range *mapping;
    tl_addr addr, first = 0;
    for (unsigned i = 0; i < 300; i++) {
        struct tl_place_query query = {.first = 0x10000,
                                       .last = 0x7fffffff,
                                       .size = 256,
                                       .slot_size = SLOT,
                                       .dense = true,
                                       .near = 0x400000};
        assert_true(tl_space_find(space, &query, &addr) <= TL_PLACE_NEW_MAPPING);
        first = i ? first : addr;
        assert_int_equal(tl_space_take(space, addr, 256, SLOT, true), 0);
    }
    assert_int_equal(tl_space_merge(space, NULL), 0);
    assert_int_equal(tl_space_mappings(space, &mapping), 1);
    assert_int_equal(mapping[0].end - mapping[0].start, (300 * 256 + PAGE - 1) / PAGE * PAGE);
    tl_space_destroy(space);
}

static void a_place_may_cross_a_page_end_but_not_a_gap_end(void **state)
{
    (void)state;
    struct tl_range used[] = {{0, 0x100000}, {0x102000, 0x7ffffffff000}};
    struct tl_space *space = space_make(used, 2, 100);
    const struct tl_range *mapping;
    tl_addr addr;
    assert_int_equal(find(space, 0x100fff, 0x100fff, 2, &addr), TL_PLACE_NEW_MAPPING);
    take(space, addr, 2);
    assert_int_equal(tl_space_merge(space, NULL), 0);
    assert_int_equal(tl_space_mappings(space, &mapping), 1);
    assert_int_equal(mapping[0].start, 0x100000);
    assert_int_equal(mapping[0].end, 0x102000);
    assert_int_equal(find(space, 0x101fff, 0x101fff, 1, &addr), TL_PLACE_PAGE);
    assert_int_equal(find(space, 0x101fff, 0x101fff, 2, &addr), TL_PLACE_NONE);
    assert_int_equal(find(space, 0xfffff, 0xfffff, 2, &addr), TL_PLACE_NONE);
    tl_space_destroy(space);
}

static void used_ranges_may_overlap_and_lie_in_any_order(void **state)
{
    (void)state;
    struct tl_range used[] = {{0x300000, 0x400000},
                              {0x10000, 0x100000},
                              {0x0, 0x180001},
                              {0x200000, 0x3fffff},
                              {0x400000, 0x7ffffffff000}};
    struct tl_space *space = space_make(used, TL_ARRAY_COUNT(used), 100);
    tl_addr addr;
    assert_int_equal(find(space, 0x181000, 0x181000, 1, &addr), TL_PLACE_NEW_MAPPING);
    assert_int_equal(find(space, 0x180fff, 0x180fff, 1, &addr), TL_PLACE_NONE);
    assert_int_equal(find(space, 0x1fffff, 0x1fffff, 1, &addr), TL_PLACE_NEW_MAPPING);
    assert_int_equal(find(space, 0x200000, UINT64_MAX, 1, &addr), TL_PLACE_NONE);
    tl_space_destroy(space);
}

static void the_mapping_limit_holds(void **state)
{
    (void)state;
    struct tl_space *space = space_make(NULL, 0, 3);
    const struct tl_range *mapping;
    tl_addr addr;
    for (unsigned i = 0; i < 3; i++) {
        tl_addr at = 0x100000000 + ((tl_addr)i << 30);
        assert_int_equal(find(space, at, at, 64, &addr), TL_PLACE_NEW_MAPPING);
        take(space, at, 64);
    }
    assert_int_equal(find(space, 0x500000000, 0x500000000, 64, &addr), TL_PLACE_LIMIT);
    assert_int_equal(find(space, 0x500000000, 0x500010000, 64, &addr), TL_PLACE_LIMIT);
    assert_int_equal(find(space, 0x103000000, 0x103000000, 64, &addr), TL_PLACE_MAPPING);
    take(space, 0x103000000, 64); // 48 MiB from the first: in the same 64 MiB
    assert_int_equal(tl_space_merge(space, NULL), 0);
    assert_int_equal(tl_space_mappings(space, &mapping), 3);
    // The last of a group gives the mapping back.
    tl_space_give(space, 0x180000000, 64, SLOT);
    tl_space_give(space, 0x140000000, 64, SLOT);
    assert_int_equal(find(space, 0x500000000, 0x500000000, 64, &addr), TL_PLACE_NEW_MAPPING);
    tl_space_destroy(space);
}

static void two_pages_may_cost_two_mappings(void **state)
{
    (void)state;
    struct tl_space *space = space_make(NULL, 0, 1);
    tl_addr addr, at = ((tl_addr)64 << 20) * 100 - 8; // crosses a 64 MiB line
    assert_int_equal(find(space, at, at, 64, &addr), TL_PLACE_LIMIT);
    tl_space_destroy(space);
    space = space_make(NULL, 0, 2);
    assert_int_equal(find(space, at, at, 64, &addr), TL_PLACE_NEW_MAPPING);
    tl_space_destroy(space);
}

static void merging_keeps_to_gaps_and_sizes(void **state)
{
    (void)state;
    struct machine m = {.seed = seed_get("plan-space")};
    for (unsigned round = 0; round < 20; round++) {
        struct tl_range used[8];
        for (unsigned i = 0; i < 8; i++) {
            used[i].start = 0x100000000 + (machine_random(&m) & 0x7ffff000);
            used[i].end = used[i].start + (machine_random(&m) & 0xfff000) + PAGE;
        }
        struct tl_space *space = space_make(used, 8, 60 + round);
        tl_addr place[400], addr;
        unsigned count = 0;
        for (unsigned i = 0; i < 400; i++) {
            tl_addr at = 0x100000000 + (machine_random(&m) & 0x7fffffff);
            if (find(space, at, at, 100, &addr) > TL_PLACE_NEW_MAPPING)
                continue;
            take(space, at, 100);
            place[count++] = at;
        }
        const struct tl_range *mapping;
        assert_int_equal(tl_space_merge(space, NULL), 0);
        size_t mappings = tl_space_mappings(space, &mapping);
        assert_true(mappings <= 60 + round && count > 100);
        for (size_t i = 0; i < mappings; i++) {
            assert_true(mapping[i].end - mapping[i].start <= 64u << 20);
            assert_true(i == 0 || mapping[i - 1].end <= mapping[i].start);
            for (unsigned k = 0; k < 8; k++)
                assert_true(mapping[i].end <= used[k].start || mapping[i].start >= used[k].end);
        }
        for (unsigned i = 0; i < count; i++) {
            bool inside = false;
            for (size_t k = 0; k < mappings; k++)
                inside |= place[i] >= mapping[k].start && place[i] + 100 <= mapping[k].end;
            assert_true(inside);
        }
        tl_space_destroy(space);
    }
}

// ---- kinds and page sizes ----------------------------------------------------------------------

#define KIND_PLACES 600u
struct kind_place {
    tl_addr addr;
    bool guarded;
};

static bool mapping_holds(const struct tl_space *space, const struct tl_range *mapping, size_t count,
                          const struct kind_place *place, unsigned size)
{
    for (size_t k = 0; k < count; k++) {
        if (place->addr >= mapping[k].start && place->addr + size <= mapping[k].end)
            return tl_space_mapping_guarded(space, k) == place->guarded;
    }
    return false;
}

// Guarded and other places at random, near two modules and a hole between them.
static void kinds_check(struct machine *m, size_t page_size, size_t limit)
{
    struct tl_range used[] = {{0x100000000, 0x100801000}, {0x100a03000, 0x108000000}};
    struct tl_space_options options = {.used = used,
                                       .used_count = TL_ARRAY_COUNT(used),
                                       .mapping_limit = limit,
                                       .page_size = page_size,
                                       .addr_min = 0x10001000,
                                       .addr_max = 0x110001000};
    static struct kind_place place[KIND_PLACES];
    const struct tl_range *mapping;
    struct tl_space *space;
    size_t count = 0;
    assert_int_equal(tl_space_create(&options, &space, NULL), 0);
    tl_space_expect_guarded(space);
    for (unsigned i = 0; i < KIND_PLACES; i++) {
        bool guarded = machine_random(m) & 1;
        tl_addr near = 0x100000000 + machine_random(m) % 0x8000000;
        struct tl_place_query query = {.first = near - 0x8000000,
                                       .last = near + 0x8000000,
                                       .size = (uint16_t)(1 + machine_random(m) % 300),
                                       .slot_size = SLOT,
                                       .guarded = guarded,
                                       .dense = machine_random(m) & 1,
                                       .near = near};
        tl_addr addr;
        enum tl_place_cost cost = tl_space_find(space, &query, &addr);
        assert_true(cost <= TL_PLACE_NEW_MAPPING || (cost == TL_PLACE_LIMIT && limit < 10));
        if (cost == TL_PLACE_LIMIT)
            continue;
        unsigned pool = (query.dense ? TL_POOL_DENSE : 0) | (guarded ? TL_POOL_GUARDED : 0);
        assert_int_equal(tl_space_take(space, addr, query.size, SLOT, pool), 0);
        place[count++] = (struct kind_place){addr, guarded};
    }
    assert_int_equal(tl_space_merge(space, NULL), 0);
    size_t mappings = tl_space_mappings(space, &mapping);
    assert_in_range(mappings, 2, limit);
    for (size_t i = 0; i < mappings; i++) {
        assert_int_equal((mapping[i].start | mapping[i].end) % page_size, 0);
        assert_true(i == 0 || mapping[i - 1].end <= mapping[i].start);
        for (size_t k = 0; k < TL_ARRAY_COUNT(used); k++)
            assert_true(mapping[i].end <= used[k].start || mapping[i].start >= used[k].end);
    }
    for (size_t i = 0; i < count; i++)
        assert_true(mapping_holds(space, mapping, mappings, &place[i], 1));
    tl_space_destroy(space);
}

static void guarded_places_share_no_mapping_with_others(void **state)
{
    (void)state;
    static const size_t page_sizes[] = {4096, 16384, 65536};
    struct machine m = {.seed = seed_get("plan-space")};
    for (unsigned i = 0; i < TL_ARRAY_COUNT(page_sizes); i++) {
        kinds_check(&m, page_sizes[i], 1000);
        kinds_check(&m, page_sizes[i], 6);
    }
}

static void the_other_kind_finds_room_beside_a_full_group(void **state)
{
    (void)state;
    struct tl_range used[] = {{0, 0x40000000}, {0x40400000, 0x7ffffffff000}};
    struct tl_space *space = space_make(used, 2, 100);
    tl_addr addr;
    tl_space_expect_guarded(space);
    struct tl_place_query query = {.first = 0x3f000000,
                                   .last = 0x41000000,
                                   .size = 64,
                                   .slot_size = SLOT,
                                   .dense = true,
                                   .near = 0x40180000};
    assert_int_equal(tl_space_find(space, &query, &addr), TL_PLACE_NEW_MAPPING);
    assert_int_equal(addr, 0x40180000);
    assert_int_equal(tl_space_take(space, addr, 64, SLOT, TL_POOL_DENSE), 0);
    query.guarded = true;
    assert_int_equal(tl_space_find(space, &query, &addr), TL_PLACE_NEW_MAPPING);
    assert_int_equal(addr, 0x40200000); // the next MiB begins nearer than the one below ends
    assert_int_equal(tl_space_take(space, addr, 64, SLOT, TL_POOL_DENSE | TL_POOL_GUARDED), 0);
    assert_int_equal(tl_space_find(space, &query, &addr), TL_PLACE_PAGE);
    assert_int_equal(addr, 0x40200040);
    query.guarded = false;
    assert_int_equal(tl_space_find(space, &query, &addr), TL_PLACE_PAGE);
    assert_int_equal(addr, 0x40180040);
    tl_space_destroy(space);
}

static void pools_grow_until_the_reach_is_full(void **state)
{
    (void)state;
    for (unsigned guarded = 0; guarded < 2; guarded++) {
        struct tl_range used[] = {{0x40000000, 0x40400000}};
        struct tl_space *space = space_make(used, 1, 100);
        unsigned pages = 0;
        tl_space_expect_guarded(space);
        for (;; pages++) {
            struct tl_place_query query = {.first = 0x3fc00000,
                                           .last = 0x40700000 - PAGE,
                                           .size = PAGE,
                                           .slot_size = SLOT,
                                           .guarded = guarded,
                                           .dense = true,
                                           .near = 0x40200000};
            tl_addr addr;
            if (tl_space_find(space, &query, &addr) == TL_PLACE_NONE)
                break;
            assert_true(addr >= 0x3fc00000 && addr < 0x40700000);
            assert_int_equal(tl_space_take(space, addr, PAGE, SLOT,
                                           TL_POOL_DENSE | (guarded ? TL_POOL_GUARDED : 0)), 0);
        }
        assert_int_equal(pages, 0x700); // 4 MiB below, 3 MiB above
        tl_space_destroy(space);
    }
}

static void odd_page_sizes_are_refused(void **state)
{
    (void)state;
    static const size_t page_sizes[] = {1024, 12288, 128 << 10, 4097};
    for (unsigned i = 0; i < TL_ARRAY_COUNT(page_sizes); i++) {
        struct tl_space_options options = {.page_size = page_sizes[i], .addr_max = 0x100000000};
        struct tl_space *space;
        assert_int_equal(tl_space_create(&options, &space, NULL), TL_E_USAGE);
    }
}

// ---- against a plain map -----------------------------------------------------------------------

#define MODEL_PAGES 24u
#define MODEL_START ((tl_addr)0x200000)
#define MODEL_SLOTS (MODEL_PAGES * PAGE / SLOT)

struct model {
    bool used[MODEL_PAGES];
    bool taken[MODEL_SLOTS];
};

static bool model_fits(const struct model *model, tl_addr addr, unsigned size)
{
    for (tl_addr slot = (addr - MODEL_START) / SLOT; slot <= (addr + size - 1 - MODEL_START) / SLOT;
         slot++) {
        if (slot >= MODEL_SLOTS || model->taken[slot] || model->used[slot * SLOT / PAGE])
            return false;
    }
    return true;
}

static void model_set(struct model *model, tl_addr addr, unsigned size, bool taken)
{
    for (tl_addr slot = (addr - MODEL_START) / SLOT; slot <= (addr + size - 1 - MODEL_START) / SLOT;
         slot++)
        model->taken[slot] = taken;
}

static struct tl_space *model_make(struct model *model, struct machine *m)
{
    struct tl_range used[MODEL_PAGES + 2] = {{0, MODEL_START},
                                             {MODEL_START + MODEL_PAGES * PAGE, 0x7ffffffff000}};
    size_t count = 2;
    memset(model, 0, sizeof *model);
    for (unsigned i = 0; i < MODEL_PAGES; i++) {
        model->used[i] = machine_random(m) % 4 == 0;
        if (model->used[i])
            used[count++] = (struct tl_range){MODEL_START + i * PAGE, MODEL_START + (i + 1) * PAGE};
    }
    return space_make(used, count, 1000);
}

static void random_places_agree_with_a_plain_map(void **state)
{
    (void)state;
    struct machine m = {.seed = seed_get("plan-space")};
    static struct model model;
    for (unsigned round = 0; round < 30; round++) {
        struct tl_space *space = model_make(&model, &m);
        struct tl_range held[600];
        unsigned count = 0;
        for (unsigned i = 0; i < 600; i++) {
            if (count && machine_random(&m) % 3 == 0) {
                unsigned k = (unsigned)(machine_random(&m) % count);
                unsigned size = (unsigned)(held[k].end - held[k].start);
                tl_space_give(space, held[k].start, (uint16_t)size, SLOT);
                model_set(&model, held[k].start, size, false);
                held[k] = held[--count];
                continue;
            }
            tl_addr first = MODEL_START + machine_random(&m) % (MODEL_PAGES * PAGE), addr = 0;
            static const unsigned spans[] = {0, 1, 200, 255, 4095, 4096, 10000, 65535};
            tl_addr last = first + spans[machine_random(&m) % TL_ARRAY_COUNT(spans)];
            uint16_t size = (uint16_t)(1 + machine_random(&m) % 300);
            enum tl_place_cost cost = find(space, first, last, size, &addr);
            if (cost <= TL_PLACE_NEW_MAPPING) {
                assert_true(addr >= first && addr <= last);
                assert_true(model_fits(&model, addr, size));
                take(space, addr, size);
                model_set(&model, addr, size, true);
                held[count++] = (struct tl_range){addr, addr + size};
                continue;
            }
            // Nowhere: neither at `first`, nor at a slot that does not cross a page end.
            assert_int_equal(cost, TL_PLACE_NONE);
            assert_true(first != last || !model_fits(&model, first, size));
            for (tl_addr at = (first + SLOT - 1) / SLOT * SLOT; at <= last; at += SLOT) {
                if (at % PAGE + size <= PAGE)
                    assert_false(model_fits(&model, at, size));
            }
        }
        tl_space_destroy(space);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exact_place_takes_every_slot_it_touches),
        cmocka_unit_test(a_page_fills_to_its_last_slot_and_no_further),
        cmocka_unit_test(a_full_pool_grows_beside_itself),
        cmocka_unit_test(a_place_may_cross_a_page_end_but_not_a_gap_end),
        cmocka_unit_test(used_ranges_may_overlap_and_lie_in_any_order),
        cmocka_unit_test(the_mapping_limit_holds),
        cmocka_unit_test(two_pages_may_cost_two_mappings),
        cmocka_unit_test(merging_keeps_to_gaps_and_sizes),
        cmocka_unit_test(guarded_places_share_no_mapping_with_others),
        cmocka_unit_test(the_other_kind_finds_room_beside_a_full_group),
        cmocka_unit_test(pools_grow_until_the_reach_is_full),
        cmocka_unit_test(odd_page_sizes_are_refused),
        cmocka_unit_test(random_places_agree_with_a_plain_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

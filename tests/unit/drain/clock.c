// The map from ticks to CLOCK_MONOTONIC: it never falls, what it said stays, and it is near the
// truth.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "drain/drain.h"

#define SAMPLES 1000
#define TRIES 200
#define TOLERANCE_NS 5000 // two readings and an interrupt between them apart

static uint64_t now(void)
{
    return tl_clock_ticks(true);
}

// How far the map is from the clock, at best of some tries: a try can be interrupted.
static uint64_t error_ns(const struct tl_clock_map *map)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = now();
        uint64_t ns = tl_clock_map_ns(map, tl_clock_ticks(false));
        uint64_t after = now();
        uint64_t error = ns < before ? before - ns : ns > after ? ns - after : 0;
        best = error < best ? error : best;
    }
    return best;
}

static void test_the_map_is_near_the_clock(void **state)
{
    (void)state;
    struct tl_clock_map map;
    tl_clock_map_init(&map, false);
    assert_true(error_ns(&map) < TOLERANCE_NS);
    for (uint64_t start = now(); map.knot_count < 6;) {
        tl_clock_map_refresh(&map);
        assert_true(now() - start < 60000000000ull);
    }
    assert_true(error_ns(&map) < TOLERANCE_NS);
    assert_true(map.last_ns - map.first_ns >= 200000000); // the base line grew
    double ratio = map.knot[5].ns_per_tick / map.ns_per_tick;
    assert_true(ratio > 0.999 && ratio < 1.001);
}

static void test_what_the_map_said_stays(void **state)
{
    (void)state;
    static struct tl_clock_map map;
    static uint64_t ticks[SAMPLES], ns[SAMPLES];
    tl_clock_map_init(&map, false);
    size_t count = 0;
    uint64_t next = 0;
    // Samples over several refreshes, few enough that all knots are kept.
    for (uint64_t start = now(); map.knot_count < 8;) {
        tl_clock_map_refresh(&map);
        assert_true(now() - start < 60000000000ull);
        if (count < SAMPLES && now() > next) {
            next = now() + 1000000;
            ticks[count] = tl_clock_ticks(false);
            ns[count] = tl_clock_map_ns(&map, ticks[count]);
            assert_true(!count || ns[count] >= ns[count - 1]);
            count++;
        }
    }
    assert_true(count > 100);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tl_clock_map_ns(&map, ticks[i]), ns[i]);
    // Across the knots too, tick by tick.
    for (uint32_t i = 0; i < map.knot_count; i++) {
        uint64_t last = 0;
        for (uint64_t tick = map.knot[i].ticks - 1000; tick < map.knot[i].ticks + 1000; tick++) {
            uint64_t value = tl_clock_map_ns(&map, tick);
            assert_true(value >= last);
            last = value;
        }
    }
}

// A clock that ran away, or stood still while the machine slept: the map never falls, and finds
// back.
static void test_a_wrong_map_finds_back(void **state)
{
    (void)state;
    const struct {
        int64_t ahead_ns;
        double rate_factor;
    } rows[] = {
        {0, 1.01}, {0, 0.99}, {2000000, 1}, {-2000000, 1}, {-5000000000, 1}, {0, 1.5}, {0, 0.1},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        struct tl_clock_map map;
        tl_clock_map_init(&map, false);
        map.first_ns += (uint64_t)rows[i].ahead_ns;
        map.last_ns += (uint64_t)rows[i].ahead_ns;
        map.knot[0].ns += (uint64_t)rows[i].ahead_ns;
        map.knot[0].ns_per_tick *= rows[i].rate_factor;
        map.ns_per_tick *= rows[i].rate_factor;
        uint64_t start = now(), last = 0;
        do {
            uint64_t ns = tl_clock_map_ns(&map, tl_clock_ticks(false));
            assert_true(ns >= last);
            last = ns;
            tl_clock_map_refresh(&map);
            if (now() - start > 30000000000ull)
                fail_msg("row %zu: still %llu ns off", i, (unsigned long long)error_ns(&map));
        } while (map.knot_count < 4 || error_ns(&map) > 100 * TOLERANCE_NS);
    }
}

static void test_extreme_ticks_have_a_value(void **state)
{
    (void)state;
    struct tl_clock_map map;
    tl_clock_map_init(&map, false);
    const uint64_t ticks[] = {0, 1, map.first_ticks, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
    uint64_t last = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(ticks); i++) {
        uint64_t value = tl_clock_map_ns(&map, ticks[i]);
        assert_true(value >= last);
        last = value;
    }
}

static void test_a_coarse_clock_is_nanoseconds(void **state)
{
    (void)state;
    struct tl_clock_map map;
    tl_clock_map_init(&map, true);
    tl_clock_map_refresh(&map);
    assert_int_equal(tl_clock_map_ns(&map, 12345), 12345);
    assert_true(map.ns_per_tick == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_map_is_near_the_clock),
        cmocka_unit_test(test_what_the_map_said_stays),
        cmocka_unit_test(test_a_wrong_map_finds_back),
        cmocka_unit_test(test_extreme_ticks_have_a_value),
        cmocka_unit_test(test_a_coarse_clock_is_nanoseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

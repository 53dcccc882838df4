// Histograms: each value falls into the bucket that says so, no bucket is wider than 1/32 of its
// values, blocks add up, and quantiles are near the true ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "drain/drain.h"

#define HISTS 3u
#define VALUES 20001

// As agent/layout.h says it.
static uint32_t bucket_of(uint64_t value)
{
    uint64_t most = (2ull << TL_HIST_EXPONENT_MAX) - 1;
    value = value > most ? most : value;
    if (value < 32)
        return (uint32_t)value;
    uint32_t exponent = 63 - (uint32_t)__builtin_clzll(value);
    return (exponent - 4) * 32 + (uint32_t)(value >> (exponent - 5) & 31);
}

static void hist_add(struct tl_hist *hist, uint64_t value)
{
    hist->sum += value;
    hist->min_inverted = ~value > hist->min_inverted ? ~value : hist->min_inverted;
    hist->max = value > hist->max ? value : hist->max;
    hist->bucket[bucket_of(value)]++;
}

static void test_buckets_follow_each_other(void **state)
{
    (void)state;
    uint64_t expected = 0, low, high;
    for (uint32_t i = 0; i < TL_HIST_BUCKETS; i++) {
        tl_hist_bucket_range(i, &low, &high);
        assert_int_equal(low, expected);
        assert_true(high >= low);
        if (i < TL_HIST_BUCKETS - 1)
            assert_true((high - low + 1) * 32 <= (low > 32 ? low : 32));
        assert_int_equal(bucket_of(low), i);
        assert_int_equal(bucket_of(high), i);
        expected = high + 1;
    }
    assert_int_equal(high, UINT64_MAX);
    tl_hist_bucket_range(UINT32_MAX, &low, &high); // no such bucket: the last
    assert_int_equal(bucket_of(low), TL_HIST_BUCKETS - 1);
}

static int value_compare(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static void test_quantiles_are_near_the_true_ones(void **state)
{
    (void)state;
    const char *given = getenv("TL_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
    print_message("seed %u (TL_SEED takes it back)\n", seed);
    srandom(seed);
    static uint64_t value[VALUES];
    const double parts[] = {0, 0.1, 0.5, 0.9, 0.99, 0.999, 1};
    for (unsigned bits = 1; bits <= TL_HIST_EXPONENT_MAX; bits++) {
        static struct tl_hist hist;
        memset(&hist, 0, sizeof hist);
        for (size_t i = 0; i < VALUES; i++) {
            value[i] = ((uint64_t)random() << 31 ^ (uint64_t)random()) & ((1ull << bits) - 1);
            hist_add(&hist, value[i]);
        }
        qsort(value, VALUES, sizeof value[0], value_compare);
        assert_int_equal(tl_hist_count(&hist), VALUES);
        for (size_t i = 0; i < TL_ARRAY_COUNT(parts); i++) {
            double rank = parts[i] * VALUES;
            size_t index = (size_t)rank;
            index += (double)index < rank;
            double truth = (double)value[index ? index - 1 : 0];
            double got = tl_hist_quantile(&hist, parts[i]);
            if (got < truth - truth / 32 || got > truth + truth / 32)
                fail_msg("%u bits, %f: %f instead of %f", bits, parts[i], got, truth);
        }
    }
    static const struct tl_hist empty;
    assert_true(tl_hist_quantile(&empty, 0.5) == 0);
}

static void test_blocks_add_up_and_holes_stay(void **state)
{
    (void)state;
    struct tl_block_layout layout = {
        .probe_count = HISTS, .hist_count = HISTS, .process_count = 2, .hist_off = 128};
    layout.stride = (layout.hist_off + HISTS * sizeof(struct tl_hist) + 127) & ~127ull;
    const size_t size = TL_BLOCK_FIRST_OFF + 2 * TL_BLOCK_COUNT * layout.stride;
    int fd = memfd_create("hists", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    unsigned char *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(data != MAP_FAILED);
    const struct tl_drain_memory memory = {.data = data, .size = size, .fd = fd, .layout = layout};
    static struct tl_hist expected[2][HISTS], got;
    for (uint64_t i = 0; i < 3000; i++) {
        uint32_t probe = (uint32_t)(i % HISTS), process = (uint32_t)(i / 7 % 2);
        uint64_t block = process * TL_BLOCK_COUNT + i * i % 50;
        uint64_t value = (i * i * i) << i % 20;
        hist_add((struct tl_hist *)(void *)(data + TL_BLOCK_FIRST_OFF + block * layout.stride +
                                            layout.hist_off + probe * sizeof(struct tl_hist)),
                 value);
        hist_add(&expected[process][probe], value);
    }
    struct stat before, after;
    assert_int_equal(fstat(fd, &before), 0);
    for (uint32_t probe = 0; probe < HISTS; probe++) {
        for (uint32_t process = 0; process < 2; process++) {
            memset(&got, 0, sizeof got);
            assert_int_equal(tl_drain_process_hist(&memory, process, probe, &got, NULL), 0);
            assert_memory_equal(&got, &expected[process][probe], sizeof got);
        }
        memset(&got, 0, sizeof got);
        assert_int_equal(tl_drain_hist(&memory, probe, &got, NULL), 0);
        const struct tl_hist *a = &expected[0][probe], *b = &expected[1][probe];
        assert_int_equal(got.sum, a->sum + b->sum);
        assert_int_equal(got.max, a->max > b->max ? a->max : b->max);
        assert_int_equal(~got.min_inverted,
                         ~a->min_inverted < ~b->min_inverted ? ~a->min_inverted : ~b->min_inverted);
        assert_int_equal(tl_hist_count(&got), tl_hist_count(a) + tl_hist_count(b));
    }
    assert_int_equal(fstat(fd, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
    assert_int_equal(tl_drain_hist(&memory, HISTS, &got, NULL), TL_E_FORMAT);
    assert_int_equal(tl_drain_process_hist(&memory, 2, 0, &got, NULL), TL_E_FORMAT);
    struct tl_drain_memory none = memory;
    none.layout.hist_off = 0;
    assert_int_equal(tl_drain_hist(&none, 0, &got, NULL), TL_E_FORMAT);
    (void)munmap(data, size);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_follow_each_other),
        cmocka_unit_test(test_quantiles_are_near_the_true_ones),
        cmocka_unit_test(test_blocks_add_up_and_holes_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

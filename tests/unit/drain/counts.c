// Totals out of shared memory: right sums, an error for layouts that don't fit, and never a
// read outside the mapping (it ends at a page that can't be read).
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

#define BLOCKS (TL_THREAD_SLOTS + 1)
#define PROBES 5u
#define STRIDE 128u
#define SIZE ((size_t)TL_BLOCK_FIRST_OFF + BLOCKS * STRIDE)
#define ROUNDS 200000

// size bytes that end where the next page faults.
static unsigned char *guarded(size_t size, void **base, size_t *base_size)
{
    *base_size = (size_t)tl_page_up(size) + TL_PAGE_SIZE;
    unsigned char *at =
        mmap(NULL, *base_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect(at + *base_size - TL_PAGE_SIZE, TL_PAGE_SIZE, PROT_NONE), 0);
    *base = at;
    return at + *base_size - TL_PAGE_SIZE - size;
}

static void counter_write(unsigned char *data, size_t block, uint32_t probe, uint64_t value)
{
    memcpy(data + TL_BLOCK_FIRST_OFF + block * STRIDE + TL_BLOCK_HEADER_SIZE + 8ul * probe, &value,
           sizeof value);
}

static struct tl_drain_memory memory_of(const void *data, size_t size)
{
    return (struct tl_drain_memory){
        .data = (void *)(uintptr_t)data,
        .size = size,
        .fd = -1,
        .layout = {.stride = STRIDE, .probe_count = PROBES, .process_count = 1}};
}

// Holes are passed over and stay holes; what lies between them is counted once.
static void test_holes_are_left_alone(void **state)
{
    (void)state;
    const uint64_t stride = 3 * 4096;
    const size_t size = TL_BLOCK_FIRST_OFF + BLOCKS * stride;
    uint64_t hits[1500], expected[1500] = {0};
    int fd = memfd_create("counters", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    for (unsigned i = 0; i < 40; i++) {
        uint64_t block = i * 37 % BLOCKS, probe = i * 523 % 1500, value = i + 1;
        uint64_t off = TL_BLOCK_FIRST_OFF + block * stride + TL_BLOCK_HEADER_SIZE + 8 * probe;
        assert_int_equal(pwrite(fd, &value, sizeof value, (off_t)off), sizeof value);
        expected[probe] += value;
    }
    struct stat before, after;
    fstat(fd, &before);
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    struct tl_drain_memory memory = memory_of(data, size);
    memory.fd = fd;
    memory.layout.stride = stride;
    memory.layout.probe_count = 1500;
    assert_int_equal(tl_drain_counts(&memory, 0, 1500, hits, NULL), 0);
    assert_memory_equal(hits, expected, sizeof hits);
    fstat(fd, &after);
    assert_int_equal(after.st_blocks, before.st_blocks);
    (void)munmap(data, size);
    close(fd);
}

static void test_all_blocks_are_summed(void **state)
{
    (void)state;
    void *base;
    size_t base_size;
    unsigned char *data = guarded(SIZE, &base, &base_size);
    struct tl_drain_memory memory = memory_of(data, SIZE);
    uint64_t expected[PROBES] = {0};
    for (size_t block = 0; block < BLOCKS; block++) {
        for (uint32_t probe = 0; probe < PROBES; probe++) {
            counter_write(data, block, probe, block * 1000 + probe);
            expected[probe] += block * 1000 + probe;
        }
    }
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        uint64_t hits = 0;
        assert_int_equal(tl_drain_counts(&memory, probe, 1, &hits, NULL), 0);
        assert_int_equal(hits, expected[probe]);
    }
    (void)munmap(base, base_size);
}

// What each process counted is told apart, and goes when its slot is cleared; the neighbours'
// stays.
static void test_processes_are_told_apart(void **state)
{
    (void)state;
    enum { PROCESSES = 3 };
    const size_t size = TL_BLOCK_FIRST_OFF + (size_t)PROCESSES * BLOCKS * STRIDE;
    int fd = memfd_create("counters", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    unsigned char *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(data != MAP_FAILED);
    struct tl_drain_memory memory = memory_of(data, size);
    memory.fd = fd;
    memory.layout.process_count = PROCESSES;
    for (uint32_t process = 0; process < PROCESSES; process++) {
        counter_write(data, process * BLOCKS, 1, 10 + process);
        counter_write(data, process * BLOCKS + BLOCKS - 1, 1, 100);
    }
    uint64_t hits = 0;
    for (uint32_t process = 0; process < PROCESSES; process++) {
        assert_int_equal(tl_drain_process_counts(&memory, process, 1, 1, &hits, NULL), 0);
        assert_int_equal(hits, 110 + process);
    }
    assert_int_equal(tl_drain_process_counts(&memory, PROCESSES, 1, 1, &hits, NULL), TL_E_FORMAT);
    assert_int_equal(tl_drain_process_clear(&memory, PROCESSES, NULL), TL_E_FORMAT);
    assert_int_equal(tl_drain_process_clear(&memory, 1, NULL), 0);
    assert_int_equal(tl_drain_process_counts(&memory, 1, 1, 1, &hits, NULL), 0);
    assert_int_equal(hits, 0);
    assert_int_equal(tl_drain_counts(&memory, 1, 1, &hits, NULL), 0);
    assert_int_equal(hits, 110 + 112);
    (void)munmap(data, size);
    close(fd);
}

// The layout is the controller's own, but a fault in it must not become a read outside.
static void test_layouts_that_do_not_fit_are_errors(void **state)
{
    (void)state;
    const struct {
        struct tl_block_layout layout;
        uint32_t probe;
        size_t size;
    } rows[] = {
#define LAYOUT(s, probes, processes, ...)                                                          \
    {.stride = (s), .probe_count = (probes), .process_count = (processes), __VA_ARGS__}
        {LAYOUT(0, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(8, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(96, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(STRIDE + 1, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(STRIDE + 8, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(UINT64_MAX, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(UINT64_MAX - 7, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT((UINT64_MAX / BLOCKS + 8) & ~7ull, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(1ull << 63, PROBES, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(STRIDE, 9, 1, .hist_off = 0), 0, SIZE},
        {LAYOUT(STRIDE, UINT32_MAX, 1, .hist_off = 0), UINT32_MAX - 1, SIZE},
        {LAYOUT(STRIDE, PROBES, 0, .hist_off = 0), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 2, .hist_off = 0), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, UINT32_MAX, .hist_off = 0), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 64, .hist_count = 1), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 64, .hist_count = UINT32_MAX), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = UINT64_MAX - 7, .hist_count = 1), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 4), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .ring_off = 64, .ring_slots = 1), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .ring_off = 64, .ring_slots = 0), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .ring_off = 1ull << 40, .ring_slots = 1), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .pair_off = 64, .pair_slots = 5), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .pair_off = 68, .pair_slots = 1), 0, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 0), PROBES, SIZE}, // just behind the last
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 0), UINT32_MAX, SIZE},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 0), 0, SIZE - 8},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 0), 0, TL_BLOCK_FIRST_OFF},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 0), 0, TL_BLOCK_FIRST_OFF - 8},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 0), 0, 8},
        {LAYOUT(STRIDE, PROBES, 1, .hist_off = 0), 0, 0},
#undef LAYOUT
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        void *base;
        size_t base_size;
        unsigned char *data = guarded(rows[i].size, &base, &base_size);
        struct tl_drain_memory memory = memory_of(data, rows[i].size);
        memory.layout = rows[i].layout;
        uint64_t hits = 42;
        struct tl_diag diag = {{0}};
        int error = tl_drain_counts(&memory, rows[i].probe, 1, &hits, &diag);
        if (error != TL_E_FORMAT || hits != 42 || !diag.text[0])
            fail_msg("row %zu: error %d, hits %llu", i, error, (unsigned long long)hits);
        (void)munmap(base, base_size);
    }
    const struct tl_drain_memory none = memory_of(NULL, SIZE);
    assert_int_equal(tl_drain_counts(&none, 0, 1, NULL, NULL), TL_E_FORMAT);
}

static void test_random_layouts_are_never_read_outside(void **state)
{
    (void)state;
    const char *given = getenv("TL_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
    print_message("seed %u (TL_SEED takes it back)\n", seed);
    srandom(seed);
    void *base;
    size_t base_size;
    // The end of what is given is the end of what can be read.
    unsigned char *data = guarded(SIZE, &base, &base_size);
    size_t accepted = 0;
    for (int i = 0; i < ROUNDS; i++) {
        size_t short_by = (size_t)(random() % 3) * 8;
        struct tl_drain_memory memory = memory_of(data + short_by, SIZE - short_by);
        memory.layout.stride = (uint64_t)random() % (4 * STRIDE);
        if (i % 2)
            memory.layout.stride &= ~UINT64_C(63); // else hardly one is right
        memory.layout.probe_count = (uint32_t)random() % 32;
        if (i % 4 == 0)
            ((unsigned char *)&memory.layout)[(size_t)random() % sizeof memory.layout] ^=
                (unsigned char)random();
        uint64_t hits[32];
        uint32_t first = (uint32_t)random() % 32, count = (uint32_t)random() % (33 - first);
        if (!tl_drain_counts(&memory, first, count, hits, NULL))
            accepted++;
    }
    assert_true(accepted > 0 && accepted < ROUNDS);
    (void)munmap(base, base_size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_blocks_are_summed),
        cmocka_unit_test(test_holes_are_left_alone),
        cmocka_unit_test(test_processes_are_told_apart),
        cmocka_unit_test(test_layouts_that_do_not_fit_are_errors),
        cmocka_unit_test(test_random_layouts_are_never_read_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

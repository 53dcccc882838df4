// Totals out of shared memory: right sums from right bytes, an error from hostile ones, and never a
// read outside the mapping (it ends at a page that can't be read).
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <time.h>

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

static void header_write(unsigned char *data, uint64_t stride)
{
    const struct tl_data_header header = {.magic = TL_DATA_MAGIC,
                                          .version = TL_LAYOUT_VERSION,
                                          .probe_count = PROBES,
                                          .stride = stride,
                                          .size = SIZE};
    memcpy(data, &header, sizeof header);
}

static void counter_write(unsigned char *data, size_t block, uint32_t probe, uint64_t value)
{
    memcpy(data + TL_BLOCK_FIRST_OFF + block * STRIDE + TL_BLOCK_HEADER_SIZE + 8ul * probe, &value,
           sizeof value);
}

static int count_one(const void *data, size_t size, uint32_t probe, uint64_t *hits,
                     struct tl_diag *diag)
{
    const struct tl_drain_memory memory = {
        .data = (void *)(uintptr_t)data, .size = size, .fd = -1,
        .layout = {.stride = STRIDE, .probe_count = PROBES, .process_count = 1}};
    return tl_drain_counts(&memory, probe, 1, hits, diag);
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
    struct tl_data_header header = {.magic = TL_DATA_MAGIC, .stride = stride};
    assert_int_equal(pwrite(fd, &header, sizeof header, 0), sizeof header);
    for (unsigned i = 0; i < 40; i++) {
        uint64_t block = i * 37 % BLOCKS, probe = i * 523 % 1500, value = i + 1;
        uint64_t off = TL_BLOCK_FIRST_OFF + block * stride + TL_BLOCK_HEADER_SIZE + 8 * probe;
        assert_int_equal(pwrite(fd, &value, sizeof value, (off_t)off), sizeof value);
        expected[probe] += value;
    }
    struct stat before, after;
    fstat(fd, &before);
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    assert_int_equal(tl_drain_counts(&(struct tl_drain_memory){.data = data, .size = size, .fd = fd,
                                                               .layout = {.stride = stride, .probe_count = 1500,
                                                                          .process_count = 1}},
                                     0, 1500, hits, NULL), 0);
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
    header_write(data, STRIDE);
    uint64_t expected[PROBES] = {0};
    for (size_t block = 0; block < BLOCKS; block++) {
        for (uint32_t probe = 0; probe < PROBES; probe++) {
            counter_write(data, block, probe, block * 1000 + probe);
            expected[probe] += block * 1000 + probe;
        }
    }
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        uint64_t hits = 0;
        assert_int_equal(count_one(data, SIZE, probe, &hits, NULL), 0);
        assert_int_equal(hits, expected[probe]);
    }
    (void)munmap(base, base_size);
}

static void test_hostile_headers_are_errors(void **state)
{
    (void)state;
    const struct {
        uint64_t magic, stride;
        uint32_t probe;
        size_t size;
    } rows[] = {
        {0, STRIDE, 0, SIZE},
        {TL_DATA_MAGIC + 1, STRIDE, 0, SIZE},
        {TL_DATA_MAGIC, 0, 0, SIZE},
        {TL_DATA_MAGIC, 8, 0, SIZE},
        {TL_DATA_MAGIC, STRIDE + 1, 0, SIZE},
        {TL_DATA_MAGIC, STRIDE + 8, 0, SIZE},
        {TL_DATA_MAGIC, UINT64_MAX, 0, SIZE},
        {TL_DATA_MAGIC, UINT64_MAX - 7, 0, SIZE},
        {TL_DATA_MAGIC, UINT64_MAX / BLOCKS + 8, 0, SIZE},
        {TL_DATA_MAGIC, 1ull << 63, 0, SIZE},
        {TL_DATA_MAGIC, STRIDE, (STRIDE - TL_BLOCK_HEADER_SIZE) / 8, SIZE}, // just behind the last
        {TL_DATA_MAGIC, STRIDE, UINT32_MAX, SIZE},
        {TL_DATA_MAGIC, STRIDE, 0, SIZE - 8},
        {TL_DATA_MAGIC, STRIDE, 0, TL_BLOCK_FIRST_OFF},
        {TL_DATA_MAGIC, STRIDE, 0, TL_BLOCK_FIRST_OFF - 8},
        {TL_DATA_MAGIC, STRIDE, 0, 8},
        {TL_DATA_MAGIC, STRIDE, 0, 0},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(rows); i++) {
        void *base;
        size_t base_size;
        unsigned char *data = guarded(rows[i].size, &base, &base_size);
        struct tl_data_header header = {.magic = rows[i].magic, .stride = rows[i].stride};
        size_t room = rows[i].size < sizeof header ? rows[i].size : sizeof header;
        memcpy(data, &header, room);
        uint64_t hits = 42;
        struct tl_diag diag = {{0}};
        int error = count_one(data, rows[i].size, rows[i].probe, &hits, &diag);
        if (error != TL_E_FORMAT || hits != 42 || !diag.text[0])
            fail_msg("row %zu: error %d, hits %llu", i, error, (unsigned long long)hits);
        (void)munmap(base, base_size);
    }
    assert_int_equal(count_one(NULL, SIZE, 0, NULL, NULL), TL_E_FORMAT);
}

static void test_random_bytes_are_never_read_outside(void **state)
{
    (void)state;
    const char *given = getenv("TL_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
    print_message("seed %u (TL_SEED takes it back)\n", seed);
    srandom(seed);
    void *base;
    size_t base_size;
    unsigned char *data = guarded(SIZE, &base, &base_size);
    size_t accepted = 0;
    for (int i = 0; i < ROUNDS; i++) {
        header_write(data, STRIDE);
        // A random change in the header, of a byte or of the whole stride.
        if (i % 2)
            data[(size_t)random() % sizeof(struct tl_data_header)] ^= (unsigned char)random();
        else
            header_write(data, (uint64_t)random() % (4 * STRIDE));
        size_t size = SIZE - (size_t)(random() % 3) * 8;
        uint64_t hits = 0;
        // The end of what is given is the end of what can be read.
        unsigned char *start = data + (SIZE - size);
        memmove(start, data, sizeof(struct tl_data_header));
        if (!count_one(start, size, (uint32_t)random() % 64, &hits, NULL))
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
        cmocka_unit_test(test_hostile_headers_are_errors),
        cmocka_unit_test(test_random_bytes_are_never_read_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

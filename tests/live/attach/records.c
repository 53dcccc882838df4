// Events of live programs: each thread's records bear its own id, with every libc; a target that
// may not read the processor's counter is stamped with the coarse clock; blocks for thousands of
// threads and children cost address space only.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "helper.h"
#include "victim.h"

#include <dirent.h>
#include <errno.h>
#include <sys/prctl.h>
#include <unistd.h>

#define RING_SLOTS 1024u
#define THREADS 8
#define COUNTER_OFF(probe) (TL_BLOCK_HEADER_SIZE + 8u * (probe))

static const struct tl_record events[HAND_PLANS] = {
    {.kind = TL_RECORD_EVENT, .counter_off = COUNTER_OFF(0)},
    {.kind = TL_RECORD_EVENT, .counter_off = COUNTER_OFF(1)},
};
static const struct tl_install_options with_rings = {
    .probe_count = HAND_PLANS, .ring_slots = RING_SLOTS, .clock = true};

struct live {
    struct victim victim;
    struct tl_target *target;
    struct tl_install *install;
};

// False where the target was refused since no call can be made in it (see probe_and_detach in attach.c).
static bool live_start(struct live *live, const char *path, const char *mode,
                       const struct tl_install_options *options)
{
    char threads[8];
    struct tl_diag diag = {""};
    (void)snprintf(threads, sizeof threads, "%d", THREADS);
    char *argv[] = {(char *)(uintptr_t)path, (char *)(uintptr_t)mode, threads, NULL};
    victim_start_argv(&live->victim, argv);
    if (records_put(live->victim.pid, &live->victim, options, events, &live->target, &live->install,
                    &diag) == 0)
        return true;
    if (!strstr(diag.text, "lies too far"))
        fail_msg("%s: %s", path, diag.text);
    victim_kill(&live->victim);
    return false;
}

static void live_end(struct live *live)
{
    probes_take(live->install);
    assert_true(text_is_files(live->victim.pid));
    tl_install_destroy(live->install);
    tl_target_close(live->target);
    assert_int_equal(victim_end(&live->victim), 0);
}

static const struct tl_ring_header *ring_of(const struct tl_install *install, size_t block)
{
    const uint8_t *data = install->data;
    return (const struct tl_ring_header *)(const void *)(data + TL_BLOCK_FIRST_OFF +
                                                         block * install->blocks.stride +
                                                         install->blocks.ring_off);
}

static const struct tl_ring_slot *slots_of(const struct tl_ring_header *ring)
{
    return (const struct tl_ring_slot *)(const void *)(ring + 1);
}

// Ids of the threads that wait in it, but for the first.
static size_t threads_list(pid_t pid, uint32_t *out, size_t max)
{
    char path[64];
    size_t count = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        uint32_t tid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        if (tid && tid != (uint32_t)pid && count < max)
            out[count++] = tid;
    }
    closedir(dir);
    return count;
}

static void threads_compare(const struct live *live, const uint32_t *tids)
{
    unsigned seen[THREADS] = {0};
    for (size_t block = 0; block < TL_THREAD_SLOTS; block++) {
        const struct tl_ring_header *ring = ring_of(live->install, block);
        if (!ring->head)
            continue;
        assert_int_equal(ring->head, RING_SLOTS); // more calls than room
        uint32_t tid = TL_RING_TID(slots_of(ring)[0].word);
        size_t known = 0;
        while (known < THREADS && tids[known] != tid)
            known++;
        assert_true(known < THREADS);
        seen[known]++;
        for (size_t i = 0; i < RING_SLOTS; i++) {
            const struct tl_ring_slot *slot = &slots_of(ring)[i];
            assert_int_equal(TL_RING_TID(slot->word), tid);
            assert_int_equal(TL_RING_KIND(slot->word), TL_RING_ENTRY);
            assert_true(i == 0 || slot->time >= slots_of(ring)[i - 1].time);
        }
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(seen[i], 1);
}

static void events_bear_their_threads_ids(void **state)
{
    (void)state;
    static const char *const suffix[] = {"", "-static", "-musl"};
    for (size_t i = 0; i < TL_ARRAY_COUNT(suffix); i++) {
        struct live live;
        uint32_t tids[THREADS];
        char path[4096];
        (void)snprintf(path, sizeof path, "%s%s", VICTIM_PATH, suffix[i]);
        if (access(path, X_OK) != 0) { // no musl here
            assert_true(i == 2);
            continue;
        }
        if (!live_start(&live, path, "exact", &with_rings)) {
            assert_true(i > 0); // with a libc of its own
            continue;
        }
        struct tl_install_facts facts;
        tl_install_facts(live.install, &facts);
        assert_true(facts.tid_off != 0);
        assert_int_equal(threads_list(live.victim.pid, tids, THREADS), THREADS);
        victim_go(&live.victim);
        victim_await(&live.victim);
        threads_compare(&live, tids);
        assert_int_equal(hits_of(live.install, 0), (uint64_t)THREADS * VICTIM_CALLS);
        assert_int_equal(hits_of(live.install, 1), (uint64_t)THREADS * VICTIM_CALLS);
        live_end(&live);
    }
}

static void without_a_counter_the_coarse_clock_is_kept(void **state)
{
    (void)state;
    struct live live;
    int counter;
    if (prctl(PR_GET_TSC, &counter) != 0) { // Linux 7.2 on riscv64, 6.12 on arm64: always readable
        assert_int_equal(errno, EINVAL);
        skip();
    }
    assert_true(live_start(&live, VICTIM_PATH, "blind", &with_rings));
    struct tl_install_facts facts;
    tl_install_facts(live.install, &facts);
    assert_int_equal(facts.clock, TL_CLOCK_COARSE);
    uint64_t before = tl_now_ns();
    tl_install_clock_tick(live.install);
    victim_go(&live.victim);
    victim_await(&live.victim);
    size_t seen = 0;
    for (size_t block = 0; block <= TL_THREAD_SLOTS; block++) {
        const struct tl_ring_header *ring = ring_of(live.install, block);
        for (uint64_t i = 0; i < ring->head; i++, seen++)
            assert_true(slots_of(ring)[i].time >= before && slots_of(ring)[i].time <= tl_now_ns());
    }
    assert_int_equal(seen, THREADS * RING_SLOTS);
    live_end(&live);
}

// "VmRSS:" and the like, KiB.
static uint64_t status_kib(pid_t pid, const char *key)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtoull(line + strlen(key), NULL, 10);
    }
    (void)fclose(file);
    return kib;
}

static void many_blocks_cost_address_space_only(void **state)
{
    (void)state;
    static const struct tl_install_options large = {.probe_count = HAND_PLANS,
                                                    .hist_count = HAND_PLANS,
                                                    .ring_slots = 65536,
                                                    .process_count = 16,
                                                    .follow = true,
                                                    .clock = true};
    struct live live;
    uint64_t mine = status_kib(getpid(), "VmRSS:");
    assert_true(live_start(&live, VICTIM_PATH, "exact", &large));
    assert_true(status_kib(live.victim.pid, "VmSize:") > 16u << 20); // GiBs
    assert_true(status_kib(live.victim.pid, "VmRSS:") < 16u << 10);
    victim_go(&live.victim);
    victim_await(&live.victim);
    assert_int_equal(hits_of(live.install, 0), (uint64_t)THREADS * VICTIM_CALLS);
    assert_true(status_kib(getpid(), "VmRSS:") < mine + (32u << 10));
    live_end(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_bear_their_threads_ids),
        cmocka_unit_test(without_a_counter_the_coarse_clock_is_kept),
        cmocka_unit_test(many_blocks_cost_address_space_only),
    };
    cmocka_set_test_filter(getenv("TL_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

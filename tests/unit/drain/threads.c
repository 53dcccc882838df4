// Rings written by threads, each by its own and one by several, while they are read: what comes out
// is in order, each thread's records in its own order, and exactly what was not dropped. Built a
// second time under ThreadSanitizer.
#include "writer.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>

#include <cmocka.h>

#define THREADS 6
#define SHARERS 3 // the last threads, in the block that is shared
#define HITS 60000u
#define PROBES 7u
#define HANDLER THREADS // its records' number: what signals do to the first thread

struct work {
    pthread_t thread;
    struct writer writer;
    uint64_t slowest_ns; // from before a reservation to behind the last store
};

struct seen {
    uint64_t last_ns, count;
    uint64_t next_value[THREADS + 1]; // no record of the thread below it may come
    uint64_t by_thread[THREADS + 1];
    uint64_t wrong;
};

static unsigned running;
static struct work work[THREADS];
static struct writer handler; // on the first thread's ring
static uint64_t handler_hits;

// Lands anywhere in the first thread's records.
static void on_signal(int number)
{
    (void)number;
    uint64_t position, i = handler_hits++;
    uint32_t probe = (uint32_t)(i % PROBES);
    if (!writer_reserve(&handler, probe, &position))
        return;
    writer_fill(&handler, position, tl_clock_ticks(true), i * 16);
    writer_finish(&handler, position, probe, TL_RING_ENTRY);
}

static void *work_run(void *argument)
{
    struct work *own = argument;
    for (uint64_t i = 0; i < HITS; i++) {
        uint64_t position, start = tl_clock_ticks(true);
        uint32_t probe = (uint32_t)(i % PROBES);
        if (!writer_reserve(&own->writer, probe, &position)) {
            (void)sched_yield(); // lets the reader make room, so that most are not dropped
            continue;
        }
        writer_fill(&own->writer, position, tl_clock_ticks(true), i * 16);
        writer_finish(&own->writer, position, probe, TL_RING_ENTRY);
        uint64_t took = tl_clock_ticks(true) - start;
        own->slowest_ns = took > own->slowest_ns ? took : own->slowest_ns;
    }
    (void)__atomic_fetch_sub(&running, 1, __ATOMIC_RELEASE);
    return NULL;
}

static int event_check(void *opaque, uint32_t source, const struct tl_raw_event *event)
{
    struct seen *seen = opaque;
    uint32_t thread = event->tid - 1;
    bool right = source == 0 && event->process == 0 && thread <= HANDLER &&
                 event->time_ns >= seen->last_ns && event->probe == event->arg[0] / 16 % PROBES &&
                 event->arg[0] >= seen->next_value[thread] && event->kind == TL_RING_ENTRY;
    for (uint64_t i = 0; i < TL_EVENT_ARGS; i++)
        right = right && event->arg[i] == event->arg[0] + i;
    seen->wrong += !right;
    seen->last_ns = event->time_ns;
    seen->count++;
    if (thread <= HANDLER) {
        seen->next_value[thread] = event->arg[0] + 16;
        seen->by_thread[thread]++;
    }
    return 0;
}

static void test_threads_come_out_in_order_and_exact(void **state)
{
    (void)state;
    struct shared shared;
    struct tl_stream *stream;
    struct tl_clock_map clock;
    struct seen seen = {0};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    shared_create(&shared, 1, PROBES, 256);
    tl_clock_map_init(&clock, true);
    // A coarse clock that never lags: the records have the time itself.
    ((struct tl_data_header *)shared.memory.data)->coarse_ns = UINT64_MAX;
    assert_int_equal(tl_stream_create(&stream, NULL), 0);
    assert_int_equal(tl_stream_add_memory(stream, &shared.memory, NULL), 0);
    writer_init(&handler, &shared, 0, HANDLER + 1);
    running = THREADS;
    for (uint32_t i = 0; i < THREADS; i++) {
        uint64_t block = i < THREADS - SHARERS ? 3 * i : TL_BLOCK_COUNT - 1;
        writer_init(&work[i].writer, &shared, block, i + 1);
        assert_int_equal(pthread_create(&work[i].thread, NULL, work_run, &work[i]), 0);
    }
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) {
        (void)pthread_kill(work[0].thread, SIGUSR1);
        assert_true(tl_stream_read(stream, &clock, false, event_check, &seen, NULL) >= 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(work[i].thread, NULL), 0);
    assert_true(tl_stream_read(stream, &clock, true, event_check, &seen, NULL) >= 0);

    uint64_t hits[PROBES], hit_sum = 0, delivered = 0, dropped = handler.dropped, slowest_ns = 0;
    assert_int_equal(tl_drain_counts(&shared.memory, 0, PROBES, hits, NULL), 0);
    for (uint32_t i = 0; i < PROBES; i++) {
        hit_sum += hits[i];
        delivered += tl_stream_delivered(stream, 0, i);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        dropped += work[i].writer.dropped;
        slowest_ns = work[i].slowest_ns > slowest_ns ? work[i].slowest_ns : slowest_ns;
        assert_true(seen.by_thread[i] <= work[i].writer.reserved);
    }
    print_message("%llu delivered, %llu of handlers, %llu dropped, slowest record %llu us\n",
                  (unsigned long long)delivered, (unsigned long long)seen.by_thread[HANDLER],
                  (unsigned long long)dropped, (unsigned long long)slowest_ns / 1000);
    assert_int_equal(seen.wrong, 0);
    assert_int_equal(seen.count, delivered);
    assert_int_equal(hit_sum, (uint64_t)THREADS * HITS + handler_hits);
    // Only a writer that the machine held up for longer than the patience may lose its record.
    if (slowest_ns < TL_STREAM_PATIENCE_MS * 1000000ull / 2)
        assert_int_equal(delivered + dropped, hit_sum);
    else
        assert_true(delivered + dropped <= hit_sum);
    tl_stream_destroy(stream);
    shared_destroy(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_come_out_in_order_and_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Calls whose arguments say who made them and when. One way per mode, argv[1]; see told.h.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "told.h"

#define THREADS 8u
#define CALLS 2000u
#define CROWD 300u

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t own_tid(void)
{
    return (uint64_t)syscall(SYS_gettid);
}

// ---- six arguments ------------------------------------------------------------------------------

PROBED uint64_t takes(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
    return a ^ (b << 1) ^ (c << 2) ^ (d << 3) ^ (e << 4) ^ (f << 5);
}

static void arguments(void)
{
    static const uint64_t edges[] = {
        0,          1,         INT32_MAX,           (uint64_t)INT32_MAX + 1,
        UINT32_MAX, INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX};
    uint64_t random = 88172645463325252u;
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t a[6];
        for (size_t k = 0; k < 6; k++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            a[k] = i % 2 ? random : edges[random % 8];
        }
        uint64_t value = takes(a[0], a[1], a[2], a[3], a[4], a[5]);
        printf("args takes %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
               "\n",
               a[0], a[1], a[2], a[3], a[4], a[5]);
        printf("ret takes %" PRIu64 " 64\n", value);
    }
    expect("takes", 1000, 1000);
}

// ---- who and when -------------------------------------------------------------------------------

// Thread, number of the call, tid, pid, time just before.
PROBED uint64_t marks(uint64_t thread, uint64_t number, uint64_t tid, uint64_t pid, uint64_t before)
{
    volatile uint64_t kept = thread ^ tid ^ pid ^ before;
    return number + (kept & 0);
}

static void *marking_thread(void *opaque)
{
    uint64_t tid = own_tid(), pid = (uint64_t)getpid(), thread = (uint64_t)(uintptr_t)opaque;
    for (uint64_t i = 0; i < CALLS; i++) {
        if (marks(thread, i, tid, pid, now_ns()) != i)
            fail("wrong result");
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, marking_thread, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    expect("marks", THREADS * CALLS, THREADS * CALLS);
}

static pthread_barrier_t all_there;
static void *crowded_thread(void *opaque)
{
    uint64_t tid = own_tid(), pid = (uint64_t)getpid(), thread = (uint64_t)(uintptr_t)opaque;
    pthread_barrier_wait(&all_there);
    for (uint64_t i = 0; i < 50; i++)
        marks(thread, i, tid, pid, now_ns());
    pthread_barrier_wait(&all_there);
    return NULL;
}

// More threads at once than there are places for.
static void crowd(void)
{
    static pthread_t thread[CROWD];
    pthread_barrier_init(&all_there, NULL, CROWD);
    for (size_t i = 0; i < CROWD; i++) {
        if (pthread_create(&thread[i], NULL, crowded_thread, (void *)i) != 0)
            fail("pthread_create");
    }
    for (size_t i = 0; i < CROWD; i++)
        pthread_join(thread[i], NULL);
    expect("marks", CROWD * 50, CROWD * 50);
}

// Two thousand threads one after the other: places and thread ids are used again.
static void *short_thread(void *opaque)
{
    marks((uint64_t)(uintptr_t)opaque, 0, own_tid(), (uint64_t)getpid(), now_ns());
    return NULL;
}

static void successors(void)
{
    for (uint64_t i = 0; i < 2000; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, short_thread, (void *)(uintptr_t)i);
        pthread_join(thread, NULL);
    }
    expect("marks", 2000, 2000);
}

// ---- order --------------------------------------------------------------------------------------

PROBED uint64_t nested_leaf(uint64_t number)
{
    volatile uint64_t kept = number;
    return kept * 2;
}
PROBED uint64_t nested_middle(uint64_t number)
{
    volatile uint64_t kept = nested_leaf(number);
    return kept + nested_leaf(number + 1);
}
PROBED uint64_t nested_top(uint64_t number)
{
    volatile uint64_t kept = nested_middle(number);
    return kept + 1;
}

static void nested(void)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 500; i++)
        sum += nested_top(i);
    printf("sum %" PRIu64 "\n", sum);
    expect("nested_top", 500, 500);
    expect("nested_middle", 500, 500);
    expect("nested_leaf", 1000, 1000);
}

// ---- a flood until told to stop -----------------------------------------------------------------

static volatile sig_atomic_t stopped;
static void *waits_for_end(void *opaque)
{
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    stopped = 1;
    return opaque;
}

// Its progress can be read from the file argv[2] at any time.
static void flood(const char *path)
{
    pthread_t thread;
    int file = open(path, O_RDWR);
    volatile uint64_t *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (progress == MAP_FAILED)
        fail("mmap");
    const uint64_t tid = own_tid(), pid = (uint64_t)getpid();
    uint64_t number = 0;
    pthread_create(&thread, NULL, waits_for_end, NULL);
    printf("ready\n");
    fflush(stdout);
    while (!stopped) {
        if (marks(0, number, tid, pid, 0) != number)
            fail("wrong result");
        *progress = ++number;
    }
    pthread_join(thread, NULL);
    expect("marks", number, number);
}

static const struct mode {
    const char *name;
    void (*run)(void);
} modes[] = {{"arguments", arguments},
             {"threads", threads},
             {"crowd", crowd},
             {"successors", successors},
             {"nested", nested}};

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "flood") == 0) {
        flood(argv[2]);
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: %s MODE\n", argv[0]);
    return 2;
}

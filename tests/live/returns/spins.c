// Functions that know how long they took: measured inside, and by the caller outside. What a probe
// says lies between the two. One way per mode, argv[1]; lines "inside NAME NS.." and "outside NAME
// NS..".
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "told.h"

#define TIMES_MAX 20000u
#define LENGTHS 8u

struct times {
    const char *name;
    uint32_t count;
    uint64_t inside[TIMES_MAX], outside[TIMES_MAX];
};

static struct times spin_times = {.name = "spins"}, rest_times = {.name = "rests"};
static struct times nest_times = {.name = "nests"}, leaf_times = {.name = "leaf"};

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void tell(const struct times *times)
{
    printf("inside %s", times->name);
    for (uint32_t i = 0; i < times->count; i++)
        printf(" %" PRIu64, times->inside[i]);
    printf("\noutside %s", times->name);
    for (uint32_t i = 0; i < times->count; i++)
        printf(" %" PRIu64, times->outside[i]);
    printf("\n");
    expect(times->name, times->count, times->count);
}

PROBED void spins(uint64_t length_ns, uint64_t *inside)
{
    uint64_t begin = now_ns(), end;
    do
        end = now_ns();
    while (end - begin < length_ns);
    *inside = end - begin;
}

static const uint64_t lengths_ns[LENGTHS] = {0, 200, 1000, 5000, 20000, 50000, 200000, 1000000};

static void spin(void)
{
    for (uint32_t i = 0; i < 1600; i++) {
        uint32_t at = spin_times.count++;
        uint64_t begin = now_ns();
        spins(lengths_ns[i % (i % 16 ? 6 : LENGTHS)], &spin_times.inside[at]);
        spin_times.outside[at] = now_ns() - begin;
    }
    tell(&spin_times);
}

PROBED void rests(uint64_t length_ns, uint64_t *inside)
{
    struct timespec time = {0, (long)length_ns};
    uint64_t begin = now_ns();
    nanosleep(&time, NULL);
    *inside = now_ns() - begin;
}

static void rest(void)
{
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t at = rest_times.count++;
        uint64_t begin = now_ns();
        rests(1000 * i, &rest_times.inside[at]);
        rest_times.outside[at] = now_ns() - begin;
    }
    tell(&rest_times);
}

// Each level is timed by the one above.
PROBED void leaf(uint64_t length_ns, uint64_t *inside)
{
    spins(length_ns, inside);
    __asm__ volatile(""); // or the call would be a jump, and the function be left before it
}

PROBED void nests(uint64_t levels, uint64_t *inside)
{
    uint64_t begin = now_ns();
    if (levels) {
        uint32_t at = nest_times.count++;
        uint64_t outer = now_ns();
        nests(levels - 1, &nest_times.inside[at]);
        nest_times.outside[at] = now_ns() - outer;
    } else {
        uint32_t at = leaf_times.count++;
        uint64_t outer = now_ns();
        leaf(3000, &leaf_times.inside[at]);
        leaf_times.outside[at] = now_ns() - outer;
    }
    *inside = now_ns() - begin;
}

static void nest(void)
{
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t at = nest_times.count++;
        uint64_t outer = now_ns();
        nests(99, &nest_times.inside[at]);
        nest_times.outside[at] = now_ns() - outer;
    }
    tell(&nest_times);
    tell(&leaf_times);
}

static void *spin_thread(void *opaque)
{
    (void)opaque;
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t at = __atomic_fetch_add(&spin_times.count, 1, __ATOMIC_RELAXED);
        uint64_t begin = now_ns();
        spins(lengths_ns[i % 5], &spin_times.inside[at]);
        spin_times.outside[at] = now_ns() - begin;
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[8];
    for (size_t i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, spin_thread, NULL);
    for (size_t i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    tell(&spin_times);
}

// Coroutines inside the timed function, so that its times overlap on one thread.
#define COROUTINES 10u
static ucontext_t home, routine[COROUTINES];
static char stacks[COROUTINES][65536];

PROBED void waits_turn(uint32_t index, uint64_t *inside)
{
    uint64_t begin = now_ns();
    for (uint32_t i = 0; i < 50; i++)
        swapcontext(&routine[index], &home);
    *inside = now_ns() - begin;
}

static struct times turn_times = {.name = "waits_turn"};
static void routine_main(int index)
{
    uint32_t at = turn_times.count++;
    uint64_t begin = now_ns();
    waits_turn((uint32_t)index, &turn_times.inside[at]);
    turn_times.outside[at] = now_ns() - begin;
}

static void coroutines(void)
{
    for (uint32_t i = 0; i < COROUTINES; i++) {
        getcontext(&routine[i]);
        routine[i].uc_stack.ss_sp = stacks[i];
        routine[i].uc_stack.ss_size = sizeof stacks[i];
        routine[i].uc_link = &home;
        makecontext(&routine[i], (void (*)(void))routine_main, 1, i);
    }
    for (uint32_t round = 0; round <= 50; round++) {
        for (uint32_t i = 0; i < COROUTINES; i++)
            swapcontext(&home, &routine[i]);
    }
    tell(&turn_times);
}

// Until standard input ends: probes come and go meanwhile.
static void *reads_to_end(void *opaque)
{
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    __atomic_store_n((int *)opaque, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void forever(void)
{
    int over = 0;
    uint64_t inside = 0, calls = 0;
    pthread_t reader;
    pthread_create(&reader, NULL, reads_to_end, &over);
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        spins(1000, &inside);
        calls++;
    }
    pthread_join(reader, NULL);
    printf("calls %" PRIu64 "\n", calls);
}

static const struct mode {
    const char *name;
    void (*run)(void);
} modes[] = {{"spin", spin},
             {"rest", rest},
             {"nest", nest},
             {"threads", threads},
             {"coroutines", coroutines},
             {"forever", forever}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: %s MODE\n", argv[0]);
    return 2;
}

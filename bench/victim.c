// The program that the bench probes: calls a site as often as it is told and says how long it took.
//
// It knows nothing of probes. Lines on stdin: "run CASE CALLS"; answers on stdout: "ns TIME", TIME
// being that of 1,000 calls, or "no". "sites" is answered by "sites NAME...", the cases of this
// processor. It first prints "ready". The calls are made in parts and the
// median part is told, so that a preemption or a slow moment of the machine is left out.
// The cases fork and forkcall make children instead, which end at once or after one call of a
// function.
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t tl_bench_calls(void (*site)(void), uint64_t calls);
#define SITE(function, name) void tl_site_##function(void);
#include "sites.h"
#undef SITE
void tl_bench_clock(void);
void tl_many_0(void);
uint64_t tl_site_func(uint64_t x);
uint64_t tl_site_func_helper(uint64_t x);

// A function as the compiler makes it: a frame, a call, registers to keep.
__attribute__((noinline, noipa)) uint64_t tl_site_func_helper(uint64_t x)
{
    return x ^ (x >> 3);
}

__attribute__((noinline, noipa)) uint64_t tl_site_func(uint64_t x)
{
    uint64_t y = tl_site_func_helper(x + 1);
    return x * 3 + y;
}

static const struct {
    const char *name;
    void (*site)(void);
} sites[] = {
#define SITE(function, name) {name, tl_site_##function},
#include "sites.h"
#undef SITE
    {"func", (void (*)(void))tl_site_func},
    {"clock", tl_bench_clock},
};

#define SITE_COUNT (sizeof sites / sizeof sites[0])

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#define PARTS_MAX 200       // each short beside a time slice, with the kernel's probes too
#define PART_CALLS_MIN 100u // each long beside a read of the clock
#define FORKS_MAX 1000u

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *time, size_t count)
{
    qsort(time, count, sizeof *time, compare);
    return time[count / 2];
}

// Exactly `calls` calls; ns of the median part, for 1,000 calls. 0: something went wrong.
static uint64_t run(void (*site)(void), uint64_t calls)
{
    uint64_t time[PARTS_MAX], made = 0;
    size_t parts = calls / PART_CALLS_MIN < PARTS_MAX ? calls / PART_CALLS_MIN : PARTS_MAX;
    if (!parts)
        return 0;
    uint64_t part = calls / parts;
    for (size_t i = 0; i < parts; i++) {
        uint64_t start = now_ns();
        made += tl_bench_calls(site, part);
        time[i] = (now_ns() - start) * 1000 / part;
    }
    made += tl_bench_calls(site, calls - made);
    return made == calls ? median(time, parts) : 0;
}

// From fork() to the child's end. 0: something went wrong.
static uint64_t run_forks(uint64_t count, bool call)
{
    uint64_t time[FORKS_MAX];
    if (!count || count > FORKS_MAX)
        return 0;
    for (size_t i = 0; i < count; i++) {
        int status = -1;
        uint64_t start = now_ns();
        pid_t pid = fork();
        if (pid == 0) {
            if (call)
                tl_many_0();
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
            return 0;
        time[i] = (now_ns() - start) * 1000;
    }
    return median(time, count);
}

static uint64_t run_named(const char *name, uint64_t calls)
{
    if (strcmp(name, "fork") == 0 || strcmp(name, "forkcall") == 0)
        return run_forks(calls, strcmp(name, "forkcall") == 0);
    for (size_t i = 0; i < SITE_COUNT; i++) {
        if (strcmp(name, sites[i].name) == 0)
            return run(sites[i].site, calls);
    }
    return 0;
}

static void sites_print(void)
{
    printf("sites");
    for (size_t i = 0; i < SITE_COUNT; i++)
        printf(" %s", sites[i].name);
    printf(" fork forkcall\n");
}

int main(void)
{
    char line[128];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "sites\n") == 0) {
            sites_print();
            continue;
        }
        const char *word = strtok(line, " "), *name = strtok(NULL, " "), *calls = strtok(NULL, " ");
        uint64_t time = 0;
        if (word && name && calls && strcmp(word, "run") == 0)
            time = run_named(name, strtoull(calls, NULL, 10));
        if (time)
            printf("ns %" PRIu64 "\n", time);
        else
            printf("no\n");
    }
    return 0;
}

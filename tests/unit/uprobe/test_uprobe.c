// The kernel rung against real processes, each way once: who is counted, who is not, and that the
// target's fork and pthread_create still work.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "attach/proc.h"
#include "attach/uprobe.h"

#define THREADS 8
#define CALLS 2000u
#define ANSWER_TIMEOUT_MS 20000
#define USER_NOBODY 65534
#define STATUS_SKIP 77

uint64_t target_one(uint64_t x);
uint64_t target_two(uint64_t x);

__attribute__((noinline, noipa)) uint64_t target_one(uint64_t x)
{
    return x * 3 + 1;
}

__attribute__((noinline, noipa)) uint64_t target_two(uint64_t x)
{
    return x * 5 + 2;
}

// ---- the target: a child that does what a letter on a pipe says
// -------------------------------------

static void *thread_calls(void *count)
{
    uint64_t x = 0;
    for (size_t i = 0; i < *(const size_t *)count; i++)
        x = target_one(x);
    return x ? NULL : count;
}

static bool threads_run(size_t count)
{
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&thread[i], NULL, thread_calls, &count))
            return false;
    }
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(thread[i], NULL);
    return true;
}

static bool forked_child_runs(size_t count)
{
    pid_t pid = fork();
    if (pid < 0)
        return false;
    if (!pid) {
        (void)thread_calls(&count);
        _exit(0);
    }
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

// A pool that exists before the probes do.
struct pool {
    pthread_barrier_t start, end;
    size_t count;
};

static void *pool_thread(void *opaque)
{
    struct pool *pool = opaque;
    for (;;) {
        (void)pthread_barrier_wait(&pool->start);
        (void)thread_calls(&pool->count);
        (void)pthread_barrier_wait(&pool->end);
    }
    return NULL;
}

static void target_main(int in, int out)
{
    static struct pool pool;
    pool.count = CALLS;
    (void)pthread_barrier_init(&pool.start, NULL, THREADS + 1);
    (void)pthread_barrier_init(&pool.end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, pool_thread, &pool))
            _exit(1);
    }
    if (write(out, "r", 1) != 1) // the pool is there
        _exit(1);
    for (char letter; read(in, &letter, 1) == 1;) {
        char answer = 'y';
        size_t count = CALLS;
        switch (letter) {
        case '1': // the leader
            (void)thread_calls(&count);
            break;
        case '2':
            for (size_t i = 0; i < count; i++)
                (void)target_two(i);
            break;
        case 'p': // threads that are there already
            (void)pthread_barrier_wait(&pool.start);
            (void)pthread_barrier_wait(&pool.end);
            break;
        case 't': // threads born now
            answer = threads_run(count) ? 'y' : 'n';
            break;
        case 'f': // a child of its own
            answer = forked_child_runs(count) ? 'y' : 'n';
            break;
        default:
            break;
        }
        if (write(out, &answer, 1) != 1)
            break;
    }
    _exit(0);
}

struct target {
    pid_t pid;
    int in, out;
};

// flags: of clone(2), for namespaces.
static int target_start_in(struct target *target, unsigned long flags)
{
    int to[2], from[2];
    char ready = 0;
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        return -1;
    target->pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (!target->pid) {
        (void)close(to[1]);
        (void)close(from[0]);
        target_main(to[0], from[1]);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    target->in = to[1];
    target->out = from[0];
    return target->pid > 0 && read(target->out, &ready, 1) == 1 ? 0 : -1;
}

static int target_start(struct target *target)
{
    return target_start_in(target, 0);
}

static void target_do(struct target *target, char letter)
{
    char answer = 0;
    struct pollfd fd = {.fd = target->out, .events = POLLIN};
    assert_int_equal(write(target->in, &letter, 1), 1);
    assert_int_equal(poll(&fd, 1, ANSWER_TIMEOUT_MS), 1);
    assert_int_equal(read(target->out, &answer, 1), 1);
    assert_int_equal(answer, 'y');
}

static void target_end(struct target *target)
{
    (void)close(target->in);
    (void)close(target->out);
    (void)kill(target->pid, SIGKILL);
    (void)waitpid(target->pid, NULL, 0);
}

// ---- sites
// ------------------------------------------------------------------------------------------

static uint64_t file_off_of(uint64_t (*function)(uint64_t))
{
    unsigned long start = 0, end = 0, off = 0;
    uint64_t addr = (uint64_t)(uintptr_t)function, found = UINT64_MAX;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &off) == 3 && addr >= start && addr < end)
            found = addr - start + off;
    }
    (void)fclose(maps);
    assert_true(found != UINT64_MAX);
    return found;
}

#define SELF "/proc/self/exe"

static uint64_t hits(struct tl_uprobes *uprobes, size_t index)
{
    uint64_t value = UINT64_MAX;
    assert_int_equal(tl_uprobes_count(uprobes, index, &value, NULL), 0);
    return value;
}

// The way's own words: with `state` the way is forced, so each is tried on every kernel that has
// it.
static struct tl_uprobes *create(void **state, pid_t pid, const struct tl_uprobe_site *sites,
                                 size_t count, int *errors)
{
    enum tl_uprobe_way way = *(const enum tl_uprobe_way *)*state;
    struct tl_uprobes *uprobes = NULL;
    struct tl_diag diag = {{0}};
    int error = tl_uprobes_create_by(way, pid, sites, count, 0, errors, &uprobes, &diag);
    if (error == TL_E_UNSUPPORTED)
        skip();
    if (error)
        fail_msg("%s: %s", tl_uprobe_way_text(way), diag.text);
    assert_int_equal(tl_uprobes_way(uprobes), way);
    return uprobes;
}

// ---- tests
// ------------------------------------------------------------------------------------------

static void test_every_thread_counts_and_nobody_else(void **state)
{
    struct target target, other;
    assert_int_equal(target_start(&target), 0);
    assert_int_equal(target_start(&other), 0);
    const struct tl_uprobe_site sites[] = {{.path = SELF, .file_off = file_off_of(target_one)},
                                           {.path = SELF, .file_off = file_off_of(target_two)}};
    int errors[2];
    struct tl_uprobes *uprobes = create(state, target.pid, sites, 2, errors);
    assert_int_equal(errors[0], 0);
    assert_int_equal(errors[1], 0);
    const struct {
        char letter;
        uint64_t one, two;
    } steps[] = {
        {'1', CALLS, 0}, {'p', CALLS * THREADS, 0},     {'t', CALLS * THREADS, 0},
        {'f', 0, 0},     /* a child */ {'2', 0, CALLS}, {'t', CALLS * THREADS, 0},
    };
    uint64_t one = 0, two = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(steps); i++) {
        target_do(&target, steps[i].letter);
        target_do(&other, steps[i].letter);
        one += steps[i].one;
        two += steps[i].two;
        assert_int_equal(hits(uprobes, 0), one);
        assert_int_equal(hits(uprobes, 1), two);
    }
    tl_uprobes_stop(uprobes);
    target_do(&target, 't'); // it runs on, and counts are kept
    assert_int_equal(hits(uprobes, 0), one);
    assert_int_equal(hits(uprobes, 1), two);
    tl_uprobes_destroy(uprobes);
    target_do(&target, 't');
    target_end(&target);
    target_end(&other);
}

static void test_a_target_in_a_pid_namespace_is_told_apart(void **state)
{
    struct target target, twin; // both are pid 1 of their namespaces
    assert_int_equal(target_start_in(&target, CLONE_NEWPID), 0);
    assert_int_equal(target_start_in(&twin, CLONE_NEWPID), 0);
    const struct tl_uprobe_site site = {.path = SELF, .file_off = file_off_of(target_one)};
    int error;
    struct tl_uprobes *uprobes = create(state, target.pid, &site, 1, &error);
    const char steps[] = "1ptf";
    for (size_t i = 0; steps[i]; i++) {
        target_do(&twin, steps[i]);
        target_do(&target, steps[i]);
    }
    assert_int_equal(hits(uprobes, 0), CALLS * (1 + 2 * THREADS));
    tl_uprobes_destroy(uprobes);
    target_end(&target);
    target_end(&twin);
}

static void test_a_return_is_counted(void **state)
{
    struct target target;
    assert_int_equal(target_start(&target), 0);
    const struct tl_uprobe_site sites[] = {
        {.path = SELF, .file_off = file_off_of(target_one), .ret = true},
        {.path = SELF, .file_off = file_off_of(target_one)}};
    int errors[2];
    struct tl_uprobes *uprobes = create(state, target.pid, sites, 2, errors);
    target_do(&target, '1');
    target_do(&target, 't');
    assert_int_equal(hits(uprobes, 0), CALLS * (THREADS + 1));
    assert_int_equal(hits(uprobes, 1), CALLS * (THREADS + 1));
    tl_uprobes_destroy(uprobes);
    target_end(&target);
}

static void test_one_bad_site_is_one_error(void **state)
{
    struct target target;
    assert_int_equal(target_start(&target), 0);
    const struct tl_uprobe_site sites[] = {{.path = SELF, .file_off = file_off_of(target_one)},
                                           {.path = "/nowhere/at/all", .file_off = 64},
                                           {.path = SELF, .file_off = UINT32_MAX},
                                           {.path = SELF, .file_off = file_off_of(target_two)}};
    int errors[4];
    struct tl_uprobes *uprobes = create(state, target.pid, sites, 4, errors);
    assert_int_equal(errors[0], 0);
    assert_int_equal(errors[1], ENOENT);
    assert_int_not_equal(errors[2], 0);
    assert_int_equal(errors[3], 0);
    target_do(&target, '1');
    target_do(&target, '2');
    assert_int_equal(hits(uprobes, 0), CALLS);
    assert_int_equal(hits(uprobes, 3), CALLS);
    tl_uprobes_destroy(uprobes);
    target_end(&target);
}

static void test_counts_outlive_the_target(void **state)
{
    struct target target;
    assert_int_equal(target_start(&target), 0);
    const struct tl_uprobe_site site = {.path = SELF, .file_off = file_off_of(target_one)};
    int error;
    struct tl_uprobes *uprobes = create(state, target.pid, &site, 1, &error);
    target_do(&target, 'p');
    target_end(&target);
    assert_int_equal(hits(uprobes, 0), CALLS * THREADS);
    tl_uprobes_destroy(uprobes);
}

static void test_counting_events_see_the_threads_that_run(void **state)
{
    (void)state;
    struct target target;
    assert_int_equal(target_start(&target), 0);
    const struct tl_uprobe_site site = {.path = SELF, .file_off = file_off_of(target_one)};
    int error;
    struct tl_uprobes *uprobes = NULL;
    struct tl_diag diag;
    assert_int_equal(tl_uprobes_create_counting(target.pid, &site, 1, &error, &uprobes, &diag), 0);
    target_do(&target, '1');
    target_do(&target, 'p');
    assert_int_equal(hits(uprobes, 0), CALLS * (THREADS + 1));
    tl_uprobes_stop(uprobes);
    target_do(&target, 'p');
    assert_int_equal(hits(uprobes, 0), CALLS * (THREADS + 1));
    tl_uprobes_destroy(uprobes);
    target_end(&target);
}

static void test_too_few_descriptors_is_said_first(void **state)
{
    (void)state;
    enum { SITES = 4096 };
    struct target target;
    assert_int_equal(target_start(&target), 0);
    static struct tl_uprobe_site sites[SITES];
    static int errors[SITES];
    for (int i = 0; i < SITES; i++)
        sites[i] = (struct tl_uprobe_site){.path = SELF, .file_off = file_off_of(target_one)};
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct tl_uprobes *uprobes = NULL;
    struct tl_diag diag = {{0}};
    // The soft limit is raised as far as the hard one allows ...
    assert_int_equal(
        tl_uprobes_create_by(TL_UPROBE_PERF, target.pid, sites, 70, 0, errors, &uprobes, &diag), 0);
    assert_int_equal(errors[69], 0);
    tl_uprobes_destroy(uprobes);
    // ... and no further. A child, since a lowered hard limit stays.
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        low.rlim_cur = low.rlim_max = 256;
        (void)setrlimit(RLIMIT_NOFILE, &low);
        int error =
            tl_uprobes_create_by(TL_UPROBE_PERF, target.pid, sites, SITES, 0, errors, &uprobes, &diag);
        _exit(error == TL_E_LIMIT && strstr(diag.text, "ulimit -n") ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    target_end(&target);
}

static void test_a_vanished_target_is_said(void **state)
{
    (void)state;
    struct target target;
    assert_int_equal(target_start(&target), 0);
    target_end(&target);
    const struct tl_uprobe_site site = {.path = SELF, .file_off = 64};
    int error;
    struct tl_uprobes *uprobes = NULL;
    struct tl_diag diag = {{0}};
    assert_int_equal(tl_uprobes_create(target.pid, &site, 1, 0, &error, &uprobes, &diag), TL_E_GONE);
    assert_null(uprobes);
}

static void test_without_rights_the_reason_is_said(void **state)
{
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct tl_diag diag = {{0}};
        if (setgid(USER_NOBODY) || setuid(USER_NOBODY))
            _exit(2);
        int error = tl_uprobes_available(&diag);
        _exit(error == TL_E_PERM && strstr(diag.text, "CAP_BPF") ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    struct tl_diag diag;
    if (tl_uprobes_available(&diag)) {
        print_message("skipped: %s\n", diag.text);
        return STATUS_SKIP;
    }
    static enum tl_uprobe_way multi = TL_UPROBE_MULTI, perf = TL_UPROBE_PERF;
#define BOTH_WAYS(test)                                                                            \
    {#test " (multi)", test, NULL, NULL, &multi},                                                  \
    {                                                                                              \
#test " (perf)", test, NULL, NULL, &perf                                                   \
    }
    const struct CMUnitTest tests[] = {
        BOTH_WAYS(test_every_thread_counts_and_nobody_else),
        BOTH_WAYS(test_a_target_in_a_pid_namespace_is_told_apart),
        BOTH_WAYS(test_a_return_is_counted),
        BOTH_WAYS(test_one_bad_site_is_one_error),
        BOTH_WAYS(test_counts_outlive_the_target),
        cmocka_unit_test(test_counting_events_see_the_threads_that_run),
        cmocka_unit_test(test_too_few_descriptors_is_said_first),
        cmocka_unit_test(test_a_vanished_target_is_said),
        cmocka_unit_test(test_without_rights_the_reason_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// The kernel rung against real processes, each way once: who is counted, who is not, and that the
// target's fork and pthread_create still work. And what events say of each hit.
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
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
uint64_t target_six(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);

__attribute__((noinline, noipa)) uint64_t target_one(uint64_t x)
{
    return x * 3 + 1;
}

__attribute__((noinline, noipa)) uint64_t target_two(uint64_t x)
{
    return x * 5 + 2;
}

__attribute__((noinline, noipa)) uint64_t target_six(uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                                     uint64_t e, uint64_t f)
{
    return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f;
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

// Arguments that tell one call from any other; the last one is the thread.
static void six_args(uint64_t call, uint64_t tid, uint64_t *arg)
{
    const uint64_t made[] = {call, ~call, call << 32, call * UINT64_C(0x9e3779b97f4a7c15), 7, tid};
    memcpy(arg, made, sizeof made);
}

static void *thread_calls_six(void *count)
{
    uint64_t arg[6], sum = 0;
    for (size_t i = 0; i < *(const size_t *)count; i++) {
        six_args(i, (uint64_t)syscall(SYS_gettid), arg);
        sum += target_six(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
    }
    return sum ? NULL : count;
}

static bool threads_run(size_t count, void *(*run)(void *))
{
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&thread[i], NULL, run, &count))
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
        (void)thread_calls_six(&count);
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
            answer = threads_run(count, thread_calls) ? 'y' : 'n';
            break;
        case '6': // the leader
            (void)thread_calls_six(&count);
            break;
        case 's': // threads born now
            answer = threads_run(count, thread_calls_six) ? 'y' : 'n';
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

static uint64_t file_off_at(uint64_t addr)
{
    unsigned long start = 0, end = 0, off = 0;
    uint64_t found = UINT64_MAX;
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

static uint64_t file_off_of(uint64_t (*function)(uint64_t))
{
    return file_off_at((uint64_t)(uintptr_t)function);
}

#define SELF "/proc/self/exe"
#define SITE_SIX(...)                                                                              \
    {                                                                                              \
        .path = SELF, .file_off = file_off_at((uint64_t)(uintptr_t)target_six), __VA_ARGS__        \
    }

static uint64_t hits(struct tl_uprobes *uprobes, size_t index)
{
    uint64_t value = UINT64_MAX;
    assert_int_equal(tl_uprobes_count(uprobes, index, &value, NULL), 0);
    return value;
}

// The way's own words: with `state` the way is forced, so each is tried on every kernel that has
// it.
static struct tl_uprobes *create_ring(void **state, pid_t pid, const struct tl_uprobe_site *sites,
                                      size_t count, uint32_t ring_bytes, int *errors)
{
    enum tl_uprobe_way way = *(const enum tl_uprobe_way *)*state;
    struct tl_uprobes *uprobes = NULL;
    struct tl_diag diag = {{0}};
    int error = tl_uprobes_create_by(way, pid, sites, count, ring_bytes, errors, &uprobes, &diag);
    if (error == TL_E_UNSUPPORTED)
        skip();
    if (error)
        fail_msg("%s: %s", tl_uprobe_way_text(way), diag.text);
    assert_int_equal(tl_uprobes_way(uprobes), way);
    return uprobes;
}

static struct tl_uprobes *create(void **state, pid_t pid, const struct tl_uprobe_site *sites,
                                 size_t count, int *errors)
{
    return create_ring(state, pid, sites, count, 0, errors);
}

// ---- events
// -----------------------------------------------------------------------------------------

#define RING_BYTES (8u << 20)
#define SEEN_THREADS (THREADS + 1)
#define PID_NS_INITIAL_INO 0xeffffffcu // Linux include/linux/proc_ns.h: PROC_PID_INIT_INO

// What was seen of target_six: each thread's calls come in their order, entry, return, entry ...
struct seen {
    pid_t pid;                   // 0: not to be compared
    size_t entry_site, ret_site; // SIZE_MAX: not probed
    size_t count, thread_count;
    struct seen_thread {
        uint64_t tid, entries, rets, time_ns, arg[6];
    } thread[SEEN_THREADS];
};

// Events tell ids as the first namespace has them; elsewhere the test can't know them.
static bool ids_are_ours(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == PID_NS_INITIAL_INO;
}

static struct seen_thread *seen_thread(struct seen *seen, uint64_t tid)
{
    for (size_t i = 0; i < seen->thread_count; i++) {
        if (seen->thread[i].tid == tid)
            return &seen->thread[i];
    }
    assert_true(seen->thread_count < SEEN_THREADS);
    seen->thread[seen->thread_count].tid = tid;
    return &seen->thread[seen->thread_count++];
}

static int event_take(void *opaque, const struct tl_uprobe_event *event)
{
    struct seen *seen = opaque;
    struct seen_thread *thread = seen_thread(seen, (uint64_t)event->tid);
    assert_int_equal(event->site, event->ret ? seen->ret_site : seen->entry_site);
    if (seen->pid)
        assert_int_equal(event->pid, seen->pid);
    assert_true(event->time_ns >= thread->time_ns);
    thread->time_ns = event->time_ns;
    seen->count++;
    if (!event->ret) {
        six_args(thread->entries++, seen->pid ? thread->tid : event->arg[5], thread->arg);
        assert_memory_equal(event->arg, thread->arg, sizeof thread->arg);
        return 0;
    }
    if (seen->entry_site != SIZE_MAX)
        assert_int_equal(thread->entries, thread->rets + 1);
    else
        six_args(thread->rets, thread->tid, thread->arg);
    thread->rets++;
    const uint64_t *arg = thread->arg;
    assert_int_equal(event->arg[0], target_six(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]));
    return 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void events_read(struct tl_uprobes *uprobes, struct seen *seen)
{
    struct tl_diag diag = {{0}};
    size_t before = seen->count;
    int count = tl_uprobes_events(uprobes, event_take, seen, &diag);
    if (count < 0)
        fail_msg("%s", diag.text);
    assert_int_equal(count, seen->count - before);
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

static void test_events_tell_arguments_values_threads_and_times(void **state)
{
    struct target target, other;
    assert_int_equal(target_start(&target), 0);
    assert_int_equal(target_start(&other), 0);
    const struct tl_uprobe_site sites[] = {SITE_SIX(.ret = true), SITE_SIX(.ret = false)};
    int errors[2];
    struct tl_uprobes *uprobes = create_ring(state, target.pid, sites, 2, RING_BYTES, errors);
    assert_int_equal(errors[0], 0);
    assert_int_equal(errors[1], 0);
    struct seen seen = {.pid = ids_are_ours() ? target.pid : 0, .ret_site = 0, .entry_site = 1};
    uint64_t start = now_ns();
    const char steps[] = "6sf"; // the leader, threads, a child whose hits are not the target's
    for (size_t i = 0; steps[i]; i++) {
        target_do(&other, steps[i]);
        target_do(&target, steps[i]);
    }
    uint64_t end = now_ns();
    events_read(uprobes, &seen);
    assert_int_equal(seen.thread_count, THREADS + 1);
    for (size_t i = 0; i < seen.thread_count; i++) {
        assert_int_equal(seen.thread[i].entries, CALLS);
        assert_int_equal(seen.thread[i].rets, CALLS);
        assert_in_range(seen.thread[i].time_ns, start, end);
    }
    assert_int_equal(hits(uprobes, 0), CALLS * (THREADS + 1));
    assert_int_equal(hits(uprobes, 1), CALLS * (THREADS + 1));
    tl_uprobes_destroy(uprobes);
    target_end(&target);
    target_end(&other);
}

static void test_a_full_ring_drops_and_the_count_goes_on(void **state)
{
    struct target target;
    assert_int_equal(target_start(&target), 0);
    const struct tl_uprobe_site site = SITE_SIX(.ret = false);
    int error;
    struct tl_uprobes *uprobes = create_ring(state, target.pid, &site, 1, 1, &error); // one page
    struct seen seen = {.pid = ids_are_ours() ? target.pid : 0, .ret_site = SIZE_MAX};
    for (uint64_t turn = 1; turn <= 3; turn++) {
        target_do(&target, '6');
        assert_int_equal(hits(uprobes, 0), CALLS * turn);
        size_t before = seen.count;
        seen.thread_count = 0; // its calls begin anew
        memset(seen.thread, 0, sizeof seen.thread);
        events_read(uprobes, &seen);
        // What was there first stays: an unbroken row of the first calls.
        assert_in_range(seen.count - before, 1, CALLS - 1);
        assert_int_equal(seen.thread_count, 1);
    }
    tl_uprobes_destroy(uprobes);
    target_end(&target);
}

static int event_refuse(void *opaque, const struct tl_uprobe_event *event)
{
    (void)event;
    ++*(size_t *)opaque;
    return TL_E_LIMIT;
}

static void test_what_came_before_the_stop_is_read_after_it(void **state)
{
    struct target target;
    assert_int_equal(target_start(&target), 0);
    const struct tl_uprobe_site site = SITE_SIX(.ret = true);
    int error;
    struct tl_uprobes *uprobes = create_ring(state, target.pid, &site, 1, RING_BYTES, &error);
    target_do(&target, '6');
    tl_uprobes_stop(uprobes);
    target_do(&target, '6'); // it runs on, unseen
    size_t refused = 0;
    assert_int_equal(tl_uprobes_events(uprobes, event_refuse, &refused, NULL), TL_E_LIMIT);
    assert_int_equal(refused, 1); // and the event is still there
    struct seen seen = {.entry_site = SIZE_MAX};
    seen.pid = ids_are_ours() ? target.pid : 0;
    if (seen.pid) { // else the thread, and so the value, can't be known
        events_read(uprobes, &seen);
        assert_int_equal(seen.count, CALLS);
        events_read(uprobes, &seen);
        assert_int_equal(seen.count, CALLS);
    }
    assert_int_equal(hits(uprobes, 0), CALLS);
    tl_uprobes_destroy(uprobes);
    target_end(&target);
}

static void test_without_a_ring_there_are_no_events(void **state)
{
    struct target target;
    assert_int_equal(target_start(&target), 0);
    const struct tl_uprobe_site site = SITE_SIX(.ret = false);
    int error;
    struct tl_uprobes *uprobes = create(state, target.pid, &site, 1, &error);
    struct seen seen = {0};
    target_do(&target, '6');
    events_read(uprobes, &seen);
    assert_int_equal(seen.count, 0);
    assert_int_equal(hits(uprobes, 0), CALLS);
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
        int error = tl_uprobes_create_by(TL_UPROBE_PERF, target.pid, sites, SITES, 0, errors,
                                         &uprobes, &diag);
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
    assert_int_equal(tl_uprobes_create(target.pid, &site, 1, 0, &error, &uprobes, &diag),
                     TL_E_GONE);
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
        BOTH_WAYS(test_events_tell_arguments_values_threads_and_times),
        BOTH_WAYS(test_a_full_ring_drops_and_the_count_goes_on),
        BOTH_WAYS(test_what_came_before_the_stop_is_read_after_it),
        BOTH_WAYS(test_without_a_ring_there_are_no_events),
        BOTH_WAYS(test_one_bad_site_is_one_error),
        BOTH_WAYS(test_counts_outlive_the_target),
        cmocka_unit_test(test_counting_events_see_the_threads_that_run),
        cmocka_unit_test(test_too_few_descriptors_is_said_first),
        cmocka_unit_test(test_a_vanished_target_is_said),
        cmocka_unit_test(test_without_rights_the_reason_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

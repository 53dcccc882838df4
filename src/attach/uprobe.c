// Counts hits by the kernel's own uprobes: places them, reads them, takes them away.
//
// It decides nothing about which sites: the session does. It never uses perf's inherit flag: an
// inherited uprobe event misses the threads that already run, and makes the target's fork and
// pthread_create fail with ENOENT (seen on Linux 6.12 and 6.18).
//
// Invariant: what is counted is the target's thread group, whole and alone. The breakpoint is bound
// to its address space, where all its threads run, whenever born; a forked child, whose copy of the
// text still holds the breakpoint, is told apart by its thread group.
#include "attach/uprobe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach/uprobe_bpf.h"

#define PMU_FOLDER "/sys/bus/event_source/devices/uprobe"
#define SITES_MAX (1u << 20) // Linux 6.6, kernel/trace/bpf_trace.c: MAX_UPROBE_MULTI_CNT
#define FDS_SPARE 32         // for what else the controller opens
#define THREADS_MAX 65536

struct tl_uprobes {
    enum tl_uprobe_way way;
    pid_t pid;
    size_t count;
    int map_fd;
    struct tl_bpf_ring *ring; // events; NULL: only counts
    bool *ret;                // by site, with a ring
    int cpu_count;
    uint64_t *scratch; // one number a CPU
    int *fd;           // links or events
    uint32_t *fd_site; // the site of each; UINT32_MAX for a link over many
    size_t fd_count, fd_room;
};

const char *tl_uprobe_way_text(enum tl_uprobe_way way)
{
    static const char *const text[] = {"auto", "multi", "perf", "thread"};
    return (unsigned)way < TL_ARRAY_COUNT(text) ? text[way] : "unknown";
}

enum tl_uprobe_way tl_uprobes_way(const struct tl_uprobes *uprobes)
{
    return uprobes->way;
}

// ---- what this kernel and this user can do
// -------------------------------------------------------

static int pmu_number(const char *name, uint32_t *out)
{
    char path[128], text[64];
    (void)snprintf(path, sizeof path, PMU_FOLDER "/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t size = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (size <= 0)
        return -EIO;
    text[size] = 0;
    // "8", or "config:0" for the place of a flag.
    const char *number = strncmp(text, "config:", 7) == 0 ? text + 7 : text;
    *out = (uint32_t)strtoul(number, NULL, 10);
    return 0;
}

static int bpf_refused(struct tl_diag *diag, int error, const char *what)
{
    switch (-error) {
    case EPERM:
    case EACCES:
        return tl_diag_set(diag, TL_E_PERM,
                           "kernel probes: %s was refused (%s): run as root, or with CAP_BPF and "
                           "CAP_PERFMON, or use --method jump",
                           what, strerror(-error));
    case ENOSYS:
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "kernel probes: this kernel has no bpf(2) (CONFIG_BPF_SYSCALL): use "
                           "--method jump");
    default:
        return tl_diag_set(diag, TL_E_UNSUPPORTED, "kernel probes: %s failed: %s", what,
                           strerror(-error));
    }
}

int tl_uprobes_available(struct tl_diag *diag)
{
    struct tl_bpf_who who;
    int error = tl_bpf_who_read(getpid(), &who, diag);
    if (error)
        return error;
    int map_fd = tl_bpf_counters_create(1);
    if (map_fd < 0)
        return bpf_refused(diag, map_fd, "bpf(2), making a map,");
    int program_fd = tl_bpf_program_load(map_fd, -1, &who, 0, false);
    (void)close(map_fd);
    if (program_fd < 0)
        return bpf_refused(diag, program_fd, "bpf(2), loading a program,");
    (void)close(program_fd);
    uint32_t type;
    if (pmu_number("type", &type)) // CONFIG_UPROBE_EVENTS makes both ways, or neither
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "kernel probes: this kernel has no uprobes (%s is not there): use "
                           "--method jump",
                           PMU_FOLDER);
    return 0;
}

// ---- descriptors -------------------------------------------------------------------------------

static int fds_open_count(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return FDS_SPARE;
    int count = 0;
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

// Makes sure that `more` descriptors can be opened, before the first is.
static int fds_reserve(size_t more, struct tl_diag *diag)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return tl_diag_set(diag, TL_E_SYSTEM, "getrlimit: %s", strerror(errno));
    rlim_t need = (rlim_t)more + (rlim_t)fds_open_count() + FDS_SPARE;
    if (limit.rlim_cur >= need)
        return 0;
    rlim_t had = limit.rlim_cur;
    limit.rlim_cur = need < limit.rlim_max ? need : limit.rlim_max;
    if (limit.rlim_cur < need || setrlimit(RLIMIT_NOFILE, &limit))
        return tl_diag_set(diag, TL_E_LIMIT,
                           "kernel probes: %zu descriptors are needed and the limit is %llu (hard "
                           "%llu): raise it (ulimit -n) or probe fewer functions",
                           more, (unsigned long long)had, (unsigned long long)limit.rlim_max);
    return 0;
}

static bool fd_keep(struct tl_uprobes *uprobes, int fd, uint32_t site)
{
    if (uprobes->fd_count == uprobes->fd_room) {
        size_t room = uprobes->fd_room ? uprobes->fd_room * 2 : 16;
        int *fds = realloc(uprobes->fd, room * sizeof *fds);
        if (fds)
            uprobes->fd = fds;
        uint32_t *sites = realloc(uprobes->fd_site, room * sizeof *sites);
        if (sites)
            uprobes->fd_site = sites;
        if (!fds || !sites)
            return false;
        uprobes->fd_room = room;
    }
    uprobes->fd[uprobes->fd_count] = fd;
    uprobes->fd_site[uprobes->fd_count++] = site;
    return true;
}

static int ring_fd(const struct tl_uprobes *uprobes)
{
    return uprobes->ring ? tl_bpf_ring_fd(uprobes->ring) : -1;
}

// ---- one link a file
// -----------------------------------------------------------------------------

struct multi_work {
    struct tl_uprobes *uprobes;
    const struct tl_uprobe_site *sites;
    int *errors;
    int program_fd;
    uint32_t *order; // sites, those of one file and kind together
    uint64_t *offsets, *cookies;
};

// Links order[first..first+count), all of one file. The kernel takes a link whole or not at all, so
// where it refuses, halves are tried, until what is left is a site that it refuses for itself.
// Depth is at most log2(SITES_MAX).
static int multi_link(struct multi_work *work, size_t first, size_t count)
{
    const struct tl_uprobe_site *site = &work->sites[work->order[first]];
    for (size_t i = 0; i < count; i++) {
        work->offsets[i] = work->sites[work->order[first + i]].file_off;
        work->cookies[i] = work->order[first + i];
    }
    int fd = tl_bpf_link_multi(work->program_fd, site->path, work->offsets, work->cookies,
                               (uint32_t)count, site->ret, work->uprobes->pid);
    if (fd >= 0) {
        if (fd_keep(work->uprobes, fd, UINT32_MAX))
            return 0;
        (void)close(fd);
        return TL_E_NOMEM;
    }
    if (fd == -EPERM || fd == -EACCES || fd == -ENOMEM || fd == -ESRCH || count == 1) {
        for (size_t i = 0; i < count; i++)
            work->errors[work->order[first + i]] = -fd;
        return 0;
    }
    int error = multi_link(work, first, count / 2);
    return error ? error : multi_link(work, first + count / 2, count - count / 2);
}

static int order_compare(const void *a, const void *b, void *opaque)
{
    const struct multi_work *work = opaque;
    const struct tl_uprobe_site *sites = work->sites;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    int by_path = strcmp(sites[i].path, sites[k].path);
    if (by_path)
        return by_path;
    if (sites[i].ret != sites[k].ret)
        return sites[i].ret ? 1 : -1;
    return (i > k) - (i < k);
}

static int multi_place(struct multi_work *work, size_t count)
{
    for (size_t i = 0; i < count; i++)
        work->order[i] = (uint32_t)i;
    qsort_r(work->order, count, sizeof *work->order, order_compare, work);
    for (size_t first = 0, last; first < count; first = last) {
        const struct tl_uprobe_site *site = &work->sites[work->order[first]];
        for (last = first + 1; last < count; last++) {
            const struct tl_uprobe_site *other = &work->sites[work->order[last]];
            if (other->ret != site->ret || strcmp(other->path, site->path) != 0)
                break;
        }
        int error = multi_link(work, first, last - first);
        if (error)
            return error;
    }
    return 0;
}

static int multi_create(struct tl_uprobes *uprobes, const struct tl_bpf_who *who,
                        const struct tl_uprobe_site *sites, int *errors, struct tl_diag *diag)
{
    struct multi_work work = {.uprobes = uprobes, .sites = sites, .errors = errors};
    work.program_fd = tl_bpf_program_load(uprobes->map_fd, ring_fd(uprobes), who, TL_BPF_INDEX_COOKIE,
                                          true);
    if (work.program_fd < 0)
        return bpf_refused(diag, work.program_fd, "bpf(2), loading a program,");
    int error = 0;
    if (!tl_bpf_multi_known(work.program_fd)) {
        error = tl_diag_set(diag, TL_E_UNSUPPORTED,
                            "kernel probes: links over many uprobes need Linux 6.6");
    } else {
        work.order = calloc(uprobes->count, sizeof *work.order);
        work.offsets = calloc(uprobes->count, sizeof *work.offsets);
        work.cookies = calloc(uprobes->count, sizeof *work.cookies);
        error = work.order && work.offsets && work.cookies ? multi_place(&work, uprobes->count)
                                                           : TL_E_NOMEM;
        if (error == TL_E_NOMEM)
            (void)tl_diag_set(diag, error, "out of memory");
    }
    free(work.order);
    free(work.offsets);
    free(work.cookies);
    (void)close(work.program_fd);
    return error;
}

// ---- perf events
// ---------------------------------------------------------------------------------

// One event for one site and one thread; the breakpoint is bound to the thread's address space.
// Returns an fd, or -errno.
static int event_open(const struct tl_uprobe_site *site, uint32_t type, uint32_t ret_bit, pid_t tid)
{
    struct perf_event_attr attr = {
        .type = type,
        .size = sizeof attr,
        .config = site->ret ? 1ull << ret_bit : 0,
        .uprobe_path = (uint64_t)(uintptr_t)site->path,
        .probe_offset = site->file_off,
    };
    long fd = syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : (int)fd;
}

static int pmu_read(uint32_t *type, uint32_t *ret_bit, struct tl_diag *diag)
{
    if (pmu_number("type", type) || pmu_number("format/retprobe", ret_bit) || *ret_bit > 63)
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "kernel probes: this kernel has no uprobes (%s is not there)",
                           PMU_FOLDER);
    return 0;
}

// The program of a site's event runs for every thread of the address space, not only for the
// leader. Returns an event's fd, or -errno.
static int perf_site(struct tl_uprobes *uprobes, const struct tl_bpf_who *who,
                     const struct tl_uprobe_site *site, uint32_t index, uint32_t type,
                     uint32_t ret_bit)
{
    int event_fd = event_open(site, type, ret_bit, uprobes->pid);
    if (event_fd < 0)
        return event_fd;
    int result = event_fd;
    int program_fd = tl_bpf_program_load(uprobes->map_fd, ring_fd(uprobes), who, index, false);
    if (program_fd < 0)
        result = program_fd;
    else if (ioctl(event_fd, PERF_EVENT_IOC_SET_BPF, program_fd))
        result = -errno;
    if (program_fd >= 0)
        (void)close(program_fd); // the event keeps it
    if (result < 0)
        (void)close(event_fd);
    return result;
}

static int perf_create(struct tl_uprobes *uprobes, const struct tl_bpf_who *who,
                       const struct tl_uprobe_site *sites, int *errors, struct tl_diag *diag)
{
    uint32_t type = 0, ret_bit = 0;
    int error = pmu_read(&type, &ret_bit, diag);
    if (!error)
        error = fds_reserve(uprobes->count, diag);
    for (uint32_t i = 0; !error && i < uprobes->count; i++) {
        int fd = perf_site(uprobes, who, &sites[i], i, type, ret_bit);
        if (fd < 0) {
            errors[i] = -fd;
        } else if (!fd_keep(uprobes, fd, i)) {
            (void)close(fd);
            error = tl_diag_set(diag, TL_E_NOMEM, "out of memory");
        }
    }
    return error;
}

static size_t threads_list(pid_t pid, pid_t **out)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    pid_t *tids = NULL;
    size_t count = 0, room = 0;
    for (struct dirent *entry; dir && count < THREADS_MAX && (entry = readdir(dir));) {
        long tid = strtol(entry->d_name, NULL, 10);
        if (tid <= 0)
            continue;
        if (count == room) {
            room = room ? room * 2 : 64;
            pid_t *more = realloc(tids, room * sizeof *tids);
            if (!more)
                break;
            tids = more;
        }
        tids[count++] = (pid_t)tid;
    }
    if (dir)
        (void)closedir(dir);
    *out = tids;
    return count;
}

static int thread_create(struct tl_uprobes *uprobes, const struct tl_uprobe_site *sites,
                         int *errors, struct tl_diag *diag)
{
    uint32_t type = 0, ret_bit = 0;
    int error = pmu_read(&type, &ret_bit, diag);
    pid_t *tids = NULL;
    size_t tid_count = error ? 0 : threads_list(uprobes->pid, &tids);
    if (!error && !tid_count)
        error = tl_diag_set(diag, TL_E_GONE, "pid %d: there is no such process", (int)uprobes->pid);
    if (!error)
        error = fds_reserve(uprobes->count * tid_count, diag);
    for (uint32_t i = 0; !error && i < uprobes->count; i++) {
        for (size_t k = 0; !error && k < tid_count; k++) {
            int fd = event_open(&sites[i], type, ret_bit, tids[k]);
            if (fd == -ESRCH) // a thread that has ended
                continue;
            if (fd < 0) {
                errors[i] = -fd;
                break;
            }
            if (!fd_keep(uprobes, fd, i)) {
                (void)close(fd);
                error = tl_diag_set(diag, TL_E_NOMEM, "out of memory");
            }
        }
    }
    free(tids);
    return error;
}

// ---- the face
// --------------------------------------------------------------------------------------

static int counters_create(struct tl_uprobes *uprobes, struct tl_diag *diag)
{
    uprobes->cpu_count = tl_bpf_cpu_count();
    if (uprobes->cpu_count < 0)
        return tl_diag_set(diag, TL_E_SYSTEM,
                           "kernel probes: /sys/devices/system/cpu/possible can't be read");
    uprobes->scratch = calloc((size_t)uprobes->cpu_count, sizeof *uprobes->scratch);
    if (!uprobes->scratch)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    int fd = tl_bpf_counters_create((uint32_t)uprobes->count);
    if (fd < 0)
        return bpf_refused(diag, fd, "bpf(2), making a map,");
    uprobes->map_fd = fd;
    return 0;
}

static int events_create(struct tl_uprobes *uprobes, const struct tl_uprobe_site *sites,
                         uint32_t ring_bytes, struct tl_diag *diag)
{
    if (!ring_bytes)
        return 0;
    if (uprobes->way == TL_UPROBE_THREAD)
        return tl_diag_set(diag, TL_E_UNSUPPORTED, "kernel probes: events need BPF");
    uprobes->ret = calloc(uprobes->count, sizeof *uprobes->ret);
    if (!uprobes->ret)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    for (size_t i = 0; i < uprobes->count; i++)
        uprobes->ret[i] = sites[i].ret;
    return tl_bpf_ring_create(ring_bytes, &uprobes->ring, diag);
}

int tl_uprobes_create_by(enum tl_uprobe_way way, pid_t pid, const struct tl_uprobe_site *sites,
                         size_t count, uint32_t ring_bytes, int *errors, struct tl_uprobes **out,
                         struct tl_diag *diag)
{
    if (!count || count > SITES_MAX)
        return tl_diag_set(diag, count ? TL_E_LIMIT : TL_E_NOMATCH,
                           "kernel probes: %zu sites (1 to %u are possible)", count, SITES_MAX);
    struct tl_bpf_who who = {0};
    int error = tl_bpf_who_read(pid, &who, diag);
    if (error)
        return error;
    struct tl_uprobes *uprobes = calloc(1, sizeof *uprobes);
    if (!uprobes)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    *uprobes = (struct tl_uprobes){.way = way, .pid = pid, .count = count, .map_fd = -1};
    memset(errors, 0, count * sizeof *errors);
    if (way != TL_UPROBE_THREAD)
        error = counters_create(uprobes, diag);
    if (!error)
        error = events_create(uprobes, sites, ring_bytes, diag);
    if (!error && way == TL_UPROBE_MULTI)
        error = multi_create(uprobes, &who, sites, errors, diag);
    else if (!error && way == TL_UPROBE_PERF)
        error = perf_create(uprobes, &who, sites, errors, diag);
    else if (!error && way == TL_UPROBE_THREAD)
        error = thread_create(uprobes, sites, errors, diag);
    else if (!error)
        error = tl_diag_set(diag, TL_E_USAGE, "kernel probes: no such way");
    if (error) {
        tl_uprobes_destroy(uprobes);
        return error;
    }
    *out = uprobes;
    return 0;
}

int tl_uprobes_create(pid_t pid, const struct tl_uprobe_site *sites, size_t count,
                      uint32_t ring_bytes, int *errors, struct tl_uprobes **out,
                      struct tl_diag *diag)
{
    int error = tl_uprobes_create_by(TL_UPROBE_MULTI, pid, sites, count, ring_bytes, errors, out,
                                     diag);
    if (error == TL_E_UNSUPPORTED)
        error = tl_uprobes_create_by(TL_UPROBE_PERF, pid, sites, count, ring_bytes, errors, out,
                                     diag);
    return error;
}

int tl_uprobes_create_counting(pid_t pid, const struct tl_uprobe_site *sites, size_t count,
                               int *errors, struct tl_uprobes **out, struct tl_diag *diag)
{
    return tl_uprobes_create_by(TL_UPROBE_THREAD, pid, sites, count, 0, errors, out, diag);
}

struct event_taker {
    const struct tl_uprobes *uprobes;
    int (*take)(void *opaque, const struct tl_uprobe_event *event);
    void *opaque;
};

static int record_take(void *opaque, const struct tl_uprobe_record *record)
{
    const struct event_taker *taker = opaque;
    if (record->index >= taker->uprobes->count)
        return 0;
    struct tl_uprobe_event event = {.site = record->index,
                                    .time_ns = record->time_ns,
                                    .pid = (pid_t)(record->who >> 32),
                                    .tid = (pid_t)(uint32_t)record->who,
                                    .ret = taker->uprobes->ret[record->index]};
    memcpy(event.arg, record->arg, sizeof event.arg);
    if (event.ret)
        event.arg[0] = record->ret;
    return taker->take(taker->opaque, &event);
}

int tl_uprobes_events(struct tl_uprobes *uprobes,
                      int (*take)(void *opaque, const struct tl_uprobe_event *event), void *opaque,
                      struct tl_diag *diag)
{
    struct event_taker taker = {uprobes, take, opaque};
    if (!uprobes->ring)
        return 0;
    int count = tl_bpf_ring_read(uprobes->ring, record_take, &taker);
    return count == TL_E_FORMAT ? tl_diag_set(diag, count, "kernel probes: the ring is broken") : count;
}

int tl_uprobes_count(struct tl_uprobes *uprobes, size_t index, uint64_t *hits, struct tl_diag *diag)
{
    if (index >= uprobes->count)
        return tl_diag_set(diag, TL_E_LIMIT, "kernel probes: there is no site %zu", index);
    uint64_t total = 0;
    if (uprobes->way != TL_UPROBE_THREAD) {
        int error = tl_bpf_counters_read(uprobes->map_fd, (uint32_t)index, uprobes->scratch,
                                         uprobes->cpu_count, &total);
        if (error)
            return tl_diag_set(diag, TL_E_SYSTEM, "kernel probes: reading a counter: %s",
                               strerror(-error));
    }
    for (size_t i = 0; uprobes->way == TL_UPROBE_THREAD && i < uprobes->fd_count; i++) {
        uint64_t value = 0;
        if (uprobes->fd_site[i] != index)
            continue;
        if (read(uprobes->fd[i], &value, sizeof value) != (ssize_t)sizeof value)
            return tl_diag_set(diag, TL_E_SYSTEM, "kernel probes: reading an event: %s",
                               strerror(errno));
        total += value;
    }
    *hits = total;
    return 0;
}

// The kernel's close of a link or an event waits for handlers that still run. Counting events hold
// their counts themselves, so they are only disabled.
void tl_uprobes_stop(struct tl_uprobes *uprobes)
{
    for (size_t i = 0; i < uprobes->fd_count; i++) {
        if (uprobes->way == TL_UPROBE_THREAD)
            (void)ioctl(uprobes->fd[i], PERF_EVENT_IOC_DISABLE, 0);
        else
            (void)close(uprobes->fd[i]);
    }
    if (uprobes->way != TL_UPROBE_THREAD)
        uprobes->fd_count = 0;
}

void tl_uprobes_destroy(struct tl_uprobes *uprobes)
{
    if (!uprobes)
        return;
    for (size_t i = 0; i < uprobes->fd_count; i++)
        (void)close(uprobes->fd[i]);
    if (uprobes->map_fd >= 0)
        (void)close(uprobes->map_fd);
    tl_bpf_ring_destroy(uprobes->ring);
    free(uprobes->ret);
    free(uprobes->fd);
    free(uprobes->fd_site);
    free(uprobes->scratch);
    free(uprobes);
}

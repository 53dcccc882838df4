// Stops every task that shares the target's address space, and lets them all go.
//
// Threads come from /proc/PID/task, other processes by kcmp. A task counts as stopped when it is in
// a ptrace stop, or when it is blocked in the kernel with our trap pending. Invariant: after a
// success no task of the address space can run user code; after a failure none is held.
#include "attach/held.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_PASSES_MAX 1000 // task lists read until none is new; each pass has news, or ends it
#define KERNEL_LOOK_AFTER_NS 2000000 // tasks that have not stopped by then are looked at in /proc
#define WAIT_SPINS 20
#define WAIT_SLEEP_NS 20000
#define SMALL_FILE_MAX 4096
#define NEW_PIDS_MAX 4096 // more new processes than this: all of /proc is read again

// ---- the family: processes that share the address space -----------------------------------------

static int family_add(struct tl_target *target, pid_t pid)
{
    for (size_t i = 0; i < target->family_count; i++) {
        if (target->family[i] == pid)
            return 0;
    }
    if (target->family_count == target->family_room) {
        size_t room = target->family_room ? target->family_room * 2 : 8;
        pid_t *larger = realloc(target->family, room * sizeof *larger);
        if (!larger)
            return TL_E_NOMEM;
        target->family = larger;
        target->family_room = room;
    }
    target->family[target->family_count++] = pid;
    return 1;
}

// The newest pid, the last word of /proc/loadavg. 0: unknown.
static uint64_t last_pid_read(void)
{
    char *text;
    size_t size;
    uint64_t pid = 0;
    if (tl_proc_read_file("/proc/loadavg", SMALL_FILE_MAX, &text, &size, NULL) != 0)
        return 0;
    const char *word = strrchr(text, ' ');
    if (word)
        pid = strtoull(word + 1, NULL, 10);
    free(text);
    return pid;
}

// Adds the process of pid (which may be a thread's id) if it shares the memory. 1: it is new.
static int family_try(struct tl_target *target, pid_t pid)
{
    struct tl_proc_status status;
    if (pid == target->pid || syscall(SYS_kcmp, target->pid, pid, KCMP_VM, 0, 0) != 0)
        return 0;
    if (tl_proc_status_read(pid, &status, NULL) != 0 || status.tgid == target->pid)
        return 0;
    return family_add(target, status.tgid);
}

int tl_family_scan(struct tl_target *target, struct tl_diag *diag)
{
    uint64_t last = last_pid_read();
    DIR *dir = opendir("/proc");
    if (!dir)
        return tl_diag_set(diag, TL_E_SYSTEM, "/proc: %s", strerror(errno));
    int error = 0;
    for (struct dirent *entry; error >= 0 && (entry = readdir(dir));) {
        if (isdigit((unsigned char)entry->d_name[0]))
            error = family_try(target, (pid_t)strtol(entry->d_name, NULL, 10));
    }
    closedir(dir);
    if (error < 0)
        return tl_diag_set(diag, error, "pid %d: out of memory", target->pid);
    target->last_pid = last;
    return 0;
}

// Looks at the processes that are younger than the last complete look. 1: one joined the family.
static int family_update(struct tl_target *target, struct tl_diag *diag)
{
    uint64_t last = last_pid_read();
    size_t before = target->family_count;
    if (last != 0 && last == target->last_pid)
        return 0;
    if (target->last_pid == 0 || last < target->last_pid ||
        last - target->last_pid > NEW_PIDS_MAX) {
        int error = tl_family_scan(target, diag);
        return error ? error : target->family_count > before;
    }
    for (uint64_t pid = target->last_pid + 1; pid <= last; pid++) {
        if (family_try(target, (pid_t)pid) < 0)
            return tl_diag_set(diag, TL_E_NOMEM, "pid %d: out of memory", target->pid);
    }
    target->last_pid = last;
    return target->family_count > before;
}

// ---- seizing ------------------------------------------------------------------------------------

static int seize_failed(struct tl_target *target, pid_t tid, int error, struct tl_diag *diag)
{
    struct tl_proc_status status;
    if (error == ESRCH || tl_proc_status_read(tid, &status, NULL) != 0 || status.state == 'Z' ||
        status.state == 'X' || status.user_worker)
        return 0; // ended, or runs no user code
    if (status.tracer != 0)
        return tl_diag_set(diag, TL_E_BUSY, "pid %d: thread %d is traced by pid %d: end that first",
                           target->pid, tid, status.tracer);
    return tl_diag_set(diag, error == EPERM ? TL_E_PERM : TL_E_SYSTEM,
                       "pid %d: thread %d can't be stopped: %s", target->pid, tid, strerror(error));
}

// Seizes every task of one process that is not held yet. Returns how many, or TL_E_*.
static int process_seize(struct tl_target *target, pid_t pid, struct tl_diag *diag)
{
    char path[64];
    int added = 0, error = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    if (!dir)
        return pid == target->pid ? tl_gone(target, diag) : 0;
    for (struct dirent *entry; !error && (entry = readdir(dir));) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid <= 0 || tl_task_find(target, tid))
            continue;
        if (tl_task_seize(target, tid, pid))
            added++;
        else
            error = seize_failed(target, tid, errno, diag);
    }
    closedir(dir);
    return error ? error : added;
}

// ---- waiting ------------------------------------------------------------------------------------

// A task blocked in the kernel: "NUMBER ARGS SP PC", or "-1 SP PC" outside a call; a running one:
// "running" (proc(5)). It has our trap pending, so it stops before it reaches user code.
static bool task_in_kernel(struct tl_task *task)
{
    char path[64], *text;
    size_t size;
    (void)snprintf(path, sizeof path, "/proc/%d/syscall", task->tid);
    if (tl_proc_read_file(path, SMALL_FILE_MAX, &text, &size, NULL) != 0)
        return false;
    char *pc_word = strrchr(text, ' ');
    bool blocked = false;
    if (pc_word) {
        *pc_word = '\0';
        char *sp_word = strrchr(text, ' ');
        task->pc = strtoull(pc_word + 1, NULL, 16);
        task->sp = sp_word ? strtoull(sp_word + 1, NULL, 16) : 0;
        blocked = task->sp != 0;
    }
    free(text);
    struct tl_proc_status status;
    if (!blocked && tl_proc_status_read(task->tid, &status, NULL) == 0 && status.user_worker) {
        task->pc = task->sp = 0;
        blocked = true;
    }
    return blocked;
}

// One look at each task that has not stopped. Returns how many are still waited for.
static size_t tasks_poll(struct tl_target *target, bool look)
{
    size_t waited = 0;
    for (size_t i = 0; i < target->task_count; i++) {
        struct tl_task *task = target->task[i];
        if (task->state != TL_TASK_WAITED)
            continue;
        (void)tl_task_wait(target, task, 0);
        if (task->state == TL_TASK_WAITED && look && !task->newborn && task_in_kernel(task)) {
            // /proc says the same of one that has stopped since it was asked.
            (void)tl_task_wait(target, task, 0);
            if (task->state == TL_TASK_WAITED)
                task->state = TL_TASK_IN_KERNEL;
        }
        waited += task->state == TL_TASK_WAITED;
    }
    return waited;
}

static int stop_timed_out(struct tl_target *target, struct tl_diag *diag)
{
    for (size_t i = 0; i < target->task_count; i++) {
        const struct tl_task *task = target->task[i];
        struct tl_proc_status status;
        if (task->state != TL_TASK_WAITED || tl_proc_status_read(task->tid, &status, NULL) != 0)
            continue;
        return tl_diag_set(
            diag, TL_E_BUSY, "pid %d: thread %d (%s, state %c) did not stop in %d ms: try again",
            target->pid, task->tid, status.name, status.state, target->options.stop_timeout_ms);
    }
    return tl_diag_set(diag, TL_E_BUSY, "pid %d: did not stop in %d ms: try again", target->pid,
                       target->options.stop_timeout_ms);
}

static int tasks_wait(struct tl_target *target, uint64_t start_ns, uint64_t deadline_ns,
                      struct tl_diag *diag)
{
    for (unsigned spin = 0;; spin++) {
        uint64_t now = tl_clock_ns();
        if (tasks_poll(target, now - start_ns > KERNEL_LOOK_AFTER_NS) == 0)
            break;
        if (target->gone || target->execed)
            return tl_gone(target, diag);
        if (now >= deadline_ns)
            return stop_timed_out(target, diag);
        if (spin < WAIT_SPINS) {
            sched_yield();
        } else {
            struct timespec pause = {.tv_nsec = WAIT_SLEEP_NS};
            nanosleep(&pause, NULL);
        }
    }
    return target->gone || target->execed ? tl_gone(target, diag) : 0;
}

// ---- stop and resume ----------------------------------------------------------------------------

static int stop_passes(struct tl_target *target, struct tl_diag *diag)
{
    uint64_t start = tl_clock_ns();
    uint64_t deadline = start + (uint64_t)target->options.stop_timeout_ms * 1000000u;
    for (int pass = 0; pass < STOP_PASSES_MAX; pass++) {
        size_t before = target->task_count;
        int added = process_seize(target, target->pid, diag);
        for (size_t i = 0; added >= 0 && i < target->family_count; i++) {
            int more = process_seize(target, target->family[i], diag);
            added = more < 0 ? more : added + more;
        }
        if (added < 0)
            return added;
        int error = tasks_wait(target, start, deadline, diag);
        if (error)
            return error;
        // Tasks that the kernel seized for us while we waited are news as well.
        bool news = added > 0 || target->task_count > before;
        tl_tasks_sweep(target);
        if (!news) {
            int joined = family_update(target, diag);
            if (joined <= 0)
                return joined;
        }
    }
    return tl_diag_set(diag, TL_E_BUSY, "pid %d: makes threads faster than they can be stopped",
                       target->pid);
}

// Tasks that were asked to stop and got no processor for it yet. The asking has woken their system
// calls, and only in a stop can an EINTR that comes of it be repaired.
static void stragglers_release(struct tl_target *target)
{
    uint64_t deadline = tl_clock_ns() + TL_STRAGGLER_TIMEOUT_MS * UINT64_C(1000000);
    for (size_t i = 0; i < target->task_count; i++) {
        if (target->task[i]->state == TL_TASK_WAITED)
            (void)tl_task_wait(target, target->task[i], deadline);
        tl_task_release(target, target->task[i]);
    }
}

void tl_release_all(struct tl_target *target)
{
    tl_call_hand_back(target);
    tl_stub_restore(target);
    for (size_t i = 0; i < target->task_count; i++) {
        if (target->task[i]->state == TL_TASK_STOPPED)
            tl_task_release(target, target->task[i]);
    }
    stragglers_release(target);
    tl_tasks_sweep(target);
    tl_maps_deinit(&target->maps);
    if (target->mem_fd >= 0)
        close(target->mem_fd);
    target->mem_fd = -1;
    target->mem_tid = 0;
    target->borrowed = 0;
    target->hold = TL_HOLD_NONE;
}

struct stop_job {
    struct tl_target *target;
    struct tl_diag *diag;
};

static int stop_run(void *opaque)
{
    struct stop_job *job = opaque;
    struct tl_target *target = job->target;
    int error = stop_passes(target, job->diag);
    if (error) {
        tl_release_all(target);
        return error;
    }
    target->hold = TL_HOLD_ALL;
    return 0;
}

int tl_target_stop(struct tl_target *target, struct tl_diag *diag)
{
    struct stop_job job = {target, diag};
    if (target->hold == TL_HOLD_ALL)
        return 0;
    if (target->gone || target->execed)
        return tl_gone(target, diag);
    if (target->hold == TL_HOLD_NONE) { // else borrow has looked
        int error = tl_family_scan(target, diag);
        if (error)
            return error;
    }
    int error = tl_worker_call(target, stop_run, &job, diag);
    if (error && target->hold == TL_HOLD_NONE)
        tl_worker_end(target);
    return error;
}

static int resume_run(void *opaque)
{
    tl_release_all(opaque);
    return 0;
}

void tl_target_resume(struct tl_target *target)
{
    if (target->hold == TL_HOLD_NONE)
        return;
    (void)tl_worker_call(target, resume_run, target, NULL);
    tl_worker_end(target);
}

static int resume_others_run(void *opaque)
{
    struct tl_target *target = opaque;
    for (size_t i = 0; i < target->task_count; i++) {
        if (target->task[i]->tid != target->borrowed)
            tl_task_release(target, target->task[i]);
    }
    tl_tasks_sweep(target);
    target->hold = TL_HOLD_BORROWED;
    return 0;
}

void tl_target_resume_others(struct tl_target *target)
{
    if (target->hold == TL_HOLD_ALL && target->borrowed)
        (void)tl_worker_call(target, resume_others_run, target, NULL);
}

// ---- views --------------------------------------------------------------------------------------

size_t tl_target_thread_count(const struct tl_target *target)
{
    return target->hold == TL_HOLD_NONE ? 0 : target->task_count;
}

static struct tl_range stack_range(const struct tl_maps *maps, tl_addr sp)
{
    const struct tl_map *map = tl_maps_at(maps, sp);
    if (!map || !(map->prot & TL_PROT_READ))
        return (struct tl_range){0, 0};
    return (struct tl_range){sp & ~(tl_addr)7, map->end};
}

// The thread's own stack while it stands on another (a signal handler's, a coroutine's). libc puts
// the thread block at the top of that stack; the first thread's is the mapping named [stack].
static struct tl_range other_stack(const struct tl_maps *maps, const struct tl_thread_view *view,
                                   bool first_thread)
{
    const struct tl_map *map = NULL;
    if (first_thread) {
        for (size_t i = 0; i < maps->count; i++) {
            if (strcmp(maps->map[i].path, "[stack]") == 0)
                map = &maps->map[i];
        }
    } else if (view->thread_pointer) {
        map = tl_maps_at(maps, view->thread_pointer);
    }
    if (!map || !(map->prot & TL_PROT_WRITE) || (view->sp >= map->start && view->sp < map->end))
        return (struct tl_range){0, 0};
    return (struct tl_range){map->start, map->end};
}

int tl_target_thread_view(struct tl_target *target, size_t index, struct tl_thread_view *out)
{
    if (index >= target->task_count)
        return TL_E_USAGE;
    const struct tl_task *task = target->task[index];
    if (target->maps.count == 0) {
        int error = tl_maps_read(target->pid, &target->maps, NULL);
        if (error)
            return error;
    }
    struct tl_thread_view view = {.tid = task->tid, .in_kernel = !task->has_regs};
    view.pc = task->has_regs ? tl_regs_pc(&task->regs) : task->pc;
    view.sp = task->has_regs ? tl_regs_sp(&task->regs) : task->sp;
    // Its registers are not its own yet: it can't be moved, and will go on where the stub leads.
    tl_addr home = tl_stub_left(target, view.pc);
    view.in_kernel |= home != 0;
    view.pc = home ? home : view.pc;
    view.link = task->has_regs ? tl_regs_link(&task->regs) : 0;
    view.link_hidden = !task->has_regs && tl_saved_regs.size;
    view.thread_pointer = task->has_regs ? tl_regs_thread_pointer(&task->regs) : 0;
    view.stack = stack_range(&target->maps, view.sp);
    view.alt_stack = other_stack(&target->maps, &view, task->tid == target->pid);
    *out = view;
    return 0;
}

struct set_job {
    struct tl_target *target;
    struct tl_task *task;
    void (*set)(struct tl_regs *regs, tl_addr addr);
    tl_addr addr;
};

static int set_run(void *opaque)
{
    struct set_job *job = opaque;
    job->set(&job->task->regs, job->addr);
    return tl_trace_set_regs(job->target, job->task->tid, &job->task->regs);
}

static int thread_set(struct tl_target *target, size_t index,
                      void (*set)(struct tl_regs *regs, tl_addr addr), tl_addr addr,
                      struct tl_diag *diag)
{
    if (index >= target->task_count || target->task[index]->state != TL_TASK_STOPPED)
        return tl_diag_set(diag, TL_E_USAGE, "pid %d: thread is not stopped", target->pid);
    struct set_job job = {target, target->task[index], set, addr};
    if (tl_worker_call(target, set_run, &job, diag) != 0)
        return tl_gone(target, diag);
    return 0;
}

int tl_target_thread_set_pc(struct tl_target *target, size_t index, tl_addr pc,
                            struct tl_diag *diag)
{
    return thread_set(target, index, tl_regs_set_pc, pc, diag);
}

int tl_target_thread_set_link(struct tl_target *target, size_t index, tl_addr link,
                              struct tl_diag *diag)
{
    return thread_set(target, index, tl_regs_set_link, link, diag);
}

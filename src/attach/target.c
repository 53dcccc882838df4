// A target's life here: opened by pid or launched, closed. See held.h for where the rest is.
//
// Invariant: a target that was opened and closed again is as it was; one that was launched lives on
// after its first resume even if we die.
#include "attach/held.h"
#include "base/page.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXEC_FAILED_STATUS 127

struct tl_target *tl_target_alloc(pid_t pid, const struct tl_target_options *options)
{
    struct tl_target *target = calloc(1, sizeof *target);
    if (!target)
        return NULL;
    target->pid = pid;
    if (options)
        target->options = *options;
    if (target->options.stop_timeout_ms <= 0)
        target->options.stop_timeout_ms = TL_STOP_TIMEOUT_MS;
    target->lock_fd = target->pid_fd = target->mem_fd = -1;
    target->wait_status = -1;
    pthread_mutex_init(&target->worker.lock, NULL);
    pthread_cond_init(&target->worker.change, NULL);
    return target;
}

void tl_target_close(struct tl_target *target)
{
    if (!target)
        return;
    tl_target_resume(target);
    tl_worker_end(target);
    if (target->lock_fd >= 0)
        close(target->lock_fd);
    if (target->pid_fd >= 0)
        close(target->pid_fd);
    for (size_t i = 0; i < target->task_count; i++)
        tl_task_destroy(target->task[i]);
    free(target->task);
    free(target->family);
    tl_maps_deinit(&target->maps);
    pthread_mutex_destroy(&target->worker.lock);
    pthread_cond_destroy(&target->worker.change);
    free(target);
}

// Takes the lock and a pidfd, and makes sure that they belong to the process that was checked.
static int target_bind(struct tl_target *target, struct tl_diag *diag)
{
    struct tl_proc_status status;
    target->pid_fd = (int)syscall(SYS_pidfd_open, target->pid, 0);
    if (target->pid_fd < 0 && errno != ENOSYS)
        return tl_gone(target, diag);
    int error = target->lock_fd >= 0 ? 0 : tl_check_lock(target->pid, &target->lock_fd, diag);
    if (error)
        return error;
    if (tl_proc_status_read(target->pid, &status, NULL) != 0 ||
        status.start_time != target->start_time)
        return tl_gone(target, diag);
    return 0;
}

int tl_target_open(pid_t pid, const struct tl_target_options *options, struct tl_target **out,
                   struct tl_diag *diag)
{
    struct tl_target *target = tl_target_alloc(pid, options);
    if (!target)
        return tl_diag_set(diag, TL_E_NOMEM, "pid %d: out of memory", pid);
    int error = tl_check_target(pid, &target->options, &target->start_time, diag);
    if (!error)
        error = target_bind(target, diag);
    if (error) {
        tl_target_close(target);
        return error;
    }
    *out = target;
    return 0;
}

pid_t tl_target_pid(const struct tl_target *target)
{
    return target->pid;
}

int tl_target_exit_fd(const struct tl_target *target)
{
    return target->pid_fd;
}

uint64_t tl_target_start_time(const struct tl_target *target)
{
    return target->start_time;
}

bool tl_target_execed(const struct tl_target *target)
{
    return target->execed;
}

bool tl_target_alive(const struct tl_target *target)
{
    struct pollfd ended = {.fd = target->pid_fd, .events = POLLIN};
    if (target->pid_fd >= 0)
        return poll(&ended, 1, 0) == 0;
    struct tl_proc_status status;
    return tl_proc_status_read(target->pid, &status, NULL) == 0 && status.state != 'Z' &&
           status.state != 'X' && status.start_time == target->start_time;
}

int tl_target_wait_status(const struct tl_target *target)
{
    int status = 0;
    if (target->wait_status != -1 || !target->launched)
        return target->wait_status;
    // The child is ours to reap; the look is kept so that it can be repeated.
    if (waitpid(target->pid, &status, WNOHANG) == target->pid &&
        (WIFEXITED(status) || WIFSIGNALED(status)))
        ((struct tl_target *)(uintptr_t)target)->wait_status = status;
    return target->wait_status;
}

// ---- launch -------------------------------------------------------------------------------------

struct launch_job {
    struct tl_target *target;
    char *const *argv;
    struct tl_diag *diag;
};

// The child: waits until it is seized, then becomes the program. Only async-signal-safe calls.
static void launch_child(char *const argv[], int go_fd, int error_fd)
{
    char go;
    if (read(go_fd, &go, 1) != 1)
        _exit(EXEC_FAILED_STATUS);
    execvp(argv[0], argv);
    int error = errno;
    if (write(error_fd, &error, sizeof error) != (ssize_t)sizeof error)
        _exit(EXEC_FAILED_STATUS);
    _exit(EXEC_FAILED_STATUS);
}

// Runs the task to the stop that is wanted: a PTRACE_EVENT_*, or -SIGNAL. Signals that the program
// gets meanwhile are passed on.
static int run_until(struct tl_target *target, int wanted, uint64_t deadline)
{
    int signal = 0;
    for (;;) {
        int status = 0;
        (void)tl_trace(target, PTRACE_CONT, target->pid, 0, (uint64_t)signal);
        int got = tl_trace_wait(target, target->pid, deadline, &status);
        if (got == 0)
            return TL_E_BUSY;
        if (got < 0 || !WIFSTOPPED(status)) {
            target->gone = true;
            if (got > 0)
                target->wait_status = status;
            return TL_E_GONE;
        }
        int event = status >> 16;
        if (wanted > 0 ? event == wanted : event == 0 && WSTOPSIG(status) == -wanted)
            return 0;
        signal = event == 0 ? WSTOPSIG(status) : 0;
    }
}

// Stops at the first instruction of the program proper, by a breakpoint for this one hit (debug
// registers do nothing on some virtual machines, and say so to nobody).
static int run_to_entry(struct tl_target *target, tl_addr entry, uint64_t deadline)
{
    const struct tl_breakpoint *trap = &tl_breakpoint;
    uint8_t original[sizeof trap->bytes];
    struct tl_regs regs;
    if (tl_target_read(target, entry, original, trap->size, NULL) != 0 ||
        tl_memory_write(target, target->pid, entry, trap->bytes, trap->size, NULL, NULL) != 0)
        return TL_E_UNSUPPORTED;
    int error = run_until(target, -SIGTRAP, deadline);
    if (error)
        return error;
    if (tl_trace_get_regs(target, target->pid, &regs) != 0)
        return TL_E_GONE;
    if (tl_regs_pc(&regs) != entry + trap->pc ||
        tl_memory_write(target, target->pid, entry, original, trap->size, NULL, NULL) != 0)
        return TL_E_UNSUPPORTED;
    tl_regs_set_pc(&regs, entry);
    return tl_trace_set_regs(target, target->pid, &regs);
}

// From the stop after exec to a held target.
static int launch_settle(struct tl_target *target, const char *name, struct tl_diag *diag)
{
    uint64_t deadline = tl_clock_ns() + TL_LAUNCH_TIMEOUT_MS * UINT64_C(1000000);
    struct tl_regs regs;
    tl_addr entry = tl_proc_auxv(target->pid, AT_ENTRY);
    if (tl_trace_get_regs(target, target->pid, &regs) != 0)
        return tl_gone(target, diag);
    if (!tl_regs_native(&regs))
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "%s: is a 32-bit program; only 64-bit ones are supported", name);
    int error = tl_regs_pc(&regs) == entry ? 0 : run_to_entry(target, entry, deadline);
    if (error == TL_E_GONE)
        return tl_diag_set(diag, TL_E_GONE, "%s: ended before its first instruction", name);
    if (error == TL_E_UNSUPPORTED)
        return tl_diag_set(diag, error, "%s: could not be stopped at its entry", name);
    if (error)
        return tl_diag_set(diag, error, "%s: did not reach its first instruction in %d ms", name,
                           TL_LAUNCH_TIMEOUT_MS);
    return 0;
}

// The breakpoint gave the target a page of its own; it shares the file's again.
static int entry_page_return(struct tl_target *target, struct tl_diag *diag)
{
    int64_t result = 0;
    struct tl_maps maps;
    tl_addr page = tl_kernel_page_down(tl_proc_auxv(target->pid, AT_ENTRY));
    int error = tl_maps_read(target->pid, &maps, diag);
    if (error)
        return error;
    const struct tl_map *map = tl_maps_at(&maps, page);
    bool plain = map && !(map->prot & (TL_PROT_WRITE | TL_PROT_SHARED));
    int fd = plain ? tl_proc_open_mapped(target->pid, map, NULL) : -1;
    if (fd >= 0 && tl_target_page_equals(target, map, fd, page)) {
        const uint64_t args[6] = {page, tl_page_size(), MADV_DONTNEED};
        error = tl_target_syscall(target, SYS_madvise, args, &result, diag);
    }
    if (fd >= 0)
        close(fd);
    tl_maps_deinit(&maps);
    return error;
}

int tl_target_hold_first(struct tl_target *target, struct tl_diag *diag)
{
    uint64_t deadline = tl_clock_ns() + TL_LAUNCH_TIMEOUT_MS * UINT64_C(1000000);
    struct tl_task *task = tl_task_find(target, target->pid);
    struct tl_proc_status status;
    // The trap at the entry is swallowed: the program has not sent it to itself.
    task->state = TL_TASK_WAITED;
    task->signal = 0;
    (void)tl_trace(target, PTRACE_INTERRUPT, target->pid, 0, 0);
    (void)tl_trace(target, PTRACE_CONT, target->pid, 0, 0);
    int got = tl_task_wait(target, task, deadline);
    if (got == 1)
        got = tl_task_settle(target, task, deadline);
    if (got != 1 || tl_proc_status_read(target->pid, &status, NULL) != 0)
        return tl_gone(target, diag);
    target->execed = false;
    target->start_time = status.start_time;
    target->hold = TL_HOLD_ALL;
    int error = target_bind(target, diag);
    return error ? error : tl_target_borrow(target, diag);
}

static int launch_hold(struct tl_target *target, struct tl_diag *diag)
{
    int error = tl_target_hold_first(target, diag);
    return error ? error : entry_page_return(target, diag);
}

static int launch_pipes(int go[2], int report[2])
{
    if (pipe2(go, O_CLOEXEC) != 0)
        return TL_E_SYSTEM;
    if (pipe2(report, O_CLOEXEC) == 0)
        return 0;
    close(go[0]);
    close(go[1]);
    return TL_E_SYSTEM;
}

static int launch_exec(struct tl_target *target, const char *name, int go_fd, int report_fd,
                       struct tl_diag *diag)
{
    uint64_t deadline = tl_clock_ns() + TL_LAUNCH_TIMEOUT_MS * UINT64_C(1000000);
    int exec_error = 0;
    struct tl_task *task = tl_task_seize(target, target->pid, target->pid);
    if (!task || tl_task_wait(target, task, deadline) != 1)
        return tl_diag_set(diag, TL_E_PERM, "%s: could not be traced (ptrace refused)", name);
    (void)tl_trace(target, PTRACE_SETOPTIONS, target->pid, 0,
                   PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    if (write(go_fd, "g", 1) != 1)
        return tl_gone(target, diag);
    int error = run_until(target, PTRACE_EVENT_EXEC, deadline);
    if (error == 0)
        return launch_settle(target, name, diag);
    if (read(report_fd, &exec_error, sizeof exec_error) == (ssize_t)sizeof exec_error)
        return tl_diag_set(diag, exec_error == ENOENT ? TL_E_USAGE : TL_E_SYSTEM,
                           "%s: can't be started: %s", name, strerror(exec_error));
    return tl_diag_set(diag, error, "%s: did not start", name);
}

static int launch_run(void *opaque)
{
    struct launch_job *job = opaque;
    struct tl_target *target = job->target;
    int go[2], report[2];
    if (launch_pipes(go, report) != 0)
        return tl_diag_set(job->diag, TL_E_SYSTEM, "pipe: %s", strerror(errno));
    sigset_t none;
    sigemptyset(&none);
    target->pid = fork();
    if (target->pid == 0) {
        pthread_sigmask(SIG_SETMASK, &none, NULL); // this thread's is full
        launch_child(job->argv, go[0], report[1]);
    }
    close(go[0]);
    close(report[1]);
    int error = target->pid < 0 ? tl_diag_set(job->diag, TL_E_SYSTEM, "fork: %s", strerror(errno))
                                : launch_exec(target, job->argv[0], go[1], report[0], job->diag);
    close(go[1]);
    close(report[0]);
    if (!error)
        error = launch_hold(target, job->diag);
    return error;
}

int tl_target_launch(char *const argv[], const struct tl_target_options *options,
                     struct tl_target **out, struct tl_diag *diag)
{
    struct tl_target *target = tl_target_alloc(0, options);
    if (!target)
        return tl_diag_set(diag, TL_E_NOMEM, "%s: out of memory", argv[0]);
    target->launched = true;
    struct launch_job job = {target, argv, diag};
    int error = tl_worker_call(target, launch_run, &job, diag);
    if (error) {
        if (target->pid > 0 && target->wait_status == -1) {
            kill(target->pid, SIGKILL);
            target->hold = TL_HOLD_NONE;
            tl_worker_end(target);
            waitpid(target->pid, NULL, 0);
        }
        tl_target_close(target);
        return error;
    }
    *out = target;
    return 0;
}

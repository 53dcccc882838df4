// ptrace on single tasks: seize, wait, take in what a stop means, let go.
//
// Knows nothing of why. Every wait has a deadline. Invariant: a task in state STOPPED is in a
// ptrace stop of ours with its registers as the program left them, and every other task we seized
// has a trap pending, or a deadline runs against it.
#include "attach/held.h"

#include <elf.h>
#include <errno.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_SPINS 40       // looks before sleeping; a stop usually takes a few microseconds
#define WAIT_SLEEP_NS 20000 // then one look in so many
#define EVENT_SHIFT 16      // PTRACE_EVENT_* in a wait status (ptrace(2))

// Children that tasks make before they stop must not escape. No EXITKILL: a target that we attached
// to outlives us.
#define HOLD_OPTIONS                                                                               \
    (PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |         \
     PTRACE_O_TRACESYSGOOD)

void (*tl_target_step_hook)(unsigned step);

uint64_t tl_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void tl_step(struct tl_target *target)
{
    unsigned step = target->step++;
    if (tl_target_step_hook)
        tl_target_step_hook(step);
}

long tl_trace(struct tl_target *target, int request, pid_t tid, uint64_t addr, uint64_t data)
{
    tl_step(target);
    return syscall(SYS_ptrace, (long)request, (long)tid, addr, data);
}

int tl_gone(struct tl_target *target, struct tl_diag *diag)
{
    target->gone = true;
    if (target->execed)
        return tl_diag_set(diag, TL_E_GONE, "pid %d: executed another program meanwhile",
                           target->pid);
    return tl_diag_set(diag, TL_E_GONE, "pid %d: ended meanwhile", target->pid);
}

// One look. 1: a status; 0: none; TL_E_GONE. The end of an attached target is seen, not taken: it
// may be a child of this very program, which wants its status.
static int wait_look(const struct tl_target *target, pid_t tid, int *status)
{
    siginfo_t info = {.si_pid = 0};
    int options = WEXITED | WSTOPPED | __WALL | WNOHANG;
    if (waitid(P_PID, (id_t)tid, &info, options | WNOWAIT) != 0)
        return errno == EINTR ? 0 : TL_E_GONE;
    if (info.si_pid != tid)
        return 0;
    if (tid == target->pid && !target->launched && info.si_code == CLD_EXITED) {
        *status = W_EXITCODE(info.si_status, 0);
        return 1;
    }
    if (tid == target->pid && !target->launched &&
        (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED)) {
        *status = W_EXITCODE(0, info.si_status);
        return 1;
    }
    // Stopped for a signal that it is to get. Taking the status would take the signal too, should we die
    // before we hand it on (Linux, kernel/exit.c: wait_task_stopped): a breakpoint's would be lost, and
    // the thread run on in the middle of an instruction. Resuming it is all that is needed.
    if (info.si_code == CLD_TRAPPED && !(info.si_status >> 8)) {
        *status = W_STOPCODE(info.si_status);
        return 1;
    }
    return waitpid(tid, status, __WALL | WNOHANG) == tid;
}

int tl_trace_wait(struct tl_target *target, pid_t tid, uint64_t deadline_ns, int *status)
{
    for (unsigned spin = 0;; spin++) {
        int got = wait_look(target, tid, status);
        if (got)
            return got;
        if (tl_clock_ns() >= deadline_ns)
            return 0;
        if (spin < WAIT_SPINS) {
            sched_yield();
        } else {
            struct timespec pause = {.tv_nsec = WAIT_SLEEP_NS};
            nanosleep(&pause, NULL);
        }
    }
}

int tl_trace_get_regs(struct tl_target *target, pid_t tid, struct tl_regs *out)
{
    struct tl_regs regs = {.size = 0};
    struct iovec vector = {regs.word, sizeof regs.word};
    if (tl_trace(target, PTRACE_GETREGSET, tid, NT_PRSTATUS, (uint64_t)(uintptr_t)&vector) != 0)
        return TL_E_GONE;
    regs.size = vector.iov_len;
    if (tl_regs_more.note) {
        vector = (struct iovec){&regs.word[tl_regs_more.word], tl_regs_more.size};
        if (tl_trace(target, PTRACE_GETREGSET, tid, tl_regs_more.note,
                     (uint64_t)(uintptr_t)&vector) != 0)
            regs.word[tl_regs_more.word] = 0; // a kernel without that set
    }
    *out = regs;
    return 0;
}

int tl_trace_set_regs(struct tl_target *target, pid_t tid, const struct tl_regs *regs)
{
    struct tl_regs copy = *regs;
    struct iovec vector = {copy.word, copy.size};
    if (tl_trace(target, PTRACE_SETREGSET, tid, NT_PRSTATUS, (uint64_t)(uintptr_t)&vector) != 0)
        return TL_E_GONE;
    return 0;
}

// ---- task records -------------------------------------------------------------------------------

struct tl_task *tl_task_find(struct tl_target *target, pid_t tid)
{
    for (size_t i = 0; i < target->task_count; i++) {
        if (target->task[i]->tid == tid)
            return target->task[i];
    }
    return NULL;
}

static struct tl_task *task_add(struct tl_target *target, pid_t tid, pid_t tgid)
{
    if (target->task_count == target->task_room) {
        size_t room = target->task_room ? target->task_room * 2 : 64;
        struct tl_task **larger =
            room > TL_TASKS_MAX ? NULL : realloc(target->task, room * sizeof *larger);
        if (!larger) {
            errno = ENOMEM;
            return NULL;
        }
        target->task = larger;
        target->task_room = room;
    }
    struct tl_task *task = calloc(1, sizeof *task);
    if (!task)
        return NULL;
    task->tid = tid;
    task->tgid = tgid;
    task->blocked.number = -1;
    target->task[target->task_count++] = task;
    return task;
}

void tl_task_destroy(struct tl_task *task)
{
    free(task->vectors);
    free(task);
}

void tl_tasks_sweep(struct tl_target *target)
{
    size_t kept = 0;
    for (size_t i = 0; i < target->task_count; i++) {
        if (target->task[i]->state == TL_TASK_GONE)
            tl_task_destroy(target->task[i]);
        else
            target->task[kept++] = target->task[i];
    }
    target->task_count = kept;
}

// Held already by this very thread: it was still in the kernel when the last hold ended.
static bool task_is_ours(pid_t tid)
{
    struct tl_proc_status status;
    return tl_proc_status_read(tid, &status, NULL) == 0 && status.tracer == gettid();
}

struct tl_task *tl_task_seize(struct tl_target *target, pid_t tid, pid_t tgid)
{
    struct tl_task look = {.tid = tid};
    tl_call_look(&look); // before: a seized task's call ends at signals that it would not have seen
    if (tl_trace(target, PTRACE_SEIZE, tid, 0, HOLD_OPTIONS) != 0) {
        int error = errno;
        if (error != EPERM || !task_is_ours(tid)) {
            errno = error;
            return NULL;
        }
    }
    struct tl_task *task = task_add(target, tid, tgid);
    if (task)
        task->blocked = look.blocked;
    if (!task) {
        tl_trace(target, PTRACE_DETACH, tid, 0, 0); // fails while it runs; the thread's end lets go
        errno = ENOMEM;
        return NULL;
    }
    if (tl_trace(target, PTRACE_INTERRUPT, tid, 0, 0) != 0)
        task->state = TL_TASK_GONE;
    return task;
}

// ---- what a stop means --------------------------------------------------------------------------

static bool shares_memory(const struct tl_target *target, pid_t pid)
{
    return syscall(SYS_kcmp, target->pid, pid, KCMP_VM, 0, 0) == 0;
}

// A child that the kernel seized for us. It reports a stop of its own.
static void task_birth(struct tl_target *target, struct tl_task *parent)
{
    unsigned long message = 0;
    if (tl_trace(target, PTRACE_GETEVENTMSG, parent->tid, 0, (uint64_t)(uintptr_t)&message) != 0)
        return;
    pid_t tid = (pid_t)message;
    if (tl_task_find(target, tid))
        return;
    struct tl_proc_status status;
    pid_t tgid = tl_proc_status_read(tid, &status, NULL) == 0 ? status.tgid : parent->tgid;
    struct tl_task *task = task_add(target, tid, tgid);
    if (task)
        task->newborn = true;
}

static void task_ended(struct tl_target *target, struct tl_task *task, int status)
{
    task->state = TL_TASK_GONE;
    if (task->tid == target->pid) {
        target->gone = true;
        if (target->launched)
            target->wait_status = status;
    }
}

static bool task_stopped(struct tl_target *target, struct tl_task *task)
{
    if (task->newborn && task->tgid != target->pid && !shares_memory(target, task->tid)) {
        tl_trace(target, PTRACE_DETACH, task->tid, 0, (uint64_t)task->signal);
        task->state = TL_TASK_GONE; // a plain fork: not ours to hold
        return true;
    }
    task->newborn = false;
    if (tl_trace_get_regs(target, task->tid, &task->regs) != 0)
        return false; // killed just now; its end is reported next
    task->has_regs = true;
    task->state = TL_TASK_STOPPED;
    tl_call_learn(target, task);
    return true;
}

bool tl_task_event(struct tl_target *target, struct tl_task *task, int status)
{
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
        task_ended(target, task, status);
        return true;
    }
    if (!WIFSTOPPED(status))
        return false;
    int event = status >> EVENT_SHIFT;
    switch (event) {
    case PTRACE_EVENT_STOP:
        task->signal = 0;
        return task_stopped(target, task);
    case 0:
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) // a system call stop left over: as good as a trap
            task->signal = 0;
        else
            task->signal = WSTOPSIG(status);
        return task_stopped(target, task);
    case PTRACE_EVENT_EXEC:
        // It has another address space now, which is not ours to hold; and it stands inside the
        // call.
        target->execed |= task->tgid == target->pid;
        tl_trace(target, PTRACE_DETACH, task->tid, 0, 0);
        task->state = TL_TASK_GONE;
        return true;
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
        task_birth(target, task);
        break;
    default:
        break;
    }
    // Any trap uses up the pending one (ptrace_stop, kernel/signal.c, Linux 6.18): ask again.
    tl_trace(target, PTRACE_INTERRUPT, task->tid, 0, 0);
    tl_trace(target, PTRACE_CONT, task->tid, 0, 0);
    return false;
}

int tl_task_wait(struct tl_target *target, struct tl_task *task, uint64_t deadline_ns)
{
    while (task->state == TL_TASK_WAITED || task->state == TL_TASK_IN_KERNEL) {
        int status = 0;
        int got = tl_trace_wait(target, task->tid, deadline_ns, &status);
        if (got == 0)
            return 0;
        if (got < 0) {
            task->state = TL_TASK_GONE;
            if (task->tid == target->pid)
                target->gone = true;
        } else {
            (void)tl_task_event(target, task, status);
        }
    }
    return task->state == TL_TASK_GONE ? TL_E_GONE : 1;
}

// Whether a stopped task's own last instruction raised a signal that it has not been stopped for
// yet: our trap is taken before it (get_signal, kernel/signal.c, Linux 6.18). Such a signal belongs
// to the registers as they are. None can come while it stands.
static bool task_raised(const struct tl_task *task)
{
    const uint64_t raised = UINT64_C(1) << (SIGSEGV - 1) | UINT64_C(1) << (SIGBUS - 1) |
                            UINT64_C(1) << (SIGILL - 1) | UINT64_C(1) << (SIGTRAP - 1) |
                            UINT64_C(1) << (SIGFPE - 1) | UINT64_C(1) << (SIGSYS - 1);
    struct tl_proc_status status;
    return task->state == TL_TASK_STOPPED && tl_proc_status_read(task->tid, &status, NULL) == 0 &&
           (status.sig_pending & ~status.sig_blocked & raised) != 0;
}

int tl_task_settle(struct tl_target *target, struct tl_task *task, uint64_t deadline_ns)
{
    // Asked once: delivering a signal runs no instruction of the thread's that could raise another.
    for (int i = 0; task->signal != 0 || (i == 0 && task_raised(task)); i++) {
        if (i == TL_SIGNALS_IN_A_ROW_MAX)
            return 0;
        int signal = task->signal;
        task->signal = 0;
        task->has_regs = false;
        task->state = TL_TASK_WAITED;
        // One that is still to come stops it by itself; our trap would come before it again.
        bool trapped = signal == 0 || tl_trace(target, PTRACE_INTERRUPT, task->tid, 0, 0) == 0;
        if (!trapped || tl_trace(target, PTRACE_CONT, task->tid, 0, (uint64_t)signal) != 0) {
            // Killed just now: the wait below sees its end.
        }
        int got = tl_task_wait(target, task, deadline_ns);
        if (got != 1)
            return got;
    }
    return 1;
}

// ---- letting go ---------------------------------------------------------------------------------

// The signals that would be thrown away, as a mask. While a task is traced even ignored signals
// wake it (sig_ignored, kernel/signal.c, Linux 6.18), and they must not break its call.
static uint64_t signals_ignored(const struct tl_proc_status *status)
{
    const uint64_t by_default =
        UINT64_C(1) << (SIGCHLD - 1) | UINT64_C(1) << (SIGURG - 1) | UINT64_C(1) << (SIGWINCH - 1);
    return status->sig_ignored | (by_default & ~status->sig_caught);
}

// A signal that the task could take now, so that an EINTR is the program's own.
static bool signal_deliverable(const struct tl_task *task)
{
    struct tl_proc_status status;
    if (tl_proc_status_read(task->tid, &status, NULL) != 0)
        return true;
    uint64_t signals = (status.sig_pending | status.sig_shared_pending) & ~status.sig_blocked;
    if (task->signal)
        signals |= UINT64_C(1) << (task->signal - 1);
    return (signals & ~signals_ignored(&status)) != 0;
}

static void task_repair_call(struct tl_target *target, struct tl_task *task)
{
    if (!task->has_regs || !tl_regs_call_reissuable(&task->regs))
        return;
    if (signal_deliverable(task))
        return;
    tl_regs_reissue(&task->regs);
    (void)tl_trace_set_regs(target, task->tid, &task->regs);
}

void tl_task_release(struct tl_target *target, struct tl_task *task)
{
    int status = 0;
    if (task->state == TL_TASK_GONE)
        return;
    if (task->state == TL_TASK_WAITED || task->state == TL_TASK_IN_KERNEL) {
        if (wait_look(target, task->tid, &status) == 1)
            (void)tl_task_event(target, task, status);
    }
    if (task->state == TL_TASK_STOPPED) {
        tl_vectors_give_back(target, task);
        task_repair_call(target, task);
        if (tl_trace(target, PTRACE_DETACH, task->tid, 0, (uint64_t)task->signal) != 0 &&
            wait_look(target, task->tid, &status) == 1 &&
            (WIFEXITED(status) || WIFSIGNALED(status)))
            task_ended(target, task, status);
    }
    task->state = TL_TASK_GONE;
}

// The signals of a stopped thread, as /proc and ptrace tell them.
//
// Only looks. Invariant: what may be blocked or pending is said to be: a system call that waits
// with another mask (ppoll, sigsuspend) shows that one in /proc, and the thread's own to ptrace;
// both count.
#include "attach/signals.h"

#include "attach/held.h"

#include <sys/ptrace.h>

#define MASK_SIZE 8 // bytes of the kernel's sigset_t

struct mask_job {
    struct tl_target *target;
    pid_t tid;
    uint64_t mask;
};

static int mask_ask(void *opaque)
{
    struct mask_job *job = opaque;
    uint64_t mask = 0;
    long got = tl_trace(job->target, PTRACE_GETSIGMASK, job->tid, MASK_SIZE, (uintptr_t)&mask);
    if (got == 0)
        job->mask = mask;
    return got == 0 ? 0 : TL_E_GONE;
}

int tl_target_thread_signals(struct tl_target *target, size_t index, struct tl_thread_signals *out)
{
    if (index >= target->task_count)
        return TL_E_USAGE;
    const struct tl_task *task = target->task[index];
    struct mask_job job = {target, task->tid, 0};
    struct tl_proc_status status;
    int error = tl_proc_status_read(task->tid, &status, NULL);
    if (!error && task->state == TL_TASK_STOPPED)
        error = tl_worker_call(target, mask_ask, &job, NULL);
    if (error)
        return error;
    *out = (struct tl_thread_signals){
        .process = task->tgid,
        .blocked = status.sig_blocked | job.mask,
        .pending = status.sig_pending | status.sig_shared_pending,
        .seccomp = status.seccomp != 0,
    };
    if (task->signal > 0)
        out->pending |= UINT64_C(1) << (task->signal - 1);
    return 0;
}

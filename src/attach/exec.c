// A thread that executes another program, from the agent's hook to the new program's first instruction.
//
//   ASKED   seized in the agent's wait    --> system call stops, until one that executes a program
//   CALL    inside that call              --> PTRACE_EVENT_EXEC, or the call's end: it failed
//   ENTRY   the loader works              --> the entry stub's system call
//
// Nothing is stopped for longer than a look takes, and no breakpoint is set, which would kill the
// program if we died. Instead the loader is told that the program starts at the entry stub (AT_ENTRY
// of the auxiliary vector): code that sets AT_ENTRY right, a system call, where a tracer stops it, and a
// jump to the true entry.
// Invariant: whenever we die or let go, the process runs on as if nobody had looked.
#include "attach/exec.h"

#include "attach/held.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define EVENT_SHIFT 16 // PTRACE_EVENT_* in a wait status (ptrace(2))
#define CALL_STOP (SIGTRAP | 0x80) // with PTRACE_O_TRACESYSGOOD
#define EXEC_OPTIONS (PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD)
#define SEIZE_TIMEOUT_MS 80  // a thread that spins in the agent stops when it gets a processor
#define CALL_TIMEOUT_MS 2000 // until the call has begun and ended
#define OTHER_CALLS_MAX 64   // of signal handlers that come first
#define STACK_WORDS_MAX (1u << 20) // arguments and environment: 6 MiB at most (execve(2))
#define AUX_PAIRS_MAX 64u
#define SCRIPT_DEPTH_MAX 5   // BINPRM_MAX_RECURSION and one (fs/exec.c, Linux 6.18)
#define SCRIPT_LINE_MAX 256u // BINPRM_BUF_SIZE

enum phase { PHASE_ASKED, PHASE_CALL, PHASE_ENTRY, PHASE_LEFT };

struct tl_exec {
    struct tl_target *target; // of the new program; NULL when it was handed out
    pid_t tid;                // becomes target->pid when it executes
    enum phase phase;
    bool stopped;             // in a stop that was reported and not ended
    int signal;               // ... before the delivery of this one
    unsigned other_calls;
    tl_addr entry, stub;
    uint8_t stub_before[TL_STUB_SIZE_MAX];
    size_t stub_size;
    uint64_t deadline_ns;
    int early;        // what the first stop brought, an enum tl_exec_news
    struct tl_diag *diag;
};

static uint64_t deadline_in(int ms)
{
    return tl_clock_ns() + (uint64_t)ms * 1000000u;
}

// ---- letting go ---------------------------------------------------------------------------------

static void exec_let_go(struct tl_exec *exec)
{
    struct tl_target *target = exec->target;
    if (exec->phase == PHASE_LEFT)
        return;
    exec->phase = PHASE_LEFT;
    if (exec->stopped) {
        tl_trace(target, PTRACE_DETACH, exec->tid, 0, (uint64_t)exec->signal);
        return;
    }
    struct tl_task *task = tl_task_seize(target, exec->tid, target->pid);
    if (!task)
        return; // gone, or the end of this thread lets go of it
    (void)tl_task_wait(target, task, deadline_in(TL_STRAGGLER_TIMEOUT_MS));
    tl_task_release(target, task);
    tl_tasks_sweep(target);
}

static int exec_refuse(struct tl_exec *exec, int error, const char *why)
{
    pid_t pid = exec->target->pid;
    exec_let_go(exec);
    return tl_diag_set(exec->diag, error, "pid %d: executes a program that is not probed: %s", pid,
                       why);
}

// ---- programs that must not be held -------------------------------------------------------------

// Where the kernel will find what the call names. False: can't be said.
static bool exec_path(struct tl_exec *exec, const struct tl_exec_call *call, char *out, size_t size)
{
    char name[4096];
    size_t got = 0;
    while (got < sizeof name - 1 && // byte by byte: the string may end before a hole
           tl_target_read(exec->target, call->path + got, name + got, 1, NULL) == 0 && name[got])
        got++;
    name[got] = '\0';
    int length;
    if (name[0] == '/')
        length = snprintf(out, size, "/proc/%d/root%s", (int)exec->tid, name);
    else if (call->dir_fd == TL_EXEC_CWD)
        length = snprintf(out, size, "/proc/%d/cwd/%s", (int)exec->tid, name);
    else if (!name[0])
        length = snprintf(out, size, "/proc/%d/fd/%d", (int)exec->tid, call->dir_fd);
    else
        length = snprintf(out, size, "/proc/%d/fd/%d/%s", (int)exec->tid, call->dir_fd, name);
    return length > 0 && (size_t)length < size;
}

// The interpreter that a script names. False: it is none.
static bool script_interpreter(struct tl_exec *exec, int fd, char *out, size_t size)
{
    char line[SCRIPT_LINE_MAX + 1] = {0};
    if (pread(fd, line, SCRIPT_LINE_MAX, 0) < 3 || line[0] != '#' || line[1] != '!')
        return false;
    char *name = line + 2 + strspn(line + 2, " \t");
    name[strcspn(name, " \t\n")] = '\0';
    int length = snprintf(out, size, "/proc/%d/root%s", (int)exec->tid, name);
    return name[0] == '/' && length > 0 && (size_t)length < size;
}

// Executing it while it is traced by somebody without the right to trace everybody would change what it
// may do (begin of cap_bprm_creds_from_file, security/commoncap.c, Linux 6.18), or it can't be read.
static bool must_not_be_held(struct tl_exec *exec, const struct tl_exec_call *call)
{
    char path[4096 + 64], next[4096 + 64];
    if (tl_check_may_all())
        return false;
    bool known = exec_path(exec, call, path, sizeof path);
    for (int depth = 0; known && depth < SCRIPT_DEPTH_MAX; depth++) {
        struct stat st;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return errno != ENOENT; // the call will fail
        bool gains = fstat(fd, &st) != 0 || (st.st_mode & (S_ISUID | S_ISGID)) ||
                     fgetxattr(fd, "security.capability", NULL, 0) > 0;
        bool script = !gains && script_interpreter(exec, fd, next, sizeof next);
        close(fd);
        if (!script)
            return gains;
        memcpy(path, next, sizeof path);
    }
    return true;
}

// ---- the new program ----------------------------------------------------------------------------

// The first word behind the next word that is 0. 0: not found.
static tl_addr behind_zero(struct tl_exec *exec, tl_addr at)
{
    uint64_t word[TL_PAGE_SIZE / sizeof(uint64_t)];
    for (size_t read = 0; read < STACK_WORDS_MAX;) {
        size_t count = (TL_PAGE_SIZE - at % TL_PAGE_SIZE) / sizeof word[0];
        if (tl_target_read(exec->target, at, word, count * sizeof word[0], NULL) != 0)
            return 0;
        for (size_t i = 0; i < count; i++) {
            if (word[i] == 0)
                return at + (i + 1) * sizeof word[0];
        }
        at += count * sizeof word[0];
        read += count;
    }
    return 0;
}

// The kernel left on the stack: argc, arguments, 0, environment, 0, pairs of the auxiliary vector
// (System V ABI, AMD64, 3.4.1). Where the value of AT_ENTRY lies; 0: not found.
static tl_addr aux_entry_find(struct tl_exec *exec, tl_addr sp)
{
    struct {
        uint64_t type, value;
    } pair;
    uint64_t argc = 0;
    if (sp % sizeof argc != 0 ||
        tl_target_read(exec->target, sp, &argc, sizeof argc, NULL) != 0 || argc > STACK_WORDS_MAX)
        return 0;
    tl_addr at = behind_zero(exec, sp + (argc + 2) * sizeof argc);
    for (size_t i = 0; at && i < AUX_PAIRS_MAX; i++, at += sizeof pair) {
        if (tl_target_read(exec->target, at, &pair, sizeof pair, NULL) != 0 || pair.type == AT_NULL)
            return 0;
        if (pair.type == AT_ENTRY)
            return pair.value == exec->entry ? at + sizeof pair.type : 0;
    }
    return 0;
}

// Makes the loader start the program at the stub.
static int stub_set(struct tl_exec *exec, tl_addr sp)
{
    struct tl_target *target = exec->target;
    uint8_t code[TL_STUB_SIZE_MAX];
    tl_addr aux_addr = aux_entry_find(exec, sp);
    if (!aux_addr || tl_stub_place(target, 0, &exec->stub, NULL) != 0)
        return TL_E_UNSUPPORTED;
    exec->stub_size = tl_entry_stub_build(exec->entry, aux_addr, code);
    if (tl_target_read(target, exec->stub, exec->stub_before, exec->stub_size, NULL) != 0 ||
        tl_memory_write(target, exec->tid, exec->stub, code, exec->stub_size, NULL, NULL) != 0 ||
        tl_memory_write(target, exec->tid, aux_addr, &exec->stub, sizeof exec->stub, NULL, NULL) !=
            0)
        return TL_E_UNSUPPORTED;
    return 0;
}

// The program stands at its entry, or in the stub's call: held from here on.
static int entry_reached(struct tl_exec *exec)
{
    struct tl_target *target = exec->target;
    struct tl_task *task = tl_task_seize(target, target->pid, target->pid);
    if (!task)
        return exec_refuse(exec, TL_E_GONE, "it ended");
    int error = tl_target_hold_first(target, exec->diag);
    exec->phase = PHASE_LEFT; // whoever has the target lets go
    if (!error)
        return TL_EXEC_READY;
    tl_release_all(target);
    return error;
}

// In the stop right behind the call.
static int program_begin(struct tl_exec *exec)
{
    struct tl_regs regs;
    exec->phase = PHASE_ENTRY;
    exec->tid = exec->target->pid;
    exec->deadline_ns = deadline_in(TL_LAUNCH_TIMEOUT_MS);
    exec->entry = tl_proc_auxv(exec->tid, AT_ENTRY);
    if (tl_trace_get_regs(exec->target, exec->tid, &regs) != 0)
        return exec_refuse(exec, TL_E_GONE, "it ended");
    if (!tl_regs_native(&regs))
        return exec_refuse(exec, TL_E_UNSUPPORTED, "it is a 32-bit one");
    if (tl_regs_pc(&regs) == exec->entry)
        return entry_reached(exec);
    if (stub_set(exec, tl_regs_sp(&regs)) != 0)
        return exec_refuse(exec, TL_E_UNSUPPORTED, "it can't be stopped at its entry");
    return TL_EXEC_PENDING;
}

static int stub_reached(struct tl_exec *exec, struct tl_regs *regs)
{
    struct tl_target *target = exec->target;
    unsigned note = tl_regs_skip_call(regs, exec->entry);
    int none = -1;
    struct iovec number = {&none, sizeof none};
    if (note && tl_trace(target, PTRACE_SETREGSET, exec->tid, note,
                         (uint64_t)(uintptr_t)&number) != 0)
        return exec_refuse(exec, TL_E_GONE, "it ended");
    // Nobody needs the stub any more: the auxiliary vector is as it was, and the thread goes on at
    // the entry.
    if (tl_trace_set_regs(target, exec->tid, regs) != 0)
        return exec_refuse(exec, TL_E_GONE, "it ended");
    (void)tl_memory_write(target, exec->tid, exec->stub, exec->stub_before, exec->stub_size, NULL,
                          NULL);
    return entry_reached(exec);
}

// ---- stops --------------------------------------------------------------------------------------

static int call_begins(struct tl_exec *exec, struct tl_regs *regs,
                       const struct __ptrace_syscall_info *info)
{
    struct tl_exec_call call;
    uint64_t args[6];
    for (size_t i = 0; i < TL_ARRAY_COUNT(args); i++)
        args[i] = info->entry.args[i];
    if (exec->phase == PHASE_ENTRY)
        return tl_regs_pc(regs) == tl_entry_stub_pc(exec->stub) ? stub_reached(exec, regs)
                                                                : TL_EXEC_PENDING;
    if (!tl_call_execs(info->entry.nr, args, &call)) {
        if (++exec->other_calls <= OTHER_CALLS_MAX)
            return TL_EXEC_PENDING;
        exec_let_go(exec);
        return TL_EXEC_FAILED;
    }
    if (must_not_be_held(exec, &call))
        return exec_refuse(exec, TL_E_PERM,
                           "it gains rights or can't be read, and holding it would change what it "
                           "may do: run as root");
    exec->phase = PHASE_CALL;
    return TL_EXEC_PENDING;
}

static int call_stop(struct tl_exec *exec)
{
    struct __ptrace_syscall_info info = {.op = PTRACE_SYSCALL_INFO_NONE};
    struct tl_regs regs;
    if (tl_trace(exec->target, PTRACE_GET_SYSCALL_INFO, exec->tid, sizeof info,
                 (uint64_t)(uintptr_t)&info) < 0 ||
        tl_trace_get_regs(exec->target, exec->tid, &regs) != 0)
        return exec_refuse(exec, TL_E_UNSUPPORTED, "the kernel does not tell its system calls");
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
        return call_begins(exec, &regs, &info);
    if (exec->phase == PHASE_CALL) {
        exec_let_go(exec);
        return TL_EXEC_FAILED;
    }
    return TL_EXEC_PENDING;
}

// Takes in one stop and lets the thread go on. An enum tl_exec_news, or TL_E_*.
static int stop_take(struct tl_exec *exec, int status)
{
    int event = status >> EVENT_SHIFT, signal = WSTOPSIG(status), news = TL_EXEC_PENDING;
    exec->stopped = true;
    exec->signal = 0;
    if (event == PTRACE_EVENT_EXEC)
        news = program_begin(exec);
    else if (event == 0 && signal == CALL_STOP)
        news = call_stop(exec);
    else if (event == 0)
        exec->signal = signal;
    if (news != TL_EXEC_PENDING)
        return news;
    // A stop of the whole process (SIGSTOP) goes on until somebody ends it.
    bool group = event == PTRACE_EVENT_STOP && signal != SIGTRAP;
    tl_trace(exec->target, group ? PTRACE_LISTEN : PTRACE_SYSCALL, exec->tid, 0,
             (uint64_t)exec->signal);
    exec->stopped = false;
    return TL_EXEC_PENDING;
}

// One status of the thread, under its own id or that of the process. As tl_trace_wait.
static int status_await(struct tl_exec *exec, uint64_t until_ns, int *status)
{
    int got = tl_trace_wait(exec->target, exec->tid, until_ns, status);
    if (got != TL_E_GONE || exec->tid == exec->target->pid || exec->phase != PHASE_CALL)
        return got;
    exec->tid = exec->target->pid;
    return tl_trace_wait(exec->target, exec->tid, until_ns, status);
}

// One stop. An enum tl_exec_news, or TL_E_*; *waited: there was none until then.
static int exec_step(struct tl_exec *exec, uint64_t until_ns, bool *waited)
{
    int status = 0;
    int got = status_await(exec, until_ns, &status);
    *waited = got == 0;
    if (got == 0 && tl_clock_ns() < exec->deadline_ns)
        return TL_EXEC_PENDING;
    if (got == 0)
        return exec_refuse(exec, TL_E_BUSY, "it did not reach its first instruction in time");
    if (got < 0 || !WIFSTOPPED(status)) {
        exec->phase = PHASE_LEFT;
        return tl_diag_set(exec->diag, TL_E_GONE, "pid %d: ended", (int)exec->target->pid);
    }
    return stop_take(exec, status);
}

// ---- the holding thread's work ------------------------------------------------------------------

static int begin_run(void *opaque)
{
    struct tl_exec *exec = opaque;
    struct tl_target *target = exec->target;
    bool waited = false;
    if (tl_trace(target, PTRACE_SEIZE, exec->tid, 0, EXEC_OPTIONS) != 0) {
        int error = errno;
        exec->phase = PHASE_LEFT;
        return tl_diag_set(exec->diag, error == EPERM ? TL_E_PERM : TL_E_GONE,
                           "pid %d: executes a program that is not probed: thread %d: %s",
                           (int)target->pid, (int)exec->tid, strerror(error));
    }
    tl_trace(target, PTRACE_INTERRUPT, exec->tid, 0, 0);
    // It stops before its next instruction, or, where it is in the call already, at the call's event. Only
    // who must be able to let it go before the call has to see it stop.
    bool privileged = tl_check_may_all();
    exec->early = exec_step(exec, deadline_in(privileged ? 0 : SEIZE_TIMEOUT_MS), &waited);
    if (waited && !privileged) {
        exec_let_go(exec);
        return tl_diag_set(exec->diag, TL_E_BUSY, "pid %d: thread %d did not stop in %d ms",
                           (int)target->pid, (int)exec->tid, SEIZE_TIMEOUT_MS);
    }
    return exec->early < 0 ? exec->early : 0;
}

struct poll_job {
    struct tl_exec *exec;
    uint64_t until_ns;
};

static int poll_run(void *opaque)
{
    struct poll_job *job = opaque;
    int news = job->exec->early; // it had executed before it was seized
    for (bool waited = false; news == TL_EXEC_PENDING && !waited;)
        news = exec_step(job->exec, job->until_ns, &waited);
    return news;
}

static int end_run(void *opaque)
{
    exec_let_go(opaque);
    return 0;
}

// ---- entries ------------------------------------------------------------------------------------

int tl_exec_begin(pid_t tid, const struct tl_target *known, struct tl_exec **out,
                  struct tl_diag *diag)
{
    struct tl_proc_status status;
    if (tl_proc_status_read(tid, &status, NULL) != 0)
        return tl_diag_set(diag, TL_E_GONE, "pid %d: ended", (int)tid);
    struct tl_exec *exec = calloc(1, sizeof *exec);
    struct tl_target *target = exec ? tl_target_alloc(status.tgid, NULL) : NULL;
    if (!target) {
        free(exec);
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    }
    if (known && known->pid == status.tgid && known->lock_fd >= 0)
        target->lock_fd = fcntl(known->lock_fd, F_DUPFD_CLOEXEC, 0);
    *exec = (struct tl_exec){.target = target,
                             .tid = tid,
                             .deadline_ns = deadline_in(CALL_TIMEOUT_MS),
                             .diag = diag};
    int error = tl_worker_call(target, begin_run, exec, diag);
    if (error) {
        tl_exec_end(exec);
        return error;
    }
    *out = exec;
    return 0;
}

int tl_exec_poll(struct tl_exec *exec, int budget_ms, struct tl_target **out, struct tl_diag *diag)
{
    struct poll_job job = {exec, deadline_in(budget_ms)};
    if (exec->phase == PHASE_LEFT && exec->early == TL_EXEC_PENDING)
        return tl_diag_set(diag, TL_E_GONE, "pid %d: was let go", (int)tl_exec_pid(exec));
    exec->diag = diag;
    int news = tl_worker_call(exec->target, poll_run, &job, diag);
    if (news == TL_EXEC_READY) {
        *out = exec->target;
        exec->target = NULL;
    }
    return news;
}

pid_t tl_exec_pid(const struct tl_exec *exec)
{
    return exec->target ? exec->target->pid : exec->tid;
}

bool tl_exec_happened(const struct tl_exec *exec)
{
    return exec->entry != 0;
}

void tl_exec_end(struct tl_exec *exec)
{
    if (!exec)
        return;
    if (exec->target) {
        exec->diag = NULL;
        (void)tl_worker_call(exec->target, end_run, exec, NULL);
        tl_target_close(exec->target);
    }
    free(exec);
}

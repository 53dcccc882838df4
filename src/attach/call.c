// What a stopped thread's system call is, where the kernel does not say it, and what a call of ours
// would cost the thread.
//
// On some machines an interrupted call looks in a ptrace stop as if it had not begun (isa.h). The
// kernel knows more, and acts by it when the thread goes on. So a thread that calls of ours are to
// run in is let through its call once more, with a stop pending: the call comes back at once, and
// its end is a stop that shows the truth. Invariant: nothing of the thread is changed here, so it
// may be let go at any moment.
#include "attach/held.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define SHOW_TRIES_MAX 64          // signals and calls that don't come back
#define CALL_STOP (SIGTRAP | 0x80) // with PTRACE_O_TRACESYSGOOD
#define EVENT_SHIFT 16             // PTRACE_EVENT_* in a wait status (ptrace(2))
#define SMALL_FILE_MAX 4096
#define BLOCKED_FIELDS 9 // number, six arguments, stack pointer, pc (proc(5))
#define VECTORS_SIZE_MAX (1u << 20)
// Of a frame that the kernel makes for a handler, with the longest vector registers that processors
// have; read in pieces, for a stack may end before.
#define HANDLER_FRAME_MAX 16384u
#define FRAME_STEP 1024u

// ---- before the stop and behind it --------------------------------------------------------------

// What the kernel tells of the call of a task that is blocked or stopped. number -1: none. In a
// stop it may be that of an earlier call: the kernel may take it from the register alone.
static struct tl_blocked call_told(pid_t tid)
{
    const struct tl_blocked none = {.number = -1};
    char path[64], *text;
    size_t size, count = 0;
    uint64_t field[BLOCKED_FIELDS];
    (void)snprintf(path, sizeof path, "/proc/%d/syscall", tid);
    if (tl_proc_read_file(path, SMALL_FILE_MAX, &text, &size, NULL) != 0)
        return none;
    for (char *at = text, *end; count < BLOCKED_FIELDS; at = end, count++) {
        errno = 0;
        field[count] = (uint64_t)strtoull(at, &end, 0);
        if (end == at || errno != 0)
            break;
    }
    free(text);
    if (count < BLOCKED_FIELDS) // it runs, or waits for something else
        return none;
    return (struct tl_blocked){.number = (long)field[0],
                               .first_argument = field[1],
                               .sp = field[BLOCKED_FIELDS - 2],
                               .pc = field[BLOCKED_FIELDS - 1]};
}

void tl_call_look(struct tl_task *task)
{
    task->blocked = (struct tl_blocked){.number = -1};
    if (tl_call_insn.size)
        task->blocked = call_told(task->tid);
}

static bool call_insn_at(struct tl_target *target, tl_addr addr)
{
    uint8_t bytes[sizeof tl_call_insn.bytes];
    return tl_target_read(target, addr, bytes, tl_call_insn.size, NULL) == 0 &&
           memcmp(bytes, tl_call_insn.bytes, tl_call_insn.size) == 0;
}

// A handler that came back to pc has left its frame below the stack pointer, and pc in it. What
// lies there may be older: then it is not known. (One on an alternate stack leaves none.)
static bool handler_may_have_come(struct tl_target *target, tl_addr pc, tl_addr sp)
{
    uint64_t words[FRAME_STEP / sizeof(uint64_t)];
    for (tl_addr at = sp & ~(tl_addr)7; sp - at < HANDLER_FRAME_MAX; at -= FRAME_STEP) {
        if (at < FRAME_STEP ||
            tl_target_read(target, at - FRAME_STEP, words, FRAME_STEP, NULL) != 0)
            return false; // the stack ends
        for (size_t i = 0; i < TL_ARRAY_COUNT(words); i++) {
            if (words[i] == pc)
                return true;
        }
    }
    return false;
}

static bool call_is(const struct tl_blocked *call, const struct tl_regs *regs)
{
    return call->number == tl_regs_call_suspect(regs) && call->pc == tl_regs_pc(regs) &&
           call->sp == tl_regs_sp(regs);
}

// EINTR that may be of our making: the registers still look as they did when the thread was blocked
// in the call. (A handler that ran in between, and returned right here, is the one way to be
// wrong.) One that was not seen blocked has come into the call since: some kernels tell its
// argument even in the stop.
void tl_call_learn(struct tl_target *target, struct tl_task *task)
{
    struct tl_regs *regs = &task->regs;
    struct tl_blocked call = task->blocked;
    if (!tl_call_insn.size || !tl_regs_call_suspected(regs))
        return;
    bool seen = call_is(&call, regs);
    if (!seen)
        call = call_told(task->tid);
    if (!call_is(&call, regs) || !call_insn_at(target, tl_regs_pc(regs) - tl_call_insn.size) ||
        (!seen && handler_may_have_come(target, tl_regs_pc(regs), tl_regs_sp(regs))))
        return;
    tl_regs_call_known(regs, call.number, call.first_argument);
}

// ---- through the call ---------------------------------------------------------------------------

enum step { STEP_CALL = 1, STEP_OTHER = 2 };

// Lets the task run to its next stop. STEP_CALL: one at a system call; STEP_OTHER: taken in, it is
// stopped; 0: the deadline passed, it runs; TL_E_GONE.
static int step(struct tl_target *target, struct tl_task *task, uint64_t deadline_ns)
{
    int status = 0;
    task->state = TL_TASK_WAITED;
    task->has_regs = false;
    (void)tl_trace(target, PTRACE_SYSCALL, task->tid, 0, 0);
    int got = tl_trace_wait(target, task->tid, deadline_ns, &status);
    if (got == 0)
        return 0;
    if (got > 0 && WIFSTOPPED(status) && status >> EVENT_SHIFT == 0 &&
        WSTOPSIG(status) == CALL_STOP) {
        task->state = TL_TASK_STOPPED;
        task->signal = 0;
        return STEP_CALL;
    }
    if (got > 0 && !tl_task_event(target, task, status))
        got = tl_task_wait(target, task, deadline_ns); // news of a child: it was asked again
    if (got < 0 || task->state == TL_TASK_GONE) {
        task->state = TL_TASK_GONE;
        return TL_E_GONE;
    }
    return got == 0 ? 0 : STEP_OTHER;
}

// It runs and shall not. As tl_task_wait.
static int halt(struct tl_target *target, struct tl_task *task)
{
    uint64_t deadline = tl_clock_ns() + TL_STRAGGLER_TIMEOUT_MS * UINT64_C(1000000);
    (void)tl_trace(target, PTRACE_INTERRUPT, task->tid, 0, 0);
    int got = tl_task_wait(target, task, deadline);
    return got == 1 ? tl_task_settle(target, task, deadline) : got;
}

// In the stop at the start of a call. STEP_CALL: it stands at the call's end; STEP_OTHER: somewhere
// else; 0; TL_E_GONE. before: NULL when the registers before the call are not known.
static int call_end(struct tl_target *target, struct tl_task *task, const struct tl_regs *before,
                    uint64_t deadline_ns)
{
    struct tl_regs begun, ended;
    if (tl_trace_get_regs(target, task->tid, &begun) != 0)
        return TL_E_GONE;
    (void)tl_trace(target, PTRACE_INTERRUPT, task->tid, 0, 0);
    if (!before || !tl_regs_call_ordinary(&begun)) {
        task->state = TL_TASK_WAITED;
        (void)tl_trace(target, PTRACE_CONT, task->tid, 0, 0);
        int got = tl_task_wait(target, task, deadline_ns);
        return got == 1 ? STEP_OTHER : got;
    }
    int got = step(target, task, deadline_ns);
    if (got != STEP_CALL)
        return got;
    if (tl_trace_get_regs(target, task->tid, &ended) != 0)
        return TL_E_GONE;
    tl_regs_call_ended(&ended, &begun, before);
    task->regs = ended;
    task->has_regs = true;
    return STEP_CALL;
}

int tl_call_show(struct tl_target *target, struct tl_task *task, bool onward, uint64_t deadline_ns)
{
    int got = 1;
    if (!tl_call_insn.size || !tl_regs_native(&task->regs))
        return 1;
    for (int i = 0; i < SHOW_TRIES_MAX && got > 0; i++) {
        bool ahead = call_insn_at(target, tl_regs_pc(&task->regs));
        struct tl_regs before = task->regs;
        if (!onward && !ahead)
            return 1;
        if (tl_regs_call_number(&task->regs) >= 0) // shown, or known, already
            return 1;
        got = step(target, task, deadline_ns);
        if (got == STEP_CALL)
            got = call_end(target, task, ahead ? &before : NULL, deadline_ns);
        if (got == STEP_CALL)
            return 1;
        if (!ahead && got == STEP_OTHER && task->signal == 0)
            onward = false; // it has begun one, and may have ended it
        if (got == STEP_OTHER)
            got = tl_task_settle(target, task, deadline_ns);
    }
    if (got < 0)
        return got;
    if (task->state != TL_TASK_STOPPED)
        got = halt(target, task);
    return got < 0 ? got : 0;
}

// ---- vector registers ---------------------------------------------------------------------------

// The task's whole set of that note, malloc'ed. NULL: it has none, or nothing in it is live, or
// (*error) there is no memory.
static uint8_t *vectors_read(struct tl_target *target, const struct tl_task *task, unsigned note,
                             size_t *size, int *error)
{
    uint8_t head[TL_VECTOR_HEAD_MAX] = {0};
    struct iovec vector = {head, tl_vector_head};
    if (tl_trace(target, PTRACE_GETREGSET, task->tid, note, (uint64_t)(uintptr_t)&vector) != 0 ||
        vector.iov_len < tl_vector_head || !tl_vector_live(head, tl_vector_head))
        return NULL;
    *size = tl_vector_size(head);
    uint8_t *bytes = *size <= VECTORS_SIZE_MAX ? malloc(*size) : NULL;
    vector = (struct iovec){bytes, *size};
    if (!bytes ||
        tl_trace(target, PTRACE_GETREGSET, task->tid, note, (uint64_t)(uintptr_t)&vector) != 0)
        *error = TL_E_NOMEM;
    *size = vector.iov_len;
    if (!*error && tl_vector_live(bytes, *size))
        return bytes;
    free(bytes);
    return NULL;
}

bool tl_vectors_live(struct tl_target *target, const struct tl_task *task, bool *kept)
{
    for (size_t i = 0; i < TL_VECTOR_NOTES && tl_vector_note[i].note; i++) {
        size_t size;
        int error = 0;
        uint8_t *bytes = vectors_read(target, task, tl_vector_note[i].note, &size, &error);
        if (!bytes && !error)
            continue;
        free(bytes);
        *kept = tl_vector_note[i].kept;
        return true;
    }
    return false;
}

int tl_vectors_keep(struct tl_target *target, struct tl_task *task)
{
    for (size_t i = 0; i < TL_VECTOR_NOTES && tl_vector_note[i].note; i++) {
        size_t size;
        int error = 0;
        if (!tl_vector_note[i].kept)
            continue;
        uint8_t *bytes = vectors_read(target, task, tl_vector_note[i].note, &size, &error);
        if (error)
            return error;
        if (!bytes)
            continue;
        free(task->vectors);
        task->vectors = bytes;
        task->vectors_size = size;
        task->vectors_note = tl_vector_note[i].note;
    }
    return 0;
}

void tl_vectors_give_back(struct tl_target *target, struct tl_task *task)
{
    if (!task->vectors)
        return;
    struct iovec vector = {task->vectors, task->vectors_size};
    if (task->called)
        (void)tl_trace(target, PTRACE_SETREGSET, task->tid, task->vectors_note,
                       (uint64_t)(uintptr_t)&vector);
    free(task->vectors);
    task->vectors = NULL;
}

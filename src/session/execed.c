// Programs that the target or a followed child executes.
//
// A hook tells that a thread is about to; it is held over the call (attach/exec.h), and the new program gets
// a batch of its own at its entry: the same probe texts, found again. Invariant: whatever goes wrong, the
// new program runs on unprobed, and a note says so.
#include "session/follow.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PENDING_MAX 1024u
#define BUDGET_MS 10 // of one poll for one program: an exec and the loader's work mostly fit
#define VFORK_DEPTH_MAX 4
#define SMALL_FILE_MAX 4096u

// ---- which thread -------------------------------------------------------------------------------

// The id of a task in its innermost pid namespace, the last word of NSpid. 0: unknown.
static uint32_t inner_tid(pid_t pid, pid_t tid)
{
    char path[64], *text;
    size_t size;
    uint32_t id = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)tid);
    if (tl_proc_read_file(path, SMALL_FILE_MAX, &text, &size, NULL) != 0)
        return 0;
    char *line = strstr(text, "\nNSpid:");
    if (line) {
        line[1 + strcspn(line + 1, "\n")] = '\0';
        const char *last = strrchr(line, '\t');
        id = last ? (uint32_t)strtoul(last, NULL, 10) : 0;
    }
    free(text);
    return id;
}

// The thread of pid whose own id is tid; with tid 0 its only thread. 0: none, or which is not known.
static pid_t thread_find(pid_t pid, uint32_t tid)
{
    char path[64];
    pid_t found = 0;
    size_t count = 0;
    if (tid && inner_tid(pid, (pid_t)tid) == tid)
        return (pid_t)tid;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t task = (pid_t)strtol(entry->d_name, NULL, 10);
        if (task <= 0 || (tid && inner_tid(pid, task) != tid))
            continue;
        found = task;
        count++;
    }
    if (dir)
        closedir(dir);
    return count == 1 ? found : 0;
}

// A child that borrows the thread's memory until it executes (vfork, posix_spawn). It has the thread's
// id in its thread block. 0: none.
static pid_t borrower_find(pid_t pid, pid_t tid)
{
    char path[80], *text;
    size_t size;
    pid_t found = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)tid);
    if (tl_proc_read_file(path, SMALL_FILE_MAX, &text, &size, NULL) != 0)
        return 0;
    for (char *at = text; !found && isdigit((unsigned char)*at);) {
        pid_t child = (pid_t)strtol(at, &at, 10);
        if (syscall(SYS_kcmp, pid, child, KCMP_VM, 0, 0) == 0)
            found = child;
        while (*at == ' ')
            at++;
    }
    free(text);
    return found;
}

static pid_t executing_thread(pid_t pid, uint32_t tid)
{
    pid_t thread = thread_find(pid, tid);
    for (int i = 0; thread && i < VFORK_DEPTH_MAX; i++) {
        pid_t child = borrower_find(pid, thread);
        if (!child)
            break;
        pid = thread = child;
    }
    return thread;
}

// ---- the new program ----------------------------------------------------------------------------

// The old program of that process is no more, and its kernel probes would go on in the new one.
static void old_end(struct tl_session *session, const struct tl_batch *batch)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_batch *old = session->batch[i];
        if (old == batch || old->pid != batch->pid || old->gone)
            continue;
        tl_batch_refresh(old);
        if (old->uprobes)
            tl_uprobes_stop(old->uprobes);
        old->gone = true;
    }
}

static int program_place(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_session *session = batch->session;
    for (size_t i = 0; i < session->text_count; i++)
        (void)tl_batch_add(batch, session->texts[i], NULL); // no match is no error here
    if (!batch->sites.count)
        batch->stream_source = INT_MAX; // hooks only: it has no events
    int error = tl_batch_lines(batch, diag);
    return error ? error : tl_batch_place(batch, diag);
}

// target stands at its entry, and is taken over.
static void program_probe(struct tl_session *session, struct tl_target *target)
{
    struct tl_diag diag = {""};
    struct tl_batch *batch = NULL;
    pid_t pid = tl_target_pid(target);
    size_t before;
    tl_batches_retire(session);
    before = session->batch_count;
    if (!tl_follow_knows(session, pid) && pid != session->batch[0]->pid)
        session->follow->processes++;
    int error = tl_batch_create(session, target, true, NULL, &batch, &diag);
    if (!batch && session->batch_count > before)
        batch = session->batch[before];
    if (batch)
        old_end(session, batch);
    if (!error && batch)
        error = program_place(batch, &diag);
    if (error)
        tl_follow_note(session, "pid %d: executed a program that is not probed: %s\n", (int)pid,
                       diag.text);
    if (!batch)
        return;
    if (error)
        (void)tl_batch_detach(batch, NULL);
    tl_target_resume(target);
    tl_batches_lines(session);
    if (error && !batch->install && !batch->state_count)
        tl_batch_drop(batch);
    else
        tl_batch_settle(batch);
}

// ---- pending ------------------------------------------------------------------------------------

static const struct tl_target *known_target(const struct tl_session *session, pid_t pid)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        if (session->batch[i]->pid == pid && !session->batch[i]->gone)
            return session->batch[i]->target;
    }
    return NULL;
}

static bool pending_add(struct tl_follow *follow, struct tl_exec *exec)
{
    struct tl_exec **grown =
        follow->pending_count == PENDING_MAX
            ? NULL
            : realloc(follow->pending, (follow->pending_count + 1) * sizeof *grown);
    if (!grown)
        return false;
    follow->pending = grown;
    grown[follow->pending_count++] = exec;
    return true;
}

void tl_execs_begin(struct tl_session *session, pid_t pid, uint32_t tid)
{
    struct tl_follow *follow = tl_follow_state(session);
    struct tl_exec *exec = NULL;
    struct tl_diag diag = {""};
    pid_t thread = executing_thread(pid, tid);
    if (!follow || !session->options.follow)
        return;
    if (!thread && tl_proc_auxv(pid, AT_ENTRY) == 0)
        return; // it ended
    if (!thread) {
        tl_follow_note(session,
                       "pid %d: executes a program that is not probed: which of its threads does so "
                       "is not known\n",
                       (int)pid);
        return;
    }
    int error = tl_exec_begin(thread, known_target(session, pid), &exec, &diag);
    if (error) {
        if (error != TL_E_GONE)
            tl_follow_note(session, "%s\n", diag.text);
        return;
    }
    if (!pending_add(follow, exec))
        tl_exec_end(exec);
}

void tl_execs_poll(struct tl_session *session)
{
    struct tl_follow *follow = tl_follow_state(session);
    for (size_t i = 0; follow && i < follow->pending_count;) {
        struct tl_exec *exec = follow->pending[i];
        struct tl_target *target = NULL;
        struct tl_diag diag = {""};
        int news = tl_exec_poll(exec, BUDGET_MS, &target, &diag);
        if (news == TL_EXEC_PENDING) {
            tl_notice_poll(session); // others wait a short time only
            i++;
            continue;
        }
        // Out of the list first: placing may look at it.
        follow->pending[i] = follow->pending[--follow->pending_count];
        if (news < 0 && news != TL_E_GONE)
            tl_follow_note(session, "%s\n", diag.text);
        tl_exec_end(exec);
        if (news == TL_EXEC_READY) {
            bool before = tl_notice_working(session, true);
            program_probe(session, target);
            tl_notice_poll(session);
            (void)tl_notice_working(session, before);
        }
    }
}

bool tl_execs_pending(const struct tl_session *session)
{
    return session->follow && session->follow->pending_count;
}

void tl_execs_end(struct tl_session *session)
{
    struct tl_follow *follow = session->follow;
    while (follow && follow->pending_count)
        tl_exec_end(follow->pending[--follow->pending_count]);
}

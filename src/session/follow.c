// Forked children: who they are, and what they leave when they are gone.
//
// A followed child takes a process slot of each install it hits a probe of, by itself (agent.c). Here the
// slot's owner is found: the process whose copy of the control page says so. When it is gone its counts are
// added to the target's and the slot is free again, so that a program may have any number of children, if
// not at once.
// Invariant: a slot is cleared only when no process has it any more and its events were read.
#include "session/follow.h"
#include "session/traps.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAX 16u
#define LOOK_MS 100.0      // between looks at children that are known
#define SCAN_MS 50.0       // between looks through all processes
#define UNKNOWN_MS 1000.0  // a slot that no process has for so long is a dead child's
#define DRAIN_MS 500.0     // for events on their way, once the rings are read
#define DRAIN_MAX_MS 10000.0 // rings that nobody reads hold no slot for longer

void tl_follow_note(struct tl_session *session, const char *format, ...)
{
    struct tl_follow *follow = tl_follow_state(session);
    char line[512];
    va_list args;
    if (!follow || follow->notes++ >= NOTES_MAX)
        return;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tl_session_note(session, "%s", line);
}

struct tl_follow *tl_follow_state(struct tl_session *session)
{
    if (!session->follow)
        session->follow = calloc(1, sizeof *session->follow);
    return session->follow;
}

// ---- broods: the slots of one batch -------------------------------------------------------------

static struct tl_brood *brood_find(const struct tl_session *session, const struct tl_batch *batch)
{
    const struct tl_follow *follow = session->follow;
    for (size_t i = 0; follow && i < follow->brood_count; i++) {
        if (follow->brood[i]->batch == batch)
            return follow->brood[i];
    }
    return NULL;
}

static struct tl_brood *brood_of(struct tl_session *session, struct tl_batch *batch)
{
    struct tl_follow *follow = tl_follow_state(session);
    struct tl_brood *brood = brood_find(session, batch);
    if (brood || !follow)
        return brood;
    brood = brood_find(session, NULL);
    if (!brood) {
        struct tl_brood **grown =
            realloc(follow->brood, (follow->brood_count + 1) * sizeof *grown);
        if (!grown)
            return NULL;
        follow->brood = grown;
        brood = calloc(1, sizeof *brood);
        if (!brood)
            return NULL;
        grown[follow->brood_count++] = brood;
    }
    memset(brood, 0, sizeof *brood);
    brood->batch = batch;
    return brood;
}

static bool batch_memory(const struct tl_batch *batch, struct tl_drain_memory *memory)
{
    *memory = (struct tl_drain_memory){0};
    if (batch->install)
        tl_install_memory(batch->install, memory);
    return memory->data != NULL;
}

static struct tl_process_slot *slots_of(const struct tl_drain_memory *memory)
{
    return (struct tl_process_slot *)(void *)((unsigned char *)memory->data +
                                              TL_PROCESS_SLOTS_OFF);
}

static uint32_t slot_count(const struct tl_drain_memory *memory)
{
    uint32_t count = memory->layout.process_count;
    return count < TL_PROCESS_SLOTS_MAX ? count : TL_PROCESS_SLOTS_MAX;
}

// A slot's owner that is not identified, and perhaps never will be: it lived for a moment. Its word is the id
// of the thread that took the slot, mostly the first one's, which is the process's.
static pid_t owner_word(const struct tl_batch *batch, uint32_t process)
{
    struct tl_drain_memory memory;
    if (!batch_memory(batch, &memory) || process >= slot_count(&memory))
        return 0;
    uint32_t owner = __atomic_load_n(&slots_of(&memory)[process].owner, __ATOMIC_RELAXED);
    return owner > 1 ? (pid_t)owner : 0;
}

pid_t tl_follow_pid(const struct tl_session *session, const struct tl_batch *batch,
                    uint32_t process)
{
    const struct tl_brood *brood = process ? brood_find(session, batch) : NULL;
    return brood && process < TL_PROCESS_SLOTS_MAX ? brood->child[process].pid : 0;
}

pid_t tl_session_process_pid(struct tl_session *session, const struct tl_batch *batch,
                             uint32_t process)
{
    pid_t pid = process ? tl_follow_pid(session, batch, process) : batch->pid;
    return pid || !process ? pid : owner_word(batch, process);
}

bool tl_follow_knows(const struct tl_session *session, pid_t pid)
{
    const struct tl_follow *follow = session->follow;
    for (size_t i = 0; follow && i < follow->brood_count; i++) {
        const struct tl_brood *brood = follow->brood[i];
        for (uint32_t k = 1; brood->batch && k < brood->top; k++) {
            if (brood->child[k].owner && brood->child[k].pid == pid)
                return true;
        }
    }
    return false;
}

// ---- who has a slot -----------------------------------------------------------------------------

static bool owns_slot(const struct tl_batch *batch, pid_t pid, uint32_t slot)
{
    struct tl_control control;
    return tl_install_copy_in(batch->install, pid, &control) && control.live == TL_CONTROL_LIVE &&
           control.process == slot;
}

static void child_identify(struct tl_session *session, struct tl_child *child, pid_t pid)
{
    if (!tl_follow_knows(session, pid))
        session->follow->processes++;
    child->pid = pid;
}

// The slot's word is mostly the child's own pid, where it is in our pid namespace.
static void child_guess(struct tl_session *session, struct tl_brood *brood, uint32_t slot)
{
    struct tl_child *child = &brood->child[slot];
    struct tl_proc_status status;
    if (child->owner <= 1 || tl_proc_status_read((pid_t)child->owner, &status, NULL) != 0)
        return;
    if (owns_slot(brood->batch, status.tgid, slot))
        child_identify(session, child, status.tgid);
}

// Takes in the slots' words of one batch. Returns how many have no known process.
static size_t slots_read(struct tl_session *session, struct tl_brood *brood)
{
    struct tl_drain_memory memory;
    size_t unknown = 0;
    if (!batch_memory(brood->batch, &memory))
        return 0;
    struct tl_process_slot *slot = slots_of(&memory);
    for (uint32_t i = 1; i < slot_count(&memory); i++) {
        struct tl_child *child = &brood->child[i];
        // Acquire: a child that gave its slot back has written nothing behind it.
        uint32_t owner = __atomic_load_n(&slot[i].owner, __ATOMIC_ACQUIRE);
        if (owner && i >= brood->top)
            brood->top = i + 1;
        if (owner != child->owner) // taken; or given back by itself, when nothing was written
            *child = (struct tl_child){.owner = owner, .seen_ms = tl_session_now_ms()};
        if (owner && !child->pid && !child->gone_ms) {
            child_guess(session, brood, i);
            unknown += !child->pid;
        }
    }
    return unknown;
}

struct scan {
    struct tl_session *session;
    struct tl_brood *brood;
};

static int scan_visit(void *opaque, pid_t pid, const struct tl_control *control)
{
    struct scan *scan = opaque;
    struct tl_follow *follow = scan->session->follow;
    follow->copies = true;
    if (control->live != TL_CONTROL_LIVE) {
        follow->claiming |= control->shared_block != 0;
        return 0;
    }
    if (control->process == 0 || control->process >= scan->brood->top)
        return 0;
    struct tl_child *child = &scan->brood->child[control->process];
    if (child->owner && !child->pid)
        child_identify(scan->session, child, pid);
    return 0;
}

static bool brood_unknown(const struct tl_brood *brood)
{
    for (uint32_t k = 1; k < brood->top; k++) {
        if (brood->child[k].owner && !brood->child[k].pid && !brood->child[k].gone_ms)
            return true;
    }
    return false;
}

// Looks through all processes for those that hold copies; unknown: only of batches with slots whose
// process is not known.
static void scan_all(struct tl_session *session, bool unknown)
{
    struct tl_follow *follow = session->follow;
    pid_t *pid;
    size_t count;
    follow->claiming = follow->copies = false;
    if (tl_processes_list(&pid, &count, NULL) != 0)
        return;
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_batch *batch = session->batch[i];
        struct tl_brood *brood = batch->install ? brood_of(session, batch) : NULL;
        struct scan scan = {session, brood};
        if (!brood || (unknown && !brood_unknown(brood)))
            continue;
        (void)tl_install_copies_among(batch->install, pid, count, scan_visit, &scan);
        for (uint32_t k = 1; k < brood->top; k++)
            brood->child[k].missed = brood->child[k].owner && !brood->child[k].pid;
    }
    free(pid);
    follow->scanned_ms = tl_session_now_ms();
}

void tl_follow_children(struct tl_session *session)
{
    size_t unknown = 0;
    if (!session->options.follow || !tl_follow_state(session))
        return;
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_brood *brood =
            session->batch[i]->install ? brood_of(session, session->batch[i]) : NULL;
        unknown += brood ? slots_read(session, brood) : 0;
    }
    if (unknown && tl_session_now_ms() - session->follow->scanned_ms > SCAN_MS)
        scan_all(session, true);
}

// ---- children that are gone ---------------------------------------------------------------------

// Its first thread may have ended, with its memory's other threads still there.
static bool leader_ended(pid_t pid)
{
    struct tl_proc_status status;
    return tl_proc_status_read(pid, &status, NULL) == 0 && status.state == 'Z' &&
           status.threads > 1;
}

static void child_look(const struct tl_session *session, struct tl_brood *brood, uint32_t slot)
{
    struct tl_child *child = &brood->child[slot];
    double now = tl_session_now_ms();
    if (!child->owner || child->gone_ms)
        return;
    if (child->pid) {
        if (!owns_slot(brood->batch, child->pid, slot) && !leader_ended(child->pid))
            child->gone_ms = now;
    } else if (child->missed && now - child->seen_ms > UNKNOWN_MS && !session->follow->claiming) {
        child->pid = child->owner > 1 ? (pid_t)child->owner : 0; // for what it left in its rings
        child->gone_ms = now;
    }
}

static void child_bury(struct tl_session *session, struct tl_brood *brood, uint32_t slot)
{
    struct tl_child *child = &brood->child[slot];
    struct tl_batch *batch = brood->batch;
    struct tl_drain_memory memory;
    double gone = tl_session_now_ms() - child->gone_ms;
    if (!child->gone_ms || !batch_memory(batch, &memory))
        return;
    if (session->stream && batch->stream_source >= 0 && gone < DRAIN_MAX_MS &&
        (gone < DRAIN_MS ||
         !tl_stream_process_drained(session->stream, (uint32_t)batch->stream_source, slot)))
        return;
    if (tl_process_fold(batch, slot, NULL) != 0)
        return; // it keeps its slot: nothing is lost
    *child = (struct tl_child){0};
    // Release, with the acquire of the next child's claim: the blocks are zero.
    __atomic_store_n(&slots_of(&memory)[slot].owner, 0, __ATOMIC_RELEASE);
}

static void silent_note(struct tl_session *session)
{
    uint64_t silent = 0;
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_drain_memory memory;
        if (batch_memory(session->batch[i], &memory))
            silent += __atomic_load_n(&((struct tl_data_header *)memory.data)->silent,
                                      __ATOMIC_RELAXED);
    }
    if (silent && !session->follow->silent)
        tl_follow_note(session, "more children at once than can be followed: some are not counted\n");
    session->follow->silent = silent;
}

void tl_follow_poll(struct tl_session *session)
{
    struct tl_follow *follow = tl_follow_state(session);
    double now = tl_session_now_ms();
    if (!follow)
        return;
    tl_follow_children(session);
    if (now - follow->looked_ms < LOOK_MS)
        return;
    follow->looked_ms = now;
    for (size_t i = 0; i < follow->brood_count; i++) {
        struct tl_brood *brood = follow->brood[i];
        for (uint32_t k = 1; brood->batch && k < brood->top; k++) {
            child_look(session, brood, k);
            child_bury(session, brood, k);
        }
        if (brood->batch && brood->batch->install && brood->top)
            (void)tl_install_copies_close(brood->batch->install, NULL);
    }
    silent_note(session);
    tl_batches_retire(session);
}

static int stop_visit(void *opaque, pid_t pid, const struct tl_control *control)
{
    (void)opaque, (void)pid, (void)control;
    return 1;
}

bool tl_follow_childless(struct tl_session *session, const struct tl_batch *batch)
{
    const struct tl_brood *brood = brood_find(session, batch);
    for (uint32_t k = 1; brood && k < brood->top; k++) {
        if (brood->child[k].owner)
            return false;
    }
    // Twice: a parent that was ending may have hidden its child from the first look.
    return !batch->install || (tl_install_copies(batch->install, stop_visit, NULL, NULL) == 0 &&
                               tl_install_copies(batch->install, stop_visit, NULL, NULL) == 0);
}

// ---- for the session ----------------------------------------------------------------------------

bool tl_follow_alive(struct tl_session *session)
{
    struct tl_follow *follow = session->follow;
    if (!session->options.follow || !follow)
        return false;
    if (tl_execs_pending(session))
        return true;
    for (size_t i = 0; i < follow->brood_count; i++) {
        const struct tl_brood *brood = follow->brood[i];
        for (uint32_t k = 1; brood->batch && k < brood->top; k++) {
            if (brood->child[k].owner && brood->child[k].pid && !brood->child[k].gone_ms)
                return true;
        }
    }
    // A child that has hit no probe yet has no slot.
    if (tl_session_now_ms() - follow->scanned_ms > SCAN_MS || !follow->copies)
        scan_all(session, false);
    return follow->copies;
}

size_t tl_follow_count(const struct tl_session *session)
{
    return 1 + (session->follow ? session->follow->processes : 0);
}

int tl_follow_detach(struct tl_session *session, struct tl_diag *diag)
{
    int error = 0;
    tl_execs_end(session);
    tl_notice_missed(session);
    for (size_t i = session->batch_count; i-- > 0;) {
        struct tl_batch *batch = session->batch[i];
        for (size_t k = batch->guard_count; k-- > 0;) {
            int result = tl_install_copies_detach(batch->guard[k].install, error ? NULL : diag);
            error = error ? error : result < 0 ? result : 0;
        }
        int result =
            batch->install ? tl_install_copies_detach(batch->install, error ? NULL : diag) : 0;
        error = error ? error : result < 0 ? result : 0;
        result = tl_session_traps_copies_detach(batch, error ? NULL : diag);
        error = error ? error : result;
    }
    return error;
}

void tl_follow_batch_gone(struct tl_session *session, const struct tl_batch *batch)
{
    struct tl_brood *brood = brood_find(session, batch);
    if (brood)
        brood->batch = NULL;
}

void tl_follow_destroy(struct tl_session *session)
{
    struct tl_follow *follow = session->follow;
    tl_execs_end(session);
    if (follow) {
        for (size_t i = 0; i < follow->brood_count; i++)
            free(follow->brood[i]);
        free(follow->brood);
        free(follow->pending);
    }
    if (session->loader) {
        free(session->loader->listener);
        free(session->loader->ignored);
    }
    free(follow);
    free(session->loader);
    session->follow = NULL;
    session->loader = NULL;
}

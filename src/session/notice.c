// Hooks in the target, and what its threads tell through them.
//
// A thread in a hook waits for an answer, as long as hook.c says, and longer while we say that we are at work.
// Notices lie in memory that the target can write: each word is read once, and means something only if the process it
// names is one of ours.
// Invariant: a notice is answered when what it asks for is done or can't be, and whoever left a hook by
// another way keeps no slot.
#include "session/follow.h"
#include "session/traps.h"

#include <stdlib.h>
#include <string.h>

#define POLL_MS 10     // half of a notice's time goes by before it is seen
#define POLL_BUSY_MS 2 // ... while libraries or programs come one after the other
#define BUSY_MS 500.0  // how long that is thought to go on
#define EXEC_SITES_MAX 8
#define CATCH_UPS_MAX 3 // in one poll

static const char *const exec_names[] = {"execve", "execveat", "fexecve"};

// ---- hooks --------------------------------------------------------------------------------------

static int hook_add(struct tl_batch *batch, uint32_t module, tl_addr vaddr, enum tl_notice_kind kind,
                    struct tl_diag *diag)
{
    const struct tl_record record = {.kind = TL_RECORD_HOOK, .counter_off = (uint32_t)kind};
    size_t request;
    return tl_batch_request_own(batch, module, vaddr, &record, &request, diag);
}

static bool is_libc(const struct tl_module *module)
{
    const char *soname = tl_image_soname(module->image);
    const char *base = strrchr(module->path, '/');
    base = base ? base + 1 : module->path;
    return (soname && strncmp(soname, "libc.", 5) == 0) || strncmp(base, "ld-musl-", 8) == 0;
}

// posix_spawn, exec*p and system end in execve of the same libc. Several names may share an address.
static int module_exec_hooks(struct tl_batch *batch, uint32_t index, struct tl_diag *diag)
{
    struct tl_module *module = tl_modules_get(batch->modules, index);
    const struct tl_symbol *symbol;
    size_t count = tl_image_symbols(module->image, &symbol), done_count = 0;
    tl_addr done[EXEC_SITES_MAX];
    int error = 0;
    for (size_t i = 0; !error && i < count && done_count < EXEC_SITES_MAX; i++) {
        bool wanted = false, again = false;
        for (size_t k = 0; k < TL_ARRAY_COUNT(exec_names); k++)
            wanted |= strcmp(symbol[i].name, exec_names[k]) == 0;
        for (size_t k = 0; k < done_count; k++)
            again |= done[k] == symbol[i].vaddr;
        if (!wanted || again || symbol[i].ifunc)
            continue;
        done[done_count++] = symbol[i].vaddr;
        error = tl_module_analyse(module, diag);
        if (!error)
            error = hook_add(batch, index, tl_analysis_entry(module->analysis, symbol[i].vaddr),
                             TL_NOTICE_EXEC, diag);
    }
    return error;
}

// In libc; where there is none, in the program, which may be static.
static int exec_hooks(struct tl_batch *batch, struct tl_diag *diag)
{
    size_t count = tl_modules_count(batch->modules);
    bool libc = false;
    int error = 0;
    for (size_t i = 0; !error && i < count; i++) {
        if (!is_libc(tl_modules_get(batch->modules, i)))
            continue;
        libc = true;
        error = module_exec_hooks(batch, (uint32_t)i, diag);
    }
    for (size_t i = 0; !error && !libc && i < count; i++) {
        if (tl_modules_get(batch->modules, i)->main)
            error = module_exec_hooks(batch, (uint32_t)i, diag);
    }
    return error;
}

int tl_session_hooks(struct tl_batch *batch, struct tl_diag *diag)
{
    const struct tl_session_options *options = &batch->session->options;
    size_t before = batch->request_count;
    uint32_t module;
    tl_addr vaddr;
    int error = 0;
    if (batch->beside) // the first batch of its process has them
        return 0;
    if (options->follow)
        error = exec_hooks(batch, diag);
    if (!error && tl_loader_wanted(batch) && tl_loader_hook_site(batch, &module, &vaddr))
        error = hook_add(batch, module, vaddr, TL_NOTICE_LOADER, diag);
    if (!error && batch->request_count != before)
        error = tl_session_modules(batch, diag); // more of them are analysed now
    return error;
}

static bool tells_of_execs(const struct tl_plan_request *request)
{
    for (size_t i = 0; i < TL_ARRAY_COUNT(request->record); i++) {
        if (request->record[i].kind == TL_RECORD_HOOK &&
            request->record[i].counter_off == TL_NOTICE_EXEC)
            return true;
    }
    return false;
}

void tl_session_hooks_check(struct tl_batch *batch)
{
    enum tl_method method = batch->session->options.method;
    const char *why = method == TL_METHOD_AUTO || method == TL_METHOD_JUMP
                          ? "no function that does so is known there by its name (execve)"
                          : "only branches tell of them (--method jump)";
    if (!batch->session->options.follow || batch->beside)
        return;
    for (size_t i = 0; batch->results && i < batch->request_count; i++) {
        const struct tl_plan *plan = tl_plan_get(batch->plans, i);
        enum tl_refusal refusal = plan->refusal ? plan->refusal : batch->results[i].refusal;
        if (!tells_of_execs(&batch->requests[i]))
            continue;
        if (plan->rung == TL_RUNG_JUMP && refusal == TL_REFUSE_NONE)
            return;
        why = tl_refusal_text(refusal);
    }
    tl_follow_note(batch->session, "pid %d: programs that it executes are not followed: %s\n",
                   (int)batch->pid, why);
}

// ---- answers ------------------------------------------------------------------------------------

// Whose slot it is. 0: nobody's that is known.
static pid_t notice_pid(struct tl_session *session, struct tl_batch *batch, uint32_t process)
{
    if (process == 0)
        return batch->gone ? 0 : batch->pid;
    if (!tl_follow_pid(session, batch, process))
        tl_follow_children(session); // it took the slot a moment ago
    return tl_follow_pid(session, batch, process);
}

bool tl_notice_working(struct tl_session *session, bool working)
{
    struct tl_loader *loader = tl_loader_state(session);
    bool before = loader && loader->working;
    for (size_t i = 0; loader && i < session->batch_count; i++) {
        struct tl_drain_memory memory = {0};
        if (session->batch[i]->install)
            tl_install_memory(session->batch[i]->install, &memory);
        // Relaxed: partner is controller_works of the agent's hook, where any value is as good as another.
        if (memory.data)
            __atomic_store_n(&((struct tl_data_header *)memory.data)->working, working,
                             __ATOMIC_RELAXED);
    }
    if (loader)
        loader->working = working;
    return before;
}

static void notice_act(struct tl_session *session, struct tl_batch *batch,
                       const struct tl_notice *notice)
{
    pid_t pid = notice_pid(session, batch, notice->process);
    if (!pid)
        return;
    switch (notice->kind) {
    case TL_NOTICE_LOADER:
        tl_loader_changed(session, batch, pid);
        break;
    case TL_NOTICE_EXEC:
        tl_execs_begin(session, pid, notice->tid);
        break;
    case TL_NOTICE_TRAP:
    case TL_NOTICE_MASK:
        tl_session_trap_notice(batch);
        break;
    default: // a stranger wrote there
        break;
    }
}

static struct tl_listener *listener_of(struct tl_session *session, const struct tl_batch *batch)
{
    struct tl_loader *loader = tl_loader_state(session);
    struct tl_listener *free_one = NULL;
    for (size_t i = 0; loader && i < loader->listener_count; i++) {
        if (loader->listener[i].batch == batch)
            return &loader->listener[i];
        if (!loader->listener[i].batch)
            free_one = &loader->listener[i];
    }
    if (loader && !free_one) {
        struct tl_listener *grown =
            realloc(loader->listener, (loader->listener_count + 1) * sizeof *grown);
        if (!grown)
            return NULL;
        loader->listener = grown;
        free_one = &grown[loader->listener_count++];
    }
    if (free_one)
        *free_one = (struct tl_listener){.batch = batch};
    return free_one;
}

// A thread that jumped out of its hook, or was killed in it, never frees its slot.
static void slot_reclaim(struct tl_notice *notice, uint32_t state, double *since)
{
    double now = tl_session_now_ms();
    if (*since == 0)
        *since = now;
    else if (now - *since > TL_NOTICE_DEAF_MS) {
        // Relaxed: nothing is handed over; partner: the claim of the agent's hook.
        (void)__atomic_compare_exchange_n(&notice->state, &state, TL_NOTICE_FREE, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        *since = 0;
    }
}

static void slot_look(struct tl_session *session, struct tl_batch *batch, struct tl_notice *notice,
                      double *since)
{
    // Acquire, with the release of the agent's hook: what it wrote before is seen.
    uint32_t state = __atomic_load_n(&notice->state, __ATOMIC_ACQUIRE);
    if (state == TL_NOTICE_FILLING || state == TL_NOTICE_ANSWERED) {
        slot_reclaim(notice, state, since);
        return;
    }
    *since = 0;
    if (state != TL_NOTICE_ASKED)
        return;
    const struct tl_notice asked = {
        .kind = __atomic_load_n(&notice->kind, __ATOMIC_RELAXED),
        .tid = __atomic_load_n(&notice->tid, __ATOMIC_RELAXED),
        .process = __atomic_load_n(&notice->process, __ATOMIC_RELAXED),
    };
    bool before = tl_notice_working(session, true);
    notice_act(session, batch, &asked);
    session->loader->last_ms = tl_session_now_ms();
    // Release: what was written into the target is there before the thread goes on. It may have given up.
    (void)__atomic_compare_exchange_n(&notice->state, &state, TL_NOTICE_ANSWERED, false,
                                      __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    (void)tl_notice_working(session, before);
}

// We are here: threads may wait for us again. Returns whether one did in vain since the last time.
static bool heartbeat(const struct tl_batch *batch, struct tl_data_header *header)
{
    struct tl_install_facts facts;
    tl_install_facts(batch->install, &facts);
    // Relaxed: partner is listener_there of the agent's hook, where any value is as good as none.
    uint32_t missed = __atomic_load_n(&header->missed, __ATOMIC_RELAXED);
    bool news = missed != __atomic_load_n(&header->heard, __ATOMIC_RELAXED);
    __atomic_store_n(&header->heard, missed, __ATOMIC_RELAXED);
    __atomic_store_n(&header->answered_ticks, tl_clock_ticks(facts.clock == TL_CLOCK_COARSE),
                     __ATOMIC_RELAXED);
    return news;
}

// What threads did not wait for any more is looked for now.
static void missed_catch_up(struct tl_session *session, struct tl_batch *batch)
{
    if (batch->gone || batch->beside || !tl_loader_wanted(batch))
        return;
    bool before = tl_notice_working(session, true);
    tl_loader_changed(session, batch, batch->pid);
    (void)tl_notice_working(session, before);
}

static void batch_listen(struct tl_session *session, struct tl_batch *batch)
{
    struct tl_drain_memory memory = {0};
    tl_install_memory(batch->install, &memory);
    struct tl_listener *listener = memory.data ? listener_of(session, batch) : NULL;
    if (!listener)
        return;
    struct tl_notice *notice =
        (struct tl_notice *)(void *)((unsigned char *)memory.data + TL_NOTICES_OFF);
    bool missed = heartbeat(batch, memory.data);
    for (size_t i = 0; i < TL_NOTICE_SLOTS; i++) {
        // The list may grow while a notice is looked after: no pointer into it is kept.
        double since = listener->stuck_since[i];
        slot_look(session, batch, &notice[i], &since);
        listener = listener_of(session, batch);
        if (listener)
            listener->stuck_since[i] = since;
        else
            return;
    }
    // What was missed while this was done; whoever comes after the heartbeat waits again.
    missed |= heartbeat(batch, memory.data);
    for (int i = 0; missed && i < CATCH_UPS_MAX; i++) {
        missed_catch_up(session, batch);
        missed = heartbeat(batch, memory.data);
    }
}

void tl_notice_poll(struct tl_session *session)
{
    // Batches that come meanwhile are looked at in the next poll.
    size_t count = session->batch_count;
    for (size_t i = 0; i < count && i < session->batch_count; i++) {
        if (session->batch[i]->install)
            batch_listen(session, session->batch[i]);
    }
}

static uint64_t batch_missed(const struct tl_batch *batch)
{
    struct tl_drain_memory memory = {0};
    if (batch->install)
        tl_install_memory(batch->install, &memory);
    return memory.data ? __atomic_load_n(&((struct tl_data_header *)memory.data)->missed,
                                         __ATOMIC_RELAXED)
                       : 0;
}

void tl_notice_batch_gone(struct tl_session *session, const struct tl_batch *batch)
{
    struct tl_loader *loader = tl_loader_state(session);
    if (!loader)
        return;
    loader->missed += batch_missed(batch);
    for (size_t i = 0; i < loader->listener_count; i++) {
        if (loader->listener[i].batch == batch)
            loader->listener[i].batch = NULL;
    }
}

void tl_notice_missed(struct tl_session *session)
{
    uint64_t missed = session->loader ? session->loader->missed : 0;
    for (size_t i = 0; i < session->batch_count; i++)
        missed += batch_missed(session->batch[i]);
    if (missed)
        tl_session_note(session,
                        "%llu times a thread that changed what is loaded, or executed a program, got "
                        "no answer in time and went on: hits there may be missing\n",
                        (unsigned long long)missed);
}

struct tl_loader *tl_loader_state(struct tl_session *session)
{
    if (!session->loader)
        session->loader = calloc(1, sizeof *session->loader);
    return session->loader;
}

// ---- for the session ----------------------------------------------------------------------------

int tl_session_hooks_poll_ms(const struct tl_session *session)
{
    if (!session->options.follow && !session->options.allow_traps &&
        !tl_loader_wanted(session->batch[0]))
        return 0;
    bool busy = session->loader && session->loader->last_ms > 0 &&
                tl_session_now_ms() - session->loader->last_ms < BUSY_MS;
    return busy || tl_execs_pending(session) ? POLL_BUSY_MS : POLL_MS;
}

int tl_session_look_after(struct tl_session *session, struct tl_diag *diag)
{
    (void)diag; // what goes wrong with a child or a library is a note, not the end of the run
    if (!session->attached)
        return 0;
    tl_notice_poll(session);
    if (session->options.follow) {
        tl_execs_poll(session);
        tl_follow_poll(session);
        tl_notice_poll(session); // the other work took a while
    }
    return 0;
}

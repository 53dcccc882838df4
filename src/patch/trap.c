// Breakpoints: the target's SIGTRAP handler, and text with them.
//
//   code header (one page)    r-x  private, memfd trapless:code: names log, slots, rows for the
//   agent log, slots                as commit.c maps them for any install
//
// The text, the undo log and the way back are those of every install (commit.c, detach.c); control
// page, counters and agent are the owner's. Order: stop, check, install the handler, write text;
// and back: text, let all that are on their way get there, then the handler. Invariant: while a
// breakpoint is in the text, SIGTRAP leads to the agent in every thread that may reach it. A target
// where that can't be had, or is no longer so, has none.
#include "patch/trap.h"

#include "attach/signals.h"
#include "base/page.h"
#include "patch/action.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SIGNALS 64
#define QUIET_TRIES 20   // while some thread blocks signals for a moment
#define SETTLE_TRIES 100 // while some thread is on its way to the handler
#define PAUSE_NS 2000000
#define LOOK_PERIOD_NS UINT64_C(100000000)
#define ASK_PERIOD_NS UINT64_C(1000000000)
#define STATUS_MAX 65536u

// The breakpoints of one process share the handler.
struct trap_group {
    struct tl_install *owner; // whose agent handles
    struct tl_signal_action before;
    struct tl_code_header *newest; // the last one's, in this process's memory
    unsigned users, written;       // tl_traps; those with breakpoints in the text
    bool handled;
};

struct tl_traps {
    struct trap_group *group;
    struct tl_install *owner; // who records
    struct tl_install *install;
    bool written, left;
    bool stepped; // some slot ends in a breakpoint
    uint64_t caught, looked_ns, asked_ns;
};

static uint64_t signal_bit(int sig)
{
    return UINT64_C(1) << (sig - 1);
}

static void pause_a_little(void)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    nanosleep(&pause, NULL);
}

static tl_addr scratch_addr(const struct tl_install *install)
{
    return install->header.control_addr + TL_SCRATCH_OFF;
}

static tl_addr handler_addr(const struct tl_install *owner)
{
    return owner->header.agent_addr + owner->head.trap_off;
}

static tl_addr restorer_addr(const struct tl_install *owner)
{
    return owner->header.agent_addr + owner->head.restorer_off;
}

// ---- the target's signals -----------------------------------------------------------------------

int tl_trap_action(struct tl_target *target, tl_addr scratch, struct tl_signal_action *out,
                   struct tl_diag *diag)
{
    return tl_action_get(target, scratch, SIGTRAP, out, diag);
}

// The last number of "NSpid:" is the process's id in its own namespace: 1 there is an init, which
// the default action does not end, so that what it would have got can't be done by hand.
static bool is_init(pid_t pid)
{
    char path[64], *text;
    size_t size;
    bool init = false;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (tl_proc_read_file(path, STATUS_MAX, &text, &size, NULL) != 0)
        return false;
    const char *line = strstr(text, "\nNSpid:");
    if (line) {
        const char *end = strchr(line + 1, '\n');
        size_t length = end ? (size_t)(end - line) : strlen(line);
        init = length > 2 && line[length - 1] == '1' && line[length - 2] == '\t';
    }
    free(text);
    return init;
}

// Signals that the target blocks in a handler are blocked by sa_mask.
static int handlers_check(struct tl_target *target, tl_addr scratch, uint64_t caught,
                          enum tl_refusal *refusal, struct tl_diag *diag)
{
    for (int sig = 1; sig <= SIGNALS && *refusal == TL_REFUSE_NONE; sig++) {
        struct tl_signal_action action = {0};
        if (sig == SIGTRAP || !(caught & signal_bit(sig)))
            continue;
        int error = tl_action_get(target, scratch, sig, &action, diag);
        if (error)
            return error;
        if (action.mask & signal_bit(SIGTRAP))
            *refusal = TL_REFUSE_TRAP_HANDLED;
    }
    return 0;
}

// Every thread, stopped. *passing: it may be better in a moment.
static enum tl_refusal threads_check(struct tl_target *target, bool *passing)
{
    enum tl_refusal refusal = TL_REFUSE_NONE;
    *passing = false;
    for (size_t i = 0; i < tl_target_thread_count(target); i++) {
        struct tl_thread_signals signals;
        if (tl_target_thread_signals(target, i, &signals) != 0)
            continue; // it has ended
        if (signals.seccomp)
            return TL_REFUSE_TRAP_SECCOMP;
        // A child that shares the memory has handlers of its own (vfork, posix_spawn).
        if (signals.blocked & signal_bit(SIGTRAP) || signals.process != tl_target_pid(target)) {
            refusal = TL_REFUSE_TRAP_HANDLED;
            *passing = true;
        }
    }
    return refusal;
}

// All stopped. A handler that is ours may be there already.
static int signals_check(struct tl_traps *traps, enum tl_refusal *refusal, bool *passing,
                         struct tl_diag *diag)
{
    struct tl_target *target = traps->owner->target;
    struct tl_proc_status status;
    *passing = false;
    int error = tl_proc_status_read(tl_target_pid(target), &status, diag);
    if (error)
        return error;
    traps->caught = status.sig_caught;
    *refusal = threads_check(target, passing);
    bool caught = status.sig_caught & signal_bit(SIGTRAP) && !traps->group->handled;
    if (caught || status.sig_ignored & signal_bit(SIGTRAP) || is_init(tl_target_pid(target))) {
        *refusal = TL_REFUSE_TRAP_HANDLED;
        *passing = false;
    }
    if (*refusal == TL_REFUSE_NONE)
        error =
            handlers_check(target, scratch_addr(traps->owner), status.sig_caught, refusal, diag);
    return error;
}

// ---- the handler --------------------------------------------------------------------------------

// Blocked meanwhile: all but what a program raises by itself, so that the handler of such a signal
// may have probes too, and SIGTRAP.
static int handler_install(struct tl_traps *traps, struct tl_diag *diag)
{
    struct trap_group *group = traps->group;
    struct tl_target *target = traps->owner->target;
    tl_addr scratch = scratch_addr(traps->owner);
    const struct tl_install *owner = group->owner;
    const struct tl_signal_action action = {
        .handler = handler_addr(owner),
        .flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | TL_RESTORER_FLAG,
        .restorer = restorer_addr(owner),
        .mask = ~(signal_bit(SIGTRAP) | signal_bit(SIGSEGV) | signal_bit(SIGBUS) |
                  signal_bit(SIGFPE) | signal_bit(SIGILL)),
    };
    if (group->handled)
        return 0;
    int error = tl_action_get(target, scratch, SIGTRAP, &group->before, diag);
    if (!error)
        error = tl_action_set(target, scratch, SIGTRAP, &action, diag);
    group->handled = !error;
    return error;
}

static bool threads_settled(struct tl_target *target)
{
    for (size_t i = 0; i < tl_target_thread_count(target); i++) {
        struct tl_thread_signals signals;
        if (tl_target_thread_signals(target, i, &signals) == 0 &&
            signals.pending & signal_bit(SIGTRAP))
            return false;
    }
    return true;
}

bool tl_trap_forget(struct tl_target *target, tl_addr scratch)
{
    static const struct tl_signal_action standard;
    return threads_settled(target) && tl_action_set(target, scratch, SIGTRAP, &standard, NULL) == 0;
}

// Words that point into slots; and the address that the handler returns to, which stands below each
// signal frame: who has not got to its slot yet is in the handler.
struct slot_search {
    const struct tl_install *install;
    tl_addr restorer;
    bool found;
};

static void slot_word(tl_addr addr, uint64_t word, void *opaque)
{
    (void)addr;
    struct slot_search *search = opaque;
    search->found |= word == search->restorer;
    for (size_t i = 0; i < search->install->mapped_count; i++) {
        const struct tl_range *range = &search->install->mapped[i];
        search->found |= word >= range->start && word < range->end;
    }
}

// A slot that ends in a breakpoint still needs the handler.
static bool slots_left(const struct tl_traps *traps)
{
    struct tl_target *target = traps->owner->target;
    struct slot_search search = {traps->install, restorer_addr(traps->group->owner), false};
    for (size_t i = 0; i < tl_target_thread_count(target) && !search.found; i++) {
        struct tl_thread_view view;
        if (tl_target_thread_view(target, i, &view) != 0)
            return false;
        slot_word(0, view.pc, &search);
        if (!tl_stack_words(target, &view, slot_word, &search))
            return false;
    }
    return !search.found;
}

// 1: not yet.
static int handler_remove_held(struct tl_traps *traps)
{
    struct trap_group *group = traps->group;
    struct tl_target *target = traps->owner->target;
    tl_addr scratch = scratch_addr(traps->owner);
    struct tl_signal_action now = {0};
    int error = tl_action_get(target, scratch, SIGTRAP, &now, NULL);
    if (error || now.handler != handler_addr(group->owner))
        return error; // the target has another by now
    if (!threads_settled(target) || (traps->stepped && !slots_left(traps)))
        return 1;
    return tl_action_set(target, scratch, SIGTRAP, &group->before, NULL);
}

// The target has not executed another program.
static bool still_there(const struct tl_install *install)
{
    struct tl_code_header header;
    return tl_target_read(install->target, install->code_addr, &header, sizeof header, NULL) == 0 &&
           header.magic == TL_CODE_MAGIC &&
           header.controller_pid == install->header.controller_pid &&
           header.controller_start == install->header.controller_start &&
           header.log_addr == install->header.log_addr;
}

static int handler_remove_run(void *opaque)
{
    struct tl_traps *traps = opaque;
    struct tl_target *target = traps->owner->target;
    bool held = tl_target_thread_count(target) != 0;
    int result = 1;
    for (int i = 0; i < SETTLE_TRIES && result == 1; i++) {
        if (i)
            pause_a_little();
        result = tl_patch_hold(target, true, NULL);
        if (!result)
            result = still_there(traps->install) ? handler_remove_held(traps) : 0;
        if (!held)
            tl_target_resume(target);
        else
            break;
    }
    return result;
}

// The agent's list of headers begins at the one whose agent handles. The new one's rows are there.
static int header_join(struct tl_traps *traps, struct tl_diag *diag)
{
    struct tl_install *first = traps->group->owner, *install = traps->install;
    const uint64_t next = install->code_addr;
    install->header.trap_next = first->header.trap_next;
    int error = tl_target_write(first->target, install->code_addr, &install->header,
                                sizeof install->header, NULL, diag);
    if (!error)
        error = tl_target_write(first->target,
                                first->code_addr + offsetof(struct tl_code_header, trap_next),
                                &next, sizeof next, NULL, diag);
    if (!error)
        first->header.trap_next = next;
    return error;
}

static int header_leave_run(void *opaque)
{
    struct tl_traps *traps = opaque;
    struct tl_install *first = traps->group->owner;
    bool held = tl_target_thread_count(first->target) != 0;
    int error = tl_patch_hold(first->target, false, NULL);
    if (!error)
        error = tl_target_write(first->target,
                                first->code_addr + offsetof(struct tl_code_header, trap_next),
                                &traps->install->header.trap_next, sizeof(uint64_t), NULL, NULL);
    if (!error)
        first->header.trap_next = traps->install->header.trap_next;
    if (!held)
        tl_target_resume(first->target);
    return error;
}

// ---- life ---------------------------------------------------------------------------------------

static int header_page_map(struct tl_traps *traps, struct tl_diag *diag)
{
    struct tl_install *install = traps->install;
    struct tl_target *target = install->target;
    struct tl_memfd memfd;
    size_t map_count;
    int error = tl_region_used(target, &install->used, &install->used_count, &map_count, diag);
    if (error)
        return error;
    install->code_addr = tl_region_place(install->used, install->used_count, install->header.size);
    if (!install->code_addr)
        return tl_diag_set(diag, TL_E_REACH, "pid %d: no free page", (int)tl_target_pid(target));
    error = tl_memfd_create(target, scratch_addr(traps->owner), TL_CODE_NAME, true,
                            install->header.size, &memfd, diag);
    if (error)
        return error;
    error = tl_memfd_write(&memfd, &install->header, sizeof install->header, 0, diag);
    if (!error)
        error = tl_region_map(target, install->code_addr, install->header.size,
                              PROT_READ | PROT_EXEC, MAP_PRIVATE, memfd.remote, 0, diag);
    tl_memfd_close(target, &memfd);
    install->prepared = !error;
    free(install->used);
    install->used = NULL;
    if (!error)
        error = tl_region_used(target, &install->used, &install->used_count, &map_count, diag);
    if (!error) // room is left as for any install, and for the log
        install->mapping_limit = traps->owner->mapping_limit > traps->owner->mapped_count + 1
                                     ? traps->owner->mapping_limit - traps->owner->mapped_count - 1
                                     : 0;
    return error;
}

struct traps_job {
    struct tl_traps *traps;
    const struct tl_commit_input *input;
    struct tl_install_result *results;
    struct tl_diag *diag;
    enum tl_refusal refusal; // of all, as their signals are
    bool passing;            // it may be better in a moment
};

static int create_run(void *opaque)
{
    struct traps_job *job = opaque;
    struct tl_target *target = job->traps->owner->target;
    bool held = tl_target_thread_count(target) != 0;
    int error = tl_patch_hold(target, false, job->diag);
    if (!error)
        error = header_page_map(job->traps, job->diag);
    if (!held)
        tl_target_resume(target);
    return error;
}

static struct tl_install *install_create(struct tl_install *owner)
{
    struct tl_install *install = calloc(1, sizeof *install);
    if (!install)
        return NULL;
    install->target = owner->target;
    install->beside = owner;                // its rows of faults go on to be known
    install->thread_pointer = TL_TP_SHARED; // no code of ours here reads it
    install->header = (struct tl_code_header){.magic = TL_CODE_MAGIC,
                                              .version = TL_LAYOUT_VERSION,
                                              .state = TL_CODE_EMPTY,
                                              .size = tl_kernel_page_up(sizeof install->header),
                                              // control_size 0: it is the owner's
                                              .control_addr = owner->header.control_addr,
                                              .controller_start = owner->header.controller_start,
                                              .controller_pid = owner->header.controller_pid};
    memcpy(install->header.restorer, owner->header.restorer, sizeof install->header.restorer);
    return install;
}

int tl_traps_create(struct tl_install *owner, struct tl_traps *beside, struct tl_traps **out,
                    struct tl_diag *diag)
{
    struct tl_traps *traps = calloc(1, sizeof *traps);
    if (!traps)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    traps->owner = owner;
    traps->install = install_create(owner);
    traps->group = beside ? beside->group : calloc(1, sizeof *traps->group);
    if (traps->group) {
        traps->group->users++;
        if (!beside)
            traps->group->owner = owner;
    }
    struct traps_job job = {.traps = traps, .diag = diag};
    int error = traps->install && traps->group
                    ? tl_target_run(owner->target, create_run, &job, diag)
                    : tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    if (error) {
        tl_traps_destroy(traps);
        return error;
    }
    *out = traps;
    return 0;
}

void tl_traps_destroy(struct tl_traps *traps)
{
    if (!traps)
        return;
    if (traps->install && traps->install->prepared && !traps->install->committed &&
        traps->group->owner->header.trap_next == traps->install->code_addr)
        (void)tl_target_run(traps->install->target, header_leave_run, traps, NULL);
    if (traps->install)
        tl_install_destroy(traps->install);
    if (traps->group && --traps->group->users == 0)
        free(traps->group);
    free(traps);
}

void tl_traps_space(const struct tl_traps *traps, struct tl_space_options *out)
{
    *out = (struct tl_space_options){0};
    tl_install_space(traps->install, out);
}

void tl_traps_plan_options(const struct tl_traps *traps, struct tl_trap_options *out)
{
    struct tl_proc_status status;
    *out = (struct tl_trap_options){.arch = tl_arch_find(tl_machine)};
    out->shadow_stack =
        tl_proc_status_read(tl_target_pid(traps->owner->target), &status, NULL) == 0 &&
        status.shadow_stack;
    tl_install_emit_input(traps->owner, &out->emit);
}

// ---- commit -------------------------------------------------------------------------------------

// Called by the commit with all stopped.
static int commit_stopped(void *opaque, struct tl_diag *diag)
{
    struct traps_job *job = opaque;
    struct tl_traps *traps = job->traps;
    int error = traps->owner->committed ? 0 : tl_facts_check(traps->owner, diag);
    if (error == TL_E_AGAIN) // no detour was made for what is no longer so
        error = 0;
    if (!error)
        error = signals_check(traps, &job->refusal, &job->passing, diag);
    if (!error && job->refusal != TL_REFUSE_NONE)
        error = TL_E_UNSUPPORTED; // job->refusal says why
    if (!error && traps->group->owner->header.trap_next != traps->install->code_addr)
        error = header_join(traps, diag);
    return error ? error : handler_install(traps, diag);
}

// Again while some thread is busy with signals for a moment.
static int commit_try(struct traps_job *job)
{
    struct tl_traps *traps = job->traps;
    struct tl_target *target = traps->owner->target;
    bool held = tl_target_thread_count(target) != 0;
    int error = 0;
    for (int i = 0; i < QUIET_TRIES; i++) {
        if (i)
            pause_a_little();
        job->refusal = TL_REFUSE_NONE;
        error = tl_install_commit_input(traps->install, job->input, job->results, job->diag);
        if (error == 0 || job->refusal == TL_REFUSE_NONE || !job->passing || held)
            break;
    }
    return error;
}

static int commit_run(void *opaque)
{
    struct traps_job *job = opaque;
    struct tl_traps *traps = job->traps;
    int error = commit_try(job);
    if (!error) {
        traps->written = true;
        traps->group->written++;
        traps->owner->committed = true; // it stays, with or without sites of its own
        return 0;
    }
    if (traps->group->handled && traps->group->written == 0)
        traps->group->handled = handler_remove_run(traps) != 0;
    if (job->refusal == TL_REFUSE_NONE)
        return error;
    for (size_t i = 0; i < job->input->plan_count; i++) {
        enum tl_refusal own = job->input->plan[i]->refusal;
        job->results[i].refusal = own != TL_REFUSE_NONE ? own : job->refusal;
    }
    return 0;
}

// A patch of the owner's in the instruction, or one that ends in its bytes.
static bool owner_writes(const struct tl_install *owner, const struct tl_plan *plan)
{
    for (size_t i = 0; i < owner->writes.count; i++) {
        const struct tl_write *write = &owner->writes.write[i];
        tl_addr end = write->patch.addr + write->patch.size + write->patch.relied;
        if (write->state == TL_WRITE_DONE && write->patch.addr < plan->addr + plan->window_size &&
            plan->addr < end)
            return true;
    }
    return false;
}

int tl_traps_commit(struct tl_traps *traps, struct tl_space *space, const struct tl_trap_set *set,
                    size_t count, struct tl_install_result *results, struct tl_diag *diag)
{
    struct tl_commit_input input = {.plan_count = count};
    const struct tl_plan **plan = calloc(count + 1, sizeof *plan);
    struct tl_plan *blocked = calloc(count + 1, sizeof *blocked);
    if (!plan || !blocked) {
        free(plan);
        free(blocked);
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        plan[i] = tl_trap_plan(set, i);
        traps->stepped |= plan[i]->rung == TL_RUNG_STEP;
        if (plan[i]->rung == TL_RUNG_REFUSED || !owner_writes(traps->owner, plan[i]))
            continue;
        blocked[i] = (struct tl_plan){
            .rung = TL_RUNG_REFUSED, .refusal = TL_REFUSE_WINDOW_PROBE, .addr = plan[i]->addr};
        plan[i] = &blocked[i];
    }
    input.plan = plan;
    bool *guarded = NULL;
    int error = tl_commit_mappings(&input, space, &guarded, diag);
    input.detour_count = tl_trap_slots(set, &input.detour);
    input.trap_count = tl_trap_rows(set, &input.trap);
    traps->install->header.trap_stepped = traps->stepped;
    struct traps_job job = {.traps = traps, .input = &input, .results = results, .diag = diag};
    input.stopped = commit_stopped;
    input.opaque = &job;
    if (!error)
        error = tl_target_run(traps->owner->target, commit_run, &job, diag);
    free(guarded);
    free(plan);
    free(blocked);
    return error;
}

// ---- while they are in --------------------------------------------------------------------------

// What /proc shows without a stop. The handler of SIGTRAP is caught like any other, whosever it is.
static bool shown_ours(const struct tl_traps *traps, uint64_t *caught)
{
    pid_t pid = tl_target_pid(traps->owner->target);
    struct tl_proc_status status;
    if (tl_proc_status_read(pid, &status, NULL) != 0)
        return true; // it is ending
    *caught = status.sig_caught;
    return status.sig_caught & signal_bit(SIGTRAP) && !(status.sig_ignored & signal_bit(SIGTRAP)) &&
           !status.seccomp;
}

static bool thread_blocks(pid_t tid)
{
    struct tl_proc_status status;
    return tl_proc_status_read(tid, &status, NULL) == 0 && status.state != 'Z' &&
           status.sig_blocked & signal_bit(SIGTRAP);
}

// The C library blocks all signals for a moment where it makes and ends threads. One that does so
// for longer means it.
static bool thread_keeps_blocking(pid_t tid)
{
    for (int i = 0; i < QUIET_TRIES; i++) {
        if (!thread_blocks(tid))
            return false;
        pause_a_little();
    }
    return true;
}

static bool any_blocks(pid_t pid)
{
    char path[64];
    bool blocks = false;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && !blocks && (entry = readdir(dir));) {
        if (isdigit((unsigned char)entry->d_name[0]))
            blocks = thread_keeps_blocking((pid_t)strtol(entry->d_name, NULL, 10));
    }
    if (dir)
        closedir(dir);
    return blocks;
}

static int ask_run(void *opaque)
{
    struct traps_job *job = opaque;
    struct tl_install *owner = job->traps->owner;
    struct tl_signal_action action = {0};
    enum tl_refusal refusal = TL_REFUSE_NONE;
    bool held = tl_target_thread_count(owner->target) != 0;
    int error = tl_patch_hold(owner->target, false, job->diag);
    if (!error)
        error = tl_action_get(owner->target, scratch_addr(owner), SIGTRAP, &action, job->diag);
    if (!error && action.handler == handler_addr(job->traps->group->owner))
        error = handlers_check(owner->target, scratch_addr(owner), job->traps->caught, &refusal,
                               job->diag);
    else
        refusal = TL_REFUSE_TRAP_HANDLED;
    if (!held)
        tl_target_resume(owner->target);
    return error ? error : refusal != TL_REFUSE_NONE;
}

int tl_traps_check(struct tl_traps *traps, bool asked, struct tl_install_result *results,
                   struct tl_diag *diag)
{
    struct tl_target *target = traps->owner->target;
    if (!traps->written || traps->install->detached)
        return 0;
    int gone = tl_install_verify(traps->install, results, diag);
    if (gone)
        return gone;
    uint64_t caught = traps->caught, now = tl_now_ns();
    if (!asked && now - traps->looked_ns < LOOK_PERIOD_NS)
        return 0;
    traps->looked_ns = now;
    bool lost = !shown_ours(traps, &caught) || any_blocks(tl_target_pid(target));
    if (!lost && (asked || caught != traps->caught || now - traps->asked_ns > ASK_PERIOD_NS)) {
        struct traps_job job = {.traps = traps, .diag = NULL};
        traps->caught = caught;
        traps->asked_ns = now;
        lost = tl_target_run(target, ask_run, &job, NULL) == 1;
    }
    return lost ? tl_traps_close(traps, TL_REFUSE_TRAP_HANDLED, results, diag) : 0;
}

int tl_traps_close(struct tl_traps *traps, enum tl_refusal reason,
                   struct tl_install_result *results, struct tl_diag *diag)
{
    return tl_install_close_all(traps->install, reason, results, diag);
}

int tl_traps_close_faulting(struct tl_traps *traps, struct tl_install_result *results,
                            struct tl_diag *diag)
{
    return tl_install_close_faulting(traps->install, true, results, diag);
}

int tl_traps_close_site(struct tl_traps *traps, size_t index, struct tl_install_result *results,
                        struct tl_diag *diag)
{
    return tl_install_close_site(traps->install, index, results, diag);
}

// ---- detach -------------------------------------------------------------------------------------

int tl_traps_detach(struct tl_traps *traps, struct tl_diag *diag)
{
    struct trap_group *group = traps->group;
    if (!traps->written)
        return 0;
    int error = tl_install_detach(traps->install, diag);
    if (error)
        return error;
    traps->written = false;
    group->written--;
    struct tl_target *target = traps->owner->target;
    if (group->written || !group->handled || !tl_target_alive(target))
        return 0;
    traps->left = tl_target_run(target, handler_remove_run, traps, NULL) != 0;
    group->handled = traps->left;
    return 0;
}

int tl_traps_copies_close(struct tl_traps *traps, struct tl_diag *diag)
{
    return tl_install_copies_close(traps->install, diag);
}

int tl_traps_copies_detach(struct tl_traps *traps, struct tl_diag *diag)
{
    int count = tl_install_copies_detach(traps->install, diag);
    return count < 0 ? count : 0;
}

double tl_traps_stopped_ms(const struct tl_traps *traps)
{
    const struct tl_install_times *times = &traps->install->times;
    return times->stopped_ms > times->detach_stopped_ms ? times->stopped_ms
                                                        : times->detach_stopped_ms;
}

bool tl_traps_left(const struct tl_traps *traps)
{
    return traps->left;
}

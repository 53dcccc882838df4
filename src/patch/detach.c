// While probes are in: has somebody else written there? And the way out.
//
// Detach puts back what is ours, gives equal pages back to the file, and leaves detours and
// counters mapped and idle, since a thread may still stand in them. Invariant: no byte is written
// where device, inode, offset or our own bytes differ.
#include "patch/install.h"

#include <stdlib.h>
#include <string.h>

static bool pick_all(const struct tl_write *write, void *opaque)
{
    (void)write;
    (void)opaque;
    return true;
}

// The code header of ours is still where it was: the target has not executed another program.
static bool still_there(struct tl_install *install)
{
    struct tl_code_header header;
    return tl_target_read(install->target, install->code_addr, &header, sizeof header, NULL) == 0 &&
           header.magic == TL_CODE_MAGIC &&
           header.controller_pid == install->header.controller_pid &&
           header.controller_start == install->header.controller_start &&
           header.log_addr == install->header.log_addr;
}

// ---- verify
// ---------------------------------------------------------------------------------------

struct verify_job {
    struct tl_install *install;
    struct tl_install_result *results;
    struct tl_diag *diag;
    bool *foreign; // per site: its bytes are not all ours, or must not stay
    enum tl_refusal reason; // of those that go with them
};

static bool pick_foreign(const struct tl_write *write, void *opaque)
{
    const struct verify_job *job = opaque;
    return job->foreign[write->plan];
}

static bool same_file(const struct tl_write *a, const struct tl_write *b)
{
    return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

// The file was unmapped, and perhaps mapped again at the same place, since the last look or during this
// one: nothing of ours is there. Patches of one file lie side by side.
static bool mapped_anew(const struct tl_install *install, const struct tl_text_view *text,
                        size_t index)
{
    const struct tl_write *write = install->writes.write;
    size_t first = index, end = index;
    while (first > 0 && same_file(&write[first - 1], &write[index]))
        first--;
    while (end < install->writes.count && same_file(&write[end], &write[index]))
        end++;
    for (size_t i = first; i < end; i++) {
        if (write[i].state == TL_WRITE_DONE && !tl_text_without_ours(text, &write[i]))
            return false;
    }
    return true;
}

// Marks the sites that are not as they were written. Returns whether bytes must be put back.
static bool sites_compare(struct verify_job *job, const struct tl_text_view *text)
{
    bool stop = false;
    for (size_t i = 0; i < job->install->writes.count; i++) {
        struct tl_write *write = &job->install->writes.write[i];
        bool gone = false;
        if (write->state != TL_WRITE_DONE && write->state != TL_WRITE_CLOSED)
            continue;
        bool intact = tl_text_intact(text, write, &gone);
        if (!gone && !intact && write->state == TL_WRITE_DONE)
            gone = mapped_anew(job->install, text, i);
        if (gone) {
            if (write->state == TL_WRITE_DONE)
                job->results[write->plan].refusal = TL_REFUSE_UNLOADED;
            write->state = TL_WRITE_SKIPPED;
        } else if (write->state == TL_WRITE_CLOSED ? tl_text_has_ours(text, write) : !intact) {
            job->foreign[write->plan] = true;
            job->results[write->plan].refusal = TL_REFUSE_CHANGED_BYTES;
            stop = true;
        }
    }
    return stop;
}

// Sites that can't be without one that is closed go with it: those that need it, and those whose
// branch ends in its bytes.
static void dependents_close(struct verify_job *job)
{
    struct tl_install *install = job->install;
    bool changed = true;
    while (changed) { // each round closes at least one site
        changed = false;
        for (size_t i = 0; i < install->writes.count; i++) {
            const struct tl_write *write = &install->writes.write[i];
            bool lost = false;
            for (size_t k = 0; k < install->needs[write->plan].count; k++)
                lost |= job->foreign[install->needs[write->plan].plan[k]];
            for (unsigned k = 0; k < write->patch.relied; k++) {
                const struct tl_write *other =
                    tl_writes_at(&install->writes, write->patch.addr + write->patch.size + k);
                lost |= other && job->foreign[other->plan];
            }
            if (lost && write->state == TL_WRITE_DONE && !job->foreign[write->plan]) {
                job->foreign[write->plan] = changed = true;
                job->results[write->plan].refusal = job->reason;
            }
        }
    }
}

static bool faulting_mark(struct verify_job *job, size_t all)
{
    const struct tl_install *install = job->install;
    bool any = false;
    for (size_t i = 0; i < install->writes.count; i++) {
        const struct tl_write *write = &install->writes.write[i];
        const struct tl_needs *needs = &install->needs[write->plan];
        if (write->state != TL_WRITE_DONE || job->foreign[write->plan] ||
            !(all ? needs->faults : needs->faults_interior))
            continue;
        job->foreign[write->plan] = any = true;
        job->results[write->plan].refusal = TL_REFUSE_FAULT_DISPLACED;
    }
    return any;
}

// A fault handler's probe is closed: faults can't be shown right any more.
static void unguarded_close(struct verify_job *job)
{
    for (size_t i = 0; i < job->install->plan_count; i++) {
        if (job->install->needs[i].guard && job->foreign[i]) {
            (void)faulting_mark(job, true);
            return;
        }
    }
}

// What is left stays as it is until the next look, or the end.
static int foreign_put_back(void *opaque)
{
    struct verify_job *job = opaque;
    struct tl_install *install = job->install;
    struct tl_text_view text;
    unsigned tries = 0;
    size_t left = 0;
    int error;
    do {
        error = tl_patch_stop(install->target, NULL, job->diag);
        if (error)
            return error;
        error = tl_text_load(install->target, &install->writes, &text, job->diag);
        if (!error) {
            text.agent = tl_code_agent(&install->header);
            int count = tl_text_put_back(install->target, &text, &install->writes, pick_foreign, job,
                                         &left, job->diag);
            error = count < 0 ? count : 0;
            tl_text_deinit(&text);
        }
    } while (!error && tl_text_wait(install->target, left, false, &tries));
    tl_target_resume(install->target);
    return error;
}

int tl_install_verify(struct tl_install *install, struct tl_install_result *results,
                      struct tl_diag *diag)
{
    struct verify_job job = {install, results, diag, NULL, TL_REFUSE_CHANGED_BYTES};
    struct tl_text_view text;
    if (!install->committed || install->detached)
        return 0;
    if (!tl_target_alive(install->target))
        return tl_diag_set(diag, TL_E_GONE, "pid %d: has ended",
                           (int)tl_target_pid(install->target));
    if (!still_there(install))
        return 1;
    job.foreign = calloc(install->plan_count + 1, sizeof *job.foreign);
    if (!job.foreign)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    int error = tl_text_load(install->target, &install->writes, &text, diag);
    // A process that ended, or became another, since it was asked has no memory any more: nothing
    // was unloaded. What is there now was there all the while.
    if (!error && !still_there(install)) {
        tl_text_deinit(&text);
        free(job.foreign);
        return 1;
    }
    if (!error) {
        bool stop = sites_compare(&job, &text);
        tl_text_deinit(&text);
        if (stop) {
            unguarded_close(&job);
            dependents_close(&job);
        }
        if (stop)
            error = tl_target_run(install->target, foreign_put_back, &job, diag);
    }
    free(job.foreign);
    return error;
}

// mark chooses; false: none.
static int marked_close(struct tl_install *install, bool (*mark)(struct verify_job *, size_t),
                        size_t which, struct tl_install_result *results, struct tl_diag *diag)
{
    struct verify_job job = {install, results, diag, NULL, TL_REFUSE_FAULT_DISPLACED};
    if (!install->committed || install->detached)
        return 0;
    job.foreign = calloc(install->plan_count + 1, sizeof *job.foreign);
    if (!job.foreign)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    int error = 0;
    if (mark(&job, which)) {
        dependents_close(&job);
        error = tl_target_run(install->target, foreign_put_back, &job, diag);
    }
    free(job.foreign);
    return error;
}

int tl_install_close_faulting(struct tl_install *install, bool all,
                              struct tl_install_result *results, struct tl_diag *diag)
{
    return marked_close(install, faulting_mark, all, results, diag);
}

static bool all_mark(struct verify_job *job, size_t reason)
{
    bool any = false;
    for (size_t i = 0; i < job->install->writes.count; i++) {
        const struct tl_write *write = &job->install->writes.write[i];
        if (write->state != TL_WRITE_DONE)
            continue;
        job->foreign[write->plan] = any = true;
        job->results[write->plan].refusal = (enum tl_refusal)reason;
    }
    return any;
}

int tl_install_close_all(struct tl_install *install, enum tl_refusal reason,
                         struct tl_install_result *results, struct tl_diag *diag)
{
    return marked_close(install, all_mark, reason, results, diag);
}

static bool site_mark(struct verify_job *job, size_t index)
{
    job->foreign[index] = true;
    job->results[index].refusal = TL_REFUSE_FAULT_DISPLACED;
    return true;
}

int tl_install_close_site(struct tl_install *install, size_t index,
                          struct tl_install_result *results, struct tl_diag *diag)
{
    return marked_close(install, site_mark, index, results, diag);
}

// ---- detach
// ---------------------------------------------------------------------------------------

struct detach_job {
    struct tl_install *install;
    struct tl_diag *diag;
    bool whole; // no thread is about to replace a return address
    size_t left; // patches that could not be put back
};

static int detach_stopped(struct detach_job *job, struct tl_diag *diag)
{
    struct tl_install *install = job->install;
    struct tl_target *target = install->target;
    struct tl_text_view text;
    int error = tl_text_load(target, &install->writes, &text, diag);
    if (error)
        return error;
    // Return addresses first: while they lead to our code, somebody stands in it.
    job->whole = tl_hijack_put_back_whole(install);
    text.agent = tl_code_agent(&install->header);
    int count = tl_text_put_back(target, &text, &install->writes, pick_all, NULL, &job->left, diag);
    tl_text_deinit(&text);
    if (count < 0 || job->left)
        return count < 0 ? count : 0;
    install->header.state = TL_CODE_IDLE;
    return tl_target_write(target, install->code_addr, &install->header, sizeof install->header,
                           NULL, diag);
}

static int detach_run(void *opaque)
{
    struct detach_job *job = opaque;
    struct tl_install *install = job->install;
    struct tl_target *target = install->target;
    unsigned tries = 0;
    uint64_t start;
    bool borrowed = true;
    int error;
    do {
        // A borrowed thread first: it gives the pages back after the others have gone on.
        error = tl_patch_borrow(target, &borrowed, job->diag);
        start = tl_now_ns();
        if (!error)
            error = tl_patch_stop(target, &borrowed, job->diag);
        if (!error && !still_there(install)) {
            tl_target_resume(target);
            return 0;
        }
        if (!error)
            error = detach_stopped(job, job->diag);
    } while (!error && tl_text_wait(target, job->left, false, &tries));
    if (!error && borrowed)
        tl_target_resume_others(target);
    install->times.detach_stopped_ms = (double)(tl_now_ns() - start) / 1e6;
    if (!error && borrowed)
        tl_text_pages_return(target, &install->writes);
    tl_target_resume(target);
    return error;
}

int tl_install_detach(struct tl_install *install, struct tl_diag *diag)
{
    struct detach_job job = {install, diag, true, 0};
    if (!install->committed || install->detached)
        return 0;
    if (!tl_target_alive(install->target) || !still_there(install)) {
        install->detached = true; // nothing of ours is left
        return 0;
    }
    int error = tl_target_run(install->target, detach_run, &job, diag);
    if (!error && job.left)
        return tl_diag_set(diag, TL_E_BUSY,
                           "pid %d: %zu branches are still in its text: a thread stands in what they lead "
                           "to; try 'trapless detach' later",
                           (int)tl_target_pid(install->target), job.left);
    if (!error)
        install->detached = true;
    return error || job.whole ? error : tl_install_hijack_end(install, diag);
}

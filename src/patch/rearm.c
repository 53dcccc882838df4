// A library that went away and came back at the same place: its patches are written again, to the same
// detours.
//
// Invariant: a site is written whole and only where the mapping is the same piece of the same file, the
// bytes are the file's, no thread stands in it, and no word on a stack points into it.
#include "patch/install.h"

#include <stdlib.h>
#include <string.h>

struct rearm_job {
    struct tl_install *install;
    struct tl_install_result *results;
    bool *wanted; // per plan
    int count;    // plans that were written again
    struct tl_diag *diag;
};

static bool plans_mark(struct rearm_job *job)
{
    const struct tl_install *install = job->install;
    bool any = false;
    for (size_t i = 0; i < install->writes.count; i++) {
        size_t plan = install->writes.write[i].plan;
        job->wanted[plan] = job->results[plan].refusal == TL_REFUSE_UNLOADED;
        any |= job->wanted[plan];
    }
    return any;
}

static bool thread_stands_in(struct tl_install *install, const struct tl_patch *patch)
{
    for (size_t i = 0; i < tl_target_thread_count(install->target); i++) {
        struct tl_thread_view view;
        if (tl_target_thread_view(install->target, i, &view) != 0 ||
            view.pc - patch->addr < patch->size)
            return true;
    }
    return false;
}

// What a plan needs of others is there, or comes with it.
static bool needs_met(const struct rearm_job *job, size_t plan)
{
    const struct tl_needs *needs = &job->install->needs[plan];
    for (size_t k = 0; k < needs->count; k++) {
        size_t other = needs->plan[k];
        if (!job->wanted[other] && job->results[other].refusal != TL_REFUSE_NONE)
            return false;
    }
    return true;
}

// A saved pc may point between the instructions of a patch. Calls in it return behind it.
static void word_visit(tl_addr addr, uint64_t word, void *opaque)
{
    (void)addr;
    struct rearm_job *job = opaque;
    const struct tl_write *write = tl_writes_at(&job->install->writes, word);
    if (write && word != write->patch.addr)
        job->wanted[write->plan] = false;
}

static void stacks_search(struct rearm_job *job)
{
    struct tl_target *target = job->install->target;
    bool all = true;
    for (size_t i = 0; i < tl_target_thread_count(target); i++) {
        struct tl_thread_view view;
        all &= tl_target_thread_view(target, i, &view) == 0 &&
               tl_stack_words(target, &view, word_visit, job);
    }
    if (!all)
        memset(job->wanted, 0, job->install->plan_count * sizeof *job->wanted);
}

// Takes away plans that can't be, until what is left can.
static void plans_check(struct rearm_job *job, const struct tl_text_view *text)
{
    struct tl_writes *writes = &job->install->writes;
    stacks_search(job);
    for (size_t i = 0; i < writes->count; i++) {
        const struct tl_write *write = &writes->write[i];
        if (job->wanted[write->plan] && (tl_text_check(text, write) != TL_REFUSE_NONE ||
                                         thread_stands_in(job->install, &write->patch)))
            job->wanted[write->plan] = false;
    }
    for (bool changed = true; changed;) { // each round takes away at least one
        changed = false;
        for (size_t i = 0; i < writes->count; i++)
            writes->write[i].state = job->wanted[writes->write[i].plan] ? TL_WRITE_PLANNED
                                     : writes->write[i].state == TL_WRITE_PLANNED
                                         ? TL_WRITE_SKIPPED
                                         : writes->write[i].state;
        for (size_t i = 0; i < writes->count; i++) {
            const struct tl_write *write = &writes->write[i];
            if (!job->wanted[write->plan] ||
                (needs_met(job, write->plan) && tl_text_relied(text, writes, write)))
                continue;
            job->wanted[write->plan] = false;
            changed = true;
        }
    }
}

static int rearm_stopped(struct rearm_job *job)
{
    struct tl_install *install = job->install;
    struct tl_text_view text;
    int error = tl_text_load(install->target, &install->writes, &text, job->diag);
    if (error)
        return error;
    plans_check(job, &text);
    error = tl_text_write(install->target, &text, &install->writes, job->diag);
    tl_text_deinit(&text);
    for (size_t i = 0; !error && i < install->plan_count; i++) {
        if (!job->wanted[i])
            continue;
        job->results[i].refusal = TL_REFUSE_NONE;
        job->count++;
    }
    return error;
}

static int rearm_run(void *opaque)
{
    struct rearm_job *job = opaque;
    struct tl_target *target = job->install->target;
    bool held = tl_target_thread_count(target) != 0;
    int error = tl_patch_hold(target, true, job->diag);
    if (!error)
        error = rearm_stopped(job);
    if (!held)
        tl_target_resume(target);
    return error;
}

int tl_install_rearm(struct tl_install *install, struct tl_install_result *results,
                     struct tl_diag *diag)
{
    struct rearm_job job = {.install = install, .results = results, .diag = diag};
    if (!install->committed || install->detached)
        return 0;
    job.wanted = calloc(install->plan_count + 1, sizeof *job.wanted);
    if (!job.wanted)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    int error = 0;
    if (plans_mark(&job))
        error = tl_target_run(install->target, rearm_run, &job, diag);
    free(job.wanted);
    return error ? error : job.count;
}

// The public calls: the life of a session and the order of its work. What happens in one process at
// one time is a batch (batch.c); most sessions have one.
//
// Invariant: whatever was placed is taken back by tl_session_detach or tl_session_destroy, and a failed
// attach leaves the target as it was.
#include "session/follow.h"
#include "session/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COARSE_MS 1 // the grain of the clock where the target may read no counter
#define POLL_MS 250 // how often the text is compared with what was written
#define VERIFY_MS 100.0 // ... where polls are more frequent

double tl_session_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void tl_session_note(struct tl_session *session, const char *format, ...)
{
    size_t used = strlen(session->notes);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(session->notes + used, sizeof session->notes - used, format, args);
    va_end(args);
}

static int target_open(struct tl_session *session, struct tl_target **out, struct tl_diag *diag)
{
    struct tl_session_options *options = &session->options;
    int error = 0;
    *out = NULL;
    if (options->argv) {
        error = tl_target_launch(options->argv, NULL, out, diag);
        if (!error)
            options->pid = tl_target_pid(*out);
    } else if (options->pid && !options->read_only) {
        error = tl_target_open(options->pid, NULL, out, diag);
    }
    return error;
}

int tl_session_create(const struct tl_session_options *options, struct tl_session **out,
                      struct tl_diag *diag)
{
    struct tl_session *session = calloc(1, sizeof *session);
    if (!session)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    size_t size = options->size < sizeof session->options ? options->size
                                                           : sizeof session->options;
    memcpy(&session->options, options, size);
    struct tl_target *target;
    struct tl_batch *batch;
    int error = target_open(session, &target, diag);
    if (!error)
        error = tl_batch_create(session, target, true, NULL, &batch, diag);
    if (error) {
        tl_session_destroy(session);
        return error;
    }
    *out = session;
    return 0;
}

void tl_session_destroy(struct tl_session *session)
{
    if (!session)
        return;
    if (session->attached)
        (void)tl_session_detach(session, NULL);
    tl_stream_destroy(session->stream);
    tl_follow_destroy(session);
    // The first one's install stands beside the others', and its target serves them.
    for (size_t i = session->batch_count; i-- > 0;)
        tl_batch_destroy(session->batch[i]);
    for (size_t i = 0; i < session->line_count; i++)
        free(session->lines[i].probe);
    for (size_t i = 0; i < session->text_count; i++)
        free(session->texts[i]);
    free(session->lines);
    free(session->texts);
    free(session->buckets);
    free(session);
}

static int text_keep(struct tl_session *session, const char *probe)
{
    char **grown = realloc(session->texts, (session->text_count + 1) * sizeof *grown);
    if (!grown)
        return TL_E_NOMEM;
    session->texts = grown;
    grown[session->text_count] = strdup(probe);
    return grown[session->text_count] ? (session->text_count++, 0) : TL_E_NOMEM;
}

int tl_session_add(struct tl_session *session, const char *probe, struct tl_diag *diag)
{
    if (session->attached)
        return tl_diag_set(diag, TL_E_USAGE, "probes are added before the attach");
    if (text_keep(session, probe))
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    return tl_batch_add(session->batch[0], probe, diag);
}

int tl_session_explain(struct tl_session *session, struct tl_diag *diag)
{
    int error = tl_batch_lines(session->batch[0], diag);
    return error ? error : tl_batch_explain(session->batch[0], diag);
}

static int recording_begin(struct tl_session *session, struct tl_diag *diag)
{
    if (session->options.mode == TL_MODE_COUNT)
        return 0;
    struct tl_install_facts facts = {0};
    if (session->batch[0]->install)
        tl_install_facts(session->batch[0]->install, &facts);
    tl_clock_map_init(&session->clock, facts.clock == TL_CLOCK_COARSE);
    return session->options.mode == TL_MODE_EVENTS ? tl_stream_create(&session->stream, diag) : 0;
}

int tl_session_attach(struct tl_session *session, struct tl_diag *diag)
{
    struct tl_batch *batch = session->batch[0];
    double start = tl_session_now_ms();
    if (session->attached)
        return tl_diag_set(diag, TL_E_USAGE, "the session is attached already");
    if (!batch->sites.count && !tl_session_may_match_later(session))
        return tl_diag_set(diag, TL_E_NOMATCH, "no probe matched");
    int error = tl_batch_lines(batch, diag);
    if (error)
        return error;
    session->attached = true;
    error = tl_batch_place(batch, diag);
    if (!error && batch->sites.count && !tl_batch_placed(batch))
        error = tl_diag_set(diag, TL_E_NOMATCH, "none of %zu probes could be placed: %s",
                            batch->sites.count, tl_session_site(session, 0)->reason);
    if (!error)
        error = recording_begin(session, diag);
    if (error) {
        (void)tl_session_detach(session, NULL);
        return error;
    }
    tl_target_resume(batch->target);
    session->stopped_ms = batch->stopped_ms;
    session->attach_ms = tl_session_now_ms() - start;
    return 0;
}

// A line is told as a batch has it that had to give it up; else as the newest that could place it; else
// as the newest.
static void line_take(struct tl_session *session, uint32_t batch, uint32_t site)
{
    const struct tl_session_site *state = &session->batch[batch]->state[site];
    struct tl_session_line *line = &session->lines[state->line];
    const struct tl_session_site *told = &session->batch[line->batch]->state[line->site];
    line->hits += state->hits;
    line->dropped += state->dropped;
    if (state->closed ||
        (!told->closed && (state->rung != TL_RUNG_REFUSED || told->rung == TL_RUNG_REFUSED))) {
        line->batch = batch;
        line->site = site;
    }
}

void tl_session_lines_sum(struct tl_session *session)
{
    for (size_t i = 0; i < session->line_count; i++)
        session->lines[i].hits = session->lines[i].dropped = 0;
    for (size_t i = 0; i < session->batch_count; i++) {
        const struct tl_batch *batch = session->batch[i];
        for (size_t k = 0; k < batch->state_count && batch->state[k].line < session->line_count; k++)
            line_take(session, (uint32_t)i, (uint32_t)k);
    }
}

// Compares text with what was written. While notices are waited for that is not done in every poll.
static bool verify_due(struct tl_session *session)
{
    double now = tl_session_now_ms();
    if (tl_session_hooks_poll_ms(session) && now - session->verified_ms < VERIFY_MS)
        return false;
    session->verified_ms = now;
    return true;
}

// 0, or TL_E_*. That a process ended, at whatever moment, is no error; and what goes wrong with one that came
// later is no reason to end the run.
static int batch_look(struct tl_batch *batch, bool verify, struct tl_diag *diag)
{
    struct tl_diag why = {""};
    int gone = verify ? tl_batch_verify(batch, &why) : !tl_target_alive(batch->target);
    batch->gone = gone == 1 || gone == TL_E_GONE;
    if (gone >= 0 || batch->gone)
        return 0;
    if (batch == batch->session->batch[0])
        return tl_diag_set(diag, gone, "%s", why.text);
    tl_follow_note(batch->session, "%s\n", why.text);
    return 0;
}

int tl_session_poll(struct tl_session *session, struct tl_diag *diag)
{
    bool alive = false, verify = verify_due(session);
    int error = tl_session_look_after(session, diag);
    for (size_t i = 0; !error && i < session->batch_count; i++) {
        struct tl_batch *batch = session->batch[i];
        if (!batch->gone)
            error = batch_look(batch, verify, diag);
        alive |= !batch->gone;
    }
    if (error)
        return error;
    for (size_t i = 0; i < session->batch_count; i++)
        tl_batch_refresh(session->batch[i]);
    tl_session_lines_sum(session);
    return !(alive || tl_follow_alive(session));
}

// Targets that may read no counter go by a word that is kept here.
static bool clocks_tick(const struct tl_session *session)
{
    bool coarse = false;
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_install_facts facts;
        if (!session->batch[i]->install)
            continue;
        tl_install_facts(session->batch[i]->install, &facts);
        tl_install_clock_tick(session->batch[i]->install);
        coarse |= facts.clock == TL_CLOCK_COARSE;
    }
    return coarse;
}

int tl_session_poll_ms(const struct tl_session *session)
{
    int hooks = tl_session_hooks_poll_ms(session);
    if (session->options.mode != TL_MODE_COUNT && clocks_tick(session))
        return COARSE_MS;
    return hooks && hooks < POLL_MS ? hooks : POLL_MS;
}

int tl_session_detach(struct tl_session *session, struct tl_diag *diag)
{
    if (!session->attached)
        return 0;
    double start = tl_session_now_ms();
    int error = 0;
    session->attached = false;
    for (size_t i = session->batch_count; i-- > 0;) {
        struct tl_batch *batch = session->batch[i];
        int result = tl_batch_detach(batch, error ? NULL : diag);
        error = error || result == TL_E_GONE ? error : result; // nothing is left where it ended
        if (batch->stopped_ms > session->stopped_ms)
            session->stopped_ms = batch->stopped_ms;
    }
    int copies = tl_follow_detach(session, error ? NULL : diag);
    error = error ? error : copies;
    session->attached = error == TL_E_BUSY;
    for (size_t i = 0; i < session->batch_count; i++)
        tl_batch_refresh(session->batch[i]);
    tl_session_lines_sum(session);
    session->detach_ms = tl_session_now_ms() - start;
    return error;
}

int tl_session_exit_fd(const struct tl_session *session)
{
    return session->batch[0]->target ? tl_target_exit_fd(session->batch[0]->target) : -1;
}

int tl_session_wait_status(const struct tl_session *session)
{
    return session->batch[0]->target ? tl_target_wait_status(session->batch[0]->target) : -1;
}

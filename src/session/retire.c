// What is gone and was counted makes room: process slots of dead children, batches of programs that ended.
//
// Counts move, they are not lost: into the block of the target that all threads share, where only atomic
// adds are made. Invariant: the sum over what is left is what it was.
#include "session/follow.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define RETIRE_AT (TL_BATCHES_MAX / 8u) // fewer batches are no burden

// ---- counts -------------------------------------------------------------------------------------

static unsigned char *shared_block(const struct tl_drain_memory *memory)
{
    return (unsigned char *)memory->data + TL_BLOCK_FIRST_OFF +
           TL_THREAD_SLOTS * memory->layout.stride;
}

// Relaxed, all of these: sums; partner: the atomic adds of threads without a block of their own.
static void word_add(uint64_t *word, uint64_t value)
{
    if (value)
        (void)__atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

static void word_raise(uint64_t *word, uint64_t value)
{
    uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (now < value && !__atomic_compare_exchange_n(word, &now, value, false, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED))
        ;
}

static void counter_add(const struct tl_drain_memory *memory, uint32_t probe, uint64_t value)
{
    word_add((uint64_t *)(void *)(shared_block(memory) + TL_BLOCK_HEADER_SIZE) + probe, value);
}

static void hist_add(const struct tl_drain_memory *memory, uint32_t probe,
                     const struct tl_hist *hist)
{
    struct tl_hist *sum =
        (struct tl_hist *)(void *)(shared_block(memory) + memory->layout.hist_off) + probe;
    word_add(&sum->sum, hist->sum);
    word_add(&sum->unpaired, hist->unpaired);
    word_add(&sum->lost, hist->lost);
    word_raise(&sum->min_inverted, hist->min_inverted);
    word_raise(&sum->max, hist->max);
    for (size_t i = 0; i < TL_HIST_BUCKETS; i++)
        word_add(&sum->bucket[i], hist->bucket[i]);
}

static int counts_fold(const struct tl_drain_memory *memory, uint32_t process, uint64_t *hits,
                       struct tl_diag *diag)
{
    uint32_t count = memory->layout.probe_count;
    int error = tl_drain_process_counts(memory, process, 0, count, hits, diag);
    for (uint32_t i = 0; !error && i < count; i++) {
        if (!hits[i])
            continue;
        struct tl_hist hist = {0};
        if (i < memory->layout.hist_count)
            error = tl_drain_process_hist(memory, process, i, &hist, diag);
        if (error)
            break;
        if (i < memory->layout.hist_count)
            hist_add(memory, i, &hist);
        counter_add(memory, i, hits[i]);
    }
    return error;
}

int tl_process_fold(struct tl_batch *batch, uint32_t process, struct tl_diag *diag)
{
    struct tl_drain_memory memory;
    tl_install_memory(batch->install, &memory);
    uint64_t *hits = calloc((size_t)memory.layout.probe_count + 1, sizeof *hits);
    if (!hits)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    int error = counts_fold(&memory, process, hits, diag);
    free(hits);
    if (error)
        return error;
    if (batch->session->stream && batch->stream_source >= 0 && batch->stream_source != INT_MAX)
        tl_stream_process_forget(batch->session->stream, (uint32_t)batch->stream_source, process);
    return tl_drain_process_clear(&memory, process, diag);
}

// ---- batches ------------------------------------------------------------------------------------

void tl_batch_drop(struct tl_batch *batch)
{
    struct tl_session *session = batch->session;
    if (session->batch[session->batch_count - 1] != batch)
        return;
    session->batch_count--;
    tl_notice_batch_gone(session, batch);
    tl_follow_batch_gone(session, batch);
    tl_batch_destroy(batch);
}

// A place holder: it has nothing, and nothing is done with it.
static bool is_empty(const struct tl_batch *batch)
{
    return !batch->target && !batch->modules && batch->gone;
}

void tl_batch_settle(struct tl_batch *batch)
{
    struct tl_session *session = batch->session;
    uint32_t from = tl_batch_index(batch);
    for (uint32_t to = 1; to < from; to++) {
        if (!is_empty(session->batch[to]))
            continue;
        tl_batch_destroy(session->batch[to]);
        session->batch[to] = batch;
        session->batch_count--;
        for (size_t i = 0; i < session->line_count; i++) {
            if (session->lines[i].batch == from)
                session->lines[i].batch = to;
        }
        return;
    }
}

// Where the counts of a site go. false: nowhere.
static bool heir_find(const struct tl_batch *batch, const struct tl_session_site *state,
                      struct tl_drain_memory *memory, uint32_t *probe)
{
    const struct tl_session *session = batch->session;
    if (state->line >= session->line_count)
        return false;
    const struct tl_session_line *line = &session->lines[state->line];
    const struct tl_batch *heir = session->batch[line->batch];
    if (heir == batch)
        return false; // it is what the report shows
    if (!state->hits)
        return true;
    const struct tl_session_site *site = &heir->state[line->site];
    bool jump = site->rung != TL_RUNG_REFUSED && site->rung != TL_RUNG_KERNEL;
    if (!jump || !heir->install)
        return false;
    tl_install_memory(heir->install, memory);
    *probe = site->counter;
    return *probe < memory->layout.probe_count;
}

static bool sites_inherited(const struct tl_batch *batch)
{
    for (size_t i = 0; i < batch->state_count; i++) {
        struct tl_drain_memory memory;
        uint32_t probe;
        if (!heir_find(batch, &batch->state[i], &memory, &probe))
            return false;
    }
    return true;
}

// A line shows the newest batch where its probe has a place: what was placed once is not hidden by a program
// where it could not be.
void tl_batches_lines(struct tl_session *session)
{
    for (uint32_t i = 0; i < session->batch_count; i++) {
        const struct tl_batch *batch = session->batch[i];
        for (uint32_t k = 0; k < batch->state_count; k++) {
            if (batch->state[k].line >= session->line_count)
                continue;
            struct tl_session_line *line = &session->lines[batch->state[k].line];
            const struct tl_batch *shown = session->batch[line->batch];
            if (batch->state[k].rung != TL_RUNG_REFUSED &&
                shown->state[line->site].rung == TL_RUNG_REFUSED) {
                line->batch = i;
                line->site = k;
            }
        }
    }
}

// Some other batch needs it: its target, or its install beside its own.
static bool is_needed(const struct tl_batch *batch)
{
    const struct tl_session *session = batch->session;
    for (size_t i = 0; i < session->batch_count; i++) {
        const struct tl_batch *other = session->batch[i];
        if (other != batch &&
            (other->beside == batch || (other->target && other->target == batch->target)))
            return true;
    }
    return false;
}

static bool is_retirable(struct tl_session *session, struct tl_batch *batch)
{
    if (!batch->gone || is_empty(batch) || is_needed(batch))
        return false;
    // Events that are still in its rings, or on their way, name its sites.
    if (session->stream && (batch->uprobes || (batch->stream_source >= 0 &&
                                               batch->stream_source != INT_MAX)))
        return false;
    tl_batch_refresh(batch);
    return sites_inherited(batch) && tl_follow_childless(session, batch);
}

static void batch_retire(struct tl_session *session, uint32_t index)
{
    struct tl_batch *batch = session->batch[index];
    struct tl_batch *empty = calloc(1, sizeof *empty);
    struct tl_drain_memory memory, own = {0};
    uint32_t probe;
    if (!empty)
        return;
    if (batch->install)
        tl_install_memory(batch->install, &own);
    for (size_t i = 0; i < batch->state_count; i++) {
        const struct tl_session_site *state = &batch->state[i];
        if (!state->hits || !heir_find(batch, state, &memory, &probe))
            continue;
        struct tl_hist hist = {0};
        if (memory.layout.hist_off && state->rung == TL_RUNG_JUMP && own.data &&
            tl_drain_hist(&own, state->counter, &hist, NULL) == 0)
            hist_add(&memory, probe, &hist);
        counter_add(&memory, probe, state->hits);
    }
    *empty = (struct tl_batch){.session = session, .stream_source = -1, .gone = true};
    session->batch[index] = empty;
    tl_notice_batch_gone(session, batch);
    tl_follow_batch_gone(session, batch);
    tl_batch_destroy(batch);
}

void tl_batches_retire(struct tl_session *session)
{
    if (session->batch_count < RETIRE_AT)
        return;
    for (uint32_t i = 1; i < session->batch_count; i++) {
        if (is_retirable(session, session->batch[i]))
            batch_retire(session, i);
    }
    while (session->batch_count > 1 && is_empty(session->batch[session->batch_count - 1]))
        tl_batch_destroy(session->batch[--session->batch_count]);
}

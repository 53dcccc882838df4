// What was recorded: the stream of events, and histograms of times.
//
// Rings and histograms count in ticks and probe numbers; here they become nanoseconds and report lines.
#include "session/internal.h"

#include <stdlib.h>
#include <string.h>

#define KERNEL_SOURCE 1024u // sources of kernel probes are numbered from here, by batch

#define KERNEL_LATE_NS 1000000u

struct taker {
    struct tl_session *session;
    int (*take)(void *opaque, const struct tl_event *event);
    void *opaque;
};

static struct tl_batch *source_batch(const struct tl_session *session, uint32_t source)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        if (session->batch[i]->stream_source == (int)source ||
            source == KERNEL_SOURCE + (uint32_t)i)
            return session->batch[i];
    }
    return NULL;
}

static int event_take(void *opaque, uint32_t source, const struct tl_raw_event *raw)
{
    struct taker *taker = opaque;
    struct tl_batch *batch = source_batch(taker->session, source);
    if (!batch || raw->probe >= batch->state_count)
        return 0;
    struct tl_event event = {
        .site = batch->state[raw->probe].line,
        .ts_ns = raw->time_ns,
        .pid = source >= KERNEL_SOURCE
                   ? (pid_t)raw->process
                   : tl_session_process_pid(taker->session, batch, raw->process),
        .tid = (pid_t)raw->tid,
        .is_return = raw->kind == TL_RING_RETURN,
    };
    memcpy(event.arg, raw->arg, sizeof event.arg);
    return taker->take(taker->opaque, &event);
}

// Every batch's rings, once they are there.
static int sources_add(struct tl_session *session, struct tl_diag *diag)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_batch *batch = session->batch[i];
        if (!batch->install || batch->stream_source >= 0)
            continue;
        struct tl_drain_memory memory;
        tl_install_memory(batch->install, &memory);
        int source = tl_stream_add_memory(session->stream, &memory, diag);
        if (source < 0)
            return source;
        batch->stream_source = source;
    }
    return 0;
}

// Nothing comes any more: what was hit and never handed over is lost.
static void drops_count(struct tl_session *session)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_batch *batch = session->batch[i];
        for (size_t k = 0; k < batch->state_count; k++) {
            struct tl_session_site *state = &batch->state[k];
            uint32_t source = state->rung == TL_RUNG_KERNEL ? KERNEL_SOURCE + (uint32_t)i
                                                            : (uint32_t)batch->stream_source;
            uint64_t delivered = tl_stream_delivered(session->stream, source, state->counter);
            state->dropped = state->hits > delivered ? state->hits - delivered : 0;
        }
    }
    tl_session_lines_sum(session);
}

struct pusher {
    struct tl_batch *batch;
    uint32_t source;
    struct tl_diag *diag;
};

static int kernel_event_push(void *opaque, const struct tl_uprobe_event *event)
{
    const struct pusher *pusher = opaque;
    struct tl_batch *batch = pusher->batch;
    struct tl_raw_event raw = {.time_ns = event->time_ns,
                               .tid = (uint32_t)event->tid,
                               .process = (uint32_t)event->pid,
                               .kind = event->ret ? TL_RING_RETURN : TL_RING_ENTRY};
    if (event->site >= batch->uprobe_count)
        return 0;
    raw.probe = batch->state[batch->uprobe_site[event->site]].counter;
    memcpy(raw.arg, event->arg, sizeof raw.arg);
    return tl_stream_push(batch->session->stream, pusher->source, &raw, pusher->diag);
}

int tl_batch_kernel_events(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_session *session = batch->session;
    struct pusher pusher = {.batch = batch, .diag = diag};
    if (!session->stream || !batch->uprobes)
        return 0;
    pusher.source = KERNEL_SOURCE + tl_batch_index(batch);
    int count = tl_uprobes_events(batch->uprobes, kernel_event_push, &pusher, diag);
    return count < 0 ? count : 0;
}

// Those of all batches, and with them the stream may hand over what is older.
static int kernel_events(struct tl_session *session, struct tl_diag *diag)
{
    const uint64_t now_ns = tl_clock_ticks(true); // read before the events
    bool any = false;
    int error = 0;
    for (size_t i = 0; !error && i < session->batch_count; i++) {
        any |= session->batch[i]->uprobes != NULL;
        error = tl_batch_kernel_events(session->batch[i], diag);
    }
    // A hit's record may take a while from its time to its place in the ring.
    tl_stream_set_pushed_until(session->stream, any ? now_ns - KERNEL_LATE_NS : UINT64_MAX);
    return error;
}

int tl_session_events(struct tl_session *session,
                      int (*take)(void *opaque, const struct tl_event *event), void *opaque,
                      struct tl_diag *diag)
{
    struct taker taker = {session, take, opaque};
    if (!session->stream)
        return tl_diag_set(diag, TL_E_USAGE, "this session records no events");
    int error = kernel_events(session, diag);
    if (!error)
        error = sources_add(session, diag);
    if (error)
        return error;
    int count = tl_stream_read(session->stream, &session->clock, !session->attached, event_take,
                               &taker, diag);
    if (!session->attached && count >= 0)
        drops_count(session);
    return count;
}

// ---- latency ------------------------------------------------------------------------------------

static double ticks_ns(const struct tl_session *session, double ticks)
{
    return ticks * (session->clock.coarse ? 1.0 : session->clock.ns_per_tick);
}

static int buckets_fill(struct tl_session *session, const struct tl_hist *hist,
                        struct tl_latency *out, struct tl_diag *diag)
{
    if (!session->buckets)
        session->buckets = calloc(TL_HIST_BUCKETS, sizeof *session->buckets);
    if (!session->buckets)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    uint64_t next_ns = 0;
    for (uint32_t i = 0; i < TL_HIST_BUCKETS; i++) {
        uint64_t low, high;
        if (!hist->bucket[i])
            continue;
        tl_hist_bucket_range(i, &low, &high);
        struct tl_bucket *bucket = &session->buckets[out->bucket_count];
        bucket->low_ns = (uint64_t)ticks_ns(session, (double)low);
        bucket->high_ns = (uint64_t)ticks_ns(session, (double)high);
        // Buckets of less than a nanosecond share one.
        if (out->bucket_count && bucket->high_ns < next_ns) {
            bucket[-1].count += hist->bucket[i];
            continue;
        }
        if (bucket->low_ns < next_ns)
            bucket->low_ns = next_ns;
        bucket->count = hist->bucket[i];
        next_ns = bucket->high_ns + 1;
        out->bucket_count++;
    }
    out->bucket = session->buckets;
    return 0;
}

static void hist_add(struct tl_hist *sum, const struct tl_hist *hist)
{
    sum->sum += hist->sum;
    sum->unpaired += hist->unpaired;
    sum->lost += hist->lost;
    if (hist->min_inverted > sum->min_inverted)
        sum->min_inverted = hist->min_inverted;
    if (hist->max > sum->max)
        sum->max = hist->max;
    for (size_t i = 0; i < TL_HIST_BUCKETS; i++)
        sum->bucket[i] += hist->bucket[i];
}

// All batches' histograms of one line.
static int line_hist(struct tl_session *session, size_t line, struct tl_hist *out,
                     struct tl_diag *diag)
{
    for (size_t i = 0; i < session->batch_count; i++) {
        struct tl_batch *batch = session->batch[i];
        struct tl_drain_memory memory;
        if (!batch->install)
            continue;
        tl_install_memory(batch->install, &memory);
        for (size_t k = 0; k < batch->state_count; k++) {
            if (batch->state[k].line != line || batch->state[k].rung == TL_RUNG_REFUSED ||
                batch->state[k].rung == TL_RUNG_KERNEL)
                continue;
            struct tl_hist hist = {0}; // large: not for those that are passed over
            int error = tl_drain_hist(&memory, batch->state[k].counter, &hist, diag);
            if (error)
                return error;
            hist_add(out, &hist);
        }
    }
    return 0;
}

int tl_session_latency(struct tl_session *session, size_t site, struct tl_latency *out,
                       struct tl_diag *diag)
{
    struct tl_hist hist = {0};
    struct tl_latency latency = {0};
    if (session->options.mode != TL_MODE_LATENCY || site >= session->line_count)
        return tl_diag_set(diag, TL_E_USAGE, "there is no histogram %zu", site);
    tl_clock_map_refresh(&session->clock);
    int error = line_hist(session, site, &hist, diag);
    if (!error)
        error = buckets_fill(session, &hist, &latency, diag);
    if (error)
        return error;
    latency.count = tl_hist_count(&hist);
    latency.unpaired = hist.unpaired;
    latency.lost = hist.lost;
    if (latency.count) {
        latency.min_ns = ticks_ns(session, (double)~hist.min_inverted);
        latency.max_ns = ticks_ns(session, (double)hist.max);
        latency.mean_ns = ticks_ns(session, (double)hist.sum) / (double)latency.count;
        latency.p50_ns = ticks_ns(session, tl_hist_quantile(&hist, 0.5));
        latency.p90_ns = ticks_ns(session, tl_hist_quantile(&hist, 0.9));
        latency.p99_ns = ticks_ns(session, tl_hist_quantile(&hist, 0.99));
        latency.p999_ns = ticks_ns(session, tl_hist_quantile(&hist, 0.999));
    }
    *out = latency;
    return 0;
}

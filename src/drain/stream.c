// All rings of all installs, and events from elsewhere, as one stream ordered by time.
//
// A read takes the time, then each ring's head. A record that is reserved later has a later time,
// but for TL_STREAM_SLACK_NS; so what is older than that, and than any record still being written,
// is in order. The rest is held for the next read.
//
// It does not decide what an event means. It trusts nothing in the rings: a hostile target gets
// wrong events of its own probes handed over, holds the stream up for TL_STREAM_PATIENCE_MS at the
// most, and costs a read what full rings cost.
//
// Invariant: times handed over never fall; what comes too late for that is lost, and counted as
// such (hits - delivered).
#include "drain/order.h"
#include "drain/region.h"
#include "drain/ring.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 256 // slots copied at a time; at least TL_RING_HOLES_MAX
#define PATIENCE_NS (TL_STREAM_PATIENCE_MS * 1000000ull)
#define FUTURE_NS 1000000000ull // a time that is farther ahead than this was not read from a clock
#define HELD_SOFT (TL_STREAM_HELD_MAX / 2) // after a read no more are held

_Static_assert(BATCH >= TL_RING_HOLES_MAX, "tl_ring_fill");

struct source {
    bool is_memory;
    struct tl_drain_memory memory;
    uint32_t *ring_of_block; // index + 1; 0: no ring found yet
    uint64_t start_ns;       // a ring found from now on has nothing older
    uint64_t *delivered;     // by probe
    uint32_t probe_count;
};

struct block_ring {
    struct tl_ring ring;
    uint64_t block;
    uint32_t source, process;
};

struct tl_stream {
    struct source *source;
    uint32_t source_count;
    struct block_ring *ring;
    size_t ring_count, ring_capacity;
    struct tl_order order;
    uint64_t last_ns;         // of the last event handed over
    uint64_t pushed_until_ns; // UINT64_MAX: nobody said
    uint64_t previous_ns;     // the start of the last read
    bool has_pushed;          // some events come from elsewhere
    struct tl_ring_slot batch[BATCH];
};

// What one pass goes by.
struct pass {
    const struct tl_clock_map *clock;
    uint64_t now_ns;    // for patience
    uint64_t start_ns;  // what was not reserved when the pass began is not older
    uint64_t future_ns; // no record is newer; looked up again before one is thrown away
    uint64_t cut_ns;    // what is older is in order
    size_t quota;       // records of one ring
    bool final, more;   // more: rings hold what there was no room for
};

int tl_stream_create(struct tl_stream **out, struct tl_diag *diag)
{
    struct tl_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return tl_diag_set(diag, TL_E_NOMEM, "events: no memory");
    stream->pushed_until_ns = UINT64_MAX;
    *out = stream;
    return 0;
}

void tl_stream_destroy(struct tl_stream *stream)
{
    if (!stream)
        return;
    for (size_t i = 0; i < stream->ring_count; i++)
        tl_ring_deinit(&stream->ring[i].ring);
    for (uint32_t i = 0; i < stream->source_count; i++) {
        free(stream->source[i].ring_of_block);
        free(stream->source[i].delivered);
    }
    tl_order_deinit(&stream->order);
    free(stream->ring);
    free(stream->source);
    free(stream);
}

// ---- sources

// Makes sources up to `number`.
static int sources_extend(struct tl_stream *stream, uint32_t number, struct tl_diag *diag)
{
    if (number >= TL_STREAM_SOURCES_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "events: more than %u sources", TL_STREAM_SOURCES_MAX);
    if (number < stream->source_count)
        return 0;
    struct source *grown = realloc(stream->source, (number + 1) * sizeof *grown);
    if (!grown)
        return tl_diag_set(diag, TL_E_NOMEM, "events: no memory for a source");
    memset(grown + stream->source_count, 0, (number + 1 - stream->source_count) * sizeof *grown);
    stream->source = grown;
    stream->source_count = number + 1;
    return 0;
}

// Makes room to count what is delivered of probes below count.
static int delivered_extend(struct source *source, uint32_t count, struct tl_diag *diag)
{
    if (count <= source->probe_count)
        return 0;
    if (count > TL_STREAM_PROBES_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "events: more than %u probes", TL_STREAM_PROBES_MAX);
    // A step up now and then, not one for each new probe.
    uint32_t room = count < 16 ? 16 : count + count / 2;
    uint64_t *grown = realloc(source->delivered, room * sizeof *grown);
    if (!grown)
        return tl_diag_set(diag, TL_E_NOMEM, "events: no memory for %u probes", room);
    memset(grown + source->probe_count, 0, (room - source->probe_count) * sizeof *grown);
    source->delivered = grown;
    source->probe_count = room;
    return 0;
}

int tl_stream_add_memory(struct tl_stream *stream, const struct tl_drain_memory *memory,
                         struct tl_diag *diag)
{
    const struct tl_block_layout *layout = &memory->layout;
    uint32_t number = 0;
    int error = tl_memory_check(memory, diag);
    if (error)
        return error;
    if (!layout->ring_off || layout->probe_count > TL_STREAM_PROBES_MAX)
        return tl_diag_set(diag, TL_E_FORMAT, "events: the shared memory has no rings");
    while (number < stream->source_count &&
           (stream->source[number].is_memory || stream->source[number].delivered))
        number++;
    error = sources_extend(stream, number, diag);
    if (error)
        return error;
    struct source *source = &stream->source[number];
    error = delivered_extend(source, layout->probe_count, diag);
    if (error)
        return error;
    source->ring_of_block =
        calloc((size_t)layout->process_count * TL_BLOCK_COUNT, sizeof *source->ring_of_block);
    if (!source->ring_of_block)
        return tl_diag_set(diag, TL_E_NOMEM, "events: no memory for a source");
    source->memory = *memory;
    source->is_memory = true;
    return (int)number;
}

// A ring for a block that has one by now.
static int ring_add(struct tl_stream *stream, uint32_t number, uint64_t block, struct tl_diag *diag)
{
    struct source *source = &stream->source[number];
    if (stream->ring_count == stream->ring_capacity) {
        size_t capacity = stream->ring_capacity ? 2 * stream->ring_capacity : 16;
        struct block_ring *grown = realloc(stream->ring, capacity * sizeof *grown);
        if (!grown)
            return tl_diag_set(diag, TL_E_NOMEM, "events: no memory for %zu rings", capacity);
        stream->ring = grown;
        stream->ring_capacity = capacity;
    }
    struct block_ring *ring = &stream->ring[stream->ring_count++];
    unsigned char *data = source->memory.data;
    uint64_t off = tl_block_off(&source->memory, block) + source->memory.layout.ring_off;
    *ring = (struct block_ring){
        .block = block, .source = number, .process = (uint32_t)(block / TL_BLOCK_COUNT)};
    tl_ring_init(&ring->ring, (struct tl_ring_header *)(void *)(data + off),
                 source->memory.layout.ring_slots, source->start_ns);
    source->ring_of_block[block] = (uint32_t)stream->ring_count;
    return 0;
}

// Finds the rings that somebody has written to since the last look.
static int rings_find(struct tl_stream *stream, struct tl_diag *diag)
{
    int error = 0;
    for (uint32_t i = 0; i < stream->source_count && !error; i++) {
        const struct source *source = &stream->source[i];
        struct tl_walk walk;
        uint64_t block, start, end;
        if (!source->is_memory)
            continue;
        tl_walk_init(&walk, &source->memory, 0, source->memory.layout.process_count,
                     source->memory.layout.ring_off, sizeof(struct tl_ring_header));
        while (!error && tl_walk_next(&walk, &block, &start, &end)) {
            if (!source->ring_of_block[block])
                error = ring_add(stream, i, block, diag);
        }
    }
    return error;
}

void tl_stream_process_forget(struct tl_stream *stream, uint32_t source, uint32_t process)
{
    size_t i = 0;
    while (i < stream->ring_count) {
        struct block_ring *ring = &stream->ring[i];
        if (ring->source != source || ring->process != process) {
            i++;
            continue;
        }
        tl_ring_deinit(&ring->ring);
        stream->source[source].ring_of_block[ring->block] = 0;
        *ring = stream->ring[--stream->ring_count];
        if (i < stream->ring_count)
            stream->source[ring->source].ring_of_block[ring->block] = (uint32_t)i + 1;
    }
}

static bool held_from(const struct tl_stream *stream, const struct tl_order_key *key,
                      uint32_t source, uint32_t process)
{
    const struct tl_held *held = &stream->order.record[key->index];
    return held->source == source && held->event.process == process;
}

bool tl_stream_process_drained(struct tl_stream *stream, uint32_t source, uint32_t process)
{
    const struct tl_order *order = &stream->order;
    if (rings_find(stream, NULL) != 0)
        return false;
    for (size_t i = 0; i < stream->ring_count; i++) {
        const struct block_ring *ring = &stream->ring[i];
        if (ring->source == source && ring->process == process && !tl_ring_is_drained(&ring->ring))
            return false;
    }
    for (size_t i = order->first; i < order->sorted_count; i++) {
        if (held_from(stream, &order->sorted[i], source, process))
            return false;
    }
    for (size_t i = 0; i < order->fresh_count; i++) {
        if (held_from(stream, &order->fresh[i], source, process))
            return false;
    }
    return true;
}

// ---- events

static uint64_t now_ns(void)
{
    return tl_clock_ticks(true);
}

// Whether a record's time can be true: not far ahead of now.
static bool time_is_past(struct pass *pass, uint64_t time_ns)
{
    if (time_ns <= pass->future_ns)
        return true;
    pass->future_ns = now_ns() + FUTURE_NS;
    return time_ns <= pass->future_ns;
}

// Puts copied slots among the events that are held. Room was made. Returns the last one's time.
static uint64_t slots_hold(struct tl_stream *stream, struct pass *pass,
                           const struct block_ring *ring, size_t count)
{
    const uint32_t probe_count = stream->source[ring->source].memory.layout.probe_count;
    uint64_t time_ns = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tl_ring_slot *slot = &stream->batch[i];
        uint32_t probe = TL_RING_PROBE(slot->word), kind = TL_RING_KIND(slot->word);
        time_ns = tl_clock_map_ns(pass->clock, slot->time);
        if (probe >= probe_count || (kind != TL_RING_ENTRY && kind != TL_RING_RETURN) ||
            time_ns < stream->last_ns || !time_is_past(pass, time_ns))
            continue;
        struct tl_held *held = tl_order_add(&stream->order, time_ns);
        held->source = ring->source;
        held->event.time_ns = time_ns;
        held->event.probe = probe;
        held->event.tid = TL_RING_TID(slot->word);
        held->event.process = ring->process;
        held->event.kind = (uint8_t)kind;
        memcpy(held->event.arg, slot->arg, sizeof slot->arg);
    }
    return time_ns;
}

static int holes_fill(struct tl_stream *stream, struct pass *pass, struct block_ring *ring,
                      struct tl_diag *diag)
{
    if (!ring->ring.hole_count)
        return 0;
    int error = tl_order_reserve(&stream->order, TL_RING_HOLES_MAX, diag);
    if (!error)
        (void)slots_hold(stream, pass, ring, tl_ring_fill(&ring->ring, stream->batch));
    return error;
}

// Takes what a ring has, up to the quota.
static int ring_read(struct tl_stream *stream, struct pass *pass, struct block_ring *ring,
                     struct tl_diag *diag)
{
    size_t left = pass->quota, taken = 1;
    uint64_t time_ns = stream->last_ns;
    tl_ring_start(&ring->ring);
    int error = holes_fill(stream, pass, ring, diag);
    while (!error && taken && left) {
        size_t room = left < BATCH ? left : BATCH;
        error = tl_order_reserve(&stream->order, room, diag);
        if (error)
            break;
        taken = tl_ring_take(&ring->ring, pass->now_ns, stream->batch, room);
        if (taken)
            time_ns = slots_hold(stream, pass, ring, taken);
        left -= taken;
    }
    if (tl_ring_has_more(&ring->ring)) {
        // What is left in the ring came after what was taken, as good as always.
        pass->more = true;
        pass->cut_ns = time_ns < pass->cut_ns ? time_ns : pass->cut_ns;
    }
    return error == TL_E_LIMIT ? 0 : error; // the next pass has room again
}

// The time to take as the pass's start.
static uint64_t start_find(const struct tl_stream *stream, const struct tl_clock_map *clock)
{
    uint64_t start_ns = tl_clock_map_ns(clock, tl_clock_ticks(clock->coarse));
    uint64_t earliest_ns = start_ns > PATIENCE_NS ? start_ns - PATIENCE_NS : 0;
    // A coarse clock goes by steps: a record has the time of the last one. The word lies in the
    // target, so it is believed only where it can be true.
    for (uint32_t i = 0; clock->coarse && i < stream->source_count; i++) {
        if (!stream->source[i].is_memory)
            continue;
        uint64_t step_ns =
            tl_memory_word(&stream->source[i].memory, offsetof(struct tl_data_header, coarse_ns));
        start_ns = step_ns < start_ns ? step_ns : start_ns;
    }
    start_ns = start_ns < earliest_ns ? earliest_ns : start_ns;
    return start_ns > TL_STREAM_SLACK_NS ? start_ns - TL_STREAM_SLACK_NS : 0;
}

// Reads all rings once; cut_ns says what is in order then.
static int rings_read(struct tl_stream *stream, struct pass *pass, struct tl_diag *diag)
{
    int error = rings_find(stream, diag);
    size_t room = TL_STREAM_HELD_MAX - tl_order_count(&stream->order);
    size_t quota = stream->ring_count ? room / stream->ring_count : room;
    pass->quota = quota ? quota : 1;
    for (size_t i = 0; i < stream->ring_count && !error; i++)
        error = ring_read(stream, pass, &stream->ring[i], diag);
    // Most of those that were writing are done by now.
    for (size_t i = 0; i < stream->ring_count && !error; i++) {
        struct block_ring *ring = &stream->ring[i];
        error = holes_fill(stream, pass, ring, diag);
        if (error == TL_E_LIMIT)
            error = 0;
        uint64_t bound_ns = tl_ring_settle(&ring->ring, pass->now_ns, pass->start_ns, PATIENCE_NS);
        if (!pass->final && bound_ns < pass->cut_ns)
            pass->cut_ns = bound_ns;
    }
    for (uint32_t i = 0; i < stream->source_count && !error; i++)
        stream->source[i].start_ns = pass->start_ns;
    return error;
}

int tl_stream_push(struct tl_stream *stream, uint32_t source, const struct tl_raw_event *event,
                   struct tl_diag *diag)
{
    int error = sources_extend(stream, source, diag);
    if (error)
        return error;
    const struct source *known = &stream->source[source];
    if (event->probe >= TL_STREAM_PROBES_MAX ||
        (known->is_memory && event->probe >= known->memory.layout.probe_count))
        return tl_diag_set(diag, TL_E_USAGE, "events: source %u has no probe %u", source,
                           event->probe);
    stream->has_pushed = true;
    error = delivered_extend(&stream->source[source], event->probe + 1, diag);
    if (!error)
        error = tl_order_reserve(&stream->order, 1, diag);
    if (error || event->time_ns < stream->last_ns)
        return error;
    struct tl_held *held = tl_order_add(&stream->order, event->time_ns);
    held->event = *event;
    held->source = source;
    return 0;
}

void tl_stream_set_pushed_until(struct tl_stream *stream, uint64_t time_ns)
{
    stream->pushed_until_ns = time_ns;
}

// Nothing older can still come from elsewhere. If nobody said: the caller pushes all there are
// before each read, so what happened before the last read has been pushed.
static uint64_t pushed_until(const struct tl_stream *stream)
{
    if (stream->pushed_until_ns != UINT64_MAX || !stream->has_pushed)
        return stream->pushed_until_ns;
    return stream->previous_ns;
}

// Hands over what is older than the cut, and of the rest what is more than may be held.
static int held_hand_over(struct tl_stream *stream, uint64_t cut_ns, int *count,
                          int (*take)(void *, uint32_t, const struct tl_raw_event *), void *opaque)
{
    const struct tl_held *held;
    int result = 0;
    tl_order_sort(&stream->order);
    while (result >= 0 && (held = tl_order_oldest(&stream->order)) != NULL &&
           (held->event.time_ns < cut_ns || tl_order_count(&stream->order) > HELD_SOFT)) {
        stream->last_ns = held->event.time_ns;
        stream->source[held->source].delivered[held->event.probe]++;
        *count += *count < INT_MAX;
        result = take(opaque, held->source, &held->event);
        tl_order_drop_oldest(&stream->order);
    }
    return result;
}

// How many passes empty all rings, whatever the heads say meanwhile.
static size_t passes_max(const struct tl_stream *stream)
{
    size_t slots = 0;
    for (size_t i = 0; i < stream->ring_count; i++)
        slots += stream->ring[i].ring.count;
    return slots / HELD_SOFT + 2;
}

int tl_stream_read(struct tl_stream *stream, struct tl_clock_map *clock, bool final,
                   int (*take)(void *opaque, uint32_t source, const struct tl_raw_event *event),
                   void *opaque, struct tl_diag *diag)
{
    struct pass pass = {.clock = clock, .final = final, .more = true};
    int count = 0, result = 0;
    for (size_t i = 0; pass.more && result >= 0 && i < (final ? passes_max(stream) : 1); i++) {
        tl_clock_map_refresh(clock);
        pass.now_ns = now_ns();
        pass.start_ns = start_find(stream, clock);
        pass.future_ns = pass.start_ns + FUTURE_NS;
        pass.cut_ns = pass.start_ns;
        pass.more = false;
        if (final)
            pass.cut_ns = UINT64_MAX;
        else if (pushed_until(stream) < pass.cut_ns)
            pass.cut_ns = pushed_until(stream);
        stream->previous_ns = pass.start_ns;
        result = rings_read(stream, &pass, diag);
        if (result >= 0)
            result = held_hand_over(stream, pass.cut_ns, &count, take, opaque);
    }
    return result < 0 ? result : count;
}

uint64_t tl_stream_delivered(const struct tl_stream *stream, uint32_t source, uint32_t probe)
{
    return source < stream->source_count && probe < stream->source[source].probe_count
               ? stream->source[source].delivered[probe]
               : 0;
}

// Stage drain: shared memory -> totals, one ordered stream, histograms. Trusts nothing in it: sizes
// and offsets come from the caller (struct tl_block_layout), numbers are only summed, every word is
// read once.
#ifndef TL_DRAIN_DRAIN_H
#define TL_DRAIN_DRAIN_H

#include "agent/layout.h"
#include "base/diag.h"

// The shared memory of one install as the controller sees it. data, size: the mapping (writable
// when events are read: tails and words). fd: its memfd, to pass over what was never written
// (touching holes would make them memory); -1: all is read.
struct tl_drain_memory {
    void *data;
    size_t size;
    int fd;
    struct tl_block_layout layout;
};

// Sums the counters of probes [first, first + count) over all blocks of all processes into hits[].
// TL_E_FORMAT, hits untouched: out of range.
int tl_drain_counts(const struct tl_drain_memory *memory, uint32_t first, uint32_t count,
                    uint64_t *hits, struct tl_diag *diag);

// The same for one process slot.
int tl_drain_process_counts(const struct tl_drain_memory *memory, uint32_t process, uint32_t first,
                            uint32_t count, uint64_t *hits, struct tl_diag *diag);

// Zeroes all blocks of a process slot for its next owner. The process is gone, and what it counted
// is added up elsewhere. Where events are read: tl_stream_process_forget as well.
int tl_drain_process_clear(const struct tl_drain_memory *memory, uint32_t process,
                           struct tl_diag *diag);

// Adds histogram `probe` of all blocks to *out (ticks); out->bucket too. *out starts as zeroes.
int tl_drain_hist(const struct tl_drain_memory *memory, uint32_t probe, struct tl_hist *out,
                  struct tl_diag *diag);
// The same for one process slot.
int tl_drain_process_hist(const struct tl_drain_memory *memory, uint32_t process, uint32_t probe,
                          struct tl_hist *out, struct tl_diag *diag);
// The first and last value that bucket counts.
void tl_hist_bucket_range(uint32_t bucket, uint64_t *low, uint64_t *high);
// How many values there are.
uint64_t tl_hist_count(const struct tl_hist *hist);
// The value that `part` (0 to 1) of all values do not exceed, ticks; at most 1/32 off. 0: there is
// none.
double tl_hist_quantile(const struct tl_hist *hist, double part);

// ---- clocks

// Ticks <-> CLOCK_MONOTONIC: pairs of readings taken here; the longer the run, the better. What
// tl_clock_map_ns said of ticks before the newest knot holds for good, so that the order of what
// was handed over does too. Not for two threads at a time.
#define TL_CLOCK_KNOTS 32
struct tl_clock_knot {
    uint64_t ticks, ns;
    double ns_per_tick; // from here on
};
struct tl_clock_map {
    uint64_t first_ticks, first_ns, last_ticks, last_ns; // ends of the base line
    double ns_per_tick;                                  // over the base line: for durations
    bool coarse;                                         // ticks are nanoseconds already
    uint32_t knot_count;
    struct tl_clock_knot knot[TL_CLOCK_KNOTS];
};
void tl_clock_map_init(struct tl_clock_map *map, bool coarse); // takes a few ms
void tl_clock_map_refresh(struct tl_clock_map *map);           // cheap; most calls do nothing
uint64_t tl_clock_map_ns(const struct tl_clock_map *map, uint64_t ticks);
uint64_t tl_clock_ticks(bool coarse);

// ---- rings: one ordered stream

struct tl_raw_event {
    uint64_t time_ns; // CLOCK_MONOTONIC
    uint32_t probe;   // below layout.probe_count
    uint32_t tid;     // 0: not known
    uint32_t process; // process slot
    uint8_t kind;     // enum tl_ring_kind
    uint64_t arg[TL_EVENT_ARGS];
};

struct tl_stream; // opaque: what was read and is not yet in order
// Several installs of one session share a stream; source numbers them. Memory is borrowed. Not for
// two threads at a time.
int tl_stream_create(struct tl_stream **out, struct tl_diag *diag);
void tl_stream_destroy(struct tl_stream *stream);
// TL_E_FORMAT: the layout has no rings, or does not fit.
int tl_stream_add_memory(struct tl_stream *stream, const struct tl_drain_memory *memory,
                         struct tl_diag *diag); // its source number, or TL_E_*

// An event from elsewhere (kernel probes), to be put in its place. source: the caller's own number,
// below TL_STREAM_SOURCES_MAX; the highest ones never collide with those of memories. One that is
// older than what was handed over is lost. TL_E_LIMIT: too many are held back; read first.
#define TL_STREAM_SOURCES_MAX 4096u
#define TL_STREAM_PROBES_MAX (1u << 24)
int tl_stream_push(struct tl_stream *stream, uint32_t source, const struct tl_raw_event *event,
                   struct tl_diag *diag);
// All events from elsewhere that are older than this are pushed: the next reads hand over nothing
// that is newer. Read the time before the events. UINT64_MAX (at first): not said; then, once one
// was pushed, a read hands over what is older than the read before it, and before each read the
// caller pushes all there are.
void tl_stream_set_pushed_until(struct tl_stream *stream, uint64_t time_ns);

// Reads all rings and hands over what is in order by now: everything older than anything that can
// still come. final: the writers are gone, hand over all. Returns how many, or TL_E_*; a negative
// value of take() ends it and is returned (the next read goes on behind that event). take must not
// call the stream. Refreshes the clock. What a writer left unfinished (it jumped out of a signal
// handler) is given up after TL_STREAM_PATIENCE_MS and never handed over. With more than
// TL_STREAM_HELD_MAX events on their way the oldest are handed over, come what may; what then comes
// too late is lost.
#define TL_STREAM_PATIENCE_MS 200
#define TL_STREAM_SLACK_NS 2000 // a record's clock is read at most this long before it can be seen
#define TL_STREAM_HELD_MAX (1u << 20)
int tl_stream_read(struct tl_stream *stream, struct tl_clock_map *clock, bool final,
                   int (*take)(void *opaque, uint32_t source, const struct tl_raw_event *event),
                   void *opaque, struct tl_diag *diag);
// Whether all that a process slot's threads wrote was handed over. Its process is gone.
bool tl_stream_process_drained(struct tl_stream *stream, uint32_t source, uint32_t process);
// A process slot is about to be cleared for another owner: its rings are no longer known, and are
// found again when they are written to. Read first, then forget, then tl_drain_process_clear.
void tl_stream_process_forget(struct tl_stream *stream, uint32_t source, uint32_t process);
// How many events of a source's probe were handed over: hits - delivered are lost.
uint64_t tl_stream_delivered(const struct tl_stream *stream, uint32_t source, uint32_t probe);

#endif

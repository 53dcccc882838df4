// Stage drain: shared memory -> totals, one ordered stream, histograms. Trusts nothing in it: sizes and
// offsets come from the caller (struct tl_block_layout), numbers are only summed, every word is read once.
#ifndef TL_DRAIN_DRAIN_H
#define TL_DRAIN_DRAIN_H

#include "agent/layout.h"
#include "base/diag.h"

// The shared memory of one install as the controller sees it. data, size: the mapping (writable when
// events are read: tails and words). fd: its memfd, to pass over what was never written (touching
// holes would make them memory); -1: all is read.
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

// Adds histogram `probe` of all blocks to *out (ticks); out->bucket too.
int tl_drain_hist(const struct tl_drain_memory *memory, uint32_t probe, struct tl_hist *out,
                  struct tl_diag *diag);
// The first and last value that bucket counts.
void tl_hist_bucket_range(uint32_t bucket, uint64_t *low, uint64_t *high);

// ---- clocks ---------------------------------------------------------------------------------------

// Ticks <-> CLOCK_MONOTONIC: pairs of readings taken here; the longer the run, the better.
struct tl_clock_map {
    uint64_t first_ticks, first_ns, last_ticks, last_ns;
    double ns_per_tick;
    bool coarse; // ticks are nanoseconds already
};
void tl_clock_map_init(struct tl_clock_map *map, bool coarse); // takes a few ms the first time
void tl_clock_map_refresh(struct tl_clock_map *map);
uint64_t tl_clock_map_ns(const struct tl_clock_map *map, uint64_t ticks);
uint64_t tl_clock_ticks(bool coarse);

// ---- rings: one ordered stream ---------------------------------------------------------------------

struct tl_raw_event {
    uint64_t time_ns; // CLOCK_MONOTONIC
    uint32_t probe;   // below layout.probe_count
    uint32_t tid;     // 0: not known
    uint32_t process; // process slot
    uint8_t kind;     // enum tl_ring_kind
    uint64_t arg[TL_EVENT_ARGS];
};

struct tl_stream; // opaque: what was read and is not yet in order
// Several installs of one session share a stream; source numbers them. Memory is borrowed.
int tl_stream_create(struct tl_stream **out, struct tl_diag *diag);
void tl_stream_destroy(struct tl_stream *stream);
int tl_stream_add_memory(struct tl_stream *stream, const struct tl_drain_memory *memory,
                         struct tl_diag *diag); // its source number, or TL_E_*
// An event from elsewhere (kernel probes), to be put in its place. source: the caller's own number.
int tl_stream_push(struct tl_stream *stream, uint32_t source, const struct tl_raw_event *event,
                   struct tl_diag *diag);
// Reads all rings and hands over what is in order by now: everything older than anything that can
// still come. final: the writers are gone, hand over all. Returns how many, or TL_E_*; a negative value of
// take() ends it and is returned. What a writer left unfinished (it jumped out of a signal handler) is
// given up after TL_STREAM_PATIENCE_MS and never handed over.
#define TL_STREAM_PATIENCE_MS 200
int tl_stream_read(struct tl_stream *stream, struct tl_clock_map *clock, bool final,
                   int (*take)(void *opaque, uint32_t source, const struct tl_raw_event *event),
                   void *opaque, struct tl_diag *diag);
// How many events of a source's probe were handed over: hits - delivered are lost.
uint64_t tl_stream_delivered(const struct tl_stream *stream, uint32_t source, uint32_t probe);

#endif

// Stage drain: shared memory -> totals. Trusts nothing in it: sizes come from the fd, numbers are only summed.
#ifndef TL_DRAIN_DRAIN_H
#define TL_DRAIN_DRAIN_H

#include "agent/layout.h"
#include "base/diag.h"

// Sums the counters of probes [first, first + count) over all blocks into hits[0..count). data, size: the
// mapping. fd: its memfd, to pass over blocks that were never written (touching them would make them
// memory); -1: all are read. TL_E_FORMAT, hits untouched: out of range, or the header is not ours.
int tl_drain_counts(const void *data, size_t size, int fd, uint32_t first, uint32_t count,
                    uint64_t *hits, struct tl_diag *diag);

#endif

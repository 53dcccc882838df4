// Stage drain: shared memory -> totals. Trusts nothing in it: sizes come from the fd, numbers are only summed.
#ifndef TL_DRAIN_DRAIN_H
#define TL_DRAIN_DRAIN_H

#include "agent/layout.h"
#include "base/diag.h"

// Sums counter `probe` over all blocks into *hits. data/size: the mapping. TL_E_FORMAT: out of range.
int tl_drain_count(const void *data, size_t size, uint32_t probe, uint64_t *hits, struct tl_diag *diag);

#endif

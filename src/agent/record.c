// Proves that the record entries, which are assembly, know the layout as it is. No code.
#include "agent/inside.h"

#define SAME(a, b) _Static_assert((a) == (b), #a " is not " #b)

SAME(REC_HASH, TL_HASH);
SAME(REC_TABLE_OFF, TL_TABLE_OFF);
SAME(1 << REC_SLOT_SHIFT, sizeof(struct tl_thread_slot));
SAME(offsetof(struct tl_thread_slot, tp), 0);
SAME(offsetof(struct tl_thread_slot, block), 8);
SAME(1 << REC_BLOCK_SHARED_BIT, TL_BLOCK_SHARED);
SAME(REC_COUNTERS_OFF, TL_BLOCK_HEADER_SIZE);
SAME(REC_COARSE_OFF, offsetof(struct tl_data_header, coarse_ns));

SAME(offsetof(struct tl_ring_header, head), 0);
SAME(REC_RING_TAIL, offsetof(struct tl_ring_header, tail));
SAME(REC_RING_SLOTS, sizeof(struct tl_ring_header));
SAME(1 << REC_RING_SLOT_SHIFT, sizeof(struct tl_ring_slot));
SAME(offsetof(struct tl_ring_slot, word), 0);
SAME(REC_RING_TIME, offsetof(struct tl_ring_slot, time));
SAME(REC_RING_ARG, offsetof(struct tl_ring_slot, arg));
SAME(TL_RING_WORD(0, REC_RING_ENTRY, 5), REC_RING_ENTRY << REC_RING_KIND_SHIFT | 5);
SAME(REC_RING_ENTRY, TL_RING_ENTRY);
SAME(REC_RING_RETURN, TL_RING_RETURN);

SAME(offsetof(struct tl_pair, key), 0);
SAME(REC_PAIR_TIME, offsetof(struct tl_pair, time));
SAME(1 << REC_PAIR_SHIFT, sizeof(struct tl_pair));
SAME(REC_PAIR_STEPS, TL_PAIR_STEPS);
SAME(REC_PAIR_WRAP_SHIFT, TL_PAIR_WRAP_SHIFT);
SAME(3, TL_PAIR_WRAP_STEP);

SAME(REC_HIST_PER_COUNTER * 8, sizeof(struct tl_hist));
SAME(offsetof(struct tl_hist, sum), 0);
SAME(REC_HIST_MIN, offsetof(struct tl_hist, min_inverted));
SAME(REC_HIST_MAX, offsetof(struct tl_hist, max));
SAME(REC_HIST_UNPAIRED, offsetof(struct tl_hist, unpaired));
SAME(REC_HIST_LOST, offsetof(struct tl_hist, lost));
SAME(REC_HIST_BUCKET, offsetof(struct tl_hist, bucket));
SAME(REC_HIST_SUB_BITS, TL_HIST_SUB_BITS);
SAME(REC_HIST_EXPONENT_MAX, TL_HIST_EXPONENT_MAX);
SAME((REC_HIST_EXPONENT_MAX - 5) * 32 + 64, TL_HIST_BUCKETS);

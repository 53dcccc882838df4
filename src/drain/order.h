// Events that were read and wait for their turn, by time. Private to this folder.
#ifndef TL_DRAIN_ORDER_H
#define TL_DRAIN_ORDER_H

#include "drain/drain.h"

#define TL_ORDER_AHEAD 8 // records fetched ahead of their use

struct tl_held {
    struct tl_raw_event event;
    uint32_t source;
};

struct tl_order_key {
    uint64_t time_ns;
    uint32_t index; // of the record
};

// All arrays have `capacity` items.
struct tl_order {
    struct tl_held *record;
    uint32_t *unused; // indices of free records, the last one first
    uint32_t *run;    // where ascending runs of fresh start
    // sorted[first, sorted_count) ascends; fresh[] came since the last sort; scratch is for
    // merging.
    struct tl_order_key *sorted, *fresh, *scratch;
    size_t capacity, first, sorted_count, fresh_count, unused_count;
};

void tl_order_deinit(struct tl_order *order); // a zeroed order is an empty one
static inline size_t tl_order_count(const struct tl_order *order)
{
    return order->sorted_count - order->first + order->fresh_count;
}
// Makes room for `count` more. TL_E_LIMIT: more than TL_STREAM_HELD_MAX; TL_E_NOMEM. What is held
// stays.
int tl_order_reserve(struct tl_order *order, size_t count, struct tl_diag *diag);
// A record to be filled; room was made. Its time must not change.
struct tl_held *tl_order_add(struct tl_order *order, uint64_t time_ns);
// Puts what came since the last time in its place: by time, equal ones as they came.
void tl_order_sort(struct tl_order *order);
// The oldest, NULL if there is none; after a sort.
static inline struct tl_held *tl_order_oldest(const struct tl_order *order)
{
    return order->first < order->sorted_count ? &order->record[order->sorted[order->first].index]
                                              : NULL;
}
static inline void tl_order_drop_oldest(struct tl_order *order)
{
    // Records lie in the order they came, and go by time: the processor can't guess the next ones.
    if (order->first + TL_ORDER_AHEAD < order->sorted_count)
        __builtin_prefetch(&order->record[order->sorted[order->first + TL_ORDER_AHEAD].index]);
    order->unused[order->unused_count++] = order->sorted[order->first++].index;
}

#endif

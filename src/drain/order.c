// A pool of events and their order by time: runs that ascend are found and merged, since each ring
// comes as one run, or nearly.
//
// It knows nothing of rings. However the times are mixed, a sort costs n log n.
//
// Invariant: a record's index is in exactly one of sorted[first..], fresh[] and unused[].
#include "drain/order.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 512

void tl_order_deinit(struct tl_order *order)
{
    free(order->record);
    free(order->unused);
    free(order->run);
    free(order->sorted);
    free(order->fresh);
    free(order->scratch);
    *order = (struct tl_order){0};
}

// Grows one array. On failure the old one stays.
static void *array_grow(void *old, size_t count, size_t item_size, bool *failed)
{
    void *grown = realloc(old, count * item_size);
    if (grown)
        return grown;
    *failed = true;
    return old;
}

int tl_order_reserve(struct tl_order *order, size_t count, struct tl_diag *diag)
{
    size_t capacity = order->capacity ? order->capacity : CAPACITY_MIN;
    if (count <= order->unused_count)
        return 0;
    if (count > TL_STREAM_HELD_MAX || tl_order_count(order) > TL_STREAM_HELD_MAX - count)
        return tl_diag_set(diag, TL_E_LIMIT, "events: more than %u are held back",
                           TL_STREAM_HELD_MAX);
    while (capacity - tl_order_count(order) < count)
        capacity *= 2;
    bool failed = false;
    order->record = array_grow(order->record, capacity, sizeof *order->record, &failed);
    order->unused = array_grow(order->unused, capacity, sizeof *order->unused, &failed);
    order->run = array_grow(order->run, capacity + 1, sizeof *order->run, &failed);
    order->sorted = array_grow(order->sorted, capacity, sizeof *order->sorted, &failed);
    order->fresh = array_grow(order->fresh, capacity, sizeof *order->fresh, &failed);
    order->scratch = array_grow(order->scratch, capacity, sizeof *order->scratch, &failed);
    if (failed)
        return tl_diag_set(diag, TL_E_NOMEM, "events: no memory for %zu", capacity);
    for (size_t i = capacity; i-- > order->capacity;)
        order->unused[order->unused_count++] = (uint32_t)i;
    order->capacity = capacity;
    return 0;
}

struct tl_held *tl_order_add(struct tl_order *order, uint64_t time_ns)
{
    uint32_t index = order->unused[--order->unused_count];
    if (order->unused_count > TL_ORDER_AHEAD)
        __builtin_prefetch(&order->record[order->unused[order->unused_count - TL_ORDER_AHEAD]], 1);
    order->fresh[order->fresh_count++] = (struct tl_order_key){.time_ns = time_ns, .index = index};
    return &order->record[index];
}

// Merges two ascending rows; of equals those of a come first.
static void keys_merge(struct tl_order_key *out, const struct tl_order_key *a, size_t a_count,
                       const struct tl_order_key *b, size_t b_count)
{
    while (a_count && b_count) {
        bool from_b = b->time_ns < a->time_ns;
        *out++ = from_b ? *b : *a;
        a += !from_b;
        a_count -= !from_b;
        b += from_b;
        b_count -= from_b;
    }
    memcpy(out, a, a_count * sizeof *a);
    memcpy(out + a_count, b, b_count * sizeof *b);
}

static void keys_swap(struct tl_order_key **a, struct tl_order_key **b)
{
    struct tl_order_key *held = *a;
    *a = *b;
    *b = held;
}

// Sorts fresh[]. Neighbouring runs are merged in pairs until one is left.
static void fresh_sort(struct tl_order *order)
{
    uint32_t *run = order->run;
    size_t run_count = 0;
    for (size_t i = 0; i < order->fresh_count; i++) {
        if (!i || order->fresh[i].time_ns < order->fresh[i - 1].time_ns)
            run[run_count++] = (uint32_t)i;
    }
    run[run_count] = (uint32_t)order->fresh_count;
    while (run_count > 1) {
        size_t merged = 0;
        for (size_t i = 0; i < run_count; i += 2) {
            size_t start = run[i], middle = run[i + 1];
            size_t end = i + 2 <= run_count ? run[i + 2] : middle;
            keys_merge(order->scratch + start, order->fresh + start, middle - start,
                       order->fresh + middle, end - middle);
            run[merged++] = (uint32_t)start;
        }
        run[merged] = (uint32_t)order->fresh_count;
        run_count = merged;
        keys_swap(&order->fresh, &order->scratch);
    }
}

void tl_order_sort(struct tl_order *order)
{
    if (!order->fresh_count)
        return;
    fresh_sort(order);
    size_t held = order->sorted_count - order->first;
    if (!held) {
        keys_swap(&order->sorted, &order->fresh);
    } else {
        keys_merge(order->scratch, order->sorted + order->first, held, order->fresh,
                   order->fresh_count);
        keys_swap(&order->sorted, &order->scratch);
    }
    order->first = 0;
    order->sorted_count = held + order->fresh_count;
    order->fresh_count = 0;
}

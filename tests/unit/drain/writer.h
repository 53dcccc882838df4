// A writer of rings in C, by the protocol in agent/layout.h, in steps: a test can stop it anywhere.
// And shared memory as an install has it.
#ifndef TESTS_DRAIN_WRITER_H
#define TESTS_DRAIN_WRITER_H

#include "drain/drain.h"

struct shared {
    struct tl_drain_memory memory;
    int fd;
};

// A memfd with room for `processes` times TL_BLOCK_COUNT blocks of probes counters and a ring.
void shared_create(struct shared *shared, uint32_t processes, uint32_t probes, uint32_t ring_slots);
void shared_destroy(struct shared *shared);

// The writer of one block.
struct writer {
    struct tl_ring_header *header;
    struct tl_ring_slot *slot;
    uint64_t *counter; // by probe
    uint64_t mask;
    uint32_t tid;
    uint64_t reserved, dropped; // what became of its hits
};
void writer_init(struct writer *writer, const struct shared *shared, uint64_t block, uint32_t tid);

// Counts a hit and takes a position. false: the ring is full, the record is dropped.
static inline bool writer_reserve(struct writer *writer, uint32_t probe, uint64_t *position)
{
    (void)__atomic_fetch_add(&writer->counter[probe], 1, __ATOMIC_RELAXED);
    uint64_t head = __atomic_load_n(&writer->header->head, __ATOMIC_RELAXED);
    do {
        // Acquire; partner: the reader's release of tail.
        if (head - __atomic_load_n(&writer->header->tail, __ATOMIC_ACQUIRE) > writer->mask) {
            (void)__atomic_fetch_add(&writer->dropped, 1, __ATOMIC_RELAXED);
            *position = 0;
            return false;
        }
        // Release; partner: the reader's acquire of head.
    } while (!__atomic_compare_exchange_n(&writer->header->head, &head, head + 1, false,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    (void)__atomic_fetch_add(&writer->reserved, 1, __ATOMIC_RELAXED);
    *position = head;
    return true;
}

// Plain stores: the word, and the tail of the round before, are all that orders them.
static inline void writer_fill(struct writer *writer, uint64_t position, uint64_t time,
                               uint64_t value)
{
    struct tl_ring_slot *slot = &writer->slot[position & writer->mask];
    slot->time = time;
    for (int i = 0; i < TL_EVENT_ARGS; i++)
        slot->arg[i] = value + (uint64_t)i;
}

static inline void writer_finish(struct writer *writer, uint64_t position, uint32_t probe,
                                 enum tl_ring_kind kind)
{
    // Release; partner: the reader's acquire of word.
    __atomic_store_n(&writer->slot[position & writer->mask].word,
                     TL_RING_WORD(writer->tid, kind, probe), __ATOMIC_RELEASE);
}

// One whole record. A reader at the same time needs the time read behind writer_reserve(): not
// this.
bool writer_hit(struct writer *writer, uint32_t probe, uint64_t time, uint64_t value);

#endif

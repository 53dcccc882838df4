// The reader of one ring. Private to this folder.
//
//      tail                 next            head
//       |                    |               |
//   [hole][taken][hole][taken][full][pending][full]
//
// The reader does not wait at a pending slot: it notes a hole, takes what is behind, and looks at
// the hole again later. tail, which gives room to the writers, stays at the first hole.
#ifndef TL_DRAIN_RING_H
#define TL_DRAIN_RING_H

#include "agent/layout.h"

#define TL_RING_HOLES_MAX 32 // writers stopped in one ring at a time; at more, reading stops there

struct tl_ring_hole {
    uint64_t position;
    uint64_t bound_ns;  // its record is not older than this
    uint64_t since_ns;  // first seen
    uint64_t passed_ns; // first seen with a full slot behind it; 0: none yet
};

struct tl_ring {
    struct tl_ring_header *header; // in the shared memory, as is
    struct tl_ring_slot *slot;
    uint64_t count;    // of slots
    uint64_t tail;     // our own: the one in memory is only ever written
    uint64_t next;     // nothing from here on was looked at
    uint64_t head;     // as read at the start of this pass
    uint64_t full_end; // behind the last record taken
    uint64_t bound_ns; // what lies at next and behind it is not older
    uint64_t stuck_ns; // since when there has been no room for another hole; 0: there is
    struct tl_ring_hole hole[TL_RING_HOLES_MAX];
    uint32_t hole_count;
    bool closed; // no memory for `poisoned`: not read any more
    // A bit a slot, NULL if none: a writer was given up here and may still write, at any time. What
    // the slot holds in later rounds is not read.
    uint8_t *poisoned;
};

// count: a power of two. bound_ns: no record in it is older.
void tl_ring_init(struct tl_ring *ring, struct tl_ring_header *header, uint32_t count,
                  uint64_t bound_ns);
void tl_ring_deinit(struct tl_ring *ring);

// One pass: start, fill, take until nothing comes (or enough came), fill, settle.
void tl_ring_start(struct tl_ring *ring);
// Records whose writers have finished meanwhile. out has room for TL_RING_HOLES_MAX. Returns how
// many.
size_t tl_ring_fill(struct tl_ring *ring, struct tl_ring_slot *out);
// The next records below head.
size_t tl_ring_take(struct tl_ring *ring, uint64_t now_ns, struct tl_ring_slot *out, size_t room);
// Gives up what has been pending for patience_ns below a full slot. start_ns: nothing that was not
// in the ring at the pass's start is older. Returns the time that nothing still to come from here
// is below, UINT64_MAX if only start_ns bounds it; a writer that stands still for patience_ns does
// not count.
uint64_t tl_ring_settle(struct tl_ring *ring, uint64_t now_ns, uint64_t start_ns,
                        uint64_t patience_ns);
// Whether everything that its writers finished was taken, and they are gone: what is pending stays
// so.
bool tl_ring_is_drained(const struct tl_ring *ring);
// Whether this pass left something to take.
static inline bool tl_ring_has_more(const struct tl_ring *ring)
{
    return !ring->closed && !ring->stuck_ns && ring->next != ring->head;
}

#endif

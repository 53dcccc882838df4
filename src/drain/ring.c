// Reads one ring, whose writers are threads of the target and their signal handlers.
//
// It knows nothing of clocks and probes: it hands out slots as they were written. A hostile writer
// may change every word at any time; it gets wrong records out of it, and costs at most `count`
// steps a call.
//
// Invariant: tail <= holes < next <= head <= tail + count (as numbers that wrap), whatever the
// memory says. Each position is handed out at most once. A word is zeroed before the tail passes
// its position, so a writer of the next round never finds an old one.
#include "drain/ring.h"

#include <stdlib.h>
#include <string.h>

void tl_ring_init(struct tl_ring *ring, struct tl_ring_header *header, uint32_t count,
                  uint64_t bound_ns)
{
    *ring = (struct tl_ring){.header = header,
                             .slot = (struct tl_ring_slot *)(void *)(header + 1),
                             .count = count,
                             .bound_ns = bound_ns};
}

void tl_ring_deinit(struct tl_ring *ring)
{
    free(ring->poisoned);
    ring->poisoned = NULL;
}

static struct tl_ring_slot *slot_at(const struct tl_ring *ring, uint64_t position)
{
    return &ring->slot[position & (ring->count - 1)];
}

static bool slot_is_poisoned(const struct tl_ring *ring, uint64_t position)
{
    uint64_t index = position & (ring->count - 1);
    return ring->poisoned && ring->poisoned[index / 8] >> index % 8 & 1;
}

static void slot_poison(struct tl_ring *ring, uint64_t position)
{
    uint64_t index = position & (ring->count - 1);
    if (!ring->poisoned)
        ring->poisoned = calloc((size_t)(ring->count + 7) / 8, 1);
    if (ring->poisoned)
        ring->poisoned[index / 8] |= (uint8_t)(1u << index % 8);
    else
        ring->closed = true;
}

// Takes the record out of a slot. false: it is pending.
static bool slot_take(struct tl_ring_slot *slot, struct tl_ring_slot *out)
{
    // Acquire; partner: the writer's last store. What it stored before is there.
    uint64_t word = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    if (!word)
        return false;
    out->word = word;
    // Relaxed: only a hostile writer still writes here.
    out->time = __atomic_load_n(&slot->time, __ATOMIC_RELAXED);
    for (int i = 0; i < TL_EVENT_ARGS; i++)
        out->arg[i] = __atomic_load_n(&slot->arg[i], __ATOMIC_RELAXED);
    // Relaxed: tail_publish() orders it.
    __atomic_store_n(&slot->word, 0, __ATOMIC_RELAXED);
    return true;
}

// Gives the room below the first hole to the writers.
static void tail_publish(struct tl_ring *ring)
{
    ring->tail = ring->hole_count ? ring->hole[0].position : ring->next;
    // Release; partner: the writer's acquire of tail. We are done with the slots below it.
    __atomic_store_n(&ring->header->tail, ring->tail, __ATOMIC_RELEASE);
}

// The head makes no sense: no writer of ours wrote it. What the ring holds is dropped.
static void ring_restart(struct tl_ring *ring, uint64_t head)
{
    for (uint64_t i = 0; i < ring->count; i++)
        __atomic_store_n(&ring->slot[i].word, 0, __ATOMIC_RELAXED);
    ring->hole_count = 0;
    ring->stuck_ns = 0;
    ring->next = ring->full_end = head;
    tail_publish(ring);
}

void tl_ring_start(struct tl_ring *ring)
{
    if (ring->closed)
        return;
    // Acquire; partner: the writers' compare-and-swap. Orders the words' loads behind it, so that a
    // slot below head is never seen as it was before its reservation.
    uint64_t head = __atomic_load_n(&ring->header->head, __ATOMIC_ACQUIRE);
    if (head - ring->tail > ring->count || head - ring->tail < ring->next - ring->tail)
        ring_restart(ring, head);
    ring->head = head;
}

size_t tl_ring_fill(struct tl_ring *ring, struct tl_ring_slot *out)
{
    size_t taken = 0;
    uint32_t kept = 0;
    if (!ring->hole_count)
        return 0;
    for (uint32_t i = 0; i < ring->hole_count; i++) {
        if (slot_take(slot_at(ring, ring->hole[i].position), &out[taken]))
            taken++;
        else
            ring->hole[kept++] = ring->hole[i];
    }
    ring->hole_count = kept;
    tail_publish(ring);
    return taken;
}

size_t tl_ring_take(struct tl_ring *ring, uint64_t now_ns, struct tl_ring_slot *out, size_t room)
{
    size_t taken = 0;
    if (ring->closed || ring->next == ring->head)
        return 0;
    ring->stuck_ns = ring->hole_count < TL_RING_HOLES_MAX ? 0 : ring->stuck_ns;
    while (taken < room && ring->next != ring->head) {
        if (slot_is_poisoned(ring, ring->next)) {
            ring->next++;
        } else if (slot_take(slot_at(ring, ring->next), &out[taken])) {
            taken++;
            ring->full_end = ++ring->next;
        } else if (ring->hole_count < TL_RING_HOLES_MAX) {
            ring->hole[ring->hole_count++] = (struct tl_ring_hole){
                .position = ring->next++, .bound_ns = ring->bound_ns, .since_ns = now_ns};
        } else {
            ring->stuck_ns = ring->stuck_ns ? ring->stuck_ns : now_ns;
            break;
        }
    }
    tail_publish(ring);
    return taken;
}

uint64_t tl_ring_settle(struct tl_ring *ring, uint64_t now_ns, uint64_t start_ns,
                        uint64_t patience_ns)
{
    uint64_t bound = UINT64_MAX;
    uint32_t kept = 0;
    // Stuck for so long: what lies behind can't be seen, so it counts as full.
    bool stuck = ring->stuck_ns && now_ns - ring->stuck_ns >= patience_ns;
    for (uint32_t i = 0; i < ring->hole_count; i++) {
        struct tl_ring_hole hole = ring->hole[i];
        // Positions wrap: behind means less than a ring ahead. full_end may be far behind by now.
        uint64_t ahead = ring->full_end - hole.position;
        if (!hole.passed_ns && ahead && ahead <= ring->count)
            hole.passed_ns = now_ns;
        if ((hole.passed_ns && now_ns - hole.passed_ns >= patience_ns) ||
            (stuck && now_ns - hole.since_ns >= patience_ns)) {
            slot_poison(ring, hole.position);
            continue;
        }
        if (now_ns - hole.since_ns < patience_ns && hole.bound_ns < bound)
            bound = hole.bound_ns;
        ring->hole[kept++] = hole;
    }
    if (kept != ring->hole_count) {
        ring->hole_count = kept;
        tail_publish(ring);
    }
    if (ring->stuck_ns && !stuck && ring->bound_ns < bound)
        bound = ring->bound_ns;
    if (ring->next == ring->head)
        ring->bound_ns = start_ns;
    return bound;
}

bool tl_ring_is_drained(const struct tl_ring *ring)
{
    if (ring->closed)
        return true;
    // Acquire, both; partners: as in a pass.
    if (ring->next != __atomic_load_n(&ring->header->head, __ATOMIC_ACQUIRE))
        return false;
    for (uint32_t i = 0; i < ring->hole_count; i++) {
        if (__atomic_load_n(&slot_at(ring, ring->hole[i].position)->word, __ATOMIC_ACQUIRE))
            return false;
    }
    return true;
}

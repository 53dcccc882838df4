// Events of the kernel's probes: reads the ring that their program writes.
//
//   [page: consumer position, ours][page: producer position, the kernel's][data][the same data again]
//
// A record is a header of 8 bytes (its length; the top bits: being written, discarded) and struct
// tl_uprobe_record, rounded up to 8. Linux kernel/bpf/ringbuf.c. Only the kernel writes to it, but no
// length is believed beyond the ring's size.
#include "attach/uprobe_bpf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RECORD_BUSY 0x80000000u    // BPF_RINGBUF_BUSY_BIT
#define RECORD_DISCARD 0x40000000u // BPF_RINGBUF_DISCARD_BIT
#define RECORD_HEADER 8u           // BPF_RINGBUF_HDR_SZ

struct tl_bpf_ring {
    int fd;
    size_t size, page; // of the data, of a page
    uint64_t *consumer;
    const uint64_t *producer;
    const unsigned char *data;
};

int tl_bpf_ring_create(uint32_t bytes, struct tl_bpf_ring **out, struct tl_diag *diag)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = page;
    while (size < bytes && size < TL_BPF_RING_MAX)
        size *= 2;
    struct tl_bpf_ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    *ring = (struct tl_bpf_ring){.size = size, .page = page};
    ring->fd = tl_bpf_ring_map_create((uint32_t)size);
    void *consumer = MAP_FAILED, *rest = MAP_FAILED;
    if (ring->fd >= 0) {
        consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
        rest = mmap(NULL, page + 2 * size, PROT_READ, MAP_SHARED, ring->fd, (off_t)page);
    }
    ring->consumer = consumer != MAP_FAILED ? consumer : NULL;
    ring->producer = rest != MAP_FAILED ? rest : NULL;
    if (!ring->consumer || !ring->producer) {
        int why = ring->fd < 0 ? -ring->fd : errno;
        tl_bpf_ring_destroy(ring);
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "kernel probes: a ring for events can't be had: %s", strerror(why));
    }
    ring->data = (const unsigned char *)ring->producer + page;
    *out = ring;
    return 0;
}

void tl_bpf_ring_destroy(struct tl_bpf_ring *ring)
{
    if (!ring)
        return;
    if (ring->consumer)
        (void)munmap(ring->consumer, ring->page);
    if (ring->producer)
        (void)munmap((void *)(uintptr_t)ring->producer, ring->page + 2 * ring->size);
    if (ring->fd >= 0)
        (void)close(ring->fd);
    free(ring);
}

int tl_bpf_ring_fd(const struct tl_bpf_ring *ring)
{
    return ring->fd;
}

int tl_bpf_ring_read(struct tl_bpf_ring *ring,
                     int (*take)(void *opaque, const struct tl_uprobe_record *record), void *opaque)
{
    int count = 0;
    // Acquire; partner: the kernel's release of the producer's position.
    uint64_t end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
    uint64_t at = *ring->consumer;
    if (end - at > ring->size)
        return TL_E_FORMAT;
    while (at < end) {
        const unsigned char *header = ring->data + (at & (ring->size - 1));
        // Acquire; partner: the kernel's exchange of the header when the record is complete.
        uint32_t word = __atomic_load_n((const uint32_t *)(const void *)header, __ATOMIC_ACQUIRE);
        uint32_t length = word & ~(RECORD_BUSY | RECORD_DISCARD);
        if (word & RECORD_BUSY)
            break;
        if (length != sizeof(struct tl_uprobe_record))
            return TL_E_FORMAT;
        int result = word & RECORD_DISCARD ? 0 : take(opaque, (const void *)(header + RECORD_HEADER));
        if (result < 0)
            return result;
        count++;
        at += RECORD_HEADER + length;
        // Release; partner: the kernel's acquire when it looks for room.
        __atomic_store_n(ring->consumer, at, __ATOMIC_RELEASE);
    }
    return count;
}

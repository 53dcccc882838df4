// Shared memory and its writers, for the tests of this folder.
#include "writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

void shared_create(struct shared *shared, uint32_t processes, uint32_t probes, uint32_t ring_slots)
{
    struct tl_block_layout layout = {
        .probe_count = probes, .process_count = processes, .ring_slots = ring_slots};
    layout.ring_off = (TL_BLOCK_HEADER_SIZE + probes * sizeof(uint64_t) + 63) & ~63ull;
    layout.stride = (layout.ring_off + sizeof(struct tl_ring_header) +
                     ring_slots * sizeof(struct tl_ring_slot) + 127) &
                    ~127ull;
    size_t size = TL_BLOCK_FIRST_OFF + (size_t)processes * TL_BLOCK_COUNT * layout.stride;
    int fd = memfd_create("rings", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    assert_true(data != MAP_FAILED);
    *shared = (struct shared){.fd = fd,
                              .memory = {.data = data, .size = size, .fd = fd, .layout = layout}};
}

void shared_destroy(struct shared *shared)
{
    (void)munmap(shared->memory.data, shared->memory.size);
    close(shared->fd);
}

void writer_init(struct writer *writer, const struct shared *shared, uint64_t block, uint32_t tid)
{
    const struct tl_block_layout *layout = &shared->memory.layout;
    unsigned char *base =
        (unsigned char *)shared->memory.data + TL_BLOCK_FIRST_OFF + block * layout->stride;
    *writer = (struct writer){
        .counter = (uint64_t *)(void *)(base + TL_BLOCK_HEADER_SIZE),
        .header = (struct tl_ring_header *)(void *)(base + layout->ring_off),
        .slot = (struct tl_ring_slot *)(void *)(base + layout->ring_off +
                                                sizeof(struct tl_ring_header)),
        .mask = layout->ring_slots - 1,
        .tid = tid,
    };
}

bool writer_hit(struct writer *writer, uint32_t probe, uint64_t time, uint64_t value)
{
    uint64_t position;
    if (!writer_reserve(writer, probe, &position))
        return false;
    writer_fill(writer, position, time, value);
    writer_finish(writer, position, probe, TL_RING_ENTRY);
    return true;
}

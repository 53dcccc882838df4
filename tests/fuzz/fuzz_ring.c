// Fuzz target: what a target may do to the memory it shares, between and before reads. The input is
// a row of steps of ten bytes: what to do, where, a value. One ring is read by hand, with a clock
// of the input's own, so that writers are given up too; the others through a stream.
#include <string.h>

#include "drain/drain.h"
#include "drain/ring.h"
#include "fuzz.h"

#define PROBES 2u
#define SLOTS 4u
#define RING_OFF 128u
#define STRIDE 512u
#define RINGS 3u // of the stream that steps write to; the one behind them is read by hand
#define SIZE (TL_BLOCK_FIRST_OFF + (size_t)TL_BLOCK_COUNT * STRIDE)
#define STEP_SIZE 10
#define STEPS_MAX 2000
#define PATIENCE 1000u

_Static_assert(RING_OFF + sizeof(struct tl_ring_header) + SLOTS * sizeof(struct tl_ring_slot) <=
                   STRIDE,
               "a ring fits");

static _Alignas(64) unsigned char memory[SIZE];

struct taken {
    uint64_t last_ns, count;
};

static int event_take(void *opaque, uint32_t source, const struct tl_raw_event *event)
{
    struct taken *taken = opaque;
    require(source == 0 && event->process == 0, "the only source, the only process");
    require(event->probe < PROBES, "a probe there is");
    require(event->kind == TL_RING_ENTRY || event->kind == TL_RING_RETURN, "a kind there is");
    require(event->time_ns >= taken->last_ns, "time never falls");
    taken->last_ns = event->time_ns;
    taken->count++;
    return 0;
}

static struct tl_ring_header *header_of(uint64_t ring)
{
    return (struct tl_ring_header *)(void *)(memory + TL_BLOCK_FIRST_OFF + ring * STRIDE +
                                             RING_OFF);
}

// One pass over the ring that is read by hand.
static void ring_pass(struct tl_ring *ring, uint64_t now)
{
    struct tl_ring_slot out[TL_RING_HOLES_MAX];
    size_t taken, count = 0;
    tl_ring_start(ring);
    count += tl_ring_fill(ring, out);
    while ((taken = tl_ring_take(ring, now, out, 2)) != 0)
        count += taken;
    (void)tl_ring_settle(ring, now, now, PATIENCE);
    require(count <= 2 * SLOTS, "no more than the ring holds, and what filled meanwhile");
    require(ring->next - ring->tail <= SLOTS && ring->head - ring->tail <= SLOTS,
            "positions stay within a ring");
    for (uint32_t i = 0; i < ring->hole_count; i++)
        require(ring->hole[i].position - ring->tail < SLOTS, "a hole lies in the ring");
}

// Writes a word of one ring's block.
static void word_write(const uint8_t *step, uint64_t value)
{
    struct tl_ring_header *header = header_of(step[1] % (RINGS + 1));
    struct tl_ring_slot *slot =
        (struct tl_ring_slot *)(void *)(header + 1) + (step[1] >> 4) % SLOTS;
    uint32_t tid = (uint32_t)value & 0xff;
    switch (step[0] % 8) {
    case 0:
        header->head += value % 8;
        break;
    case 1:
        header->head = value;
        break;
    case 2:
        header->tail = value;
        break;
    case 3:
        slot->word = value;
        break;
    case 4:
        slot->word = TL_RING_WORD(tid, value >> 8 & 3, value >> 16 & 3);
        break;
    case 5:
        slot->time = tl_clock_ticks(true) - value % 4096;
        break;
    case 6:
        slot->time = value;
        break;
    default:
        memcpy((unsigned char *)header - RING_OFF + value % (STRIDE / 8) * 8, &value, sizeof value);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tl_drain_memory shared = {.data = memory,
                                           .size = SIZE,
                                           .fd = -1,
                                           .layout = {.stride = STRIDE,
                                                      .probe_count = PROBES,
                                                      .process_count = 1,
                                                      .ring_off = RING_OFF,
                                                      .ring_slots = SLOTS}};
    struct tl_stream *stream;
    struct tl_clock_map clock;
    struct taken taken = {0};
    struct tl_ring ring;
    uint64_t now = 1, hits[PROBES], value;
    memset(memory, 0, sizeof memory);
    tl_clock_map_init(&clock, true);
    if (tl_stream_create(&stream, NULL) != 0)
        return 0;
    require(tl_stream_add_memory(stream, &shared, NULL) == 0, "the layout fits");
    tl_ring_init(&ring, header_of(RINGS), SLOTS, 0);
    for (size_t i = 0; i < STEPS_MAX && size >= STEP_SIZE; i++) {
        memcpy(&value, data + 2, sizeof value);
        if (data[0] < 16) {
            require(tl_stream_read(stream, &clock, data[0] < 4, event_take, &taken, NULL) >= 0,
                    "no bytes make a read fail");
            require(tl_drain_counts(&shared, 0, PROBES, hits, NULL) == 0, "nor a count");
        } else if (data[0] < 64) {
            now += value % (PATIENCE + 100);
            ring_pass(&ring, now);
        } else {
            word_write(data, value);
        }
        data += STEP_SIZE;
        size -= STEP_SIZE;
    }
    require(tl_stream_read(stream, &clock, true, event_take, &taken, NULL) >= 0, "the last read");
    uint64_t delivered = 0;
    for (uint32_t i = 0; i < PROBES; i++)
        delivered += tl_stream_delivered(stream, 0, i);
    require(delivered == taken.count, "what was handed over is counted");
    tl_ring_deinit(&ring);
    tl_stream_destroy(stream);
    return 0;
}

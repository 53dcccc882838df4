// Writes code into a bounded buffer: bytes, branches, literals. Shared by the files of the emitter.
//
// A full buffer sets `full` and drops what does not fit; the caller looks once, at the end.
// Positions are offsets from the start of the buffer, which lies at `at` in the target.
#ifndef TL_ARCH_X86_64_WRITER_H
#define TL_ARCH_X86_64_WRITER_H

#include "base/types.h"

#define TL_WRITER_LITERALS_MAX 24
#define TL_WRITER_REFS_MAX 40

struct tl_writer {
    uint8_t *bytes;
    uint16_t size, capacity;
    bool full; // something did not fit
    bool far;  // a rel8 did not reach: emit again with rel32
    tl_addr at;
    uint64_t literal[TL_WRITER_LITERALS_MAX];
    uint16_t literal_count;
    struct {
        uint16_t position; // of a disp32, the last field of its instruction
        uint8_t literal;
    } ref[TL_WRITER_REFS_MAX];
    uint16_t ref_count;
};

static inline void tl_writer_put(struct tl_writer *w, const void *bytes, size_t size)
{
    if (w->full || size > (size_t)(w->capacity - w->size)) {
        w->full = true;
        return;
    }
    __builtin_memcpy(w->bytes + w->size, bytes, size);
    w->size = (uint16_t)(w->size + size);
}

static inline void tl_writer_put8(struct tl_writer *w, unsigned value)
{
    uint8_t byte = (uint8_t)value;
    tl_writer_put(w, &byte, 1);
}

static inline void tl_writer_put32(struct tl_writer *w, uint32_t value)
{
    tl_writer_put(w, &value, sizeof value);
}

static inline void tl_writer_put64(struct tl_writer *w, uint64_t value)
{
    tl_writer_put(w, &value, sizeof value);
}

#define TL_PUT(w, ...)                                                                             \
    do {                                                                                           \
        const uint8_t put_bytes[] = {__VA_ARGS__};                                                 \
        tl_writer_put((w), put_bytes, sizeof put_bytes);                                           \
    } while (0)

static inline tl_addr tl_writer_here(const struct tl_writer *w)
{
    return w->at + w->size;
}

// The displacement from `end` to `to`; false: more than 32 bits.
static inline bool tl_disp32(tl_addr end, tl_addr to, int32_t *out)
{
    int64_t disp = (int64_t)(to - end);
    if (disp < INT32_MIN || disp > INT32_MAX)
        return false;
    *out = (int32_t)disp;
    return true;
}

// disp32 of a literal, as the last field of a rip-relative instruction.
void tl_writer_put_literal_ref(struct tl_writer *w, uint64_t value);
// Writes the literals, 8-byte aligned in the target, and fills in their references.
void tl_writer_put_literals(struct tl_writer *w);
// A jump to an address: rel32, or through a literal where that does not reach.
void tl_writer_put_jump(struct tl_writer *w, tl_addr to);
// Fills the rel32 at position so that it leads to offset `to`.
void tl_writer_fix32(struct tl_writer *w, uint16_t position, uint16_t to);
// The same for a rel8; sets `far` if it does not reach.
void tl_writer_fix8(struct tl_writer *w, uint16_t position, uint16_t to);

#endif

// Writes branches and literals. Decides nothing about what a detour does. Invariant: nothing is
// written outside bytes[0 .. capacity), and a writer that is full stays full.
#include "arch/x86_64/writer.h"

#define LITERAL_SIZE 8u

void tl_writer_put_literal_ref(struct tl_writer *w, uint64_t value)
{
    uint16_t index = 0;
    while (index < w->literal_count && w->literal[index] != value)
        index++;
    if (index == TL_WRITER_LITERALS_MAX || w->ref_count == TL_WRITER_REFS_MAX) {
        w->full = true;
        return;
    }
    if (index == w->literal_count) {
        w->literal[index] = value;
        w->literal_count++;
    }
    w->ref[w->ref_count].position = w->size;
    w->ref[w->ref_count].literal = (uint8_t)index;
    w->ref_count++;
    tl_writer_put32(w, 0);
}

void tl_writer_put_literals(struct tl_writer *w)
{
    if (!w->literal_count)
        return;
    while (tl_writer_here(w) % LITERAL_SIZE && !w->full)
        tl_writer_put8(w, 0xcc); // int3: never run
    uint16_t first = w->size;
    for (uint16_t i = 0; i < w->literal_count; i++)
        tl_writer_put64(w, w->literal[i]);
    if (w->full)
        return;
    for (uint16_t i = 0; i < w->ref_count; i++) {
        uint16_t to = (uint16_t)(first + LITERAL_SIZE * w->ref[i].literal);
        tl_writer_fix32(w, w->ref[i].position, to);
    }
}

void tl_writer_put_jump(struct tl_writer *w, tl_addr to)
{
    int32_t disp;
    if (tl_disp32(tl_writer_here(w) + 5, to, &disp)) {
        tl_writer_put8(w, 0xe9); // jmp rel32
        tl_writer_put32(w, (uint32_t)disp);
    } else {
        TL_PUT(w, 0xff, 0x25); // jmp *literal(%rip)
        tl_writer_put_literal_ref(w, to);
    }
}

void tl_writer_fix32(struct tl_writer *w, uint16_t position, uint16_t to)
{
    if (w->full)
        return;
    int32_t disp = (int32_t)to - (int32_t)(position + 4);
    __builtin_memcpy(w->bytes + position, &disp, sizeof disp);
}

void tl_writer_fix8(struct tl_writer *w, uint16_t position, uint16_t to)
{
    if (w->full)
        return;
    int32_t disp = (int32_t)to - (int32_t)(position + 1);
    if (disp < INT8_MIN || disp > INT8_MAX)
        w->far = true;
    w->bytes[position] = (uint8_t)disp;
}

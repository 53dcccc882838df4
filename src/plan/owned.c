// A sparse map of text bytes: written, relied on, unknown. Grows with what is noted, not with the
// text.
//
// Invariant: open addressing with linear probing, never more than half full; lines are only
// forgotten all together.
#include "plan/owned.h"

#include "base/diag.h"

#include <stdlib.h>
#include <string.h>

#define LINE_SIZE 16u
#define LINES_MIN 64u

struct line {
    tl_addr number; // addr / LINE_SIZE, plus 1; 0: empty
    uint8_t way[LINE_SIZE];
    uint8_t value[LINE_SIZE];
};

struct tl_owned {
    struct line *line;
    size_t size; // a power of two
    size_t count;
};

struct tl_owned *tl_owned_create(void)
{
    struct tl_owned *owned = calloc(1, sizeof *owned);
    if (!owned)
        return NULL;
    owned->size = LINES_MIN;
    owned->line = calloc(owned->size, sizeof *owned->line);
    if (!owned->line) {
        free(owned);
        return NULL;
    }
    return owned;
}

void tl_owned_destroy(struct tl_owned *owned)
{
    if (!owned)
        return;
    free(owned->line);
    free(owned);
}

void tl_owned_reset(struct tl_owned *owned)
{
    if (owned->count)
        memset(owned->line, 0, owned->size * sizeof *owned->line);
    owned->count = 0;
}

// The line, or the empty place where it belongs.
static struct line *line_at(const struct tl_owned *owned, tl_addr number)
{
    size_t index = (size_t)(number * 0x9e3779b97f4a7c15u >> 20);
    for (;; index++) {
        struct line *line = &owned->line[index & (owned->size - 1)];
        if (line->number == number || !line->number)
            return line;
    }
}

static const struct line *line_find(const struct tl_owned *owned, tl_addr addr)
{
    const struct line *line = line_at(owned, addr / LINE_SIZE + 1);
    return line->number ? line : NULL;
}

static struct line *line_add(struct tl_owned *owned, tl_addr addr)
{
    struct line *line = line_at(owned, addr / LINE_SIZE + 1);
    if (line->number)
        return line;
    if (2 * (owned->count + 1) > owned->size) {
        struct tl_owned grown = {.size = 2 * owned->size, .count = owned->count};
        grown.line = calloc(grown.size, sizeof *grown.line);
        if (!grown.line)
            return NULL;
        for (size_t i = 0; i < owned->size; i++) {
            if (owned->line[i].number)
                *line_at(&grown, owned->line[i].number) = owned->line[i];
        }
        free(owned->line);
        *owned = grown;
        line = line_at(owned, addr / LINE_SIZE + 1);
    }
    line->number = addr / LINE_SIZE + 1;
    owned->count++;
    return line;
}

bool tl_owned_any(const struct tl_owned *owned, tl_addr addr, size_t size, unsigned ways)
{
    for (size_t i = 0; i < size; i++) {
        const struct line *line = line_find(owned, addr + i);
        if (line && line->way[(addr + i) % LINE_SIZE] & ways)
            return true;
    }
    return false;
}

bool tl_owned_value(const struct tl_owned *owned, tl_addr addr, uint8_t *out)
{
    const struct line *line = line_find(owned, addr);
    unsigned way = line ? line->way[addr % LINE_SIZE] : 0;
    if (!(way & TL_OWNED_WRITTEN) || way & TL_OWNED_UNKNOWN)
        return false;
    *out = line->value[addr % LINE_SIZE];
    return true;
}

int tl_owned_add(struct tl_owned *owned, tl_addr addr, size_t size, unsigned ways,
                 const uint8_t *bytes)
{
    for (size_t i = 0; i < size; i++) {
        struct line *line = line_add(owned, addr + i);
        if (!line)
            return TL_E_NOMEM;
        line->way[(addr + i) % LINE_SIZE] |= (uint8_t)ways;
        if (bytes && ways & TL_OWNED_WRITTEN)
            line->value[(addr + i) % LINE_SIZE] = bytes[i];
    }
    return 0;
}

void tl_owned_remove(struct tl_owned *owned, tl_addr addr, size_t size, unsigned ways)
{
    for (size_t i = 0; i < size; i++) {
        struct line *line = line_at(owned, (addr + i) / LINE_SIZE + 1);
        if (line->number)
            line->way[(addr + i) % LINE_SIZE] &= (uint8_t)~ways;
    }
}

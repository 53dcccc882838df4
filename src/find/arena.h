// Strings and small arrays that live as long as their owner: allocated one by one, freed at once.
#ifndef TL_FIND_ARENA_H
#define TL_FIND_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct tl_arena_block;

struct tl_arena {
    struct tl_arena_block *block; // newest first
    size_t used, size;            // of the newest
};

// Aligned to 16 bytes, zeroed. NULL: no memory.
void *tl_arena_alloc(struct tl_arena *arena, size_t size);
// A copy of size bytes with a terminating 0. NULL: no memory.
char *tl_arena_string(struct tl_arena *arena, const char *text, size_t size);
void tl_arena_deinit(struct tl_arena *arena);

// Grows *array (elements of element bytes) so that it holds at least count. false: no memory.
bool tl_array_grow(void *array, size_t *capacity, size_t count, size_t element);

#endif

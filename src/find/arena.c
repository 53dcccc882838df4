// A bump allocator. Frees nothing before the end; a request larger than a block gets its own block.
#include "find/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BLOCK_FIRST_SIZE ((size_t)2 << 10) // each next block is twice as large, up to
#define ARENA_BLOCK_SIZE ((size_t)64 << 10)
#define ARENA_ALIGN ((size_t)16)

struct tl_arena_block {
    struct tl_arena_block *next;
    _Alignas(16) unsigned char bytes[];
};

static void *alloc(struct tl_arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
    if (!arena->block || size > arena->size - arena->used) {
        size_t want = arena->block ? arena->size * 2 : ARENA_BLOCK_FIRST_SIZE;
        if (want > ARENA_BLOCK_SIZE)
            want = ARENA_BLOCK_SIZE;
        if (want < size)
            want = size;
        struct tl_arena_block *block = malloc(sizeof *block + want);
        if (!block)
            return NULL;
        block->next = arena->block;
        arena->block = block;
        arena->used = 0;
        arena->size = want;
    }
    void *at = arena->block->bytes + arena->used;
    arena->used += size;
    return at;
}

void *tl_arena_alloc(struct tl_arena *arena, size_t size)
{
    void *at = alloc(arena, size);
    return at ? memset(at, 0, size) : NULL;
}

char *tl_arena_string(struct tl_arena *arena, const char *text, size_t size)
{
    char *copy = size < SIZE_MAX ? alloc(arena, size + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}

void tl_arena_deinit(struct tl_arena *arena)
{
    while (arena->block) {
        struct tl_arena_block *next = arena->block->next;
        free(arena->block);
        arena->block = next;
    }
    *arena = (struct tl_arena){0};
}

bool tl_array_grow(void *array, size_t *capacity, size_t count, size_t element)
{
    void *old;
    if (count <= *capacity)
        return true;
    size_t want = *capacity < 16 ? 16 : *capacity + *capacity / 2;
    if (want < count)
        want = count;
    memcpy(&old, array, sizeof old); // array is the address of any kind of pointer
    void *grown = reallocarray(old, want, element);
    if (!grown)
        return false;
    memcpy(array, &grown, sizeof grown);
    *capacity = want;
    // cppcheck-suppress memleak ; the caller's pointer holds it
    return true;
}

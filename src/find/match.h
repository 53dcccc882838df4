// Which names a pattern means. Internal to find.
#ifndef TL_FIND_MATCH_H
#define TL_FIND_MATCH_H

#include "find/symbols.h"

// '*' any bytes, '?' one byte; everything else is itself. Whole text.
bool tl_glob(const char *pattern, const char *text);
bool tl_pattern_wild(const char *pattern);

enum {
    TL_MATCH_CLONE = 1 << 0,   // a compiler's other version of the function
    TL_MATCH_COLD = 1 << 1,    // named in full, but only a part that a function jumps to
    TL_MATCH_VERSION = 1 << 2, // no default version exists: an old one is taken
};

struct tl_match {
    uint32_t symbol; // index in struct tl_symbols
    uint8_t flags;   // TL_MATCH_*
};

struct tl_match_list {
    struct tl_match *match;
    size_t count, capacity;
    size_t cold; // ".cold" parts of a matching name that were left out
    bool failed; // no memory
};

// Appends the symbols that the spec's function means.
void tl_match_symbols(struct tl_symbols *symbols, const struct tl_probe_spec *spec,
                      struct tl_match_list *out);
void tl_match_list_deinit(struct tl_match_list *list);

#define TL_SUGGESTION_COUNT 3u

// The names nearest to a name that nothing matched: fills at most TL_SUGGESTION_COUNT, best first.
struct tl_suggestions {
    const char *name[TL_SUGGESTION_COUNT];
    unsigned distance[TL_SUGGESTION_COUNT];
    size_t count;
    struct tl_arena arena;
};
void tl_suggest(const struct tl_symbols *symbols, const char *wanted, struct tl_suggestions *out);

#endif

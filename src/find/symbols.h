// The functions that one image's symbol tables name, and the indices to find them by. Internal to
// find.
#ifndef TL_FIND_SYMBOLS_H
#define TL_FIND_SYMBOLS_H

#include "find/image.h"

struct tl_symbols {
    struct tl_symbol *symbol; // by vaddr, then name, then version
    size_t count;
    tl_addr *label; // other symbols' values inside text: no functions, but something may lead there
    size_t label_count;
    // Where code or data begins inside text, as assemblers of some machines say ("$x", "$d"); sorted
    // when read.
    struct tl_mapping {
        tl_addr vaddr;
        bool data;
    } * mapping;
    size_t mapping_count;
    const char **import; // names that the image wants from others
    size_t import_count;
    uint32_t *mangled; // indices of symbols whose name is mangled
    size_t mangled_count;
    bool demangled; // all of them were
    // Hash of base names (clone suffix cut): bucket holds index + 1, next chains. Built when first
    // asked.
    uint32_t *bucket, *next;
    size_t bucket_count; // a power of two
    struct tl_arena arena;
    struct tl_image *debug, *debugdata; // own strings that symbols point to
    const char *debug_path;
};

// Computed once, owned by the image. TL_E_NOMEM or TL_E_LIMIT; a malformed entry is left out.
int tl_symbols_of(const struct tl_image *image, struct tl_symbols **out, struct tl_diag *diag);
void tl_symbols_destroy(struct tl_symbols *symbols);

// Index of the first symbol whose vaddr is not below vaddr.
size_t tl_symbols_lower(const struct tl_symbols *symbols, tl_addr vaddr);
// First index of the chain of names that share name's base, + 1; 0: none. Follow with next[].
uint32_t tl_symbols_chain(struct tl_symbols *symbols, const char *name, size_t size);
bool tl_symbols_imports(const struct tl_symbols *symbols, const char *name);

// --- versions.c ---

#define TL_VERSION_HIDDEN                                                                          \
    0x8000u // in a symbol's version index: not the default (System V gABI supplement)

// Version names by index, those defined here and those asked of others.
struct tl_versions {
    const char **name; // NULL: none known
    size_t count;
    bool failed; // no memory
};
bool tl_versions_read(const struct tl_image *image, struct tl_versions *out); // false: no memory
void tl_versions_deinit(struct tl_versions *versions);
const char *tl_versions_name(const struct tl_versions *versions, uint16_t raw);

// --- names.c ---

// Bytes of name before its clone suffixes (".constprop.0", ".isra.1.part.2", ".lto_priv.0",
// ".cold").
size_t tl_name_base(const char *name, bool *cold);
// --- demangle.c ---

#define TL_DEMANGLED_SIZE 8192u // bytes of text with its end

bool tl_name_mangled(const char *name);
// The first size bytes of name as C++ or Rust wrote them; without parameters unless params. false:
// they are not mangled, or their text is longer than the limit.
bool tl_demangle_into(char out[TL_DEMANGLED_SIZE], const char *name, size_t size, bool params);
// The same of a whole name, in arena, or NULL.
char *tl_demangle(struct tl_arena *arena, const char *name, bool params);

#endif

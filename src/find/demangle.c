// Mangled C++ and Rust names to text, by libiberty, under a limit.
//
// A mangled name of 200 bytes can stand for more text than memory holds, since parts of it refer to
// earlier parts. libiberty hands its text out piece by piece; the piece that passes the limit ends
// the work by a jump back to here. Invariant: libiberty keeps no memory of ours and none of its own
// across that jump but at most one decoded punycode identifier of a hostile Rust name.
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

#include "find/symbols.h"

#define MANGLED_SIZE 4096u // bytes of a mangled name with its end

struct demangle_sink {
    jmp_buf full;
    size_t size;
    char *text; // TL_DEMANGLED_SIZE bytes
};

static void sink_add(const char *piece, size_t size, void *opaque)
{
    struct demangle_sink *sink = opaque;
    if (size > TL_DEMANGLED_SIZE - 1 - sink->size)
        longjmp(sink->full, 1);
    if (size > 0) // an empty piece may come as a null pointer
        memcpy(sink->text + sink->size, piece, size);
    sink->size += size;
}

bool tl_name_mangled(const char *name)
{
    return name[0] == '_' &&
           (name[1] == 'Z' || name[1] == 'R' || (name[1] == '_' && name[2] == 'Z'));
}

static int demangle(struct demangle_sink *sink, const char *name, int options)
{
    if (setjmp(sink->full))
        return 0;
    sink->size = 0;
    if (rust_demangle_callback(name, options, sink_add, sink))
        return 1;
    sink->size = 0;
    return cplus_demangle_v3_callback(name, options, sink_add, sink);
}

bool tl_demangle_into(char out[TL_DEMANGLED_SIZE], const char *name, size_t size, bool params)
{
    char mangled[MANGLED_SIZE];
    if (!tl_name_mangled(name) || size >= sizeof mangled)
        return false;
    memcpy(mangled, name, size);
    mangled[size] = 0;
    struct demangle_sink sink = {.text = out};
    if (demangle(&sink, mangled, DMGL_ANSI | DMGL_RET_DROP | (params ? DMGL_PARAMS : 0)) != 1)
        return false;
    out[sink.size] = 0;
    return sink.size > 0;
}

char *tl_demangle(struct tl_arena *arena, const char *name, bool params)
{
    char text[TL_DEMANGLED_SIZE];
    if (!tl_demangle_into(text, name, strnlen(name, MANGLED_SIZE), params))
        return NULL;
    return tl_arena_string(arena, text, strlen(text));
}

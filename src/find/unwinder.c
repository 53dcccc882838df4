// What a module has to do with walking stacks: whose return addresses it would miss if they were
// replaced.
//
// Judges by names only: no code is read. Invariant: a module that may unwind and that can't be
// followed is OTHER, one that is not known to unwind is NONE.
#include "find/symbols.h"

#include <string.h>

// A runtime that reads return addresses on its own stacks, or copies stacks: one name of each.
static const char *const walkers[] = {
    "JNI_CreateJavaVM",                         // Java
    "_ZN2v87Isolate3NewERKNS0_12CreateParamsE", // V8
    "coreclr_initialize",
    "mono_jit_init", // .NET
    "_Z12JS_NewContextjP9JSContext",
    "_Z13JS_NewContextjP9JSContext", // SpiderMonkey
    "PyInit__greenlet",
    "Init_continuation", // copies stacks: Python, Ruby
    "runtime.gentraceback",
    "runtime.morestack", // Go
};

// Unwinders that look frames up in their own way.
static const char *const others[] = {
    "unw_step", "__unw_step",          // LLVM
    "_Ux86_64_step", "_ULx86_64_step", // libunwind of HP
    "_Uaarch64_step", "_ULaarch64_step",
};

static const struct tl_symbol *symbol_named(struct tl_symbols *symbols, const char *name)
{
    for (uint32_t at = tl_symbols_chain(symbols, name, strlen(name)); at;
         at = symbols->next[at - 1]) {
        if (strcmp(symbols->symbol[at - 1].name, name) == 0)
            return &symbols->symbol[at - 1];
    }
    return NULL;
}

static bool any_named(struct tl_symbols *symbols, const char *const *name, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (symbol_named(symbols, name[i]))
            return true;
    }
    return false;
}

// It has tables for exceptions, and says nowhere who serves them: its own unwinder, without a name.
// The C library is such by design: it opens libgcc when it must unwind.
static bool hides_unwinder(const struct tl_image *image, struct tl_symbols *symbols)
{
    static const char *const served[] = {"_Unwind_Resume", "__cxa_begin_catch",
                                         "_Unwind_ForcedUnwind"};
    const char *soname = tl_image_soname(image);
    bool is_static = !image->interpreter && !image->dynamic.needed_count && !soname;
    if (is_static && symbols->count == 0)
        return true; // stripped, and whatever it is linked with is in it
    if (!tl_image_section_named(image, ".gcc_except_table"))
        return false;
    if (soname &&
        (strncmp(soname, "libc.so", 7) == 0 || strncmp(soname, "libpthread.so", 13) == 0 ||
         strncmp(soname, "ld-linux", 8) == 0))
        return false;
    for (size_t i = 0; i < TL_ARRAY_COUNT(served); i++) {
        if (tl_symbols_imports(symbols, served[i]) || symbol_named(symbols, served[i]))
            return false;
    }
    return true;
}

enum tl_unwinder tl_image_unwinder(struct tl_image *image, tl_addr *find_fde)
{
    struct tl_symbols *symbols;
    if (tl_symbols_of(image, &symbols, NULL) != 0)
        return TL_UNWINDER_OTHER;
    if (tl_image_section_named(image, ".gopclntab") ||
        tl_image_section_named(image, ".go.buildinfo") ||
        any_named(symbols, walkers, TL_ARRAY_COUNT(walkers)))
        return TL_UNWINDER_WALKER;
    if (any_named(symbols, others, TL_ARRAY_COUNT(others)))
        return TL_UNWINDER_OTHER;
    const struct tl_symbol *find = symbol_named(symbols, "_Unwind_Find_FDE");
    const struct tl_symbol *raise = symbol_named(symbols, "_Unwind_RaiseException");
    if (find && raise) {
        *find_fde = find->vaddr;
        return TL_UNWINDER_LIBGCC;
    }
    if (find || raise || hides_unwinder(image, symbols))
        return TL_UNWINDER_OTHER;
    return TL_UNWINDER_NONE;
}

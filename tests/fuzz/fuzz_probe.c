// Fuzz target: the text of a probe, and the name it holds as a pattern and as a mangled name.
#include <stdlib.h>
#include <string.h>

#include "find/match.h"
#include "fuzz.h"

static void check_spec(const struct tl_probe_spec *spec)
{
    require((spec->function != NULL) != spec->has_vaddr, "a function or an address");
    require(!spec->function || spec->function[0], "the function is not empty");
    require(!spec->file || spec->file[0], "FILE is not empty");
    require(!spec->version || spec->version[0], "the version is not empty");
    require(spec->has_offset || spec->offset == 0, "no offset unless one was written");
    if (!spec->function)
        return;
    require(tl_glob("*", spec->function), "a star means everything");
    // One symbol of that name is found by that name, unless the name is a pattern or picks a
    // version.
    struct tl_symbol symbol = {.vaddr = 0x1000, .size = 1, .name = spec->function};
    uint32_t index = 0;
    struct tl_symbols symbols = {.symbol = &symbol, .count = 1, .mangled = &index};
    symbols.mangled_count = tl_name_mangled(spec->function);
    struct tl_match_list list = {0};
    struct tl_suggestions near = {0};
    tl_match_symbols(&symbols, spec, &list);
    require(spec->version || list.count > 0 || list.cold > 0, "a name finds itself");
    tl_suggest(&symbols, spec->function, &near);
    tl_arena_deinit(&near.arena);
    tl_match_list_deinit(&list);
    free(symbols.bucket);
    free(symbols.next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tl_probe_spec spec;
    struct tl_diag diag = {""};
    struct tl_arena arena = {0};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    int error = tl_probe_parse(text, &spec, &diag);
    require(error == 0 || (error == TL_E_USAGE && diag.text[0]), "an error is explained");
    if (error == 0) {
        check_spec(&spec);
        tl_probe_spec_deinit(&spec);
    }
    (void)tl_demangle(&arena, text, true);
    (void)tl_demangle(&arena, text, false);
    tl_arena_deinit(&arena);
    free(text);
    return 0;
}

// Functions of a file or of a process, for a caller who looks before he probes.
//
// No lock, no ptrace; a file needs no process. Invariant: what is listed for a pattern is what a
// probe of that pattern would match, since both ask the same find stage.
#include <stdio.h>
#include <string.h>

#include "attach/proc.h"
#include "base/diag.h"
#include "find/find.h"
#include "session/session.h"

struct list {
    struct tl_session_options options;
    struct tl_maps maps;
    struct tl_modules *modules;
    int (*take)(void *opaque, const struct tl_function *function);
    void *opaque;
    size_t found;
};

static int list_open(struct list *list, struct tl_diag *diag)
{
    const struct tl_session_options *options = &list->options;
    struct tl_image_options image = {.debug_dir = options->debug_dir};
    char root[64];
    if (!options->pid && !options->file)
        return tl_diag_set(diag, TL_E_USAGE, "nothing to list: no process and no file is given");
    if (!options->pid)
        return tl_modules_of_file(options->file, &image, &list->modules, diag);
    (void)snprintf(root, sizeof root, "/proc/%d/root", (int)options->pid);
    image.root = root;
    int error = tl_maps_read(options->pid, &list->maps, diag);
    if (!error)
        error = tl_modules_of_process(options->pid, &list->maps, &image, &list->modules, diag);
    return error;
}

// All symbols at symbols[*at].vaddr are one function; *at moves behind them.
static int function_take(struct list *list, const struct tl_module *module,
                         const struct tl_symbol *symbols, size_t *at, size_t count)
{
    size_t first = *at, last = first;
    struct tl_function function = {.file = module->path,
                                   .addr = symbols[first].vaddr + (tl_addr)module->bias,
                                   .size = symbols[first].size};
    for (; last < count && symbols[last].vaddr == symbols[first].vaddr; last++) {
        const struct tl_symbol *symbol = &symbols[last];
        if (function.name_count && strcmp(symbols[last - 1].name, symbol->name) == 0)
            continue; // in both tables
        if (function.name_count < TL_FUNCTION_NAMES_MAX) {
            function.names[function.name_count] = symbol->name;
            function.demangled[function.name_count++] = symbol->demangled;
        }
        if (symbol->size > function.size)
            function.size = symbol->size;
    }
    *at = last;
    list->found++;
    return list->take(list->opaque, &function);
}

static size_t symbol_first_at(const struct tl_symbol *symbols, size_t count, tl_addr vaddr)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (symbols[middle].vaddr < vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int all_take(struct list *list)
{
    int result = 0;
    for (size_t i = 0; result >= 0 && i < tl_modules_count(list->modules); i++) {
        const struct tl_module *module = tl_modules_get(list->modules, i);
        const struct tl_symbol *symbols = NULL;
        size_t count = tl_image_symbols(module->image, &symbols);
        for (size_t at = 0; result >= 0 && at < count;)
            result = function_take(list, module, symbols, &at, count);
    }
    return result < 0 ? result : 0;
}

// The functions of the sites that a probe would get.
static int matches_take(struct list *list, const char *pattern, struct tl_diag *diag)
{
    struct tl_probe_spec spec;
    int result = tl_probe_parse(pattern, &spec, diag);
    if (result)
        return result;
    const struct tl_find_context context = {.modules = list->modules, .pid = list->options.pid};
    struct tl_sites sites = {0};
    result = tl_find_sites(&context, &spec, &sites, diag);
    for (size_t i = 0; result >= 0 && i < sites.count; i++) {
        const struct tl_module *module = tl_modules_get(list->modules, sites.site[i].module);
        const struct tl_symbol *symbols = NULL;
        size_t count = tl_image_symbols(module->image, &symbols);
        tl_addr vaddr = sites.site[i].function ? sites.site[i].function : sites.site[i].vaddr;
        size_t at = symbol_first_at(symbols, count, vaddr);
        if (at < count && symbols[at].vaddr == vaddr)
            result = function_take(list, module, symbols, &at, count);
    }
    tl_sites_deinit(&sites);
    tl_probe_spec_deinit(&spec);
    return result < 0 ? result : 0;
}

int tl_functions_list(const struct tl_session_options *options, const char *pattern,
                      int (*take)(void *opaque, const struct tl_function *function), void *opaque,
                      char *notes, size_t notes_size, struct tl_diag *diag)
{
    struct list list = {.take = take, .opaque = opaque};
    struct tl_diag why = {{0}};
    size_t size = options->size < sizeof list.options ? options->size : sizeof list.options;
    memcpy(&list.options, options, size);
    int error = list_open(&list, &why);
    if (!error)
        error = pattern ? matches_take(&list, pattern, &why) : all_take(&list);
    if (!error && !list.found)
        error = why.text[0] ? TL_E_NOMATCH : tl_diag_set(&why, TL_E_NOMATCH, "no function matched");
    if (notes && notes_size)
        (void)snprintf(notes, notes_size, "%s", list.modules ? tl_modules_notes(list.modules) : "");
    if (diag && error)
        *diag = why;
    tl_modules_destroy(list.modules);
    tl_maps_deinit(&list.maps);
    return error;
}

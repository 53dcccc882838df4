// Turns a parsed probe into sites: places in modules, each once.
//
// Names go through match.c, files through choose.c, IFUNCs through ifunc.c; where an entry is and
// what an instruction boundary is, stage analyse says. What can't be probed becomes a site with a
// refusal, never nothing. Invariant: no two sites of a list have the same module, address and kind.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "find/ifunc.h"
#include "find/match.h"
#include "find/modules.h"

#define SITES_MAX (1u << 20)
#define SITE_NAMES_MAX 65536u // bytes of all names of one site
#define SITE_INDEX_FROM 16u   // matches from which a hash finds equal sites

// The page of old system calls on x86-64, arch/x86/include/uapi/asm/vsyscall.h: VSYSCALL_ADDR.
#define VSYSCALL_START ((tl_addr)0xffffffffff600000u)
#define VSYSCALL_SIZE ((tl_addr)4096)

struct finder {
    const struct tl_find_context *context;
    const struct tl_probe_spec *spec;
    struct tl_sites *sites;
    struct tl_diag *diag;
    uint32_t *index; // hash of sites: position + 1; NULL: looked for one by one
    size_t index_size;
    int matched;
    char *file_note;     // for all sites of this spec
    struct tl_diag miss; // why a symbol that matched gave no site
};

// --- texts ---

static bool list_holds(const char *list, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = list; at; at = strstr(at, ", ")) {
        if (at != list)
            at += 2;
        if (strncmp(at, name, size) == 0 && (!at[size] || strncmp(at + size, ", ", 2) == 0))
            return true;
    }
    return false;
}

static void names_add(char **names, const char *name)
{
    if (*names && (list_holds(*names, name) || strlen(*names) + strlen(name) > SITE_NAMES_MAX))
        return;
    (void)tl_text_append(names, ", ", name);
}

static void note_add(struct tl_site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note_add(struct tl_site *site, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!site->note || !strstr(site->note, text))
        (void)tl_text_append(&site->note, "; ", text);
}

// As people read it: demangled; with its version if that is not the default.
static char *symbol_text(const struct tl_symbol *symbol)
{
    char demangled[TL_DEMANGLED_SIZE], *text = NULL;
    const char *name = symbol->name;
    if (tl_demangle_into(demangled, name, strlen(name), true))
        name = demangled;
    bool hidden = symbol->version && !symbol->version_default;
    if (asprintf(&text, "%s%s%s", name, hidden ? "@" : "", hidden ? symbol->version : "") < 0)
        return NULL;
    return text;
}

// Names that people use come before aliases of the library's own: 0 is best.
static unsigned symbol_rank(const struct tl_symbol *symbol)
{
    return (symbol->local ? 4u : 0) + (symbol->version && !symbol->version_default ? 2u : 0) +
           (symbol->name[0] == '_');
}

#define SYMBOL_RANKS 8u

// All names at a function's address. An IFUNC's name is none of its resolver's.
static void names_at(const struct tl_symbols *symbols, tl_addr vaddr, bool ifunc, char **names)
{
    size_t first = tl_symbols_lower(symbols, vaddr);
    for (unsigned rank = 0; rank < SYMBOL_RANKS; rank++) {
        for (size_t i = first; i < symbols->count && symbols->symbol[i].vaddr == vaddr; i++) {
            const struct tl_symbol *symbol = &symbols->symbol[i];
            char *text = symbol_rank(symbol) == rank && (ifunc || !symbol->ifunc)
                             ? symbol_text(symbol)
                             : NULL;
            if (text)
                names_add(names, text);
            free(text);
        }
    }
}

// --- the list ---

static uint64_t site_hash(uint32_t module, tl_addr vaddr, enum tl_probe_kind kind)
{
    uint64_t hash = (vaddr + module * 0x10001ull) * 0x9e3779b97f4a7c15u + (uint64_t)kind;
    return hash ^ hash >> 29;
}

// A refused IFUNC and its resolver share an address, but not a site.
static bool site_is(const struct tl_site *site, uint32_t module, tl_addr vaddr,
                    enum tl_probe_kind kind, bool ifunc)
{
    return site->vaddr == vaddr && site->module == module && site->kind == kind &&
           (site->refusal == TL_REFUSE_IFUNC) == ifunc;
}

// Prepares to look up sites for about this many matches.
static void index_build(struct finder *finder, size_t matches)
{
    size_t size = 64;
    if (matches < SITE_INDEX_FROM || finder->index)
        return;
    while (size < (finder->sites->count + matches) * 2)
        size *= 2;
    finder->index = calloc(size, sizeof *finder->index);
    if (!finder->index)
        return;
    finder->index_size = size;
    for (size_t i = 0; i < finder->sites->count; i++) {
        const struct tl_site *site = &finder->sites->site[i];
        uint64_t at = site_hash(site->module, site->vaddr, site->kind);
        while (finder->index[at & (size - 1)])
            at++;
        finder->index[at & (size - 1)] = (uint32_t)i + 1;
    }
}

static struct tl_site *site_known(struct finder *finder, uint32_t module, tl_addr vaddr, bool ifunc)
{
    const struct tl_sites *sites = finder->sites;
    enum tl_probe_kind kind = finder->spec->kind;
    if (!finder->index) {
        for (size_t i = 0; i < sites->count; i++) {
            if (site_is(&sites->site[i], module, vaddr, kind, ifunc))
                return &sites->site[i];
        }
        return NULL;
    }
    uint64_t at = site_hash(module, vaddr, kind);
    for (; finder->index[at & (finder->index_size - 1)]; at++) {
        struct tl_site *site = &sites->site[finder->index[at & (finder->index_size - 1)] - 1];
        if (site_is(site, module, vaddr, kind, ifunc))
            return site;
    }
    return NULL;
}

static void index_add(struct finder *finder, const struct tl_site *site, size_t position)
{
    if (!finder->index)
        return;
    if ((position + 1) * 2 > finder->index_size) { // more than was planned for: one by one again
        free(finder->index);
        finder->index = NULL;
        index_build(finder, position + 1);
        return;
    }
    uint64_t at = site_hash(site->module, site->vaddr, site->kind);
    while (finder->index[at & (finder->index_size - 1)])
        at++;
    finder->index[at & (finder->index_size - 1)] = (uint32_t)position + 1;
}

// The site at vaddr, old or new; NULL: no room (diag is set). ifunc: one that is refused.
static struct tl_site *site_at(struct finder *finder, size_t module, tl_addr vaddr, bool ifunc)
{
    struct tl_sites *sites = finder->sites;
    struct tl_site *site = site_known(finder, (uint32_t)module, vaddr, ifunc);
    finder->matched++;
    if (site)
        return site;
    if (sites->count >= SITES_MAX ||
        !tl_array_grow(&sites->site, &sites->capacity, sites->count + 1, sizeof *sites->site)) {
        tl_diag_set(finder->diag, TL_E_LIMIT, "no room for more than %zu sites", sites->count);
        return NULL;
    }
    site = &sites->site[sites->count++];
    *site = (struct tl_site){.module = (uint32_t)module,
                             .vaddr = vaddr,
                             .kind = finder->spec->kind,
                             .refusal = ifunc ? TL_REFUSE_IFUNC : TL_REFUSE_NONE};
    if (module < finder->context->modules->count)
        site->addr = vaddr + (uint64_t)finder->context->modules->module[module].bias;
    index_add(finder, site, sites->count - 1);
    return site;
}

static bool site_probe(struct finder *finder, struct tl_site *site, const char *path,
                       const char *name, uint64_t offset)
{
    if (site->probe)
        return true;
    const char *kind = finder->spec->kind == TL_PROBE_RETURN ? "uretprobe" : "uprobe";
    int size = offset ? asprintf(&site->probe, "%s:%s:%s+0x%llx", kind, path, name,
                                 (unsigned long long)offset)
                      : asprintf(&site->probe, "%s:%s:%s", kind, path, name);
    if (size < 0)
        site->probe = NULL;
    if (finder->file_note)
        note_add(site, "%s", finder->file_note);
    return site->probe != NULL;
}

// --- addresses ---

// The function that holds vaddr; 0: none known.
static tl_addr function_at(const struct tl_module_facts *facts, tl_addr vaddr)
{
    size_t low = 0, high = facts->function_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (facts->functions[middle].vaddr <= vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    // Extents may nest; a few steps back find the inner one that holds it.
    for (size_t i = low; i > 0 && low - i < 64; i--) {
        const struct tl_extent *extent = &facts->functions[i - 1];
        if (vaddr - extent->vaddr < extent->size)
            return extent->vaddr;
    }
    return 0;
}

static void refuse_boundary(struct tl_module *module, struct tl_site *site)
{
    tl_addr below, above;
    site->refusal = TL_REFUSE_NOT_BOUNDARY;
    if (!tl_analysis_boundaries(module->analysis, site->vaddr, &below, &above))
        return;
    tl_addr base = site->function && site->function <= below ? site->function : 0;
    const char *form = base ? "the nearest instructions start at +0x%llx and +0x%llx"
                            : "the nearest instructions start at 0x%llx and 0x%llx";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    note_add(site, form, (unsigned long long)(below - base), (unsigned long long)(above - base));
#pragma GCC diagnostic pop
}

// What stage analyse says of an instruction that was asked for by offset or address.
static int check_instruction(struct finder *finder, struct tl_module *module, struct tl_site *site)
{
    struct tl_site_facts facts;
    int error = tl_analysis_site(module->analysis, site->vaddr, &facts, finder->diag);
    if (error)
        return error;
    if (facts.refusal == TL_REFUSE_NOT_BOUNDARY)
        refuse_boundary(module, site);
    else if (facts.refusal == TL_REFUSE_NOT_CODE)
        site->refusal = TL_REFUSE_NOT_CODE;
    return 0;
}

static bool address_in_vdso(const struct finder *finder, tl_addr addr)
{
    const struct tl_range *vdso = &finder->context->modules->vdso;
    return addr - VSYSCALL_START < VSYSCALL_SIZE || (addr >= vdso->start && addr < vdso->end);
}

// Says so where a runtime address was given instead of the file's.
static void note_runtime_address(const struct finder *finder, struct tl_site *site, tl_addr addr)
{
    for (size_t i = 0; i < finder->context->modules->count; i++) {
        const struct tl_module *module = &finder->context->modules->module[i];
        tl_addr vaddr = addr - (uint64_t)module->bias;
        if (module->bias && tl_image_text_at(module->image, vaddr))
            note_add(site, "as an address in the running program it is 0x%llx of %s",
                     (unsigned long long)vaddr, module->path);
    }
}

static int find_address(struct finder *finder, size_t index)
{
    struct tl_module *module = &finder->context->modules->module[index];
    const struct tl_module_facts *facts;
    tl_addr vaddr = finder->spec->vaddr;
    char name[32];
    (void)snprintf(name, sizeof name, "0x%llx", (unsigned long long)vaddr);
    bool text = tl_image_text_at(module->image, vaddr) != NULL;
    int error = text ? tl_module_analyse(module, finder->diag) : 0;
    if (!error && text)
        error = tl_image_facts(module->image, &facts, finder->diag);
    if (error)
        return error;
    tl_addr function = text ? function_at(facts, vaddr) : 0;
    tl_addr entry = function ? tl_analysis_entry(module->analysis, function) : 0;
    tl_addr place = function && vaddr == function ? entry : vaddr;
    struct tl_site *site = site_at(finder, index, place, false);
    if (!site || !site_probe(finder, site, module->path, name, 0))
        return TL_E_LIMIT;
    site->function = function;
    site->entry = function && place == entry;
    if (place != vaddr)
        note_add(site, tl_image_go(module->image)
                           ? "the probe sits behind the function's stack check"
                           : "the probe sits behind the function's endbr64");
    struct tl_symbols *symbols;
    if (function && tl_symbols_of(module->image, &symbols, NULL) == 0)
        names_at(symbols, function, false, &site->names);
    if (!site->names)
        (void)tl_text_append(&site->names, "", name);
    if (text)
        return check_instruction(finder, module, site);
    site->refusal = TL_REFUSE_NOT_CODE;
    if (address_in_vdso(finder, vaddr))
        site->refusal = TL_REFUSE_VDSO;
    else
        note_runtime_address(finder, site, vaddr);
    return 0;
}

// --- functions ---

// One symbol that matched, at vaddr (an IFUNC's implementation lies elsewhere than its symbol).
static int add_function(struct finder *finder, size_t index, struct tl_symbols *symbols,
                        const struct tl_match *match, tl_addr vaddr, struct tl_site **out)
{
    struct tl_module *module = &finder->context->modules->module[index];
    const struct tl_symbol *symbol = &symbols->symbol[match->symbol];
    uint64_t offset = finder->spec->offset;
    int error = tl_module_analyse(module, finder->diag);
    if (error)
        return error;
    tl_addr entry = tl_analysis_entry(module->analysis, vaddr);
    char *text = symbol_text(symbol);
    if (!text)
        return tl_diag_set(finder->diag, TL_E_NOMEM, "no memory");
    if (offset >= symbol->size && offset && vaddr == symbol->vaddr) {
        tl_diag_set(&finder->miss, TL_E_NOMATCH, "%.200s is %llu bytes long: +0x%llx lies outside",
                    text, (unsigned long long)symbol->size, (unsigned long long)offset);
        free(text);
        return 0;
    }
    struct tl_site *site = site_at(finder, index, offset ? vaddr + offset : entry, false);
    if (!site || !site_probe(finder, site, module->path, text, offset)) {
        free(text);
        return TL_E_LIMIT;
    }
    site->function = vaddr;
    site->entry = site->vaddr == entry && !(match->flags & TL_MATCH_COLD);
    if (!site->names)
        names_at(symbols, vaddr, false, &site->names);
    names_add(&site->names, text); // of an IFUNC
    if (match->flags & TL_MATCH_CLONE)
        note_add(site, "%s: a version that the compiler made, its arguments may differ",
                 symbol->name);
    if (match->flags & TL_MATCH_COLD)
        note_add(site, "a cold part, reached by jumps, not a function's entry");
    if (match->flags & TL_MATCH_VERSION)
        note_add(site, "there is no default version: %s is taken", text);
    free(text);
    *out = site;
    return offset ? check_instruction(finder, module, site) : 0;
}

static const char *ifunc_reason(const struct finder *finder, const struct tl_ifunc *ifunc)
{
    if (!finder->context->pid)
        return "only a running program shows its implementation";
    if (ifunc->vdso)
        return "the implementation in use is in the vDSO";
    if (ifunc->elsewhere)
        return "the program uses another module's function of this name";
    return "no module of the program has bound it yet";
}

static int refuse_ifunc(struct finder *finder, size_t index, const struct tl_symbols *symbols,
                        const struct tl_ifunc *ifunc)
{
    const struct tl_symbol *symbol = ifunc->symbol;
    struct tl_site *site = site_at(finder, index, symbol->vaddr, true);
    char *text = symbol_text(symbol);
    bool good = site && text &&
                site_probe(finder, site, finder->context->modules->module[index].path, text, 0);
    if (good) {
        site->function = symbol->vaddr;
        names_at(symbols, symbol->vaddr, true, &site->names);
        note_add(site, "%s is an IFUNC: %s", symbol->name, ifunc_reason(finder, ifunc));
    }
    free(text);
    return good ? 0 : TL_E_LIMIT;
}

static int add_ifunc(struct finder *finder, size_t index, struct tl_symbols *symbols,
                     const struct tl_match *match, const struct tl_ifunc *ifunc)
{
    for (size_t i = 0; i < ifunc->count; i++) {
        struct tl_site *site = NULL;
        tl_addr vaddr = ifunc->vaddr[i];
        size_t at = tl_symbols_lower(symbols, vaddr);
        bool named = at < symbols->count && symbols->symbol[at].vaddr == vaddr;
        int error = add_function(finder, index, symbols, match, vaddr, &site);
        if (error)
            return error;
        if (site)
            note_add(site, "%s is an IFUNC: the implementation in use is %s%s0x%llx",
                     ifunc->symbol->name, named ? symbols->symbol[at].name : "",
                     named ? " at " : "", (unsigned long long)vaddr);
    }
    return ifunc->count > 0 ? 0 : refuse_ifunc(finder, index, symbols, ifunc);
}

static int add_ifuncs(struct finder *finder, size_t index, struct tl_symbols *symbols,
                      const struct tl_match_list *list)
{
    struct tl_ifunc *ifunc = calloc(list->count + 1, sizeof *ifunc);
    size_t count = 0;
    int error = 0;
    if (!ifunc)
        return tl_diag_set(finder->diag, TL_E_NOMEM, "no memory");
    for (size_t i = 0; i < list->count; i++) {
        if (symbols->symbol[list->match[i].symbol].ifunc)
            ifunc[count++].symbol = &symbols->symbol[list->match[i].symbol];
    }
    tl_ifunc_find(finder->context, index, ifunc, count);
    for (size_t i = 0, at = 0; i < list->count && at < count && !error; i++) {
        if (symbols->symbol[list->match[i].symbol].ifunc)
            error = add_ifunc(finder, index, symbols, &list->match[i], &ifunc[at++]);
    }
    free(ifunc);
    return error;
}

static int compare_matches(const void *a, const void *b, void *opaque)
{
    const struct tl_symbol *symbols = opaque;
    const struct tl_match *left = a, *right = b;
    const struct tl_symbol *one = &symbols[left->symbol], *other = &symbols[right->symbol];
    if (one->vaddr != other->vaddr)
        return one->vaddr < other->vaddr ? -1 : 1;
    unsigned ranks[2] = {symbol_rank(one), symbol_rank(other)};
    if (ranks[0] != ranks[1])
        return ranks[0] < ranks[1] ? -1 : 1;
    return (left->symbol > right->symbol) - (left->symbol < right->symbol);
}

static int find_in_module(struct finder *finder, size_t index)
{
    struct tl_module *module = &finder->context->modules->module[index];
    struct tl_match_list list = {0};
    struct tl_symbols *symbols;
    int error = tl_symbols_of(module->image, &symbols, finder->diag);
    if (error)
        return error;
    tl_match_symbols(symbols, finder->spec, &list);
    if (list.failed)
        error = tl_diag_set(finder->diag, TL_E_NOMEM, "%s: no memory", module->path);
    index_build(finder, list.count);
    if (list.count > 1) // the name that comes first names the probe
        qsort_r(list.match, list.count, sizeof *list.match, compare_matches, symbols->symbol);
    bool exact = !tl_pattern_wild(finder->spec->function);
    for (size_t i = 0; i < list.count && !error; i++) {
        const struct tl_symbol *symbol = &symbols->symbol[list.match[i].symbol];
        struct tl_site *site = NULL;
        if (symbol->ifunc)
            continue;
        error = add_function(finder, index, symbols, &list.match[i], symbol->vaddr, &site);
        if (site && exact && list.cold > 0)
            note_add(site, "its cold part is not probed: it is no entry");
    }
    if (!error)
        error = add_ifuncs(finder, index, symbols, &list);
    tl_match_list_deinit(&list);
    return error;
}

// --- no match ---

// The first module outside chosen[] that has the name, for the hint.
static const struct tl_module *defined_elsewhere(struct finder *finder, const bool *chosen)
{
    const struct tl_modules *modules = finder->context->modules;
    for (size_t i = 0; i < modules->count; i++) {
        size_t index = modules->order[i];
        struct tl_match_list list = {0};
        struct tl_symbols *symbols;
        if (chosen[index] || tl_symbols_of(modules->module[index].image, &symbols, NULL) != 0)
            continue;
        tl_match_symbols(symbols, finder->spec, &list);
        size_t count = list.count;
        tl_match_list_deinit(&list);
        if (count > 0)
            return &modules->module[index];
    }
    return NULL;
}

static void diag_near(struct finder *finder, const bool *chosen, const char *where)
{
    const struct tl_modules *modules = finder->context->modules;
    const char *function = finder->spec->function;
    struct tl_suggestions near = {0};
    size_t named = 0;
    for (size_t i = 0; i < modules->count; i++) {
        struct tl_symbols *symbols;
        if (!chosen[i] || tl_symbols_of(modules->module[i].image, &symbols, NULL) != 0)
            continue;
        named += symbols->count;
        tl_suggest(symbols, function, &near);
    }
    char names[320] = "";
    for (size_t i = 0, at = 0; i < near.count && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%.100s", i ? ", " : "",
                               near.name[i]);
    if (named == 0)
        tl_diag_set(finder->diag, TL_E_NOMATCH,
                    "%.100s: no function names in it (stripped?): give an address or a debug file",
                    where);
    else if (near.count > 0)
        tl_diag_set(finder->diag, TL_E_NOMATCH, "no function '%.100s' in %.80s; near names: %s",
                    function, where, names);
    else
        tl_diag_set(finder->diag, TL_E_NOMATCH, "no function '%.200s' in %.100s", function, where);
    tl_arena_deinit(&near.arena);
}

static void diag_no_match(struct finder *finder, const bool *chosen, size_t chosen_count)
{
    const struct tl_modules *modules = finder->context->modules;
    const struct tl_probe_spec *spec = finder->spec;
    if (finder->miss.text[0]) {
        if (finder->diag)
            *finder->diag = finder->miss;
        return;
    }
    size_t first = 0;
    while (first < modules->count && !chosen[first])
        first++;
    const char *where = chosen_count == 1 ? modules->module[first].path : "the modules asked for";
    const struct tl_module *other =
        tl_pattern_wild(spec->function) ? NULL : defined_elsewhere(finder, chosen);
    struct tl_symbols *symbols;
    if (other)
        tl_diag_set(finder->diag, TL_E_NOMATCH,
                    "no function '%.100s' in %.120s, but in %.120s: write %.60s:%.60s",
                    spec->function, where, other->path, tl_path_base(other->path), spec->function);
    else if (chosen_count == 1 &&
             tl_symbols_of(modules->module[first].image, &symbols, NULL) == 0 &&
             tl_symbols_imports(symbols, spec->function))
        tl_diag_set(
            finder->diag, TL_E_NOMATCH,
            "%.150s takes '%.100s' from a library: name the library as FILE, or give -p PID", where,
            spec->function);
    else
        diag_near(finder, chosen, where);
}

static int diag_no_file(struct finder *finder)
{
    const struct tl_modules *modules = finder->context->modules;
    char names[320] = "";
    for (size_t i = 0, at = 0; i < modules->count && i < 8 && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%.60s", i ? ", " : "",
                               tl_path_base(modules->module[i].path));
    tl_diag_set(finder->diag, TL_E_NOMATCH, "no module '%.120s' is loaded; there are: %s%s",
                finder->spec->file ? finder->spec->file : "main program", names,
                modules->count > 8 ? " ..." : "");
    return 0;
}

// --- the whole ---

static bool file_is_vdso(const char *file)
{
    return file && (strcmp(file, "[vdso]") == 0 || strcmp(file, "vdso") == 0 ||
                    strcmp(file, "linux-vdso.so.1") == 0 || strcmp(file, "[vsyscall]") == 0);
}

static int find_vdso(struct finder *finder)
{
    const struct tl_probe_spec *spec = finder->spec;
    const struct tl_range *vdso = &finder->context->modules->vdso;
    bool old = strcmp(spec->file, "[vsyscall]") == 0;
    tl_addr addr = old ? VSYSCALL_START : vdso->start;
    char number[32];
    (void)snprintf(number, sizeof number, "0x%llx", (unsigned long long)spec->vaddr);
    const char *name = spec->has_vaddr ? number : spec->function;
    struct tl_site *site =
        site_at(finder, UINT32_MAX, spec->has_vaddr ? addr + spec->vaddr : addr, false);
    if (!site || !site_probe(finder, site, spec->file, name, spec->offset))
        return TL_E_LIMIT;
    site->module = 0;
    site->addr = site->vaddr;
    site->refusal = TL_REFUSE_VDSO;
    names_add(&site->names, name);
    return 0;
}

// The program's own functions, or, where it takes the name from a library, the first library that
// has it.
static int find_in_program(struct finder *finder, bool *chosen)
{
    const struct tl_modules *modules = finder->context->modules;
    struct tl_symbols *symbols;
    int error = find_in_module(finder, 0);
    if (error || finder->matched || finder->miss.text[0] || tl_pattern_wild(finder->spec->function))
        return error;
    error = tl_symbols_of(modules->module[0].image, &symbols, finder->diag);
    if (error || !tl_symbols_imports(symbols, finder->spec->function))
        return error;
    for (size_t i = 0; i < modules->count && !finder->matched && !error; i++) {
        size_t index = modules->order[i];
        char text[512];
        if (index == 0)
            continue;
        (void)snprintf(text, sizeof text, "the program takes it from %.400s",
                       modules->module[index].path);
        free(finder->file_note);
        finder->file_note = strdup(text);
        chosen[index] = true;
        error = find_in_module(finder, index);
    }
    return error;
}

static int find_in_modules(struct finder *finder, bool *chosen, size_t chosen_count)
{
    struct tl_modules *modules = finder->context->modules;
    int error = 0;
    for (size_t i = 0; i < modules->count && !error; i++) {
        if (!chosen[i])
            continue;
        error = finder->spec->has_vaddr ? find_address(finder, i) : find_in_module(finder, i);
        if (error && error != TL_E_NOMEM && chosen_count > 1) { // the others can still be probed
            char line[TL_DIAG_SIZE + 512];
            (void)snprintf(line, sizeof line, "%.500s: %s", modules->module[i].path,
                           finder->diag ? finder->diag->text : "can't be looked at");
            (void)tl_text_append(&modules->notes, "\n", line);
            error = 0;
        }
    }
    return error;
}

static int find_chosen(struct finder *finder, bool *chosen)
{
    struct tl_modules *modules = finder->context->modules;
    const struct tl_probe_spec *spec = finder->spec;
    size_t count = 0;
    int error;
    if (file_is_vdso(spec->file))
        return find_vdso(finder);
    if (spec->file) {
        count = tl_modules_choose(modules, spec->file, chosen, &finder->file_note);
    } else if (modules->count > 0 && modules->module[0].main) {
        chosen[0] = true;
        count = 1;
    }
    if (count == 0)
        return diag_no_file(finder);
    if (spec->has_vaddr && count > 1)
        return tl_diag_set(finder->diag, TL_E_USAGE,
                           "an address needs one FILE; '%.200s' means %zu", spec->file, count);
    if (!spec->file && !spec->has_vaddr)
        error = find_in_program(finder, chosen);
    else
        error = find_in_modules(finder, chosen, count);
    if (!error && finder->matched == 0)
        diag_no_match(finder, chosen, count);
    return error;
}

int tl_find_sites(const struct tl_find_context *context, const struct tl_probe_spec *spec,
                  struct tl_sites *sites, struct tl_diag *diag)
{
    struct finder finder = {.context = context, .spec = spec, .sites = sites, .diag = diag};
    bool *chosen = calloc(context->modules->count + 1, sizeof *chosen);
    if (!chosen)
        return tl_diag_set(diag, TL_E_NOMEM, "no memory");
    int error = find_chosen(&finder, chosen);
    free(chosen);
    free(finder.index);
    free(finder.file_note);
    return error ? error : finder.matched;
}

void tl_sites_deinit(struct tl_sites *sites)
{
    for (size_t i = 0; i < sites->count; i++) {
        free(sites->site[i].probe);
        free(sites->site[i].names);
        free(sites->site[i].note);
    }
    free(sites->site);
    *sites = (struct tl_sites){0};
}

// Decides which symbols a name or pattern means.
//
// Exact unless '*' or '?' are written. A bare name is compared with the symbol, with the symbol
// without the suffixes of compiler clones, and with the demangled name without parameters (and
// without template arguments if the pattern has none); a signature is compared with the demangled
// signature, blanks aside. A ".cold" part is never meant by its function's name. Exact names go
// through a hash; demangling is kept for names that can match.
#include "find/match.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SIZE_MAX 8192u // of a pattern or demangled name that is compared

bool tl_pattern_wild(const char *pattern)
{
    return strpbrk(pattern, "*?") != NULL;
}

bool tl_glob(const char *pattern, const char *text)
{
    const char *star = NULL, *again = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            again = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

static bool identifier_byte(char byte)
{
    return isalnum((unsigned char)byte) || byte == '_' || byte == '$' ||
           (unsigned char)byte >= 0x80;
}

// Drops blanks that separate nothing. false: too long.
static bool squeeze(const char *text, char out[NAME_SIZE_MAX])
{
    size_t at = 0;
    for (; *text; text++) {
        if (*text == ' ' && !(at > 0 && identifier_byte(out[at - 1]) && identifier_byte(text[1])))
            continue;
        if (at == NAME_SIZE_MAX - 1)
            return false;
        out[at++] = *text;
    }
    out[at] = 0;
    return true;
}

// Drops template arguments: "ns::max<int>" and Rust's "max::<i32>" become "ns::max" and "max".
static void drop_templates(const char *text, char out[NAME_SIZE_MAX])
{
    size_t at = 0;
    unsigned depth = 0;
    for (; *text && at < NAME_SIZE_MAX - 1; text++) {
        bool word = at >= 8 && depth == 0 && strncmp(out + at - 8, "operator", 8) == 0;
        if (*text == '<' && !word) {
            if (depth++ == 0 && at >= 2 && out[at - 1] == ':' && out[at - 2] == ':')
                at -= 2;
        } else if (*text == '>' && depth > 0) {
            depth--;
        } else if (depth == 0) {
            out[at++] = *text;
        }
    }
    out[at] = 0;
}

// --- exact names ---

struct wanted {
    const char *pattern;
    char squeezed[NAME_SIZE_MAX];
    char needle[NAME_SIZE_MAX]; // must be in a mangled name that can match; "" no such rule
    bool templates;             // the pattern says template arguments
};

// A mangled name spells out its last identifier with its length before it, unless that is an
// abbreviation (Itanium C++ ABI, "Compression") or an operator.
static void find_needle(const char *pattern, char out[NAME_SIZE_MAX])
{
    static const char *const abbreviated[] = {"allocator",     "basic_string",  "string",
                                              "basic_istream", "basic_ostream", "basic_iostream",
                                              "istream",       "ostream",       "iostream"};
    size_t end = strcspn(pattern, "(<");
    size_t start = end;
    out[0] = 0;
    if (strstr(pattern, "operator") || strpbrk(pattern, "{[ ") == pattern || strpbrk(pattern, "{["))
        return;
    while (start > 0 && identifier_byte(pattern[start - 1])) {
        start--;
        if ((unsigned char)pattern[start] >= 0x80)
            return; // encoded in its own way
    }
    size_t size = end - start;
    for (size_t i = 0; i < TL_ARRAY_COUNT(abbreviated); i++) {
        if (size == strlen(abbreviated[i]) && strncmp(pattern + start, abbreviated[i], size) == 0)
            return;
    }
    if (size == 0 || size > NAME_SIZE_MAX - 32)
        return;
    if (pattern[start] == '_' || isdigit((unsigned char)pattern[start]))
        (void)snprintf(out, NAME_SIZE_MAX, "%.*s", (int)size, pattern + start);
    else
        (void)snprintf(out, NAME_SIZE_MAX, "%zu%.*s", size, (int)size, pattern + start);
}

static bool compare_demangled(const struct wanted *wanted, const char *name)
{
    char squeezed[NAME_SIZE_MAX], plain[NAME_SIZE_MAX];
    if (!squeeze(name, squeezed))
        return false;
    if (strcmp(squeezed, wanted->squeezed) == 0)
        return true;
    if (wanted->templates || !strchr(squeezed, '<') || strchr(wanted->squeezed, '('))
        return false;
    drop_templates(squeezed, plain);
    return strcmp(plain, wanted->squeezed) == 0;
}

static bool demangled_equals(const struct wanted *wanted, const char *name, size_t base)
{
    char text[TL_DEMANGLED_SIZE];
    // A clone that is named as it is shown, "f(int) [clone .isra.0]", is meant as a whole.
    size_t size = strstr(wanted->pattern, "[clone") ? strlen(name) : base;
    return (tl_demangle_into(text, name, size, false) && compare_demangled(wanted, text)) ||
           (strchr(wanted->pattern, '(') && tl_demangle_into(text, name, size, true) &&
            compare_demangled(wanted, text));
}

static bool version_fits(const struct tl_symbol *symbol, const struct tl_probe_spec *spec)
{
    if (!spec->version)
        return true; // which of several is decided at the end
    return symbol->version && strcmp(symbol->version, spec->version) == 0 &&
           (!spec->version_default || symbol->version_default);
}

static void add_match(struct tl_match_list *out, size_t symbol, unsigned flags)
{
    if (!tl_array_grow(&out->match, &out->capacity, out->count + 1, sizeof *out->match))
        out->failed = true;
    else
        out->match[out->count++] = (struct tl_match){(uint32_t)symbol, (uint8_t)flags};
}

// Symbols by their own name, and clones of it.
static void match_plain(struct tl_symbols *symbols, const struct tl_probe_spec *spec,
                        struct tl_match_list *out)
{
    const char *pattern = spec->function;
    bool cold;
    size_t base = tl_name_base(pattern, &cold), size = strlen(pattern);
    for (uint32_t at = tl_symbols_chain(symbols, pattern, base); at; at = symbols->next[at - 1]) {
        const struct tl_symbol *symbol = &symbols->symbol[at - 1];
        if (strncmp(symbol->name, pattern, base) != 0 || !version_fits(symbol, spec))
            continue;
        size_t symbol_base = tl_name_base(symbol->name, &cold);
        if (strcmp(symbol->name, pattern) == 0) {
            add_match(out, at - 1, cold ? TL_MATCH_COLD : 0);
        } else if (base == size && symbol_base == base) {
            if (cold)
                out->cold++;
            else
                add_match(out, at - 1, TL_MATCH_CLONE);
        }
    }
}

// Symbols by what their mangled names stand for.
static void match_demangled(struct tl_symbols *symbols, const struct tl_probe_spec *spec,
                            struct tl_match_list *out)
{
    if (symbols->mangled_count == 0 || tl_name_mangled(spec->function))
        return;
    struct wanted *wanted = calloc(1, sizeof *wanted);
    if (!wanted) {
        out->failed = true;
        return;
    }
    wanted->pattern = spec->function;
    wanted->templates = strchr(spec->function, '<') && !strstr(spec->function, "operator<");
    bool usable = squeeze(spec->function, wanted->squeezed);
    find_needle(wanted->squeezed, wanted->needle);
    for (size_t i = 0; i < symbols->mangled_count && usable; i++) {
        const struct tl_symbol *symbol = &symbols->symbol[symbols->mangled[i]];
        bool cold;
        if ((wanted->needle[0] && !strstr(symbol->name, wanted->needle)) ||
            !version_fits(symbol, spec))
            continue;
        size_t base = tl_name_base(symbol->name, &cold);
        if (!demangled_equals(wanted, symbol->name, base))
            continue;
        if (cold)
            out->cold++;
        else
            add_match(out, symbols->mangled[i], symbol->name[base] ? TL_MATCH_CLONE : 0);
    }
    free(wanted);
}

// A bare name means the default version; where there is none, what there is.
static void choose_version(const struct tl_symbols *symbols, const struct tl_probe_spec *spec,
                           struct tl_match_list *out, size_t first)
{
    size_t kept = first;
    bool any_default = false;
    if (spec->version)
        return;
    for (size_t i = first; i < out->count; i++) {
        const struct tl_symbol *symbol = &symbols->symbol[out->match[i].symbol];
        any_default |= !symbol->version || symbol->version_default;
    }
    for (size_t i = first; i < out->count; i++) {
        const struct tl_symbol *symbol = &symbols->symbol[out->match[i].symbol];
        bool hidden = symbol->version && !symbol->version_default;
        if (hidden && any_default)
            continue;
        out->match[kept] = out->match[i];
        out->match[kept++].flags |= hidden ? TL_MATCH_VERSION : 0;
    }
    out->count = kept;
}

// --- patterns ---

static bool demangled_glob(const char *pattern, const char *name, size_t base)
{
    char text[TL_DEMANGLED_SIZE];
    return (tl_demangle_into(text, name, base, true) && tl_glob(pattern, text)) ||
           (tl_demangle_into(text, name, base, false) && tl_glob(pattern, text));
}

static bool symbol_glob(const char *pattern, const char *name, size_t base)
{
    if (strcmp(pattern, "*") == 0 || tl_glob(pattern, name))
        return true;
    if (name[base]) {
        char *copy = strndup(name, base);
        bool match = copy && tl_glob(pattern, copy);
        free(copy);
        if (match)
            return true;
    }
    return tl_name_mangled(name) && demangled_glob(pattern, name, base);
}

static void match_wild(struct tl_symbols *symbols, const struct tl_probe_spec *spec,
                       struct tl_match_list *out)
{
    for (size_t i = 0; i < symbols->count && !out->failed; i++) {
        const struct tl_symbol *symbol = &symbols->symbol[i];
        bool cold;
        size_t base = tl_name_base(symbol->name, &cold);
        if (!version_fits(symbol, spec) || !symbol_glob(spec->function, symbol->name, base))
            continue;
        if (cold)
            out->cold++;
        else
            add_match(out, i, symbol->name[base] ? TL_MATCH_CLONE : 0);
    }
}

void tl_match_symbols(struct tl_symbols *symbols, const struct tl_probe_spec *spec,
                      struct tl_match_list *out)
{
    size_t first = out->count;
    bool wild = tl_pattern_wild(spec->function);
    // In a signature or an operator '*' is first of all itself.
    if (!wild || strchr(spec->function, '(') || strstr(spec->function, "operator")) {
        match_plain(symbols, spec, out);
        match_demangled(symbols, spec, out);
        choose_version(symbols, spec, out, first);
    }
    if (wild && out->count == first)
        match_wild(symbols, spec, out);
}

void tl_match_list_deinit(struct tl_match_list *list)
{
    free(list->match);
    *list = (struct tl_match_list){0};
}

// --- near names ---

#define SUGGEST_SYMBOL_MAX 200000u // looked at
#define SUGGEST_DEMANGLED_MAX 200u // turned into text
#define SUGGEST_NAME_MAX 128u      // bytes of a name that is compared

// Edit distance with swaps of neighbours counted as two, case ignored; limit + 1 when it is more
// than limit.
static unsigned distance(const char *left, const char *right, unsigned limit)
{
    size_t rows = strnlen(left, SUGGEST_NAME_MAX), columns = strnlen(right, SUGGEST_NAME_MAX);
    unsigned row[SUGGEST_NAME_MAX + 1];
    if (rows == SUGGEST_NAME_MAX || columns == SUGGEST_NAME_MAX ||
        (rows > columns ? rows - columns : columns - rows) > limit)
        return limit + 1;
    for (size_t j = 0; j <= columns; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= rows; i++) {
        unsigned diagonal = row[0], best = row[0] = (unsigned)i;
        for (size_t j = 1; j <= columns; j++) {
            bool same = tolower((unsigned char)left[i - 1]) == tolower((unsigned char)right[j - 1]);
            unsigned value = diagonal + !same;
            diagonal = row[j];
            if (row[j] + 1 < value)
                value = row[j] + 1;
            if (row[j - 1] + 1 < value)
                value = row[j - 1] + 1;
            row[j] = value;
            if (value < best)
                best = value;
        }
        if (best > limit)
            return limit + 1;
    }
    return row[columns];
}

static void suggest_one(struct tl_suggestions *out, const char *name, unsigned value)
{
    size_t at = out->count;
    for (size_t i = 0; i < out->count; i++) {
        if (strcmp(out->name[i], name) == 0)
            return;
    }
    while (at > 0 && out->distance[at - 1] > value)
        at--;
    if (at == TL_SUGGESTION_COUNT)
        return;
    if (out->count < TL_SUGGESTION_COUNT)
        out->count++;
    for (size_t i = out->count - 1; i > at; i--) {
        out->name[i] = out->name[i - 1];
        out->distance[i] = out->distance[i - 1];
    }
    out->name[at] = name;
    out->distance[at] = value;
}

// Whether one of the identifiers that a mangled name spells out is near to wanted; tells how near.
static bool identifier_near(const char *name, const char *wanted, unsigned limit, unsigned *out)
{
    bool found = false;
    for (const char *at = name; *at; at++) {
        if (!isdigit((unsigned char)*at))
            continue;
        char text[SUGGEST_NAME_MAX];
        size_t size = 0;
        for (; isdigit((unsigned char)*at) && size < SUGGEST_NAME_MAX; at++)
            size = size * 10 + (size_t)(*at - '0');
        if (size == 0 || size >= SUGGEST_NAME_MAX || strnlen(at, size) < size) {
            at--;
            continue;
        }
        memcpy(text, at, size);
        text[size] = 0;
        unsigned value = distance(wanted, text, limit);
        if (value <= limit && (!found || value < *out)) {
            *out = value;
            found = true;
        }
        at += size - 1;
    }
    return found;
}

// The last identifier before parameters and template arguments.
static void last_identifier(const char *wanted, char out[SUGGEST_NAME_MAX])
{
    size_t end = strcspn(wanted, "(<"), start = end;
    while (start > 0 && identifier_byte(wanted[start - 1]))
        start--;
    size_t size = end - start < SUGGEST_NAME_MAX ? end - start : 0;
    memcpy(out, wanted + start, size);
    out[size] = 0;
}

void tl_suggest(const struct tl_symbols *symbols, const char *wanted, struct tl_suggestions *out)
{
    char last[SUGGEST_NAME_MAX] = "";
    last_identifier(wanted, last);
    size_t size = strlen(last);
    unsigned limit = size < 4 ? 1 : size < 9 ? 2 : 3, demangled = 0;
    for (size_t i = 0; i < symbols->count && i < SUGGEST_SYMBOL_MAX; i++) {
        const char *name = symbols->symbol[i].name;
        unsigned value = distance(wanted, name, limit);
        if (value > limit && size >= 4 && strstr(name, wanted))
            value = limit; // it is a part of the name
        const char *text = name;
        // A mangled name is worth its text if one of its identifiers is near.
        if (tl_name_mangled(name) && size > 0 && demangled < SUGGEST_DEMANGLED_MAX &&
            identifier_near(name, last, limit, &value)) {
            demangled++;
            text = tl_demangle(&out->arena, name, true);
            if (!text)
                text = name;
        }
        if (value <= limit)
            suggest_one(out, text, value);
    }
}

// The probe grammar: text to struct tl_probe_spec.
//
// Splits and checks; looks nothing up. C++ and Rust names hold "::", "+", spaces and brackets, so
// FILE ends at the first colon that stands alone, and an offset is a '+' whose rest is a number to
// the end. Invariant: a spec that parses holds exactly one of a function and an address.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "find/find.h"

#define PROBE_TEXT_MAX 8192u // bytes

#define PROBE_FORMS                                                                                \
    "uprobe:FILE:FUNCTION[+OFFSET], uprobe:FILE:0xADDRESS, FUNCTION or FILE:FUNCTION"

static int usage(struct tl_diag *diag, const char *text, const char *reason)
{
    return tl_diag_set(diag, TL_E_USAGE, "probe '%.120s': %s (forms: " PROBE_FORMS ")", text,
                       reason);
}

// Skips "word:" but not "word::".
static bool skip_word(const char **text, const char *word)
{
    size_t size = strlen(word);
    if (strncmp(*text, word, size) != 0 || (*text)[size] != ':' || (*text)[size + 1] == ':')
        return false;
    *text += size + 1;
    return true;
}

// The first ':' that is no part of "::"; of ":::" the first one counts.
static const char *lone_colon(const char *text)
{
    while ((text = strchr(text, ':'))) {
        size_t run = strspn(text, ":");
        if (run % 2 == 1)
            return text;
        text += run;
    }
    return NULL;
}

// Decimal or 0x hexadecimal, to the end of text.
static bool number(const char *text, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    if (hex && !isxdigit((unsigned char)text[2]))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, hex ? 16 : 10);
    if (*end || errno)
        return false;
    *out = value;
    return true;
}

// Cuts "+OFFSET" off name. A '+' of a C++ operator or type is no offset.
static int split_offset(char *name, const char *text, struct tl_probe_spec *spec,
                        struct tl_diag *diag)
{
    char *plus = strrchr(name, '+');
    if (!plus)
        return 0;
    if (number(plus + 1, &spec->offset)) {
        spec->has_offset = true;
        *plus = 0;
        return *name ? 0 : usage(diag, text, "no function before the offset");
    }
    if (strstr(name, "operator"))
        return 0;
    return usage(diag, text, "the offset behind '+' is not a number");
}

static int split_version(char *name, const char *text, struct tl_probe_spec *spec,
                         struct tl_diag *diag)
{
    char *at = strchr(name, '@');
    if (!at)
        return 0;
    *at++ = 0;
    if (*at == '@') {
        spec->version_default = true;
        at++;
    }
    if (!*name || !*at || strchr(at, '@'))
        return usage(diag, text, "a symbol version is written NAME@VERSION");
    spec->version = strdup(at);
    return spec->version ? 0 : tl_diag_set(diag, TL_E_NOMEM, "no memory");
}

static int parse_function(char *name, const char *text, struct tl_probe_spec *spec,
                          struct tl_diag *diag)
{
    if (name[0] == '0' && (name[1] == 'x' || name[1] == 'X')) {
        if (!number(name, &spec->vaddr))
            return usage(diag, text, "the address is not a 64-bit number");
        spec->has_vaddr = true;
        return spec->kind == TL_PROBE_RETURN ? usage(diag, text, "a return probe needs a function")
                                             : 0;
    }
    int error = split_offset(name, text, spec, diag);
    if (!error)
        error = split_version(name, text, spec, diag);
    if (error)
        return error;
    if (spec->has_offset && spec->offset && spec->kind == TL_PROBE_RETURN)
        return usage(diag, text, "a return probe takes no offset");
    size_t size = strlen(name);
    if (size >= 2 && name[0] == '"' && name[size - 1] == '"') { // bpftrace's quotes
        name[size - 1] = 0;
        name++;
    }
    if (strncmp(name, "::", 2) == 0)
        name += 2; // the global namespace, written out
    size = strlen(name);
    if (size == 0 || (size >= 2 && strcmp(name + size - 2, "::") == 0))
        return usage(diag, text, "the function is empty");
    spec->function = strdup(name);
    return spec->function ? 0 : tl_diag_set(diag, TL_E_NOMEM, "no memory");
}

static int check_text(const char *text, struct tl_diag *diag)
{
    static const char *const others[] = {"usdt",       "kprobe",  "kretprobe",
                                         "tracepoint", "tracefs", "profile",
                                         "fentry",     "fexit",   "rawtracepoint"};
    size_t size = strnlen(text, PROBE_TEXT_MAX + 1);
    if (size == 0)
        return usage(diag, text, "it is empty");
    if (size > PROBE_TEXT_MAX)
        return usage(diag, text, "it is too long");
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return usage(diag, "...", "it holds a control character");
    }
    for (size_t i = 0; i < TL_ARRAY_COUNT(others); i++) {
        if (skip_word(&text, others[i]))
            return usage(diag, text, "only uprobe and uretprobe are probed");
    }
    return 0;
}

int tl_probe_parse(const char *text, struct tl_probe_spec *out, struct tl_diag *diag)
{
    struct tl_probe_spec spec = {.kind = TL_PROBE_ENTRY};
    int error = check_text(text, diag);
    if (error)
        return error;
    const char *rest = text;
    bool prefixed = skip_word(&rest, "uprobe");
    if (!prefixed && skip_word(&rest, "uretprobe")) {
        prefixed = true;
        spec.kind = TL_PROBE_RETURN;
    }
    const char *colon = lone_colon(rest);
    if (prefixed && !colon && strncmp(rest, "0x", 2) == 0)
        return usage(diag, text, "an address needs FILE before it");
    if (colon && colon == rest)
        return usage(diag, text, "FILE is empty");
    if (colon) {
        spec.file = strndup(rest, (size_t)(colon - rest));
        rest = colon + 1;
    }
    char *name = strdup(rest);
    if (!name || (colon && !spec.file))
        error = tl_diag_set(diag, TL_E_NOMEM, "no memory");
    else
        error = parse_function(name, text, &spec, diag);
    free(name);
    if (error) {
        tl_probe_spec_deinit(&spec);
        return error;
    }
    *out = spec;
    return 0;
}

void tl_probe_spec_deinit(struct tl_probe_spec *spec)
{
    free(spec->file);
    free(spec->function);
    free(spec->version);
    *spec = (struct tl_probe_spec){0};
}

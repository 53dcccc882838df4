// What compilers hang onto a function's name when they make another version of it.
//
// Knows the suffixes of gcc and clang; a dot that starts none of them belongs to the name (Go,
// hand-written code). Pure.
#include <ctype.h>
#include <string.h>

#include "find/symbols.h"

// ".constprop.0" and the like: the word, then dots and digits, or nothing.
static size_t clone_suffix(const char *at, bool *cold)
{
    static const char *const words[] = {".constprop",    ".isra", ".part",  ".cold",
                                        ".lto_priv",     ".llvm", ".clone", ".localalias",
                                        ".localversion", ".warm"};
    for (size_t i = 0; i < TL_ARRAY_COUNT(words); i++) {
        size_t size = strlen(words[i]);
        if (strncmp(at, words[i], size) != 0)
            continue;
        if (at[size] == '.' && isdigit((unsigned char)at[size + 1])) {
            size++;
            while (isdigit((unsigned char)at[size]))
                size++;
        }
        if (at[size] && at[size] != '.')
            continue; // only the start of another word
        if (strcmp(words[i], ".cold") == 0)
            *cold = true;
        return size;
    }
    return 0;
}

size_t tl_name_base(const char *name, bool *cold)
{
    *cold = false;
    for (const char *dot = strchr(name + (name[0] == '.'), '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t size;
        const char *at = dot;
        *cold = false;
        while ((size = clone_suffix(at, cold)) > 0)
            at += size;
        if (!*at && at != dot)
            return (size_t)(dot - name);
    }
    *cold = false;
    return strlen(name);
}

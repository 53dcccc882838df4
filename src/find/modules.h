// The list of modules, as sites.c needs it. Internal to find.
#ifndef TL_FIND_MODULES_H
#define TL_FIND_MODULES_H

#include "find/image.h"

struct tl_modules {
    struct tl_module *module;
    size_t count, capacity;
    size_t *order; // indices as the dynamic linker searches: the program, then what it needs
    char *notes;
    struct tl_range vdso; // of the process; empty: none
    pid_t pid;
};

// What stands behind the last slash.
const char *tl_path_base(const char *path);

// Appends "; " (or separator) and text to *list. false: no memory.
bool tl_text_append(char **list, const char *separator, const char *text);

// Marks in chosen[] the modules that FILE means, and returns how many. note (may stay NULL, else
// freed by the caller) says what was not obvious.
size_t tl_modules_choose(const struct tl_modules *modules, const char *file, bool *chosen,
                         char **note);

#endif

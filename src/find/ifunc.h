// The implementations that an IFUNC of a running process was resolved to. Internal to find.
#ifndef TL_FIND_IFUNC_H
#define TL_FIND_IFUNC_H

#include "find/find.h"

#define TL_IFUNC_FOUND_MAX 8u

struct tl_ifunc_found {
    tl_addr vaddr[TL_IFUNC_FOUND_MAX]; // in the module that defines the IFUNC
    size_t count;
};

// Looks through the relocated words of all modules. count 0: nothing has bound it yet, or no
// process is read.
void tl_ifunc_find(const struct tl_find_context *context, size_t module,
                   const struct tl_symbol *symbol, struct tl_ifunc_found *out);

#endif

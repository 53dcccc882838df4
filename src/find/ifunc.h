// The implementations that IFUNCs of a running process were resolved to. Internal to find.
#ifndef TL_FIND_IFUNC_H
#define TL_FIND_IFUNC_H

#include "find/find.h"

#define TL_IFUNC_FOUND_MAX 8u

struct tl_ifunc {
    const struct tl_symbol *symbol;    // in: the IFUNC
    tl_addr vaddr[TL_IFUNC_FOUND_MAX]; // out: implementations in the module that defines it
    size_t count;
    bool vdso;      // bound to the vDSO
    bool elsewhere; // bound to another module's function of the name
};

// Looks once through the relocated words of all modules, for all IFUNCs of one module. count 0 and
// no flag: nothing has bound it yet, or no process is read.
void tl_ifunc_find(const struct tl_find_context *context, size_t module, struct tl_ifunc *ifunc,
                   size_t count);

#endif

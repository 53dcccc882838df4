// Gives sites of one name different probe names: several functions of one name in one file are each
// named by address, so that every probe text of a report means one place.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "find/modules.h"

static int probe_compare(const void *one, const void *two)
{
    const struct tl_site *const *a = one, *const *b = two;
    return strcmp((*a)->probe, (*b)->probe);
}

static int probe_by_addr(const struct tl_modules *modules, struct tl_site *site)
{
    char *probe = NULL;
    if (site->module >= modules->count)
        return 0;
    if (asprintf(&probe, "%s:%s:0x%llx", site->kind == TL_PROBE_RETURN ? "uretprobe" : "uprobe",
                 modules->module[site->module].path, (unsigned long long)site->vaddr) < 0)
        return TL_E_NOMEM;
    free(site->probe);
    site->probe = probe;
    return 0;
}

int tl_sites_distinct(const struct tl_modules *modules, struct tl_sites *sites,
                      struct tl_diag *diag)
{
    size_t count = 0;
    struct tl_site **order = calloc(sites->count + 1, sizeof *order);
    int error = order ? 0 : TL_E_NOMEM;
    for (size_t i = 0; !error && i < sites->count; i++) {
        if (sites->site[i].probe)
            order[count++] = &sites->site[i];
    }
    if (order)
        qsort(order, count, sizeof *order, probe_compare);
    for (size_t first = 0, last; !error && first < count; first = last) {
        for (last = first + 1; last < count && !strcmp(order[first]->probe, order[last]->probe);)
            last++;
        for (size_t i = last; !error && last - first > 1 && i-- > first;)
            error = probe_by_addr(modules, order[i]);
    }
    free(order);
    return error ? tl_diag_set(diag, error, "out of memory for %zu sites", sites->count) : 0;
}

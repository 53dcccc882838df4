// Replaces matched functions by all their instructions, for `explain --all`.
#include "session/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION_INSNS_MAX (1u << 20) // one function longer than this is cut, and noted

static void site_deinit(struct tl_site *site)
{
    free(site->probe);
    free(site->names);
    free(site->note);
}

static char *text_offset(const char *text, uint64_t offset)
{
    char *out = NULL;
    if (!offset)
        return strdup(text);
    return asprintf(&out, "%s+0x%llx", text, (unsigned long long)offset) < 0 ? NULL : out;
}

// Appends the instructions at vaddrs[] of the function that `from` is the entry of.
static int insns_append(struct tl_sites *out, const struct tl_site *from, const tl_addr *vaddrs,
                        size_t count)
{
    struct tl_site *grown = realloc(out->site, (out->count + count) * sizeof *grown);
    if (!grown)
        return TL_E_NOMEM;
    out->site = grown;
    out->capacity = out->count + count;
    for (size_t i = 0; i < count; i++) {
        struct tl_site *site = &out->site[out->count++];
        uint64_t offset = vaddrs[i] - from->function;
        *site = *from;
        site->vaddr = vaddrs[i];
        site->addr = from->addr + (vaddrs[i] - from->vaddr);
        site->entry = vaddrs[i] == from->vaddr;
        site->refusal = TL_REFUSE_NONE;
        site->note = NULL;
        site->probe = text_offset(from->probe, offset);
        site->names = text_offset(from->names, offset);
        if (!site->probe || !site->names)
            return TL_E_NOMEM;
    }
    return 0;
}

int tl_session_expand(struct tl_batch *batch, struct tl_diag *diag)
{
    struct tl_sites old = batch->sites, all = {0};
    tl_addr *vaddrs = calloc(FUNCTION_INSNS_MAX, sizeof *vaddrs);
    int error = vaddrs ? 0 : TL_E_NOMEM;
    for (size_t i = 0; !error && i < old.count; i++) {
        struct tl_site *site = &old.site[i];
        struct tl_module *module = tl_modules_get(batch->modules, site->module);
        size_t count = 0;
        if (site->entry && !tl_module_analyse(module, NULL))
            count = tl_analysis_insns(module->analysis, site->function, vaddrs, FUNCTION_INSNS_MAX);
        if (count > FUNCTION_INSNS_MAX) {
            tl_session_note(batch->session, "%s: only its first %u instructions are shown\n", site->names,
                            FUNCTION_INSNS_MAX);
            count = FUNCTION_INSNS_MAX;
        }
        if (!count) {
            vaddrs[0] = site->vaddr;
            count = 1;
        }
        error = insns_append(&all, site, vaddrs, count);
    }
    free(vaddrs);
    for (size_t i = 0; i < old.count; i++)
        site_deinit(&old.site[i]);
    free(old.site);
    batch->sites = all;
    return error ? tl_diag_set(diag, error, "out of memory for %zu sites", all.count) : 0;
}

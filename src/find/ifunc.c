// Finds which implementation of an IFUNC a process uses, from the words that its dynamic linker
// filled in.
//
// A word counts only if its relocation asks for this symbol (and version) or names this resolver,
// and if it holds an address in the code of the defining module that is not what the file had there
// (a slot that was never used still points into a linkage stub). Runs nothing in the target; reads
// words. Invariant: the resolver itself is never an answer.
#include "find/ifunc.h"

#include <string.h>

#include "find/facts.h"
#include "find/modules.h"
#include "find/symbols.h"

struct search {
    const struct tl_find_context *context;
    const struct tl_module *owner; // defines the IFUNC
    const struct tl_module *user;  // whose relocations are read
    const struct tl_symbol *symbol;
    struct tl_ifunc_found *out;
};

static bool asks_for(const struct search *search, const struct tl_elf_reloc *reloc)
{
    const struct tl_symbol *symbol = search->symbol;
    if (reloc->kind == TL_ELF_IRELATIVE)
        return search->user == search->owner && reloc->addend == symbol->vaddr;
    if (reloc->kind != TL_ELF_SYMBOL || (!reloc->slot && reloc->addend) ||
        strcmp(reloc->symbol, symbol->name) != 0)
        return false;
    if (reloc->version && symbol->version)
        return strcmp(reloc->version, symbol->version) == 0;
    return !symbol->version || symbol->version_default; // asked without a version: the default
}

static void add_found(struct search *search, tl_addr vaddr)
{
    struct tl_ifunc_found *out = search->out;
    for (size_t i = 0; i < out->count; i++) {
        if (out->vaddr[i] == vaddr)
            return;
    }
    if (out->count < TL_IFUNC_FOUND_MAX)
        out->vaddr[out->count++] = vaddr;
}

static bool visit(void *opaque, const struct tl_elf_reloc *reloc)
{
    struct search *search = opaque;
    const struct tl_image *owner = search->owner->image;
    uint64_t value, before = 0;
    if (!asks_for(search, reloc))
        return true;
    tl_addr slot = reloc->vaddr + (uint64_t)search->user->bias;
    if (search->context->read(search->context->opaque, slot, &value, sizeof value) != 0)
        return true;
    (void)tl_view_read(tl_image_view_at(search->user->image, reloc->vaddr), 0, &before,
                       sizeof before);
    if (value == before || value == before + (uint64_t)search->user->bias)
        return true; // not bound yet
    tl_addr vaddr = value - (uint64_t)search->owner->bias;
    const char *section = tl_image_section_at(owner, vaddr);
    bool stub = section && strncmp(section, ".plt", 4) == 0;
    if (tl_image_text_at(owner, vaddr) && !stub && vaddr != search->symbol->vaddr)
        add_found(search, vaddr);
    return true;
}

void tl_ifunc_find(const struct tl_find_context *context, size_t module,
                   const struct tl_symbol *symbol, struct tl_ifunc_found *out)
{
    struct search search = {.context = context,
                            .owner = &context->modules->module[module],
                            .symbol = symbol,
                            .out = out};
    *out = (struct tl_ifunc_found){0};
    if (!context->pid || !context->read)
        return;
    for (size_t i = 0; i < context->modules->count; i++) {
        search.user = &context->modules->module[i];
        (void)tl_relocs_each(search.user->image, visit, &search, NULL);
    }
}

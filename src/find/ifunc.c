// Finds which implementation of an IFUNC a process uses, from the words that its dynamic linker
// filled in.
//
// A word counts only if its relocation asks for this symbol (and version) or names this resolver,
// and if it holds an address in the code of the defining module that is not what the file had there
// (a slot that was never used still points into a linkage stub). Runs nothing in the target; reads
// words. Invariant: the resolver itself is never an answer.
#include "find/ifunc.h"

#include <stdlib.h>
#include <string.h>

#include "find/facts.h"
#include "find/modules.h"
#include "find/symbols.h"

struct search {
    const struct tl_find_context *context;
    const struct tl_module *owner; // defines the IFUNCs
    const struct tl_module *user;  // whose relocations are read
    struct tl_ifunc *ifunc;
    size_t count;
    uint32_t *index; // hash of names: position + 1
    size_t index_size;
};

static uint64_t name_hash(const char *name)
{
    uint64_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash ^ hash >> 17;
}

static bool index_build(struct search *search)
{
    search->index_size = 64;
    while (search->index_size < search->count * 2)
        search->index_size *= 2;
    search->index = calloc(search->index_size, sizeof *search->index);
    for (size_t i = 0; i < search->count && search->index; i++) {
        uint64_t at = name_hash(search->ifunc[i].symbol->name);
        while (search->index[at & (search->index_size - 1)])
            at++;
        search->index[at & (search->index_size - 1)] = (uint32_t)i + 1;
    }
    return search->index != NULL;
}

static bool symbol_wanted(const struct tl_symbol *symbol, const struct tl_elf_reloc *reloc)
{
    if (strcmp(reloc->symbol, symbol->name) != 0)
        return false;
    if (reloc->version && symbol->version)
        return strcmp(reloc->version, symbol->version) == 0;
    return !symbol->version || symbol->version_default; // asked without a version: the default
}

static void found(const struct search *search, struct tl_ifunc *ifunc, tl_addr value)
{
    const struct tl_modules *modules = search->context->modules;
    const struct tl_image *owner = search->owner->image;
    tl_addr vaddr = value - (uint64_t)search->owner->bias;
    const char *section = tl_image_section_at(owner, vaddr);
    bool stub = section && strncmp(section, ".plt", 4) == 0;
    if (stub || vaddr == ifunc->symbol->vaddr)
        return;
    if (!tl_image_text_at(owner, vaddr)) {
        ifunc->vdso |= value >= modules->vdso.start && value < modules->vdso.end;
        for (size_t i = 0; i < modules->count; i++) {
            const struct tl_module *other = &modules->module[i];
            if (other != search->user &&
                tl_image_text_at(other->image, value - (uint64_t)other->bias))
                ifunc->elsewhere = true;
        }
        return;
    }
    for (size_t i = 0; i < ifunc->count; i++) {
        if (ifunc->vaddr[i] == vaddr)
            return;
    }
    if (ifunc->count < TL_IFUNC_FOUND_MAX)
        ifunc->vaddr[ifunc->count++] = vaddr;
}

// Reads the word of a relocation that concerns ifunc.
static void look(const struct search *search, struct tl_ifunc *ifunc,
                 const struct tl_elf_reloc *reloc)
{
    uint64_t value, before = 0;
    tl_addr slot = reloc->vaddr + (uint64_t)search->user->bias;
    if (search->context->read(search->context->opaque, slot, &value, sizeof value) != 0)
        return;
    (void)tl_view_read(tl_image_view_at(search->user->image, reloc->vaddr), 0, &before,
                       sizeof before);
    if (value != before && value != before + (uint64_t)search->user->bias) // else not bound yet
        found(search, ifunc, value);
}

static bool visit(void *opaque, const struct tl_elf_reloc *reloc)
{
    const struct search *search = opaque;
    if (reloc->kind == TL_ELF_IRELATIVE) {
        for (size_t i = 0; i < search->count && search->user == search->owner; i++) {
            if (search->ifunc[i].symbol->vaddr == reloc->addend)
                look(search, &search->ifunc[i], reloc);
        }
    } else if (reloc->kind == TL_ELF_SYMBOL && (reloc->slot || !reloc->addend)) {
        uint64_t at = name_hash(reloc->symbol);
        uint32_t position;
        for (; (position = search->index[at & (search->index_size - 1)]); at++) {
            if (symbol_wanted(search->ifunc[position - 1].symbol, reloc))
                look(search, &search->ifunc[position - 1], reloc);
        }
    }
    return true;
}

void tl_ifunc_find(const struct tl_find_context *context, size_t module, struct tl_ifunc *ifunc,
                   size_t count)
{
    struct search search = {.context = context,
                            .owner = &context->modules->module[module],
                            .ifunc = ifunc,
                            .count = count};
    if (!context->pid || !context->read || count == 0 || !index_build(&search))
        return;
    for (size_t i = 0; i < context->modules->count; i++) {
        search.user = &context->modules->module[i];
        (void)tl_relocs_each(search.user->image, visit, &search, NULL);
    }
    free(search.index);
}

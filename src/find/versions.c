// Symbol version names by index: those that an image defines and those that it asks of others.
//
// Reads through section headers, and through dynamic entries where there are none. Malformed
// records end the list. Invariant: a walk never takes more steps than there are version indices.
#include <stdlib.h>

#include "find/symbols.h"

#define VERSION_COUNT_MAX 32768u // indices have 15 bits

struct source {
    struct tl_view records, strings;
};

static struct source source_of(const struct tl_image *image, uint32_t type, tl_addr vaddr)
{
    const struct tl_section *section = tl_image_section_typed(image, type);
    struct source source = {0};
    if (section && section->link < image->section_count) {
        source.records = tl_image_section_view(image, section);
        source.strings = tl_image_section_view(image, &image->section[section->link]);
    } else if (vaddr) {
        source.records = tl_image_view_at(image, vaddr);
        source.strings = tl_image_view_at(image, image->dynamic.strtab);
    }
    return source;
}

static void set_name(struct tl_versions *out, unsigned index, const char *name)
{
    size_t capacity = out->count;
    index &= VERSION_COUNT_MAX - 1;
    if (index >= out->count) {
        if (!tl_array_grow(&out->name, &capacity, index + 1, sizeof *out->name)) {
            out->failed = true;
            return;
        }
        for (size_t i = out->count; i < capacity; i++)
            out->name[i] = NULL;
        out->count = capacity;
    }
    out->name[index] = name;
}

static void read_defined(const struct source *source, struct tl_versions *out)
{
    uint64_t at = 0;
    Elf64_Verdef def;
    Elf64_Verdaux aux;
    for (unsigned i = 0; i < VERSION_COUNT_MAX; i++) {
        if (!tl_view_read(source->records, at, &def, sizeof def))
            return;
        if (!(def.vd_flags & VER_FLG_BASE) &&
            tl_view_read(source->records, at + def.vd_aux, &aux, sizeof aux))
            set_name(out, def.vd_ndx, tl_view_string(source->strings, aux.vda_name));
        if (def.vd_next == 0)
            return;
        at += def.vd_next;
    }
}

static void read_needed(const struct source *source, struct tl_versions *out)
{
    uint64_t at = 0;
    unsigned steps = 0;
    Elf64_Verneed need;
    Elf64_Vernaux aux;
    while (steps++ < VERSION_COUNT_MAX && tl_view_read(source->records, at, &need, sizeof need)) {
        uint64_t inner = at + need.vn_aux;
        for (unsigned i = 0; i < need.vn_cnt && steps++ < VERSION_COUNT_MAX; i++) {
            if (!tl_view_read(source->records, inner, &aux, sizeof aux))
                return;
            set_name(out, aux.vna_other, tl_view_string(source->strings, aux.vna_name));
            if (aux.vna_next == 0)
                break;
            inner += aux.vna_next;
        }
        if (need.vn_next == 0)
            return;
        at += need.vn_next;
    }
}

bool tl_versions_read(const struct tl_image *image, struct tl_versions *out)
{
    struct source defined = source_of(image, SHT_GNU_verdef, image->dynamic.verdef);
    struct source needed = source_of(image, SHT_GNU_verneed, image->dynamic.verneed);
    *out = (struct tl_versions){0};
    read_defined(&defined, out);
    read_needed(&needed, out);
    return !out->failed;
}

void tl_versions_deinit(struct tl_versions *versions)
{
    free(versions->name);
    *versions = (struct tl_versions){0};
}

const char *tl_versions_name(const struct tl_versions *versions, uint16_t raw)
{
    unsigned index = raw & ~TL_VERSION_HIDDEN;
    return index < versions->count ? versions->name[index] : NULL;
}

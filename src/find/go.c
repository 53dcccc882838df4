// Programs made by Go's own compiler: which, and where their Go code lies. Reads the header of the
// table that Go's runtime finds functions by, and nothing else of it. Keeps: no address of Go code
// is outside the answer; where the table isn't understood, all text counts as Go.
#include "find/facts.h"

#include <string.h>

// runtime/symtab.go, type pcHeader. Go 1.18 and 1.19, Go 1.20 and later.
#define PCLN_MAGIC_118 0xfffffff0u
#define PCLN_MAGIC_120 0xfffffff1u
#define PCLN_POINTER_SIZE_OFF 7u
#define PCLN_FUNCTIONS_OFF 8u
#define PCLN_TEXT_OFF 24u
#define PCLN_TABLE_OFF 64u
#define PCLN_ENTRY_SIZE 8u // offset of a function in the text, offset of its description
#define PCLN_FUNCTIONS_MAX (1u << 24)

static const struct tl_section *table_section(const struct tl_image *image)
{
    static const char *const names[] = {".gopclntab", ".data.rel.ro.gopclntab"};
    for (size_t i = 0; i < TL_ARRAY_COUNT(names); i++) {
        const struct tl_section *section = tl_image_section_named(image, names[i]);
        if (section && section->flags & SHF_ALLOC)
            return section;
    }
    return NULL;
}

bool tl_image_go(const struct tl_image *image)
{
    return image->go_note || table_section(image) || tl_image_section_named(image, ".go.buildinfo");
}

static struct tl_range all_text(const struct tl_image *image)
{
    struct tl_range range = {UINT64_MAX, 0};
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct tl_segment *segment = &image->segment[i];
        if (!(segment->prot & TL_PROT_EXEC))
            continue;
        tl_addr end = segment->vaddr + segment->file_size;
        range.start = segment->vaddr < range.start ? segment->vaddr : range.start;
        range.end = end > range.end ? end : range.end;
    }
    return range.end > range.start ? range : (struct tl_range){0};
}

static bool table_read(struct tl_view table, struct tl_range *out)
{
    uint32_t magic, size;
    uint8_t pointer_size;
    uint64_t functions, text, off;
    if (!tl_view_read(table, 0, &magic, sizeof magic) ||
        (magic != PCLN_MAGIC_118 && magic != PCLN_MAGIC_120) ||
        !tl_view_read(table, PCLN_POINTER_SIZE_OFF, &pointer_size, sizeof pointer_size) ||
        pointer_size != sizeof(uint64_t) ||
        !tl_view_read(table, PCLN_FUNCTIONS_OFF, &functions, sizeof functions) ||
        !tl_view_read(table, PCLN_TEXT_OFF, &text, sizeof text) ||
        !tl_view_read(table, PCLN_TABLE_OFF, &off, sizeof off) || functions > PCLN_FUNCTIONS_MAX ||
        off > table.size ||
        !tl_view_read(table, off + functions * PCLN_ENTRY_SIZE, &size, sizeof size))
        return false;
    *out = (struct tl_range){text, text + size};
    return out->end > out->start;
}

struct tl_range tl_go_text(const struct tl_image *image, const struct tl_runs *runs)
{
    if (!tl_image_go(image))
        return (struct tl_range){0};
    const struct tl_section *section = table_section(image);
    struct tl_range range;
    if (section && table_read(tl_runs_view_at(image, runs, section->vaddr), &range) &&
        tl_image_text_at(image, range.start) && tl_image_text_at(image, range.end - 1))
        return range;
    return all_text(image);
}

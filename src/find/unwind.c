// Reads .eh_frame for the extents of functions, and their call-site tables for landing pads.
//
// Follows the Linux Standard Base, "Exception Frames", and for call-site tables what gcc emits.
// Runs no unwind program. Fails closed: what can't be read makes the whole module's facts fail,
// since a landing pad that is missed is a branch target that is missed. Invariant: each step moves
// forward inside one view.
#include <string.h>

#include "find/facts.h"

// DW_EH_PE_* of the Linux Standard Base, "DWARF Exception Header Encoding".
enum {
    PE_ABSPTR = 0x00,
    PE_ULEB128 = 0x01,
    PE_UDATA2 = 0x02,
    PE_UDATA4 = 0x03,
    PE_UDATA8 = 0x04,
    PE_SLEB128 = 0x09,
    PE_SDATA2 = 0x0a,
    PE_SDATA4 = 0x0b,
    PE_SDATA8 = 0x0c,
    PE_FORMAT = 0x0f,
    PE_PCREL = 0x10,
    PE_APPLICATION = 0x70,
    PE_INDIRECT = 0x80,
    PE_OMIT = 0xff,
};

#define AUGMENTATION_SIZE_MAX 32u

// A place in a view whose first byte is at vaddr. A failed read sets bad and gives 0.
struct cursor {
    struct tl_view view;
    tl_addr vaddr;
    uint64_t at;
    bool bad;
};

struct reader {
    const struct tl_image *image;
    const struct tl_runs *runs;
    struct tl_range_list *functions;
    struct tl_vaddr_list *landing_pads;
    size_t call_sites; // read so far, under TL_FACTS_COUNT_MAX
    // The CIE that the last FDE used; most share one.
    uint64_t cie_at;
    bool cie_known, augmented;
    uint8_t pointer_encoding, lsda_encoding;
};

static uint64_t fixed(struct cursor *cursor, unsigned size)
{
    uint64_t value = 0;
    if (!tl_view_read(cursor->view, cursor->at, &value, size)) {
        cursor->bad = true;
        return 0;
    }
    cursor->at += size;
    return value;
}

static uint64_t leb128(struct cursor *cursor, bool is_signed)
{
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte;
    do {
        byte = (uint8_t)fixed(cursor, 1);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80 && !cursor->bad);
    if (is_signed && shift < 64 && byte & 0x40)
        value |= ~(uint64_t)0 << shift;
    return value;
}

static uint64_t encoded_value(struct cursor *cursor, uint8_t encoding)
{
    switch (encoding & PE_FORMAT) {
    case PE_ABSPTR:
    case PE_UDATA8:
    case PE_SDATA8:
        return fixed(cursor, 8);
    case PE_ULEB128:
        return leb128(cursor, false);
    case PE_SLEB128:
        return leb128(cursor, true);
    case PE_UDATA2:
        return fixed(cursor, 2);
    case PE_SDATA2:
        return (uint64_t)(int16_t)fixed(cursor, 2);
    case PE_UDATA4:
        return fixed(cursor, 4);
    case PE_SDATA4:
        return (uint64_t)(int32_t)fixed(cursor, 4);
    default:
        cursor->bad = true;
        return 0;
    }
}

// An address. 0 stays 0, whatever it is relative to: it means none.
static tl_addr encoded(struct cursor *cursor, uint8_t encoding)
{
    tl_addr here = cursor->vaddr + cursor->at;
    uint64_t value = encoded_value(cursor, encoding);
    uint8_t application = encoding & PE_APPLICATION;
    if (application != 0 && application != PE_PCREL)
        cursor->bad = true; // text, data or function relative: not used on x86-64 and arm64
    if (value == 0 || cursor->bad)
        return 0;
    return application == PE_PCREL ? here + value : value;
}

static tl_addr indirect(struct reader *reader, tl_addr vaddr)
{
    uint64_t value;
    return tl_view_read(tl_runs_view_at(reader->image, reader->runs, vaddr), 0, &value,
                        sizeof value)
               ? value
               : 0;
}

// One function's language-specific data. function: the start its call sites are relative to.
static bool read_lsda(struct reader *reader, tl_addr lsda, tl_addr function)
{
    struct cursor cursor = {.view = tl_runs_view_at(reader->image, reader->runs, lsda),
                            .vaddr = lsda};
    uint8_t encoding = (uint8_t)fixed(&cursor, 1);
    tl_addr base = encoding == PE_OMIT ? function : encoded(&cursor, encoding);
    encoding = (uint8_t)fixed(&cursor, 1);
    if (encoding != PE_OMIT)
        (void)leb128(&cursor, false); // where the types are
    encoding = (uint8_t)fixed(&cursor, 1);
    uint64_t size = leb128(&cursor, false);
    if (cursor.bad || size > cursor.view.size - cursor.at)
        return false;
    uint64_t end = cursor.at + size;
    while (cursor.at < end) {
        (void)encoded_value(&cursor, encoding); // start
        (void)encoded_value(&cursor, encoding); // length
        uint64_t pad = encoded_value(&cursor, encoding);
        (void)leb128(&cursor, false); // action
        if (cursor.bad || ++reader->call_sites > TL_FACTS_COUNT_MAX)
            return false;
        if (pad && tl_image_text_at(reader->image, base + pad))
            tl_vaddr_list_add(reader->landing_pads, base + pad);
    }
    return true;
}

static bool augmentation_read(struct reader *reader, struct cursor *cursor,
                              const char *augmentation)
{
    (void)leb128(cursor, false); // size of what follows
    for (const char *letter = augmentation + 1; *letter; letter++) {
        uint8_t encoding;
        switch (*letter) {
        case 'L':
            reader->lsda_encoding = (uint8_t)fixed(cursor, 1);
            break;
        case 'R':
            reader->pointer_encoding = (uint8_t)fixed(cursor, 1);
            break;
        case 'P':
            encoding = (uint8_t)fixed(cursor, 1);
            (void)encoded_value(cursor, encoding);
            break;
        case 'S': // signal frame
        case 'B': // signed return addresses
        case 'G': // memory tags
            break;
        default:
            return false;
        }
    }
    return !cursor->bad;
}

static bool cie_read(struct reader *reader, struct tl_view view, tl_addr vaddr, uint64_t at)
{
    if (reader->cie_known && reader->cie_at == at)
        return true;
    struct cursor cursor = {.view = view, .vaddr = vaddr, .at = at};
    char augmentation[AUGMENTATION_SIZE_MAX];
    uint64_t length = fixed(&cursor, 4);
    if (length == UINT32_MAX)
        (void)fixed(&cursor, 8);
    if (fixed(&cursor, 4) != 0 || cursor.bad)
        return false; // no CIE
    uint8_t version = (uint8_t)fixed(&cursor, 1);
    const char *text = tl_view_string(view, cursor.at);
    if (cursor.bad || (version != 1 && version != 3) || !text ||
        strlen(text) >= sizeof augmentation)
        return false;
    memcpy(augmentation, text, strlen(text) + 1);
    cursor.at += strlen(text) + 1;
    if (strcmp(augmentation, "eh") == 0)
        (void)fixed(&cursor, 8);  // gcc 2
    (void)leb128(&cursor, false); // code alignment
    (void)leb128(&cursor, true);  // data alignment
    if (version == 1)
        (void)fixed(&cursor, 1);
    else
        (void)leb128(&cursor, false);
    reader->pointer_encoding = PE_ABSPTR;
    reader->lsda_encoding = PE_OMIT;
    reader->augmented = augmentation[0] == 'z';
    if (reader->augmented && !augmentation_read(reader, &cursor, augmentation))
        return false;
    reader->cie_at = at;
    reader->cie_known =
        !cursor.bad && (reader->augmented || !augmentation[0] || augmentation[0] == 'e');
    return reader->cie_known;
}

static bool fde_read(struct reader *reader, struct cursor *cursor)
{
    tl_addr start = encoded(cursor, reader->pointer_encoding);
    uint64_t size = encoded_value(cursor, reader->pointer_encoding & PE_FORMAT);
    if (cursor->bad)
        return false;
    const struct tl_segment *text = tl_image_text_at(reader->image, start);
    if (!text || size == 0)
        return true; // of a function that the linker dropped
    uint64_t rest = text->file_size - (start - text->vaddr);
    tl_range_list_add(reader->functions, start, start + (size < rest ? size : rest));
    if (!reader->augmented || reader->lsda_encoding == PE_OMIT)
        return true;
    if (leb128(cursor, false) == 0)
        return !cursor->bad;
    tl_addr lsda = encoded(cursor, reader->lsda_encoding & (uint8_t)~PE_INDIRECT);
    if (lsda && reader->lsda_encoding & PE_INDIRECT)
        lsda = indirect(reader, lsda);
    return !cursor->bad && (lsda == 0 || read_lsda(reader, lsda, start));
}

// .eh_frame by its section; without section headers by the pointer in .eh_frame_hdr.
static bool frame_find(const struct tl_image *image, const struct tl_runs *runs, struct cursor *out)
{
    const struct tl_section *section = tl_image_section_named(image, ".eh_frame");
    *out = (struct cursor){0};
    if (section && section->flags & SHF_ALLOC) {
        out->vaddr = section->vaddr;
        out->view = tl_runs_view_at(image, runs, section->vaddr);
        if (out->view.size > section->size)
            out->view.size = section->size;
        return out->view.size > 0 || section->size == 0 || section->type == SHT_NOBITS;
    }
    if (image->section_count > 0 || !image->eh_frame_hdr)
        return true;
    struct cursor head = {.view = tl_runs_view_at(image, runs, image->eh_frame_hdr),
                          .vaddr = image->eh_frame_hdr};
    uint8_t version = (uint8_t)fixed(&head, 1), encoding = (uint8_t)fixed(&head, 1);
    (void)fixed(&head, 2); // encodings of the table, which is not needed
    if (version != 1 || encoding == PE_OMIT)
        return false;
    // Relative to the header itself would be legal; linkers write it relative to the field.
    out->vaddr = encoded(&head, encoding);
    out->view = tl_runs_view_at(image, runs, out->vaddr);
    return !head.bad;
}

int tl_unwind_read(const struct tl_image *image, const struct tl_runs *runs,
                   struct tl_range_list *functions, struct tl_vaddr_list *landing_pads,
                   struct tl_diag *diag)
{
    struct reader reader = {
        .image = image, .runs = runs, .functions = functions, .landing_pads = landing_pads};
    struct cursor frame;
    bool good = frame_find(image, runs, &frame);
    while (good && frame.at < frame.view.size) {
        uint64_t length = fixed(&frame, 4);
        if (length == 0)
            break; // the terminator
        bool wide = length == UINT32_MAX;
        if (wide)
            length = fixed(&frame, 8);
        uint64_t id_at = frame.at;
        good = !frame.bad && length >= 4 && length <= frame.view.size - frame.at;
        if (!good)
            break;
        uint64_t id = fixed(&frame, 4);
        if (id != 0) {
            struct cursor entry = frame;
            entry.view.size = id_at + length;
            good = id <= id_at && cie_read(&reader, frame.view, frame.vaddr, id_at - id) &&
                   fde_read(&reader, &entry);
        }
        frame.at = id_at + length;
    }
    if (!good)
        return tl_diag_set(diag, TL_E_FORMAT, "%s: .eh_frame is malformed near offset 0x%llx",
                           image->path, (unsigned long long)frame.at);
    return 0;
}

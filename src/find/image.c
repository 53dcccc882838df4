// Opens one ELF file and copies what its headers say: segments, sections, dynamic entries,
// build-id.
//
// Symbols, debug files and facts are computed later, on the first question. Only 64-bit
// little-endian files are taken. Invariant: every offset and size kept in struct tl_image was
// compared with the file and with its limit; the readers below compare again at each use, so no
// caller needs to.
#include "find/image.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>

#include "find/facts.h"
#include "find/symbols.h"

bool tl_view_read(struct tl_view view, uint64_t off, void *out, uint64_t size)
{
    if (off > view.size || size > view.size - off)
        return false;
    memcpy(out, view.bytes + off, (size_t)size);
    return true;
}

const char *tl_view_string(struct tl_view view, uint64_t off)
{
    if (off >= view.size)
        return NULL;
    uint64_t rest = view.size - off;
    if (rest > TL_IMAGE_NAME_MAX)
        rest = TL_IMAGE_NAME_MAX;
    const char *text = (const char *)view.bytes + off;
    return memchr(text, 0, (size_t)rest) ? text : NULL;
}

const struct tl_segment *tl_image_segment_at(const struct tl_image *image, tl_addr vaddr)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct tl_segment *segment = &image->segment[i];
        if (vaddr - segment->vaddr < segment->file_size)
            return segment;
    }
    return NULL;
}

const struct tl_segment *tl_image_text_at(const struct tl_image *image, tl_addr vaddr)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct tl_segment *segment = &image->segment[i];
        if (segment->prot & TL_PROT_EXEC && vaddr - segment->vaddr < segment->file_size)
            return segment;
    }
    return NULL;
}

struct tl_view tl_image_view_at(const struct tl_image *image, tl_addr vaddr)
{
    const struct tl_segment *segment = tl_image_segment_at(image, vaddr);
    if (!segment)
        return (struct tl_view){0};
    uint64_t skip = vaddr - segment->vaddr;
    uint64_t size = segment->file_size - skip;
    const uint8_t *bytes = tl_file_at(image->file, segment->file_off + skip, size);
    return (struct tl_view){bytes, bytes ? size : 0};
}

struct tl_view tl_image_section_view(const struct tl_image *image, const struct tl_section *section)
{
    if (!section || section->type == SHT_NOBITS || section->size == 0)
        return (struct tl_view){0};
    const uint8_t *bytes = tl_file_at(image->file, section->off, section->size);
    return (struct tl_view){bytes, bytes ? section->size : 0};
}

const struct tl_section *tl_image_section_named(const struct tl_image *image, const char *name)
{
    for (size_t i = 0; i < image->section_count; i++) {
        if (strcmp(image->section[i].name, name) == 0)
            return &image->section[i];
    }
    return NULL;
}

const struct tl_section *tl_image_section_typed(const struct tl_image *image, uint32_t type)
{
    for (size_t i = 0; i < image->section_count; i++) {
        if (image->section[i].type == type)
            return &image->section[i];
    }
    return NULL;
}

const struct tl_section *tl_image_section_of(const struct tl_image *image, tl_addr vaddr)
{
    size_t low = 0, high = image->allocated_count; // first section that starts above vaddr
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (image->section[image->allocated[middle]].vaddr <= vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const struct tl_section *section = &image->section[image->allocated[low - 1]];
    return vaddr - section->vaddr < section->size ? section : NULL;
}

const char *tl_image_section_at(const struct tl_image *image, tl_addr vaddr)
{
    const struct tl_section *section = tl_image_section_of(image, vaddr);
    return section ? section->name : NULL;
}

static int compare_allocated(const void *a, const void *b, void *opaque)
{
    const struct tl_image *image = opaque;
    const struct tl_section *left = &image->section[*(const uint32_t *)a];
    const struct tl_section *right = &image->section[*(const uint32_t *)b];
    return (left->vaddr > right->vaddr) - (left->vaddr < right->vaddr);
}

// Sections that occupy addresses, sorted. Thread-local NOBITS sections occupy none.
static bool sections_sort(struct tl_image *image)
{
    image->allocated =
        tl_arena_alloc(&image->arena, image->section_count * sizeof *image->allocated);
    if (!image->allocated)
        return false;
    for (size_t i = 0; i < image->section_count; i++) {
        const struct tl_section *section = &image->section[i];
        bool thread_bss = section->flags & SHF_TLS && section->type == SHT_NOBITS;
        if (section->flags & SHF_ALLOC && section->size > 0 && !thread_bss)
            image->allocated[image->allocated_count++] = (uint32_t)i;
    }
    qsort_r(image->allocated, image->allocated_count, sizeof *image->allocated, compare_allocated,
            image);
    return true;
}

static int sections_read(struct tl_image *image, Elf *elf, struct tl_diag *diag)
{
    size_t count, names;
    if (elf_getshdrnum(elf, &count) != 0 || count == 0)
        return 0; // section headers may be stripped
    if (count > TL_IMAGE_SECTION_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "%s: more than %u sections", image->path,
                           TL_IMAGE_SECTION_MAX);
    image->section = tl_arena_alloc(&image->arena, count * sizeof *image->section);
    if (!image->section)
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", image->path);
    struct tl_view strings = {0};
    GElf_Shdr header;
    if (elf_getshdrstrndx(elf, &names) == 0 && gelf_getshdr(elf_getscn(elf, names), &header) &&
        header.sh_type != SHT_NOBITS) {
        strings.bytes = tl_file_at(image->file, header.sh_offset, header.sh_size);
        strings.size = strings.bytes ? header.sh_size : 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (!gelf_getshdr(elf_getscn(elf, i), &header))
            return tl_diag_set(diag, TL_E_FORMAT, "%s: section header %zu can't be read",
                               image->path, i);
        const char *name = tl_view_string(strings, header.sh_name);
        image->section[i] = (struct tl_section){
            .name = name ? name : "",
            .flags = header.sh_flags,
            .off = header.sh_offset,
            .size = header.sh_size,
            .vaddr = header.sh_addr,
            .type = header.sh_type,
            .link = header.sh_link,
        };
    }
    image->section_count = count;
    return sections_sort(image) ? 0 : tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", image->path);
}

static uint8_t segment_prot(uint32_t flags)
{
    return (uint8_t)((flags & PF_R ? TL_PROT_READ : 0) | (flags & PF_W ? TL_PROT_WRITE : 0) |
                     (flags & PF_X ? TL_PROT_EXEC : 0));
}

static int load_segment(struct tl_image *image, const GElf_Phdr *header, struct tl_diag *diag)
{
    uint64_t file_size = image->file->size;
    if (header->p_filesz > header->p_memsz || header->p_vaddr + header->p_memsz < header->p_vaddr)
        return tl_diag_set(diag, TL_E_FORMAT, "%s: a segment's sizes contradict each other",
                           image->path);
    bool inside = header->p_offset <= file_size && header->p_filesz <= file_size - header->p_offset;
    image->segment[image->segment_count++] = (struct tl_segment){
        .vaddr = header->p_vaddr,
        .file_off = header->p_offset,
        // A debug file keeps the program headers without the bytes.
        .file_size = inside ? header->p_filesz : 0,
        .memory_size = header->p_memsz,
        .prot = segment_prot(header->p_flags),
    };
    return 0;
}

#define NOTE_GO_BUILD_ID 4u // cmd/link, ELF_NOTE_GOBUILDID_TAG

// Copies the build-id note (name "GNU", type NT_GNU_BUILD_ID) out of one run of notes. Go's own note,
// if it comes first, is noted.
static void build_id_read(struct tl_image *image, uint64_t off, uint64_t size)
{
    struct tl_view notes = {tl_file_at(image->file, off, size), size};
    uint64_t at = 0;
    Elf64_Nhdr note;
    while (notes.bytes && image->build_id_size == 0 &&
           tl_view_read(notes, at, &note, sizeof note)) {
        uint64_t name = at + sizeof note;
        uint64_t content = name + ((note.n_namesz + 3ull) & ~3ull);
        char owner[4];
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof owner && note.n_descsz > 0 &&
            note.n_descsz <= TL_IMAGE_BUILD_ID_MAX &&
            tl_view_read(notes, name, owner, sizeof owner) &&
            memcmp(owner, "GNU", sizeof owner) == 0 &&
            tl_view_read(notes, content, image->build_id, note.n_descsz))
            image->build_id_size = note.n_descsz;
        else if (note.n_type == NOTE_GO_BUILD_ID && note.n_namesz == sizeof owner &&
                 tl_view_read(notes, name, owner, sizeof owner) &&
                 memcmp(owner, "Go\0", sizeof owner) == 0)
            image->go_note = true;
        at = content + ((note.n_descsz + 3ull) & ~3ull);
    }
}

static int segments_read(struct tl_image *image, Elf *elf, struct tl_diag *diag)
{
    size_t count;
    if (elf_getphdrnum(elf, &count) != 0)
        count = 0;
    if (count > TL_IMAGE_SEGMENT_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "%s: more than %u program headers", image->path,
                           TL_IMAGE_SEGMENT_MAX);
    image->segment = tl_arena_alloc(&image->arena, (count + 1) * sizeof *image->segment);
    if (!image->segment)
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", image->path);
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr header;
        int error = 0;
        if (!gelf_getphdr(elf, (int)i, &header))
            return tl_diag_set(diag, TL_E_FORMAT, "%s: program header %zu can't be read",
                               image->path, i);
        if (header.p_type == PT_LOAD && header.p_memsz > 0)
            error = load_segment(image, &header, diag);
        else if (header.p_type == PT_DYNAMIC && header.p_filesz > 0 &&
                 header.p_offset + header.p_filesz > header.p_offset)
            image->dynamic_file =
                (struct tl_range){header.p_offset, header.p_offset + header.p_filesz};
        else if (header.p_type == PT_GNU_EH_FRAME)
            image->eh_frame_hdr = header.p_vaddr;
        else if (header.p_type == PT_GNU_RELRO)
            image->relro = (struct tl_range){header.p_vaddr, header.p_vaddr + header.p_memsz};
        else if (header.p_type == PT_INTERP)
            image->interpreter = true;
        else if (header.p_type == PT_NOTE && image->build_id_size == 0)
            build_id_read(image, header.p_offset, header.p_filesz);
        if (error)
            return error;
    }
    for (size_t i = 0; i < image->section_count && image->build_id_size == 0; i++) {
        if (image->section[i].type == SHT_NOTE) // a debug file's notes are reached by section only
            build_id_read(image, image->section[i].off, image->section[i].size);
    }
    return 0;
}

static void dynamic_entry(struct tl_dynamic *dynamic, const Elf64_Dyn *entry)
{
    struct {
        int64_t tag;
        uint64_t *value;
    } const table[] = {
        {DT_STRTAB, &dynamic->strtab},
        {DT_STRSZ, &dynamic->strtab_size},
        {DT_SYMTAB, &dynamic->symtab},
        {DT_HASH, &dynamic->hash},
        {DT_GNU_HASH, &dynamic->gnu_hash},
        {DT_VERSYM, &dynamic->versym},
        {DT_VERDEF, &dynamic->verdef},
        {DT_VERNEED, &dynamic->verneed},
        {DT_RELA, &dynamic->rela},
        {DT_RELASZ, &dynamic->rela_size},
        {DT_JMPREL, &dynamic->jmprel},
        {DT_PLTRELSZ, &dynamic->jmprel_size},
        {DT_RELR, &dynamic->relr},
        {DT_RELRSZ, &dynamic->relr_size},
        {DT_INIT, &dynamic->init},
        {DT_FINI, &dynamic->fini},
        {DT_INIT_ARRAY, &dynamic->init_array},
        {DT_INIT_ARRAYSZ, &dynamic->init_array_size},
        {DT_FINI_ARRAY, &dynamic->fini_array},
        {DT_FINI_ARRAYSZ, &dynamic->fini_array_size},
        {DT_PREINIT_ARRAY, &dynamic->preinit_array},
        {DT_PREINIT_ARRAYSZ, &dynamic->preinit_array_size},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        if (table[i].tag == entry->d_tag)
            *table[i].value = entry->d_un.d_val;
    }
}

static bool dynamic_names(struct tl_image *image, struct tl_view entries)
{
    struct tl_dynamic *dynamic = &image->dynamic;
    struct tl_view strings = tl_image_view_at(image, dynamic->strtab);
    if (strings.size > dynamic->strtab_size)
        strings.size = dynamic->strtab_size;
    size_t count = 0;
    Elf64_Dyn entry;
    for (uint64_t at = 0; tl_view_read(entries, at, &entry, sizeof entry); at += sizeof entry)
        count += entry.d_tag == DT_NEEDED && count < TL_IMAGE_NEEDED_MAX;
    dynamic->needed = tl_arena_alloc(&image->arena, (count + 1) * sizeof *dynamic->needed);
    if (!dynamic->needed)
        return false;
    for (uint64_t at = 0; tl_view_read(entries, at, &entry, sizeof entry); at += sizeof entry) {
        if (entry.d_tag == DT_NULL)
            break;
        if (entry.d_tag != DT_SONAME && entry.d_tag != DT_NEEDED)
            continue;
        const char *name = tl_view_string(strings, entry.d_un.d_val);
        if (name && entry.d_tag == DT_SONAME)
            dynamic->soname = name;
        else if (name && dynamic->needed_count < count)
            dynamic->needed[dynamic->needed_count++] = name;
    }
    return true;
}

static bool dynamic_read(struct tl_image *image)
{
    uint64_t size = image->dynamic_file.end - image->dynamic_file.start;
    struct tl_view entries = {tl_file_at(image->file, image->dynamic_file.start, size), size};
    if (size == 0 || !entries.bytes)
        return true;
    Elf64_Dyn entry;
    for (uint64_t at = 0; tl_view_read(entries, at, &entry, sizeof entry); at += sizeof entry) {
        if (entry.d_tag == DT_NULL)
            break;
        dynamic_entry(&image->dynamic, &entry);
    }
    return dynamic_names(image, entries);
}

// Reads the bytes that libelf will look at: it knows nothing of reading piece by piece.
static void load_headers(struct tl_file *file, const Elf64_Ehdr *header)
{
    uint64_t wanted[2][2] = {{header->e_phoff, TL_IMAGE_SEGMENT_MAX * sizeof(Elf64_Phdr)},
                             {header->e_shoff, TL_IMAGE_SECTION_MAX * sizeof(Elf64_Shdr)}};
    for (size_t i = 0; i < TL_ARRAY_COUNT(wanted); i++) {
        uint64_t off = wanted[i][0], size = wanted[i][1];
        if (off >= file->size)
            continue;
        (void)tl_file_at(file, off, size < file->size - off ? size : file->size - off);
    }
}

static int headers_read(struct tl_image *image, struct tl_diag *diag)
{
    Elf64_Ehdr header;
    const uint8_t *start = tl_file_at(image->file, 0, sizeof header);
    if (!start || memcmp(start, ELFMAG, SELFMAG) != 0)
        return tl_diag_set(diag, TL_E_FORMAT, "%s: not an ELF file", image->path);
    if (start[EI_CLASS] != ELFCLASS64 || start[EI_DATA] != ELFDATA2LSB)
        return tl_diag_set(diag, TL_E_UNSUPPORTED, "%s: not a 64-bit little-endian ELF file",
                           image->path);
    memcpy(&header, start, sizeof header);
    image->machine = header.e_machine;
    image->type = header.e_type;
    image->entry = header.e_entry;
    if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
        return tl_diag_set(diag, TL_E_FORMAT, "%s: neither a program nor a shared library",
                           image->path);
    load_headers(image->file, &header);
    (void)elf_version(EV_CURRENT);
    Elf *elf = elf_memory((char *)image->file->bytes, (size_t)image->file->size);
    if (!elf)
        return tl_diag_set(diag, TL_E_FORMAT, "%s: %s", image->path, elf_errmsg(-1));
    int error = sections_read(image, elf, diag);
    if (!error)
        error = segments_read(image, elf, diag);
    elf_end(elf);
    if (error)
        return error;
    image->header_end = header.e_phoff + image->segment_count * sizeof(Elf64_Phdr);
    if (header.e_phoff > image->file->size || image->header_end < sizeof header)
        image->header_end = sizeof header;
    return dynamic_read(image) ? 0 : tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", image->path);
}

static int open_file(struct tl_file *file, const char *path, const struct tl_image_options *options,
                     struct tl_image **out, struct tl_diag *diag)
{
    struct tl_image *image = calloc(1, sizeof *image);
    struct tl_file *own = malloc(sizeof *own);
    if (!image || !own) {
        free(image);
        free(own);
        tl_file_deinit(file);
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", path);
    }
    *own = *file;
    image->file = own;
    image->path = strdup(path);
    image->lazy = calloc(1, sizeof *image->lazy);
    if (options && options->debug_dir)
        image->debug_dir = strdup(options->debug_dir);
    if (options && options->root)
        image->root = strdup(options->root);
    int error;
    if (!image->path || !image->lazy)
        error = tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", path);
    else
        error = headers_read(image, diag);
    if (error) {
        tl_image_close(image);
        return error;
    }
    *out = image;
    return 0;
}

int tl_image_open(int fd, const char *path, const struct tl_image_options *options,
                  struct tl_image **out, struct tl_diag *diag)
{
    struct tl_file file;
    int error = tl_file_open(fd, path, &file, diag);
    return error ? error : open_file(&file, path, options, out, diag);
}

int tl_image_open_memory(const void *bytes, size_t size, const char *path, struct tl_image **out,
                         struct tl_diag *diag)
{
    struct tl_file file;
    uint8_t *copy = size ? malloc(size) : NULL;
    if (size && !copy)
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", path);
    if (size)
        memcpy(copy, bytes, size);
    int error = tl_file_adopt(copy, size, path, &file, diag);
    return error ? error : open_file(&file, path, NULL, out, diag);
}

bool tl_image_begun(const struct tl_image *image)
{
    return image->lazy->symbols || image->lazy->facts;
}

void tl_image_close(struct tl_image *image)
{
    if (!image)
        return;
    if (image->lazy) {
        tl_symbols_destroy(image->lazy->symbols);
        tl_facts_destroy(image->lazy->facts);
    }
    free(image->lazy);
    tl_arena_deinit(&image->arena);
    tl_file_deinit(image->file);
    free(image->file);
    free(image->path);
    free(image->debug_dir);
    free(image->root);
    free(image);
}

const char *tl_image_path(const struct tl_image *image)
{
    return image->path;
}

const char *tl_image_soname(const struct tl_image *image)
{
    return image->dynamic.soname;
}

uint16_t tl_image_machine(const struct tl_image *image)
{
    return image->machine;
}

size_t tl_image_segments(const struct tl_image *image, const struct tl_segment **out)
{
    *out = image->segment;
    return image->segment_count;
}

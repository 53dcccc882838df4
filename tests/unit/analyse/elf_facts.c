// Reads one ELF file into the struct the analysis takes. Only for files that the tests trust:
// nothing is checked against hostile bytes. Landing pads and rseq sections are left out.
#include "elf_facts.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct builder {
    struct elf_facts *out;
    const Elf64_Ehdr *header;
    const Elf64_Shdr *sections;
    const char *section_names;
    struct tl_text text[8];
    struct tl_data data[64];
    struct tl_extent *extent;
    size_t text_count, data_count, extent_count, extent_capacity;
    tl_addr *pointer;
    size_t pointer_count, pointer_capacity;
};

static void *grow(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity == 0 ? 256 : *capacity * 2;
    array = reallocarray(array, *capacity, size);
    if (array == NULL)
        abort();
    return array;
}

static bool in_text(const struct builder *b, tl_addr addr)
{
    for (size_t i = 0; i < b->text_count; i++)
        if (addr - b->text[i].vaddr < b->text[i].size)
            return true;
    return false;
}

static void add_pointer(struct builder *b, tl_addr addr)
{
    if (!in_text(b, addr))
        return;
    b->pointer = grow(b->pointer, b->pointer_count, &b->pointer_capacity, sizeof(*b->pointer));
    b->pointer[b->pointer_count++] = addr;
}

static void add_extent(struct builder *b, tl_addr vaddr, uint64_t size, const char *name)
{
    if (!in_text(b, vaddr) || size == 0)
        return;
    b->extent = grow(b->extent, b->extent_count, &b->extent_capacity, sizeof(*b->extent));
    b->extent[b->extent_count++] =
        (struct tl_extent){.vaddr = vaddr,
                           .size = size,
                           .symbol = name != NULL,
                           .part = name != NULL && strstr(name, ".cold") != NULL};
}

static void read_segments(struct builder *b)
{
    const uint8_t *image = b->out->image;
    const Elf64_Phdr *segment = (const void *)(image + b->header->e_phoff);
    for (unsigned i = 0; i < b->header->e_phnum; i++) {
        if (segment[i].p_type != PT_LOAD || segment[i].p_filesz == 0)
            continue;
        if ((segment[i].p_flags & PF_X) != 0 && b->text_count < TL_ARRAY_COUNT(b->text))
            b->text[b->text_count++] = (struct tl_text){
                segment[i].p_vaddr, image + segment[i].p_offset, segment[i].p_filesz};
        else if (b->data_count < TL_ARRAY_COUNT(b->data))
            b->data[b->data_count++] =
                (struct tl_data){segment[i].p_vaddr, image + segment[i].p_offset,
                                 segment[i].p_filesz, (segment[i].p_flags & PF_W) != 0};
    }
}

static void read_symbols(struct builder *b, const Elf64_Shdr *section)
{
    const uint8_t *image = b->out->image;
    const Elf64_Sym *symbol = (const void *)(image + section->sh_offset);
    const char *names = (const char *)image + b->sections[section->sh_link].sh_offset;
    size_t capacity = b->out->name_count;
    for (size_t i = 0; i < section->sh_size / sizeof(*symbol); i++) {
        unsigned type = ELF64_ST_TYPE(symbol[i].st_info);
        bool label = type == STT_NOTYPE && strncmp(names + symbol[i].st_name, "at_", 3) == 0;
        if ((!label && type != STT_FUNC && type != STT_GNU_IFUNC) ||
            symbol[i].st_shndx == SHN_UNDEF)
            continue;
        if (!label)
            add_extent(b, symbol[i].st_value, symbol[i].st_size, names + symbol[i].st_name);
        b->out->names = grow(b->out->names, b->out->name_count, &capacity, sizeof(*b->out->names));
        b->out->names[b->out->name_count++] =
            (struct elf_name){symbol[i].st_value, symbol[i].st_size, names + symbol[i].st_name};
    }
}

static void read_relocations(struct builder *b, const Elf64_Shdr *section)
{
    const Elf64_Rela *rela = (const void *)(b->out->image + section->sh_offset);
    bool arm64 = b->header->e_machine == EM_AARCH64;
    uint32_t relative = arm64 ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE;
    uint32_t irelative = arm64 ? R_AARCH64_IRELATIVE : R_X86_64_IRELATIVE;
    for (size_t i = 0; i < section->sh_size / sizeof(*rela); i++)
        if (ELF64_R_TYPE(rela[i].r_info) == relative || ELF64_R_TYPE(rela[i].r_info) == irelative)
            add_pointer(b, (tl_addr)rela[i].r_addend);
}

// The CIEs of the files tested all encode FDE addresses as pc-relative, 4 bytes, signed.
static void read_unwind(struct builder *b, const Elf64_Shdr *section)
{
    const uint8_t *bytes = b->out->image + section->sh_offset;
    for (size_t off = 0; off + 16 <= section->sh_size;) {
        uint32_t length, cie;
        int32_t start, size;
        memcpy(&length, bytes + off, 4);
        if (length == 0 || length == UINT32_MAX)
            return;
        memcpy(&cie, bytes + off + 4, 4);
        memcpy(&start, bytes + off + 8, 4);
        memcpy(&size, bytes + off + 12, 4);
        if (cie != 0)
            add_extent(b, section->sh_addr + off + 8 + (uint64_t)(int64_t)start, (uint32_t)size,
                       NULL);
        off += 4 + length;
    }
}

static int extent_compare(const void *one, const void *two)
{
    const struct tl_extent *a = one, *b = two;
    if (a->vaddr != b->vaddr)
        return a->vaddr < b->vaddr ? -1 : 1;
    return (a->size < b->size) - (a->size > b->size); // the longest first
}

static void finish(struct builder *b)
{
    struct tl_module_facts *facts = &b->out->facts;
    size_t kept = 0;
    qsort(b->extent, b->extent_count, sizeof(*b->extent), extent_compare);
    for (size_t i = 0; i < b->extent_count; i++)
        if (kept == 0 || b->extent[kept - 1].vaddr != b->extent[i].vaddr)
            b->extent[kept++] = b->extent[i];
    struct tl_text *text = malloc(sizeof(b->text));
    struct tl_data *data = malloc(sizeof(b->data));
    if (text == NULL || data == NULL)
        abort();
    memcpy(text, b->text, sizeof(b->text));
    memcpy(data, b->data, sizeof(b->data));
    *facts = (struct tl_module_facts){.elf_machine = b->header->e_machine,
                                      .text = text,
                                      .text_count = b->text_count,
                                      .functions = b->extent,
                                      .function_count = kept,
                                      .data = data,
                                      .data_count = b->data_count,
                                      .pointers = b->pointer,
                                      .pointer_count = b->pointer_count,
                                      .position_fixed = b->header->e_type == ET_EXEC};
}

bool elf_facts_load(const char *path, struct elf_facts *out)
{
    memset(out, 0, sizeof(*out));
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return false;
    fseek(file, 0, SEEK_END);
    out->size = (size_t)ftell(file);
    rewind(file);
    out->image = malloc(out->size);
    bool read = out->image != NULL && fread(out->image, 1, out->size, file) == out->size;
    fclose(file);
    if (!read || out->size < sizeof(Elf64_Ehdr) || memcmp(out->image, ELFMAG, SELFMAG) != 0) {
        free(out->image);
        return false;
    }
    struct builder b = {.out = out, .header = (const void *)out->image};
    b.sections = (const void *)(out->image + b.header->e_shoff);
    b.section_names = (const char *)out->image + b.sections[b.header->e_shstrndx].sh_offset;
    read_segments(&b);
    for (unsigned i = 0; i < b.header->e_shnum; i++) {
        const Elf64_Shdr *section = &b.sections[i];
        if (section->sh_type == SHT_SYMTAB || section->sh_type == SHT_DYNSYM)
            read_symbols(&b, section);
        else if (section->sh_type == SHT_RELA)
            read_relocations(&b, section);
        else if (strcmp(b.section_names + section->sh_name, ".eh_frame") == 0)
            read_unwind(&b, section);
    }
    finish(&b);
    return true;
}

void elf_facts_free(struct elf_facts *facts)
{
    free((void *)(uintptr_t)facts->facts.text);
    free((void *)(uintptr_t)facts->facts.data);
    free((void *)(uintptr_t)facts->facts.functions);
    free((void *)(uintptr_t)facts->facts.pointers);
    free(facts->names);
    free(facts->image);
}

tl_addr elf_facts_find(const struct elf_facts *facts, const char *name, uint64_t *size)
{
    for (size_t i = 0; i < facts->name_count; i++)
        if (strcmp(facts->names[i].name, name) == 0) {
            if (size != NULL)
                *size = facts->names[i].size;
            return facts->names[i].vaddr;
        }
    return 0;
}

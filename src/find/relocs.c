// Reads an image's relocations: where a 64-bit address will be, and which.
//
// Takes the tables that the dynamic entries name and those in allocated sections (a static program
// has only these). Kinds that make no whole address (TLS, 32-bit, copies) are left out. Applies
// nothing.
#include "find/facts.h"

#include "find/symbols.h"

#define RELA_TABLE_COUNT_MAX 32u

struct reader {
    const struct tl_image *image;
    const struct reloc_types *types;
    struct tl_view symbols, strings, versions;
    struct tl_versions names;
    bool (*visit)(void *opaque, const struct tl_elf_reloc *reloc);
    void *opaque;
};

// One machine's numbers for what makes a whole address.
struct reloc_types {
    uint16_t machine;
    uint32_t relative, irelative, absolute, glob_dat, jump_slot;
};

static const struct reloc_types reloc_types[] = {
    // System V ABI, AMD64 supplement, table "Relocation Types".
    {EM_X86_64, R_X86_64_RELATIVE, R_X86_64_IRELATIVE, R_X86_64_64, R_X86_64_GLOB_DAT,
     R_X86_64_JUMP_SLOT},
    // ELF for the Arm 64-bit Architecture, "Static Data relocations" and "Dynamic relocations".
    {EM_AARCH64, R_AARCH64_RELATIVE, R_AARCH64_IRELATIVE, R_AARCH64_ABS64, R_AARCH64_GLOB_DAT,
     R_AARCH64_JUMP_SLOT},
    // RISC-V ELF psABI, "Relocation Types": words of the GOT are plain ones.
    {EM_RISCV, R_RISCV_RELATIVE, R_RISCV_IRELATIVE, R_RISCV_64, R_RISCV_JUMP_SLOT,
     R_RISCV_JUMP_SLOT},
};

static const struct reloc_types *types_of(uint16_t machine)
{
    for (size_t i = 0; i < TL_ARRAY_COUNT(reloc_types); i++) {
        if (reloc_types[i].machine == machine)
            return &reloc_types[i];
    }
    return NULL;
}

// false: makes no whole address.
static bool reloc_kind(const struct reloc_types *types, uint32_t type, struct tl_elf_reloc *reloc)
{
    reloc->slot = type == types->glob_dat || type == types->jump_slot;
    if (type == types->relative)
        reloc->kind = TL_ELF_RELATIVE;
    else if (type == types->irelative)
        reloc->kind = TL_ELF_IRELATIVE;
    else if (type == types->absolute || reloc->slot)
        reloc->kind = TL_ELF_SYMBOL;
    else
        return false;
    return true;
}

static bool reloc_symbol(const struct reader *reader, uint64_t index, struct tl_elf_reloc *reloc)
{
    Elf64_Sym symbol;
    Elf64_Half version;
    if (!tl_view_read(reader->symbols, index * sizeof symbol, &symbol, sizeof symbol))
        return false;
    const char *name = tl_view_string(reader->strings, symbol.st_name);
    reloc->symbol = name ? name : "";
    reloc->symbol_vaddr = symbol.st_shndx != SHN_UNDEF ? symbol.st_value : 0;
    if (tl_view_read(reader->versions, index * sizeof version, &version, sizeof version))
        reloc->version = tl_versions_name(&reader->names, version);
    return true;
}

// false: the visitor has seen enough.
static bool read_table(const struct reader *reader, struct tl_view table)
{
    Elf64_Rela raw;
    for (uint64_t at = 0; tl_view_read(table, at, &raw, sizeof raw); at += sizeof raw) {
        struct tl_elf_reloc reloc = {
            .vaddr = raw.r_offset, .addend = (uint64_t)raw.r_addend, .symbol = ""};
        if (!reloc_kind(reader->types, (uint32_t)ELF64_R_TYPE(raw.r_info), &reloc))
            continue;
        if (reloc.kind == TL_ELF_SYMBOL && !reloc_symbol(reader, ELF64_R_SYM(raw.r_info), &reloc))
            continue;
        if (!reader->visit(reader->opaque, &reloc))
            return false;
    }
    return true;
}

static struct tl_view cut(struct tl_view view, uint64_t size)
{
    if (view.size > size)
        view.size = size;
    return view;
}

static void reader_init(struct reader *reader)
{
    const struct tl_image *image = reader->image;
    const struct tl_dynamic *dynamic = &image->dynamic;
    const struct tl_section *section = tl_image_section_typed(image, SHT_DYNSYM);
    if (section && section->link < image->section_count) {
        reader->symbols = tl_image_section_view(image, section);
        reader->strings = tl_image_section_view(image, &image->section[section->link]);
    } else if (dynamic->symtab) {
        reader->symbols = tl_image_view_at(image, dynamic->symtab);
        reader->strings = cut(tl_image_view_at(image, dynamic->strtab), dynamic->strtab_size);
    }
    section = tl_image_section_typed(image, SHT_GNU_versym);
    if (section)
        reader->versions = tl_image_section_view(image, section);
    else if (dynamic->versym)
        reader->versions = tl_image_view_at(image, dynamic->versym);
}

int tl_relocs_each(const struct tl_image *image,
                   bool (*visit)(void *opaque, const struct tl_elf_reloc *reloc), void *opaque,
                   struct tl_diag *diag)
{
    const struct tl_dynamic *dynamic = &image->dynamic;
    struct reader reader = {.image = image, .visit = visit, .opaque = opaque};
    const uint8_t *done[RELA_TABLE_COUNT_MAX]; // starts of tables read
    size_t done_count = 0;
    reader.types = types_of(image->machine);
    if (!reader.types)
        return tl_diag_set(diag, TL_E_UNSUPPORTED, "%s: machine %u is not supported", image->path,
                           image->machine);
    if (!tl_versions_read(image, &reader.names)) {
        tl_versions_deinit(&reader.names);
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", image->path);
    }
    reader_init(&reader);
    struct tl_view tables[2] = {
        dynamic->rela ? cut(tl_image_view_at(image, dynamic->rela), dynamic->rela_size)
                      : (struct tl_view){0},
        dynamic->jmprel ? cut(tl_image_view_at(image, dynamic->jmprel), dynamic->jmprel_size)
                        : (struct tl_view){0},
    };
    bool more = true;
    for (size_t i = 0; i < 2 && more; i++) {
        if (tables[i].size == 0)
            continue;
        done[done_count++] = tables[i].bytes;
        more = read_table(&reader, tables[i]);
    }
    for (size_t i = 0; i < image->section_count && more; i++) {
        const struct tl_section *section = &image->section[i];
        if (section->type != SHT_RELA || !(section->flags & SHF_ALLOC))
            continue;
        struct tl_view view = tl_image_section_view(image, section);
        bool seen = view.size == 0 || done_count == RELA_TABLE_COUNT_MAX;
        for (size_t j = 0; j < done_count; j++)
            seen |= done[j] == view.bytes;
        if (seen)
            continue;
        done[done_count++] = view.bytes;
        more = read_table(&reader, view);
    }
    tl_versions_deinit(&reader.names);
    return 0;
}

// The generic ABI's "Relative Relocation Table": an even entry is an address; an odd one is a bit
// map of the 63 words behind the last.
void tl_relr_each(const struct tl_image *image, bool (*visit)(void *opaque, tl_addr vaddr),
                  void *opaque)
{
    const struct tl_dynamic *dynamic = &image->dynamic;
    if (!dynamic->relr)
        return;
    struct tl_view table = cut(tl_image_view_at(image, dynamic->relr), dynamic->relr_size);
    tl_addr next = 0;
    uint64_t entry;
    for (uint64_t at = 0; tl_view_read(table, at, &entry, sizeof entry); at += sizeof entry) {
        if (!(entry & 1)) {
            if (!visit(opaque, entry))
                return;
            next = entry + sizeof entry;
            continue;
        }
        for (unsigned bit = 1; bit < 64; bit++) {
            if (entry >> bit & 1 && !visit(opaque, next + (bit - 1) * sizeof entry))
                return;
        }
        next += 63 * sizeof entry;
    }
}

// Collects the functions of one image from every symbol table it has: its own, the dynamic one, the
// one in .gnu_debugdata, the one of a separate debug file.
//
// Takes code symbols only: defined, inside file-backed executable segments, not in linkage stubs.
// Symbols without a type are functions where no sized function covers them (hand-written code);
// others become labels. A malformed entry is left out: a name we can't trust must not hide those we
// can. Invariant: names are terminated strings in memory that lives as long as the table.
#include "find/symbols.h"

#include <stdlib.h>
#include <string.h>

#include "find/facts.h"

// One entry while tables are merged.
struct entry {
    struct tl_symbol symbol;
    bool untyped;
};

struct collector {
    const struct tl_image *image; // whose segments and sections decide
    struct tl_symbols *out;
    struct entry *entry;
    size_t count, capacity;
    size_t label_capacity, import_capacity, mapping_capacity;
    bool no_memory, too_many;
};

// One symbol table of one file.
struct table {
    struct tl_view entries, strings, versions; // versions: Elf64_Half each, parallel; may be empty
    const struct tl_versions *names;
    uint64_t slide; // added to values: a debug file may be linked at another base
};

// Splits "name@V" and "name@@V" as static symbol tables write them.
static bool split_version(struct collector *collector, struct tl_symbol *symbol)
{
    const char *at = strchr(symbol->name, '@');
    if (!at || at == symbol->name)
        return true;
    const char *version = at + 1;
    symbol->version_default = *version == '@';
    if (symbol->version_default)
        version++;
    symbol->name =
        tl_arena_string(&collector->out->arena, symbol->name, (size_t)(at - symbol->name));
    symbol->version = *version ? version : NULL;
    return symbol->name != NULL;
}

static void table_version(const struct table *table, uint64_t index, struct tl_symbol *symbol)
{
    Elf64_Half raw;
    if (!table->names || !tl_view_read(table->versions, index * sizeof raw, &raw, sizeof raw))
        return;
    symbol->version = tl_versions_name(table->names, raw);
    symbol->version_default = symbol->version && !(raw & TL_VERSION_HIDDEN);
}

static void add_label(struct collector *collector, tl_addr vaddr)
{
    struct tl_symbols *out = collector->out;
    if (out->label_count >= TL_FACTS_COUNT_MAX ||
        !tl_array_grow(&out->label, &collector->label_capacity, out->label_count + 1,
                       sizeof *out->label)) {
        collector->no_memory = true;
        return;
    }
    out->label[out->label_count++] = vaddr;
}

// ELF for the Arm 64-bit Architecture, "Mapping symbols": "$x" and "$d", with or without ".any" behind. RISC-V
// ABIs Specification, "Mapping Symbol": the extensions may stand behind "$x", as "$xrv64i2p1_c2p0".
static bool is_mapping(const struct tl_image *image, const char *name)
{
    if (image->machine == EM_RISCV && strncmp(name, "$xrv", 4) == 0)
        return true;
    return image->machine != EM_X86_64 && name[0] == '$' && name[1] &&
           strchr("xdat", name[1]) && (!name[2] || name[2] == '.');
}

static void add_mapping(struct collector *collector, tl_addr vaddr, bool data)
{
    struct tl_symbols *out = collector->out;
    if (out->mapping_count >= TL_FACTS_COUNT_MAX ||
        !tl_array_grow(&out->mapping, &collector->mapping_capacity, out->mapping_count + 1,
                       sizeof *out->mapping)) {
        collector->no_memory = true;
        return;
    }
    out->mapping[out->mapping_count++] = (struct tl_mapping){vaddr, data};
}

static void add_import(struct collector *collector, const char *name)
{
    struct tl_symbols *out = collector->out;
    if (!tl_array_grow(&out->import, &collector->import_capacity, out->import_count + 1,
                       sizeof *out->import)) {
        collector->no_memory = true;
        return;
    }
    out->import[out->import_count++] = name;
}

// Names that linkers and assemblers define for themselves.
static bool name_synthetic(const char *name)
{
    static const char *const exact[] = {"etext", "_etext", "__etext", "__executable_start"};
    for (size_t i = 0; i < TL_ARRAY_COUNT(exact); i++) {
        if (strcmp(name, exact[i]) == 0)
            return true;
    }
    return strncmp(name, ".L", 2) == 0 || name[0] == '$' || strncmp(name, "__start_", 8) == 0 ||
           strncmp(name, "__stop_", 7) == 0;
}

static bool in_stubs(const struct tl_image *image, tl_addr vaddr)
{
    const char *section = tl_image_section_at(image, vaddr);
    return section && (strncmp(section, ".plt", 4) == 0 || strncmp(section, ".iplt", 5) == 0);
}

static void add_symbol(struct collector *collector, const struct table *table, uint64_t index,
                       const Elf64_Sym *raw)
{
    unsigned type = ELF64_ST_TYPE(raw->st_info), bind = ELF64_ST_BIND(raw->st_info);
    const char *name = tl_view_string(table->strings, raw->st_name);
    if (!name || !*name || type == STT_SECTION || type == STT_FILE || type == STT_TLS)
        return;
    if (raw->st_shndx == SHN_UNDEF) {
        if (bind != STB_LOCAL)
            add_import(collector, name);
        return;
    }
    tl_addr vaddr = raw->st_value + table->slide;
    const struct tl_segment *segment = tl_image_text_at(collector->image, vaddr);
    if (!segment || raw->st_shndx == SHN_ABS || raw->st_shndx == SHN_COMMON ||
        in_stubs(collector->image, vaddr))
        return;
    if (is_mapping(collector->image, name)) {
        add_mapping(collector, vaddr, name[1] == 'd');
        return;
    }
    bool typed = type == STT_FUNC || type == STT_GNU_IFUNC;
    const struct tl_section *section = tl_image_section_of(collector->image, vaddr);
    bool code = !section || section->flags & SHF_EXECINSTR;
    if (!typed && (type != STT_NOTYPE || name_synthetic(name) || !code)) {
        add_label(collector, vaddr);
        return;
    }
    if (!tl_array_grow(&collector->entry, &collector->capacity, collector->count + 1,
                       sizeof *collector->entry)) {
        collector->no_memory = true;
        return;
    }
    uint64_t rest = segment->file_size - (vaddr - segment->vaddr);
    struct entry entry = {
        .symbol = {.vaddr = vaddr,
                   .size = raw->st_size > rest ? rest : raw->st_size,
                   .name = name,
                   .ifunc = type == STT_GNU_IFUNC,
                   .weak = bind == STB_WEAK,
                   .local = bind == STB_LOCAL},
        .untyped = !typed,
    };
    table_version(table, index, &entry.symbol);
    if (!split_version(collector, &entry.symbol))
        collector->no_memory = true;
    else
        collector->entry[collector->count++] = entry;
}

static void collect_table(struct collector *collector, const struct table *table)
{
    Elf64_Sym raw;
    uint64_t count = table->entries.size / sizeof raw;
    if (count > TL_IMAGE_SYMBOL_MAX) {
        collector->too_many = true;
        return;
    }
    for (uint64_t i = 1; i < count && !collector->no_memory; i++) {
        memcpy(&raw, table->entries.bytes + i * sizeof raw, sizeof raw);
        add_symbol(collector, table, i, &raw);
    }
}

static void collect_section(struct collector *collector, const struct tl_image *from, uint32_t type,
                            uint64_t slide)
{
    const struct tl_section *section = tl_image_section_typed(from, type);
    if (!section || section->link >= from->section_count)
        return;
    struct table table = {
        .entries = tl_image_section_view(from, section),
        .strings = tl_image_section_view(from, &from->section[section->link]),
        .slide = slide,
    };
    struct tl_versions names = {0};
    if (type == SHT_DYNSYM) {
        table.versions = tl_image_section_view(from, tl_image_section_typed(from, SHT_GNU_versym));
        table.names = &names;
        if (!tl_versions_read(from, &names))
            collector->no_memory = true;
    }
    collect_table(collector, &table);
    tl_versions_deinit(&names);
}

// How many dynamic symbols there are where section headers are gone: DT_HASH says it, DT_GNU_HASH
// only by the end of its longest chain (System V gABI, "Hash Table"; the GNU table has no other
// description than code).
static uint64_t dynamic_symbol_count(const struct tl_image *image)
{
    uint32_t head[4];
    struct tl_view table = tl_image_view_at(image, image->dynamic.hash);
    if (image->dynamic.hash && tl_view_read(table, 0, head, 8))
        return head[1];
    table = tl_image_view_at(image, image->dynamic.gnu_hash);
    if (!image->dynamic.gnu_hash || !tl_view_read(table, 0, head, sizeof head))
        return 0;
    uint64_t buckets = 16 + (uint64_t)head[2] * 8, chains = buckets + (uint64_t)head[0] * 4;
    uint64_t last = 0;
    uint32_t value;
    for (uint32_t i = 0; i < head[0] && tl_view_read(table, buckets + i * 4ull, &value, 4); i++) {
        if (value > last)
            last = value;
    }
    if (last < head[1])
        return head[1];
    while (tl_view_read(table, chains + (last - head[1]) * 4, &value, 4)) {
        last++;
        if (value & 1)
            break;
    }
    return last;
}

static void collect_dynamic(struct collector *collector)
{
    const struct tl_image *image = collector->image;
    const struct tl_dynamic *dynamic = &image->dynamic;
    if (!dynamic->symtab || !dynamic->strtab)
        return;
    struct table table = {
        .entries = tl_image_view_at(image, dynamic->symtab),
        .strings = tl_image_view_at(image, dynamic->strtab),
    };
    uint64_t size = dynamic_symbol_count(image) * sizeof(Elf64_Sym);
    if (table.entries.size > size)
        table.entries.size = size;
    if (table.strings.size > dynamic->strtab_size)
        table.strings.size = dynamic->strtab_size;
    if (dynamic->versym)
        table.versions = tl_image_view_at(image, dynamic->versym);
    struct tl_versions names;
    table.names = &names;
    if (!tl_versions_read(image, &names))
        collector->no_memory = true;
    collect_table(collector, &table);
    tl_versions_deinit(&names);
}

static uint64_t slide_of(const struct tl_image *image, const struct tl_image *debug)
{
    if (image->segment_count == 0 || debug->segment_count == 0)
        return 0;
    return image->segment[0].vaddr - debug->segment[0].vaddr;
}

static void collect(struct collector *collector)
{
    const struct tl_image *image = collector->image;
    struct tl_symbols *out = collector->out;
    if (tl_image_section_typed(image, SHT_DYNSYM))
        collect_section(collector, image, SHT_DYNSYM, 0);
    else
        collect_dynamic(collector);
    collect_section(collector, image, SHT_SYMTAB, 0);
    out->debugdata = tl_image_debugdata_open(image);
    if (out->debugdata)
        collect_section(collector, out->debugdata, SHT_SYMTAB, slide_of(image, out->debugdata));
    if (tl_image_section_typed(image, SHT_SYMTAB))
        return; // a debug file would say the same
    out->debug = tl_image_debug_open(image, &out->debug_path);
    if (out->debug)
        collect_section(collector, out->debug, SHT_SYMTAB, slide_of(image, out->debug));
}

static int compare_entries(const void *a, const void *b)
{
    const struct tl_symbol *left = &((const struct entry *)a)->symbol;
    const struct tl_symbol *right = &((const struct entry *)b)->symbol;
    if (left->vaddr != right->vaddr)
        return left->vaddr < right->vaddr ? -1 : 1;
    int order = strcmp(left->name, right->name);
    if (order || left->version == right->version)
        return order;
    if (!left->version || !right->version)
        return left->version ? 1 : -1;
    return strcmp(left->version, right->version);
}

// The same name at the same address, from two tables. An entry without a version is the same as
// any.
static bool entries_equal(const struct tl_symbol *left, const struct tl_symbol *right)
{
    if (left->vaddr != right->vaddr || strcmp(left->name, right->name) != 0)
        return false;
    return !left->version || !right->version || strcmp(left->version, right->version) == 0;
}

static void merge(struct collector *collector)
{
    size_t kept = 0;
    for (size_t i = 0; i < collector->count; i++) {
        struct entry *entry = &collector->entry[i];
        struct entry *last = kept ? &collector->entry[kept - 1] : NULL;
        if (!last || !entries_equal(&last->symbol, &entry->symbol)) {
            collector->entry[kept++] = *entry;
            continue;
        }
        if (!last->symbol.version) {
            last->symbol.version = entry->symbol.version;
            last->symbol.version_default = entry->symbol.version_default;
        } else if (entry->symbol.version) {
            last->symbol.version_default |= entry->symbol.version_default;
        }
        if (entry->symbol.size > last->symbol.size)
            last->symbol.size = entry->symbol.size;
        last->symbol.ifunc |= entry->symbol.ifunc;
        last->symbol.local &= entry->symbol.local;
        last->symbol.weak &= entry->symbol.weak;
        last->untyped &= entry->untyped;
    }
    collector->count = kept;
}

// Untyped names inside a sized function are labels of it, not functions.
static void drop_labels(struct collector *collector)
{
    size_t kept = 0;
    tl_addr start = 0, end = 0; // the sized function that reaches furthest so far
    for (size_t i = 0; i < collector->count; i++) {
        const struct entry entry = collector->entry[i];
        const struct tl_symbol *symbol = &entry.symbol;
        if (!entry.untyped && symbol->size > 0 && symbol->vaddr + symbol->size > end) {
            start = symbol->vaddr;
            end = symbol->vaddr + symbol->size;
        }
        if (entry.untyped && symbol->vaddr > start && symbol->vaddr < end)
            add_label(collector, symbol->vaddr);
        else
            collector->entry[kept++] = entry;
    }
    collector->count = kept;
}

static uint64_t guess_size(const struct tl_image *image, tl_addr vaddr, tl_addr next)
{
    const struct tl_segment *segment = tl_image_text_at(image, vaddr);
    const struct tl_section *section = tl_image_section_of(image, vaddr);
    tl_addr end = segment->vaddr + segment->file_size;
    if (section && section->vaddr + section->size < end)
        end = section->vaddr + section->size;
    return (next > vaddr && next < end ? next : end) - vaddr;
}

static bool finish(struct collector *collector)
{
    struct tl_symbols *out = collector->out;
    tl_addr next = 0; // the first address above with a symbol
    out->symbol = calloc(collector->count + 1, sizeof *out->symbol);
    out->mangled = calloc(collector->count + 1, sizeof *out->mangled);
    if (!out->symbol || !out->mangled)
        return false;
    for (size_t i = collector->count; i-- > 0;) {
        struct tl_symbol *symbol = &out->symbol[i];
        *symbol = collector->entry[i].symbol;
        symbol->untyped = collector->entry[i].untyped;
        if (i + 1 < collector->count && out->symbol[i + 1].vaddr > symbol->vaddr)
            next = out->symbol[i + 1].vaddr;
        if (symbol->size == 0) {
            symbol->size_guessed = true;
            symbol->size = guess_size(collector->image, symbol->vaddr, next);
        }
    }
    out->count = collector->count;
    for (size_t i = 0; i < out->count; i++) {
        if (tl_name_mangled(out->symbol[i].name))
            out->mangled[out->mangled_count++] = (uint32_t)i;
    }
    return true;
}

int tl_symbols_of(const struct tl_image *image, struct tl_symbols **out, struct tl_diag *diag)
{
    if (image->lazy->symbols) {
        *out = image->lazy->symbols;
        return 0;
    }
    struct tl_symbols *symbols = calloc(1, sizeof *symbols);
    struct collector collector = {.image = image, .out = symbols};
    if (!symbols)
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory for symbols", image->path);
    collect(&collector);
    bool done = !collector.no_memory && !collector.too_many;
    if (done) {
        if (collector.count > 1)
            qsort(collector.entry, collector.count, sizeof *collector.entry, compare_entries);
        merge(&collector);
        drop_labels(&collector);
        done = !collector.no_memory && finish(&collector);
    }
    free(collector.entry);
    if (!done) {
        tl_symbols_destroy(symbols);
        if (collector.too_many)
            return tl_diag_set(diag, TL_E_LIMIT, "%s: more than %u symbols", image->path,
                               TL_IMAGE_SYMBOL_MAX);
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory for symbols", image->path);
    }
    image->lazy->symbols = symbols;
    *out = symbols;
    return 0;
}

void tl_symbols_destroy(struct tl_symbols *symbols)
{
    if (!symbols)
        return;
    tl_image_close(symbols->debug);
    tl_image_close(symbols->debugdata);
    tl_arena_deinit(&symbols->arena);
    free(symbols->symbol);
    free(symbols->label);
    free(symbols->mapping);
    free(symbols->import);
    free(symbols->mangled);
    free(symbols->bucket);
    free(symbols->next);
    free(symbols);
}

size_t tl_symbols_lower(const struct tl_symbols *symbols, tl_addr vaddr)
{
    size_t low = 0, high = symbols->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (symbols->symbol[middle].vaddr < vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// FNV-1a: short, and good enough for names. A hostile file can make chains long, never endless.
static uint64_t hash_name(const char *name, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static bool index_build(struct tl_symbols *symbols)
{
    size_t buckets = 16;
    while (buckets < symbols->count * 2)
        buckets *= 2;
    symbols->bucket = calloc(buckets, sizeof *symbols->bucket);
    symbols->next = calloc(symbols->count + 1, sizeof *symbols->next);
    if (!symbols->bucket || !symbols->next)
        return false;
    symbols->bucket_count = buckets;
    for (size_t i = symbols->count; i-- > 0;) { // backwards, so that chains run by address
        const char *name = symbols->symbol[i].name;
        bool cold;
        uint32_t *head =
            &symbols->bucket[hash_name(name, tl_name_base(name, &cold)) & (buckets - 1)];
        symbols->next[i] = *head;
        *head = (uint32_t)i + 1;
    }
    return true;
}

uint32_t tl_symbols_chain(struct tl_symbols *symbols, const char *name, size_t size)
{
    if (!symbols->bucket_count && !index_build(symbols)) {
        free(symbols->bucket);
        free(symbols->next);
        symbols->bucket = symbols->next = NULL;
        return 0;
    }
    return symbols->bucket[hash_name(name, size) & (symbols->bucket_count - 1)];
}

bool tl_symbols_imports(const struct tl_symbols *symbols, const char *name)
{
    size_t size = strcspn(name, "@");
    for (size_t i = 0; i < symbols->import_count; i++) {
        const char *import = symbols->import[i];
        if (strncmp(import, name, size) == 0 && (!import[size] || import[size] == '@'))
            return true;
    }
    return false;
}

size_t tl_image_symbols(const struct tl_image *image, const struct tl_symbol **out)
{
    struct tl_symbols *symbols = NULL;
    if (tl_symbols_of(image, &symbols, NULL) != 0 || !symbols) {
        *out = NULL;
        return 0;
    }
    for (size_t i = 0; i < symbols->mangled_count && !symbols->demangled; i++) {
        struct tl_symbol *symbol = &symbols->symbol[symbols->mangled[i]];
        symbol->demangled = tl_demangle(&symbols->arena, symbol->name, true);
    }
    symbols->demangled = true;
    *out = symbols->symbol;
    return symbols->count;
}

const char *tl_image_debug_path(const struct tl_image *image)
{
    struct tl_symbols *symbols = NULL;
    return tl_symbols_of(image, &symbols, NULL) == 0 && symbols ? symbols->debug_path : NULL;
}

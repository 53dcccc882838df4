// Gathers what stage analyse needs to know of one image: text, functions, data, pointers, landing
// pads, restartable sequences.
//
//   exec PT_LOAD   | header | .init .plt .text .fini | .rodata |      -z noseparate-code
//                     left        text run              data run
//   other PT_LOAD  | .data.rel.ro .got |  .data  |
//                     data, read-only    data, writable                both in one relocated copy
//
// Writable segments are copied and their relative relocations applied (bias 0), so that a table of
// addresses reads as the program will see it; the file's own bytes are never changed, since names
// point into them. Decodes nothing. Invariant: fails closed; a list that could not be completed
// fails the whole.
#include "find/facts.h"

#include <fnmatch.h>
#include <linux/rseq.h>
#include <stdlib.h>
#include <string.h>

#include "find/symbols.h"

struct tl_facts {
    struct tl_module_facts facts;
    struct tl_text *text;
    size_t text_count, text_capacity;
    struct tl_extent *functions;
    struct tl_runs runs;
    size_t runs_capacity;
    uint8_t **copy; // relocated bytes, by segment index; NULL: none
    size_t copy_count;
    struct tl_vaddr_list pointers, landing_pads;
    struct tl_range_list rseq, avoid, literals;
};

struct builder {
    const struct tl_image *image;
    struct tl_facts *facts;
    bool no_memory, unreadable;
};

void tl_vaddr_list_add(struct tl_vaddr_list *list, tl_addr addr)
{
    if (list->count >= TL_FACTS_COUNT_MAX ||
        !tl_array_grow(&list->addr, &list->capacity, list->count + 1, sizeof *list->addr))
        list->failed = true;
    else
        list->addr[list->count++] = addr;
}

void tl_range_list_add(struct tl_range_list *list, tl_addr start, tl_addr end)
{
    if (list->count >= TL_FACTS_COUNT_MAX ||
        !tl_array_grow(&list->range, &list->capacity, list->count + 1, sizeof *list->range))
        list->failed = true;
    else
        list->range[list->count++] = (struct tl_range){start, end};
}

static int compare_addr(const void *a, const void *b)
{
    tl_addr left = *(const tl_addr *)a, right = *(const tl_addr *)b;
    return (left > right) - (left < right);
}

void tl_vaddr_list_sort(struct tl_vaddr_list *list)
{
    size_t kept = 0;
    if (list->count > 0)
        qsort(list->addr, list->count, sizeof *list->addr, compare_addr);
    for (size_t i = 0; i < list->count; i++) {
        if (kept == 0 || list->addr[kept - 1] != list->addr[i])
            list->addr[kept++] = list->addr[i];
    }
    list->count = kept;
}

struct tl_view tl_runs_view_at(const struct tl_image *image, const struct tl_runs *runs,
                               tl_addr vaddr)
{
    for (size_t i = 0; i < runs->count; i++) {
        const struct tl_data *data = &runs->data[i];
        if (vaddr - data->vaddr < data->size)
            return (struct tl_view){data->bytes + (vaddr - data->vaddr),
                                    data->size - (vaddr - data->vaddr)};
    }
    return tl_image_view_at(image, vaddr);
}

// --- text and data ---

// Whether a run holds code, where section headers can tell: gaps between data sections hold none.
static bool holds_code(const struct tl_image *image, tl_addr vaddr, uint64_t size)
{
    for (size_t i = 0; i < image->allocated_count; i++) {
        const struct tl_section *section = &image->section[image->allocated[i]];
        if (section->flags & SHF_EXECINSTR &&
            (section->vaddr - vaddr < size || vaddr - section->vaddr < section->size))
            return true;
    }
    return image->allocated_count == 0;
}

static void add_text(struct builder *builder, tl_addr vaddr, const uint8_t *bytes, uint64_t size)
{
    struct tl_facts *facts = builder->facts;
    if (size == 0 || !holds_code(builder->image, vaddr, size))
        return;
    if (!tl_array_grow(&facts->text, &facts->text_capacity, facts->text_count + 1,
                       sizeof *facts->text)) {
        builder->no_memory = true;
        return;
    }
    facts->text[facts->text_count++] = (struct tl_text){vaddr, bytes, (size_t)size};
}

static void add_data(struct builder *builder, tl_addr vaddr, const uint8_t *bytes, uint64_t size,
                     bool writable)
{
    struct tl_runs *runs = &builder->facts->runs;
    if (size == 0)
        return;
    if (!tl_array_grow(&runs->data, &builder->facts->runs_capacity, runs->count + 1,
                       sizeof *runs->data)) {
        builder->no_memory = true;
        return;
    }
    runs->data[runs->count++] = (struct tl_data){vaddr, bytes, (size_t)size, writable};
}

// An executable segment without its headers and without sections that are no code.
static void add_executable(struct builder *builder, const struct tl_segment *segment,
                           const uint8_t *bytes)
{
    const struct tl_image *image = builder->image;
    uint64_t at = 0; // what lies below is dealt with
    if (segment->file_off < image->header_end)
        at = image->header_end - segment->file_off;
    for (size_t i = 0; i < image->allocated_count; i++) {
        const struct tl_section *section = &image->section[image->allocated[i]];
        uint64_t start = section->vaddr - segment->vaddr;
        if (start >= segment->file_size || section->flags & SHF_EXECINSTR ||
            section->type == SHT_NOBITS)
            continue;
        uint64_t end =
            section->size < segment->file_size - start ? start + section->size : segment->file_size;
        if (start > at)
            add_text(builder, segment->vaddr + at, bytes + at, start - at);
        add_data(builder, segment->vaddr + start, bytes + start, end - start,
                 segment->prot & TL_PROT_WRITE);
        if (end > at)
            at = end;
    }
    if (at < segment->file_size)
        add_text(builder, segment->vaddr + at, bytes + at, segment->file_size - at);
}

// A writable segment: the part that is made read-only after relocation, and the rest.
static void add_writable(struct builder *builder, size_t index, const uint8_t *bytes)
{
    const struct tl_segment *segment = &builder->image->segment[index];
    struct tl_range relro = builder->image->relro;
    uint8_t *copy = malloc((size_t)segment->file_size);
    if (!copy) {
        builder->no_memory = true;
        return;
    }
    memcpy(copy, bytes, (size_t)segment->file_size);
    builder->facts->copy[index] = copy;
    uint64_t start = relro.start - segment->vaddr, end;
    if (relro.end > relro.start && start < segment->file_size) {
        uint64_t size = relro.end - relro.start;
        end = size < segment->file_size - start ? start + size : segment->file_size;
    } else {
        start = end = 0;
    }
    add_data(builder, segment->vaddr, copy, start, true);
    add_data(builder, segment->vaddr + start, copy + start, end - start, false);
    add_data(builder, segment->vaddr + end, copy + end, segment->file_size - end, true);
}

static void add_segments(struct builder *builder)
{
    const struct tl_image *image = builder->image;
    builder->facts->copy = calloc(image->segment_count + 1, sizeof *builder->facts->copy);
    if (!builder->facts->copy) {
        builder->no_memory = true;
        return;
    }
    builder->facts->copy_count = image->segment_count;
    uint64_t copied = 0;
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct tl_segment *segment = &image->segment[i];
        if (segment->file_size == 0)
            continue;
        const uint8_t *bytes = tl_file_at(image->file, segment->file_off, segment->file_size);
        if (!bytes) {
            builder->unreadable = true;
            return;
        }
        if (segment->prot & TL_PROT_EXEC) {
            add_executable(builder, segment, bytes);
        } else if (segment->prot & TL_PROT_WRITE) {
            copied += segment->file_size; // segments may overlap in a hostile file
            if (copied > image->file->size * 2 + TL_PAGE_SIZE)
                builder->no_memory = true;
            else
                add_writable(builder, i, bytes);
        } else {
            add_data(builder, segment->vaddr, bytes, segment->file_size, false);
        }
    }
}

// --- pointers ---

static void add_pointer(struct builder *builder, tl_addr vaddr)
{
    if (vaddr && tl_image_text_at(builder->image, vaddr))
        tl_vaddr_list_add(&builder->facts->pointers, vaddr);
}

// The word in a copy, or NULL.
static uint8_t *copied_word(struct builder *builder, tl_addr vaddr)
{
    for (size_t i = 0; i < builder->facts->copy_count; i++) {
        const struct tl_segment *segment = &builder->image->segment[i];
        uint64_t at = vaddr - segment->vaddr;
        if (builder->facts->copy[i] && at < segment->file_size && segment->file_size - at >= 8)
            return builder->facts->copy[i] + at;
    }
    return NULL;
}

static bool visit_reloc(void *opaque, const struct tl_elf_reloc *reloc)
{
    struct builder *builder = opaque;
    if (reloc->kind == TL_ELF_SYMBOL) {
        if (reloc->symbol_vaddr)
            add_pointer(builder, reloc->symbol_vaddr + (reloc->slot ? 0 : reloc->addend));
    } else {
        uint8_t *word = reloc->kind == TL_ELF_RELATIVE ? copied_word(builder, reloc->vaddr) : NULL;
        if (word)
            memcpy(word, &reloc->addend, sizeof reloc->addend);
        add_pointer(builder, reloc->addend);
    }
    return !builder->facts->pointers.failed;
}

static bool visit_relr(void *opaque, tl_addr vaddr)
{
    struct builder *builder = opaque;
    uint64_t value;
    if (tl_view_read(tl_runs_view_at(builder->image, &builder->facts->runs, vaddr), 0, &value,
                     sizeof value))
        add_pointer(builder, value);
    return !builder->facts->pointers.failed;
}

static void add_array(struct builder *builder, tl_addr vaddr, uint64_t size)
{
    if (size == 0)
        return;
    struct tl_view view = tl_runs_view_at(builder->image, &builder->facts->runs, vaddr);
    uint64_t value;
    for (uint64_t at = 0; at + sizeof value <= size; at += sizeof value) {
        if (!tl_view_read(view, at, &value, sizeof value))
            return;
        add_pointer(builder, value);
    }
}

static int add_pointers(struct builder *builder, const struct tl_symbols *symbols,
                        struct tl_diag *diag)
{
    const struct tl_image *image = builder->image;
    const struct tl_dynamic *dynamic = &image->dynamic;
    int error = tl_relocs_each(image, visit_reloc, builder, diag);
    if (error)
        return error;
    tl_relr_each(image, visit_relr, builder);
    add_pointer(builder, image->entry);
    add_pointer(builder, dynamic->init);
    add_pointer(builder, dynamic->fini);
    add_array(builder, dynamic->preinit_array, dynamic->preinit_array_size);
    add_array(builder, dynamic->init_array, dynamic->init_array_size);
    add_array(builder, dynamic->fini_array, dynamic->fini_array_size);
    for (size_t i = 0; i < image->section_count; i++) {
        const struct tl_section *section = &image->section[i];
        if (section->flags & SHF_ALLOC &&
            (section->type == SHT_INIT_ARRAY || section->type == SHT_FINI_ARRAY ||
             section->type == SHT_PREINIT_ARRAY))
            add_array(builder, section->vaddr, section->size);
    }
    for (size_t i = 0; i < symbols->label_count; i++)
        add_pointer(builder, symbols->label[i]);
    tl_vaddr_list_sort(&builder->facts->pointers);
    return 0;
}

// --- restartable sequences ---

// linux/rseq.h (since Linux 4.18): the kernel compares the 4 bytes before the abort handler with
// the signature that the thread registered.
#define RSEQ_SIGNATURE_SIZE 4u

static void add_rseq(struct builder *builder, tl_addr vaddr)
{
    struct rseq_cs cs;
    struct tl_range_list *list = &builder->facts->rseq;
    if (!tl_view_read(tl_runs_view_at(builder->image, &builder->facts->runs, vaddr), 0, &cs,
                      sizeof cs))
        return;
    if (cs.post_commit_offset && tl_image_text_at(builder->image, cs.start_ip) &&
        cs.start_ip + cs.post_commit_offset > cs.start_ip)
        tl_range_list_add(list, cs.start_ip, cs.start_ip + cs.post_commit_offset);
    if (tl_image_text_at(builder->image, cs.abort_ip))
        tl_range_list_add(list, cs.abort_ip - RSEQ_SIGNATURE_SIZE, cs.abort_ip + 1);
}

static int compare_range(const void *a, const void *b)
{
    const struct tl_range *left = a, *right = b;
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    return (left->end > right->end) - (left->end < right->end);
}

// A section's bytes at their addresses, as relocated; what lies outside a segment is left out.
static struct tl_view relocated_section(const struct builder *builder, const char *name,
                                        tl_addr *vaddr)
{
    const struct tl_section *section = tl_image_section_named(builder->image, name);
    if (!section || !(section->flags & SHF_ALLOC))
        return (struct tl_view){0};
    struct tl_view view = tl_runs_view_at(builder->image, &builder->facts->runs, section->vaddr);
    if (view.size > section->size)
        view.size = section->size;
    *vaddr = section->vaddr;
    return view;
}

static void add_rseq_sections(struct builder *builder)
{
    struct tl_range_list *list = &builder->facts->rseq;
    tl_addr vaddr = 0;
    uint64_t value;
    struct tl_view view = relocated_section(builder, "__rseq_cs", &vaddr);
    for (uint64_t at = 0; at + sizeof(struct rseq_cs) <= view.size && !list->failed;
         at += sizeof(struct rseq_cs))
        add_rseq(builder, vaddr + at);
    view = relocated_section(builder, "__rseq_cs_ptr_array", &vaddr);
    for (uint64_t at = 0; tl_view_read(view, at, &value, sizeof value) && !list->failed;
         at += sizeof value)
        add_rseq(builder, value);
    size_t kept = 0;
    if (list->count > 0)
        qsort(list->range, list->count, sizeof *list->range, compare_range);
    for (size_t i = 0; i < list->count; i++) {
        if (kept == 0 || compare_range(&list->range[kept - 1], &list->range[i]) != 0)
            list->range[kept++] = list->range[i];
    }
    list->count = kept;
}

// --- functions ---

static int compare_extent(const void *a, const void *b)
{
    const struct tl_extent *left = a, *right = b;
    return (left->vaddr > right->vaddr) - (left->vaddr < right->vaddr);
}

static void extent_merge(struct tl_extent *into, const struct tl_extent *from)
{
    bool better = into->guessed && !from->guessed;
    if (better || (into->guessed == from->guessed && from->size > into->size)) {
        into->size = from->size;
        into->guessed = from->guessed;
    }
    into->part = (into->part || !into->symbol) && (from->part || !from->symbol) &&
                 (into->part || from->part);
    into->symbol |= from->symbol;
    into->untyped &= from->untyped;
    into->doubted &= from->doubted;
}

// gcc and clang name what they move out of a function "name.cold" or "name.cold.2".
static bool is_part(const char *name)
{
    const char *cold = strstr(name, ".cold");
    return cold && cold != name && (cold[5] == '\0' || cold[5] == '.');
}

static bool add_functions(struct builder *builder, const struct tl_symbols *symbols,
                          const struct tl_range_list *frames)
{
    size_t count = 0, kept = 0;
    struct tl_extent *extent = calloc(symbols->count + frames->count + 1, sizeof *extent);
    if (!extent)
        return false;
    for (size_t i = 0; i < symbols->count; i++) {
        const struct tl_symbol *symbol = &symbols->symbol[i];
        bool untyped = symbol->untyped && symbol->size_guessed;
        if (symbol->size > 0)
            extent[count++] =
                (struct tl_extent){.vaddr = symbol->vaddr,
                                   .size = symbol->size,
                                   .guessed = symbol->size_guessed,
                                   .symbol = true,
                                   .untyped = untyped,
                                   .doubted = untyped && symbol->local,
                                   .part = is_part(symbol->name)};
    }
    for (size_t i = 0; i < frames->count; i++) {
        const struct tl_range *frame = &frames->range[i];
        extent[count++] = (struct tl_extent){.vaddr = frame->start,
                                              .size = frame->end - frame->start};
    }
    qsort(extent, count, sizeof *extent, compare_extent);
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && extent[kept - 1].vaddr == extent[i].vaddr)
            extent_merge(&extent[kept - 1], &extent[i]);
        else
            extent[kept++] = extent[i];
    }
    for (size_t i = 0; i + 1 < kept; i++) {
        uint64_t gap = extent[i + 1].vaddr - extent[i].vaddr;
        if (extent[i].guessed && extent[i].size > gap)
            extent[i].size = gap;
    }
    builder->facts->functions = extent;
    builder->facts->facts.function_count = kept;
    return true;
}

// Functions that stage analyse never touches, by their names.
static void add_avoid(struct builder *builder, const struct tl_symbols *symbols)
{
    static const char *const patterns[] = {TL_AVOID_NAMES};
    struct tl_range_list *avoid = &builder->facts->avoid;
    for (size_t i = 0; i < symbols->count; i++) { // by address, so the ranges are sorted
        const struct tl_symbol *symbol = &symbols->symbol[i];
        bool found = false;
        if (symbol->name[0] != '_' && symbol->name[0] != 'm')
            continue;
        for (size_t k = 0; k < TL_ARRAY_COUNT(patterns) && !found; k++)
            found = fnmatch(patterns[k], symbol->name, 0) == 0;
        // gcc calls arm64's like any function, with what it needs itself out of the way.
        if (builder->image->machine == EM_AARCH64 && strstr(symbol->name, "mcount"))
            found = false;
        bool again = avoid->count && avoid->range[avoid->count - 1].end > symbol->vaddr;
        if (found && symbol->size && !again)
            tl_range_list_add(avoid, symbol->vaddr, symbol->vaddr + symbol->size);
    }
}

static int compare_mapping(const void *a, const void *b)
{
    const struct tl_mapping *left = a, *right = b;
    if (left->vaddr != right->vaddr)
        return left->vaddr < right->vaddr ? -1 : 1;
    return left->data - right->data;
}

// Data ends where code begins, or its section ends.
static void add_literals(struct builder *builder, const struct tl_symbols *symbols)
{
    struct tl_range_list *literals = &builder->facts->literals;
    if (symbols->mapping_count > 0)
        qsort(symbols->mapping, symbols->mapping_count, sizeof *symbols->mapping, compare_mapping);
    for (size_t i = 0; i < symbols->mapping_count; i++) {
        const struct tl_mapping *start = &symbols->mapping[i];
        // Of two at one address the later one has no bytes between them.
        if (!start->data || (i > 0 && start[-1].data) ||
            (i > 0 && start[-1].vaddr == start->vaddr))
            continue;
        size_t behind = i + 1;
        while (behind < symbols->mapping_count && symbols->mapping[behind].data)
            behind++;
        const struct tl_section *section = tl_image_section_of(builder->image, start->vaddr);
        const struct tl_segment *segment = tl_image_text_at(builder->image, start->vaddr);
        tl_addr end = section ? section->vaddr + section->size : segment->vaddr + segment->file_size;
        if (behind < symbols->mapping_count && symbols->mapping[behind].vaddr < end)
            end = symbols->mapping[behind].vaddr;
        if (end > start->vaddr)
            tl_range_list_add(literals, start->vaddr, end);
    }
}

// --- all of it ---

static void publish(struct tl_facts *facts, const struct tl_image *image)
{
    facts->facts.text = facts->text;
    facts->facts.text_count = facts->text_count;
    facts->facts.functions = facts->functions;
    facts->facts.data = facts->runs.data;
    facts->facts.data_count = facts->runs.count;
    facts->facts.pointers = facts->pointers.addr;
    facts->facts.pointer_count = facts->pointers.count;
    facts->facts.landing_pads = facts->landing_pads.addr;
    facts->facts.landing_pad_count = facts->landing_pads.count;
    facts->facts.rseq = facts->rseq.range;
    facts->facts.rseq_count = facts->rseq.count;
    facts->facts.avoid = facts->avoid.range;
    facts->facts.avoid_count = facts->avoid.count;
    facts->facts.literals = facts->literals.range;
    facts->facts.literal_count = facts->literals.count;
    facts->facts.elf_machine = image->machine;
    facts->facts.go_text = tl_go_text(image, &facts->runs);
    facts->facts.position_fixed = image->type == ET_EXEC;
}

static int facts_build(struct tl_image *image, struct tl_facts *facts, struct tl_diag *diag)
{
    struct builder builder = {.image = image, .facts = facts};
    struct tl_range_list frames = {0};
    struct tl_symbols *symbols;
    int error = tl_symbols_of(image, &symbols, diag);
    if (error)
        return error;
    add_segments(&builder);
    if (builder.unreadable)
        return tl_diag_set(diag, TL_E_FORMAT, "%s: a segment's bytes can't be read", image->path);
    if (!builder.no_memory)
        error = add_pointers(&builder, symbols, diag);
    if (!error)
        error = tl_unwind_read(image, &facts->runs, &frames, &facts->landing_pads, diag);
    if (!error) {
        add_rseq_sections(&builder);
        add_avoid(&builder, symbols);
        add_literals(&builder, symbols);
        tl_vaddr_list_sort(&facts->landing_pads);
        if (!add_functions(&builder, symbols, &frames))
            builder.no_memory = true;
        if (builder.no_memory || facts->pointers.failed || facts->landing_pads.failed ||
            facts->rseq.failed || facts->avoid.failed || facts->literals.failed || frames.failed)
            error =
                tl_diag_set(diag, TL_E_LIMIT, "%s: too large to look at as a whole", image->path);
    }
    free(frames.range);
    return error;
}

int tl_image_facts(struct tl_image *image, const struct tl_module_facts **out, struct tl_diag *diag)
{
    if (!image->lazy->facts) {
        struct tl_facts *facts = calloc(1, sizeof *facts);
        if (!facts)
            return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", image->path);
        int error = facts_build(image, facts, diag);
        if (error) {
            tl_facts_destroy(facts);
            return error;
        }
        publish(facts, image);
        image->lazy->facts = facts;
    }
    *out = &image->lazy->facts->facts;
    return 0;
}

void tl_facts_destroy(struct tl_facts *facts)
{
    if (!facts)
        return;
    for (size_t i = 0; i < facts->copy_count; i++)
        free(facts->copy[i]);
    free(facts->copy);
    free(facts->text);
    free(facts->functions);
    free(facts->runs.data);
    free(facts->pointers.addr);
    free(facts->landing_pads.addr);
    free(facts->rseq.range);
    free(facts->avoid.range);
    free(facts->literals.range);
    free(facts);
}

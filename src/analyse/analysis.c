// Life of an analysis, and the look-ups that all files of the stage use. Decodes on demand only
// through code.c. Keeps: facts are borrowed and never written; addresses outside the text are
// answered "no", never followed.
#include "analyse/analysis.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

int tl_addr_list_push(struct addr_list *list, tl_addr addr)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        tl_addr *item = reallocarray(list->item, capacity, sizeof(*item));
        if (item == NULL)
            return TL_E_NOMEM;
        list->item = item;
        list->capacity = capacity;
    }
    list->item[list->count++] = addr;
    return 0;
}

static int addr_compare(const void *one, const void *two)
{
    tl_addr a = *(const tl_addr *)one, b = *(const tl_addr *)two;
    return (a > b) - (a < b);
}

void tl_addr_list_sort(struct addr_list *list)
{
    if (list->count == 0)
        return;
    qsort(list->item, list->count, sizeof(*list->item), addr_compare);
    size_t kept = 1;
    for (size_t i = 1; i < list->count; i++)
        if (list->item[i] != list->item[kept - 1])
            list->item[kept++] = list->item[i];
    list->count = kept;
}

size_t tl_addr_list_lower(const struct addr_list *list, tl_addr addr)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->item[middle] < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void tl_addr_list_deinit(struct addr_list *list)
{
    free(list->item);
    *list = (struct addr_list){0};
}

struct region *tl_region_at(const struct tl_analysis *analysis, tl_addr addr)
{
    for (size_t i = 0; i < analysis->region_count; i++) {
        struct region *region = &analysis->region[i];
        if (addr - region->vaddr < region->size)
            return region;
    }
    return NULL;
}

// Index of the last function that starts at or before addr, or NONE.
static uint32_t function_before(const struct tl_analysis *analysis, tl_addr addr)
{
    const struct tl_extent *functions = analysis->facts.functions;
    size_t low = 0, high = analysis->facts.function_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (functions[middle].vaddr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? FUNCTION_NONE : (uint32_t)(low - 1);
}

uint32_t tl_function_at(const struct tl_analysis *analysis, tl_addr addr)
{
    const struct tl_extent *functions = analysis->facts.functions;
    uint32_t index = function_before(analysis, addr);
    for (; index != FUNCTION_NONE; index = index == 0 ? FUNCTION_NONE : index - 1) {
        if (addr - functions[index].vaddr < functions[index].size)
            return index;
        if (analysis->function[index].reach <= addr)
            break;
    }
    return FUNCTION_NONE;
}

uint32_t tl_function_starting(const struct tl_analysis *analysis, tl_addr addr)
{
    uint32_t index = function_before(analysis, addr);
    return index != FUNCTION_NONE && analysis->facts.functions[index].vaddr == addr ? index
                                                                                    : FUNCTION_NONE;
}

bool tl_code_starts(const struct tl_analysis *analysis, tl_addr addr)
{
    const struct region *region = tl_region_at(analysis, addr);
    return region != NULL && bit_get(region->start, addr - region->vaddr);
}

bool tl_is_barrier(const struct tl_analysis *analysis, tl_addr addr)
{
    const struct region *region = tl_region_at(analysis, addr);
    return region != NULL && bit_get(region->barrier, addr - region->vaddr);
}

bool tl_is_entered(const struct tl_analysis *analysis, tl_addr addr)
{
    const struct region *region = tl_region_at(analysis, addr);
    return region != NULL && bit_get(region->entered, addr - region->vaddr);
}

void tl_set_entered(struct tl_analysis *analysis, tl_addr addr)
{
    struct region *region = tl_region_at(analysis, addr);
    if (region == NULL)
        return;
    bit_set(region->barrier, addr - region->vaddr);
    bit_set(region->entered, addr - region->vaddr);
}

void tl_set_barrier(struct tl_analysis *analysis, tl_addr addr)
{
    struct region *region = tl_region_at(analysis, addr);
    if (region != NULL)
        bit_set(region->barrier, addr - region->vaddr);
}

bool tl_is_literal(const struct tl_analysis *analysis, tl_addr addr)
{
    const struct tl_range *literals = analysis->facts.literals;
    size_t low = 0, high = analysis->facts.literal_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (literals[middle].end <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low < analysis->facts.literal_count && literals[low].start <= addr;
}

bool tl_may_start(const struct tl_analysis *analysis, tl_addr addr)
{
    return addr % analysis->arch->insn_align == 0 && !tl_is_literal(analysis, addr);
}

bool tl_decode_at(const struct tl_analysis *analysis, tl_addr addr, bool skim, struct tl_insn *out)
{
    const struct region *region = tl_region_at(analysis, addr);
    if (region == NULL)
        return false;
    size_t off = addr - region->vaddr;
    return (skim ? analysis->arch->skim
                 : analysis->arch->decode)(region->bytes + off, region->size - off, addr, out) == 0;
}

tl_addr tl_code_covering(const struct tl_analysis *analysis, tl_addr addr)
{
    for (tl_addr back = 1; back < analysis->arch->insn_size_max && back <= addr; back++) {
        struct tl_insn insn;
        if (tl_code_starts(analysis, addr - back) &&
            tl_decode_at(analysis, addr - back, true, &insn) && insn.size > back)
            return addr - back;
    }
    return 0;
}

// What unwinders and debuggers look for: Linux's rt_sigreturn.
static const struct sigreturn {
    uint16_t elf_machine;
    uint8_t size;
    uint8_t bytes[9];
} sigreturns[] = {
    // mov $15, %rax or %eax; syscall
    {EM_X86_64, 9, {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}},
    {EM_X86_64, 7, {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05}},
    // mov x8, #139; svc #0
    {EM_AARCH64, 8, {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}},
    // li a7, 139; ecall
    {EM_RISCV, 8, {0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0}},
};

void tl_set_called(struct tl_analysis *analysis, tl_addr addr)
{
    uint32_t function = tl_function_starting(analysis, addr);
    if (function != FUNCTION_NONE)
        analysis->function[function].called = true;
}

bool tl_is_sigreturn(const struct tl_analysis *analysis, tl_addr addr)
{
    const struct region *region = tl_region_at(analysis, addr);
    if (region == NULL)
        return false;
    size_t off = addr - region->vaddr, room = region->size - off;
    for (size_t i = 0; i < TL_ARRAY_COUNT(sigreturns); i++) {
        const struct sigreturn *known = &sigreturns[i];
        if (known->elf_machine == analysis->arch->elf_machine && room >= known->size &&
            memcmp(region->bytes + off, known->bytes, known->size) == 0)
            return true;
    }
    return false;
}

tl_addr tl_code_before(const struct tl_analysis *analysis, tl_addr addr)
{
    tl_addr found = 0;
    for (tl_addr back = 1; back <= analysis->arch->insn_size_max && back <= addr; back++) {
        struct tl_insn insn;
        if (!tl_code_starts(analysis, addr - back) ||
            !tl_decode_at(analysis, addr - back, true, &insn) || insn.size != back)
            continue;
        if (found != 0)
            return 0; // two instructions end here
        found = insn.flow == TL_FLOW_NEXT || insn.flow == TL_FLOW_COND ||
                        insn.flow == TL_FLOW_CALL || insn.flow == TL_FLOW_ICALL
                    ? addr - back
                    : 0;
    }
    return found;
}

bool tl_in_ranges(const struct tl_range *range, size_t count, tl_addr start, tl_addr end)
{
    for (size_t i = 0; i < count; i++)
        if (range[i].start < end && start < range[i].end)
            return true;
    return false;
}

uint32_t tl_group_of(struct tl_analysis *analysis, uint32_t function)
{
    struct function_state *state = analysis->function;
    while (state[function].group != function) {
        state[function].group = state[state[function].group].group;
        function = state[function].group;
    }
    return function;
}

void tl_group_join(struct tl_analysis *analysis, uint32_t one, uint32_t two)
{
    if (one == FUNCTION_NONE || two == FUNCTION_NONE)
        return;
    one = tl_group_of(analysis, one);
    two = tl_group_of(analysis, two);
    if (one == two)
        return;
    analysis->function[two].group = one;
    analysis->function[one].unproved |= analysis->function[two].unproved;
}

bool tl_group_unproved(struct tl_analysis *analysis, uint32_t function)
{
    return analysis->function[tl_group_of(analysis, function)].unproved;
}

void tl_group_set_unproved(struct tl_analysis *analysis, uint32_t function)
{
    if (function != FUNCTION_NONE)
        analysis->function[tl_group_of(analysis, function)].unproved = true;
}

static int regions_create(struct tl_analysis *analysis)
{
    const struct tl_module_facts *facts = &analysis->facts;
    analysis->region = calloc(facts->text_count + 1, sizeof(*analysis->region));
    if (analysis->region == NULL)
        return TL_E_NOMEM;
    for (size_t i = 0; i < facts->text_count; i++) {
        struct region *region = &analysis->region[analysis->region_count++];
        region->vaddr = facts->text[i].vaddr;
        region->bytes = facts->text[i].bytes;
        region->size = facts->text[i].size;
        size_t words = region->size / 64 + 1;
        region->start = calloc(words, sizeof(uint64_t));
        region->body = calloc(words, sizeof(uint64_t));
        region->barrier = calloc(words, sizeof(uint64_t));
        region->entered = calloc(words, sizeof(uint64_t));
        if (region->start == NULL || region->body == NULL || region->barrier == NULL ||
            region->entered == NULL)
            return TL_E_NOMEM;
    }
    return 0;
}

static int list_copy(struct addr_list *list, const tl_addr *item, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tl_addr_list_push(list, item[i]) != 0)
            return TL_E_NOMEM;
    tl_addr_list_sort(list);
    return 0;
}

static int facts_take(struct tl_analysis *analysis)
{
    const struct tl_module_facts *facts = &analysis->facts;
    if (facts->function_count >= FUNCTION_NONE)
        return TL_E_LIMIT;
    analysis->function = calloc(facts->function_count + 1, sizeof(*analysis->function));
    if (analysis->function == NULL ||
        list_copy(&analysis->pointers, facts->pointers, facts->pointer_count) != 0 ||
        list_copy(&analysis->pads, facts->landing_pads, facts->landing_pad_count) != 0)
        return TL_E_NOMEM;
    tl_addr reach = 0; // of all functions so far, to find those that overlap
    uint32_t reaching = 0;
    for (uint32_t i = 0; i < facts->function_count; i++) {
        const struct tl_extent *extent = &facts->functions[i];
        analysis->function[i].group = i;
        tl_set_barrier(analysis, extent->vaddr);
        if (i > 0 && extent->vaddr < reach)
            tl_group_join(analysis, reaching, i);
        if (extent->vaddr + extent->size > reach) {
            reach = extent->vaddr + extent->size;
            reaching = i;
        }
        analysis->function[i].reach = reach;
    }
    for (size_t i = 0; i < analysis->pointers.count; i++) {
        tl_set_entered(analysis, analysis->pointers.item[i]);
        tl_set_called(analysis, analysis->pointers.item[i]);
    }
    for (size_t i = 0; i < analysis->pads.count; i++)
        tl_set_entered(analysis, analysis->pads.item[i]);
    return 0;
}

// Everything that later code relies on without looking again.
static int facts_check(const struct tl_module_facts *facts, struct tl_diag *diag)
{
    for (size_t i = 0; i < facts->text_count; i++)
        if (facts->text[i].vaddr + facts->text[i].size < facts->text[i].vaddr)
            return tl_diag_set(diag, TL_E_FORMAT, "text at 0x%llx wraps around",
                               (unsigned long long)facts->text[i].vaddr);
    for (size_t i = 0; i < facts->function_count; i++) {
        const struct tl_extent *extent = &facts->functions[i];
        if (extent->size == 0 || extent->vaddr + extent->size < extent->vaddr ||
            (i > 0 && extent[-1].vaddr >= extent->vaddr))
            return tl_diag_set(diag, TL_E_FORMAT,
                               "function at 0x%llx is empty, wraps around or is out of order",
                               (unsigned long long)extent->vaddr);
    }
    for (size_t i = 0; i < facts->data_count; i++)
        if (facts->data[i].vaddr + facts->data[i].size < facts->data[i].vaddr)
            return tl_diag_set(diag, TL_E_FORMAT, "data at 0x%llx wraps around",
                               (unsigned long long)facts->data[i].vaddr);
    return 0;
}

int tl_analysis_create(const struct tl_module_facts *facts, struct tl_analysis **out,
                       struct tl_diag *diag)
{
    int status = facts_check(facts, diag);
    if (status != 0)
        return status;
    struct tl_analysis *analysis = calloc(1, sizeof(*analysis));
    if (analysis == NULL)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for an analysis");
    analysis->facts = *facts;
    analysis->arch = tl_arch_find(facts->elf_machine == 0 ? EM_X86_64 : facts->elf_machine);
    if (analysis->arch == NULL) {
        tl_analysis_destroy(analysis);
        return tl_diag_set(diag, TL_E_UNSUPPORTED, "ELF machine %u is not supported",
                           facts->elf_machine);
    }
    status = regions_create(analysis);
    if (status == 0)
        status = facts_take(analysis);
    if (status != 0) {
        tl_analysis_destroy(analysis);
        return tl_diag_set(diag, status, "out of memory, or too many functions, for an analysis");
    }
    *out = analysis;
    return 0;
}

void tl_analysis_destroy(struct tl_analysis *analysis)
{
    if (analysis == NULL)
        return;
    tl_flow_forget(analysis);
    tl_tables_forget(analysis);
    for (size_t i = 0; i < analysis->region_count; i++) {
        free(analysis->region[i].start);
        free(analysis->region[i].body);
        free(analysis->region[i].barrier);
        free(analysis->region[i].entered);
    }
    free(analysis->region);
    free(analysis->function);
    free(analysis->jump);
    free(analysis->edge);
    free(analysis->crossing);
    free(analysis->padding);
    tl_addr_list_deinit(&analysis->pointers);
    tl_addr_list_deinit(&analysis->pads);
    tl_addr_list_deinit(&analysis->leas);
    tl_addr_list_deinit(&analysis->reads);
    tl_addr_list_deinit(&analysis->pending);
    tl_addr_list_deinit(&analysis->gaps);
    tl_addr_list_deinit(&analysis->jump_targets);
    free(analysis);
}

// Fuzz target: an ELF file. Every question that find answers about it is asked, and the answers are
// checked against the promises of find.h and analyse.h.
#include <stdlib.h>
#include <string.h>

#include "find/find.h"
#include "find/modules.h"
#include "fuzz.h"

static void check_symbols(const struct tl_image *image)
{
    const struct tl_symbol *symbol;
    size_t count = tl_image_symbols(image, &symbol);
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        require(i == 0 || symbol[i - 1].vaddr <= symbol[i].vaddr, "symbols are sorted");
        require(symbol[i].name && symbol[i].name[0], "symbols have names");
        require(symbol[i].size > 0, "symbols have sizes");
        total += strlen(symbol[i].name);
        if (symbol[i].version)
            total += strlen(symbol[i].version);
        if (symbol[i].demangled)
            total += strlen(symbol[i].demangled);
        const char *section = tl_image_section_at(image, symbol[i].vaddr);
        total += section ? strlen(section) : 0;
    }
    require(total < SIZE_MAX, "strings end");
}

static unsigned sum(const uint8_t *bytes, size_t size)
{
    unsigned total = 0;
    for (size_t i = 0; i < size; i++)
        total += bytes[i];
    return total;
}

static void check_facts(struct tl_image *image)
{
    const struct tl_module_facts *facts;
    volatile unsigned total = 0;
    if (tl_image_facts(image, &facts, NULL) != 0)
        return;
    for (size_t i = 0; i < facts->function_count; i++) {
        require(i == 0 || facts->functions[i - 1].vaddr < facts->functions[i].vaddr,
                "functions are sorted");
        require(facts->functions[i].size > 0, "functions have sizes");
    }
    for (size_t i = 1; i < facts->pointer_count; i++)
        require(facts->pointers[i - 1] < facts->pointers[i], "pointers are sorted");
    for (size_t i = 1; i < facts->landing_pad_count; i++)
        require(facts->landing_pads[i - 1] < facts->landing_pads[i], "landing pads are sorted");
    for (size_t i = 0; i < facts->rseq_count; i++)
        require(facts->rseq[i].start < facts->rseq[i].end, "sequences are not empty");
    // All bytes can be read; overlapping segments may name the same ones again and again.
    size_t budget = (size_t)4 << 20;
    for (size_t i = 0; i < facts->text_count && facts->text[i].size <= budget; i++) {
        total += sum(facts->text[i].bytes, facts->text[i].size);
        budget -= facts->text[i].size;
    }
    for (size_t i = 0; i < facts->data_count && facts->data[i].size <= budget; i++) {
        total += sum(facts->data[i].bytes, facts->data[i].size);
        budget -= facts->data[i].size;
    }
}

static void check_probe(struct tl_modules *modules, const char *probe)
{
    struct tl_find_context context = {.modules = modules};
    struct tl_sites sites = {0};
    struct tl_probe_spec spec;
    struct tl_diag diag = {""};
    require(tl_probe_parse(probe, &spec, &diag) == 0, "the probe parses");
    int matched = tl_find_sites(&context, &spec, &sites, &diag);
    require(matched != 0 || diag.text[0], "no match is explained");
    for (size_t i = 0; i < sites.count && matched > 0; i++)
        require(sites.site[i].probe && sites.site[i].names, "sites have names");
    tl_sites_deinit(&sites);
    tl_probe_spec_deinit(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const probes[] = {"*",      "main", "f",      "marker+5", "ns::f(int)",
                                         "foo@V0", "0x0",  "0x1000", "*::*(*)"};
    struct tl_image *image;
    size_t order = 0;
    if (tl_image_open_memory(data, size, "input", &image, NULL) != 0)
        return 0;
    check_symbols(image);
    check_facts(image);
    char path[] = "input";
    struct tl_module module = {.image = image, .path = path, .main = true};
    struct tl_modules modules = {.module = &module, .count = 1, .order = &order};
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++)
        check_probe(&modules, probes[i]);
    tl_analysis_destroy(module.analysis);
    free(modules.notes);
    tl_image_close(image);
    return 0;
}

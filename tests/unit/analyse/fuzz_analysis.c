// Fuzz target: a whole analysis over any text, data and facts. The first bytes of the input say
// where functions, pointers and landing pads are; the rest is text, and the end of it data as well.
#include "../../fuzz/fuzz.h"

#include "analyse/analyse.h"

#include <elf.h>

#define TEXT_ADDR 0x401000
#define HEAD_SIZE 16
#define TEXT_SIZE_MAX 4096

static void check_site(const struct tl_site_facts *site, tl_addr end, tl_regset sp)
{
    require(site->insn_count <= TL_SITE_INSNS_MAX, "the list of instructions is bounded");
    require((site->dead & ~TL_REGSET_ALL) == 0 && (site->dead & sp) == 0, "the stack pointer is never dead");
    if (site->refusal != TL_REFUSE_NONE) {
        require(site->window_max == 0 && site->dead == 0, "what is refused has no facts");
        return;
    }
    require(site->insn[0].reloc != TL_RELOC_REFUSE, "a refused instruction is a refused site");
    require(site->window_max >= site->insn[0].size, "the window holds the instruction");
    require(site->vaddr + site->window_max <= end, "the window is in the text");
    require(site->looped == (site->looper_count > 0 || site->looper_more),
            "a loop has its branches");
    unsigned size = 0;
    for (unsigned i = 0; i < site->insn_count && size < site->window_max; i++) {
        bool last = size + site->insn[i].size >= site->window_max;
        require((site->insn[i].flags & TL_INSN_SYSCALL) == 0, "no system call in a window");
        require(last || (site->insn[i].flow != TL_FLOW_CALL && site->insn[i].flow != TL_FLOW_ICALL),
                "a call ends its window");
        size += site->insn[i].size;
    }
}

#define EXITS_MAX 8

static void check_exits(struct tl_analysis *analysis, tl_addr function, tl_addr end)
{
    struct tl_exit exits[EXITS_MAX];
    enum tl_refusal refusal;
    size_t count;
    require(tl_analysis_exits(analysis, function, exits, EXITS_MAX, &count, &refusal, NULL) == 0,
            "every function answers");
    require(count <= EXITS_MAX && (count > 0) == (refusal == TL_REFUSE_NONE), "exits or a refusal");
    for (size_t i = 0; i < count; i++) {
        require(exits[i].vaddr >= TEXT_ADDR && exits[i].vaddr < end, "exits are in the text");
        require(i == 0 || exits[i].vaddr > exits[i - 1].vaddr, "exits are in order");
        require(exits[i].early_count <= TL_EXIT_EARLY_MAX, "early places fit");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD_SIZE + 32)
        return 0;
    const uint8_t *bytes = data + HEAD_SIZE;
    size_t text_size = size - HEAD_SIZE < TEXT_SIZE_MAX ? size - HEAD_SIZE : TEXT_SIZE_MAX;
    struct tl_extent extents[6];
    tl_addr pointers[4], pad = TEXT_ADDR + data[14];
    struct tl_text text = {TEXT_ADDR, bytes, text_size};
    struct tl_data tables = {TEXT_ADDR + 0x2000, bytes + text_size / 2, text_size - text_size / 2,
                             (data[15] & 2) != 0};
    tl_addr at = TEXT_ADDR;
    size_t count = 0;
    for (; count < 6; count++) {
        at += data[count] + (count > 0 ? 1u : 0u);
        extents[count] = (struct tl_extent){.vaddr = at,
                                            .size = data[count + 4] + 1u,
                                            .symbol = (data[15] & 4) != 0,
                                            .part = (data[15] >> 4 & 1) != 0 && count % 2 != 0};
    }
    for (size_t i = 0; i < 4; i++)
        pointers[i] = TEXT_ADDR + data[10 + i] * 3u;
    struct tl_module_facts facts = {.text = &text,
                                    .text_count = 1,
                                    .functions = extents,
                                    .function_count = count,
                                    .data = &tables,
                                    .data_count = 1,
                                    .pointers = pointers,
                                    .pointer_count = 4,
                                    .landing_pads = &pad,
                                    .landing_pad_count = 1,
                                    .elf_machine = (data[15] & 64) != 0 ? EM_AARCH64 : EM_X86_64,
                                    .position_fixed = (data[15] & 1) != 0};
    struct tl_range literal = {TEXT_ADDR + data[12], TEXT_ADDR + data[12] + 8u};
    if ((data[15] & 128) != 0) {
        facts.literals = &literal;
        facts.literal_count = 1;
    }
    const tl_regset sp = TL_REGSET(facts.elf_machine == EM_AARCH64 ? 31 : 4);
    if ((data[15] & 32) != 0)
        facts.go_text = (struct tl_range){TEXT_ADDR, TEXT_ADDR + data[13] * 4u};
    struct tl_analysis *analysis;
    const struct tl_range *padding;
    struct tl_diag diag;
    if (tl_analysis_create(&facts, &analysis, &diag) != 0)
        return 0;
    if ((data[15] & 8) != 0)
        require(tl_analysis_padding(analysis, &padding) <= text_size, "padding is in the text");
    for (size_t i = 0; i < text_size; i += 3) {
        struct tl_site_facts site;
        tl_addr below, above;
        require(tl_analysis_site(analysis, TEXT_ADDR + i, &site, &diag) == 0, "every site answers");
        check_site(&site, TEXT_ADDR + text_size, sp);
        if (tl_analysis_boundaries(analysis, TEXT_ADDR + i, &below, &above))
            require(below <= TEXT_ADDR + i && above > TEXT_ADDR + i, "boundaries surround");
    }
    for (size_t i = 0; i < facts.function_count; i++)
        check_exits(analysis, extents[i].vaddr, TEXT_ADDR + text_size);
    tl_analysis_destroy(analysis);
    return 0;
}

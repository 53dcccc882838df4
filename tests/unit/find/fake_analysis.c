// A small stand-in for stage analyse, so that the tests of find depend on find alone: entries
// behind endbr64, and instruction boundaries by decoding straight on from the function's start.
// Proves nothing else.
#include <Zydis/Zydis.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/analyse.h"

struct tl_analysis {
    const struct tl_module_facts *facts;
};

int tl_analysis_create(const struct tl_module_facts *facts, struct tl_analysis **out,
                       struct tl_diag *diag)
{
    struct tl_analysis *analysis = malloc(sizeof *analysis);
    if (!analysis)
        return tl_diag_set(diag, TL_E_NOMEM, "no memory");
    analysis->facts = facts;
    *out = analysis;
    return 0;
}

void tl_analysis_destroy(struct tl_analysis *analysis)
{
    free(analysis);
}

static const uint8_t *bytes_at(const struct tl_analysis *analysis, tl_addr vaddr, size_t *rest)
{
    for (size_t i = 0; i < analysis->facts->text_count; i++) {
        const struct tl_text *text = &analysis->facts->text[i];
        if (vaddr - text->vaddr < text->size) {
            *rest = text->size - (vaddr - text->vaddr);
            return text->bytes + (vaddr - text->vaddr);
        }
    }
    return NULL;
}

tl_addr tl_analysis_entry(struct tl_analysis *analysis, tl_addr vaddr)
{
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    size_t rest;
    const uint8_t *bytes = bytes_at(analysis, vaddr, &rest);
    return bytes && rest >= 4 && memcmp(bytes, endbr64, 4) == 0 ? vaddr + 4 : vaddr;
}

// The last start at or below vaddr, and the next one.
static bool walk(struct tl_analysis *analysis, tl_addr vaddr, tl_addr *at, tl_addr *next)
{
    const struct tl_extent *extent = NULL;
    ZydisDecoder decoder;
    ZydisDecodedInstruction insn;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    for (size_t i = 0; i < analysis->facts->function_count; i++) {
        const struct tl_extent *one = &analysis->facts->functions[i];
        if (vaddr - one->vaddr < one->size)
            extent = one;
    }
    for (tl_addr here = extent ? extent->vaddr : 0; here;) {
        size_t rest;
        const uint8_t *bytes = bytes_at(analysis, here, &rest);
        if (!bytes ||
            !ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, bytes, rest, &insn)))
            return false;
        if (here + insn.length > vaddr) {
            *at = here;
            *next = here + insn.length;
            return true;
        }
        here += insn.length;
    }
    return false;
}

bool tl_analysis_boundaries(struct tl_analysis *analysis, tl_addr vaddr, tl_addr *below,
                            tl_addr *above)
{
    return walk(analysis, vaddr, below, above);
}

int tl_analysis_site(struct tl_analysis *analysis, tl_addr vaddr, struct tl_site_facts *out,
                     struct tl_diag *diag)
{
    tl_addr at, next;
    (void)diag;
    *out = (struct tl_site_facts){.vaddr = vaddr};
    if (!walk(analysis, vaddr, &at, &next))
        out->refusal = TL_REFUSE_NOT_CODE;
    else if (at != vaddr)
        out->refusal = TL_REFUSE_NOT_BOUNDARY;
    return 0;
}

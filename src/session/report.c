// What a session tells: one report a site, totals, notes.
#include "session/follow.h"

#include <stdio.h>
#include <string.h>

size_t tl_session_site_count(const struct tl_session *session)
{
    return session->line_count ? session->line_count : session->batch[0]->sites.count;
}

// Why the way is safe, for people.
static const char *way_reason(enum tl_way way)
{
    static const char *const reasons[] = {
        [TL_WAY_NONE] = "",
        [TL_WAY_ONE] = "the instruction has room for a branch",
        [TL_WAY_CALL] = "the call gets another target",
        [TL_WAY_PUN] = "the branch ends in bytes that the next instruction begins with",
        [TL_WAY_WINDOW] = "nothing leads into the bytes that the branch covers",
        [TL_WAY_ISLAND] = "a short branch to padding that no code owns",
        [TL_WAY_FAR] = "a branch through a register that is dead here",
        [TL_WAY_HOP] = "a branch to a longer one, in padding that no code owns or in code that makes room for it",
        [TL_WAY_SPILL] = "a branch through a register that it puts on the stack",
    };
    return (unsigned)way < TL_ARRAY_COUNT(reasons) ? reasons[way] : "";
}

// How its returns are probed, and why not better.
static void return_reason(const struct tl_session_site *state, char *buf, size_t size)
{
    const char *why = tl_refusal_text(state->exit_refusal);
    if (state->return_way == TL_SITE_EXITS)
        (void)snprintf(buf, size, "; returns: at %s%u exit%s", state->exit_count == 1 ? "its " : "each of ",
                       state->exit_count, state->exit_count == 1 ? "" : "s");
    else if (state->return_way == TL_SITE_TRAMPOLINE)
        (void)snprintf(buf, size, "; returns: by trampoline%s%s", *why ? ", " : "", why);
}

static void reason_fill(struct tl_batch *batch, size_t index, struct tl_site_report *report)
{
    const struct tl_site *site = &batch->sites.site[index];
    const struct tl_session_site *state = &batch->state[index];
    const char *note = site->note ? site->note : "";
    const char *between = *note ? "; " : "";
    const char *refusal = tl_refusal_text(state->refusal);
    char kernel[64] = "", returns[128] = "";
    if (state->kernel_errno)
        (void)snprintf(kernel, sizeof kernel, "; the kernel's probe: %s",
                       strerror(state->kernel_errno));
    return_reason(state, returns, sizeof returns);
    if (state->closed)
        (void)snprintf(report->reason, sizeof report->reason, "closed while running: %s", refusal);
    else if (state->rung == TL_RUNG_KERNEL)
        (void)snprintf(report->reason, sizeof report->reason, "%s%s%s",
                       state->refusal ? refusal : "asked for", between, note);
    else if (state->rung == TL_RUNG_REFUSED)
        (void)snprintf(report->reason, sizeof report->reason, "%s%s%s%s", refusal, kernel, between,
                       note);
    else
        (void)snprintf(report->reason, sizeof report->reason, "%s%s%s%s",
                       state->rung == TL_RUNG_JUMP ? way_reason(state->way)
                       : state->refusal            ? refusal
                                                   : "asked for",
                       returns, between, note);
}

const struct tl_arch *tl_session_arch(const struct tl_module *module)
{
    return tl_arch_find(tl_image_machine(module->image));
}

bool tl_session_insn(struct tl_module *module, tl_addr vaddr, struct tl_insn *out)
{
    const struct tl_module_facts *facts = NULL;
    if (!module || tl_image_facts(module->image, &facts, NULL))
        return false;
    for (size_t i = 0; i < facts->text_count; i++) {
        const struct tl_text *text = &facts->text[i];
        if (vaddr < text->vaddr || vaddr - text->vaddr >= text->size)
            continue;
        size_t off = vaddr - text->vaddr;
        const struct tl_arch *arch = tl_session_arch(module);
        return arch && !arch->decode(text->bytes + off, text->size - off, vaddr, out);
    }
    return false;
}

// The site's instruction is decoded again; facts are not kept for each site.
static void insn_fill(struct tl_module *module, const struct tl_site *site,
                      const struct tl_session_site *state, struct tl_site_report *report)
{
    struct tl_insn insn;
    if (!module || !tl_session_insn(module, site->vaddr, &insn))
        return;
    report->size = insn.size;
    memcpy(report->bytes, insn.bytes, sizeof report->bytes);
    tl_session_arch(module)->print(&insn, report->insn, sizeof report->insn);
    if (state->rung == TL_RUNG_JUMP)
        (void)snprintf(report->window, sizeof report->window, "%u bytes, %s", state->window_size,
                       tl_way_text(state->way));
}

static const char *return_way(const struct tl_batch *batch, size_t index)
{
    const struct tl_session_site *state = &batch->state[index];
    if (state->rung == TL_RUNG_KERNEL && batch->sites.site[index].kind == TL_PROBE_RETURN)
        return "kernel";
    if (state->return_way == TL_SITE_EXITS)
        return "exit";
    return state->return_way == TL_SITE_TRAMPOLINE ? "trampoline" : NULL;
}

const struct tl_site_report *tl_session_site(struct tl_session *session, size_t index)
{
    struct tl_site_report *report = &session->report;
    memset(report, 0, sizeof *report);
    if (index >= session->line_count)
        return report;
    const struct tl_session_line *line = &session->lines[index];
    struct tl_batch *batch = session->batch[line->batch];
    const struct tl_site *site = &batch->sites.site[line->site];
    const struct tl_session_site *state = &batch->state[line->site];
    struct tl_module *module = tl_modules_get(batch->modules, site->module);
    report->probe = site->probe;
    report->file = module ? module->path : "";
    report->function = site->names;
    report->addr = site->addr;
    report->rung = state->rung;
    report->refusal = state->refusal;
    report->hits = line->hits;
    report->dropped = line->dropped;
    report->is_return = site->kind == TL_PROBE_RETURN;
    report->return_way = return_way(batch, line->site);
    report->exit_count = state->return_way == TL_SITE_EXITS ? state->exit_count : 0;
    insn_fill(module, site, state, report);
    reason_fill(batch, line->site, report);
    return report;
}

void tl_session_totals(const struct tl_session *session, struct tl_session_totals *out)
{
    *out = (struct tl_session_totals){.sites = session->line_count,
                                      .attach_ms = session->attach_ms,
                                      .stopped_ms = session->stopped_ms,
                                      .detach_ms = session->detach_ms,
                                      .processes = tl_follow_count(session)};
    for (size_t i = 0; i < session->line_count; i++) {
        const struct tl_session_line *line = &session->lines[i];
        const struct tl_session_site *state = &session->batch[line->batch]->state[line->site];
        out->by_rung[state->rung]++;
        out->refused += state->rung == TL_RUNG_REFUSED;
        out->hits += line->hits;
        out->dropped += line->dropped;
    }
}

const char *tl_session_notes(const struct tl_session *session)
{
    return session->notes;
}

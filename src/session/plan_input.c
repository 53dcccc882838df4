// Turns found sites into the planner's requests and takes its answers back.
#include "session/internal.h"

#include <stdlib.h>

// Bias, padding and text range of every module that is analysed by now.
int tl_session_modules(struct tl_session *session, struct tl_diag *diag)
{
    size_t count = tl_modules_count(session->modules);
    free(session->plan_modules);
    session->plan_modules = calloc(count ? count : 1, sizeof *session->plan_modules);
    if (!session->plan_modules)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu modules", count);
    for (size_t i = 0; i < count; i++) {
        struct tl_module *module = tl_modules_get(session->modules, i);
        struct tl_plan_module *input = &session->plan_modules[i];
        input->bias = module->bias;
        if (!module->analysis)
            continue;
        input->padding_count = tl_analysis_padding(module->analysis, &input->padding);
        const struct tl_module_facts *facts = NULL;
        int error = tl_image_facts(module->image, &facts, diag);
        if (error)
            return error;
        input->texts = facts->text;
        input->text_count = facts->text_count;
        input->analysis = module->analysis;
        input->site = tl_analysis_site;
        if (facts->text_count) {
            const struct tl_text *last = &facts->text[facts->text_count - 1];
            input->text = (struct tl_range){facts->text[0].vaddr, last->vaddr + last->size};
        }
    }
    return 0;
}

static int request_add(struct tl_session *session, size_t index, struct tl_diag *diag)
{
    const struct tl_site *site = &session->sites.site[index];
    struct tl_session_site *state = &session->state[index];
    struct tl_module *module = tl_modules_get(session->modules, site->module);
    int error = tl_module_analyse(module, diag);
    if (error)
        return error;
    struct tl_plan_request *request = &session->requests[session->request_count];
    *request = (struct tl_plan_request){
        .bias = module->bias,
        .module = site->module,
        .counter_off = TL_BLOCK_HEADER_SIZE + 8u * state->counter,
    };
    error = tl_analysis_site(module->analysis, site->vaddr, &request->facts, diag);
    if (error)
        return error;
    if (site->kind == TL_PROBE_ENTRY && !site->entry)
        request->facts.entry = false;
    state->request = (uint32_t)session->request_count++;
    state->flags |= TL_SESSION_PLANNED;
    return 0;
}

int tl_session_requests(struct tl_session *session, size_t first, size_t count,
                        struct tl_diag *diag)
{
    if (count > session->request_max) {
        free(session->requests);
        session->request_max = 0;
        session->requests = calloc(count, sizeof *session->requests);
        if (!session->requests)
            return tl_diag_set(diag, TL_E_NOMEM, "out of memory for %zu sites", count);
        session->request_max = count;
    }
    session->request_count = 0;
    for (size_t i = first; i < first + count; i++) {
        if (session->state[i].refusal != TL_REFUSE_NONE)
            continue;
        int error = request_add(session, i, diag);
        if (error)
            return error;
        if (session->options.progress && i % 1024 == 0)
            session->options.progress(session->options.opaque, "analysing", i,
                                      session->sites.count);
    }
    return tl_session_modules(session, diag);
}

void tl_session_take_plans(struct tl_session *session)
{
    for (size_t i = 0; i < session->state_count; i++) {
        struct tl_session_site *state = &session->state[i];
        if (!(state->flags & TL_SESSION_PLANNED))
            continue;
        const struct tl_plan *plan = tl_plan_get(session->plans, state->request);
        state->rung = plan->rung;
        state->refusal = plan->refusal;
        state->way = plan->way;
        state->window_size = plan->window_size;
        state->interior = plan->interior;
        if (session->results && plan->rung == TL_RUNG_JUMP &&
            session->results[state->request].refusal != TL_REFUSE_NONE) {
            state->rung = TL_RUNG_REFUSED;
            state->refusal = session->results[state->request].refusal;
        }
    }
}

// Breakpoints by hand, as a session would place them.
#include "put.h"

#include "attach/isa.h"

#include <stdlib.h>
#include <string.h>

static int request_make(const struct put *put, tl_addr addr, uint32_t probe,
                        struct tl_plan_request *out)
{
    uint8_t code[TL_INSN_SIZE_MAX + 1] = {0};
    *out = (struct tl_plan_request){.action = TL_ACTION_COUNT,
                                    .counter_off = TL_BLOCK_HEADER_SIZE + 8 * probe};
    struct tl_site_facts *facts = &out->facts;
    facts->vaddr = addr;
    int error = tl_target_read(put->target, addr, code, TL_INSN_SIZE_MAX, NULL);
    if (!error)
        error = tl_arch_find(tl_machine)->decode(code, TL_INSN_SIZE_MAX, addr, &facts->insn[0]);
    facts->insn_count = 1;
    return error;
}

static int plan_and_commit(struct put *put, const struct tl_plan_request *requests, unsigned rungs,
                           struct tl_diag *diag)
{
    struct tl_space_options space_options;
    struct tl_trap_options options;
    struct tl_space *space = NULL;
    struct tl_trap_set *set = NULL;
    tl_addr handler[TL_FAULT_HANDLERS_MAX];
    tl_traps_space(put->traps, &space_options);
    tl_traps_plan_options(put->traps, &options);
    options.rungs = rungs;
    options.faults =
        tl_install_fault_handlers(put->install, handler) ? TL_FAULT_NONE : TL_FAULT_ANY;
    int error = tl_space_create(&space_options, &space, diag);
    if (!error)
        error = tl_plan_traps(&options, space, requests, put->count, &set, diag);
    if (!error)
        error = tl_traps_commit(put->traps, space, set, put->count, put->results, diag);
    for (size_t i = 0; !error && i < put->count; i++)
        put->rung[i] = tl_trap_plan(set, i)->rung;
    tl_trap_set_destroy(set);
    tl_space_destroy(space);
    return error;
}

static int place_once(struct put *put, pid_t pid, const tl_addr *sites, size_t count,
                      unsigned rungs, struct tl_diag *diag)
{
    *put = (struct put){.count = count};
    const struct tl_install_options options = {.probe_count = (uint32_t)count};
    struct tl_plan_request *requests = calloc(count, sizeof *requests);
    int error = requests ? tl_target_open(pid, NULL, &put->target, diag) : TL_E_NOMEM;
    if (!error)
        error = tl_install_prepare(put->target, &options, &put->install, diag);
    if (!error)
        error = tl_traps_create(put->install, NULL, &put->traps, diag);
    for (size_t i = 0; !error && i < count; i++) {
        error = request_make(put, sites[i], (uint32_t)i, &requests[i]);
        put->row[i] = requests[i].facts.insn[0].row;
    }
    if (!error)
        error = plan_and_commit(put, requests, rungs, diag);
    free(requests);
    if (error)
        put_close(put);
    return error;
}

int put_place(struct put *put, pid_t pid, const tl_addr *sites, size_t count, unsigned rungs,
              struct tl_diag *diag)
{
    int error = TL_E_BUSY;
    for (int i = 0; i < machine_slowness() && error == TL_E_BUSY; i++)
        error = place_once(put, pid, sites, count, rungs, diag);
    return error;
}

int put_detach(struct put *put, struct tl_diag *diag)
{
    int error = TL_E_BUSY;
    for (int i = 0; i < machine_slowness() && error == TL_E_BUSY; i++)
        error = tl_traps_detach(put->traps, diag);
    for (int i = 0; i < machine_slowness() && (!error || error == TL_E_BUSY); i++) {
        error = tl_install_detach(put->install, diag);
        if (!error)
            break;
    }
    return error;
}

void put_close(struct put *put)
{
    tl_traps_destroy(put->traps);
    tl_install_destroy(put->install);
    tl_target_close(put->target);
    put->traps = NULL;
    put->install = NULL;
    put->target = NULL;
}

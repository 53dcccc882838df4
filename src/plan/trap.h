// Sites of the signal rungs: a breakpoint, and what the agent's handler needs to know. Part of
// stage plan.
#ifndef TL_PLAN_TRAP_H
#define TL_PLAN_TRAP_H

#include "agent/trap.h"
#include "plan/plan.h"

#define TL_RUNG_BIT(rung) (1u << (rung))

struct tl_trap_options {
    const struct tl_arch *arch;
    unsigned rungs;         // TL_RUNG_BIT of SIMULATE, SLOT and STEP that may be taken, best first
    struct tl_emit_in emit; // record_addr: the agent's entries
    enum tl_fault_policy faults;
    bool shadow_stack; // in force in the target: no call and no return
    bool alone; // each site as if it were the only one (explain): nothing stays reserved, no slot
                // is kept
};

struct tl_trap_set; // opaque; owns plans, slots, rows

// Plans all requests; each needs a count, records, or nothing. Slots are taken from space. 0 also
// when all are refused.
int tl_plan_traps(const struct tl_trap_options *options, struct tl_space *space,
                  const struct tl_plan_request *requests, size_t request_count,
                  struct tl_trap_set **out, struct tl_diag *diag);
// Plan of request index: its rung is SIMULATE, SLOT, STEP or REFUSED; one patch, the breakpoint.
// Borrowed until destroy, as all of these.
const struct tl_plan *tl_trap_plan(const struct tl_trap_set *set, size_t index);
size_t tl_trap_slots(const struct tl_trap_set *set, const struct tl_plan_detour **out);
// For the agent, sorted by addr.
size_t tl_trap_rows(const struct tl_trap_set *set, const struct tl_trap_row **out);
void tl_trap_set_destroy(struct tl_trap_set *set);

#endif

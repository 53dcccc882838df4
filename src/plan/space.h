// The address space as the planner uses it: pools of slots in its gaps. Inside the stage.
#ifndef TL_PLAN_SPACE_H
#define TL_PLAN_SPACE_H

#include "plan/plan.h"

// What a place costs the target, cheapest first.
enum tl_place_cost {
    TL_PLACE_PAGE,        // in pages that hold detours already
    TL_PLACE_MAPPING,     // a new page of a mapping that is needed anyway
    TL_PLACE_NEW_MAPPING, // one mapping more
    TL_PLACE_NONE,        // no such place
    TL_PLACE_LIMIT,       // there is one, but the mapping limit is reached
};

struct tl_place_query {
    tl_addr first, last; // where the detour may start, both included
    uint16_t size;       // bytes
    uint8_t slot_size;
    bool guarded; // among guarded pools (arm64: BTI), or among others
    bool dense;   // any place will do: use the dense pools, which cost the least instruction TLB
    tl_addr near; // new pools are opened as near to this as can be
};

// Finds a free place, the cheapest kind there is. *addr is set for the first three results.
// Reserves nothing.
enum tl_place_cost tl_space_find(const struct tl_space *space, const struct tl_place_query *query,
                                 tl_addr *addr);

// Kinds of pools, as tl_space_take makes them.
#define TL_POOL_DENSE 1u
#define TL_POOL_GUARDED 2u

// Called before anything is taken where guarded places will be asked for.
void tl_space_expect_guarded(struct tl_space *space);

// Reserves every slot that [addr, addr + size) touches; they must be free. Unreserves them again.
// give of what was taken last gives the exact state before.
int tl_space_take(struct tl_space *space, tl_addr addr, uint16_t size, uint8_t slot_size,
                  unsigned pool); // TL_POOL_*
void tl_space_give(struct tl_space *space, tl_addr addr, uint16_t size, uint8_t slot_size);

// Recomputes what tl_space_mappings returns.
int tl_space_merge(struct tl_space *space, struct tl_diag *diag);

#endif

// What planning knows of the code around its sites: looked at once, where it is needed. Inside the stage.
#ifndef TL_PLAN_AROUND_H
#define TL_PLAN_AROUND_H

#include "plan/layout.h"

struct tl_around;

struct tl_around *tl_around_create(size_t module_count); // NULL: out of memory
void tl_around_destroy(struct tl_around *around);

// Registers dead before the instruction at a runtime address; 0: nothing is known of it.
tl_regset tl_around_dead(const struct tl_planner *planner, const struct tl_plan_module *module, tl_addr addr);

// Straight code that may be displaced whole.
struct tl_straight {
    tl_addr vaddr;
    uint8_t size;
    bool gone; // not to be had, for the rest of the run
};

// A way through the straight code around a site, from near to far. Zeroed but for the first three.
struct tl_straight_search {
    tl_addr vaddr;     // near this
    uint64_t reach;    // ... and nowhere farther from it
    unsigned size_min; // bytes
    size_t side, index, looked;
};
// The next one. Borrowed until the next call. NULL: there is none, or no memory.
struct tl_straight *tl_around_straight(const struct tl_planner *planner, const struct tl_plan_module *module,
                                       struct tl_straight_search *search);

#endif

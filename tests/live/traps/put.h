// Breakpoints by hand: from addresses to a placed run, and back.
#ifndef TL_TESTS_LIVE_TRAPS_PUT_H
#define TL_TESTS_LIVE_TRAPS_PUT_H

#include "../attach/helper.h"
#include "patch/trap.h"

#define PUT_SITES_MAX 256

struct put {
    struct tl_target *target;
    struct tl_install *install;
    struct tl_traps *traps;
    struct tl_install_result results[PUT_SITES_MAX];
    enum tl_rung rung[PUT_SITES_MAX];
    unsigned row[PUT_SITES_MAX]; // of the table
    size_t count;
};

// Both try again on a slow machine (TL_SLOW) that is too busy to stop the target in time.
//
// Places a counted breakpoint at each address; rungs as in tl_trap_options. 0 or TL_E_*; sites that
// were refused have a result.
int put_place(struct put *put, pid_t pid, const tl_addr *sites, size_t count, unsigned rungs,
              struct tl_diag *diag);
// Takes them away again. The counters stay readable until put_close.
int put_detach(struct put *put, struct tl_diag *diag);
void put_close(struct put *put);

#endif

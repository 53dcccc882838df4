// Breakpoints of the signal rungs, as the agent's SIGTRAP handler finds them. Freestanding.
//
//   the handler's own install           installs with breakpoints, the newest first
//   tl_code_header.trap_next ─────────► tl_code_header ─── trap_next ──► ... 0
//                                         trap_addr ──► struct tl_trap_row[trap_count], sorted by
//                                         addr
//
// Headers and rows are private and read-only, so a forked child has them too.
#ifndef TL_AGENT_TRAP_H
#define TL_AGENT_TRAP_H

#include "arch/simulate.h"
#include "emit/emit.h"

#define TL_TRAP_INSTALLS_MAX 256u                     // with breakpoints, in one process
#define TL_TRAP_RECORDS_MAX (TL_SITE_RECORDS_MAX + 1) // a count, and what else is recorded

struct tl_trap_record {
    uint64_t entry; // of the agent that records, called in the record frame (emit/emit.h)
    uint32_t counter_off;
    int32_t sp_off; // see struct tl_record
};

struct tl_trap_row {
    uint64_t addr;   // of the breakpoint
    uint64_t resume; // where the program goes on if it is not simulated: the site's slot, or,
                     // behind a stepped instruction, the next one
    uint8_t record_count;
    bool on_taken; // only a hit if the site's conditional branch is taken
    uint8_t reserved[6];
    struct tl_trap_record record[TL_TRAP_RECORDS_MAX];
    struct tl_simulation simulation; // kind 0: nothing is simulated
    bool simulated;                  // false: the simulation only says whether a branch is taken
    uint8_t reserved2[7];
};

#endif

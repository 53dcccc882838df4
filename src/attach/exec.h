// A thread that is about to execute another program, held until the new program stands at its first
// instruction with its libraries mapped.
//
// Order: begin while the thread waits in the agent, let it go on, then look again and again. Between
// looks the process runs and can be left at any time; if we die it runs on. A program that gains
// privileges by being executed is let go before, where holding it would take them away.
#ifndef TL_ATTACH_EXEC_H
#define TL_ATTACH_EXEC_H

#include "attach/target.h"

struct tl_exec; // opaque

// Seizes the thread, and nothing else of its process. known: the process as it was opened before, whose
// controller lock is shared; NULL: none. Takes some microseconds where the thread is running.
int tl_exec_begin(pid_t tid, const struct tl_target *known, struct tl_exec **out,
                  struct tl_diag *diag);

enum tl_exec_news {
    TL_EXEC_PENDING = 0,
    TL_EXEC_READY = 1,  // *out stands at its entry, stopped as after tl_target_launch
    TL_EXEC_FAILED = 2, // the call failed or was not made: the process goes on as it was
};
// Looks after it for at most budget_ms. An enum tl_exec_news; TL_E_*: it was let go for the reason that
// the diag says. After anything but PENDING only tl_exec_end is left.
int tl_exec_poll(struct tl_exec *exec, int budget_ms, struct tl_target **out, struct tl_diag *diag);
pid_t tl_exec_pid(const struct tl_exec *exec); // of the process
// The old program is gone.
bool tl_exec_happened(const struct tl_exec *exec);
// Lets go of what is still held.
void tl_exec_end(struct tl_exec *exec);

#endif

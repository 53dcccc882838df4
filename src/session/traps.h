// The signal rungs of a batch. Internal to the session.
#ifndef TL_SESSION_TRAPS_H
#define TL_SESSION_TRAPS_H

#include "session/internal.h"

struct tl_batch_traps; // opaque

// Some site may come to a trap.
bool tl_session_traps_wanted(const struct tl_session *session);
// The signal rungs for every site that wants one. After the other rungs; the batch's points and requests are
// made and its install is prepared, with or without jumps in it.
int tl_session_traps(struct tl_batch *batch, struct tl_diag *diag);
// What sites [first, first + count) would get, each alone, where nothing is written: their requests and plans
// for jumps are made, and taken over.
int tl_session_traps_explain(struct tl_batch *batch, const struct tl_plan_options *plan, size_t first,
                             size_t count, struct tl_diag *diag);
// Requests of our own at libc's entries that change a signal's handler or a thread's mask; beside the other
// hooks of tl_session_hooks.
int tl_session_traps_hooks(struct tl_batch *batch, struct tl_diag *diag);
// At each verify: takes over what was closed. 1: the process is gone or became another program.
int tl_session_traps_verify(struct tl_batch *batch, struct tl_diag *diag);
// A thread of the batch's process is about to change what becomes of SIGTRAP, and waits.
void tl_session_trap_notice(struct tl_batch *batch);
// Before the batch's install is detached, and destroyed.
int tl_session_traps_detach(struct tl_batch *batch, struct tl_diag *diag);
// In forked children. After the batch's own install has left them.
int tl_session_traps_copies_detach(struct tl_batch *batch, struct tl_diag *diag);
void tl_session_traps_destroy(struct tl_batch *batch);

#endif

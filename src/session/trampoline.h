// Returns that are probed by replacing the return address. Internal to the session.
#ifndef TL_SESSION_TRAMPOLINE_H
#define TL_SESSION_TRAMPOLINE_H

#include "session/internal.h"

// What the install needs for it, where some site of the batch may come to it. Doubles probe_count:
// behind every probe's counter there is one of its losses. After probe_count is set, before
// prepare; hist_count stays the number of sites.
void tl_session_trampoline_options(struct tl_batch *batch, struct tl_install_options *options);
// After prepare, before commit: unwinders know what every batch of the process has replaced.
// Before they are placed: tells the install where the functions keep what is replaced.
int tl_session_trampoline_places(struct tl_batch *batch, struct tl_diag *diag);
int tl_session_trampoline_join(struct tl_batch *batch, struct tl_diag *diag);
// Requests of our own at the unwinders' entries, where a site is probed in this way. To be called
// whenever tl_batch_requests has made its requests anew.
int tl_session_unwinders(struct tl_batch *batch, struct tl_diag *diag);
// After planning: an unwinder without a place refuses all such sites. Returns how many changed
// (then: points, requests and plans again).
size_t tl_session_unwinders_fallback(struct tl_batch *batch);
// After commit, and whenever sites were compared with the text: an unwinder that lost its probe, or
// one that came and can't be had, ends all that replaces return addresses in the process.
int tl_session_trampoline_check(struct tl_batch *batch, struct tl_diag *diag);

// ---- for the loader
// Some site of the batch is probed in this way: unwinders must be seen coming, and text to return
// to.
bool tl_session_trampoline_wants_loader(const struct tl_batch *batch);
// A batch over new libraries is to be placed even without a site: an unwinder is among them.
bool tl_session_trampoline_needs(struct tl_batch *batch);
// The process has other text than before: calls from there may be probed in this way too.
void tl_session_trampoline_text(struct tl_session *session, pid_t pid);

// At the end of tl_batch_refresh: adds losses to hits, and to what is dropped.
void tl_session_trampoline_refresh(struct tl_batch *batch);
void tl_session_trampoline_destroy(struct tl_batch *batch);

#endif

// The signal rungs in a target: its SIGTRAP handler is the agent's, and text gets breakpoints.
//
//     tl_traps_create(install, NULL, &traps, diag);           // prepared, or committed too
//     tl_traps_space(traps, &space_options);                  // for tl_space_create
//     tl_traps_plan_options(traps, &options);                 // for tl_plan_traps
//     tl_traps_commit(traps, space, set, count, results, diag);
//     ... tl_traps_check(traps, results, diag) at each poll ...
//     tl_traps_detach(traps, diag); tl_traps_destroy(traps);  // before the install's
//
// Counters and records are the install's: nothing else has to be read.
#ifndef TL_PATCH_TRAP_H
#define TL_PATCH_TRAP_H

#include "patch/patch.h"
#include "plan/trap.h"

struct tl_traps; // opaque

// owner records; it stays longer. beside: breakpoints that the same controller has in the same
// process already, NULL: none. Maps a page; needs no stop.
int tl_traps_create(struct tl_install *owner, struct tl_traps *beside, struct tl_traps **out,
                    struct tl_diag *diag);
// What the plan needs.
void tl_traps_space(const struct tl_traps *traps, struct tl_space_options *out);
void tl_traps_plan_options(const struct tl_traps *traps, struct tl_trap_options *out);

// Checks the target's signals, installs the handler, maps slots, writes breakpoints. A target that
// handles, ignores or blocks SIGTRAP, or has a seccomp filter, gets none: 0, and results say why,
// as for a site that has a patch of the owner's in its bytes.
int tl_traps_commit(struct tl_traps *traps, struct tl_space *space, const struct tl_trap_set *set,
                    size_t count, struct tl_install_result *results, struct tl_diag *diag);

// Compares the text with what was written (tl_install_verify), and looks whether SIGTRAP is still
// ours in every thread; if not, all breakpoints are put back, and results say TRAP_HANDLED. asked:
// the target just said that it changes its signals: its handlers are asked for, which otherwise is
// done once a second. 1: the target is gone or became another program.
int tl_traps_check(struct tl_traps *traps, bool asked, struct tl_install_result *results,
                   struct tl_diag *diag);
// The target is about to block SIGTRAP, or to handle it: puts all breakpoints back, before it goes
// on.
int tl_traps_close(struct tl_traps *traps, enum tl_refusal reason,
                   struct tl_install_result *results, struct tl_diag *diag);
// Puts back those whose instruction can fault in its slot.
int tl_traps_close_faulting(struct tl_traps *traps, struct tl_install_result *results,
                            struct tl_diag *diag);
// ... one of them.
int tl_traps_close_site(struct tl_traps *traps, size_t index, struct tl_install_result *results,
                        struct tl_diag *diag);
// Puts the text back and, once no thread is on its way to the handler, what SIGTRAP did before.
// Where some thread does not get there the handler stays, which does no harm.
int tl_traps_detach(struct tl_traps *traps, struct tl_diag *diag);
// Closes in such children what is closed in the target.
int tl_traps_copies_close(struct tl_traps *traps, struct tl_diag *diag);
// Puts the text back in children that were forked while breakpoints were in, and keep the handler.
// After detach.
int tl_traps_copies_detach(struct tl_traps *traps, struct tl_diag *diag);
// How long the target stood still, at most once.
double tl_traps_stopped_ms(const struct tl_traps *traps);
// The handler stayed.
bool tl_traps_left(const struct tl_traps *traps);
void tl_traps_destroy(struct tl_traps *traps);

#endif

// What a target does on a signal (action.c). By a borrowed thread, with memory of ours at scratch_addr.
#ifndef TL_PATCH_ACTION_H
#define TL_PATCH_ACTION_H

#include "patch/install.h"

int tl_action_get(struct tl_target *target, tl_addr scratch_addr, int sig, struct tl_signal_action *out,
                  struct tl_diag *diag);
// A restorer is left out where the kernel has none.
int tl_action_set(struct tl_target *target, tl_addr scratch_addr, int sig,
                  const struct tl_signal_action *action, struct tl_diag *diag);

#endif

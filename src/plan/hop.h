// Branches of several instructions, for sites that no branch leads away from far enough. Inside the stage.
#ifndef TL_PLAN_HOP_H
#define TL_PLAN_HOP_H

#include "plan/layout.h"

// Tries the ways of tl_arch.far_size. 0 or TL_E_NOMEM; *refusal is TL_REFUSE_NONE when the layout is reserved.
int tl_hop_choose(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                  uint8_t *refusal);

#endif

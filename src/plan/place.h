// Where a branch and its detour go together. Inside the stage.
#ifndef TL_PLAN_PLACE_H
#define TL_PLAN_PLACE_H

#include "plan/layout.h"

// Writes a branch to the layout's detour at `at`, where `own` bytes may be written: with fewer than
// the branch needs it is a pun. Reserves detour and bytes and adds a patch. 0 or TL_E_NOMEM;
// *refusal says why there is no place.
int tl_place_branch(struct tl_planner *planner, const struct tl_spot *spot,
                    struct tl_layout *layout, tl_addr at, unsigned own, uint8_t *refusal);
// The same for a direct call that gets a new target.
int tl_place_call(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                  uint8_t *refusal);
// Places the layout's detour where a branch of several instructions at `at` leads, and reserves it; writes no
// patch. With TL_REFUSE_NO_REACH the layout's detour says what its ways out lack.
int tl_place_far(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                 tl_addr at, uint8_t *refusal);
// Adds a patch of known bytes and owns it. before comes from the file. 0 or TL_E_NOMEM.
int tl_place_patch(struct tl_planner *planner, const struct tl_spot *spot, struct tl_layout *layout,
                   tl_addr at, const uint8_t *after, unsigned size, unsigned relied, unsigned ways);
// A byte of the file's text at a runtime address. false: not known.
bool tl_place_text(const struct tl_spot *spot, tl_addr addr, uint8_t *out);

#endif

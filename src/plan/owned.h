// Who owns which byte of text during planning. Inside the stage.
#ifndef TL_PLAN_OWNED_H
#define TL_PLAN_OWNED_H

#include "base/types.h"

// How a byte of text is spoken for. A byte may be written and relied on at once.
enum {
    TL_OWNED_WRITTEN = 1 << 0, // a patch writes it
    TL_OWNED_RELIED = 1 << 1,  // a pun needs its final value
    TL_OWNED_UNKNOWN = 1 << 2, // its final value is not known, or may change: no pun may rely on it
};

struct tl_owned;

struct tl_owned *tl_owned_create(void);
void tl_owned_destroy(struct tl_owned *owned);
// Forgets everything.
void tl_owned_reset(struct tl_owned *owned);

// Any of [addr, addr + size) spoken for in one of these ways?
bool tl_owned_any(const struct tl_owned *owned, tl_addr addr, size_t size, unsigned ways);
// The value that a written byte will have; false: nobody writes it with a known value.
bool tl_owned_value(const struct tl_owned *owned, tl_addr addr, uint8_t *out);

// bytes may be NULL where `ways` holds no WRITTEN, or the value is UNKNOWN. 0 or TL_E_NOMEM.
int tl_owned_add(struct tl_owned *owned, tl_addr addr, size_t size, unsigned ways,
                 const uint8_t *bytes);
void tl_owned_remove(struct tl_owned *owned, tl_addr addr, size_t size, unsigned ways);

#endif

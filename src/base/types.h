// The few types every stage shares. No libc beyond the freestanding headers: the pure stages
// (analyse, plan, emit) and the agent include this too.
#ifndef TL_BASE_TYPES_H
#define TL_BASE_TYPES_H

#include "trapless/types.h"

// The smallest page of any ISA. What the kernel's pages are in a run: tl_page_size() (base/page.h).
#define TL_PAGE_SIZE 4096u

static inline tl_addr tl_page_down(tl_addr addr)
{
    return addr & ~(tl_addr)(TL_PAGE_SIZE - 1);
}

static inline tl_addr tl_page_up(tl_addr addr)
{
    return tl_page_down(addr + TL_PAGE_SIZE - 1);
}

// A half-open range of target addresses.
struct tl_range {
    tl_addr start;
    tl_addr end;
};

#define TL_ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif

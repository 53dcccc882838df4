// The kernel's pages. Controller code only: the pure stages are told the size, the agent has no use for it.
#ifndef TL_BASE_PAGE_H
#define TL_BASE_PAGE_H

#include "base/types.h"

#define TL_PAGE_SIZE_MAX 65536u // of any kernel that this runs on

// Bytes of one page of this kernel, which is the targets' too.
size_t tl_page_size(void);
tl_addr tl_kernel_page_down(tl_addr addr);
tl_addr tl_kernel_page_up(tl_addr addr);

#endif

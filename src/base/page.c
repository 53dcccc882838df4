// Asks the kernel for the size of its pages.
//
// Invariant: the answer is a power of two, from TL_PAGE_SIZE to TL_PAGE_SIZE_MAX.
#include "base/page.h"

#include <unistd.h>

size_t tl_page_size(void)
{
    long size = sysconf(_SC_PAGESIZE); // from the auxiliary vector: no system call
    return size >= (long)TL_PAGE_SIZE && size <= (long)TL_PAGE_SIZE_MAX ? (size_t)size
                                                                        : TL_PAGE_SIZE;
}

tl_addr tl_kernel_page_down(tl_addr addr)
{
    return addr & ~(tl_addr)(tl_page_size() - 1);
}

tl_addr tl_kernel_page_up(tl_addr addr)
{
    return tl_kernel_page_down(addr + tl_page_size() - 1);
}

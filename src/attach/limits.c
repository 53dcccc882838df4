// Reads what limits a target's mappings.
#include "attach/proc.h"

#include <sys/resource.h>

bool tl_proc_maps_cost(pid_t pid)
{
    struct tl_proc_status status;
    struct rlimit limit;
    if (tl_proc_status_read(pid, &status, NULL) == 0 && status.locked_kib > 0)
        return true;
    return prlimit(pid, RLIMIT_AS, NULL, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

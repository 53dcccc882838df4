// The kernel rung for count: the kernel's own uprobes, read per process. Every thread of the target,
// those born later too, and no other process.
#ifndef TL_ATTACH_UPROBE_H
#define TL_ATTACH_UPROBE_H

#include <sys/types.h>

#include "base/diag.h"
#include "base/types.h"

struct tl_uprobes; // opaque

struct tl_uprobe_site {
    const char *path; // openable from here (/proc/PID/root/..., /proc/PID/map_files/...)
    uint64_t file_off;
    bool ret;         // return probe
};

// 0 when this user may place kernel probes on this kernel; else TL_E_PERM / TL_E_UNSUPPORTED with the reason.
int tl_uprobes_available(struct tl_diag *diag);
// Places all; sites that the kernel refuses get errors[i] != 0 (errno), the others go on.
// fd limits are checked first (raised to the hard limit when needed).
int tl_uprobes_create(pid_t pid, const struct tl_uprobe_site *sites, size_t count, int *errors,
                      struct tl_uprobes **out, struct tl_diag *diag);
int tl_uprobes_count(struct tl_uprobes *uprobes, size_t index, uint64_t *hits, struct tl_diag *diag);
void tl_uprobes_destroy(struct tl_uprobes *uprobes);

#endif

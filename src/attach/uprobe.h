// The kernel rung: the kernel's own uprobes, counts and events, read per process. Every thread of the
// target, those born later too, and no other process.
#ifndef TL_ATTACH_UPROBE_H
#define TL_ATTACH_UPROBE_H

#include <sys/types.h>

#include "base/diag.h"
#include "base/types.h"

struct tl_uprobes; // opaque

struct tl_uprobe_site {
    const char *path; // openable from here (/proc/PID/root/..., /proc/PID/map_files/...)
    uint64_t file_off;
    bool ret; // return probe
};

// 0 when this user may place kernel probes on this kernel; else TL_E_PERM / TL_E_UNSUPPORTED with
// the reason.
int tl_uprobes_available(struct tl_diag *diag);
// Places all; sites that the kernel refuses get errors[i] != 0 (errno), the others go on. ring_bytes not
// 0: every hit leaves an event too, in a ring of that size for the whole process.
// fd limits are checked first (raised to the hard limit when needed).
int tl_uprobes_create(pid_t pid, const struct tl_uprobe_site *sites, size_t count,
                      uint32_t ring_bytes, int *errors, struct tl_uprobes **out,
                      struct tl_diag *diag);

struct tl_uprobe_event {
    size_t site;      // index in sites[]
    uint64_t time_ns; // CLOCK_MONOTONIC
    pid_t pid, tid;   // as the machine's first pid namespace sees them
    bool ret;         // then arg[0] is the return value
    uint64_t arg[6];
};
// Hands over the events that are complete by now, nearly in the order of time. Returns how many, or what
// take() returned below 0. What found no room is in the count and not here.
int tl_uprobes_events(struct tl_uprobes *uprobes,
                      int (*take)(void *opaque, const struct tl_uprobe_event *event), void *opaque,
                      struct tl_diag *diag);
int tl_uprobes_count(struct tl_uprobes *uprobes, size_t index, uint64_t *hits,
                     struct tl_diag *diag);
// Takes the probes away; when it returns none is hit any more, and counts can still be read.
void tl_uprobes_stop(struct tl_uprobes *uprobes);
void tl_uprobes_destroy(struct tl_uprobes *uprobes);

// Ways to do it, in the order tl_uprobes_create tries them.
enum tl_uprobe_way {
    TL_UPROBE_AUTO,
    TL_UPROBE_MULTI,  // one BPF link over all sites of a file (Linux 6.6)
    TL_UPROBE_PERF,   // one perf event and one BPF program a site
    TL_UPROBE_THREAD, // no BPF: one counting event for each site and each thread that exists NOW.
                      // Later threads are not counted, so only tl_uprobes_create_counting makes it
};
// As tl_uprobes_create, by one way only: TL_E_UNSUPPORTED where this kernel hasn't got it.
int tl_uprobes_create_by(enum tl_uprobe_way way, pid_t pid, const struct tl_uprobe_site *sites,
                         size_t count, uint32_t ring_bytes, int *errors, struct tl_uprobes **out,
                         struct tl_diag *diag);
// TL_UPROBE_THREAD, for measurements: what a hit costs the kernel without BPF.
int tl_uprobes_create_counting(pid_t pid, const struct tl_uprobe_site *sites, size_t count,
                               int *errors, struct tl_uprobes **out, struct tl_diag *diag);
enum tl_uprobe_way tl_uprobes_way(const struct tl_uprobes *uprobes); // the way taken
const char *tl_uprobe_way_text(enum tl_uprobe_way way);              // "multi", "perf", "thread"

#endif

// The BPF half of the kernel rung: one counter map, programs assembled by hand, links. No libbpf.
// Private to src/attach.
#ifndef TL_ATTACH_UPROBE_BPF_H
#define TL_ATTACH_UPROBE_BPF_H

#include <sys/types.h>

#include "base/diag.h"
#include "base/types.h"

// Whose hits count: the thread group `tgid` as seen in the pid namespace with this device and
// inode.
struct tl_bpf_who {
    uint64_t ns_dev, ns_ino;
    uint32_t tgid;
    bool ns_initial; // the machine's first pid namespace: a cheaper helper tells the same
};
int tl_bpf_who_read(pid_t pid, struct tl_bpf_who *out, struct tl_diag *diag);

// A per-CPU array of 64-bit counters, all zero. Returns an fd, or -errno.
int tl_bpf_counters_create(uint32_t count);
// Sums one counter over all CPUs. scratch: room for cpu_count (tl_bpf_cpu_count()) numbers. 0, or
// -errno.
int tl_bpf_counters_read(int map_fd, uint32_t index, uint64_t *scratch, int cpu_count,
                         uint64_t *sum);
// CPUs that a per-CPU map has room for; negative TL_E_* when the kernel does not say.
int tl_bpf_cpu_count(void);

// ---- events: a ring that all CPUs write (Linux 5.8)

// What the program leaves in the ring for one hit.
struct tl_uprobe_record {
    uint64_t time_ns; // CLOCK_MONOTONIC
    uint64_t who;     // pid << 32 | tid, as the machine's first pid namespace sees them
    uint32_t index;   // of the site
    uint32_t reserved;
    uint64_t arg[6], ret;
};
#define TL_BPF_RING_MAX (1u << 28)
struct tl_bpf_ring;
// bytes is rounded up to a power of two and a page.
int tl_bpf_ring_create(uint32_t bytes, struct tl_bpf_ring **out, struct tl_diag *diag);
void tl_bpf_ring_destroy(struct tl_bpf_ring *ring);
int tl_bpf_ring_fd(const struct tl_bpf_ring *ring);
// Hands over what is complete; the record is lent for the call. Returns how many, TL_E_FORMAT, or what
// take() returned below 0.
int tl_bpf_ring_read(struct tl_bpf_ring *ring,
                     int (*take)(void *opaque, const struct tl_uprobe_record *record), void *opaque);
int tl_bpf_ring_map_create(uint32_t bytes); // an fd, or -errno

// ---- the program

#define TL_BPF_INDEX_COOKIE UINT32_MAX

// Loads the program that counts in map_fd, at `index` or, for TL_BPF_INDEX_COOKIE, at the index
// that the attach cookie names, and with ring_fd not -1 leaves a record there. multi: for a link over
// many sites. Returns an fd, or -errno.
int tl_bpf_program_load(int map_fd, int ring_fd, const struct tl_bpf_who *who, uint32_t index,
                        bool multi);

// One link over count sites of one file (Linux 6.6). Returns an fd, or -errno.
int tl_bpf_link_multi(int program_fd, const char *path, const uint64_t *offsets,
                      const uint64_t *cookies, uint32_t count, bool ret, pid_t pid);
// Whether this kernel has such links, asked with a program loaded for one.
bool tl_bpf_multi_known(int program_fd);

#endif

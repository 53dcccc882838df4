// What /proc tells about another process. No ptrace here. Every parser takes foreign bytes: limits,
// errors, never a crash.
#ifndef TL_ATTACH_PROC_H
#define TL_ATTACH_PROC_H

#include <sys/types.h>

#include "base/diag.h"
#include "base/types.h"

enum { TL_PROT_READ = 1, TL_PROT_WRITE = 2, TL_PROT_EXEC = 4, TL_PROT_SHARED = 8 };

struct tl_map {
    tl_addr start, end;
    uint64_t file_off;
    uint64_t inode;
    uint32_t dev_major, dev_minor;
    uint8_t prot;
    bool guarded, shadow_stack, tagged; // arm64: BTI, GCS, MTE; only where tl_maps_marks_read has looked
    char *path; // "" for anonymous; as the kernel prints it, octal escapes undone (" (deleted)" kept)
};

struct tl_maps {
    struct tl_map *map; // sorted by start
    size_t count;
};

// Parses text in the format of /proc/PID/maps. Caller frees with tl_maps_deinit.
int tl_maps_parse(const char *text, size_t size, struct tl_maps *out, struct tl_diag *diag);
int tl_maps_read(pid_t pid, struct tl_maps *out, struct tl_diag *diag);
void tl_maps_deinit(struct tl_maps *maps);
// Fills in the marks that only /proc/PID/smaps shows, where this machine has any: a slow look. Mappings that
// came since the maps were read have none.
void tl_maps_marks_read(pid_t pid, struct tl_maps *maps);
const struct tl_map *tl_maps_at(const struct tl_maps *maps, tl_addr addr); // NULL: nothing mapped there

// /proc/PID/status and friends, one look.
struct tl_proc_status {
    char name[64];
    char state; // R S D T t Z X ...
    pid_t tgid, tracer;
    uid_t uid_real, uid_effective;
    int threads;
    int seccomp;        // 0 none, 1 strict, 2 filter
    uint64_t locked_kib; // VmLck
    bool kernel_thread;
    uint64_t start_time; // clock ticks since boot
    pid_t parent;
    uint64_t sig_pending, sig_shared_pending, sig_blocked, sig_ignored, sig_caught; // bit n - 1 is signal n
    bool user_worker;    // a kernel worker inside the process (io_uring, vhost): runs no user code
    bool memory;         // it has an address space; not when it is ending
    bool shadow_stack;   // x86_Thread_features names shstk
    pid_t inner_id;      // of the task, in its own, innermost pid namespace; 0: the kernel has none
};
// The parsers alone: text in the format of /proc/PID/status, and of /proc/PID/stat. Each fills its
// own fields and leaves the others as they are.
int tl_proc_status_parse(const char *text, size_t size, struct tl_proc_status *out,
                         struct tl_diag *diag);
int tl_proc_stat_parse(const char *text, size_t size, struct tl_proc_status *out,
                       struct tl_diag *diag);
// Reads a whole small file, at most size_max bytes (more: TL_E_LIMIT). Caller frees *out, which is
// terminated by a byte that *size does not count. TL_E_GONE when the file or the process is not there.
int tl_proc_read_file(const char *path, size_t size_max, char **out, size_t *size,
                      struct tl_diag *diag);
int tl_proc_status_read(pid_t pid, struct tl_proc_status *out, struct tl_diag *diag);

// Opens /proc/PID/root + path or, for a replaced or foreign file, /proc/PID/map_files/START-END or
// /proc/PID/exe: whatever has the map's device and inode. Returns an fd or negative TL_E_*.
int tl_proc_open_mapped(pid_t pid, const struct tl_map *map, struct tl_diag *diag);

// Whether mapped pages that nobody touches cost the target something: its memory is locked (they would
// be filled at once), or its address space is limited.
bool tl_proc_maps_cost(pid_t pid);

// Reads memory of a process without a stop, an attach or an open file. False: not all of it is there, or
// this process may not.
bool tl_proc_read_memory(pid_t pid, tl_addr addr, void *buf, size_t size);

// AT_* value from /proc/PID/auxv; 0 if absent.
uint64_t tl_proc_auxv(pid_t pid, unsigned long type);

#endif

// Stage patch: bytes -> the stopped target's text, with an undo log kept in the target.
//
// Order: borrow, map, write agent, detours and log, stop all, move threads, write text, let go. At every
// point the controller may die and the target runs on; tl_patch_detach_leftover finishes the job later.
#ifndef TL_PATCH_PATCH_H
#define TL_PATCH_PATCH_H

#include "agent/agent.h"
#include "agent/layout.h"
#include "attach/target.h"
#include "plan/plan.h"

struct tl_install; // opaque: what we have in one target

struct tl_install_options {
    uint32_t probe_count; // counters per block
    size_t code_size_hint; // bytes for the undo log: number of patches
    // Probes for handlers that were installed later: this one, of the same controller, is in the
    // target too, and stays. NULL: what is found is a dead controller's.
    const struct tl_install *beside;
    // What the blocks hold besides counters. 0: none of it.
    uint32_t hist_count;  // histograms, for the first probes; pairs come with them
    uint32_t ring_slots;  // events of one thread, a power of two
    uint32_t process_count; // process slots; 0 and 1: only the target's own
    bool follow;          // a forked child claims a process slot
    bool clock;           // something is timed: the clock and the place of the thread id are looked for
    // Return addresses are replaced (TL_RECORD_HIJACK), or looked up by unwinders (TL_RECORD_UNWIND).
    bool hijack;
    uint32_t hijack_lost; // counter k + hijack_lost counts the losses of probe k; 0: they are not counted
};

// What the target lets its records know.
struct tl_install_facts {
    enum tl_clock clock;
    bool no_clock;     // it may read no counter, and the coarse one was not asked for
    uint64_t tid_off;  // 0: not known
};
void tl_install_facts(const struct tl_install *install, struct tl_install_facts *out);
// Keeps the coarse clock fresh, where that is what records are stamped with; else does nothing. Times are
// as exact as the calls are frequent.
void tl_install_clock_tick(struct tl_install *install);

// Replaced return addresses. What the target maps executable has changed: tells it where return addresses
// may lie now. Prepare does it once. The target may run. 0 also where nothing is replaced.
int tl_install_hijack_ranges(struct tl_install *install, struct tl_diag *diag);
// Where the functions of the first count probes keep replaced return addresses (tl_hijack_head.place), before any
// is replaced. 0 also where nothing is.
int tl_install_hijack_places(struct tl_install *install, const uint16_t *place, size_t count,
                             struct tl_diag *diag);
// Two installs of one process: an unwinder that either has a probe on knows what both replaced. Before the
// second replaces any. (Later ones are joined to any of the earlier ones.) The first may have come into the
// second's process by fork.
int tl_install_hijack_join(const struct tl_install *first, struct tl_install *second,
                           struct tl_diag *diag);
// Whether it has the memory for that.
bool tl_install_hijacks(const struct tl_install *install);
// Puts all replaced return addresses back. Afterwards, with no HIJACK record in the text, none is left.
int tl_install_hijack_end(struct tl_install *install, struct tl_diag *diag);

// The shared memory, for drain; borrowed. data is NULL before prepare.
struct tl_drain_memory;
void tl_install_memory(const struct tl_install *install, struct tl_drain_memory *out);

// 1. Borrows a thread, maps code region, control page, shared memory; writes the agent image. Old idle
//    leftovers are unmapped when nothing points into them. After this the addresses below are known and
//    planning can begin.
int tl_install_prepare(struct tl_target *target, const struct tl_install_options *options,
                       struct tl_install **out, struct tl_diag *diag);
// Fills the addresses and thread_pointer of *emit for the plan.
void tl_install_emit_input(const struct tl_install *install, struct tl_emit_in *emit);
// The target's own handlers of SIGSEGV, SIGBUS, SIGFPE and SIGILL: distinct addresses, as asked by
// prepare. Returns how many.
#define TL_FAULT_HANDLERS_MAX 4
size_t tl_install_fault_handlers(const struct tl_install *install,
                                 tl_addr out[TL_FAULT_HANDLERS_MAX]);
// Which of these signals the process catches now (bit n - 1: signal n). 0 when it is gone.
uint64_t tl_faults_caught(pid_t pid);
// Whether the target catches a fault signal now that it did not when it was last asked (here, or by
// prepare). Reads /proc only.
bool tl_install_faults_changed(struct tl_install *install);
// What tl_space_create is to know of the target: ranges in use (maps, heap room, stack room; borrowed), how
// many more mappings it may get, its addresses and pages. Leaves the rest as it is.
void tl_install_space(const struct tl_install *install, struct tl_space_options *out);
// End of the addresses that a process gets, as its mappings show: the stack lies near it. Sorted ranges.
tl_addr tl_addr_limit(const struct tl_range *used, size_t count);

// One report a site, in the order of the requests.
struct tl_install_result {
    enum tl_refusal refusal; // NONE: written
};

// 2. Maps the pools, writes detours and the undo log, stops all, checks bytes, moves threads, searches
//    stacks where a window has an interior, writes text, lets go (a target that was held stays held).
//    Sites that can't be are skipped, with results[i].refusal. Failure: the target is as it was.
int tl_install_commit(struct tl_install *install, struct tl_space *space, const struct tl_plan_set *plans,
                      size_t plan_count, struct tl_install_result *results, struct tl_diag *diag);

// Compares the text with what was written. On a foreign change: the probe's own remaining bytes are put
// back and it is closed (results[i].refusal = CHANGED_BYTES). Also notices unmapped modules (UNLOADED) and
// exec (returns 1: nothing of ours is left in the target). 0: all fine or handled.
int tl_install_verify(struct tl_install *install, struct tl_install_result *results, struct tl_diag *diag);

// Puts back the sites whose displaced instructions can fault: all of them, or only those in windows
// that a handler can't go back to. Their refusal becomes FAULT_DISPLACED.
int tl_install_close_faulting(struct tl_install *install, bool all,
                              struct tl_install_result *results, struct tl_diag *diag);

// The same for one site.
int tl_install_close_site(struct tl_install *install, size_t index,
                          struct tl_install_result *results, struct tl_diag *diag);

// Sites that were closed as UNLOADED and whose library is mapped at the same place again are written
// again; their refusal becomes NONE. Returns how many, or TL_E_*.
int tl_install_rearm(struct tl_install *install, struct tl_install_result *results,
                     struct tl_diag *diag);

// Stops, writes the file's bytes, gives equal pages back, marks the region idle, lets go.
int tl_install_detach(struct tl_install *install, struct tl_diag *diag);

// ---- copies of the install in other processes: children forked while it was in the target (family.c)
// Whether pid holds one that is not idle. *control is that process's: its slot, or nothing yet.
bool tl_install_copy_in(const struct tl_install *install, pid_t pid, struct tl_control *control);
// Calls visit for each such process but the target. Ends with the first value of it that is not 0, and
// returns that. Reads only.
int tl_install_copies(const struct tl_install *install,
                      int (*visit)(void *opaque, pid_t pid, const struct tl_control *control),
                      void *opaque, struct tl_diag *diag);
// The same among these processes only; where many installs ask, all are listed once.
int tl_install_copies_among(const struct tl_install *install, const pid_t *pid, size_t count,
                            int (*visit)(void *opaque, pid_t pid, const struct tl_control *control),
                            void *opaque);
// All processes there are. Caller frees *out.
int tl_processes_list(pid_t **out, size_t *count, struct tl_diag *diag);
// After tl_install_detach, or when the target is gone: the same in all of them. Returns how many there
// were, or TL_E_* for the first that could not be helped (the others are).
int tl_install_copies_detach(struct tl_install *install, struct tl_diag *diag);
// Puts back in them what was closed in the target since the last call.
int tl_install_copies_close(struct tl_install *install, struct tl_diag *diag);

struct tl_install_times {
    double borrowed_ms, stopped_ms, detach_stopped_ms;
    size_t pages_private; // pages of ours in the target
};
void tl_install_times(const struct tl_install *install, struct tl_install_times *out);
// Before the target is closed. What was prepared and never committed is unmapped again.
void tl_install_destroy(struct tl_install *install);

// `trapless detach -p PID`: finishes what an earlier controller left. Returns the number of sites put
// back, 0 if there was nothing to do. Text is touched only where device, inode, offset and our bytes match.
int tl_patch_detach_leftover(struct tl_target *target, struct tl_diag *diag);

#endif

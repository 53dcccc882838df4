// A target held by ptrace: find out whether it may be probed, stop it whole, read and write it, run
// system calls in it, let it go.
//
// Linux ties a held task to the thread that seized it. So each hold has a thread of its own here, and
// every call below does its ptrace work there; the caller may be any one thread at a time. When the
// hold ends that thread ends too, and the kernel lets go of tasks that had not even stopped yet.
#ifndef TL_ATTACH_TARGET_H
#define TL_ATTACH_TARGET_H

#include "attach/proc.h"

struct tl_target; // opaque

// ELF machine of the programs that can be held: those of the machine this was built for.
extern const uint16_t tl_machine;

struct tl_target_options {
    int stop_timeout_ms;         // 0: 50
    const char *ptrace_scope_path; // NULL: /proc/sys/kernel/yama/ptrace_scope (tests: a stand-in)
    const char *cgroup_root;       // NULL: /sys/fs/cgroup (tests: a stand-in)
    bool force_poke; // write text by PTRACE_POKETEXT only, as where /proc/PID/mem refuses (tests)
};

// Checks that pid may be probed (exists, not self, not a kernel thread, 64-bit, not traced, allowed)
// and takes the controller lock for it. Does not stop it. Each refusal has its own sentence.
int tl_target_open(pid_t pid, const struct tl_target_options *options, struct tl_target **out,
                   struct tl_diag *diag);
// Starts argv under ptrace and runs it to the first instruction of its program (AT_ENTRY, libraries
// mapped). The target is stopped (as after tl_target_stop). Dies with the controller until resumed.
int tl_target_launch(char *const argv[], const struct tl_target_options *options,
                     struct tl_target **out, struct tl_diag *diag);
// Lets go if still stopped; releases the lock.
void tl_target_close(struct tl_target *target);
pid_t tl_target_pid(const struct tl_target *target);
// Becomes readable when the target has exited (pidfd). -1 never.
int tl_target_exit_fd(const struct tl_target *target);
bool tl_target_alive(const struct tl_target *target);
// Exit status as waitpid gives it, for a launched target that ended; else -1.
int tl_target_wait_status(const struct tl_target *target);

// Stops one thread, the best to borrow (no seccomp, asleep, not in a vfork), for system calls. Others run on.
int tl_target_borrow(struct tl_target *target, struct tl_diag *diag);
// Stops every task that shares the address space (threads, CLONE_VM and vfork children), the borrowed
// included. TL_E_BUSY: someone did not stop in time; all are released, the text names who.
int tl_target_stop(struct tl_target *target, struct tl_diag *diag);
// Lets all go. System calls that ended in EINTR only because of the stop are issued again. Group stop
// (SIGSTOP) is kept, signals that arrived meanwhile are delivered in order.
void tl_target_resume(struct tl_target *target);
// Lets all go but the borrowed thread.
void tl_target_resume_others(struct tl_target *target);

// Runs one system call in the borrowed thread, through a way home that finishes by itself if the
// controller dies. *result is what the kernel returned (negative errno on failure). 0 or TL_E_*.
int tl_target_syscall(struct tl_target *target, long nr, const uint64_t args[6], int64_t *result,
                      struct tl_diag *diag);

// Where a call may be made from if no other place leads back to the thread, as from our own code: so many bytes,
// executable, zero and nobody's, until they are taken away again. Of more than a few the first are used.
size_t tl_target_room_size(void);
void tl_target_room_give(struct tl_target *target, tl_addr addr);
void tl_target_room_take(struct tl_target *target, tl_addr addr);

// The kernel's own code that signal handlers return to, in the vDSO. 0: none, or not found.
tl_addr tl_target_sigreturn(struct tl_target *target);

// Wipes boot stubs that dead controllers left behind. All tasks must be stopped. 0, or
// TL_E_BUSY: all of them are in the kernel, and none can write.
int tl_target_sweep(struct tl_target *target);

// Reads without a stop (process_vm_readv, then /proc/PID/mem). Returns 0 or TL_E_*; all or nothing.
int tl_target_read(struct tl_target *target, tl_addr addr, void *buf, size_t size, struct tl_diag *diag);
// Writes while held, through r-x too (/proc/PID/mem, then PTRACE_POKETEXT). All or nothing is NOT
// promised across pages; *written (may be NULL) says how much was.
int tl_target_write(struct tl_target *target, tl_addr addr, const void *buf, size_t size,
                    size_t *written, struct tl_diag *diag);

// Whether a page of the mapping holds just what its file (fd) holds. If the mapping is private and
// read-only, such a page may be given back (madvise DONTNEED).
bool tl_target_page_equals(struct tl_target *target, const struct tl_map *map, int fd, tl_addr page);

// Threads of a stopped target.
struct tl_thread_view {
    pid_t tid;
    tl_addr pc, sp;
    tl_addr link;                // the register that calls leave their return address in; 0: no such, or not known
    bool link_hidden;            // there is such a register, and what it holds is not known
    uint64_t thread_pointer;     // fs_base, tpidr_el0
    bool in_kernel;              // counted as stopped although not yet stopped; pc is where it will return
    struct tl_range stack;       // sp .. end of its mapping
    struct tl_range alt_stack;   // empty when none known
};
size_t tl_target_thread_count(const struct tl_target *target);
int tl_target_thread_view(struct tl_target *target, size_t index, struct tl_thread_view *out);
// Moves a stopped thread's pc.
int tl_target_thread_set_pc(struct tl_target *target, size_t index, tl_addr pc, struct tl_diag *diag);
// Changes the register that calls leave their return address in.
int tl_target_thread_set_link(struct tl_target *target, size_t index, tl_addr link, struct tl_diag *diag);

// Runs run(opaque) on the thread that holds the target, so that the calls it makes here pay for no
// change of threads. Returns what run returned, or TL_E_SYSTEM when no thread could be had.
int tl_target_run(struct tl_target *target, int (*run)(void *opaque), void *opaque,
                  struct tl_diag *diag);
// The target executed another program while it was held: nothing of ours is left in it.
bool tl_target_execed(const struct tl_target *target);
// Whether size_bytes more fit in the target's memory cgroup. 0, or TL_E_LIMIT.
int tl_target_headroom(struct tl_target *target, uint64_t size_bytes, struct tl_diag *diag);
// Start time and pid of the target's own, as at open.
uint64_t tl_target_start_time(const struct tl_target *target);

// Test hook: called before every ptrace call and every write, with a running number. NULL: none.
extern void (*tl_target_step_hook)(unsigned step);

#endif

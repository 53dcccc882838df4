// What the files of attach share about a held target. Internal.
//
//   worker.c  the thread that holds           trace.c   ptrace calls and waiting
//   stop.c    all tasks stopped, let go       inject.c  system calls in a borrowed thread
//   memory.c  reading and writing             check.c   may it be probed
//   target.c  open, launch, close           exec.c    a thread that executes another program
#ifndef TL_ATTACH_HELD_H
#define TL_ATTACH_HELD_H

#include <pthread.h>
#include <sys/types.h>

#include "attach/isa.h"
#include "attach/target.h"

#define TL_STOP_TIMEOUT_MS 50
#define TL_BORROW_TIMEOUT_MS 50    // for a stopped thread to stand where a call can be made
#define TL_CALL_TIMEOUT_MS 2000    // one injected call; it waits for the target's mmap lock at most
#define TL_LAUNCH_TIMEOUT_MS 10000 // the loader's work, or a stop of one task that is starting
#define TL_STRAGGLER_TIMEOUT_MS 500 // tasks that did not stop in time, after all others were let go
#define TL_TASKS_MAX (1u << 16)
#define TL_SIGNALS_IN_A_ROW_MAX 64 // delivered to one thread while we want it to stop

enum tl_task_state {
    TL_TASK_WAITED,    // seized and interrupted, not yet stopped
    TL_TASK_STOPPED,   // in a ptrace stop at the border to user code
    TL_TASK_IN_KERNEL, // not stopped, but can't reach user code before it stops
    TL_TASK_GONE,
};

struct tl_task {
    pid_t tid, tgid;
    enum tl_task_state state;
    int signal;    // stopped just before this signal is delivered; it is passed on at release
    bool newborn;  // seized by the kernel because its parent was: may be a fork, which is let go
    bool has_regs; // regs are valid (STOPPED)
    struct tl_regs regs;
    tl_addr pc, sp; // IN_KERNEL: where it will come back to user code
    // Where the kernel hides calls (isa.h): the one that it was blocked in before it was seized.
    struct tl_blocked {
        long number; // -1: none
        uint64_t first_argument;
        tl_addr sp, pc;
    } blocked;
    bool called;      // calls of ours ran in it
    uint8_t *vectors; // to be given back behind them: a register set, malloc'ed; NULL none
    size_t vectors_size;
    unsigned vectors_note;
};

enum tl_hold { TL_HOLD_NONE, TL_HOLD_BORROWED, TL_HOLD_ALL };

struct tl_stub {
    tl_addr addr; // 0: none written
    uint8_t before[TL_STUB_SIZE_MAX];
    size_t size;
};

struct tl_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool running, quit, quit_wanted;
    int (*run)(void *opaque); // NULL: nothing to do
    void *opaque;
    int result;
    bool done;
};

#define TL_ROOMS_MAX 64 // all of a usual run's

struct tl_target {
    pid_t pid;
    struct tl_target_options options;
    uint64_t start_time;
    int lock_fd, pid_fd;
    bool launched, execed, gone;
    int wait_status; // launched and ended: as waitpid gives it; else -1
    unsigned step;   // running number for the test hook
    struct tl_worker worker;

    enum tl_hold hold;
    struct tl_task **task;
    size_t task_count, task_room;
    pid_t *family; // other processes that share the address space
    size_t family_count, family_room;
    uint64_t last_pid; // newest pid of this pid namespace when family was last complete
    pid_t borrowed;    // tid, 0: none
    struct tl_stub stub;
    tl_addr room[TL_ROOMS_MAX]; // places for it that patch has made
    size_t room_count;
    bool no_place; // a thread would have done, but for a place for its stub
    int mem_fd; // /proc/mem_tid/mem for writing, opened in this hold; -1
    pid_t mem_tid;
    struct tl_maps maps; // snapshot of this hold, for stacks; count 0: not read yet
};

// ---- worker.c: runs on the holding thread, started when needed
int tl_worker_call(struct tl_target *target, int (*run)(void *opaque), void *opaque,
                   struct tl_diag *diag);
bool tl_worker_here(const struct tl_target *target);
void tl_worker_end(struct tl_target *target); // after the running call, when called from inside one

// ---- trace.c: all on the holding thread
uint64_t tl_clock_ns(void);
void tl_step(struct tl_target *target);
long tl_trace(struct tl_target *target, int request, pid_t tid, uint64_t addr, uint64_t data);
// One status of tid. 1: filled; 0: deadline passed; TL_E_GONE.
int tl_trace_wait(struct tl_target *target, pid_t tid, uint64_t deadline_ns, int *status);
int tl_trace_get_regs(struct tl_target *target, pid_t tid, struct tl_regs *out);
int tl_trace_set_regs(struct tl_target *target, pid_t tid, const struct tl_regs *regs);
// SEIZE and INTERRUPT, and a task record. NULL: errno says why.
struct tl_task *tl_task_seize(struct tl_target *target, pid_t tid, pid_t tgid);
struct tl_task *tl_task_find(struct tl_target *target, pid_t tid);
// Waits until the task is stopped (regs read), gone, or the deadline passed. 1, TL_E_GONE, 0.
int tl_task_wait(struct tl_target *target, struct tl_task *task, uint64_t deadline_ns);
// Takes in one wait status. True: the task is now stopped or gone.
bool tl_task_event(struct tl_target *target, struct tl_task *task, int status);
// Delivers a signal that the task is stopped for, or that its last instruction raised, so that it
// stops for us alone and its registers may be changed. As tl_task_wait.
int tl_task_settle(struct tl_target *target, struct tl_task *task, uint64_t deadline_ns);
void tl_task_release(struct tl_target *target, struct tl_task *task);
void tl_task_destroy(struct tl_task *task);
void tl_tasks_sweep(struct tl_target *target);               // forgets those that are gone
int tl_gone(struct tl_target *target, struct tl_diag *diag); // the sentence, TL_E_GONE

// ---- stop.c
// Fills family. Done before the first task is stopped, since it looks at every process.
int tl_family_scan(struct tl_target *target, struct tl_diag *diag);
void tl_release_all(struct tl_target *target);

// ---- target.c
struct tl_target *tl_target_alloc(pid_t pid, const struct tl_target_options *options);
// The first task of a program that stands at its first instruction, in a ptrace stop, becomes a held
// target with that thread borrowed.
int tl_target_hold_first(struct tl_target *target, struct tl_diag *diag);

// ---- call.c
// A task that is about to be seized: what it is blocked in.
void tl_call_look(struct tl_task *task);
// One that has stopped: what its registers don't say of its call.
void tl_call_learn(struct tl_target *target, struct tl_task *task);
// Lets a stopped task whose call is hidden go through it, to the stop at its end, where the kernel says what
// it will do. onward: one in user code too, through its next call. 1: it is stopped (maybe where it was); 0: not
// in time, it is stopped all the same, or TL_E_GONE.
int tl_call_show(struct tl_target *target, struct tl_task *task, bool onward, uint64_t deadline_ns);
// Whether a call of ours would cost the task vector registers. kept: they can be given back.
bool tl_vectors_live(struct tl_target *target, const struct tl_task *task, bool *kept);
int tl_vectors_keep(struct tl_target *target, struct tl_task *task);
void tl_vectors_give_back(struct tl_target *target, struct tl_task *task);

// ---- inject.c
// A free place, from which a stub leads to pc, for a stub's room of bytes that nobody owns.
int tl_stub_place(struct tl_target *target, tl_addr pc, tl_addr *out, struct tl_diag *diag);
// Puts the borrowed thread where the kernel can finish the call that it was stopped in, as if nothing had been.
void tl_call_hand_back(struct tl_target *target);
int tl_stub_prepare(struct tl_target *target, struct tl_task *task, struct tl_diag *diag);
// Where a task that is still in a stub of an earlier hold will go on. 0: it is in none. By target->maps.
tl_addr tl_stub_left(struct tl_target *target, tl_addr pc);
void tl_stub_restore(struct tl_target *target);

// ---- memory.c
int tl_memory_write(struct tl_target *target, pid_t tid, tl_addr addr, const void *buf, size_t size,
                    size_t *written, struct tl_diag *diag);

// ---- check.c
int tl_check_target(pid_t pid, const struct tl_target_options *options, uint64_t *start_time,
                    struct tl_diag *diag);
int tl_check_lock(pid_t pid, int *lock_fd, struct tl_diag *diag);
bool tl_check_may_all(void); // we have the right to trace everybody

#endif

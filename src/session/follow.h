// Libraries and processes that come and go while probes are in. Internal to the session.
//
//   notice.c   hooks in the target, what its threads tell through them, answers
//   loader.c   libraries: new ones are probed, lost ones forgotten, returned ones probed again
//   follow.c   forked children: who they are, what they counted when they are gone; ways out
//   execed.c   programs that the target or a child executes
//   retire.c   batches of processes that are gone
#ifndef TL_SESSION_FOLLOW_H
#define TL_SESSION_FOLLOW_H

#include "attach/exec.h"
#include "session/internal.h"

// ---- for session.c and batch.c
// Requests of our own for a batch: hooks of the loader and of exec, where they are needed. To be called
// whenever tl_batch_requests has made its requests anew.
int tl_session_hooks(struct tl_batch *batch, struct tl_diag *diag);
// After a batch was placed: notes that nothing tells when its process executes a program, where that is
// to be followed.
void tl_session_hooks_check(struct tl_batch *batch);
// Whether a probe text may match a library that is not loaded yet, so that no match now is no error.
bool tl_session_may_match_later(const struct tl_session *session);
// Answers notices, looks after children and executed programs. Each poll; cheap when nothing happened.
int tl_session_look_after(struct tl_session *session, struct tl_diag *diag);
// The longest sleep between two polls: notices may come. 0: none can.
int tl_session_hooks_poll_ms(const struct tl_session *session);
// A process besides the batches' own is alive, or one is about to execute a program.
bool tl_follow_alive(struct tl_session *session);
size_t tl_follow_count(const struct tl_session *session); // processes ever followed, the target included
// Puts text back in all forked children, followed or not. After the batches' own detach.
int tl_follow_detach(struct tl_session *session, struct tl_diag *diag);
void tl_follow_destroy(struct tl_session *session);

// ---- among these files
// A line for the user; only the first few of a session are kept.
void tl_follow_note(struct tl_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// What is known of the notices of one batch's install.
struct tl_listener {
    const struct tl_batch *batch;        // NULL: free
    double stuck_since[TL_NOTICE_SLOTS]; // FILLING or ANSWERED since; 0: is not
};

// A file as maps names it.
struct tl_file_key {
    uint64_t inode;
    uint32_t dev_major, dev_minor;
};

struct tl_loader {
    struct tl_listener *listener;
    size_t listener_count;
    struct tl_file_key *ignored; // files that no probe text matches
    size_t ignored_count, ignored_room;
    uint64_t missed; // notices without an answer, of batches that are gone
    double last_ms;  // when a notice was last answered
    bool working;    // threads are told so
};

// notice.c
void tl_notice_poll(struct tl_session *session);
// Tells all threads whether we are at work for one of them: then they wait longer. Returns what they were told before.
bool tl_notice_working(struct tl_session *session, bool working);
void tl_notice_batch_gone(struct tl_session *session, const struct tl_batch *batch);
void tl_notice_missed(struct tl_session *session); // notes how many got no answer
struct tl_loader *tl_loader_state(struct tl_session *session); // NULL: no memory

// loader.c
bool tl_loader_wanted(const struct tl_batch *batch);
// Where the loader of the batch's process tells of changes, as module and vaddr. false: it has none.
bool tl_loader_hook_site(struct tl_batch *batch, uint32_t *module, tl_addr *vaddr);
// Something changed in the process of pid, whose batch it is or which holds a copy of its install.
void tl_loader_changed(struct tl_session *session, struct tl_batch *batch, pid_t pid);

// follow.c
// One process slot of one batch's install.
struct tl_child {
    uint32_t owner;   // the slot's word when it was seen; 0: free
    pid_t pid;        // 0: not known yet
    bool missed;      // the last look through all processes did not find it
    double seen_ms, gone_ms; // 0: alive
};
struct tl_brood {
    struct tl_batch *batch; // NULL: free
    uint32_t top;           // no slot from here on was ever used
    struct tl_child child[TL_PROCESS_SLOTS_MAX];
};
struct tl_follow {
    struct tl_brood **brood;
    size_t brood_count;
    struct tl_exec **pending;
    size_t pending_count;
    size_t processes; // ever followed, but for the target
    double looked_ms, scanned_ms;
    bool claiming; // at the last scan some process was about to take a slot
    bool copies;   // ... or holds a copy
    unsigned notes;
    uint64_t silent; // children without a slot that were told of
};
struct tl_follow *tl_follow_state(struct tl_session *session); // NULL: no memory
void tl_follow_poll(struct tl_session *session);
// Looks for children that took a slot just now.
void tl_follow_children(struct tl_session *session);
// The process that was found to have this slot (not 0). 0: none yet.
pid_t tl_follow_pid(const struct tl_session *session, const struct tl_batch *batch,
                    uint32_t process);
// Whether pid is a child that is known.
bool tl_follow_knows(const struct tl_session *session, pid_t pid);
// No process holds a copy of this batch's install.
bool tl_follow_childless(struct tl_session *session, const struct tl_batch *batch);
void tl_follow_batch_gone(struct tl_session *session, const struct tl_batch *batch);

// execed.c
// A thread of pid (its own tid there, 0: not known) is about to execute a program. Returns when it may
// go on.
void tl_execs_begin(struct tl_session *session, pid_t pid, uint32_t tid);
void tl_execs_poll(struct tl_session *session);
bool tl_execs_pending(const struct tl_session *session);
void tl_execs_end(struct tl_session *session); // lets go of all

// retire.c
// Gives back the room of batches whose processes are gone and that others stand for.
void tl_batches_retire(struct tl_session *session);
// After a batch was placed: which batch each report line shows.
void tl_batches_lines(struct tl_session *session);
// Takes the newest batch out again. It placed nothing.
void tl_batch_drop(struct tl_batch *batch);
// Puts the newest batch where a retired one was.
void tl_batch_settle(struct tl_batch *batch);
// Adds what a process slot counted to the target's shared block, and clears the slot for another owner.
int tl_process_fold(struct tl_batch *batch, uint32_t process, struct tl_diag *diag);

#endif

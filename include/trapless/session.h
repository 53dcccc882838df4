// One run: probes by name, attach or launch, read, detach. The command uses nothing else.
//
// Threads: a session belongs to one thread at a time; its calls must not overlap. Different sessions
// (for different targets) may run in different threads. No call changes the caller's signal mask or
// handlers. Strings that a call lends stay until the next call on the same session.
//
//     struct tl_session_options options = {.size = sizeof options, .pid = pid};
//     if (!tl_session_create(&options, &session, &diag) && tl_session_add(session, "malloc", &diag) > 0 &&
//         !tl_session_attach(session, &diag)) { ... tl_session_poll(session, &diag); ... }
//     tl_session_destroy(session);
#ifndef TRAPLESS_SESSION_H
#define TRAPLESS_SESSION_H

#include <sys/types.h>

#include "trapless/error.h"
#include "trapless/refusal.h"
#include "trapless/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tl_session; // opaque

// AUTO is jump, then kernel, then (with allow_traps) simulate, slot, step. The others: that rung only.
enum tl_method {
    TL_METHOD_AUTO,
    TL_METHOD_JUMP,
    TL_METHOD_KERNEL,
    TL_METHOD_SIMULATE,
    TL_METHOD_SLOT,
    TL_METHOD_STEP
};

// What a hit leaves behind.
enum tl_record_mode {
    TL_MODE_COUNT,   // counters
    TL_MODE_EVENTS,  // counters and events: tl_session_events
    TL_MODE_LATENCY, // a histogram of the time from a function's entry to its return; probes are functions
};

// How returns are probed. AUTO: exit sites, and the trampoline where an exit can't be patched.
enum tl_return_way { TL_RETURN_AUTO, TL_RETURN_EXIT, TL_RETURN_TRAMPOLINE };

struct tl_session_options {
    size_t size;            // sizeof this struct, for growth; what lies behind is taken as zero
    pid_t pid;              // attach, or
    char *const *argv;      // launch (argv[0] is searched in PATH), or
    const char *file;       // a file alone: find and explain only
    enum tl_method method;
    const char *debug_dir;  // searched for separate debug files before /usr/lib/debug; NULL: only that
    // Called now and then while much is done. NULL: never.
    void (*progress)(void *opaque, const char *what, size_t done, size_t total);
    void *opaque;
    bool read_only;         // list and explain of a process: no lock, no ptrace, nothing is attached
    bool all_insns;         // explain: every instruction of each matched function, not only its entry
    enum tl_record_mode mode;
    enum tl_return_way return_way;
    bool follow;            // forked children, and what they and the target execute
    bool allow_traps;       // AUTO may use the signal rungs
    uint32_t ring_events;   // room for events of one thread, rounded up to a power of two; 0: 4096
};

// What is known of one probe.
struct tl_site_report {
    const char *probe;    // canonical: uprobe:PATH:NAME or uretprobe:PATH:NAME
    const char *file;
    const char *function; // all names
    tl_addr addr;         // of the site; of a return probe: the function's entry
    uint64_t size;        // of the instruction at the site, bytes
    uint8_t bytes[16];
    char insn[96];
    enum tl_rung rung;
    enum tl_refusal refusal; // why not, or why not the rung above
    char reason[256];     // refusal sentence, or the way and notes
    char window[32];      // "5 bytes pun" ...
    uint64_t hits, dropped; // hits = recorded + dropped
    bool is_return;
    const char *return_way; // "exit", "trampoline", "kernel"; NULL: no return is probed
    uint32_t exit_count;    // exits patched, for "exit"
};

struct tl_session_totals {
    size_t sites, refused, by_rung[8]; // by enum tl_rung
    double attach_ms, stopped_ms, detach_ms;
    uint64_t hits, dropped;
    size_t processes; // followed, the target included
};

// Launches, or looks at the target. TL_E_PERM, TL_E_GONE, TL_E_BUSY, TL_E_UNSUPPORTED, TL_E_SYSTEM ...;
// the diag says why and what to do. A launched target stands still at its program's first instruction.
int tl_session_create(const struct tl_session_options *options, struct tl_session **out,
                      struct tl_diag *diag);
// Detaches if needed. NULL is fine.
void tl_session_destroy(struct tl_session *session);
// Adds probes by text: FUNCTION | FILE:FUNCTION | uprobe:FILE:FUNCTION[+OFFSET] | uprobe:FILE:0xADDRESS |
// uretprobe:FILE:FUNCTION. Returns how many matched, or TL_E_* (TL_E_USAGE, TL_E_NOMATCH). Before attach.
// What matches nothing is kept: a library that the target loads later, or with follow a program that is
// executed, may match. The text is copied.
int tl_session_add(struct tl_session *session, const char *probe, struct tl_diag *diag);
// Plans every site as if alone, for reports; needs no permission beyond reading. TL_E_NOMATCH: no probe
// matched.
int tl_session_explain(struct tl_session *session, struct tl_diag *diag);
// Places all probes and lets the target run. TL_E_NOMATCH: none could be placed (reports say why).
// TL_E_BUSY: a thread did not stop in time, or another controller is at work; it may be tried anew.
// TL_E_PERM, TL_E_GONE, TL_E_SYSTEM, TL_E_NOMEM. After an error the target is as it was.
int tl_session_attach(struct tl_session *session, struct tl_diag *diag);

// Refreshes hits and looks after the target: foreign changes of its text, libraries that came or went,
// children, programs executed. Call it every tl_session_poll_ms() or so: what waits for an answer waits
// at most 100 ms, a second where it would come to harm. 0, or 1: the target (and all that is followed) is gone. TL_E_*: detach, and end.
int tl_session_poll(struct tl_session *session, struct tl_diag *diag);
// How long the caller may sleep before the next poll, milliseconds.
int tl_session_poll_ms(const struct tl_session *session);
// Becomes readable when the target has exited; owned by the session. -1: no target.
int tl_session_exit_fd(const struct tl_session *session);
// Wait status of a launched command that has ended, else -1.
int tl_session_wait_status(const struct tl_session *session);
// Takes all probes away, from followed processes too. What was recorded can still be read: reports,
// totals, events, latency. TL_E_BUSY: a thread did not stop in time; call it again. Not attached: 0.
int tl_session_detach(struct tl_session *session, struct tl_diag *diag);

// Sites are numbered from 0 in the order of their probes. There are more when a library or a program has
// brought new ones; a number keeps its meaning. The report is lent until the next call; index must be
// below the count. Its return_way, if any, and no other string, stays for good.
size_t tl_session_site_count(const struct tl_session *session);
const struct tl_site_report *tl_session_site(struct tl_session *session, size_t index);
void tl_session_totals(const struct tl_session *session, struct tl_session_totals *out);
// Lines about what was skipped or happened since the session was made, each ending in a newline; more
// may follow later. "" if nothing. Lent until the next call.
const char *tl_session_notes(const struct tl_session *session);

// ---- events (TL_MODE_EVENTS)

#define TL_EVENT_ARGS_MAX 6
struct tl_event {
    size_t site;       // index for tl_session_site
    uint64_t ts_ns;    // CLOCK_MONOTONIC, from the processor's counter
    pid_t pid;         // as the caller sees it
    pid_t tid;         // as the target numbers it in its namespace; 0: not known
    bool is_return;    // then arg[0] is the return value
    uint64_t arg[TL_EVENT_ARGS_MAX]; // integer and pointer arguments, as in registers
};
// Hands over, ordered by time, what was recorded and is in order by now. Call it often: a full ring drops
// (and counts). After detach it hands over all that is left. take returning a negative value ends it and
// is returned. Returns how many. The event is lent for the call; take may call tl_session_site and
// tl_session_site_count, nothing else of this session. TL_E_USAGE: not in TL_MODE_EVENTS. TL_E_FORMAT:
// the shared memory makes no sense. hits = handed over + dropped, for each site, after detach.
int tl_session_events(struct tl_session *session,
                      int (*take)(void *opaque, const struct tl_event *event), void *opaque,
                      struct tl_diag *diag);

// ---- latency (TL_MODE_LATENCY)

struct tl_bucket {
    uint64_t low_ns, high_ns; // both counted in it
    uint64_t count;
};
struct tl_latency {
    uint64_t count; // entry and return pairs
    double min_ns, mean_ns, max_ns, p50_ns, p90_ns, p99_ns, p999_ns; // percentiles: error at most 1/32
    const struct tl_bucket *bucket; // those that are not empty, ascending; lent until the next call
    size_t bucket_count;
    uint64_t unpaired; // returns whose entry came before the probe, or was lost
    uint64_t lost;     // entries that found no room
};
// What one function's calls took since the attach. Times are meaningless while count is 0. TL_E_USAGE: not
// in TL_MODE_LATENCY, or there is no such site. TL_E_FORMAT: the shared memory makes no sense.
int tl_session_latency(struct tl_session *session, size_t site, struct tl_latency *out,
                       struct tl_diag *diag);

// ---- without a session

// One function of a file. Strings are lent for the call.
#define TL_FUNCTION_NAMES_MAX 64
struct tl_function {
    tl_addr addr;
    uint64_t size; // bytes
    const char *file;
    const char *names[TL_FUNCTION_NAMES_MAX];     // all names of the address
    const char *demangled[TL_FUNCTION_NAMES_MAX]; // NULL where not mangled
    size_t name_count;
};
// Functions of a process (options->pid) or else of a file (options->file) that match pattern, a probe's
// text (NULL: all). A negative value of take() ends it and is returned. 0, TL_E_NOMATCH: none, TL_E_USAGE,
// TL_E_PERM, TL_E_GONE, TL_E_FORMAT. notes (may be NULL): lines about files that could not be read, at
// most notes_size - 1 characters. Any thread; touches no process.
int tl_functions_list(const struct tl_session_options *options, const char *pattern,
                      int (*take)(void *opaque, const struct tl_function *function), void *opaque,
                      char *notes, size_t notes_size, struct tl_diag *diag);

// Finishes what a killed controller left in pid. Returns the number of sites put back (0: nothing to do),
// or TL_E_PERM, TL_E_GONE, TL_E_BUSY (a controller is at work there, or a thread did not stop in time).
int tl_detach_leftover(pid_t pid, struct tl_diag *diag);

// "0.1.0". Static storage.
const char *tl_version(void);

#ifdef __cplusplus
}
#endif

#endif

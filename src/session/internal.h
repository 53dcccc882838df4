// What the files of the session share. Not for anybody else.
//
//   session.c     the public calls: life of a session, its order     batch.c    placing one batch
//   points.c      probes -> points (entry, each exit)               plan_input.c points -> requests, and back
//   kernel.c traps.c  the other rungs                               faults.c    guards of fault handlers
//   events.c      the stream, histograms                            report.c    what is told
//   notice.c loader.c follow.c  libraries and children that come and go
#ifndef TL_SESSION_INTERNAL_H
#define TL_SESSION_INTERNAL_H

#include "attach/target.h"
#include "attach/uprobe.h"
#include "base/diag.h"
#include "drain/drain.h"
#include "find/find.h"
#include "patch/patch.h"
#include "plan/plan.h"
#include "session/session.h"

#define TL_SESSION_PLANNED 0x1u // its points went through the jump planner
#define TL_BATCHES_MAX 256u     // placings of one session: the first, libraries, programs executed

// How the returns of a site are probed.
enum tl_site_return {
    TL_SITE_NO_RETURN,  // it has none
    TL_SITE_EXITS,      // a point at each exit
    TL_SITE_TRAMPOLINE, // the return address is replaced at the entry
};

// One site's state, parallel to tl_batch.sites.site[].
struct tl_session_site {
    enum tl_rung rung;
    enum tl_refusal refusal;
    enum tl_way way;
    uint32_t point_first, point_count; // in tl_batch.points; valid if flags & TL_SESSION_PLANNED
    uint32_t counter;  // index of its counter in a block
    uint32_t uprobe;   // index in uprobes, when rung is kernel
    uint32_t flags;
    uint32_t line;     // index of its report line
    int kernel_errno;  // why the kernel refused, 0 unknown
    uint8_t return_way; // enum tl_site_return
    uint16_t link_place; // where its function keeps a replaced return address, as in tl_hijack_head.place
    uint8_t exit_refusal; // enum tl_refusal: why not all exits are patched, NONE
    uint32_t exit_count;
    uint8_t *exit_level; // how many places of each exit were tried in vain; NULL: none; owned
    uint8_t window_size;
    bool interior;
    bool closed;       // was placed, then given up (refusal says why)
    uint64_t hits, dropped;
};

// One instruction that a site needs a probe at: its own, or one of its function's exits.
struct tl_point {
    uint32_t site;    // in the batch
    uint32_t request; // that serves it; several points may share one
    tl_addr vaddr;
    uint8_t kind;     // enum tl_record_kind; HIT: plain count
    bool on_taken;    // an exit by a conditional branch
    uint32_t exit;    // index among the function's exits
    int32_t sp_off;   // see struct tl_record
};

// Probes of handlers that came after the attach, in an install of their own.
#define TL_SESSION_GUARDS_MAX 4
#define TL_GUARD_NO_USER UINT32_MAX
struct tl_session_guard {
    struct tl_install *install;
    size_t count;
    struct tl_install_result results[TL_FAULT_HANDLERS_MAX];
    uint32_t user[TL_FAULT_HANDLERS_MAX]; // request of a person's probe at the same address
};

// Probes placed at one time in one process: the session's first, those in a library that came later,
// those in a program that was executed. Each has modules, sites and an install of its own.
struct tl_batch {
    struct tl_session *session;
    struct tl_target *target; // NULL for a file; shared by the batches of one process
    bool target_owned;
    pid_t pid;
    const struct tl_arch *arch; // of its program
    struct tl_maps maps;
    struct tl_modules *modules;
    struct tl_sites sites;
    struct tl_session_site *state;
    size_t state_count;
    struct tl_point *points;
    size_t point_count, point_max;
    struct tl_plan_request *requests;
    size_t request_count, request_max;
    struct tl_plan_module *plan_modules;
    struct tl_space *space;
    struct tl_plan_set *plans;
    struct tl_install *install;
    struct tl_install_result *results;
    const struct tl_batch *beside; // an earlier one in the same process, NULL
    enum tl_fault_policy faults;
    struct tl_session_guard guard[TL_SESSION_GUARDS_MAX];
    size_t guard_count;
    tl_addr guarded[TL_FAULT_HANDLERS_MAX * (TL_SESSION_GUARDS_MAX + 1)]; // handlers
    size_t guarded_count;
    struct tl_uprobes *uprobes;
    uint32_t *uprobe_site; // the site of each of them
    size_t uprobe_count;
    struct tl_batch_traps *traps;       // traps.c; NULL: no breakpoints
    struct tl_trampolines *trampolines; // trampoline.c; NULL until asked
    int stream_source; // of its rings; -1 none
    size_t lines_before; // report lines that were there before its own
    bool attached, gone;
    double attach_ms, detach_ms, stopped_ms;
};

// What a person sees as one probe, whatever batches it is in.
struct tl_session_line {
    char *probe;
    uint32_t batch, site; // the one that it is told as
    uint64_t hits, dropped; // sums, as of the last refresh
};

struct tl_session {
    struct tl_session_options options;
    char **texts; // the probes as they were given
    size_t text_count;
    struct tl_batch *batch[TL_BATCHES_MAX]; // [0] is the target's first
    size_t batch_count;
    struct tl_session_line *lines;
    size_t line_count;
    struct tl_stream *stream;      // events; NULL
    struct tl_clock_map clock;
    struct tl_follow *follow;      // follow.c; NULL
    struct tl_loader *loader;      // loader.c; NULL
    bool attached;
    double attach_ms, detach_ms, stopped_ms;
    double verified_ms; // when text was last compared
    struct tl_site_report report;
    struct tl_bucket *buckets;     // of the last tl_session_latency
    char notes[4096];
};

double tl_session_now_ms(void);
void tl_session_note(struct tl_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// ---- batch.c
// A batch over a process (or a file, target NULL) whose maps and modules are read. Takes over target
// if owned. only: the mappings whose files are looked at, taken over; NULL: all. The batch belongs to the
// session at once, after an error (but TL_E_LIMIT) too.
int tl_batch_create(struct tl_session *session, struct tl_target *target, bool target_owned,
                    struct tl_maps *only, struct tl_batch **out, struct tl_diag *diag);
void tl_batch_destroy(struct tl_batch *batch);
// Adds what one probe text matches. Returns how many, or TL_E_*.
int tl_batch_add(struct tl_batch *batch, const char *probe, struct tl_diag *diag);
// Gives each site its report line. Once, when all is added.
int tl_batch_lines(struct tl_batch *batch, struct tl_diag *diag);
// Places all sites; the target runs on (a held one stays held). 0 also when some or all were refused.
int tl_batch_place(struct tl_batch *batch, struct tl_diag *diag);
void tl_batch_refresh(struct tl_batch *batch); // hits
// Looks for foreign changes and new handlers. 1: the process is gone or became another program.
int tl_batch_verify(struct tl_batch *batch, struct tl_diag *diag);
int tl_batch_detach(struct tl_batch *batch, struct tl_diag *diag);
size_t tl_batch_placed(const struct tl_batch *batch);
// Its place in session->batch.
uint32_t tl_batch_index(const struct tl_batch *batch);

// ---- points.c
// Points for sites [first, first + count) that are not refused, as their return_way says (chosen here at the
// first call: exits where all are known, else trampoline or refused). Replaces the last call's.
int tl_batch_points(struct tl_batch *batch, size_t first, size_t count, struct tl_diag *diag);
// After planning: exits that got no place are tried earlier, and sites where that is in vain get another
// way. Returns how many changed (then: points, requests and plans again). Ends after a few rounds.
size_t tl_batch_points_fallback(struct tl_batch *batch, size_t first, size_t count);

// ---- plan_input.c
// A shadow stack is in force in the process.
bool tl_batch_shadow_stack(const struct tl_batch *batch);
// Facts for each point -> requests (which replace those of the last call). Fills plan_modules too.
int tl_batch_requests(struct tl_batch *batch, struct tl_diag *diag);
// Fills plan_modules.
int tl_session_modules(struct tl_batch *batch, struct tl_diag *diag);
// Takes rungs, ways and refusals over from the plans, for sites [first, first + count).
void tl_session_take_plans(struct tl_batch *batch, size_t first, size_t count);
// A probe of our own (a hook, an unwinder): appended behind people's requests, merged where one is
// there. Index in *request. After tl_batch_requests and before the plan.
int tl_batch_request_own(struct tl_batch *batch, uint32_t module, tl_addr vaddr,
                         const struct tl_record *record, size_t *request, struct tl_diag *diag);

// No other site that is placed needs this request.
bool tl_batch_request_alone(const struct tl_batch *batch, uint32_t request, uint32_t site);

// Sums the sites' hits and losses into the report lines. (session.c)
void tl_session_lines_sum(struct tl_session *session);

// A jump that was written, people's or a guard's, covers a byte of [addr, addr + size), or its branch ends in
// one: no breakpoint, ours or the kernel's, may go there.
bool tl_batch_covers(const struct tl_batch *batch, tl_addr addr, uint64_t size);

// ---- events.c
// Puts what the kernel's probes recorded into the stream.
int tl_batch_kernel_events(struct tl_batch *batch, struct tl_diag *diag);

// ---- trampoline.c
// NONE: the site's returns may be probed by replacing its return address.
enum tl_refusal tl_session_trampoline_refusal(struct tl_batch *batch, size_t site);

// ---- faults.c
// Adds requests for the target's fault handlers behind those there are, or makes one of those guard
// too; sets batch->faults to policy (RESUMED: their returns too; LONE), or ANY when there are no
// handlers. *possible: all that the policy needs is known.
int tl_session_guard(struct tl_batch *batch, enum tl_fault_policy policy, bool *possible,
                     struct tl_diag *diag);
// Each of them has a place.
bool tl_session_guards_planned(const struct tl_batch *batch);
// Gives them up: only the first `own` requests stay, and batch->faults is NONE.
void tl_session_unguard(struct tl_batch *batch, size_t own);
// Has the target got new handlers, or lost a guard? Guards them, or closes what can fault.
int tl_session_guards_refresh(struct tl_batch *batch, struct tl_diag *diag);
int tl_session_guards_detach(struct tl_batch *batch, struct tl_diag *diag);
void tl_session_guards_destroy(struct tl_batch *batch);

// The jump's own reasons, which neither the kernel's probe nor a breakpoint shares. (plan_input.c)
bool tl_refusal_of_jump(enum tl_refusal refusal);

// ---- report.c, exits.c, expand.c, kernel.c
// NULL: made for a machine that we don't know.
const struct tl_arch *tl_session_arch(const struct tl_module *module);
// The instruction at vaddr, from the module's file. false: no text, or none.
bool tl_session_insn(struct tl_module *module, tl_addr vaddr, struct tl_insn *out);
// The vaddrs of all instructions by which the handler at vaddr returns. false: not all are known,
// or there are more than max.
bool tl_session_exits(struct tl_module *module, tl_addr function, tl_addr *exits, size_t max,
                      size_t *count);
// Replaces each matched function by all its instructions.
int tl_session_expand(struct tl_batch *batch, struct tl_diag *diag);
// The kernel rung for every site that wants it.
int tl_session_kernel(struct tl_batch *batch, struct tl_diag *diag);
int tl_batch_explain(struct tl_batch *batch, struct tl_diag *diag);

// ---- follow.c, loader.c, notice.c, traps.c, trampoline.c: each is asked at these moments
// The pid that has this process slot of the batch's install; 0: not known.
pid_t tl_session_process_pid(struct tl_session *session, const struct tl_batch *batch,
                             uint32_t process);

#endif

// What the files of the session share. Not for anybody else.
#ifndef TL_SESSION_INTERNAL_H
#define TL_SESSION_INTERNAL_H

#include "attach/target.h"
#include "attach/uprobe.h"
#include "drain/drain.h"
#include "find/find.h"
#include "patch/patch.h"
#include "plan/plan.h"
#include "session/session.h"

#define TL_SESSION_PLANNED 0x1u // the site went through the jump planner (request index is valid)

// One site's state, parallel to tl_sites.site[].
struct tl_session_site {
    enum tl_rung rung;
    enum tl_refusal refusal;
    enum tl_way way;
    uint32_t request;  // index into requests/plans/results; valid if flags & TL_SESSION_PLANNED
    uint32_t counter;  // index of its counter in a block
    uint32_t uprobe;   // index in uprobes, when rung is kernel
    uint32_t flags;
    int kernel_errno;  // why the kernel refused, 0 unknown
    uint8_t window_size;
    bool interior;
    bool closed;       // was placed, then given up (refusal says why)
    uint64_t hits, dropped;
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

struct tl_session {
    struct tl_session_options options;
    struct tl_target *target; // NULL for a file
    struct tl_maps maps;
    struct tl_modules *modules;
    struct tl_sites sites;
    struct tl_session_site *state;
    size_t state_count;
    struct tl_plan_request *requests;
    size_t request_count;
    struct tl_plan_module *plan_modules;
    struct tl_space *space;
    struct tl_plan_set *plans;
    struct tl_install *install;
    struct tl_install_result *results;
    enum tl_fault_policy faults;
    struct tl_session_guard guard[TL_SESSION_GUARDS_MAX];
    size_t guard_count;
    tl_addr guarded[TL_FAULT_HANDLERS_MAX * (TL_SESSION_GUARDS_MAX + 1)]; // handlers
    size_t guarded_count;
    struct tl_uprobes *uprobes;
    size_t request_max;
    bool attached;
    double attach_ms, detach_ms, stopped_ms;
    struct tl_site_report report;
    char notes[4096];
};

double tl_session_now_ms(void);
void tl_session_note(struct tl_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Facts for each of sites [first, first + count) that is not refused -> requests (which replace those
// of the last call). Fills plan_modules too. (plan_input.c)
int tl_session_requests(struct tl_session *session, size_t first, size_t count,
                        struct tl_diag *diag);
// Fills plan_modules. (plan_input.c)
int tl_session_modules(struct tl_session *session, struct tl_diag *diag);
// Takes rungs, ways and refusals over from the plans. (plan_input.c)
void tl_session_take_plans(struct tl_session *session);

// Adds requests for the target's fault handlers behind those there are, or makes one of those guard
// too; sets session->faults to policy (RESUMED: their returns too; LONE), or ANY when there are no
// handlers. *possible: all that the policy needs is known. (faults.c)
int tl_session_guard(struct tl_session *session, enum tl_fault_policy policy, bool *possible,
                     struct tl_diag *diag);
// Each of them has a place.
bool tl_session_guards_planned(const struct tl_session *session);
// Gives them up: only the first `own` requests stay, and session->faults is NONE.
void tl_session_unguard(struct tl_session *session, size_t own);
// Has the target got new handlers, or lost a guard? Guards them, or closes what can fault.
int tl_session_guards_refresh(struct tl_session *session, struct tl_diag *diag);
int tl_session_guards_detach(struct tl_session *session, struct tl_diag *diag);
void tl_session_guards_destroy(struct tl_session *session);

// The instruction at vaddr, from the module's file. false: no text, or none. (report.c)
bool tl_session_insn(struct tl_module *module, tl_addr vaddr, struct tl_insn *out);
// The vaddrs of all instructions by which the function at vaddr returns. false: not all are known,
// or there are more than max. (exits.c)
bool tl_session_exits(struct tl_module *module, tl_addr function, tl_addr *exits, size_t max,
                      size_t *count);

// Replaces each matched function by all its instructions. (expand.c)
int tl_session_expand(struct tl_session *session, struct tl_diag *diag);
// The kernel rung for every site that wants it. (kernel.c)
int tl_session_kernel(struct tl_session *session, struct tl_diag *diag);

#endif

// One run: find, analyse, plan, emit, patch, then read and detach. What the command calls, and (issue B)
// what the public library wraps. Owns every stage's objects.
#ifndef TL_SESSION_SESSION_H
#define TL_SESSION_SESSION_H

#include "base/diag.h"
#include "base/refusal.h"
#include "base/types.h"
#include <sys/types.h>

struct tl_session; // opaque

enum tl_method { TL_METHOD_AUTO, TL_METHOD_JUMP, TL_METHOD_KERNEL };

struct tl_session_options {
    size_t size;            // sizeof this struct, for growth
    pid_t pid;              // attach, or
    char *const *argv;      // launch, or
    const char *file;       // a file alone: find and explain only
    enum tl_method method;
    const char *debug_dir;  // --debug-dir
    void (*progress)(void *opaque, const char *what, size_t done, size_t total);
    void *opaque;
    bool read_only;         // list and explain of a process: no lock, no ptrace, nothing is attached
    bool all_insns;         // explain: every instruction of each matched function, not only its entry
};

struct tl_site_report {
    const char *probe;    // canonical probe
    const char *file;
    const char *function; // all names
    tl_addr addr;
    uint64_t size;        // of the instruction at the site
    uint8_t bytes[16];
    char insn[96];
    enum tl_rung rung;
    enum tl_refusal refusal; // why not, or why not the rung above
    char reason[256];     // refusal sentence, or the way and notes
    char window[32];      // "5 bytes pun" ...
    uint64_t hits, dropped;
};

struct tl_session_totals {
    size_t sites, refused, by_rung[8];
    double attach_ms, stopped_ms, detach_ms;
    uint64_t hits, dropped;
};

int tl_session_create(const struct tl_session_options *options, struct tl_session **out, struct tl_diag *diag);
void tl_session_destroy(struct tl_session *session); // detaches if needed
// Adds probes by text (grammar of find.h). Returns matches or TL_E_*.
int tl_session_add(struct tl_session *session, const char *probe, struct tl_diag *diag);
// Plans every site as if alone, for explain; needs no permission beyond reading (file: none).
int tl_session_explain(struct tl_session *session, struct tl_diag *diag);
// Places all probes. TL_E_NOMATCH: none could be placed (reports say why).
int tl_session_attach(struct tl_session *session, struct tl_diag *diag);
// Refreshes hits. Periodic: also compares the text (verify). 1: the target is gone or exec'd.
int tl_session_poll(struct tl_session *session, struct tl_diag *diag);
int tl_session_exit_fd(const struct tl_session *session);
// Wait status of a launched command that has ended, else -1.
int tl_session_wait_status(const struct tl_session *session);
int tl_session_detach(struct tl_session *session, struct tl_diag *diag);
size_t tl_session_site_count(const struct tl_session *session);
// Borrowed until the next call on the session.
const struct tl_site_report *tl_session_site(struct tl_session *session, size_t index);
void tl_session_totals(const struct tl_session *session, struct tl_session_totals *out);
const char *tl_session_notes(const struct tl_session *session);

#endif

// A session that touches no process: the command's own behaviour can be tried without any other
// stage. What it does is in the probes' names (see the table); a started command is really started.
//
//   missing   matches nothing              refused   a site that is refused
//   badwords  is wrong usage               perm      attach fails for want of permission
//   ends      the target is gone at the first poll
//   stuck     detach fails                slow      attach tells its progress
//   foreign   is closed while running
//   others    are placed; every poll finds 1,000 more hits
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/diag.h"
#include "session/session.h"

#define SITES_MAX 64

struct tl_session {
    char *names[SITES_MAX];
    uint64_t hits[SITES_MAX];
    size_t count;
    pid_t child;
    int exit_fd;
    int status;
    struct tl_session_options options;
    bool attached, kernel;
    struct tl_site_report report;
};

static bool has(const struct tl_session *session, const char *name)
{
    for (size_t i = 0; i < session->count; i++) {
        if (strcmp(session->names[i], name) == 0)
            return true;
    }
    return false;
}

int tl_session_create(const struct tl_session_options *options, struct tl_session **out,
                      struct tl_diag *diag)
{
    struct tl_session *session = calloc(1, sizeof *session);
    if (!session)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    session->options = *options;
    session->exit_fd = session->status = -1;
    session->kernel = options->method == TL_METHOD_KERNEL;
    if (options->argv) {
        session->child = fork();
        if (!session->child) {
            (void)execvp(options->argv[0], options->argv);
            _exit(127);
        }
        session->exit_fd = (int)syscall(SYS_pidfd_open, session->child, 0);
    } else if (options->pid && kill(options->pid, 0)) {
        free(session);
        return tl_diag_set(diag, TL_E_GONE, "pid %d: there is no such process", (int)options->pid);
    }
    *out = session;
    return 0;
}

void tl_session_destroy(struct tl_session *session)
{
    if (!session)
        return;
    for (size_t i = 0; i < session->count; i++)
        free(session->names[i]);
    if (session->exit_fd >= 0)
        (void)close(session->exit_fd);
    free(session);
}

int tl_session_add(struct tl_session *session, const char *probe, struct tl_diag *diag)
{
    if (strcmp(probe, "missing") == 0)
        return tl_diag_set(diag, TL_E_NOMATCH, "%s: no function has this name", probe);
    if (strcmp(probe, "badwords") == 0 || session->count == SITES_MAX)
        return tl_diag_set(diag, TL_E_USAGE, "%s: a probe can't look like this", probe);
    session->names[session->count] = strdup(probe);
    session->count += session->names[session->count] != NULL;
    return 1;
}

int tl_session_explain(struct tl_session *session, struct tl_diag *diag)
{
    return session->count ? 0 : tl_diag_set(diag, TL_E_NOMATCH, "no probe matched");
}

int tl_session_attach(struct tl_session *session, struct tl_diag *diag)
{
    if (has(session, "perm"))
        return tl_diag_set(diag, TL_E_PERM, "pid 1: ptrace refused: run as root");
    struct timespec start, now;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    for (bool slow = has(session, "slow"); slow; slow = now.tv_sec - start.tv_sec < 2) {
        session->options.progress(session->options.opaque, "planning", 1, 3);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    }
    session->attached = true;
    if (session->count == 1 && has(session, "refused"))
        return tl_diag_set(diag, TL_E_NOMATCH, "no probe could be placed");
    return 0;
}

int tl_session_poll(struct tl_session *session, struct tl_diag *diag)
{
    (void)diag;
    for (size_t i = 0; i < session->count; i++)
        session->hits[i] += 1000;
    if (session->child > 0 &&
        waitpid(session->child, &session->status, WNOHANG) == session->child) {
        session->child = 0;
        return 1;
    }
    return has(session, "ends");
}

int tl_session_exit_fd(const struct tl_session *session)
{
    return session->exit_fd;
}

int tl_session_wait_status(const struct tl_session *session)
{
    return session->status;
}

int tl_session_detach(struct tl_session *session, struct tl_diag *diag)
{
    session->attached = false;
    fprintf(stderr, "fake: detached\n"); // so that a test sees that it was asked for
    return has(session, "stuck") ? tl_diag_set(diag, TL_E_BUSY, "thread 7 did not stop") : 0;
}

size_t tl_session_site_count(const struct tl_session *session)
{
    return session->count;
}

const struct tl_site_report *tl_session_site(struct tl_session *session, size_t index)
{
    bool refused = strcmp(session->names[index], "refused") == 0;
    bool closed = strcmp(session->names[index], "foreign") == 0 && session->hits[index];
    session->report = (struct tl_site_report){
        .probe = session->names[index],
        .file = "/fake",
        .function = session->names[index],
        .addr = 0x1000 + index,
        .rung = refused           ? TL_RUNG_REFUSED
                : session->kernel ? TL_RUNG_KERNEL
                                  : TL_RUNG_JUMP,
        .refusal = refused  ? TL_REFUSE_SYSCALL
                   : closed ? TL_REFUSE_CHANGED_BYTES
                            : TL_REFUSE_NONE,
        .hits = refused ? 0 : session->hits[index],
    };
    (void)snprintf(session->report.reason, sizeof session->report.reason, "%s",
                   tl_refusal_text(session->report.refusal));
    return &session->report;
}

void tl_session_totals(const struct tl_session *session, struct tl_session_totals *out)
{
    *out = (struct tl_session_totals){.sites = session->count};
    for (size_t i = 0; i < session->count; i++) {
        bool refused = strcmp(session->names[i], "refused") == 0;
        out->refused += refused;
        out->by_rung[refused ? TL_RUNG_REFUSED : TL_RUNG_JUMP]++;
        out->hits += refused ? 0 : session->hits[i];
    }
}

const char *tl_session_notes(const struct tl_session *session)
{
    return has(session, "noted") ? "first note\nsecond \033[31mnote\n" : "";
}

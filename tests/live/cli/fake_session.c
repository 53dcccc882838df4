// A session that touches no process: the command's own behaviour can be tried without any other
// stage. What it does is in the probes' names (see the table); a started command is really started.
//
//   missing   matches nothing              refused   a site that is refused
//   badwords  is wrong usage               perm      attach fails for want of permission
//   ends      the target is gone at the first poll
//   stuck     detach fails                slow      attach tells its progress
//   foreign   is closed while running      words     tells its options on standard error
//   flood     has 10,000 events at each drain, others one
//   late      comes with a library at the second poll
//   quiet     is never called              longer    takes longer than others
//   awaited   matches what never comes
//   others    are placed; every poll finds 1,000 more hits
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trapless/trapless.h"

#define SITES_MAX 64
#define FLOOD_EVENTS 10000
#define POLL_MS 50
#define TS_NS 1000000000000000001u // above what a double holds exactly

struct tl_session {
    char *names[SITES_MAX];
    uint64_t hits[SITES_MAX];
    size_t count;
    pid_t child;
    int exit_fd;
    int status;
    struct tl_session_options options;
    bool attached, kernel, late, awaited;
    uint64_t events;
    struct tl_site_report report;
};

static int error_set(struct tl_diag *diag, int error, const char *text)
{
    if (diag)
        (void)snprintf(diag->text, sizeof diag->text, "%s", text);
    return error;
}

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
        return error_set(diag, TL_E_NOMEM, "out of memory");
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
        char text[64];
        (void)snprintf(text, sizeof text, "pid %d: there is no such process", (int)options->pid);
        return error_set(diag, TL_E_GONE, text);
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
    session->awaited |= strcmp(probe, "awaited") == 0;
    if (session->awaited)
        return error_set(diag, TL_E_NOMATCH, "awaited: no module has this name yet");
    if (strcmp(probe, "missing") == 0)
        return error_set(diag, TL_E_NOMATCH, "missing: no function has this name");
    if (strcmp(probe, "badwords") == 0 || session->count == SITES_MAX)
        return error_set(diag, TL_E_USAGE, "badwords: a probe can't look like this");
    if (strncmp(probe, "none", 4) == 0)
        return error_set(diag, TL_E_NOMATCH, probe);
    if (strcmp(probe, "words") == 0)
        fprintf(stderr, "fake: method %d mode %d return %d follow %d traps %d ring %u\n",
                session->options.method, session->options.mode, session->options.return_way,
                session->options.follow, session->options.allow_traps,
                session->options.ring_events);
    session->names[session->count] = strdup(probe);
    session->count += session->names[session->count] != NULL;
    return 1;
}

int tl_session_explain(struct tl_session *session, struct tl_diag *diag)
{
    return session->count ? 0 : error_set(diag, TL_E_NOMATCH, "no probe matched");
}

int tl_session_attach(struct tl_session *session, struct tl_diag *diag)
{
    if (has(session, "perm"))
        return error_set(diag, TL_E_PERM, "pid 1: ptrace refused: run as root");
    if (!session->count && !session->awaited)
        return error_set(diag, TL_E_NOMATCH, "no probe matched");
    struct timespec start, now;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    for (bool slow = has(session, "slow"); slow; slow = now.tv_sec - start.tv_sec < 2) {
        session->options.progress(session->options.opaque, "planning", 1, 3);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    }
    session->attached = true;
    if (session->count == 1 && has(session, "refused"))
        return error_set(diag, TL_E_NOMATCH, "no probe could be placed");
    return 0;
}

int tl_session_poll(struct tl_session *session, struct tl_diag *diag)
{
    (void)diag;
    bool later = session->count && session->hits[0];
    for (size_t i = 0; i < session->count; i++)
        session->hits[i] += 1000;
    if (later && has(session, "late") && !session->late) {
        session->late = true;
        session->names[session->count++] = strdup("arrived");
    }
    if (session->child > 0 &&
        waitpid(session->child, &session->status, WNOHANG) == session->child) {
        session->child = 0;
        return 1;
    }
    return has(session, "ends");
}

int tl_session_poll_ms(const struct tl_session *session)
{
    (void)session;
    return POLL_MS;
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
    return has(session, "stuck") ? error_set(diag, TL_E_BUSY, "thread 7 did not stop") : 0;
}

size_t tl_session_site_count(const struct tl_session *session)
{
    return session->count;
}

static bool is_return(const char *name)
{
    return strncmp(name, "uretprobe:", 10) == 0;
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
        .dropped = strcmp(session->names[index], "flood") == 0 ? 7 : 0,
        .is_return = is_return(session->names[index]),
        .return_way = is_return(session->names[index]) ? "exit" : NULL,
        .exit_count = is_return(session->names[index]) ? 3 : 0,
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
    if (!has(session, "noted"))
        return "";
    return session->hits[0] ? "first note\nsecond \033[31mnote\nlate note\n"
                            : "first note\nsecond \033[31mnote\n";
}

// The first probe's events have numbers that need all 64 bits.
int tl_session_events(struct tl_session *session,
                      int (*take)(void *opaque, const struct tl_event *event), void *opaque,
                      struct tl_diag *diag)
{
    int total = 0;
    if (has(session, "broken"))
        return error_set(diag, TL_E_FORMAT, "pid 1: a ring makes no sense");
    for (size_t i = 0; i < session->count; i++) {
        if (strcmp(session->names[i], "refused") == 0 || strcmp(session->names[i], "quiet") == 0)
            continue;
        size_t count = strcmp(session->names[i], "flood") == 0 ? FLOOD_EVENTS : 1;
        for (size_t k = 0; k < count; k++, total++) {
            const struct tl_event event = {.site = i,
                                           .ts_ns = TS_NS + session->events++,
                                           .pid = 41,
                                           .tid = k % 2 ? 0 : 42,
                                           .is_return = is_return(session->names[i]),
                                           .arg = {UINT64_MAX, 1, 1ull << 63, 0, 255, 6}};
            int result = take(opaque, &event);
            if (result < 0)
                return result;
        }
    }
    return total;
}

int tl_session_latency(struct tl_session *session, size_t site, struct tl_latency *out,
                       struct tl_diag *diag)
{
    static const struct tl_bucket buckets[] = {{96, 99, 10}, {128, 131, 30}, {1024, 1055, 5}};
    if (has(session, "broken"))
        return error_set(diag, TL_E_FORMAT, "pid 1: a histogram makes no sense");
    *out = (struct tl_latency){0};
    if (strcmp(session->names[site], "quiet") == 0)
        return 0;
    *out = (struct tl_latency){.count = 45,
                               .min_ns = 97,
                               .mean_ns = strcmp(session->names[site], "longer") ? 222.5 : 300,
                               .p50_ns = 130,
                               .p90_ns = 1040,
                               .p99_ns = 1040,
                               .p999_ns = 1040,
                               .max_ns = 1050,
                               .bucket = buckets,
                               .bucket_count = sizeof buckets / sizeof *buckets,
                               .unpaired = 2};
    return 0;
}

int tl_functions_list(const struct tl_session_options *options, const char *pattern,
                      int (*take)(void *opaque, const struct tl_function *function), void *opaque,
                      char *notes, size_t notes_size, struct tl_diag *diag)
{
    const struct tl_function function = {
        .addr = 0x1000, .size = 5, .file = "/fake", .names = {"f"}, .name_count = 1};
    (void)options;
    (void)snprintf(notes, notes_size, "a note\n");
    if (pattern && strcmp(pattern, "missing") == 0)
        return error_set(diag, TL_E_NOMATCH, "missing: no function has this name");
    return take(opaque, &function);
}

int tl_detach_leftover(pid_t pid, struct tl_diag *diag)
{
    (void)diag;
    return pid == getppid() ? 2 : 0;
}

const char *tl_version(void)
{
    return "0.1.0";
}

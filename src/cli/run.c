// The loop that count, trace and latency share.
//
// It waits for events only: the target's end, a signal, a deadline, a reader that takes more.
// Invariant: whatever ends the run - time, signal, the target's death, a closed output - the target
// is let go and what was recorded is printed; a reader that takes nothing keeps the loop from
// nothing.
#include "cli/run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLOSED_SHOWN_MAX 20
#define WAITING_MAX                                                                                \
    (4u << 20)          // bytes for a slow reader; beyond, the target's rings fill up and drop
#define BUSY_DRAIN_MS 1 // as long as there is something each time
#define POLL_MS_MIN 1
#define DETACH_TRIES_MAX 5 // where the target is too busy to be stopped in time

// ---- signals

// Ctrl-C, SIGTERM and SIGHUP become readable. Only after a command was started: it would inherit
// the mask. One that was ignored from outside (nohup) stays ignored.
static int signals_open(struct tl_run *run, sigset_t *old_mask, struct tl_diag *diag)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t mask;
    (void)sigemptyset(&mask);
    for (size_t i = 0; i < TL_ARRAY_COUNT(ends); i++) {
        struct sigaction now;
        if (!sigaction(ends[i], NULL, &now) && now.sa_handler != SIG_IGN)
            (void)sigaddset(&mask, ends[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &mask, old_mask);
    run->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signal_fd < 0)
        return tl_cli_error(diag, TL_E_SYSTEM, "signalfd: %s", strerror(errno));
    return 0;
}

static bool signal_came(const struct tl_run *run)
{
    struct signalfd_siginfo info;
    return read(run->signal_fd, &info, sizeof info) == (ssize_t)sizeof info;
}

// Signals that came while the probes were taken away are done with; the next one ends the command,
// which may be writing to a reader that takes nothing.
static void signals_close(struct tl_run *run, const sigset_t *old_mask)
{
    while (run->signal_fd >= 0 && signal_came(run))
        continue;
    if (run->signal_fd >= 0)
        (void)close(run->signal_fd);
    (void)sigprocmask(SIG_SETMASK, old_mask, NULL);
}

// ---- sites

static bool room_make(struct tl_run *run, size_t count)
{
    if (count <= run->room)
        return true;
    struct tl_show_count *counts = realloc(run->counts, count * sizeof *counts);
    if (!counts)
        return false;
    run->counts = counts;
    if (run->kind->mode == TL_MODE_EVENTS) {
        struct tl_show_label *labels = realloc(run->labels, count * sizeof *labels);
        if (!labels)
            return false;
        run->labels = labels;
    }
    run->room = count;
    return true;
}

// Names are copied: the session lends them only until its next call.
static bool site_take(struct tl_run *run, const struct tl_site_report *report)
{
    struct tl_show_count *count = &run->counts[run->count];
    *count = (struct tl_show_count){.probe = strdup(report->probe ? report->probe : ""),
                                    .function = strdup(report->function ? report->function : ""),
                                    .file = strdup(report->file ? report->file : ""),
                                    .return_way = report->return_way,
                                    .is_return = report->is_return};
    if (run->labels)
        run->labels[run->count] = (struct tl_show_label){0};
    run->count++;
    return count->probe && count->function && count->file &&
           (!run->labels ||
            tl_show_label_init(&run->cli->show, &run->labels[run->count - 1], report));
}

int tl_run_sites(struct tl_run *run, struct tl_diag *diag)
{
    size_t count = tl_session_site_count(run->session);
    if (count <= run->count)
        return 0;
    bool taken = room_make(run, count);
    while (taken && run->count < count) {
        const struct tl_site_report *report = tl_session_site(run->session, run->count);
        taken = site_take(run, report);
        tl_show_probe(&run->cli->show, report);
    }
    return taken ? 0 : tl_cli_error(diag, TL_E_NOMEM, "out of memory for %zu probes", count);
}

static void sites_destroy(struct tl_run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        free(run->counts[i].probe);
        free(run->counts[i].function);
        free(run->counts[i].file);
        if (run->labels)
            tl_show_label_deinit(&run->labels[i]);
    }
    free(run->counts);
    free(run->labels);
}

static void counts_refresh(struct tl_run *run)
{
    memset(run->reasons, 0, sizeof run->reasons);
    for (size_t i = 0; i < run->count; i++) {
        const struct tl_site_report *report = tl_session_site(run->session, i);
        run->counts[i].rung = report->rung;
        run->counts[i].return_way = report->return_way;
        run->counts[i].hits = report->hits;
        run->counts[i].dropped = report->dropped;
        if (report->rung == TL_RUNG_REFUSED && (unsigned)report->refusal < TL_REFUSAL_COUNT)
            run->reasons[report->refusal]++;
    }
}

// ---- what is printed

static void flush(struct tl_run *run)
{
    (void)fflush(run->cli->out);
    tl_output_pump(&run->cli->output);
}

static bool reader_is_slow(const struct tl_run *run)
{
    return tl_output_waiting(&run->cli->output) > WAITING_MAX;
}

static int interval_print(struct tl_run *run, double now, struct tl_diag *diag)
{
    double elapsed_s = (now - run->printed_ms) / 1e3;
    run->printed_ms = now;
    if (reader_is_slow(run)) // the next one tells the same and more
        return 0;
    counts_refresh(run);
    int error = run->kind->interval(run, elapsed_s, diag);
    if (!run->cli->options.json)
        (void)fputc('\n', run->cli->out);
    flush(run);
    return error;
}

// What the session noted since the last time.
static void notes_print(struct tl_run *run)
{
    const char *notes = tl_session_notes(run->session);
    size_t length = strlen(notes);
    if (length > run->notes_shown)
        tl_cli_notes(run->cli, notes + run->notes_shown);
    run->notes_shown = length;
}

// A probe that lost its place while it ran: one that has a rung still, a refusal says why.
static void closed_print(struct tl_run *run)
{
    size_t closed = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct tl_site_report *report = tl_session_site(run->session, i);
        if (report->rung != TL_RUNG_JUMP || report->refusal == TL_REFUSE_NONE)
            continue;
        if (run->cli->options.json)
            tl_show_probe(&run->cli->show, report);
        else if (closed < CLOSED_SHOWN_MAX)
            tl_cli_note(run->cli, "%s: %s", report->function, report->reason);
        closed++;
    }
    if (closed > CLOSED_SHOWN_MAX && !run->cli->options.json)
        tl_cli_note(run->cli, "and %zu more were closed while running", closed - CLOSED_SHOWN_MAX);
}

static void summary_print(struct tl_run *run, bool attached)
{
    struct tl_session_totals totals;
    tl_session_totals(run->session, &totals);
    tl_show_summary(&run->cli->show, &totals, run->reasons, attached);
}

static int end_print(struct tl_run *run, double end_ms, struct tl_diag *diag)
{
    int taken = tl_run_sites(run, diag); // the last poll may have brought some
    if (taken)
        return taken;
    notes_print(run);
    closed_print(run);
    counts_refresh(run);
    for (size_t i = 0; i < run->count; i++)
        run->counts[i].before = 0;
    int error = run->kind->end(run, (end_ms - run->start_ms) / 1e3, diag);
    summary_print(run, true);
    return error;
}

#define GONE_WAIT_MS 500

static void gone_note(struct tl_run *run)
{
    struct pollfd ended = {.fd = tl_session_exit_fd(run->session), .events = POLLIN};
    // Its memory goes a moment before its status comes.
    if (run->cli->options.argv)
        (void)poll(&ended, 1, GONE_WAIT_MS);
    int status = tl_session_wait_status(run->session);
    if (status == -1)
        tl_cli_note(run->cli, "the target has ended, or became another program");
    else if (WIFSIGNALED(status))
        tl_cli_note(run->cli, "the command was ended by signal %d (%s)", WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status) && WEXITSTATUS(status))
        tl_cli_note(run->cli, "the command ended with status %d", WEXITSTATUS(status));
}

// ---- the loop

// When each thing is to be done next, in ms; 0: never.
struct deadlines {
    double poll, drain, print, end;
};

static int wait_ms(const struct deadlines *deadlines, double now)
{
    const double times[] = {deadlines->drain, deadlines->print, deadlines->end};
    double next = deadlines->poll;
    for (size_t i = 0; i < TL_ARRAY_COUNT(times); i++) {
        if (times[i] > 0 && times[i] < next)
            next = times[i];
    }
    // Rounded up: waking early would spin.
    return next <= now ? 0 : (int)(next - now) + 1;
}

// A signal came: 1. The target's own end is noted in the run.
static int events_wait(struct tl_run *run, const struct deadlines *deadlines, bool *ended,
                       struct tl_diag *diag)
{
    bool waiting = tl_output_waiting(&run->cli->output) > 0;
    struct pollfd fds[] = {
        {.fd = run->signal_fd, .events = POLLIN},
        {.fd = run->target_gone ? -1 : tl_session_exit_fd(run->session), .events = POLLIN},
        {.fd = waiting ? run->cli->output.fd : -1, .events = POLLOUT},
    };
    int ready = poll(fds, TL_ARRAY_COUNT(fds), wait_ms(deadlines, tl_cli_now_ms()));
    if (ready < 0 && errno != EINTR)
        return tl_cli_error(diag, TL_E_SYSTEM, "poll: %s", strerror(errno));
    if (ready > 0 && fds[2].revents)
        tl_output_pump(&run->cli->output);
    *ended = ready > 0 && fds[1].revents;
    return ready > 0 && fds[0].revents && signal_came(run);
}

// Lets the session look after the target. 1: the target, and all that is followed, is gone.
static int session_poll(struct tl_run *run, bool ended, struct deadlines *deadlines,
                        struct tl_diag *diag)
{
    int result = tl_session_poll(run->session, diag);
    if (result < 0)
        return result;
    if (result == 1 || (ended && !tl_cli_follow(&run->cli->options)))
        return 1;
    run->target_gone |= ended;
    int period = tl_session_poll_ms(run->session);
    deadlines->poll = tl_cli_now_ms() + (period < POLL_MS_MIN ? POLL_MS_MIN : period);
    notes_print(run);
    return tl_run_sites(run, diag);
}

static int drain(struct tl_run *run, struct deadlines *deadlines, struct tl_diag *diag)
{
    int count = reader_is_slow(run) ? 0 : run->kind->drain(run, diag);
    deadlines->drain = tl_cli_now_ms() + (count > 0 ? BUSY_DRAIN_MS : TL_RUN_DRAIN_MS);
    if (count > 0)
        flush(run);
    return count < 0 ? count : 0;
}

static void deadlines_init(const struct tl_run *run, struct deadlines *deadlines)
{
    const struct tl_cli_options *options = &run->cli->options;
    *deadlines = (struct deadlines){.poll = run->start_ms};
    if (run->kind->drain)
        deadlines->drain = run->start_ms;
    if (options->interval_s > 0)
        deadlines->print = run->start_ms + options->interval_s * 1e3;
    if (options->duration_s > 0)
        deadlines->end = run->start_ms + options->duration_s * 1e3;
}

// Until time is up, a signal comes or the target ends. 0, or 1 when the target is gone.
static int run_wait(struct tl_run *run, struct tl_diag *diag)
{
    struct deadlines deadlines;
    deadlines_init(run, &deadlines);
    for (;;) {
        bool ended = false;
        int result = events_wait(run, &deadlines, &ended, diag);
        if (result)
            return result < 0 ? result : 0;
        double now = tl_cli_now_ms();
        bool print = deadlines.print > 0 && now >= deadlines.print;
        if (ended || print || now >= deadlines.poll)
            result = session_poll(run, ended, &deadlines, diag);
        if (!result && deadlines.drain > 0 && now >= deadlines.drain)
            result = drain(run, &deadlines, diag);
        if (result)
            return result;
        if (deadlines.end > 0 && now >= deadlines.end)
            return 0;
        if (print) {
            result = interval_print(run, now, diag);
            deadlines.print = run->printed_ms + run->cli->options.interval_s * 1e3;
        }
        if (result || ferror(run->cli->out) || run->cli->output.error)
            return result; // nobody reads on: as Ctrl-C
    }
}

// ---- the run

// The probes are placed, or the reports say why none was. 0: go on.
static int run_begin(struct tl_run *run, struct tl_diag *diag)
{
    int attach_error = tl_session_attach(run->session, diag);
    tl_cli_progress_end(run->cli);
    if (attach_error && attach_error != TL_E_NOMATCH)
        return attach_error;
    int error = tl_run_sites(run, diag);
    if (error)
        return error;
    notes_print(run);
    if (attach_error) {
        counts_refresh(run);
        if (run->count)
            summary_print(run, false);
        return attach_error;
    }
    run->start_ms = run->printed_ms = tl_cli_now_ms();
    if (run->kind->begin)
        run->kind->begin(run);
    flush(run);
    return 0;
}

static int run_body(struct tl_run *run, struct tl_diag *diag)
{
    int error = tl_cli_probes_add(run->cli, run->session, 0, diag);
    if (!error)
        error = run_begin(run, diag);
    if (error)
        return error;
    int result = run_wait(run, diag);
    double end_ms = tl_cli_now_ms();
    struct tl_diag late = {{0}};
    error = tl_session_detach(run->session, &late);
    for (int i = 1; error == TL_E_BUSY && i < DETACH_TRIES_MAX; i++)
        error = tl_session_detach(run->session, &late);
    if (error && result == 1)
        error = 0; // there was nothing left to take away
    int drained = run->kind->drain ? run->kind->drain(run, error ? NULL : &late) : 0;
    error = error || drained >= 0 ? error : drained;
    int printed = end_print(run, end_ms, error ? NULL : &late);
    error = error ? error : printed;
    if (result == 1)
        gone_note(run);
    if (result < 0)
        return result;
    if (!error && !run->count) // what might have matched never came
        return tl_cli_error(diag, TL_E_NOMATCH, "no probe matched to the end");
    return error ? tl_cli_error(diag, error, "%s", late.text) : 0;
}

int tl_run(struct tl_cli *cli, const struct tl_run_kind *kind)
{
    struct tl_run run = {.cli = cli, .kind = kind, .signal_fd = -1};
    struct tl_diag diag = {{0}};
    const struct tl_session_options options = {.size = sizeof options,
                                               .pid = cli->options.pid,
                                               .argv = cli->options.argv,
                                               .method = cli->options.method,
                                               .debug_dir = cli->options.debug_dir,
                                               .progress = tl_cli_progress,
                                               .opaque = cli,
                                               .mode = kind->mode,
                                               .return_way = cli->options.return_way,
                                               .follow = tl_cli_follow(&cli->options),
                                               .allow_traps = cli->options.allow_traps,
                                               .ring_events = cli->options.ring_events};
    sigset_t old_mask;
    (void)sigprocmask(SIG_SETMASK, NULL, &old_mask);
    int error = tl_session_create(&options, &run.session, &diag);
    if (!error)
        error = signals_open(&run, &old_mask, &diag);
    tl_output_defer(&cli->output, true);
    if (!error)
        error = run_body(&run, &diag);
    int status = error ? tl_cli_fail(cli, error, &diag) : TL_EXIT_DONE;
    tl_session_destroy(run.session);
    sites_destroy(&run);
    signals_close(&run, &old_mask);
    (void)fflush(cli->out);
    tl_output_defer(&cli->output, false);
    return status;
}

int tl_run_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    if (!options->pid && !options->argv)
        return tl_cli_error(diag, TL_E_USAGE, "no target: give -p PID, or -- COMMAND at the end");
    if (!options->word_count && !options->probes_file)
        return tl_cli_error(diag, TL_E_USAGE, "no probe is given");
    return 0;
}

// trapless count: attach, wait, detach, print. And trapless detach.
//
// The loop waits for events only: the target's end, a signal, a deadline. Invariant: whatever ends
// the run - time, signal, the target's death, a closed output - the target is let go and what was
// counted is printed.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/target.h"
#include "cli/cli.h"
#include "patch/patch.h"

#define CLOSED_SHOWN_MAX 20
#define VERIFY_PERIOD_MS 250 // how often the text is compared with what was written

struct run {
    struct tl_cli *cli;
    struct tl_session *session;
    int signal_fd;
    sigset_t old_mask;
    struct tl_show_count *counts;
    size_t count;
    double start_ms, printed_ms; // attached; last interval print
    size_t reasons[TL_REFUSAL_COUNT];
};

// ---- signals
// ---------------------------------------------------------------------------------------

// Ctrl-C, SIGTERM and SIGHUP become readable. Only after a command was started: it would inherit
// the mask. One that was ignored from outside (nohup) stays ignored.
static int signals_open(struct run *run, struct tl_diag *diag)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t mask;
    (void)sigemptyset(&mask);
    for (size_t i = 0; i < TL_ARRAY_COUNT(ends); i++) {
        struct sigaction now;
        if (!sigaction(ends[i], NULL, &now) && now.sa_handler != SIG_IGN)
            (void)sigaddset(&mask, ends[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &mask, &run->old_mask);
    run->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signal_fd < 0)
        return tl_diag_set(diag, TL_E_SYSTEM, "signalfd: %s", strerror(errno));
    return 0;
}

static bool signal_came(const struct run *run)
{
    struct signalfd_siginfo info;
    return read(run->signal_fd, &info, sizeof info) == (ssize_t)sizeof info;
}

// ---- what is printed
// -------------------------------------------------------------------------------

// Names are copied: the session lends them only until its next call.
static int counts_create(struct run *run)
{
    run->count = tl_session_site_count(run->session);
    run->counts = calloc(run->count + 1, sizeof *run->counts);
    if (!run->counts)
        return TL_E_NOMEM;
    for (size_t i = 0; i < run->count; i++) {
        const struct tl_site_report *report = tl_session_site(run->session, i);
        run->counts[i].probe = strdup(report->probe ? report->probe : "");
        run->counts[i].function = strdup(report->function ? report->function : "");
        if (!run->counts[i].probe || !run->counts[i].function)
            return TL_E_NOMEM;
    }
    return 0;
}

static void counts_destroy(struct run *run)
{
    for (size_t i = 0; run->counts && i < run->count; i++) {
        free(run->counts[i].probe);
        free(run->counts[i].function);
    }
    free(run->counts);
}

static void counts_refresh(struct run *run)
{
    memset(run->reasons, 0, sizeof run->reasons);
    for (size_t i = 0; i < run->count; i++) {
        const struct tl_site_report *report = tl_session_site(run->session, i);
        run->counts[i].rung = report->rung;
        run->counts[i].hits = report->hits;
        run->counts[i].dropped = report->dropped;
        if (report->rung == TL_RUNG_REFUSED && (unsigned)report->refusal < TL_REFUSAL_COUNT)
            run->reasons[report->refusal]++;
    }
}

static void interval_print(struct run *run, double now)
{
    counts_refresh(run);
    tl_show_counts(&run->cli->show, run->counts, run->count, (now - run->printed_ms) / 1e3, true);
    if (!run->cli->options.json)
        (void)fputc('\n', run->cli->out);
    (void)fflush(run->cli->out);
    for (size_t i = 0; i < run->count; i++)
        run->counts[i].before = run->counts[i].hits;
    run->printed_ms = now;
}

static void probes_print(struct run *run)
{
    for (size_t i = 0; i < run->count; i++)
        tl_show_probe(&run->cli->show, tl_session_site(run->session, i));
    (void)fflush(run->cli->out);
}

// A probe that lost its place while it ran: on a jump that still is one, a refusal says why.
static void closed_print(struct run *run)
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

static void end_print(struct run *run, double end_ms)
{
    struct tl_session_totals totals;
    closed_print(run);
    counts_refresh(run);
    for (size_t i = 0; i < run->count; i++)
        run->counts[i].before = 0;
    double elapsed_s = (end_ms - run->start_ms) / 1e3;
    tl_show_counts(&run->cli->show, run->counts, run->count, elapsed_s, false);
    tl_session_totals(run->session, &totals);
    tl_show_summary(&run->cli->show, &totals, run->reasons, true);
}

// ---- the run
// ---------------------------------------------------------------------------------------

static int probes_add(struct run *run, struct tl_diag *diag)
{
    const struct tl_cli_options *options = &run->cli->options;
    size_t matched = 0;
    for (size_t i = 0; i < options->word_count; i++) {
        int result = tl_session_add(run->session, options->words[i], diag);
        if (result < 0 && result != TL_E_NOMATCH)
            return result;
        if (result <= 0)
            tl_cli_note(run->cli, "%s", diag->text);
        else
            matched += (size_t)result;
        tl_cli_progress(run->cli, "matched", i + 1, options->word_count);
    }
    return matched ? 0 : tl_diag_set(diag, TL_E_NOMATCH, "no probe matched");
}

// The earliest of the deadlines that are set, as a timeout.
static int wait_ms(const struct run *run, double now, double verify_ms)
{
    const struct tl_cli_options *options = &run->cli->options;
    double next = verify_ms;
    double end = run->start_ms + options->duration_s * 1e3;
    double print = run->printed_ms + options->interval_s * 1e3;
    if (options->duration_s > 0 && end < next)
        next = end;
    if (options->interval_s > 0 && print < next)
        next = print;
    // Rounded up: waking early would spin.
    return next <= now ? 0 : (int)(next - now) + 1;
}

// Until time is up, a signal comes or the target ends. 0, or 1 when the target is gone.
static int run_wait(struct run *run, struct tl_diag *diag)
{
    const struct tl_cli_options *options = &run->cli->options;
    double verify_ms = run->start_ms + VERIFY_PERIOD_MS;
    for (;;) {
        double now = tl_cli_now_ms();
        struct pollfd fds[] = {{.fd = run->signal_fd, .events = POLLIN},
                               {.fd = tl_session_exit_fd(run->session), .events = POLLIN}};
        int ready = poll(fds, TL_ARRAY_COUNT(fds), wait_ms(run, now, verify_ms));
        if (ready < 0 && errno != EINTR)
            return tl_diag_set(diag, TL_E_SYSTEM, "poll: %s", strerror(errno));
        now = tl_cli_now_ms();
        if (ready > 0 && fds[0].revents && signal_came(run))
            return 0;
        bool gone = ready > 0 && fds[1].revents;
        bool print = options->interval_s > 0 && now >= run->printed_ms + options->interval_s * 1e3;
        if (gone || print || now >= verify_ms) {
            int result = tl_session_poll(run->session, diag);
            if (result < 0)
                return result;
            if (gone || result == 1)
                return 1;
            verify_ms = now + VERIFY_PERIOD_MS;
        }
        if (options->duration_s > 0 && now >= run->start_ms + options->duration_s * 1e3)
            return 0;
        if (print)
            interval_print(run, now);
        if (ferror(run->cli->out)) // nobody reads on: as Ctrl-C
            return 0;
    }
}

static void gone_note(struct run *run)
{
    int status = tl_session_wait_status(run->session);
    if (status == -1)
        tl_cli_note(run->cli, "the target has ended, or became another program");
    else if (WIFSIGNALED(status))
        tl_cli_note(run->cli, "the command was ended by signal %d (%s)", WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status) && WEXITSTATUS(status))
        tl_cli_note(run->cli, "the command ended with status %d", WEXITSTATUS(status));
}

static int run_body(struct run *run, struct tl_diag *diag)
{
    int error = signals_open(run, diag);
    if (!error)
        error = probes_add(run, diag);
    if (error)
        return error;
    int attach_error = tl_session_attach(run->session, diag);
    tl_cli_progress_end(run->cli);
    if (counts_create(run))
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    if (attach_error && attach_error != TL_E_NOMATCH)
        return attach_error;
    probes_print(run);
    tl_cli_notes(run->cli, run->session);
    if (attach_error) { // the reports say why none was placed
        struct tl_session_totals totals;
        counts_refresh(run);
        tl_session_totals(run->session, &totals);
        tl_show_summary(&run->cli->show, &totals, run->reasons, false);
        return attach_error;
    }
    run->start_ms = run->printed_ms = tl_cli_now_ms();
    int result = run_wait(run, diag);
    double end_ms = tl_cli_now_ms();
    struct tl_diag detach_diag = {{0}};
    error = tl_session_detach(run->session, &detach_diag);
    end_print(run, end_ms);
    if (result == 1)
        gone_note(run);
    if (result < 0)
        return result;
    if (error && result != 1)
        return tl_diag_set(diag, error, "%s", detach_diag.text);
    return 0;
}

static int count_run(struct tl_cli *cli)
{
    struct run run = {.cli = cli, .signal_fd = -1};
    struct tl_diag diag = {{0}};
    const struct tl_session_options options = {.size = sizeof options,
                                               .pid = cli->options.pid,
                                               .argv = cli->options.argv,
                                               .method = cli->options.method,
                                               .debug_dir = cli->options.debug_dir,
                                               .progress = tl_cli_progress,
                                               .opaque = cli};
    (void)sigprocmask(SIG_SETMASK, NULL, &run.old_mask);
    int error = tl_session_create(&options, &run.session, &diag);
    if (!error)
        error = run_body(&run, &diag);
    int status = error ? tl_cli_fail(cli, error, &diag) : TL_EXIT_DONE;
    tl_session_destroy(run.session);
    counts_destroy(&run);
    if (run.signal_fd >= 0)
        (void)close(run.signal_fd);
    (void)sigprocmask(SIG_SETMASK, &run.old_mask, NULL);
    return status;
}

static int count_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    if (!options->pid && !options->argv)
        return tl_diag_set(diag, TL_E_USAGE, "no target: give -p PID, or -- COMMAND at the end");
    if (!options->word_count)
        return tl_diag_set(diag, TL_E_USAGE, "no probe is given");
    return 0;
}

const struct tl_cli_command tl_cli_count_command = {
    .name = "count",
    .allowed = "-pdiomqvjD",
    .usage = "count TARGET [-d SEC] [-i SEC] [options] PROBE...",
    .help =
        "Counts how often each probe is hit until -d is over, Ctrl-C, SIGTERM or SIGHUP comes, or\n"
        "the target ends; then takes the probes away and prints the totals.\n"
        "\n"
        "TARGET is -p PID or, last, -- COMMAND ARG... A started command keeps its own output, and\n"
        "runs on when the counting ends first.\n"
        "PROBE   FUNCTION               in the main program\n"
        "        FILE:FUNCTION          FILE is a path, a soname (libc, libc.so.6) or *\n"
        "        uprobe:FILE:FUNCTION[+OFFSET]\n"
        "        uprobe:FILE:0xADDRESS  a virtual address of that file\n"
        "        FUNCTION may hold * and ?.\n"
        "\n"
        "  -p, --pid PID         probe this running process\n"
        "  -d, --duration SEC    end after SEC (5, 0.5, 5s, 500ms)\n"
        "  -i, --interval SEC    print the counts every SEC\n"
        "      --method METHOD   auto (jump, else the kernel's uprobe), jump, kernel\n"
        "      --debug-dir DIR   look for separate debug files here first\n"
        "      --json            JSON lines\n"
        "  -o, --output FILE     write to FILE\n"
        "  -q, --quiet           no notes, no progress\n"
        "  -v, --verbose         a line for each placed probe too\n",
    .check = count_check,
    .run = count_run,
};

// ---- detach
// ----------------------------------------------------------------------------------------

static int detach_run(struct tl_cli *cli)
{
    struct tl_diag diag = {{0}};
    struct tl_target *target = NULL;
    int result = tl_target_open(cli->options.pid, NULL, &target, &diag);
    if (!result)
        result = tl_patch_detach_leftover(target, &diag);
    tl_target_close(target);
    if (result < 0)
        return tl_cli_fail(cli, result, &diag);
    if (result)
        fprintf(cli->out, "pid %d: %d sites put back\n", (int)cli->options.pid, result);
    else
        fprintf(cli->out, "pid %d: nothing was left behind\n", (int)cli->options.pid);
    return TL_EXIT_DONE;
}

static int detach_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    if (!options->pid)
        return tl_diag_set(diag, TL_E_USAGE, "no target: give -p PID");
    if (options->word_count)
        return tl_diag_set(diag, TL_E_USAGE, "'%s' is one word too many", options->words[0]);
    return 0;
}

const struct tl_cli_command tl_cli_detach_command = {
    .name = "detach",
    .allowed = "poqv",
    .usage = "detach -p PID [options]",
    .help = "Puts back what a trapless that was killed has left in the process. Does nothing to a\n"
            "process that is as its files say.\n"
            "\n"
            "  -p, --pid PID         the process\n"
            "  -o, --output FILE     write to FILE\n"
            "  -q, -v                quiet, verbose\n",
    .check = detach_check,
    .run = detach_run,
};

// One run against a target, as count, trace and latency make it: attach, wait, read, detach, print.
#ifndef TL_CLI_RUN_H
#define TL_CLI_RUN_H

#include "cli/cli.h"

struct tl_run {
    struct tl_cli *cli;
    const struct tl_run_kind *kind;
    struct tl_session *session;
    struct tl_show_count *counts; // parallel to the session's sites
    struct tl_show_label *labels; // the same, where the kind has events
    size_t count, room;
    size_t notes_shown; // characters of the session's notes
    int signal_fd;
    bool target_gone;            // the target has ended; what it has started may not
    double start_ms, printed_ms; // attached; last interval print
    uint64_t events_start_ns;    // what the times of events are counted from; 0: no event yet
    size_t reasons[TL_REFUSAL_COUNT];
};

// What a command does with the run.
struct tl_run_kind {
    enum tl_record_mode mode;
    // Behind the lines of the probes. May be NULL.
    void (*begin)(struct tl_run *run);
    // Reads what was recorded: every TL_RUN_DRAIN_MS, and last (final) after the detach. How many,
    // or TL_E_*. May be NULL.
    int (*drain)(struct tl_run *run, struct tl_diag *diag);
    // Every -i SEC, elapsed_s after the last; and at the end. Counts are fresh. 0 or TL_E_*.
    int (*interval)(struct tl_run *run, double elapsed_s, struct tl_diag *diag);
    int (*end)(struct tl_run *run, double elapsed_s, struct tl_diag *diag);
};

#define TL_RUN_DRAIN_MS 10

// The whole run; an exit status.
int tl_run(struct tl_cli *cli, const struct tl_run_kind *kind);
// For tl_cli_command.check of these commands.
int tl_run_check(const struct tl_cli_options *options, struct tl_diag *diag);
// Takes over sites that came with a library of the target.
int tl_run_sites(struct tl_run *run, struct tl_diag *diag);

#endif

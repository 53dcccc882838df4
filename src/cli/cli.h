// The command's own small world: options, streams, commands. Not a library.
#ifndef TL_CLI_CLI_H
#define TL_CLI_CLI_H

#include <stdio.h>

#include "base/diag.h"
#include "base/types.h"
#include "session/session.h"
#include "show/show.h"

// Exit statuses, a contract.
enum { TL_EXIT_DONE = 0, TL_EXIT_FAILED = 1, TL_EXIT_USAGE = 2, TL_EXIT_NOMATCH = 3 };

#define TL_CLI_WORDS_MAX 65536

struct tl_cli_options {
    const char *command; // "count"
    pid_t pid;           // 0: none
    char *const *argv;   // behind "--", NULL: none
    const char *debug_dir, *output;
    bool json, quiet, verbose, all_insns, help;
    bool has_method;
    enum tl_method method;
    double duration_s, interval_s; // 0: none
    const char **words;            // what is no option; owned
    size_t word_count;
};

// What one run prints to.
struct tl_cli {
    struct tl_cli_options options;
    struct tl_show show;
    FILE *out;
    bool progress_shown; // a progress line stands on the terminal
    double progress_ms;  // when it was last drawn
};

struct tl_cli_command {
    const char *name;
    const char *allowed; // letters of the options it takes
    const char *usage, *help;
    // Whether the words fit, before anything is opened. 0 or TL_E_USAGE.
    int (*check)(const struct tl_cli_options *options, struct tl_diag *diag);
    int (*run)(struct tl_cli *cli); // an exit status
};
extern const struct tl_cli_command tl_cli_list_command, tl_cli_explain_command,
    tl_cli_count_command, tl_cli_detach_command, tl_cli_bench_command;

// Reads the words behind the command's name. 0 or TL_E_USAGE.
int tl_cli_options_parse(const struct tl_cli_command *command, int argc, char **argv,
                         struct tl_cli_options *out, struct tl_diag *diag);
void tl_cli_options_deinit(struct tl_cli_options *options);
// "5", "0.5", "5s", "500ms", "2m" -> seconds, above 0.
int tl_cli_seconds_parse(const char *text, double *out, struct tl_diag *diag);

// Prints "trapless: ..." and turns a TL_E_* into an exit status.
int tl_cli_fail(struct tl_cli *cli, int error, const struct tl_diag *diag);
// A line on stderr that -q silences.
void tl_cli_note(struct tl_cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Each line of what the session noted.
void tl_cli_notes(struct tl_cli *cli, const struct tl_session *session);
// For tl_session_options.progress, opaque being the struct tl_cli.
void tl_cli_progress(void *opaque, const char *what, size_t done, size_t total);
void tl_cli_progress_end(struct tl_cli *cli);
double tl_cli_now_ms(void);

#endif

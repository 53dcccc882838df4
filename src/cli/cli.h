// The command's own small world: options, streams, commands. Not a library; it uses libtrapless by
// its public headers only.
#ifndef TL_CLI_CLI_H
#define TL_CLI_CLI_H

#include <stdio.h>

#include "cli/output.h"
#include "show/show.h"
#include "trapless/trapless.h"

// Exit statuses, a contract.
enum { TL_EXIT_DONE = 0, TL_EXIT_FAILED = 1, TL_EXIT_USAGE = 2, TL_EXIT_NOMATCH = 3 };

#define TL_CLI_WORDS_MAX 65536
#define TL_CLI_PROBES_MAX 1000000 // lines of --probes that name one
#define TL_CLI_NOTES_SIZE 4096

#define TL_ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct tl_cli_options {
    const char *command; // "count"
    pid_t pid;           // 0: none
    char *const *argv;   // behind "--", NULL: none
    const char *debug_dir, *output, *probes_file;
    bool json, quiet, verbose, all_insns, help, allow_traps, quick;
    bool follow, no_follow; // as given; see tl_cli_follow
    enum tl_method method;
    enum tl_return_way return_way;
    uint32_t ring_events;          // 0: the library's choice
    double duration_s, interval_s; // 0: none
    const char **words;            // what is no option, then the lines of probes_file; owned
    size_t word_count;
    char *probes_text; // what the last of words point into; owned
};

// What one run prints to.
struct tl_cli {
    struct tl_cli_options options;
    struct tl_show show;
    struct tl_output output;
    FILE *out;           // goes to output
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
    tl_cli_count_command, tl_cli_trace_command, tl_cli_latency_command, tl_cli_detach_command,
    tl_cli_bench_command;

// Reads the words behind the command's name. 0 or TL_E_USAGE.
int tl_cli_options_parse(const struct tl_cli_command *command, int argc, char **argv,
                         struct tl_cli_options *out, struct tl_diag *diag);
void tl_cli_options_deinit(struct tl_cli_options *options);
// "5", "0.5", "5s", "500ms", "2m" -> seconds, above 0.
int tl_cli_seconds_parse(const char *text, double *out, struct tl_diag *diag);
// Adds the lines of options->probes_file ("-": standard input), if there is one, to words: one
// probe a line, # begins a comment. TL_E_SYSTEM, TL_E_LIMIT, TL_E_USAGE (no probe in it),
// TL_E_NOMEM.
int tl_cli_probes_read(struct tl_cli_options *options, struct tl_diag *diag);
// A started command is followed, a process is not, unless it was said.
bool tl_cli_follow(const struct tl_cli_options *options);

// Writes the sentence and has the value of error, as `return tl_cli_error(diag, TL_E_USAGE,
// "...")`.
int tl_cli_error(struct tl_diag *diag, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Prints "trapless: ..." and turns a TL_E_* into an exit status.
int tl_cli_fail(struct tl_cli *cli, int error, const struct tl_diag *diag);
// A line on stderr that -q silences.
void tl_cli_note(struct tl_cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Each line of notes, as tl_session_notes gives them.
void tl_cli_notes(struct tl_cli *cli, const char *notes);
// For tl_session_options.progress, opaque being the struct tl_cli.
void tl_cli_progress(void *opaque, const char *what, size_t done, size_t total);
void tl_cli_progress_end(struct tl_cli *cli);
double tl_cli_now_ms(void);

// Adds all words as probes and notes those that matched nothing. TL_E_NOMATCH: none matched.
int tl_cli_probes_add(struct tl_cli *cli, struct tl_session *session, size_t first_word,
                      struct tl_diag *diag);

#endif

// The trapless command: finds the sub-command, opens the output, reports how it ended.
//
// It does no probing itself. Invariant: a write that failed anywhere is in the exit status.
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

#define PROGRESS_PERIOD_MS 100 // also the time before the first: short work shows none

static const struct tl_cli_command *const commands[] = {
    &tl_cli_list_command,    &tl_cli_explain_command, &tl_cli_count_command, &tl_cli_trace_command,
    &tl_cli_latency_command, &tl_cli_detach_command,  &tl_cli_bench_command,
};

static const char help_text[] =
    "trapless: probes on live, unmodified Linux programs, without traps\n"
    "\n"
    "usage: trapless list    [-p PID | FILE] [PATTERN]\n"
    "       trapless explain [-p PID | FILE] PATTERN... [--json]\n"
    "       trapless count   TARGET [-d SEC] [-i SEC] PROBE... [--json]\n"
    "       trapless trace   TARGET [-d SEC] PROBE... [--json]\n"
    "       trapless latency TARGET [-d SEC] [-i SEC] FUNCTION... [--json]\n"
    "       trapless detach  -p PID\n"
    "       trapless bench   [--json] [CASE...]\n"
    "\n"
    "TARGET  -p PID, or last, -- COMMAND ARG...\n"
    "PROBE   FUNCTION | FILE:FUNCTION | uprobe:FILE:FUNCTION[+OFFSET] | uprobe:FILE:0xADDRESS |\n"
    "        uretprobe:FILE:FUNCTION\n"
    "        FILE is a path, a soname (libc, libc.so.6) or *; FUNCTION may hold * and ?\n"
    "\n"
    "Each command has --help. --version prints the version.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing matched or could be placed.\n";

double tl_cli_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void tl_cli_progress_end(struct tl_cli *cli)
{
    if (cli->progress_shown)
        (void)fputs("\r\033[K", stderr);
    cli->progress_shown = false;
}

void tl_cli_progress(void *opaque, const char *what, size_t done, size_t total)
{
    struct tl_cli *cli = opaque;
    double now = tl_cli_now_ms();
    if (cli->options.quiet || now - cli->progress_ms < PROGRESS_PERIOD_MS || !isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[K%s %zu of %zu", what, done, total);
    (void)fflush(stderr);
    cli->progress_shown = true;
    cli->progress_ms = now;
}

void tl_cli_note(struct tl_cli *cli, const char *format, ...)
{
    char text[TL_DIAG_SIZE * 2], harmless[TL_DIAG_SIZE * 4];
    if (cli->options.quiet)
        return;
    tl_cli_progress_end(cli);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tl_show_escape(text, harmless, sizeof harmless);
    fprintf(stderr, "trapless: %s\n", harmless);
}

int tl_cli_error(struct tl_diag *diag, int error, const char *format, ...)
{
    if (!diag)
        return error;
    struct tl_diag written; // the words may quote what stands in diag
    va_list args;
    va_start(args, format);
    (void)vsnprintf(written.text, sizeof written.text, format, args);
    va_end(args);
    *diag = written;
    return error;
}

void tl_cli_notes(struct tl_cli *cli, const char *notes)
{
    while (notes && *notes) {
        size_t length = strcspn(notes, "\n");
        if (length)
            tl_cli_note(cli, "%.*s", (int)length, notes);
        notes += length + (notes[length] == '\n');
    }
}

int tl_cli_fail(struct tl_cli *cli, int error, const struct tl_diag *diag)
{
    char harmless[TL_DIAG_SIZE * 4];
    tl_cli_progress_end(cli);
    tl_show_escape(diag->text[0] ? diag->text : "failed", harmless, sizeof harmless);
    fprintf(stderr, "trapless: %s\n", harmless);
    if (error == TL_E_USAGE)
        return TL_EXIT_USAGE;
    return error == TL_E_NOMATCH ? TL_EXIT_NOMATCH : TL_EXIT_FAILED;
}

// A closed pipe must not kill a run that holds a target: the write fails with EPIPE instead. A
// handler, not SIG_IGN, since ignoring is inherited by a command that we start.
static void pipe_closed(int signal)
{
    (void)signal;
}

static int usage_fail(const char *command, const char *text)
{
    fprintf(stderr, "trapless%s%s: %s (see trapless %s%s--help)\n", command ? " " : "",
            command ? command : "", text, command ? command : "", command ? " " : "");
    return TL_EXIT_USAGE;
}

// What is said on standard output without a run.
static int print_end(void)
{
    bool failed = ferror(stdout);
    errno = 0;
    failed |= fflush(stdout) != 0;
    if (failed && errno != EPIPE)
        fprintf(stderr, "trapless: writing the output: %s\n", strerror(errno ? errno : EIO));
    return failed ? TL_EXIT_FAILED : TL_EXIT_DONE;
}

static int output_end(struct tl_cli *cli, int status)
{
    bool failed = ferror(cli->out) || cli->show.failed;
    failed |= fclose(cli->out) != 0;
    int error = tl_output_close(&cli->output);
    if (!failed && !error)
        return status;
    // Whoever closed the pipe knows; everything else is said.
    if (error != EPIPE)
        fprintf(stderr, "trapless: writing the output: %s\n",
                error ? strerror(error) : "some lines were lost");
    return status ? status : TL_EXIT_FAILED;
}

static int output_run(struct tl_cli *cli, const struct tl_cli_command *command)
{
    struct tl_diag diag = {{0}};
    int error = tl_cli_probes_read(&cli->options, &diag);
    if (error == TL_E_USAGE)
        return usage_fail(command->name, diag.text);
    if (error)
        return tl_cli_fail(cli, error, &diag);
    cli->out = tl_output_open(&cli->output, cli->options.output);
    if (!cli->out) {
        fprintf(stderr, "trapless: %s: %s\n",
                cli->options.output ? cli->options.output : "standard output", strerror(errno));
        return TL_EXIT_FAILED;
    }
    tl_show_init(&cli->show, cli->out, cli->options.json, cli->options.verbose);
    tl_show_fit(&cli->show, cli->output.fd);
    int status = command->run(cli);
    tl_cli_progress_end(cli);
    return output_end(cli, status);
}

// Who asks for a process must have the right to it, not the file of this program: with that
// everybody could look into and change everybody's.
static bool rights_lent(void)
{
    if (!getauxval(AT_SECURE))
        return false;
    (void)fputs("trapless: its file lends its rights to whoever runs it (setuid, setgid or "
                "capabilities): take them away, and run it as the target's user or as root\n",
                stderr);
    return true;
}

static int command_run(const struct tl_cli_command *command, int argc, char **argv)
{
    struct tl_cli cli = {.progress_ms = tl_cli_now_ms()};
    struct tl_diag diag = {{0}};
    if (rights_lent())
        return TL_EXIT_FAILED;
    int error = tl_cli_options_parse(command, argc, argv, &cli.options, &diag);
    if (error)
        return usage_fail(command->name, diag.text);
    int status;
    if (cli.options.help) {
        printf("usage: trapless %s\n\n%s", command->usage, command->help);
        status = print_end();
    } else {
        status = output_run(&cli, command);
    }
    tl_cli_options_deinit(&cli.options);
    return status;
}

static int version_print(void)
{
    printf("trapless %s\n", tl_version());
    return print_end();
}

int main(int argc, char **argv)
{
    const struct sigaction on_pipe = {.sa_handler = pipe_closed, .sa_flags = SA_RESTART};
    (void)sigaction(SIGPIPE, &on_pipe, NULL);
    if (argc < 2)
        return usage_fail(NULL, "no command is given");
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        (void)fputs(help_text, stdout);
        return print_end();
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return version_print();
    for (size_t i = 0; i < TL_ARRAY_COUNT(commands); i++) {
        if (strcmp(word, commands[i]->name) != 0)
            continue;
        for (int k = 2; k < argc && strcmp(argv[k], "--") != 0; k++) {
            if (strcmp(argv[k], "--version") == 0)
                return version_print();
        }
        return command_run(commands[i], argc - 1, argv + 1);
    }
    return usage_fail(NULL, word[0] == '-' ? "an option comes behind the command"
                                           : "there is no such command");
}

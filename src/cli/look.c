// trapless list and trapless explain: both only look. No lock, no ptrace; a file needs no process.
//
// Invariant: what list prints is what count would match, since the library asks the
// same stage for both.
#include "cli/cli.h"

// ---- list
// ------------------------------------------------------------------------------------------

static int function_show(void *opaque, const struct tl_function *function)
{
    struct tl_cli *cli = opaque;
    tl_show_function(&cli->show, function);
    return ferror(cli->out) ? -1 : 0; // nobody reads on
}

static int list_run(struct tl_cli *cli)
{
    const struct tl_cli_options *options = &cli->options;
    const struct tl_session_options session_options = {.size = sizeof session_options,
                                                       .pid = options->pid,
                                                       .file =
                                                           options->pid ? NULL : options->words[0],
                                                       .debug_dir = options->debug_dir,
                                                       .read_only = true};
    struct tl_diag diag = {{0}};
    char notes[TL_CLI_NOTES_SIZE] = "";
    size_t pattern_at = options->pid ? 0 : 1;
    const char *pattern = options->word_count > pattern_at ? options->words[pattern_at] : NULL;
    int error = tl_functions_list(&session_options, pattern, function_show, cli, notes,
                                  sizeof notes, &diag);
    int status = TL_EXIT_DONE;
    if (error && !ferror(cli->out))
        status = tl_cli_fail(cli, error, &diag);
    tl_cli_notes(cli, notes);
    return status;
}

static int list_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    size_t words_max = options->pid ? 1 : 2;
    if (!options->pid && !options->word_count)
        return tl_cli_error(diag, TL_E_USAGE, "nothing to list: give -p PID or a FILE");
    if (options->word_count > words_max)
        return tl_cli_error(diag, TL_E_USAGE, "'%s' is one word too many",
                            options->words[words_max]);
    return 0;
}

const struct tl_cli_command tl_cli_list_command = {
    .name = "list",
    .allowed = "pojqvD",
    .usage = "list [-p PID | FILE] [PATTERN]",
    .help = "Lists functions: address, size in bytes, file, names (demangled ones in brackets).\n"
            "Of a process: all its files, or those that PATTERN names (FUNCTION is in the main\n"
            "program, FILE:FUNCTION elsewhere, *:FUNCTION everywhere; * and ? match).\n"
            "\n"
            "  -p, --pid PID         a running process, else a FILE\n"
            "      --debug-dir DIR   look for separate debug files here first\n"
            "      --json            JSON lines\n"
            "  -o, --output FILE     write to FILE\n"
            "  -q, -v                quiet, verbose\n",
    .check = list_check,
    .run = list_run,
};

// ---- explain
// ---------------------------------------------------------------------------------------

static void sites_print(struct tl_cli *cli, struct tl_session *session)
{
    size_t reasons[TL_REFUSAL_COUNT] = {0};
    struct tl_session_totals totals;
    size_t count = tl_session_site_count(session);
    for (size_t i = 0; i < count && !ferror(cli->out); i++) {
        const struct tl_site_report *report = tl_session_site(session, i);
        tl_show_site(&cli->show, report);
        if (report->rung == TL_RUNG_REFUSED && (unsigned)report->refusal < TL_REFUSAL_COUNT)
            reasons[report->refusal]++;
    }
    tl_session_totals(session, &totals);
    tl_show_summary(&cli->show, &totals, reasons, false);
}

static int explain_run(struct tl_cli *cli)
{
    const struct tl_cli_options *options = &cli->options;
    struct tl_session *session = NULL;
    struct tl_diag diag = {{0}};
    const struct tl_session_options session_options = {.size = sizeof session_options,
                                                       .pid = options->pid,
                                                       .file =
                                                           options->pid ? NULL : options->words[0],
                                                       .method = options->method,
                                                       .debug_dir = options->debug_dir,
                                                       .progress = tl_cli_progress,
                                                       .opaque = cli,
                                                       .read_only = true,
                                                       .all_insns = options->all_insns,
                                                       .return_way = options->return_way,
                                                       .allow_traps = options->allow_traps};
    int error = tl_session_create(&session_options, &session, &diag);
    if (!error)
        error = tl_cli_probes_add(cli, session, options->pid ? 0 : 1, &diag);
    if (!error)
        error = tl_session_explain(session, &diag);
    tl_cli_progress_end(cli);
    if (!error) {
        sites_print(cli, session);
        tl_cli_notes(cli, tl_session_notes(session));
    }
    int status = error ? tl_cli_fail(cli, error, &diag) : TL_EXIT_DONE;
    tl_session_destroy(session);
    return status;
}

static int explain_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    if (!options->pid && !options->word_count)
        return tl_cli_error(diag, TL_E_USAGE, "nothing to explain: give -p PID or a FILE");
    if (options->word_count < (options->pid ? 1u : 2u))
        return tl_cli_error(diag, TL_E_USAGE, "no pattern is given");
    return 0;
}

const struct tl_cli_command tl_cli_explain_command = {
    .name = "explain",
    .allowed = "pojqvDmaRT",
    .usage = "explain [-p PID | FILE] PATTERN... [--json]",
    .help =
        "Says for every site that PATTERN matches which rung it would get, why, and what would be\n"
        "overwritten; for a function's return (uretprobe:FILE:FUNCTION) also whether its exits "
        "are\n"
        "probed, and how many, or its return address is replaced. Changes nothing. Each site is\n"
        "planned as if it were the only one.\n"
        "\n"
        "  -p, --pid PID         a running process, else a FILE\n"
        "  -a, --all-instructions  every instruction of the functions, not only their entry\n"
        "      --return WAY      how returns are probed: exit, trampoline; else what fits\n"
        "      --method METHOD   auto, jump, kernel, simulate, slot, step\n"
        "      --allow-traps     auto may end in simulate, slot or step\n"
        "      --debug-dir DIR   look for separate debug files here first\n"
        "      --json            JSON lines\n"
        "  -o, --output FILE     write to FILE\n"
        "  -q, -v                quiet, verbose\n",
    .check = explain_check,
    .run = explain_run,
};

// trapless detach: cleans up behind a trapless that was killed.
//
// All is done by the library. Invariant: a process that is as its files say stays untouched.
#include "cli/cli.h"

static int detach_run(struct tl_cli *cli)
{
    struct tl_diag diag = {{0}};
    int result = tl_detach_leftover(cli->options.pid, &diag);
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
        return tl_cli_error(diag, TL_E_USAGE, "no target: give -p PID");
    if (options->word_count)
        return tl_cli_error(diag, TL_E_USAGE, "'%s' is one word too many", options->words[0]);
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

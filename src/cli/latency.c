// trapless latency: how long each function takes, from its entry to its return.
//
// The run itself is run.c's; the times are added up in the target. Invariant: what is printed at an
// interval holds everything since the start, so the last print is the whole run.
#include "cli/run.h"

// Functions that were not called are named with -v, or when there is only one.
static int all_show(struct tl_run *run, double interval_s, struct tl_diag *diag)
{
    size_t idle = 0;
    char number[32];
    for (size_t i = 0; i < run->count; i++) {
        struct tl_show_count *count = &run->counts[i];
        struct tl_latency latency;
        if (count->rung == TL_RUNG_REFUSED)
            continue;
        int error = tl_session_latency(run->session, i, &latency, diag);
        if (error)
            return error;
        bool called = latency.count || latency.unpaired || latency.lost;
        if (called || run->count == 1 || run->cli->options.verbose || run->cli->options.json)
            tl_show_latency(&run->cli->show, count, &latency, interval_s);
        else
            idle++;
        count->before = latency.count;
    }
    if (idle)
        fprintf(run->cli->out, "%s functions did not return meanwhile (-v names them)\n",
                tl_show_number(idle, number));
    return 0;
}

static int end_show(struct tl_run *run, double elapsed_s, struct tl_diag *diag)
{
    (void)elapsed_s;
    return all_show(run, 0, diag);
}

static int latency_run(struct tl_cli *cli)
{
    static const struct tl_run_kind kind = {
        .mode = TL_MODE_LATENCY, .interval = all_show, .end = end_show};
    return tl_run(cli, &kind);
}

const struct tl_cli_command tl_cli_latency_command = {
    .name = "latency",
    .allowed = "-pdiomqvjDfFRTP",
    .usage = "latency TARGET [-d SEC] [-i SEC] [options] FUNCTION...",
    .help =
        "Times each call of a function from its entry to its return, and prints a histogram and\n"
        "count, minimum, mean, percentiles (at most 1/32 off) and maximum. Ends as count does.\n"
        "\n"
        "TARGET is -p PID or, last, -- COMMAND ARG...\n"
        "FUNCTION  FUNCTION in the main program, or FILE:FUNCTION; FILE is a path, a soname or *.\n"
        "          * and ? match.\n"
        "\n"
        "  -p, --pid PID         probe this running process\n"
        "  -d, --duration SEC    end after SEC (5, 0.5, 5s, 500ms)\n"
        "  -i, --interval SEC    print what there is so far every SEC\n"
        "      --probes FILE     more functions, one a line, # begins a comment; - is standard "
        "input\n"
        "  -f, --follow          forked children, and programs that they and the target execute;\n"
        "                        the default for -- COMMAND, --no-follow for -p\n"
        "      --return WAY      how returns are probed: exit, trampoline; else what fits\n"
        "      --method METHOD   auto (jump, else the kernel's uprobe), jump, kernel, simulate, "
        "slot,\n"
        "                        step\n"
        "      --allow-traps     auto may end in simulate, slot or step\n"
        "      --debug-dir DIR   look for separate debug files here first\n"
        "      --json            JSON lines\n"
        "  -o, --output FILE     write to FILE\n"
        "  -q, --quiet           no notes, no progress\n"
        "  -v, --verbose         a line for each placed probe, and functions without a call\n",
    .check = tl_run_check,
    .run = latency_run,
};

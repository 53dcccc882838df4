// trapless count: totals of hits, now and then and at the end.
//
// The run itself is run.c's. Invariant: the numbers of intervals add up to the last total printed.
#include "cli/run.h"

static int interval_show(struct tl_run *run, double elapsed_s, struct tl_diag *diag)
{
    (void)diag;
    tl_show_counts(&run->cli->show, run->counts, run->count, elapsed_s, true);
    for (size_t i = 0; i < run->count; i++)
        run->counts[i].before = run->counts[i].hits;
    return 0;
}

static int end_show(struct tl_run *run, double elapsed_s, struct tl_diag *diag)
{
    (void)diag;
    tl_show_counts(&run->cli->show, run->counts, run->count, elapsed_s, false);
    return 0;
}

static int count_run(struct tl_cli *cli)
{
    static const struct tl_run_kind kind = {
        .mode = TL_MODE_COUNT, .interval = interval_show, .end = end_show};
    return tl_run(cli, &kind);
}

const struct tl_cli_command tl_cli_count_command = {
    .name = "count",
    .allowed = "-pdiomqvjDfFRTP",
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
        "        uretprobe:FILE:FUNCTION  its return\n"
        "        FUNCTION may hold * and ?.\n"
        "\n"
        "  -p, --pid PID         probe this running process\n"
        "  -d, --duration SEC    end after SEC (5, 0.5, 5s, 500ms)\n"
        "  -i, --interval SEC    print the counts every SEC\n"
        "      --probes FILE     more probes, one a line, # begins a comment; - is standard input\n"
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
        "  -v, --verbose         a line for each placed probe too\n",
    .check = tl_run_check,
    .run = count_run,
};

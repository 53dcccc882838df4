// trapless trace: a line for each hit, as it comes, ordered by time.
//
// The run itself is run.c's. Invariant: hits = lines + dropped for each probe, and the end says
// what was dropped.
#include "cli/run.h"

struct take {
    struct tl_run *run;
    struct tl_diag *diag;
};

static int event_take(void *opaque, const struct tl_event *event)
{
    struct take *take = opaque;
    struct tl_run *run = take->run;
    uint64_t start_ns = (uint64_t)(run->start_ms * 1e6);
    if (!run->events_start_ns) // the first may have come before all was placed
        run->events_start_ns = event->ts_ns < start_ns ? event->ts_ns : start_ns;
    int error = event->site < run->count ? 0 : tl_run_sites(run, take->diag);
    if (error)
        return error;
    if (event->site < run->count)
        tl_show_event(&run->cli->show, &run->labels[event->site], event, run->events_start_ns);
    return 0;
}

static int events_drain(struct tl_run *run, struct tl_diag *diag)
{
    struct take take = {.run = run, .diag = diag};
    return tl_session_events(run->session, event_take, &take, diag);
}

static void head_show(struct tl_run *run)
{
    tl_show_event_head(&run->cli->show);
}

static int end_show(struct tl_run *run, double elapsed_s, struct tl_diag *diag)
{
    (void)diag;
    if (run->cli->options.json)
        tl_show_counts(&run->cli->show, run->counts, run->count, elapsed_s, false);
    else
        tl_show_dropped(&run->cli->show, run->counts, run->count);
    return 0;
}

static int trace_run(struct tl_cli *cli)
{
    static const struct tl_run_kind kind = {
        .mode = TL_MODE_EVENTS, .begin = head_show, .drain = events_drain, .end = end_show};
    return tl_run(cli, &kind);
}

const struct tl_cli_command tl_cli_trace_command = {
    .name = "trace",
    .allowed = "-pdomqvjDfFRTPB",
    .usage = "trace TARGET [-d SEC] [options] PROBE...",
    .help =
        "Prints a line for each hit: seconds since the start, process, thread, probe and the six\n"
        "integer or pointer arguments as they are in registers, or = and the value returned.\n"
        "Ends as count does. What finds no room is dropped, counted, and named at the end.\n"
        "\n"
        "TARGET is -p PID or, last, -- COMMAND ARG...\n"
        "PROBE   FUNCTION | FILE:FUNCTION | uprobe:FILE:FUNCTION[+OFFSET] | uprobe:FILE:0xADDRESS "
        "|\n"
        "        uretprobe:FILE:FUNCTION, as in trapless count --help\n"
        "\n"
        "  -p, --pid PID         probe this running process\n"
        "  -d, --duration SEC    end after SEC (5, 0.5, 5s, 500ms)\n"
        "      --probes FILE     more probes, one a line, # begins a comment; - is standard input\n"
        "      --ring-events N   room for events of one thread (default 4096): more, where events "
        "are\n"
        "                        dropped\n"
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
    .run = trace_run,
};

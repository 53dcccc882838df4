// trapless latency: how long each function takes, from its entry to its return.
//
// The run itself is run.c's; the times are added up in the target. Invariant: what is printed at an
// interval holds everything since the start, so the last print is the whole run.
#include <stdlib.h>

#include "cli/run.h"

struct order {
    size_t site;
    double total_ns;
};

static int order_compare(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    if (x->total_ns != y->total_ns)
        return x->total_ns < y->total_ns ? 1 : -1;
    return (x->site > y->site) - (x->site < y->site);
}

// All that were placed; for people those first that took the most time. How many, or TL_E_*.
static int order_make(struct tl_run *run, struct order *order, struct tl_diag *diag)
{
    bool sorted = !run->cli->options.json;
    size_t placed = 0;
    for (size_t i = 0; i < run->count; i++) {
        struct tl_latency latency = {0};
        if (run->counts[i].rung == TL_RUNG_REFUSED)
            continue;
        int error = sorted ? tl_session_latency(run->session, i, &latency, diag) : 0;
        if (error)
            return error;
        double total_ns = latency.count ? (double)latency.count * latency.mean_ns : 0;
        order[placed++] = (struct order){.site = i, .total_ns = total_ns};
    }
    if (sorted)
        qsort(order, placed, sizeof *order, order_compare);
    return (int)placed;
}

// Functions that were not called are named with -v, or when there is only one.
static int order_show(struct tl_run *run, const struct order *order, size_t placed,
                      double interval_s, struct tl_diag *diag)
{
    const struct tl_cli_options *options = &run->cli->options;
    size_t idle = 0;
    char number[32];
    for (size_t i = 0; i < placed; i++) {
        struct tl_show_count *count = &run->counts[order[i].site];
        struct tl_latency latency;
        int error = tl_session_latency(run->session, order[i].site, &latency, diag);
        if (error)
            return error;
        bool called = latency.count || latency.unpaired || latency.lost;
        if (called || placed == 1 || options->verbose || options->json)
            tl_show_latency(&run->cli->show, count, &latency, interval_s);
        else
            idle++;
        count->before = latency.count;
    }
    if (idle)
        fprintf(run->cli->out, "%s %s did not return meanwhile (-v names them)\n",
                tl_show_number(idle, number), idle == 1 ? "function" : "functions");
    return 0;
}

static int all_show(struct tl_run *run, double interval_s, struct tl_diag *diag)
{
    struct order *order = calloc(run->count + 1, sizeof *order);
    if (!order)
        return tl_cli_error(diag, TL_E_NOMEM, "out of memory");
    int placed = order_make(run, order, diag);
    int error = placed < 0 ? placed : order_show(run, order, (size_t)placed, interval_s, diag);
    free(order);
    return error;
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
        "count, minimum, mean, percentiles (at most 1/32 off) and maximum; those first that took "
        "the\n"
        "most time. Ends as count does.\n"
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

// trapless bench: what a hit costs, by our jump and by the kernel's probes, side by side in one
// run.
//
// A victim process calls a site some thousand times and says how long it took: bare, with a jump,
// with the kernel's probe, if wanted with traps, in turn, over several rounds; medians of the
// differences within a round are reported. Both sides are sessions of the library. Invariant: a
// figure is shown only if every call of its runs was counted, every event handed over and every
// time taken: what was dropped is no cheap hit.
#include "cli/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define ROUNDS_MAX 9
#define ROUNDS_FORK 5
#define ATTACH_TRIES 20
#define PROBE_SIZE 4608
#define FORK_PROBES 1000 // functions tl_many_* of the victim

// Calls of one run: a few ns each, half a microsecond each, or what a ring of the default size
// holds.
#define CALLS_FAST 4000000u
#define CALLS_TIMED 1000000u
#define CALLS_KERNEL 20000u
#define CALLS_RING 4000u
#define RING_EVENTS 4096u
#define FORKS 200u
// --quick: where calls are slow, or counted and not timed.
#define ROUNDS_QUICK 3u
#define QUICK_FAST 400000u
#define QUICK_KERNEL 1000u
#define QUICK_RUNS 2u
#define QUICK_FORKS 10u
// Rings are emptied between runs; the first one also touches their memory.
#define RING_RUNS 6u
#define RING_WAIT_MS 5000

// ---- what is measured

// One way to probe a case.
struct way {
    enum tl_record_mode mode;
    bool entry, ret; // what is probed; a latency is one probe, of the function
    enum tl_return_way return_way;
    bool follow;
    uint32_t calls, runs;
};

enum { GROUP_COUNT, GROUP_EVENT, GROUP_RETURN, GROUP_LATENCY, GROUP_FORK, GROUPS };
static const char *const group_titles[GROUPS] = {
    [GROUP_COUNT] = "entry count, ns added to a call (median); kernel: uprobe",
    [GROUP_EVENT] = ("entry event with time, thread and 6 arguments, ns added to a call; kernel: "
                     "uprobe, BPF ring;\n4,000 calls at a time into a ring of 4,096, which is "
                     "emptied between; none was lost"),
    [GROUP_RETURN] = "return count, ns added to a call; kernel: uretprobe",
    [GROUP_LATENCY] =
        "entry to return latency, ns added to a call; kernel: uprobe and uretprobe that only count",
    [GROUP_FORK] =
        "1,000 probes placed, ns added to a fork and its child's end; kernel: 1,000 uprobes",
};

struct item {
    const char *word;        // that the command line names
    const char *site, *name; // the victim's case, what is shown
    int group;
    const char *kind, *action;
    unsigned rounds;
    uint32_t bare_calls;
    struct way jump, kernel;   // calls 0: not measured
    unsigned hits_a_call_jump; // that are counted for each call
    unsigned hits_a_call_kernel;
};

// The sites of bench/sites.S and bench/victim.c; the names are a contract.
#define ENTRY(site_)                                                                               \
    {                                                                                              \
        .word = site_, .site = site_, .name = site_, .group = GROUP_COUNT, .kind = "entry",        \
        .action = "count", .rounds = ROUNDS_MAX, .bare_calls = CALLS_FAST,                         \
        .jump = {.entry = true, .calls = CALLS_FAST, .runs = 1},                                   \
        .kernel = {.entry = true, .calls = CALLS_KERNEL, .runs = 1}, .hits_a_call_jump = 1,        \
        .hits_a_call_kernel = 1                                                                    \
    }
#define RING_WAY                                                                                   \
    {                                                                                              \
        .mode = TL_MODE_EVENTS, .entry = true, .calls = CALLS_RING, .runs = RING_RUNS              \
    }
#define EVENT(site_)                                                                               \
    {                                                                                              \
        .word = "event", .site = site_, .name = site_, .group = GROUP_EVENT, .kind = "entry",      \
        .action = "event", .rounds = ROUNDS_MAX, .bare_calls = CALLS_RING, .jump = RING_WAY,       \
        .kernel = RING_WAY, .hits_a_call_jump = 1, .hits_a_call_kernel = 1                         \
    }
#define RETURN(site_, name_, kind_, way_, kernel_)                                                 \
    {                                                                                              \
        .word = "return", .site = site_, .name = name_, .group = GROUP_RETURN, .kind = kind_,      \
        .action = "return", .rounds = ROUNDS_MAX, .bare_calls = CALLS_TIMED,                       \
        .jump = {.ret = true, .return_way = way_, .calls = CALLS_TIMED, .runs = 1},                \
        .kernel = {.ret = true, .calls = kernel_, .runs = 1}, .hits_a_call_jump = 1,               \
        .hits_a_call_kernel = 1                                                                    \
    }
#define LATENCY(site_, name_, kind_, way_, kernel_)                                                \
    {                                                                                              \
        .word = "latency", .site = site_, .name = name_, .group = GROUP_LATENCY, .kind = kind_,    \
        .action = "latency", .rounds = ROUNDS_MAX, .bare_calls = CALLS_TIMED,                      \
        .jump = {.mode = TL_MODE_LATENCY,                                                          \
                 .entry = true,                                                                    \
                 .return_way = way_,                                                               \
                 .calls = CALLS_TIMED,                                                             \
                 .runs = 1},                                                                       \
        .kernel = {.entry = true, .ret = true, .calls = kernel_, .runs = 1},                       \
        .hits_a_call_jump = 1, .hits_a_call_kernel = 2                                             \
    }
#define FORK(site_, name_, kind_, follow_, hits_, kernel_)                                         \
    {                                                                                              \
        .word = "fork", .site = site_, .name = name_, .group = GROUP_FORK, .kind = kind_,          \
        .action = "fork", .rounds = ROUNDS_FORK, .bare_calls = FORKS,                              \
        .jump = {.entry = true, .follow = follow_, .calls = FORKS, .runs = 1},                     \
        .kernel = {.entry = true, .calls = kernel_, .runs = 1}, .hits_a_call_jump = hits_,         \
        .hits_a_call_kernel = 0                                                                    \
    }

static const struct item items[] = {
    ENTRY("nop"),
    ENTRY("nop5"),
    ENTRY("push"),
    ENTRY("ret"),
    ENTRY("endbr64"),
    ENTRY("bti-entry"),
    ENTRY("cnop"),
    ENTRY("cret"),
    ENTRY("func"),
    ENTRY("loop"),
    ENTRY("short"),
    EVENT("push"),
    EVENT("func"),
    RETURN("push", "push", "exit", TL_RETURN_EXIT, CALLS_KERNEL),
    RETURN("func", "func", "exit", TL_RETURN_EXIT, CALLS_KERNEL),
    RETURN("func", "func, trampoline", "trampoline", TL_RETURN_TRAMPOLINE, 0),
    LATENCY("push", "push", "exit", TL_RETURN_EXIT, CALLS_KERNEL),
    LATENCY("func", "func", "exit", TL_RETURN_EXIT, CALLS_KERNEL),
    LATENCY("func", "func, trampoline", "trampoline", TL_RETURN_TRAMPOLINE, 0),
    FORK("fork", "fork", "fork", false, 0, FORKS),
    FORK("fork", "fork, followed", "follow", true, 0, 0),
    FORK("forkcall", "fork, followed, hit", "follow", true, 1, 0),
};
#define ITEM_COUNT TL_ARRAY_COUNT(items)

// The methods, in the order of being measured and shown. The traps only if wanted.
enum { BY_JUMP, BY_KERNEL, BY_SIMULATE, BY_SLOT, BY_STEP, BY_COUNT };
static const struct {
    enum tl_method method;
    enum tl_rung rung;
} methods[BY_COUNT] = {
    [BY_JUMP] = {TL_METHOD_JUMP, TL_RUNG_JUMP},
    [BY_KERNEL] = {TL_METHOD_KERNEL, TL_RUNG_KERNEL},
    [BY_SIMULATE] = {TL_METHOD_SIMULATE, TL_RUNG_SIMULATE},
    [BY_SLOT] = {TL_METHOD_SLOT, TL_RUNG_SLOT},
    [BY_STEP] = {TL_METHOD_STEP, TL_RUNG_STEP},
};

struct result {
    bool measured[BY_COUNT];
    double bare, added[BY_COUNT];
};

struct bench {
    struct tl_cli *cli;
    bool quick;
    unsigned methods; // how many of them
    struct tl_victim victim;
    double clock_ns; // of one read; 0: not measured
    struct result result[ITEM_COUNT];
    bool failed; // something of ours that should have been measured was not
};

// ---- one measurement

static int probe_add(struct tl_session *session, const char *probe, size_t wanted,
                     struct tl_diag *diag)
{
    int matched = tl_session_add(session, probe, diag);
    if (matched >= 0 && (size_t)matched != wanted)
        return tl_cli_error(diag, TL_E_NOMATCH, "%s matched %d functions", probe, matched);
    return matched < 0 ? matched : 0;
}

static int probes_add(const struct bench *bench, const struct item *item, const struct way *way,
                      struct tl_session *session, struct tl_diag *diag)
{
    char probe[PROBE_SIZE];
    if (item->group == GROUP_FORK)
        return probe_add(session, "tl_many_*", FORK_PROBES, diag);
    int error = 0;
    char function[64];
    (void)snprintf(function, sizeof function, "tl_site_%s", item->site);
    for (char *at = function; (at = strchr(at, '-'));)
        *at = '_';
    if (way->entry)
        error = probe_add(session, function, 1, diag);
    if (!error && way->ret) {
        (void)snprintf(probe, sizeof probe, "uretprobe:%s:%s", bench->victim.path, function);
        error = probe_add(session, probe, 1, diag);
    }
    return error;
}

// All of them or none: a figure for fewer probes would be no figure.
static int probes_place(struct tl_session *session, struct tl_diag *diag)
{
    int error = tl_session_attach(session, diag);
    if (error && error != TL_E_NOMATCH)
        return error;
    for (size_t i = 0; i < tl_session_site_count(session); i++) {
        const struct tl_site_report *report = tl_session_site(session, i);
        if (report->rung == TL_RUNG_REFUSED)
            return tl_cli_error(diag, TL_E_NOMATCH, "%s", report->reason);
    }
    return error;
}

static int event_count(void *opaque, const struct tl_event *event)
{
    (void)event;
    ++*(uint64_t *)opaque;
    return 0;
}

// Empties the rings: what was written is in order, and handed over, a little later.
static int events_take(struct tl_session *session, uint64_t *taken, uint64_t wanted,
                       struct tl_diag *diag)
{
    double end_ms = tl_cli_now_ms() + RING_WAIT_MS;
    for (;;) {
        int count = tl_session_events(session, event_count, taken, diag);
        if (count < 0)
            return count;
        if (*taken >= wanted || tl_cli_now_ms() > end_ms)
            break;
        (void)poll(NULL, 0, 1);
    }
    return 0;
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, double_compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

// With a ring there is a first run that does not count.
static int runs_make(struct bench *bench, const struct item *item, const struct way *way,
                     struct tl_session *session, double *ns, uint64_t *taken, struct tl_diag *diag)
{
    double run[RING_RUNS] = {0};
    int error = 0;
    for (uint32_t i = 0; !error && i < way->runs; i++) {
        error = tl_victim_run(&bench->victim, item->site, way->calls, way->follow ? session : NULL,
                              &run[i], diag);
        if (!error && way->mode == TL_MODE_EVENTS)
            error = events_take(session, taken, UINT64_C(1) * way->calls * (i + 1), diag);
    }
    if (!error)
        *ns = way->runs > 1 ? median(run + 1, way->runs - 1) : run[0];
    return error;
}

static int figure_check(struct tl_session *session, const struct item *item, const struct way *way,
                        unsigned hits_a_call, uint64_t taken, struct tl_diag *diag)
{
    struct tl_session_totals totals;
    uint64_t calls = UINT64_C(1) * way->calls * way->runs, hits = calls * hits_a_call;
    tl_session_totals(session, &totals);
    if (way->mode == TL_MODE_LATENCY) {
        struct tl_latency latency;
        int error = tl_session_latency(session, 0, &latency, diag);
        if (error)
            return error;
        if (latency.count != calls || latency.lost)
            return tl_cli_error(diag, TL_E_FORMAT,
                                "case %s: of %" PRIu64 " calls %" PRIu64 " were timed", item->name,
                                calls, latency.count);
        return 0;
    }
    if (totals.hits != hits)
        return tl_cli_error(diag, TL_E_FORMAT, "case %s: %" PRIu64 " hits were counted as %" PRIu64,
                            item->name, hits, totals.hits);
    if (way->mode == TL_MODE_EVENTS && (taken != hits || totals.dropped))
        return tl_cli_error(diag, TL_E_FORMAT, "case %s: of %" PRIu64 " events %" PRIu64 " came",
                            item->name, hits, taken);
    return 0;
}

// The case's way to be probed by a method. calls 0: is not measured.
static struct way way_of(const struct bench *bench, const struct item *item, size_t by)
{
    struct way way = by == BY_KERNEL ? item->kernel : item->jump;
    // Traps: where the kernel's probe does the same.
    if (by != BY_JUMP && by != BY_KERNEL)
        way.calls = item->group <= GROUP_RETURN ? item->kernel.calls : 0;
    if (!bench->quick || !way.calls)
        return way;
    if (way.runs > 1)
        way.runs = QUICK_RUNS;
    else if (item->group == GROUP_FORK)
        way.calls = QUICK_FORKS;
    else
        way.calls = by == BY_JUMP ? QUICK_FAST : QUICK_KERNEL;
    return way;
}

static int way_try(struct bench *bench, const struct item *item, size_t by, double *ns,
                   struct tl_diag *diag)
{
    const struct way way = way_of(bench, item, by);
    struct tl_session *session = NULL;
    const struct tl_session_options options = {.size = sizeof options,
                                               .pid = bench->victim.pid,
                                               .method = methods[by].method,
                                               .mode = way.mode,
                                               .return_way = way.return_way,
                                               .follow = way.follow,
                                               .ring_events = RING_EVENTS};
    uint64_t taken = 0;
    int error = tl_session_create(&options, &session, diag);
    if (error)
        return error;
    error = probes_add(bench, item, &way, session, diag);
    if (!error)
        error = probes_place(session, diag);
    if (!error)
        error = runs_make(bench, item, &way, session, ns, &taken, diag);
    if (!error)
        error = tl_session_detach(session, diag);
    if (!error && way.mode == TL_MODE_EVENTS)
        error = events_take(session, &taken, 0, diag);
    if (!error)
        error = figure_check(session, item, &way,
                             by == BY_KERNEL ? item->hits_a_call_kernel : item->hits_a_call_jump,
                             taken, diag);
    tl_session_destroy(session);
    return error;
}

// A busy machine may not stop the victim in time; another try is no other measurement. *diag:
// empty, set only if the last try failed.
static int way_run(struct bench *bench, const struct item *item, size_t by, double *ns,
                   struct tl_diag *diag)
{
    struct tl_diag why = {{0}};
    int error = TL_E_BUSY;
    for (int i = 0; error == TL_E_BUSY && i < ATTACH_TRIES; i++)
        error = way_try(bench, item, by, ns, &why);
    if (error)
        (void)tl_cli_error(diag, error, "%s", why.text[0] ? why.text : "failed");
    return error;
}

// ---- rounds

struct rounds {
    double bare[ROUNDS_MAX], added[BY_COUNT][ROUNDS_MAX];
    struct tl_diag diag[BY_COUNT]; // not empty: not measured
};

static unsigned rounds_of(const struct bench *bench, const struct item *item)
{
    return bench->quick && item->rounds > ROUNDS_QUICK ? ROUNDS_QUICK : item->rounds;
}

static uint32_t bare_calls_of(const struct bench *bench, const struct item *item)
{
    if (!bench->quick || item->group == GROUP_EVENT)
        return item->bare_calls;
    return item->group == GROUP_FORK ? QUICK_FORKS : QUICK_FAST;
}

// A method that fails once is not asked again; the others go on.
static int rounds_run(struct bench *bench, const struct item *item, struct rounds *rounds,
                      struct tl_diag *diag)
{
    unsigned count = rounds_of(bench, item);
    for (unsigned i = 0; i < count; i++) {
        double with = 0;
        int error = tl_victim_run(&bench->victim, item->site, bare_calls_of(bench, item), NULL,
                                  &rounds->bare[i], diag);
        if (error)
            return error;
        for (size_t by = 0; by < bench->methods; by++) {
            if (!rounds->diag[by].text[0] &&
                way_run(bench, item, by, &with, &rounds->diag[by]) == 0)
                rounds->added[by][i] = with - rounds->bare[i];
        }
        tl_cli_progress(bench->cli, item->name, i + 1, count);
    }
    return 0;
}

static void item_show(struct bench *bench, const struct item *item, const struct result *result,
                      const struct rounds *rounds)
{
    struct tl_show *show = &bench->cli->show;
    struct tl_show_bench line[BY_COUNT];
    tl_cli_progress_end(bench->cli);
    for (size_t by = 0; by < bench->methods; by++) {
        line[by] = (struct tl_show_bench){.name = show->json ? item->site : item->name,
                                          .kind = item->kind,
                                          .action = item->action,
                                          .method = tl_rung_text(methods[by].rung),
                                          .reason = rounds->diag[by].text,
                                          .baseline_ns = result->bare,
                                          .ns = result->measured[by] ? result->added[by] : -1};
        if (by <= BY_KERNEL || way_of(bench, item, by).calls)
            tl_show_bench(show, &line[by]);
    }
    tl_show_bench_row(show, &line[BY_JUMP], &line[BY_KERNEL]);
    for (size_t by = BY_KERNEL + 1; by < bench->methods; by++) {
        if (way_of(bench, item, by).calls)
            tl_show_bench_more(show, &line[by]);
    }
    if (item->kernel.calls && !result->measured[BY_KERNEL])
        tl_cli_note(bench->cli, "%s, kernel: %s", item->name, rounds->diag[BY_KERNEL].text);
    (void)fflush(bench->cli->out);
}

static int item_run(struct bench *bench, size_t index, struct tl_diag *diag)
{
    const struct item *item = &items[index];
    struct result *result = &bench->result[index];
    struct rounds rounds = {.bare = {0}};
    for (size_t by = 0; by < bench->methods; by++) {
        if (!way_of(bench, item, by).calls)
            (void)tl_cli_error(&rounds.diag[by], 0, "%s",
                               by == BY_KERNEL ? "the kernel has nothing like it" : "not measured");
    }
    int error = rounds_run(bench, item, &rounds, diag);
    if (error)
        return error;
    unsigned count = rounds_of(bench, item);
    result->bare = median(rounds.bare, count);
    for (size_t by = 0; by < bench->methods; by++) {
        result->measured[by] = !rounds.diag[by].text[0];
        result->added[by] = median(rounds.added[by], count);
    }
    bench->failed |= !result->measured[BY_JUMP];
    item_show(bench, item, result, &rounds);
    return 0;
}

// One read of the clock, as a hit that keeps a time has to make: a function that reads it beside
// one that returns at once.
static int clock_run(struct bench *bench, struct tl_diag *diag)
{
    double ns[ROUNDS_MAX] = {0};
    uint32_t calls = bench->quick ? QUICK_FAST : CALLS_TIMED;
    for (unsigned i = 0; i < ROUNDS_MAX; i++) {
        double with = 0, without = 0;
        int error = tl_victim_run(&bench->victim, "ret", calls, NULL, &without, diag);
        if (!error)
            error = tl_victim_run(&bench->victim, "clock", calls, NULL, &with, diag);
        if (error)
            return error;
        ns[i] = with - without;
    }
    bench->clock_ns = median(ns, ROUNDS_MAX);
    return 0;
}

// ---- figures

static void figure_show(const struct bench *bench, const char *what, const struct item *item,
                        double value, const char *unit)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s: %s", what, item->name);
    tl_show_figure(&bench->cli->show, name, value, unit);
}

// The kernel's uretprobe on the same site, as it only counts. NULL: not measured.
static const struct result *uretprobe_find(const struct bench *bench, const struct item *item)
{
    for (size_t i = 0; i < ITEM_COUNT; i++) {
        if (items[i].group == GROUP_RETURN && bench->result[i].measured[BY_KERNEL] &&
            strcmp(items[i].site, item->site) == 0)
            return &bench->result[i];
    }
    return NULL;
}

static void item_figures_show(const struct bench *bench, size_t index)
{
    const struct item *item = &items[index];
    const struct result *result = &bench->result[index], *uretprobe = uretprobe_find(bench, item);
    if (!result->measured[BY_JUMP])
        return;
    switch (item->group) {
    case GROUP_EVENT:
        figure_show(bench, "event with 6 arguments, above one clock read", item,
                    result->added[BY_JUMP] - bench->clock_ns, "ns");
        break;
    case GROUP_LATENCY:
        figure_show(bench, "entry to return latency, above two clock reads", item,
                    result->added[BY_JUMP] - 2 * bench->clock_ns, "ns");
        if (uretprobe && result->added[BY_JUMP] > 0)
            figure_show(bench, "entry to return latency, against the kernel's uretprobe", item,
                        uretprobe->added[BY_KERNEL] / result->added[BY_JUMP], "times cheaper");
        break;
    case GROUP_FORK:
        figure_show(bench, "cost with 1,000 probes, above the bare", item,
                    100 * result->added[BY_JUMP] / result->bare, "%");
        break;
    default:
        break;
    }
}

static void figures_show(const struct bench *bench)
{
    if (bench->clock_ns > 0) {
        tl_show_figure_head(&bench->cli->show);
        tl_show_figure(&bench->cli->show, "one clock read", bench->clock_ns, "ns");
    }
    for (size_t i = 0; i < ITEM_COUNT; i++)
        item_figures_show(bench, i);
}

// ---- the command

static bool word_names(const char *word, const struct item *item)
{
    return strcmp(word, item->word) == 0;
}

static bool item_wanted(const struct tl_cli_options *options, const struct item *item)
{
    bool wanted = options->word_count == 0;
    for (size_t i = 0; i < options->word_count; i++)
        wanted |= word_names(options->words[i], item);
    return wanted;
}

static int bench_run(struct tl_cli *cli)
{
    struct bench bench = {.cli = cli,
                          .quick = cli->options.quick,
                          .methods = cli->options.allow_traps ? BY_COUNT : BY_KERNEL + 1};
    struct tl_diag diag = {{0}};
    int group = -1;
    int error = tl_victim_start(&bench.victim, &diag);
    for (size_t i = 0; !error && i < ITEM_COUNT; i++) {
        if (!item_wanted(&cli->options, &items[i]))
            continue;
        if (!tl_victim_has(&bench.victim, items[i].site)) {
            if (cli->options.word_count)
                tl_cli_note(cli, "%s: there is no such site on this processor", items[i].site);
            continue;
        }
        if (items[i].group != group)
            tl_show_bench_head(&cli->show, group_titles[items[i].group], group < 0);
        group = items[i].group;
        if (group != GROUP_COUNT && bench.clock_ns <= 0)
            error = clock_run(&bench, &diag);
        if (!error)
            error = item_run(&bench, i, &diag);
    }
    tl_victim_end(&bench.victim);
    if (error)
        return tl_cli_fail(cli, error, &diag);
    figures_show(&bench);
    return bench.failed ? TL_EXIT_FAILED : TL_EXIT_DONE;
}

static int bench_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    for (size_t i = 0; i < options->word_count; i++) {
        bool known = false;
        for (size_t k = 0; k < ITEM_COUNT; k++)
            known |= word_names(options->words[i], &items[k]);
        if (!known)
            return tl_cli_error(diag, TL_E_USAGE, "there is no case '%s'", options->words[i]);
    }
    return 0;
}

const struct tl_cli_command tl_cli_bench_command = {
    .name = "bench",
    .allowed = "joqvTQ",
    .usage = "bench [--json] [--quick] [--allow-traps] [CASE...]",
    .help =
        "Measures what a probe costs, in ns added to a call, by trapless's jump and by the "
        "kernel's\n"
        "uprobes. Cases, all that this processor has if none is named:\n"
        "\n"
        "  nop nop5 push ret endbr64 bti-entry cnop cret func loop short\n"
        "            the count of a function's entry\n"
        "  event     an entry event with its time, thread and 6 arguments\n"
        "  return    the count of a return, by exit sites and by the trampoline\n"
        "  latency   the time from entry to return\n"
        "  fork      what a fork costs more in a program with 1,000 probes\n"
        "\n"
        "      --json            JSON lines\n"
        "      --quick           fewer calls: for slow machines and those that count instructions\n"
        "      --allow-traps     by simulate, slot and step too\n"
        "  -o, --output FILE     write to FILE\n"
        "  -q, -v                quiet, verbose\n",
    .check = bench_check,
    .run = bench_run,
};

// trapless bench: what a hit costs, by our jump and by the kernel's uprobe, side by side in one
// run.
//
// A victim process calls a site some thousand times and says how long it took: bare, with a jump,
// with the cheapest kind of kernel probe, in turn, over several rounds; medians of the differences
// within a round are reported. Invariant: a figure is shown only if the probe counted every call of
// its runs.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/proc.h"
#include "attach/uprobe.h"
#include "cli/cli.h"

#define ROUNDS 11
#define CALLS_FAST 4000000u // a few ns each
#define CALLS_SLOW 20000u   // half a microsecond each
// The sites of bench/sites.S and bench/victim.c; the names are a contract.
static const char *const cases[] = {"nop",     "nop5", "push", "ret",
                                    "endbr64", "func", "loop", "short"};

#define ATTACH_TRIES 5
#define NAME_SIZE 32
#define LINE_SIZE 128

struct victim {
    pid_t pid;
    FILE *to, *from;
    char path[4096];
};

struct bench {
    struct tl_cli *cli;
    struct victim victim;
    enum tl_uprobe_way kernel_way;
    bool kernel; // kernel probes are there
    char kernel_reason[TL_DIAG_SIZE];
    bool failed; // something that should have been measured was not
};

// ---- the victim
// ------------------------------------------------------------------------------------

static int victim_find(char *path, size_t size, struct tl_diag *diag)
{
    static const char *const places[] = {"bench/victim", "../libexec/trapless/victim"};
    char self[2048];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return tl_diag_set(diag, TL_E_SYSTEM, "/proc/self/exe: %s", strerror(errno));
    self[length] = 0;
    *strrchr(self, '/') = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(places); i++) {
        if (snprintf(path, size, "%s/%s", self, places[i]) < (int)size && access(path, X_OK) == 0)
            return 0;
    }
    return tl_diag_set(diag, TL_E_SYSTEM, "the bench's victim program is not beside %s", self);
}

// One CPU for the victim, so that moving between CPUs is not measured.
static void cpu_pin(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return;
    for (size_t cpu = CPU_SETSIZE; cpu-- > 0;) {
        if (CPU_ISSET(cpu, &set)) {
            CPU_ZERO(&set);
            CPU_SET(cpu, &set);
            (void)sched_setaffinity(0, sizeof set, &set);
            return;
        }
    }
}

static bool line_read(struct victim *victim, char *line)
{
    if (!fgets(line, LINE_SIZE, victim->from))
        return false;
    line[strcspn(line, "\n")] = 0;
    return true;
}

static int victim_start(struct victim *victim, struct tl_diag *diag)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    int error = victim_find(victim->path, sizeof victim->path, diag);
    if (error)
        return error;
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) || (victim->pid = fork()) < 0)
        return tl_diag_set(diag, TL_E_SYSTEM, "starting the victim: %s", strerror(errno));
    if (!victim->pid) {
        if (dup2(to[0], STDIN_FILENO) < 0 || dup2(from[1], STDOUT_FILENO) < 0)
            _exit(127);
        cpu_pin();
        (void)execl(victim->path, victim->path, (char *)NULL);
        _exit(127);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    victim->to = fdopen(to[1], "w");
    victim->from = fdopen(from[0], "r");
    char line[LINE_SIZE] = "";
    if (victim->to && victim->from)
        (void)line_read(victim, line);
    if (strcmp(line, "ready") != 0)
        return tl_diag_set(diag, TL_E_SYSTEM, "%s did not start", victim->path);
    return 0;
}

static void victim_end(struct victim *victim)
{
    if (victim->to)
        (void)fclose(victim->to);
    if (victim->from)
        (void)fclose(victim->from);
    if (victim->pid > 0) {
        (void)kill(victim->pid, SIGKILL);
        (void)waitpid(victim->pid, NULL, 0);
    }
}

// Makes that many calls. *ns: time of one.
static int victim_run(struct victim *victim, const char *name, uint64_t calls, double *ns,
                      struct tl_diag *diag)
{
    char line[LINE_SIZE];
    char *end;
    fprintf(victim->to, "run %s %" PRIu64 "\n", name, calls);
    if (fflush(victim->to) || !line_read(victim, line))
        return tl_diag_set(diag, TL_E_GONE, "case %s: the victim has ended", name);
    errno = 0;
    uint64_t total = strncmp(line, "ns ", 3) == 0 ? strtoull(line + 3, &end, 10) : 0;
    if (!total || errno || *end)
        return tl_diag_set(diag, TL_E_SYSTEM, "case %s: the victim could not run it", name);
    *ns = (double)total / 1e3;
    return 0;
}

// ---- one measurement
// -------------------------------------------------------------------------------

static int hits_check(uint64_t hits, uint64_t calls, const char *name, struct tl_diag *diag)
{
    if (hits == calls)
        return 0;
    return tl_diag_set(diag, TL_E_FORMAT, "case %s: %" PRIu64 " calls were counted as %" PRIu64,
                       name, calls, hits);
}

// With our jump. *addr: where the probe went, so that the kernel's can go there too.
static int jump_try(struct bench *bench, const char *name, double *ns, tl_addr *addr,
                    struct tl_diag *diag)
{
    struct tl_session *session = NULL;
    char probe[NAME_SIZE + 16];
    (void)snprintf(probe, sizeof probe, "tl_site_%s", name);
    const struct tl_session_options options = {
        .size = sizeof options, .pid = bench->victim.pid, .method = TL_METHOD_JUMP};
    int error = tl_session_create(&options, &session, diag);
    if (error)
        return error;
    int matched = tl_session_add(session, probe, diag);
    error = matched < 0 ? matched : matched == 0 ? TL_E_NOMATCH : 0;
    if (!error && addr)
        *addr = tl_session_site(session, 0)->addr;
    if (!error) {
        error = tl_session_attach(session, diag);
        if (error == TL_E_NOMATCH)
            (void)tl_diag_set(diag, error, "%s", tl_session_site(session, 0)->reason);
    }
    if (!error)
        error = victim_run(&bench->victim, name, CALLS_FAST, ns, diag);
    if (!error)
        error = tl_session_detach(session, diag);
    if (!error)
        error = hits_check(tl_session_site(session, 0)->hits, CALLS_FAST, name, diag);
    tl_session_destroy(session);
    return error;
}

// A busy machine may not stop the victim in time; another try is no other measurement.
static int jump_run(struct bench *bench, const char *name, double *ns, tl_addr *addr,
                    struct tl_diag *diag)
{
    int error = TL_E_BUSY;
    for (int i = 0; error == TL_E_BUSY && i < ATTACH_TRIES; i++)
        error = jump_try(bench, name, ns, addr, diag);
    return error;
}

static int kernel_site(const struct bench *bench, tl_addr addr, struct tl_uprobe_site *site,
                       struct tl_diag *diag)
{
    struct tl_maps maps;
    int error = tl_maps_read(bench->victim.pid, &maps, diag);
    if (error)
        return error;
    const struct tl_map *map = tl_maps_at(&maps, addr);
    if (map)
        *site = (struct tl_uprobe_site){.path = bench->victim.path,
                                        .file_off = addr - map->start + map->file_off};
    else
        error = tl_diag_set(diag, TL_E_GONE, "the victim has ended");
    tl_maps_deinit(&maps);
    return error;
}

static int kernel_run(struct bench *bench, enum tl_uprobe_way way, const char *name, tl_addr addr,
                      double *ns, struct tl_diag *diag)
{
    struct tl_uprobe_site site = {0};
    struct tl_uprobes *uprobes = NULL;
    uint64_t hits = 0;
    int refused = 0;
    int error = kernel_site(bench, addr, &site, diag);
    if (!error)
        error = tl_uprobes_create_by(way, bench->victim.pid, &site, 1, 0, &refused, &uprobes, diag);
    if (error)
        return error;
    if (refused)
        error = tl_diag_set(diag, TL_E_UNSUPPORTED, "the kernel refused: %s", strerror(refused));
    if (!error)
        error = victim_run(&bench->victim, name, CALLS_SLOW, ns, diag);
    if (!error)
        error = tl_uprobes_count(uprobes, 0, &hits, diag);
    if (!error)
        error = hits_check(hits, CALLS_SLOW, name, diag);
    tl_uprobes_destroy(uprobes);
    return error;
}

// ---- rounds
// ----------------------------------------------------------------------------------------

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

struct rounds {
    double bare[ROUNDS], jump[ROUNDS], kernel[ROUNDS];
    struct tl_diag jump_diag, kernel_diag; // not empty: not measured
};

// A method that fails once is not asked again; the other goes on.
static int rounds_run(struct bench *bench, const char *name, struct rounds *rounds,
                      struct tl_diag *diag)
{
    tl_addr addr = 0;
    for (size_t i = 0; i < ROUNDS; i++) {
        double bare = 0, with = 0;
        int error = victim_run(&bench->victim, name, CALLS_FAST, &bare, diag);
        if (error)
            return error;
        rounds->bare[i] = bare;
        if (!rounds->jump_diag.text[0]) {
            struct tl_diag why = {{0}};
            if (jump_run(bench, name, &with, &addr, &why))
                (void)tl_diag_set(&rounds->jump_diag, 0, "%s", why.text[0] ? why.text : "failed");
            else
                rounds->jump[i] = with - bare;
        }
        if (bench->kernel && addr && !rounds->kernel_diag.text[0]) {
            if (kernel_run(bench, bench->kernel_way, name, addr, &with, &rounds->kernel_diag) == 0)
                rounds->kernel[i] = with - bare;
        } else if (!rounds->kernel_diag.text[0]) {
            (void)tl_diag_set(&rounds->kernel_diag, 0, "%s",
                              bench->kernel ? "the site was not found" : bench->kernel_reason);
        }
        tl_cli_progress(bench->cli, name, i + 1, ROUNDS);
    }
    return 0;
}

static int case_run(struct bench *bench, const char *name, struct tl_diag *diag)
{
    struct rounds rounds = {.bare = {0}};
    int error = rounds_run(bench, name, &rounds, diag);
    if (error)
        return error;
    struct tl_show_bench jump = {.name = name,
                                 .kind = "entry",
                                 .action = "count",
                                 .method = tl_rung_text(TL_RUNG_JUMP),
                                 .reason = rounds.jump_diag.text,
                                 .baseline_ns = median(rounds.bare, ROUNDS)};
    struct tl_show_bench kernel = jump;
    kernel.method = tl_rung_text(TL_RUNG_KERNEL);
    kernel.reason = rounds.kernel_diag.text;
    jump.ns = *jump.reason ? -1 : median(rounds.jump, ROUNDS);
    kernel.ns = *kernel.reason ? -1 : median(rounds.kernel, ROUNDS);
    bench->failed |= *jump.reason != 0;
    tl_cli_progress_end(bench->cli);
    tl_show_bench(&bench->cli->show, &jump);
    tl_show_bench(&bench->cli->show, &kernel);
    tl_show_bench_row(&bench->cli->show, &jump, &kernel);
    (void)fflush(bench->cli->out);
    return 0;
}

// The opponent is the kernel's cheapest way on this machine, not the one that suits us.
static void kernel_choose(struct bench *bench)
{
    static const enum tl_uprobe_way ways[] = {TL_UPROBE_MULTI, TL_UPROBE_PERF, TL_UPROBE_THREAD};
    struct tl_diag diag = {{0}};
    double best = 0;
    tl_addr addr = 0;
    if (tl_uprobes_available(&diag) == 0) {
        double ignored;
        (void)jump_run(bench, "push", &ignored, &addr, &diag);
    }
    for (size_t i = 0; addr && i < TL_ARRAY_COUNT(ways); i++) {
        double ns[ROUNDS];
        size_t got = 0;
        while (got < ROUNDS && kernel_run(bench, ways[i], "push", addr, &ns[got], &diag) == 0)
            got++;
        if (got < ROUNDS)
            continue;
        double middle = median(ns, got);
        tl_cli_note(bench->cli, "kernel uprobe on push, %s way: %.0f ns a call",
                    tl_uprobe_way_text(ways[i]), middle);
        if (!bench->kernel || middle < best) {
            best = middle;
            bench->kernel_way = ways[i];
        }
        bench->kernel = true;
    }
    if (!bench->kernel)
        (void)snprintf(bench->kernel_reason, sizeof bench->kernel_reason, "%s",
                       diag.text[0] ? diag.text : "kernel probes are not there");
}

static int bench_run(struct tl_cli *cli)
{
    const struct tl_cli_options *options = &cli->options;
    struct bench bench = {.cli = cli};
    struct tl_diag diag = {{0}};
    int error = victim_start(&bench.victim, &diag);
    if (!error) {
        kernel_choose(&bench);
        if (!bench.kernel)
            tl_cli_note(cli, "%s", bench.kernel_reason);
        tl_show_bench_head(&cli->show, bench.kernel ? tl_uprobe_way_text(bench.kernel_way) : "no");
    }
    const char *const *names = options->word_count ? options->words : cases;
    size_t count = options->word_count ? options->word_count : TL_ARRAY_COUNT(cases);
    for (size_t i = 0; !error && i < count; i++)
        error = case_run(&bench, names[i], &diag);
    victim_end(&bench.victim);
    if (error)
        return tl_cli_fail(cli, error, &diag);
    return bench.failed ? TL_EXIT_FAILED : TL_EXIT_DONE;
}

static int bench_check(const struct tl_cli_options *options, struct tl_diag *diag)
{
    for (size_t i = 0; i < options->word_count; i++) {
        bool known = false;
        for (size_t k = 0; k < TL_ARRAY_COUNT(cases); k++)
            known |= strcmp(options->words[i], cases[k]) == 0;
        if (!known)
            return tl_diag_set(diag, TL_E_USAGE, "there is no case '%s'", options->words[i]);
    }
    return 0;
}

const struct tl_cli_command tl_cli_bench_command = {
    .name = "bench",
    .allowed = "joqv",
    .usage = "bench [--json] [CASE...]",
    .help =
        "Measures what a counted function entry costs, in ns added to a call, by trapless's jump\n"
        "and by the kernel's cheapest uprobe. Cases: nop, nop5, push, ret, endbr64, func, loop,\n"
        "short; all if none is named.\n"
        "\n"
        "      --json            JSON lines\n"
        "  -o, --output FILE     write to FILE\n"
        "  -q, -v                quiet, verbose\n",
    .check = bench_check,
    .run = bench_run,
};

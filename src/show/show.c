// Lays out text for people; hands over to json.c for programs.
//
// It never decides what is true: reports and totals come from the session. Lines are cut only at a
// terminal's width, never in a file or a pipe, so that text stays good for grep.
#include "show/show.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "show/json.h"
#include "show/line.h"

#define WIDTH_MIN 40
#define BENCH_NS_MIN 0.1
#define BENCH_NS_NOISE -1.0 // below, it is no cost that is too small to see
#define ZEROS_SHOWN_MAX 50  // with more probes than this, those without a hit share one line

void tl_show_init(struct tl_show *show, FILE *file, bool json, bool verbose)
{
    *show = (struct tl_show){.file = file, .json = json, .verbose = verbose};
}

void tl_show_fit(struct tl_show *show, int fd)
{
    struct winsize size = {0};
    if (fd >= 0 && isatty(fd) && !ioctl(fd, TIOCGWINSZ, &size) && size.ws_col)
        show->width = size.ws_col < WIDTH_MIN ? WIDTH_MIN : size.ws_col;
}

static void json_done(struct tl_show *show, bool written)
{
    show->failed |= !written;
}

// Columns of bytes: names are nearly always ASCII.
void tl_show_line(struct tl_show *show, const char *text)
{
    size_t length = strlen(text);
    if (show->width && length > (size_t)show->width) {
        size_t cut = (size_t)show->width - 1;
        while (cut && ((unsigned char)text[cut] & 0xc0) == 0x80)
            cut--;
        fprintf(show->file, "%.*s~\n", (int)cut, text);
        return;
    }
    (void)fwrite(text, 1, length, show->file);
    (void)fputc('\n', show->file);
}

const char *tl_show_escaped(const char *text, char *buf, size_t size)
{
    tl_show_escape(text ? text : "", buf, size);
    return buf;
}

void tl_show_probe(struct tl_show *show, const struct tl_site_report *report)
{
    if (show->json) {
        json_done(show, tl_json_probe(show->file, report));
        return;
    }
    if (report->rung != TL_RUNG_REFUSED && !show->verbose)
        return;
    char function[1024], file[1024], reason[512], text[TL_SHOW_LINE_SIZE];
    (void)snprintf(text, sizeof text, "%-8s 0x%012llx  %s  (%s): %s", tl_rung_text(report->rung),
                   (unsigned long long)report->addr,
                   tl_show_escaped(report->function, function, sizeof function),
                   tl_show_escaped(report->file, file, sizeof file),
                   tl_show_escaped(report->reason, reason, sizeof reason));
    tl_show_line(show, text);
}

void tl_show_site(struct tl_show *show, const struct tl_site_report *report)
{
    if (show->json) {
        json_done(show, tl_json_site(show->file, report));
        return;
    }
    char function[1024], file[1024], reason[512], text[TL_SHOW_LINE_SIZE], hex[3 * 16 + 1] = "";
    for (uint64_t i = 0; i < report->size && i < sizeof report->bytes; i++)
        (void)snprintf(hex + 3 * i, 4, "%02x ", report->bytes[i]);
    (void)snprintf(text, sizeof text, "0x%012llx  %s  (%s)", (unsigned long long)report->addr,
                   tl_show_escaped(report->function, function, sizeof function),
                   tl_show_escaped(report->file, file, sizeof file));
    tl_show_line(show, text);
    (void)snprintf(text, sizeof text, "    %s%s", hex, report->insn);
    tl_show_line(show, text);
    (void)snprintf(text, sizeof text, "    %s: %s%s%s%s", tl_rung_text(report->rung),
                   tl_show_escaped(report->reason, reason, sizeof reason),
                   *report->window ? "  [" : "", report->window, *report->window ? "]" : "");
    tl_show_line(show, text);
    if (!report->return_way)
        return;
    char exits[64] = "";
    if (report->exit_count)
        (void)snprintf(exits, sizeof exits, ", %u %s", report->exit_count,
                       report->exit_count == 1 ? "place" : "places");
    (void)snprintf(text, sizeof text, "    return: %s%s", report->return_way, exits);
    tl_show_line(show, text);
}

void tl_show_function(struct tl_show *show, const struct tl_function *function)
{
    if (show->json) {
        json_done(show, tl_json_function(show->file, function));
        return;
    }
    char name[1024], file[1024], text[TL_SHOW_LINE_SIZE];
    int used = snprintf(text, sizeof text, "0x%012llx %8llu  %s ",
                        (unsigned long long)function->addr, (unsigned long long)function->size,
                        tl_show_escaped(function->file, file, sizeof file));
    for (size_t i = 0; i < function->name_count && used < (int)sizeof text; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s", i ? ", " : " ",
                         tl_show_escaped(function->names[i], name, sizeof name));
        if (function->demangled[i] && used < (int)sizeof text)
            used += snprintf(text + used, sizeof text - (size_t)used, " [%s]",
                             tl_show_escaped(function->demangled[i], name, sizeof name));
    }
    tl_show_line(show, text);
}

// ---- counts
// --------------------------------------------------------------------------------------

static int count_compare(const void *a, const void *b)
{
    const struct tl_show_count *x = *(const struct tl_show_count *const *)a,
                               *y = *(const struct tl_show_count *const *)b;
    if (x->hits != y->hits)
        return x->hits < y->hits ? 1 : -1;
    return (x > y) - (x < y); // the order given
}

static void count_row(struct tl_show *show, const struct tl_show_count *count, double elapsed_s,
                      bool interval)
{
    char hits[32], rate[32] = "", added[48] = "", function[1024], dropped[64] = "", digits[32];
    char text[TL_SHOW_LINE_SIZE];
    uint64_t new_hits = count->hits - count->before;
    if (elapsed_s > 0)
        (void)tl_show_number((uint64_t)((double)new_hits / elapsed_s + 0.5), rate);
    if (interval)
        (void)snprintf(added, sizeof added, " %17s", tl_show_number(new_hits, digits));
    if (count->dropped)
        (void)snprintf(dropped, sizeof dropped, "  (%s dropped)",
                       tl_show_number(count->dropped, digits));
    (void)snprintf(text, sizeof text, "%17s%s %14s  %-8s %s%s%s", tl_show_number(count->hits, hits),
                   added, rate, tl_rung_text(count->rung),
                   tl_show_escaped(count->function, function, sizeof function),
                   count->is_return ? " (return)" : "", dropped);
    tl_show_line(show, text);
}

void tl_show_counts(struct tl_show *show, const struct tl_show_count *counts, size_t count,
                    double elapsed_s, bool interval)
{
    if (show->json) {
        for (size_t i = 0; i < count; i++) {
            if (counts[i].rung != TL_RUNG_REFUSED)
                json_done(show, tl_json_count(show->file, &counts[i], elapsed_s, interval));
        }
        return;
    }
    const struct tl_show_count **order = calloc(count + 1, sizeof *order);
    if (!order) {
        show->failed = true;
        return;
    }
    size_t placed = 0, zeros = 0;
    for (size_t i = 0; i < count; i++) {
        if (counts[i].rung != TL_RUNG_REFUSED)
            order[placed++] = &counts[i];
    }
    qsort(order, placed, sizeof(*order), count_compare);
    fprintf(show->file, "%17s%s %14s  %-8s %s\n", "hits", interval ? "               new" : "",
            "hits/s", "method", "function");
    for (size_t i = 0; i < placed; i++) {
        if (!order[i]->hits && placed > ZEROS_SHOWN_MAX && !show->verbose)
            zeros++;
        else
            count_row(show, order[i], elapsed_s, interval);
    }
    if (zeros)
        fprintf(show->file, "%17s  probes were not hit (-v names them)\n",
                tl_show_number(zeros, (char[32]){0}));
    free(order);
}

// ---- bench
// -----------------------------------------------------------------------------------------

void tl_show_bench(struct tl_show *show, const struct tl_show_bench *bench)
{
    if (show->json)
        json_done(show, tl_json_bench(show->file, bench));
}

void tl_show_bench_head(struct tl_show *show, const char *title, bool first)
{
    if (show->json)
        return;
    fprintf(show->file,
            "%s%s\n"
            "%-20s %14s %11s %13s %10s\n",
            first ? "" : "\n", title, "case", "bare call ns", "jump ns", "kernel ns", "ratio");
}

static void cell(char *buf, size_t size, const struct tl_show_bench *bench)
{
    if (bench->reason && *bench->reason)
        (void)snprintf(buf, size, "-");
    else
        (void)snprintf(buf, size, "%.2f", bench->ns);
}

void tl_show_bench_row(struct tl_show *show, const struct tl_show_bench *jump,
                       const struct tl_show_bench *kernel)
{
    if (show->json)
        return;
    char ours[32], theirs[32], ratio[32] = "-";
    cell(ours, sizeof ours, jump);
    cell(theirs, sizeof theirs, kernel);
    // Below what a loop can tell, a ratio would be noise: it is at least this.
    bool small = jump->ns < BENCH_NS_MIN;
    if (strcmp(ours, "-") != 0 && strcmp(theirs, "-") != 0 && kernel->ns > 0 &&
        jump->ns > BENCH_NS_NOISE)
        (void)snprintf(ratio, sizeof ratio, "%s%.0f x", small ? "> " : "",
                       kernel->ns / (small ? BENCH_NS_MIN : jump->ns));
    fprintf(show->file, "%-20s %14.2f %11s %13s %10s%s%s\n", jump->name, jump->baseline_ns, ours,
            theirs, ratio, jump->reason && *jump->reason ? "  " : "",
            jump->reason ? jump->reason : "");
}

void tl_show_bench_more(struct tl_show *show, const struct tl_show_bench *other)
{
    char ours[32];
    if (show->json)
        return;
    cell(ours, sizeof ours, other);
    fprintf(show->file, "  by %-15s %14s %11s%s%s\n", other->method, "", ours,
            other->reason && *other->reason ? "  " : "", other->reason ? other->reason : "");
}

void tl_show_figure_head(struct tl_show *show)
{
    if (!show->json)
        fprintf(show->file, "\nfigures\n");
}

void tl_show_figure(struct tl_show *show, const char *name, double value, const char *unit)
{
    if (show->json)
        json_done(show, tl_json_figure(show->file, name, value, unit));
    else
        fprintf(show->file, "%-76s %9.2f %s\n", name, value, unit);
}

// ---- summary
// ---------------------------------------------------------------------------------------

void tl_show_summary(struct tl_show *show, const struct tl_session_totals *totals,
                     const size_t *reasons, bool attached)
{
    if (show->json) {
        json_done(show, tl_json_summary(show->file, totals, reasons));
        return;
    }
    char number[32];
    for (unsigned reason = 1; reasons && reason < TL_REFUSAL_COUNT; reason++) {
        if (reasons[reason])
            fprintf(show->file, "refused %s: %s\n", tl_show_number(reasons[reason], number),
                    tl_refusal_text(reason));
    }
    fprintf(show->file, "%s %s:", tl_show_number(totals->sites, number),
            totals->sites == 1 ? "site" : "sites");
    for (unsigned rung = TL_RUNG_JUMP; rung < TL_RUNG_COUNT; rung++) {
        if (totals->by_rung[rung])
            fprintf(show->file, " %s %s,", tl_show_number(totals->by_rung[rung], number),
                    tl_rung_text(rung));
    }
    fprintf(show->file, " %s refused", tl_show_number(totals->refused, number));
    if (attached) {
        fprintf(show->file, "; %s hits", tl_show_number(totals->hits, number));
        fprintf(show->file, ", %s dropped", tl_show_number(totals->dropped, number));
        fprintf(show->file, "; attach %.2f ms, stopped %.3f ms, detach %.2f ms", totals->attach_ms,
                totals->stopped_ms, totals->detach_ms);
    }
    (void)fputc('\n', show->file);
}

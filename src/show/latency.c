// Times of functions: a line of figures and a histogram, one row an octave.
//
// The buckets of the library are finer than a person reads, so neighbours share a row. Invariant:
// each row says the true bounds of the buckets in it, and the rows' counts add up to the
// function's.
#include <string.h>

#include "show/json.h"
#include "show/line.h"

#define BAR_WIDTH 40
#define OCTAVES 64

struct row {
    uint64_t low_ns, high_ns, count;
};

static unsigned octave_of(uint64_t ns)
{
    return ns ? 63u - (unsigned)__builtin_clzll(ns) : 0;
}

static void rows_fill(const struct tl_latency *latency, struct row rows[OCTAVES])
{
    for (unsigned i = 0; i < OCTAVES; i++)
        rows[i] = (struct row){.low_ns = i ? 1ull << i : 0, .high_ns = (2ull << i) - 1};
    for (size_t i = 0; i < latency->bucket_count; i++) {
        const struct tl_bucket *bucket = &latency->bucket[i];
        struct row *row = &rows[octave_of(bucket->low_ns)];
        if (!row->count) {
            row->low_ns = bucket->low_ns;
            row->high_ns = bucket->high_ns;
        }
        if (bucket->high_ns > row->high_ns)
            row->high_ns = bucket->high_ns;
        row->count += bucket->count;
    }
}

// Full marks, and at least one where there is anything.
static size_t bar_length(uint64_t count, uint64_t most)
{
    size_t length = (size_t)((double)count * BAR_WIDTH / (double)most + 0.5);
    return count && !length ? 1 : length;
}

static void row_print(struct tl_show *show, const struct row *row, uint64_t most, uint64_t all)
{
    char bar[BAR_WIDTH + 1], low[32], high[32], count[32], text[TL_SHOW_LINE_SIZE];
    size_t length = bar_length(row->count, most);
    memset(bar, '#', length);
    bar[length] = 0;
    (void)snprintf(text, sizeof text, "%12s %12s %17s %6.2f %%%s%s",
                   tl_show_ns((double)row->low_ns, low), tl_show_ns((double)row->high_ns, high),
                   tl_show_number(row->count, count), 100.0 * (double)row->count / (double)all,
                   length ? "  " : "", bar);
    tl_show_line(show, text);
}

static void rows_print(struct tl_show *show, const struct tl_latency *latency)
{
    struct row rows[OCTAVES];
    uint64_t most = 0, all = 0;
    unsigned first = OCTAVES, last = 0;
    rows_fill(latency, rows);
    for (unsigned i = 0; i < OCTAVES; i++) {
        if (!rows[i].count)
            continue;
        first = first == OCTAVES ? i : first;
        last = i;
        all += rows[i].count;
        most = rows[i].count > most ? rows[i].count : most;
    }
    if (!all)
        return;
    fprintf(show->file, "%12s %12s %17s %8s\n", "from", "to", "calls", "share");
    for (unsigned i = first; i <= last; i++)
        row_print(show, &rows[i], most, all);
}

static void figures_print(struct tl_show *show, const struct tl_show_count *count,
                          const struct tl_latency *latency, double elapsed_s)
{
    const struct {
        const char *name;
        double ns;
    } times[] = {{"min", latency->min_ns}, {"mean", latency->mean_ns}, {"p50", latency->p50_ns},
                 {"p90", latency->p90_ns}, {"p99", latency->p99_ns},   {"p99.9", latency->p999_ns},
                 {"max", latency->max_ns}};
    char number[32], more[32], text[TL_SHOW_LINE_SIZE];
    int used = snprintf(text, sizeof text, "  count %s", tl_show_number(latency->count, number));
    if (elapsed_s > 0)
        used += snprintf(text + used, sizeof text - (size_t)used, " (%s in %.2f s)",
                         tl_show_number(latency->count - count->before, more), elapsed_s);
    for (size_t i = 0; latency->count && i < sizeof times / sizeof *times; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "  %s %s", times[i].name,
                         tl_show_ns(times[i].ns, number));
    tl_show_line(show, text);
    if (latency->unpaired)
        fprintf(show->file, "  %s returns had no entry: it came before the probe, or was lost\n",
                tl_show_number(latency->unpaired, number));
    if (latency->lost)
        fprintf(show->file, "  %s entries were dropped: no room\n",
                tl_show_number(latency->lost, number));
}

void tl_show_latency(struct tl_show *show, const struct tl_show_count *count,
                     const struct tl_latency *latency, double elapsed_s)
{
    if (show->json) {
        show->failed |= !tl_json_latency(show->file, count, latency, elapsed_s);
        return;
    }
    char function[1024], file[1024], text[TL_SHOW_LINE_SIZE];
    (void)snprintf(text, sizeof text, "%s  (%s)  %s%s%s",
                   tl_show_escaped(count->function, function, sizeof function),
                   tl_show_escaped(count->file, file, sizeof file), tl_rung_text(count->rung),
                   count->return_way ? ", return: " : "",
                   count->return_way ? count->return_way : "");
    tl_show_line(show, text);
    figures_print(show, count, latency, elapsed_s);
    rows_print(show, latency);
}

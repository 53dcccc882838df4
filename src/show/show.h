// Stage show: totals -> text for people, JSON lines for programs.
//
// Text is stable and carries units. JSON keys are a contract (README, man page): more may be added,
// none renamed. Strings from the target (names, paths) are foreign: control characters are escaped
// in text, bytes that are no UTF-8 are replaced in JSON.
#ifndef TL_SHOW_SHOW_H
#define TL_SHOW_SHOW_H

#include <stdio.h>

#include "trapless/trapless.h"

struct tl_show {
    FILE *file;
    bool json;
    bool verbose;
    bool failed; // a line was lost for want of memory (a failed write is in ferror)
    int width;   // columns of the terminal; 0: not one, lines are never cut
};

// Borrows file.
void tl_show_init(struct tl_show *show, FILE *file, bool json, bool verbose);
// Lines are cut at the width of the terminal behind fd, if it is one.
void tl_show_fit(struct tl_show *show, int fd);

// One line for a placed or refused site. In text: refused ones, and all when verbose.
void tl_show_probe(struct tl_show *show, const struct tl_site_report *report);
// One site as explain tells it.
void tl_show_site(struct tl_show *show, const struct tl_site_report *report);

// One function of a file (list).
void tl_show_function(struct tl_show *show, const struct tl_function *function);

// What one probe counted. before: hits at the last print, for the rate.
struct tl_show_count {
    char *probe, *function, *file;
    const char *return_way; // NULL, or a string of static storage
    bool is_return;
    enum tl_rung rung;
    uint64_t hits, dropped, before;
};
// All counts: JSON in the order given; text sorted by hits. elapsed_s: since the last print, or 0
// to leave rates out.
void tl_show_counts(struct tl_show *show, const struct tl_show_count *counts, size_t count,
                    double elapsed_s, bool interval);

// ---- events

// What is the same in each event line of one probe, made once.
struct tl_show_label {
    char *text;
    size_t length;
};
// Makes it from the probe's names. false: no memory.
bool tl_show_label_init(const struct tl_show *show, struct tl_show_label *label,
                        const struct tl_site_report *report);
void tl_show_label_deinit(struct tl_show_label *label);
// The line above the columns, in text.
void tl_show_event_head(struct tl_show *show);
// One line. start_ns: the time that text counts from.
void tl_show_event(struct tl_show *show, const struct tl_show_label *label,
                   const struct tl_event *event, uint64_t start_ns);
// A line for each probe that lost events; in text.
void tl_show_dropped(struct tl_show *show, const struct tl_show_count *counts, size_t count);

// ---- latency

// The times of one function. elapsed_s above 0: an interval's print; count->before is the number of
// pairs at the last one.
void tl_show_latency(struct tl_show *show, const struct tl_show_count *count,
                     const struct tl_latency *latency, double elapsed_s);

// ---- bench

// A case of the bench. A negative ns: not measured (reason says why).
struct tl_show_bench {
    const char *name, *kind, *action, *method, *reason;
    double baseline_ns, ns;
};
void tl_show_bench(struct tl_show *show, const struct tl_show_bench *bench);
// The people's table of the same: one line a case, jump beside kernel. title: what is measured.
void tl_show_bench_head(struct tl_show *show, const char *title, bool first);
void tl_show_bench_row(struct tl_show *show, const struct tl_show_bench *jump,
                       const struct tl_show_bench *kernel);
// A line below that row: the same case by another method.
void tl_show_bench_more(struct tl_show *show, const struct tl_show_bench *other);
// What follows from several cases: one value and its unit.
void tl_show_figure_head(struct tl_show *show);
void tl_show_figure(struct tl_show *show, const char *name, double value, const char *unit);

// The last line. reasons[r]: how many sites were refused for r (TL_REFUSAL_COUNT long, may be
// NULL).
void tl_show_summary(struct tl_show *show, const struct tl_session_totals *totals,
                     const size_t *reasons, bool attached);

// 1234567 -> "1,234,567". buf: at least 32 bytes.
const char *tl_show_number(uint64_t number, char *buf);
// Copies text with control characters and broken UTF-8 made visible as \xNN. Cuts at size - 1.
void tl_show_escape(const char *text, char *buf, size_t size);
// Copies text with broken UTF-8 replaced by U+FFFD, for JSON. Cuts between characters.
void tl_show_utf8(const char *text, char *buf, size_t size);
// 1234.5 -> "1.23 us": three digits and a unit. buf: at least 32 bytes.
const char *tl_show_ns(double ns, char *buf);

#endif

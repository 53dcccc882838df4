// Stage show: totals -> text for people, JSON lines for programs.
//
// Text is stable and carries units. JSON keys are a contract (README, man page): more may be added,
// none renamed. Strings from the target (names, paths) are foreign: control characters are escaped
// in text, bytes that are no UTF-8 are replaced in JSON.
#ifndef TL_SHOW_SHOW_H
#define TL_SHOW_SHOW_H

#include <stdio.h>

#include "base/refusal.h"
#include "base/types.h"
#include "session/session.h"

struct tl_show {
    FILE *file;
    bool json;
    bool verbose;
    bool failed; // a line was lost for want of memory (a failed write is in ferror)
    int width;   // columns of the terminal; 0: not one, lines are never cut
};

// Borrows file. Width is asked from the terminal behind it.
void tl_show_init(struct tl_show *show, FILE *file, bool json, bool verbose);

// One line for a placed or refused site. In text: refused ones, and all when verbose.
void tl_show_probe(struct tl_show *show, const struct tl_site_report *report);
// One site as explain tells it.
void tl_show_site(struct tl_show *show, const struct tl_site_report *report);

// One function of a file (list). names[0..name_count) share the address; demangled[i] may be NULL.
#define TL_SHOW_NAMES_MAX 64
struct tl_show_function {
    tl_addr addr;
    uint64_t size;
    const char *file;
    const char *names[TL_SHOW_NAMES_MAX];
    const char *demangled[TL_SHOW_NAMES_MAX];
    size_t name_count;
};
void tl_show_function(struct tl_show *show, const struct tl_show_function *function);

// What one probe counted. before: hits at the last print, for the rate.
struct tl_show_count {
    char *probe, *function, *file;
    enum tl_rung rung;
    uint64_t hits, dropped, before;
};
// All counts: JSON in the order given; text sorted by hits. elapsed_s: since the last print, or 0
// to leave rates out.
void tl_show_counts(struct tl_show *show, const struct tl_show_count *counts, size_t count,
                    double elapsed_s, bool interval);

// A case of the bench. A negative ns: not measured (reason says why).
struct tl_show_bench {
    const char *name, *kind, *action, *method, *reason;
    double baseline_ns, ns;
};
void tl_show_bench(struct tl_show *show, const struct tl_show_bench *bench);
// The people's table of the same: one line a case, jump beside kernel.
void tl_show_bench_head(struct tl_show *show, const char *kernel_way);
void tl_show_bench_row(struct tl_show *show, const struct tl_show_bench *jump,
                       const struct tl_show_bench *kernel);

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

#endif

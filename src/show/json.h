// JSON lines, one object each; false: no memory for the line. Private to src/show.
#ifndef TL_SHOW_JSON_H
#define TL_SHOW_JSON_H

#include "show/show.h"

bool tl_json_probe(FILE *file, const struct tl_site_report *report);
bool tl_json_site(FILE *file, const struct tl_site_report *report);
bool tl_json_function(FILE *file, const struct tl_function *function);
bool tl_json_count(FILE *file, const struct tl_show_count *count, double elapsed_s, bool interval);
bool tl_json_latency(FILE *file, const struct tl_show_count *count,
                     const struct tl_latency *latency, double elapsed_s);
bool tl_json_bench(FILE *file, const struct tl_show_bench *bench);
bool tl_json_figure(FILE *file, const char *name, double value, const char *unit);
bool tl_json_summary(FILE *file, const struct tl_session_totals *totals, const size_t *reasons);
// text as a JSON string, quotes and all; on the heap. NULL: no memory.
char *tl_json_quoted(const char *text);

#endif

// Writes JSON lines with the keys of the contract.
//
// Invariant: every line is one whole object of valid UTF-8, whatever bytes a name holds. A line
// that can't be made for want of memory marks the stream as failed; it is not left out in silence.
#include "show/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define JSON_DIGITS 9 // of a real number

static json_t *string(const char *text)
{
    size_t size = strlen(text) * 3 + 1; // U+FFFD is three bytes
    char *valid = malloc(size);
    if (!valid)
        return NULL;
    tl_show_utf8(text, valid, size);
    json_t *value = json_string_nocheck(valid);
    free(valid);
    return value;
}

static json_t *text(const char *value)
{
    return string(value ? value : "");
}

static json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *address(tl_addr addr)
{
    char hex[32];
    (void)snprintf(hex, sizeof hex, "0x%llx", (unsigned long long)addr);
    return json_string(hex);
}

static json_t *bytes(const uint8_t *data, uint64_t size)
{
    char hex[2 * 16 + 1] = "";
    for (uint64_t i = 0; i < size && i < 16; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", data[i]);
    return json_string(hex);
}

static bool line_write(FILE *file, json_t *object, bool whole)
{
    char *line = whole && object
                     ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(JSON_DIGITS))
                     : NULL;
    if (line) {
        (void)fputs(line, file);
        (void)fputc('\n', file);
    }
    bool written = line != NULL;
    free(line);
    json_decref(object);
    return written;
}

// Sets keys in order; false if one could not be made. Steals each value, NULL included.
static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

char *tl_json_quoted(const char *value)
{
    json_t *object = text(value);
    char *quoted = object ? json_dumps(object, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(object);
    return quoted;
}

// How the function's return is probed, where it is.
static bool return_set(json_t *object, const struct tl_site_report *report)
{
    if (!report->return_way)
        return true;
    return set(object, "return_way", text(report->return_way)) &&
           set(object, "exits", number(report->exit_count));
}

bool tl_json_probe(FILE *file, const struct tl_site_report *report)
{
    json_t *object = json_object();
    bool whole = set(object, "type", text("probe"));
    whole &= set(object, "probe", text(report->probe));
    whole &= set(object, "file", text(report->file));
    whole &= set(object, "function", text(report->function));
    whole &= set(object, "addr", address(report->addr));
    whole &= set(object, "method", text(tl_rung_text(report->rung)));
    whole &= set(object, "reason", text(report->reason));
    whole &= return_set(object, report);
    return line_write(file, object, whole);
}

bool tl_json_site(FILE *file, const struct tl_site_report *report)
{
    json_t *object = json_object();
    bool whole = set(object, "type", text("site"));
    whole &= set(object, "file", text(report->file));
    whole &= set(object, "function", text(report->function));
    whole &= set(object, "addr", address(report->addr));
    whole &= set(object, "bytes", bytes(report->bytes, report->size));
    whole &= set(object, "insn", text(report->insn));
    whole &= set(object, "method", text(tl_rung_text(report->rung)));
    whole &= set(object, "reason", text(report->reason));
    whole &= set(object, "window", text(report->window));
    whole &= set(object, "probe", text(report->probe));
    whole &= return_set(object, report);
    return line_write(file, object, whole);
}

bool tl_json_function(FILE *file, const struct tl_function *function)
{
    json_t *object = json_object(), *names = json_array(), *demangled = json_array();
    bool whole = true;
    for (size_t i = 0; i < function->name_count; i++) {
        whole &= json_array_append_new(names, text(function->names[i])) == 0;
        if (function->demangled[i])
            whole &= json_array_append_new(demangled, text(function->demangled[i])) == 0;
    }
    whole &= set(object, "type", text("function"));
    whole &= set(object, "addr", address(function->addr));
    whole &= set(object, "size", number(function->size));
    whole &= set(object, "file", text(function->file));
    whole &= set(object, "names", names);
    whole &= set(object, "demangled", demangled);
    return line_write(file, object, whole);
}

bool tl_json_count(FILE *file, const struct tl_show_count *count, double elapsed_s, bool interval)
{
    json_t *object = json_object();
    bool whole = set(object, "type", text("count"));
    whole &= set(object, "probe", text(count->probe));
    whole &= set(object, "hits", number(count->hits));
    whole &= set(object, "dropped", number(count->dropped));
    whole &= set(object, "method", text(tl_rung_text(count->rung)));
    if (interval) {
        whole &= set(object, "interval_s", json_real(elapsed_s));
        whole &= set(object, "new", number(count->hits - count->before));
    }
    return line_write(file, object, whole);
}

static json_t *buckets(const struct tl_latency *latency)
{
    json_t *array = json_array();
    for (size_t i = 0; i < latency->bucket_count; i++) {
        const struct tl_bucket *bucket = &latency->bucket[i];
        json_t *triple = json_array();
        bool whole = json_array_append_new(triple, number(bucket->low_ns)) == 0;
        whole &= json_array_append_new(triple, number(bucket->high_ns)) == 0;
        whole &= json_array_append_new(triple, number(bucket->count)) == 0;
        if (json_array_append_new(array, triple) || !whole) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

bool tl_json_latency(FILE *file, const struct tl_show_count *count,
                     const struct tl_latency *latency, double elapsed_s)
{
    const struct {
        const char *key;
        double ns;
    } times[] = {{"min_ns", latency->min_ns}, {"mean_ns", latency->mean_ns},
                 {"p50_ns", latency->p50_ns}, {"p90_ns", latency->p90_ns},
                 {"p99_ns", latency->p99_ns}, {"p999_ns", latency->p999_ns},
                 {"max_ns", latency->max_ns}};
    json_t *object = json_object();
    bool whole = set(object, "type", text("latency"));
    whole &= set(object, "probe", text(count->probe));
    whole &= set(object, "count", number(latency->count));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        whole &= set(object, times[i].key, latency->count ? json_real(times[i].ns) : json_null());
    whole &= set(object, "buckets", buckets(latency));
    whole &= set(object, "unpaired", number(latency->unpaired));
    whole &= set(object, "lost", number(latency->lost));
    if (elapsed_s > 0) {
        whole &= set(object, "interval_s", json_real(elapsed_s));
        whole &= set(object, "new", number(latency->count - count->before));
    }
    return line_write(file, object, whole);
}

bool tl_json_bench(FILE *file, const struct tl_show_bench *bench)
{
    json_t *object = json_object();
    bool whole = set(object, "type", text("bench"));
    whole &= set(object, "case", text(bench->name));
    whole &= set(object, "kind", text(bench->kind));
    whole &= set(object, "action", text(bench->action));
    whole &= set(object, "method", text(bench->method));
    whole &= set(object, "baseline_ns", json_real(bench->baseline_ns));
    whole &= set(object, "ns", bench->ns < 0 && bench->reason ? json_null() : json_real(bench->ns));
    whole &= set(object, "reason", text(bench->reason));
    return line_write(file, object, whole);
}

bool tl_json_figure(FILE *file, const char *name, double value, const char *unit)
{
    json_t *object = json_object();
    bool whole = set(object, "type", text("figure"));
    whole &= set(object, "name", text(name));
    whole &= set(object, "value", json_real(value));
    whole &= set(object, "unit", text(unit));
    return line_write(file, object, whole);
}

bool tl_json_summary(FILE *file, const struct tl_session_totals *totals, const size_t *reasons)
{
    json_t *object = json_object(), *by_method = json_object(), *by_reason = json_object();
    bool whole = true;
    for (unsigned rung = TL_RUNG_JUMP; rung < TL_RUNG_COUNT; rung++) {
        if (totals->by_rung[rung])
            whole &= set(by_method, tl_rung_text(rung), number(totals->by_rung[rung]));
    }
    for (unsigned reason = 0; reasons && reason < TL_REFUSAL_COUNT; reason++) {
        if (reasons[reason])
            whole &= set(by_reason, tl_refusal_text(reason), number(reasons[reason]));
    }
    whole &= set(object, "type", text("summary"));
    whole &= set(object, "sites", number(totals->sites));
    whole &= set(object, "by_method", by_method);
    whole &= set(object, "refused", number(totals->refused));
    whole &= set(object, "attach_ms", json_real(totals->attach_ms));
    whole &= set(object, "stopped_ms", json_real(totals->stopped_ms));
    whole &= set(object, "detach_ms", json_real(totals->detach_ms));
    whole &= set(object, "hits", number(totals->hits));
    whole &= set(object, "dropped", number(totals->dropped));
    whole &= set(object, "refused_reasons", by_reason);
    return line_write(file, object, whole);
}

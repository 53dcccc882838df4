// Events: one line each, and there may be millions a minute.
//
// No JSON tree and no printf an event: digits go into a buffer on the stack, what is the same for a
// probe was made once. Invariant: every number is printed whole, all 64 bits.
#include <stdlib.h>
#include <string.h>

#include "show/json.h"
#include "show/line.h"

#define NAME_WIDTH 28  // of the probe's column; longer names push the rest
#define EVENT_SIZE 512 // of a line without its label
#define NS_DIGITS 9
#define NS_PER_S 1000000000u

struct buffer {
    char text[EVENT_SIZE];
    size_t used;
};

static void put(struct buffer *buffer, const char *text, size_t length)
{
    if (length > sizeof buffer->text - buffer->used)
        length = sizeof buffer->text - buffer->used;
    memcpy(buffer->text + buffer->used, text, length);
    buffer->used += length;
}

static void put_text(struct buffer *buffer, const char *text)
{
    put(buffer, text, strlen(text));
}

// At least `width` columns, filled up with `fill` on the left.
static void put_number(struct buffer *buffer, uint64_t number, unsigned base, size_t width,
                       char fill)
{
    char digits[64];
    size_t at = sizeof digits;
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number);
    for (size_t used = sizeof digits - at; used < width; used++)
        put(buffer, &fill, 1);
    put(buffer, digits + at, sizeof digits - at);
}

static void put_hex(struct buffer *buffer, uint64_t number)
{
    put(buffer, "0x", 2);
    put_number(buffer, number, 16, 0, ' ');
}

// ---- labels

// "f" of "uprobe:/bin/x:f"; else the function's first name.
static const char *name_of(const struct tl_site_report *report, size_t *length)
{
    const char *probe = report->probe ? report->probe : "", *file = report->file;
    const char *colon = strchr(probe, ':');
    size_t file_length = file ? strlen(file) : 0;
    if (colon && file_length && strncmp(colon + 1, file, file_length) == 0 &&
        colon[1 + file_length] == ':') {
        *length = strlen(colon + 2 + file_length);
        return colon + 2 + file_length;
    }
    const char *function = report->function ? report->function : probe;
    const char *comma = strstr(function, ", ");
    *length = comma ? (size_t)(comma - function) : strlen(function);
    return function;
}

static char *label_text(const struct tl_site_report *report)
{
    size_t length = 0;
    const char *name = name_of(report, &length);
    char cut[1024], harmless[1024], *text = NULL;
    (void)snprintf(cut, sizeof cut, "%.*s", (int)(length < sizeof cut ? length : sizeof cut - 1),
                   name);
    tl_show_escape(cut, harmless, sizeof harmless);
    return asprintf(&text, "  %-*s ", NAME_WIDTH, harmless) < 0 ? NULL : text;
}

static char *label_json(const struct tl_site_report *report)
{
    char *quoted = tl_json_quoted(report->probe), *text = NULL;
    if (quoted && asprintf(&text, "{\"type\":\"event\",\"probe\":%s,\"ts_ns\":", quoted) < 0)
        text = NULL;
    free(quoted);
    return text;
}

bool tl_show_label_init(const struct tl_show *show, struct tl_show_label *label,
                        const struct tl_site_report *report)
{
    label->text = show->json ? label_json(report) : label_text(report);
    label->length = label->text ? strlen(label->text) : 0;
    return label->text != NULL;
}

void tl_show_label_deinit(struct tl_show_label *label)
{
    free(label->text);
    *label = (struct tl_show_label){0};
}

// ---- lines

static void event_json(struct tl_show *show, const struct tl_show_label *label,
                       const struct tl_event *event)
{
    struct buffer buffer = {.used = 0};
    put_number(&buffer, event->ts_ns, 10, 0, ' ');
    put_text(&buffer, ",\"pid\":");
    put_number(&buffer, (uint64_t)(event->pid > 0 ? event->pid : 0), 10, 0, ' ');
    put_text(&buffer, ",\"tid\":");
    put_number(&buffer, (uint64_t)(event->tid > 0 ? event->tid : 0), 10, 0, ' ');
    if (event->is_return) {
        put_text(&buffer, ",\"ret\":");
        put_number(&buffer, event->arg[0], 10, 0, ' ');
        put_text(&buffer, "}\n");
    } else {
        put_text(&buffer, ",\"args\":[");
        for (size_t i = 0; i < TL_EVENT_ARGS_MAX; i++) {
            put(&buffer, ",", i != 0);
            put_number(&buffer, event->arg[i], 10, 0, ' ');
        }
        put_text(&buffer, "]}\n");
    }
    (void)fwrite_unlocked(label->text, 1, label->length, show->file);
    (void)fwrite_unlocked(buffer.text, 1, buffer.used, show->file);
}

static void put_id(struct buffer *buffer, pid_t id)
{
    put(buffer, " ", 1);
    if (id > 0)
        put_number(buffer, (uint64_t)id, 10, 7, ' ');
    else
        put_text(buffer, "      -");
}

static void event_text(struct tl_show *show, const struct tl_show_label *label,
                       const struct tl_event *event, uint64_t start_ns)
{
    struct buffer head = {.used = 0}, tail = {.used = 0};
    bool before = event->ts_ns < start_ns; // between the placing and the start of the clock
    uint64_t ns = before ? 0 : event->ts_ns - start_ns;
    put_number(&head, ns / NS_PER_S, 10, 5, ' ');
    put(&head, ".", 1);
    put_number(&head, ns % NS_PER_S, 10, NS_DIGITS, '0');
    put_id(&head, event->pid);
    put_id(&head, event->tid);
    if (event->is_return)
        put_text(&tail, "= ");
    for (size_t i = 0; i < (event->is_return ? 1 : TL_EVENT_ARGS_MAX); i++) {
        put(&tail, " ", i != 0);
        put_hex(&tail, event->arg[i]);
    }
    if (show->width) {
        char text[TL_SHOW_LINE_SIZE];
        (void)snprintf(text, sizeof text, "%.*s%s%.*s", (int)head.used, head.text, label->text,
                       (int)tail.used, tail.text);
        tl_show_line(show, text);
        return;
    }
    (void)fwrite_unlocked(head.text, 1, head.used, show->file);
    (void)fwrite_unlocked(label->text, 1, label->length, show->file);
    put(&tail, "\n", 1);
    (void)fwrite_unlocked(tail.text, 1, tail.used, show->file);
}

void tl_show_event_head(struct tl_show *show)
{
    if (!show->json)
        fprintf(show->file, "%15s %7s %7s  %-*s %s\n", "time s", "pid", "tid", NAME_WIDTH, "probe",
                "arguments, or = value");
}

void tl_show_event(struct tl_show *show, const struct tl_show_label *label,
                   const struct tl_event *event, uint64_t start_ns)
{
    if (show->json)
        event_json(show, label, event);
    else
        event_text(show, label, event, start_ns);
}

void tl_show_dropped(struct tl_show *show, const struct tl_show_count *counts, size_t count)
{
    char dropped[32], hits[32], function[1024], text[TL_SHOW_LINE_SIZE];
    for (size_t i = 0; !show->json && i < count; i++) {
        if (!counts[i].dropped)
            continue;
        (void)snprintf(text, sizeof text, "dropped %s of %s %s of %s",
                       tl_show_number(counts[i].dropped, dropped),
                       tl_show_number(counts[i].hits, hits),
                       counts[i].is_return ? "returns" : "events",
                       tl_show_escaped(counts[i].function, function, sizeof function));
        tl_show_line(show, text);
    }
}

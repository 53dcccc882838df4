// Small tools for text: numbers with separators, foreign strings made harmless.
//
// Invariant: what tl_show_escape writes holds no byte that a terminal acts on; what tl_show_utf8
// writes is valid UTF-8.
#include <string.h>

#include "show/show.h"

const char *tl_show_number(uint64_t number, char *buf)
{
    char digits[32];
    int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    char *at = buf;
    for (int i = 0; i < count; i++) {
        if (i && (count - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = 0;
    return buf;
}

const char *tl_show_ns(double ns, char *buf)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    size_t at = 0;
    // 999.5 would print as 1000 of the smaller unit.
    while (at + 1 < sizeof units / sizeof *units && ns >= 999.5 * units[at].ns)
        at++;
    double value = ns / units[at].ns;
    int digits = !at || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    (void)snprintf(buf, 32, "%.*f %s", digits, value, units[at].unit);
    return buf;
}

// Length of the valid UTF-8 character at text (The Unicode Standard 15, table 3-7), or 0.
static size_t utf8_length(const unsigned char *text)
{
    unsigned char first = text[0];
    if (first < 0x80)
        return first ? 1 : 0;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    unsigned char low = 0x80, high = 0xbf; // of the second byte
    if (first < 0xc2 || first > 0xf4)
        return 0;
    if (first == 0xe0)
        low = 0xa0;
    else if (first == 0xed)
        high = 0x9f;
    else if (first == 0xf0)
        low = 0x90;
    else if (first == 0xf4)
        high = 0x8f;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    }
    return length;
}

// C0, DEL, and C1 as UTF-8 spells it (c2 80 to c2 9f).
static bool is_control(const unsigned char *text)
{
    return text[0] < 0x20 || text[0] == 0x7f || (text[0] == 0xc2 && text[1] < 0xa0);
}

static const char replacement[3] = {'\xef', '\xbf', '\xbd'}; // U+FFFD

static void copy(const char *text, char *buf, size_t size, bool escape)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    while (*at && size) {
        char piece[8];
        size_t length = utf8_length(at), piece_size = length;
        bool harmless = length && !(escape && is_control(at));
        if (harmless) {
            memcpy(piece, at, length);
        } else {
            piece_size =
                escape ? (size_t)snprintf(piece, sizeof piece, "\\x%02x", *at) : sizeof replacement;
            if (!escape)
                memcpy(piece, replacement, sizeof replacement);
        }
        if (used + piece_size >= size)
            break;
        memcpy(buf + used, piece, piece_size);
        used += piece_size;
        at += harmless ? length : 1;
    }
    if (size)
        buf[used] = 0;
}

void tl_show_escape(const char *text, char *buf, size_t size)
{
    copy(text, buf, size, true);
}

void tl_show_utf8(const char *text, char *buf, size_t size)
{
    copy(text, buf, size, false);
}

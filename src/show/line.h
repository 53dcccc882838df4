// What the files of src/show share for text. Private to src/show.
#ifndef TL_SHOW_LINE_H
#define TL_SHOW_LINE_H

#include "show/show.h"

#define TL_SHOW_LINE_SIZE 4096

// Writes one line, cut at the terminal's width.
void tl_show_line(struct tl_show *show, const char *text);
// tl_show_escape that returns buf; NULL is "".
const char *tl_show_escaped(const char *text, char *buf, size_t size);

#endif

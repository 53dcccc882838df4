// Where a run's lines go. A reader that is slow, or stopped, must not keep a run from looking after
// its target, so while a run lasts lines wait here and are written as the reader takes them.
#ifndef TL_CLI_OUTPUT_H
#define TL_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct tl_output {
    int fd;
    bool owned;    // fd is closed at the end
    bool deferred; // writes wait in data
    bool file;     // a regular file never blocks for long
    int error;     // errno of the first write that failed; what comes later is thrown away
    char *data;    // [start, end) is to be written
    size_t start, end, size;
};

// path NULL: standard output. NULL: errno says why. The stream writes to output, which must outlive
// it.
FILE *tl_output_open(struct tl_output *output, const char *path);
// Writes what waits, and closes. Returns 0 or the errno of the first write that failed. The stream
// has been closed before.
int tl_output_close(struct tl_output *output);

// While deferred, lines wait for tl_output_pump. Ending it writes all that waits, however long it
// takes.
void tl_output_defer(struct tl_output *output, bool deferred);
// Writes what the reader takes without waiting.
void tl_output_pump(struct tl_output *output);
size_t tl_output_waiting(const struct tl_output *output); // bytes

#endif

// The stream behind a run's lines: a FILE over one descriptor, with a buffer between them.
//
// It never sets O_NONBLOCK, which others who share the descriptor would see: it asks poll() first
// and writes no more than a pipe surely has room for. Invariant: bytes leave in the order they
// came, and after a failed write none does.
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STREAM_SIZE (64u << 10)
#define DATA_SIZE_MIN (256u << 10)

// Linux, fs/pipe.c: a pipe that polls as writable has a free slot, so PIPE_BUF bytes do not block.
static bool write_some(struct tl_output *output, const char *data, size_t size, size_t *written)
{
    if (!output->file && output->deferred && size > PIPE_BUF)
        size = PIPE_BUF;
    ssize_t result = write(output->fd, data, size);
    if (result < 0 && errno != EINTR && errno != EAGAIN)
        output->error = errno;
    *written = result > 0 ? (size_t)result : 0;
    return result >= 0 || !output->error;
}

static bool writable(const struct tl_output *output, int timeout_ms)
{
    struct pollfd fd = {.fd = output->fd, .events = POLLOUT};
    return output->file || poll(&fd, 1, timeout_ms) > 0;
}

static void write_all(struct tl_output *output, const char *data, size_t size)
{
    size_t written = 0;
    for (size_t at = 0; at < size && !output->error; at += written) {
        if (!write_some(output, data + at, size - at, &written))
            break;
        if (!written)
            (void)writable(output, -1); // somebody else's O_NONBLOCK
    }
}

void tl_output_pump(struct tl_output *output)
{
    while (output->start < output->end && !output->error && writable(output, 0)) {
        size_t written = 0;
        if (!write_some(output, output->data + output->start, output->end - output->start,
                        &written) ||
            !written)
            break;
        output->start += written;
    }
    if (output->start == output->end || output->error)
        output->start = output->end = 0;
}

size_t tl_output_waiting(const struct tl_output *output)
{
    return output->end - output->start;
}

void tl_output_defer(struct tl_output *output, bool deferred)
{
    output->deferred = deferred;
    if (deferred)
        return;
    write_all(output, output->data + output->start, output->end - output->start);
    output->start = output->end = 0;
}

static bool room_make(struct tl_output *output, size_t more)
{
    size_t used = output->end - output->start;
    if (output->end + more <= output->size)
        return true;
    if (output->start) {
        memmove(output->data, output->data + output->start, used);
        output->start = 0;
        output->end = used;
    }
    size_t size = output->size ? output->size : DATA_SIZE_MIN;
    while (size < used + more)
        size *= 2;
    if (size == output->size)
        return true;
    char *data = realloc(output->data, size);
    if (!data)
        return false;
    output->data = data;
    output->size = size;
    return true;
}

static ssize_t stream_write(void *cookie, const char *data, size_t size)
{
    struct tl_output *output = cookie;
    if (!output->error && !output->deferred) {
        write_all(output, data, size);
    } else if (!output->error) {
        if (!room_make(output, size)) {
            output->error = ENOMEM;
        } else {
            memcpy(output->data + output->end, data, size);
            output->end += size;
            tl_output_pump(output);
        }
    }
    if (!output->error)
        return (ssize_t)size;
    errno = output->error;
    return 0; // the stream's error flag is what a run looks at
}

FILE *tl_output_open(struct tl_output *output, const char *path)
{
    struct stat stat;
    *output = (struct tl_output){.fd = STDOUT_FILENO, .owned = path != NULL};
    if (path)
        output->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (output->fd < 0)
        return NULL;
    output->file = !fstat(output->fd, &stat) && S_ISREG(stat.st_mode);
    FILE *stream = fopencookie(output, "w", (cookie_io_functions_t){.write = stream_write});
    if (stream)
        (void)setvbuf(stream, NULL, _IOFBF, STREAM_SIZE);
    else
        (void)tl_output_close(output);
    return stream;
}

int tl_output_close(struct tl_output *output)
{
    if (output->end > output->start)
        tl_output_defer(output, false);
    if (output->owned && close(output->fd) && !output->error)
        output->error = errno;
    free(output->data);
    output->data = NULL;
    output->owned = false;
    return output->error;
}

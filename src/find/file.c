// Reads a file piece by piece into one private range of memory as large as the file.
//
// Not mapped: a file that somebody truncates while we look at it must give an error, never a
// signal. Not read whole either: a program with a gigabyte of debug information costs only the
// pages that are asked for. Invariant: bytes that were handed out never change afterwards, whatever
// happens to the file.
#include "find/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool chunk_loaded(const struct tl_file *file, uint64_t chunk)
{
    return file->loaded[chunk / 8] >> (chunk % 8) & 1;
}

// Reads [off, off + size) whole.
static bool read_whole(struct tl_file *file, uint64_t off, uint64_t size)
{
    while (size > 0) {
        ssize_t got = pread(file->fd, file->bytes + off, (size_t)size, (off_t)off);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        off += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return true;
}

static bool load_chunks(struct tl_file *file, uint64_t first, uint64_t last)
{
    uint64_t chunk = first;
    while (chunk <= last) {
        if (chunk_loaded(file, chunk)) {
            chunk++;
            continue;
        }
        uint64_t end = chunk + 1;
        while (end <= last && !chunk_loaded(file, end))
            end++;
        uint64_t off = chunk * TL_FILE_CHUNK_SIZE;
        uint64_t stop = end * TL_FILE_CHUNK_SIZE;
        if (stop > file->size)
            stop = file->size;
        if (stop - off > TL_FILE_LOADED_MAX - file->loaded_bytes ||
            !read_whole(file, off, stop - off))
            return false;
        file->loaded_bytes += stop - off;
        for (; chunk < end; chunk++)
            file->loaded[chunk / 8] |= (uint8_t)(1u << (chunk % 8));
    }
    return true;
}

int tl_file_open(int fd, const char *path, struct tl_file *out, struct tl_diag *diag)
{
    struct stat st;
    int error = 0;
    struct tl_file file = {.fd = fd};
    if (fstat(fd, &st) != 0)
        error = tl_diag_set(diag, TL_E_SYSTEM, "%s: fstat: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        error = tl_diag_set(diag, TL_E_FORMAT, "%s: not a regular file", path);
    else if (st.st_size <= 0)
        error = tl_diag_set(diag, TL_E_FORMAT, "%s: the file is empty", path);
    else if ((uint64_t)st.st_size > TL_FILE_SIZE_MAX)
        error = tl_diag_set(diag, TL_E_LIMIT, "%s: larger than %llu bytes", path,
                            (unsigned long long)TL_FILE_SIZE_MAX);
    if (error) {
        close(fd);
        return error;
    }
    file.size = (uint64_t)st.st_size;
    file.device = st.st_dev;
    file.inode = st.st_ino;
    file.loaded = calloc(file.size / TL_FILE_CHUNK_SIZE / 8 + 1, 1);
    void *bytes = mmap(NULL, (size_t)file.size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!file.loaded || bytes == MAP_FAILED) {
        if (bytes != MAP_FAILED)
            munmap(bytes, (size_t)file.size);
        free(file.loaded);
        close(fd);
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory for %llu bytes", path,
                           (unsigned long long)file.size);
    }
    file.bytes = bytes;
    *out = file;
    return 0;
}

int tl_file_adopt(uint8_t *bytes, uint64_t size, const char *path, struct tl_file *out,
                  struct tl_diag *diag)
{
    if (!bytes || size == 0) {
        free(bytes);
        return tl_diag_set(diag, TL_E_FORMAT, "%s: the file is empty", path);
    }
    *out = (struct tl_file){.bytes = bytes, .size = size, .fd = -1};
    return 0;
}

void tl_file_deinit(struct tl_file *file)
{
    if (file->fd >= 0) {
        if (file->bytes)
            munmap(file->bytes, (size_t)file->size);
        close(file->fd);
    } else {
        free(file->bytes);
    }
    free(file->loaded);
    *file = (struct tl_file){.fd = -1};
}

const uint8_t *tl_file_at(struct tl_file *file, uint64_t off, uint64_t size)
{
    if (off > file->size || size > file->size - off)
        return NULL;
    if (file->fd >= 0 && size > 0) {
        uint64_t last = (off + size - 1) / TL_FILE_CHUNK_SIZE;
        if (!load_chunks(file, off / TL_FILE_CHUNK_SIZE, last))
            return NULL;
    }
    return file->bytes + off;
}

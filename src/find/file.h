// The bytes of one file, read by pread when they are asked for, under limits. Internal to find.
#ifndef TL_FIND_FILE_H
#define TL_FIND_FILE_H

#include <sys/types.h>

#include "base/diag.h"
#include "base/types.h"

#define TL_FILE_SIZE_MAX ((uint64_t)8 << 30)   // larger files are refused
#define TL_FILE_LOADED_MAX ((uint64_t)2 << 30) // bytes of one file that are ever read
#define TL_FILE_CHUNK_SIZE 65536u              // bytes read at least

struct tl_file {
    uint8_t *bytes; // size bytes of address space; read a chunk at a time
    uint64_t size;
    int fd;          // -1: all bytes are in memory already
    uint8_t *loaded; // bit n: chunk n was read
    uint64_t loaded_bytes;
    uint64_t device, inode; // of fstat; 0 for memory
};

// Takes fd over, also when it fails. Only regular files.
int tl_file_open(int fd, const char *path, struct tl_file *out, struct tl_diag *diag);
// Takes bytes over (from malloc), also when it fails.
int tl_file_adopt(uint8_t *bytes, uint64_t size, const char *path, struct tl_file *out,
                  struct tl_diag *diag);
void tl_file_deinit(struct tl_file *file);
// The size bytes at off, valid until deinit; NULL: outside the file, or it can't be read.
const uint8_t *tl_file_at(struct tl_file *file, uint64_t off, uint64_t size);

#endif

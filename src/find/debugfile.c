// Finds the separate debug file of an image, and unpacks the small one that .gnu_debugdata holds.
//
// Looks by build-id, then by .gnu_debuglink; under the target's root first, where an absolute link
// can't lead out of it. Takes a file only if it is proved to belong: the same build-id, or (without
// one) the CRC that the link names. Reads symbols only, never DWARF. Invariant: nothing from the
// image becomes a path but hex digits and one plain file name.
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "find/image.h"

#define DEBUG_DIR "/usr/lib/debug"
#define DEBUG_PATH_SIZE 4608u                      // PATH_MAX and a little
#define DEBUGDATA_SIZE_MAX ((uint64_t)64 << 20)    // unpacked
#define DEBUGDATA_MEMORY_MAX ((uint64_t)256 << 20) // of the unpacker
#define DEBUGDATA_FIRST_SIZE ((size_t)64 << 10)    // then twice as much, and again

struct link {
    const char *name; // NULL: no .gnu_debuglink
    uint32_t crc;
};

static struct link link_read(const struct tl_image *image)
{
    struct link link = {0};
    struct tl_view view =
        tl_image_section_view(image, tl_image_section_named(image, ".gnu_debuglink"));
    const char *name = tl_view_string(view, 0);
    if (!name || !*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return link;
    if (tl_view_read(view, (strlen(name) + 4) & ~(uint64_t)3, &link.crc, sizeof link.crc))
        link.name = name;
    return link;
}

// root NULL: as the caller sees the path.
static int open_under(const char *root, const char *path)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    if (!root)
        return open(path, flags);
    int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -1;
    struct open_how how = {.flags = (unsigned)flags,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    close(dir);
    return fd;
}

static bool crc_matches(struct tl_image *debug, uint32_t crc)
{
    uint32_t sum = 0;
    for (uint64_t off = 0; off < debug->file->size; off += TL_FILE_CHUNK_SIZE) {
        uint64_t rest = debug->file->size - off;
        size_t size = (size_t)(rest < TL_FILE_CHUNK_SIZE ? rest : TL_FILE_CHUNK_SIZE);
        const uint8_t *bytes = tl_file_at(debug->file, off, size);
        if (!bytes)
            return false;
        sum = lzma_crc32(bytes, size, sum); // the CRC of IEEE 802.3, as .gnu_debuglink has it
    }
    return sum == crc;
}

static bool belongs(const struct tl_image *image, struct tl_image *debug, const struct link *link)
{
    if (debug->machine != image->machine ||
        (debug->file->device == image->file->device && debug->file->inode == image->file->inode))
        return false;
    if (image->build_id_size && debug->build_id_size)
        return image->build_id_size == debug->build_id_size &&
               memcmp(image->build_id, debug->build_id, image->build_id_size) == 0;
    return link && link->name && crc_matches(debug, link->crc);
}

// link NULL: only the build-id proves.
static struct tl_image *try_path(const struct tl_image *image, const char *root, const char *path,
                                 const struct link *link, const char **used)
{
    struct tl_image *debug;
    char *copy;
    int fd = open_under(root, path);
    if (fd < 0 || tl_image_open(fd, path, NULL, &debug, NULL) != 0)
        return NULL;
    if (!belongs(image, debug, link) || !tl_image_section_typed(debug, SHT_SYMTAB) ||
        !(copy = strdup(path))) {
        tl_image_close(debug);
        return NULL;
    }
    free(debug->path);
    debug->path = copy;
    *used = copy;
    return debug;
}

// Under the given directory as we see it, then the standard one under the target's root, then ours.
static struct tl_image *try_dirs(const struct tl_image *image, const char *tail,
                                 const struct link *link, const char **used)
{
    struct {
        const char *root, *dir;
    } const places[] = {{NULL, image->debug_dir}, {image->root, DEBUG_DIR}, {NULL, DEBUG_DIR}};
    struct tl_image *debug = NULL;
    for (size_t i = 0; i < TL_ARRAY_COUNT(places) && !debug; i++) {
        char path[DEBUG_PATH_SIZE];
        if (!places[i].dir)
            continue;
        int size = snprintf(path, sizeof path, "%s/%s", places[i].dir, tail);
        if (size > 0 && (size_t)size < sizeof path)
            debug = try_path(image, places[i].root, path, link, used);
    }
    return debug;
}

static struct tl_image *by_build_id(const struct tl_image *image, const char **used)
{
    char tail[TL_IMAGE_BUILD_ID_MAX * 2 + 32] = ".build-id/";
    size_t at = strlen(tail);
    if (image->build_id_size < 2)
        return NULL;
    for (size_t i = 0; i < image->build_id_size; i++)
        at += (size_t)snprintf(tail + at, sizeof tail - at, i == 0 ? "%02x/" : "%02x",
                               image->build_id[i]);
    (void)snprintf(tail + at, sizeof tail - at, ".debug");
    return try_dirs(image, tail, NULL, used);
}

static struct tl_image *by_link(const struct tl_image *image, const char **used)
{
    struct link link = link_read(image);
    const char *slash = strrchr(image->path, '/');
    int dir_size = slash ? (int)(slash - image->path) : 1;
    const char *dir = slash ? image->path : ".";
    char path[DEBUG_PATH_SIZE];
    struct tl_image *debug = NULL;
    if (!link.name || dir_size >= (int)(sizeof path / 2) ||
        strlen(link.name) >= sizeof path / 2 - 16)
        return NULL;
    for (int i = image->root ? 0 : 1; i < 2 && !debug; i++) {
        const char *root = i == 0 ? image->root : NULL;
        (void)snprintf(path, sizeof path, "%.*s/%s", dir_size, dir, link.name);
        debug = try_path(image, root, path, &link, used);
        if (debug)
            break;
        (void)snprintf(path, sizeof path, "%.*s/.debug/%s", dir_size, dir, link.name);
        debug = try_path(image, root, path, &link, used);
    }
    if (debug)
        return debug;
    (void)snprintf(path, sizeof path, "%.*s/%s", dir_size, dir, link.name);
    return try_dirs(image, path, &link, used);
}

struct tl_image *tl_image_debug_open(const struct tl_image *image, const char **used)
{
    if (image->file->fd < 0)
        return NULL; // bytes in memory name no files
    struct tl_image *debug = by_build_id(image, used);
    return debug ? debug : by_link(image, used);
}

// Grows out until the stream ends. false: damaged, or past a limit.
static bool unpack(struct tl_view packed, uint8_t **out, size_t *out_size)
{
    lzma_stream stream = LZMA_STREAM_INIT;
    uint8_t *bytes = NULL;
    size_t size = 0;
    lzma_ret result = lzma_stream_decoder(&stream, DEBUGDATA_MEMORY_MAX, 0);
    stream.next_in = packed.bytes;
    stream.avail_in = (size_t)packed.size;
    while (result == LZMA_OK) {
        if (stream.avail_out == 0) {
            size_t more = size ? size : DEBUGDATA_FIRST_SIZE;
            uint8_t *grown = size < DEBUGDATA_SIZE_MAX ? realloc(bytes, size + more) : NULL;
            if (!grown)
                break;
            bytes = grown;
            stream.next_out = bytes + size;
            stream.avail_out = more;
            size += more;
        }
        result = lzma_code(&stream, LZMA_FINISH);
    }
    size -= stream.avail_out;
    lzma_end(&stream);
    if (result != LZMA_STREAM_END || size == 0) {
        free(bytes);
        return false;
    }
    *out = bytes;
    *out_size = size;
    return true;
}

struct tl_image *tl_image_debugdata_open(const struct tl_image *image)
{
    struct tl_view packed =
        tl_image_section_view(image, tl_image_section_named(image, ".gnu_debugdata"));
    struct tl_image *inner = NULL;
    uint8_t *bytes;
    size_t size;
    if (packed.size == 0 || !unpack(packed, &bytes, &size))
        return NULL;
    (void)tl_image_open_memory(bytes, size, image->path, &inner, NULL);
    free(bytes);
    return inner;
}

// Which modules the FILE of a probe means.
//
// By the words first (path, soname, base name, "libc" for libc.so.6 or libc-2.31.so, patterns),
// then by what the words lead to: the same device and inode, and, for a path only, the same
// build-id. A path that names a loaded module means that module even if the file on disk is another
// one by now. Looks at files, changes nothing.
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "find/match.h"
#include "find/modules.h"

#define CHOOSE_PATH_SIZE 4608u // PATH_MAX and a little

// "libc" means "libc.so.6" and "libc-2.31.so".
static bool stem_equals(const char *stem, const char *name)
{
    size_t size = strlen(stem);
    if (strncmp(stem, name, size) != 0)
        return false;
    const char *rest = name + size;
    return strncmp(rest, ".so", 3) == 0 ||
           (rest[0] == '-' && isdigit((unsigned char)rest[1]) && strstr(rest, ".so"));
}

static bool words_match(const struct tl_module *module, const char *file)
{
    const char *soname = tl_image_soname(module->image), *base = tl_path_base(module->path);
    if (tl_pattern_wild(file))
        return tl_glob(file, module->path) || tl_glob(file, base) ||
               (soname && tl_glob(file, soname));
    if (strcmp(file, module->path) == 0)
        return true;
    if (strchr(file, '/'))
        return false;
    return strcmp(file, base) == 0 || stem_equals(file, base) ||
           (soname && (strcmp(file, soname) == 0 || stem_equals(file, soname)));
}

// Opens path as the target sees it, or as we do.
static int open_as(pid_t pid, const char *path, bool target_view)
{
    char full[CHOOSE_PATH_SIZE];
    if (!target_view)
        return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int size = snprintf(full, sizeof full, "/proc/%d/root%s", (int)pid, path);
    if (pid == 0 || path[0] != '/' || size < 0 || (size_t)size >= sizeof full)
        return -1;
    return open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

// Marks modules that are the file behind fd (which it closes).
static size_t mark_identical(const struct tl_modules *modules, int fd, const char *path,
                             bool by_build, bool *chosen, char **note)
{
    struct stat st;
    struct tl_image *image = NULL;
    size_t count = 0;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return 0;
    }
    for (size_t i = 0; i < modules->count; i++) {
        const struct tl_file *file = modules->module[i].image->file;
        if (file->device == st.st_dev && file->inode == st.st_ino) {
            chosen[i] = true;
            count++;
        }
    }
    if (count > 0 || !by_build) {
        close(fd);
        return count;
    }
    if (tl_image_open(fd, path, NULL, &image, NULL) != 0)
        return 0;
    for (size_t i = 0; i < modules->count && image->build_id_size > 0; i++) {
        const struct tl_image *other = modules->module[i].image;
        if (other->build_id_size != image->build_id_size ||
            memcmp(other->build_id, image->build_id, image->build_id_size) != 0)
            continue;
        char text[CHOOSE_PATH_SIZE];
        (void)snprintf(text, sizeof text, "%s has the same build-id as %s", path,
                       modules->module[i].path);
        (void)tl_text_append(note, "; ", text);
        chosen[i] = true;
        count++;
    }
    tl_image_close(image);
    return count;
}

// A bare word is also a program of PATH, as the shell would find it.
static size_t mark_program(const struct tl_modules *modules, const char *file, bool *chosen,
                           char **note)
{
    const char *dirs = getenv("PATH");
    size_t count = 0;
    while (dirs && *dirs && count == 0) {
        size_t size = strcspn(dirs, ":");
        char path[CHOOSE_PATH_SIZE];
        int length = snprintf(path, sizeof path, "%.*s/%s", (int)size, dirs, file);
        int fd =
            size > 0 && length > 0 && (size_t)length < sizeof path ? open_as(0, path, false) : -1;
        if (fd >= 0)
            count = mark_identical(modules, fd, path, false, chosen, note);
        dirs += size + (dirs[size] == ':');
    }
    return count;
}

size_t tl_modules_choose(const struct tl_modules *modules, const char *file, bool *chosen,
                         char **note)
{
    size_t count = 0;
    for (size_t i = 0; i < modules->count; i++) {
        chosen[i] = words_match(&modules->module[i], file);
        count += chosen[i];
    }
    if (count > 0 || tl_pattern_wild(file))
        return count;
    for (int view = 1; view >= 0 && count == 0; view--) {
        int fd = open_as(modules->pid, file, view == 1);
        if (fd >= 0)
            count = mark_identical(modules, fd, file, strchr(file, '/'), chosen, note);
    }
    if (count == 0 && !strchr(file, '/'))
        count = mark_program(modules, file, chosen, note);
    return count;
}

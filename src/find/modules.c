// The modules of a process, from its maps, or the one module that a file is.
//
// A module is a file (device and inode) that is mapped executable, at one bias; the same file
// loaded twice is two modules. Files are opened through the process, so a replaced or a foreign
// file is never taken for the one that runs. What can't be read is noted and left out. Invariant:
// module 0 is the program, if it was found at all.
#include "find/modules.h"

// What an earlier run left in the target (agent/layout.h) is no module of the program's.
#define TL_CODE_MAP_PREFIX "/memfd:trapless:"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MODULES_MAX 4096u
#define MODULE_PATH_SIZE 4608u // PATH_MAX and a little
#define DELETED " (deleted)"   // what the kernel prints behind the path of an unlinked file

const char *tl_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool tl_text_append(char **list, const char *separator, const char *text)
{
    size_t used = *list ? strlen(*list) : 0;
    size_t gap = used ? strlen(separator) : 0, size = strlen(text);
    char *grown = realloc(*list, used + gap + size + 1);
    if (!grown)
        return false;
    (void)snprintf(grown + used, gap + size + 1, "%s%s", gap ? separator : "", text);
    *list = grown;
    return true;
}

static void note_skipped(struct tl_modules *modules, const char *path, const char *reason)
{
    char line[MODULE_PATH_SIZE + TL_DIAG_SIZE];
    (void)snprintf(line, sizeof line, "%s: %s", path, reason);
    (void)tl_text_append(&modules->notes, "\n", line);
}

static bool map_of_file(const struct tl_map *map, const struct tl_map *file)
{
    return map->inode == file->inode && map->dev_major == file->dev_major &&
           map->dev_minor == file->dev_minor;
}

// Whether every executable segment lies where bias says.
static bool bias_fits(const struct tl_image *image, const struct tl_maps *maps,
                      const struct tl_map *file, uint64_t bias)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct tl_segment *segment = &image->segment[i];
        if (!(segment->prot & TL_PROT_EXEC) || segment->file_size == 0)
            continue;
        tl_addr start = segment->vaddr + bias;
        const struct tl_map *map = tl_maps_at(maps, start);
        if (!map || !map_of_file(map, file) ||
            map->file_off + (start - map->start) != segment->file_off)
            return false;
    }
    return true;
}

// The bias at which map holds a part of an executable segment.
static bool bias_of(const struct tl_image *image, const struct tl_maps *maps,
                    const struct tl_map *map, uint64_t *out)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct tl_segment *segment = &image->segment[i];
        uint64_t start = tl_page_down(segment->file_off);
        if (!(segment->prot & TL_PROT_EXEC) || segment->file_size == 0 || map->file_off < start ||
            map->file_off >= segment->file_off + segment->file_size)
            continue;
        uint64_t bias = map->start - (segment->vaddr + (map->file_off - segment->file_off));
        if (bias_fits(image, maps, map, bias)) {
            *out = bias;
            return true;
        }
    }
    return false;
}

// The path without the kernel's mark of an unlinked file; a file that is really called so keeps its
// name.
static char *path_as_seen(pid_t pid, const struct tl_map *map, const struct tl_image *image)
{
    size_t size = strlen(map->path), mark = strlen(DELETED);
    if (size > mark && strcmp(map->path + size - mark, DELETED) == 0) {
        char path[MODULE_PATH_SIZE];
        struct stat st;
        int length = snprintf(path, sizeof path, "/proc/%d/root%s", (int)pid, map->path);
        bool real = length > 0 && (size_t)length < sizeof path && stat(path, &st) == 0 &&
                    st.st_dev == image->file->device && st.st_ino == image->file->inode;
        if (!real)
            return strndup(map->path, size - mark);
    }
    return strdup(map->path);
}

static int add_module(struct tl_modules *modules, struct tl_image *image, char *path, uint64_t bias,
                      const struct tl_map *map, struct tl_diag *diag)
{
    if (!path || modules->count >= MODULES_MAX ||
        !tl_array_grow(&modules->module, &modules->capacity, modules->count + 1,
                       sizeof *modules->module)) {
        tl_image_close(image);
        free(path);
        return tl_diag_set(diag, TL_E_LIMIT, "no room for more than %zu modules", modules->count);
    }
    struct tl_module *module = &modules->module[modules->count++];
    *module = (struct tl_module){.image = image, .path = path, .bias = (int64_t)bias};
    if (map) {
        module->inode = map->inode;
        module->dev_major = map->dev_major;
        module->dev_minor = map->dev_minor;
    } else {
        module->inode = image->file->inode;
        module->dev_major = major(image->file->device);
        module->dev_minor = minor(image->file->device);
    }
    return 0;
}

static bool module_known(const struct tl_modules *modules, const struct tl_map *map)
{
    for (size_t i = 0; i < modules->count; i++) {
        const struct tl_module *module = &modules->module[i];
        if (module->inode != map->inode || module->dev_major != map->dev_major ||
            module->dev_minor != map->dev_minor)
            continue;
        for (size_t j = 0; j < module->image->segment_count; j++) {
            const struct tl_segment *segment = &module->image->segment[j];
            tl_addr start = tl_page_down(segment->vaddr + (uint64_t)module->bias);
            if (segment->prot & TL_PROT_EXEC && map->start >= start &&
                map->start < segment->vaddr + (uint64_t)module->bias + segment->memory_size)
                return true;
        }
    }
    return false;
}

static int add_mapped(struct tl_modules *modules, const struct tl_maps *maps,
                      const struct tl_map *map, const struct tl_image_options *options,
                      struct tl_diag *diag)
{
    struct tl_diag reason;
    struct tl_image *image;
    char *seen = NULL;
    uint64_t bias;
    int fd = tl_proc_open_mapped(modules->pid, map, &reason);
    if (fd < 0) {
        note_skipped(modules, map->path, reason.text);
        return 0;
    }
    // The path without the mark is the one that debug files are looked for beside.
    size_t size = strlen(map->path), mark = strlen(DELETED);
    if (size > mark && strcmp(map->path + size - mark, DELETED) == 0)
        seen = strndup(map->path, size - mark);
    int error = tl_image_open(fd, seen ? seen : map->path, options, &image, &reason);
    free(seen);
    if (error) {
        note_skipped(modules, map->path, reason.text);
        return 0;
    }
    if (!bias_of(image, maps, map, &bias)) {
        note_skipped(modules, map->path, "is mapped in a way that its program headers don't say");
        tl_image_close(image);
        return 0;
    }
    return add_module(modules, image, path_as_seen(modules->pid, map, image), bias, map, diag);
}

// --- which module is the program ---

static bool module_holds(const struct tl_module *module, tl_addr addr)
{
    return tl_image_segment_at(module->image, addr - (uint64_t)module->bias) != NULL;
}

// The one that holds the entry point the kernel was told of. If that is a dynamic linker that was
// started by name (ld.so PROGRAM), the program is the other one that asks for an interpreter and
// has no name of its own.
static size_t find_main(const struct tl_modules *modules)
{
    tl_addr entry = tl_proc_auxv(modules->pid, AT_ENTRY);
    for (size_t i = 0; i < modules->count; i++) {
        if (!entry || !module_holds(&modules->module[i], entry))
            continue;
        if (modules->module[i].image->interpreter || !tl_image_soname(modules->module[i].image))
            return i;
        for (size_t j = 0; j < modules->count; j++) {
            const struct tl_image *image = modules->module[j].image;
            if (image->interpreter && !tl_image_soname(image))
                return j;
        }
        return i;
    }
    return modules->count;
}

static void put_main_first(struct tl_modules *modules)
{
    size_t index = find_main(modules);
    if (index == modules->count || !modules->module)
        return;
    struct tl_module found = modules->module[index];
    found.main = true;
    memmove(&modules->module[1], &modules->module[0], index * sizeof found);
    modules->module[0] = found;
}

static size_t find_needed(const struct tl_modules *modules, const char *name)
{
    for (size_t i = 0; i < modules->count; i++) {
        const char *soname = tl_image_soname(modules->module[i].image);
        if ((soname && strcmp(soname, name) == 0) ||
            strcmp(tl_path_base(modules->module[i].path), tl_path_base(name)) == 0)
            return i;
    }
    return modules->count;
}

// Breadth first over DT_NEEDED, then the rest as mapped.
static bool put_in_order(struct tl_modules *modules)
{
    bool *placed = calloc(modules->count + 1, sizeof *placed);
    modules->order = calloc(modules->count + 1, sizeof *modules->order);
    if (!placed || !modules->order) {
        free(placed);
        return false;
    }
    size_t count = 0;
    for (size_t next = 0; next < modules->count; next++) {
        if (!placed[next]) { // the program; later what nothing names
            placed[next] = true;
            modules->order[count++] = next;
        }
        for (size_t at = next == 0 ? 0 : count - 1; at < count; at++) {
            const struct tl_dynamic *dynamic = &modules->module[modules->order[at]].image->dynamic;
            for (size_t i = 0; i < dynamic->needed_count; i++) {
                size_t found = find_needed(modules, dynamic->needed[i]);
                if (found < modules->count && !placed[found]) {
                    placed[found] = true;
                    modules->order[count++] = found;
                }
            }
        }
    }
    free(placed);
    return true;
}

// --- life ---

int tl_modules_of_process(pid_t pid, const struct tl_maps *maps,
                          const struct tl_image_options *options, struct tl_modules **out,
                          struct tl_diag *diag)
{
    char root[64];
    struct tl_image_options own = options ? *options : (struct tl_image_options){0};
    struct tl_modules *modules = calloc(1, sizeof *modules);
    int error = 0;
    if (!modules)
        return tl_diag_set(diag, TL_E_NOMEM, "pid %d: no memory", (int)pid);
    modules->pid = pid;
    (void)snprintf(root, sizeof root, "/proc/%d/root", (int)pid);
    if (!own.root)
        own.root = root;
    for (size_t i = 0; i < maps->count && !error; i++) {
        const struct tl_map *map = &maps->map[i];
        if (strcmp(map->path, "[vdso]") == 0)
            modules->vdso = (struct tl_range){map->start, map->end};
        // Devices are no files, and opening one may do something.
        bool device =
            strncmp(map->path, "/dev/", 5) == 0 && strncmp(map->path, "/dev/shm/", 9) != 0;
        bool own_code = strncmp(map->path, TL_CODE_MAP_PREFIX, strlen(TL_CODE_MAP_PREFIX)) == 0;
        if (map->prot & TL_PROT_EXEC && map->inode && map->path[0] == '/' && !device && !own_code &&
            !module_known(modules, map))
            error = add_mapped(modules, maps, map, &own, diag);
    }
    if (!error && kill(pid, 0) != 0 && errno == ESRCH)
        error = tl_diag_set(diag, TL_E_GONE, "pid %d: the process has ended", (int)pid);
    if (!error && modules->count == 0)
        error =
            tl_diag_set(diag, TL_E_UNSUPPORTED, "pid %d: no program file can be read: %.300s",
                        (int)pid, modules->notes ? modules->notes : "none is mapped executable");
    if (!error) {
        put_main_first(modules);
        if (!put_in_order(modules))
            error = tl_diag_set(diag, TL_E_NOMEM, "pid %d: no memory", (int)pid);
    }
    if (error) {
        tl_modules_destroy(modules);
        return error;
    }
    *out = modules;
    return 0;
}

int tl_modules_of_file(const char *path, const struct tl_image_options *options,
                       struct tl_modules **out, struct tl_diag *diag)
{
    struct tl_image *image;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return tl_diag_set(diag, errno == EACCES ? TL_E_PERM : TL_E_SYSTEM, "%s: open: %s", path,
                           strerror(errno));
    int error = tl_image_open(fd, path, options, &image, diag);
    if (error)
        return error;
    struct tl_modules *modules = calloc(1, sizeof *modules);
    if (!modules) {
        tl_image_close(image);
        return tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", path);
    }
    error = add_module(modules, image, strdup(path), 0, NULL, diag);
    if (!error && modules->module) {
        modules->module[0].main = true;
        if (!put_in_order(modules))
            error = tl_diag_set(diag, TL_E_NOMEM, "%s: no memory", path);
    }
    if (error) {
        tl_modules_destroy(modules);
        return error;
    }
    *out = modules;
    return 0;
}

static void image_release(struct tl_image *image)
{
    if (image->sharers) {
        image->sharers--;
        return;
    }
    tl_analysis_destroy(image->analysis); // borrows from the image
    tl_image_close(image);
}

void tl_modules_destroy(struct tl_modules *modules)
{
    if (!modules)
        return;
    for (size_t i = 0; i < modules->count; i++) {
        image_release(modules->module[i].image);
        free(modules->module[i].path);
    }
    free(modules->module);
    free(modules->order);
    free(modules->notes);
    free(modules);
}

size_t tl_modules_count(const struct tl_modules *modules)
{
    return modules->count;
}

struct tl_module *tl_modules_get(struct tl_modules *modules, size_t index)
{
    return index < modules->count ? &modules->module[index] : NULL;
}

const char *tl_modules_notes(const struct tl_modules *modules)
{
    return modules->notes ? modules->notes : "";
}

int tl_module_analyse(struct tl_module *module, struct tl_diag *diag)
{
    const struct tl_module_facts *facts;
    struct tl_image *image = module->image;
    if (module->analysis)
        return 0;
    int error = image->analysis ? 0 : tl_image_facts(image, &facts, diag);
    if (!error && !image->analysis)
        error = tl_analysis_create(facts, &image->analysis, diag);
    if (!error)
        module->analysis = image->analysis;
    return error;
}

// The same file, not written to between the two times it was opened.
static bool same_content(const struct tl_image *a, const struct tl_image *b)
{
    struct stat left, right;
    return a->file->fd >= 0 && b->file->fd >= 0 && a->file->device == b->file->device &&
           a->file->inode == b->file->inode && a->file->size == b->file->size &&
           fstat(a->file->fd, &left) == 0 && fstat(b->file->fd, &right) == 0 &&
           left.st_mtim.tv_sec == right.st_mtim.tv_sec &&
           left.st_mtim.tv_nsec == right.st_mtim.tv_nsec;
}

void tl_modules_share(struct tl_modules *modules, const struct tl_modules *older)
{
    for (size_t i = 0; i < modules->count; i++) {
        struct tl_module *module = &modules->module[i];
        if (module->analysis || module->image->sharers || tl_image_begun(module->image))
            continue;
        for (size_t k = 0; k < older->count; k++) {
            struct tl_image *image = older->module[k].image;
            if (image == module->image || !same_content(image, module->image))
                continue;
            // Debug files that are still to be found are looked for where the living process sees them.
            free(image->root);
            image->root = module->image->root;
            module->image->root = NULL;
            image_release(module->image);
            module->image = image;
            image->sharers++;
            break;
        }
    }
}

// Reads and parses /proc: maps, status, stat, auxv, and the files behind mappings.
//
// Does not use ptrace and keeps no state. Everything it reads is foreign: every size has a limit,
// and a malformed line is an error, never a guess. Invariant: a struct tl_maps that was handed out
// is sorted, its ranges are not empty and do not overlap.
#include "attach/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MAPS_TEXT_MAX (256u << 20) // far above vm.max_map_count's default times a line
#define MAPS_COUNT_MAX (2u << 20)
#define MAPS_READ_TRIES 4           // a target that maps meanwhile may give an inconsistent text
#define STATUS_TEXT_MAX (64u << 10) // Groups may be long
#define AUXV_SIZE_MAX 4096u
#define READ_FIRST_SIZE 4096u

// linux/sched.h, in field 9 of /proc/PID/stat. Workers of io_uring have had the first bit
// since 5.12.
#define PF_IO_WORKER 0x00000010u
#define PF_USER_WORKER 0x00004000u // Linux 6.4; no other meaning in use before
#define PF_KTHREAD 0x00200000u

// ---- files --------------------------------------------------------------------------------------

static int file_error(const char *path, struct tl_diag *diag)
{
    int error = errno;
    if (error == ENOENT || error == ESRCH)
        return tl_diag_set(diag, TL_E_GONE, "%s: not there", path);
    if (error == EACCES || error == EPERM)
        return tl_diag_set(diag, TL_E_PERM, "%s: no permission to read it", path);
    return tl_diag_set(diag, TL_E_SYSTEM, "%s: %s", path, strerror(error));
}

// Reads from fd to its end into a growing buffer.
static int fd_read_all(int fd, const char *path, size_t size_max, char **out, size_t *size,
                       struct tl_diag *diag)
{
    size_t room = READ_FIRST_SIZE, used = 0;
    char *buf = malloc(room + 1);
    if (!buf)
        return tl_diag_set(diag, TL_E_NOMEM, "%s: out of memory", path);
    for (;;) {
        if (used == room) {
            char *larger = room >= size_max ? NULL : realloc(buf, room * 2 + 1);
            if (!larger) {
                free(buf);
                return tl_diag_set(diag, TL_E_LIMIT, "%s: larger than %zu bytes", path, size_max);
            }
            buf = larger;
            room *= 2;
        }
        ssize_t got = read(fd, buf + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int error = file_error(path, diag);
            free(buf);
            return error;
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    buf[used] = '\0';
    *out = buf;
    *size = used;
    return 0;
}

int tl_proc_read_file(const char *path, size_t size_max, char **out, size_t *size,
                      struct tl_diag *diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return file_error(path, diag);
    int error = fd_read_all(fd, path, size_max, out, size, diag);
    close(fd);
    return error;
}

// ---- text ---------------------------------------------------------------------------------------

// A run of text that is being taken apart; never reads at or behind end.
struct cursor {
    const char *at, *end;
};

static bool cursor_skip(struct cursor *cursor, char c)
{
    if (cursor->at == cursor->end || *cursor->at != c)
        return false;
    cursor->at++;
    return true;
}

static void cursor_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t'))
        cursor->at++;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return 255;
}

// One unsigned number; false: no digit, or it does not fit.
static bool cursor_number(struct cursor *cursor, unsigned base, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    const char *start = cursor->at;
    for (; cursor->at < cursor->end; cursor->at++) {
        unsigned digit = (unsigned)digit_value(*cursor->at);
        if (digit >= base)
            break;
        if (value > (max - digit) / base)
            return false;
        value = value * base + digit;
    }
    *out = value;
    return cursor->at > start;
}

static bool cursor_line(struct cursor *text, struct cursor *line)
{
    if (text->at == text->end)
        return false;
    const char *stop = memchr(text->at, '\n', (size_t)(text->end - text->at));
    line->at = text->at;
    line->end = stop ? stop : text->end;
    text->at = stop ? stop + 1 : text->end;
    return true;
}

// ---- maps ---------------------------------------------------------------------------------------

// Of the characters in a path the kernel escapes the newline only (seq_path, Linux 2.6 to 6.18), as
// \012. A backslash of the file's own stays single, so no other escape may be undone.
static char *path_copy(const char *text, size_t size)
{
    char *out = malloc(size + 1);
    if (!out)
        return NULL;
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        if (size - i >= 4 && memcmp(text + i, "\\012", 4) == 0) {
            out[used++] = '\n';
            i += 3;
        } else {
            out[used++] = text[i];
        }
    }
    out[used] = '\0';
    return out;
}

static bool map_prot(struct cursor *line, uint8_t *prot)
{
    static const struct {
        char letter;
        uint8_t bit;
    } letters[] = {{'r', TL_PROT_READ}, {'w', TL_PROT_WRITE}, {'x', TL_PROT_EXEC}};
    *prot = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(letters); i++) {
        if (cursor_skip(line, letters[i].letter))
            *prot |= letters[i].bit;
        else if (!cursor_skip(line, '-'))
            return false;
    }
    if (cursor_skip(line, 's'))
        *prot |= TL_PROT_SHARED;
    else if (!cursor_skip(line, 'p'))
        return false;
    return true;
}

// "start-end rwxp offset major:minor inode    path". All but the path; false: malformed.
static bool map_numbers(struct cursor *line, struct tl_map *map)
{
    uint64_t major, minor;
    if (!cursor_number(line, 16, UINT64_MAX, &map->start) || !cursor_skip(line, '-') ||
        !cursor_number(line, 16, UINT64_MAX, &map->end) || !cursor_skip(line, ' ') ||
        !map_prot(line, &map->prot) || !cursor_skip(line, ' ') ||
        !cursor_number(line, 16, UINT64_MAX, &map->file_off) || !cursor_skip(line, ' ') ||
        !cursor_number(line, 16, UINT32_MAX, &major) || !cursor_skip(line, ':') ||
        !cursor_number(line, 16, UINT32_MAX, &minor) || !cursor_skip(line, ' ') ||
        !cursor_number(line, 10, UINT64_MAX, &map->inode))
        return false;
    map->dev_major = (uint32_t)major;
    map->dev_minor = (uint32_t)minor;
    if (line->at < line->end && *line->at != ' ')
        return false;
    return map->start < map->end;
}

static int maps_append(struct tl_maps *maps, size_t *room, const struct tl_map *map,
                       const struct cursor *path)
{
    if (maps->count == MAPS_COUNT_MAX)
        return TL_E_LIMIT;
    if (maps->count == *room) {
        size_t larger_room = *room ? *room * 2 : 64;
        struct tl_map *larger = realloc(maps->map, larger_room * sizeof *larger);
        if (!larger)
            return TL_E_NOMEM;
        maps->map = larger;
        *room = larger_room;
    }
    struct tl_map *slot = &maps->map[maps->count];
    *slot = *map;
    slot->path = path_copy(path->at, (size_t)(path->end - path->at));
    if (!slot->path)
        return TL_E_NOMEM;
    maps->count++;
    return 0;
}

int tl_maps_parse(const char *text, size_t size, struct tl_maps *out, struct tl_diag *diag)
{
    struct cursor rest = {text, text + size}, line;
    struct tl_maps maps = {0};
    size_t room = 0, number = 0;
    tl_addr last_end = 0;
    int error = 0;
    while (!error && cursor_line(&rest, &line)) {
        struct tl_map map = {0};
        number++;
        if (!map_numbers(&line, &map) || map.start < last_end) {
            error = TL_E_FORMAT;
            break;
        }
        last_end = map.end;
        cursor_blanks(&line);
        error = maps_append(&maps, &room, &map, &line);
    }
    if (error) {
        tl_maps_deinit(&maps);
        if (error == TL_E_FORMAT)
            return tl_diag_set(diag, error, "memory map: line %zu is malformed", number);
        return tl_diag_set(diag, error, "memory map: no room for line %zu", number);
    }
    *out = maps;
    return 0;
}

int tl_maps_read(pid_t pid, struct tl_maps *out, struct tl_diag *diag)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    int error = TL_E_FORMAT;
    for (int i = 0; i < MAPS_READ_TRIES && error == TL_E_FORMAT; i++) {
        char *text;
        size_t size;
        error = tl_proc_read_file(path, MAPS_TEXT_MAX, &text, &size, diag);
        if (error)
            return error;
        error = tl_maps_parse(text, size, out, diag);
        free(text);
    }
    return error;
}

void tl_maps_deinit(struct tl_maps *maps)
{
    for (size_t i = 0; i < maps->count; i++)
        free(maps->map[i].path);
    free(maps->map);
    *maps = (struct tl_maps){0};
}

const struct tl_map *tl_maps_at(const struct tl_maps *maps, tl_addr addr)
{
    size_t low = 0, high = maps->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct tl_map *map = &maps->map[middle];
        if (addr < map->start)
            high = middle;
        else if (addr >= map->end)
            low = middle + 1;
        else
            return map;
    }
    return NULL;
}

// ---- status and stat ----------------------------------------------------------------------------

enum status_key {
    KEY_STATE,
    KEY_TGID,
    KEY_PPID,
    KEY_TRACER,
    KEY_UID,
    KEY_THREADS,
    KEY_SECCOMP,
    KEY_LOCKED,
    KEY_SIG_PENDING,
    KEY_SIG_SHARED,
    KEY_SIG_BLOCKED,
    KEY_SIG_IGNORED,
    KEY_SIG_CAUGHT,
    KEY_FEATURES,
    KEY_INNER,
    KEY_NAME,
    KEY_COUNT
};

static const char *const status_keys[KEY_COUNT] = {
    [KEY_STATE] = "State:",
    [KEY_TGID] = "Tgid:",
    [KEY_PPID] = "PPid:",
    [KEY_TRACER] = "TracerPid:",
    [KEY_UID] = "Uid:",
    [KEY_THREADS] = "Threads:",
    [KEY_SECCOMP] = "Seccomp:",
    [KEY_LOCKED] = "VmLck:",
    [KEY_SIG_PENDING] = "SigPnd:",
    [KEY_SIG_SHARED] = "ShdPnd:",
    [KEY_SIG_BLOCKED] = "SigBlk:",
    [KEY_SIG_IGNORED] = "SigIgn:",
    [KEY_SIG_CAUGHT] = "SigCgt:",
    [KEY_FEATURES] = "x86_Thread_features:",
    [KEY_INNER] = "NSpid:",
    [KEY_NAME] = "Name:",
};

static bool status_number(struct cursor *line, unsigned base, uint64_t max, uint64_t *out)
{
    cursor_blanks(line);
    return cursor_number(line, base, max, out);
}

static void status_name(const struct cursor *line, struct tl_proc_status *out)
{
    size_t size = (size_t)(line->end - line->at);
    if (size > sizeof out->name - 1)
        size = sizeof out->name - 1;
    memcpy(out->name, line->at, size);
    out->name[size] = '\0';
}

static bool word_found(const struct cursor *line, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = line->at; (size_t)(line->end - at) >= size; at++) {
        if (memcmp(at, word, size) == 0)
            return true;
    }
    return false;
}

// Takes the value of one line. False: malformed.
static bool status_value(enum status_key key, struct cursor *line, struct tl_proc_status *out)
{
    uint64_t first, second;
    cursor_blanks(line);
    switch (key) {
    case KEY_NAME:
        status_name(line, out);
        return true;
    case KEY_STATE:
        out->state = line->at < line->end ? *line->at : '\0';
        return out->state != '\0';
    case KEY_FEATURES: // a line like "shstk wrss" (Linux 6.6, arch/x86/kernel/cpu/proc.c)
        out->shadow_stack = word_found(line, "shstk");
        return true;
    case KEY_INNER: // outermost first (Linux 4.1, fs/proc/array.c)
        for (first = 0; line->at < line->end; cursor_blanks(line)) {
            if (!cursor_number(line, 10, INT_MAX, &first))
                return false;
        }
        out->inner_id = (pid_t)first;
        return true;
    case KEY_UID:
        if (!status_number(line, 10, UINT32_MAX, &first) ||
            !status_number(line, 10, UINT32_MAX, &second))
            return false;
        out->uid_real = (uid_t)first;
        out->uid_effective = (uid_t)second;
        return true;
    case KEY_SIG_PENDING:
        return status_number(line, 16, UINT64_MAX, &out->sig_pending);
    case KEY_SIG_SHARED:
        return status_number(line, 16, UINT64_MAX, &out->sig_shared_pending);
    case KEY_SIG_BLOCKED:
        return status_number(line, 16, UINT64_MAX, &out->sig_blocked);
    case KEY_SIG_IGNORED:
        return status_number(line, 16, UINT64_MAX, &out->sig_ignored);
    case KEY_SIG_CAUGHT:
        return status_number(line, 16, UINT64_MAX, &out->sig_caught);
    case KEY_LOCKED: // this line and its neighbours are there only with an address space
        out->memory = true;
        return status_number(line, 10, UINT64_MAX, &out->locked_kib);
    default:
        break;
    }
    if (!status_number(line, 10, INT_MAX, &first))
        return false;
    *(key == KEY_TGID      ? &out->tgid
      : key == KEY_PPID    ? &out->parent
      : key == KEY_TRACER  ? &out->tracer
      : key == KEY_THREADS ? &out->threads
                           : &out->seccomp) = (int)first;
    return true;
}

int tl_proc_status_parse(const char *text, size_t size, struct tl_proc_status *out,
                         struct tl_diag *diag)
{
    struct cursor rest = {text, text + size}, line;
    struct tl_proc_status status = *out;
    unsigned seen = 0;
    while (cursor_line(&rest, &line)) {
        for (unsigned key = 0; key < KEY_COUNT; key++) {
            size_t key_size = strlen(status_keys[key]);
            if ((size_t)(line.end - line.at) < key_size ||
                memcmp(line.at, status_keys[key], key_size) != 0)
                continue;
            line.at += key_size;
            if (!status_value((enum status_key)key, &line, &status))
                return tl_diag_set(diag, TL_E_FORMAT, "process status: malformed line \"%s\"",
                                   status_keys[key]);
            seen |= 1u << key;
            break;
        }
    }
    // Seccomp, VmLck and the features may be absent; the rest never is.
    unsigned needed = 1u << KEY_STATE | 1u << KEY_TGID | 1u << KEY_TRACER | 1u << KEY_UID;
    if ((seen & needed) != needed)
        return tl_diag_set(diag, TL_E_FORMAT, "process status: a line is missing");
    *out = status;
    return 0;
}

// Fields are counted from 1, after proc(5). The name, field 2, may hold anything, ')' included.
int tl_proc_stat_parse(const char *text, size_t size, struct tl_proc_status *out,
                       struct tl_diag *diag)
{
    enum { FIELD_AFTER_NAME = 3, FIELD_FLAGS = 9, FIELD_START = 22 };
    const char *close_paren = memrchr(text, ')', size);
    struct cursor rest = {close_paren ? close_paren + 1 : text + size, text + size};
    uint64_t flags = 0, start = 0;
    bool found = false;
    for (int field = FIELD_AFTER_NAME; field <= FIELD_START && !found; field++) {
        if (!cursor_skip(&rest, ' '))
            break;
        if (field == FIELD_FLAGS && !cursor_number(&rest, 10, UINT64_MAX, &flags))
            break;
        if (field == FIELD_START)
            found = cursor_number(&rest, 10, UINT64_MAX, &start);
        while (rest.at < rest.end && *rest.at != ' ')
            rest.at++;
    }
    if (!found)
        return tl_diag_set(diag, TL_E_FORMAT, "process stat line: malformed");
    out->kernel_thread = (flags & PF_KTHREAD) != 0;
    out->user_worker = (flags & (PF_IO_WORKER | PF_USER_WORKER)) != 0;
    out->start_time = start;
    return 0;
}

int tl_proc_status_read(pid_t pid, struct tl_proc_status *out, struct tl_diag *diag)
{
    char path[64], *text;
    size_t size;
    struct tl_proc_status status = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int error = tl_proc_read_file(path, STATUS_TEXT_MAX, &text, &size, diag);
    if (error)
        return error;
    error = tl_proc_status_parse(text, size, &status, diag);
    free(text);
    if (error)
        return error;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    error = tl_proc_read_file(path, STATUS_TEXT_MAX, &text, &size, diag);
    if (error)
        return error;
    error = tl_proc_stat_parse(text, size, &status, diag);
    free(text);
    if (!error)
        *out = status;
    return error;
}

bool tl_proc_read_memory(pid_t pid, tl_addr addr, void *buf, size_t size)
{
    struct iovec here = {buf, size}, there = {(void *)(uintptr_t)addr, size};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

uint64_t tl_proc_auxv(pid_t pid, unsigned long type)
{
    char path[64], *text;
    size_t size;
    uint64_t value = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/auxv", (int)pid);
    if (tl_proc_read_file(path, AUXV_SIZE_MAX, &text, &size, NULL) != 0)
        return 0;
    for (size_t at = 0; at + 16 <= size; at += 16) {
        uint64_t pair[2];
        memcpy(pair, text + at, sizeof pair);
        if (pair[0] == type) {
            value = pair[1];
            break;
        }
    }
    free(text);
    return value;
}

// ---- the file behind a mapping ------------------------------------------------------------------

enum match { MATCH_NONE, MATCH_INODE, MATCH_FULL };

// Whether fd is the mapping's file. On btrfs and overlayfs stat gives another device than maps
// does, so there the inode alone is the best that can be had.
static enum match fd_match(int fd, const struct tl_map *map)
{
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_ino != map->inode)
        return MATCH_NONE;
    if (major(st.st_dev) == map->dev_major && minor(st.st_dev) == map->dev_minor)
        return MATCH_FULL;
    if (fstatfs(fd, &fs) == 0 &&
        (fs.f_type == OVERLAYFS_SUPER_MAGIC || (unsigned long)fs.f_type == BTRFS_SUPER_MAGIC))
        return MATCH_INODE;
    return MATCH_NONE;
}

// Opens path inside the target's root directory: symbolic links in it can't lead out of that root.
static int open_in_root(pid_t pid, const char *path)
{
    char root[64];
    (void)snprintf(root, sizeof root, "/proc/%d/root", (int)pid);
    int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -1;
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS) // before Linux 5.6
        fd = openat(dir, path[0] == '/' ? path + 1 : path,
                    O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    close(dir);
    return fd;
}

// The n-th place to look for the file; -1: it can't be opened there.
static int open_candidate(pid_t pid, const struct tl_map *map, int n)
{
    char path[96];
    switch (n) {
    case 0:
        return open_in_root(pid, map->path);
    case 1: // a chroot below our own root: maps shows the path from our root
        return open(map->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    case 2:
        (void)snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", (int)pid,
                       (unsigned long long)map->start, (unsigned long long)map->end);
        return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    default:
        (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
        return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
}

int tl_proc_open_mapped(pid_t pid, const struct tl_map *map, struct tl_diag *diag)
{
    enum { CANDIDATES = 4 };
    if (map->inode == 0 || map->path[0] != '/')
        return tl_diag_set(diag, TL_E_NOMATCH, "the mapping at 0x%llx has no file",
                           (unsigned long long)map->start);
    int best_fd = -1;
    for (int i = 0; i < CANDIDATES; i++) {
        int fd = open_candidate(pid, map, i);
        if (fd < 0)
            continue;
        enum match match = fd_match(fd, map);
        if (match == MATCH_FULL || (match == MATCH_INODE && best_fd < 0)) {
            if (best_fd >= 0)
                close(best_fd);
            best_fd = fd;
            if (match == MATCH_FULL)
                break;
        } else {
            close(fd);
        }
    }
    if (best_fd < 0)
        return tl_diag_set(diag, TL_E_NOMATCH,
                           "%s: the file that pid %d has mapped can't be opened (replaced, or in "
                           "another mount namespace): run as root",
                           map->path, (int)pid);
    return best_fd;
}

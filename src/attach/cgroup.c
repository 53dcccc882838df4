// How much memory the target's control group still gives it, so that pages of ours don't bring the
// out-of-memory killer. Reads files only.
#include "attach/held.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_TEXT_MAX (64u << 10)
#define CGROUP_DEPTH_MAX 64
#define CGROUP_PATH_MAX 4096

static bool number_read(const char *dir, const char *name, uint64_t *out)
{
    char path[CGROUP_PATH_MAX + 64], *text, *end;
    size_t size;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (tl_proc_read_file(path, CGROUP_TEXT_MAX, &text, &size, NULL) != 0)
        return false;
    *out = strtoull(text, &end, 10); // "max" is no number: no limit
    bool found = end > text;
    free(text);
    return found;
}

// A word's value in memory.stat; 0 when it is not there.
static uint64_t stat_read(const char *dir, const char *word)
{
    char path[CGROUP_PATH_MAX + 64], *text;
    size_t size;
    uint64_t value = 0;
    (void)snprintf(path, sizeof path, "%s/memory.stat", dir);
    if (tl_proc_read_file(path, CGROUP_TEXT_MAX, &text, &size, NULL) != 0)
        return 0;
    for (char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, word, strlen(word)) == 0 && line[strlen(word)] == ' ')
            value = strtoull(line + strlen(word) + 1, NULL, 10);
    }
    free(text);
    return value;
}

// Headroom of one group: limit less use, pages that can be dropped not counted as use.
static uint64_t group_headroom(const char *dir, bool unified)
{
    uint64_t limit, use;
    if (!number_read(dir, unified ? "memory.max" : "memory.limit_in_bytes", &limit) ||
        !number_read(dir, unified ? "memory.current" : "memory.usage_in_bytes", &use))
        return UINT64_MAX;
    uint64_t droppable = stat_read(dir, unified ? "inactive_file" : "total_inactive_file");
    use = droppable < use ? use - droppable : 0;
    return limit > use ? limit - use : 0;
}

// The least headroom from the group up to the root.
static uint64_t path_headroom(const char *mount, const char *group, bool unified)
{
    char dir[CGROUP_PATH_MAX];
    uint64_t least = UINT64_MAX;
    int size = snprintf(dir, sizeof dir, "%s%s", mount, group);
    if (size < 0 || (size_t)size >= sizeof dir)
        return least;
    for (int depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
        uint64_t here = group_headroom(dir, unified);
        least = here < least ? here : least;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < strlen(mount))
            break;
        *slash = '\0';
    }
    return least;
}

// One line "ID:CONTROLLERS:PATH" of /proc/PID/cgroup (cgroups(7)).
static uint64_t line_headroom(const char *root, char *line)
{
    char mount[CGROUP_PATH_MAX];
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return UINT64_MAX;
    *group++ = '\0';
    controllers++;
    if (*controllers == '\0') { // version 2: here, or beside version 1
        uint64_t least = path_headroom(root, group, true);
        (void)snprintf(mount, sizeof mount, "%s/unified", root);
        uint64_t beside = path_headroom(mount, group, true);
        return least < beside ? least : beside;
    }
    for (char *word = strtok(controllers, ","); word; word = strtok(NULL, ",")) {
        if (strcmp(word, "memory") == 0) {
            (void)snprintf(mount, sizeof mount, "%s/memory", root);
            return path_headroom(mount, group, false);
        }
    }
    return UINT64_MAX;
}

int tl_target_headroom(struct tl_target *target, uint64_t size_bytes, struct tl_diag *diag)
{
    const char *root = target->options.cgroup_root ? target->options.cgroup_root : "/sys/fs/cgroup";
    char path[64], *text, *rest, *line;
    size_t size;
    uint64_t least = UINT64_MAX;
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", target->pid);
    if (tl_proc_read_file(path, CGROUP_TEXT_MAX, &text, &size, NULL) != 0)
        return 0; // no control groups
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        uint64_t here = line_headroom(root, line);
        least = here < least ? here : least;
    }
    free(text);
    if (least >= size_bytes)
        return 0;
    return tl_diag_set(diag, TL_E_LIMIT,
                       "pid %d: its memory control group has %llu KiB left and the probes need "
                       "%llu: raise the limit or probe fewer places",
                       target->pid, (unsigned long long)(least >> 10),
                       (unsigned long long)(size_bytes >> 10));
}

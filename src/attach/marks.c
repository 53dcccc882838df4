// Marks of mappings that /proc/PID/maps does not show: guarded pages, shadow stacks, tagged memory.
//
// Reads /proc/PID/smaps, which makes the kernel walk over all pages of the target, so only where this
// machine has such marks. Foreign text: a line that is not understood is left out.
#include "attach/isa.h"
#include "attach/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A mark of two letters in a line "VmFlags: rd ex mr mw me bt" (proc(5)).
static bool flag_found(const char *line, const char *flag)
{
    for (const char *at = line; (at = strstr(at, flag)) != NULL; at++) {
        if (at[-1] == ' ' && (at[2] == ' ' || at[2] == '\n' || at[2] == '\0'))
            return true;
    }
    return false;
}

void tl_maps_marks_read(pid_t pid, struct tl_maps *maps)
{
    char path[64], *line = NULL;
    size_t room = 0, at = 0;
    if (!tl_pages_marked())
        return;
    (void)snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
    FILE *file = fopen(path, "re");
    struct tl_map *map = NULL;
    while (file && getline(&line, &room, file) > 0) {
        unsigned long long start, end;
        if (strncmp(line, "VmFlags:", 8) == 0 && map) {
            map->guarded = flag_found(line, "bt");
            map->shadow_stack = flag_found(line, "ss");
            map->tagged = flag_found(line, "mt");
            map = NULL;
        } else if (sscanf(line, "%llx-%llx ", &start, &end) == 2) { // both lists are sorted
            while (at < maps->count && maps->map[at].start < start)
                at++;
            map = at < maps->count && maps->map[at].start == start ? &maps->map[at] : NULL;
        }
    }
    free(line);
    if (file)
        (void)fclose(file);
}

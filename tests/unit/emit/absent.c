// A list of rows that a processor has not. Knows nothing of rows but their names.
#include "absent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 512
#define NAME_MAX_BYTES 48

static struct {
    char name[NAME_MAX_BYTES];
    bool judged;
} listed[ROWS_MAX];
static unsigned count, wrong;
static bool same_version;

static void line_read(char *line)
{
    const char *version = getenv("TL_EMULATOR");
    char *save, *rows = strchr(line, ':');
    if (strncmp(line, "# qemu ", 7) == 0)
        same_version = version && strcmp(strtok_r(line + 7, " \n", &save), version) == 0;
    if (line[0] == '#' || !rows)
        return;
    for (char *name = strtok_r(rows + 1, " \n", &save); name; name = strtok_r(NULL, " \n", &save)) {
        if (count == ROWS_MAX || strlen(name) >= NAME_MAX_BYTES) {
            fprintf(stderr, "too much in the list, at %s\n", name);
            exit(2);
        }
        strcpy(listed[count++].name, name);
    }
}

void absent_read(const char *path)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    if (!file) {
        perror(path);
        exit(2);
    }
    while (getline(&line, &size, file) > 0)
        line_read(line);
    free(line);
    fclose(file);
}

void absent_judge(const char *row, bool had)
{
    bool found = false;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(listed[i].name, row) == 0)
            found = listed[i].judged = true;
    }
    if (found != had)
        return;
    printf("row %s: the processor has it%s\n", row,
           had ? ", and the list says not" : " not, and no line says so");
    wrong += same_version;
}

unsigned absent_wrong(void)
{
    for (unsigned i = 0; i < count; i++) {
        if (!listed[i].judged) {
            printf("listed, but no row that is run: %s\n", listed[i].name);
            wrong++;
        }
    }
    if (!same_version)
        printf("the list is of another version of the emulator: what differs is told only\n");
    return wrong;
}

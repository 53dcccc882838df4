// The system's assembler and compiler, for tests. Each run has a directory of its own, removed
// after.
#include "assemble.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint8_t *file_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 1);
    if (bytes == NULL || fread(bytes, 1, *size, file) != *size)
        abort();
    fclose(file);
    return bytes;
}

bool victim_build(struct victim *victim, const char *compiler, const char *source_name,
                  const char *source, const char *options)
{
    char path[160], command[512];
    snprintf(victim->dir, sizeof(victim->dir), "/tmp/trapless-test-XXXXXX");
    if (mkdtemp(victim->dir) == NULL)
        return false;
    snprintf(victim->path, sizeof(victim->path), "%s/victim", victim->dir);
    snprintf(path, sizeof(path), "%s/%s", victim->dir, source_name);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    fputs(source, file);
    fclose(file);
    snprintf(command, sizeof(command), "cd %s && %s %s -o victim %s", victim->dir, compiler,
             options, source_name);
    if (system(command) == 0)
        return true;
    victim_remove(victim);
    return false;
}

void victim_remove(struct victim *victim)
{
    char command[128];
    if (strncmp(victim->dir, "/tmp/trapless-test-", 19) != 0)
        return;
    snprintf(command, sizeof(command), "rm -rf %s", victim->dir);
    if (system(command) != 0)
        fprintf(stderr, "left behind: %s\n", victim->dir);
    victim->dir[0] = '\0';
}

// Each snippet stands in a section of its own, named by its number.
static char *source_write(const struct snippet *snippets, size_t count)
{
    size_t size = 64, used;
    for (size_t i = 0; i < count; i++)
        size += strlen(snippets[i].text) + 64;
    char *source = malloc(size);
    if (source == NULL)
        abort();
    used = (size_t)snprintf(source, size, ".intel_syntax noprefix\n");
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(source + used, size - used, ".section .s%zu,\"ax\"\n%s\n", i,
                                 snippets[i].text);
    return source;
}

bool assemble(struct snippet *snippets, size_t count)
{
    struct victim object;
    char *source = source_write(snippets, count);
    bool built = victim_build(&object, "as", "snippets.s", source, "-mmnemonic=intel");
    free(source);
    if (!built)
        return false;
    size_t size;
    uint8_t *image = file_read(object.path, &size);
    victim_remove(&object);
    if (image == NULL)
        return false;
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Shdr *section = (const void *)(image + header->e_shoff);
    const char *names = (const char *)image + section[header->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < header->e_shnum; i++) {
        size_t number;
        if (sscanf(names + section[i].sh_name, ".s%zu", &number) != 1 || number >= count ||
            section[i].sh_type != SHT_PROGBITS || section[i].sh_size > sizeof(snippets[0].bytes))
            continue;
        snippets[number].size = section[i].sh_size;
        memcpy(snippets[number].bytes, image + section[i].sh_offset, section[i].sh_size);
    }
    free(image);
    return true;
}

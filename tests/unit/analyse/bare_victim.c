#include "bare_victim.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

int bare_victim_open(struct bare_victim *bare, const char *target, const char *text, const char *march)
{
    static const struct tl_image_options options;
    const struct tl_module_facts *facts;
    char compiler[64], words[96], path[160], command[512];
    (void)snprintf(compiler, sizeof compiler, "%s-gcc", target);
    (void)snprintf(words, sizeof words, "-march=%s -shared -nostdlib -Wl,-Bsymbolic", march);
    if (!victim_build(&bare->victim, compiler, "victim.s", text, words) ||
        !elf_facts_load(bare->victim.path, &bare->elf))
        return -1;
    (void)snprintf(path, sizeof path, "%s.bare", bare->victim.path);
    (void)snprintf(command, sizeof command, "%s-objcopy --wildcard -N 'at_*' %s %s", target,
                   bare->victim.path, path);
    if (system(command) != 0)
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? -1 : tl_image_open(fd, path, &options, &bare->image, NULL);
    if (!error)
        error = tl_image_facts(bare->image, &facts, NULL);
    return error ? error : tl_analysis_create(facts, &bare->analysis, NULL);
}

void bare_victim_close(struct bare_victim *bare)
{
    tl_analysis_destroy(bare->analysis);
    tl_image_close(bare->image);
    elf_facts_free(&bare->elf);
    victim_remove(&bare->victim);
}

tl_addr bare_victim_named(const struct bare_victim *bare, const char *name)
{
    tl_addr addr = elf_facts_find(&bare->elf, name, NULL);
    if (addr == 0)
        fail_msg("no %s in the victim", name);
    return addr;
}

// A victim of another instruction set, assembled when a test runs and read the whole way, from its ELF file on.
#ifndef TL_TESTS_BARE_VICTIM_H
#define TL_TESTS_BARE_VICTIM_H

#include "assemble.h"
#include "elf_facts.h"

#include "find/find.h"

struct bare_victim {
    struct victim victim;
    struct elf_facts elf; // for the names only
    struct tl_image *image;
    struct tl_analysis *analysis;
};

// target: the prefix of its tools ("aarch64-linux-gnu"). Names that begin with at_ are taken out of the file that is
// analysed: they would count as places that somebody may go to. 0, or less. To be closed in each case.
int bare_victim_open(struct bare_victim *bare, const char *target, const char *text, const char *march);
void bare_victim_close(struct bare_victim *bare);
// Fails the test if there is no such name.
tl_addr bare_victim_named(const struct bare_victim *bare, const char *name);

#endif

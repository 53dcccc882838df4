// Facts of a real ELF file, for tests: symbols, unwind table, relocations. Trusts the file.
#ifndef TL_TESTS_ELF_FACTS_H
#define TL_TESTS_ELF_FACTS_H

#include "analyse/analyse.h"

struct elf_facts {
    struct tl_module_facts facts;
    uint8_t *image;
    size_t size;
    struct elf_name *names; // function symbols, and labels that begin with at_
    size_t name_count;
};

struct elf_name {
    tl_addr vaddr;
    uint64_t size;
    const char *name;
};

// false: no such file, or nothing in it that could be analysed.
bool elf_facts_load(const char *path, struct elf_facts *out);
void elf_facts_free(struct elf_facts *facts);
// Address of a name, 0 if absent.
tl_addr elf_facts_find(const struct elf_facts *facts, const char *name, uint64_t *size);

#endif

// Files and processes for find's tests: victims are built once, by tests/data/find/build.sh.
#ifndef TESTS_FIND_VICTIMS_H
#define TESTS_FIND_VICTIMS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka's header wants those four before it.
#include <cmocka.h>
#include <sys/types.h>

#include "find/find.h"

#define VICTIM_PATH_SIZE 4096

// The path of a victim, in static storage of four turns. NULL: it could not be built on this
// machine.
const char *victim_path(const char *name);
// Opens it; fails the test with the diagnostic. Skips the test if it was not built.
struct tl_image *victim_open(const char *name, const char *debug_dir, const char *root);
struct tl_modules *victim_modules(const char *name);

const struct tl_symbol *symbol_named(const struct tl_image *image, const char *name);
// The text bytes at vaddr as stage analyse will see them, or NULL.
const uint8_t *facts_text(const struct tl_module_facts *facts, tl_addr vaddr, size_t size);
bool facts_point_to(const tl_addr *list, size_t count, tl_addr vaddr);

// Finds one probe's sites in modules.
struct found {
    struct tl_sites sites;
    int matched;
    struct tl_diag diag;
};
void find(struct tl_modules *modules, pid_t pid, const char *probe, struct found *out);
void found_deinit(struct found *found);

// A victim that runs and waits; its first line of output was read.
struct process {
    pid_t pid;
    int out, memory;
    struct tl_maps maps;
    struct tl_modules *modules;
};
void process_start(struct process *process, const char *const argv[]);
// Reads its modules (again).
void process_modules(struct process *process);
void process_find(struct process *process, const char *probe, struct found *out);
void process_stop(struct process *process);

#endif

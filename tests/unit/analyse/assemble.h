// Assembles snippets with the system's assembler, for tests.
#ifndef TL_TESTS_ASSEMBLE_H
#define TL_TESTS_ASSEMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snippet {
    const char *text; // Intel syntax; ';' between instructions
    uint8_t bytes[64];
    size_t size; // 0: the assembler does not know it
};

// Fills bytes and size of each. false: no assembler, or a snippet that is wrong.
bool assemble(struct snippet *snippets, size_t count);

// Runs `command`, a printf format for one path and its output name; both in a new directory.
// Compiles a victim: source text (file name decides the language) -> path of the result.
// Returns false if the compiler is missing. The caller removes the directory with victim_remove().
struct victim {
    char dir[64];
    char path[96];
};
bool victim_build(struct victim *victim, const char *compiler, const char *source_name,
                  const char *source, const char *options);
void victim_remove(struct victim *victim);

#endif

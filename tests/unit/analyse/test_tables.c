// Jump tables: every case label that the compiler put into a table is found as code and as a
// barrier. The compiler's own assembler text is the judge: each label that a table names gets a
// symbol before it is assembled.
#include "assemble.h"
#include "elf_facts.h"

#include "analyse/analysis.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SOURCE_SIZE_MAX (1 << 20)
#define LABELS_MAX 2048

static const char source[] =
    "typedef int f(int);\n"
    "extern volatile int sink;\n"
    "volatile int sink;\n"
    "int dense(int x); int big(int x, int y); int nested(int x, int y); int looped(char *s);\n"
    "int two(int x, int y); int computed(const char *s); int offsets(const char *s, int n);\n"
    "int wide(unsigned long x); int tail(int x, f **t); int bytes(unsigned char c);\n"
    "int dense(int x) {\n"
    " switch (x) { case 0: return 11; case 1: return 3; case 2: return 14; case 3: return 9;\n"
    "  case 4: return 77; case 5: return 1; case 6: sink = 1; return 2; case 7: return 5; }\n"
    " return 0; }\n"
    "#define C(n) case n: sink = n * 3; sink += y; break;\n"
    "#define C8(n) C(n) C(n+1) C(n+2) C(n+3) C(n+4) C(n+5) C(n+6) C(n+7)\n"
    "int big(int x, int y) {\n"
    " switch (x) { C8(10) C8(18) C8(26) C8(40) C8(48) default: sink = 1; } return sink + y; }\n"
    "int nested(int x, int y) {\n"
    " switch (x) { C8(0) case 9: switch (y) { case 3: sink = 4; break; case 4: sink = 9; break;\n"
    "  case 5: sink *= 4; break; case 6: sink /= 3; break; case 7: sink ^= 4; break;\n"
    "  case 8: sink <<= 4; break; } break; default: return 4; } return sink; }\n"
    "int looped(char *s) {\n"
    " int n = 0; for (; *s; s++) switch (*s) { case 'a': n += 3; break; case 'b': n *= 2; break;\n"
    "  case 'c': n ^= 5; break; case 'd': sink = n; break; case 'e': n -= sink; break;\n"
    "  case 'f': n <<= 1; break; case 'g': n |= 9; break; default: n++; } return n; }\n"
    "int two(int x, int y) {\n"
    " switch (x) { C8(0) } sink += 4; switch (y) { case 100: sink = 8; break;\n"
    "  case 101: sink -= y; break; case 102: sink |= y; break; case 103: sink &= y; break;\n"
    "  case 104: sink ^= y; break; case 105: sink *= y; break; } return sink; }\n"
    "int computed(const char *s) {\n"
    " static const void *const go[] = {&&add, &&sub, &&mul, &&end};\n"
    " int n = 0; goto *go[*s++ & 3];\n"
    " add: n += 3; goto *go[*s++ & 3]; sub: n -= sink; goto *go[*s++ & 3];\n"
    " mul: n *= 3; goto *go[*s++ & 3]; end: return n; }\n"
    "int offsets(const char *s, int n) {\n"
    " static const int go[] = {&&add - &&base, &&sub - &&base, &&mul - &&base, &&end - &&base};\n"
    " base: sink++; goto *(&&base + go[*s++ & 3]);\n"
    " add: n += 3; goto *(&&base + go[*s++ & 3]); sub: n -= sink; goto *(&&base + go[*s++ & 3]);\n"
    " mul: n *= 3; goto *(&&base + go[*s++ & 3]); end: return n; }\n"
    "int wide(unsigned long x) { int y = 4; switch (x) { C8(1000) C8(1010) } return sink; }\n"
    "int tail(int x, f **t) { sink = x; return t[x & 7](x); }\n"
    "int bytes(unsigned char c) { int y = c; switch (c) { C8(0) C8(32) C8(64) C8(96) C8(128)\n"
    " C8(240) } return sink; }\n";

// Adds `at_N:` behind each label that a table's entry names.
static char *labels_mark(const char *text, size_t *label_count)
{
    static char label[LABELS_MAX][24];
    size_t labels = 0;
    char *out = malloc(SOURCE_SIZE_MAX), *copy = strdup(text), *line, *rest = copy;
    assert_true(out != NULL && copy != NULL);
    for (const char *at = text; (at = strstr(at, "\t.")) != NULL; at++) {
        static const char *const entries[] = {
            "\t.long\t%23[.A-Za-z0-9_]-%*s", "\t.quad\t%23[.A-Za-z0-9_]",
            "\t.byte\t(%23[.A-Za-z0-9_]",     "\t.2byte\t(%23[.A-Za-z0-9_]",
            "\t.hword\t(%23[.A-Za-z0-9_]",    "\t.word\t(%23[.A-Za-z0-9_]",
            "\t.word\t%23[.A-Za-z0-9_]-%*s", "\t.xword\t%23[.A-Za-z0-9_]",
        };
        char name[24];
        bool entry = false;
        for (size_t i = 0; i < TL_ARRAY_COUNT(entries) && !entry; i++)
            entry = sscanf(at, entries[i], name) == 1;
        if (!entry)
            continue;
        size_t i = 0;
        while (i < labels && strcmp(label[i], name) != 0)
            i++;
        // Labels of code and of data look alike; those before data are sorted out by the caller.
        if (i == labels && name[0] == '.' && labels < LABELS_MAX)
            strcpy(label[labels++], name);
    }
    size_t used = 0, kept = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        used += (size_t)snprintf(out + used, SOURCE_SIZE_MAX - used, "%s\n", line);
        char *colon = strchr(line, ':');
        for (size_t i = 0; colon != NULL && i < labels; i++)
            if (strlen(label[i]) == (size_t)(colon - line) &&
                strncmp(line, label[i], (size_t)(colon - line)) == 0)
                used += (size_t)snprintf(out + used, SOURCE_SIZE_MAX - used, "at_%zu:\n", kept++);
    }
    assert_true(used < SOURCE_SIZE_MAX - 1);
    free(copy);
    *label_count = kept;
    return out;
}

static char *text_read(const char *path)
{
    char *text = calloc(1, SOURCE_SIZE_MAX);
    FILE *file = fopen(path, "r");
    assert_true(text != NULL && file != NULL);
    assert_true(fread(text, 1, SOURCE_SIZE_MAX - 1, file) > 0);
    fclose(file);
    return text;
}

static void check_tables(const char *compiler, const char *options, const char *link, bool proved)
{
    struct victim compiled, victim;
    struct elf_facts elf;
    struct tl_analysis *analysis;
    char all[256];
    size_t labels, code = 0, missed = 0;
    snprintf(all, sizeof(all), "%s -S", options);
    if (!victim_build(&compiled, compiler, "tables.c", source, all)) {
        print_message("no %s\n", compiler);
        return;
    }
    char *text = text_read(compiled.path);
    char *marked = labels_mark(text, &labels);
    victim_remove(&compiled);
    free(text);
    assert_true(victim_build(&victim, compiler, "tables.s", marked, link));
    free(marked);
    assert_true(elf_facts_load(victim.path, &elf));
    assert_int_equal(tl_analysis_create(&elf.facts, &analysis, NULL), 0);
    assert_int_equal(tl_code_module(analysis), 0);
    for (size_t i = 0; i < elf.name_count; i++) {
        if (strncmp(elf.names[i].name, "at_", 3) != 0 ||
            tl_function_at(analysis, elf.names[i].vaddr) == FUNCTION_NONE)
            continue;
        code++;
        if (tl_is_barrier(analysis, elf.names[i].vaddr) &&
            tl_code_starts(analysis, elf.names[i].vaddr))
            continue;
        missed++;
        print_error("%s %s: missed %s at 0x%llx\n", compiler, options, elf.names[i].name,
                    (unsigned long long)elf.names[i].vaddr);
    }
    unsigned unproved = 0;
    for (uint32_t i = 0; i < elf.facts.function_count; i++)
        if (tl_group_unproved(analysis, i)) {
            unproved++;
            if (proved)
                print_error("%s %s: 0x%llx is unproved\n", compiler, options,
                            (unsigned long long)elf.facts.functions[i].vaddr);
        }
    print_message("%s %s %s: %zu labels, %zu in code, %zu missed, %u functions unproved\n",
                  compiler, options, link, labels, code, missed, unproved);
    assert_true(code > 60);
    assert_int_equal(missed, 0);
    if (proved)
        assert_int_equal(unproved, 0);
    // Code found is what the disassembler finds: no table was read too far.
    for (uint32_t i = 0; i < elf.facts.function_count; i++) {
        tl_addr insns[4096];
        size_t count = tl_analysis_insns(analysis, elf.facts.functions[i].vaddr, insns, 4096);
        for (size_t k = 0; k < count && k < 4096; k++)
            assert_int_equal(tl_code_covering(analysis, insns[k]), 0);
    }
    tl_analysis_destroy(analysis);
    elf_facts_free(&elf);
    victim_remove(&victim);
}

static void tables_are_found(void **state)
{
    (void)state;
    static const char *const compilers[] = {"gcc", "clang"};
    static const struct {
        const char *options, *link;
        bool proved;
    } variants[] = {
        {"-O2 -fPIC", "-shared -nostdlib", true},
        {"-O2 -fPIC -fcf-protection=full", "-shared -nostdlib", true},
        {"-O2 -fno-pic -fno-pie", "-no-pie -nostdlib -Wl,-e,dense", true},
        {"-O2 -fPIE", "-pie -nostdlib -Wl,-e,dense", true},
        {"-Os -fPIC", "-shared -nostdlib", true},
        {"-O3 -fPIC -funroll-loops", "-shared -nostdlib", true},
        {"-O1 -fPIC", "-shared -nostdlib", true},
        {"-O0 -fPIC", "-shared -nostdlib", true},
        {"-O0 -fno-pic -fno-pie", "-no-pie -nostdlib -Wl,-e,dense", true},
        {"-O2 -fPIC -ffunction-sections", "-shared -nostdlib -Wl,--gc-sections", true},
    };
    for (size_t c = 0; c < TL_ARRAY_COUNT(compilers); c++)
        for (size_t i = 0; i < TL_ARRAY_COUNT(variants); i++)
            check_tables(compilers[c], variants[i].options, variants[i].link, variants[i].proved);
}

static void tables_of_arm64_are_found(void **state)
{
    (void)state;
    static const char *const compilers[] = {"aarch64-linux-gnu-gcc",
                                            "clang --target=aarch64-linux-gnu"};
    static const struct {
        const char *options, *link;
    } variants[] = {
        {"-O2 -fPIC", "-shared -nostdlib"},
        {"-O2 -fPIC -mbranch-protection=standard", "-shared -nostdlib"},
        {"-O2 -fno-pic -fno-pie", "-static -nostdlib -Wl,-e,dense"},
        {"-Os -fPIC", "-shared -nostdlib"},
        {"-O3 -fPIC -funroll-loops", "-shared -nostdlib"},
        {"-O1 -fPIC", "-shared -nostdlib"},
        {"-O0 -fPIC", "-shared -nostdlib"},
    };
    for (size_t c = 0; c < TL_ARRAY_COUNT(compilers); c++)
        for (size_t i = 0; i < TL_ARRAY_COUNT(variants); i++)
            check_tables(compilers[c], variants[i].options, variants[i].link, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_found),
        cmocka_unit_test(tables_of_arm64_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

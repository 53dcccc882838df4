// Agreement with the disassembler over whole programs: every instruction the analysis finds is one
// that objdump finds, with the same length; where they differ, the bytes are shared by two
// instructions. And: no site of any function makes the analysis fail.
#include "elf_facts.h"

#include "analyse/analysis.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"
#define REDIS "/usr/bin/redis-server"
#define SHARED_MAX 64 // instructions inside others (a lock prefix that a branch skips)

// Instruction lengths by objdump, for each byte of one text region; 0: none starts there.
static uint8_t *objdump_lengths(const char *path, const struct region *region)
{
    char command[256], line[512];
    uint8_t *lengths = calloc(region->size, 1);
    snprintf(command, sizeof(command),
             "objdump -d -w --insn-width=16 --start-address=0x%llx --stop-address=0x%llx %s",
             (unsigned long long)region->vaddr, (unsigned long long)(region->vaddr + region->size),
             path);
    FILE *pipe = popen(command, "r");
    assert_non_null(lengths);
    assert_non_null(pipe);
    while (fgets(line, sizeof(line), pipe) != NULL) {
        char *end, *bytes;
        tl_addr addr = strtoull(line, &end, 16);
        if (line[0] != ' ' || *end != ':' || addr - region->vaddr >= region->size)
            continue;
        uint8_t count = 0;
        for (bytes = end + 2; bytes[0] != ' ' && bytes[0] != '\t' && bytes[0] != '\n'; bytes += 3)
            count++;
        if (strstr(line, "(bad)") == NULL)
            lengths[addr - region->vaddr] = count;
    }
    assert_int_equal(pclose(pipe), 0);
    return lengths;
}

static void check_lengths(const char *path, size_t found_min)
{
    struct elf_facts elf;
    struct tl_analysis *analysis;
    size_t found = 0, shared = 0, fused = 0;
    if (!elf_facts_load(path, &elf))
        skip();
    assert_int_equal(tl_analysis_create(&elf.facts, &analysis, NULL), 0);
    assert_int_equal(tl_code_module(analysis), 0);
    for (size_t r = 0; r < analysis->region_count; r++) {
        const struct region *region = &analysis->region[r];
        uint8_t *lengths = objdump_lengths(path, region);
        for (size_t off = 0; off < region->size; off++) {
            struct tl_insn insn;
            if (!bit_get(region->start, off))
                continue;
            assert_true(tl_decode_at(analysis, region->vaddr + off, false, &insn));
            found++;
            if (lengths[off] == insn.size)
                continue;
            // objdump shows a prefix that it finds useless, and fwait, on a line of its own.
            if (lengths[off] > 0 && lengths[off] < insn.size &&
                lengths[off] + lengths[off + lengths[off]] == insn.size) {
                fused++;
                continue;
            }
            shared++;
            if (tl_code_covering(analysis, insn.addr) == 0)
                fail_msg("%s: 0x%llx: %u bytes, objdump says %u", path,
                         (unsigned long long)insn.addr, insn.size, lengths[off]);
        }
        free(lengths);
    }
    print_message("%s: %zu instructions, %zu inside others, %zu shown apart\n", path, found, shared,
                  fused);
    assert_true(found > found_min);
    assert_true(shared <= SHARED_MAX);
    assert_true(fused <= SHARED_MAX);
    tl_analysis_destroy(analysis);
    elf_facts_free(&elf);
}

static void lengths_agree_in_libc(void **state)
{
    (void)state;
    check_lengths(LIBC, 300000);
}

static void lengths_agree_in_redis(void **state)
{
    (void)state;
    check_lengths(REDIS, 200000);
}

static void every_function_of_libc_has_facts(void **state)
{
    (void)state;
    struct elf_facts elf;
    struct tl_analysis *analysis;
    size_t windows = 0, unproved = 0;
    if (!elf_facts_load(LIBC, &elf))
        skip();
    assert_int_equal(tl_analysis_create(&elf.facts, &analysis, NULL), 0);
    for (size_t i = 0; i < elf.facts.function_count; i++) {
        struct tl_site_facts site;
        tl_addr entry = tl_analysis_entry(analysis, elf.facts.functions[i].vaddr);
        assert_int_equal(tl_analysis_site(analysis, entry, &site, NULL), 0);
        if (site.refusal != TL_REFUSE_NONE)
            continue;
        assert_true(site.entry || !site.function.symbol);
        assert_true(site.window_max >= site.insn[0].size);
        assert_true(site.window_end_refusal != TL_REFUSE_NONE || site.insn_count > 0);
        assert_int_equal(site.dead & (1u << 4), 0); // rsp
        assert_int_equal(site.dead & ~TL_REGSET_ALL, 0);
        assert_int_equal(site.function.vaddr, elf.facts.functions[i].vaddr);
        windows += site.window_max >= 5;
        unproved += site.window_end_refusal == TL_REFUSE_WINDOW_UNPROVED;
    }
    print_message("%zu functions, %zu with room for a branch, %zu unproved\n",
                  elf.facts.function_count, windows, unproved);
    assert_true(windows * 100 >= elf.facts.function_count * 98);
    assert_true(unproved < 50);
    tl_analysis_destroy(analysis);
    elf_facts_free(&elf);
}

// A lazy analysis knows of a site what the whole one knows, but for the window: no register is dead
// that is not dead with more code known, no loop is missed, and the window can be had later.
static void lazy_facts_agree(void **state)
{
    (void)state;
    struct elf_facts elf;
    struct tl_analysis *whole, *lazy;
    unsigned pending = 0, local = 0;
    if (!elf_facts_load(LIBC, &elf))
        skip();
    assert_int_equal(tl_analysis_create(&elf.facts, &whole, NULL), 0);
    assert_int_equal(tl_code_module(whole), 0);
    for (size_t i = 0; i < elf.facts.function_count; i += 23) {
        struct tl_site_facts one, two;
        tl_addr entry = tl_analysis_entry(whole, elf.facts.functions[i].vaddr);
        assert_int_equal(tl_analysis_create(&elf.facts, &lazy, NULL), 0);
        tl_analysis_set_lazy(lazy, true);
        assert_int_equal(tl_analysis_site(whole, entry, &one, NULL), 0);
        assert_int_equal(tl_analysis_site(lazy, entry, &two, NULL), 0);
        local += !lazy->module_done;
        assert_int_equal(one.refusal, two.refusal);
        assert_int_equal(one.insn_count, two.insn_count);
        assert_int_equal(one.entry, two.entry);
        assert_int_equal(one.looper_count, two.looper_count);
        assert_int_equal(two.dead & ~one.dead, 0);
        if (two.window_pending) {
            pending++;
            if (pending % 8 == 0) {
                assert_int_equal(tl_analysis_window(lazy, &two, NULL), 0);
                assert_memory_equal(&one, &two, sizeof(one));
            }
        }
        tl_analysis_destroy(lazy);
    }
    print_message("%u windows pending, %u functions without the module\n", pending, local);
    assert_true(pending > 20 && local > 80);
    tl_analysis_destroy(whole);
    elf_facts_free(&elf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lazy_facts_agree),
        cmocka_unit_test(lengths_agree_in_libc),
        cmocka_unit_test(lengths_agree_in_redis),
        cmocka_unit_test(every_function_of_libc_has_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Go's functions: where their entry is, what may be displaced, and by which exits they are left.
// The victim is written in the shapes of Go's compiler and assembled when the test runs.
#include "assemble.h"
#include "elf_facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FUNCTION(name, body)                                                                       \
    ".globl " name "\n.type " name ",@function\n.p2align 5,0xcc\n" name ":\n" body "\n"            \
    ".size " name ",.-" name "\n"
// Spills, calls the runtime, starts again.
#define GROW(name) "1: mov [rsp+8],rax\ncall morestack\nmov rax,[rsp+8]\njmp " name

// Labels at_... are places that the tables below name.
// clang-format off
static const char victim_text[] =
    ".intel_syntax noprefix\n.text\n"
    FUNCTION("morestack", "ret")
    FUNCTION("gopanic", "ud2")
    FUNCTION("leaf", "mov rcx,rax\nat_leaf_inside: add rax,rbx\nat_leaf: ret")
    FUNCTION("small", "cmp rsp,[r14+16]\njbe 1f\nat_small_entry: sub rsp,24\nmov [rsp+16],rbp\n"
                      "lea rbp,[rsp+16]\nat_small_call: call leaf\nat_small_load: mov rbp,[rsp+16]\n"
                      "add rsp,24\nat_small: ret\n" GROW("small"))
    FUNCTION("medium", "lea r12,[rsp-280]\ncmp r12,[r14+16]\njbe 1f\nat_medium_entry: sub rsp,408\n"
                       "call leaf\nadd rsp,408\nat_medium: ret\n" GROW("medium"))
    FUNCTION("large", "mov r12,rsp\nsub r12,15896\njb 1f\ncmp r12,[r14+16]\njbe 1f\n"
                      "at_large_entry: sub rsp,16024\ncall leaf\nadd rsp,16024\nat_large: ret\n"
                      GROW("large"))
    FUNCTION("loops", "dec rax\njne loops\nat_loops: ret")
    FUNCTION("calls_first", "sub rsp,8\ncall morestack\nadd rsp,8\ndec rax\njne calls_first\n"
                            "at_calls_first: ret")
    FUNCTION("deferred", "cmp rsp,[r14+16]\njbe 1f\nsub rsp,24\nmov [rsp+16],rbp\ncall leaf\n"
                         "mov rbp,[rsp+16]\nadd rsp,24\nat_deferred1: ret\n"
                         "at_deferred_block: call leaf\nmov rbp,[rsp+16]\nadd rsp,24\n"
                         "at_deferred2: ret\n" GROW("deferred"))
    FUNCTION("panics", "cmp rsp,[r14+16]\njbe 1f\nsub rsp,24\ntest rax,rax\nje 2f\nadd rsp,24\n"
                       "at_panics: ret\n2: call gopanic\nnop\n" GROW("panics"))
    FUNCTION("panics_last", "test rax,rax\nje 2f\nat_panics_last: ret\n2: sub rsp,8\n"
                            "call gopanic\nnop");
// clang-format on

struct shared {
    struct victim victim;
    struct elf_facts elf;
    struct tl_analysis *analysis, *plain; // as Go, and as anything else
};

static struct shared shared;

static tl_addr named(const char *name)
{
    tl_addr addr = elf_facts_find(&shared.elf, name, NULL);
    if (addr == 0)
        fail_msg("no %s in the victim", name);
    return addr;
}

static int victim_setup(void **state)
{
    (void)state;
    if (!victim_build(&shared.victim, "cc", "victim.s", victim_text,
                      "-shared -nostdlib -Wl,-Bsymbolic") ||
        !elf_facts_load(shared.victim.path, &shared.elf) ||
        tl_analysis_create(&shared.elf.facts, &shared.plain, NULL) != 0)
        return -1;
    struct tl_module_facts facts = shared.elf.facts;
    facts.go_text = (struct tl_range){named("morestack"), named("panics_last") + 32};
    return tl_analysis_create(&facts, &shared.analysis, NULL);
}

static int victim_teardown(void **state)
{
    (void)state;
    tl_analysis_destroy(shared.analysis);
    tl_analysis_destroy(shared.plain);
    elf_facts_free(&shared.elf);
    victim_remove(&shared.victim);
    return 0;
}

static struct tl_site_facts site_at(struct tl_analysis *analysis, tl_addr addr)
{
    struct tl_site_facts site;
    assert_int_equal(tl_analysis_site(analysis, addr, &site, NULL), 0);
    return site;
}

static void entries_are_behind_the_stack_check(void **state)
{
    (void)state;
    static const struct {
        const char *name, *entry; // entry NULL: no check
    } table[] = {
        {"leaf", NULL},
        {"small", "at_small_entry"},
        {"medium", "at_medium_entry"},
        {"large", "at_large_entry"},
        {"loops", NULL},
        {"calls_first", NULL},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        tl_addr function = named(table[i].name), behind = 0;
        bool checked = tl_analysis_stack_check(shared.analysis, function, &behind);
        tl_addr entry = table[i].entry != NULL ? named(table[i].entry) : function;
        if (checked != (table[i].entry != NULL) ||
            tl_analysis_entry(shared.analysis, function) != entry || (checked && behind != entry))
            fail_msg("%s: entry at 0x%llx", table[i].name,
                     (unsigned long long)tl_analysis_entry(shared.analysis, function));
        assert_int_equal(tl_analysis_entry(shared.plain, function), function);
        struct tl_site_facts site = site_at(shared.analysis, entry);
        assert_true(site.entry);
        assert_true(site.go);
        assert_int_equal(site.no_stack, !checked);
        assert_false(site_at(shared.plain, function).go);
        assert_false(site_at(shared.plain, function).no_stack);
    }
}

static void before_the_check_there_is_no_stack(void **state)
{
    (void)state;
    assert_true(site_at(shared.analysis, named("small")).no_stack);
    assert_false(site_at(shared.analysis, named("at_small_call")).no_stack);
    assert_false(site_at(shared.analysis, named("at_small")).no_stack);
}

// A goroutine may wait with its pc at any instruction.
static void windows_hold_one_instruction(void **state)
{
    (void)state;
    struct tl_site_facts go = site_at(shared.analysis, named("leaf"));
    struct tl_site_facts plain = site_at(shared.plain, named("leaf"));
    assert_int_equal(go.window_max, go.insn[0].size);
    assert_int_equal(go.window_end_refusal, TL_REFUSE_STACK_WORD);
    assert_true(plain.window_max > plain.insn[0].size);
    // Padding behind a return is no instruction.
    assert_true(site_at(shared.analysis, named("at_leaf")).window_max >= 5);
}

static void exits_include_what_only_the_runtime_enters(void **state)
{
    (void)state;
    static const struct {
        const char *name, *exit[3];
    } table[] = {
        {"leaf", {"at_leaf"}},
        {"small", {"at_small"}},
        {"medium", {"at_medium"}},
        {"large", {"at_large"}},
        {"deferred", {"at_deferred1", "at_deferred2"}},
        {"panics", {"at_panics"}},
        {"panics_last", {"at_panics_last"}},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        struct tl_exit exits[4];
        enum tl_refusal refusal;
        size_t count, wanted = 0;
        assert_int_equal(tl_analysis_exits(shared.analysis, named(table[i].name), exits, 4, &count,
                                           &refusal, NULL),
                         0);
        while (table[i].exit[wanted] != NULL)
            wanted++;
        if (refusal != TL_REFUSE_NONE || count != wanted)
            fail_msg("%s: \"%s\", %zu exits", table[i].name, tl_refusal_text(refusal), count);
        for (size_t k = 0; k < count; k++) {
            assert_int_equal(exits[k].kind, TL_EXIT_RET);
            assert_int_equal(exits[k].vaddr, named(table[i].exit[k]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_behind_the_stack_check),
        cmocka_unit_test(before_the_check_there_is_no_stack),
        cmocka_unit_test(windows_hold_one_instruction),
        cmocka_unit_test(exits_include_what_only_the_runtime_enters),
    };
    return cmocka_run_group_tests(tests, victim_setup, victim_teardown);
}

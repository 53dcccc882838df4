// Ways out of functions in a victim written for the purpose. What counts is that an answer is
// whole: each case is either all exits, or a refusal. The victim is assembled when the test runs.
#include "assemble.h"
#include "elf_facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOCAL(name, body)                                                                          \
    ".type " name ",@function\n.p2align 4\n" name ":\n" body "\n.size " name ",.-" name "\n"
#define FUNCTION(name, body) ".globl " name "\n" LOCAL(name, body)
// Code that only the unwind table knows.
#define UNNAMED(label, body) ".p2align 4\n" label ":\n.cfi_startproc\n" body "\n.cfi_endproc\n"

// Labels at_... are places that the tables below name.
// clang-format off
static const char victim_text[] =
    ".intel_syntax noprefix\n.text\n"
    FUNCTION("plain", "push rbp\nmov rbp,rsp\nsub rsp,32\nleave\nat_plain: ret")
    FUNCTION("two", "test edi,edi\nje 1f\nat_two1: ret\n1: mov eax,2\nat_two2: ret 8")
    FUNCTION("tail", "sub rsp,8\nadd rsp,8\nat_tail: jmp plain")
    FUNCTION("cond_tail", "test edi,edi\nat_cond_tail: je plain\nat_cond_tail_ret: ret")
    FUNCTION("stub_tail", "at_stub_tail: jmp outside@PLT")
    FUNCTION("memory_tail", "at_memory_tail: jmp [rdi+8]")
    FUNCTION("pointer_tail", "push rbx\nmov rax,[rdi]\npop rbx\nat_pointer_tail: jmp rax")
    FUNCTION("argument_tail", "mov eax,4\nat_argument_tail: jmp rdi")
    FUNCTION("deep_tail", "push rbx\njmp plain")
    FUNCTION("deep_jump", "push rbx\nmov rax,[rdi]\njmp rax")
    FUNCTION("sum_jump", "lea rax,[rdi+rsi]\njmp rax")
    FUNCTION("loops", "dec edi\njne loops\nat_loops: ret")
    FUNCTION("landing", "endbr64\ndec edi\nat_landing_tail: jne landing\nat_landing: ret")
    FUNCTION("landing_loop", "endbr64\n1: dec edi\njne 1b\nat_landing_loop: ret")
    FUNCTION("deep_loop", "dec edi\npush rbx\njne deep_loop\npop rbx\nret")
    FUNCTION("push_return", "push rdi\nret")
    FUNCTION("popped", "pop rax\njmp rax")
    FUNCTION("never", "nop\nud2")
    FUNCTION("forever", "nop\n1: pause\njmp 1b")
    FUNCTION("calls_never", "test edi,edi\nje 1f\npush rbx\ncall never\nnop\n1: xor eax,eax\n"
                            "at_calls_never: ret")
    FUNCTION("calls_never_twice", "test edi,edi\nje 2f\nsub rsp,8\njs 1f\ncall never\nnop\n"
                                  "1: call never\nnop\n2: at_calls_never_twice: jmp plain")
    FUNCTION("with_cold", "test edi,edi\nje with_cold.cold\nat_warm: dec edi\nat_with_cold: ret")
    LOCAL("with_cold.cold", "push rbx\njs 1f\npop rbx\njmp at_warm\n1: pop rbx\n"
                            "at_with_cold_part: ret")
    FUNCTION("with_throw", "test edi,edi\njs with_throw.cold\nat_with_throw: ret")
    LOCAL("with_throw.cold", "push rax\ncall never")
    FUNCTION("with_unnamed", "test edi,edi\nje unnamed_part\nat_with_unnamed: ret")
    UNNAMED("unnamed_part", "call plain\nat_unnamed_part: ret")
    FUNCTION("to_uncalled", "inc edi\nat_to_uncalled: jmp uncalled")
    LOCAL("uncalled", "mov eax,edi\nat_uncalled: ret")
    FUNCTION("to_unnamed1", "inc edi\nat_to_unnamed1: jmp unnamed_shared")
    FUNCTION("to_unnamed2", "dec edi\nat_to_unnamed2: jmp unnamed_shared")
    UNNAMED("unnamed_shared", "mov eax,edi\nret")
    FUNCTION("into_middle", "inc edi\njmp at_middle")
    FUNCTION("has_middle", "dec edi\nat_middle: mov eax,edi\nret")
    FUNCTION("falls", "inc edi")
    "fallen_into_pad:\n"
    ".globl fallen_into\n.type fallen_into,@function\nfallen_into: mov eax,edi\n"
    "at_fallen_into: ret\n.size fallen_into,.-fallen_into\n"
    FUNCTION("switches", "cmp edi,2\nja 1f\nmov edi,edi\nlea rdx,[rip+at_table]\n"
                         "movsxd rax,dword ptr [rdx+rdi*4]\nadd rax,rdx\njmp rax\n"
                         "at_case0: mov eax,5\nat_switches0: ret\nat_case1: mov eax,6\n"
                         "at_switches1: ret\n1: xor eax,eax\nat_switches2: ret")
    FUNCTION("goes_to", "push rbx\nlea rax,[rip+at_labels]\njmp [rax+rdi*8]\n"
                        "at_label0: pop rbx\nat_goes_to0: ret\n"
                        "at_label1: mov eax,1\npop rbx\nat_goes_to1: ret")
    FUNCTION("goes_or_leaves", "lea rax,[rip+at_labels2]\njmp [rax+rdi*8]\nat_label2: ret")
    FUNCTION("entered", "dec edi\nat_entered: mov eax,edi\nret")
    FUNCTION("variable", "push rbp\nmov rbp,rsp\npush rbx\nsub rsp,rdi\ncall plain\n"
                         "lea rsp,[rbp-8]\npop rbx\npop rbp\nat_variable: ret")
    FUNCTION("realigned", "lea r10,[rsp+8]\nand rsp,-32\npush [r10-8]\npush rbp\nmov rbp,rsp\n"
                          "push r10\nsub rsp,40\ncall plain\nmov r10,[rbp-8]\nleave\n"
                          "lea rsp,[r10-8]\nat_realigned: ret")
    FUNCTION("kept", "push rbx\nmov rbx,rsp\npush rdi\npush rsi\ncall plain\nmov rsp,rbx\n"
                     "pop rbx\nat_kept: ret")
    FUNCTION("not_kept", "push rbx\nmov rbx,rsp\npush rdi\nmov rbx,[rdi]\nmov rsp,rbx\npop rbx\n"
                         "ret")
    FUNCTION("clobbered", "mov rcx,rsp\npush rdi\ncall plain\nmov rsp,rcx\nret")
    FUNCTION("stack_switch", "mov rsp,[rdi]\nret")
    FUNCTION("calls_inside", "call 1f\n1: pop rax\nret")
    FUNCTION("recursive", "dec edi\nje 1f\ncall recursive\n1: at_recursive: ret")
    FUNCTION("compares", "cmp rsp,[r14+16]\njbe 1f\npush rbx\npop rbx\nat_compares: ret\n"
                         "1: call never\njmp compares")
    FUNCTION("early", "push rbx\npush rbp\nsub rsp,16\nmov eax,edi\nat_early3: add rsp,16\n"
                      "at_early2: pop rbp\nat_early1: pop rbx\nat_early: ret")
    FUNCTION("early_stops", "push rbx\npush rcx\nje 1f\nmov eax,edi\nat_early_stops1: pop rcx\n"
                            "at_joined: pop rbx\nat_early_stops: ret\n1: pop rdx\njmp at_joined")
    FUNCTION("early_loads", "sub rsp,24\nmov [rsp+16],rbp\nmov rbx,[rdi+8]\n"
                            "at_early_loads2: mov rbp,[rsp+16]\nat_early_loads1: add rsp,24\n"
                            "at_early_loads: ret")
    FUNCTION("catches", "push rbx\ncall plain\npop rbx\nat_catches: ret\n"
                        "at_pad: mov eax,1\npop rbx\nat_catches_pad: ret")
    FUNCTION("junk", "test edi,edi\nje 1f\nat_junk: ret\n1: .byte 0x06")
    ".section .rodata\n.p2align 2\n"
    "at_table: .long at_case0-at_table, at_case1-at_table, at_case0-at_table\n"
    ".section .data.rel.ro,\"aw\"\n.p2align 3\nat_labels: .quad at_label0, at_label1\n"
    "at_labels2: .quad at_label2, plain\nat_entries: .quad at_entered\n";

#define RET TL_EXIT_RET
#define TAIL TL_EXIT_TAIL
#define COND TL_EXIT_COND_TAIL
#define ITAIL TL_EXIT_ITAIL
#define UNKNOWN TL_REFUSE_EXIT_UNKNOWN

static const struct exits {
    const char *name;
    enum tl_refusal refusal;
    struct {
        const char *at;
        enum tl_exit_kind kind;
    } exit[4];
} cases[] = {
    {"plain", 0, {{"at_plain", RET}}},
    {"two", 0, {{"at_two1", RET}, {"at_two2", RET}}},
    {"tail", 0, {{"at_tail", TAIL}}},
    {"cond_tail", 0, {{"at_cond_tail", COND}, {"at_cond_tail_ret", RET}}},
    {"stub_tail", 0, {{"at_stub_tail", TAIL}}},
    {"memory_tail", 0, {{"at_memory_tail", ITAIL}}},
    {"pointer_tail", 0, {{"at_pointer_tail", ITAIL}}},
    {"argument_tail", 0, {{"at_argument_tail", ITAIL}}},
    {"deep_tail", UNKNOWN, {{0}}},
    {"deep_jump", UNKNOWN, {{0}}},
    {"sum_jump", UNKNOWN, {{0}}},
    {"loops", 0, {{"at_loops", RET}}},
    {"landing", 0, {{"at_landing_tail", COND}, {"at_landing", RET}}},
    {"landing_loop", 0, {{"at_landing_loop", RET}}},
    {"deep_loop", UNKNOWN, {{0}}},
    {"push_return", UNKNOWN, {{0}}},
    {"popped", UNKNOWN, {{0}}},
    {"never", TL_REFUSE_NO_EXIT, {{0}}},
    {"forever", TL_REFUSE_NO_EXIT, {{0}}},
    {"calls_never", 0, {{"at_calls_never", RET}}},
    {"calls_never_twice", 0, {{"at_calls_never_twice", TAIL}}},
    {"with_cold", 0, {{"at_with_cold", RET}, {"at_with_cold_part", RET}}},
    {"with_throw", 0, {{"at_with_throw", RET}}},
    {"with_unnamed", 0, {{"at_with_unnamed", RET}, {"at_unnamed_part", RET}}},
    {"to_uncalled", 0, {{"at_to_uncalled", TAIL}}},
    {"uncalled", 0, {{"at_uncalled", RET}}},
    {"to_unnamed1", 0, {{"at_to_unnamed1", TAIL}}},
    {"to_unnamed2", 0, {{"at_to_unnamed2", TAIL}}},
    {"into_middle", UNKNOWN, {{0}}},
    {"has_middle", UNKNOWN, {{0}}},
    {"falls", UNKNOWN, {{0}}},
    {"fallen_into", 0, {{"at_fallen_into", RET}}},
    {"switches", 0, {{"at_switches0", RET}, {"at_switches1", RET}, {"at_switches2", RET}}},
    {"goes_to", 0, {{"at_goes_to0", RET}, {"at_goes_to1", RET}}},
    {"goes_or_leaves", UNKNOWN, {{0}}},
    {"entered", UNKNOWN, {{0}}},
    {"variable", 0, {{"at_variable", RET}}},
    {"realigned", 0, {{"at_realigned", RET}}},
    {"kept", 0, {{"at_kept", RET}}},
    {"not_kept", UNKNOWN, {{0}}},
    {"clobbered", UNKNOWN, {{0}}},
    {"stack_switch", UNKNOWN, {{0}}},
    {"calls_inside", UNKNOWN, {{0}}},
    {"recursive", 0, {{"at_recursive", RET}}},
    {"compares", 0, {{"at_compares", RET}}},
    {"catches", 0, {{"at_catches", RET}, {"at_catches_pad", RET}}},
    {"junk", UNKNOWN, {{0}}},
};
// clang-format on

struct shared {
    struct victim victim;
    struct elf_facts elf;
    struct tl_analysis *analysis;
    tl_addr pad;
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
        !elf_facts_load(shared.victim.path, &shared.elf))
        return -1;
    shared.pad = named("at_pad");
    shared.elf.facts.landing_pads = &shared.pad;
    shared.elf.facts.landing_pad_count = 1;
    return tl_analysis_create(&shared.elf.facts, &shared.analysis, NULL);
}

static int victim_teardown(void **state)
{
    (void)state;
    tl_analysis_destroy(shared.analysis);
    elf_facts_free(&shared.elf);
    victim_remove(&shared.victim);
    return 0;
}

static size_t exits_of(const char *name, struct tl_exit *out, size_t max, enum tl_refusal *refusal)
{
    size_t count = 0;
    assert_int_equal(
        tl_analysis_exits(shared.analysis, named(name), out, max, &count, refusal, NULL), 0);
    return count;
}

static void check_exits(const struct exits *expected)
{
    struct tl_exit exits[8];
    enum tl_refusal refusal;
    size_t count = exits_of(expected->name, exits, 8, &refusal), wanted = 0;
    while (wanted < TL_ARRAY_COUNT(expected->exit) && expected->exit[wanted].at != NULL)
        wanted++;
    if (refusal != expected->refusal || count != wanted)
        fail_msg("%s: refusal \"%s\", %zu exits", expected->name, tl_refusal_text(refusal), count);
    for (size_t i = 0; i < count; i++) {
        if (exits[i].vaddr != named(expected->exit[i].at))
            fail_msg("%s: exit at 0x%llx, not %s", expected->name,
                     (unsigned long long)exits[i].vaddr, expected->exit[i].at);
        if (exits[i].kind != expected->exit[i].kind)
            fail_msg("%s: kind %d at %s", expected->name, exits[i].kind, expected->exit[i].at);
    }
}

static void exits_are_all_known_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++)
        check_exits(&cases[i]);
}

static void more_exits_than_asked_for_are_refused(void **state)
{
    (void)state;
    struct tl_exit exits[2];
    enum tl_refusal refusal;
    assert_int_equal(exits_of("two", exits, 2, &refusal), 2);
    assert_int_equal(refusal, TL_REFUSE_NONE);
    assert_int_equal(exits_of("two", exits, 1, &refusal), 0);
    assert_int_equal(refusal, TL_REFUSE_EXIT_UNKNOWN);
}

static void what_is_no_function_is_refused(void **state)
{
    (void)state;
    struct tl_exit exits[2];
    enum tl_refusal refusal = TL_REFUSE_NONE;
    size_t count = 1;
    assert_int_equal(
        tl_analysis_exits(shared.analysis, named("plain") + 1, exits, 2, &count, &refusal, NULL),
        0);
    assert_int_equal(count, 0);
    assert_int_equal(refusal, TL_REFUSE_EXIT_UNKNOWN);
}

static void early_places_lead_only_to_the_exit(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct {
            const char *at;
            int32_t sp_off;
        } early[4];
    } table[] = {
        {"early", {{"at_early1", -8}, {"at_early2", -16}, {"at_early3", -32}}},
        // What others jump to may be the first of the run, but nothing before it leads here alone.
        {"early_stops", {{"at_joined", -8}}},
        {"early_loads", {{"at_early_loads1", -24}, {"at_early_loads2", -24}}},
        {"two", {{0}}},
        {"recursive", {{0}}},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(table); i++) {
        struct tl_exit exits[4];
        enum tl_refusal refusal;
        assert_true(exits_of(table[i].name, exits, 4, &refusal) > 0);
        size_t wanted = 0;
        for (; table[i].early[wanted].at != NULL; wanted++) {
            assert_int_equal(exits[0].early[wanted].vaddr, named(table[i].early[wanted].at));
            assert_int_equal(exits[0].early[wanted].sp_off, table[i].early[wanted].sp_off);
        }
        assert_int_equal(exits[0].early_count, wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exits_are_all_known_or_refused),
        cmocka_unit_test(more_exits_than_asked_for_are_refused),
        cmocka_unit_test(what_is_no_function_is_refused),
        cmocka_unit_test(early_places_lead_only_to_the_exit),
    };
    return cmocka_run_group_tests(tests, victim_setup, victim_teardown);
}

// Facts of sites in small victims written for the purpose: windows and what ends them, entries and
// loops, dead registers, refusals. The victims are assembled when the test runs.
#include "assemble.h"
#include "elf_facts.h"

#include "arch/arch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOCAL(name, body)                                                                          \
    ".type " name ",@function\n.p2align 4\n" name ":\n" body "\n.size " name ",.-" name "\n"
#define FUNCTION(name, body) ".globl " name "\n" LOCAL(name, body)

// Labels at_... are places that the tables below name.
// clang-format off
static const char victim_text[] =
    ".intel_syntax noprefix\n.text\n"
    FUNCTION("plain", "push rbp\nmov rbp,rsp\nsub rsp,0x20\nleave\nret")
    FUNCTION("inward", "nop\nat_inward: nop\nnop\njo at_inward\nret")
    FUNCTION("inward_long", "nop\nat_inward_long: nop\nnop\n.byte 0x0f,0x80\n"
                            ".long at_inward_long-.-4\nret")
    FUNCTION("looped", "dec edi\njnz looped\nret")
    FUNCTION("looped_endbr", "endbr64\nat_loop: dec edi\njnz at_loop\nret")
    FUNCTION("not_looped", "endbr64\ndec edi\njnz not_looped\nret")
    FUNCTION("with_cold", "test edi,edi\njz with_cold_part\nat_warm: dec edi\njnz with_cold\nret")
    LOCAL("with_cold_part", "inc edi\njs with_cold\njmp at_warm")
    FUNCTION("ping", "dec edi\njz pong\nat_ping: ret")
    LOCAL("pong", "dec esi\njz ping\njs at_ping\nret")
    FUNCTION("calls_pong", "call pong\nret")
    FUNCTION("many_loops", "dec edi\njz many_loops\njs many_loops\njc many_loops\njo many_loops\n"
                           "jp many_loops\nret")
    FUNCTION("calls", "push rbx\ncall plain\npop rbx\nret")
    FUNCTION("calls_second", "nop\ncall rax\nnop\nnop\nnop\nret")
    FUNCTION("syscalls", "mov eax,edi\nat_syscall: syscall\nret")
    FUNCTION("four", "nop\nnop\nnop\nret")
    FUNCTION("five", "nop\nnop\nnop\nnop\nret")
    FUNCTION("rep_ret", "rep ret")
    ".p2align 4\n" FUNCTION("first", "nop\nret\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\n"
                                     "nop\nnop\nnop\nnop")
    FUNCTION("tight", ".skip 13,0x90\nat_tight: pop rax\nnop\nret")
    FUNCTION("tight_next", "nop\nret")
    FUNCTION("locked", "test edi,edi\nje at_unlocked\nat_locked: .byte 0xf0\n"
                       "at_unlocked: cmpxchg [rsi],edx\nret")
    FUNCTION("restorer", "at_restorer: mov rax,15\nat_restorer2: syscall")
    FUNCTION("restorer32", "at_restorer32: mov eax,15\nsyscall")
    FUNCTION("transaction", "at_xbegin: xbegin at_abort\nat_xend: xend\nret\nat_abort: nop\nret")
    FUNCTION("traps", "at_int3: int3\nret")
    FUNCTION("traps_ud2", "at_ud2: ud2")
    FUNCTION("halts", "at_hlt: hlt")
    FUNCTION("before_data", "lea rax,[rip+at_data]\nret")
    "at_data: .byte 0x0f,0xff,0x48,0xb8,0x55,0x48,0xe8,0x00\n"
    FUNCTION("behind_data", "push rbp\nmov rbp,rsp\npop rbp\nret")
    FUNCTION("takes_label", "lea rax,[rip+at_taken]\nmov [rdi],rax\nnop\nat_before_taken: nop\n"
                            "at_taken: nop\nnop\nnop\nnop\nret")
    FUNCTION("computes", "lea rax,[rip+at_computed]\nshl edi,6\nadd rax,rdi\nat_computes: nop\n"
                         "jmp rax\nat_computed: nop\nret")
    FUNCTION("tail_indirect", "mov rax,[rdi+8]\nat_tail_nop: nop\nnop\njmp rax")
    FUNCTION("falls", "nop\nnop")
    FUNCTION("emulates", "at_emulates: .byte 0x0f,0x0b,0x6b,0x76,0x6d\ncpuid\nret")
    FUNCTION("data16", "at_data16: .byte 0x66,0xe8,0,0,0,0\nret")
    // Dead registers.
    FUNCTION("dead_plain", "mov eax,edi\nxor ecx,ecx\nmov edx,eax\nret")
    FUNCTION("dead_partial", "mov al,1\nmov ax,2\nret")
    FUNCTION("dead_one_path", "test edi,edi\nje 1f\nmov eax,ecx\nret\n1: mov ecx,5\nmov eax,ecx\n"
                              "ret")
    FUNCTION("dead_both_paths", "test edi,edi\nje 1f\nmov ecx,6\nret\n1: mov ecx,5\nret")
    FUNCTION("dead_cmov", "cmp edi,esi\ncmovz eax,edi\nret")
    FUNCTION("dead_call", "at_dead_call: call dead_plain\nret")
    FUNCTION("dead_plt", "at_dead_plt: call outside@PLT\nmov ecx,5\nret")
    FUNCTION("dead_tail", "jmp dead_plain")
    FUNCTION("dead_recursive", "dec edi\njz 1f\ncall dead_recursive\nmov ecx,5\n1: ret")
    FUNCTION("dead_loop", "1: mov r8d,[rdi]\nadd rdi,4\ndec esi\njnz 1b\nret")
    FUNCTION("dead_flags", "mov eax,1\nadd eax,edi\nret")
    FUNCTION("dead_flags_inc", "inc eax\nret")
    FUNCTION("dead_flags_logic", "test edi,edi\nret")
    FUNCTION("dead_flags_read", "adc eax,0\nret")
    FUNCTION("dead_indirect", "xor eax,eax\njmp rdx")
    FUNCTION("dead_stop", "at_dead_stop: nop\nud2")
    FUNCTION("dead_rep", "mov ecx,4\nxor eax,eax\nrep stosb\nret")
    FUNCTION("dead_zero_count", "rep lodsb\nret");
// clang-format on

struct shared {
    struct victim victim;
    struct elf_facts elf;
    struct tl_analysis *analysis;
};

static struct shared shared;

static int victim_setup(void **state)
{
    (void)state;
    if (!victim_build(&shared.victim, "cc", "victim.s", victim_text,
                      "-shared -nostdlib -Wl,-Bsymbolic") ||
        !elf_facts_load(shared.victim.path, &shared.elf))
        return -1;
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

static tl_addr named(const char *name)
{
    tl_addr addr = elf_facts_find(&shared.elf, name, NULL);
    if (addr == 0)
        fail_msg("no %s in the victim", name);
    return addr;
}

static struct tl_site_facts site_at(tl_addr addr)
{
    struct tl_site_facts site;
    assert_int_equal(tl_analysis_site(shared.analysis, addr, &site, NULL), 0);
    return site;
}

static const struct window {
    const char *name;
    unsigned min, max;
    enum tl_refusal end;
} windows[] = {
    // pushes, mov, sub, leave, ret: 10 bytes, and padding
    {"plain", 10, 16, TL_REFUSE_WINDOW_TARGET},
    {"inward", 1, 1, TL_REFUSE_WINDOW_TARGET},
    {"inward_long", 1, 1, TL_REFUSE_WINDOW_TARGET},
    {"at_inward", 5, 15, TL_REFUSE_WINDOW_TARGET},
    {"calls", 6, 6, TL_REFUSE_WINDOW_CALL},
    {"calls_second", 3, 3, TL_REFUSE_WINDOW_CALL},
    {"syscalls", 2, 2, TL_REFUSE_WINDOW_SYSCALL},
    {"four", 16, 16, TL_REFUSE_WINDOW_TARGET},
    {"five", 16, 16, TL_REFUSE_WINDOW_TARGET},
    {"rep_ret", 16, 16, TL_REFUSE_WINDOW_TARGET},
    {"first", 16, 16, TL_REFUSE_WINDOW_TARGET},
    {"at_tight", 3, 3, TL_REFUSE_WINDOW_TARGET},
    {"at_before_taken", 1, 1, TL_REFUSE_WINDOW_TARGET},
    {"at_computes", 1, 1, TL_REFUSE_WINDOW_UNPROVED},
    {"at_tail_nop", 12, 12, TL_REFUSE_WINDOW_TARGET},
    {"behind_data", 6, 16, TL_REFUSE_WINDOW_TARGET},
    {"before_data", 8, 8, TL_REFUSE_WINDOW_TARGET},
    {"transaction", 0, 0, TL_REFUSE_NONE},
    {"falls", 2, 16, TL_REFUSE_WINDOW_TARGET},
};

static void windows_end_where_they_must(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(windows); i++) {
        struct tl_site_facts site = site_at(named(windows[i].name));
        if (site.window_max >= windows[i].min && site.window_max <= windows[i].max &&
            (site.window_end_refusal == windows[i].end || site.refusal != TL_REFUSE_NONE))
            continue;
        wrong++;
        print_error("%s: window %u, '%s'; refusal '%s'\n", windows[i].name, site.window_max,
                    tl_refusal_text(site.window_end_refusal), tl_refusal_text(site.refusal));
    }
    assert_int_equal(wrong, 0);
}

static const struct refused {
    const char *name;
    int plus;
    enum tl_refusal refusal;
} refused[] = {
    {"plain", 0, TL_REFUSE_NONE},
    {"plain", 2, TL_REFUSE_NOT_BOUNDARY},
    {"at_syscall", 0, TL_REFUSE_SYSCALL},
    {"at_locked", 0, TL_REFUSE_OVERLAP},
    {"at_unlocked", 0, TL_REFUSE_OVERLAP},
    {"at_restorer", 0, TL_REFUSE_SIGRETURN},
    {"at_restorer2", 0, TL_REFUSE_SYSCALL},
    {"at_restorer32", 0, TL_REFUSE_SIGRETURN},
    {"at_xbegin", 0, TL_REFUSE_TRANSACTION},
    {"at_xend", 0, TL_REFUSE_TRANSACTION},
    {"at_abort", 0, TL_REFUSE_NONE},
    {"at_int3", 0, TL_REFUSE_TRAP},
    {"at_ud2", 0, TL_REFUSE_TRAP},
    {"at_hlt", 0, TL_REFUSE_PRIVILEGED},
    {"at_data", 0, TL_REFUSE_UNKNOWN_CODE},
    {"at_computed", 0, TL_REFUSE_UNKNOWN_CODE},
    {"at_emulates", 0, TL_REFUSE_EMULATE},
    {"at_data16", 0, TL_REFUSE_VENDOR},
    {"plain", 0x10000000, TL_REFUSE_NOT_CODE},
};

static void refusals_name_their_reason(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(refused); i++) {
        struct tl_site_facts site = site_at(named(refused[i].name) + (tl_addr)refused[i].plus);
        if (site.refusal == refused[i].refusal)
            continue;
        wrong++;
        print_error("%s+%d: '%s', not '%s'\n", refused[i].name, refused[i].plus,
                    tl_refusal_text(site.refusal), tl_refusal_text(refused[i].refusal));
    }
    assert_int_equal(wrong, 0);
}

#define R(n) ((tl_regset)1 << (n))
#define FL TL_REGSET_FLAGS

static const struct dead {
    const char *name;
    tl_regset dead;
} deads[] = {
    {"dead_plain", R(0) | R(1) | R(2) | FL},
    {"dead_partial", 0},
    {"dead_one_path", R(0) | FL},
    {"dead_both_paths", R(1) | FL},
    {"dead_cmov", FL},
    {"dead_call", R(0) | R(1) | R(2) | FL},
    {"dead_plt", 0},
    {"dead_tail", R(0) | R(1) | R(2) | FL},
    {"dead_recursive", 0},
    {"dead_loop", R(8) | FL},
    {"dead_flags", R(0) | FL},
    {"dead_flags_inc", 0},
    {"dead_flags_logic", FL},
    {"dead_flags_read", 0},
    {"dead_indirect", R(0) | FL},
    {"dead_stop", 0},
    {"dead_rep", R(0) | R(1) | FL},
    {"dead_zero_count", 0},
};

static void registers_are_dead_by_data_flow_only(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(deads); i++) {
        struct tl_site_facts site = site_at(named(deads[i].name));
        if (site.dead == deads[i].dead)
            continue;
        wrong++;
        print_error("%s: dead %#llx, not %#llx\n", deads[i].name, (unsigned long long)site.dead,
                        (unsigned long long)deads[i].dead);
    }
    assert_int_equal(wrong, 0);
}

static void loops_to_an_entry_are_found(void **state)
{
    (void)state;
    struct tl_site_facts site = site_at(named("looped"));
    assert_true(site.entry && site.looped);
    assert_int_equal(site.looper_count, 1);
    assert_int_equal(site.loopers[0], named("looped") + 2);
    tl_addr entry = tl_analysis_entry(shared.analysis, named("looped_endbr"));
    assert_int_equal(entry, named("looped_endbr") + 4);
    site = site_at(entry);
    assert_true(site.entry && site.looped && !site.looper_more);
    // A jump to the endbr64 is a new call of the function, not a loop.
    site = site_at(tl_analysis_entry(shared.analysis, named("not_looped")));
    assert_true(site.entry && !site.looped);
    // A part that nobody calls belongs to the function; one that is called is another function.
    site = site_at(named("with_cold"));
    assert_int_equal(site.looper_count, 2);
    assert_int_equal(site.loopers[0], named("at_warm") + 2);
    assert_int_equal(site.loopers[1], named("with_cold_part") + 2);
    assert_false(site_at(named("ping")).looped);
    site = site_at(named("many_loops"));
    assert_int_equal(site.looper_count, 4);
    assert_true(site.looper_more);
    site = site_at(named("plain"));
    assert_true(site.entry && !site.looped);
    site = site_at(named("plain") + 1);
    assert_false(site.entry);
}

static void boundaries_are_the_nearest_instructions(void **state)
{
    (void)state;
    tl_addr below = 0, above = 0, plain = named("plain");
    assert_true(tl_analysis_boundaries(shared.analysis, plain + 2, &below, &above));
    assert_int_equal(below, plain + 1);
    assert_int_equal(above, plain + 4);
    assert_false(tl_analysis_boundaries(shared.analysis, named("at_data"), &below, &above));
    tl_addr insns[8];
    assert_int_equal(tl_analysis_insns(shared.analysis, plain, insns, 8), 5);
    assert_int_equal(insns[4], plain + 9);
    assert_int_equal(tl_analysis_insns(shared.analysis, plain, insns, 1), 5);
    assert_int_equal(tl_analysis_insns(shared.analysis, plain + 1, insns, 8), 0);
}

static void site_insns_run_straight_on(void **state)
{
    (void)state;
    struct tl_site_facts site = site_at(named("plain"));
    assert_true(site.insn_count >= 5);
    unsigned bytes = 0;
    for (unsigned i = 0; i < site.insn_count; i++) {
        assert_int_equal(site.insn[i].addr, site.vaddr + bytes);
        assert_memory_equal(site.insn[i].bytes, site.bytes + bytes,
                            bytes + site.insn[i].size <= TL_SITE_BYTES_MAX ? site.insn[i].size : 0);
        bytes += site.insn[i].size;
    }
    assert_int_equal(site.insn_bytes, bytes);
    char text[32];
    tl_arch_x86_64.print(&site.insn[0], text, sizeof(text));
    assert_string_equal(text, "push rbp");
}

static void padding_is_owned_by_no_code(void **state)
{
    (void)state;
    const struct tl_range *padding;
    size_t count = tl_analysis_padding(shared.analysis, &padding);
    assert_true(count > 10);
    tl_addr data = named("at_data"), falls = named("falls");
    for (size_t i = 0; i < count; i++) {
        assert_true(padding[i].start < padding[i].end);
        assert_true(i == 0 || padding[i - 1].end <= padding[i].start);
        assert_false(padding[i].start <= data && data < padding[i].end);
        // Nops that a function falls into are code.
        assert_false(padding[i].start <= falls + 2 && falls + 2 < padding[i].end);
    }
}

// The same victim with ranges that only the file's metadata can tell.
static void ranges_from_metadata_are_kept(void **state)
{
    (void)state;
    struct tl_module_facts facts = shared.elf.facts;
    tl_addr plain = named("plain"), four = named("four"), pad = named("five") + 2;
    struct tl_range rseq = {plain + 4, plain + 8}, avoid = {four, four + 4};
    struct tl_analysis *analysis;
    struct tl_site_facts site;
    facts.rseq = &rseq;
    facts.rseq_count = 1;
    facts.avoid = &avoid;
    facts.avoid_count = 1;
    facts.landing_pads = &pad;
    facts.landing_pad_count = 1;
    assert_int_equal(tl_analysis_create(&facts, &analysis, NULL), 0);
    assert_int_equal(tl_analysis_site(analysis, plain, &site, NULL), 0);
    assert_int_equal(site.window_max, 4);
    assert_int_equal(site.window_end_refusal, TL_REFUSE_RSEQ);
    assert_int_equal(tl_analysis_site(analysis, plain + 4, &site, NULL), 0);
    assert_int_equal(site.refusal, TL_REFUSE_RSEQ);
    assert_int_equal(tl_analysis_site(analysis, four, &site, NULL), 0);
    assert_int_equal(site.refusal, TL_REFUSE_TLS_RESOLVER);
    assert_int_equal(tl_analysis_site(analysis, named("five"), &site, NULL), 0);
    assert_int_equal(site.window_max, 2);
    assert_int_equal(site.window_end_refusal, TL_REFUSE_WINDOW_TARGET);
    tl_analysis_destroy(analysis);
}

// Names without a type may be data: local ones unless known code leads there, others if known code
// does nothing but read them.
#define UNTYPED_OFF 0x100u // of the first in the text
#define UNTYPED_SIZE 16u

enum use { READ = 1, TAKEN = 2, CALLED = 4, JUMPED = 8 };
static const struct {
    unsigned use;
    bool local, data;
} untyped[] = {
    {0, false, false},
    {0, true, true},
    {READ, false, true},
    {READ, true, true},
    {TAKEN, false, false},
    {TAKEN, true, true},
    {READ | TAKEN, false, false},
    {READ | TAKEN, true, true},
    {CALLED, false, false},
    {CALLED, true, false},
    {READ | CALLED, false, false},
    {READ | CALLED, true, false},
    {JUMPED, false, false},
    {JUMPED, true, false},
    {READ | JUMPED, false, false},
    {READ | JUMPED, true, false},
};

// One function that does with each what the table says: mov and lea of rax, call, jz.
static void untyped_uses(uint8_t *text)
{
    static const struct {
        enum use use;
        uint8_t size, bytes[3];
    } insns[] = {{READ, 3, {0x48, 0x8b, 0x05}},
                 {TAKEN, 3, {0x48, 0x8d, 0x05}},
                 {CALLED, 1, {0xe8}},
                 {JUMPED, 2, {0x0f, 0x84}}};
    size_t at = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(untyped); i++) {
        for (size_t k = 0; k < TL_ARRAY_COUNT(insns); k++) {
            if (!(untyped[i].use & insns[k].use))
                continue;
            memcpy(text + at, insns[k].bytes, insns[k].size);
            at += insns[k].size + 4u;
            int32_t away = (int32_t)(UNTYPED_OFF + i * UNTYPED_SIZE - at);
            memcpy(text + at - 4, &away, 4);
        }
    }
    text[at] = 0xc3;
    assert_true(at < UNTYPED_OFF);
}

static void untyped_names_may_be_data(void **state)
{
    (void)state;
    enum { COUNT = TL_ARRAY_COUNT(untyped), BASE = 0x1000 };
    static uint8_t bytes[UNTYPED_OFF + COUNT * UNTYPED_SIZE];
    static struct tl_extent extents[1 + COUNT] = {
        {.vaddr = BASE, .size = UNTYPED_OFF, .symbol = true}};
    struct tl_analysis *analysis;
    memset(bytes, 0xcc, sizeof bytes);
    untyped_uses(bytes);
    for (size_t i = 0; i < COUNT; i++) {
        size_t off = UNTYPED_OFF + i * UNTYPED_SIZE;
        memcpy(bytes + off, "\x90\x31\xc0\xc3", 4); // nop; xor eax, eax; ret
        extents[1 + i] = (struct tl_extent){.vaddr = BASE + off,
                                            .size = UNTYPED_SIZE,
                                            .guessed = true,
                                            .symbol = true,
                                            .untyped = true,
                                            .doubted = untyped[i].local};
    }
    const struct tl_text text = {.vaddr = BASE, .bytes = bytes, .size = sizeof bytes};
    const struct tl_module_facts facts = {
        .text = &text, .text_count = 1, .functions = extents, .function_count = 1 + COUNT};
    assert_int_equal(tl_analysis_create(&facts, &analysis, NULL), 0);
    for (size_t i = 0; i < COUNT; i++) {
        struct tl_site_facts site;
        for (unsigned part = 0; part < 2; part++) { // its start, and code behind that
            assert_int_equal(tl_analysis_site(analysis, extents[1 + i].vaddr + part, &site, NULL),
                             0);
            if (site.refusal != (untyped[i].data ? TL_REFUSE_UNKNOWN_CODE : TL_REFUSE_NONE))
                fail_msg("name %zu, byte %u: %s", i, part, tl_refusal_text(site.refusal));
        }
    }
    tl_analysis_destroy(analysis);
}

static void hostile_facts_are_errors(void **state)
{
    (void)state;
    struct tl_diag diag;
    struct tl_analysis *analysis = NULL;
    static const uint8_t bytes[16] = {0};
    struct tl_text text = {.vaddr = UINT64_MAX - 4, .bytes = bytes, .size = 16};
    struct tl_module_facts facts = {.text = &text, .text_count = 1};
    assert_int_equal(tl_analysis_create(&facts, &analysis, &diag), TL_E_FORMAT);
    text.vaddr = 0x1000;
    struct tl_extent extents[2] = {{.vaddr = 0x1000, .size = 4}, {.vaddr = 0x1000, .size = 8}};
    facts.functions = extents;
    facts.function_count = 2;
    assert_int_equal(tl_analysis_create(&facts, &analysis, &diag), TL_E_FORMAT);
    extents[1].vaddr = 0x1008;
    extents[1].size = 0;
    assert_int_equal(tl_analysis_create(&facts, &analysis, &diag), TL_E_FORMAT);
    extents[1].size = UINT64_MAX;
    assert_int_equal(tl_analysis_create(&facts, &analysis, &diag), TL_E_FORMAT);
    facts.elf_machine = 0xffff;
    facts.function_count = 1;
    assert_int_equal(tl_analysis_create(&facts, &analysis, &diag), TL_E_UNSUPPORTED);
    assert_null(analysis);
    tl_analysis_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_end_where_they_must),
        cmocka_unit_test(refusals_name_their_reason),
        cmocka_unit_test(registers_are_dead_by_data_flow_only),
        cmocka_unit_test(loops_to_an_entry_are_found),
        cmocka_unit_test(boundaries_are_the_nearest_instructions),
        cmocka_unit_test(site_insns_run_straight_on),
        cmocka_unit_test(padding_is_owned_by_no_code),
        cmocka_unit_test(ranges_from_metadata_are_kept),
        cmocka_unit_test(untyped_names_may_be_data),
        cmocka_unit_test(hostile_facts_are_errors),
    };
    return cmocka_run_group_tests(tests, victim_setup, victim_teardown);
}

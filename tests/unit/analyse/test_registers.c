// Proves the register sets by running instructions: what is claimed not to be read may be changed
// without any other effect, and what is claimed to be written does not depend on its old value.
// Runs in an emulator, over instructions of the C library and the table's examples; and, for the
// flag that manuals leave undefined after logic, on the processor itself.
#include "assemble.h"
#include "elf_facts.h"

#include "analyse/analysis.h"
#include "arch/arch.h"
#include "arch/x86_64/x86_64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <unicorn/unicorn.h>

struct example {
    const char *row, *text;
};
#include "isa_x86_64_examples.inc"

#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"
#define CODE_ADDR UINT64_C(0x7fff10000000)
#define STATES 2  // random states an instruction
#define STRIDE 97 // every so manieth instruction of the library
#define PAGES_MAX 16
#define WRITES_MAX 128
#define FLAG_MASK 0x8d5u // CF PF AF ZF SF OF

static const int reg_ids[16] = {UC_X86_REG_RAX, UC_X86_REG_RCX, UC_X86_REG_RDX, UC_X86_REG_RBX,
                                UC_X86_REG_RSP, UC_X86_REG_RBP, UC_X86_REG_RSI, UC_X86_REG_RDI,
                                UC_X86_REG_R8,  UC_X86_REG_R9,  UC_X86_REG_R10, UC_X86_REG_R11,
                                UC_X86_REG_R12, UC_X86_REG_R13, UC_X86_REG_R14, UC_X86_REG_R15};
static const struct {
    tl_regset bit;
    uint64_t mask;
} flag_ids[6] = {{TL_REGSET_CF, 1},    {TL_REGSET_PF, 4},    {TL_REGSET_AF, 0x10},
                 {TL_REGSET_ZF, 0x40}, {TL_REGSET_SF, 0x80}, {TL_REGSET_OF, 0x800}};

struct state {
    uint64_t reg[16], flags, vector[2][2];
};

struct machine {
    uc_engine *uc;
    uint64_t page[PAGES_MAX];
    unsigned page_count;
    uint64_t write[WRITES_MAX]; // folded address, size and value
    unsigned write_count;
    uint64_t seed;
};

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static bool on_unmapped(uc_engine *uc, uc_mem_type type, uint64_t addr, int size, int64_t value,
                        void *user)
{
    (void)type;
    (void)value;
    struct machine *machine = user;
    for (uint64_t page = addr & ~0xfffull; page <= ((addr + (uint64_t)size - 1) & ~0xfffull);
         page += 0x1000) {
        uint64_t words[512];
        for (unsigned i = 0; i < 512; i++) // contents follow from the address
            words[i] = (page + i * 8) * 0x9e3779b97f4a7c15ull;
        if (machine->page_count == PAGES_MAX)
            return false;
        if (uc_mem_map(uc, page, 0x1000, UC_PROT_READ | UC_PROT_WRITE) != UC_ERR_OK)
            continue; // the other half of the access is mapped already
        machine->page[machine->page_count++] = page;
        uc_mem_write(uc, page, words, sizeof(words));
    }
    return true;
}

static void on_write(uc_engine *uc, uc_mem_type type, uint64_t addr, int size, int64_t value,
                     void *user)
{
    (void)uc;
    (void)type;
    struct machine *machine = user;
    if (machine->write_count < WRITES_MAX)
        machine->write[machine->write_count++] =
            (addr * 31 + (uint64_t)size) * 1000003 + (uint64_t)value;
}

// Runs one instruction from *state and leaves the result there. false: it can't be run here.
static bool run(struct machine *machine, const struct tl_insn *insn, struct state *state)
{
    uc_engine *uc = machine->uc;
    for (unsigned i = 0; i < machine->page_count; i++)
        uc_mem_unmap(uc, machine->page[i], 0x1000);
    machine->page_count = machine->write_count = 0;
    for (unsigned i = 0; i < 16; i++)
        uc_reg_write(uc, reg_ids[i], &state->reg[i]);
    uint64_t flags = state->flags | 2;
    uc_reg_write(uc, UC_X86_REG_RFLAGS, &flags);
    for (int i = 0; i < 16; i++)
        uc_reg_write(uc, UC_X86_REG_XMM0 + i, state->vector[i & 1]);
    uc_err error = uc_emu_start(uc, CODE_ADDR, CODE_ADDR + insn->size, 0, 1);
    uint64_t pc = 0;
    uc_reg_read(uc, UC_X86_REG_RIP, &pc);
    // A repeated instruction may stop between two rounds; any other that stands still did not run.
    bool again = strcmp(tl_x86_64_row_name(insn->row), "string") == 0;
    if (error != UC_ERR_OK || (pc != CODE_ADDR + insn->size && !(again && pc == CODE_ADDR)))
        return false;
    for (unsigned i = 0; i < 16; i++)
        uc_reg_read(uc, reg_ids[i], &state->reg[i]);
    uc_reg_read(uc, UC_X86_REG_RFLAGS, &state->flags);
    state->flags &= FLAG_MASK;
    uc_reg_read(uc, UC_X86_REG_XMM0, state->vector[0]);
    uc_reg_read(uc, UC_X86_REG_XMM0 + 1, state->vector[1]);
    return true;
}

static void state_random(struct state *state, uint64_t *seed)
{
    for (unsigned i = 0; i < 16; i++) {
        state->reg[i] = next_random(seed) & 0x7fffffffffff;
        if (next_random(seed) % 4 == 0) // small counts and the like
            state->reg[i] &= 0x3f;
    }
    state->reg[1] &= 0x1f; // rcx: repeat counts stay small
    state->reg[4] &= ~7ull;
    state->flags = next_random(seed) & FLAG_MASK;
    for (unsigned i = 0; i < 4; i++)
        state->vector[i / 2][i % 2] = next_random(seed);
}

// Compares two results of runs that differ only in general register `reg` (16: in `flag`).
static bool same_but(const struct machine *machine, const struct state *one,
                     const struct state *two, const uint64_t *writes, unsigned write_count,
                     unsigned reg, uint64_t flag)
{
    for (unsigned i = 0; i < 16; i++)
        if (i != reg && one->reg[i] != two->reg[i])
            return false;
    return ((one->flags ^ two->flags) & FLAG_MASK & ~flag) == 0 &&
           memcmp(one->vector, two->vector, sizeof(one->vector)) == 0 &&
           machine->write_count == write_count &&
           memcmp(machine->write, writes, write_count * sizeof(*writes)) == 0;
}

// 1: tested, 0: could not be run, -1: a claim is wrong.
static int claims_hold(struct machine *machine, const struct tl_insn *insn)
{
    uint64_t writes[WRITES_MAX];
    char text[96];
    int tested = 0;
    uint8_t code[TL_INSN_SIZE_MAX + 1];
    memcpy(code, insn->bytes, sizeof(code));
    uc_mem_write(machine->uc, CODE_ADDR, code, insn->size);
    uc_ctl_remove_cache(machine->uc, CODE_ADDR, CODE_ADDR + TL_INSN_SIZE_MAX);
    tl_arch_x86_64.print(insn, text, sizeof(text));
    for (unsigned round = 0; round < STATES; round++) {
        struct state start, before, after;
        state_random(&start, &machine->seed);
        before = start;
        if (!run(machine, insn, &before))
            continue;
        unsigned write_count = machine->write_count;
        memcpy(writes, machine->write, sizeof(writes));
        tested = 1;
        for (unsigned i = 0; i < 16 + 6; i++) {
            tl_regset bit = i < 16 ? (tl_regset)1 << i : flag_ids[i - 16].bit;
            if ((insn->read & bit) != 0)
                continue;
            after = start;
            uint64_t flag = i < 16 ? 0 : flag_ids[i - 16].mask;
            if (i < 16)
                after.reg[i] ^= next_random(&machine->seed) | 1;
            after.flags ^= flag;
            if (!run(machine, insn, &after) ||
                !same_but(machine, &before, &after, writes, write_count, i, flag)) {
                print_error("%s: reads register %u\n", text, i);
                return -1;
            }
            bool differs =
                i < 16 ? before.reg[i] != after.reg[i] : ((before.flags ^ after.flags) & flag) != 0;
            if ((insn->written & bit) != 0 && differs) {
                print_error("%s: does not write register %u\n", text, i);
                return -1;
            }
        }
    }
    return tested;
}

static void machine_init(struct machine *machine, uint64_t seed)
{
    uc_hook hook;
    *machine = (struct machine){.seed = seed};
    assert_int_equal(uc_open(UC_ARCH_X86, UC_MODE_64, &machine->uc), UC_ERR_OK);
    assert_int_equal(uc_mem_map(machine->uc, CODE_ADDR, 0x1000, UC_PROT_ALL), UC_ERR_OK);
    uc_hook_add(machine->uc, &hook, UC_HOOK_MEM_UNMAPPED, (void *)on_unmapped, machine, 1, 0);
    uc_hook_add(machine->uc, &hook, UC_HOOK_MEM_WRITE, (void *)on_write, machine, 1, 0);
}

static bool is_runnable(const struct tl_insn *insn)
{
    const char *row = tl_x86_64_row_name(insn->row);
    return insn->flow == TL_FLOW_NEXT && insn->reloc != TL_RELOC_REFUSE &&
           strcmp(row, "query") != 0 && strcmp(row, "descriptor") != 0 &&
           strcmp(row, "segment") != 0 &&
           // The emulator keeps flags that fcomi clears (AMD APM volume 5, FCOMI).
           strcmp(row, "x87") != 0 &&
           // It takes these for others that it knows.
           strcmp(row, "avx512") != 0 && strcmp(row, "wait") != 0;
}

static uint64_t seed_get(void)
{
    const char *given = getenv("TL_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("TL_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed * 2 + 1;
}

static void library_instructions_keep_their_claims(void **state)
{
    (void)state;
    struct machine machine;
    struct elf_facts elf;
    struct tl_analysis *analysis;
    unsigned tested = 0, wrong = 0;
    uint64_t seed = seed_get();
    if (!elf_facts_load(LIBC, &elf))
        skip();
    machine_init(&machine, seed);
    assert_int_equal(tl_analysis_create(&elf.facts, &analysis, NULL), 0);
    size_t count = seed % STRIDE;
    for (size_t i = 0; i < elf.facts.function_count; i++) {
        static tl_addr addrs[1 << 16];
        size_t insns =
            tl_analysis_insns(analysis, elf.facts.functions[i].vaddr, addrs, TL_ARRAY_COUNT(addrs));
        for (size_t k = 0; k < insns && k < TL_ARRAY_COUNT(addrs); k++) {
            struct tl_insn insn;
            if (++count % STRIDE != 0 || !tl_decode_at(analysis, addrs[k], false, &insn) ||
                !is_runnable(&insn))
                continue;
            int result = claims_hold(&machine, &insn);
            tested += result > 0;
            wrong += result < 0;
        }
    }
    print_message("%u instructions run\n", tested);
    assert_int_equal(wrong, 0);
    assert_true(tested > 1500);
    tl_analysis_destroy(analysis);
    elf_facts_free(&elf);
    uc_close(machine.uc);
}

static const char *const more[] = {
    "shl eax, cl",
    "shr rdx, cl",
    "sar rax, 5",
    "rol eax, 1",
    "rcl rdx, 1",
    "rcr eax, cl",
    "ror cx, 3",
    "shl eax, 32",
    "shl rax, 1",
    "sar eax, 31",
    "shrd eax, edx, cl",
    "bt eax, ecx",
    "bts rax, 3",
    "bsf eax, edx",
    "bsr rax, rcx",
    "neg eax",
    "not rax",
    "cmovb eax, edx",
    "cmova rax, [rdi]",
    "setb dl",
    "sahf",
    "lahf",
    "cmc",
    "clc",
    "stc",
    "mul edx",
    "imul edx",
    "imul rax, rdx",
    "imul ecx, edx, 9",
    "mul dl",
    "xchg al, ah",
    "cmpxchg edx, ecx",
    "cmpxchg [rdi], dl",
    "xadd [rdi], edx",
    "xadd edx, ecx",
    "cwde",
    "cdq",
    "cbw",
    "cwd",
    "movsx dx, al",
    "movsxd rdx, eax",
    "bswap edx",
    "rep movsb",
    "rep stosd",
    "repe cmpsb",
    "repne scasb",
    "rep lodsd",
    "lodsb",
    "stosw",
    "scasd",
    "push [rdi]",
    "pop [rdi]",
    "pushfq",
    "popfq",
    "push 5",
    "leave",
    "enter 16, 0",
    "pcmpistri xmm0, xmm1, 8",
    "ptest xmm0, xmm1",
    "movmskps eax, xmm0",
    "cvttsd2si eax, xmm0",
    "xor ecx, ecx",
    "sub rdx, rdx",
    "xor cx, cx",
    "sub dl, dl",
    "sbb eax, eax",
    "and eax, eax",
    "adc eax, edx",
    "sbb rdx, 5",
    "inc edx",
    "dec rcx",
    "lea eax, [rdx+rcx*2]",
    "test al, dl",
    "movq rdx, xmm0",
    "movd eax, xmm1",
    "pextrw ecx, xmm0, 2",
    "xlatb",
    "cmpxchg16b [rdi]",
    "movzx eax, dh",
    "mov dh, 3",
    "add ah, cl",
    "cmpxchg8b [rdi]",
};

static void chosen_instructions_keep_their_claims(void **state)
{
    (void)state;
    static struct snippet snippets[TL_ARRAY_COUNT(more) + TL_ARRAY_COUNT(examples)];
    struct machine machine;
    size_t count = 0;
    unsigned tested = 0, wrong = 0;
    machine_init(&machine, seed_get());
    for (size_t i = 0; i < TL_ARRAY_COUNT(more); i++)
        snippets[count++].text = more[i];
    for (size_t i = 0; i < TL_ARRAY_COUNT(examples); i++)
        snippets[count++].text = examples[i].text;
    assert_true(assemble(snippets, count));
    for (size_t i = 0; i < count; i++) {
        struct tl_insn insn;
        assert_int_equal(
            tl_arch_x86_64.decode(snippets[i].bytes, snippets[i].size, CODE_ADDR, &insn), 0);
        if (!is_runnable(&insn))
            continue;
        for (unsigned round = 0; round < 8; round++) {
            int result = claims_hold(&machine, &insn);
            tested += result > 0;
            wrong += result < 0;
        }
    }
    assert_int_equal(wrong, 0);
    assert_true(tested > 400);
    uc_close(machine.uc);
}

// The machinery must be able to say no: claims that are false on purpose are found.
static void false_claims_are_found(void **state)
{
    (void)state;
    struct snippet snippets[] = {{.text = "add rax, rdx"},
                                 {.text = "mov al, dl"},
                                 {.text = "adc eax, 1"},
                                 {.text = "inc edx"}};
    struct machine machine;
    struct tl_insn insn;
    machine_init(&machine, seed_get());
    assert_true(assemble(snippets, TL_ARRAY_COUNT(snippets)));
    for (size_t i = 0; i < TL_ARRAY_COUNT(snippets); i++) {
        assert_int_equal(
            tl_arch_x86_64.decode(snippets[i].bytes, snippets[i].size, CODE_ADDR, &insn), 0);
        assert_int_equal(claims_hold(&machine, &insn), 1);
        insn.read &= i == 0 ? ~(tl_regset)4 : i == 2 ? ~TL_REGSET_CF : insn.read;
        insn.written |= i == 1 ? 1 : i == 3 ? TL_REGSET_CF : 0;
        assert_int_equal(claims_hold(&machine, &insn), -1);
    }
    uc_close(machine.uc);
}

// Flags after `op a, b` when AF was 0 and when it was 1.
#define LOGIC_PAIR(op, a, b, clear, set)                                                           \
    do {                                                                                           \
        uint64_t copy_ = (a);                                                                      \
        __asm__ volatile("xor %%eax, %%eax\n\tsahf\n\t" op " %2, %1\n\tpushfq\n\tpop %0"           \
                         : "=&r"(clear), "+r"(copy_)                                               \
                         : "r"((uint64_t)(b))                                                      \
                         : "rax", "cc");                                                           \
        copy_ = (a);                                                                               \
        __asm__ volatile("mov $0x1000, %%eax\n\tsahf\n\t" op " %2, %1\n\tpushfq\n\tpop %0"         \
                         : "=&r"(set), "+r"(copy_)                                                 \
                         : "r"((uint64_t)(b))                                                      \
                         : "rax", "cc");                                                           \
    } while (0)

static void logic_never_keeps_the_adjust_flag(void **state)
{
    (void)state;
    uint64_t seed = seed_get(), clear, set;
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t a = next_random(&seed), b = next_random(&seed);
        LOGIC_PAIR("and", a, b, clear, set);
        assert_int_equal((clear ^ set) & FLAG_MASK, 0);
        LOGIC_PAIR("or", a, b, clear, set);
        assert_int_equal((clear ^ set) & FLAG_MASK, 0);
        LOGIC_PAIR("xor", a, b, clear, set);
        assert_int_equal((clear ^ set) & FLAG_MASK, 0);
        LOGIC_PAIR("test", a, b, clear, set);
        assert_int_equal((clear ^ set) & FLAG_MASK, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(false_claims_are_found),
        cmocka_unit_test(chosen_instructions_keep_their_claims),
        cmocka_unit_test(library_instructions_keep_their_claims),
        cmocka_unit_test(logic_never_keeps_the_adjust_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

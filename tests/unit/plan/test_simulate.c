// Every simulator against Unicorn: the same instruction on the same random state, once emulated,
// once done by hand; registers, flags, memory and the way out must be equal. And: every row of the
// table that names a simulator is run by this test, and every refusal changes nothing.
#include "arch/x86_64/simulate.h"
#include "arch/x86_64/table.h"
#include "arch/x86_64/x86_64.h"
#include "assemble.h"
#include "machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct example {
    const char *row, *text;
};
#include "isa_x86_64_examples.inc"

#define CASES_DEFAULT 100000u // of each form
#define CODE 0x10000000u // where the instruction lies: low, so that 32-bit addresses reach data
#define DATA 0x10001000u // ... and the memory it may touch: code + 0x1000 is what examples name
#define DATA_SIZE 0x2000u
#define R(n) (1u << (n))

enum { AX, CX, DX, BX, SP, BP, SI, DI };

// What the table's examples don't show. Registers in `near` get addresses of the data, those in
// `small` small numbers; the stack pointer nearly always points into the data.
static const struct form {
    const char *text;
    unsigned near, small;
} forms[] = {
    {"nop", 0, 0},
    {".byte 0x66,0x90", 0, 0},
    {".byte 0x66,0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0", 0, 0},
    {"nop word ptr [rax]", 0, 0},
    {"push rax", 0, 0},
    {"push rsp", 0, 0},
    {"push r13", 0, 0},
    {"push 0x7f", 0, 0},
    {"push -0x12345678", 0, 0},
    {"push [rsp]", 0, 0},
    {"push [rsp-8]", 0, 0},
    {"push [rsp+0x20]", 0, 0},
    {"push [rax+8]", R(AX), 0},
    {"push [r12]", R(12), 0},
    {"push [r13+rcx*2-4]", R(13), R(CX)},
    {"push [rbp+r12*8]", R(BP), R(12)},
    {"push [ebx+ecx*4]", R(BX), R(CX)},
    {"push [0x10001040]", 0, 0},
    {"push [rip+0x1000]", 0, 0},
    {"pop rax", 0, 0},
    {"pop rsp", 0, 0},
    {"pop r15", 0, 0},
    {"pop [rsp]", 0, 0},
    {"pop [rsp-0x10]", 0, 0},
    {"pop [rsp+rax*8]", 0, R(AX)},
    {"pop [rdx]", R(DX), 0},
    {"pop [rip+0x1100]", 0, 0},
    {".byte 0x8f,0xc0", 0, 0}, // pop rax, the long form
    {"ret", 0, 0},
    {"ret 0x18", 0, 0},
    {"rep ret", 0, 0},
    {"bnd ret", 0, 0},
    {"call .+0x1000", 0, 0},
    {"call .-0x5000", 0, 0},
    {"call rax", R(AX), 0},
    {"call rsp", 0, 0},
    {"call r9", R(9), 0},
    {"call [rsp+8]", 0, 0},
    {"call [rsp-8]", 0, 0},
    {"call [rdi+rsi*8]", R(DI), R(SI)},
    {"call [rip+0x1002]", 0, 0},
    {"jmp .+0x20", 0, 0},
    {"jmp .-0x70", 0, 0},
    {"jmp rdx", R(DX), 0},
    {"jmp r14", R(14), 0},
    {"jmp [rax*8+0x10001000]", 0, R(AX)},
    {"jmp [rip+0x1102]", 0, 0},
    {"jo .+0x10", 0, 0},
    {"jno .+0x10", 0, 0},
    {"jb .-0x10", 0, 0},
    {"jae .+0x1000", 0, 0},
    {"je .+0x10", 0, 0},
    {"jne .-0x1000", 0, 0},
    {"jbe .+0x10", 0, 0},
    {"ja .+0x10", 0, 0},
    {"js .+0x10", 0, 0},
    {"jns .+0x10", 0, 0},
    {"jp .+0x10", 0, 0},
    {"jnp .+0x10", 0, 0},
    {"jl .+0x10", 0, 0},
    {"jge .+0x10", 0, 0},
    {"jle .+0x10", 0, 0},
    {"jg .+0x1000", 0, 0},
    {"loop .+0x10", 0, R(CX)},
    {"loope .-0x10", 0, R(CX)},
    {"loopne .+0x10", 0, R(CX)},
    {".byte 0x67,0xe2,0x20", 0, R(CX)}, // loop on ecx
    {".byte 0x67,0xe1,0x20", 0, 0},
    {".byte 0x67,0xe0,0x20", 0, 0},
    {"jrcxz .+0x10", 0, R(CX)},
    {"jecxz .+0x10", 0, R(CX)},
    {"lea rax, [rip+0x1000]", 0, 0},
    {"lea rsp, [rsp-0x88]", 0, 0},
    {"lea rax, [rbx+r12*8+0x12345]", 0, 0},
    {"lea ecx, [rdx+rdx*2-1]", 0, 0},
    {"lea r10w, [r11+1]", 0, 0},
    {"lea rsi, [edi+ebp*4]", 0, 0},
    {"lea r8, [r13*8]", 0, 0},
    {"lea rbp, fs:[rax+1]", 0, 0},
    {"endbr64", 0, 0},
    {"endbr32", 0, 0},
};

// No simulator does these: they run by themselves.
static const char *const refused[] = {
    "pause",
    ".byte 0x49,0x90",
    ".byte 0x41,0x90",
    "push ax",
    "push fs",
    "pushfq",
    "pop ax",
    "pop gs",
    "popfq",
    "push fs:[rax]",
    "push gs:[rip+8]",
    "pop fs:[rax]",
    "call fs:[rax]",
    "jmp gs:[rbx+8]",
    ".byte 0x66,0xc3",
    ".byte 0x66,0xe8,0,0,0,0",
    ".byte 0x66,0xff,0xd0",
    ".byte 0x66,0x74,0",
    "leave",
    "enter 8, 0",
    "retf",
    "syscall",
    "int3",
    "mov rax, rbx",
    "xchg rax, r8",
};

static struct machine m;
static unsigned cases_max;
static uint8_t emulated[DATA_SIZE] __attribute__((aligned(4096)));
static uint8_t own[DATA_SIZE];

static bool data_at(uint64_t addr, size_t size)
{
    return addr >= DATA && addr <= DATA + DATA_SIZE - size;
}

static bool own_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    (void)opaque;
    if (data_at(addr, size))
        memcpy(buf, own + (addr - DATA), size);
    return data_at(addr, size);
}

static bool own_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    (void)opaque;
    if (data_at(addr, size))
        memcpy(own + (addr - DATA), buf, size);
    return data_at(addr, size);
}

static const struct tl_simulate_memory memory = {own_read, own_write, NULL};

static int setup(void **state)
{
    (void)state;
    const char *text = getenv("TL_CASES");
    cases_max = text ? (unsigned)strtoul(text, NULL, 0) : CASES_DEFAULT;
    machine_init(&m, seed_get("simulate"));
    machine_map(&m, CODE, 0x1000);
    assert_int_equal(uc_mem_map_ptr(m.uc, DATA, DATA_SIZE, UC_PROT_READ | UC_PROT_WRITE, emulated),
                     UC_ERR_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    machine_deinit(&m);
    return 0;
}

static uint64_t data_pointer(void)
{
    uint64_t offset = machine_random(&m) % (DATA_SIZE + 64);
    return DATA - 32 + (machine_random(&m) % 8 ? offset & ~(uint64_t)7 : offset);
}

static void state_random(const struct form *form, struct state *out)
{
    for (unsigned i = 0; i < 16; i++) {
        uint64_t word = machine_random(&m);
        if (form->near & R(i) || (i == SP && word % 64))
            out->reg[i] = data_pointer();
        else if (form->small & R(i))
            out->reg[i] = word % 8 ? word >> 40 & 0x3f : word;
        else
            out->reg[i] = word % 4 ? word : (uint64_t)(int64_t)(int8_t)(word >> 8);
    }
    out->flags = machine_random(&m) & (ARITHMETIC_FLAGS | 0x400);
    out->rip = CODE;
    // Words that may be branched to are mostly user addresses.
    uint64_t shift = machine_random(&m) % 16 ? 17 : 0;
    for (size_t i = 0; i < 8; i++) {
        uint64_t at = machine_random(&m) % (DATA_SIZE / 8) * 8, word = machine_random(&m) >> shift;
        memcpy(own + at, &word, 8);
        memcpy(emulated + at, &word, 8);
    }
}

static void state_fail(const char *text, const struct state *before, const struct state *after,
                       const struct tl_simulate_state *by_hand)
{
    fprintf(stderr, "%s: rip %llx, by hand %llx; flags %llx, %llx\n", text,
            (unsigned long long)after->rip, (unsigned long long)by_hand->pc,
            (unsigned long long)after->flags, (unsigned long long)by_hand->flags);
    for (unsigned i = 0; i < 16; i++)
        fprintf(stderr, "  r%u %llx -> %llx, by hand %llx\n", i, (unsigned long long)before->reg[i],
                (unsigned long long)after->reg[i], (unsigned long long)by_hand->general[i]);
    fail_msg("%s differs", text);
}

// One case. True: it was done by hand.
static bool case_run(const struct form *form, const struct tl_simulation *simulation)
{
    struct state before, after;
    struct tl_simulate_state by_hand = {.pc = CODE};
    state_random(form, &before);
    memset(before.vector, 0, sizeof before.vector);
    memcpy(by_hand.general, before.reg, sizeof before.reg);
    by_hand.flags = before.flags;
    struct tl_simulate_state untouched = by_hand;
    bool taken = tl_x86_64_simulate_taken(simulation, &by_hand);
    if (!tl_x86_64_simulate(simulation, &by_hand, &memory)) {
        if (memcmp(&by_hand, &untouched, sizeof by_hand) != 0 ||
            memcmp(own, emulated, DATA_SIZE) != 0)
            fail_msg("%s: refused, but something changed", form->text);
        return false;
    }
    machine_load(&m, &before);
    int error = machine_step(&m);
    machine_save(&m, &after);
    // The way out may lead where nothing is mapped: by then the instruction is done.
    if (error && error != UC_ERR_FETCH_UNMAPPED && error != UC_ERR_FETCH_PROT)
        fail_msg("%s: done by hand, but the processor faults (%d)", form->text, error);
    if (after.rip != by_hand.pc || after.flags != by_hand.flags ||
        memcmp(after.reg, by_hand.general, sizeof after.reg) != 0 ||
        memcmp(own, emulated, DATA_SIZE) != 0)
        state_fail(form->text, &before, &after, &by_hand);
    if (simulation->kind == SIMULATE_COND || simulation->kind == SIMULATE_LOOP)
        assert_int_equal(taken, after.rip == simulation->value);
    return true;
}

static void form_run(const struct form *form, const uint8_t *bytes, size_t size, bool *seen)
{
    struct tl_insn insn;
    struct tl_simulation simulation;
    unsigned done = 0;
    assert_int_equal(tl_arch_x86_64.decode(bytes, size, CODE, &insn), 0);
    if (!tl_arch_x86_64.simulation(&insn, &simulation))
        fail_msg("%s: no simulator", form->text);
    seen[insn.row] = true;
    machine_write(&m, CODE, bytes, size);
    for (unsigned i = 0; i < cases_max; i++)
        done += case_run(form, &simulation);
    // Enough of them, or the oracle has little to say.
    if (done < cases_max / 2)
        fail_msg("%s: only %u of %u done by hand", form->text, done, cases_max);
    if (tl_arch_x86_64.simulation_alone(&simulation) && done != cases_max)
        fail_msg("%s: said to need no memory, but refused", form->text);
}

#define ROWS_MAX 1000

static void simulated_equals_emulated(void **state)
{
    (void)state;
    static struct snippet snippets[TL_ARRAY_COUNT(forms)];
    bool seen[ROWS_MAX] = {false};
    for (size_t i = 0; i < TL_ARRAY_COUNT(forms); i++)
        snippets[i].text = forms[i].text;
    assert_true(assemble(snippets, TL_ARRAY_COUNT(forms)));
    for (size_t i = 0; i < sizeof own / 8; i++) {
        uint64_t word = machine_random(&m) >> 17;
        memcpy(own + i * 8, &word, 8);
    }
    memcpy(emulated, own, sizeof own);
    for (size_t i = 0; i < TL_ARRAY_COUNT(forms); i++) {
        assert_true(snippets[i].size != 0);
        form_run(&forms[i], snippets[i].bytes, snippets[i].size, seen);
    }
    for (unsigned row = 1; row < ROWS_MAX; row++) {
        const struct row *it = tl_x86_64_row(row);
        if (it != tl_x86_64_row(ROW_UNKNOWN) && it->simulate != SIMULATE_NONE && !seen[row])
            fail_msg("row %s has a simulator, but was not run", it->name);
    }
}

// Each example of a row that names a simulator has one; those of other rows have none.
static void examples_are_simulated_as_the_table_says(void **state)
{
    (void)state;
    static struct snippet snippets[TL_ARRAY_COUNT(examples)];
    for (size_t i = 0; i < TL_ARRAY_COUNT(examples); i++)
        snippets[i].text = examples[i].text;
    assert_true(assemble(snippets, TL_ARRAY_COUNT(examples)));
    for (size_t i = 0; i < TL_ARRAY_COUNT(examples); i++) {
        struct tl_insn insn;
        struct tl_simulation simulation;
        assert_int_equal(tl_arch_x86_64.decode(snippets[i].bytes, snippets[i].size, CODE, &insn),
                         0);
        bool wanted = tl_x86_64_row(insn.row)->simulate != SIMULATE_NONE;
        if (tl_arch_x86_64.simulation(&insn, &simulation) != wanted)
            fail_msg("%s: %s simulator", examples[i].text, wanted ? "no" : "an unexpected");
    }
}

static void odd_forms_are_refused(void **state)
{
    (void)state;
    static struct snippet snippets[TL_ARRAY_COUNT(refused)];
    for (size_t i = 0; i < TL_ARRAY_COUNT(refused); i++)
        snippets[i].text = refused[i];
    assert_true(assemble(snippets, TL_ARRAY_COUNT(refused)));
    for (size_t i = 0; i < TL_ARRAY_COUNT(refused); i++) {
        struct tl_insn insn;
        struct tl_simulation simulation;
        assert_int_equal(tl_arch_x86_64.decode(snippets[i].bytes, snippets[i].size, CODE, &insn),
                         0);
        if (tl_arch_x86_64.simulation(&insn, &simulation))
            fail_msg("%s: simulated", refused[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated_equals_emulated),
        cmocka_unit_test(examples_are_simulated_as_the_table_says),
        cmocka_unit_test(odd_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

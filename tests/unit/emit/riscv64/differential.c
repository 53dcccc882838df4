// Every row of the table that may be probed, run bare and in a detour, by a riscv64 processor (or
// what stands in for it): windows of one to eight random instructions of both sizes, random states;
// all general, floating-point and vector registers and memory are compared, and a fault must be
// shown with the state before the instruction. What a copy does from its boundary on is compared
// too. Fails if a row was not run, or is one that the processor has not.
//
//   differential [SEED [WINDOWS [wide]]]      WINDOWS of each row; prints its seed
//
// wide: as in programs that are built without the C extension.
#include "machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arch/riscv64/relocate.h"
#include "arch/riscv64/riscv64.h"
#include "arch/riscv64/table.h"

// Targets have bit 5 clear, stubs (bounces) have it set. Detours of the field lie where no branch
// leads.
#define TARGET_CLEAR UINT64_C(0x20)
#define SHORT_ADDR (SITE_ADDR + 0x400)
#define SHORT_SIZE 0x380u
#define NEAR_ADDR (SITE_ADDR + 0xc0000)
#define NEAR_SIZE 0x4000u
#define FAR_ADDR (SITE_ADDR + 0x30000000)
#define LOW_ADDR (SITE_ADDR - 0x32000000)
#define AREA_SIZE 0x10000u
#define EDGE_ADDR (SITE_ADDR + 0x7000000) // breakpoints too, which no jal reaches
#define CALLS_ADDR UINT64_C(0x50000000)   // what registers lead to; not written
#define STUBS_NEAR UINT64_C(0x42000000)
#define STUBS_FAR UINT64_C(0x700000000)
#define HOMES_NEAR UINT64_C(0x24000000)
#define HOMES_FAR UINT64_C(0x500000000)
#define LOG_ADDR UINT64_C(0x26000000) // stubs.S
#define BLOCK_ADDR UINT64_C(0x30000000)
#define BLOCK_SIZE 0x1400000u
#define PROLOGUES 100u
#define BELOW 256u // bytes below the stack pointer that a detour may use
#define WORD_TRIES 20000
#define WINDOW_BYTES_MAX (4 * TL_WINDOW_INSNS_MAX)
#define HAD_TRIES 80   // as many windows until one is legal: vtype is random
#define MOVED_TIMES 8 // as many windows of rows that are not just copied
#define KEPT (TL_REGSET(X_SP) | TL_REGSET(X_GP) | TL_REGSET(X_TP))

extern const uint8_t stub_start[], stub_slow[], stub_record[], stub_guard[], stub_end[];

struct log {
    uint64_t slow, slow_off, slow_index, slow_sp;
    uint64_t record, record_off, record_s, record_sp, record_link;
    uint64_t guard, guard_sp, guard_link;
};

static unsigned long long seed;
static bool wide_only;
static unsigned long totals_edges_patch, totals_edges_out;
static uint64_t random_state;

static uint64_t next(void)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random_state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static bool chance(unsigned percent)
{
    return next() % 100 < percent;
}

// ---- windows
// ------------------------------------------------------------------------------------------

struct memory {
    uint8_t data[DATA_SIZE], stack[STACK_SIZE];
};

struct test_case {
    struct tl_insn insn[TL_WINDOW_INSNS_MAX];
    unsigned count, size;               // instructions, bytes
    struct machine_state before, after; // bare
    struct memory memory_before, memory_after;
    unsigned ran; // instructions that surely ran to their end
    bool faulted; // bare, at an instruction of the window
    bool varies;  // what it writes is another value each time: a time, a random number
    unsigned prologue, frame_size; // instructions at its start that open a frame, and the frame's bytes; or 0
};

static bool goes_on(const struct tl_insn *insn)
{
    return insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_COND;
}

static const struct tl_insn *window_last(const struct test_case *test)
{
    return &test->insn[test->count - 1];
}

static bool in_range(uint64_t addr, uint64_t from, uint64_t size)
{
    return addr - from < size;
}

static bool target_fits(uint64_t target)
{
    return in_range(target, FIELD_ADDR + 64, FIELD_SIZE - 0x10000) && !(target & TARGET_CLEAR) &&
           !in_range(target, SITE_ADDR, WINDOW_BYTES_MAX + 4) &&
           !in_range(target, SHORT_ADDR, SHORT_SIZE) && !in_range(target, NEAR_ADDR, NEAR_SIZE);
}

// Leads a direct branch into the field.
static bool word_aim(uint32_t *word, uint64_t addr)
{
    for (int64_t reach = 0x100000; reach >= 0x80; reach /= 4) {
        int64_t disp = (int64_t)(next() % (uint64_t)(2 * reach) / 2 * 2) - reach;
        if (target_fits(addr + (uint64_t)disp) && tl_parcel_aim(word, disp))
            return true;
    }
    return false;
}

static bool code_area(uint64_t addr)
{
    static const uint64_t area[][2] = {
        {FIELD_ADDR, FIELD_SIZE}, {FAR_ADDR, AREA_SIZE},   {LOW_ADDR, AREA_SIZE},
        {EDGE_ADDR, AREA_SIZE},   {STUBS_NEAR, AREA_SIZE}, {STUBS_FAR, AREA_SIZE},
        {CALLS_ADDR, AREA_SIZE},
    };
    for (size_t i = 0; i < sizeof area / sizeof *area; i++) {
        if (in_range(addr, area[i][0] - 0x1000, area[i][1] + 0x2000))
            return true;
    }
    return false;
}

// What QEMU 11.1 does wrong: a compare-and-swap into x0 lets x0 hold what was in memory, up to the end of the block
// that it translated; and it ends itself at a vector's load or store behind a write of a large vstart.
static bool emulated_wrongly(uint32_t word)
{
    bool swaps_into_zero = (word & 0xf8000fff) == 0x2800002f;
    bool writes_vstart = (word & 0xfff0007f) == 0x00800073;
    return swaps_into_zero || writes_vstart;
}

static bool insn_put(struct test_case *test, uint32_t word)
{
    struct tl_insn *insn = &test->insn[test->count];
    uint64_t addr = SITE_ADDR + test->size;
    if (test->count == TL_WINDOW_INSNS_MAX || emulated_wrongly(word) ||
        tl_riscv64_decode((const uint8_t *)&word, tl_parcel_size(word), addr, insn) ||
        insn->reloc == TL_RELOC_REFUSE)
        return false;
    test->count++;
    test->size += insn->size;
    return true;
}

// An instruction of a row.
static bool row_put(struct test_case *test, unsigned number)
{
    const struct row *row = tl_riscv64_row(number);
    uint32_t wide = row->size == 2 ? 0xffff : 0xffffffff;
    for (unsigned i = 0; i < WORD_TRIES; i++) {
        uint32_t word = row->value | ((uint32_t)next() & ~row->mask & wide);
        struct tl_insn *insn = &test->insn[test->count];
        unsigned count = test->count, size = test->size;
        if (tl_riscv64_row_find(word) != number || !insn_put(test, word))
            continue;
        bool direct = insn->target && insn->reloc != TL_RELOC_PCREL;
        if (direct && !target_fits(insn->target)) {
            test->count = count;
            test->size = size;
            if (!word_aim(&word, insn->addr) || !insn_put(test, word))
                continue;
        }
        if (insn->row == number && !(insn->reloc == TL_RELOC_PCREL && code_area(insn->target)))
            return true;
        test->count = count;
        test->size = size;
    }
    return false;
}

// Any instruction that goes on.
static void filler_put(struct test_case *test)
{
    for (;;) {
        unsigned number = 1 + (unsigned)(next() % (tl_riscv64_row_count() - 1));
        const struct row *row = tl_riscv64_row(number);
        bool fits = row->flow == TL_FLOW_NEXT || (row->flow == TL_FLOW_COND && chance(20));
        // Many words have more fields: compressed ones would be rare.
        bool often = row->size == 2 ? !wide_only : wide_only || chance(30);
        if (fits && row->reloc != TL_RELOC_REFUSE && often &&
            row_put(test, number))
            return;
    }
}

// auipc and what makes its value whole, with something else in between or not.
static void pair_put(struct test_case *test)
{
    static const unsigned links[] = {X_RA, X_RA, X_T0, X_T1, 10};
    unsigned rd = links[next() % 5], kind = (unsigned)(next() % 5);
    uint64_t target = kind < 2 ? DATA_ADDR + 0x1000 + next() % 0x1000 * 2
                               : (chance(50) ? EDGE_ADDR + 64 + next() % 0x4000 * 2
                                             : SITE_ADDR - 0x1f0000 + next() % 0x10000 * 2);
    uint32_t high;
    int32_t low;
    target &= ~TARGET_CLEAR;
    if (test->count + 3 > TL_WINDOW_INSNS_MAX ||
        !tl_parcel_split((int64_t)(target - SITE_ADDR - test->size), &high, &low))
        return;
    insn_put(test, RV_AUIPC(rd, high));
    if (chance(30))
        filler_put(test);
    switch (kind) {
    case 0:
        insn_put(test, RV_ADDI(chance(50) ? rd : 11, rd, low));
        break;
    case 1:
        insn_put(test, RV_LD(chance(50) ? rd : 11, rd, low));
        break;
    case 2:
        insn_put(test, RV_JALR(X_ZERO, rd, low));
        break;
    default:
        insn_put(test, RV_JALR(chance(70) ? rd : X_RA, rd, low));
    }
}

// A window that holds an instruction of the row. false: there is none.
static bool window_make(struct test_case *test, unsigned number)
{
    const struct row *row = tl_riscv64_row(number);
    unsigned bytes = (unsigned)(next() % 5) * 4;
    test->count = test->size = 0;
    for (unsigned before = chance(60) ? 0 : (unsigned)(next() % 3); before > 0; before--)
        filler_put(test);
    if (!row_put(test, number))
        return false;
    bool on = row->flow == TL_FLOW_NEXT || row->flow == TL_FLOW_COND;
    bool pair = on && chance(15);
    while (on && test->size < bytes && test->count < TL_WINDOW_INSNS_MAX - (pair ? 3u : 0u))
        filler_put(test);
    if (pair)
        pair_put(test);
    return true;
}

// A window that begins as functions do. What is stored is loaded again, for what the frame holds beside it is nobody's.
static void prologue_make(struct test_case *test)
{
    static const uint16_t sizes[] = {16, 32, 64, 176, 496, 512, 528, 1024, 2032};
    uint8_t bytes[4];
    struct tl_parcels w = {.bytes = bytes, .capacity = sizeof bytes};
    uint32_t word = 0, size = sizes[next() % (sizeof sizes / sizeof *sizes)];
    unsigned stores = (unsigned)(next() % 4), off[3];
    test->count = test->size = 0;
    test->frame_size = size;
    if (chance(30))
        insn_put(test, RV_ADDI(5 + next() % 3, chance(50) ? 10 : X_SP, 7));
    tl_parcels_put_stack(&w, size <= 512 ? -(int32_t)size : -16);
    memcpy(&word, bytes, w.size);
    insn_put(test, size <= 512 ? word : RV_ADDI(X_SP, X_SP, -(int32_t)size));
    for (unsigned i = 0; i < stores; i++) {
        uint32_t reg = 1 + (uint32_t)(next() % 31);
        off[i] = (chance(50) ? size / 8 - 1 - i % (size / 8) : (unsigned)next() % (size / 8)) * 8;
        insn_put(test, off[i] < 512 && chance(50)
                           ? RVC_SDSP(reg, off[i])
                           : (off[i] >> 5) << 25 | reg << 20 | X_SP << 15 | 0x3023u | (off[i] & 31) << 7);
    }
    test->prologue = test->count;
    for (unsigned i = 0; i < stores; i++)
        insn_put(test, RV_LD(5 + next() % 27, X_SP, (int32_t)off[i]));
    if (!stores || chance(30))
        filler_put(test);
}

// ---- bare
// ---------------------------------------------------------------------------------------------

static void memory_take(struct memory *to)
{
    memcpy(to->data, (void *)(uintptr_t)DATA_ADDR, DATA_SIZE);
    memcpy(to->stack, (void *)(uintptr_t)STACK_ADDR, STACK_SIZE);
}

static void memory_put(const struct memory *from)
{
    memcpy((void *)(uintptr_t)DATA_ADDR, from->data, DATA_SIZE);
    memcpy((void *)(uintptr_t)STACK_ADDR, from->stack, STACK_SIZE);
}

// What lies below the stack pointer, before or after, is nobody's.
static void memory_forget(struct memory *memory, const struct test_case *test, uint8_t with)
{
    uint64_t sp[2] = {test->before.reg[X_SP], test->after.reg[X_SP]};
    for (size_t i = 0; i < 2; i++) {
        if (sp[i] >= STACK_ADDR + BELOW && sp[i] <= STACK_ADDR + STACK_SIZE)
            memset(memory->stack + (sp[i] - STACK_ADDR) - BELOW, with, BELOW);
    }
    if (test->prologue && sp[0] >= STACK_ADDR + test->frame_size && sp[0] <= STACK_ADDR + STACK_SIZE)
        memset(memory->stack + (sp[0] - STACK_ADDR) - test->frame_size, with, test->frame_size);
}

static uint64_t register_random(void)
{
    if (chance(55))
        return DATA_ADDR + 0x1000 + next() % 0x2000 / 16 * 16 + (chance(20) ? next() % 16 : 0);
    if (chance(20))
        return (CALLS_ADDR + next() % AREA_SIZE) & ~(TARGET_CLEAR | (chance(70) ? 1u : 0u));
    if (chance(50))
        return next() % 65;
    return chance(20) ? 0 : next();
}

static void state_random(struct test_case *test)
{
    memset(&test->before, 0, sizeof test->before);
    for (size_t i = 1; i < 32; i++)
        test->before.reg[i] = register_random();
    test->before.reg[X_SP] = STACK_ADDR + 0x1000 + next() % 0x2000 / 16 * 16;
    test->before.reg[0] = SITE_ADDR;
    machine_vectors_fill(&test->before, next);
    for (size_t i = 0; i < sizeof test->memory_before; i += 8) {
        uint64_t value = chance(50) ? next() : register_random();
        memcpy((uint8_t *)&test->memory_before + i, &value, sizeof value);
    }
}

static bool state_same(const struct machine_state *a, const struct machine_state *b, tl_regset but)
{
    for (unsigned i = 0; i < 32; i++) { // 0: the pc
        if (!(but >> i & 1) && a->reg[i] != b->reg[i])
            return false;
    }
    return a->signal == b->signal && machine_vectors_same(a, b);
}

// Actions and long ways need a stack pointer that is one.
static bool stack_is(uint64_t sp)
{
    return sp % 16 == 0 && sp >= STACK_ADDR + BELOW && sp <= STACK_ADDR + STACK_SIZE;
}

static void window_put(const struct test_case *test)
{
    uint8_t code[WINDOW_BYTES_MAX + 4];
    for (unsigned i = 0; i < sizeof code; i += 2)
        memcpy(code + i, &(uint16_t){0x9002}, 2);
    for (unsigned i = 0, at = 0; i < test->count; at += test->insn[i++].size)
        memcpy(code + at, test->insn[i].bytes, test->insn[i].size);
    machine_code_put(SITE_ADDR, code, sizeof code);
}

static bool branch_direct(const struct tl_insn *insn)
{
    return insn->reloc == TL_RELOC_COND || insn->reloc == TL_RELOC_BRANCH ||
           insn->reloc == TL_RELOC_CALL;
}

// How far the window was run, from where it ended.
static void ran_find(struct test_case *test)
{
    uint64_t pc = test->after.reg[0];
    test->faulted = false;
    test->ran = test->count;
    for (unsigned i = 0; i < test->count; i++) {
        if (test->insn[i].addr == pc) {
            test->faulted = true;
            test->ran = i;
            return;
        }
        if (branch_direct(&test->insn[i]) && test->insn[i].target == pc) {
            test->ran = i + 1;
            return;
        }
    }
}

static tl_regset written_by(const struct test_case *test, unsigned from, unsigned to)
{
    tl_regset written = 0;
    for (unsigned i = from; i < to; i++)
        written |= test->insn[i].written;
    return written;
}

// The same window twice, with other bytes below the stack pointer: what depends on them can't be
// compared.
static bool bare_run(struct test_case *test)
{
    static struct machine_state again;
    static struct memory other;
    other = test->memory_before;
    window_put(test);
    test->after = test->before;
    memory_put(&test->memory_before);
    if (!machine_run(&test->before, &test->after))
        return false;
    memory_take(&test->memory_after);
    memory_forget(&other, test, 0x5a);
    memory_put(&other);
    if (!machine_run(&test->before, &again))
        return false;
    memory_take(&other);
    ran_find(test);
    if (!stack_is(test->after.reg[X_SP]))
        return false;
    memory_forget(&other, test, 0);
    memory_forget(&test->memory_after, test, 0);
    test->varies = !state_same(&test->after, &again, 0);
    bool same = !test->varies ||
                (test->count == 1 && state_same(&test->after, &again, test->insn[0].written));
    return same && memcmp(&other, &test->memory_after, sizeof other) == 0;
}

// ---- in a detour
// --------------------------------------------------------------------------------------

enum how { JAL, SHORT, FAR, SPILL };

struct variant {
    const char *name;
    uint8_t action, how;
    uint8_t dead, out; // percent of registers: at the site; at each way out
    bool empty, shared, no_stack, behind, on_taken, retarget, away; // away: agent and homes are
    bool frame; // a prologue, with the count in it
};

static const struct variant variants[] = {
    {.name = "displaced", .out = 20},
    {.name = "displaced, short", .how = SHORT},
    {.name = "displaced, far", .how = FAR, .dead = 30, .out = 30},
    {.name = "displaced, far, all dead", .how = FAR, .dead = 100, .out = 100},
    {.name = "displaced, far, bounced", .how = FAR, .dead = 20},
    {.name = "displaced, spilled", .how = SPILL, .out = 5},
    {.name = "displaced, spilled, bounced", .how = SPILL},
    {.name = "count", .action = TL_ACTION_COUNT, .dead = 100, .out = 100},
    {.name = "count, all saved", .action = TL_ACTION_COUNT},
    {.name = "count, some saved", .action = TL_ACTION_COUNT, .dead = 4, .away = true},
    {.name = "count, spilled", .action = TL_ACTION_COUNT, .how = SPILL, .dead = 4, .out = 20},
    {.name = "count, far", .action = TL_ACTION_COUNT, .how = FAR, .dead = 60, .out = 60},
    {.name = "empty home", .action = TL_ACTION_COUNT, .empty = true, .dead = 50},
    {.name = "empty home, saved",
     .action = TL_ACTION_COUNT,
     .how = SPILL,
     .empty = true,
     .away = true},
    {.name = "shared", .action = TL_ACTION_COUNT, .shared = true, .dead = 50},
    {.name = "shared, empty",
     .action = TL_ACTION_COUNT,
     .shared = true,
     .empty = true,
     .away = true},
    {.name = "no stack", .action = TL_ACTION_COUNT, .shared = true, .no_stack = true, .dead = 100},
    {.name = "no stack, far",
     .action = TL_ACTION_COUNT,
     .how = FAR,
     .shared = true,
     .no_stack = true,
     .empty = true,
     .dead = 100,
     .out = 30},
    {.name = "behind", .action = TL_ACTION_COUNT, .behind = true},
    {.name = "behind, empty",
     .action = TL_ACTION_COUNT,
     .behind = true,
     .empty = true,
     .away = true},
    {.name = "frame", .action = TL_ACTION_COUNT, .behind = true, .frame = true, .dead = 3},
    {.name = "frame, spilled",
     .action = TL_ACTION_COUNT,
     .how = SPILL,
     .behind = true,
     .frame = true,
     .dead = 5,
     .out = 10},
    {.name = "frame, empty",
     .action = TL_ACTION_COUNT,
     .behind = true,
     .empty = true,
     .away = true,
     .frame = true,
     .dead = 2},
    {.name = "record", .action = TL_ACTION_RECORD, .dead = 30},
    {.name = "record and count",
     .action = TL_ACTION_RECORD | TL_ACTION_COUNT,
     .how = SPILL,
     .away = true},
    {.name = "guard", .action = TL_ACTION_COUNT | TL_ACTION_GUARD, .away = true},
    {.name = "guard, short", .action = TL_ACTION_GUARD, .how = SHORT},
    {.name = "retarget", .action = TL_ACTION_COUNT, .retarget = true},
    {.name = "taken", .action = TL_ACTION_COUNT, .on_taken = true},
    {.name = "taken, short", .action = TL_ACTION_COUNT, .how = SHORT, .on_taken = true},
    {.name = "taken, far",
     .action = TL_ACTION_RECORD,
     .how = FAR,
     .on_taken = true,
     .dead = 50,
     .out = 30},
    {.name = "taken, spilled", .action = TL_ACTION_COUNT, .how = SPILL, .on_taken = true},
};

struct run {
    const struct test_case *test;
    const struct variant *variant;
    struct tl_emit_in in;
    struct tl_detour detour;
    tl_addr at, homes;
    unsigned boundary; // where it was begun; 0: at the site
    struct machine_state before, after;
};

static void fail(const struct run *run, const char *what)
{
    const struct test_case *test = run->test;
    fprintf(stderr, "%s: variant \"%s\", detour at %#llx, boundary %u\n", what, run->variant->name,
            (unsigned long long)run->at, run->boundary);
    for (unsigned i = 0; i < test->count; i++) {
        char text[80];
        tl_riscv64_print(&test->insn[i], text, sizeof text);
        fprintf(stderr, "  %llx %08x %s (%s)\n", (unsigned long long)test->insn[i].addr,
                tl_riscv64_word(&test->insn[i]), text, tl_riscv64_row(test->insn[i].row)->name);
    }
    fprintf(stderr, "seed %llu, dead %#llx, behind %#llx, resume %#llx, target %#llx, arrive %u\n",
            seed, (unsigned long long)run->in.dead, (unsigned long long)run->in.dead_behind,
            (unsigned long long)run->in.dead_resume, (unsigned long long)run->in.dead_target,
            run->in.arrive_reg);
    for (size_t i = 0; i < 32; i++)
        fprintf(stderr, "x%zu %#llx: bare %#llx, detour %#llx%s\n", i,
                (unsigned long long)test->before.reg[i], (unsigned long long)test->after.reg[i],
                (unsigned long long)run->after.reg[i],
                test->after.reg[i] != run->after.reg[i] ? " !" : "");
    fprintf(stderr, "signal %d, %d; others %s\ndetour:", test->after.signal, run->after.signal,
            machine_vectors_same(&test->after, &run->after) ? "same" : "not the same");
    for (uint16_t i = 0; i < run->detour.size; i += 2) {
        uint16_t parcel;
        memcpy(&parcel, run->detour.bytes + i, sizeof parcel);
        fprintf(stderr, " %04x", parcel);
    }
    fprintf(stderr, "\n");
    exit(1);
}

static tl_regset regs_random(tl_regset from, unsigned percent)
{
    tl_regset some = 0;
    for (unsigned i = 1; i < 32; i++)
        some |= chance(percent) ? TL_REGSET(i) : 0;
    return some & from;
}

// Whether the variant makes sense for the window.
static bool variant_fits(const struct variant *variant, const struct test_case *test)
{
    static const uint8_t least[] = {[JAL] = 4, [SHORT] = 2, [FAR] = 8, [SPILL] = 12};
    const struct tl_insn *insn = &test->insn[0];
    bool moves = insn->flags & TL_INSN_WRITES_SP || insn->written & TL_REGSET(X_TP);
    if (test->size < least[variant->how] && !variant->retarget)
        return false;
    if (variant->frame || (variant->behind && test->prologue))
        return variant->frame && test->prologue;
    if (variant->retarget) // what the action counts on is no link
        return insn->reloc == TL_RELOC_CALL && test->count == 1 && !(insn->written & KEPT);
    if (variant->on_taken)
        return insn->reloc == TL_RELOC_COND;
    return !variant->behind || (insn->flow == TL_FLOW_NEXT && !moves);
}

static tl_regset read_by(const struct test_case *test, unsigned from)
{
    tl_regset read = 0;
    for (unsigned i = from; i < test->count; i++)
        read |= test->insn[i].read;
    return read;
}

static void place_choose(struct run *run)
{
    static const uint8_t regs[] = {1, 5, 6, 7, 8, 10, 15, 16, 28, 31};
    switch (run->variant->how) {
    case SHORT:
        run->at = SHORT_ADDR + next() % 4 * 32;
        return;
    case SPILL:
        run->in.arrive_reg = regs[next() % sizeof regs];
        // fallthrough
    case FAR:
        run->at = (chance(50) ? FAR_ADDR : LOW_ADDR) + next() % 64 * 32;
        return;
    default:
        run->at = NEAR_ADDR + next() % 64 * 32;
    }
}

static void input_make(struct run *run)
{
    static const uint32_t offs[] = {64,   72,   2040,     2048,     4088,
                                    4096, 6144, 0x100000, 0x123458, 0x1234568};
    static const uint8_t shifts[] = {12, 12, 3, 20, 56};
    const struct variant *variant = run->variant;
    const struct test_case *test = run->test;
    uint64_t stubs = variant->away ? STUBS_FAR : STUBS_NEAR;
    run->homes = variant->away ? HOMES_FAR : HOMES_NEAR;
    tl_regset may = ~(read_by(test, 0) | (variant->retarget ? test->insn[0].written : 0));
    run->in = (struct tl_emit_in){
        .action = variant->action,
        .thread_pointer = variant->shared ? TL_TP_SHARED : TL_TP_TP,
        .homes_addr = run->homes,
        .homes_shift = shifts[next() % sizeof shifts],
        .slow_addr = stubs + (uint64_t)(stub_slow - stub_start),
        .call_addr = stubs + (uint64_t)(stub_guard - stub_start),
        .leave_addr = stubs + (uint64_t)(stub_guard - stub_start),
        .on_taken = variant->on_taken,
        .no_stack = variant->no_stack,
        .counter_off = offs[next() % (sizeof offs / sizeof *offs)],
        .dead = regs_random(may, variant->dead),
        .behind = (uint8_t)(variant->frame ? 1 + next() % test->prologue : variant->behind),
        .dead_resume = regs_random(~UINT64_C(0), variant->out),
        .dead_target = regs_random(~UINT64_C(0), variant->out),
        .insn = test->insn,
        .insn_count = (uint8_t)test->count,
        .call_retarget = variant->retarget,
        .resume_addr = SITE_ADDR + test->size,
    };
    if (run->in.behind)
        run->in.dead_behind =
            regs_random(~read_by(test, run->in.behind) & ~KEPT, variant->frame ? variant->dead : 50);
    run->in.record_addr[TL_RECORD_EVENT] = stubs + (uint64_t)(stub_record - stub_start);
    if (variant->action & TL_ACTION_RECORD)
        run->in.record[0] = (struct tl_record){TL_RECORD_EVENT, run->in.counter_off,
                                               chance(50) ? 0 : -(int32_t)(next() % 600 * 16)};
    place_choose(run);
}

static uint64_t thread_index(const struct run *run)
{
    return run->variant->shared ? 0 : run->before.reg[X_TP] >> run->in.homes_shift & 0xff;
}

static void homes_put(const struct run *run)
{
    uint64_t *homes = (uint64_t *)(uintptr_t)run->homes;
    memset(homes, 0xff, 256 * 8); // whoever reads another one faults
    homes[thread_index(run)] = run->variant->empty ? 0 : BLOCK_ADDR;
    *(uint64_t *)(uintptr_t)(BLOCK_ADDR + run->in.counter_off) = 41;
    memset((void *)(uintptr_t)LOG_ADDR, 0, sizeof(struct log));
}

// A fault in the detour, as a handler is to see it.
static void fault_mend(struct run *run)
{
    const struct tl_detour *detour = &run->detour;
    uint64_t off = run->after.reg[0] - run->at;
    if (off >= detour->size)
        return;
    for (unsigned i = 0; i < detour->fault_count; i++) {
        if (detour->fault[i].off == off) {
            run->after.reg[0] = SITE_ADDR;
            run->after.reg[X_SP] += 8u * detour->fault[i].sp_words;
            return;
        }
    }
    // The last that begins there: one that does nothing is left out.
    for (unsigned i = detour->boundary_count; i-- > 0;) {
        if (detour->boundary[i].off == off) {
            run->after.reg[0] = SITE_ADDR + detour->boundary[i].insn_off;
            return;
        }
    }
    fail(run, "a fault in the detour at no fault point");
}

// How many displaced instructions come before the count.
static unsigned behind_of(const struct run *run)
{
    const struct tl_detour *detour = &run->detour;
    bool before = run->variant->frame && detour->displaced > (run->in.arrive_reg ? 4 : 0);
    return before ? 0 : run->in.behind;
}

// How often the action should have run, and what it was given.
static void action_check(const struct run *run)
{
    const struct variant *variant = run->variant;
    const struct test_case *test = run->test;
    const struct log *log = (const struct log *)(uintptr_t)LOG_ADDR;
    uint64_t counted = *(uint64_t *)(uintptr_t)(BLOCK_ADDR + run->in.counter_off) - 41;
    bool missed = test->ran < behind_of(run) ||
                  (variant->on_taken && test->after.reg[0] != test->insn[0].target);
    bool joined = run->boundary && run->boundary >= behind_of(run); // behind the count
    uint64_t hits = missed || joined ? 0 : 1;
    uint64_t count = variant->action & TL_ACTION_COUNT ? hits : 0;
    bool passed_over = variant->no_stack && variant->empty;
    if (counted != (variant->empty ? 0 : count))
        fail(run, "counted wrongly");
    if (log->slow != (variant->empty && !passed_over ? count : 0))
        fail(run, "the slow path was taken wrongly");
    if (log->slow && (log->slow_off != run->in.counter_off || log->slow_sp % 16 ||
                      log->slow_index != thread_index(run)))
        fail(run, "the slow path was given something else");
    uint64_t records = variant->action & TL_ACTION_RECORD ? hits : 0, sp = test->before.reg[X_SP];
    if (log->record != records || log->guard != (variant->action & TL_ACTION_GUARD ? 2 * hits : 0))
        fail(run, "the agent was called wrongly");
    if (records &&
        (log->record_off != run->in.counter_off || log->record_sp != sp - TL_RECORD_FRAME_RISCV64 ||
         log->record_s != sp - (uint64_t)(int64_t)run->in.record[0].sp_off ||
         log->record_link != test->before.reg[X_RA]))
        fail(run, "the record's entry was given something else");
    if (log->guard && (log->guard_sp != sp - 16 || log->guard_link != test->before.reg[X_RA]))
        fail(run, "the handler's entry was given something else");
}

// What may hold anything at the end.
static tl_regset lost_regs(const struct run *run)
{
    const struct test_case *test = run->test;
    const struct tl_insn *last = window_last(test);
    tl_regset lost = run->in.dead & ~written_by(test, 0, test->ran);
    uint64_t pc = test->after.reg[0];
    if (test->ran >= run->in.behind)
        lost |= run->in.dead_behind & ~written_by(test, run->in.behind, test->ran);
    if (!test->faulted && pc == run->in.resume_addr)
        lost |= run->in.dead_resume;
    for (unsigned i = 0; i < test->count && !test->faulted; i++) {
        if (branch_direct(&test->insn[i]) && test->insn[i].target == pc)
            lost |= run->in.dead_target;
    }
    if (test->ran == test->count && (last->flow == TL_FLOW_CALL || last->flow == TL_FLOW_ICALL))
        lost &= ~last->written;
    if (test->varies)
        lost |= test->insn[0].written;
    return lost & ~KEPT;
}

static void result_check(struct run *run)
{
    static struct memory memory;
    memory_take(&memory);
    memory_forget(&memory, run->test, 0);
    fault_mend(run);
    if (!state_same(&run->test->after, &run->after, lost_regs(run)))
        fail(run, "not as it is bare");
    if (memcmp(&memory, &run->test->memory_after, sizeof memory) != 0)
        fail(run, "memory is not as it is bare");
    action_check(run);
}

// ---- ways there and back
// ------------------------------------------------------------------------------

static tl_addr bounce_addr(tl_addr target, unsigned index)
{
    return (target & ~(tl_addr)0x3f) + 0x6000 + TARGET_CLEAR + 8 * index;
}

// Stubs for what no dead register leads to.
static void bounces_make(struct run *run)
{
    uint8_t code[8];
    run->in.bounce_count = run->detour.far_count;
    run->in.bounce_reg = (uint8_t[]){1, 5, 7, 9, 15, 30}[next() % 6];
    for (unsigned i = 0; i < run->detour.far_count; i++) {
        tl_addr target = run->detour.far_target[i];
        bool falls = target % 64 == 0 && chance(30);
        tl_addr addr = falls ? target - 4 : bounce_addr(target, i);
        run->in.bounce[i] = (struct tl_bounce){.target = target, .addr = addr};
        if (!tl_riscv64_emit_reload(addr, target, run->in.bounce_reg, falls, code))
            fail(run, "a bounce is out of reach");
        machine_code_put(addr, code, falls ? 4 : 8);
    }
}

static void bounces_clear(const struct run *run)
{
    for (unsigned i = 0; i < run->in.bounce_count; i++)
        machine_breaks(run->in.bounce[i].addr,
                       run->in.bounce[i].addr + 4 == run->in.bounce[i].target ? 4 : 8);
}

static void boundaries_check(const struct run *run)
{
    const struct test_case *test = run->test;
    const struct tl_detour *detour = &run->detour;
    unsigned count = test->count + goes_on(window_last(test));
    if (run->in.call_retarget)
        return;
    if (detour->boundary_count != count || detour->insn_count != test->count ||
        detour->boundary[0].off != detour->displaced)
        fail(run, "not so many boundaries");
    for (unsigned i = 0; i < count; i++) {
        unsigned off = i < test->count ? (unsigned)(test->insn[i].addr - SITE_ADDR) : test->size;
        if (detour->boundary[i].insn_off != off)
            fail(run, "a boundary of no instruction");
    }
}

// false: refused here.
static bool detour_emit(struct run *run)
{
    struct tl_diag diag;
    if (tl_riscv64_emit_detour(&run->in, run->at, &run->detour, &diag))
        fail(run, "not emitted");
    if (run->detour.refusal != TL_REFUSE_NO_REACH || run->in.no_stack)
        return !run->detour.refusal;
    if (!run->detour.far_count)
        fail(run, "too far, but nothing is");
    bounces_make(run);
    if (tl_riscv64_emit_detour(&run->in, run->at, &run->detour, &diag))
        fail(run, "not emitted");
    if (run->detour.refusal)
        fail(run, "bounces do not do");
    return true;
}

// false: there is no register to go by.
static bool patch_make(const struct run *run, uint8_t *patch, unsigned *size)
{
    unsigned reg = run->in.arrive_reg;
    *size = 4;
    switch (run->variant->how) {
    case SHORT:
        *size = 2;
        return tl_riscv64_emit_short(SITE_ADDR, run->at, patch);
    case FAR:
        *size = 8;
        reg = tl_riscv64_register_take(run->in.dead & TL_RISCV64_USABLE);
        return reg != X_ZERO && tl_riscv64_emit_far(SITE_ADDR, run->at, reg, false, patch);
    case SPILL:
        *size = 12;
        return tl_riscv64_emit_far(SITE_ADDR, run->at, reg, true, patch);
    default:
        return run->variant->retarget
                   ? tl_riscv64_emit_retarget(&run->test->insn[0], run->at, patch)
                   : tl_riscv64_emit_jump(SITE_ADDR, run->at, patch);
    }
}

static void detour_run(struct run *run, const struct memory *memory)
{
    homes_put(run);
    memory_put(memory);
    run->after = run->before;
    if (!machine_run(&run->before, &run->after))
        fail(run, "went on for ever");
    result_check(run);
}

// From each boundary but the first, with the state that is there bare.
static void boundaries_run(struct run *run, const struct test_case *test)
{
    static struct test_case head;
    static struct memory memory;
    for (unsigned i = 1; i < test->count; i++) {
        head = *test;
        head.count = i;
        window_put(&head);
        memory_put(&test->memory_before);
        run->before = test->before;
        if (!machine_run(&test->before, &run->before) || run->before.reg[0] != test->insn[i].addr ||
            run->before.signal != SIGTRAP || run->before.partial)
            continue;
        memory_take(&memory);
        run->boundary = i;
        run->before.reg[0] = run->at + run->detour.boundary[i].off;
        detour_run(run, &memory);
    }
}

// false: refused here.
static bool variant_run(struct run *run)
{
    uint8_t patch[WINDOW_BYTES_MAX] = {0};
    unsigned size;
    bool led = patch_make(run, patch, &size), made = led && detour_emit(run);
    if (!led && run->variant->how != FAR)
        fail(run, "out of reach");
    if (made) {
        boundaries_check(run);
        machine_code_put(run->at, run->detour.bytes, run->detour.size);
        machine_breaks(SITE_ADDR, run->test->size);
        machine_code_put(SITE_ADDR, patch, size);
        run->before = run->test->before;
        detour_run(run, &run->test->memory_before);
        if (!run->in.call_retarget && !run->test->varies && chance(10))
            boundaries_run(run, run->test);
    }
    bounces_clear(run);
    return made;
}

// Bare, with a stack pointer that nothing may be stored below. false: it ends elsewhere, or can't be compared.
static bool edge_bare(struct test_case *edge)
{
    window_put(edge);
    edge->after = edge->before;
    memory_put(&edge->memory_before);
    if (edge->varies || !machine_run(&edge->before, &edge->after))
        return false;
    memory_take(&edge->memory_after);
    ran_find(edge);
    return !edge->faulted && edge->after.reg[X_SP] == STACK_ADDR;
}

// A store of a way out has faulted: all else was done.
static bool edge_out(struct run *run, const struct test_case *test)
{
    static struct test_case edge;
    static struct memory memory;
    const struct tl_fault_out *out = NULL;
    for (unsigned i = 0; i < run->detour.fault_out_count; i++) {
        if (run->detour.fault_out[i].off == run->after.reg[0] - run->at)
            out = &run->detour.fault_out[i];
    }
    if (!out)
        return false;
    memory_take(&memory);
    edge = *test;
    if (!edge_bare(&edge))
        return false;
    run->after.reg[0] = out->to;
    run->after.reg[X_SP] += 8u * out->sp_words;
    edge.after.signal = SIGSEGV;
    if (!state_same(&edge.after, &run->after, run->in.dead & ~KEPT) ||
        memcmp(&memory, &edge.memory_after, sizeof memory) != 0)
        fail(run, "a fault on the way out is not as behind the site");
    totals_edges_out++;
    return true;
}

// At the stack's very end: what the branch or the action stores first faults, and is shown as if nothing had run.
static bool edge_run(const struct test_case *test, const struct variant *variant)
{
    static struct test_case edge;
    static struct run run;
    uint8_t patch[WINDOW_BYTES_MAX] = {0};
    unsigned size;
    edge = *test;
    edge.before.reg[X_SP] = STACK_ADDR;
    run = (struct run){
        .test = &edge, .variant = variant, .before = edge.before, .after = edge.before};
    input_make(&run);
    if (!patch_make(&run, patch, &size) || !detour_emit(&run))
        return false;
    machine_code_put(run.at, run.detour.bytes, run.detour.size);
    machine_code_put(SITE_ADDR, patch, size);
    homes_put(&run);
    memory_put(&edge.memory_before);
    if (!machine_run(&run.before, &run.after))
        fail(&run, "went on for ever");
    bounces_clear(&run);
    bool stored =
        run.after.signal == SIGSEGV && in_range(run.after.fault_addr, STACK_ADDR - BELOW, BELOW);
    bool patched = variant->how == SPILL && run.after.reg[0] == SITE_ADDR + 2; // behind what lowered it
    if (!stored)
        return false;
    if (!patched && run.after.reg[0] - run.at >= run.detour.displaced)
        return edge_out(&run, &edge);
    if (patched) {
        run.after.reg[0] = SITE_ADDR;
        run.after.reg[X_SP] += 16;
        totals_edges_patch++;
    } else {
        fault_mend(&run);
    }
    edge.after = edge.before;
    edge.after.signal = SIGSEGV;
    // A call that was led here has set its link, which was dead.
    tl_regset lost = run.in.dead | (variant->retarget ? edge.insn[0].written : 0);
    if (!state_same(&edge.after, &run.after, lost & ~KEPT))
        fail(&run, "a fault at the stack's end is not as before the site");
    return true;
}

// The stack ends in a prologue's frame: what the count saves there faults, and is shown as if nothing had run.
static bool frame_edge_run(const struct test_case *test, const struct variant *variant)
{
    static struct test_case edge;
    static struct run run;
    uint8_t patch[WINDOW_BYTES_MAX] = {0};
    unsigned size;
    bool shown = false;
    edge = *test;
    edge.before.reg[X_SP] = STACK_ADDR + next() % (test->frame_size / 16) * 16;
    run = (struct run){.test = &edge, .variant = variant, .before = edge.before, .after = edge.before};
    input_make(&run);
    if (variant->how != JAL || !patch_make(&run, patch, &size) || !detour_emit(&run) || !behind_of(&run))
        return false;
    machine_code_put(run.at, run.detour.bytes, run.detour.size);
    machine_code_put(SITE_ADDR, patch, size);
    homes_put(&run);
    memory_put(&edge.memory_before);
    if (!machine_run(&run.before, &run.after))
        fail(&run, "went on for ever");
    bounces_clear(&run);
    for (unsigned i = 0; i < run.detour.fault_count; i++)
        shown |= run.after.reg[0] == run.at + run.detour.fault[i].off && run.detour.fault[i].sp_words;
    if (!shown || run.after.signal != SIGSEGV)
        return false;
    fault_mend(&run);
    edge.after = edge.before;
    edge.after.signal = SIGSEGV;
    if (!state_same(&edge.after, &run.after, run.in.dead & ~KEPT))
        fail(&run, "a fault in a prologue's frame is not as before the site");
    return true;
}

// ---- rows
// ---------------------------------------------------------------------------------------------

struct totals {
    unsigned long windows, compared, refused, bounced, edges, framed, frame_edges, counts[TL_WINDOW_INSNS_MAX + 1];
    unsigned long variant[sizeof variants / sizeof *variants];
};
static struct totals totals;

static unsigned window_run(struct test_case *test)
{
    unsigned compared = 0;
    state_random(test);
    if (!bare_run(test))
        return 0;
    totals.counts[test->count]++;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        static struct run run;
        run = (struct run){.test = test, .variant = &variants[i]};
        if (!variant_fits(&variants[i], test))
            continue;
        input_make(&run);
        if (variant_run(&run)) {
            compared++;
            totals.variant[i]++;
            totals.bounced += run.in.bounce_count != 0;
            totals.framed += variants[i].frame && behind_of(&run);
        } else {
            totals.refused++;
        }
        if (variants[i].frame)
            totals.frame_edges += frame_edge_run(test, &variants[i]);
        bool plain = !variants[i].behind && !variants[i].on_taken;
        if (plain && chance(variants[i].how <= SHORT ? 10 : 30))
            totals.edges += edge_run(test, &variants[i]);
    }
    totals.compared += compared;
    return compared;
}

static void prologues_run(unsigned windows)
{
    static struct test_case test;
    for (unsigned i = 0; i < windows; i++) {
        prologue_make(&test);
        (void)window_run(&test);
    }
    test.prologue = 0;
}

static void areas_make(void)
{
    static const uint64_t area[] = {FAR_ADDR,  LOW_ADDR, STUBS_NEAR, STUBS_FAR, HOMES_NEAR,
                                    HOMES_FAR, LOG_ADDR, EDGE_ADDR,  CALLS_ADDR};
    for (size_t i = 0; i < sizeof area / sizeof *area; i++)
        machine_area(area[i], AREA_SIZE, true);
    machine_area(BLOCK_ADDR, BLOCK_SIZE, false);
    machine_breaks(EDGE_ADDR, AREA_SIZE);
    machine_breaks(CALLS_ADDR, AREA_SIZE);
    mprotect((void *)(uintptr_t)CALLS_ADDR, AREA_SIZE, PROT_READ | PROT_EXEC);
    memcpy((void *)(uintptr_t)STUBS_NEAR, stub_start, (size_t)(stub_end - stub_start));
    memcpy((void *)(uintptr_t)STUBS_FAR, stub_start, (size_t)(stub_end - stub_start));
}

// false: no window of it could be compared, or the processor has no such instruction.
static bool row_run(unsigned number, unsigned windows)
{
    static struct test_case test;
    const struct row *row = tl_riscv64_row(number);
    unsigned compared = 0, made = 0, illegal = 0;
    for (unsigned i = 0; i < windows || ((!compared || illegal == made) && i < HAD_TRIES * windows); i++) {
        if (!window_make(&test, number))
            break;
        made++;
        compared += window_run(&test);
        illegal += test.after.signal == SIGILL && test.insn[test.ran].row == number;
    }
    totals.windows += made;
    if (!compared || illegal == made)
        fprintf(stderr, "row %s: %u windows, %u runs compared, %u illegal\n", row->name, made, compared, illegal);
    return compared != 0 && illegal != made;
}

int main(int argc, char **argv)
{
    unsigned windows = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 4;
    unsigned rows = 0, missing = 0;
    wide_only = argc > 3 && strcmp(argv[3], "wide") == 0;
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (unsigned long long)getpid();
    random_state = seed;
    machine_begin();
    areas_make();
    for (unsigned number = 1; number < tl_riscv64_row_count(); number++) {
        if (tl_riscv64_row(number)->reloc == TL_RELOC_REFUSE ||
            (wide_only && tl_riscv64_row(number)->size == 2))
            continue;
        bool copied = tl_riscv64_row(number)->reloc == TL_RELOC_COPY;
        rows++;
        missing += !row_run(number, copied ? windows : MOVED_TIMES * windows);
    }
    prologues_run(PROLOGUES * windows);
    printf("seed %llu: %u rows, %lu windows, %lu runs compared, %lu detours refused, %lu bounced, "
           "%lu at the stack's end\nwindows by instructions:",
           seed, rows, totals.windows, totals.compared, totals.refused, totals.bounced,
           totals.edges);
    for (unsigned i = 1; i <= TL_WINDOW_INSNS_MAX; i++)
        printf(" %lu", totals.counts[i]);
    printf("\n");
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        printf("%s: %lu\n", variants[i].name, totals.variant[i]);
        missing += totals.variant[i] == 0;
    }
    printf("at the stack's end: %lu branches, %lu ways out\n", totals_edges_patch, totals_edges_out);
    printf("in a prologue's frame: %lu counts, %lu at the stack's end\n", totals.framed, totals.frame_edges);
    missing += totals.edges == 0 || totals.framed == 0 || totals.frame_edges == 0;
    missing += totals_edges_patch == 0 || totals_edges_out == 0;
    return missing != 0;
}

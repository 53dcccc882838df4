// Every row of the table that may be probed, run bare and in a detour, by an arm64 processor (or
// what stands in for it): random words, random states; all general and vector registers, flags and
// memory are compared, and a fault must be shown with the state before the instruction. Fails if a
// row was not run.
//
// Each row is run in streaming mode with ZA on too, a word of it if it is had without. Which rows
// the processor has in neither way is exact, in the file LIST.
//
//   differential LIST [SEED [WORDS]]      WORDS of each row; prints its seed
#include "absent.h"
#include "machine.h"
#include "sign.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/arm64/arm64.h"
#include "arch/arm64/table.h"
#include "arch/arm64/writer.h"

#define NEAR_ADDR (SITE_ADDR + 0x400000)
#define FAR_ADDR (SITE_ADDR + 0x6000000)
#define LOW_ADDR (SITE_ADDR - 0x7000000)
#define AREA_SIZE 0x10000u
#define EDGE_ADDR (SITE_ADDR - 0x5000000) // breakpoints too, which no branch from FAR_ADDR reaches
#define GUARDED_ADDR (SITE_ADDR + 0x900000)
#define PADS_ADDR (SITE_ADDR + 0xa00000)
#define STUBS_NEAR UINT64_C(0x42000000)
#define STUBS_FAR UINT64_C(0x700000000)
#define HOMES_NEAR UINT64_C(0x24000000)
#define HOMES_FAR UINT64_C(0x500000000)
#define LOG_ADDR UINT64_C(0x26000000) // stubs.S
#define BLOCK_ADDR UINT64_C(0x30000000)
#define BLOCK_SIZE 0x1400000u
#define BELOW 256u // bytes below the stack pointer that a detour may use, but for the first ones
#define BELOW_KEPT 8u
#define HOMES_SHIFT 12
#define WORD_TRIES 20000
#define MOVED_TIMES 8       // as many words of rows that are not just copied
#define COPIES 40           // of each kind
#define HAD_TRIES 40        // words until one is legal
#define STREAMED_PERCENT 30 // of the variants, where a row is had without streaming mode
#define BASE_FIELD 0x3e0u

extern const uint8_t stub_start[], stub_slow[], stub_record[], stub_guard[], stub_end[];

struct log {
    uint64_t slow, slow_off, slow_index, slow_sp;
    uint64_t record, record_off, record_s, record_sp, record_link;
    uint64_t guard, guard_sp, guard_link;
};

static unsigned long long seed;
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

// ---- one case -----------------------------------------------------------------------------------

struct memory {
    uint8_t data[DATA_SIZE], stack[STACK_SIZE];
};

struct test_case {
    struct tl_insn insn;
    struct machine_state before, after; // bare
    struct memory memory_before, memory_after;
    bool faulted; // bare, at the site
    bool varies;  // what it writes is another value each time: a time, a random number
};

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

// What lies below the stack pointer, before or after, is nobody's, but for what Go keeps there.
static void memory_forget(struct memory *memory, const struct test_case *test, uint8_t with)
{
    uint64_t sp[2] = {test->before.sp, test->after.sp};
    for (size_t i = 0; i < 2; i++) {
        if (sp[i] >= STACK_ADDR + BELOW && sp[i] <= STACK_ADDR + STACK_SIZE)
            memset(memory->stack + (sp[i] - STACK_ADDR) - BELOW, with, BELOW - BELOW_KEPT);
    }
}

static uint64_t register_random(void)
{
    if (chance(60))
        return DATA_ADDR + 0x1000 + next() % 0x2000 / 16 * 16 + (chance(20) ? next() % 16 : 0);
    if (chance(50))
        return next() % 65;
    return chance(20) ? 0 : next();
}

static void state_random(struct test_case *test)
{
    machine_state_blank(&test->before);
    for (size_t i = 0; i < 31; i++)
        test->before.reg[i] = register_random();
    test->before.sp = STACK_ADDR + 0x1000 + next() % 0x2000 / 16 * 16;
    test->before.pc = SITE_ADDR;
    test->before.pstate = next() & FLAGS_MASK;
    machine_vectors_fill(&test->before, next);
    if (chance(70))
        pointer_sign(&test->insn, &test->before, next);
    for (size_t i = 0; i < sizeof test->memory_before; i += 8) {
        uint64_t value = chance(50) ? next() : register_random();
        memcpy((uint8_t *)&test->memory_before + i, &value, sizeof value);
    }
}

static bool state_same(const struct machine_state *a, const struct machine_state *b, tl_regset but,
                       uint64_t pstate)
{
    for (unsigned i = 0; i < 31; i++) {
        if (!(but >> i & 1) && a->reg[i] != b->reg[i])
            return false;
    }
    return a->sp == b->sp && a->pc == b->pc && a->signal == b->signal &&
           ((a->pstate ^ b->pstate) & pstate) == 0 && machine_vectors_same(a, b);
}

// The same word twice, with other bytes below the stack pointer: what depends on them can't be
// compared.
static bool bare_run(struct test_case *test)
{
    struct machine_state again;
    struct memory other = test->memory_before;
    machine_word_put(SITE_ADDR, tl_arm64_word(&test->insn));
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
    test->faulted = test->after.pc == SITE_ADDR;
    memory_forget(&other, test, 0);
    memory_forget(&test->memory_after, test, 0);
    test->varies = !state_same(&test->after, &again, 0, ~UINT64_C(0));
    bool same = !test->varies || state_same(&test->after, &again, test->insn.written, ~FLAGS_MASK);
    return same && memcmp(&other, &test->memory_after, sizeof other) == 0;
}

// ---- in a detour --------------------------------------------------------------------------------

struct variant {
    const char *name;
    uint8_t action;
    bool atomics, shared, empty, behind, no_stack, retarget, on_taken, far;
    unsigned dead; // percent of what may be
};

static const struct variant variants[] = {
    {.name = "slot", .action = TL_ACTION_NONE},
    {.name = "slot, far", .action = TL_ACTION_NONE, .far = true, .dead = 50},
    {.name = "count", .action = TL_ACTION_COUNT, .atomics = true, .dead = 100},
    {.name = "count, registers saved", .action = TL_ACTION_COUNT, .atomics = true, .far = true},
    {.name = "count, some saved", .action = TL_ACTION_COUNT, .atomics = true, .dead = 4},
    {.name = "exclusive", .action = TL_ACTION_COUNT, .dead = 100, .far = true},
    {.name = "exclusive, registers saved", .action = TL_ACTION_COUNT},
    {.name = "exclusive, some saved", .action = TL_ACTION_COUNT, .dead = 6},
    {.name = "empty home", .action = TL_ACTION_COUNT, .atomics = true, .empty = true, .dead = 50},
    {.name = "empty home, saved", .action = TL_ACTION_COUNT, .empty = true, .far = true},
    {.name = "shared", .action = TL_ACTION_COUNT, .atomics = true, .shared = true, .dead = 50},
    {.name = "shared, empty", .action = TL_ACTION_COUNT, .shared = true, .empty = true},
    {.name = "no stack",
     .action = TL_ACTION_COUNT,
     .atomics = true,
     .shared = true,
     .no_stack = true,
     .dead = 100},
    {.name = "no stack, empty",
     .action = TL_ACTION_COUNT,
     .shared = true,
     .no_stack = true,
     .dead = 100,
     .empty = true},
    {.name = "behind", .action = TL_ACTION_COUNT, .atomics = true, .behind = true},
    {.name = "behind, empty",
     .action = TL_ACTION_COUNT,
     .behind = true,
     .empty = true,
     .far = true},
    {.name = "record", .action = TL_ACTION_RECORD, .dead = 30},
    {.name = "record and count", .action = TL_ACTION_RECORD | TL_ACTION_COUNT, .far = true},
    {.name = "guard", .action = TL_ACTION_COUNT | TL_ACTION_GUARD, .atomics = true, .far = true},
    {.name = "guard, near", .action = TL_ACTION_GUARD},
    {.name = "retarget", .action = TL_ACTION_COUNT, .atomics = true, .retarget = true},
    {.name = "taken", .action = TL_ACTION_COUNT, .on_taken = true},
    {.name = "taken, far", .action = TL_ACTION_RECORD, .on_taken = true, .far = true, .dead = 50},
};

struct run {
    const struct test_case *test;
    const struct variant *variant;
    struct tl_emit_in in;
    struct tl_detour detour;
    tl_addr at, homes;
    struct machine_state after;
};

static void fail(const struct run *run, const char *what)
{
    const struct test_case *test = run->test;
    fprintf(stderr, "%s: word %08x, row %s, variant \"%s\", detour at %#llx\n", what,
            tl_arm64_word(&test->insn), tl_arm64_row(test->insn.row)->name, run->variant->name,
            (unsigned long long)run->at);
    fprintf(stderr, "seed %llu, dead %#llx, behind %#llx\n", seed, (unsigned long long)run->in.dead,
            (unsigned long long)run->in.dead_behind);
    for (size_t i = 0; i < 31; i++)
        fprintf(stderr, "x%zu %#llx: bare %#llx, detour %#llx%s\n", i,
                (unsigned long long)test->before.reg[i], (unsigned long long)test->after.reg[i],
                (unsigned long long)run->after.reg[i],
                test->after.reg[i] != run->after.reg[i] ? " !" : "");
    fprintf(stderr,
            "sp %#llx: %#llx, %#llx; pc %#llx, %#llx; pstate %#llx: %#llx, %#llx; signal %d, %d\n",
            (unsigned long long)test->before.sp, (unsigned long long)test->after.sp,
            (unsigned long long)run->after.sp, (unsigned long long)test->after.pc,
            (unsigned long long)run->after.pc, (unsigned long long)test->before.pstate,
            (unsigned long long)test->after.pstate, (unsigned long long)run->after.pstate,
            test->after.signal, run->after.signal);
    for (uint16_t i = 0; i < run->detour.size; i += 4) {
        uint32_t word;
        memcpy(&word, run->detour.bytes + i, sizeof word);
        fprintf(stderr, "%s%08x", i ? " " : "detour: ", word);
    }
    fprintf(stderr, "\n");
    exit(1);
}

static tl_regset regs_random(tl_regset from, unsigned percent)
{
    tl_regset some = 0;
    for (unsigned i = 0; i < 31; i++)
        some |= chance(percent) ? TL_REGSET(i) : 0;
    some |= chance(percent) ? TL_REGSET_FLAGS : 0;
    return some & from;
}

// The action needs a stack pointer that is one.
static bool stack_is(uint64_t sp)
{
    return sp % 16 == 0 && sp >= STACK_ADDR + BELOW && sp <= STACK_ADDR + STACK_SIZE;
}

// Whether the variant makes sense for the instruction.
static bool variant_fits(const struct variant *variant, const struct test_case *test)
{
    const struct tl_insn *insn = &test->insn;
    if (variant->retarget)
        return insn->reloc == TL_RELOC_CALL;
    if (variant->on_taken)
        return insn->reloc == TL_RELOC_COND &&
               insn->target != SITE_ADDR + 4; // shows whether it was taken
    return !variant->behind || (insn->flow == TL_FLOW_NEXT && stack_is(test->after.sp));
}

static void input_make(struct run *run)
{
    static const uint32_t offs[] = {64, 72, 4088, 4096, 4104, 0x100000, 0x123458, 0x1234568};
    const struct variant *variant = run->variant;
    const struct tl_insn *insn = &run->test->insn;
    uint64_t stubs = variant->far ? STUBS_FAR : STUBS_NEAR;
    run->homes = variant->far ? HOMES_FAR : HOMES_NEAR;
    tl_regset flags = insn->read & TL_REGSET_EACH_FLAG ? TL_REGSET_FLAGS : 0;
    tl_regset may = ~(insn->read | flags | TL_REGSET(31) | (variant->retarget ? TL_REGSET(30) : 0));
    run->in = (struct tl_emit_in){
        .action = variant->action,
        .thread_pointer = variant->shared ? TL_TP_SHARED : TL_TP_TPIDR,
        .homes_addr = run->homes,
        .homes_shift = HOMES_SHIFT,
        .atomics = variant->atomics,
        .slow_addr = stubs + (uint64_t)(stub_slow - stub_start),
        .call_addr = stubs + (uint64_t)(stub_guard - stub_start),
        .leave_addr = stubs + (uint64_t)(stub_guard - stub_start),
        .on_taken = variant->on_taken,
        .no_stack = variant->no_stack,
        .counter_off = offs[next() % (sizeof offs / sizeof *offs)],
        .dead = regs_random(may, variant->dead),
        .behind = variant->behind,
        .dead_behind = variant->behind ? regs_random(TL_REGSET_GENERAL & ~TL_REGSET(31), 50) : 0,
        .insn = insn,
        .insn_count = 1,
        .call_retarget = variant->retarget,
        .resume_addr = SITE_ADDR + 4,
    };
    run->in.record_addr[TL_RECORD_EVENT] = stubs + (uint64_t)(stub_record - stub_start);
    if (variant->action & TL_ACTION_RECORD)
        run->in.record[0] = (struct tl_record){TL_RECORD_EVENT, run->in.counter_off,
                                               chance(50) ? 0 : -(int32_t)(next() % 600 * 16)};
    run->at = variant->far ? (chance(50) ? FAR_ADDR : LOW_ADDR) : NEAR_ADDR;
    run->at += next() % 64 * 32;
}

static uint64_t thread_index(void)
{
    uint64_t pointer;
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
    return pointer >> HOMES_SHIFT & 0xff;
}

static void homes_put(const struct run *run)
{
    uint64_t *homes = (uint64_t *)(uintptr_t)run->homes;
    uint64_t index = run->variant->shared ? 0 : thread_index();
    memset(homes, 0xff, 256 * 8); // whoever reads another one faults
    homes[index] = run->variant->empty ? 0 : BLOCK_ADDR;
    *(uint64_t *)(uintptr_t)(BLOCK_ADDR + run->in.counter_off) = 41;
    memset((void *)(uintptr_t)LOG_ADDR, 0, sizeof(struct log));
}

// A fault in the detour, as a handler is to see it.
static void fault_mend(struct run *run)
{
    uint64_t off = run->after.pc - run->at;
    if (off >= run->detour.size)
        return;
    for (unsigned i = 0; i < run->detour.fault_count; i++) {
        if (run->detour.fault[i].off == off) {
            run->after.pc = SITE_ADDR;
            run->after.sp += 8u * run->detour.fault[i].sp_words;
            return;
        }
    }
    // QEMU 7.2 shows a fault of dc gzva at the first instruction of the block that it translated.
    if (strcmp(tl_arm64_row(run->test->insn.row)->name, "cache") != 0)
        fail(run, "a fault in the detour at no fault point");
    run->after = run->test->after;
}

// How often the action should have run, and what it was given.
static void action_check(const struct run *run)
{
    const struct variant *variant = run->variant;
    const struct test_case *test = run->test;
    const struct log *log = (const struct log *)(uintptr_t)LOG_ADDR;
    uint64_t counted = *(uint64_t *)(uintptr_t)(BLOCK_ADDR + run->in.counter_off) - 41;
    uint64_t hits = (variant->behind && test->faulted) ||
                            (variant->on_taken && test->after.pc != test->insn.target)
                        ? 0
                        : 1;
    uint64_t count = variant->action & TL_ACTION_COUNT ? hits : 0;
    bool passed_over = variant->no_stack && variant->empty;
    if (counted != (variant->empty ? 0 : count))
        fail(run, "counted wrongly");
    if (log->slow != (variant->empty && !passed_over ? count : 0))
        fail(run, "the slow path was taken wrongly");
    if (log->slow && (log->slow_off != run->in.counter_off || log->slow_sp % 16 ||
                      log->slow_index != (variant->shared ? 0 : thread_index())))
        fail(run, "the slow path was given something else");
    uint64_t records = variant->action & TL_ACTION_RECORD ? hits : 0, sp = test->before.sp;
    if (log->record != records || log->guard != (variant->action & TL_ACTION_GUARD ? 2 * hits : 0))
        fail(run, "the agent was called wrongly");
    if (records &&
        (log->record_off != run->in.counter_off || log->record_sp != sp - TL_RECORD_FRAME_ARM64 ||
         log->record_s != sp - (uint64_t)(int64_t)run->in.record[0].sp_off ||
         log->record_link != test->before.reg[30]))
        fail(run, "the record's entry was given something else");
    if (log->guard && (log->guard_sp != sp - 16 || log->guard_link != test->before.reg[30]))
        fail(run, "the handler's entry was given something else");
}

static void result_check(struct run *run)
{
    const struct test_case *test = run->test;
    const struct tl_insn *insn = &test->insn;
    struct memory memory;
    memory_take(&memory);
    memory_forget(&memory, test, 0);
    fault_mend(run);
    // A dead register may hold anything, until the instruction gives it a value.
    tl_regset but = (run->in.dead & ~(test->faulted ? 0 : insn->written)) |
                    (test->faulted ? 0 : run->in.dead_behind);
    if (test->varies)
        but |= insn->written | TL_REGSET_FLAGS;
    uint64_t pstate = ~UINT64_C(0);
    if (but & TL_REGSET_FLAGS)
        pstate &= ~FLAGS_MASK;
    // br in place of another branch leaves another BTYPE, which means nothing in these pages.
    if (insn->reloc == TL_RELOC_ICALL || insn->reloc == TL_RELOC_BRANCH || run->variant->retarget)
        pstate &= ~UINT64_C(0xc00);
    if (!state_same(&test->after, &run->after, but, pstate))
        fail(run, "not as it is bare");
    if (memcmp(&memory, &test->memory_after, sizeof memory) != 0)
        fail(run, "memory is not as it is bare");
    action_check(run);
}

// false: refused here.
static bool detour_run(struct run *run)
{
    struct tl_diag diag;
    uint32_t patch;
    if (tl_arch_arm64.emit_detour(&run->in, run->at, &run->detour, &diag))
        fail(run, "not emitted");
    if (run->detour.refusal)
        return false;
    memcpy((void *)(uintptr_t)run->at, run->detour.bytes, run->detour.size);
    __builtin___clear_cache((char *)(uintptr_t)run->at,
                            (char *)(uintptr_t)run->at + run->detour.size);
    bool led = run->variant->retarget
                   ? tl_arch_arm64.emit_retarget(&run->test->insn, run->at, (uint8_t *)&patch)
                   : tl_arch_arm64.emit_jump(SITE_ADDR, run->at, (uint8_t *)&patch);
    if (!led)
        fail(run, "out of reach");
    machine_word_put(SITE_ADDR, patch);
    homes_put(run);
    memory_put(&run->test->memory_before);
    run->after = run->test->before;
    if (!machine_run(&run->test->before, &run->after))
        fail(run, "went on for ever");
    return true;
}

// ---- rows ---------------------------------------------------------------------------------------

struct row_result {
    unsigned words, compared, refused;
    bool had; // the processor has such an instruction
};

static bool target_inside(const struct tl_insn *insn)
{
    bool field = insn->target >= FIELD_ADDR && insn->target + 64 <= FIELD_ADDR + FIELD_SIZE;
    bool edge = insn->target >= EDGE_ADDR && insn->target + 64 <= EDGE_ADDR + AREA_SIZE;
    return (field || edge) && insn->target / 4 != SITE_ADDR / 4;
}

// Leads a branch or a literal load into the field, or far away if it can.
static bool word_aim(uint32_t *word)
{
    if (chance(40) && tl_word_aim(word, (int64_t)(EDGE_ADDR + next() % 0x8000 / 4 * 4 - SITE_ADDR)))
        return true;
    for (int64_t reach = 0x100000; reach >= 0x400; reach /= 4) {
        int64_t disp = (int64_t)(next() % (uint64_t)(2 * reach) / 4 * 4) - reach;
        if (tl_word_aim(word, disp))
            return true;
    }
    return false;
}

static bool word_random(unsigned number, struct tl_insn *insn)
{
    const struct row *row = tl_arm64_row(number);
    for (unsigned i = 0; i < WORD_TRIES; i++) {
        uint32_t word = word_of(row, next);
        if (chance(15)) // the stack pointer as a base
            word |= BASE_FIELD & ~row->mask;
        if (tl_arm64_row_find(word) != number)
            continue;
        tl_arch_arm64.decode((uint8_t *)&word, 4, SITE_ADDR, insn);
        bool near = insn->target && !(insn->flags & TL_INSN_PCREL_LEA);
        if (near && !target_inside(insn) && word_aim(&word))
            tl_arch_arm64.decode((uint8_t *)&word, 4, SITE_ADDR, insn);
        if (insn->row == number && (!near || target_inside(insn)))
            return true;
    }
    return false;
}

static bool legal(const struct machine_state *after)
{
    return !(after->signal == SIGILL && after->pc == SITE_ADDR);
}

// In `percent` of the variants.
static void word_run(struct test_case *test, struct row_result *result, unsigned percent)
{
    result->words++;
    state_random(test);
    if (!bare_run(test))
        return;
    result->had |= legal(&test->after);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct run run = {.test = test, .variant = &variants[i]};
        if (!variant_fits(&variants[i], test) || !chance(percent))
            continue;
        input_make(&run);
        if (detour_run(&run)) {
            result_check(&run);
            result->compared++;
        } else {
            result->refused++;
        }
    }
}

static void row_run(unsigned number, unsigned some, unsigned percent, struct row_result *result)
{
    static struct test_case test;
    for (unsigned i = 0; i < some || (!result->compared && i < 10 * some); i++) {
        if (!word_random(number, &test.insn))
            break;
        word_run(&test, result, percent);
    }
}

// Looks for a word of a row that is had, and runs that.
static void row_seek(unsigned number, struct row_result *result)
{
    static struct test_case test;
    state_random(&test);
    for (unsigned i = 0; i < HAD_TRIES && word_random(number, &test.insn); i++) {
        pointer_sign(&test.insn, &test.before, next);
        machine_word_put(SITE_ADDR, tl_arm64_word(&test.insn));
        if (machine_run(&test.before, &test.after) && legal(&test.after)) {
            word_run(&test, result, 100); // in another state, where it may not be
            if (result->had)
                return;
        }
    }
}

// Indirect calls from a page that is guarded or not to a landing pad in one that is: the pad takes
// the branch that stands for the call as it took the call.
static void pads_met(void)
{
    static const struct {
        uint32_t word;
        bool guarded;
        tl_regset dead;
    } call[] = {
        {0xd63f0060, false, 0},            // blr x3
        {0xd63f0060, true, TL_REGSET(17)}, // through x17
        {0xd63f0200, true, 0},             // blr x16
        {0xd63f0220, false, 0},            // blr x17
        {0xd63f03c0, true, TL_REGSET(16)}, // blr x30
        {0xd63f03c0, false, TL_REGSET(9)},
    };
    static const uint32_t pad[] = {0xd503245f, 0xd50324df, 0xd503233f}; // bti c, bti jc, paciasp
    static struct test_case test;
    for (size_t i = 0; i < sizeof call / sizeof *call * (sizeof pad / sizeof *pad); i++) {
        size_t c = i % (sizeof call / sizeof *call);
        machine_word_put(PADS_ADDR, pad[i / (sizeof call / sizeof *call)]);
        machine_word_put(PADS_ADDR + 4, machine_break(PADS_ADDR));
        state_random(&test);
        test.before.reg[3] = test.before.reg[16] = test.before.reg[17] = test.before.reg[30] =
            PADS_ADDR;
        tl_arch_arm64.decode((const uint8_t *)&call[c].word, 4, SITE_ADDR, &test.insn);
        struct run run = {.test = &test, .variant = &variants[0]};
        bool ran = bare_run(&test) && test.after.pc == PADS_ADDR + 4;
        input_make(&run);
        run.in.guarded = call[c].guarded;
        run.in.dead = call[c].dead;
        run.at = call[c].guarded ? GUARDED_ADDR : NEAR_ADDR;
        if (!ran || !detour_run(&run))
            fail(&run, "a landing pad was not met");
        result_check(&run);
    }
}

// Copies and sets of memory in their three parts, for real, behind a probe: it leaves them alone,
// and no part of them gets one.
static void copies_left_alone(void)
{
    static const struct {
        uint32_t first, step; // of x3 from x4, or with x6; x5 bytes
    } form[] = {
        {0x190404a3, 1u << 22}, // cpyfp [x3]!, [x4]!, x5!
        {0x1d0404a3, 1u << 22}, // cpyp
        {0x19c604a3, 1u << 14}, // setp [x3]!, x5!, x6
    };
    static const uint32_t nop = 0xd503201f;
    static struct test_case test;
    struct tl_insn part;
    for (size_t i = 0; i < sizeof form / sizeof *form * COPIES; i++) {
        uint32_t first = form[i / COPIES].first, step = form[i / COPIES].step;
        tl_arch_arm64.decode((const uint8_t *)&nop, 4, SITE_ADDR, &test.insn);
        state_random(&test);
        test.before.reg[3] = DATA_ADDR + 0x1000 + next() % 0x1000;
        test.before.reg[4] = DATA_ADDR + 0x1000 + next() % 0x1000;
        test.before.reg[5] = next() % 0x1800;
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t word = first + k * step;
            machine_word_put(SITE_ADDR + 4 + 4 * k, word);
            tl_arch_arm64.decode((const uint8_t *)&word, 4, SITE_ADDR + 4 + 4 * k, &part);
            if (part.reloc != TL_RELOC_REFUSE || part.refusal != TL_REFUSE_COPY_MIDDLE)
                fail(&(struct run){.test = &test, .variant = &variants[0]},
                     "a part of a copy may be probed");
        }
        struct run run = {.test = &test, .variant = &variants[next() % 12]};
        bool ran = bare_run(&test) && test.after.pc == SITE_ADDR + 16 && test.after.reg[5] == 0;
        input_make(&run);
        run.in.dead = 0; // the copy reads them
        if (!ran || !detour_run(&run))
            fail(&run, "no copy");
        result_check(&run);
    }
    for (uint64_t addr = SITE_ADDR + 4; addr < SITE_ADDR + 16; addr += 4)
        machine_word_put(addr, machine_break(addr));
}

static void areas_make(void)
{
    static const uint64_t area[] = {NEAR_ADDR, FAR_ADDR,     LOW_ADDR,  STUBS_NEAR,
                                    STUBS_FAR, HOMES_NEAR,   HOMES_FAR, LOG_ADDR,
                                    EDGE_ADDR, GUARDED_ADDR, PADS_ADDR};
    for (size_t i = 0; i < sizeof area / sizeof *area; i++)
        machine_area(area[i], AREA_SIZE, true);
    machine_area(BLOCK_ADDR, BLOCK_SIZE, false);
    machine_guard(GUARDED_ADDR, AREA_SIZE);
    machine_guard(PADS_ADDR, AREA_SIZE);
    for (uint64_t addr = EDGE_ADDR; addr < EDGE_ADDR + AREA_SIZE; addr += 4)
        machine_word_put(addr, machine_break(addr));
    memcpy((void *)(uintptr_t)STUBS_NEAR, stub_start, (size_t)(stub_end - stub_start));
    memcpy((void *)(uintptr_t)STUBS_FAR, stub_start, (size_t)(stub_end - stub_start));
}

// A call through a signed pointer would fault with the link register changed already: always
// refused.
static bool never_moved(const struct row *row)
{
    return strcmp(row->name, "blraz") == 0 || strcmp(row->name, "blra") == 0;
}

int main(int argc, char **argv)
{
    unsigned words = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 4;
    unsigned rows = 0, missing = 0, streamed = 0, absent = 0;
    unsigned long compared = 0, refused = 0;
    if (argc < 2)
        return 2;
    absent_read(argv[1]);
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (unsigned long long)getpid();
    random_state = seed;
    machine_begin();
    areas_make();
    pads_met();
    copies_left_alone();
    for (unsigned number = 1; number < tl_arm64_row_count(); number++) {
        const struct row *row = tl_arm64_row(number);
        struct row_result result = {0}, streaming = {0};
        if (row->reloc == TL_RELOC_REFUSE)
            continue;
        rows++;
        row_run(number, row->reloc == TL_RELOC_COPY ? words : MOVED_TIMES * words, 100, &result);
        if (machine_streaming(true)) {
            row_run(number, result.had ? 1 : words, result.had ? STREAMED_PERCENT : 100,
                    &streaming);
            if (!result.had && !streaming.had)
                row_seek(number, &streaming);
        }
        machine_streaming(false);
        if (!result.had && !streaming.had)
            row_seek(number, &result);
        compared += result.compared + streaming.compared;
        refused += result.refused + streaming.refused;
        streamed += streaming.had;
        absent += !result.had && !streaming.had;
        absent_judge(row->name, result.had || streaming.had);
        if ((result.compared == 0) != never_moved(row)) {
            missing++;
            fprintf(stderr, "row %s: %u words, %u runs, %u refused\n", row->name, result.words,
                    result.compared, result.refused);
        }
    }
    printf("seed %llu: %u rows, %lu runs compared, %lu detours refused; %u rows had in streaming "
           "mode, %u not at all\n",
           seed, rows, compared, refused, streamed, absent);
    return missing != 0 || absent_wrong() != 0;
}

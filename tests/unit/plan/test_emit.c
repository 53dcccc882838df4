// Every form of a displaced instruction, bare and in a detour, over random states: registers,
// flags, vector registers, memory and the way out are equal, and so is the state at every recorded
// boundary. The stepper: the detour is run one instruction at a time, and at each boundary a signal
// arrives whose handler runs the same detour and overwrites everything below the red zone.
#include "agent/layout.h"
#include "forms.h"
#include "machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GENERAL ((tl_regset)0xffff)
#define EVERY (GENERAL | TL_REGSET_FLAGS)

#define STEPS_MAX 400
#define STACK_SIZE 0x10000u
#define STACK_TOP 0x8000u // of the bare run, from the stack's start
#define SCRATCH_SIZE 0x2000u
#define RED_ZONE 128u
#define SIGNAL_FRAME 512u // what the kernel and the handler overwrite
#define ROUNDS 3

enum {
    STACK = 0x7ffd00000000,
    SCRATCH = 0x200000000000,
    TABLE = 0x300000000000,
    BLOCKS = 0x310000000000,
    CONTROL = 0x320000000000,
    AGENT = 0x330000000000,
    AGENT_CALL = AGENT + 0x100,
    AGENT_RECORD = AGENT + 0x200, // 16 bytes a kind
    FS = 0x340000000000,
    FORMS = 0x555555000000,
    FORMS_LOW = 0x400000,
    DETOUR_NEAR = 0x555560000000,
    DETOUR_LOW = 0x10000000,
    DETOUR_FAR = 0x660000000000,
    COUNTER = 0x1230,
};

// How the thread finds its block.
enum way_in {
    IN_NONE,         // an auxiliary site: no action
    IN_FAST,         // its own block, by the word at %fs:0
    IN_SLOW,         // its slot is empty
    IN_TAKEN,        // its slot is another thread's
    IN_FSBASE,       // its own block, by rdfsbase
    IN_FSBASE_NONE,  // no thread pointer
    IN_SHARED,       // the shared block
    IN_WIPED,        // a forked child: the agent is asked
    IN_BARE,         // the shared block, and no stack to use
    IN_BARE_WIPED,   // ... in a forked child: silent
    IN_CALL,         // the agent is called, and nothing counted
    IN_COUNT_CALL,   // counted on the fast path, then the agent is called
    IN_RECORD,       // one record
    IN_RECORDS,      // as many as a site can have
    IN_COUNT_RECORD, // counted, recorded, then the agent is called
    // The same where the branch is taken only.
    IN_BRANCH,
    IN_BRANCH_RECORD,
    IN_COUNT
};

static struct machine m;
static tl_addr forms_at, detour_at;
static uint64_t slow_hits; // counted by the agent's stand-in
static uint64_t calls;     // ... of TL_ACTION_CALL
static uint64_t records;   // ... of TL_ACTION_RECORD
static unsigned runs, refused, fault_points, branches_taken, branches_passed;

// ---- set-up -----------------------------------------------------------------------------------

static int setup(void **state)
{
    (void)state;
    machine_init(&m, seed_get("plan-emit"));
    size_t size = (size_t)(forms_end - forms_text);
    machine_map(&m, STACK, STACK_SIZE);
    machine_map(&m, SCRATCH, SCRATCH_SIZE);
    machine_map(&m, TABLE, TL_TABLE_SIZE);
    machine_map(&m, BLOCKS, 0x10000);
    machine_map(&m, CONTROL, 0x1000);
    machine_map(&m, AGENT, 0x1000);
    machine_map(&m, FS, 0x1000);
    machine_map(&m, 0, 0x1000); // %fs: without a base
    machine_map(&m, FORMS, size);
    machine_map(&m, FORMS_LOW, size);
    machine_map(&m, DETOUR_NEAR, 0x2000);
    machine_map(&m, DETOUR_LOW, 0x2000);
    machine_map(&m, DETOUR_FAR, 0x2000);
    machine_write(&m, FORMS, forms_text, size);
    machine_write(&m, FORMS_LOW, forms_text, size);
    machine_write(&m, AGENT, "\xc3", 1); // ret; the rest is done in detour_step
    machine_write(&m, AGENT_CALL, "\xc3", 1);
    for (unsigned kind = 1; kind < TL_RECORD_KIND_COUNT; kind++)
        machine_write(&m, AGENT_RECORD + 16 * kind, "\xc3", 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    machine_deinit(&m);
    return 0;
}

static uint64_t thread_slot(tl_addr tp)
{
    return TABLE + ((tp * TL_HASH) >> 56) * TL_THREAD_SLOT_SIZE;
}

// Memory as a hit of this kind finds it.
static void way_in_prepare(enum way_in in)
{
    uint64_t word = FS, zero[TL_TABLE_SIZE / 8] = {0};
    struct tl_thread_slot slot = {.tp = FS, .block = BLOCKS};
    struct tl_control control = {.live = TL_CONTROL_LIVE, .shared_block = BLOCKS};
    machine_fill(&m, FS, 64);
    machine_write(&m, FS, &word, 8);
    machine_fs(&m, in == IN_FSBASE_NONE ? 0 : FS);
    machine_write(&m, TABLE, zero, sizeof zero);
    if (in == IN_TAKEN)
        slot.tp = FS + 64;
    if (in == IN_SLOW)
        slot.tp = 0;
    machine_write(&m, thread_slot(FS), &slot, sizeof slot);
    if (in == IN_WIPED || in == IN_BARE_WIPED)
        control = (struct tl_control){0};
    machine_write(&m, CONTROL, &control, sizeof control);
    machine_write(&m, BLOCKS, zero, 0x1000);
    machine_write(&m, BLOCKS + 0x1000, zero, 0x1000);
    slow_hits = calls = records = 0;
}

static uint64_t hits_read(void)
{
    uint64_t fast;
    machine_read(&m, BLOCKS + COUNTER, &fast, 8);
    return fast + slow_hits;
}

static void state_random(const struct form *form, struct state *s)
{
    for (int i = 0; i < 16; i++) {
        s->reg[i] = machine_random(&m);
        if (machine_random(&m) % 4 == 0)
            s->reg[i] %= 3;
        if (form->pointers >> i & 1)
            s->reg[i] = SCRATCH + 0x400 + (machine_random(&m) % 0x400 & ~7ull);
    }
    s->reg[RSP] = STACK + STACK_TOP + (machine_random(&m) % 64) * 8;
    if (form->pointers >> RBP & 1)
        s->reg[RBP] = s->reg[RSP] + (machine_random(&m) % 64) * 8;
    s->flags = machine_random(&m) & ARITHMETIC_FLAGS;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++)
            s->vector[i][k] = (uint8_t)machine_random(&m);
    s->rip = 0;
}

// ---- one form ---------------------------------------------------------------------------------

struct subject {
    const struct form *form;
    struct tl_insn insn[TL_WINDOW_INSNS_MAX];
    struct tl_emit_in in;
    struct tl_detour detour;
    tl_regset live_compared; // registers and flags that must be equal in the end
};

// What the window reads before it writes, and what it writes on every path.
static void window_use(const struct subject *s, tl_regset *read, tl_regset *written)
{
    bool straight = true;
    *read = *written = 0;
    for (unsigned i = 0; i < s->in.insn_count; i++) {
        *read |= s->insn[i].read & ~*written;
        if (straight)
            *written |= s->insn[i].written;
        straight &= s->insn[i].flow != TL_FLOW_COND && s->insn[i].flow != TL_FLOW_JUMP;
    }
}

static void subject_decode(struct subject *s, const struct form *form)
{
    memset(s, 0, sizeof *s);
    s->form = form;
    tl_addr addr = forms_at + (tl_addr)(form->start - forms_text);
    for (const uint8_t *at = form->start; at < form->end;) {
        struct tl_insn *insn = &s->insn[s->in.insn_count++];
        assert_true(s->in.insn_count <= TL_WINDOW_INSNS_MAX);
        if (tl_arch_x86_64.decode(at, (size_t)(form->end - at), addr, insn))
            fail_msg("%s: does not decode", form->name);
        at += insn->size;
        addr += insn->size;
    }
    s->in.insn = s->insn;
    s->in.resume_addr = addr;
}

static void subject_choose(struct subject *s, enum way_in in)
{
    tl_regset read, written, flags;
    window_use(s, &read, &written);
    uint64_t bits = machine_random(&m);
    tl_regset dead = ((bits & GENERAL) | (bits >> 31 & 1) << TL_REG_FLAGS) & ~read;
    if (machine_random(&m) % 4 == 0)
        dead = machine_random(&m) % 2 ? 0 : EVERY & ~read;
    dead &= ~((tl_regset)1 << RSP);
    flags = dead & TL_REGSET_FLAGS;
    s->in.dead = dead;
    s->live_compared = (~dead | written) & (GENERAL | TL_REGSET_FLAGS);
    (void)flags;
    static const uint8_t action[IN_COUNT] = {
        [IN_NONE] = TL_ACTION_NONE,
        [IN_CALL] = TL_ACTION_CALL,
        [IN_COUNT_CALL] = TL_ACTION_COUNT_CALL,
        [IN_RECORD] = TL_ACTION_RECORD,
        [IN_RECORDS] = TL_ACTION_RECORD,
        [IN_BRANCH_RECORD] = TL_ACTION_RECORD,
        [IN_COUNT_RECORD] = TL_ACTION_COUNT_CALL | TL_ACTION_RECORD,
    };
    s->in.action = action[in] || in == IN_NONE ? (enum tl_action)action[in] : TL_ACTION_COUNT;
    unsigned record_count = !(s->in.action & TL_ACTION_RECORD) ? 0
                            : in == IN_RECORDS                 ? TL_SITE_RECORDS_MAX
                                                               : 1;
    for (unsigned i = 0; i < record_count; i++)
        s->in.record[i] = (struct tl_record){
            .kind = (uint8_t)(1 + machine_random(&m) % TL_RECORD_ENTRIES),
            .counter_off = 64 + 8 * (uint32_t)(machine_random(&m) % 1000),
            .sp_off = machine_random(&m) % 2 ? 0 : -8 * (int32_t)(machine_random(&m) % 1000)};
    for (unsigned kind = 1; kind < TL_RECORD_KIND_COUNT; kind++)
        s->in.record_addr[kind] = AGENT_RECORD + 16 * kind;
    s->in.on_taken = in >= IN_BRANCH;
    s->in.no_stack = in == IN_BARE || in == IN_BARE_WIPED;
    s->in.call_addr = AGENT_CALL;
    s->in.thread_pointer = in >= IN_SHARED && in <= IN_BARE_WIPED    ? TL_TP_SHARED
                           : in == IN_FSBASE || in == IN_FSBASE_NONE ? TL_TP_FSBASE
                                                                     : TL_TP_FS_WORD;
    s->in.table_addr = TABLE;
    s->in.control_addr = CONTROL;
    s->in.slow_addr = AGENT;
    s->in.counter_off = COUNTER;
}

static bool inside_window(const struct subject *s, tl_addr rip)
{
    return rip > s->in.insn[0].addr && rip < s->in.resume_addr;
}

struct trace {
    struct state at[STEPS_MAX];
    uint8_t insn_off[STEPS_MAX];
    unsigned count;
};

// The bare run: state before each instruction, and the last one.
static void bare_run(const struct subject *s, const struct state *begin, struct trace *trace,
                     struct state *end)
{
    *end = *begin;
    end->rip = s->in.insn[0].addr;
    machine_load(&m, end);
    trace->count = 0;
    do {
        assert_true(trace->count < STEPS_MAX);
        trace->at[trace->count] = *end;
        trace->insn_off[trace->count++] = (uint8_t)(end->rip - s->in.insn[0].addr);
        int error = machine_step(&m);
        machine_save(&m, end);
        if (error && inside_window(s, end->rip))
            fail_msg("%s: bare run: %s", s->form->name, uc_strerror((uc_err)error));
    } while (inside_window(s, end->rip));
}

static bool inside_detour(const struct subject *s, tl_addr rip)
{
    return rip >= detour_at && rip < detour_at + s->detour.size;
}

// An entry for records finds the site's registers, and the frame of emit.h; it spoils all it may.
static void record_step(const struct subject *s, const struct state *site, struct state *now)
{
    unsigned kind = (unsigned)(now->rip - AGENT_RECORD) / 16, known = 0;
    static const uint8_t kept[] = {3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint64_t frame[5];
    machine_read(&m, now->reg[RSP], frame, sizeof frame);
    for (unsigned i = 0; i < TL_SITE_RECORDS_MAX; i++)
        known += s->in.record[i].kind == kind && s->in.record[i].counter_off == now->reg[1] &&
                 now->reg[2] == site->reg[RSP] - (uint64_t)(int64_t)s->in.record[i].sp_off;
    if (!known || now->reg[RSP] + TL_RECORD_FRAME != site->reg[RSP])
        fail_msg("%s: record of kind %u, counter %#llx, S %#llx", s->form->name, kind,
                 (unsigned long long)now->reg[1], (unsigned long long)now->reg[2]);
    for (size_t i = 0; i < sizeof kept; i++)
        assert_true(now->reg[kept[i]] == site->reg[kept[i]]);
    assert_true(frame[4] == site->reg[0] && frame[3] == site->reg[1] && frame[2] == site->reg[2]);
    records++;
    machine_fill(&m, now->reg[RSP] - 64, 64);
    for (unsigned i = 0; i < 3; i++)
        now->reg[i] = machine_random(&m);
    now->flags = machine_random(&m) & ARITHMETIC_FLAGS;
    machine_load(&m, now);
    assert_int_equal(machine_step(&m), 0);
    machine_save(&m, now);
}

// One step; the agent counts, keeps the registers and spoils the flags and the stack below.
static void detour_step(const struct subject *s, const struct state *site, struct state *now)
{
    int error = machine_step(&m);
    machine_save(&m, now);
    if (error && inside_detour(s, now->rip))
        fail_msg("%s: detour: %s at +%#llx", s->form->name, uc_strerror((uc_err)error),
                 (unsigned long long)(now->rip - detour_at));
    if (now->rip == AGENT_CALL) {
        // It keeps registers and flags, and finds the site's stack pointer a fixed way above its
        // own.
        calls++;
        machine_fill(&m, now->reg[RSP] - 64, 64);
        assert_int_equal(machine_step(&m), 0);
        machine_save(&m, now);
        return;
    }
    if (now->rip >= AGENT_RECORD && now->rip < AGENT_RECORD + 16 * TL_RECORD_KIND_COUNT)
        record_step(s, site, now);
    if (now->rip != AGENT)
        return;
    uint64_t word[2];
    machine_read(&m, now->reg[RSP], word, sizeof word);
    assert_int_equal(word[1], COUNTER);
    slow_hits++;
    machine_fill(&m, now->reg[RSP] - 64, 64);
    now->flags = machine_random(&m) & ARITHMETIC_FLAGS;
    machine_load(&m, now);
    assert_int_equal(machine_step(&m), 0);
    machine_save(&m, now);
}

// ---- comparing --------------------------------------------------------------------------------

static void states_compare(const struct subject *s, const char *where, const struct state *bare,
                           const struct state *other, tl_regset compared)
{
    for (int i = 0; i < 16; i++) {
        if (compared >> i & 1 && bare->reg[i] != other->reg[i])
            fail_msg("%s: %s: register %d is %#llx, not %#llx", s->form->name, where, i,
                     (unsigned long long)other->reg[i], (unsigned long long)bare->reg[i]);
    }
    if (compared & TL_REGSET_FLAGS && bare->flags != other->flags)
        fail_msg("%s: %s: flags are %#llx, not %#llx", s->form->name, where,
                 (unsigned long long)other->flags, (unsigned long long)bare->flags);
    if (memcmp(bare->vector, other->vector, sizeof bare->vector) != 0)
        fail_msg("%s: %s: a vector register differs", s->form->name, where);
}

// Memory that the window may change: its data, scratch, the stack from the red zone up.
struct memory {
    uint8_t data[0x1000], scratch[SCRATCH_SIZE], stack[STACK_SIZE];
};

static tl_addr data_at(void)
{
    return forms_at + (tl_addr)(forms_data - forms_text);
}

static void memory_save(struct memory *memory)
{
    machine_read(&m, data_at(), memory->data, sizeof memory->data);
    machine_read(&m, SCRATCH, memory->scratch, sizeof memory->scratch);
    machine_read(&m, STACK, memory->stack, sizeof memory->stack);
}

static void memory_load(const struct memory *memory)
{
    machine_write(&m, data_at(), memory->data, sizeof memory->data);
    machine_write(&m, SCRATCH, memory->scratch, sizeof memory->scratch);
    machine_write(&m, STACK, memory->stack, sizeof memory->stack);
}

static void memory_random(const struct subject *s)
{
    uint64_t pointer = SCRATCH + 0x800;
    (void)s;
    machine_fill(&m, data_at(), 0x1000);
    machine_write(&m, data_at() + 64 + 256, &pointer, 8); // table
    machine_fill(&m, SCRATCH, SCRATCH_SIZE);
    machine_fill(&m, STACK, STACK_SIZE);
}

static void memory_compare(const struct subject *s, const struct memory *bare,
                           const struct memory *other, tl_addr rsp)
{
    size_t from = rsp - RED_ZONE - STACK;
    for (size_t i = 0; i < sizeof bare->data; i++) {
        if (bare->data[i] != other->data[i])
            fail_msg("%s: data+%zu is %#x, not %#x", s->form->name, i, other->data[i],
                     bare->data[i]);
    }
    if (memcmp(bare->scratch, other->scratch, sizeof bare->scratch) != 0)
        fail_msg("%s: scratch memory differs", s->form->name);
    for (size_t i = from; i < STACK_SIZE; i++) {
        if (bare->stack[i] != other->stack[i])
            fail_msg("%s: the stack differs at rsp%+d", s->form->name,
                     (int)((int64_t)(STACK + i) - (int64_t)rsp));
    }
}

// ---- the runs ---------------------------------------------------------------------------------

// Is this the start of a displaced instruction? Then what the bare run had there.
static void boundary_compare(const struct subject *s, const struct state *now,
                             const struct trace *bare, const struct state *bare_end, unsigned *step)
{
    for (unsigned i = 0; i < s->detour.boundary_count; i++) {
        const struct tl_boundary *b = &s->detour.boundary[i];
        if (now->rip != detour_at + b->off)
            continue;
        const struct state *expected = *step < bare->count ? &bare->at[*step] : bare_end;
        unsigned off = *step < bare->count ? bare->insn_off[*step]
                                           : (unsigned)(bare_end->rip - s->in.insn[0].addr);
        if (off != b->insn_off)
            fail_msg("%s: boundary +%u is instruction +%u, bare run is at +%u", s->form->name,
                     b->off, b->insn_off, off);
        states_compare(s, "boundary", expected, now,
                       (GENERAL | TL_REGSET_FLAGS) & ~s->in.dead);
        ++*step;
        return;
    }
}

// Is this a place where a fault is mended? Then the state before the site, but for dead registers.
static unsigned fault_compare(const struct subject *s, const struct state *now,
                              const struct state *begin)
{
    for (unsigned i = 0; i < s->detour.fault_count; i++) {
        if (now->rip != detour_at + s->detour.fault[i].off)
            continue;
        struct state mended = *now;
        mended.reg[RSP] += 8u * s->detour.fault[i].sp_words;
        states_compare(s, "fault point", begin, &mended,
                       (GENERAL | TL_REGSET_FLAGS) & ~s->in.dead);
        return 1;
    }
    return 0;
}

// Where a run of the detour ended: was it a hit?
static unsigned run_hits(const struct subject *s, tl_addr end)
{
    bool taken = end == s->in.insn[0].target;
    if (s->in.on_taken && taken)
        branches_taken++;
    else if (s->in.on_taken)
        branches_passed++;
    return !s->in.on_taken || taken;
}

// A handler that runs the detour from its start, with its own registers, on the stack below.
static unsigned signal_run(const struct subject *s, const struct state *now,
                           const struct state *begin)
{
    static struct memory before;
    struct state handler = *begin, site;
    memory_save(&before);
    for (int i = 0; i < 16; i++) {
        if (!(s->form->pointers >> i & 1))
            handler.reg[i] = machine_random(&m);
    }
    handler.flags = machine_random(&m) & ARITHMETIC_FLAGS;
    handler.rip = detour_at;
    machine_fill(&m, now->reg[RSP] - RED_ZONE - SIGNAL_FRAME, SIGNAL_FRAME);
    handler.reg[RSP] = (now->reg[RSP] - RED_ZONE - SIGNAL_FRAME) & ~15ull;
    if (s->form->pointers >> RBP & 1)
        handler.reg[RBP] = handler.reg[RSP] + 64;
    site = handler;
    machine_load(&m, &handler);
    for (unsigned i = 0; inside_detour(s, handler.rip); i++) {
        assert_true(i < STEPS_MAX);
        detour_step(s, &site, &handler);
    }
    // What the displaced instructions did to data is theirs; the interrupted stack is not.
    static struct memory after;
    memory_save(&after);
    memcpy(after.data, before.data, sizeof after.data);
    memcpy(after.scratch, before.scratch, sizeof after.scratch);
    size_t from = now->reg[RSP] - RED_ZONE - STACK;
    memcpy(after.stack + from, before.stack + from, STACK_SIZE - from);
    memory_load(&after);
    machine_load(&m, now);
    return run_hits(s, handler.rip);
}

// Without a stack nothing below the stack pointer is touched either.
static void untouched_compare(const struct subject *s, const struct memory *begin)
{
    static struct memory now;
    memory_save(&now);
    if (memcmp(now.stack, begin->stack, sizeof now.stack) != 0)
        fail_msg("%s: the action used the stack", s->form->name);
}

// A word on the stack that points into a detour would keep the detour from being taken away.
static void no_way_back_compare(const struct subject *s, const struct memory *memory)
{
    for (size_t i = 0; i + 8 <= STACK_SIZE; i += 8) {
        uint64_t word;
        memcpy(&word, memory->stack + i, 8);
        if (inside_detour(s, word))
            fail_msg("%s: the stack still points into the detour", s->form->name);
    }
}

static void detour_run(const struct subject *s, const struct state *begin, const struct trace *bare,
                       const struct state *bare_end, bool signals, struct state *end,
                       const struct memory *memory, uint64_t *hits)
{
    unsigned step = 0;
    *end = *begin;
    end->rip = detour_at;
    *hits = 0;
    machine_load(&m, end);
    for (unsigned i = 0; inside_detour(s, end->rip); i++) {
        assert_true(i < STEPS_MAX);
        boundary_compare(s, end, bare, bare_end, &step);
        fault_points += fault_compare(s, end, begin);
        if (s->in.no_stack && end->rip == detour_at + s->detour.displaced && !signals)
            untouched_compare(s, memory);
        if (signals)
            *hits += signal_run(s, end, begin);
        detour_step(s, begin, end);
    }
    *hits += run_hits(s, end->rip);
    // The last boundary may be the branch back, which is not in the bare run.
    if (s->detour.boundary_count && step < bare->count)
        fail_msg("%s: %u of %u instructions passed", s->form->name, step, bare->count);
}

// The stack pointer whose red zone is kept. A signal that arrives behind a pop may overwrite more
// than one before it, in the bare run too.
static tl_addr red_zone_top(const struct trace *bare, const struct state *bare_end, bool signals)
{
    tl_addr top = bare->at[0].reg[RSP];
    for (unsigned i = 0; signals && i < bare->count; i++)
        top = bare->at[i].reg[RSP] > top ? bare->at[i].reg[RSP] : top;
    return signals && bare_end->reg[RSP] > top ? bare_end->reg[RSP] : top;
}

static void hits_compare(const struct subject *s, enum way_in in, uint64_t hits)
{
    uint64_t counted = s->in.action & TL_ACTION_COUNT && in != IN_BARE_WIPED ? hits : 0;
    uint64_t called = s->in.action & TL_ACTION_CALL ? hits : 0, recorded = 0;
    for (unsigned i = 0; i < TL_SITE_RECORDS_MAX && s->in.record[i].kind; i++)
        recorded += hits;
    if (hits_read() != counted || calls != called || records != recorded)
        fail_msg("%s: %llu counted of %llu, %llu called of %llu, %llu recorded of %llu",
                 s->form->name, (unsigned long long)hits_read(), (unsigned long long)counted,
                 (unsigned long long)calls, (unsigned long long)called, (unsigned long long)records,
                 (unsigned long long)recorded);
}

static void form_run(struct subject *s, enum way_in in, bool signals)
{
    static struct memory begin, bare_memory, detour_memory;
    static struct trace trace;
    struct state state, bare_end, end;
    uint64_t hits;
    state_random(s->form, &state);
    memory_random(s);
    memory_save(&begin);
    way_in_prepare(in);
    bare_run(s, &state, &trace, &bare_end);
    memory_save(&bare_memory);
    memory_load(&begin);
    machine_write(&m, detour_at, s->detour.bytes, s->detour.size);
    detour_run(s, &state, &trace, &bare_end, signals, &end, &begin, &hits);
    memory_save(&detour_memory);
    states_compare(s, "end", &bare_end, &end, s->live_compared);
    if (bare_end.rip != end.rip)
        fail_msg("%s: goes to %#llx, not %#llx", s->form->name, (unsigned long long)end.rip,
                 (unsigned long long)bare_end.rip);
    memory_compare(s, &bare_memory, &detour_memory, red_zone_top(&trace, &bare_end, signals));
    if (!signals)
        no_way_back_compare(s, &detour_memory);
    hits_compare(s, in, hits);
    runs++;
}

// What a detour without stack, and one for a branch out of the function, may be refused for.
static bool refusal_right(const struct subject *s)
{
    const struct tl_insn *first = &s->insn[0];
    if (s->in.no_stack)
        return s->detour.refusal == TL_REFUSE_NO_STACK;
    return s->in.on_taken && s->detour.refusal == TL_REFUSE_PC_USE &&
           (first->reloc != TL_RELOC_COND || inside_window(s, first->target));
}

// Runs the form in every way; false: refused.
static bool form_try(const struct form *form, enum way_in in, bool signals)
{
    struct subject s;
    subject_decode(&s, form);
    subject_choose(&s, in);
    if (tl_arch_x86_64.emit_detour(&s.in, detour_at, &s.detour, NULL))
        fail_msg("%s: not emitted", form->name);
    if (s.detour.refusal) {
        refused++;
        return refusal_right(&s);
    }
    // Each push of the record frame may meet the end of the stack.
    for (unsigned i = 0; in == IN_RECORD && i < 3u + !!(s.in.dead & TL_REGSET_FLAGS); i++)
        assert_int_equal(s.detour.fault[i].sp_words, TL_CALL_SKIP / 8u + i);
    form_run(&s, in, signals);
    return true;
}

static void forms_run(tl_addr forms, tl_addr detour, bool signals, unsigned rounds)
{
    forms_at = forms;
    for (const struct form *form = forms_table; form->start; form++) {
        for (unsigned round = 0; round < rounds; round++) {
            for (enum way_in in = 0; in < IN_COUNT; in++) {
                if (signals && (in == IN_NONE || in == IN_TAKEN))
                    continue;
                detour_at = detour + machine_random(&m) % 64;
                bool done = form_try(form, in, signals);
                if (!done && detour != DETOUR_FAR)
                    fail_msg("%s: refused", form->name);
            }
        }
    }
}

static void displaced_equals_bare(void **state)
{
    (void)state;
    forms_run(FORMS, DETOUR_NEAR, false, ROUNDS);
    assert_true(fault_points > runs / 2);
    assert_true(branches_taken > 20 && branches_passed > 20);
}

static void displaced_equals_bare_below_2_gib(void **state)
{
    (void)state;
    forms_run(FORMS_LOW, DETOUR_LOW, false, 1);
}

static void displaced_equals_bare_out_of_reach(void **state)
{
    (void)state;
    unsigned before = refused;
    runs = 0;
    forms_run(FORMS, DETOUR_FAR, false, ROUNDS);
    assert_true(runs > 0 &&
                refused > before); // some forms have no far form without a dead register
}

static void signals_at_every_instruction(void **state)
{
    (void)state;
    forms_run(FORMS, DETOUR_NEAR, true, 1);
}

// ---- forms that are read back -----------------------------------------------------------------

static const uint8_t *copy_at(const struct tl_detour *detour, unsigned off, tl_addr at,
                              struct tl_insn *insn)
{
    const uint8_t *bytes = detour->bytes + detour->displaced + off;
    assert_int_equal(tl_arch_x86_64.decode(bytes, detour->size - detour->displaced - off,
                                           at + detour->displaced + off, insn),
                     0);
    return bytes;
}

// "op [0x...], x" with the address between the brackets taken out.
static void text_split(const struct tl_insn *insn, char around[300], char inside[256])
{
    char text[256];
    tl_arch_x86_64.print(insn, text, sizeof text);
    char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    if (!close)
        fail_msg("%s has no operand in brackets", text);
    *close = 0;
    snprintf(inside, 256, "%s", open + 1);
    *open = 0;
    snprintf(around, 300, "%s[]%s", text, close + 1);
}

static void copies_read_like_originals(void **state)
{
    (void)state;
    char around[2][300], inside[2][256], address[32];
    forms_at = FORMS;
    for (const struct form *form = forms_read; form->start; form++) {
        struct subject s;
        struct tl_insn copy, load;
        subject_decode(&s, form);
        s.in.action = TL_ACTION_NONE;
        text_split(&s.insn[0], around[0], inside[0]);
        assert_int_equal(s.insn[0].reloc, TL_RELOC_PCREL);
        assert_int_equal(tl_arch_x86_64.emit_detour(&s.in, DETOUR_NEAR, &s.detour, NULL), 0);
        assert_int_equal(s.detour.refusal, TL_REFUSE_NONE);
        copy_at(&s.detour, 0, DETOUR_NEAR, &copy);
        text_split(&copy, around[1], inside[1]);
        assert_string_equal(around[0], around[1]);
        assert_string_equal(inside[0], inside[1]);
        // Out of reach: refused without a dead register, else through one.
        assert_int_equal(tl_arch_x86_64.emit_detour(&s.in, DETOUR_FAR, &s.detour, NULL), 0);
        assert_int_equal(s.detour.refusal, TL_REFUSE_PC_USE);
        s.in.dead = 1u << 6 | 1u << 3; // rsi, rbx
        assert_int_equal(tl_arch_x86_64.emit_detour(&s.in, DETOUR_FAR, &s.detour, NULL), 0);
        assert_int_equal(s.detour.refusal, TL_REFUSE_NONE);
        copy_at(&s.detour, 0, DETOUR_FAR, &load);
        copy_at(&s.detour, load.size, DETOUR_FAR, &copy);
        text_split(&copy, around[1], inside[1]);
        assert_string_equal(around[0], around[1]);
        assert_string_equal(inside[1], "rsi");
        tl_arch_x86_64.print(&load, around[1], sizeof around[1]);
        snprintf(address, sizeof address, "mov rsi, 0x%llX", (unsigned long long)s.insn[0].target);
        assert_string_equal(around[1], address);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(displaced_equals_bare),
        cmocka_unit_test(displaced_equals_bare_below_2_gib),
        cmocka_unit_test(displaced_equals_bare_out_of_reach),
        cmocka_unit_test(signals_at_every_instruction),
        cmocka_unit_test(copies_read_like_originals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

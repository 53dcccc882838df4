// The SIGTRAP handler of the signal rungs: a breakpoint of ours is a hit, whose instruction is then
// done by hand or run in its slot.
//
// Freestanding, no library, general registers only. Runs on the thread's alternate stack if it has
// one, with all signals blocked but those that a program raises by itself (patch/trap.c asks for
// that), so what a probe of a signal handler needs nests. Makes no system call for a trap of ours.
// A trap of somebody else gets what it would have got: the program has no handler of its own, or
// ours would not be there. Invariants: an access to memory is made here only where the kernel has
// just written a signal frame to the same page, so it can't fault; whatever needs another runs in
// its slot. Nothing of the frame is overwritten that the kernel reads again.
#include "agent/trap.h"
#include "agent/inside.h"

#define ROW_STEPS_MAX 64 // halvings of any count

void tl_agent_trap(uint64_t sig, struct tl_signal_info *info, struct tl_signal_context *context);
// Calls a record's entry in the record frame, with the site's registers; sp is the record's S. What
// the record changes of them (a return address in a register) is changed there. (trap_entry.S)
void tl_agent_trap_record(uint64_t entry, uint64_t counter_off, uint64_t general[], uint64_t sp);
// The record that only counts (record_entry.S); its address is all that is wanted here.
extern const char tl_agent_record_hit[] __attribute__((visibility("hidden")));

// ---- whose
// ---------------------------------------------------------------------------------------

static const struct tl_trap_row *row_find(const struct tl_code_header *header, uint64_t addr)
{
    const struct tl_trap_row *row = (const struct tl_trap_row *)(uintptr_t)header->trap_addr;
    uint64_t low = 0, high = header->trap_count;
    for (int i = 0; i < ROW_STEPS_MAX && low < high; i++) {
        uint64_t middle = low + (high - low) / 2;
        if (row[middle].addr == addr)
            return &row[middle];
        if (row[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

// Newer installs come first: where one was taken away and another set, both have a row.
static const struct tl_trap_row *trap_find(uint64_t addr)
{
    const struct tl_code_header *header =
        (const struct tl_code_header *)(uintptr_t)tl_agent_code_addr;
    for (unsigned i = 0; i < TL_TRAP_INSTALLS_MAX && header->trap_next; i++) {
        header = (const struct tl_code_header *)(uintptr_t)header->trap_next;
        const struct tl_trap_row *row = row_find(header, addr);
        if (row)
            return row;
    }
    return NULL;
}

// ---- somebody else's
// -----------------------------------------------------------------------------

enum { MASK_BLOCK = 0, MASK_SIZE = 8 };

// What the program would have got is the default action, its end. The signal is queued again,
// blocked until the handler has returned, so that a core dump shows the registers of the trap.
static void trap_pass_on(const struct tl_signal_info *info, struct tl_signal_context *context)
{
    static const uint64_t mask = UINT64_C(1) << (TL_SIGNAL_TRAP - 1);
    static const uint64_t standard[4] = {0, 0, 0, 0}; // struct sigaction of the kernel: SIG_DFL
    (void)tl_agent_system_call(TL_CALL_SIGPROCMASK, MASK_BLOCK, (uintptr_t)&mask, 0, MASK_SIZE);
    (void)tl_agent_system_call(TL_CALL_SIGACTION, TL_SIGNAL_TRAP, (uintptr_t)standard, 0,
                               MASK_SIZE);
    uint64_t pid = (uint64_t)tl_agent_system_call(TL_CALL_GETPID, 0, 0, 0, 0);
    uint64_t tid = (uint64_t)tl_agent_system_call(TL_CALL_GETTID, 0, 0, 0, 0);
    (void)tl_agent_system_call(TL_CALL_TGSIGQUEUEINFO, pid, tid, TL_SIGNAL_TRAP, (uintptr_t)info);
    context->mask &= ~mask;
}

// ---- the handler --------------------------------------------------------------------------------

// What most records are, one count of ours, is made without a record frame where the ISA has a
// shorter way.
static void hit_record(const struct tl_trap_record *record, struct tl_simulate_state *state,
                       uint64_t sp)
{
    if (record->entry == (uintptr_t)tl_agent_record_hit && tl_agent_count(record->counter_off))
        return;
    tl_agent_trap_record(record->entry, record->counter_off, state->general,
                         sp - (uint64_t)(int64_t)record->sp_off);
}

// Called by the kernel, with the stack and flags that a handler gets.
__attribute__((used)) void tl_agent_trap(uint64_t sig, struct tl_signal_info *info,
                                         struct tl_signal_context *context)
{
    struct tl_simulate_state copy;
    bool breakpoint = sig == TL_SIGNAL_TRAP && tl_signal_breakpoint((uint32_t)info->code);
    const struct tl_trap_row *row =
        breakpoint ? trap_find(context->pc - TL_SIGNAL_BREAKPOINT_PC) : NULL;
    if (!row) {
        trap_pass_on(info, context);
        return;
    }
    struct tl_simulate_state *state = tl_context_load(context, &row->simulation, &copy);
    if (!row->on_taken || tl_agent_simulate_taken(&row->simulation, state)) {
        for (unsigned i = 0; i < row->record_count; i++)
            hit_record(&row->record[i], state, context->sp);
    }
    if (!row->simulated)
        tl_context_go(state, row->resume);
    else if (!tl_agent_simulate_usual(&row->simulation, state, context)) {
        struct tl_frame_view view = tl_frame_look(context);
        const struct tl_simulate_memory memory = {tl_frame_read, tl_frame_write, &view};
        if (!tl_agent_simulate(&row->simulation, state, &memory))
            tl_context_go(state, row->resume);
    }
    tl_context_store(state, context);
}

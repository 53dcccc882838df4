// The SIGTRAP handler of the signal rungs: a breakpoint of ours is a hit, whose instruction is then
// done by hand or run in its slot.
//
// Freestanding, no library, general registers only. Runs on the thread's alternate stack if it has
// one, with all signals blocked but those that a program raises by itself (patch/trap.c asks for
// that), so what a probe of a signal handler needs nests. Makes no system call for a trap of ours.
// A trap of somebody else gets what it would have got: the program has no handler of its own, or
// ours would not be there. Invariants: an access to memory is made here only where the kernel has
// just written a signal frame to the same page, so it can't fault; whatever needs another runs in
// its slot. Nothing is written below the frame's end.
#include "agent/trap.h"
#include "agent/inside.h"
#include "arch/x86_64/signal_frame.h"
#include "arch/x86_64/simulate.h"

#define ROW_STEPS_MAX 64 // halvings of any count

void tl_agent_trap(uint64_t sig, struct tl_signal_info *info, struct tl_signal_context *context);
// Calls a record's entry in the record frame, with the site's registers; sp is the record's S.
// (trap_entry.S)
void tl_agent_trap_record(uint64_t entry, uint64_t counter_off, const uint64_t general[16],
                          uint64_t sp);

// ---- whose
// ----------------------------------------------------------------------------------------

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
// ------------------------------------------------------------------------------

// System call numbers: Linux arch/x86/entry/syscalls/syscall_64.tbl.
enum {
    CALL_SIGACTION = 13,
    CALL_SIGPROCMASK = 14,
    CALL_GETPID = 39,
    CALL_GETTID = 186,
    CALL_TGSIGQUEUEINFO = 297,
    MASK_BLOCK = 0,
    MASK_SIZE = 8
};

static int64_t system_call(uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    int64_t result = (int64_t)number;
    register uint64_t r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

// What the program would have got is the default action, its end. The signal is queued again,
// blocked until the handler has returned, so that a core dump shows the registers of the trap.
static void trap_pass_on(const struct tl_signal_info *info, struct tl_signal_context *context)
{
    static const uint64_t mask = UINT64_C(1) << (TL_SIGNAL_TRAP - 1);
    static const uint64_t standard[4] = {0, 0, 0, 0}; // struct sigaction of the kernel: SIG_DFL
    (void)system_call(CALL_SIGPROCMASK, MASK_BLOCK, (uintptr_t)&mask, 0, MASK_SIZE);
    (void)system_call(CALL_SIGACTION, TL_SIGNAL_TRAP, (uintptr_t)standard, 0, MASK_SIZE);
    uint64_t pid = (uint64_t)system_call(CALL_GETPID, 0, 0, 0, 0);
    uint64_t tid = (uint64_t)system_call(CALL_GETTID, 0, 0, 0, 0);
    (void)system_call(CALL_TGSIGQUEUEINFO, pid, tid, TL_SIGNAL_TRAP, (uintptr_t)info);
    context->mask &= ~mask;
}

// ---- the simulators' memory
// -----------------------------------------------------------------------

// The part of the signal frame that lies highest: what FXSAVE stores, and how much lies behind it
// (Linux arch/x86/include/uapi/asm/sigcontext.h, struct _fpx_sw_bytes). The kernel writes its last
// word.
#define FXSAVE_SIZE 512u
#define FXSAVE_SOFTWARE 464u
#define FXSAVE_MAGIC 0x46505853u

struct frame_view {
    uint64_t end;  // of all that the kernel wrote
    uint64_t page; // that it has written to, and that may go on behind the end
};

static struct frame_view frame_look(const struct tl_signal_context *context)
{
    uint64_t state = context->rest[TL_CONTEXT_FPSTATE];
    struct frame_view view;
    if (state == 0) { // no such thing: then only the frame itself
        view.end = (uintptr_t)context + sizeof *context + sizeof(struct tl_signal_info);
    } else {
        const uint32_t *software = (const uint32_t *)(uintptr_t)(state + FXSAVE_SOFTWARE);
        view.end = state + (software[0] == FXSAVE_MAGIC ? software[1] : FXSAVE_SIZE);
    }
    view.page = tl_page_down(view.end - 1);
    return view;
}

static bool is_proved(void *opaque, uint64_t addr, size_t size)
{
    const struct frame_view *view = opaque;
    return addr >= view->end && tl_page_down(addr) == view->page &&
           tl_page_down(addr + size - 1) == view->page;
}

static bool word_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    if (size != sizeof(uint64_t) || !is_proved(opaque, addr, size))
        return false;
    *(uint64_t *)buf = *(const volatile uint64_t *)(uintptr_t)addr;
    return true;
}

static bool word_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    if (size != sizeof(uint64_t) || !is_proved(opaque, addr, size))
        return false;
    *(volatile uint64_t *)(uintptr_t)addr = *(const uint64_t *)buf;
    return true;
}

// ---- the handler
// ----------------------------------------------------------------------------------

// The kernel's order: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp (struct sigcontext_64).
static const uint8_t number_of[16] = {8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4};

static void state_load(const struct tl_signal_context *context, struct tl_simulate_state *state)
{
    for (unsigned i = 0; i < 15; i++)
        state->general[number_of[i]] = context->general[i];
    state->general[4] = context->sp;
    state->pc = context->pc;
    state->flags = context->rest[TL_CONTEXT_FLAGS];
}

// No simulator changes flags.
static void state_store(const struct tl_simulate_state *state, struct tl_signal_context *context)
{
    for (unsigned i = 0; i < 15; i++)
        context->general[i] = state->general[number_of[i]];
    context->sp = state->general[4];
    context->pc = state->pc;
}

// Called by the kernel, with the stack and flags that a handler gets.
__attribute__((used)) void tl_agent_trap(uint64_t sig, struct tl_signal_info *info,
                                         struct tl_signal_context *context)
{
    struct tl_simulate_state state;
    // A breakpoint's signal has this code, also where the kernel looked for a uprobe first (Linux
    // arch/x86/kernel/traps.c, do_int3_user; kernel/events/uprobes.c, handle_swbp).
    const struct tl_trap_row *row = sig == TL_SIGNAL_TRAP && info->code == TL_SIGNAL_CODE_KERNEL
                                        ? trap_find(context->pc - 1)
                                        : NULL;
    if (!row) {
        trap_pass_on(info, context);
        return;
    }
    state_load(context, &state);
    if (!row->on_taken || tl_x86_64_simulate_taken(&row->simulation, &state)) {
        for (unsigned i = 0; i < row->record_count; i++)
            tl_agent_trap_record(row->record[i].entry, row->record[i].counter_off, state.general,
                                 state.general[4] - (uint64_t)(int64_t)row->record[i].sp_off);
    }
    struct frame_view view = frame_look(context);
    const struct tl_simulate_memory memory = {word_read, word_write, &view};
    if (row->simulated && tl_x86_64_simulate(&row->simulation, &state, &memory))
        state_store(&state, context);
    else
        context->pc = row->resume;
}

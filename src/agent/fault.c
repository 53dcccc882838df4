// The agent at the entry and at the returns of the target's own fault handlers: a fault of a
// displaced instruction is shown at that instruction's own address, and a handler that goes back
// into a window goes on in its copy.
//
// Freestanding, no library, general registers only. Reads the fault rows and writes the signal
// frame that lies at the stack pointer, and nothing else. A handler may be called by the program
// itself, with anything in its arguments, so nothing is read through them before they are proved
// to be what the kernel gives a handler. Works in a forked child, where the control page is empty.
#include "agent/layout.h"
#include "agent/trap.h"
#include "arch/agent_isa.h"

#define ROW_STEPS_MAX 64 // halvings of any count

// In the image's head; the controller wrote it before any site led here.
extern const uint64_t tl_agent_code_addr __attribute__((visibility("hidden")));

// link: the site's link register, where the ISA has one.
void tl_agent_fault(uint64_t sig, struct tl_signal_info *info, struct tl_signal_context *context,
                    struct tl_signal_frame *frame, uint64_t link);
void tl_agent_leave(uint64_t a, uint64_t b, uint64_t c, struct tl_signal_frame *frame,
                    uint64_t link);

static const struct tl_code_header *code_header(void)
{
    return (const struct tl_code_header *)(uintptr_t)tl_agent_code_addr;
}

// The kernel made this frame: a handler that the program calls returns elsewhere.
static bool frame_is_kernels(const struct tl_signal_frame *frame, uint64_t link)
{
    const uint64_t restorer = tl_frame_restorer(frame, link);
    bool found = false;
    for (size_t i = 0; i < TL_RESTORERS_MAX; i++)
        found |= restorer == code_header()->restorer[i];
    return found && restorer != 0;
}

// The row whose key is addr: its pc, or with by_site its site. The rows were complete before any
// site led to a detour, and never change.
static const struct tl_fault_row *row_find(uint64_t rows_addr, uint64_t count, bool by_site,
                                           uint64_t addr)
{
    const struct tl_fault_row *row = (const struct tl_fault_row *)(uintptr_t)rows_addr;
    uint64_t low = 0, high = count;
    for (int i = 0; i < ROW_STEPS_MAX && low < high; i++) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t key = by_site ? row[middle].site : row[middle].pc;
        if (key == addr)
            return &row[middle];
        if (key < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

// Slots of breakpoints are other installs'.
static const struct tl_fault_row *fault_find(uint64_t pc)
{
    const struct tl_code_header *header = code_header();
    for (unsigned i = 0; i < TL_TRAP_INSTALLS_MAX; i++) {
        const struct tl_fault_row *row =
            row_find(header->fault_addr, header->fault_count, false, pc);
        if (row || header->trap_next == 0)
            return row;
        header = (const struct tl_code_header *)(uintptr_t)header->trap_next;
    }
    return NULL;
}

// At a handler's entry. frame is where the stack pointer points to.
__attribute__((used)) void tl_agent_fault(uint64_t sig, struct tl_signal_info *info,
                                          struct tl_signal_context *context,
                                          struct tl_signal_frame *frame, uint64_t link)
{
    if (sig != TL_SIGNAL_ILL && sig != TL_SIGNAL_BUS && sig != TL_SIGNAL_FPE &&
        sig != TL_SIGNAL_SEGV)
        return;
    if (!tl_frame_passed(frame, info, context) || !frame_is_kernels(frame, link))
        return;
    bool informed = tl_frame_informed(frame, info, sig);
    info = &frame->info;
    context = &frame->context;
    if (informed && info->code <= 0) // sent by somebody (SI_USER, SI_TKILL ...): no fault
        return;
    const struct tl_fault_row *row = fault_find(context->pc);
    if (!row)
        return;
    // These two give the instruction's address; the others that of the data.
    if (informed && (sig == TL_SIGNAL_ILL || sig == TL_SIGNAL_FPE) && info->addr == context->pc)
        info->addr = row->site;
    context->sp += row->sp_bytes;
    context->pc = row->site;
}

// At each of a handler's returns, where the registers hold anything. Leaving for an instruction
// inside a window: its bytes are a branch's now, its copy goes on.
__attribute__((used)) void tl_agent_leave(uint64_t a, uint64_t b, uint64_t c,
                                          struct tl_signal_frame *frame, uint64_t link)
{
    (void)a, (void)b, (void)c;
    if (!frame_is_kernels(frame, link))
        return;
    const struct tl_fault_row *way =
        row_find(code_header()->resume_addr, code_header()->resume_count, true, frame->context.pc);
    if (way)
        frame->context.pc = way->pc;
}

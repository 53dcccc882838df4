// The target's own fault handlers: who they are, and what the agent tells them.
//
// A handler's entry gets a probe (the session plans it) whose agent looks the faulting pc up in the
// rows made here. Does not see a handler that takes another's place for the same signal.
#include "arch/arch.h"
#include "attach/isa.h"
#include "patch/action.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const int fault_signal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
_Static_assert(TL_ARRAY_COUNT(fault_signal) == TL_FAULT_HANDLERS_MAX, "one handler a signal");
_Static_assert(TL_ARRAY_COUNT(fault_signal) == TL_RESTORERS_MAX, "one restorer a signal");

static uint64_t signal_bit(int sig)
{
    return UINT64_C(1) << (sig - 1);
}

uint64_t tl_faults_caught(pid_t pid)
{
    struct tl_proc_status status;
    uint64_t mask = 0;
    if (tl_proc_status_read(pid, &status, NULL) != 0)
        return 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(fault_signal); i++)
        mask |= signal_bit(fault_signal[i]);
    return status.sig_caught & mask;
}

int tl_faults_ask(struct tl_install *install, struct tl_diag *diag)
{
    tl_addr scratch = install->header.control_addr + TL_SCRATCH_OFF;
    int error = 0;
    install->caught = tl_faults_caught(tl_target_pid(install->target));
    install->handler_count = 0;
    for (size_t i = 0; !error && i < TL_ARRAY_COUNT(fault_signal); i++) {
        struct tl_signal_action action = {0};
        if (install->caught & signal_bit(fault_signal[i]))
            error = tl_action_get(install->target, scratch, fault_signal[i], &action, diag);
        install->header.restorer[i] = action.flags & TL_RESTORER_FLAG
                                          ? action.restorer
                                          : tl_target_sigreturn(install->target);
        for (size_t k = 0; k < install->handler_count; k++) {
            if (install->handler[k] == action.handler)
                action.handler = 0;
        }
        if (!error && action.handler >= TL_HANDLER_MIN)
            install->handler[install->handler_count++] = action.handler;
    }
    return error;
}

size_t tl_install_fault_handlers(const struct tl_install *install,
                                 tl_addr out[TL_FAULT_HANDLERS_MAX])
{
    memcpy(out, install->handler, sizeof install->handler);
    return install->handler_count;
}

bool tl_install_faults_changed(struct tl_install *install)
{
    if (!install->committed || install->detached)
        return false;
    uint64_t caught = tl_faults_caught(tl_target_pid(install->target));
    bool more = caught & ~install->caught;
    install->caught = caught;
    return more;
}

// ---- the rows -----------------------------------------------------------------------------------

static int row_compare(const void *a, const void *b)
{
    const struct tl_fault_row *left = a, *right = b;
    return (left->pc > right->pc) - (left->pc < right->pc);
}

static int resume_compare(const void *a, const void *b)
{
    const struct tl_fault_row *left = a, *right = b;
    return (left->site > right->site) - (left->site < right->site);
}

// Rows of one detour: its fault points, which stand for the first instruction, then the starts of
// its other instructions. The latter are ways back too: in the text their bytes are a branch's.
static void detour_rows(const struct tl_plan_detour *from, struct tl_fault_row *row, size_t *rows,
                        struct tl_fault_row *resume, size_t *resumes)
{
    const struct tl_detour *detour = from->detour;
    for (size_t k = 0; k < detour->fault_count; k++)
        row[(*rows)++] = (struct tl_fault_row){.pc = from->addr + detour->fault[k].off,
                                               .site = from->site,
                                               .sp_bytes = UINT64_C(8) * detour->fault[k].sp_words};
    // Not the branch back: where it leads the text is as it was, and may fault by itself.
    for (size_t k = 1; k < detour->boundary_count && k < detour->insn_count; k++) {
        struct tl_fault_row inner = {.pc = from->addr + detour->boundary[k].off,
                                     .site = from->site + detour->boundary[k].insn_off};
        row[(*rows)++] = inner;
        resume[(*resumes)++] = inner;
    }
    for (size_t k = 0; k < detour->fault_out_count; k++)
        row[(*rows)++] =
            (struct tl_fault_row){.pc = from->addr + detour->fault_out[k].off,
                                  .site = detour->fault_out[k].to,
                                  .sp_bytes = UINT64_C(8) * detour->fault_out[k].sp_words};
}

// The instruction that a branch of several instructions at addr stands for, or for that which leads there: an island
// belongs to the patch that jumps to it.
static tl_addr branch_site(const struct tl_arch *arch, const struct tl_plan *plan, tl_addr addr)
{
    tl_addr site = 0;
    for (size_t k = 0; k < plan->patch_count; k++) {
        const struct tl_patch *patch = &plan->patch[k];
        struct tl_insn insn;
        if (arch->decode(patch->after, patch->size, patch->addr, &insn) == 0 &&
            insn.flow == TL_FLOW_JUMP && insn.target == addr)
            return patch->addr;
        if (patch->addr == addr)
            site = addr;
    }
    return site;
}

// The state is that before the instruction.
size_t tl_faults_branch_rows(const struct tl_arch *arch, const struct tl_plan *plan,
                             const struct tl_patch *patch, struct tl_fault_row *row)
{
    tl_addr begun = patch->addr;
    size_t count = 0;
    int64_t sp = 0;
    for (size_t at = 0; at < patch->size;) {
        struct tl_insn insn;
        struct tl_stack_step step;
        if (arch->decode(patch->after + at, patch->size - at, patch->addr + at, &insn) != 0)
            break;
        tl_addr site = sp < 0 && insn.flags & TL_INSN_MAY_FAULT ? branch_site(arch, plan, begun) : 0;
        if (site && row)
            row[count] = (struct tl_fault_row){
                .pc = insn.addr, .site = site, .sp_bytes = (uint64_t)-sp};
        count += site != 0;
        arch->stack(&insn, &step);
        bool on = insn.flow == TL_FLOW_NEXT && step.sp_from == arch->sp_reg;
        at += insn.size;
        sp = on ? sp + step.sp_plus : 0;
        begun = on ? begun : patch->addr + at;
    }
    return count;
}

// Branches of one instruction store nothing.
static size_t patches_rows(const struct tl_commit_input *input, struct tl_fault_row *row)
{
    const struct tl_arch *arch = tl_arch_find(tl_machine);
    size_t count = 0;
    for (size_t i = 0; tl_branch_size && i < input->plan_count; i++) {
        for (size_t k = 0; k < input->plan[i]->patch_count; k++)
            count += tl_faults_branch_rows(arch, input->plan[i], &input->plan[i]->patch[k],
                                           row ? row + count : NULL);
    }
    return count;
}

int tl_faults_rows(struct tl_install *install, const struct tl_commit_input *input,
                   const struct tl_install *beside)
{
    size_t rows = beside ? beside->row_count : 0, resumes = beside ? beside->resume_count : 0;
    size_t row_max = rows, resume_max = resumes;
    for (size_t i = 0; i < input->detour_count; i++) {
        const struct tl_detour *detour = input->detour[i].detour;
        row_max += (size_t)detour->fault_count + detour->boundary_count + detour->fault_out_count;
        resume_max += detour->boundary_count;
    }
    row_max += patches_rows(input, NULL);
    if (row_max > TL_FAULT_ROWS_MAX)
        return TL_E_NOMEM;
    struct tl_fault_row *row = calloc(row_max + 1, sizeof *row);
    struct tl_fault_row *resume = calloc(resume_max + 1, sizeof *resume);
    if (!row || !resume) {
        free(row);
        free(resume);
        return TL_E_NOMEM;
    }
    if (rows)
        memcpy(row, beside->row, rows * sizeof *row);
    if (resumes)
        memcpy(resume, beside->resume, resumes * sizeof *resume);
    for (size_t i = 0; i < input->detour_count; i++)
        detour_rows(&input->detour[i], row, &rows, resume, &resumes);
    rows += patches_rows(input, row + rows);
    qsort(row, rows, sizeof *row, row_compare);
    qsort(resume, resumes, sizeof *resume, resume_compare);
    free(install->row);
    free(install->resume);
    install->row = row;
    install->row_count = rows;
    install->resume = resume;
    install->resume_count = resumes;
    return 0;
}

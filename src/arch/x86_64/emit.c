// Writes detours: save what is live, find the thread's block, count, restore, run the displaced
// instructions, branch back.
//
// Does not choose the place, nor prove registers dead. Invariants: the count is one instruction
// that adds to memory, so a signal may land anywhere; no system call; below the stack pointer at
// most the red zone, three saved registers and the slow path's argument, or the record frame, are
// used (with no_stack, nothing); vector registers are not touched; every register and flag that is
// not proved dead has its value again before the first displaced instruction.
//
//   record frame: skip the red zone; push rax, rcx, rdx, flags; each record's call; undo
//   skip the red zone, push            only if a register is spilled
//   lahf; seto %al                     only if flags are live
//   mov %fs:0,A; imul $TL_HASH,A,B; shr $56,B; shl $4,B; add table(%rip),B
//   cmp A,(B); jne slow; mov 8(B),B; test B,B; je slow; incq counter(B)
//   done: restore flags, registers, stack
//   skip the red zone; call agent; undo   only at the entry of a fault handler
//   displaced instructions; jmp resume
//   slow: push $counter; call agent; drop it; jmp done
//   literals
#include "emit/emit.h"
#include "agent/layout.h"
#include "arch/x86_64/relocate.h"
#include "arch/x86_64/x86_64.h"

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, REG_COUNT = 16, NO_REG = 0xff };

#define SPILLS_MAX 3

// Which registers the action works with.
struct frame {
    uint8_t a, b;              // scratch; a is NO_REG where one is enough
    uint8_t spill[SPILLS_MAX]; // pushed in this order
    uint8_t spill_count;
    bool flags; // flags are live: kept in rax
};

static bool frame_has(const struct frame *f, uint8_t reg)
{
    return f->a == reg || f->b == reg || (f->flags && reg == RAX);
}

// Takes a dead register if there is one left, else one to spill. Registers without a REX bit first:
// their code is shorter.
static uint8_t register_take(struct frame *f, tl_regset dead)
{
    static const uint8_t order[] = {RAX, RCX, RDX, RSI, RDI, RBX, 8, 9,
                                    10,  11,  RBP, 14,  15,  12,  13};
    for (size_t i = 0; i < sizeof order; i++) {
        if (dead >> order[i] & 1 && !frame_has(f, order[i]))
            return order[i];
    }
    uint8_t i = 0;
    while (frame_has(f, order[i]))
        i++;
    f->spill[f->spill_count++] = order[i];
    return order[i];
}

static struct frame frame_choose(const struct tl_emit_in *in)
{
    struct frame f = {.a = NO_REG, .b = NO_REG, .flags = !(in->dead & TL_REGSET_FLAGS)};
    tl_regset dead = in->dead & TL_REGSET_GENERAL & ~((tl_regset)1 << RSP);
    if (f.flags && !(dead >> RAX & 1))
        f.spill[f.spill_count++] = RAX;
    f.b = register_take(&f, dead);
    if (in->thread_pointer != TL_TP_SHARED)
        f.a = register_take(&f, dead);
    return f;
}

// ---- instructions with registers --------------------------------------------------------------

static void reg_push(struct tl_writer *w, uint8_t reg)
{
    if (reg >= 8)
        tl_writer_put8(w, 0x41);
    tl_writer_put8(w, 0x50u | (reg & 7u));
}

static void reg_pop(struct tl_writer *w, uint8_t reg)
{
    if (reg >= 8)
        tl_writer_put8(w, 0x41);
    tl_writer_put8(w, 0x58u | (reg & 7u));
}

static void rex_put(struct tl_writer *w, uint8_t reg, uint8_t base)
{
    tl_writer_put8(w, 0x48u | (reg >= 8 ? 4u : 0u) | (base >= 8 ? 1u : 0u));
}

// REX.W opcode reg, disp(base)
static void mem_put(struct tl_writer *w, unsigned opcode, uint8_t reg, uint8_t base, int32_t disp)
{
    unsigned rm = base & 7u, mod = 2;
    if (disp == 0 && rm != RBP)
        mod = 0;
    else if (disp >= INT8_MIN && disp <= INT8_MAX)
        mod = 1;
    rex_put(w, reg, base);
    tl_writer_put8(w, opcode);
    tl_writer_put8(w, mod << 6 | (reg & 7u) << 3 | rm);
    if (rm == RSP)
        tl_writer_put8(w, 0x24);
    if (mod == 1)
        tl_writer_put8(w, (uint8_t)disp);
    else if (mod == 2)
        tl_writer_put32(w, (uint32_t)disp);
}

// REX.W opcode reg, literal(%rip)
static void literal_put(struct tl_writer *w, unsigned opcode, uint8_t reg, uint64_t value)
{
    rex_put(w, reg, 0);
    tl_writer_put8(w, opcode);
    tl_writer_put8(w, (reg & 7u) << 3 | 5u);
    tl_writer_put_literal_ref(w, value);
}

// A short or long branch with an open end; returns where the end is written.
static uint16_t branch_open(struct tl_writer *w, unsigned short_opcode, bool wide)
{
    if (!wide) {
        tl_writer_put8(w, short_opcode);
        tl_writer_put8(w, 0);
        return (uint16_t)(w->size - 1);
    }
    if (short_opcode == 0xeb) {
        tl_writer_put8(w, 0xe9);
    } else {
        tl_writer_put8(w, 0x0f);
        tl_writer_put8(w, short_opcode + 0x10);
    }
    tl_writer_put32(w, 0);
    return (uint16_t)(w->size - 4);
}

static void branch_close(struct tl_writer *w, uint16_t position, uint16_t to, bool wide)
{
    if (wide)
        tl_writer_fix32(w, position, to);
    else
        tl_writer_fix8(w, position, to);
}

// ---- the action -------------------------------------------------------------------------------

// The red zone: System V ABI AMD64, "The Stack Frame". add and sub are shorter than lea, but change
// flags.
static void red_zone_skip(struct tl_writer *w, bool flags_free)
{
    if (flags_free)
        TL_PUT(w, 0x48, 0x83, 0xc4, 0x80); // add $-128,%rsp
    else
        TL_PUT(w, 0x48, 0x8d, 0x64, 0x24, 0x80); // lea -128(%rsp),%rsp
}

static void frame_save(struct tl_writer *w, const struct frame *f, struct tl_detour *out)
{
    if (f->spill_count)
        red_zone_skip(w, !f->flags);
    for (uint8_t i = 0; i < f->spill_count; i++) {
        tl_fault_point_add(out, w, TL_CALL_SKIP / 8u + i);
        reg_push(w, f->spill[i]);
    }
    if (f->flags)
        TL_PUT(w, 0x9f, 0x0f, 0x90, 0xc0); // lahf; seto %al
}

static void frame_restore(struct tl_writer *w, const struct frame *f)
{
    if (f->flags)
        TL_PUT(w, 0x04, 0x7f, 0x9e); // add $127,%al (sets OF again); sahf
    for (uint8_t i = f->spill_count; i-- > 0;)
        reg_pop(w, f->spill[i]);
    if (!f->spill_count)
        return;
    if (f->flags)
        TL_PUT(w, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0); // lea 128(%rsp),%rsp
    else
        TL_PUT(w, 0x48, 0x83, 0xec, 0x80); // sub $-128,%rsp
}

// Branches to the slow path, to be closed when it is written.
struct slow {
    uint16_t position[3];
    uint8_t count;
    uint16_t done; // where it goes back to
};

// A thread's own block: only its own thread writes it, so the add needs no lock.
static void thread_count(struct tl_writer *w, const struct tl_emit_in *in, const struct frame *f,
                         struct slow *slow, bool wide)
{
    uint8_t a = f->a, b = f->b;
    if (in->thread_pointer == TL_TP_FSBASE) {
        TL_PUT(w, 0xf3, (uint8_t)(a >= 8 ? 0x49 : 0x48), 0x0f, 0xae, (uint8_t)(0xc0 | (a & 7)));
    } else {
        tl_writer_put8(w, 0x64); // mov %fs:0,A
        rex_put(w, a, 0);
        TL_PUT(w, 0x8b, (uint8_t)(4 | (a & 7) << 3), 0x25, 0, 0, 0, 0);
    }
    if (in->thread_pointer == TL_TP_FSBASE) { // 0 is an unclaimed slot's, and nobody's own
        rex_put(w, a, a);
        TL_PUT(w, 0x85, (uint8_t)(0xc0 | (a & 7) << 3 | (a & 7))); // test A,A
        slow->position[slow->count++] = branch_open(w, 0x74, wide);
    }
    rex_put(w, b, a); // imul $TL_HASH,A,B
    TL_PUT(w, 0x69, (uint8_t)(0xc0 | (b & 7) << 3 | (a & 7)));
    tl_writer_put32(w, TL_HASH);
    rex_put(w, 0, b); // shr $56,B: the slot's index
    TL_PUT(w, 0xc1, (uint8_t)(0xe8 | (b & 7)), 56);
    if (b >= 8)
        tl_writer_put8(w, 0x41); // shl $4,B: its offset (TL_THREAD_SLOT_SIZE is 16)
    TL_PUT(w, 0xc1, (uint8_t)(0xe0 | (b & 7)), 4);
    literal_put(w, 0x03, b, in->table_addr);
    mem_put(w, 0x39, a, b, offsetof(struct tl_thread_slot, tp));
    slow->position[slow->count++] = branch_open(w, 0x75, wide);
    mem_put(w, 0x8b, b, b, offsetof(struct tl_thread_slot, block));
    rex_put(w, b, b); // test B,B: a signal handler that forked since the compare has wiped the slot
    TL_PUT(w, 0x85, (uint8_t)(0xc0 | (b & 7) << 3 | (b & 7)));
    slow->position[slow->count++] = branch_open(w, 0x74, wide);
    mem_put(w, 0xff, 0, b, (int32_t)in->counter_off); // incq
}

// One block for all threads: the add is locked. In a forked child the block's address is not there
// (TL_SHARED_BLOCK_MIN) until the child is followed, which the slow path may do; without a stack it
// is passed over.
static void shared_count(struct tl_writer *w, const struct tl_emit_in *in, const struct frame *f,
                         struct slow *slow, bool wide)
{
    uint8_t b = f->b;
    literal_put(w, 0x8b, b, in->control_addr);
    mem_put(w, 0x8b, b, b, offsetof(struct tl_control, shared_block));
    rex_put(w, 0, b); // cmp $TL_SHARED_BLOCK_MIN,B
    TL_PUT(w, 0x83, (uint8_t)(0xf8 | (b & 7)), TL_SHARED_BLOCK_MIN);
    uint16_t none = branch_open(w, 0x72, wide && !in->no_stack);
    tl_writer_put8(w, 0xf0);
    mem_put(w, 0xff, 0, b, (int32_t)in->counter_off);
    if (in->no_stack)
        branch_close(w, none, w->size, false);
    else
        slow->position[slow->count++] = none;
}

static void call_put(struct tl_writer *w, tl_addr to)
{
    int32_t disp;
    if (tl_disp32(tl_writer_here(w) + 5, to, &disp)) {
        tl_writer_put8(w, 0xe8);
        tl_writer_put32(w, (uint32_t)disp);
    } else {
        TL_PUT(w, 0xff, 0x15); // call *literal(%rip)
        tl_writer_put_literal_ref(w, to);
    }
}

// The agent counts, keeps every register, and leaves its argument to be dropped. Flags are saved or
// dead.
static void slow_path(struct tl_writer *w, const struct tl_emit_in *in, const struct frame *f,
                      const struct slow *slow, bool wide)
{
    for (uint8_t i = 0; i < slow->count; i++)
        branch_close(w, slow->position[i], w->size, wide);
    bool skip = !f->spill_count;
    if (skip)
        red_zone_skip(w, true);
    if (in->counter_off <= INT8_MAX) {
        TL_PUT(w, 0x6a, (uint8_t)in->counter_off);
    } else {
        tl_writer_put8(w, 0x68);
        tl_writer_put32(w, in->counter_off);
    }
    call_put(w, in->slow_addr);
    reg_push(w, f->b); // over the agent's return address: see return_forget; B is free by now
    reg_pop(w, f->b);
    reg_pop(w, f->b);
    if (skip)
        TL_PUT(w, 0x48, 0x83, 0xec, 0x80); // sub $-128,%rsp
    branch_close(w, branch_open(w, 0xeb, wide), slow->done, wide);
}

// Writes zero where the agent's return address was: a word on a stack that points into a detour
// would keep the detour from being taken away, and means nothing. The caller drops it.
static void return_forget(struct tl_writer *w)
{
    TL_PUT(w, 0x6a, 0); // push $0
}

// The agent keeps every register and flag.
static void agent_call(struct tl_writer *w, tl_addr to)
{
    red_zone_skip(w, false);
    call_put(w, to);
    return_forget(w);
    TL_PUT(w, 0x48, 0x8d, 0xa4, 0x24, 0x88, 0, 0, 0); // lea 136(%rsp),%rsp
}

// ---- records ----------------------------------------------------------------------------------

static bool records_known(const struct tl_emit_in *in)
{
    if (!(in->action & TL_ACTION_RECORD))
        return true;
    for (size_t i = 0; i < TL_SITE_RECORDS_MAX && in->record[i].kind; i++) {
        const struct tl_record *record = &in->record[i];
        if (record->kind >= TL_RECORD_KIND_COUNT || !in->record_addr[record->kind] ||
            record->counter_off > INT32_MAX)
            return false;
    }
    return in->record[0].kind != TL_RECORD_NONE;
}

static void record_push(struct tl_writer *w, struct tl_detour *out, uint8_t reg, unsigned *words)
{
    tl_fault_point_add(out, w, (*words)++);
    reg_push(w, reg);
}

// The record frame (see TL_RECORD_FRAME): all its records are called in one.
static void records_call(struct tl_writer *w, const struct tl_emit_in *in, struct tl_detour *out)
{
    bool flags = !(in->dead & TL_REGSET_FLAGS);
    unsigned words = TL_CALL_SKIP / 8u;
    red_zone_skip(w, !flags);
    record_push(w, out, RAX, &words);
    record_push(w, out, RCX, &words);
    record_push(w, out, RDX, &words);
    if (flags) {
        TL_PUT(w, 0x9f, 0x0f, 0x90, 0xc0); // lahf; seto %al
        reg_push(w, RAX);
    } else {
        record_push(w, out, RAX, &words);
    }
    for (size_t i = 0; i < TL_SITE_RECORDS_MAX && in->record[i].kind; i++) {
        tl_writer_put8(w, 0xb9); // mov $counter_off,%ecx
        tl_writer_put32(w, in->record[i].counter_off);
        TL_PUT(w, 0x48, 0x8d, 0x94, 0x24); // lea S(%rsp),%rdx
        tl_writer_put32(w, (uint32_t)(TL_RECORD_FRAME - 8 - in->record[i].sp_off));
        call_put(w, in->record_addr[in->record[i].kind]);
    }
    return_forget(w);
    reg_pop(w, RAX);
    reg_pop(w, RAX);
    if (flags)
        TL_PUT(w, 0x04, 0x7f, 0x9e); // add $127,%al (sets OF again); sahf
    reg_pop(w, RDX);
    reg_pop(w, RCX);
    reg_pop(w, RAX);
    if (flags)
        TL_PUT(w, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0); // lea 128(%rsp),%rsp
    else
        TL_PUT(w, 0x48, 0x83, 0xec, 0x80); // sub $-128,%rsp
}

// ---- the detour -------------------------------------------------------------------------------

static uint8_t action_write(const struct tl_emit_in *in, struct tl_writer *w, struct tl_detour *out,
                            struct frame *f, struct slow *slow, bool wide)
{
    if (in->no_stack && (in->action | TL_ACTION_COUNT) != TL_ACTION_COUNT)
        return TL_REFUSE_NO_STACK;
    // Before the count, which leaves anything in dead registers: they may be arguments.
    if (in->action & TL_ACTION_RECORD)
        records_call(w, in, out);
    if (in->action & TL_ACTION_COUNT) {
        *f = frame_choose(in);
        // A thread's own block may have to be claimed, with a call.
        if (in->no_stack && (f->spill_count || in->thread_pointer != TL_TP_SHARED))
            return TL_REFUSE_NO_STACK;
        frame_save(w, f, out);
        if (in->thread_pointer == TL_TP_SHARED)
            shared_count(w, in, f, slow, wide);
        else
            thread_count(w, in, f, slow, wide);
        slow->done = w->size;
        frame_restore(w, f);
    }
    if (in->action & TL_ACTION_CALL)
        agent_call(w, in->call_addr);
    if (in->action & TL_ACTION_LEAVE)
        agent_call(w, in->leave_addr);
    return TL_REFUSE_NONE;
}

static uint8_t detour_write(const struct tl_emit_in *in, struct tl_writer *w, struct tl_detour *out,
                            bool wide)
{
    struct frame f = {.spill_count = 0};
    struct slow slow = {.count = 0};
    uint16_t taken = 0;
    uint8_t refusal = TL_REFUSE_NONE;
    tl_detour_begin(out);
    if (!in->on_taken)
        refusal = action_write(in, w, out, &f, &slow, wide);
    if (!refusal)
        refusal = in->call_retarget ? tl_relocate_retargeted(in, w, out)
                                    : tl_relocate_displaced(in, w, out, &taken);
    if (!refusal && in->on_taken) {
        tl_writer_fix32(w, taken, w->size);
        refusal = action_write(in, w, out, &f, &slow, wide);
        tl_writer_put_jump(w, in->insn[0].target);
    }
    if (refusal)
        return refusal;
    if (slow.count)
        slow_path(w, in, &f, &slow, wide);
    tl_writer_put_literals(w);
    return TL_REFUSE_NONE;
}

int tl_x86_64_emit_detour(const struct tl_emit_in *in, tl_addr at, struct tl_detour *out,
                          struct tl_diag *diag)
{
    if (!in->insn_count || in->insn_count > TL_WINDOW_INSNS_MAX || in->counter_off > INT32_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: %u instructions, counter %u",
                           (unsigned long long)at, in->insn_count, in->counter_off);
    if (!records_known(in) || (in->on_taken && in->call_retarget))
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: a record that has no entry",
                           (unsigned long long)at);
    struct tl_detour detour;
    struct tl_writer w;
    for (int wide = 0; wide < 2; wide++) {
        w = (struct tl_writer){.bytes = detour.bytes, .capacity = sizeof detour.bytes, .at = at};
        detour.refusal = detour_write(in, &w, &detour, wide);
        if (detour.refusal || !w.far)
            break;
    }
    if (w.full || (w.far && !detour.refusal))
        return tl_diag_set(diag, TL_E_LIMIT, "detour at %#llx: more than %d bytes",
                           (unsigned long long)at, TL_DETOUR_SIZE_MAX);
    detour.size = detour.refusal ? 0 : w.size;
    __builtin_memcpy(out, &detour, offsetof(struct tl_detour, bytes) + detour.size);
    return 0;
}

bool tl_x86_64_emit_jump(tl_addr at, tl_addr to, uint8_t *out)
{
    int32_t disp;
    if (!tl_disp32(at + 5, to, &disp))
        return false;
    out[0] = 0xe9;
    __builtin_memcpy(out + 1, &disp, sizeof disp);
    return true;
}

bool tl_x86_64_emit_short(tl_addr at, tl_addr to, uint8_t *out)
{
    int64_t disp = (int64_t)(to - (at + 2));
    if (disp < INT8_MIN || disp > INT8_MAX)
        return false;
    out[0] = 0xeb;
    out[1] = (uint8_t)disp;
    return true;
}

bool tl_x86_64_emit_retarget(const struct tl_insn *insn, tl_addr to, uint8_t *out)
{
    int32_t disp;
    if (insn->size < 5 || !tl_disp32(insn->addr + insn->size, to, &disp))
        return false;
    if (insn->disp_size == 4 && (insn->reloc == TL_RELOC_CALL || insn->reloc == TL_RELOC_BRANCH ||
                                 insn->reloc == TL_RELOC_COND)) {
        if (insn->disp_off + 4 != insn->size)
            return false;
        __builtin_memcpy(out, insn->bytes, insn->size);
    } else if (insn->reloc == TL_RELOC_ICALL) {
        // The linker writes the same when it knows the target: x86-64 psABI, "Optimize GOTPCRELX
        // Relocations": 67 before a direct call has no effect.
        __builtin_memset(out, 0x67, insn->size);
        out[insn->size - 5] = 0xe8;
    } else {
        return false;
    }
    __builtin_memcpy(out + insn->size - 4, &disp, sizeof disp);
    return true;
}

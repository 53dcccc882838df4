// Moves instructions to another address so that they do there what they did before: pc-relative
// data, branches of every kind, calls with their true return address.
//
// Does not decide which instructions may be displaced, nor where the copy lies. Invariants: at each
// recorded boundary registers, flags and stack equal those at the original instruction; no flag and
// no register that is not proved dead is ever written; the red zone is left as it is but for the
// word that a displaced call itself overwrites. What this file does not know is refused.
#include "arch/x86_64/relocate.h"

// Opcode and prefix bytes: Intel SDM volume 2, chapter 2 "Instruction Format", appendix A "Opcode
// Map".
enum {
    PREFIX_OPERAND_SIZE = 0x66,
    PREFIX_ADDRESS_SIZE = 0x67,
    REX_B = 1 << 0,
    REX_R = 1 << 2,
    REX_W = 1 << 3,
    INT3 = 0xcc,
    GROUP5 = 0xff, // its /2 is call
    GROUP5_JMP = 4,
    GROUP5_PUSH = 6,
    REG_SP = 4,
    MODRM_RIP = 5, // with mod 0
    FIXES_MAX = 2 * TL_WINDOW_INSNS_MAX,
};

struct relocator {
    const struct tl_emit_in *in;
    struct tl_writer *w;
    struct tl_detour *out;
    uint16_t start[TL_WINDOW_INSNS_MAX]; // offset of each copy
    struct {
        uint16_t position;
        uint8_t insn;
    } fix[FIXES_MAX]; // branches to copies
    uint8_t fix_count;
    bool first;     // the instruction at hand is the site's own
    uint16_t taken; // on_taken: position of the first branch's rel32
};

// The prefixes of an instruction, and where its opcode starts.
struct prefixes {
    uint8_t size;   // all of them, REX included
    uint8_t rex;    // 0: none
    bool operand16; // 66, and no REX.W that overrides it
    bool address32; // 67
};

static struct prefixes prefixes_of(const struct tl_insn *insn)
{
    struct prefixes p = {0};
    for (; p.size < insn->size; p.size++) {
        uint8_t byte = insn->bytes[p.size];
        if (byte == PREFIX_OPERAND_SIZE)
            p.operand16 = true;
        else if (byte == PREFIX_ADDRESS_SIZE)
            p.address32 = true;
        else if (byte != 0x26 && byte != 0x2e && byte != 0x36 && byte != 0x3e && byte != 0x64 &&
                 byte != 0x65 && byte != 0xf0 && byte != 0xf2 && byte != 0xf3)
            break;
    }
    if (p.size < insn->size && (insn->bytes[p.size] & 0xf0) == 0x40)
        p.rex = insn->bytes[p.size++];
    if (p.rex & REX_W)
        p.operand16 = false; // Intel SDM volume 2, "REX Prefixes"
    return p;
}

static tl_addr insn_end(const struct tl_insn *insn)
{
    return insn->addr + insn->size;
}

// ---- faults ------------------------------------------------------------------------------------

void tl_fault_point_add(struct tl_detour *out, const struct tl_writer *w, unsigned sp_words)
{
    if (out->fault_count < TL_FAULT_POINTS_MAX)
        out->fault[out->fault_count++] =
            (struct tl_fault_point){.off = w->size, .sp_words = (uint8_t)sp_words};
}

// A later part of what stands for the first displaced instruction can fault too, with the stack
// pointer so many words too low.
static void part_may_fault(const struct relocator *r, unsigned sp_words)
{
    if (r->first)
        tl_fault_point_add(r->out, r->w, sp_words);
}

// ---- branches ---------------------------------------------------------------------------------

// Where a displaced branch or call goes: index of a copy, or -1 and an address. Refuses a target
// inside the window that is no instruction of it.
static uint8_t branch_goal(const struct relocator *r, const struct tl_insn *from, int *insn,
                           tl_addr *addr)
{
    const struct tl_emit_in *in = r->in;
    tl_addr site = in->insn[0].addr, target = from->target;
    bool diverts = in->divert_from || in->divert_to;
    *insn = -1;
    *addr = target;
    // A call that leads back is a hit like any other: only branches are diverted.
    if (diverts && target == in->divert_from && from->flow != TL_FLOW_CALL) {
        *addr = in->divert_to;
        if (!in->divert_to)
            *insn = 0;
        return TL_REFUSE_NONE;
    }
    // A branch to the site itself is a new hit, and must leave the detour once the probe is gone.
    if (target <= site || target >= in->resume_addr)
        return TL_REFUSE_NONE;
    for (uint8_t i = 1; i < in->insn_count; i++) {
        if (in->insn[i].addr == target) {
            *insn = i;
            return TL_REFUSE_NONE;
        }
    }
    return TL_REFUSE_WINDOW_TARGET;
}

static void copy_fix_add(struct relocator *r, int insn)
{
    if (r->fix_count == FIXES_MAX) {
        r->w->full = true;
        return;
    }
    r->fix[r->fix_count].position = r->w->size;
    r->fix[r->fix_count].insn = (uint8_t)insn;
    r->fix_count++;
    tl_writer_put32(r->w, 0);
}

// jmp to a branch goal.
static void goal_jump(struct relocator *r, int insn, tl_addr addr)
{
    if (insn < 0) {
        tl_writer_put_jump(r->w, addr);
        return;
    }
    tl_writer_put8(r->w, 0xe9);
    copy_fix_add(r, insn);
}

static uint8_t branch_emit(struct relocator *r, const struct tl_insn *insn)
{
    int index;
    tl_addr addr;
    uint8_t refusal = branch_goal(r, insn, &index, &addr);
    if (!refusal)
        goal_jump(r, index, addr);
    return refusal;
}

// The low four bits of 7x and 0f 8x are the condition; bit 0 negates it.
static unsigned cond_condition(const struct tl_insn *insn)
{
    return insn->bytes[insn->disp_off - 1] & 0xfu;
}

// A branch out of the function whose taken path leads to the action, which is not written yet.
static uint8_t taken_emit(struct relocator *r, const struct tl_insn *insn)
{
    int index;
    tl_addr addr;
    uint8_t refusal = branch_goal(r, insn, &index, &addr);
    if (refusal)
        return refusal;
    if (index >= 0 || addr != insn->target)
        return TL_REFUSE_PC_USE;
    TL_PUT(r->w, 0x0f, (uint8_t)(0x80 | cond_condition(insn)));
    r->taken = r->w->size;
    tl_writer_put32(r->w, 0);
    return TL_REFUSE_NONE;
}

static uint8_t cond_emit(struct relocator *r, const struct tl_insn *insn)
{
    int index;
    tl_addr addr;
    uint8_t refusal = branch_goal(r, insn, &index, &addr);
    if (refusal)
        return refusal;
    unsigned condition = cond_condition(insn);
    int32_t disp;
    if (index >= 0) {
        TL_PUT(r->w, 0x0f, (uint8_t)(0x80 | condition));
        copy_fix_add(r, index);
    } else if (tl_disp32(tl_writer_here(r->w) + 6, addr, &disp)) {
        TL_PUT(r->w, 0x0f, (uint8_t)(0x80 | condition));
        tl_writer_put32(r->w, (uint32_t)disp);
    } else {
        TL_PUT(r->w, (uint8_t)(0x70 | (condition ^ 1)), 0);
        uint16_t position = (uint16_t)(r->w->size - 1);
        tl_writer_put_jump(r->w, addr);
        tl_writer_fix8(r->w, position, r->w->size);
    }
    return TL_REFUSE_NONE;
}

// loop*, j*cxz: [67] op taken; jmp next; taken: jmp target; next:
static uint8_t loop_emit(struct relocator *r, const struct tl_insn *insn)
{
    int index;
    tl_addr addr;
    uint8_t refusal = branch_goal(r, insn, &index, &addr);
    if (refusal)
        return refusal;
    tl_writer_put(r->w, insn->bytes, insn->disp_off);
    TL_PUT(r->w, 2, 0xeb, 0);
    uint16_t position = (uint16_t)(r->w->size - 1);
    goal_jump(r, index, addr);
    tl_writer_fix8(r->w, position, r->w->size);
    return TL_REFUSE_NONE;
}

// ---- calls and indirect jumps -----------------------------------------------------------------

// Pushes the address behind the original call: one instruction, no register, no flag.
static void return_push(struct relocator *r, const struct tl_insn *insn)
{
    tl_addr end = insn_end(insn);
    if (end <= INT32_MAX) {
        tl_writer_put8(r->w, 0x68); // push imm32, sign-extended
        tl_writer_put32(r->w, (uint32_t)end);
    } else {
        TL_PUT(r->w, 0xff, 0x35); // push literal(%rip)
        tl_writer_put_literal_ref(r->w, end);
    }
}

static uint8_t call_emit(struct relocator *r, const struct tl_insn *insn, bool pushed)
{
    int index;
    tl_addr addr;
    uint8_t refusal = branch_goal(r, insn, &index, &addr);
    if (refusal)
        return refusal;
    if (!pushed)
        return_push(r, insn);
    goal_jump(r, index, addr);
    return TL_REFUSE_NONE;
}

// Writes a group 5 instruction with another operation on the same operand.
static uint8_t group5_put(struct relocator *r, const struct tl_insn *insn, unsigned operation)
{
    struct prefixes p = prefixes_of(insn);
    unsigned at = p.size; // of the opcode
    if (p.operand16 || at + 2u > insn->size || insn->bytes[at] != GROUP5)
        return TL_REFUSE_PC_USE;
    unsigned modrm = insn->bytes[at + 1];
    if (modrm >> 6 == 3 && (modrm & 7) == REG_SP && !(p.rex & REX_B))
        return TL_REFUSE_PC_USE; // call *%rsp: its target is what it pushes
    bool rip = (modrm & 0xc7u) == MODRM_RIP;
    modrm = (modrm & 0xc7u) | operation << 3;
    int32_t disp = 0;
    tl_addr end = tl_writer_here(r->w) + insn->size;
    if (rip && p.address32)
        disp = (int32_t)(uint32_t)(insn->target - end);
    else if (rip && !tl_disp32(end, insn->target, &disp))
        return TL_REFUSE_PC_USE;
    tl_writer_put(r->w, insn->bytes, at + 1);
    tl_writer_put8(r->w, modrm);
    if (rip)
        tl_writer_put32(r->w, (uint32_t)disp);
    else
        tl_writer_put(r->w, insn->bytes + at + 2, insn->size - at - 2);
    return TL_REFUSE_NONE;
}

// call *operand, the operand in memory that may be anywhere: also where the return address goes. It
// is read once, with the stack as it was before the call, so a fault shows that state. With S the
// stack pointer before the call, T the target and R the return address:
//
//   push operand        [S-8] = T        a call writes this word anyway
//   lea -120(%rsp)      rsp = S-128
//   push 120(%rsp)      [S-136] = T      below the caller's red zone, inside that of rsp = S-8
//   push R; pop ...     [S-8] = R        rsp = S-136
//   lea 128(%rsp)       rsp = S-8
//   jmp *-128(%rsp)
static uint8_t icall_memory(struct relocator *r, const struct tl_insn *insn)
{
    if (r->in->no_stack)
        return TL_REFUSE_NO_STACK;
    uint8_t refusal = group5_put(r, insn, GROUP5_PUSH);
    if (refusal)
        return refusal;
    TL_PUT(r->w, 0x48, 0x8d, 0x64, 0x24, 0x88); // lea -120(%rsp),%rsp
    part_may_fault(r, 16);
    TL_PUT(r->w, 0xff, 0x74, 0x24, 0x78); // push 120(%rsp)
    part_may_fault(r, 17);
    return_push(r, insn);
    TL_PUT(r->w, 0x8f, 0x84, 0x24, 0x80, 0, 0, 0);       // pop 128(%rsp), rsp counted after the pop
    TL_PUT(r->w, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0); // lea 128(%rsp),%rsp
    part_may_fault(r, 1);
    TL_PUT(r->w, 0xff, 0x64, 0x24, 0x80); // jmp *-128(%rsp)
    return TL_REFUSE_NONE;
}

static uint8_t icall_emit(struct relocator *r, const struct tl_insn *insn, bool pushed)
{
    struct prefixes p = prefixes_of(insn);
    if (p.size + 2u > insn->size || p.operand16)
        return TL_REFUSE_PC_USE;
    unsigned modrm = insn->bytes[p.size + 1];
    if (modrm >> 6 != 3 && (modrm & 0xc7u) != MODRM_RIP)
        return pushed ? (uint8_t)TL_REFUSE_PC_USE : icall_memory(r, insn);
    // A register, or a pointer at a fixed place of the module, which is not on the stack.
    if (!pushed)
        return_push(r, insn);
    part_may_fault(r, 1);
    return group5_put(r, insn, GROUP5_JMP);
}

// ---- pc-relative data -------------------------------------------------------------------------

// lea of something out of reach: the address as an immediate.
static uint8_t lea_absolute(struct relocator *r, const struct tl_insn *insn,
                            const struct prefixes *p)
{
    if (p->size + 2u > insn->size || insn->bytes[p->size] != 0x8d)
        return TL_REFUSE_PC_USE;
    unsigned reg = (insn->bytes[p->size + 1] >> 3) & 7u;
    unsigned rex = p->rex & REX_R ? REX_B : 0u;
    if (p->rex & REX_W) {
        TL_PUT(r->w, (uint8_t)(0x48 | rex), (uint8_t)(0xb8 | reg)); // movabs
        tl_writer_put64(r->w, insn->target);
        return TL_REFUSE_NONE;
    }
    if (p->operand16)
        tl_writer_put8(r->w, PREFIX_OPERAND_SIZE);
    if (rex)
        tl_writer_put8(r->w, 0x40u | rex);
    tl_writer_put8(r->w, 0xb8u | reg);
    if (p->operand16)
        TL_PUT(r->w, (uint8_t)insn->target, (uint8_t)(insn->target >> 8));
    else
        tl_writer_put32(r->w, (uint32_t)insn->target);
    return TL_REFUSE_NONE;
}

// A register that is dead before displaced instruction `index` and that it does not read, among
// those that need neither a REX bit nor a SIB or displacement byte as a base; -1: none.
static int scratch_find(const struct tl_emit_in *in, unsigned index)
{
    static const uint8_t order[] = {0, 1, 2, 6, 7, 3};
    tl_regset dead = in->dead;
    for (unsigned i = 0; i < index; i++)
        dead &= ~(in->insn[i].read | in->insn[i].written);
    dead &= ~in->insn[index].read;
    for (size_t i = 0; i < sizeof order; i++) {
        if (dead & (tl_regset)1 << order[i])
            return order[i];
    }
    return -1;
}

// Rewrites the operand to (scratch), scratch being dead and loaded with the address.
static uint8_t pcrel_absolute(struct relocator *r, const struct tl_insn *insn, unsigned index,
                              const struct prefixes *p)
{
    uint8_t code[TL_INSN_SIZE_MAX + 1];
    unsigned modrm = insn->disp_off - 1u, lead = p->size;
    int scratch = scratch_find(r->in, index);
    if (scratch < 0 || insn->disp_size != 4 || lead >= modrm ||
        (insn->bytes[modrm] & 0xc7) != MODRM_RIP)
        return TL_REFUSE_PC_USE;
    __builtin_memcpy(code, insn->bytes, sizeof code);
    if (p->rex) {
        code[lead - 1] &= (uint8_t)~REX_B;
    } else if (code[lead] == 0xc4 || code[lead] == 0x62 ||
               (code[lead] == 0x8f && (code[lead + 1] & 0x1f) >= 8)) {
        code[lead + 1] |= 0x20; // VEX.B, EVEX.B, XOP.B are inverted
    } else if (code[lead] == 0xd5) {
        return TL_REFUSE_PC_USE; // REX2 (APX)
    }
    code[modrm] = (uint8_t)((code[modrm] & 0x38) | scratch);
    TL_PUT(r->w, 0x48, (uint8_t)(0xb8 | scratch)); // movabs
    tl_writer_put64(r->w, insn->target);
    part_may_fault(r, 0);
    tl_writer_put(r->w, code, modrm + 1);
    tl_writer_put(r->w, code + modrm + 5, insn->size - modrm - 5u);
    return TL_REFUSE_NONE;
}

static uint8_t pcrel_emit(struct relocator *r, const struct tl_insn *insn, unsigned index)
{
    struct prefixes p = prefixes_of(insn);
    tl_addr end = tl_writer_here(r->w) + insn->size;
    int32_t disp;
    if (insn->disp_size != 4 || insn->disp_off + 4u > insn->size)
        return TL_REFUSE_PC_USE;
    if (p.address32)
        disp = (int32_t)(uint32_t)(insn->target - end); // wraps at 32 bits: reaches everything
    else if (!tl_disp32(end, insn->target, &disp))
        return insn->flags & TL_INSN_PCREL_LEA ? lea_absolute(r, insn, &p)
                                               : pcrel_absolute(r, insn, index, &p);
    tl_writer_put(r->w, insn->bytes, insn->disp_off);
    tl_writer_put32(r->w, (uint32_t)disp);
    tl_writer_put(r->w, insn->bytes + insn->disp_off + 4, insn->size - insn->disp_off - 4u);
    return TL_REFUSE_NONE;
}

// ---- all of them ------------------------------------------------------------------------------

static uint8_t insn_emit(struct relocator *r, unsigned index)
{
    const struct tl_insn *insn = &r->in->insn[index];
    bool direct = insn->reloc == TL_RELOC_BRANCH || insn->reloc == TL_RELOC_COND ||
                  insn->reloc == TL_RELOC_LOOP || insn->reloc == TL_RELOC_CALL;
    // 66 before a near branch: AMD cuts the pc to 16 bits, Intel ignores it (AMD APM volume 3 and
    // Intel SDM volume 2, "Jcc", "JMP", "CALL").
    if (direct && (!insn->disp_off || prefixes_of(insn).operand16))
        return TL_REFUSE_PC_USE;
    if (r->in->on_taken && index == 0)
        return insn->reloc == TL_RELOC_COND ? taken_emit(r, insn) : (uint8_t)TL_REFUSE_PC_USE;
    switch ((enum tl_reloc)insn->reloc) {
    case TL_RELOC_COPY:
        tl_writer_put(r->w, insn->bytes, insn->size);
        return TL_REFUSE_NONE;
    case TL_RELOC_PCREL:
        return pcrel_emit(r, insn, index);
    case TL_RELOC_BRANCH:
        return branch_emit(r, insn);
    case TL_RELOC_COND:
        return cond_emit(r, insn);
    case TL_RELOC_LOOP:
        return loop_emit(r, insn);
    case TL_RELOC_CALL:
        return call_emit(r, insn, false);
    case TL_RELOC_ICALL:
        return icall_emit(r, insn, false);
    case TL_RELOC_IJUMP:
        return group5_put(r, insn, GROUP5_JMP);
    case TL_RELOC_REFUSE:
        break;
    }
    return insn->refusal ? insn->refusal : (uint8_t)TL_REFUSE_UNKNOWN_INSN;
}

static bool insn_goes_on(const struct tl_insn *insn)
{
    return insn->flow == TL_FLOW_NEXT || insn->flow == TL_FLOW_COND;
}

uint8_t tl_relocate_displaced(const struct tl_emit_in *in, struct tl_writer *w,
                              struct tl_detour *out, uint16_t *taken)
{
    struct relocator r = {.in = in, .w = w, .out = out};
    tl_addr site = in->insn[0].addr;
    out->displaced = w->size;
    out->insn_count = in->insn_count;
    out->boundary_count = 0;
    for (uint8_t i = 0; i < in->insn_count; i++) {
        const struct tl_insn *insn = &in->insn[i];
        bool call = insn->flow == TL_FLOW_CALL || insn->flow == TL_FLOW_ICALL;
        if (call && i + 1 < in->insn_count)
            return TL_REFUSE_WINDOW_CALL;
        r.start[i] = w->size;
        out->boundary[out->boundary_count++] =
            (struct tl_boundary){.off = w->size, .insn_off = (uint8_t)(insn->addr - site)};
        r.first = i == 0; // any: a processor may not know the instruction
        part_may_fault(&r, 0);
        uint8_t refusal = insn_emit(&r, i);
        if (refusal)
            return refusal;
    }
    if (insn_goes_on(&in->insn[in->insn_count - 1])) {
        out->boundary[out->boundary_count++] =
            (struct tl_boundary){.off = w->size, .insn_off = (uint8_t)(in->resume_addr - site)};
        if (in->stepped)
            tl_writer_put8(w, INT3);
        else
            tl_writer_put_jump(w, in->resume_addr);
    }
    for (uint8_t i = 0; i < r.fix_count; i++)
        tl_writer_fix32(w, r.fix[i].position, r.start[r.fix[i].insn]);
    *taken = r.taken;
    return TL_REFUSE_NONE;
}

uint8_t tl_relocate_retargeted(const struct tl_emit_in *in, struct tl_writer *w,
                               struct tl_detour *out)
{
    struct relocator r = {.in = in, .w = w, .out = out};
    const struct tl_insn *insn = &in->insn[0];
    out->displaced = w->size;
    out->insn_count = 0;
    out->boundary_count = 0; // the call ran at its own place: no state here equals one before it
    if (insn->reloc == TL_RELOC_CALL)
        return call_emit(&r, insn, true);
    if (insn->reloc == TL_RELOC_ICALL)
        return icall_emit(&r, insn, true);
    return TL_REFUSE_UNKNOWN_INSN;
}

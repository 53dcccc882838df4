// Makes programs that end: forward branches, backward branches counted down in r15, calls of later
// functions only. Data is written at fixed places; the stack is balanced.
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION_INSNS_MAX 60u
#define TARGETS_MAX 64u

// One function while it is made.
struct maker {
    struct program *program;
    struct machine *m;
    unsigned function;
    tl_addr mark[TARGETS_MAX]; // where a backward branch may lead
    unsigned mark_count;
    struct {
        tl_addr at;         // of the displacement
        unsigned size, due; // bytes; closed before the instruction of that number
    } open[TARGETS_MAX];
    unsigned open_count;
};

static unsigned pick(struct maker *k, unsigned count)
{
    return (unsigned)(machine_random(k->m) % count);
}

static void put(struct maker *k, const void *bytes, unsigned size)
{
    memcpy(k->program->bytes + k->program->size, bytes, size);
    k->program->size += size;
}

#define PUT(k, ...)                                                                                \
    do {                                                                                           \
        const uint8_t put_bytes[] = {__VA_ARGS__};                                                 \
        put((k), put_bytes, sizeof put_bytes);                                                     \
    } while (0)

static tl_addr here(const struct maker *k)
{
    return PROGRAM_VADDR + k->program->size;
}

static void put_rel32(struct maker *k, tl_addr to, unsigned behind)
{
    int32_t disp = (int32_t)(to - (here(k) + 4 + behind));
    put(k, &disp, 4);
}

static tl_addr data_random(struct maker *k)
{
    return PROGRAM_VADDR + PROGRAM_DATA + 8 * (1 + pick(k, 100));
}

static void put_simple(struct maker *k)
{
    static const uint8_t one_byte[] = {0x90, 0x98, 0x99, 0xf8, 0xf9, 0xf5};
    unsigned reg = pick(k, 4) == 3 ? 6 : pick(k, 4); // not rsp, rbp
    reg = reg == 4 || reg == 5 ? 0 : reg;
    unsigned which = pick(k, 22);
    if (which < TL_ARRAY_COUNT(one_byte)) {
        PUT(k, one_byte[which]);
        return;
    }
    switch (which) {
    case 6:
        PUT(k, 0x01, (uint8_t)(0xc0 | reg));
        break;
    case 7:
        PUT(k, 0xff, (uint8_t)(0xc0 | reg));
        break;
    case 8:
        PUT(k, 0x31, (uint8_t)(0xd8 | reg));
        break;
    case 9:
        PUT(k, 0x48, 0x11, (uint8_t)(0xc8 | reg));
        break;
    case 10:
        PUT(k, 0x83, (uint8_t)(0xf0 | reg), (uint8_t)pick(k, 256));
        break;
    case 11:
        PUT(k, 0x0f, 0x92, (uint8_t)(0xc0 | (reg & 3)));
        break;
    case 12:
        PUT(k, 0x48, 0x83, (uint8_t)(0xc0 | reg), (uint8_t)pick(k, 256));
        break;
    case 13:
        PUT(k, 0x48, 0x8d, 0x54, 0x86, (uint8_t)pick(k, 128));
        break;
    case 14:
        PUT(k, (uint8_t)(0xb8 | reg), 1, 2, 3, (uint8_t)pick(k, 256));
        break;
    case 15:
        PUT(k, 0x8b, 0x05);
        put_rel32(k, data_random(k), 0);
        break;
    case 16:
        PUT(k, 0x48, 0x89, 0x0d);
        put_rel32(k, data_random(k), 0);
        break;
    case 17:
        PUT(k, 0x80, 0x3d);
        put_rel32(k, data_random(k), 1);
        PUT(k, 7);
        break;
    case 18:
        PUT(k, 0x48, 0x8d, 0x35);
        put_rel32(k, data_random(k), 0);
        break;
    case 19:
        PUT(k, 0x89, 0x44, 0x24, 0xf0);
        break; // red zone
    case 20:
        PUT(k, 0x03, 0x5c, 0x24, 0xf0);
        break;
    default:
        PUT(k, 0x53, 0x51, 0x59, 0x5b);
        break; // pushes and pops
    }
}

static void put_forward(struct maker *k, unsigned number)
{
    if (k->open_count == TARGETS_MAX)
        return;
    unsigned kind = pick(k, 4), size = 1;
    uint8_t condition = (uint8_t)pick(k, 16);
    if (kind == 0) {
        PUT(k, 0x0f, (uint8_t)(0x80 | condition), 0, 0, 0, 0);
        size = 4;
    } else if (kind == 1) {
        PUT(k, 0xe3, 0); // jrcxz
    } else if (kind == 2) {
        PUT(k, 0xeb, 0);
    } else {
        PUT(k, (uint8_t)(0x70 | condition), 0);
    }
    k->open[k->open_count].at = here(k) - size;
    k->open[k->open_count].size = size;
    k->open[k->open_count++].due = number + 1 + pick(k, size == 4 ? 20 : 8);
}

// dec r15d; jg back
static void put_backward(struct maker *k)
{
    if (!k->mark_count)
        return;
    PUT(k, 0x41, 0xff, 0xcf);
    tl_addr to = k->mark[pick(k, 3) ? 0 : pick(k, k->mark_count)];
    int64_t near = (int64_t)(to - (here(k) + 2));
    if (near >= -128 && pick(k, 4)) {
        PUT(k, 0x7f, (uint8_t)near);
    } else {
        PUT(k, 0x0f, 0x8f);
        put_rel32(k, to, 0);
    }
}

static void put_call(struct maker *k)
{
    if (!k->function)
        return;
    tl_addr to = k->program->function[pick(k, k->function)].start;
    switch (pick(k, 4)) {
    case 0:
        PUT(k, 0x48, 0x8d, 0x15); // lea to(%rip),%rdx; call *%rdx
        put_rel32(k, to, 0);
        PUT(k, 0xff, 0xd2);
        break;
    case 1:
        PUT(k, 0x48, 0x8d, 0x15); // ...; mov %rdx,-16(%rsp); call *-16(%rsp)
        put_rel32(k, to, 0);
        PUT(k, 0x48, 0x89, 0x54, 0x24, 0xf0, 0xff, 0x54, 0x24, 0xf0);
        break;
    case 2:
        PUT(k, 0x48, 0x8d, 0x15); // ...; mov %rdx,pointer(%rip); call *pointer(%rip)
        put_rel32(k, to, 0);
        PUT(k, 0x48, 0x89, 0x15);
        put_rel32(k, PROGRAM_VADDR + PROGRAM_DATA, 0);
        PUT(k, 0xff, 0x15);
        put_rel32(k, PROGRAM_VADDR + PROGRAM_DATA, 0);
        break;
    default:
        PUT(k, 0xe8);
        put_rel32(k, to, 0);
        break;
    }
}

static void close_due(struct maker *k, unsigned number)
{
    for (unsigned i = 0; i < k->open_count; i++) {
        tl_addr at = k->open[i].at;
        unsigned size = k->open[i].size;
        int64_t disp = (int64_t)(here(k) - (at + size));
        // A short branch is closed early rather than out of reach.
        if (!at || (k->open[i].due > number && (size == 4 || disp < 90)))
            continue;
        memcpy(k->program->bytes + (at - PROGRAM_VADDR), &disp, size);
        k->open[i].at = 0;
    }
}

static void padding_add(struct program *p, unsigned size)
{
    tl_addr at = PROGRAM_VADDR + p->size;
    if (!size)
        return;
    p->padding[p->padding_count++] = (struct tl_range){at, at + size};
    memset(p->bytes + p->size, 0xcc, size);
    p->size += size;
}

static void function_make(struct maker *k)
{
    struct program *p = k->program;
    k->mark_count = k->open_count = 0;
    struct tl_range *function = &p->function[k->function];
    function->start = here(k);
    unsigned count = 1 + pick(k, FUNCTION_INSNS_MAX);
    for (unsigned i = 0; i < count; i++) {
        close_due(k, i);
        unsigned kind = pick(k, 12);
        if (k->mark_count < TARGETS_MAX)
            k->mark[k->mark_count++] = here(k);
        if (kind == 0)
            put_forward(k, i);
        else if (kind == 1)
            put_backward(k);
        else if (kind == 2)
            put_call(k);
        else
            put_simple(k);
    }
    close_due(k, UINT32_MAX);
    if (pick(k, 4) == 0)
        PUT(k, 0xf3);
    PUT(k, 0xc3);
    function->end = here(k);
    padding_add(p, pick(k, 3) ? (unsigned)(-here(k) & 15) : 0);
}

static void program_decode(struct program *p)
{
    p->insn_count = 0;
    for (unsigned f = 0; f < p->function_count; f++) {
        for (tl_addr at = p->function[f].start; at < p->function[f].end;) {
            struct tl_insn *insn = &p->insn[p->insn_count];
            if (p->insn_count == PROGRAM_INSNS_MAX ||
                tl_arch_x86_64.decode(p->bytes + (at - PROGRAM_VADDR), p->function[f].end - at, at,
                                      insn)) {
                fprintf(stderr, "program: does not decode at %#llx\n", (unsigned long long)at);
                abort();
            }
            p->function_of[p->insn_count++] = f;
            at += insn->size;
        }
    }
    memset(p->target, 0, sizeof p->target);
    for (unsigned i = 0; i < p->insn_count; i++) {
        unsigned target = program_at(p, p->insn[i].target);
        bool branch = p->insn[i].flow == TL_FLOW_COND || p->insn[i].flow == TL_FLOW_JUMP;
        if (branch && target < p->insn_count)
            p->target[target] = true;
    }
}

void program_begin(struct program *program)
{
    memset(program->bytes, 0, sizeof program->bytes);
    program->size = program->padding_count = program->function_count = program->insn_count = 0;
}

void program_function(struct program *program, const void *bytes, unsigned size, unsigned padding)
{
    tl_addr at = PROGRAM_VADDR + program->size;
    memcpy(program->bytes + program->size, bytes, size);
    program->size += size;
    program->function[program->function_count++] = (struct tl_range){at, at + size};
    padding_add(program, padding);
}

void program_end(struct program *program)
{
    program->text = (struct tl_text){PROGRAM_VADDR, program->bytes, program->size};
    program_decode(program);
}

void program_random(struct program *program, struct machine *m)
{
    struct maker k = {.program = program, .m = m};
    program_begin(program);
    program->function_count = 2 + pick(&k, PROGRAM_FUNCTIONS_MAX - 4);
    for (k.function = 0; k.function < program->function_count; k.function++)
        function_make(&k);
    program_end(program);
}

unsigned program_at(const struct program *program, tl_addr vaddr)
{
    unsigned low = 0, high = program->insn_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (program->insn[middle].addr < vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    return low < program->insn_count && program->insn[low].addr == vaddr ? low
                                                                         : program->insn_count;
}

static void loops_fill(const struct program *p, unsigned index, struct tl_site_facts *out)
{
    for (unsigned i = 0; i < p->insn_count; i++) {
        if ((p->insn[i].flow != TL_FLOW_COND && p->insn[i].flow != TL_FLOW_JUMP) ||
            p->insn[i].target != p->insn[index].addr)
            continue;
        out->looped = true;
        if (out->looper_count < TL_ARRAY_COUNT(out->loopers))
            out->loopers[out->looper_count++] = p->insn[i].addr;
        else
            out->looper_more = true;
    }
}

void program_facts(const struct program *p, unsigned index, struct tl_site_facts *out)
{
    unsigned function = p->function_of[index];
    const struct tl_range *extent = &p->function[function];
    memset(out, 0, sizeof *out);
    out->vaddr = p->insn[index].addr;
    out->function = (struct tl_extent){.vaddr = extent->start, .size = extent->end - extent->start};
    out->entry = out->vaddr == extent->start;
    if (out->entry)
        loops_fill(p, index, out);
    unsigned window = 0;
    bool barrier = false;
    for (unsigned i = index; i < p->insn_count && p->function_of[i] == function; i++) {
        barrier |= i > index && p->target[i];
        if (out->insn_count < TL_SITE_INSNS_MAX) {
            out->insn[out->insn_count++] = p->insn[i];
            out->insn_bytes = (uint8_t)(out->insn_bytes + p->insn[i].size);
        }
        if (!barrier && window < 100) {
            window += p->insn[i].size;
            // Nothing behind a call may be overwritten: its return address points there.
            barrier = p->insn[i].flow == TL_FLOW_CALL || p->insn[i].flow == TL_FLOW_ICALL;
        }
    }
    if (!barrier) {
        for (unsigned i = 0; i < p->padding_count; i++)
            if (p->padding[i].start == extent->end)
                window += (unsigned)(p->padding[i].end - p->padding[i].start);
    }
    out->window_max = (uint8_t)(window > 200 ? 200 : window);
    out->window_end_refusal = barrier ? TL_REFUSE_WINDOW_TARGET : TL_REFUSE_WINDOW_END;
}

int program_site(struct tl_analysis *analysis, tl_addr vaddr, struct tl_site_facts *out,
                 struct tl_diag *diag)
{
    const struct program *program = (const struct program *)(const void *)analysis;
    unsigned index = program_at(program, vaddr);
    (void)diag;
    memset(out, 0, sizeof *out);
    out->refusal = TL_REFUSE_NOT_BOUNDARY;
    if (index < program->insn_count)
        program_facts(program, index, out);
    return 0;
}

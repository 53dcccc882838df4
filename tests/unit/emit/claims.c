// Proves the register sets of rows of isa/arm64.isa by running words of each on an arm64 processor, or what stands in
// for it, in streaming mode with ZA on where it needs that: a general register or flag that is claimed not to be read
// may be changed without any other effect, one that is claimed to be written does not depend on its old value, nothing
// else changes. All rows that the processor has are run, but for those that are named here.
//
//   claims LIST SEED WORDS      WORDS of each row; LIST: the rows that the processor has not
#include "absent.h"
#include "machine.h"
#include "sign.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arm64/arm64.h"
#include "arch/arm64/table.h"
#include "arch/arm64/writer.h"

#define REGS 31
#define FLAGS 4
#define FLAG_SHIFT 28 // v, c, z, n from here
#define TRIES 100     // words of a row for one that is run

// Rows that the processor has, of which no word comes to its end here.
static const struct {
    const char *row, *why;
} not_run[] = {
    {"gcsstr", "stores to a guarded control stack only"},
};

struct outcome {
    struct machine_state state;
    uint8_t data[DATA_SIZE], stack[STACK_SIZE];
};

static const tl_regset flag_bits[FLAGS] = {TL_REGSET_V, TL_REGSET_C, TL_REGSET_Z, TL_REGSET_N};
static uint64_t random_state;
static uint8_t data_start[DATA_SIZE], stack_start[STACK_SIZE];

static uint64_t next(void)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random_state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// false: it did not come to an end, or by a fault.
static bool run(const struct machine_state *start, struct outcome *end)
{
    memcpy((void *)(uintptr_t)DATA_ADDR, data_start, DATA_SIZE);
    memcpy((void *)(uintptr_t)STACK_ADDR, stack_start, STACK_SIZE);
    bool ran = machine_run(start, &end->state);
    memcpy(end->data, (void *)(uintptr_t)DATA_ADDR, DATA_SIZE);
    memcpy(end->stack, (void *)(uintptr_t)STACK_ADDR, STACK_SIZE);
    return ran && end->state.signal == SIGTRAP && end->state.pc != SITE_ADDR;
}

static bool same_but(const struct outcome *one, const struct outcome *two, unsigned reg, uint64_t flag)
{
    const struct machine_state *a = &one->state, *b = &two->state;
    for (unsigned i = 0; i < REGS; i++)
        if (i != reg && a->reg[i] != b->reg[i])
            return false;
    return a->sp == b->sp && a->pc == b->pc && ((a->pstate ^ b->pstate) & FLAGS_MASK & ~flag) == 0 &&
           machine_vectors_same(a, b) && memcmp(one->data, two->data, DATA_SIZE) == 0 &&
           memcmp(one->stack, two->stack, STACK_SIZE) == 0;
}

static bool wrong(const struct tl_insn *insn, const char *what, unsigned which)
{
    char text[160];
    tl_arm64_print(insn, text, sizeof(text));
    printf("%s (row %s) %s %u\n", text, tl_arm64_row(insn->row)->name, what, which);
    return false;
}

static bool claim_holds(const struct tl_insn *insn, const struct machine_state *start,
                        const struct outcome *before, unsigned which)
{
    static struct machine_state changed;
    static struct outcome after;
    bool is_reg = which < REGS;
    tl_regset bit = is_reg ? TL_REGSET(which) : flag_bits[which - REGS];
    uint64_t flag = is_reg ? 0 : UINT64_C(1) << (FLAG_SHIFT + which - REGS);
    if ((insn->read & bit) != 0)
        return true;
    changed = *start;
    if (is_reg)
        changed.reg[which] = next();
    changed.pstate ^= flag;
    if (!run(&changed, &after) || !same_but(before, &after, which, flag))
        return wrong(insn, "reads", which);
    uint64_t now = is_reg ? after.state.reg[which] : after.state.pstate & flag;
    uint64_t was = is_reg ? changed.reg[which] : changed.pstate & flag;
    uint64_t other = is_reg ? before->state.reg[which] : before->state.pstate & flag;
    if ((insn->written & bit) != 0 && now != other)
        return wrong(insn, "does not write", which);
    // Which flags rmif writes is a field of its own.
    bool some = !is_reg && strcmp(tl_arm64_row(insn->row)->name, "rmif") == 0;
    if ((insn->written & bit) == 0 && now != was && !some)
        return wrong(insn, "writes without saying so", which);
    return true;
}

static uint64_t register_random(void)
{
    switch (next() % 4) {
    case 0:
        return next();
    case 1:
        return next() % 48;
    case 2:
        return FIELD_ADDR + next() % FIELD_SIZE / 4 * 4;
    default:
        return DATA_ADDR + DATA_SIZE / 4 + next() % (DATA_SIZE / 2) / 16 * 16;
    }
}

// Elements that are offsets of gathers and scatters, or addresses, of 64 or 32 bits.
static uint64_t offsets_random(void)
{
    return next() % 48;
}

static uint64_t short_offsets_random(void)
{
    return offsets_random() | offsets_random() << 32;
}

static uint64_t addresses_random(void)
{
    return DATA_ADDR + DATA_SIZE / 4 + next() % (DATA_SIZE / 2);
}

static uint64_t short_addresses_random(void)
{
    return addresses_random() | addresses_random() << 32;
}

static void vectors_random(struct machine_state *state)
{
    machine_vectors_fill(state, next);
    switch (next() % 6) {
    case 0:
        return machine_elements_fill(state, offsets_random);
    case 1:
        return machine_elements_fill(state, addresses_random);
    case 2:
        return machine_elements_fill(state, short_addresses_random);
    case 3:
        return machine_elements_fill(state, short_offsets_random);
    }
}

// 1: tested, 0: it did not come to its end, or ends differently each time, -1: a claim is wrong.
static int claims_hold(const struct tl_insn *insn)
{
    static struct machine_state start;
    static struct outcome before, again;
    machine_state_blank(&start);
    for (unsigned i = 0; i < REGS; i++)
        start.reg[i] = register_random();
    start.pc = SITE_ADDR;
    start.sp = STACK_ADDR + STACK_SIZE / 2;
    start.pstate = (start.pstate & ~FLAGS_MASK) | (next() & FLAGS_MASK);
    vectors_random(&start);
    pointer_sign(insn, &start, next);
    machine_word_put(SITE_ADDR, tl_arm64_word(insn));
    if (!run(&start, &before) || !run(&start, &again) || !same_but(&before, &again, REGS, 0))
        return 0;
    if (before.state.sp != start.sp && (insn->flags & TL_INSN_WRITES_SP) == 0)
        return wrong(insn, "changes", REGS), -1;
    for (unsigned i = 0; i < REGS + FLAGS; i++)
        if (!claim_holds(insn, &start, &before, i))
            return -1;
    return 1;
}

// How many of its words were tested.
static unsigned long row_test(unsigned number, unsigned long each, unsigned *failed)
{
    const struct row *row = tl_arm64_row(number);
    unsigned long tested = 0;
    for (unsigned long i = 0; i < each * TRIES && tested < each; i++) {
        uint32_t word = word_of(row, next);
        struct tl_insn insn;
        tl_arm64_decode((const uint8_t *)&word, sizeof(word), SITE_ADDR, &insn);
        // A branch leads into the field, if it can.
        if (insn.flow != TL_FLOW_NEXT && tl_word_aim(&word, (int64_t)(next() % 0x100000 / 4 * 4) - 0x80000))
            tl_arm64_decode((const uint8_t *)&word, sizeof(word), SITE_ADDR, &insn);
        int result = insn.row == number ? claims_hold(&insn) : 0;
        tested += result > 0;
        *failed += result < 0;
    }
    return tested;
}

static bool is_not_run(const char *name)
{
    for (size_t i = 0; i < sizeof not_run / sizeof *not_run; i++)
        if (strcmp(not_run[i].row, name) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    absent_read(argv[1]);
    random_state = strtoull(argv[2], NULL, 0);
    unsigned long each = strtoul(argv[3], NULL, 0);
    unsigned rows = 0, rows_run = 0, failed = 0;
    machine_begin();
    for (size_t i = 0; i < DATA_SIZE; i++) {
        data_start[i] = (uint8_t)next();
        stack_start[i] = (uint8_t)next();
    }
    for (unsigned number = 1; number < tl_arm64_row_count(); number++) {
        const struct row *row = tl_arm64_row(number);
        if (row->reloc == TL_RELOC_REFUSE)
            continue;
        unsigned long tested = row_test(number, each, &failed);
        if (tested == 0 && machine_streaming(true))
            tested = row_test(number, each, &failed);
        machine_streaming(false);
        rows++;
        rows_run += tested != 0;
        absent_judge(row->name, tested != 0 || is_not_run(row->name));
        if (tested != 0 && is_not_run(row->name)) {
            printf("row %s: is run after all\n", row->name);
            failed++;
        }
    }
    printf("seed %s: %u of %u rows run, %u failures\n", argv[2], rows_run, rows, failed);
    return failed != 0 || absent_wrong() != 0;
}

// Proves the register sets of isa/riscv.isa by running words of every row on a riscv64 processor,
// or what stands in for it: what is claimed not to be read may be changed without any other effect,
// what is claimed to be written does not depend on its old value, and nothing else changes.
//
//   registers SEED WORDS      WORDS of each row
#include "machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/riscv64/riscv64.h"
#include "arch/riscv64/table.h"

#define REGS 32
#define REG_SP 2
#define TRIES 400 // words of a row for one that is run
#define STATES 3  // of a word
#define CHANGES 2 // of a register
#define SMALL 48  // numbers below this are tried, too
#define RESULTS_EACH 4

static uint64_t random_state;
static uint8_t data_start[DATA_SIZE];

static uint64_t next(void)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random_state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

struct outcome {
    struct machine_state state;
    uint8_t data[DATA_SIZE];
};

// Runs the instruction at the site. false: it does not end at a breakpoint.
static bool run(const struct machine_state *start, struct outcome *out)
{
    memcpy((void *)(uintptr_t)DATA_ADDR, data_start, DATA_SIZE);
    if (!machine_run(start, &out->state))
        return false;
    memcpy(out->data, (void *)(uintptr_t)DATA_ADDR, DATA_SIZE);
    return out->state.signal == SIGTRAP;
}

// A number that the instruction may use: where it leads, an address in its memory, or a distance
// there.
static uint64_t address_random(const struct tl_insn *insn)
{
    if (insn->flow != TL_FLOW_NEXT)
        return SITE_ADDR + 0x10000 + next() % 0x10000 * 2;
    if (next() % 4 == 0)
        return next() % 8 * 16;
    return DATA_ADDR + DATA_SIZE / 4 + next() % (DATA_SIZE / 2) / 16 * 16;
}

static void state_random(const struct tl_insn *insn, bool addresses, struct machine_state *state)
{
    *state = (struct machine_state){0};
    state->reg[0] = SITE_ADDR;
    for (unsigned i = 1; i < REGS; i++)
        state->reg[i] = addresses         ? address_random(insn)
                        : next() % 4 == 0 ? next() % SMALL
                                          : next();
    machine_vectors_fill(state, next);
    if (addresses) // small indexes, of any width
        for (size_t i = 0; i < sizeof(state->vector); i++)
            state->vector[i] = i % 8 == 0 ? state->vector[i] & 0x78 : 0;
}

// Whether the results are the same but for these general registers.
static bool same_but(const struct outcome *one, const struct outcome *two, tl_regset regs)
{
    for (unsigned i = 0; i < REGS; i++) // the pc too
        if ((regs & TL_REGSET(i)) == 0 && one->state.reg[i] != two->state.reg[i])
            return false;
    return machine_vectors_same(&one->state, &two->state) &&
           memcmp(one->data, two->data, DATA_SIZE) == 0;
}

static bool wrong(const struct tl_insn *insn, const char *what, tl_regset regs)
{
    char text[160];
    tl_riscv64_print(insn, text, sizeof(text));
    printf("%s (row %s) %s %08llx\n", text, tl_riscv64_row(insn->row)->name, what,
           (unsigned long long)regs);
    return false;
}

static uint64_t other_value(const struct tl_insn *insn, const struct machine_state *start,
                            bool addresses)
{
    uint64_t kind = next() % 4;
    return kind == 0   ? start->reg[1 + next() % (REGS - 1)] // so that two are equal
           : kind == 1 ? next() % SMALL
           : addresses ? address_random(insn)
                       : next();
}

// Changes registers that are said not to be read.
static bool claim_holds(const struct tl_insn *insn, const struct machine_state *start,
                        const struct outcome *before, tl_regset regs, bool addresses)
{
    static struct machine_state changed;
    static struct outcome after;
    changed = *start;
    for (unsigned i = 1; i < REGS; i++)
        if ((regs & TL_REGSET(i)) != 0)
            changed.reg[i] = other_value(insn, start, addresses);
    if (!run(&changed, &after) || !same_but(before, &after, regs))
        return wrong(insn, "reads of", regs);
    for (unsigned i = 1; i < REGS; i++) {
        tl_regset bit = regs & TL_REGSET(i);
        if ((bit & insn->written) != 0 && after.state.reg[i] != before->state.reg[i])
            return wrong(insn, "does not write", bit);
        if ((bit & ~insn->written) != 0 && after.state.reg[i] != changed.reg[i])
            return wrong(insn, "writes without saying so", bit);
    }
    return true;
}

// Registers that the word may name, and those that compressed instructions use unnamed.
static tl_regset suspects(const struct tl_insn *insn)
{
    static const uint8_t fields[] = {2, 7, 15, 20, 27};
    uint32_t word = tl_riscv64_word(insn);
    tl_regset regs = TL_REGSET(1) | TL_REGSET(REG_SP);
    for (size_t i = 0; i < sizeof(fields); i++) {
        uint32_t number = word >> fields[i] & 31;
        regs |= TL_REGSET(number) | TL_REGSET((number + 1) & 31);
        if (insn->size == 2)
            regs |= TL_REGSET(8 + (number & 7));
    }
    return regs & ~TL_REGSET(0);
}

// 1: tested, 0: could not be run, or gives another result each time; -1: a claim is wrong.
static int claims_hold(const struct tl_insn *insn, bool addresses)
{
    static struct machine_state start;
    static struct outcome before, again;
    tl_regset free = TL_REGSET_GENERAL & ~TL_REGSET(0) & ~insn->read, alone = free & suspects(insn);
    state_random(insn, addresses, &start);
    if (!run(&start, &before) || !run(&start, &again) || !same_but(&before, &again, 0))
        return 0;
    for (unsigned i = 1; i < REGS; i++)
        if (before.state.reg[i] != start.reg[i] && (insn->written & TL_REGSET(i)) == 0)
            return wrong(insn, "changes without saying so", TL_REGSET(i)), -1;
    if (before.state.reg[REG_SP] != start.reg[REG_SP] && (insn->flags & TL_INSN_WRITES_SP) == 0)
        return wrong(insn, "changes, but its flag does not say so,", TL_REGSET(REG_SP)), -1;
    if (!claim_holds(insn, &start, &before, free & ~alone, addresses))
        return -1;
    for (unsigned i = 1; i < REGS; i++)
        for (unsigned turn = 0; turn < CHANGES && (alone & TL_REGSET(i)) != 0; turn++)
            if (!claim_holds(insn, &start, &before, TL_REGSET(i), addresses))
                return -1;
    return 1;
}

// A word of the row, with some registers more often than by chance.
static uint32_t word_of(const struct row *row)
{
    static const uint8_t often[] = {0, 1, 2, 3, 4, 5, 8};
    uint32_t word = (uint32_t)next();
    for (unsigned shift = 7; shift <= 20; shift += shift == 7 ? 8 : 5)
        if (next() % 4 == 0)
            word = (word & ~(31u << shift)) | (uint32_t)often[next() % sizeof(often)] << shift;
    word = (word & ~row->mask) | row->value;
    return row->size == 2 ? word & 0xffff : word;
}

static bool insn_of(const struct row *row, unsigned number, struct tl_insn *out)
{
    uint32_t word = word_of(row);
    return tl_riscv64_decode((const uint8_t *)&word, sizeof(word), SITE_ADDR, out) == 0 &&
           out->row == number;
}

int main(int argc, char **argv)
{
    static const uint16_t breaks[] = {0x9002, 0x9002}; // c.ebreak
    unsigned long long seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1,
                       each = argc > 2 ? strtoull(argv[2], NULL, 0) : 4;
    unsigned rows = 0, rows_run = 0, failed = 0;
    random_state = seed;
    machine_begin();
    for (size_t i = 0; i < DATA_SIZE; i++)
        data_start[i] = (uint8_t)(next() & 0x7f);
    for (unsigned number = 1; number < tl_riscv64_row_count(); number++) {
        const struct row *row = tl_riscv64_row(number);
        unsigned tested = 0, row_failed = 0;
        if (row->reloc == TL_RELOC_REFUSE)
            continue;
        for (uint64_t i = 0; i < each * TRIES && tested < each && row_failed < RESULTS_EACH; i++) {
            struct tl_insn insn;
            if (!insn_of(row, number, &insn))
                continue;
            machine_code_put(SITE_ADDR, insn.bytes, insn.size);
            unsigned good = 0, bad = 0;
            for (unsigned turn = 0; turn < STATES && bad == 0; turn++) {
                int result = claims_hold(&insn, (i + turn) % 2 != 0);
                good += result > 0;
                bad += result < 0;
            }
            machine_code_put(SITE_ADDR, breaks, sizeof(breaks));
            tested += good != 0;
            row_failed += bad;
        }
        rows++;
        rows_run += tested != 0;
        failed += row_failed;
        if (tested == 0 && row_failed == 0) {
            printf("row %s: not run\n", row->name);
            failed++;
        }
    }
    printf("seed %llu: %u of %u rows run, %u failures\n", seed, rows_run, rows, failed);
    return failed != 0;
}

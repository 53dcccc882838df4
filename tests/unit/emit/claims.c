// Proves the register sets of scalable rows of isa/arm64.isa that touch no memory, by running words of each on an arm64
// processor, or what stands in for it: a general register or flag that is claimed not to be read may be changed
// without any other effect, one that is claimed to be written does not depend on its old value, nothing else changes.
//
//   claims SEED WORDS      WORDS of each row
#include "machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arm64/arm64.h"
#include "arch/arm64/table.h"

#define REGS 31
#define FLAGS 4
#define FLAG_SHIFT 28 // v, c, z, n from here
#define TRIES 40      // words of a row for one that is run
#define ROWS_RUN_MIN 240 // of the scalable ones, by QEMU 7.2

static const tl_regset flag_bits[FLAGS] = {TL_REGSET_V, TL_REGSET_C, TL_REGSET_Z, TL_REGSET_N};
static uint64_t random_state;

static uint64_t next(void)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random_state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static bool run(const struct machine_state *start, struct machine_state *end)
{
    return machine_run(start, end) && end->signal == SIGTRAP && end->pc == SITE_ADDR + 4;
}

static bool same_but(const struct machine_state *a, const struct machine_state *b, unsigned reg, uint64_t flag)
{
    for (unsigned i = 0; i < REGS; i++)
        if (i != reg && a->reg[i] != b->reg[i])
            return false;
    return a->sp == b->sp && ((a->pstate ^ b->pstate) & FLAGS_MASK & ~flag) == 0 && machine_vectors_same(a, b);
}

static bool wrong(const struct tl_insn *insn, const char *what, unsigned which)
{
    char text[160];
    tl_arm64_print(insn, text, sizeof(text));
    printf("%s (row %s) %s %u\n", text, tl_arm64_row(insn->row)->name, what, which);
    return false;
}

static bool claim_holds(const struct tl_insn *insn, const struct machine_state *start,
                        const struct machine_state *before, unsigned which)
{
    static struct machine_state changed, after;
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
    uint64_t now = is_reg ? after.reg[which] : after.pstate & flag;
    uint64_t was = is_reg ? changed.reg[which] : changed.pstate & flag;
    uint64_t other = is_reg ? before->reg[which] : before->pstate & flag;
    if ((insn->written & bit) != 0 && now != other)
        return wrong(insn, "does not write", which);
    if ((insn->written & bit) == 0 && now != was)
        return wrong(insn, "writes without saying so", which);
    return true;
}

// 1: tested, 0: the processor has it not, -1: a claim is wrong.
static int claims_hold(const struct tl_insn *insn)
{
    static struct machine_state start, before;
    machine_state_blank(&start);
    for (unsigned i = 0; i < REGS; i++)
        start.reg[i] = next() % 3 == 0 ? next() % 48 : next();
    start.pc = SITE_ADDR;
    start.sp = STACK_ADDR + STACK_SIZE / 2;
    start.pstate = (start.pstate & ~FLAGS_MASK) | (next() & FLAGS_MASK);
    machine_vectors_fill(&start, next);
    machine_word_put(SITE_ADDR, tl_arm64_word(insn));
    if (!run(&start, &before))
        return 0;
    if (before.sp != start.sp && (insn->flags & TL_INSN_WRITES_SP) == 0)
        return wrong(insn, "changes", REGS), -1;
    for (unsigned i = 0; i < REGS + FLAGS; i++)
        if (!claim_holds(insn, &start, &before, i))
            return -1;
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    random_state = strtoull(argv[1], NULL, 0);
    unsigned long each = strtoul(argv[2], NULL, 0);
    unsigned rows = 0, run_rows = 0, failed = 0;
    machine_begin();
    for (unsigned number = 1; number < tl_arm64_row_count(); number++) {
        const struct row *row = tl_arm64_row(number);
        bool scalable = (row->value >> 25 & 15) == 2 && row->value >> 31 == 0;
        if (!scalable || row->reloc == TL_RELOC_REFUSE)
            continue;
        unsigned long tested = 0;
        for (unsigned long i = 0; i < each * TRIES && tested < each; i++) {
            uint32_t word = ((uint32_t)next() & ~row->mask) | row->value;
            struct tl_insn insn;
            tl_arm64_decode((const uint8_t *)&word, sizeof(word), SITE_ADDR, &insn);
            int result = insn.row == number ? claims_hold(&insn) : 0;
            tested += result > 0;
            failed += result < 0;
        }
        rows++;
        run_rows += tested != 0;
    }
    printf("seed %s: %u of %u rows run, %u claims are wrong\n", argv[1], run_rows, rows, failed);
    return failed != 0 || run_rows < ROWS_RUN_MIN;
}

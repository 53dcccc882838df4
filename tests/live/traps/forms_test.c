// Every form of forms.S, bare and with a breakpoint, on each of the three rungs: the same
// registers, flags, stack and data, and as many hits as runs. The gate: a row of the table that
// names a simulator must have been run on rung simulate.
#include "put.h"

#include "gate.h" // of the instruction set's folder

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <unistd.h>

#define ROWS_MAX 1000

struct forms {
    char name[PUT_SITES_MAX][32];
    tl_addr site[PUT_SITES_MAX];
    uint64_t runs[PUT_SITES_MAX];
    size_t count;
};

static void forms_read(struct victim *victim, struct forms *out)
{
    char line[256];
    unsigned long long addr, runs;
    out->count = 0;
    for (;;) {
        assert_non_null(fgets(line, sizeof line, victim->out));
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "ready") == 0)
            return;
        assert_true(out->count < PUT_SITES_MAX);
        assert_int_equal(
            sscanf(line, "form 0x%llx %llu %31[^\n]", &addr, &runs, out->name[out->count]), 3);
        out->site[out->count] = addr;
        out->runs[out->count++] = runs;
    }
}

// A stepped instruction is followed by a signal, which may use what lies below the stack pointer.
static void forms_steppable(struct forms *forms)
{
    size_t kept = 0;
    for (size_t i = 0; i < forms->count; i++) {
        if (strstr(forms->name[i], " below"))
            continue;
        memmove(forms->name[kept], forms->name[i], sizeof forms->name[i]);
        forms->site[kept] = forms->site[i];
        forms->runs[kept++] = forms->runs[i];
    }
    forms->count = kept;
}

// Runs all of them once more. Returns how many differ from the first run.
static unsigned forms_again(struct victim *victim)
{
    char line[256];
    unsigned differ = 0;
    assert_int_equal(write(victim->in, "a\n", 2), 2);
    for (;;) {
        if (!fgets(line, sizeof line, victim->out)) {
            fail_msg("the victim ended: status 0x%x", victim_end(victim));
            return 1;
        }
        if (strcmp(line, "ready\n") == 0)
            return differ;
        print_error("%s", line);
        differ++;
    }
}

static void rung_run(enum tl_rung rung, unsigned rungs, bool *seen)
{
    struct victim victim = {0};
    struct forms *forms = calloc(1, sizeof *forms);
    struct put *put = calloc(1, sizeof *put);
    struct tl_diag diag = {""};
    char *argv[] = {(char *)(uintptr_t)FORMS_PATH, NULL};
    unsigned placed = 0;
    victim_spawn(&victim, argv);
    forms_read(&victim, forms);
    if (rung == TL_RUNG_STEP)
        forms_steppable(forms);
    int error = put_place(put, victim.pid, forms->site, forms->count, rungs, &diag);
    if (error)
        fail_msg("%s", diag.text);
    assert_int_equal(forms_again(&victim), 0);
    for (size_t i = 0; i < forms->count; i++) {
        bool is_placed = put->results[i].refusal == TL_REFUSE_NONE;
        if (hits_of(put->install, (uint32_t)i) != (is_placed ? forms->runs[i] : 0))
            fail_msg("%s: %llu hits of %llu", forms->name[i],
                     (unsigned long long)hits_of(put->install, (uint32_t)i),
                     (unsigned long long)forms->runs[i]);
        if (!is_placed && rung != TL_RUNG_SIMULATE && gate_in_slot(forms->name[i]))
            fail_msg("%s: %s", forms->name[i], tl_refusal_text(put->results[i].refusal));
        if (!is_placed)
            continue;
        assert_int_equal(put->rung[i], rung);
        seen[put->row[i]] = true;
        placed++;
    }
    print_message("%s: %u of %zu forms\n", tl_rung_text(rung), placed, forms->count);
    assert_int_equal(put_detach(put, &diag), 0);
    assert_false(tl_traps_left(put->traps));
    assert_true(text_is_files(victim.pid));
    assert_int_equal(forms_again(&victim), 0); // bare once more
    put_close(put);
    assert_int_equal(victim_end(&victim), 0);
    free(put);
    free(forms);
}

static void simulated_equals_bare(void **state)
{
    (void)state;
    bool seen[ROWS_MAX] = {false};
    rung_run(TL_RUNG_SIMULATE, TL_RUNG_BIT(TL_RUNG_SIMULATE), seen);
    for (unsigned row = 1; row < ROWS_MAX; row++) {
        const char *name = NULL;
        if (gate_simulated(row, &name) != seen[row])
            fail_msg("row %s: %s", name,
                     seen[row] ? "run simulated, but not by the table"
                               : "simulated by the table, but not run so");
    }
}

static void in_a_slot_equals_bare(void **state)
{
    (void)state;
    bool seen[ROWS_MAX] = {false};
    rung_run(TL_RUNG_SLOT, TL_RUNG_BIT(TL_RUNG_SLOT), seen);
}

static void stepped_equals_bare(void **state)
{
    (void)state;
    bool seen[ROWS_MAX] = {false};
    rung_run(TL_RUNG_STEP, TL_RUNG_BIT(TL_RUNG_STEP), seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated_equals_bare),
        cmocka_unit_test(in_a_slot_equals_bare),
        cmocka_unit_test(stepped_equals_bare),
    };
    cmocka_set_test_filter(getenv("TL_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

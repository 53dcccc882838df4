// Programs that use SIGTRAP, signals, threads, forks and other programs while breakpoints are in
// them, and controllers that die: exact counts, unchanged results, refusals where SIGTRAP is not
// free.
#include "put.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLS 1000 // as in hazards.c
#define THREADS 8
#define STORM_CALLS 20000
#define CHURN_ROUNDS 20
#define DETACH_ROUNDS 100
#define KILL_ROUNDS 15
#define BORROW_STEPS 16 // from the seizing to behind the first call
#define BORROW_ROUNDS 10
#define MAPPINGS_LEFT_MAX                                                                          \
    30 // of some of the last rounds, whose code a word on a stack may point into
#define ALL (TL_RUNG_BIT(TL_RUNG_SIMULATE) | TL_RUNG_BIT(TL_RUNG_SLOT) | TL_RUNG_BIT(TL_RUNG_STEP))
#define STEP TL_RUNG_BIT(TL_RUNG_STEP)

static struct put put;
static struct tl_diag diag;

static void start(struct victim *victim, const char *how)
{
    char *argv[] = {(char *)(uintptr_t)HAZARDS_PATH, (char *)(uintptr_t)how, NULL};
    victim_start_argv(victim, argv);
}

static void send(const struct victim *victim, char letter)
{
    const char line[2] = {letter, '\n'};
    assert_int_equal(write(victim->in, line, 2), 2);
}

static void tell(struct victim *victim, char letter)
{
    send(victim, letter);
    victim_await(victim);
}

static int place(const struct victim *victim, unsigned rungs)
{
    const tl_addr sites[] = {victim->one, victim->window};
    int error = put_place(&put, victim->pid, sites, 2, rungs, &diag);
    if (error)
        print_error("%s\n", diag.text);
    return error;
}

static void place_both(const struct victim *victim, unsigned rungs)
{
    assert_int_equal(place(victim, rungs), 0);
    assert_int_equal(put.results[0].refusal, TL_REFUSE_NONE);
    assert_int_equal(put.results[1].refusal, TL_REFUSE_NONE);
}

static void hits_are(uint64_t expected)
{
    assert_int_equal(hits_of(put.install, 0), expected);
    assert_int_equal(hits_of(put.install, 1), expected);
}

static bool catches_trap(pid_t pid)
{
    struct tl_proc_status status;
    assert_int_equal(tl_proc_status_read(pid, &status, NULL), 0);
    return status.sig_caught >> (SIGTRAP - 1) & 1;
}

static void finish(struct victim *victim)
{
    assert_int_equal(put_detach(&put, &diag), 0);
    assert_false(tl_traps_left(put.traps));
    assert_true(text_is_files(victim->pid));
    assert_false(catches_trap(victim->pid));
    tell(victim, 'c');
    put_close(&put);
    assert_int_equal(victim_end(victim), 0);
}

// ---- where SIGTRAP is not free

static void refused_where_sigtrap_is_not_free(void **state)
{
    (void)state;
    static const struct {
        const char *how;
        enum tl_refusal refusal;
    } cases[] = {
        {"handled", TL_REFUSE_TRAP_HANDLED},  {"ignored", TL_REFUSE_TRAP_HANDLED},
        {"masked", TL_REFUSE_TRAP_HANDLED},   {"blocked", TL_REFUSE_TRAP_HANDLED},
        {"filtered", TL_REFUSE_TRAP_SECCOMP},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct victim victim;
        start(&victim, cases[i].how);
        bool caught = catches_trap(victim.pid);
        assert_int_equal(place(&victim, ALL), 0);
        if (put.results[0].refusal != cases[i].refusal ||
            put.results[1].refusal != cases[i].refusal)
            fail_msg("%s: %s", cases[i].how, tl_refusal_text(put.results[0].refusal));
        assert_true(text_is_files(victim.pid));
        assert_int_equal(catches_trap(victim.pid), caught);
        tell(&victim, 'c');
        put_close(&put);
        assert_int_equal(victim_end(&victim), 0);
    }
}

// The program changes it later; the next look closes all, and the text is whole again.
static void closed_when_the_program_takes_sigtrap(void **state)
{
    (void)state;
    static const char letters[] = {'b', 'h', 'm'};
    for (size_t i = 0; i < sizeof letters; i++) {
        struct victim victim;
        start(&victim, "plain");
        place_both(&victim, ALL);
        tell(&victim, 'c');
        assert_int_equal(tl_traps_check(put.traps, false, put.results, &diag), 0);
        assert_int_equal(put.results[0].refusal, TL_REFUSE_NONE);
        tell(&victim, letters[i]);
        assert_int_equal(tl_traps_check(put.traps, true, put.results, &diag), 0);
        if (put.results[0].refusal != TL_REFUSE_TRAP_HANDLED ||
            put.results[1].refusal != TL_REFUSE_TRAP_HANDLED)
            fail_msg("%c is not seen", letters[i]);
        assert_true(text_is_files(victim.pid));
        tell(&victim, 'c');
        hits_are(CALLS);
        assert_int_equal(put_detach(&put, &diag), 0);
        assert_int_equal(catches_trap(victim.pid), letters[i] == 'h');
        put_close(&put);
        assert_int_equal(victim_end(&victim), 0);
    }
}

static void harmless_changes_close_nothing(void **state)
{
    (void)state;
    struct victim victim;
    start(&victim, "plain");
    place_both(&victim, ALL);
    tell(&victim, 'u');
    assert_int_equal(tl_traps_check(put.traps, true, put.results, &diag), 0);
    assert_int_equal(put.results[0].refusal, TL_REFUSE_NONE);
    tell(&victim, 'c');
    assert_int_equal(kill(victim.pid, SIGUSR1), 0);
    tell(&victim, 'c');
    hits_are(2 * CALLS + 1);
    finish(&victim);
}

// ---- what the program would have got

static void a_foreign_trap_ends_the_program_as_it_would(void **state)
{
    (void)state;
    static const char letters[] = {'i', 'k'};
    for (size_t i = 0; i < sizeof letters; i++) {
        struct victim victim;
        int status = 0;
        start(&victim, "plain");
        place_both(&victim, ALL);
        tell(&victim, 'c');
        send(&victim, letters[i]);
        assert_int_equal(waitpid(victim.pid, &status, 0), victim.pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGTRAP);
        hits_are(CALLS);
        assert_int_equal(put_detach(&put, &diag), 0);
        put_close(&put);
        close(victim.in);
        fclose(victim.out);
    }
}

// ---- threads, signals, children

static void exact_in_threads_children_and_storms(void **state)
{
    (void)state;
    static const unsigned rungs[] = {ALL, TL_RUNG_BIT(TL_RUNG_SLOT), STEP};
    for (size_t i = 0; i < TL_ARRAY_COUNT(rungs); i++) {
        struct victim victim;
        char line[64];
        int handled = 0;
        uint64_t expected = 0;
        start(&victim, "plain");
        place_both(&victim, rungs[i]);
        tell(&victim, 't');
        hits_are(expected += THREADS * CALLS);
        tell(&victim, 'f'); // a child that is not followed is silent
        hits_are(expected);
        tell(&victim, 'v');
        tell(&victim, 's');
        for (const char *letter = "oa"; *letter; letter++) {
            send(&victim, *letter);
            assert_non_null(fgets(line, sizeof line, victim.out));
            assert_int_equal(sscanf(line, "handled %d", &handled), 1);
            victim_await(&victim);
            assert_true(handled > 0);
            hits_are(expected += STORM_CALLS + (uint64_t)handled);
        }
        finish(&victim);
    }
}

static void forked_children_are_put_back_too(void **state)
{
    (void)state;
    struct victim victim;
    char line[64];
    int child = 0;
    start(&victim, "plain");
    place_both(&victim, ALL);
    send(&victim, 'p');
    assert_non_null(fgets(line, sizeof line, victim.out));
    assert_int_equal(sscanf(line, "child %d", &child), 1);
    victim_await(&victim);
    assert_false(text_is_files(child));
    assert_int_equal(put_detach(&put, &diag), 0);
    assert_int_equal(tl_traps_copies_detach(put.traps, &diag), 0);
    assert_true(text_is_files(child));
    assert_true(text_is_files(victim.pid));
    tell(&victim, 'c');
    tell(&victim, 'e');
    put_close(&put);
    assert_int_equal(victim_end(&victim), 0);
}

static void another_program_has_nothing_of_ours(void **state)
{
    (void)state;
    struct victim victim;
    start(&victim, "plain");
    place_both(&victim, ALL);
    tell(&victim, 'c');
    tell(&victim, 'x');
    assert_int_equal(tl_traps_check(put.traps, true, put.results, &diag), 1);
    assert_int_equal(put_detach(&put, &diag), 0);
    assert_false(catches_trap(victim.pid));
    tell(&victim, 'c');
    put_close(&put);
    assert_int_equal(victim_end(&victim), 0);
}

// ---- controllers that come and go

static void attached_again_and_again_under_load(void **state)
{
    (void)state;
    struct victim victim;
    victim_start(&victim, "hammer", "3");
    const char *rounds_text = getenv("TL_CHURN_ROUNDS");
    int rounds = rounds_text ? atoi(rounds_text) : CHURN_ROUNDS;
    for (int i = 0; i < rounds; i++) {
        place_both(&victim, i % 2 ? STEP : ALL & ~TL_RUNG_BIT(TL_RUNG_SIMULATE));
        for (int k = 0; k < 5000 * machine_slowness() && hits_of(put.install, 1) == 0; k++)
            usleep(200);
        assert_true(hits_of(put.install, 1) > 0);
        assert_int_equal(put_detach(&put, &diag), 0);
        assert_true(text_is_files(victim.pid));
        put_close(&put);
    }
    struct tl_maps maps;
    size_t ours = 0;
    assert_int_equal(tl_maps_read(victim.pid, &maps, NULL), 0);
    for (size_t i = 0; i < maps.count; i++)
        ours += strncmp(maps.map[i].path, "/memfd:trapless", 15) == 0;
    tl_maps_deinit(&maps);
    print_message("%zu mappings of ours are left\n", ours);
    assert_true(ours <= MAPPINGS_LEFT_MAX); // what is left does not grow with the rounds
    assert_int_equal(victim_end(&victim), 0);
}

// The only thread is stopped on its way through the handler mostly, and hardly goes on between two
// stops.
static void detached_again_and_again_from_a_thread_that_hardly_runs(void **state)
{
    (void)state;
    const struct sched_param none = {.sched_priority = 0};
    struct victim victim;
    victim_start(&victim, "alone", NULL);
    assert_int_equal(sched_setscheduler(victim.pid, SCHED_IDLE, &none), 0);
    for (int i = 0; i < DETACH_ROUNDS; i++) {
        place_both(&victim, STEP);
        assert_int_equal(put_detach(&put, &diag), 0);
        assert_true(text_is_files(victim.pid));
        put_close(&put);
        assert_int_equal(waitpid(victim.pid, NULL, WNOHANG), 0);
    }
    assert_int_equal(victim_end(&victim), 0);
}

static unsigned kill_step;

static void kill_hook(unsigned step)
{
    if (step == kill_step)
        kill(getpid(), SIGKILL);
}

// The controller's whole life, in a process of its own. Status 0: it got to the end.
static void controller_run(const struct victim *victim)
{
    int error = place(victim, STEP);
    if (!error)
        error = put_detach(&put, &diag);
    _exit(error ? 1 : 0);
}

static void restored_afterwards(struct victim *victim)
{
    struct tl_target *target = NULL;
    siginfo_t end = {.si_pid = 0};
    assert_int_equal(waitid(P_PID, (id_t)victim->pid, &end, WEXITED | WNOHANG | WNOWAIT), 0);
    if (end.si_pid)
        fail_msg("killed at step %u: the target has ended (code %d, status %d)", kill_step,
                 end.si_code, end.si_status);
    int error = tl_target_open(victim->pid, NULL, &target, &diag);
    int count = error ? error : tl_patch_detach_leftover(target, &diag);
    if (count < 0) {
        tl_target_close(target);
        fail_msg("killed at step %u: %s", kill_step, diag.text);
    }
    // A thread may have been in a slot; it leaves soon.
    for (int i = 0; i < 1000 * machine_slowness() && catches_trap(victim->pid); i++) {
        usleep(1000);
        assert_true(tl_patch_detach_leftover(target, &diag) >= 0);
    }
    tl_target_close(target);
    assert_false(catches_trap(victim->pid));
    assert_true(text_is_files(victim->pid));
    assert_int_equal(waitpid(victim->pid, NULL, WNOHANG), 0);
}

static void killed_at_every_step(void **state)
{
    (void)state;
    struct victim victim;
    victim_start(&victim, "hammer", "2");
    for (unsigned step = 0;; step += 3) {
        int status;
        kill_step = step;
        pid_t pid = fork();
        if (pid == 0) {
            tl_target_step_hook = kill_hook;
            controller_run(&victim);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        restored_afterwards(&victim);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            print_message("%u steps\n", step);
            assert_true(step > 40);
            break;
        }
    }
    assert_int_equal(victim_end(&victim), 0);
}

static void countdown_hook(unsigned step)
{
    (void)step;
    if (kill_step-- == 0)
        kill(getpid(), SIGKILL);
}

// The only thread is borrowed, and mostly it has just run into a breakpoint: its signal is still to
// come.
static void killed_while_the_borrowed_thread_traps(void **state)
{
    (void)state;
    struct victim victim;
    victim_start(&victim, "alone", NULL);
    for (unsigned i = 0; i < BORROW_STEPS * BORROW_ROUNDS; i++) {
        kill_step = i % BORROW_STEPS;
        pid_t pid = fork();
        if (pid == 0) {
            if (place(&victim, STEP) != 0)
                _exit(1);
            tl_target_step_hook = countdown_hook;
            _exit(put_detach(&put, &diag) ? 1 : 0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        restored_afterwards(&victim);
    }
    assert_int_equal(victim_end(&victim), 0);
}

static void killed_at_random_moments(void **state)
{
    (void)state;
    struct victim victim;
    const char *seed_text = getenv("TL_SEED");
    unsigned seed = seed_text ? (unsigned)atoi(seed_text) : (unsigned)time(NULL);
    print_message("TL_SEED=%u\n", seed);
    srand(seed);
    kill_step = UINT_MAX; // none that is known
    victim_start(&victim, "hammer", "3");
    for (int i = 0; i < KILL_ROUNDS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            controller_run(&victim);
        usleep((useconds_t)(rand() % (60000 * machine_slowness())));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        restored_afterwards(&victim);
    }
    assert_int_equal(victim_end(&victim), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_where_sigtrap_is_not_free),
        cmocka_unit_test(closed_when_the_program_takes_sigtrap),
        cmocka_unit_test(harmless_changes_close_nothing),
        cmocka_unit_test(a_foreign_trap_ends_the_program_as_it_would),
        cmocka_unit_test(exact_in_threads_children_and_storms),
        cmocka_unit_test(forked_children_are_put_back_too),
        cmocka_unit_test(another_program_has_nothing_of_ours),
        cmocka_unit_test(attached_again_and_again_under_load),
        cmocka_unit_test(detached_again_and_again_from_a_thread_that_hardly_runs),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(killed_while_the_borrowed_thread_traps),
        cmocka_unit_test(killed_at_random_moments),
    };
    cmocka_set_test_filter(getenv("TL_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

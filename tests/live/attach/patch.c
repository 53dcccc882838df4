// Probes put into live programs and taken out again: exact counts, unchanged results, text as in
// the file. Killing the controller at every step of it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "helper.h"
#include "victim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHURN_ROUNDS 30
#define END_ROUNDS 40
#define KILL_RANDOM_ROUNDS 25

static void put_and_count(const char *mode, const char *threads, uint64_t expected)
{
    struct victim victim;
    struct tl_target *target;
    struct tl_install *install;
    struct tl_install_result results[HAND_PLANS] = {0};
    struct tl_diag diag = {""};
    victim_start(&victim, mode, threads);
    int error = probes_put(victim.pid, &victim, &target, &install, results, &diag);
    if (error)
        print_error("%s\n", diag.text);
    assert_int_equal(error, 0);
    assert_int_equal(results[0].refusal, TL_REFUSE_NONE);
    assert_int_equal(results[1].refusal, TL_REFUSE_NONE);
    assert_false(text_is_files(victim.pid));
    assert_int_equal(tl_install_verify(install, results, NULL), 0);
    assert_int_equal(results[0].refusal, TL_REFUSE_NONE);
    victim_go(&victim);
    victim_await(&victim);
    assert_int_equal(hits_of(install, 0), expected);
    assert_int_equal(hits_of(install, 1), expected);
    struct tl_install_times times;
    probes_take(install);
    tl_install_times(install, &times);
    print_message("%s: borrowed %.2f ms, stopped %.2f ms, detach %.2f ms, %zu pages\n", mode,
                  times.borrowed_ms, times.stopped_ms, times.detach_stopped_ms,
                  times.pages_private);
    assert_true(text_is_files(victim.pid));
    tl_install_destroy(install);
    tl_target_close(target);
    assert_int_equal(victim_end(&victim), 0);
}

static void one_thread_is_counted_exactly(void **state)
{
    (void)state;
    put_and_count("exact", "1", VICTIM_CALLS);
}

static void eight_threads_are_counted_exactly(void **state)
{
    (void)state;
    put_and_count("exact", "8", UINT64_C(8) * VICTIM_CALLS);
}

static void more_threads_than_slots_are_counted_exactly(void **state)
{
    (void)state;
    put_and_count("exact", "250", UINT64_C(250) * VICTIM_CALLS);
}

static void churn_under_threads_that_check_results(void **state)
{
    (void)state;
    struct victim victim;
    struct tl_diag diag = {""};
    victim_start(&victim, "hammer", "8");
    const char *rounds_text = getenv("TL_CHURN_ROUNDS");
    int rounds = rounds_text ? atoi(rounds_text) : CHURN_ROUNDS;
    for (int i = 0; i < rounds; i++) {
        struct tl_target *target;
        struct tl_install *install;
        struct tl_install_result results[HAND_PLANS] = {0};
        int error = probes_put(victim.pid, &victim, &target, &install, results, &diag);
        if (error)
            print_error("round %d: %s\n", i, diag.text);
        assert_int_equal(error, 0);
        assert_int_equal(results[0].refusal, TL_REFUSE_NONE);
        for (int k = 0; k < 1000 * machine_slowness() && hits_of(install, 0) == 0; k++)
            usleep(100);
        assert_true(hits_of(install, 0) > 0);
        probes_take(install);
        assert_true(text_is_files(victim.pid));
        tl_install_destroy(install);
        tl_target_close(target);
    }
    struct tl_maps maps;
    size_t ours = 0;
    assert_int_equal(tl_maps_read(victim.pid, &maps, NULL), 0);
    for (size_t i = 0; i < maps.count; i++)
        ours += strncmp(maps.map[i].path, "/memfd:trapless", 15) == 0;
    assert_true(ours <= 3 * 4); // what is left does not grow with the rounds
    tl_maps_deinit(&maps);
    assert_int_equal(victim_end(&victim), 0);
}

// ---- a controller that dies
// -------------------------------------------------------------------------

static unsigned kill_step;

static void kill_hook(unsigned step)
{
    if (step == kill_step)
        kill(getpid(), SIGKILL);
}

// The controller's whole life, in a process of its own. Status 0: it got to the end.
static void controller_run(const struct victim *victim)
{
    struct tl_target *target;
    struct tl_install *install;
    struct tl_install_result results[HAND_PLANS] = {0};
    struct tl_diag diag = {""};
    int error = probes_put(victim->pid, victim, &target, &install, results, &diag);
    if (!error)
        error = tl_install_detach(install, &diag);
    if (error)
        print_error("controller: %s\n", diag.text);
    _exit(error ? 1 : 0);
}

static void restored_afterwards(struct victim *victim)
{
    struct tl_target *target;
    struct tl_diag diag = {""};
    int error = tl_target_open(victim->pid, NULL, &target, &diag);
    int count = error ? error : tl_patch_detach_leftover(target, &diag);
    if (count < 0)
        print_error("%s\n", diag.text);
    assert_true(count >= 0);
    tl_target_close(target);
    assert_true(text_is_files(victim->pid));
    assert_int_equal(waitpid(victim->pid, NULL, WNOHANG), 0);
}

static void killed_at_every_step(void **state)
{
    (void)state;
    struct victim victim;
    victim_start(&victim, "hammer", "3");
    // Where the machine is slow, some of them.
    for (unsigned step = 0;; step += (unsigned)machine_slowness()) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            kill_step = step;
            tl_target_step_hook = kill_hook;
            controller_run(&victim);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (step % 50 == 0)
            print_message("step %u\n", step);
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

static void killed_at_random_moments(void **state)
{
    (void)state;
    struct victim victim;
    const char *rounds_text = getenv("TL_KILL_ROUNDS"), *seed_text = getenv("TL_SEED");
    int rounds = rounds_text ? atoi(rounds_text) : KILL_RANDOM_ROUNDS;
    unsigned seed = seed_text ? (unsigned)atoi(seed_text) : (unsigned)time(NULL);
    print_message("TL_SEED=%u\n", seed);
    srand(seed);
    victim_start(&victim, "hammer", "3");
    for (int i = 0; i < rounds; i++) {
        pid_t pid = fork();
        if (pid == 0)
            controller_run(&victim);
        usleep((useconds_t)(rand() % 40000));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        restored_afterwards(&victim);
    }
    assert_int_equal(victim_end(&victim), 0);
}

// ---- others write too
// -------------------------------------------------------------------------------

static void poke(pid_t pid, tl_addr addr, const void *bytes, size_t size)
{
    char path[64];
    int status;
    (void)snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    // As a debugger does: Linux 6.12 and later may let only tracers write into text.
    assert_int_equal(ptrace(PTRACE_SEIZE, pid, 0, 0), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, pid, 0, 0), 0);
    assert_int_equal(waitpid(pid, &status, __WALL), pid);
    assert_int_equal(pwrite(fd, bytes, size, (off_t)addr), size);
    assert_int_equal(ptrace(PTRACE_DETACH, pid, 0, 0), 0);
    close(fd);
}

static void a_strangers_breakpoint_closes_the_site(void **state)
{
    (void)state;
    struct victim victim;
    struct tl_target *target;
    struct tl_install *install;
    struct tl_install_result results[HAND_PLANS] = {0};
    struct tl_diag diag = {""};
    uint8_t now[8], before[8];
    victim_start(&victim, "exact", "1");
    poke(victim.pid, victim.one, "", 0);
    const size_t size = sizeof STRANGER_BREAKPOINT - 1, jump_size = sizeof STRANGER_JUMP - 1;
    int fd_error = probes_put(victim.pid, &victim, &target, &install, results, &diag);
    assert_int_equal(fd_error, 0);
    assert_int_equal(install->writes.write[0].patch.addr, victim.one);
    assert_int_equal(tl_target_read(target, victim.one, before, jump_size, NULL), 0); // ours
    poke(victim.pid, victim.one, STRANGER_BREAKPOINT, size);
    assert_int_equal(tl_install_verify(install, results, &diag), 0);
    assert_int_equal(results[0].refusal, TL_REFUSE_CHANGED_BYTES);
    assert_int_equal(results[1].refusal, TL_REFUSE_NONE);
    assert_int_equal(tl_target_read(target, victim.one, now, jump_size, NULL), 0);
    assert_memory_equal(now, STRANGER_BREAKPOINT, size); // theirs
    for (size_t i = size; i < jump_size; i++)
        assert_int_equal(now[i], install->writes.write[0].patch.before[i]);
    poke(victim.pid, victim.one, before, size); // and they put back what they found: ours
    assert_int_equal(tl_install_verify(install, results, &diag), 0);
    assert_int_equal(tl_target_read(target, victim.one, now, jump_size, NULL), 0);
    assert_memory_equal(now, install->writes.write[0].patch.before, jump_size);
    // A stranger's whole jump is not touched, though its first byte may equal ours.
    poke(victim.pid, victim.window, STRANGER_JUMP, jump_size);
    assert_int_equal(tl_install_verify(install, results, &diag), 0);
    assert_int_equal(results[1].refusal, TL_REFUSE_CHANGED_BYTES);
    probes_take(install);
    assert_int_equal(tl_target_read(target, victim.window, now, jump_size, NULL), 0);
    assert_memory_equal(now, STRANGER_JUMP, jump_size);
    tl_install_destroy(install);
    tl_target_close(target);
    victim_kill(&victim);
}

static void changed_text_is_not_written(void **state)
{
    (void)state;
    struct victim victim;
    struct tl_target *target;
    struct tl_install *install;
    struct tl_install_result results[HAND_PLANS] = {0};
    const struct tl_install_options options = {.probe_count = HAND_PLANS};
    struct hand_plan hand;
    struct tl_diag diag = {""};
    uint8_t now[sizeof STRANGER_BREAKPOINT];
    const size_t size = sizeof STRANGER_BREAKPOINT - 1;
    victim_start(&victim, "exact", "1");
    assert_int_equal(tl_target_open(victim.pid, NULL, &target, &diag), 0);
    assert_int_equal(tl_install_prepare(target, &options, &install, &diag), 0);
    assert_int_equal(hand_plan_make(target, install, &victim, NULL, &hand), 0);
    poke(victim.pid, victim.one, STRANGER_BREAKPOINT, size);
    assert_int_equal(tl_install_commit_input(install, &hand.input, results, &diag), 0);
    assert_int_equal(results[0].refusal, TL_REFUSE_CHANGED_BYTES);
    assert_int_equal(results[1].refusal, TL_REFUSE_NONE);
    assert_int_equal(tl_target_read(target, victim.one, now, size, NULL), 0);
    assert_memory_equal(now, STRANGER_BREAKPOINT, size);
    probes_take(install);
    tl_install_destroy(install);
    tl_target_close(target);
    victim_kill(&victim);
}

static void a_second_controller_is_told(void **state)
{
    (void)state;
    struct victim victim;
    struct tl_target *target, *second;
    struct tl_diag diag = {""};
    victim_start(&victim, "exact", "1");
    assert_int_equal(tl_target_open(victim.pid, NULL, &target, &diag), 0);
    assert_int_equal(tl_target_open(victim.pid, NULL, &second, &diag), TL_E_BUSY);
    assert_non_null(strstr(diag.text, "another trapless"));
    tl_target_close(target);
    assert_int_equal(tl_target_open(victim.pid, NULL, &second, &diag), 0);
    tl_target_close(second);
    victim_kill(&victim);
}

// A process that shares memory and thread pointer with its parent: the shared block counts.
static void one_thread_pointer_in_two_tasks(void **state)
{
    (void)state;
    struct victim victim;
    struct tl_target *target;
    struct tl_install *install;
    struct tl_install_result results[HAND_PLANS] = {0};
    struct tl_diag diag = {""};
    victim_start(&victim, "clone", NULL);
    int error = probes_put(victim.pid, &victim, &target, &install, results, &diag);
    if (error)
        print_error("%s\n", diag.text);
    assert_int_equal(error, 0);
    assert_int_equal(install->thread_pointer, TL_TP_SHARED);
    for (int k = 0; k < 1000 * machine_slowness() && hits_of(install, 0) == 0; k++)
        usleep(1000);
    assert_true(hits_of(install, 0) > 0);
    probes_take(install);
    assert_true(text_is_files(victim.pid));
    tl_install_destroy(install);
    tl_target_close(target);
    assert_int_equal(victim_end(&victim), 0);
}

// Forked children run the probes silently: the parent alone is counted.
static void forked_children_are_silent(void **state)
{
    (void)state;
    struct victim victim;
    struct tl_target *target;
    struct tl_install *install;
    struct tl_install_result results[HAND_PLANS] = {0};
    struct tl_diag diag = {""};
    victim_start(&victim, "fork", NULL);
    assert_int_equal(probes_put(victim.pid, &victim, &target, &install, results, &diag), 0);
    victim_await(&victim);
    assert_true(hits_of(install, 0) > 0 && hits_of(install, 0) <= 300);
    probes_take(install);
    assert_true(text_is_files(victim.pid));
    tl_install_destroy(install);
    tl_target_close(target);
    assert_int_equal(victim_end(&victim), 0);
}

// Killed in the middle of a look: what can't be read any more was not unloaded or changed.
static void a_target_that_ends_under_a_look_has_changed_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < END_ROUNDS; i++) {
        struct victim victim;
        struct tl_target *target;
        struct tl_install *install;
        struct tl_install_result results[HAND_PLANS] = {0};
        struct tl_diag diag = {""};
        victim_start(&victim, "hammer", "1");
        assert_int_equal(probes_put(victim.pid, &victim, &target, &install, results, &diag), 0);
        struct tl_install_result put[HAND_PLANS]; // a word on a stack may have kept one out
        int looks[2], gone = 0;
        char byte;
        memcpy(put, results, sizeof put);
        assert_int_equal(pipe(looks), 0);
        pid_t killer = fork();
        if (killer == 0) { // in the middle of the looks, a little later each time
            for (int k = 0; k <= i; k++)
                (void)!read(looks[0], &byte, 1);
            _exit(kill(victim.pid, SIGKILL));
        }
        while (!gone) {
            (void)!write(looks[1], "", 1);
            gone = tl_install_verify(install, results, &diag);
        }
        assert_true(gone == 1 || gone == TL_E_GONE);
        for (int k = 0; k < HAND_PLANS; k++)
            assert_int_equal(results[k].refusal, put[k].refusal);
        assert_int_equal(waitpid(killer, NULL, 0), killer);
        close(looks[0]);
        close(looks[1]);
        tl_install_destroy(install);
        tl_target_close(target);
        victim_kill(&victim);
    }
}

static void counts_are_read_after_a_crash(void **state)
{
    (void)state;
    struct victim victim;
    struct tl_target *target;
    struct tl_install *install;
    struct tl_install_result results[HAND_PLANS] = {0};
    struct tl_diag diag = {""};
    victim_start(&victim, "spin", NULL);
    assert_int_equal(probes_put(victim.pid, &victim, &target, &install, results, &diag), 0);
    for (int k = 0; k < 1000 * machine_slowness() && hits_of(install, 0) == 0; k++)
        usleep(1000);
    victim_kill(&victim);
    assert_true(hits_of(install, 0) > 0);
    assert_false(tl_target_alive(target));
    assert_int_equal(tl_install_verify(install, results, &diag), TL_E_GONE);
    probes_take(install);
    tl_install_destroy(install);
    tl_target_close(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_is_counted_exactly),
        cmocka_unit_test(eight_threads_are_counted_exactly),
        cmocka_unit_test(more_threads_than_slots_are_counted_exactly),
        cmocka_unit_test(churn_under_threads_that_check_results),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(killed_at_random_moments),
        cmocka_unit_test(a_strangers_breakpoint_closes_the_site),
        cmocka_unit_test(changed_text_is_not_written),
        cmocka_unit_test(a_second_controller_is_told),
        cmocka_unit_test(one_thread_pointer_in_two_tasks),
        cmocka_unit_test(forked_children_are_silent),
        cmocka_unit_test(counts_are_read_after_a_crash),
        cmocka_unit_test(a_target_that_ends_under_a_look_has_changed_nothing),
    };
    cmocka_set_test_filter(getenv("TL_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

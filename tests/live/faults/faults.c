// Faults of probed programs: what handler and caller see is what a bare run shows, at every way to
// jump, for handlers that skip, fix and retry, jump out, nest; and hits are one an attempt.
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "session/session.h"

#define LINE_SIZE 512
#define POLLS_MAX 2000 // of 5 ms, for the session to notice

struct victim {
    pid_t pid;
    int in;
    FILE *out;
};

static void victim_line(struct victim *victim, char line[LINE_SIZE])
{
    if (!fgets(line, LINE_SIZE, victim->out)) {
        int status = 0;
        waitpid(victim->pid, &status, 0);
        fail_msg("the victim ended with status %#x", (unsigned)status);
    }
    line[strcspn(line, "\n")] = '\0';
}

static void victim_start(struct victim *victim, const char *path)
{
    int in[2], out[2];
    char line[LINE_SIZE];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    victim->pid = fork();
    if (victim->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        // The heap right behind the program, so that puns find the same memory free in every run.
        (void)personality(ADDR_NO_RANDOMIZE);
        execl(path, path, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    victim->in = in[1];
    victim->out = fdopen(out[0], "r");
    victim_line(victim, line);
    assert_string_equal(line, "ready");
}

static void victim_end(struct victim *victim)
{
    int status = -1;
    close(victim->in);
    assert_int_equal(waitpid(victim->pid, &status, 0), victim->pid);
    assert_int_equal(status, 0);
    fclose(victim->out);
}

static void ask(struct victim *victim, char line[LINE_SIZE], const char *format, ...)
{
    char command[LINE_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(write(victim->in, command, strlen(command)), (ssize_t)strlen(command));
    assert_int_equal(write(victim->in, "\n", 1), 1);
    victim_line(victim, line);
}

static struct tl_session *attach(const struct victim *victim, const char *const *probes,
                                 size_t count)
{
    struct tl_session_options options = {
        .size = sizeof options, .pid = victim->pid, .method = TL_METHOD_JUMP};
    struct tl_session *session = NULL;
    struct tl_diag diag = {{0}};
    int error = tl_session_create(&options, &session, &diag);
    for (size_t i = 0; !error && i < count; i++) {
        int matched = tl_session_add(session, probes[i], &diag);
        error = matched == 1 ? 0 : -1;
    }
    if (!error)
        error = tl_session_attach(session, &diag);
    if (error)
        fail_msg("attach: %s", diag.text);
    return session;
}

static void detach(struct tl_session *session)
{
    struct tl_diag diag = {{0}};
    if (tl_session_detach(session, &diag))
        fail_msg("detach: %s", diag.text);
    tl_session_destroy(session);
}

// ---- every way, every handler -------------------------------------------------------------------

// A form, the way its probe is to take, and what the handler does.
static const struct row {
    const char *form, *probe, *way;
    const char *what;
    unsigned hits; // of one call
} rows[] = {
    {"one_load", "one_load", "one", "skip", 1},
    {"one_load", "one_load", "one", "fix", 2},
    {"one_load", "one_load", "one", "jump", 1},
    {"one_load", "one_load", "one", "nest", 1},
    {"pun_load", "pun_load", "pun", "skip", 1},
    {"pun_load", "pun_load", "pun", "fix", 2},
    {"pun_load", "pun_load", "pun", "jump", 1},
    {"pun_divide", "pun_divide", "pun", "skip", 1},
    {"pun_divide", "pun_divide", "pun", "fix", 2},
    {"pun_divide", "pun_divide", "pun", "nest", 1},
    {"island_load", "island_load", "island", "skip", 1},
    {"island_load", "island_load", "island", "fix", 2},
    {"island_load", "island_load", "island", "jump", 1},
    {"bus_load", "one_load", "one", "skip", 1},
    {"bus_pun", "pun_load", "pun", "jump", 1},
    {"bus_island", "island_load", "island", "skip", 1},
    {"one_call", "one_call+1", "one", "skip", 1},
    {"one_call", "one_call+1", "one", "fix", 2},
    {"one_unknown", "one_unknown", "one", "skip", 1},
    {"one_unknown", "one_unknown", "one", "jump", 1},
    {"pun_later", "pun_later", "pun", "skip", 1},
    {"pun_later", "pun_later", "pun", "fix", 1},
    {"window_later", "window_later", "window", "skip", 1},
    {"window_later", "window_later", "window", "fix", 1}, // goes on in the copy
    {"window_later", "window_later", "window", "jump", 1},
    {"window_first", "window_first", "window", "skip", 1},
    {"window_first", "window_first", "window", "fix", 2},
};
#define ROW_COUNT (sizeof rows / sizeof *rows)

static const char *const probes[] = {"one_load",     "pun_load",     "pun_divide",
                                     "island_load",  "one_call+1",   "one_unknown",
                                     "pun_later",    "window_later", "window_first"};
#define PROBE_COUNT (sizeof probes / sizeof *probes)

static const struct tl_site_report *site_of(struct tl_session *session, const char *probe)
{
    for (size_t i = 0; i < tl_session_site_count(session); i++) {
        char name[64];
        const struct tl_site_report *site = tl_session_site(session, i);
        const char *colon = strrchr(site->probe, ':');
        (void)snprintf(name, sizeof name, "%s", colon ? colon + 1 : site->probe);
        char *plus = strstr(name, "+0x");
        if (plus)
            memmove(plus + 1, plus + 3, strlen(plus + 3) + 1);
        if (strcmp(name, probe) == 0)
            return site;
    }
    fail_msg("no site %s", probe);
    return NULL;
}

// way "": refused for its faults.
static void way_is(struct tl_session *session, const char *probe, const char *way)
{
    const struct tl_site_report *site = site_of(session, probe);
    if (*way) {
        if (site->rung != TL_RUNG_JUMP || !strstr(site->window, way))
            fail_msg("%s: %s, %s, not %s", probe, site->window, site->reason, way);
    } else if (site->rung != TL_RUNG_REFUSED || site->refusal != TL_REFUSE_FAULT_DISPLACED) {
        fail_msg("%s: %s, %s, not refused for its faults", probe, site->window, site->reason);
    }
}

static uint64_t hits_of(struct tl_session *session, const char *probe)
{
    struct tl_diag diag = {{0}};
    if (tl_session_poll(session, &diag))
        fail_msg("poll: %s", diag.text);
    return site_of(session, probe)->hits;
}

// One victim under one kind of handler: bare first, then probed, then bare again.
static void rows_run(const char *path, const char *install, bool ways)
{
    struct victim victim;
    char bare[ROW_COUNT][LINE_SIZE], line[LINE_SIZE];
    victim_start(&victim, path);
    ask(&victim, line, "install %s", install);
    for (size_t i = 0; i < ROW_COUNT; i++)
        ask(&victim, bare[i], "call %s %s", rows[i].form, rows[i].what);
    struct tl_session *session = attach(&victim, probes, PROBE_COUNT);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (ways)
            way_is(session, rows[i].probe, rows[i].way);
        uint64_t before = hits_of(session, rows[i].probe);
        ask(&victim, line, "call %s %s", rows[i].form, rows[i].what);
        assert_string_equal(line, bare[i]);
        // A nested fault is one of another probe; the other program's windows are puns.
        if (ways || strcmp(rows[i].way, "window") != 0)
            assert_int_equal(hits_of(session, rows[i].probe) - before, rows[i].hits);
    }
    detach(session);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        ask(&victim, line, "call %s %s", rows[i].form, rows[i].what);
        assert_string_equal(line, bare[i]);
    }
    victim_end(&victim);
}

static void faults_are_shown_at_their_own_address(void **state)
{
    (void)state;
    rows_run(VICTIM_PATH, "plain s", true);
}

static void faults_are_shown_on_an_alternate_stack(void **state)
{
    (void)state;
    rows_run(VICTIM_PATH, "other sa", true);
}

static void faults_nest(void **state)
{
    (void)state;
    rows_run(VICTIM_PATH, "plain san", true);
}

static void faults_are_shown_to_handlers_without_info(void **state)
{
    (void)state;
    rows_run(VICTIM_PATH, "plain a", true);
}

static void faults_are_shown_to_compiled_handlers(void **state)
{
    (void)state;
    rows_run(VICTIM_PIE_PATH, "plain sc", false);
}

// ---- others -------------------------------------------------------------------------------------

static void faults_in_a_child_are_shown_and_not_counted(void **state)
{
    struct victim victim;
    char bare[LINE_SIZE], line[LINE_SIZE];
    (void)state;
    victim_start(&victim, VICTIM_PATH);
    ask(&victim, line, "install plain s");
    ask(&victim, bare, "fork pun_load fix");
    struct tl_session *session = attach(&victim, probes, PROBE_COUNT);
    ask(&victim, line, "fork pun_load fix");
    assert_string_equal(line, bare);
    ask(&victim, line, "fork one_load skip");
    assert_non_null(strstr(line, "faults 1 sig 11 pc +0 sp -8"));
    assert_int_equal(hits_of(session, "pun_load"), 0);
    detach(session);
    victim_end(&victim);
}

static void a_handler_called_as_a_function_does_no_harm(void **state)
{
    struct victim victim;
    char bare[LINE_SIZE], line[LINE_SIZE];
    static const char *const both[] = {"pun_load", "handler_plain", "handler_other"};
    (void)state;
    for (size_t count = 1; count <= 3; count += 2) { // with people's probes on them, and without
        victim_start(&victim, VICTIM_PATH);
        ask(&victim, line, "install other s");
        ask(&victim, line, "install plain sd"); // two handlers
        ask(&victim, bare, "direct");
        struct tl_session *session = attach(&victim, both, count);
        assert_int_equal(tl_session_site_count(session), count); // guards are not shown
        ask(&victim, line, "direct");
        assert_string_equal(line, bare);
        uint64_t calls = strtoull(bare + strlen("direct: "), NULL, 10);
        if (count == 3) {
            assert_int_equal(hits_of(session, "handler_plain"), calls / 3);
            ask(&victim, line, "call pun_divide skip");
            assert_non_null(strstr(line, "faults 1 sig 8 pc +0 sp -8"));
            assert_int_equal(hits_of(session, "handler_plain"), calls / 3 + 1);
            assert_int_equal(hits_of(session, "handler_other"), calls / 3);
        }
        detach(session);
        victim_end(&victim);
    }
}

static void refusal_await(struct tl_session *session, const char *probe)
{
    for (int i = 0; i < POLLS_MAX; i++) {
        struct tl_diag diag = {{0}};
        if (tl_session_poll(session, &diag))
            fail_msg("poll: %s", diag.text);
        if (site_of(session, probe)->refusal == TL_REFUSE_FAULT_DISPLACED)
            return;
        (void)poll(NULL, 0, 5);
    }
    fail_msg("%s is still open", probe);
}

// Handlers come after the attach: each gets a guard, windows that can fault are closed, all else
// goes on counting. handler: which; probed: a person has a probe there already.
static void late_run(const char *path, const char *handler, bool probed, bool window)
{
    struct victim victim;
    char line[LINE_SIZE], bare[LINE_SIZE];
    static const char *const late[] = {"one_load", "pun_load", "pun_divide", "window_later",
                                       "handler_late"};
    victim_start(&victim, path);
    struct tl_session *session = attach(&victim, late, probed ? 5 : 4);
    if (window)
        assert_non_null(strstr(site_of(session, "window_later")->window, "window"));
    ask(&victim, line, "install %s", handler);
    if (window)
        refusal_await(session, "window_later");
    else
        (void)hits_of(session, "one_load"); // the next look finds it
    const char *const forms[] = {"one_load", "pun_load", "pun_divide", "window_later"};
    for (size_t i = 0; i < 4; i++) {
        bool lives = i < 3 || !window;
        ask(&victim, line, "call %s skip", forms[i]);
        assert_non_null(strstr(line, "faults 1"));
        assert_non_null(strstr(line, "pc +0 sp -8"));
        if (lives) {
            assert_int_equal(site_of(session, forms[i])->refusal, TL_REFUSE_NONE);
            assert_int_equal(hits_of(session, forms[i]), 1);
        }
    }
    if (probed)
        assert_int_equal(hits_of(session, "handler_late"), 4);
    ask(&victim, bare, "call pun_divide fix");
    detach(session);
    ask(&victim, line, "call pun_divide fix");
    assert_string_equal(line, bare);
    victim_end(&victim);
}

static void a_later_handler_is_guarded(void **state)
{
    (void)state;
    late_run(VICTIM_PATH, "late s", false, true);
}

static void a_later_handler_that_is_probed_goes_on_counting(void **state)
{
    (void)state;
    late_run(VICTIM_PATH, "late s", true, true);
}

static void a_later_compiled_handler_is_guarded(void **state)
{
    (void)state;
    late_run(VICTIM_PIE_PATH, "late sc", false, false);
}

// Nothing that can fault is displaced: its faults happen at their own addresses.
static void a_handler_that_no_probe_can_guard_keeps_faults_in_place(void **state)
{
    struct victim victim;
    char bare[ROW_COUNT][LINE_SIZE], line[LINE_SIZE];
    (void)state;
    victim_start(&victim, VICTIM_PATH);
    ask(&victim, line, "install plain sm");
    for (size_t i = 0; i < ROW_COUNT; i++)
        ask(&victim, bare[i], "call %s %s", rows[i].form, rows[i].what);
    struct tl_session *session = attach(&victim, probes, PROBE_COUNT);
    way_is(session, "one_load", "");
    way_is(session, "pun_divide", "");
    way_is(session, "window_first", "");
    way_is(session, "window_later", "");
    way_is(session, "pun_later", "pun");
    for (size_t i = 0; i < ROW_COUNT; i++) {
        ask(&victim, line, "call %s %s", rows[i].form, rows[i].what);
        assert_string_equal(line, bare[i]);
    }
    detach(session);
    victim_end(&victim);
}

// Such a handler comes later: what can fault is closed.
static void a_later_handler_that_no_probe_can_guard_closes_probes(void **state)
{
    struct victim victim;
    char line[LINE_SIZE];
    (void)state;
    victim_start(&victim, VICTIM_PATH);
    struct tl_session *session = attach(&victim, probes, PROBE_COUNT);
    ask(&victim, line, "install plain sm");
    refusal_await(session, "one_load");
    assert_int_equal(site_of(session, "pun_later")->refusal, TL_REFUSE_NONE);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        ask(&victim, line, "call %s jump", rows[i].form);
        assert_non_null(strstr(line, " pc +0 "));
    }
    assert_int_equal(site_of(session, "one_load")->hits, 0);
    assert_true(hits_of(session, "pun_later") > 0);
    detach(session);
    victim_end(&victim);
}

// First one for divisions, then another for the rest.
static void handlers_come_one_after_the_other(void **state)
{
    struct victim victim;
    char line[LINE_SIZE];
    static const char *const two[] = {"pun_load", "pun_divide"};
    (void)state;
    victim_start(&victim, VICTIM_PATH);
    ask(&victim, line, "install plain sd");
    struct tl_session *session = attach(&victim, two, 2);
    ask(&victim, line, "call pun_divide skip");
    assert_non_null(strstr(line, "faults 1 sig 8 pc +0 sp -8"));
    ask(&victim, line, "install other s");
    (void)hits_of(session, "pun_load");
    ask(&victim, line, "call pun_load fix");
    assert_non_null(strstr(line, "faults 1 sig 11 pc +0 sp -8"));
    assert_int_equal(hits_of(session, "pun_load"), 2);
    detach(session);
    victim_end(&victim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_shown_at_their_own_address),
        cmocka_unit_test(faults_are_shown_on_an_alternate_stack),
        cmocka_unit_test(faults_nest),
        cmocka_unit_test(faults_are_shown_to_handlers_without_info),
        cmocka_unit_test(faults_are_shown_to_compiled_handlers),
        cmocka_unit_test(faults_in_a_child_are_shown_and_not_counted),
        cmocka_unit_test(a_handler_called_as_a_function_does_no_harm),
        cmocka_unit_test(a_later_handler_is_guarded),
        cmocka_unit_test(a_later_handler_that_is_probed_goes_on_counting),
        cmocka_unit_test(a_later_compiled_handler_is_guarded),
        cmocka_unit_test(a_handler_that_no_probe_can_guard_keeps_faults_in_place),
        cmocka_unit_test(a_later_handler_that_no_probe_can_guard_closes_probes),
        cmocka_unit_test(handlers_come_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

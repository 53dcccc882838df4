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

#include "rows.h"
#include "session/session.h"

#define LINE_SIZE 512
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define OTHER_SEEN "faults 1 sig " TEXT(OTHER_SIGNAL) " pc +0 sp +0"
#define ATTACH_TRIES_MAX 50
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

static int attach_once(const struct victim *victim, const char *const *probes, size_t count,
                       struct tl_session **session, struct tl_diag *diag)
{
    struct tl_session_options options = {
        .size = sizeof options, .pid = victim->pid, .method = TL_METHOD_JUMP};
    int error = tl_session_create(&options, session, diag);
    for (size_t i = 0; !error && i < count; i++) {
        int matched = tl_session_add(*session, probes[i], diag);
        error = matched == 1 ? 0 : -1;
    }
    return error ? error : tl_session_attach(*session, diag);
}

static struct tl_session *attach(const struct victim *victim, const char *const *probes,
                                 size_t count)
{
    struct tl_session *session = NULL;
    struct tl_diag diag = {{0}};
    int error = TL_E_BUSY; // so is a machine that is too busy to stop it in time
    for (int i = 0; error == TL_E_BUSY && i < ATTACH_TRIES_MAX; i++) {
        tl_session_destroy(session);
        session = NULL;
        error = attach_once(victim, probes, count, &session, &diag);
    }
    if (error)
        fail_msg("attach: %s", diag.text);
    return session;
}

static void detach(struct tl_session *session)
{
    struct tl_diag diag = {{0}};
    int error = TL_E_BUSY;
    for (int i = 0; error == TL_E_BUSY && i < ATTACH_TRIES_MAX; i++)
        error = tl_session_detach(session, &diag);
    if (error)
        fail_msg("detach: %s", diag.text);
    tl_session_destroy(session);
}

// ---- every way, every handler -------------------------------------------------------------------

static const struct probe {
    const char *name, *way, *unguarded_way;
} probe_table[] = {
#define PROBE(name, way, unguarded_way) {name, way, unguarded_way},
    PROBES(PROBE)
#undef PROBE
};
#define PROBE_COUNT (sizeof probe_table / sizeof *probe_table)
static const char *const probes[] = {
#define PROBE(name, way, unguarded_way) name,
    PROBES(PROBE)
#undef PROBE
};

// A form, its probe, what the handler does, and hits of one call.
static const struct row {
    const char *form, *probe, *what;
    unsigned hits;
} rows[] = {
#define ROW(form, probe, what, hits) {form, probe, what, hits},
    ROWS(ROW)
#undef ROW
};
#define ROW_COUNT (sizeof rows / sizeof *rows)

static const struct probe *probe_find(const char *name)
{
    for (size_t i = 0; i < PROBE_COUNT; i++) {
        if (strcmp(probe_table[i].name, name) == 0)
            return &probe_table[i];
    }
    fail_msg("no probe %s", name);
    return NULL;
}

static const struct tl_site_report *site_of(struct tl_session *session, const char *probe)
{
    for (size_t i = 0; i < tl_session_site_count(session); i++) {
        char name[64];
        const struct tl_site_report *site = tl_session_site(session, i);
        const char *colon = strrchr(site->probe, ':');
        (void)snprintf(name, sizeof name, "%s", colon ? colon + 1 : site->probe);
        char *plus = strstr(name, "+0x");
        if (plus)
            (void)sprintf(plus + 1, "%lu", strtoul(plus + 3, NULL, 16));
        if (strcmp(name, probe) == 0)
            return site;
    }
    fail_msg("no site %s", probe);
    return NULL;
}

// way "": refused for its faults; "-": refused.
static void way_is(struct tl_session *session, const char *probe, const char *way)
{
    const struct tl_site_report *site = site_of(session, probe);
    if (strcmp(way, "-") == 0) {
        assert_int_equal(site->rung, TL_RUNG_REFUSED);
    } else if (*way) {
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

// One victim under one kind of handler: bare first, then probed, then bare again. window: how a window is taken there;
// NULL: ways are not looked at.
static void rows_run(const char *path, const char *install, const char *window)
{
    struct victim victim;
    char bare[ROW_COUNT][LINE_SIZE], line[LINE_SIZE];
    victim_start(&victim, path);
    ask(&victim, line, "install %s", install);
    for (size_t i = 0; i < ROW_COUNT; i++)
        ask(&victim, bare[i], "call %s %s", rows[i].form, rows[i].what);
    struct tl_session *session = attach(&victim, probes, PROBE_COUNT);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const struct probe *probe = probe_find(rows[i].probe);
        bool is_window = strcmp(probe->way, "window") == 0;
        if (window)
            way_is(session, rows[i].probe, is_window ? window : probe->way);
        uint64_t before = hits_of(session, rows[i].probe);
        ask(&victim, line, "call %s %s", rows[i].form, rows[i].what);
        assert_string_equal(line, bare[i]);
        // A nested fault is one of another probe; the other program's windows are puns.
        if (window || !is_window)
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
    rows_run(VICTIM_PATH, "plain s", "window");
}

static void faults_are_shown_on_an_alternate_stack(void **state)
{
    (void)state;
    rows_run(VICTIM_PATH, "other sa", "window");
}

static void faults_nest(void **state)
{
    (void)state;
    rows_run(VICTIM_PATH, "plain san", "window");
}

static void faults_are_shown_to_handlers_without_info(void **state)
{
    (void)state;
    rows_run(VICTIM_PATH, "plain a", "window");
}

static void faults_are_shown_to_compiled_handlers(void **state)
{
    (void)state;
    rows_run(VICTIM_PIE_PATH, "plain sc", COMPILED_WINDOW);
}

// ---- others -------------------------------------------------------------------------------------

static void faults_in_a_child_are_shown_and_not_counted(void **state)
{
    struct victim victim;
    char bare[LINE_SIZE], line[LINE_SIZE];
    (void)state;
    victim_start(&victim, VICTIM_PATH);
    ask(&victim, line, "install plain s");
    ask(&victim, bare, "fork " FORM_LOAD " fix");
    struct tl_session *session = attach(&victim, probes, PROBE_COUNT);
    ask(&victim, line, "fork " FORM_LOAD " fix");
    assert_string_equal(line, bare);
    ask(&victim, line, "fork one_load skip");
    assert_non_null(strstr(line, "faults 1 sig 11 pc +0 sp +0"));
    assert_int_equal(hits_of(session, FORM_LOAD), 0);
    detach(session);
    victim_end(&victim);
}

static void a_handler_called_as_a_function_does_no_harm(void **state)
{
    struct victim victim;
    char bare[LINE_SIZE], line[LINE_SIZE];
    static const char *const both[] = {FORM_LOAD, "handler_plain", "handler_other"};
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
            ask(&victim, line, "call " FORM_OTHER " skip");
            assert_non_null(strstr(line, OTHER_SEEN));
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
static void late_run(const char *path, const char *handler, bool probed, bool windows)
{
    struct victim victim;
    char line[LINE_SIZE], bare[LINE_SIZE];
#define LATE_NAME(name) name,
    static const char *const late[] = {LATE(LATE_NAME) "handler_late"};
#undef LATE_NAME
    const size_t count = sizeof late / sizeof *late - 1;
    bool window = windows && *LATE_WINDOW;
    victim_start(&victim, path);
    struct tl_session *session = attach(&victim, late, probed ? count + 1 : count);
    if (window)
        assert_non_null(strstr(site_of(session, LATE_WINDOW)->window, "window"));
    ask(&victim, line, "install %s", handler);
    if (window)
        refusal_await(session, LATE_WINDOW);
    else
        (void)hits_of(session, "one_load"); // the next look finds it
    for (size_t i = 0; i < count; i++) {
        ask(&victim, line, "call %s skip", late[i]);
        assert_non_null(strstr(line, "faults 1"));
        assert_non_null(strstr(line, "pc +0 sp +0"));
        if (!window || strcmp(late[i], LATE_WINDOW) != 0) {
            assert_int_equal(site_of(session, late[i])->refusal, TL_REFUSE_NONE);
            assert_int_equal(hits_of(session, late[i]), 1);
        }
    }
    if (probed)
        assert_int_equal(hits_of(session, "handler_late"), count);
    ask(&victim, bare, "call " FORM_LOAD " fix");
    detach(session);
    ask(&victim, line, "call " FORM_LOAD " fix");
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
    late_run(VICTIM_PIE_PATH, "late sc", false, COMPILED_WINDOW != NULL);
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
    for (size_t i = 0; i < PROBE_COUNT; i++)
        way_is(session, probe_table[i].name, probe_table[i].unguarded_way);
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
    assert_int_equal(site_of(session, FORM_NEVER)->refusal, TL_REFUSE_NONE);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        ask(&victim, line, "call %s jump", rows[i].form);
        if (site_of(session, rows[i].probe)->rung == TL_RUNG_REFUSED)
            assert_non_null(strstr(line, " pc +0 "));
    }
    assert_int_equal(site_of(session, "one_load")->hits, 0);
    assert_true(hits_of(session, FORM_NEVER) > 0);
    detach(session);
    victim_end(&victim);
}

// First one for divisions, then another for the rest.
static void handlers_come_one_after_the_other(void **state)
{
    struct victim victim;
    char line[LINE_SIZE];
    static const char *const two[] = {FORM_LOAD, FORM_OTHER};
    (void)state;
    victim_start(&victim, VICTIM_PATH);
    ask(&victim, line, "install plain sd");
    struct tl_session *session = attach(&victim, two, 2);
    ask(&victim, line, "call " FORM_OTHER " skip");
    assert_non_null(strstr(line, OTHER_SEEN));
    ask(&victim, line, "install other s");
    (void)hits_of(session, FORM_LOAD);
    if (site_of(session, FORM_LOAD)->refusal)
        fail_msg("closed: %s", site_of(session, FORM_LOAD)->reason);
    ask(&victim, line, "call " FORM_LOAD " fix");
    assert_non_null(strstr(line, "faults 1 sig 11 pc +0 sp +0"));
    assert_int_equal(hits_of(session, FORM_LOAD), 2);
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
    cmocka_set_test_filter(getenv("TL_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// A thread that executes another program: held at the new program's first instruction, or let go, and
// in no case does the program notice.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attach/exec.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_GOOD 7    // of the executed program, all well
#define STATUS_STAYED 8  // of the old one, whose call failed as it should
#define POLLS_MAX 2000   // of BUDGET_MS: far more than any exec takes
#define BUDGET_MS 10
#define SPINS_MAX 2000000000u

extern const char _start;

// What the tests and the processes they start share.
static struct shared {
    volatile int tid;     // of the thread that is about to execute
    volatile int go;      // it may
    volatile int signals; // that its handler saw
} *shared;

static char self[4096];

// ---- the programs -------------------------------------------------------------------------------

// The executed program: what it was told of itself is true.
static int program_check(void)
{
    return getauxval(AT_ENTRY) == (unsigned long)&_start ? STATUS_GOOD : 1;
}

static void announce_and_wait(void)
{
    shared->tid = (int)syscall(SYS_gettid);
    for (unsigned i = 0; !shared->go && i < SPINS_MAX; i++)
        __builtin_ia32_pause();
}

static void execute(const char *path)
{
    execl(path, path, "check", (char *)NULL);
}

static void child_plain(void)
{
    announce_and_wait();
    execute(self);
}

static void child_fails(void)
{
    announce_and_wait();
    execute("/nowhere/at-all");
    _exit(errno == ENOENT ? STATUS_STAYED : 1);
}

static void *thread_main(void *opaque)
{
    (void)opaque;
    announce_and_wait();
    execute(self);
    _exit(1);
}

static void child_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, NULL) == 0)
        pthread_join(thread, NULL);
}

static void child_vfork(void)
{
    int status = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        announce_and_wait();
        execute(self);
        _exit(1);
    }
    waitpid(pid, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void on_signal(int number)
{
    (void)number;
    shared->signals = shared->signals + 1;
    (void)getppid(); // a system call that comes before the one that executes
}

static void child_signalled(void)
{
    signal(SIGUSR1, on_signal);
    announce_and_wait();
    raise(SIGUSR1);
    if (shared->signals == 1)
        execute(self);
}

static void child_other_call(void)
{
    announce_and_wait();
    for (int i = 0; i < 200; i++)
        (void)getppid();
    _exit(STATUS_STAYED);
}

static pid_t child_start(void (*run)(void))
{
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    if (pid == 0) {
        run();
        _exit(1);
    }
    while (!shared->tid)
        sched_yield();
    return pid;
}

static int child_status(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// ---- tests --------------------------------------------------------------------------------------

static int poll_to_end(struct tl_exec *exec, struct tl_target **target, struct tl_diag *diag)
{
    int news = TL_EXEC_PENDING;
    for (int i = 0; i < POLLS_MAX && news == TL_EXEC_PENDING; i++)
        news = tl_exec_poll(exec, BUDGET_MS, target, diag);
    return news;
}

static bool libc_mapped(pid_t pid)
{
    struct tl_maps maps;
    bool found = false;
    assert_int_equal(tl_maps_read(pid, &maps, NULL), 0);
    for (size_t i = 0; i < maps.count; i++)
        found |= strstr(maps.map[i].path, "libc.so") != NULL;
    tl_maps_deinit(&maps);
    return found;
}

static void the_new_program_is_held_at_its_entry(void **state)
{
    static const struct {
        const char *name;
        void (*run)(void);
        int news, status;
    } cases[] = {
        {"plain", child_plain, TL_EXEC_READY, STATUS_GOOD},
        {"not the first thread", child_thread, TL_EXEC_READY, STATUS_GOOD},
        {"child of vfork", child_vfork, TL_EXEC_READY, STATUS_GOOD},
        {"signal first", child_signalled, TL_EXEC_READY, STATUS_GOOD},
        {"call that fails", child_fails, TL_EXEC_FAILED, STATUS_STAYED},
        {"never calls", child_other_call, TL_EXEC_FAILED, STATUS_STAYED},
    };
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct tl_exec *exec = NULL;
        struct tl_target *target = NULL;
        struct tl_diag diag = {""};
        pid_t pid = child_start(cases[i].run);
        int error = tl_exec_begin(shared->tid, NULL, &exec, &diag);
        if (error)
            fail_msg("%s: begin: %d %s", cases[i].name, error, diag.text);
        shared->go = 1;
        int news = poll_to_end(exec, &target, &diag);
        if (news != cases[i].news)
            fail_msg("%s: %d %s", cases[i].name, news, diag.text);
        if (target) {
            struct tl_thread_view view = {0};
            assert_int_equal(tl_target_thread_view(target, 0, &view), 0);
            assert_true(view.pc == tl_proc_auxv(tl_target_pid(target), AT_ENTRY));
            assert_true(libc_mapped(tl_target_pid(target)));
        }
        tl_exec_end(exec);
        tl_target_close(target);
        int status = child_status(pid);
        if (status != cases[i].status)
            fail_msg("%s: status %d", cases[i].name, status);
    }
}

static unsigned die_at, step_now;

static void step_die(unsigned step)
{
    (void)step;
    if (step_now++ == die_at)
        _exit(0);
}

// A controller that ends before the ptrace call or write of each number in turn.
static void a_dead_controller_leaves_the_program_running(void **state)
{
    static void (*const runs[])(void) = {child_plain, child_thread, child_fails};
    static const int statuses[] = {STATUS_GOOD, STATUS_GOOD, STATUS_STAYED};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(runs); i++) {
        bool finished = false;
        for (unsigned step = 0; !finished; step += step < 40 ? 1 : 7) {
            pid_t pid = child_start(runs[i]);
            pid_t controller = fork();
            if (controller == 0) {
                struct tl_exec *exec = NULL;
                struct tl_target *target = NULL;
                die_at = step;
                tl_target_step_hook = step_die;
                if (tl_exec_begin(shared->tid, NULL, &exec, NULL) == 0) {
                    shared->go = 1;
                    (void)poll_to_end(exec, &target, NULL);
                }
                tl_exec_end(exec);
                tl_target_close(target);
                _exit(STATUS_GOOD);
            }
            finished = child_status(controller) == STATUS_GOOD;
            shared->go = 1;
            int status = child_status(pid);
            if (status != statuses[i])
                fail_msg("case %zu, step %u: status %d", i, step, status);
        }
    }
}

static void letting_go_early_leaves_the_program_running(void **state)
{
    (void)state;
    struct tl_exec *exec = NULL;
    pid_t pid = child_start(child_plain);
    assert_int_equal(tl_exec_begin(shared->tid, NULL, &exec, NULL), 0);
    assert_false(tl_exec_happened(exec));
    assert_int_equal(tl_exec_pid(exec), pid);
    tl_exec_end(exec);
    shared->go = 1;
    assert_int_equal(child_status(pid), STATUS_GOOD);
}

static void the_lock_of_a_known_process_is_shared(void **state)
{
    (void)state;
    struct tl_exec *exec = NULL;
    struct tl_target *known = NULL, *target = NULL;
    char path[64];
    pid_t pid = child_start(child_plain);
    assert_int_equal(tl_target_open(pid, NULL, &known, NULL), 0);
    assert_int_equal(tl_exec_begin(shared->tid, known, &exec, NULL), 0);
    shared->go = 1;
    assert_int_equal(poll_to_end(exec, &target, NULL), TL_EXEC_READY);
    tl_exec_end(exec);
    tl_target_close(known);
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_not_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    tl_target_close(target);
    close(fd);
    assert_int_equal(child_status(pid), STATUS_GOOD);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_new_program_is_held_at_its_entry),
        cmocka_unit_test(letting_go_early_leaves_the_program_running),
        cmocka_unit_test(the_lock_of_a_known_process_is_shared),
        cmocka_unit_test(a_dead_controller_leaves_the_program_running),
    };
    (void)argv;
    if (argc > 1)
        return program_check();
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (size <= 0 || shared == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

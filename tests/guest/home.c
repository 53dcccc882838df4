// A controller that dies at any step of its calls leaves a thread that goes home whole: all registers, signal mask,
// alternate stack, and the call that it waited in.
//
// usage: home [STEP]: every STEP-th step; 1
#include "attach/target.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPINS 200000
#define SIGNALS_US 3000
#define PATIENCE_MS 60000
#define STEPS_MIN 25 // with a stride of 1
#define RETRIES_MAX 50 // of a controller that found the machine too busy

struct whole {
    long result;
    unsigned long wrong;
};
struct whole home_whole(uint64_t first, uint64_t second, uint64_t third, uint64_t number);

static struct shared {
    volatile unsigned long rounds, signals, ended;
    volatile int wrong; // line of the first thing that was not right
} *shared;

enum mode { MODE_SPIN, MODE_READ, MODE_POLL, MODE_SLEEP, MODE_COUNT };
static const char *const names[] = {"spin", "read", "poll", "sleep"};

// ---- the program --------------------------------------------------------------------------------

static void expect(bool right, int line)
{
    if (!right && !shared->wrong)
        shared->wrong = line;
}
#define EXPECT(right) expect(right, __LINE__)

static void on_signal(int number)
{
    volatile char room[512]; // on the stack that it came on
    for (size_t i = 0; i < sizeof room; i++)
        room[i] = (char)number;
    shared->signals++;
}

static void same_state(void)
{
    sigset_t mask;
    stack_t stack;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < SIGRTMIN; i++)
        EXPECT(sigismember(&mask, i) == (i == SIGUSR2));
    sigaltstack(NULL, &stack);
    EXPECT(stack.ss_flags == 0 && stack.ss_size == 65536);
}

static struct whole one_round(enum mode mode, const int pipes[2])
{
    struct timespec moment = {0, 20000000}; // what is left is written back
    struct pollfd look = {.fd = pipes[0], .events = POLLIN};
    char byte;
    switch (mode) {
    case MODE_READ:
        return home_whole((uint64_t)pipes[0], (uintptr_t)&byte, 1, SYS_read);
    case MODE_POLL: // a moment that is over ends it too
        return home_whole((uintptr_t)&look, 1, (uintptr_t)&moment, SYS_ppoll);
    case MODE_SLEEP:
        return home_whole((uintptr_t)&moment, 0, 0, SYS_nanosleep);
    default:
        return home_whole(SPINS, 0, 0, 0);
    }
}

static void program(enum mode mode, const int pipes[2])
{
    static char stack[65536];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaltstack(&other, NULL);
    if (mode == MODE_SPIN) {
        const struct itimerval often = {{0, SIGNALS_US}, {0, SIGNALS_US}};
        signal(SIGALRM, on_signal);
        setitimer(ITIMER_REAL, &often, NULL);
    }
    for (;;) {
        struct whole got = one_round(mode, pipes);
        EXPECT(got.wrong == 0);
        // Of a wait that a stop had ended once the kernel knows no beginning any more.
        bool ended = mode == MODE_SLEEP && got.result == -EINTR;
        shared->ended += ended;
        EXPECT(ended || got.result == (mode == MODE_READ ? 1 : 0));
        same_state();
        shared->rounds++;
    }
}

// ---- the controller -----------------------------------------------------------------------------

static unsigned last_step;

static void die_there(unsigned step)
{
    if (step == last_step)
        kill(getpid(), SIGKILL);
}

static int controller(pid_t pid)
{
    struct tl_target *target;
    struct tl_diag diag = {""};
    const uint64_t none[6] = {0};
    int64_t result = 0;
    int error = tl_target_open(pid, NULL, &target, &diag);
    if (!error) {
        error = tl_target_borrow(target, &diag);
        if (!error)
            error = tl_target_syscall(target, SYS_getpid, none, &result, &diag);
        if (!error && result != pid)
            error = TL_E_SYSTEM;
        const uint64_t bad[6] = {0, 1, 2, 3, 4, 5}; // fails, with all arguments given
        if (!error)
            error = tl_target_syscall(target, SYS_nanosleep, bad, &result, &diag);
        if (!error && result != -EFAULT)
            error = TL_E_SYSTEM;
        if (!error)
            error = tl_target_stop(target, &diag);
        if (!error)
            error = tl_target_syscall(target, SYS_getpid, none, &result, &diag);
        tl_target_resume(target);
        tl_target_close(target);
    }
    if (error && error != TL_E_BUSY)
        fprintf(stderr, "controller: %d %s\n", error, diag.text);
    return error == TL_E_BUSY ? 2 : error ? 1 : 0;
}

// ---- the test -----------------------------------------------------------------------------------

static bool goes_on(pid_t pid, enum mode mode, const int pipes[2])
{
    unsigned long before = shared->rounds;
    if (mode == MODE_READ && write(pipes[1], "x", 1) != 1)
        return false;
    for (int i = 0; i < PATIENCE_MS && shared->rounds < before + 1; i++) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return false;
        usleep(1000);
    }
    return shared->rounds > before && !shared->wrong;
}

// The number of steps, or -1.
static int mode_run(enum mode mode, unsigned stride)
{
    int pipes[2], status = 0, busy = 0;
    *shared = (struct shared){.wrong = 0};
    if (pipe(pipes) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        program(mode, pipes);
    if (!goes_on(pid, mode, pipes)) {
        fprintf(stderr, "%s: it does not run (line %d)\n", names[mode], shared->wrong);
        return -1;
    }
    for (last_step = 0;; last_step += stride) {
        pid_t child = fork();
        if (child == 0) {
            tl_target_step_hook = die_there;
            _exit(controller(pid));
        }
        waitpid(child, &status, 0);
        if (!goes_on(pid, mode, pipes)) {
            fprintf(stderr, "%s: step %u: the program did not go on as before (line %d)\n", names[mode], last_step,
                    shared->wrong);
            return -1;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 2 && ++busy < RETRIES_MAX)
            last_step -= stride;
        else if (WIFEXITED(status))
            break;
    }
    printf("%s: %u steps, %lu rounds, %lu signals, %lu waits ended early, status %d\n", names[mode], last_step,
           shared->rounds, shared->signals, shared->ended, WEXITSTATUS(status));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return WEXITSTATUS(status) == 0 ? (int)last_step : -1;
}

int main(int argc, char **argv)
{
    unsigned stride = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (enum mode mode = 0; mode < MODE_COUNT; mode++)
        failed |= mode_run(mode, stride) < STEPS_MIN;
    return failed;
}

// Leaves the threads that a program makes from now on at the instructions that one of its functions
// runs until it comes to an address, each at another one: on their way through a probe there.
//
// usage: steps PID LANDING FUNCTION END COUNT stop|signal. The first are addresses: LANDING leads
// to FUNCTION. Says "ready" when it waits for COUNT threads; each has to raise SIGUSR2 before it
// comes to LANDING. Two are stepped, to know the way. Says "placed N" and ends when all stand, at N
// different instructions: stopped like all of the program, as by SIGSTOP, or in a handler of
// SIGUSR1 that interrupts them there. Status 77: nobody can step here.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENT_SHIFT 16
#define COUNT_MAX 1024
#define WAY_MAX 2000 // steps
#define LOOP_MAX 16  // instructions of an exclusive loop

#if defined __x86_64__
enum { WORD_PC = 16, BREAKPOINT_PC = 1, BREAKPOINT_SIZE = 1 };
static const uint8_t breakpoint[BREAKPOINT_SIZE] = {0xcc};
#elif defined __aarch64__
enum { WORD_PC = 32, BREAKPOINT_PC = 0, BREAKPOINT_SIZE = 4 };
static const uint8_t breakpoint[BREAKPOINT_SIZE] = {0x00, 0x00, 0x20, 0xd4};
#else
enum { WORD_PC = 0, BREAKPOINT_PC = 0, BREAKPOINT_SIZE = 2 };
static const uint8_t breakpoint[BREAKPOINT_SIZE] = {0x02, 0x90};
#endif

static int memory;

static void broken(const char *what)
{
    perror(what);
    exit(1);
}

static void trace(int request, pid_t tid, uintptr_t data)
{
    if (ptrace(request, tid, 0, data) != 0)
        broken("ptrace");
}

static uint64_t pc_of(pid_t tid, bool behind_breakpoint)
{
    uint64_t word[64];
    struct iovec vector = {word, sizeof word};
    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &vector) != 0)
        broken("PTRACE_GETREGSET");
    if (behind_breakpoint && BREAKPOINT_PC) {
        word[WORD_PC] -= BREAKPOINT_PC;
        if (ptrace(PTRACE_SETREGSET, tid, (void *)NT_PRSTATUS, &vector) != 0)
            broken("PTRACE_SETREGSET");
    }
    return word[WORD_PC];
}

static void await_stop(pid_t tid, int signal)
{
    int status;
    if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status) || WSTOPSIG(status) != signal) {
        fprintf(stderr, "steps: thread %d: status %x\n", tid, (unsigned)status);
        exit(1);
    }
}

static void bytes_write(uint64_t addr, const uint8_t bytes[BREAKPOINT_SIZE])
{
    if (pwrite(memory, bytes, BREAKPOINT_SIZE, (off_t)addr) != BREAKPOINT_SIZE)
        broken("memory");
}

// To whichever it comes first. Returns which.
static uint64_t run_to(pid_t tid, uint64_t one, uint64_t other)
{
    uint8_t there[2][BREAKPOINT_SIZE];
    if (pread(memory, there[0], BREAKPOINT_SIZE, (off_t)one) != BREAKPOINT_SIZE ||
        pread(memory, there[1], BREAKPOINT_SIZE, (off_t)other) != BREAKPOINT_SIZE)
        broken("memory");
    bytes_write(one, breakpoint);
    bytes_write(other, breakpoint);
    trace(PTRACE_CONT, tid, 0);
    await_stop(tid, SIGTRAP);
    bytes_write(other, there[1]);
    bytes_write(one, there[0]);
    return pc_of(tid, true);
}

// An exclusive loop never ends in steps: it is one. (Arm ARM, C4.1: load-exclusives, cbnz of 32
// bits.)
static bool loop_skip(pid_t tid, uint64_t pc)
{
    uint32_t insn[LOOP_MAX];
    if (BREAKPOINT_SIZE != 4 ||
        pread(memory, insn, sizeof insn, (off_t)pc) != (ssize_t)sizeof insn ||
        (insn[0] & 0x3fc00000) != 0x08400000)
        return false;
    for (unsigned i = 1; i < LOOP_MAX; i++) {
        if ((insn[i] & 0xff000000) == 0x35000000 &&
            ((int32_t)(insn[i] << 8) >> 13) == -(int32_t)i) {
            (void)run_to(tid, pc + 4 * (i + 1), pc + 4 * (i + 1));
            return true;
        }
    }
    return false;
}

static uint64_t step(pid_t tid, uint64_t pc)
{
    if (loop_skip(tid, pc))
        return pc_of(tid, false);
    if (ptrace(PTRACE_SINGLESTEP, tid, 0, 0) != 0) {
        if (errno == EIO)
            exit(77);
        broken("PTRACE_SINGLESTEP");
    }
    await_stop(tid, SIGTRAP);
    return pc_of(tid, false);
}

// From the function to the end. Returns how many instructions that are, the end's too.
static int way_find(pid_t tid, uint64_t function, uint64_t end, uint64_t way[WAY_MAX])
{
    uint64_t pc = function;
    int count = 0;
    for (int i = 0; i < WAY_MAX; i++) {
        bool known = false;
        for (int k = 0; k < count; k++)
            known |= way[k] == pc;
        if (!known)
            way[count++] = pc;
        if (pc == end)
            return count;
        pc = step(tid, pc);
    }
    broken("it does not come to the end");
    return 0;
}

// As run_to, from the function. Where bytes of a branch are another instruction's too (a pun) no
// breakpoint can be.
static uint64_t go_to(pid_t tid, uint64_t function, uint64_t one, uint64_t other)
{
    uint64_t pc = function;
    if (BREAKPOINT_SIZE > 1)
        return run_to(tid, one, other);
    for (int i = 0; i < WAY_MAX && pc != one && pc != other; i++)
        pc = step(tid, pc);
    return pc;
}

static char state_of(pid_t pid)
{
    char path[64], text[256] = "", *end;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0 || !(end = strrchr(text, ')')))
        broken(path);
    close(fd);
    return end[2];
}

// The first thread is waited for before the others go: it alone can take the signal that stops them
// all.
static void let_go(pid_t pid, const pid_t tid[], int count, bool stop)
{
    if (stop)
        kill(pid, SIGSTOP);
    else
        trace(PTRACE_INTERRUPT, pid, 0);
    int status;
    if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
        broken("the program has ended");
    trace(PTRACE_DETACH, pid, stop ? SIGSTOP : 0);
    while (stop && state_of(pid) != 'T')
        sched_yield();
    for (int i = 0; i < count; i++)
        trace(PTRACE_DETACH, tid[i], stop ? 0 : SIGUSR1);
}

int main(int argc, char **argv)
{
    static pid_t placed[COUNT_MAX];
    static uint64_t way[WAY_MAX];
    char path[64];
    if (argc < 7)
        return 2;
    pid_t pid = (pid_t)atoi(argv[1]);
    uint64_t landing = strtoull(argv[2], NULL, 0), function = strtoull(argv[3], NULL, 0);
    uint64_t end = strtoull(argv[4], NULL, 0);
    int count = atoi(argv[5]), done = 0, born = 0, steps = 0, reached = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/mem", pid);
    memory = open(path, O_RDWR);
    if (memory < 0 || count > COUNT_MAX)
        broken(path);
    trace(PTRACE_SEIZE, pid, PTRACE_O_TRACECLONE);
    printf("ready\n");
    fflush(stdout);
    while (done < count || born < count) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 || !WIFSTOPPED(status))
            broken("the program has ended");
        born += status >> EVENT_SHIFT == PTRACE_EVENT_CLONE;
        if (status >> EVENT_SHIFT || WSTOPSIG(status) != SIGUSR2) { // a thread's birth, or a signal
            trace(PTRACE_CONT, tid, status >> EVENT_SHIFT ? 0 : (uintptr_t)WSTOPSIG(status));
            continue;
        }
        for (uint64_t pc = run_to(tid, landing, landing); pc != function;)
            pc = step(tid, pc);
        if (done < 2) // the first proves addresses that others find proved
            steps = way_find(tid, function, end, way);
        else if (done - 2 < steps && way[done - 2] != function)
            reached += go_to(tid, function, way[done - 2], way[steps - 1]) == way[done - 2];
        placed[done++] = tid;
    }
    (void)getchar(); // the first thread has come to where it waits
    let_go(pid, placed, done, strcmp(argv[6], "stop") == 0);
    printf("placed %d of %d\n", reached, steps);
    return 0;
}

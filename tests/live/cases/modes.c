// One hard moment in a program's life per mode, argv[1]. Prints what it computed, which no probe
// may change, and "calls N", how often it called called() where that depends on time.
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "called.h"

#define SECCOMP_CALLS 100000
#define ALARM_CALLS 60000000
#define FORKS 200

extern char **environ;

// Alone on its page, so that a mode may change the page's rights or move it. At no small multiple of 64K: data holds
// such numbers and 1 more (the first word of .rodata is 0x20001), which look like pointers into it.
__asm__(".text\n"
        ".balign 0x10000\n" // the largest page there is
        ".skip 0x50000\n"
        ".globl called\n"
        ".type called, %function\n"
        "called:\n" CALLED_TEXT ".size called, . - called\n"
        ".balign 0x10000\n");
uint64_t called(uint64_t value);

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void fail(const char *what)
{
    fprintf(stderr, "modes: %s (errno %d)\n", what, errno);
    _exit(1);
}

static void call(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (called(i) != i + 1)
            fail("wrong result");
    }
}

// ---- before main and after it: three calls each from a resolver, a constructor, a thread's end
// and
// ---- the program's end --------------------------------------------------------------------------

static uint64_t chosen(void)
{
    return called(3);
}

static uint64_t (*resolve(void))(void)
{
    called(1);
    return chosen;
}
uint64_t resolved(void) __attribute__((ifunc("resolve")));

static int phases;

__attribute__((constructor)) static void at_start(void)
{
    call(3);
    phases |= 1;
}

static void at_end(void)
{
    call(3);
    printf("phases %d\n", phases);
}

static void at_thread_end(void *opaque)
{
    (void)opaque;
    call(3);
    phases |= 2;
}

static void *thread_with_key(void *key)
{
    pthread_setspecific(*(pthread_key_t *)key, key);
    return NULL;
}

static void phases_mode(void)
{
    pthread_key_t key;
    pthread_t thread;
    pthread_key_create(&key, at_thread_end);
    pthread_create(&thread, NULL, thread_with_key, &key);
    pthread_join(thread, NULL);
    atexit(at_end);
    printf("resolved %ju\n", (uintmax_t)resolved());
}

// ---- children -----------------------------------------------------------------------------------

static void spawn_mode(void)
{
    char *words[] = {"sh", "-c", "exit 5", NULL};
    volatile int sum = 0;
    for (volatile int i = 0; i < 20; i++) {
        int status = 0;
        pid_t pid = vfork();
        if (pid == 0) {
            called(1); // in the parent's memory: counts
            execv("/bin/sh", words);
            _exit(127);
        }
        waitpid(pid, &status, 0);
        sum += WEXITSTATUS(status);
        if (posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ) != 0)
            fail("posix_spawn");
        waitpid(pid, &status, 0);
        sum += WEXITSTATUS(status) + system("exit 3") / 256;
        call(1);
    }
    printf("statuses %d\n", sum);
}

// The child of a child goes on alone, as a daemon does, and calls what is probed in its parent.
static void daemon_mode(void)
{
    int ends[2];
    char answer[16] = "";
    if (pipe(ends) != 0)
        fail("pipe");
    if (fork() == 0) {
        if (fork() != 0)
            _exit(0);
        setsid();
        call(1000);
        _exit(write(ends[1], "alive", 5) != 5);
    }
    wait(NULL);
    close(ends[1]);
    call(10);
    printf("%zd\n", read(ends[0], answer, sizeof answer - 1));
    printf("%s\n", answer);
}

static void forks_mode(void)
{
    int sum = 0;
    for (int i = 0; i < FORKS; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            call(3);
            _exit(i % 100);
        }
        call(1);
        waitpid(pid, &status, 0);
        sum += status;
    }
    printf("statuses %d\n", sum);
}

// ---- signals, filters, stacks -------------------------------------------------------------------

static sigjmp_buf back;
static volatile uint64_t alarm_calls, alarms;

static void on_alarm(int number)
{
    (void)number;
    alarm_calls++;
    if (called(7) != 8)
        fail("wrong result in the handler");
    if (++alarms % 2)
        siglongjmp(back, 1);
}

// The handler interrupts the detour, hits the same probe, and every other time never returns.
static void alarm_mode(void)
{
    volatile uint64_t begun = 0, done = 0;
    struct itimerval every = {{0, 500}, {0, 500}};
    signal(SIGALRM, on_alarm);
    (void)sigsetjmp(back, 1);
    setitimer(ITIMER_REAL, &every, NULL);
    while (begun < ALARM_CALLS) {
        begun++;
        done += called(begun) == begun + 1;
    }
    every = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    // A jump out of the handler may lose the call that had begun: it was made, or it was not.
    printf("calls %ju %ju\n", (uintmax_t)(done + alarm_calls), (uintmax_t)(begun + alarm_calls));
}

static void seccomp_mode(void)
{
    printf("filtered\n");
    fflush(stdout);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
        fail("prctl");
    call(SECCOMP_CALLS);
    syscall(SYS_exit, 0);
}

static void *alloc_main(void *opaque)
{
    uintptr_t sum = (uintptr_t)opaque;
    size_t page = page_size();
    for (size_t i = 1; i < 3000; i++) {
        char *p = malloc(i % 700), *q = calloc(1, i % 90 + 1);
        p = realloc(p, i % 5000 + 1);
        p[i % 5000] = (char)i;
        sum += (uintptr_t)(unsigned char)p[i % 5000] + (uintptr_t)q[0];
        free(p);
        free(q);
        if (i % 100 == 0) {
            void *map =
                mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            mprotect(map, page, PROT_READ);
            munmap(map, page);
        }
    }
    return (void *)sum;
}

static void alloc_mode(void)
{
    pthread_t thread[8];
    uintptr_t sum = 0;
    for (size_t i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, alloc_main, (void *)i);
    for (size_t i = 0; i < 8; i++) {
        void *result = NULL;
        pthread_join(thread[i], &result);
        sum += (uintptr_t)result;
    }
    printf("sum %ju\n", (uintmax_t)sum);
}

// ---- modes that are attached to: lines of numbers, each a count of calls ------------------------

// The text moves to memory of no file.
static void text_move(void)
{
    size_t size = page_size();
    char *page = (char *)(uintptr_t)called;
    if (mmap(page, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        page)
        fail("mmap");
    memcpy(page, CALLED_CODE, sizeof CALLED_CODE - 1);
    mprotect(page, size, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(page, page + sizeof CALLED_CODE - 1);
}

static void serve(void)
{
    char line[64];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == 'm') {
            text_move();
        } else {
            call(strtoull(line, NULL, 10));
        }
        printf("done\n");
        fflush(stdout);
    }
}

static void *serve_main(void *opaque)
{
    (void)opaque;
    usleep(10000);
    serve();
    _exit(0);
}

static void leaderless_mode(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, serve_main, NULL);
    pthread_exit(NULL);
}

static void writable_mode(void)
{
    mprotect((void *)(uintptr_t)called, page_size(), PROT_READ | PROT_WRITE | PROT_EXEC);
    serve();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {
        {"phases", phases_mode},     {"spawn", spawn_mode}, {"daemon", daemon_mode},
        {"forks", forks_mode},       {"alarm", alarm_mode}, {"seccomp", seccomp_mode},
        {"alloc", alloc_mode},       {"serve", serve},      {"leaderless", leaderless_mode},
        {"writable", writable_mode},
    };
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    return 2;
}

// Processes that have children, one way per mode, argv[1]. Prints results that no probe may change,
// and how often work() was called: in the first process, and in all ("follow", see returns/told.h).
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../returns/told.h"

#define WORKERS 8u
#define SHORT_CHILDREN 300u
#define TASKS 500u

static const char *own_path, *leaf_path;

PROBED uint64_t work(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept * 3 + 1;
}

static void work_times(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (work(i) != i * 3 + 1)
            fail("wrong result");
    }
}

static void tell_work(uint64_t own, uint64_t all)
{
    expect_family("work", own, own, all, all);
}

static int wait_for(pid_t pid)
{
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        fail("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static pid_t child(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    return pid;
}

// ---- forked children ----------------------------------------------------------------------------

static void forks(void)
{
    uint64_t all = 0;
    int sum = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        pid_t pid = child();
        if (pid == 0) {
            work_times(100 * i + 1);
            _exit((int)i);
        }
        all += 100 * i + 1;
        work_times(10);
        sum += wait_for(pid);
    }
    printf("statuses %d\n", sum);
    tell_work(10 * WORKERS, all + 10 * WORKERS);
}

// Children of children, all at once; each counts its depth.
static void grow(uint32_t levels)
{
    pid_t pid[2];
    work_times(5);
    if (levels == 0)
        return;
    for (size_t i = 0; i < 2; i++) {
        pid[i] = child();
        if (pid[i] == 0) {
            grow(levels - 1);
            _exit(0);
        }
    }
    for (size_t i = 0; i < 2; i++)
        wait_for(pid[i]);
}

static void tree(void)
{
    grow(5);
    tell_work(5, 5 * 63);
}

// One parent that hands out tasks, eight workers that live all the time.
static void prefork(void)
{
    int ends[WORKERS][2];
    pid_t pid[WORKERS];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) != 0)
            fail("socketpair");
        pid[i] = child();
        if (pid[i] == 0) {
            uint64_t task = 0;
            for (uint32_t k = 0; k <= i; k++)
                close(ends[k][0]);
            while (read(ends[i][1], &task, sizeof task) == sizeof task) {
                task = work(task);
                if (write(ends[i][1], &task, sizeof task) != sizeof task)
                    _exit(1);
            }
            _exit(0);
        }
        close(ends[i][1]);
    }
    for (uint64_t task = 0; task < TASKS * WORKERS; task++) {
        uint64_t answer = task;
        int end = ends[task * 5 % WORKERS][0];
        if (write(end, &answer, sizeof answer) != sizeof answer ||
            read(end, &answer, sizeof answer) != sizeof answer)
            fail("worker");
        sum += answer;
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        close(ends[i][0]);
        wait_for(pid[i]);
    }
    printf("sum %" PRIu64 "\n", sum);
    tell_work(0, TASKS * WORKERS);
}

// The first process ends before the one that goes on, which says so in the file argv[3].
static void daemonizes(const char *path)
{
    int ends[2];
    char byte = 0;
    if (pipe(ends) != 0)
        fail("pipe");
    printf("parent\n");
    tell_work(7, 7 + 1000);
    pid_t pid = child();
    if (pid == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        close(ends[1]);
        ssize_t got = read(ends[0], &byte, 1); // until the first process is gone
        work_times(1000);
        int file = open(path, O_WRONLY);
        _exit(write(file, "daemon\n", 7) != 7 || got != 0);
    }
    work_times(7);
    wait_for(pid);
}

static void short_children(void)
{
    int sum = 0;
    for (uint32_t i = 0; i < SHORT_CHILDREN; i++) {
        pid_t pid = child();
        if (pid == 0) {
            work(i);
            _exit((int)(i % 7));
        }
        sum += wait_for(pid);
    }
    printf("statuses %d\n", sum);
    tell_work(0, SHORT_CHILDREN);
}

// All alive at once.
static void crowd(void)
{
    static pid_t pid[100];
    for (size_t i = 0; i < 100; i++) {
        pid[i] = child();
        if (pid[i] == 0) {
            work_times(50);
            _exit(0);
        }
    }
    for (size_t i = 0; i < 100; i++)
        wait_for(pid[i]);
    tell_work(0, 100 * 50);
}

static void *working_thread(void *opaque)
{
    work_times((uint64_t)(uintptr_t)opaque);
    return NULL;
}

static void threads_in_this_process(void)
{
    pthread_t thread[4];
    for (size_t i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, working_thread, (void *)(uintptr_t)1000);
    for (size_t i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

static void threads(void)
{
    for (size_t i = 0; i < 10; i++) {
        pid_t pid = child();
        if (pid == 0) {
            threads_in_this_process();
            _exit(0);
        }
        wait_for(pid);
    }
    threads_in_this_process();
    tell_work(4000, 44000);
}

// Threads that fork while the others work.
static void *forking_thread(void *opaque)
{
    (void)opaque;
    for (uint64_t i = 0; i < 25; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            work_times(20);
            _exit(0);
        }
        work_times(100);
        wait_for(pid);
    }
    return NULL;
}

static void forking_threads(void)
{
    pthread_t thread[4];
    fflush(stdout);
    for (size_t i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, forking_thread, NULL);
    for (size_t i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    tell_work(10000, 10000 + 2000);
}

// ---- other programs -----------------------------------------------------------------------------

// The same program over and over, in the same process.
static void exec_chain(int argc, char **argv)
{
    uint64_t left = argc > 3 ? strtoull(argv[3], NULL, 10) : 5;
    char number[24];
    work_times(11);
    if (left == 0) {
        printf("end of the chain\n");
        tell_work(11, 66); // without following, what comes after the first program is not seen
        return;
    }
    snprintf(number, sizeof number, "%" PRIu64, left - 1);
    execl(own_path, own_path, "exec_chain", leaf_path, number, (char *)NULL);
    fail("exec");
}

static void exec_same(void)
{
    for (int i = 0; i < 20; i++) {
        pid_t pid = child();
        if (pid == 0) {
            work_times(3);
            execl(own_path, own_path, "only_work", leaf_path, (char *)NULL);
            _exit(127);
        }
        wait_for(pid);
        work(1);
    }
    tell_work(20, 20 + 20 * 3 + 20 * 100);
}

static void only_work(void)
{
    work_times(100);
}

// leaf has a leaf_work() of its own.
static void exec_other(void)
{
    int sum = 0;
    for (int i = 0; i < 20; i++) {
        pid_t pid = child();
        if (pid == 0) {
            work(2);
            execl(leaf_path, leaf_path, "200", (char *)NULL);
            _exit(127);
        }
        sum += wait_for(pid);
    }
    printf("statuses %d\n", sum);
    tell_work(0, 20);
    expect_family("leaf_work", 0, 0, 20 * 200, 20 * 200);
}

static void exec_fails(void)
{
    for (int i = 0; i < 5; i++) {
        pid_t pid = child();
        if (pid == 0) {
            execl("/nowhere/at/all", "nothing", (char *)NULL);
            work_times(4);
            execl("/", "nothing", (char *)NULL);
            _exit(9);
        }
        if (wait_for(pid) != 9)
            fail("status");
        work(1);
    }
    tell_work(5, 25);
}

static void shells(void)
{
    char line[4096];
    int sum = 0;
    snprintf(line, sizeof line, "%s 10; %s 20 | cat; (%s 30); /bin/true", leaf_path, leaf_path,
             leaf_path);
    fflush(stdout);
    for (int i = 0; i < 10; i++)
        sum += system(line);
    printf("statuses %d\n", sum);
    expect_family("leaf_work", 0, 0, 600, 600);
}

// ---- children that stay until they are told -----------------------------------------------------

// Lines from stdin: "fork", "work N" (each process calls N times), "end". A line of answer each.
static void serves(void)
{
    int to[64][2], from[64][2];
    char line[64], answer = 0;
    uint64_t number = 0;
    size_t count = 0;
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        if (strcmp(line, "fork\n") == 0 && count < 64) {
            if (pipe(to[count]) != 0 || pipe(from[count]) != 0)
                fail("pipe");
            pid_t pid = child();
            if (pid == 0) {
                close(to[count][1]);
                for (size_t i = 0; i < count; i++)
                    close(to[i][1]);
                while (read(to[count][0], &number, sizeof number) == sizeof number) {
                    work_times(number);
                    if (write(from[count][1], &answer, 1) != 1)
                        _exit(1);
                }
                _exit(0);
            }
            close(to[count][0]);
            count++;
            printf("%d\n", (int)pid);
        } else if (sscanf(line, "work %" SCNu64, &number) == 1) {
            work_times(number);
            for (size_t i = 0; i < count; i++) {
                if (write(to[i][1], &number, sizeof number) != sizeof number ||
                    read(from[i][0], &answer, 1) != 1)
                    fail("child");
            }
            printf("done\n");
        }
        fflush(stdout);
    }
    for (size_t i = 0; i < count; i++)
        close(to[i][1]);
    while (wait(NULL) > 0)
        ;
    printf("end\n");
}

static const struct mode {
    const char *name;
    void (*run)(void);
} modes[] = {{"forks", forks},
             {"tree", tree},
             {"prefork", prefork},
             {"short_children", short_children},
             {"crowd", crowd},
             {"threads", threads},
             {"forking_threads", forking_threads},
             {"exec_same", exec_same},
             {"only_work", only_work},
             {"exec_other", exec_other},
             {"exec_fails", exec_fails},
             {"shells", shells},
             {"serves", serves}};

// argv: MODE LEAF [FILE | NUMBER]
int main(int argc, char **argv)
{
    static char path[4096];
    if (argc < 3 || readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        fail("usage: family MODE LEAF [FILE]");
    own_path = path;
    leaf_path = argv[2];
    if (strcmp(argv[1], "daemonizes") == 0 && argc > 3) {
        daemonizes(argv[3]);
        return 0;
    }
    if (strcmp(argv[1], "exec_chain") == 0) {
        exec_chain(argc, argv);
        return 0;
    }
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    fail("no such mode");
}

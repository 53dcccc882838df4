// Blocked system calls of every kind, each in a thread of its own: what they return and how long
// they take must not change because somebody attached meanwhile. And a program under a seccomp
// filter.
#include "victim.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_MS 600 // multiplied by TL_SLOW, as the slack is
// Calls whose timeout starts anew may take one attach and one detach longer; the test attaches in
// the first half.
#define SLACK_MS 400

// What all calls take, in the forms that they want; set once.
static int block_ms;
static struct timespec block_time;
static struct timeval block_timeval;

static int slowness(void)
{
    const char *slow = getenv("TL_SLOW");
    return slow && atoi(slow) > 0 ? atoi(slow) : 1;
}

static void block_set(void)
{
    block_ms = BLOCK_MS * slowness();
    block_time = (struct timespec){block_ms / 1000, block_ms % 1000 * 1000000L};
    block_timeval = (struct timeval){block_ms / 1000, block_ms % 1000 * 1000L};
}

static struct timespec block_end(clockid_t clock)
{
    struct timespec until;
    clock_gettime(clock, &until);
    until.tv_sec += block_time.tv_sec;
    until.tv_nsec += block_time.tv_nsec;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    return until;
}

static int call_nanosleep(void)
{
    return nanosleep(&block_time, NULL);
}

static int call_clock_absolute(void)
{
    struct timespec until = block_end(CLOCK_MONOTONIC);
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static int call_poll(void)
{
    return poll(NULL, 0, block_ms);
}

static int call_ppoll(void)
{
    return ppoll(NULL, 0, &block_time, NULL);
}

static int call_select(void)
{
    struct timeval time = block_timeval;
    return select(0, NULL, NULL, NULL, &time);
}

static int call_epoll(void)
{
    struct epoll_event event;
    int fd = epoll_create1(0);
    int result = epoll_wait(fd, &event, 1, block_ms);
    close(fd);
    return result;
}

static int call_futex(void)
{
    static int word;
    long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &block_time, NULL, 0);
    return result == -1 && errno == ETIMEDOUT ? 0 : -1;
}

static int call_condition(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t change = PTHREAD_COND_INITIALIZER;
    struct timespec until = block_end(CLOCK_REALTIME);
    pthread_mutex_lock(&lock);
    int result = 0;
    while (result == 0)
        result = pthread_cond_timedwait(&change, &lock, &until);
    pthread_mutex_unlock(&lock);
    return result == ETIMEDOUT ? 0 : -1;
}

static int call_sigtimedwait(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return sigtimedwait(&set, NULL, &block_time) == -1 && errno == EAGAIN ? 0 : -1;
}

static int call_semtimedop(void)
{
    int id = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {.sem_op = -1};
    int result = semtimedop(id, &take, 1, &block_time) == -1 && errno == EAGAIN ? 0 : -1;
    semctl(id, 0, IPC_RMID);
    return result;
}

static int socket_pair_timed(int fd[2])
{
    struct timeval time = block_timeval;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
        return -1;
    return setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

static int call_recv_timed(void)
{
    int fd[2];
    char byte;
    if (socket_pair_timed(fd) != 0)
        return -1;
    int result = recv(fd[0], &byte, 1, 0) == -1 && errno == EAGAIN ? 0 : -1;
    close(fd[0]);
    close(fd[1]);
    return result;
}

static int call_read_timed(void)
{
    int fd[2];
    char byte;
    if (socket_pair_timed(fd) != 0)
        return -1;
    int result = read(fd[0], &byte, 1) == -1 && errno == EAGAIN ? 0 : -1;
    close(fd[0]);
    close(fd[1]);
    return result;
}

static int call_accept_timed(void)
{
    struct timeval time = block_timeval;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 1) != 0)
        return -1;
    int result = accept(fd, NULL, NULL) == -1 && errno == EAGAIN ? 0 : -1;
    close(fd);
    return result;
}

// Something comes after a while, from a thread that sleeps.
static int late_fd;

static void *late_writer(void *opaque)
{
    int fd = *(int *)opaque;
    nanosleep(&block_time, NULL);
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) != (ssize_t)sizeof one)
        exit(1);
    return NULL;
}

static int read_late(int read_fd, int write_fd)
{
    pthread_t writer;
    uint64_t word = 0;
    pthread_create(&writer, NULL, late_writer, &write_fd);
    ssize_t got = read(read_fd, &word, sizeof word);
    pthread_join(writer, NULL);
    return got == (ssize_t)sizeof word && word == 1 ? 0 : -1;
}

static int call_read_pipe(void)
{
    int fd[2];
    return pipe(fd) == 0 ? read_late(fd[0], fd[1]) : -1;
}

static int call_read_event(void)
{
    late_fd = eventfd(0, 0);
    return read_late(late_fd, late_fd);
}

static int call_wait(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        nanosleep(&block_time, NULL);
        _exit(6);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 6 ? 0
                                                                                            : -1;
}

static void *late_signaller(void *opaque)
{
    nanosleep(&block_time, NULL);
    pthread_kill(*(pthread_t *)opaque, SIGUSR2);
    return NULL;
}

// Every signal is blocked and waited for. (SIGCHLD comes of call_wait and call_message.)
static int call_sigwaitinfo(void)
{
    sigset_t all;
    pthread_t signaller, self = pthread_self();
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_create(&signaller, NULL, late_signaller, &self);
    int got = SIGCHLD;
    while (got == SIGCHLD)
        got = sigwaitinfo(&all, NULL);
    pthread_join(signaller, NULL);
    return got == SIGUSR2 ? 0 : -1;
}

static int call_message(void)
{
    struct {
        long type;
        char text[1];
    } message;
    int id = msgget(IPC_PRIVATE, 0600);
    pid_t pid = fork();
    if (pid == 0) {
        nanosleep(&block_time, NULL);
        message.type = 1;
        _exit(msgsnd(id, &message, 1, 0) != 0);
    }
    int result = msgrcv(id, &message, 1, 0, 0) == 1 ? 0 : -1;
    waitpid(pid, NULL, 0);
    msgctl(id, IPC_RMID, NULL);
    return result;
}

static int call_sigsuspend(void)
{
    // Woken by nothing but the alarm of this thread.
    return usleep((useconds_t)block_ms * 1000);
}

static const struct kind {
    const char *name;
    int (*call)(void);
} kinds[] = {
    {"nanosleep", call_nanosleep},
    {"clock_nanosleep", call_clock_absolute},
    {"poll", call_poll},
    {"ppoll", call_ppoll},
    {"select", call_select},
    {"epoll_wait", call_epoll},
    {"futex", call_futex},
    {"pthread_cond_timedwait", call_condition},
    {"sigtimedwait", call_sigtimedwait},
    {"sigwaitinfo of all", call_sigwaitinfo},
    {"semtimedop", call_semtimedop},
    {"recv timed", call_recv_timed},
    {"read timed", call_read_timed},
    {"accept timed", call_accept_timed},
    {"read pipe", call_read_pipe},
    {"read eventfd", call_read_event},
    {"waitpid", call_wait},
    {"msgrcv", call_message},
    {"usleep", call_sigsuspend},
};
#define KIND_COUNT (sizeof kinds / sizeof *kinds)

static int failures;

static void *kind_main(void *opaque)
{
    const struct kind *kind = opaque;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    errno = 0;
    int result = kind->call();
    int error = errno;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ms =
        (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
    if (result != 0 || ms < block_ms - 1 || ms > block_ms + SLACK_MS * slowness()) {
        fprintf(stderr, "victim: %s returned %d (errno %d) after %.1f ms\n", kind->name, result,
                error, ms);
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int victim_calls(void)
{
    pthread_t thread[KIND_COUNT];
    block_set();
    for (size_t i = 0; i < KIND_COUNT; i++)
        pthread_create(&thread[i], NULL, kind_main, (void *)(uintptr_t)&kinds[i]);
    victim_ready();
    for (size_t i = 0; i < KIND_COUNT; i++)
        pthread_join(thread[i], NULL);
    return failures != 0;
}

// ---- seccomp
// ----------------------------------------------------------------------------------------------

// Allows read, write, exit_group, exit, nanosleep; everything else kills.
static void filter_install(void)
{
#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),                                           \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read),
        ALLOW(SYS_write),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_exit),
        ALLOW(SYS_nanosleep),
        ALLOW(SYS_restart_syscall),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(1);
}

int victim_filter(int killing)
{
    (void)killing;
    victim_ready();
    filter_install();
    for (;;) {
        char byte;
        for (int i = 0; i < 1000; i++)
            victim_check();
        ssize_t got = read(0, &byte, 1);
        if (got == 1 && byte == 'q')
            _exit(0);
        if (got <= 0)
            _exit(0);
    }
}

// ---- restartable sequences
// --------------------------------------------------------------------------------

#ifdef __GLIBC__
#if __has_include(<sys/rseq.h>) // glibc 2.35
#define HAVE_RSEQ_AREA
#include <sys/rseq.h>
#endif
#endif

#ifdef HAVE_RSEQ_AREA

#define SEQUENCE_SPINS 3000000UL // some milliseconds, so that most holds fall into it

extern const char victim_sequence_start[], victim_sequence_abort[];

// In sites.S: names its sequence to the kernel and spins in it. 1 if it was aborted.
int victim_spin(uint64_t *rseq_cs, unsigned long spins);

static volatile int sequence_stop;

static void *sequence_stopper(void *opaque)
{
    (void)opaque;
    victim_wait();
    sequence_stop = 1;
    return NULL;
}

// Spins inside a restartable sequence. Each preemption, each signal and each hold must lead to its
// abort handler. Its ready line gives the addresses of both.
int victim_sequence(void)
{
    pthread_t stopper;
    unsigned long aborts = 0;
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    if (__rseq_size == 0)
        exit(77);
    pthread_create(&stopper, NULL, sequence_stopper, NULL);
    printf("ready %p %p\n", (const void *)victim_sequence_start,
           (const void *)victim_sequence_abort);
    fflush(stdout);
    while (!sequence_stop)
        aborts += (unsigned long)victim_spin((uint64_t *)&area->rseq_cs, SEQUENCE_SPINS);
    pthread_join(stopper, NULL);
    return aborts == 0;
}
#else
int victim_sequence(void)
{
    exit(77);
}
#endif

// The bench's victim process: finds the program, starts it, speaks with it by lines.
//
// It knows nothing of probes. Invariant: one line is asked, one line is answered, so that nothing
// is ever left in a buffer.
#include "cli/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

#define LINE_SIZE 128

static int victim_find(char *path, size_t size, struct tl_diag *diag)
{
    static const char *const places[] = {"bench/victim", "../libexec/trapless/victim"};
    char self[2048];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return tl_cli_error(diag, TL_E_SYSTEM, "/proc/self/exe: %s", strerror(errno));
    self[length] = 0;
    *strrchr(self, '/') = 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(places); i++) {
        if (snprintf(path, size, "%s/%s", self, places[i]) < (int)size && access(path, X_OK) == 0)
            return 0;
    }
    return tl_cli_error(diag, TL_E_SYSTEM, "the bench's victim program is not beside %s", self);
}

static void cpu_pin(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return;
    for (size_t cpu = CPU_SETSIZE; cpu-- > 0;) {
        if (CPU_ISSET(cpu, &set)) {
            CPU_ZERO(&set);
            CPU_SET(cpu, &set);
            (void)sched_setaffinity(0, sizeof set, &set);
            return;
        }
    }
}

static bool line_read(struct tl_victim *victim, char *line)
{
    if (!fgets(line, LINE_SIZE, victim->from))
        return false;
    line[strcspn(line, "\n")] = 0;
    return true;
}

// Its first line, and what it can be asked for.
static bool victim_greet(struct tl_victim *victim)
{
    static const char word[] = "sites";
    char line[LINE_SIZE] = "";
    if (!victim->to || !victim->from || !line_read(victim, line) || strcmp(line, "ready") != 0)
        return false;
    fprintf(victim->to, "%s\n", word);
    if (fflush(victim->to) || !line_read(victim, line) || strncmp(line, word, sizeof word - 1) != 0)
        return false;
    (void)snprintf(victim->sites, sizeof victim->sites, "%s", line + sizeof word - 1);
    return true;
}

int tl_victim_start(struct tl_victim *victim, struct tl_diag *diag)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    int error = victim_find(victim->path, sizeof victim->path, diag);
    if (error)
        return error;
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) || (victim->pid = fork()) < 0)
        return tl_cli_error(diag, TL_E_SYSTEM, "starting the victim: %s", strerror(errno));
    if (!victim->pid) {
        if (dup2(to[0], STDIN_FILENO) < 0 || dup2(from[1], STDOUT_FILENO) < 0)
            _exit(127);
        cpu_pin();
        (void)execl(victim->path, victim->path, (char *)NULL);
        _exit(127);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    victim->to = fdopen(to[1], "w");
    victim->from = fdopen(from[0], "r");
    if (!victim_greet(victim))
        return tl_cli_error(diag, TL_E_SYSTEM, "%s did not start", victim->path);
    return 0;
}

bool tl_victim_has(const struct tl_victim *victim, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = victim->sites; (at = strstr(at, name)); at += size) {
        if (at > victim->sites && at[-1] == ' ' && (!at[size] || at[size] == ' '))
            return true;
    }
    return false;
}

void tl_victim_end(struct tl_victim *victim)
{
    if (victim->to)
        (void)fclose(victim->to);
    if (victim->from)
        (void)fclose(victim->from);
    if (victim->pid > 0) {
        (void)kill(victim->pid, SIGKILL);
        (void)waitpid(victim->pid, NULL, 0);
    }
}

// Until there is an answer, or the end of the pipe.
static int answer_wait(struct tl_victim *victim, struct tl_session *session, struct tl_diag *diag)
{
    struct pollfd fd = {.fd = fileno(victim->from), .events = POLLIN};
    int polled = 0;
    while (polled >= 0 && poll(&fd, 1, tl_session_poll_ms(session)) == 0)
        polled = tl_session_poll(session, diag);
    return polled < 0 ? polled : 0;
}

int tl_victim_run(struct tl_victim *victim, const char *name, uint64_t calls,
                  struct tl_session *session, double *ns, struct tl_diag *diag)
{
    char line[LINE_SIZE];
    char *end = NULL;
    fprintf(victim->to, "run %s %" PRIu64 "\n", name, calls);
    if (fflush(victim->to))
        return tl_cli_error(diag, TL_E_GONE, "case %s: the victim has ended", name);
    int error = session ? answer_wait(victim, session, diag) : 0;
    if (error)
        return error;
    if (!line_read(victim, line))
        return tl_cli_error(diag, TL_E_GONE, "case %s: the victim has ended", name);
    errno = 0;
    uint64_t total = strncmp(line, "ns ", 3) == 0 ? strtoull(line + 3, &end, 10) : 0;
    if (!total || errno || *end)
        return tl_cli_error(diag, TL_E_SYSTEM, "case %s: the victim could not run it", name);
    *ns = (double)total / 1e3;
    return 0;
}

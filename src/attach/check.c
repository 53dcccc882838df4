// May this process be probed? Each reason why not has a sentence of its own. Also the controller
// lock.
//
// Looks only: nothing here stops or changes the target.
#include "attach/held.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define SCOPE_PATH "/proc/sys/kernel/yama/ptrace_scope"
#define SMALL_FILE_MAX (64u << 10)
#define ANCESTORS_MAX 1024
#define CAP_SYS_PTRACE_BIT 19 // linux/capability.h

bool tl_check_may_all(void)
{
    char *text;
    size_t size;
    uint64_t caps = 0;
    if (tl_proc_read_file("/proc/thread-self/status", SMALL_FILE_MAX, &text, &size, NULL) != 0)
        return false;
    const char *line = strstr(text, "CapEff:");
    if (line)
        caps = strtoull(line + strlen("CapEff:"), NULL, 16);
    free(text);
    return (caps >> CAP_SYS_PTRACE_BIT & 1) != 0;
}

// The value of Yama's switch: 0 anyone with the same user, 1 ancestors, 2 administrators, 3 nobody
// (Documentation/admin-guide/LSM/Yama.rst). 0 where there is no Yama.
static int scope_read(const char *path)
{
    char *text;
    size_t size;
    if (tl_proc_read_file(path, SMALL_FILE_MAX, &text, &size, NULL) != 0)
        return 0;
    int scope = atoi(text);
    free(text);
    return scope;
}

static bool descends_from_us(pid_t pid)
{
    for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
        struct tl_proc_status status;
        if (pid == getpid())
            return true;
        if (tl_proc_status_read(pid, &status, NULL) != 0)
            break;
        pid = status.parent;
    }
    return false;
}

static bool scope_allows(int scope, pid_t pid)
{
    if (scope >= 3)
        return false;
    if (scope == 2)
        return tl_check_may_all();
    return scope <= 0 || tl_check_may_all() || descends_from_us(pid);
}

static int scope_refusal(int scope, pid_t pid, struct tl_diag *diag)
{
    if (scope >= 3)
        return tl_diag_set(diag, TL_E_PERM,
                           "pid %d: ptrace refused (ptrace_scope is 3): nobody may attach until "
                           "the next boot",
                           pid);
    if (scope == 2)
        return tl_diag_set(diag, TL_E_PERM,
                           "pid %d: ptrace refused (ptrace_scope is 2): run as root", pid);
    return tl_diag_set(diag, TL_E_PERM,
                       "pid %d: ptrace refused (ptrace_scope is 1): run as root or start the "
                       "program with --",
                       pid);
}

static int check_kind(pid_t pid, const struct tl_proc_status *status, struct tl_diag *diag)
{
    if (status->tgid == getpid())
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "pid %d: is this very program; it can't stop itself", pid);
    if (status->tgid != pid)
        return tl_diag_set(diag, TL_E_USAGE, "pid %d: is a thread of pid %d: use that", pid,
                           status->tgid);
    if (status->kernel_thread)
        return tl_diag_set(diag, TL_E_UNSUPPORTED, "pid %d: is a kernel thread (%s)", pid,
                           status->name);
    if (status->state == 'X' || (status->state == 'Z' && status->threads <= 1))
        return tl_diag_set(diag, TL_E_GONE, "pid %d: has ended (zombie)", pid);
    if (status->state == 'Z')
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "pid %d: its first thread has ended and hides its memory map", pid);
    if (status->tracer != 0) {
        struct tl_proc_status tracer = {.name = "?"};
        (void)tl_proc_status_read(status->tracer, &tracer, NULL);
        return tl_diag_set(diag, TL_E_BUSY, "pid %d: is traced by pid %d (%s): end that first", pid,
                           tracer.tgid ? tracer.tgid : status->tracer, tracer.name);
    }
    return 0;
}

static int check_allowed(pid_t pid, const struct tl_proc_status *status,
                         const struct tl_target_options *options, struct tl_diag *diag)
{
    char path[64];
    int scope = scope_read(options->ptrace_scope_path ? options->ptrace_scope_path : SCOPE_PATH);
    (void)snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int fd = open(path, O_RDWR | O_CLOEXEC); // asks the kernel's ptrace rules, Yama's included
    int error = errno;
    if (fd >= 0) {
        close(fd);
        // A stand-in switch is obeyed as the kernel would obey its own.
        if (!options->ptrace_scope_path || scope_allows(scope, pid))
            return 0;
        return scope_refusal(scope, pid, diag);
    }
    struct tl_proc_status now;
    if (error == ENOENT || error == ESRCH || tl_proc_status_read(pid, &now, NULL) != 0 ||
        !now.memory)
        return tl_diag_set(diag, TL_E_GONE, "pid %d: ended meanwhile", pid);
    bool other_user = status->uid_effective != geteuid() || status->uid_real != geteuid();
    if (other_user && !tl_check_may_all())
        return tl_diag_set(diag, TL_E_PERM,
                           "pid %d: belongs to another user (uid %u): run as root or as that user",
                           pid, status->uid_effective);
    if (!scope_allows(scope, pid))
        return scope_refusal(scope, pid, diag);
    if (!tl_check_may_all())
        return tl_diag_set(diag, TL_E_PERM,
                           "pid %d: does not let itself be traced (not dumpable: it changed its "
                           "user, has capabilities or asked for it): run as root",
                           pid);
    return tl_diag_set(diag, TL_E_PERM, "pid %d: the system's security policy refuses ptrace (%s)",
                       pid, strerror(error));
}

static int check_class(pid_t pid, struct tl_diag *diag)
{
    char path[64];
    Elf64_Ehdr head = {0}; // e_machine lies at the same place in a 32-bit one
    const unsigned char *ident = head.e_ident;
    (void)snprintf(path, sizeof path, "/proc/%d/exe", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tl_diag_set(diag, errno == ENOENT ? TL_E_GONE : TL_E_PERM,
                           "pid %d: its program file can't be opened: %s", pid, strerror(errno));
    ssize_t got = pread(fd, &head, sizeof head, 0);
    close(fd);
    if (got < EI_NIDENT || memcmp(ident, ELFMAG, SELFMAG) != 0)
        return tl_diag_set(diag, TL_E_FORMAT, "pid %d: its program is no ELF file", pid);
    if (ident[EI_CLASS] != ELFCLASS64)
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "pid %d: is a 32-bit program; only 64-bit ones are supported", pid);
    if (head.e_machine != tl_machine)
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "pid %d: is made for another processor (ELF machine %u); only this "
                           "machine's own programs are supported",
                           pid, head.e_machine);
    return 0;
}

int tl_check_target(pid_t pid, const struct tl_target_options *options, uint64_t *start_time,
                    struct tl_diag *diag)
{
    struct tl_proc_status status;
    if (pid <= 0)
        return tl_diag_set(diag, TL_E_USAGE, "pid %d: is no process id", pid);
    int error = tl_proc_status_read(pid, &status, NULL);
    if (error == TL_E_GONE)
        return tl_diag_set(diag, TL_E_GONE, "pid %d: no such process", pid);
    if (error)
        return tl_diag_set(diag, error, "pid %d: its status can't be read", pid);
    error = check_kind(pid, &status, diag);
    if (!error)
        error = check_allowed(pid, &status, options, diag);
    if (!error)
        error = check_class(pid, diag);
    if (!error)
        *start_time = status.start_time;
    return error;
}

// The kernel lets one opener of /proc/PID hold the lock, and drops it when the holder dies. Two
// mounts of /proc are two locks; the state in the target's own pages covers that.
int tl_check_lock(pid_t pid, int *lock_fd, struct tl_diag *diag)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d", pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return tl_diag_set(diag, TL_E_GONE, "pid %d: no such process", pid);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return tl_diag_set(diag, TL_E_BUSY,
                           "pid %d: another trapless is at work on it: wait for it or end it", pid);
    }
    *lock_fd = fd;
    return 0;
}

// Reads and writes the target's memory.
//
// Reading needs no stop. Writing goes through /proc/TID/mem of a task that is held by the calling
// thread, since some kernels let nobody else write to text (proc_mem.force_override=ptrace, Linux
// 6.12), and then by PTRACE_POKETEXT. Invariant: bytes outside [addr, addr + size) keep their
// values.
#include "attach/held.h"
#include "base/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#define WORD_SIZE sizeof(long)

static int mem_open(pid_t tid, int flags)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/mem", tid);
    return open(path, flags | O_CLOEXEC);
}

static bool read_by_file(pid_t tid, tl_addr addr, void *buf, size_t size)
{
    int fd = mem_open(tid, O_RDONLY);
    size_t done = 0;
    if (fd < 0)
        return false;
    while (done < size) {
        ssize_t got = pread(fd, (char *)buf + done, size - done, (off_t)(addr + done));
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        if (got > 0)
            done += (size_t)got;
    }
    close(fd);
    return done == size;
}

int tl_target_read(struct tl_target *target, tl_addr addr, void *buf, size_t size,
                   struct tl_diag *diag)
{
    struct iovec here = {buf, size}, there = {(void *)(uintptr_t)addr, size};
    if (size == 0)
        return 0;
    ssize_t got = process_vm_readv(target->pid, &here, 1, &there, 1, 0);
    if (got == (ssize_t)size)
        return 0;
    if (got < 0 && errno == ESRCH)
        return tl_gone(target, diag);
    pid_t tid = target->borrowed ? target->borrowed : target->pid;
    if (read_by_file(tid, addr, buf, size))
        return 0;
    if (!tl_target_alive(target))
        return tl_gone(target, diag);
    return tl_diag_set(diag, TL_E_SYSTEM, "pid %d: no readable memory at 0x%llx", target->pid,
                       (unsigned long long)addr);
}

bool tl_target_page_equals(struct tl_target *target, const struct tl_map *map, int fd, tl_addr page)
{
    uint8_t here[TL_PAGE_SIZE], there[TL_PAGE_SIZE];
    bool equal = true;
    for (size_t at = 0; equal && at < tl_page_size(); at += sizeof here) {
        off_t off = (off_t)(map->file_off + (page - map->start) + at);
        memset(there, 0, sizeof there);
        ssize_t got = pread(fd, there, sizeof there, off); // short at the file's end: zeros follow
        equal = got >= 0 && (got > 0 || at > 0) &&
                tl_target_read(target, page + at, here, sizeof here, NULL) == 0 &&
                memcmp(here, there, sizeof here) == 0;
    }
    return equal;
}

// ---- writing ------------------------------------------------------------------------------------

// Whole words of the target that hold the bytes; the ends are read first.
static int write_by_poke(struct tl_target *target, pid_t tid, tl_addr addr, const uint8_t *bytes,
                         size_t size, size_t *written)
{
    size_t done = 0;
    while (done < size) {
        tl_addr word_addr = (addr + done) & ~(tl_addr)(WORD_SIZE - 1);
        size_t skip = (size_t)(addr + done - word_addr);
        size_t part = WORD_SIZE - skip < size - done ? WORD_SIZE - skip : size - done;
        unsigned long word = 0;
        if (part < WORD_SIZE &&
            tl_trace(target, PTRACE_PEEKTEXT, tid, word_addr, (uint64_t)(uintptr_t)&word) != 0)
            break;
        memcpy((uint8_t *)&word + skip, bytes + done, part);
        if (tl_trace(target, PTRACE_POKETEXT, tid, word_addr, word) != 0)
            break;
        done += part;
    }
    *written = done;
    return done == size ? 0 : TL_E_SYSTEM;
}

static int write_fd(struct tl_target *target, pid_t tid)
{
    if (target->mem_tid != tid) {
        if (target->mem_fd >= 0)
            close(target->mem_fd);
        target->mem_fd = mem_open(tid, O_RDWR);
        target->mem_tid = tid;
    }
    return target->mem_fd;
}

static int write_by_file(struct tl_target *target, pid_t tid, tl_addr addr, const uint8_t *bytes,
                         size_t size, size_t *written)
{
    int fd = write_fd(target, tid);
    size_t done = 0;
    while (fd >= 0 && done < size) {
        tl_step(target);
        ssize_t put = pwrite(fd, bytes + done, size - done, (off_t)(addr + done));
        if (put <= 0 && !(put < 0 && errno == EINTR))
            break;
        if (put > 0)
            done += (size_t)put;
    }
    *written = done;
    return done == size ? 0 : TL_E_SYSTEM;
}

// A task that only can't leave the kernel is poked in its stop, which is to come.
static void poke_await(struct tl_target *target, pid_t tid)
{
    struct tl_task *task = tl_task_find(target, tid);
    if (task && task->state == TL_TASK_IN_KERNEL)
        (void)tl_task_wait(target, task,
                           tl_clock_ns() + TL_STRAGGLER_TIMEOUT_MS * UINT64_C(1000000));
}

int tl_memory_write(struct tl_target *target, pid_t tid, tl_addr addr, const void *buf, size_t size,
                    size_t *written, struct tl_diag *diag)
{
    size_t by_file = 0, by_poke = 0;
    int error = TL_E_SYSTEM;
    if (!target->options.force_poke)
        error = write_by_file(target, tid, addr, buf, size, &by_file);
    if (error)
        poke_await(target, tid);
    if (error)
        error = write_by_poke(target, tid, addr + by_file, (const uint8_t *)buf + by_file,
                              size - by_file, &by_poke);
    if (written)
        *written = by_file + by_poke;
    if (!error)
        return 0;
    if (!tl_target_alive(target))
        return tl_gone(target, diag);
    return tl_diag_set(diag, TL_E_SYSTEM, "pid %d: memory at 0x%llx can't be written: %s",
                       target->pid, (unsigned long long)addr, strerror(errno));
}

struct write_job {
    struct tl_target *target;
    pid_t tid;
    tl_addr addr;
    const void *buf;
    size_t size;
    size_t *written;
    struct tl_diag *diag;
};

static int write_run(void *opaque)
{
    struct write_job *job = opaque;
    return tl_memory_write(job->target, job->tid, job->addr, job->buf, job->size, job->written,
                           job->diag);
}

int tl_target_write(struct tl_target *target, tl_addr addr, const void *buf, size_t size,
                    size_t *written, struct tl_diag *diag)
{
    static const enum tl_task_state usable[] = {TL_TASK_STOPPED, TL_TASK_IN_KERNEL};
    pid_t tid = target->borrowed;
    for (size_t k = 0; k < TL_ARRAY_COUNT(usable); k++) {
        for (size_t i = 0; !tid && i < target->task_count; i++) {
            if (target->task[i]->state == usable[k])
                tid = target->task[i]->tid;
        }
    }
    if (!tid && (target->task_count || !tl_target_alive(target))) // all that were held were killed
        return tl_diag_set(diag, TL_E_GONE, "pid %d: ended meanwhile", target->pid);
    if (!tid)
        return tl_diag_set(diag, TL_E_USAGE, "pid %d: is not held", target->pid);
    struct write_job job = {target, tid, addr, buf, size, written, diag};
    return tl_worker_call(target, write_run, &job, diag);
}

// Other processes that hold a copy of the install: children forked while probes were in, their children.
//
// A copy has the text, the detours and the code header at the target's addresses. It is found by asking
// every process for that header. Invariant: what is done to a copy is what detach does to the target, by
// the same rules (device, inode, offset and our own bytes match), and each copy is done once.
#include "patch/install.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PASSES_MAX 64      // looks through all processes, while some of them fork
#define PASSES_EMPTY 2     // in a row that find none: a dying parent may have hidden a child once
#define FAILURES_MAX 256u  // processes that can't be stopped, remembered so that they end no loop
#define BUSY_TRIES 5       // somebody else, or an exec of ours, holds it for a moment
#define BUSY_PAUSE_NS 5000000

static bool header_read(const struct tl_install *install, pid_t pid, struct tl_code_header *out)
{
    const struct tl_code_header *ours = &install->header;
    // Most processes have nothing there.
    return tl_proc_read_memory(pid, install->code_addr, out, sizeof *out) &&
           out->magic == TL_CODE_MAGIC && out->version == TL_LAYOUT_VERSION &&
           out->controller_pid == ours->controller_pid &&
           out->controller_start == ours->controller_start &&
           out->control_addr == ours->control_addr && out->data_addr == ours->data_addr &&
           out->log_addr == ours->log_addr;
}

bool tl_install_copy_in(const struct tl_install *install, pid_t pid, struct tl_control *control)
{
    struct tl_code_header header;
    return header_read(install, pid, &header) && header.state != TL_CODE_IDLE &&
           tl_proc_read_memory(pid, install->header.control_addr, control, sizeof *control);
}

// The shared memory in it is this install's, and not that of another whose addresses are the same.
static bool data_is_ours(const struct tl_install *install, pid_t pid)
{
    struct stat st;
    struct tl_maps maps;
    if (install->data_fd <= 0)
        return true;
    if (fstat(install->data_fd, &st) != 0 || tl_maps_read(pid, &maps, NULL) != 0)
        return false;
    const struct tl_map *map = tl_maps_at(&maps, install->header.data_addr);
    bool ours = map && map->inode == st.st_ino &&
                strncmp(map->path, TL_DATA_PATH, strlen(TL_DATA_PATH)) == 0;
    tl_maps_deinit(&maps);
    return ours;
}

int tl_processes_list(pid_t **out, size_t *count, struct tl_diag *diag)
{
    DIR *dir = opendir("/proc");
    pid_t *list = NULL;
    size_t used = 0, room = 0;
    bool failed = false;
    if (!dir)
        return tl_diag_set(diag, TL_E_SYSTEM, "/proc: %s", strerror(errno));
    for (struct dirent *entry; !failed && (entry = readdir(dir));) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (used == room) {
            room = room ? 2 * room : 1024;
            pid_t *grown = realloc(list, room * sizeof *grown);
            failed = !grown;
            list = grown ? grown : list;
        }
        if (!failed)
            list[used++] = (pid_t)strtol(entry->d_name, NULL, 10);
    }
    closedir(dir);
    if (failed) {
        free(list);
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    }
    *out = list;
    *count = used;
    return 0;
}

int tl_install_copies_among(const struct tl_install *install, const pid_t *pid, size_t count,
                            int (*visit)(void *opaque, pid_t pid, const struct tl_control *control),
                            void *opaque)
{
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        struct tl_control control;
        if (pid[i] != getpid() && pid[i] != tl_target_pid(install->target) &&
            tl_install_copy_in(install, pid[i], &control) && data_is_ours(install, pid[i]))
            result = visit(opaque, pid[i], &control);
    }
    return result;
}

int tl_install_copies(const struct tl_install *install,
                      int (*visit)(void *opaque, pid_t pid, const struct tl_control *control),
                      void *opaque, struct tl_diag *diag)
{
    pid_t *pid;
    size_t count;
    int error = tl_processes_list(&pid, &count, diag);
    if (error)
        return error;
    int result = tl_install_copies_among(install, pid, count, visit, opaque);
    free(pid);
    return result;
}

// ---- putting back -------------------------------------------------------------------------------

struct copy_job {
    struct tl_install *install;
    struct tl_target *child;
    struct tl_writes writes; // all as if they were in the text: the child may have been forked at any time
    bool all;                // the way out; else only what is closed
    struct tl_diag *diag;
};

static bool pick_closed(const struct tl_write *write, void *opaque)
{
    const struct copy_job *job = opaque;
    return job->all || job->install->writes.write[write - job->writes.write].state == TL_WRITE_CLOSED;
}

static int copy_idle(struct copy_job *job)
{
    const struct tl_install *install = job->install;
    const uint32_t idle = TL_CODE_IDLE, dead = 0;
    int error = tl_target_write(job->child, install->header.control_addr, &dead, sizeof dead, NULL,
                                job->diag);
    if (!error)
        error = tl_target_write(job->child,
                                install->code_addr + offsetof(struct tl_code_header, state), &idle,
                                sizeof idle, NULL, job->diag);
    return error;
}

static int copy_stopped(struct copy_job *job)
{
    struct tl_control control;
    struct tl_text_view text;
    if (!tl_install_copy_in(job->install, tl_target_pid(job->child), &control))
        return 0; // it executed another program, or shares the memory of one that is done
    int error = tl_text_load(job->child, &job->writes, &text, job->diag);
    if (error)
        return error;
    size_t left = 0;
    if (job->all)
        (void)tl_hijack_put_back(job->child, &job->install->header, &job->writes);
    text.agent = tl_code_agent(&job->install->header);
    int count = tl_text_put_back(job->child, &text, &job->writes, pick_closed, job, &left, job->diag);
    tl_text_deinit(&text);
    if (count >= 0 && left)
        count = TL_E_BUSY; // tried again
    return count < 0 ? count : job->all ? copy_idle(job) : 0;
}

static int copy_run(void *opaque)
{
    struct copy_job *job = opaque;
    bool borrowed = true;
    int error = tl_patch_stop(job->child, &borrowed, job->diag);
    if (!error)
        error = copy_stopped(job);
    if (!error && borrowed) {
        tl_target_resume_others(job->child);
        tl_text_pages_return(job->child, &job->writes);
    }
    tl_target_resume(job->child);
    return error;
}

static int copy_put_back(struct tl_install *install, pid_t pid, bool all, struct tl_diag *diag)
{
    struct copy_job job = {.install = install, .all = all, .diag = diag};
    size_t count = install->writes.count;
    job.writes.write = calloc(count + 1, sizeof *job.writes.write);
    if (!job.writes.write)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    job.writes.count = count;
    for (size_t i = 0; i < count; i++) {
        job.writes.write[i] = install->writes.write[i];
        job.writes.write[i].state = TL_WRITE_DONE;
    }
    int error = TL_E_BUSY;
    for (int i = 0; i < BUSY_TRIES && error == TL_E_BUSY; i++) {
        struct timespec pause = {.tv_nsec = i ? BUSY_PAUSE_NS : 0};
        nanosleep(&pause, NULL);
        error = tl_target_open(pid, NULL, &job.child, diag);
        if (!error)
            error = tl_target_run(job.child, copy_run, &job, diag);
        tl_target_close(job.child);
        job.child = NULL;
    }
    free(job.writes.write);
    return error == TL_E_GONE ? 0 : error;
}

// ---- all of them --------------------------------------------------------------------------------

struct family_job {
    struct tl_install *install;
    bool all;
    pid_t failed[FAILURES_MAX];
    size_t failed_count;
    int error, done; // the first error; copies done in this pass
    struct tl_diag *diag;
};

static int family_visit(void *opaque, pid_t pid, const struct tl_control *control)
{
    struct family_job *job = opaque;
    (void)control;
    for (size_t i = 0; i < job->failed_count; i++) {
        if (job->failed[i] == pid)
            return 0;
    }
    int error = copy_put_back(job->install, pid, job->all, job->error ? NULL : job->diag);
    if (!error) {
        job->done++;
        return 0;
    }
    job->error = job->error ? job->error : error;
    if (job->failed_count < FAILURES_MAX)
        job->failed[job->failed_count++] = pid;
    return 0;
}

int tl_install_copies_detach(struct tl_install *install, struct tl_diag *diag)
{
    struct family_job job = {.install = install, .all = true, .diag = diag};
    int total = 0, empty = 0, error = 0;
    if (!install->committed)
        return 0;
    for (int pass = 0; pass < PASSES_MAX && empty < PASSES_EMPTY && !error; pass++) {
        job.done = 0;
        error = tl_install_copies(install, family_visit, &job, diag);
        total += job.done;
        empty = job.done ? 0 : empty + 1;
    }
    return error ? error : job.error ? job.error : total;
}

int tl_install_copies_close(struct tl_install *install, struct tl_diag *diag)
{
    struct family_job job = {.install = install, .diag = diag};
    size_t closed = 0;
    if (!install->committed || install->detached)
        return 0;
    for (size_t i = 0; i < install->writes.count; i++)
        closed += install->writes.write[i].state == TL_WRITE_CLOSED;
    if (closed == install->copies_closed)
        return 0;
    install->copies_closed = closed;
    // One pass: a child forked meanwhile by the target has the bytes put back, one by a child may not.
    int error = tl_install_copies(install, family_visit, &job, diag);
    return error ? error : job.error;
}

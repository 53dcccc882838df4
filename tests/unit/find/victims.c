// Opens, starts and ends victims. Every process started here is killed and waited for by
// process_stop.
#include "victims.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const char *victim_path(const char *name)
{
    static char paths[4][VICTIM_PATH_SIZE];
    static unsigned turn;
    const char *dir = getenv("TL_VICTIMS");
    char *path = paths[turn++ % 4];
    assert_non_null(dir);
    assert_true(snprintf(path, VICTIM_PATH_SIZE, "%s/%s", dir, name) < VICTIM_PATH_SIZE);
    return access(path, F_OK) == 0 ? path : NULL;
}

struct tl_image *victim_open(const char *name, const char *debug_dir, const char *root)
{
    struct tl_image_options options = {.debug_dir = debug_dir, .root = root};
    struct tl_image *image = NULL;
    struct tl_diag diag = {""};
    const char *path = victim_path(name);
    if (!path) {
        print_message("%s was not built here\n", name);
        skip();
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    int error = tl_image_open(fd, path, &options, &image, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(error, 0);
    return image;
}

struct tl_modules *victim_modules(const char *name)
{
    struct tl_modules *modules = NULL;
    struct tl_diag diag = {""};
    const char *path = victim_path(name);
    if (!path)
        skip();
    assert_int_equal(tl_modules_of_file(path, NULL, &modules, &diag), 0);
    return modules;
}

const struct tl_symbol *symbol_named(const struct tl_image *image, const char *name)
{
    const struct tl_symbol *symbol;
    size_t count = tl_image_symbols(image, &symbol);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(symbol[i].name, name) == 0)
            return &symbol[i];
    }
    return NULL;
}

const uint8_t *facts_text(const struct tl_module_facts *facts, tl_addr vaddr, size_t size)
{
    for (size_t i = 0; i < facts->text_count; i++) {
        const struct tl_text *text = &facts->text[i];
        if (vaddr - text->vaddr < text->size && text->size - (vaddr - text->vaddr) >= size)
            return text->bytes + (vaddr - text->vaddr);
    }
    return NULL;
}

bool facts_point_to(const tl_addr *list, size_t count, tl_addr vaddr)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == vaddr)
            return true;
    }
    return false;
}

static int read_process(void *opaque, tl_addr addr, void *buf, size_t size)
{
    int fd = *(int *)opaque;
    return pread(fd, buf, size, (off_t)addr) == (ssize_t)size ? 0 : -1;
}

static void find_with(const struct tl_find_context *context, const char *probe, struct found *out)
{
    struct tl_probe_spec spec;
    *out = (struct found){0};
    int error = tl_probe_parse(probe, &spec, &out->diag);
    assert_string_equal(out->diag.text, "");
    assert_int_equal(error, 0);
    out->matched = tl_find_sites(context, &spec, &out->sites, &out->diag);
    tl_probe_spec_deinit(&spec);
}

void find(struct tl_modules *modules, pid_t pid, const char *probe, struct found *out)
{
    struct tl_find_context context = {.modules = modules, .pid = pid};
    find_with(&context, probe, out);
}

void found_deinit(struct found *found)
{
    tl_sites_deinit(&found->sites);
}

void process_start(struct process *process, const char *const argv[])
{
    int out[2];
    char byte = 0;
    *process = (struct process){.out = -1, .memory = -1};
    assert_int_equal(pipe(out), 0);
    process->pid = fork();
    assert_true(process->pid >= 0);
    if (process->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(out[1]);
    process->out = out[0];
    // All it prints is its last line, "ready"; a victim that can't run closes the pipe.
    char line[256];
    size_t used = 0;
    while (used < sizeof line - 1 && read(out[0], &byte, 1) == 1) {
        line[used++] = byte;
        line[used] = 0;
        if (byte == '\n' && strstr(line, "ready"))
            break;
    }
    assert_true(byte == '\n');
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)process->pid);
    process->memory = open(path, O_RDONLY | O_CLOEXEC);
}

void process_modules(struct process *process)
{
    struct tl_diag diag = {""};
    tl_modules_destroy(process->modules);
    process->modules = NULL;
    tl_maps_deinit(&process->maps);
    assert_int_equal(tl_maps_read(process->pid, &process->maps, &diag), 0);
    int error = tl_modules_of_process(process->pid, &process->maps, NULL, &process->modules, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(error, 0);
}

void process_find(struct process *process, const char *probe, struct found *out)
{
    struct tl_find_context context = {.modules = process->modules,
                                      .pid = process->pid,
                                      .read = read_process,
                                      .opaque = &process->memory};
    find_with(&context, probe, out);
}

void process_stop(struct process *process)
{
    tl_modules_destroy(process->modules);
    tl_maps_deinit(&process->maps);
    if (process->pid > 0) {
        kill(process->pid, SIGKILL);
        while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    if (process->out >= 0)
        close(process->out);
    if (process->memory >= 0)
        close(process->memory);
}

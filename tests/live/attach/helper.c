// Victims, text comparison and hand-made plans for live tests.
#include "helper.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "attach/isa.h"
#include "base/page.h"

#define DETOUR_ROOM TL_DETOUR_SIZE_MAX
#define DETACH_TRIES_MAX 5

static _Noreturn void broken(const char *what)
{
    perror(what);
    abort();
}

int machine_slowness(void)
{
    const char *text = getenv("TL_SLOW");
    return text && atoi(text) > 0 ? atoi(text) : 1;
}

void victim_await(struct victim *victim)
{
    char line[256];
    unsigned long long one, window;
    do {
        if (!fgets(line, sizeof line, victim->out)) {
            int status = 0;
            waitpid(victim->pid, &status, 0);
            fprintf(stderr, "victim ended with status 0x%x: ", status);
            broken("no ready line");
        }
    } while (strncmp(line, "ready", 5) != 0);
    if (sscanf(line, "ready 0x%llx 0x%llx", &one, &window) == 2) {
        victim->one = one;
        victim->window = window;
    }
}

void victim_spawn(struct victim *victim, char *const argv[])
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        broken("pipe");
    *victim = (struct victim){.pid = fork()};
    if (victim->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execv(argv[0], argv);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    victim->in = in[1];
    victim->out = fdopen(out[0], "r");
    if (victim->pid < 0 || !victim->out)
        broken("fork");
}

void victim_start_argv(struct victim *victim, char *const argv[])
{
    victim_spawn(victim, argv);
    victim_await(victim);
}

void victim_start(struct victim *victim, const char *mode, const char *count)
{
    char *argv[] = {(char *)(uintptr_t)VICTIM_PATH, (char *)(uintptr_t)mode,
                    (char *)(uintptr_t)count, NULL};
    victim_start_argv(victim, argv);
}

void victim_go(struct victim *victim)
{
    if (write(victim->in, "q\n", 2) != 2)
        broken("victim does not read");
}

static void victim_close(struct victim *victim)
{
    close(victim->in);
    fclose(victim->out);
}

int victim_end(struct victim *victim)
{
    int status = -1;
    (void)!write(victim->in, "q\n", 2);
    if (waitpid(victim->pid, &status, 0) != victim->pid)
        broken("waitpid");
    victim_close(victim);
    return status;
}

void victim_kill(struct victim *victim)
{
    kill(victim->pid, SIGKILL);
    waitpid(victim->pid, NULL, 0);
    victim_close(victim);
}

// ---- text
// -------------------------------------------------------------------------------------------

static bool map_is_files(pid_t pid, const struct tl_map *map)
{
    char path[64];
    size_t size = (size_t)(map->end - map->start);
    uint8_t *here = malloc(size), *there = calloc(1, size);
    (void)snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int mem = open(path, O_RDONLY), file = tl_proc_open_mapped(pid, map, NULL);
    bool equal = here && there && mem >= 0 && file >= 0 &&
                 pread(mem, here, size, (off_t)map->start) == (ssize_t)size &&
                 pread(file, there, size, (off_t)map->file_off) >= 0 &&
                 memcmp(here, there, size) == 0;
    for (size_t i = 0; !equal && here && there && i < size; i++) {
        if (here[i] != there[i]) {
            fprintf(stderr, "text of %s differs at 0x%llx: %02x, file %02x\n", map->path,
                    (unsigned long long)map->start + i, here[i], there[i]);
            break;
        }
    }
    if (mem >= 0)
        close(mem);
    if (file >= 0)
        close(file);
    free(here);
    free(there);
    return equal;
}

bool text_is_files(pid_t pid)
{
    struct tl_maps maps;
    bool equal = tl_maps_read(pid, &maps, NULL) == 0;
    for (size_t i = 0; equal && i < maps.count; i++) {
        const struct tl_map *map = &maps.map[i];
        if ((map->prot & TL_PROT_EXEC) && map->inode && strncmp(map->path, "/memfd:", 7) != 0)
            equal = map_is_files(pid, map);
    }
    tl_maps_deinit(&maps);
    return equal;
}

// ---- plans
// ------------------------------------------------------------------------------------------

static int plan_make(struct tl_target *target, const struct tl_install *install, tl_addr addr,
                     tl_addr detour_addr, uint32_t probe, const struct tl_record *record,
                     struct tl_plan *plan, struct tl_detour *detour, struct tl_patch *patch)
{
    const struct tl_arch *arch = tl_arch_find(tl_machine);
    uint8_t code[64];
    struct tl_insn insn[TL_WINDOW_INSNS_MAX];
    uint8_t count = 0, size = 0;
    int error = tl_target_read(target, addr, code, sizeof code, NULL);
    while (!error && size < arch->jump_size && count < TL_WINDOW_INSNS_MAX) {
        error = arch->decode(code + size, sizeof code - size, addr + size, &insn[count]);
        size = (uint8_t)(size + insn[count++].size);
    }
    if (error)
        return error;
    struct tl_emit_in in = {.action = TL_ACTION_COUNT,
                            .counter_off = TL_BLOCK_HEADER_SIZE + 8 * probe,
                            .insn = insn,
                            .insn_count = count,
                            .resume_addr = addr + size};
    if (record) {
        in.action = TL_ACTION_RECORD;
        in.record[0] = *record;
    }
    tl_install_emit_input(install, &in);
    error = arch->emit_detour(&in, detour_addr, detour, NULL);
    if (error)
        return error;
    *plan = (struct tl_plan){.rung = TL_RUNG_JUMP,
                             .way = count == 1 ? TL_WAY_ONE : TL_WAY_WINDOW,
                             .addr = addr,
                             .window_size = size,
                             .interior = count > 1,
                             .detour_addr = detour_addr,
                             .detour_size = DETOUR_ROOM,
                             .detour = detour,
                             .patch = patch,
                             .patch_count = 1};
    *patch = (struct tl_patch){.addr = addr, .size = (uint8_t)arch->jump_size};
    memcpy(patch->before, code, arch->jump_size);
    return arch->emit_jump(addr, detour_addr, patch->after) ? 0 : TL_E_REACH;
}

// A free page below the text: above it lies the heap's room.
static tl_addr page_find(const struct tl_install *install, tl_addr text)
{
    const tl_addr size = tl_page_size();
    for (tl_addr page = (text & ~(size - 1)) - size; text - page < UINT64_C(1) << 30; page -= size) {
        bool used = false;
        for (size_t i = 0; i < install->used_count; i++)
            used |= install->used[i].start < page + 2 * size && install->used[i].end > page;
        if (!used)
            return page;
    }
    return 0;
}

int hand_plan_make(struct tl_target *target, const struct tl_install *install,
                   const struct victim *victim, const struct tl_record record[HAND_PLANS],
                   struct hand_plan *out)
{
    tl_addr page = page_find(install, victim->one);
    if (!page)
        return TL_E_REACH;
    const tl_addr site[HAND_PLANS] = {victim->one, victim->window};
    for (uint32_t i = 0; i < HAND_PLANS; i++) {
        tl_addr at = page + i * DETOUR_ROOM;
        int error = plan_make(target, install, site[i], at, i, record ? &record[i] : NULL,
                              &out->plan[i], &out->detour[i], &out->patch[i]);
        if (error)
            return error;
        out->list[i] = &out->plan[i];
        out->detours[i] =
            (struct tl_plan_detour){.addr = at, .detour = &out->detour[i], .site = site[i]};
    }
    out->mapping = (struct tl_range){page, page + tl_page_size()};
    out->input = (struct tl_commit_input){.mapping = &out->mapping,
                                          .mapping_count = 1,
                                          .detour = out->detours,
                                          .detour_count = HAND_PLANS,
                                          .plan = out->list,
                                          .plan_count = HAND_PLANS};
    return 0;
}

uint64_t hits_of(const struct tl_install *install, uint32_t probe)
{
    uint64_t sum = 0;
    const uint8_t *data = install->data;
    for (size_t i = 0; i <= TL_THREAD_SLOTS; i++)
        sum += *(const volatile uint64_t *)(data + TL_BLOCK_FIRST_OFF + i * install->blocks.stride +
                                            TL_BLOCK_HEADER_SIZE + 8 * probe);
    return sum;
}

static int plans_put(pid_t pid, const struct victim *victim,
                     const struct tl_install_options *options,
                     const struct tl_record record[HAND_PLANS], struct tl_target **target,
                     struct tl_install **install, struct tl_install_result results[HAND_PLANS],
                     struct tl_diag *diag)
{
    struct hand_plan *hand = calloc(1, sizeof *hand);
    struct tl_target *held = NULL;
    struct tl_install *prepared = NULL;
    int error = hand ? tl_target_open(pid, NULL, &held, diag) : TL_E_NOMEM;
    if (!error)
        error = tl_install_prepare(held, options, &prepared, diag);
    for (int i = 0; !error && i < 2; i++) { // once more where the facts changed
        error = hand_plan_make(held, prepared, victim, record, hand);
        if (!error)
            error = tl_install_commit_input(prepared, &hand->input, results, diag);
        if (error != TL_E_AGAIN)
            break;
        error = i ? error : 0;
    }
    free(hand);
    if (error) {
        tl_install_destroy(prepared);
        tl_target_close(held);
        return error;
    }
    *target = held;
    *install = prepared;
    return 0;
}

int probes_put(pid_t pid, const struct victim *victim, struct tl_target **target,
               struct tl_install **install, struct tl_install_result results[HAND_PLANS],
               struct tl_diag *diag)
{
    const struct tl_install_options options = {.probe_count = HAND_PLANS};
    return plans_put(pid, victim, &options, NULL, target, install, results, diag);
}

int records_put(pid_t pid, const struct victim *victim, const struct tl_install_options *options,
                const struct tl_record record[HAND_PLANS], struct tl_target **target,
                struct tl_install **install, struct tl_diag *diag)
{
    struct tl_install_result results[HAND_PLANS] = {0};
    int error = plans_put(pid, victim, options, record, target, install, results, diag);
    return !error && (results[0].refusal || results[1].refusal) ? TL_E_BUSY : error;
}

void probes_take(struct tl_install *install)
{
    struct tl_diag diag = {""};
    int error = TL_E_BUSY;
    for (int i = 0; i < DETACH_TRIES_MAX && error == TL_E_BUSY; i++)
        error = tl_install_detach(install, &diag);
    if (error)
        fail_msg("detach: %d: %s", error, diag.text);
}

// Memory of ours in the target: memfds, mappings, and where they may lie.
//
//   ... heap | 1 GiB left free | ... pools near text ... | agent, control, data | distance | mmap area
//   | stack room | stack
//
// Invariant: nothing is ever mapped over something else, and nothing lies where the heap, a stack
// or the mmap area would grow next.
#include "base/page.h"
#include "attach/isa.h"
#include "patch/install.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HEAP_ROOM (UINT64_C(1) << 30)
#define STACK_ROOM_MIN (UINT64_C(8) << 20)
#define STACK_ROOM_MAX (UINT64_C(1) << 30) // of an unlimited stack
#define STACK_GUARD (UINT64_C(1) << 20)    // stack_guard_gap, mm/mmap.c, 256 pages
#define HOLD_TRIES 5
#define HOLD_PAUSE_NS 20000000
#define ADDR_MIN UINT64_C(0x10000)
#define ADDR_TOP (UINT64_C(1) << 56)      // above: the kernel's half (the page of old calls on x86-64)
#define HOMES_SHIFT_MIN 4u
#define HOMES_SHIFT_MAX 24u
#define THREADS_FOR_POINTERS_MAX (1u << 16)

#ifndef MFD_EXEC // Linux 6.3
#define MFD_EXEC 0x0010U
#define MFD_NOEXEC_SEAL 0x0008U
#endif

uint64_t tl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// *borrow: a thread is wanted; where there need not be one, whether there is.
static int hold(struct tl_target *target, bool *borrow, bool need, bool all, struct tl_diag *diag)
{
    int error = TL_E_BUSY;
    for (int i = 0; i < HOLD_TRIES && error == TL_E_BUSY; i++) {
        if (i) { // all were let go: give them a while
            struct timespec pause = {.tv_nsec = HOLD_PAUSE_NS};
            nanosleep(&pause, NULL);
        }
        error = *borrow ? tl_target_borrow(target, diag) : 0;
        if (error == TL_E_UNSUPPORTED && !need) {
            *borrow = false;
            error = 0;
        }
        if (!error && all)
            error = tl_target_stop(target, diag);
    }
    return error;
}

int tl_patch_hold(struct tl_target *target, bool all, struct tl_diag *diag)
{
    bool borrow = true;
    return hold(target, &borrow, true, all, diag);
}

int tl_patch_stop(struct tl_target *target, bool *borrowed, struct tl_diag *diag)
{
    bool none = false;
    return hold(target, borrowed ? borrowed : &none, false, true, diag);
}

int tl_patch_borrow(struct tl_target *target, bool *borrowed, struct tl_diag *diag)
{
    return hold(target, borrowed, false, false, diag);
}

// ---- system calls -------------------------------------------------------------------------------

static int call_failed(struct tl_target *target, const char *call, int64_t result,
                       struct tl_diag *diag)
{
    return tl_diag_set(diag, TL_E_SYSTEM, "pid %d: %s in the target failed: %s",
                       (int)tl_target_pid(target), call, strerror((int)-result));
}

int tl_region_map(struct tl_target *target, tl_addr addr, uint64_t size, int prot, int flags,
                  int fd, uint64_t off, struct tl_diag *diag)
{
    const uint64_t args[6] = {
        addr, size, (uint64_t)prot, (uint64_t)(flags | MAP_FIXED_NOREPLACE), (uint64_t)fd, off};
    int64_t result = 0;
    int error = tl_target_syscall(target, SYS_mmap, args, &result, diag);
    if (error)
        return error;
    if (result == (int64_t)addr)
        return 0;
    if (result > 0) // before Linux 4.17 the address is only a hint
        (void)tl_region_unmap(target, (tl_addr)result, size, NULL);
    if (result > 0 || result == -EEXIST)
        return tl_diag_set(diag, TL_E_AGAIN, "pid %d: the target has mapped 0x%llx meanwhile",
                           (int)tl_target_pid(target), (unsigned long long)addr);
    return call_failed(target, "mmap", result, diag);
}

int tl_region_unmap(struct tl_target *target, tl_addr addr, uint64_t size, struct tl_diag *diag)
{
    const uint64_t args[6] = {addr, size};
    int64_t result = 0;
    int error = tl_target_syscall(target, SYS_munmap, args, &result, diag);
    return error ? error : result < 0 ? call_failed(target, "munmap", result, diag) : 0;
}

int tl_region_advise(struct tl_target *target, tl_addr addr, uint64_t size, int advice,
                     struct tl_diag *diag)
{
    const uint64_t args[6] = {addr, size, (uint64_t)advice};
    int64_t result = 0;
    int error = tl_target_syscall(target, SYS_madvise, args, &result, diag);
    return error ? error : result < 0 ? call_failed(target, "madvise", result, diag) : 0;
}

// ---- memfds -------------------------------------------------------------------------------------

// The name has to be in the target: it is written to scratch_addr, in the control page.
static int memfd_open(struct tl_target *target, tl_addr scratch_addr, const char *name, bool code,
                      int64_t *fd, struct tl_diag *diag)
{
    // MFD_EXEC is unknown before Linux 6.3 (EINVAL); vm.memfd_noexec=2 refuses all but sealed ones.
    const unsigned flags[] = {MFD_CLOEXEC | MFD_ALLOW_SEALING | (code ? MFD_EXEC : 0u),
                              MFD_CLOEXEC | MFD_ALLOW_SEALING,
                              MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL};
    int64_t result = -EINVAL;
    int error = tl_target_write(target, scratch_addr, name, strlen(name) + 1, NULL, diag);
    for (size_t i = 0; !error && i < TL_ARRAY_COUNT(flags); i++) {
        const uint64_t args[6] = {scratch_addr, flags[i]};
        error = tl_target_syscall(target, SYS_memfd_create, args, &result, diag);
        if (result != -EINVAL && result != -EACCES && result != -EPERM)
            break;
    }
    if (error)
        return error;
    if (result < 0)
        return call_failed(target, "memfd_create", result, diag);
    *fd = result;
    return 0;
}

int tl_memfd_create(struct tl_target *target, tl_addr scratch_addr, const char *name, bool code,
                    uint64_t size, struct tl_memfd *out, struct tl_diag *diag)
{
    char path[64];
    int64_t remote = -1;
    int error = memfd_open(target, scratch_addr, name, code, &remote, diag);
    if (error)
        return error;
    struct tl_memfd memfd = {.remote = (int)remote, .local = -1};
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)tl_target_pid(target), memfd.remote);
    memfd.local = open(path, O_RDWR | O_CLOEXEC);
    if (memfd.local < 0 || ftruncate(memfd.local, (off_t)size) != 0) {
        error = tl_diag_set(diag, TL_E_SYSTEM, "pid %d: shared memory can't be opened: %s",
                            (int)tl_target_pid(target), strerror(errno));
        tl_memfd_close(target, &memfd);
        return error;
    }
    *out = memfd;
    return 0;
}

void tl_memfd_close(struct tl_target *target, struct tl_memfd *memfd)
{
    const uint64_t args[6] = {(uint64_t)memfd->remote};
    int64_t result;
    if (memfd->local >= 0)
        close(memfd->local);
    if (memfd->remote >= 0)
        (void)tl_target_syscall(target, SYS_close, args, &result, NULL);
    memfd->local = memfd->remote = -1;
}

int tl_memfd_write(const struct tl_memfd *memfd, const void *buf, size_t size, uint64_t off,
                   struct tl_diag *diag)
{
    size_t done = 0;
    while (done < size) {
        ssize_t put =
            pwrite(memfd->local, (const char *)buf + done, size - done, (off_t)(off + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return tl_diag_set(diag, TL_E_SYSTEM, "shared memory can't be written: %s",
                               strerror(errno));
        done += (size_t)put;
    }
    return 0;
}

// ---- what is used -------------------------------------------------------------------------------

// Field 47 of /proc/PID/stat: where the heap starts, mapped or not (proc(5), start_brk). 0:
// unknown.
static tl_addr heap_start(pid_t pid)
{
    enum { FIELD_AFTER_NAME = 3, FIELD_START_BRK = 47, STAT_MAX = 4096 };
    char path[64], *text;
    size_t size;
    tl_addr start = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (tl_proc_read_file(path, STAT_MAX, &text, &size, NULL) != 0)
        return 0;
    char *at = strrchr(text, ')');
    for (int field = FIELD_AFTER_NAME - 1; at && field < FIELD_START_BRK; field++)
        at = strchr(at + 1, ' ');
    if (at)
        start = strtoull(at, NULL, 10);
    free(text);
    return start;
}

static uint64_t stack_room(pid_t pid)
{
    struct rlimit limit;
    uint64_t room = STACK_ROOM_MIN;
    if (prlimit(pid, RLIMIT_STACK, NULL, &limit) == 0 && limit.rlim_cur > room)
        room = limit.rlim_cur;
    return (room < STACK_ROOM_MAX ? room : STACK_ROOM_MAX) + STACK_GUARD;
}

static int range_compare(const void *a, const void *b)
{
    const struct tl_range *left = a, *right = b;
    return (left->start > right->start) - (left->start < right->start);
}

// Sorts and joins overlapping ranges. Returns the new count.
static size_t ranges_join(struct tl_range *range, size_t count)
{
    size_t kept = 0;
    qsort(range, count, sizeof *range, range_compare);
    for (size_t i = 0; i < count; i++) {
        if (kept && range[i].start <= range[kept - 1].end) {
            if (range[i].end > range[kept - 1].end)
                range[kept - 1].end = range[i].end;
        } else {
            range[kept++] = range[i];
        }
    }
    return kept;
}

int tl_region_used(struct tl_target *target, struct tl_range **out, size_t *count,
                   size_t *map_count, struct tl_diag *diag)
{
    pid_t pid = tl_target_pid(target);
    struct tl_maps maps;
    int error = tl_maps_read(pid, &maps, diag);
    if (error)
        return error;
    struct tl_range *used = malloc((maps.count + 1) * sizeof *used), uprobes = {0, 0};
    if (!used) {
        tl_maps_deinit(&maps);
        return tl_diag_set(diag, TL_E_NOMEM, "pid %d: out of memory", (int)pid);
    }
    size_t n = 0;
    tl_addr heap = heap_start(pid), heap_end = heap;
    for (size_t i = 0; i < maps.count; i++) {
        const struct tl_map *map = &maps.map[i];
        if (strcmp(map->path, "[uprobes]") == 0) {
            uprobes = (struct tl_range){map->start, map->end};
            continue;
        }
        used[n] = (struct tl_range){map->start, map->end};
        if (strcmp(map->path, "[heap]") == 0) {
            heap = heap ? heap : map->start;
            heap_end = map->end > heap_end ? map->end : heap_end;
        }
        uint64_t room = strcmp(map->path, "[stack]") == 0 ? stack_room(pid) : 0;
        used[n].start -= room < used[n].start ? room : used[n].start;
        n++;
    }
    if (heap)
        used[n++] = (struct tl_range){tl_kernel_page_down(heap),
                                      tl_kernel_page_up(heap_end + HEAP_ROOM)};
    *map_count = maps.count;
    tl_maps_deinit(&maps);
    *count = ranges_join(used, n);
    // Some kernels put it at the top of more addresses than a program gets without asking (riscv64 with 57 bits, 6.12):
    // the widest room would lie below it, far from the program.
    if (uprobes.end && uprobes.start < tl_addr_limit(used, *count)) {
        used[*count] = uprobes;
        *count = ranges_join(used, *count + 1);
    }
    *out = used;
    return 0;
}

// TASK_SIZE is a power of two, and randomness moves the stack down by less than a half of it. The last
// page stays free: x86-64 keeps it so.
tl_addr tl_addr_limit(const struct tl_range *used, size_t count)
{
    tl_addr highest = 0, limit = ADDR_MIN;
    for (size_t i = 0; i < count; i++) {
        if (used[i].start < ADDR_TOP && used[i].end > highest)
            highest = used[i].end;
    }
    while (limit < highest)
        limit *= 2;
    return limit - tl_page_size();
}

// Above what lies in the room that was left below something: what earlier attaches left, mostly. So it is as near as
// that was, and half of the room stays. used[lower] is the lowest of it; 0: there is no such place.
static tl_addr place_beside(const struct tl_range *used, size_t used_count, size_t lower,
                            uint64_t size)
{
    uint64_t wanted = tl_place_distance / 2 + size + tl_page_size();
    for (size_t i = lower; i + 1 < used_count && used[i].end - used[lower].start < tl_place_distance; i++) {
        uint64_t room = used[i + 1].start > used[i].end ? used[i + 1].start - used[i].end : 0;
        if (room >= 2 * tl_place_distance)
            return 0;
        if (room >= wanted)
            return tl_kernel_page_up(used[i].end + tl_page_size());
    }
    return 0;
}

tl_addr tl_region_place(const struct tl_range *used, size_t used_count, uint64_t size)
{
    tl_addr best = 0, from = ADDR_MIN, limit = tl_addr_limit(used, used_count);
    uint64_t widest = 0;
    size_t above = used_count;
    for (size_t i = 0; i <= used_count; i++) {
        tl_addr to = i < used_count && used[i].start < limit ? used[i].start : limit;
        uint64_t gap = to > from ? to - from : 0;
        if (gap > widest && gap >= size) {
            widest = gap;
            above = i;
            uint64_t slack = gap - size;
            uint64_t distance = slack / 2 < tl_place_distance ? slack / 2 : tl_place_distance;
            best = tl_kernel_page_down(to - distance - size);
        }
        if (i < used_count && used[i].end > from)
            from = used[i].end;
    }
    tl_addr beside = place_beside(used, used_count, above, size);
    return beside ? beside : best;
}

// ---- the thread pointer -------------------------------------------------------------------------

static int pointer_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

// The pointers of all threads that can be asked, sorted; *word: each points to a word that holds it. Caller
// frees. NULL: none, or too many.
static uint64_t *pointers_read(struct tl_target *target, size_t *known, bool *word)
{
    size_t count = tl_target_thread_count(target);
    uint64_t *pointer = count <= THREADS_FOR_POINTERS_MAX ? calloc(count + 1, sizeof *pointer) : NULL;
    *known = 0;
    *word = true;
    for (size_t i = 0; pointer && i < count; i++) {
        struct tl_thread_view view;
        uint64_t held = 0;
        // A task still in the kernel can't be asked: a vfork parent, whose pointer its child has
        // too.
        if (tl_target_thread_view(target, i, &view) != 0 || view.in_kernel)
            continue;
        pointer[(*known)++] = view.thread_pointer;
        if (view.thread_pointer == 0 ||
            tl_target_read(target, view.thread_pointer, &held, sizeof held, NULL) != 0 ||
            held != view.thread_pointer)
            *word = false;
    }
    if (pointer && *known == 0) {
        free(pointer);
        return NULL;
    }
    if (pointer)
        qsort(pointer, *known, sizeof *pointer, pointer_compare);
    return pointer;
}

uint64_t tl_region_thread_pointer(struct tl_target *target)
{
    size_t known;
    bool word;
    uint64_t *pointer = pointers_read(target, &known, &word);
    if (!pointer)
        return TL_TP_SHARED;
    uint64_t way = (uint64_t)tl_thread_pointer_way(word);
    if (pointer[0] == 0)
        way = TL_TP_SHARED;
    for (size_t i = 1; i < known; i++) {
        if (pointer[i] == pointer[i - 1])
            way = TL_TP_SHARED;
    }
    free(pointer);
    return way;
}

// ---- homes --------------------------------------------------------------------------------------

// How many homes these pointers have.
static size_t homes_used(const uint64_t *pointer, size_t count, unsigned shift)
{
    bool used[TL_HOMES] = {false};
    size_t homes = 0;
    for (size_t i = 0; i < count; i++) {
        bool *home = &used[pointer[i] >> shift & (TL_HOMES - 1)];
        homes += !*home;
        *home = true;
    }
    return homes;
}

unsigned tl_homes_shift(const uint64_t *pointer, size_t count)
{
    unsigned best = TL_HOMES_SHIFT_DEFAULT;
    for (unsigned shift = HOMES_SHIFT_MIN; shift <= HOMES_SHIFT_MAX; shift++) {
        if (homes_used(pointer, count, shift) > homes_used(pointer, count, best))
            best = shift;
    }
    return best;
}

unsigned tl_region_homes_guess(struct tl_target *target)
{
    size_t known = 0;
    bool word;
    struct tl_maps maps = {0};
    uint64_t *pointer = pointers_read(target, &known, &word);
    if (tl_maps_read(tl_target_pid(target), &maps, NULL) != 0 || !pointer) {
        free(pointer);
        return TL_HOMES_SHIFT_DEFAULT;
    }
    uint64_t *larger = realloc(pointer, (known + maps.count) * sizeof *pointer);
    // A thread keeps its block at the top of its stack, which lies behind a page that nobody may touch.
    for (size_t i = 1; larger && i < maps.count; i++) {
        const struct tl_map *guard = &maps.map[i - 1], *stack = &maps.map[i];
        if (guard->end == stack->start && !guard->prot && !guard->path[0] && !stack->path[0] &&
            stack->prot == (TL_PROT_READ | TL_PROT_WRITE))
            larger[known++] = stack->end - 1;
    }
    unsigned shift = larger ? tl_homes_shift(larger, known) : TL_HOMES_SHIFT_DEFAULT;
    free(larger ? larger : pointer);
    tl_maps_deinit(&maps);
    return shift;
}

bool tl_region_homes_crowded(struct tl_target *target, unsigned shift, unsigned *better)
{
    size_t known = 0;
    bool word, crowded = false;
    uint64_t *pointer = pointers_read(target, &known, &word);
    if (pointer) {
        *better = tl_homes_shift(pointer, known);
        crowded = homes_used(pointer, known, *better) > 2 * homes_used(pointer, known, shift);
    }
    free(pointer);
    return crowded;
}

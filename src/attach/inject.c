// System calls in a borrowed thread, through the boot stub.
//
// The stub lies in bytes that no code owns: the zero tail of the vDSO's last page, else the slack
// behind an executable segment, else what patch has left behind our own code. Its second half is
// the way home as code (isa.h), so a controller that dies leaves a thread that finishes the call
// and goes on. Between calls the thread stands at home. Invariant: whenever the thread's pc is in
// the stub, the stub leads to task->regs.
#include "attach/held.h"
#include "base/page.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define VDSO_SIZE_MAX (64u << 10)
#define SLACK_SIZE_MAX TL_PAGE_SIZE // of a page's end is looked at
#define PHDRS_MAX 64
#define STUB_ALIGN 16u
#define CANDIDATES_MAX 256  // threads looked at
#define BORROW_TRIES_MAX 16 // threads stopped in turn until one will do
#define CALL_RETRIES_MAX 64 // signals that come first

#ifndef PTRACE_GETSIGMASK // Linux 3.11
#define PTRACE_GETSIGMASK 0x420a
#endif

#define NOT_IN_TIME "it did not stop in time"

#ifndef PTRACE_GET_RSEQ_CONFIGURATION // Linux 5.13
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif
#ifndef PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG // Linux 6.4, linux/ptrace.h; 0x4210 would set it
#define PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG 0x4211
#endif
#define O_SUSPEND_SECCOMP (1 << 21) // PTRACE_O_SUSPEND_SECCOMP, Linux 4.3
#define HOLD_AND_SUSPEND                                                                           \
    (PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |         \
     PTRACE_O_TRACESYSGOOD | O_SUSPEND_SECCOMP)

// ---- a place for the stub -----------------------------------------------------------------------

// The last free run of a stub's room in bytes[from..size). size: none.
static size_t free_run(const uint8_t *bytes, size_t from, size_t size)
{
    const size_t room = tl_stub_needs.room;
    for (size_t at = size & ~(size_t)(STUB_ALIGN - 1); at >= from + room; at -= STUB_ALIGN) {
        size_t start = at - room, same = 1;
        if (bytes[start] != 0x00 && bytes[start] != 0xcc)
            continue;
        while (same < room && bytes[start + same] == bytes[start])
            same++;
        if (same == room)
            return start;
    }
    return size;
}

// First byte behind all that the ELF headers of an image in memory name.
static size_t elf_end(const uint8_t *bytes, size_t size)
{
    Elf64_Ehdr head;
    size_t end = sizeof head;
    if (size < sizeof head)
        return size;
    memcpy(&head, bytes, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phnum > PHDRS_MAX ||
        head.e_phoff > size || head.e_shoff > size ||
        head.e_phoff + head.e_phnum * sizeof(Elf64_Phdr) > size)
        return size;
    for (size_t i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr segment;
        memcpy(&segment, bytes + head.e_phoff + i * sizeof segment, sizeof segment);
        if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset)
            return size;
        if (segment.p_offset + segment.p_filesz > end)
            end = (size_t)(segment.p_offset + segment.p_filesz);
    }
    size_t sections = (size_t)head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
    return sections > end ? sections : end;
}

// The vDSO's bytes. *end is where its own end. NULL: none, or it looks strange. Caller frees.
static uint8_t *vdso_read(struct tl_target *target, tl_addr addr, size_t *size, size_t *end)
{
    struct tl_maps maps;
    uint8_t *bytes = NULL;
    if (tl_maps_read(target->pid, &maps, NULL) != 0)
        return NULL;
    const struct tl_map *map = tl_maps_at(&maps, addr);
    if (map && strcmp(map->path, "[vdso]") == 0 && map->end - map->start <= VDSO_SIZE_MAX) {
        *size = (size_t)(map->end - map->start);
        bytes = malloc(*size);
    }
    tl_maps_deinit(&maps);
    if (bytes && tl_target_read(target, addr, bytes, *size, NULL) == 0) {
        *end = elf_end(bytes, *size);
        return bytes;
    }
    free(bytes);
    return NULL;
}

tl_addr tl_target_sigreturn(struct tl_target *target)
{
    const struct tl_sigreturn_code *code = &tl_sigreturn_code;
    tl_addr vdso = code->size ? tl_proc_auxv(target->pid, AT_SYSINFO_EHDR) : 0, found = 0;
    size_t size = 0, end = 0;
    uint8_t *bytes = vdso ? vdso_read(target, vdso, &size, &end) : NULL;
    for (size_t at = 0; bytes && !found && at + code->size <= size; at += 4) {
        if (memcmp(bytes + at, code->bytes, code->size) == 0)
            found = vdso + at;
    }
    free(bytes);
    return found;
}

// A program's entry is reached from anywhere: a register is free there.
static bool place_reaches(const struct tl_target *target, tl_addr at, tl_addr pc)
{
    return !pc || tl_stub_reaches(at, pc) || pc == tl_proc_auxv(target->pid, AT_ENTRY);
}

static tl_addr place_in_vdso(struct tl_target *target, tl_addr pc)
{
    tl_addr vdso = tl_proc_auxv(target->pid, AT_SYSINFO_EHDR);
    size_t size = 0, end = 0;
    uint8_t *bytes = vdso ? vdso_read(target, vdso, &size, &end) : NULL;
    size_t at = bytes && end < size ? free_run(bytes, end, size) : size;
    free(bytes);
    return at < size && place_reaches(target, vdso + at, pc) ? vdso + at : 0;
}

static bool any_pc_in(const struct tl_target *target, tl_addr start, size_t size)
{
    for (size_t i = 0; i < target->task_count; i++) {
        const struct tl_task *task = target->task[i];
        tl_addr pc = task->has_regs ? tl_regs_pc(&task->regs) : task->pc;
        if (pc - start < size)
            return true;
    }
    return false;
}

// Where the bytes of an executable segment end in its mapping, by the file's own headers; 0:
// unknown.
static tl_addr segment_end(struct tl_target *target, const struct tl_map *map)
{
    Elf64_Ehdr head;
    Elf64_Phdr segment;
    tl_addr end = 0;
    int fd = tl_proc_open_mapped(target->pid, map, NULL);
    if (fd < 0)
        return 0;
    if (pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
        memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_phnum <= PHDRS_MAX) {
        for (size_t i = 0; i < head.e_phnum && !end; i++) {
            off_t off = (off_t)(head.e_phoff + i * sizeof segment);
            if (pread(fd, &segment, sizeof segment, off) != (ssize_t)sizeof segment)
                break;
            uint64_t last = segment.p_offset + segment.p_filesz;
            if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) &&
                segment.p_offset >= map->file_off &&
                segment.p_offset - map->file_off < tl_page_size() && last > map->file_off &&
                last - map->file_off <= map->end - map->start)
                end = map->start + (last - map->file_off);
        }
    }
    close(fd);
    return end;
}

static bool slack_possible(const struct tl_map *map)
{
    return map->inode && map->prot == (TL_PROT_READ | TL_PROT_EXEC) &&
           strncmp(map->path, "/memfd:", 7) != 0;
}

// Our own code's mapping, of this controller or another.
static bool room_possible(const struct tl_map *map)
{
    return map->prot == (TL_PROT_READ | TL_PROT_EXEC) && strncmp(map->path, "/memfd:", 7) == 0;
}

// The end of a mapping, here and in its file. Bytes from *from on belong to no segment, though linkers that put
// segments right behind each other leave some of the next one's there. False: none.
struct slack {
    uint8_t bytes[SLACK_SIZE_MAX], file[SLACK_SIZE_MAX];
    tl_addr addr;
    size_t from;
};

static bool slack_read(struct tl_target *target, const struct tl_map *map, struct slack *out)
{
    tl_addr end = segment_end(target, map);
    if (!end || map->end - end > tl_page_size())
        return false;
    out->addr = map->end - SLACK_SIZE_MAX;
    out->from = end > out->addr ? (size_t)(end - out->addr) : 0;
    if (tl_target_read(target, out->addr, out->bytes, SLACK_SIZE_MAX, NULL) != 0)
        return false;
    int fd = tl_proc_open_mapped(target->pid, map, NULL);
    if (fd < 0)
        return false;
    memset(out->file, 0, SLACK_SIZE_MAX);
    bool got = pread(fd, out->file, SLACK_SIZE_MAX, (off_t)(map->file_off + (out->addr - map->start))) >= 0;
    close(fd);
    return got;
}

// The last run of a stub's room that is as the file has it: no stub is there.
static tl_addr place_in_slack(struct tl_target *target, const struct tl_map *map)
{
    struct slack slack;
    const size_t room = tl_stub_needs.room;
    if (!slack_read(target, map, &slack))
        return 0;
    for (size_t at = SLACK_SIZE_MAX; at >= slack.from + room; at -= STUB_ALIGN) {
        if (memcmp(slack.bytes + at - room, slack.file + at - room, room) == 0)
            return slack.addr + at - room;
    }
    return 0;
}

// Stubs in bytes[end..size) at addr that no task stands in get the bytes `there` back.
static void stubs_wipe(struct tl_target *target, pid_t writer, tl_addr addr, const uint8_t *bytes,
                       const uint8_t *there, size_t end, size_t size)
{
    end = (end + STUB_ALIGN - 1) & ~(size_t)(STUB_ALIGN - 1);
    for (size_t at = end; at + tl_stub_needs.room <= size; at += STUB_ALIGN) {
        size_t stub = tl_stub_match(bytes + at, size - at);
        if (stub && addr + at != target->stub.addr && !any_pc_in(target, addr + at, stub))
            (void)tl_memory_write(target, writer, addr + at, there + at, stub, NULL, NULL);
    }
}

static void sweep_vdso(struct tl_target *target, pid_t writer)
{
    static const uint8_t zeros[VDSO_SIZE_MAX];
    tl_addr vdso = tl_proc_auxv(target->pid, AT_SYSINFO_EHDR);
    size_t size = 0, end = 0;
    uint8_t *bytes = vdso ? vdso_read(target, vdso, &size, &end) : NULL;
    if (bytes)
        stubs_wipe(target, writer, vdso, bytes, zeros, end, size);
    free(bytes);
}

static void sweep_slack(struct tl_target *target, pid_t writer, const struct tl_map *map)
{
    struct slack slack;
    if (slack_read(target, map, &slack))
        stubs_wipe(target, writer, slack.addr, slack.bytes, slack.file, slack.from, SLACK_SIZE_MAX);
}

static int sweep_run(void *opaque)
{
    struct tl_target *target = opaque;
    struct tl_maps maps;
    pid_t writer = 0;
    for (size_t i = 0; i < target->task_count && !writer; i++) {
        if (target->task[i]->state == TL_TASK_STOPPED)
            writer = target->task[i]->tid;
    }
    if (!writer || tl_maps_read(target->pid, &maps, NULL) != 0)
        return TL_E_BUSY;
    sweep_vdso(target, writer);
    for (size_t i = 0; i < maps.count; i++) {
        if (slack_possible(&maps.map[i]))
            sweep_slack(target, writer, &maps.map[i]);
    }
    tl_maps_deinit(&maps);
    return 0;
}

int tl_target_sweep(struct tl_target *target)
{
    return target->hold == TL_HOLD_ALL ? tl_worker_call(target, sweep_run, target, NULL) : TL_E_USAGE;
}

size_t tl_target_room_size(void)
{
    return tl_stub_needs.room;
}

void tl_target_room_give(struct tl_target *target, tl_addr addr)
{
    if (target->room_count < TL_ROOMS_MAX)
        target->room[target->room_count++] = addr;
}

void tl_target_room_take(struct tl_target *target, tl_addr addr)
{
    size_t kept = 0;
    if (target->stub.addr == addr)
        tl_stub_restore(target);
    for (size_t i = 0; i < target->room_count; i++) {
        if (target->room[i] != addr)
            target->room[kept++] = target->room[i];
    }
    target->room_count = kept;
}

// A thread in our own code may be far from all that the program has.
static tl_addr place_in_room(struct tl_target *target, tl_addr pc)
{
    uint8_t bytes[TL_STUB_SIZE_MAX];
    const size_t size = tl_stub_needs.room;
    for (size_t i = 0; i < target->room_count; i++) {
        if (place_reaches(target, target->room[i], pc) &&
            tl_target_read(target, target->room[i], bytes, size, NULL) == 0 &&
            free_run(bytes, 0, size) == 0)
            return target->room[i];
    }
    return 0;
}

int tl_stub_place(struct tl_target *target, tl_addr pc, tl_addr *out, struct tl_diag *diag)
{
    struct tl_maps maps;
    tl_addr addr = place_in_vdso(target, pc);
    if (addr) {
        *out = addr;
        return 0;
    }
    int error = tl_maps_read(target->pid, &maps, diag);
    if (error)
        return error;
    for (size_t i = 0; i < maps.count && !addr; i++) {
        const struct tl_map *map = &maps.map[i];
        if (slack_possible(map) && place_reaches(target, map->end - tl_stub_needs.room, pc))
            addr = place_in_slack(target, map);
    }
    tl_maps_deinit(&maps);
    if (!addr)
        addr = place_in_room(target, pc);
    if (!addr)
        return tl_diag_set(diag, TL_E_UNSUPPORTED,
                           "pid %d: no %zu unused bytes in any executable page to start from%s",
                           target->pid, tl_stub_needs.room,
                           place_reaches(target, 0, pc) ? "" : " that lead back to the thread");
    *out = addr;
    return 0;
}

// What a stub holds of a stopped task besides its general registers.
static int stub_more(struct tl_target *target, const struct tl_task *task, struct tl_stub_more *out)
{
    *out = (struct tl_stub_more){.mask = 0};
    struct iovec vector = {out->set, tl_stub_needs.size};
    if (tl_stub_needs.note && tl_trace(target, PTRACE_GETREGSET, task->tid, tl_stub_needs.note,
                                       (uint64_t)(uintptr_t)&vector) != 0)
        return TL_E_GONE;
    // The kernel gives the one that it goes back to, where a call has put another in its place.
    if (tl_stub_needs.mask && tl_trace(target, PTRACE_GETSIGMASK, task->tid, sizeof out->mask,
                                       (uint64_t)(uintptr_t)&out->mask) != 0)
        return TL_E_GONE;
    return 0;
}

int tl_stub_prepare(struct tl_target *target, struct tl_task *task, struct tl_diag *diag)
{
    struct tl_stub *stub = &target->stub;
    struct tl_stub_more more;
    uint8_t code[TL_STUB_SIZE_MAX], there[TL_STUB_SIZE_MAX];
    if (stub->addr && !place_reaches(target, stub->addr, tl_regs_pc(&task->regs)))
        tl_stub_restore(target); // a signal has led the thread far away
    if (!stub->addr) {
        tl_addr addr = 0;
        int error = tl_stub_place(target, tl_regs_pc(&task->regs), &addr, diag);
        if (!error)
            error = tl_target_read(target, addr, stub->before, tl_stub_needs.room, diag);
        if (error)
            return error;
        stub->addr = addr;
    }
    if (stub_more(target, task, &more) != 0)
        return tl_gone(target, diag);
    size_t size = tl_stub_build(&task->regs, &more, stub->addr, code);
    stub->size = size;
    int error = tl_target_read(target, stub->addr, there, size, diag);
    if (error)
        return error;
    if (memcmp(there, code, size) == 0)
        return 0;
    return tl_memory_write(target, task->tid, stub->addr, code, size, NULL, diag);
}

tl_addr tl_stub_left(struct tl_target *target, tl_addr pc)
{
    uint8_t bytes[TL_STUB_SIZE_MAX];
    tl_addr last = pc & ~(tl_addr)(STUB_ALIGN - 1);
    const struct tl_map *map = tl_maps_at(&target->maps, pc);
    bool possible =
        map && (strcmp(map->path, "[vdso]") == 0 ||
                ((slack_possible(map) || room_possible(map)) && map->end - pc <= tl_page_size()));
    if (!possible)
        return 0;
    for (tl_addr at = last; last - at < tl_stub_needs.room && at != 0; at -= STUB_ALIGN) {
        if (tl_target_read(target, at, bytes, tl_stub_needs.room, NULL) != 0)
            continue;
        size_t size = tl_stub_match(bytes, tl_stub_needs.room);
        if (size && pc - at < size)
            return tl_stub_home(bytes, at);
    }
    return 0;
}

void tl_stub_restore(struct tl_target *target)
{
    struct tl_task *task = tl_task_find(target, target->borrowed);
    struct tl_stub *stub = &target->stub;
    if (!stub->addr || !task || task->state != TL_TASK_STOPPED || target->execed)
        return; // the thread may still need it; its bytes harm nobody
    (void)tl_memory_write(target, task->tid, stub->addr, stub->before, stub->size, NULL, NULL);
    stub->addr = 0;
}

// ---- which thread -------------------------------------------------------------------------------

// A thread stopped inside a restartable sequence starts it again on its way out, and the kernel
// would forget that it must when it sees our stub's pc instead. So do what the kernel would: go to
// the abort handler (rseq(2); struct rseq_cs of linux/rseq.h).
static int leave_rseq(struct tl_target *target, struct tl_task *task)
{
    struct {
        uint64_t addr;
        uint32_t size, signature, flags, pad;
    } config = {0};
    struct {
        uint32_t version, flags;
        uint64_t start, length, abort;
    } section;
    enum { RSEQ_CS_OFF = 8 };
    uint64_t section_addr, none = 0;
    if (tl_regs_call_number(&task->regs) >= 0) // no system call is made in a section
        return 0;
    if (tl_trace(target, PTRACE_GET_RSEQ_CONFIGURATION, task->tid, sizeof config,
                 (uint64_t)(uintptr_t)&config) < 0 ||
        config.addr == 0)
        return 0;
    if (tl_target_read(target, config.addr + RSEQ_CS_OFF, &section_addr, 8, NULL) != 0 ||
        section_addr == 0 ||
        tl_target_read(target, section_addr, &section, sizeof section, NULL) != 0)
        return 0;
    if (tl_regs_pc(&task->regs) - section.start >= section.length)
        return 0;
    tl_regs_set_pc(&task->regs, section.abort);
    int error = tl_trace_set_regs(target, task->tid, &task->regs);
    if (!error)
        error = tl_memory_write(target, task->tid, config.addr + RSEQ_CS_OFF, &none, 8, NULL, NULL);
    return error;
}

static bool dispatches_calls(struct tl_target *target, pid_t tid)
{
    struct {
        uint64_t mode, selector, offset, len;
    } config = {0};
    return tl_trace(target, PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, tid, sizeof config,
                    (uint64_t)(uintptr_t)&config) == 0 &&
           config.mode != 0;
}

static uint64_t ms_from_now(uint64_t ms)
{
    return tl_clock_ns() + ms * UINT64_C(1000000);
}

// Where a call has a price, a thread that is in one of its own is better: it has paid already, and it stands
// in a library's code. So a thread that runs is let go on to its next call, if that comes soon.
static bool task_affordable(struct tl_target *target, struct tl_task *task, const char **why)
{
    bool kept = true, alone = target->hold == TL_HOLD_ALL; // all others wait for us
    tl_addr place;
    int shown =
        tl_call_show(target, task, false,
                     ms_from_now(alone ? TL_BORROW_TIMEOUT_MS : TL_STRAGGLER_TIMEOUT_MS));
    if (shown == 0)
        *why = NOT_IN_TIME;
    if (shown != 1)
        return false;
    bool live = tl_vectors_live(target, task, &kept);
    bool reached = !tl_call_insn.size ||
                   tl_stub_place(target, tl_regs_pc(&task->regs), &place, NULL) == 0;
    if ((live || !reached) && !alone) {
        if (tl_call_show(target, task, true, ms_from_now(TL_BORROW_TIMEOUT_MS)) < 0)
            return false;
        live = tl_vectors_live(target, task, &kept);
        reached = tl_stub_place(target, tl_regs_pc(&task->regs), &place, NULL) == 0;
    }
    if (!reached) {
        target->no_place = true;
        *why = "its code lies too far from any place that a call could be made from";
        return false;
    }
    if (live && !kept) {
        *why = "its vector unit is in streaming mode, which a call ends";
        return false;
    }
    return !live || tl_vectors_keep(target, task) == 0;
}

// Whether a stopped task will do. *why is kept for the message when none does.
static bool task_usable(struct tl_target *target, struct tl_task *task, const char **why)
{
    struct tl_proc_status status;
    if (task->state != TL_TASK_STOPPED || tl_proc_status_read(task->tid, &status, NULL) != 0)
        return false;
    if (!tl_regs_native(&task->regs)) {
        *why = "it runs code of another instruction set";
        return false;
    }
    if (dispatches_calls(target, task->tid)) {
        *why = "its system calls are dispatched to a handler (prctl PR_SET_SYSCALL_USER_DISPATCH)";
        return false;
    }
    if (status.seccomp != 0 &&
        tl_trace(target, PTRACE_SETOPTIONS, task->tid, 0, HOLD_AND_SUSPEND) != 0) {
        *why = "a seccomp filter is set and may not be suspended: run as root";
        return false;
    }
    if (leave_rseq(target, task) != 0)
        return false;
    return task_affordable(target, task, why);
}

struct candidate {
    pid_t tid;
    int cost;
};

static int candidate_compare(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;
    return left->cost != right->cost ? (left->cost > right->cost) - (left->cost < right->cost)
                                     : (left->tid > right->tid) - (left->tid < right->tid);
}

// Asleep and without a filter is best. A thread in state D would not stop.
static int candidate_cost(const struct tl_proc_status *status)
{
    if (status->state == 'Z' || status->state == 'X' || status->user_worker)
        return -1;
    int cost = status->state == 'S' ? 0 : status->state == 'T' ? 1 : status->state == 'R' ? 2 : 4;
    return cost + (status->seccomp ? 8 : 0);
}

static size_t candidates_list(struct tl_target *target, struct candidate *out)
{
    char path[64];
    size_t count = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", target->pid);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *entry; count < CANDIDATES_MAX && (entry = readdir(dir));) {
        struct tl_proc_status status;
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid <= 0 || tl_proc_status_read(tid, &status, NULL) != 0)
            continue;
        int cost = candidate_cost(&status);
        if (cost >= 0)
            out[count++] = (struct candidate){tid, cost};
    }
    closedir(dir);
    qsort(out, count, sizeof *out, candidate_compare);
    return count;
}

// Stops one thread alone. 1: it is borrowed; 0: it won't do; TL_E_*. Nobody else waits meanwhile, and one
// that was asked to stop is waited for in any case: so it may take long.
static int candidate_try(struct tl_target *target, pid_t tid, const char **why,
                         struct tl_diag *diag)
{
    struct tl_task *task = tl_task_seize(target, tid, target->pid);
    if (!task) {
        struct tl_proc_status status;
        if (errno == EPERM && tl_proc_status_read(tid, &status, NULL) == 0 && status.tracer)
            return tl_diag_set(diag, TL_E_BUSY, "pid %d: is traced by pid %d: end that first",
                               target->pid, status.tracer);
        if (errno == EPERM)
            *why = "ptrace refused it";
        return 0;
    }
    int got = tl_task_wait(target, task, ms_from_now(TL_STRAGGLER_TIMEOUT_MS));
    if (got == 1)
        got = tl_task_settle(target, task, ms_from_now(TL_STRAGGLER_TIMEOUT_MS));
    if (got == 1 && task_usable(target, task, why)) {
        target->borrowed = tid;
        return 1;
    }
    if (got == 0)
        *why = NOT_IN_TIME;
    tl_release_all(target);
    return target->gone || target->execed ? tl_gone(target, diag) : 0;
}

struct borrow_job {
    struct tl_target *target;
    struct tl_diag *diag;
};

static int none_usable(struct tl_target *target, const char *why, struct tl_diag *diag)
{
    if (strcmp(why, NOT_IN_TIME) == 0)
        return tl_diag_set(diag, TL_E_BUSY, "pid %d: no thread stopped in %d ms: try again",
                           target->pid, TL_STRAGGLER_TIMEOUT_MS);
    return tl_diag_set(diag, TL_E_UNSUPPORTED, "pid %d: no thread to run system calls in: %s",
                       target->pid, why);
}

static int borrow_one(struct tl_target *target, struct tl_diag *diag)
{
    struct candidate candidate[CANDIDATES_MAX];
    const char *why = "none could be stopped";
    size_t count = candidates_list(target, candidate);
    if (count == 0)
        return tl_gone(target, diag);
    for (size_t i = 0; i < count && i < BORROW_TRIES_MAX; i++) {
        int got = candidate_try(target, candidate[i].tid, &why, diag);
        if (got < 0)
            return got;
        if (got == 1) {
            target->hold = TL_HOLD_BORROWED;
            return 0;
        }
    }
    struct tl_proc_status status; // a program that is ending refuses ptrace for a while
    if (tl_proc_status_read(target->pid, &status, NULL) != 0 || !status.memory)
        return tl_gone(target, diag);
    return none_usable(target, why, diag);
}

static int borrow_stopped(struct tl_target *target, struct tl_diag *diag)
{
    const char *why = "none is stopped in user code";
    uint64_t deadline = ms_from_now(TL_BORROW_TIMEOUT_MS);
    for (size_t i = 0; i < target->task_count; i++) {
        struct tl_task *task = target->task[i];
        if (task->state != TL_TASK_STOPPED || task->tgid != target->pid)
            continue;
        if (tl_task_settle(target, task, deadline) == 1 && task_usable(target, task, &why)) {
            target->borrowed = task->tid;
            return 0;
        }
        if (target->gone || target->execed)
            return tl_gone(target, diag);
    }
    return none_usable(target, why, diag);
}

static int borrow_run(void *opaque)
{
    struct borrow_job *job = opaque;
    if (job->target->borrowed)
        return 0;
    return job->target->hold == TL_HOLD_ALL ? borrow_stopped(job->target, job->diag)
                                            : borrow_one(job->target, job->diag);
}

static int borrow(struct tl_target *target, struct tl_diag *diag)
{
    struct borrow_job job = {target, diag};
    target->no_place = false;
    if (target->gone || target->execed)
        return tl_gone(target, diag);
    if (target->hold == TL_HOLD_NONE) {
        int error = tl_family_scan(target, diag);
        if (error)
            return error;
    }
    int error = tl_worker_call(target, borrow_run, &job, diag);
    if (error && target->hold == TL_HOLD_NONE)
        tl_worker_end(target);
    return error;
}

// Controllers that died one after the other may have left stubs wherever there is room.
int tl_target_borrow(struct tl_target *target, struct tl_diag *diag)
{
    int error = borrow(target, diag);
    if (!error || !target->no_place || target->hold != TL_HOLD_NONE)
        return error;
    error = tl_target_stop(target, diag);
    if (error)
        return error;
    int swept = tl_target_sweep(target);
    tl_target_resume(target);
    error = borrow(target, diag);
    return error && target->no_place && swept ? swept : error;
}

// ---- one call -----------------------------------------------------------------------------------

#define SYSCALL_STOP (SIGTRAP | 0x80) // with PTRACE_O_TRACESYSGOOD

// Lets the task run to its next system call stop. 1: there; 0: a signal came first (task->signal);
// TL_E_*.
static int run_to_call_stop(struct tl_target *target, struct tl_task *task, struct tl_diag *diag)
{
    uint64_t deadline = tl_clock_ns() + TL_CALL_TIMEOUT_MS * UINT64_C(1000000);
    for (;;) {
        int status = 0;
        task->state = TL_TASK_WAITED;
        (void)tl_trace(target, PTRACE_SYSCALL, task->tid, 0, 0);
        int got = tl_trace_wait(target, task->tid, deadline, &status);
        if (got == 0) {
            (void)tl_trace(target, PTRACE_INTERRUPT, task->tid, 0, 0);
            return tl_diag_set(diag, TL_E_BUSY,
                               "pid %d: thread %d did not finish a system call in %d ms",
                               target->pid, task->tid, TL_CALL_TIMEOUT_MS);
        }
        if (got < 0 || !WIFSTOPPED(status) || status >> 16 == PTRACE_EVENT_EXEC) {
            if (got > 0)
                (void)tl_task_event(target, task, status);
            task->state = TL_TASK_GONE;
            target->borrowed = 0;
            return tl_gone(target, diag);
        }
        task->state = TL_TASK_STOPPED;
        if (status >> 8 == SYSCALL_STOP)
            return 1;
        if (status >> 16 == 0) {
            task->signal = WSTOPSIG(status);
            return 0;
        }
        // A group stop or its end was announced: go on to the call.
    }
}

// A signal came before the call: it is delivered to where the thread really was. 0, or TL_E_*.
static int signal_first(struct tl_target *target, struct tl_task *task, const struct tl_regs *home,
                        struct tl_diag *diag)
{
    uint64_t deadline = tl_clock_ns() + TL_CALL_TIMEOUT_MS * UINT64_C(1000000);
    struct tl_proc_status status = {.sig_caught = 0};
    struct tl_regs regs;
    if (tl_call_insn.size) // else the kernel sees to it; and a try must be short where signals come fast
        (void)tl_proc_status_read(task->tid, &status, NULL);
    tl_regs_signalled(home, status.sig_caught >> (task->signal - 1) & 1, &regs);
    if (tl_trace_set_regs(target, task->tid, &regs) != 0)
        return tl_gone(target, diag);
    int got = tl_task_settle(target, task, deadline);
    if (got == TL_E_GONE)
        return tl_gone(target, diag);
    if (got == 0)
        return tl_diag_set(diag, TL_E_BUSY,
                           "pid %d: thread %d gets signals faster than it can be held", target->pid,
                           task->tid);
    return 0;
}

// 1: done; 0: a signal was delivered first and home is elsewhere now: again; TL_E_*.
static int call_once(struct tl_target *target, struct tl_task *task, long nr,
                     const uint64_t args[6], int64_t *result, struct tl_diag *diag)
{
    struct tl_regs call, after, settled, home = task->regs;
    int error = tl_stub_prepare(target, task, diag);
    if (error)
        return error;
    tl_regs_make_call(&home, target->stub.addr, nr, args, &call);
    if (tl_trace_set_regs(target, task->tid, &call) != 0)
        return tl_gone(target, diag);
    int got = run_to_call_stop(target, task, diag);
    if (got < 0)
        return got;
    if (got == 0)
        return signal_first(target, task, &home, diag);
    task->called = true;
    got = run_to_call_stop(target, task, diag); // no signal is taken inside a call
    if (got < 0)
        return got;
    tl_regs_settled(&home, &settled);
    if (tl_trace_get_regs(target, task->tid, &after) != 0 ||
        tl_trace_set_regs(target, task->tid, &settled) != 0)
        return tl_gone(target, diag);
    *result = tl_regs_call_result(&after);
    return 1;
}

// Its kernel restarts a call with the first argument of the last call that was begun: one of ours now. One
// more, with the thread's own first argument, puts that right.
void tl_call_hand_back(struct tl_target *target)
{
    struct tl_task *task = tl_task_find(target, target->borrowed);
    if (!tl_call_insn.size || !task || task->state != TL_TASK_STOPPED || !task->called ||
        target->execed || !tl_regs_call_restarts(&task->regs))
        return;
    const uint64_t args[6] = {tl_regs_call_first_argument(&task->regs)};
    int64_t result;
    struct tl_regs home = task->regs;
    if (call_once(target, task, tl_call_nothing, args, &result, NULL) == 1)
        (void)tl_trace_set_regs(target, task->tid, &home);
}

struct call_job {
    struct tl_target *target;
    long nr;
    const uint64_t *args;
    int64_t *result;
    struct tl_diag *diag;
};

static int call_run(void *opaque)
{
    struct call_job *job = opaque;
    struct tl_target *target = job->target;
    for (int i = 0; i < CALL_RETRIES_MAX; i++) {
        struct tl_task *task = tl_task_find(target, target->borrowed);
        if (!task || task->state != TL_TASK_STOPPED)
            return tl_gone(target, job->diag);
        int got = call_once(target, task, job->nr, job->args, job->result, job->diag);
        if (got != 0)
            return got < 0 ? got : 0;
    }
    return tl_diag_set(job->diag, TL_E_BUSY, "pid %d: signals kept a system call from starting",
                       target->pid);
}

int tl_target_syscall(struct tl_target *target, long nr, const uint64_t args[6], int64_t *result,
                      struct tl_diag *diag)
{
    struct call_job job = {target, nr, args, result, diag};
    if (!target->borrowed)
        return tl_diag_set(diag, TL_E_USAGE, "pid %d: no thread is borrowed", target->pid);
    return tl_worker_call(target, call_run, &job, diag);
}

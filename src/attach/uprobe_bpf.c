// Speaks bpf(2): a counter map, the program that counts, and links over many uprobes.
//
// It knows nothing of perf events or of sites; uprobe.c does. The program does the least that is
// right: is this the target's thread group, which counter, add one.
//
// Invariant: the add is atomic. A program on a preemptible kernel may be preempted between load
// and store, and another thread's hit on the same CPU would be lost.
#include "attach/uprobe_bpf.h"
#include "attach/isa.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

// Linux 6.6, include/uapi/linux/bpf.h; Debian 12's header is of 6.1.
#define ATTACH_TYPE_UPROBE_MULTI 48
#define UPROBE_MULTI_RETURN 1u

// include/linux/proc_ns.h: PROC_PID_INIT_INO, unchanged since Linux 3.8.
#define PID_NS_INITIAL_INO 0xeffffffcu

// Counts of the program's parts.
#define PROGRAM_INSNS_MAX 80
#define PID_NS_INFO_SIZE 8 // struct bpf_pidns_info: pid, tgid
#define CPUS_MAX 65536
#define STATUS_SIZE_MAX 16384

// The part of union bpf_attr that Linux 6.6 added for BPF_LINK_CREATE.
struct link_multi_attr {
    uint32_t program_fd, target_fd, attach_type, flags;
    uint64_t path, offsets, ref_counter_offsets, cookies;
    uint32_t count, multi_flags, pid, reserved;
};

static int bpf_call(int command, void *attr, unsigned size)
{
    long result = syscall(SYS_bpf, command, attr, size);
    return result < 0 ? -errno : (int)result;
}

// Before Linux 5.11 maps and programs are charged to RLIMIT_MEMLOCK, and EPERM says it is too low.
// Asked twice: the second time with the limit lifted, if we may.
static int bpf_call_charged(int command, void *attr, unsigned size)
{
    int result = bpf_call(command, attr, size);
    if (result != -EPERM)
        return result;
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_MEMLOCK, &none))
        return result;
    return bpf_call(command, attr, size);
}

// The last number of the line "NSpid:": the pid in the process's own, innermost namespace.
static int status_ns_pid(pid_t pid, uint32_t *out)
{
    char path[64], text[STATUS_SIZE_MAX];
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t size = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (size <= 0)
        return -ESRCH;
    text[size] = 0;
    const char *line = strstr(text, "\nNSpid:");
    if (!line) // a kernel without pid namespaces
        return -ENOENT;
    const char *end = strchr(line + 1, '\n');
    if (!end)
        return -EINVAL;
    const char *word = end;
    while (word > line && word[-1] != '\t' && word[-1] != ':' && word[-1] != ' ')
        word--;
    unsigned long value = strtoul(word, NULL, 10);
    if (!value || value > INT32_MAX)
        return -EINVAL;
    *out = (uint32_t)value;
    return 0;
}

int tl_bpf_who_read(pid_t pid, struct tl_bpf_who *out, struct tl_diag *diag)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
    struct tl_bpf_who who = {0};
    int error = status_ns_pid(pid, &who.tgid);
    if (error == -ENOENT || error == -ESRCH)
        return tl_diag_set(diag, TL_E_GONE, "pid %d: there is no such process", (int)pid);
    if (error)
        return tl_diag_set(diag, TL_E_FORMAT, "pid %d: its status file names no pid", (int)pid);
    if (stat(path, &st))
        return tl_diag_set(diag, errno == ENOENT ? TL_E_GONE : TL_E_PERM,
                           "pid %d: can't read its pid namespace: %s", (int)pid, strerror(errno));
    // The kernel's own form of a device number: 12 bits major, 20 bits minor.
    who.ns_dev = (uint64_t)major(st.st_dev) << 20 | minor(st.st_dev);
    who.ns_ino = st.st_ino;
    who.ns_initial = st.st_ino == PID_NS_INITIAL_INO;
    *out = who;
    return 0;
}

int tl_bpf_counters_create(uint32_t count)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_type = BPF_MAP_TYPE_PERCPU_ARRAY;
    attr.key_size = sizeof(uint32_t);
    attr.value_size = sizeof(uint64_t);
    attr.max_entries = count;
    return bpf_call_charged(BPF_MAP_CREATE, &attr, sizeof attr);
}

int tl_bpf_ring_map_create(uint32_t bytes)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_type = BPF_MAP_TYPE_RINGBUF;
    attr.max_entries = bytes;
    return bpf_call_charged(BPF_MAP_CREATE, &attr, sizeof attr);
}

int tl_bpf_counters_read(int map_fd, uint32_t index, uint64_t *scratch, int cpu_count,
                         uint64_t *sum)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)map_fd;
    attr.key = (uint64_t)(uintptr_t)&index;
    attr.value = (uint64_t)(uintptr_t)scratch;
    int result = bpf_call(BPF_MAP_LOOKUP_ELEM, &attr, sizeof attr);
    if (result < 0)
        return result;
    uint64_t total = 0;
    for (int i = 0; i < cpu_count; i++)
        total += scratch[i];
    *sum = total;
    return 0;
}

// A per-CPU value has one word for every CPU that could come, not for those that are there.
int tl_bpf_cpu_count(void)
{
    char text[256];
    int fd = open("/sys/devices/system/cpu/possible", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TL_E_SYSTEM;
    ssize_t size = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (size <= 0)
        return TL_E_SYSTEM;
    text[size] = 0;
    // "0-3" or "0,2-7": the count is what lies in the ranges.
    unsigned long count = 0;
    for (const char *at = text; *at >= '0' && *at <= '9';) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (last < first || last >= CPUS_MAX)
            return TL_E_FORMAT;
        count += last - first + 1;
        at = *end == ',' ? end + 1 : end;
    }
    return count && count <= CPUS_MAX ? (int)count : TL_E_FORMAT;
}

// ---- the program ------------------------------------------------------------------------------

struct program {
    struct bpf_insn insn[PROGRAM_INSNS_MAX];
    unsigned count;
    unsigned leave[8]; // jumps to the end
    unsigned leave_count;
};

static void emit(struct program *program, unsigned code, unsigned dst, unsigned src, int off,
                 int32_t imm)
{
    program->insn[program->count++] = (struct bpf_insn){.code = (uint8_t)code,
                                                        .dst_reg = (uint8_t)(dst & 15),
                                                        .src_reg = (uint8_t)(src & 15),
                                                        .off = (int16_t)off,
                                                        .imm = imm};
}

static void emit_imm64(struct program *program, unsigned dst, unsigned pseudo, uint64_t value)
{
    emit(program, BPF_LD | BPF_DW | BPF_IMM, dst, pseudo, 0, (int32_t)(uint32_t)value);
    emit(program, 0, 0, 0, 0, (int32_t)(uint32_t)(value >> 32));
}

static void emit_call(struct program *program, int helper)
{
    emit(program, BPF_JMP | BPF_CALL, 0, 0, 0, helper);
}

static void emit_leave_unless(struct program *program, unsigned code, unsigned dst, int32_t imm)
{
    program->leave[program->leave_count++] = program->count;
    emit(program, BPF_JMP | BPF_K | code, dst, 0, 0, imm);
}

// Leaves the program unless the current thread group is the target's.
static void emit_who(struct program *program, const struct tl_bpf_who *who)
{
    if (who->ns_initial) {
        emit_call(program, BPF_FUNC_get_current_pid_tgid);
        emit(program, BPF_ALU64 | BPF_RSH | BPF_K, 0, 0, 0, 32);
        emit_leave_unless(program, BPF_JNE, 0, (int32_t)who->tgid);
        return;
    }
    // Fails in any other namespace, so a like number elsewhere is not taken for the target.
    emit(program, BPF_ST | BPF_MEM | BPF_DW, 10, 0, -PID_NS_INFO_SIZE, 0);
    emit_imm64(program, 1, 0, who->ns_dev);
    emit_imm64(program, 2, 0, who->ns_ino);
    emit(program, BPF_ALU64 | BPF_MOV | BPF_X, 3, 10, 0, 0);
    emit(program, BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, -PID_NS_INFO_SIZE);
    emit(program, BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, PID_NS_INFO_SIZE);
    emit_call(program, BPF_FUNC_get_ns_current_pid_tgid);
    emit_leave_unless(program, BPF_JNE, 0, 0);
    emit(program, BPF_LDX | BPF_MEM | BPF_W, 0, 10, -PID_NS_INFO_SIZE + 4, 0);
    emit_leave_unless(program, BPF_JNE, 0, (int32_t)who->tgid);
}

enum { INDEX_OFF = -16 }; // of the site's index, in the program's frame

static void emit_copy(struct program *program, int from, size_t to)
{
    emit(program, BPF_LDX | BPF_MEM | BPF_DW, 1, 6, from, 0);
    emit(program, BPF_STX | BPF_MEM | BPF_DW, 7, 1, (int)to, 0);
}

// r6: the registers of the probed program. A ring without room: leaves; the counter knows of the hit.
static void emit_record(struct program *program, int ring_fd)
{
    emit_imm64(program, 1, BPF_PSEUDO_MAP_FD, (uint32_t)ring_fd);
    emit(program, BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, sizeof(struct tl_uprobe_record));
    emit(program, BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 0);
    emit_call(program, BPF_FUNC_ringbuf_reserve);
    emit_leave_unless(program, BPF_JEQ, 0, 0);
    emit(program, BPF_ALU64 | BPF_MOV | BPF_X, 7, 0, 0, 0);
    emit_call(program, BPF_FUNC_ktime_get_ns);
    emit(program, BPF_STX | BPF_MEM | BPF_DW, 7, 0, offsetof(struct tl_uprobe_record, time_ns), 0);
    emit_call(program, BPF_FUNC_get_current_pid_tgid);
    emit(program, BPF_STX | BPF_MEM | BPF_DW, 7, 0, offsetof(struct tl_uprobe_record, who), 0);
    emit(program, BPF_LDX | BPF_MEM | BPF_W, 1, 10, INDEX_OFF, 0);
    emit(program, BPF_STX | BPF_MEM | BPF_DW, 7, 1, offsetof(struct tl_uprobe_record, index), 0);
    for (size_t i = 0; i < TL_ARRAY_COUNT(tl_kernel_args); i++)
        emit_copy(program, tl_kernel_args[i], offsetof(struct tl_uprobe_record, arg) + 8 * i);
    emit_copy(program, tl_kernel_return, offsetof(struct tl_uprobe_record, ret));
    emit(program, BPF_ALU64 | BPF_MOV | BPF_X, 1, 7, 0, 0);
    emit(program, BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0);
    emit_call(program, BPF_FUNC_ringbuf_submit);
}

static void program_assemble(struct program *program, int map_fd, int ring_fd,
                             const struct tl_bpf_who *who, uint32_t index)
{
    emit(program, BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0);
    emit_who(program, who);
    if (index == TL_BPF_INDEX_COOKIE) {
        emit(program, BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0);
        emit_call(program, BPF_FUNC_get_attach_cookie);
    } else {
        emit(program, BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, (int32_t)index);
    }
    emit(program, BPF_STX | BPF_MEM | BPF_W, 10, 0, INDEX_OFF, 0);
    emit_imm64(program, 1, BPF_PSEUDO_MAP_FD, (uint32_t)map_fd);
    emit(program, BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0);
    emit(program, BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, INDEX_OFF);
    emit_call(program, BPF_FUNC_map_lookup_elem);
    emit_leave_unless(program, BPF_JEQ, 0, 0);
    emit(program, BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1);
    emit(program, BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, BPF_ADD);
    if (ring_fd >= 0)
        emit_record(program, ring_fd);
    for (unsigned i = 0; i < program->leave_count; i++) {
        unsigned from = program->leave[i];
        program->insn[from].off = (int16_t)(program->count - from - 1);
    }
    // 0: a perf event bound to it makes no sample; a link keeps its breakpoint.
    emit(program, BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
    emit(program, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

int tl_bpf_program_load(int map_fd, int ring_fd, const struct tl_bpf_who *who, uint32_t index,
                        bool multi)
{
    struct program program = {.count = 0};
    program_assemble(&program, map_fd, ring_fd, who, index);
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_KPROBE;
    attr.insn_cnt = program.count;
    attr.insns = (uint64_t)(uintptr_t)program.insn;
    attr.license = (uint64_t)(uintptr_t) "Apache-2.0"; // it calls no helper that asks for more
    attr.expected_attach_type = multi ? ATTACH_TYPE_UPROBE_MULTI : 0;
    (void)memcpy(attr.prog_name, "trapless_count", sizeof "trapless_count");
    return bpf_call_charged(BPF_PROG_LOAD, &attr, sizeof attr);
}

// ---- links ------------------------------------------------------------------------------------

int tl_bpf_link_multi(int program_fd, const char *path, const uint64_t *offsets,
                      const uint64_t *cookies, uint32_t count, bool ret, pid_t pid)
{
    struct link_multi_attr attr = {
        .program_fd = (uint32_t)program_fd,
        .attach_type = ATTACH_TYPE_UPROBE_MULTI,
        .path = (uint64_t)(uintptr_t)path,
        .offsets = (uint64_t)(uintptr_t)offsets,
        .cookies = (uint64_t)(uintptr_t)cookies,
        .count = count,
        .multi_flags = ret ? UPROBE_MULTI_RETURN : 0,
        .pid = (uint32_t)pid,
    };
    return bpf_call(BPF_LINK_CREATE, &attr, sizeof attr);
}

bool tl_bpf_multi_known(int program_fd)
{
    // The root folder is no regular file: a kernel that knows such links says EBADF, others EINVAL.
    const uint64_t offset = 0;
    int fd = tl_bpf_link_multi(program_fd, "/", &offset, NULL, 1, false, 0);
    if (fd >= 0)
        (void)close(fd);
    return fd == -EBADF;
}

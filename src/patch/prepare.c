// Before the plan: the agent, the control page, the thread table and the counters come into the
// target.
//
//   base            code header and agent image, room for a call's stub   r-x  private, memfd trapless:code
//   + hole
//   control         control page, thread table   rw-  private anonymous, wiped in a forked child
//   + hole
//   data            header, counter blocks       rw-  shared, memfd trapless:data, sealed
//   + hole
//   hijack          replaced return addresses    rw-  private anonymous, copied to a forked child
//
// Invariant: nothing here touches the target's text or any memory of its own; what was mapped when
// a step fails is unmapped again.
#include "patch/install.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"
#include "attach/isa.h"
#include "base/page.h"
#include "drain/drain.h"

#define PROBES_MAX (1u << 20)
#define MAP_RESERVE_DIVISOR 16u // of vm.max_map_count, left to the target
#define MAX_MAP_COUNT_PATH "/proc/sys/vm/max_map_count"
#define MAX_MAP_COUNT_DEFAULT 65530u
#define PAGES_FIRST_TOUCHED                                                                        \
    8u // header, agent, control, table, data header, first blocks, page tables
#define SMALL_FILE_MAX 4096u
#define ROOM_ALIGN 16u

static uint64_t align_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

// What a block holds, in the order of layout.h; what records events or times starts on pages of its own.
static void layout_blocks(struct tl_install *install)
{
    struct tl_block_layout *blocks = &install->blocks;
    uint64_t size = TL_BLOCK_HEADER_SIZE + UINT64_C(8) * blocks->probe_count;
    if (blocks->hist_count) {
        blocks->hist_off = align_up(size, sizeof(struct tl_hist));
        size = blocks->hist_off + UINT64_C(1) * blocks->hist_count * sizeof(struct tl_hist);
    }
    if (blocks->ring_slots) {
        blocks->ring_off = tl_kernel_page_up(size);
        size = blocks->ring_off + sizeof(struct tl_ring_header) +
               UINT64_C(1) * blocks->ring_slots * sizeof(struct tl_ring_slot);
    }
    if (blocks->pair_slots) {
        blocks->pair_off = tl_kernel_page_up(size);
        size = blocks->pair_off + UINT64_C(1) * blocks->pair_slots * sizeof(struct tl_pair);
    }
    bool pages = blocks->ring_slots || blocks->pair_slots || blocks->hist_count;
    blocks->stride = pages ? tl_kernel_page_up(size) : align_up(size, TL_BLOCK_STRIDE_MIN);
}

uint64_t tl_control_size(void)
{
    return tl_kernel_page_up(TL_HOMES_OFF + TL_HOMES_SIZE);
}

static void layout_sizes(struct tl_install *install)
{
    struct tl_code_header *header = &install->header;
    layout_blocks(install);
    header->size = tl_kernel_page_up(align_up(sizeof *header + tl_agent_image_size, ROOM_ALIGN) +
                                     align_up(tl_target_room_size(), ROOM_ALIGN));
    header->control_size = tl_control_size();
    header->hijack_size = install->hijack ? tl_hijack_size() : 0;
    header->data_size = tl_kernel_page_up(TL_BLOCK_FIRST_OFF + UINT64_C(1) *
                                                                   install->blocks.process_count *
                                                                   TL_BLOCK_COUNT * install->blocks.stride);
}

static int layout_place(struct tl_install *install, struct tl_diag *diag)
{
    struct tl_code_header *header = &install->header;
    struct tl_target *target = install->target;
    uint64_t total = header->size + header->control_size + header->data_size + header->hijack_size +
                     UINT64_C(3) * tl_page_size();
    struct tl_range *used;
    size_t count, map_count;
    int error = tl_region_used(target, &used, &count, &map_count, diag);
    if (error)
        return error;
    tl_addr base = tl_region_place(used, count, total);
    free(used);
    if (!base)
        return tl_diag_set(diag, TL_E_REACH, "pid %d: no free address range of %llu KiB",
                           (int)tl_target_pid(target), (unsigned long long)(total >> 10));
    install->code_addr = base;
    header->control_addr = base + header->size + tl_page_size();
    header->data_addr = header->control_addr + header->control_size + tl_page_size();
    if (install->hijack)
        header->hijack_addr = header->data_addr + header->data_size + tl_page_size();
    header->agent_addr = base + sizeof *header;
    header->agent_size = tl_agent_image_size;
    return 0;
}

// ---- the three regions --------------------------------------------------------------------------

// The last bytes of the code region: a thread that waits in the agent makes our calls from there.
static tl_addr room_addr(const struct tl_install *install)
{
    return install->code_addr + install->header.size - align_up(tl_target_room_size(), ROOM_ALIGN);
}

static int control_map(struct tl_install *install, struct tl_diag *diag)
{
    struct tl_target *target = install->target;
    const struct tl_code_header *header = &install->header;
    int error = tl_region_map(target, header->control_addr, header->control_size,
                              PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, diag);
    if (error)
        return error;
    error =
        tl_region_advise(target, header->control_addr, header->control_size, MADV_WIPEONFORK, diag);
    if (error)
        (void)tl_region_unmap(target, header->control_addr, header->control_size, NULL);
    return error;
}

// What a replaced return records.
static enum tl_record_kind hijack_record(const struct tl_install *install)
{
    return install->blocks.pair_slots   ? TL_RECORD_EXIT
           : install->blocks.ring_slots ? TL_RECORD_RETURN
                                        : TL_RECORD_HIT;
}

static int code_map(struct tl_install *install, struct tl_diag *diag)
{
    struct tl_target *target = install->target;
    struct tl_code_header *header = &install->header;
    struct tl_agent_head head;
    struct tl_memfd memfd;
    memcpy(&head, tl_agent_image, sizeof head);
    head.control_addr = header->control_addr;
    head.code_addr = install->code_addr;
    head.data_addr = header->data_addr;
    head.stride = install->blocks.stride;
    head.hist_off = install->blocks.hist_off;
    head.ring_off = install->blocks.ring_off;
    head.pair_off = install->blocks.pair_off;
    head.ring_mask = install->blocks.ring_slots ? install->blocks.ring_slots - 1u : 0;
    head.pair_mask = install->blocks.pair_slots ? install->blocks.pair_slots - 1u : 0;
    head.process_count = install->blocks.process_count;
    head.follow = install->follow;
    head.tid_off = install->facts.tid_off;
    head.clock = install->facts.clock;
    head.ticks_per_ms = tl_facts_ticks_per_ms(install);
    head.thread_pointer = install->thread_pointer;
    head.homes_shift = install->homes_shift;
    head.atomics = tl_atomics_there(tl_proc_auxv(tl_target_pid(target), AT_HWCAP));
    head.hijack_addr = header->hijack_addr;
    head.hijack_lost = UINT64_C(8) * install->hijack_lost;
    head.hijack_record = head.record_off[hijack_record(install) - 1];
    install->head = head;
    int error = tl_memfd_create(target, header->control_addr + TL_SCRATCH_OFF, TL_CODE_NAME, true,
                                header->size, &memfd, diag);
    if (error)
        return error;
    error = tl_memfd_write(&memfd, header, sizeof *header, 0, diag);
    if (!error)
        error = tl_memfd_write(&memfd, &head, sizeof head, sizeof *header, diag);
    if (!error)
        error =
            tl_memfd_write(&memfd, tl_agent_image + sizeof head, tl_agent_image_size - sizeof head,
                           sizeof *header + sizeof head, diag);
    if (!error)
        error = tl_region_map(target, install->code_addr, header->size, PROT_READ | PROT_EXEC,
                              MAP_PRIVATE, memfd.remote, 0, diag);
    tl_memfd_close(target, &memfd);
    return error;
}

static int data_fill(struct tl_install *install, const struct tl_memfd *memfd, struct tl_diag *diag)
{
    const struct tl_data_header header = {.magic = TL_DATA_MAGIC,
                                          .version = TL_LAYOUT_VERSION,
                                          .probe_count = install->blocks.probe_count,
                                          .stride = install->blocks.stride,
                                          .size = install->header.data_size,
                                          .coarse_ns = tl_now_ns()};
    int error = tl_memfd_write(memfd, &header, sizeof header, 0, diag);
    if (error)
        return error;
    // Sealed before it is mapped: the target can't cut it under our mapping.
    if (fcntl(memfd->local, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return tl_diag_set(diag, TL_E_SYSTEM, "shared memory can't be sealed: %s", strerror(errno));
    void *data = mmap(NULL, header.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      memfd->local, 0);
    if (data == MAP_FAILED)
        return tl_diag_set(diag, TL_E_SYSTEM, "shared memory can't be mapped: %s", strerror(errno));
    (void)madvise(data, header.size, MADV_DONTDUMP);
    install->data = data;
    install->data_fd = fcntl(memfd->local, F_DUPFD_CLOEXEC, 3);
    if (install->data_fd < 0)
        install->data_fd = 0; // only costs memory: all blocks are read then
    return 0;
}

// A program whose memory is locked would get a page for every hole of what it maps. Mapped without any
// right, unlocked, and only then opened, it gets none (Linux, mm/gup.c: populate_vma_page_range).
static int data_open(struct tl_install *install, bool locked, struct tl_diag *diag)
{
    const struct tl_code_header *header = &install->header;
    const uint64_t range[6] = {header->data_addr, header->data_size};
    const uint64_t open[6] = {header->data_addr, header->data_size, PROT_READ | PROT_WRITE};
    int64_t result = 0;
    if (!locked)
        return 0;
    int error = tl_target_syscall(install->target, SYS_munlock, range, &result, diag);
    if (!error && result == 0)
        error = tl_target_syscall(install->target, SYS_mprotect, open, &result, diag);
    if (!error && result < 0)
        error = tl_diag_set(diag, TL_E_SYSTEM, "shared memory can't be opened in the target: %s",
                            strerror((int)-result));
    return error;
}

static int data_map(struct tl_install *install, struct tl_diag *diag)
{
    struct tl_target *target = install->target;
    const struct tl_code_header *header = &install->header;
    struct tl_memfd memfd;
    int error = tl_memfd_create(target, header->control_addr + TL_SCRATCH_OFF, TL_DATA_NAME, false,
                                header->data_size, &memfd, diag);
    if (error)
        return error;
    error = data_fill(install, &memfd, diag);
    struct tl_proc_status status;
    bool locked = tl_proc_status_read(tl_target_pid(target), &status, NULL) == 0 &&
                  status.locked_kib > 0;
    if (!error)
        error = tl_region_map(target, header->data_addr, header->data_size,
                              locked ? PROT_NONE : PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_NORESERVE, memfd.remote, 0, diag);
    if (!error)
        error = data_open(install, locked, diag);
    // A core dump would read it all, and make memory of every hole.
    if (!error)
        (void)tl_region_advise(target, header->data_addr, header->data_size, MADV_DONTDUMP, NULL);
    tl_memfd_close(target, &memfd);
    return error;
}

// The control page goes live last.
static int control_fill(struct tl_install *install, struct tl_diag *diag)
{
    struct tl_target *target = install->target;
    const struct tl_code_header *header = &install->header;
    static const char no_scratch[32];
    const struct tl_control control = {
        .live = TL_CONTROL_LIVE,
        .table_addr = header->control_addr + TL_TABLE_OFF,
        .shared_block = header->data_addr + TL_BLOCK_FIRST_OFF +
                        TL_THREAD_SLOTS * install->blocks.stride,
        .thread_pointer = install->thread_pointer,
    };
    int error = tl_target_write(target, header->control_addr + TL_SCRATCH_OFF, no_scratch,
                                sizeof no_scratch, NULL, diag);
    // The home of sites that may ask for none.
    if (!error)
        error = tl_target_write(target, header->control_addr + TL_HOMES_OFF, &control.shared_block,
                                sizeof control.shared_block, NULL, diag);
    if (!error)
        error = tl_target_write(target, header->control_addr, &control, sizeof control, NULL, diag);
    return error;
}

static void regions_unmap(struct tl_install *install)
{
    const struct tl_code_header *header = &install->header;
    (void)tl_region_unmap(install->target, header->data_addr, header->data_size, NULL);
    (void)tl_region_unmap(install->target, install->code_addr, header->size, NULL);
    (void)tl_region_unmap(install->target, header->control_addr, header->control_size, NULL);
    if (header->hijack_addr)
        (void)tl_region_unmap(install->target, header->hijack_addr, header->hijack_size, NULL);
    install->prepared = false;
}

static int regions_map(struct tl_install *install, struct tl_diag *diag)
{
    int error = control_map(install, diag);
    if (error)
        return error;
    error = tl_facts_learn(install, diag);
    if (!error)
        error = code_map(install, diag);
    if (!error)
        error = data_map(install, diag);
    if (!error)
        error = tl_hijack_map(install, diag);
    if (!error)
        error = control_fill(install, diag);
    install->prepared = true;
    if (error) // unmapping what is not mapped does no harm: the place was chosen free
        regions_unmap(install);
    return error;
}

// ---- prepare ------------------------------------------------------------------------------------

static size_t map_count_limit(void)
{
    char *text;
    size_t size, limit = MAX_MAP_COUNT_DEFAULT;
    if (tl_proc_read_file(MAX_MAP_COUNT_PATH, SMALL_FILE_MAX, &text, &size, NULL) == 0) {
        limit = strtoull(text, NULL, 10);
        free(text);
    }
    return limit - limit / MAP_RESERVE_DIVISOR;
}

static int used_read(struct tl_install *install, struct tl_diag *diag)
{
    size_t map_count, limit = map_count_limit();
    int error =
        tl_region_used(install->target, &install->used, &install->used_count, &map_count, diag);
    if (!error) // each mapping may cut a free range in two, and the log takes one
        install->mapping_limit = limit > map_count + 1 ? limit - map_count - 1 : 0;
    return error;
}

// What one busy thread makes memory of: its counters and its ring.
static uint64_t thread_bytes(const struct tl_install *install)
{
    const struct tl_block_layout *blocks = &install->blocks;
    return TL_BLOCK_HEADER_SIZE + UINT64_C(8) * blocks->probe_count +
           UINT64_C(1) * blocks->ring_slots * sizeof(struct tl_ring_slot);
}

static int prepare_held(struct tl_install *install, struct tl_diag *diag)
{
    struct tl_target *target = install->target;
    layout_sizes(install);
    uint64_t needed = PAGES_FIRST_TOUCHED * (uint64_t)tl_page_size() +
                      tl_target_thread_count(target) * tl_kernel_page_up(thread_bytes(install));
    int error = tl_target_headroom(target, needed, diag);
    if (error)
        return error;
    install->thread_pointer = tl_region_thread_pointer(target);
    install->homes_shift = tl_region_has_homes(install->thread_pointer)
                               ? tl_region_homes_guess(target)
                               : TL_HOMES_SHIFT_DEFAULT;
    error = layout_place(install, diag);
    if (!error)
        error = regions_map(install, diag);
    if (error)
        return error;
    error = tl_faults_ask(install, diag);
    if (!error)
        error = used_read(install, diag);
    if (error)
        regions_unmap(install);
    return error;
}

struct prepare_job {
    struct tl_install *install;
    struct tl_diag *diag;
};

static int prepare_run(void *opaque)
{
    struct prepare_job *job = opaque;
    struct tl_target *target = job->install->target;
    bool held = tl_target_thread_count(target) != 0; // a launched target stays where it is
    int error = job->install->beside ? 0 : tl_leftovers_clear(target, job->diag);
    uint64_t start = tl_now_ns();
    if (!error)
        error = tl_patch_hold(target, false, job->diag);
    if (!error)
        error = prepare_held(job->install, job->diag);
    if (!held)
        tl_target_resume(target);
    job->install->times.borrowed_ms = (double)(tl_now_ns() - start) / 1e6;
    return error;
}

int tl_install_prepare(struct tl_target *target, const struct tl_install_options *options,
                       struct tl_install **out, struct tl_diag *diag)
{
    if (options->probe_count == 0 || options->probe_count > PROBES_MAX)
        return tl_diag_set(diag, TL_E_LIMIT, "%u probes: at least 1, at most %u can be placed",
                           options->probe_count, PROBES_MAX);
    struct tl_install *install = calloc(1, sizeof *install);
    if (!install)
        return tl_diag_set(diag, TL_E_NOMEM, "out of memory");
    struct tl_proc_status self = {0};
    (void)tl_proc_status_read(getpid(), &self, NULL);
    install->target = target;
    install->blocks = (struct tl_block_layout){
        .probe_count = options->probe_count,
        .hist_count = options->hist_count,
        .ring_slots = options->ring_slots,
        .pair_slots = options->hist_count ? TL_PAIR_SLOTS : 0,
        .process_count = options->process_count ? options->process_count : 1,
    };
    install->follow = options->follow;
    install->hijack = options->hijack;
    install->hijack_lost = options->hijack_lost;
    install->beside = options->beside;
    if (options->clock)
        tl_facts_clock_rate(install);
    install->header = (struct tl_code_header){.magic = TL_CODE_MAGIC,
                                              .version = TL_LAYOUT_VERSION,
                                              .state = TL_CODE_EMPTY,
                                              .controller_start = self.start_time,
                                              .controller_pid = getpid()};
    struct prepare_job job = {install, diag};
    int error = tl_target_run(target, prepare_run, &job, diag);
    if (error) {
        tl_install_destroy(install);
        return error;
    }
    tl_target_room_give(target, room_addr(install));
    *out = install;
    return 0;
}

// Prepared and never committed: no site leads here, so all of it can go.
static int abandon_run(void *opaque)
{
    struct tl_install *install = opaque;
    bool held = tl_target_thread_count(install->target) != 0;
    tl_target_room_take(install->target, room_addr(install)); // the calls that unmap it come from elsewhere
    if (tl_patch_hold(install->target, false, NULL) == 0)
        regions_unmap(install);
    if (!held)
        tl_target_resume(install->target);
    return 0;
}

void tl_install_destroy(struct tl_install *install)
{
    if (!install)
        return;
    if (install->prepared && !install->committed && tl_target_alive(install->target))
        (void)tl_target_run(install->target, abandon_run, install, NULL);
    if (install->data)
        munmap(install->data, install->header.data_size);
    if (install->data_fd > 0)
        close(install->data_fd);
    free(install->used);
    free(install->writes.write);
    free(install->needs);
    free(install->row);
    free(install->resume);
    free(install->mapped);
    free(install);
}

void tl_install_emit_input(const struct tl_install *install, struct tl_emit_in *emit)
{
    const struct tl_agent_head *head = &install->head;
    tl_addr agent = install->header.agent_addr;
    emit->thread_pointer = (enum tl_thread_pointer)install->thread_pointer;
    emit->control_addr = install->header.control_addr;
    emit->table_addr = install->header.control_addr + TL_TABLE_OFF;
    emit->homes_addr = install->header.control_addr + TL_HOMES_OFF;
    emit->homes_shift = (uint8_t)head->homes_shift;
    emit->atomics = head->atomics != 0;
    emit->slow_addr = agent + head->slow_count_off;
    emit->call_addr = agent + head->fault_off;
    emit->leave_addr = agent + head->leave_off;
    for (size_t i = 0; i < TL_RECORD_ENTRIES; i++)
        emit->record_addr[i + 1] = head->record_off[i] ? agent + head->record_off[i] : 0;
    // What has no room is not recorded: the emitter then finds no entry.
    if (!install->blocks.ring_slots)
        emit->record_addr[TL_RECORD_EVENT] = emit->record_addr[TL_RECORD_GO_EVENT] =
            emit->record_addr[TL_RECORD_RETURN] = 0;
    if (!install->blocks.hist_count)
        emit->record_addr[TL_RECORD_ENTER] = emit->record_addr[TL_RECORD_EXIT] = 0;
}

void tl_install_space(const struct tl_install *install, struct tl_space_options *out)
{
    out->used = install->used;
    out->used_count = install->used_count;
    out->mapping_limit = install->mapping_limit;
    out->addr_min = TL_SPACE_ADDR_MIN;
    out->addr_max = tl_addr_limit(install->used, install->used_count);
    out->page_size = tl_page_size();
}

void tl_install_memory(const struct tl_install *install, struct tl_drain_memory *out)
{
    *out = (struct tl_drain_memory){.data = install->data,
                                    .size = install->data ? (size_t)install->header.data_size : 0,
                                    .fd = install->data_fd > 0 ? install->data_fd : -1,
                                    .layout = install->blocks};
}

void tl_install_facts(const struct tl_install *install, struct tl_install_facts *out)
{
    *out = install->facts;
}

void tl_install_times(const struct tl_install *install, struct tl_install_times *out)
{
    *out = install->times;
}

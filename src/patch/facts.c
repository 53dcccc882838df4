// What the target lets its records know: a clock, and where a thread keeps its id.
//
// Asks with a borrowed thread before the agent is written, and all threads once they are held.
// Writes nothing but constants of the agent's head. Invariant: a thread id is taken from a place
// only if each thread that was asked had its own there; it is better not known than wrong.
#include "patch/install.h"

#include "attach/isa.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "arch/clock.h"
#include "drain/drain.h"

#define NS_PER_MS 1000000.0
#define CLOCKSOURCE_PATH "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#define SMALL_FILE_MAX 4096u
#define SEARCH_SIZE_MAX 4096
#define THREADS_ASKED_MAX 4096u

// ---- the clock ----------------------------------------------------------------------------------

// The kernel trusts the counter, or the processor says that it goes on at one rate. Other clock
// sources of virtual machines say nothing about it.
static bool counter_is_steady(void)
{
    char *text;
    size_t size;
    bool steady = tl_arch_ticks_steady();
    if (!steady && tl_proc_read_file(CLOCKSOURCE_PATH, SMALL_FILE_MAX, &text, &size, NULL) == 0) {
        steady = strcmp(text, "tsc\n") == 0;
        free(text);
    }
    return steady;
}

// prctl(2), PR_SET_TSC: a process may have made the counter's instruction a fault.
static int counter_allowed(struct tl_install *install, bool *allowed, struct tl_diag *diag)
{
    const tl_addr scratch = install->header.control_addr + TL_SCRATCH_OFF;
    const uint64_t args[6] = {PR_GET_TSC, scratch};
    const int none = 0;
    int64_t result = 0;
    int value = 0;
    int error = tl_target_syscall(install->target, SYS_prctl, args, &result, diag);
    if (!error)
        error = tl_target_read(install->target, scratch, &value, sizeof value, diag);
    if (!error)
        error = tl_target_write(install->target, scratch, &none, sizeof none, NULL, diag);
    if (!error) // EINVAL: this kernel can't forbid it
        *allowed = result == -EINVAL || (result == 0 && value == PR_TSC_ENABLE);
    return error;
}

void tl_install_clock_tick(struct tl_install *install)
{
    if (!install->data || install->facts.clock != TL_CLOCK_COARSE)
        return;
    struct tl_data_header *header = install->data;
    // Relaxed: the time is all that is read.
    __atomic_store_n(&header->coarse_ns, tl_now_ns(), __ATOMIC_RELAXED);
}

// Measuring takes a few ms, in which a thread may wait for a library's probes: once a process is enough.
void tl_facts_clock_rate(struct tl_install *install)
{
    struct tl_clock_map map;
    if (install->beside && install->beside->counter_per_ms) {
        install->counter_per_ms = install->beside->counter_per_ms;
        return;
    }
    tl_clock_map_init(&map, false);
    install->counter_per_ms = (uint64_t)(NS_PER_MS / map.ns_per_tick);
}

// ---- thread ids ---------------------------------------------------------------------------------

// The id that the thread knows itself by. 0: it is gone.
static uint32_t thread_inner_id(pid_t tid)
{
    struct tl_proc_status status;
    if (tl_proc_status_read(tid, &status, NULL) != 0)
        return 0;
    return (uint32_t)(status.inner_id ? status.inner_id : tid); // a kernel without pid namespaces
}

// Asks threads from `first` on whether they have their id at off. How many said yes; -1: one said
// no.
static int threads_agree(struct tl_target *target, uint64_t off)
{
    size_t count = tl_target_thread_count(target);
    int agreed = 0;
    for (size_t i = 0; i < count && i < THREADS_ASKED_MAX; i++) {
        struct tl_thread_view view;
        uint32_t word = 0;
        // Still in the kernel: a vfork parent, whose memory says what its child's does.
        if (tl_target_thread_view(target, i, &view) != 0 || view.in_kernel)
            continue;
        if (tl_target_read(target, view.thread_pointer + off, &word, sizeof word, NULL) != 0 ||
            word == 0 || word != thread_inner_id(view.tid))
            return -1;
        agreed++;
    }
    return agreed;
}

// A libc that we don't know: the one place near the thread pointer that holds the id. 0: none, or
// two.
static uint64_t tid_off_search(struct tl_target *target)
{
    struct tl_thread_view view;
    uint32_t words[SEARCH_SIZE_MAX / sizeof(uint32_t)];
    uint64_t found = 0;
    const int64_t from = tl_tid_place.search_from, to = tl_tid_place.search_to;
    size_t size = (size_t)(to - from);
    if (size > sizeof words || tl_target_thread_view(target, 0, &view) != 0 ||
        tl_target_read(target, view.thread_pointer + (uint64_t)from, words, size, NULL) != 0)
        return 0;
    uint32_t id = thread_inner_id(view.tid);
    for (int64_t off = from; id && off < to; off += (int64_t)sizeof id) {
        if (words[(size_t)(off - from) / sizeof id] != id)
            continue;
        if (found)
            return 0;
        found = (uint64_t)off;
    }
    return found;
}

static uint64_t tid_off_find(struct tl_install *install)
{
    // Another way to the thread pointer means that some thread may have none, and the agent would
    // fault.
    if (install->thread_pointer != TL_TP_FS_WORD && !tl_region_has_homes(install->thread_pointer))
        return 0;
    for (size_t i = 0; i < TL_ARRAY_COUNT(tl_tid_place.known) && tl_tid_place.known[i]; i++) {
        if (threads_agree(install->target, (uint64_t)tl_tid_place.known[i]) > 0)
            return (uint64_t)tl_tid_place.known[i];
    }
    return tid_off_search(install->target);
}

static bool tid_off_is_known(uint64_t off)
{
    for (size_t i = 0; i < TL_ARRAY_COUNT(tl_tid_place.known); i++) {
        if (off == (uint64_t)tl_tid_place.known[i])
            return true;
    }
    return false;
}

// ---- both ---------------------------------------------------------------------------------------

int tl_facts_learn(struct tl_install *install, struct tl_diag *diag)
{
    bool allowed = false;
    if (install->follow || install->counter_per_ms) // a child's process slot is marked with its id
        install->facts.tid_off = tid_off_find(install);
    if (!install->counter_per_ms)
        return 0;
    int error = counter_allowed(install, &allowed, diag);
    if (error)
        return error;
    install->facts.clock = allowed && counter_is_steady() ? TL_CLOCK_COUNTER : TL_CLOCK_COARSE;
    return 0;
}

uint64_t tl_facts_ticks_per_ms(const struct tl_install *install)
{
    return install->facts.clock == TL_CLOCK_COARSE ? (uint64_t)NS_PER_MS : install->counter_per_ms;
}

static int head_write(struct tl_install *install, size_t off, uint64_t word, struct tl_diag *diag)
{
    return tl_target_write(install->target, install->header.agent_addr + off, &word, sizeof word,
                           NULL, diag);
}

// Threads that share a home share a block too, which is right, and slow.
static int homes_check(struct tl_install *install, struct tl_diag *diag)
{
    unsigned better;
    if (install->homes_settled || install->committed ||
        !tl_region_homes_crowded(install->target, install->homes_shift, &better))
        return 0;
    install->homes_settled = true;
    install->homes_shift = better;
    install->head.homes_shift = better;
    int error = head_write(install, offsetof(struct tl_agent_head, homes_shift), better, diag);
    if (error)
        return error;
    return tl_diag_set(diag, TL_E_AGAIN, "pid %d: its threads lie otherwise than thought: plan again",
                       (int)tl_target_pid(install->target));
}

int tl_facts_check(struct tl_install *install, struct tl_diag *diag)
{
    struct tl_target *target = install->target;
    uint64_t way = tl_region_thread_pointer(target), off = install->facts.tid_off;
    bool moved = install->thread_pointer != TL_TP_SHARED && way != install->thread_pointer;
    int error = 0;
    if (off) {
        int agreed = moved ? -1 : threads_agree(target, off);
        // One thread may have its id where it is by chance.
        if (agreed < 0 || (agreed < 2 && !tid_off_is_known(off))) {
            install->facts.tid_off = install->head.tid_off = 0;
            error = head_write(install, offsetof(struct tl_agent_head, tid_off), 0, diag);
        }
    }
    if (!error && !moved && tl_region_has_homes(install->thread_pointer))
        return homes_check(install, diag);
    if (error || !moved)
        return error;
    install->thread_pointer = install->head.thread_pointer = way;
    error = head_write(install, offsetof(struct tl_agent_head, thread_pointer), way, diag);
    if (!error)
        error = tl_target_write(
            target, install->header.control_addr + offsetof(struct tl_control, thread_pointer),
            &way, sizeof way, NULL, diag);
    if (error)
        return error;
    return tl_diag_set(diag, TL_E_AGAIN,
                       "pid %d: some threads have no thread pointer of their own: plan again",
                       (int)tl_target_pid(target));
}

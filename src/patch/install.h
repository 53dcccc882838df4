// What the files of patch share. Internal.
//
//   region.c   memory in the target: memfds, mappings, where they go
//   prepare.c  before the plan           commit.c   after it
//   text.c     bytes of the target's text: compare, write, put back, give pages back
//   detach.c   verify, detach            leftover.c what earlier controllers left
//   trap.c     breakpoints and their handler
//   faults.c   the target's fault handlers  trampoline.c replaced return addresses
//   facts.c    clock, thread ids
//   family.c   copies in forked children  rearm.c    a library that came back
#ifndef TL_PATCH_INSTALL_H
#define TL_PATCH_INSTALL_H

#include "agent/trap.h"
#include "patch/patch.h"

#define TL_CODE_NAME "trapless:code"
#define TL_DATA_NAME "trapless:data"
#define TL_CODE_PATH "/memfd:" TL_CODE_NAME // as maps shows it; " (deleted)" follows
#define TL_DATA_PATH "/memfd:" TL_DATA_NAME

#define TL_LOG_PATCHES_MAX (1u << 20)
#define TL_FAULT_ROWS_MAX (TL_LOG_PATCHES_MAX * (TL_FAULT_POINTS_MAX + TL_WINDOW_INSNS_MAX))
#define TL_POOLS_MAX (1u << 16)
#define TL_SCRATCH_OFF 2048u           // in the control page: strings for system calls
#define TL_STACK_SEARCH_MAX (8u << 20) // bytes of one stack; a deeper one counts as "found"

enum tl_write_state {
    TL_WRITE_PLANNED,
    TL_WRITE_SKIPPED, // never written
    TL_WRITE_DONE,    // ours are in the text
    TL_WRITE_CLOSED,  // put back (or not there any more); bytes of ours may come back with a
                      // stranger's
};

// One patch of the text.
struct tl_write {
    struct tl_patch patch;
    size_t plan;   // index of the site
    uint8_t order; // place among the site's patches
    uint8_t rank;  // lower ranks are written first, and put back last
    uint64_t inode, file_off;
    uint32_t dev_major, dev_minor;
    enum tl_write_state state;
};

struct tl_writes {
    struct tl_write *write; // sorted by address, no overlap
    size_t count;
};

// Sites that one site can't be without.
struct tl_needs {
    uint32_t plan[TL_SITE_NEEDS_MAX];
    uint8_t count;
    bool guard;           // the probe of a fault handler: sites that can fault need all of these
    bool faults;          // a displaced instruction can fault
    bool faults_interior; // ... in a window with an interior
};

struct tl_install {
    struct tl_target *target;
    struct tl_block_layout blocks;
    struct tl_install_facts facts;
    uint64_t counter_per_ms; // rate of the processor's counter; 0: nothing is timed
    bool follow;
    bool hijack;
    uint32_t hijack_lost;
    struct tl_agent_head head; // as it was written into the target
    struct tl_code_header header;
    tl_addr code_addr;
    uint64_t caught;         // bit n - 1: fault signal n has a handler, when last asked
    tl_addr handler[TL_FAULT_HANDLERS_MAX];
    size_t handler_count;
    struct tl_fault_row *row; // sorted by pc
    struct tl_fault_row *resume; // sorted by site; as many as resume_count
    size_t resume_count;
    size_t row_count;
    const struct tl_install *beside; // see tl_install_options
    uint64_t thread_pointer; // enum tl_thread_pointer
    unsigned homes_shift;
    bool homes_settled; // that was put right once
    void *data;              // local mapping of the shared memory
    int data_fd;             // its memfd, 0: none yet
    struct tl_range *used;
    size_t used_count, mapping_limit;
    struct tl_writes writes;
    struct tl_needs *needs; // per plan
    size_t plan_count;
    struct tl_range *mapped; // pools and log, as mapped by commit
    size_t mapped_count;
    size_t copies_closed; // patches CLOSED when the copies were last looked after
    bool prepared, committed, detached;
    struct tl_install_times times;
    uint64_t borrowed_since_ns, stopped_since_ns;
};

// What commit works on; tests make their own.
struct tl_commit_input {
    const struct tl_range *mapping;
    size_t mapping_count;
    const bool *guarded; // a mapping each: to be mapped guarded (arm64: BTI). NULL: none
    const struct tl_plan_detour *detour;
    size_t detour_count;
    const struct tl_plan *const *plan;
    size_t plan_count;
    const struct tl_trap_row *trap; // breakpoints, sorted by addr
    size_t trap_count;
    // Called while all tasks are stopped, before text is written. An error ends the commit. NULL: nothing.
    int (*stopped)(void *opaque, struct tl_diag *diag);
    void *opaque;
};
// Fills in the mappings of a space. Caller frees *guarded, which input keeps using.
int tl_commit_mappings(struct tl_commit_input *input, struct tl_space *space, bool **guarded,
                       struct tl_diag *diag);
int tl_install_commit_input(struct tl_install *install, const struct tl_commit_input *input,
                            struct tl_install_result *results, struct tl_diag *diag);

// Bytes of the control page, the thread table and the homes, in whole pages. (prepare.c)
uint64_t tl_control_size(void);

// Whether counts find their thread's block through the homes, by the thread pointer's value.
static inline bool tl_region_has_homes(uint64_t way)
{
    return way == TL_TP_TPIDR || way == TL_TP_TP;
}

// ---- region.c; all with a borrowed thread
struct tl_memfd {
    int remote; // in the target
    int local;  // the same file, here
};
// A named, sealable memfd of size bytes, open on both sides.
int tl_memfd_create(struct tl_target *target, tl_addr scratch_addr, const char *name, bool code,
                    uint64_t size, struct tl_memfd *out, struct tl_diag *diag);
void tl_memfd_close(struct tl_target *target, struct tl_memfd *memfd);
int tl_memfd_write(const struct tl_memfd *memfd, const void *buf, size_t size, uint64_t off,
                   struct tl_diag *diag);
// Maps at exactly addr, where nothing is mapped yet. fd -1: anonymous. TL_E_AGAIN: it is taken.
int tl_region_map(struct tl_target *target, tl_addr addr, uint64_t size, int prot, int flags,
                  int fd, uint64_t off, struct tl_diag *diag);
int tl_region_unmap(struct tl_target *target, tl_addr addr, uint64_t size, struct tl_diag *diag);
int tl_region_advise(struct tl_target *target, tl_addr addr, uint64_t size, int advice,
                     struct tl_diag *diag);
// A free place of size bytes far from what grows. 0: none.
tl_addr tl_region_place(const struct tl_range *used, size_t used_count, uint64_t size);
// Every range that is mapped or must stay free. Caller frees *out.
int tl_region_used(struct tl_target *target, struct tl_range **out, size_t *count,
                   size_t *map_count, struct tl_diag *diag);
// enum tl_thread_pointer that is sound for every thread that is held now.
uint64_t tl_region_thread_pointer(struct tl_target *target);
// The lowest bit of the thread pointer that homes are chosen by (agent/layout.h): the one by which these
// pointers have the most, and the default where another is no better.
unsigned tl_homes_shift(const uint64_t *pointer, size_t count);
// The same before all threads can be asked: by what looks like their stacks.
unsigned tl_region_homes_guess(struct tl_target *target);
// With all stopped: *better gives the threads more than twice as many homes as shift does.
bool tl_region_homes_crowded(struct tl_target *target, unsigned shift, unsigned *better);
uint64_t tl_now_ns(void);
// Borrows a thread and, if all is wanted, stops the rest; some tries where the target is slow to stop.
int tl_patch_hold(struct tl_target *target, bool all, struct tl_diag *diag);
// The same for putting text back, which needs no system call in the target: that no thread can be borrowed where it
// stands must not keep our code there. *borrowed: one is wanted; then, whether there is one. NULL: none is wanted.
int tl_patch_stop(struct tl_target *target, bool *borrowed, struct tl_diag *diag);
// Only the borrowing.
int tl_patch_borrow(struct tl_target *target, bool *borrowed, struct tl_diag *diag);

// ---- text.c; all while all tasks are stopped
struct tl_text_group; // neighbouring patches that are written at once
struct tl_text_view {
    struct tl_text_group *group;
    size_t group_count;
    struct tl_maps maps;
    struct tl_range agent; // whose words on a stack mean nothing (below). tl_text_load leaves it empty
};
// The agent's image, where a header says it lies.
static inline struct tl_range tl_code_agent(const struct tl_code_header *header)
{
    return (struct tl_range){header->agent_addr, header->agent_addr + header->agent_size};
}
// Reads maps and the bytes around every patch. Patches whose memory can't be read get refusals by
// tl_text_check.
int tl_text_load(struct tl_target *target, struct tl_writes *writes, struct tl_text_view *out,
                 struct tl_diag *diag);
void tl_text_deinit(struct tl_text_view *text);
// Why the patch can't be written: mapping and bytes. NONE: it can.
enum tl_refusal tl_text_check(const struct tl_text_view *text, const struct tl_write *write);
// Whether the bytes behind a patch that belong to its branch are, or with all PLANNED patches
// written will be, what it relies on.
bool tl_text_relied(const struct tl_text_view *text, const struct tl_writes *writes,
                    const struct tl_write *write);
// The patch that addr is a byte of. NULL: none.
const struct tl_write *tl_writes_at(const struct tl_writes *writes, tl_addr addr);
// Sets ranks: a site's patches in their order, and after those whose bytes they rely on. So a
// controller that dies between two writes leaves no branch to what is not there yet.
void tl_writes_rank(struct tl_writes *writes);
// Writes `after` of all PLANNED patches, group by group; they become DONE. On an error all is put
// back.
int tl_text_write(struct tl_target *target, struct tl_text_view *text, struct tl_writes *writes,
                  struct tl_diag *diag);
// Puts back, byte by byte, what is ours in DONE and CLOSED patches for which pick() is true; they
// become CLOSED. Returns how many patches had bytes of ours, or TL_E_*. Branches of several instructions
// (tl_branch_size) stay DONE while a thread may be inside one, or in a detour, which may lead back into one:
// *left (may be NULL) says how many did. A word on a stack that leads to the agent says nothing: what the agent was
// called by has a word that leads to its detour, beside it or in a saved register, until it has come back, and
// what returns by the trampoline comes back behind a call, where no window goes on. But dead copies of the agent's
// own return addresses lie in frames that never write there.
int tl_text_put_back(struct tl_target *target, struct tl_text_view *text, struct tl_writes *writes,
                     bool (*pick)(const struct tl_write *write, void *opaque), void *opaque,
                     size_t *left, struct tl_diag *diag);
// Waits a moment for threads to leave such branches: true, with all going on, if it is worth another try;
// *tries is the caller's, 0 at first. held: the borrowed thread stays so.
bool tl_text_wait(struct tl_target *target, size_t left, bool held, unsigned *tries);
// Whether the bytes in the text are just what we wrote. *gone: the mapping is not there any more.
bool tl_text_intact(const struct tl_text_view *text, const struct tl_write *write, bool *gone);
// What can be read there is just what the file holds.
bool tl_text_without_ours(const struct tl_text_view *text, const struct tl_write *write);
// Some byte of ours is in the text, and all others are the file's or a breakpoint.
bool tl_text_has_ours(const struct tl_text_view *text, const struct tl_write *write);
// Gives pages that equal the file back; with a borrowed thread.
void tl_text_pages_return(struct tl_target *target, const struct tl_writes *writes);

// ---- faults.c
// Which fault signals (bits as in /proc) the target catches. 0 when it is gone.
uint64_t tl_faults_caught(pid_t pid);
// Asks for the handlers' addresses; with a borrowed thread.
int tl_faults_ask(struct tl_install *install, struct tl_diag *diag);
// Makes the install's rows: those of its detours, and those of the other install. TL_E_NOMEM.
int tl_faults_rows(struct tl_install *install, const struct tl_commit_input *input,
                   const struct tl_install *beside);

// Rows of what the branches in one patch of a plan put on the stack before they leave. Returns how many; row may be
// NULL.
struct tl_arch;
size_t tl_faults_branch_rows(const struct tl_arch *arch, const struct tl_plan *plan,
                             const struct tl_patch *patch, struct tl_fault_row *row);

// ---- trampoline.c
uint64_t tl_hijack_size(void);
// Maps and fills it where header.hijack_addr is set; with a borrowed thread.
int tl_hijack_map(struct tl_install *install, struct tl_diag *diag);
// A header names memory that is such.
bool tl_hijack_is(const struct tl_maps *maps, const struct tl_code_header *header);
// Code of a file's, not ours.
bool tl_map_is_text(const struct tl_map *map);
// All stopped: puts replaced return addresses back, in coroutines' stacks and in registers too, and lets no more be
// replaced. One that a thread in our code is just about to replace stays, as the code does. writes: what is in the
// text (NULL: not known). Returns how many.
size_t tl_hijack_put_back(struct tl_target *target, const struct tl_code_header *header,
                          const struct tl_writes *writes);
// The same. False: a thread stands in our code, and may replace one more, or is to take one into its register.
bool tl_hijack_put_back_whole(struct tl_install *install);

// ---- link.c
// What a function does with the return address in its register: the stack pointer that it is entered with, and
// where it stores that address. 0: not known.
struct tl_link {
    tl_addr entry, place;
};
struct tl_link_search {
    struct tl_target *target;
    const struct tl_maps *maps;
    const struct tl_writes *writes; // NULL: not known
    struct tl_range agent;
    uint64_t replaced;
    // What belongs there instead of `replaced`, by entry if that is known. 0: nobody knows.
    uint64_t (*original)(const struct tl_link *link, void *opaque);
    void *opaque;
};
// All stopped: looks for `replaced` in the link registers of threads, and in those that the kernel keeps on their
// stacks for signal handlers; and in the frames of those that stand in our code. Returns how many were put back.
size_t tl_links_put_back(const struct tl_link_search *search);

// ---- facts.c
// Measures the counter; takes some milliseconds, so before anything is held.
void tl_facts_clock_rate(struct tl_install *install);
// Fills install->facts; with a borrowed thread, once there is a control page.
int tl_facts_learn(struct tl_install *install, struct tl_diag *diag);
uint64_t tl_facts_ticks_per_ms(const struct tl_install *install);
// With all threads held, before text is written: is what held for one thread so for all? TL_E_AGAIN: the
// plans are to be made again.
int tl_facts_check(struct tl_install *install, struct tl_diag *diag);

// ---- trap.c
#define TL_SIGSET_SIZE 8             // bytes of the kernel's sigset_t
#define TL_HANDLER_MIN 2             // SIG_DFL is 0, SIG_IGN is 1
#define TL_RESTORER_FLAG 0x04000000u // SA_RESTORER, the same on x86-64 and arm64 (uapi/asm/signal.h)
// What the kernel's struct sigaction holds (include/linux/signal_types.h). restorer is 0 where it has no such word
// (tl_signal_restorer).
struct tl_signal_action {
    uint64_t handler, flags, restorer, mask;
};
// What the kernel does on SIGTRAP in the target; with a borrowed thread. scratch_addr: memory of ours.
int tl_trap_action(struct tl_target *target, tl_addr scratch_addr, struct tl_signal_action *out,
                   struct tl_diag *diag);
// All stopped, and no breakpoint of ours in the text: SIGTRAP does again what it does by default. false: not
// done, a thread is on its way to the handler.
bool tl_trap_forget(struct tl_target *target, tl_addr scratch_addr);

// ---- detach.c
// Puts back all sites that are still written; their refusal becomes `reason`.
int tl_install_close_all(struct tl_install *install, enum tl_refusal reason,
                         struct tl_install_result *results, struct tl_diag *diag);

// ---- leftover.c
// A mapping of ours by its name, TL_CODE_PATH or TL_DATA_PATH.
bool tl_map_is(const struct tl_map *map, const char *path);
// Puts back what a dead controller left and unmaps idle regions, before new ones come.
int tl_leftovers_clear(struct tl_target *target, struct tl_diag *diag);
// Calls visit for every word on the stacks of one thread, and for its link register (addr 0). False: a stack was
// too deep to search, or could not be read.
bool tl_stack_words(struct tl_target *target, const struct tl_thread_view *view,
                    void (*visit)(tl_addr addr, uint64_t word, void *opaque), void *opaque);

#endif

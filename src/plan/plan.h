// Stage plan: facts and the layout of the address space -> a rung, a way and a layout for each
// site, or a refusal. Pure: no system call, no file. Sites are planned together, highest address
// first.
#ifndef TL_PLAN_PLAN_H
#define TL_PLAN_PLAN_H

#include "analyse/analyse.h"
#include "arch/arch.h"
#include "emit/emit.h"

// The ways to jump, best first. Names appear in explain as "window": see tl_way_text.
enum tl_way {
    TL_WAY_NONE,
    TL_WAY_ONE,    // one instruction, at least as long as the branch
    TL_WAY_CALL,   // a direct call's target is changed
    TL_WAY_PUN,    // a branch whose last bytes are the next instruction's own
    TL_WAY_WINDOW, // a proved window over several instructions
    TL_WAY_ISLAND, // a short jump to an island in padding
    // Where the branch is short (riscv64) and nothing in its reach is free:
    TL_WAY_FAR,   // a longer one, through a dead register
    TL_WAY_HOP,   // a branch to an island in padding, which goes far
    TL_WAY_SPILL, // a longer one, through a register that it puts on the stack
};
const char *tl_way_text(enum tl_way way);

// What user addresses x86-64 Linux gives a program (4-level page tables): above mmap_min_addr,
// below the last page of the lower half. Other ISAs pass their own.
#define TL_SPACE_ADDR_MIN 0x10000ull
#define TL_SPACE_ADDR_MAX 0x7ffffffff000ull
#define TL_SPACE_MAPPINGS_DEFAULT 60000u // a little under vm.max_map_count's default of 65530

// Free and used address space around the target's text. Addresses are runtime.
struct tl_space; // opaque
struct tl_space_options {
    const struct tl_range
        *used; // every mapping and every excluded range (above the heap, stack room), sorted
    size_t used_count;
    size_t mapping_limit;       // how many new mappings the target may get (vm.max_map_count)
    bool lean;                  // map no page that no detour needs (locked memory, address-space limit)
    tl_addr addr_min, addr_max; // usable addresses (mmap_min_addr .. TASK_SIZE)
    size_t page_size;           // the target's, bytes; 0: TL_PAGE_SIZE
};
int tl_space_create(const struct tl_space_options *options, struct tl_space **out,
                    struct tl_diag *diag);
void tl_space_destroy(struct tl_space *space);

// The mappings the plan needs, merged: neighbouring pages share one mapping. Borrowed until destroy
// or the next planning call. Valid after tl_plan_sites.
size_t tl_space_mappings(struct tl_space *space, const struct tl_range **out);
// Whether mapping `index` of them is to be mapped guarded (arm64: PROT_BTI).
bool tl_space_mapping_guarded(const struct tl_space *space, size_t index);

struct tl_plan_request {
    struct tl_site_facts facts; // as analysed, vaddrs
    int64_t bias;               // runtime address = vaddr + bias
    uint32_t counter_off;       // see tl_emit_in
    uint32_t module;            // index into modules[]
    enum tl_action action;      // 0: as in the options
    struct tl_record record[TL_SITE_RECORDS_MAX]; // for TL_ACTION_RECORD
    bool on_taken, no_stack;    // see tl_emit_in
    bool guarded; // tl_plan_traps: as the module (tl_plan_sites has the module itself)
    bool shared;                // this site counts in the shared block (TL_TP_SHARED)
};

struct tl_plan_module {
    int64_t bias;
    const struct tl_range *padding; // vaddrs, from tl_analysis_padding
    size_t padding_count;
    struct tl_range text; // vaddr range of all its text
    bool guarded; // its text is mapped guarded (arm64: BTI), and so must its detours' pools be
    // The file's bytes of its text (tl_module_facts.text), borrowed for the call: a pun's last
    // bytes and what padding holds are read here. None: sites get no pun and no island.
    const struct tl_text *texts;
    size_t text_count;
    // Facts of other instructions of the module (branches that lead back to an entry):
    // tl_analysis_site and its first argument. NULL: entries that loop are refused.
    int (*site)(struct tl_analysis *analysis, tl_addr vaddr, struct tl_site_facts *out,
                struct tl_diag *diag);
    struct tl_analysis *analysis;
};

#define TL_PATCH_SIZE_MAX 32

// Bytes to write over text. One site may need several (island; loopers).
struct tl_patch {
    tl_addr addr;
    uint8_t size;
    uint8_t before[TL_PATCH_SIZE_MAX]; // what must be there: the file's bytes
    uint8_t after[TL_PATCH_SIZE_MAX];
    // A pun: this many bytes behind the patch belong to the branch too. They are not written, and
    // must hold after[size .. size + relied) from the moment the patch is written until it is taken
    // back.
    uint8_t relied;
};

// Three ways out, an island, a host and the site; an island and itself for each of four looping branches.
#define TL_SITE_PATCHES_MAX 14
// Other requests that a site can't do without (looping branches that are probed themselves).
#define TL_SITE_NEEDS_MAX 4

// Code that nobody asked for, displaced so that what it leaves holds a site's islands. It goes with the site.
struct tl_plan_host {
    tl_addr addr; // runtime
    uint8_t window_size;
    tl_addr detour_addr;
    const struct tl_detour *detour;
};

struct tl_plan {
    enum tl_rung rung; // TL_RUNG_JUMP or TL_RUNG_REFUSED (the caller tries the kernel rung next)
    enum tl_refusal refusal;
    enum tl_way way;
    tl_addr addr;        // runtime
    uint8_t window_size; // bytes of original code the detour displaces (TL_WAY_CALL: the call)
    bool interior; // the window has instruction starts strictly inside: threads and stacks are
                   // searched
    bool faults;            // a displaced instruction can fault
    enum tl_action action;  // of the detour
    tl_addr detour_addr;
    uint16_t detour_size; // reserved, slots rounded up
    // Owned by the plan set, which holds bytes[0 .. size) only: never copied as a struct. NULL when
    // refused, or planned alone.
    const struct tl_detour *detour;
    const struct tl_plan_host *host; // NULL: none; owned by the plan set
    const struct tl_patch *patch; // written in this order, all or none; owned by the plan set
    uint8_t patch_count;          // at most TL_SITE_PATCHES_MAX
    // Requests (indices) that must be written for this one to be: skip one of them, skip this one.
    uint32_t needs[TL_SITE_NEEDS_MAX];
    uint8_t needs_count;
};

// Which displaced instructions may be ones that can fault. A handler that is shown an instruction's
// own address may go back to it or, having counted its length, to the next one: inside a window the
// text is no longer what it was. A call that gets a new target runs at its own address.
enum tl_fault_policy {
    TL_FAULT_ANY,   // all: nobody handles faults
    TL_FAULT_RESUMED, // simple ones too behind the first of a window: handlers have probes at their
                      // entry and at each return
    TL_FAULT_LONE,  // those displaced alone: each handler has a probe that puts the address right
    TL_FAULT_NONE,  // none
};

// What is the same for every site of one run.
struct tl_plan_options {
    const struct tl_arch *arch;
    struct tl_emit_in
        emit;   // action, thread_pointer, table/control/slow addresses: copied for each site
    bool alone; // plan each site as if it were the only one (explain): nothing stays reserved,
                // and no detour bytes are kept
    enum tl_fault_policy faults;
    bool shadow_stack; // in force in the target: no call is displaced, for its copy pushes by itself
};

struct tl_plan_set; // opaque; owns plans and detours

// Plans all requests. Requests may come in any order and may repeat an address only once. 0 also
// when all are refused.
int tl_plan_sites(const struct tl_plan_options *options, struct tl_space *space,
                  const struct tl_plan_module *modules, size_t module_count,
                  const struct tl_plan_request *requests, size_t request_count,
                  struct tl_plan_set **out, struct tl_diag *diag);
// plan of request index. Borrowed until destroy.
const struct tl_plan *tl_plan_get(const struct tl_plan_set *set, size_t index);
// Auxiliary detours (loopers) have their own: all detours of the set, including sites'.
struct tl_plan_detour {
    tl_addr addr;
    const struct tl_detour *detour;
    tl_addr site; // runtime address of the original code
};
size_t tl_plan_detours(const struct tl_plan_set *set, const struct tl_plan_detour **out);
void tl_plan_set_destroy(struct tl_plan_set *set);

#endif

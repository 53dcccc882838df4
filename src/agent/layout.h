// The memory that the agent, the detours and the controller share. Freestanding.
//
//   code region    private, r-x, from a memfd "trapless:code" (so that maps name it)
//     offset 0     struct tl_code_header, agent image, undo log (struct tl_log_*)
//   pools          the same memfd, other offsets: detours, private, r-x
//   control        private anonymous, rw-, MADV_WIPEONFORK: struct tl_control, the thread table, homes
//   shared         memfd "trapless:data", sealed: process slots, notices, blocks
//
//   shared = [struct tl_data_header | process slots | notices][process 0][process 1] ...
//   process p = TL_BLOCK_COUNT blocks, `stride` bytes each; block TL_THREAD_SLOTS is shared by the
//   threads that have none of their own. Block i of process p lies at
//       TL_BLOCK_FIRST_OFF + (p * TL_BLOCK_COUNT + i) * stride
//
//   block = [header 64][counters: 8 * probe_count][histograms][ring header][ring slots][pairs]
//   Only what the run records is there (struct tl_block_layout); a memfd's holes cost nothing.
#ifndef TL_AGENT_LAYOUT_H
#define TL_AGENT_LAYOUT_H

#include "base/types.h"

#define TL_LAYOUT_VERSION 4u
#define TL_CODE_MAGIC 0x65646f637373656cull // "lesscode"
#define TL_DATA_MAGIC 0x617461647373656cull // "lessdata"

#define TL_THREAD_SLOTS 256u
#define TL_THREAD_SLOT_SIZE 16u
#define TL_TABLE_SIZE (TL_THREAD_SLOTS * TL_THREAD_SLOT_SIZE)
#define TL_TABLE_OFF 4096u // from the control page
// Homes, where every count is an atomic add (arm64): the address of a block for each value of 8 bits of the
// thread pointer, 0: none yet. Threads that share one share a block; that costs time only.
#define TL_HOMES 256u
#define TL_HOMES_OFF (TL_TABLE_OFF + TL_TABLE_SIZE)
#define TL_HOMES_SIZE (TL_HOMES * 8u)
#define TL_HOMES_SHIFT_DEFAULT 12u

// index = ((thread pointer * TL_HASH) mod 2^64) >> (64 - 8); the detour computes the byte offset
// of the slot as (product >> 52) & 0xff0. TL_HASH fits a sign-extended 32-bit immediate.
#define TL_HASH 0x61c88647u

// One thread's claim. The slow path writes block (a function of process and index alone, so that
// two who race for a slot write the same) and then takes tp from 0 to the thread pointer, once, by
// compare-and-swap.
struct tl_thread_slot {
    uint64_t tp;
    uint64_t block; // address of the thread's block
};

// The control page. All zero after a fork (MADV_WIPEONFORK). A forked child then is silent, or, where
// children are followed (struct tl_agent_head.follow), claims a process slot and fills it.
#define TL_CONTROL_LIVE 0x6c697665u
#define TL_SHARED_BLOCK_MIN 16u
struct tl_control {
    uint32_t live;          // TL_CONTROL_LIVE, or 0: do nothing
    uint32_t process;       // index of the process slot; valid while live
    uint64_t table_addr;    // struct tl_thread_slot[TL_THREAD_SLOTS]
    // Block for threads without one; atomic adds. It stands for the process: below TL_SHARED_BLOCK_MIN
    // there is none (yet).
    uint64_t shared_block;
    uint64_t thread_pointer; // enum tl_thread_pointer
};

#define TL_BLOCK_COUNT (TL_THREAD_SLOTS + 1u)
#define TL_BLOCK_HEADER_SIZE 64u // per block: zero
#define TL_BLOCK_STRIDE_MIN 128u // two cache lines: neighbours' prefetch does not share

// ---- processes: the target is slot 0; followed children claim others ------------------------------

#define TL_PROCESS_SLOTS_MAX 1024u
// owner goes 0 -> tid of the claimer (1 if it is not known) by the child's locked compare-and-swap, and
// back to 0 by the controller, once that process is gone and its blocks are read and zeroed. A process whose
// first hits race (threads, signal handlers) may have taken more than one; it counts in one of them.
struct tl_process_slot {
    uint32_t owner;
    uint32_t reserved;
};

// ---- notices: a thread of the target tells the controller something and waits a little -------------

#define TL_NOTICE_SLOTS 64u
#define TL_NOTICE_WAIT_MS 100u // the most a thread waits for a controller that does nothing
// ... and for one that is at work on what came, or where going on may harm the program: TRAP and MASK; LOADER
// while return addresses are replaced, for what comes may unwind.
#define TL_NOTICE_LONG_WAIT_MS 1000u
#define TL_NOTICE_HARM_WAIT_MS 5000u // ... where both are so
#define TL_NOTICE_DEAF_MS 1000u // a controller that has not looked for so long is not waited for

enum tl_notice_kind {
    TL_NOTICE_NONE = 0,
    TL_NOTICE_LOADER = 1, // the loader's debug hook: libraries came or are about to go
    TL_NOTICE_EXEC = 2,   // about to execute another program
    TL_NOTICE_TRAP = 3,   // about to change what happens on a signal: arguments of sigaction
    TL_NOTICE_MASK = 4,   // about to change which signals a thread blocks: those of pthread_sigmask
};
// FREE -> FILLING (thread, locked compare-and-swap) -> ASKED (thread) -> ANSWERED (controller) -> FREE
// (thread). A thread that gave up waiting goes ASKED -> FREE by compare-and-swap. A thread that left the
// hook by another way (a signal handler that jumped out) never frees its slot: what stays FILLING or
// ANSWERED for TL_NOTICE_DEAF_MS the controller takes back by compare-and-swap.
enum tl_notice_state { TL_NOTICE_FREE, TL_NOTICE_FILLING, TL_NOTICE_ASKED, TL_NOTICE_ANSWERED };
struct tl_notice {
    uint32_t state;
    uint32_t kind;
    uint32_t tid; // 0: not known
    uint32_t process;
    uint64_t argument[2]; // of the hooked function
    uint64_t reserved[4];
};

struct tl_data_header {
    uint64_t magic;
    uint32_t version;
    uint32_t probe_count;
    uint64_t stride;
    uint64_t size; // whole memfd, bytes
    uint64_t coarse_ns; // the controller's CLOCK_MONOTONIC, for targets that may read no counter
    uint64_t silent; // followed children that found no process slot; only added to
    // Written by the controller at each look at the notices: when, in ticks of the target's clock (0: not
    // yet); and the value of `missed` that it found. A thread waits for no answer while missed != heard, nor
    // TL_NOTICE_DEAF_MS after the last look.
    uint64_t answered_ticks;
    uint32_t heard;
    uint32_t missed; // by the target: notices that were not posted, or got no answer in time
    uint32_t working; // the controller is at work on libraries or programs: not 0
    uint32_t reserved;
};

#define TL_PROCESS_SLOTS_OFF 128u
#define TL_NOTICES_OFF 12288u
#define TL_BLOCK_FIRST_OFF 16384u // after all of these
_Static_assert(sizeof(struct tl_data_header) <= TL_PROCESS_SLOTS_OFF, "data header");
_Static_assert(TL_PROCESS_SLOTS_OFF + TL_PROCESS_SLOTS_MAX * sizeof(struct tl_process_slot) <=
                   TL_NOTICES_OFF, "process slots");
_Static_assert(TL_NOTICES_OFF + TL_NOTICE_SLOTS * sizeof(struct tl_notice) <= TL_BLOCK_FIRST_OFF,
               "notices");

// Offsets inside a block. 0: the run has none of it. The controller's own copy counts, never one
// that lies in the target.
struct tl_block_layout {
    uint64_t stride;
    uint32_t probe_count;
    uint32_t hist_count;  // histograms; probe k has histogram k
    uint64_t hist_off;
    uint64_t ring_off;    // struct tl_ring_header, then ring_slots slots
    uint64_t pair_off;    // struct tl_pair[pair_slots]
    uint32_t ring_slots;  // power of two
    uint32_t pair_slots;  // power of two
    uint32_t process_count;
    uint32_t reserved;
};

// ---- rings: one a thread; its thread and its signal handlers write, the controller reads --------------
//
//        tail (reader)            head (writer)
//          |                        |
//   [free][full][full][pending][full][free]...      slot = index mod ring_slots
//
// A writer takes an index by compare-and-swap of head (unlocked: only its own thread writes; locked in
// the shared block), never past tail + ring_slots: a full ring drops, and the probe's counter says how
// much. It then reads the clock, fills the slot and stores word last. A handler that comes in between
// takes a later index, so a slot may be pending below full ones. The reader zeroes word, then moves
// tail.
struct tl_ring_header {
    uint64_t head;
    uint64_t reserved[7];
    uint64_t tail; // written by the controller
    uint64_t reserved2[7];
};

#define TL_EVENT_ARGS 6
struct tl_ring_slot {
    uint64_t word; // 0: free or pending; else TL_RING_WORD(...)
    uint64_t time; // ticks of the clock
    uint64_t arg[TL_EVENT_ARGS]; // the return value is arg[0]
};
_Static_assert(sizeof(struct tl_ring_slot) == 64, "one cache line");

enum tl_ring_kind { TL_RING_ENTRY = 1, TL_RING_RETURN = 2 };
// tid 32 bits (0: not known) | kind 8 | probe 24
#define TL_RING_WORD(tid, kind, probe) ((uint64_t)(tid) << 32 | (uint64_t)(kind) << 24 | (probe))
#define TL_RING_PROBE(word) ((uint32_t)(word) & 0xffffffu)
#define TL_RING_KIND(word) ((uint32_t)(word) >> 24 & 0xffu)
#define TL_RING_TID(word) ((uint32_t)((word) >> 32))

// ---- pairs: entries that wait for their return, a shadow of the thread's stack ---------------------
//
// The stack pointer at a function's first instruction is the address of its return address: no two
// live frames share one. So a pair is found by it alone: longjmp, exceptions and coroutines leave
// stale pairs behind, which the next call at that address overwrites. Slot =
// (sp >> 3) + (sp >> TL_PAIR_WRAP_SHIFT) * TL_PAIR_WRAP_STEP mod pair_slots, then up to TL_PAIR_STEPS
// next ones where a shallower frame's pair may still live.
//
// Signal safety: an entry stores key, then time; a return reads time, then compares key, then stores 0.
struct tl_pair {
    uint64_t key;  // sp ^ (probe + 1) << 48; 0: free
    uint64_t time;
};
#define TL_PAIR_SLOTS 32768u // a shadow of 256 KiB of stack: 512 KiB, of which only what is used is memory
#define TL_PAIR_WRAP_SHIFT 18
#define TL_PAIR_WRAP_STEP 3u
#define TL_PAIR_STEPS 8u
#define TL_PAIR_PROBES_MAX 65535u

// ---- replaced return addresses ---------------------------------------------------------------------
//
//   private anonymous memory, rw-, copied by fork: a child's pending returns find their way too
//     struct tl_hijack_head
//
// Key is where the return address lies: no two live frames share a place. The slot of a key is the first
// one that holds it, going on from
//     (key >> 3) + (key >> TL_HIJACK_WRAP_SHIFT) * TL_HIJACK_WRAP_STEP mod TL_HIJACK_SLOTS
// for at most TL_HIJACK_STEPS slots. An entry takes the first slot that is free or holds its own key (of a
// frame that was left by a jump): a slot of the same key behind it is older, and never looked at while the
// newer one lives. Slots of frames that were left by a jump stay taken until a call at the same place.
#define TL_HIJACK_SLOTS 262144u // a shadow of 2 MiB of stack: 8 MiB, of which only what is used is memory
#define TL_HIJACK_STEPS 64u
#define TL_HIJACK_WRAP_SHIFT 21
#define TL_HIJACK_WRAP_STEP 3u
#define TL_HIJACK_RANGES_MAX 1021u
#define TL_HIJACK_PROVEN 1024u
#define TL_HIJACK_REGIONS_MAX 256u // installs in one process

// Signal safety: the key goes from 0 by a locked compare-and-swap, then the rest is written, then the
// return address is replaced. A return reads all, then stores key 0.
struct tl_hijack_slot {
    uint64_t key;      // 0: free
    uint64_t original; // return address
    uint64_t counter_off;
    uint64_t returned; // the key of a return that went from here, original still being its: 0 none
                       // | TL_HIJACK_SINCE: none, and the rest is when it was entered, by head.entries
};
// Where a return address comes in a register the function stores it where it likes, below the key. What two
// frames call the same place at two times is the later one's.
#define TL_HIJACK_SINCE (UINT64_C(1) << 63)
#define TL_HIJACK_PLACES_MAX (UINT32_C(1) << 20) // of functions, by counter
#define TL_HIJACK_AT_KEY 1u     // a place is that many words below the key, and 1; 0: not known
#define TL_HIJACK_NOWHERE 65535u // it stays in its register

struct tl_hijack_head {
    uint64_t next;        // the heads of all installs in the process form a ring: address of the next
    uint64_t trampoline;  // what replaced return addresses of this one hold
    uint64_t range_count; // text that a return address may lie in; by the controller
    uint64_t ended;       // not 0: none is replaced any more; by the controller
    struct tl_range range[TL_HIJACK_RANGES_MAX]; // sorted
    uint64_t entries; // how many return addresses that came in a register were replaced
    uint64_t reserved2;
    uint64_t proven[TL_HIJACK_PROVEN]; // return addresses that were looked at; at address mod count
    struct tl_hijack_slot slot[TL_HIJACK_SLOTS];
    uint16_t place[TL_HIJACK_PLACES_MAX]; // by the controller, before the first is replaced
};

// ---- histograms: log-linear, in ticks -------------------------------------------------------------
//
// Below 32 ticks a bucket each; above, 32 buckets an octave: bucket width <= value / 32.
//   bucket(v) = v < 32 ? v : (e - 4) * 32 + (v >> (e - 5) & 31),  e = index of v's highest bit
#define TL_HIST_SUB_BITS 5u
#define TL_HIST_EXPONENT_MAX 44u // longer times are counted as the longest
#define TL_HIST_BUCKETS ((TL_HIST_EXPONENT_MAX - 4u) * 32u + 32u)
struct tl_hist {
    uint64_t sum;
    uint64_t min_inverted; // ~min, so that zeroed memory is empty
    uint64_t max;
    uint64_t unpaired;     // returns whose entry is not known (entered before the probes came, or lost)
    uint64_t lost;         // entries that found no room for a pair
    uint64_t reserved[3];
    uint64_t bucket[TL_HIST_BUCKETS];
};

#define TL_RESTORERS_MAX 4 // one a fault signal

// At offset 0 of the code region. Written by the controller; only a hint to later controllers, who
// check every field.
struct tl_code_header {
    uint64_t magic;
    uint32_t version;
    uint32_t state;       // enum tl_code_state
    uint64_t size;        // code region, bytes
    uint64_t control_addr;
    uint64_t control_size;
    uint64_t data_addr;
    uint64_t data_size;
    uint64_t log_addr;    // struct tl_log_patch[]
    uint32_t log_count;
    uint32_t pool_count;
    uint64_t pool_addr;   // struct tl_range[] of pools
    uint64_t agent_addr;  // agent image
    uint64_t agent_size;
    uint64_t controller_start; // start time (clock ticks since boot) and pid, for messages only
    int32_t controller_pid;
    uint32_t fault_count;
    uint64_t fault_addr;  // struct tl_fault_row[], sorted by pc: read by the agent, in a forked child too
    uint64_t resume_addr; // struct tl_fault_row[], sorted by site: ways back into a window's copy
    uint64_t resume_count;
    uint64_t restorer[TL_RESTORERS_MAX]; // where the target's fault handlers return to; 0: none
    uint64_t hijack_addr; // struct tl_hijack_head; 0: no return address is replaced
    uint64_t hijack_size;
    uint64_t trap_next;   // tl_code_header of the newest install with breakpoints; 0: none (agent/trap.h)
    uint64_t trap_addr;   // struct tl_trap_row[], sorted
    uint32_t trap_count;
    uint32_t trap_stepped; // some slot ends in a breakpoint
};

// An instruction of a detour that can fault, and what a handler is to see instead.
struct tl_fault_row {
    uint64_t pc;
    uint64_t site;     // the instruction's own address
    uint64_t sp_bytes; // to be added to the stack pointer
};

enum tl_code_state {
    TL_CODE_EMPTY = 0,
    TL_CODE_PREPARED = 1, // log is complete; text may have been written
    TL_CODE_IDLE = 2,     // text is the file's again
};

// One patch in the undo log. Text is put back only where its bytes equal `after` and device,
// inode and offset of the mapping match.
struct tl_log_patch {
    uint64_t addr;
    uint64_t inode;
    uint64_t file_off;
    uint32_t dev_major;
    uint32_t dev_minor;
    uint8_t size;
    uint8_t before[32];
    uint8_t after[32];
    uint8_t rank;        // lower ranks were written first, and are put back last
    uint8_t reserved[6];
};

#endif

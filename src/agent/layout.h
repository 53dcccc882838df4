// The memory that the agent, the detours and the controller share. Freestanding.
//
//   code region    private, r-x, from a memfd "trapless:code" (so that maps name it)
//     offset 0     struct tl_code_header, agent image, undo log (struct tl_log_*)
//   pools          the same memfd, other offsets: detours, private, r-x
//   control        private anonymous, rw-, MADV_WIPEONFORK: struct tl_control, then the thread table
//   shared         memfd "trapless:data", sealed: counter blocks
//
//   block i = shared + TL_BLOCK_FIRST_OFF + i * stride;   block TL_THREAD_SLOTS is the shared one
//   counter k of a block is at TL_BLOCK_HEADER_SIZE + 8 * k
#ifndef TL_AGENT_LAYOUT_H
#define TL_AGENT_LAYOUT_H

#include "base/types.h"

#define TL_LAYOUT_VERSION 1u
#define TL_CODE_MAGIC 0x65646f637373656cull // "lesscode"
#define TL_DATA_MAGIC 0x617461647373656cull // "lessdata"

#define TL_THREAD_SLOTS 256u
#define TL_THREAD_SLOT_SIZE 16u
#define TL_TABLE_SIZE (TL_THREAD_SLOTS * TL_THREAD_SLOT_SIZE) // one page

// index = ((thread pointer * TL_HASH) mod 2^64) >> (64 - 8); the detour computes the byte offset
// of the slot as (product >> 52) & 0xff0. TL_HASH fits a sign-extended 32-bit immediate.
#define TL_HASH 0x61c88647u

// One thread's claim. tp goes 0 -> the thread pointer once, by compare-and-swap in the slow path;
// block is filled by the controller before any site is written and never changes after.
struct tl_thread_slot {
    uint64_t tp;
    uint64_t block; // address of the thread's block
};

// The control page. All zero after a fork (MADV_WIPEONFORK): the child is silent.
#define TL_CONTROL_LIVE 0x6c697665u
struct tl_control {
    uint32_t live;          // TL_CONTROL_LIVE, or 0: do nothing
    uint32_t reserved;
    uint64_t table_addr;    // struct tl_thread_slot[TL_THREAD_SLOTS]
    uint64_t shared_block;  // block for threads without one; atomic adds
    uint64_t thread_pointer; // enum tl_thread_pointer
};

#define TL_BLOCK_HEADER_SIZE 64u // per block: kept for later (ring state), zero now
#define TL_BLOCK_FIRST_OFF 4096u // after struct tl_data_header
#define TL_BLOCK_STRIDE_MIN 128u // two cache lines: neighbours' prefetch does not share

struct tl_data_header {
    uint64_t magic;
    uint32_t version;
    uint32_t probe_count;
    uint64_t stride;
    uint64_t size; // whole memfd, bytes
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
    uint8_t before[16];
    uint8_t after[16];
    uint8_t rank;        // lower ranks were written first, and are put back last
    uint8_t reserved[6];
};

#endif

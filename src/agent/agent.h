// The head of the agent's flat image. Freestanding; the controller fills what is zero.
#ifndef TL_AGENT_AGENT_H
#define TL_AGENT_AGENT_H

#include "base/types.h"
#include "emit/emit.h"

// The clock that records are stamped with.
enum tl_clock {
    TL_CLOCK_COUNTER, // the processor's: rdtsc
    TL_CLOCK_COARSE,  // tl_data_header.coarse_ns, which the controller keeps
};

// At offset 0 of the image (src/arch/agent_head.h writes it). First what the controller fills
// in: constants of the install, which a forked child sees too. Then what the image tells of itself.
struct tl_agent_head {
    uint64_t control_addr;  // struct tl_control in the target
    uint64_t code_addr;     // struct tl_code_header in the target
    uint64_t data_addr;     // struct tl_data_header in the target
    uint64_t stride;        // of a block; the rest of struct tl_block_layout follows as wide words
    uint64_t hist_off;
    uint64_t ring_off;
    uint64_t pair_off;
    uint64_t ring_mask;     // ring_slots - 1
    uint64_t pair_mask;     // pair_slots - 1
    uint64_t process_count; // process slots there are; 1: only the target's own
    uint64_t follow;        // not 0: a forked child claims a slot
    uint64_t tid_off;       // of the thread id (32 bits) from the thread pointer; 0: not known
    uint64_t clock;         // enum tl_clock
    uint64_t ticks_per_ms;  // of that clock, for waiting
    uint64_t thread_pointer; // enum tl_thread_pointer, for a child that fills its control page
    uint64_t hijack_addr;   // struct tl_hijack_head; 0: none
    uint64_t hijack_lost;   // from a probe's counter to the one that counts its losses, bytes; 0: none
    uint64_t hijack_record; // record_off of what a replaced return records
    // Where every count is an atomic add (arm64): see struct tl_emit_in.
    uint64_t homes_shift;
    uint64_t atomics;

    // Entries, as offsets from the image's start.
    uint64_t slow_count_off; // tl_agent_slow_count
    uint64_t fault_off;      // TL_ACTION_CALL
    uint64_t leave_off;      // TL_ACTION_LEAVE
    uint64_t record_off[TL_RECORD_ENTRIES]; // by enum tl_record_kind - 1; 0: not there
    uint64_t trampoline_off; // where a replaced return address leads
    uint64_t trap_off;       // the SIGTRAP handler
    uint64_t restorer_off;   // ... and what it returns to
    uint64_t image_size;
};

// The image as it was built.
extern const unsigned char tl_agent_image[];
extern const size_t tl_agent_image_size;

#endif

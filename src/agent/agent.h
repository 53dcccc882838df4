// The head of the agent's flat image. Freestanding; the controller fills what is zero.
#ifndef TL_AGENT_AGENT_H
#define TL_AGENT_AGENT_H

#include "base/types.h"

// At offset 0 of the image (src/arch/<isa>/agent_entry.S writes it).
struct tl_agent_head {
    uint64_t control_addr;   // struct tl_control in the target; 0 in the file
    uint64_t code_addr;      // struct tl_code_header in the target; 0 in the file
    uint64_t slow_count_off; // entry tl_agent_slow_count, from the image's start
    uint64_t fault_off;      // entry tl_agent_fault_entry, for TL_ACTION_CALL
    uint64_t leave_off;      // entry tl_agent_leave_entry, for TL_ACTION_LEAVE
    uint64_t image_size;
};

// The image as it was built.
extern const unsigned char tl_agent_image[];
extern const size_t tl_agent_image_size;

#endif

// What the agent's own files share: the constants of its head, and who the calling thread is. Only for code
// inside the image.
#ifndef TL_AGENT_INSIDE_H
#define TL_AGENT_INSIDE_H

#include "agent/agent.h"
#include "agent/layout.h"
#include "arch/agent_isa.h"

// In the image's head (struct tl_agent_head); the controller wrote them before any site led here.
extern const uint64_t tl_agent_control_addr __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_code_addr __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_data_addr __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_stride __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_process_count __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_follow __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_thread_pointer __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_tid_off __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_clock __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_homes_shift __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_ticks_per_ms __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_hijack_addr __attribute__((visibility("hidden")));

// Whether this process records; and its process slot. False in a forked child that nobody follows.
static inline bool tl_agent_process(uint32_t *process)
{
    const volatile struct tl_control *control =
        (const volatile struct tl_control *)(uintptr_t)tl_agent_control_addr;
    *process = control->process;
    // Looked at last: a signal handler that forked while we read has made the page zero in the child.
    return control->live == TL_CONTROL_LIVE;
}

// The thread id in the innermost namespace. 0: not known. After vfork and in posix_spawn's child: that of the
// thread whose memory it borrows.
static inline uint32_t tl_agent_tid(void)
{
    if (tl_agent_tid_off == 0)
        return 0;
    // Not the control page's way: a child's may be empty.
    uint64_t pointer = tl_agent_thread_pointer_now(tl_agent_thread_pointer);
    return pointer ? *(const volatile uint32_t *)(uintptr_t)(pointer + tl_agent_tid_off) : 0;
}

// The block that the calling thread counts in; claims one, and in a followed child a process slot, where it
// has none. TL_BLOCK_SHARED set: the block is shared, and every change of it must be atomic. 0: a child
// that is not followed, count nothing. May be interrupted by itself at any instruction. Keeps every register
// but that of the result.
#define TL_BLOCK_SHARED 1u
uint64_t tl_agent_block(void) TL_AGENT_KEEPS;

#endif

// What a stopped thread's signals are. Part of stage attach.
#ifndef TL_ATTACH_SIGNALS_H
#define TL_ATTACH_SIGNALS_H

#include "attach/target.h"

struct tl_thread_signals {
    pid_t process;    // that the thread belongs to
    uint64_t blocked; // bit n - 1: signal n, now or when its system call has returned
    uint64_t pending; // of the thread or its process, or just about to be delivered
    bool seccomp;
};

// Of a stopped target's thread. TL_E_GONE: it has ended.
int tl_target_thread_signals(struct tl_target *target, size_t index, struct tl_thread_signals *out);

#endif

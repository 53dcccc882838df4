// A thread of the target tells the controller something and waits a little for the answer: that the
// loader brings libraries, that another program is about to be executed, that SIGTRAP is to be
// handled.
//
// Freestanding, no library, general registers only, no system call. Writes one notice of the shared
// memory and two words of its header, nothing else. A signal may land anywhere, post a notice of
// its own, and never come back. Invariant: a thread waits at most TL_NOTICE_WAIT_MS, or
// TL_NOTICE_LONG_WAIT_MS where going on may harm the program or the controller is at work,
// TL_NOTICE_HARM_WAIT_MS where both are so, and not at all where the last notice got no answer
// since the controller last looked, or the controller has not looked for TL_NOTICE_DEAF_MS.
#include "agent/agent.h"
#include "agent/inside.h"
#include "agent/layout.h"

// Where no clock may be read, or one that may stand still: turns with a tl_agent_pause, so some 10
// to 100 ms.
#define TURNS_MAX 2000000u
#define TURNS_WORKING_MAX (TURNS_MAX / TL_NOTICE_WAIT_MS * TL_NOTICE_LONG_WAIT_MS)
#define TURNS_TIMED_MAX (250u * TURNS_MAX) // a counter that was set back ends here

struct hook_frame {
    uint64_t argument[2]; // of the hooked function
};

void tl_agent_hook(uint64_t kind, const struct hook_frame *frame);

static struct tl_data_header *data_header(void)
{
    return (struct tl_data_header *)(uintptr_t)tl_agent_data_addr;
}

static struct tl_notice *notice_at(uint64_t index)
{
    return (struct tl_notice *)(uintptr_t)(tl_agent_data_addr + TL_NOTICES_OFF) + index;
}

static uint64_t clock_now(void)
{
    if (tl_agent_clock == TL_CLOCK_COUNTER)
        return tl_agent_ticks();
    return __atomic_load_n(&data_header()->coarse_ns, __ATOMIC_RELAXED);
}

// Whether somebody is there to answer. Words that the controller or a stranger wrote: any value
// does no more harm than a wait, or none.
static bool listener_there(void)
{
    const struct tl_data_header *header = data_header();
    if (__atomic_load_n(&header->missed, __ATOMIC_RELAXED) !=
        __atomic_load_n(&header->heard, __ATOMIC_RELAXED))
        return false;
    uint64_t looked = __atomic_load_n(&header->answered_ticks, __ATOMIC_RELAXED);
    if (looked == 0 || tl_agent_ticks_per_ms == 0) // it has not begun, or there is no clock
        return true;
    // Two processors' counters may differ by a few ticks: then "before" is "just now".
    int64_t age = (int64_t)(clock_now() - looked);
    return age < (int64_t)(tl_agent_ticks_per_ms * TL_NOTICE_DEAF_MS);
}

static void notice_missed(void)
{
    __atomic_fetch_add(&data_header()->missed, 1, __ATOMIC_RELAXED);
}

static struct tl_notice *notice_claim(void)
{
    for (uint64_t i = 0; i < TL_NOTICE_SLOTS; i++) {
        struct tl_notice *notice = notice_at(i);
        uint32_t state = TL_NOTICE_FREE;
        // Acquire: what the last owner wrote lies before what we write.
        if (__atomic_load_n(&notice->state, __ATOMIC_RELAXED) == TL_NOTICE_FREE &&
            __atomic_compare_exchange_n(&notice->state, &state, TL_NOTICE_FILLING, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return notice;
    }
    return NULL;
}

// A program that takes SIGTRAP away under our breakpoints dies of the next, one that throws through
// a replaced return address by an unwinder that has no probe yet ends too: for these the wait is
// long.
static uint64_t patience_ms(uint64_t kind)
{
    const struct tl_hijack_head *head =
        (const struct tl_hijack_head *)(uintptr_t)tl_agent_hijack_addr;
    bool replaces = head && !__atomic_load_n(&head->ended, __ATOMIC_RELAXED);
    bool harm =
        kind == TL_NOTICE_TRAP || kind == TL_NOTICE_MASK || (kind == TL_NOTICE_LOADER && replaces);
    return harm ? TL_NOTICE_LONG_WAIT_MS : TL_NOTICE_WAIT_MS;
}

// On a slow machine a library's probes take longer than one may wait for nothing. Relaxed: any value does no
// more harm than the long wait; partner: tl_notice_working of the controller.
static bool controller_works(void)
{
    return __atomic_load_n(&data_header()->working, __ATOMIC_RELAXED) != 0;
}

// Until it is no longer ASKED, by whomever. Returns whether that came in time.
static bool notice_await(const struct tl_notice *notice, uint64_t wait_ms)
{
    bool timed = tl_agent_clock == TL_CLOCK_COUNTER && tl_agent_ticks_per_ms != 0;
    const uint64_t usual = timed ? tl_agent_ticks_per_ms * wait_ms : TURNS_MAX;
    const uint64_t longest_ms =
        wait_ms == TL_NOTICE_LONG_WAIT_MS ? TL_NOTICE_HARM_WAIT_MS : TL_NOTICE_LONG_WAIT_MS;
    const uint64_t longest = timed ? tl_agent_ticks_per_ms * longest_ms : TURNS_WORKING_MAX;
    const uint64_t start = timed ? clock_now() : 0;
    for (uint64_t turn = 0; turn < TURNS_TIMED_MAX; turn++) {
        // Acquire, with the controller's release: what it changed before it answered is seen.
        if (__atomic_load_n(&notice->state, __ATOMIC_ACQUIRE) != TL_NOTICE_ASKED)
            return true;
        // Counters of two processors may differ by a few ticks, so what has passed may be below 0.
        int64_t passed = (int64_t)(timed ? clock_now() - start : turn);
        if (passed >= (int64_t)usual && (passed >= (int64_t)longest || !controller_works()))
            return false;
        tl_agent_pause();
    }
    return false;
}

static void notice_post(uint64_t kind, uint32_t process, uint32_t tid,
                        const struct hook_frame *frame)
{
    struct tl_notice *notice = notice_claim();
    if (!notice) {
        notice_missed();
        return;
    }
    notice->kind = (uint32_t)kind;
    notice->tid = tid;
    notice->process = process;
    notice->argument[0] = frame->argument[0];
    notice->argument[1] = frame->argument[1];
    // Release, with the controller's acquire of state.
    __atomic_store_n(&notice->state, TL_NOTICE_ASKED, __ATOMIC_RELEASE);
    uint32_t state = TL_NOTICE_ASKED;
    if (!notice_await(notice, patience_ms(kind)) &&
        __atomic_compare_exchange_n(&notice->state, &state, TL_NOTICE_FREE, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        notice_missed();
        return;
    }
    // Not a plain store: a thread that stood still for long may find that the controller freed its
    // slot and that it is another's now.
    state = TL_NOTICE_ANSWERED;
    (void)__atomic_compare_exchange_n(&notice->state, &state, TL_NOTICE_FREE, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

// Called by the entry stub with every register saved that the record frame does not keep.
__attribute__((used)) TL_AGENT_KEEPS void tl_agent_hook(uint64_t kind,
                                                        const struct hook_frame *frame)
{
    uint32_t process;
    // A followed child's first record may be this one: asking for a block makes it known.
    if (tl_agent_block() == 0 || !tl_agent_process(&process))
        return;
    if (listener_there())
        notice_post(kind, process, tl_agent_tid(), frame);
    else
        notice_missed();
}

// The agent's slow path: finds or claims the calling thread's block, and the process's slot in a
// forked child.
//
// Freestanding, no library, no stack protector, general registers only, no data of its own but the
// constants in the image's head. No system call, no lock, no loop longer than a table. A signal may
// land anywhere, come here again, and fork: the child goes on in the middle, with the control page
// and the thread table wiped. Invariants: a slot's tp goes from 0 to one thread pointer, once; a
// process takes one slot; what a child claims is never the parent's.
//
// All of a process's claim is one word, control->shared_block:
//
//   0 ─► CLAIMING ─► address of its shared block (which says which process slot)
//              └───► NO_ROOM (silent for good)
//
// Each arrow is a compare-and-swap, so who finds 0 behind CLAIMING was forked meanwhile, and begins
// again.
#include "agent/inside.h"

enum { UNCLAIMED = 0, CLAIMING = 1, NO_ROOM = 2 }; // all below TL_SHARED_BLOCK_MIN

static struct tl_control *control_page(void)
{
    return (struct tl_control *)(uintptr_t)TL_AGENT_HEAD(control_addr);
}

static struct tl_thread_slot *thread_table(void)
{
    return (struct tl_thread_slot *)(uintptr_t)(TL_AGENT_HEAD(control_addr) + TL_PAGE_SIZE);
}

static struct tl_data_header *data_header(void)
{
    return (struct tl_data_header *)(uintptr_t)tl_agent_data_addr;
}

// Block `index` of a process. The same for all who ask, so that it may be written by each of them.
static uint64_t block_at(uint64_t process, uint64_t index)
{
    return tl_agent_data_addr + TL_BLOCK_FIRST_OFF +
           (process * TL_BLOCK_COUNT + index) * tl_agent_stride;
}

// ---- processes ----------------------------------------------------------------------------------

// Takes a free process slot. 0: none is left.
static uint32_t process_take(void)
{
    struct tl_process_slot *slots =
        (struct tl_process_slot *)(uintptr_t)(tl_agent_data_addr + TL_PROCESS_SLOTS_OFF);
    uint32_t tid = tl_agent_tid(), owner = tid ? tid : 1;
    for (uint32_t i = 1; i < tl_agent_process_count && i < TL_PROCESS_SLOTS_MAX; i++) {
        uint32_t nobody = 0;
        if (__atomic_load_n(&slots[i].owner, __ATOMIC_RELAXED))
            continue;
        // Acquire: pairs with the controller's release store of 0, behind which the blocks are
        // zero.
        if (__atomic_compare_exchange_n(&slots[i].owner, &nobody, owner, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return i;
    }
    return 0;
}

// What control->shared_block is once it is no longer UNCLAIMED or CLAIMING. Who comes while another
// one claims takes a slot too, and the first to publish wins: nobody waits.
__attribute__((noinline, cold)) TL_AGENT_KEEPS static uint64_t
process_claim(struct tl_control *control)
{
    for (;;) { // again only after a fork by a signal handler in between
        uint64_t word = UNCLAIMED;
        // Orders here: relaxed between threads of one process, which read nothing behind the word.
        if (!__atomic_compare_exchange_n(&control->shared_block, &word, CLAIMING, false,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
            word != CLAIMING)
            return word;
        uint32_t process = process_take();
        uint64_t mine = process ? block_at(process, TL_THREAD_SLOTS) : NO_ROOM;
        word = CLAIMING;
        if (__atomic_compare_exchange_n(&control->shared_block, &word, mine, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            if (!process) {
                __atomic_fetch_add(&data_header()->silent, 1, __ATOMIC_RELAXED);
                return mine;
            }
            control->table_addr = (uint64_t)(uintptr_t)thread_table();
            control->thread_pointer = tl_agent_thread_pointer;
            control->process = process;
            __atomic_store_n(&control->live, TL_CONTROL_LIVE, __ATOMIC_RELEASE);
            return mine;
        }
        // Another one was first. Or a handler of ours forked, and we are a child of the one who
        // took `process`: so it is not given back; the controller frees it when its owner is gone.
        if (word != UNCLAIMED)
            return word;
    }
}

// The shared block, which stands for the process. 0: not followed.
static uint64_t process_block(void)
{
    struct tl_control *control = control_page();
    uint64_t word = __atomic_load_n(&control->shared_block, __ATOMIC_RELAXED);
    if (word <= CLAIMING && TL_AGENT_HEAD(follow))
        word = process_claim(control);
    return word < TL_SHARED_BLOCK_MIN ? 0 : word;
}

// ---- threads ------------------------------------------------------------------------------------

// The slot that tp has or gets; NULL: the table is full, or tp is nobody's.
static inline struct tl_thread_slot *slot_find(uint64_t shared_block, uint64_t tp)
{
    struct tl_thread_slot *table = thread_table();
    uint64_t home = tp * TL_HASH >> 56, index = home;
    if (tp == 0)
        return NULL;
    do {
        struct tl_thread_slot *slot = &table[index];
        // Relaxed: only the thread whose pointer it is reads block, and it has seen its own store.
        uint64_t owner = __atomic_load_n(&slot->tp, __ATOMIC_RELAXED);
        if (owner == 0) {
            __atomic_store_n(&slot->block,
                             shared_block - (TL_THREAD_SLOTS - index) * TL_AGENT_HEAD(stride),
                             __ATOMIC_RELAXED);
            if (__atomic_compare_exchange_n(&slot->tp, &owner, tp, false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED))
                return slot;
        }
        if (owner == tp) // ours before, or claimed just now by a signal handler of this thread
            return slot;
        index = (index + 1) % TL_THREAD_SLOTS;
    } while (index != home);
    return NULL;
}

// The thread's block in the process that shared_block stands for. 0: none any more.
static TL_AGENT_APART uint64_t thread_block(uint64_t shared_block)
{
    struct tl_thread_slot *slot =
        slot_find(shared_block, tl_agent_thread_pointer_now(TL_AGENT_HEAD(thread_pointer)));
    uint64_t block = slot ? slot->block : shared_block | TL_BLOCK_SHARED;
    // A handler that forked while we were here has wiped both in the child, where we then wrote
    // the parent's block into a slot. From here on a fork wipes the slot too.
    if (__atomic_load_n(&control_page()->shared_block, __ATOMIC_RELAXED) == shared_block && block)
        return block;
    if (slot)
        __atomic_store_n(&slot->tp, 0, __ATOMIC_RELAXED);
    return 0;
}

// Few registers, and no calls but of what keeps them: little stack.
__attribute__((used)) uint64_t tl_agent_block(void)
{
    for (;;) { // again only after a fork by a signal handler in between
        uint64_t shared = process_block();
        uint64_t block = shared ? thread_block(shared) : 0;
        if (block || !shared)
            return block;
    }
}

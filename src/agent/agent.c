// The agent's slow path: finds or claims the calling thread's block and counts in it.
//
// Freestanding, no library, no stack protector, general registers only, no data of its own but the
// control address in the image's head. No system call, no lock, no loop longer than the table. A
// signal may land anywhere and come here again. Invariant: a slot's tp goes from 0 to one thread
// pointer, once.
#include "agent/layout.h"
#include "emit/emit.h"

// In the image's head; the controller wrote it before any site led here.
extern const uint64_t tl_agent_control_addr __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_data_addr __attribute__((visibility("hidden")));
extern const uint64_t tl_agent_stride __attribute__((visibility("hidden")));

void tl_agent_count(uint64_t counter_off);

static uint64_t thread_pointer_read(uint64_t way)
{
    uint64_t value = 0;
    if (way == TL_TP_FS_WORD)
        __asm__ volatile("mov %%fs:0, %0" : "=r"(value));
    else if (way == TL_TP_FSBASE)
        __asm__ volatile("rdfsbase %0" : "=r"(value));
    return value;
}

// Block `index` of a process. The same for all who ask, so that it may be written by each of them.
static uint64_t block_at(uint32_t process, uint64_t index)
{
    return tl_agent_data_addr + TL_BLOCK_FIRST_OFF +
           ((uint64_t)process * TL_BLOCK_COUNT + index) * tl_agent_stride;
}

// The slot that tp has or gets; NULL: the table is full, or tp is nobody's.
static struct tl_thread_slot *slot_find(struct tl_thread_slot *table, uint32_t process, uint64_t tp)
{
    if (tp == 0)
        return NULL;
    uint64_t home = tp * TL_HASH >> 56;
    for (uint64_t i = 0; i < TL_THREAD_SLOTS; i++) {
        struct tl_thread_slot *slot = &table[(home + i) % TL_THREAD_SLOTS];
        // Relaxed: only the thread whose pointer it is reads block, and it has seen its own store.
        uint64_t owner = __atomic_load_n(&slot->tp, __ATOMIC_RELAXED);
        if (owner == 0) {
            __atomic_store_n(&slot->block, block_at(process, (home + i) % TL_THREAD_SLOTS),
                             __ATOMIC_RELAXED);
            if (__atomic_compare_exchange_n(&slot->tp, &owner, tp, false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED))
                return slot;
        }
        if (owner == tp) // ours before, or claimed just now by a signal handler of this thread
            return slot;
    }
    return NULL;
}

// Called by the entry stub with every register saved that it changes.
__attribute__((no_caller_saved_registers, used)) void tl_agent_count(uint64_t counter_off)
{
    const volatile struct tl_control *control =
        (const volatile struct tl_control *)(uintptr_t)tl_agent_control_addr;
    struct tl_thread_slot *table = (struct tl_thread_slot *)(uintptr_t)control->table_addr;
    uint64_t shared_block = control->shared_block, way = control->thread_pointer;
    uint32_t process = control->process;
    // Looked at last: a signal handler that forked while we read has made the page zero in the
    // child.
    if (control->live != TL_CONTROL_LIVE)
        return;
    struct tl_thread_slot *slot = slot_find(table, process, thread_pointer_read(way));
    uint64_t block = slot ? slot->block : shared_block;
    if (block == 0) // such a child, one step later
        return;
    if (slot) {
        // One instruction, so that a signal can't come between load and store. No lock: only this
        // thread writes its block.
        __asm__ volatile("incq (%0)" : : "r"(block + counter_off) : "memory", "cc");
        return;
    }
    // Relaxed: counters are only summed.
    __atomic_fetch_add((uint64_t *)(uintptr_t)(block + counter_off), 1, __ATOMIC_RELAXED);
}

// Replaced return addresses: what the straight path of trampoline_entry.S leaves over, and the
// unwinder.
//
// Freestanding, no library, general registers only, no system call. Writes the hijack memory, the
// return address, loss counters, and one word of libgcc's unwinding context; never searches a
// stack. Invariants:
//   1. While a return address is replaced, its slot is the first of its key, and nobody takes it
//      but its return.
//   2. A return address is replaced only where it is proved to be one: the controller has looked at
//      the function's code, which pops it by nothing but a return, and it lies in text that the
//      controller listed. Not there lie those into code that was made at run time, whose runtime
//      may look for its own addresses on the stack.
//   3. An entry whose return will not be recorded is counted as lost.
#include "agent/inside.h"

#define SAME(a, b) _Static_assert((a) == (b), #a " is not " #b)
SAME(HIJACK_LIVE, TL_CONTROL_LIVE);
SAME(HIJACK_ENDED, offsetof(struct tl_hijack_head, ended));
SAME(HIJACK_PROVEN, offsetof(struct tl_hijack_head, proven));
SAME(HIJACK_PROVEN_MASK, TL_HIJACK_PROVEN - 1);
SAME(HIJACK_SLOT, offsetof(struct tl_hijack_head, slot));
SAME(HIJACK_SLOT_MASK, TL_HIJACK_SLOTS - 1);
SAME(1 << HIJACK_SLOT_SHIFT, sizeof(struct tl_hijack_slot));
SAME(HIJACK_WRAP_SHIFT, TL_HIJACK_WRAP_SHIFT);
SAME(3, TL_HIJACK_WRAP_STEP);
SAME(offsetof(struct tl_hijack_slot, key), 0);
SAME(HIJACK_ORIGINAL, offsetof(struct tl_hijack_slot, original));
SAME(HIJACK_COUNTER, offsetof(struct tl_hijack_slot, counter_off));
SAME(HIJACK_RETURNED, offsetof(struct tl_hijack_slot, returned));

#define RANGE_STEPS_MAX 16 // halvings of TL_HIJACK_RANGES_MAX

// In the image's head; the controller wrote it before any site led here.
extern const uint64_t tl_agent_hijack_lost __attribute__((visibility("hidden")));
extern const uint8_t tl_agent_trampoline[] __attribute__((visibility("hidden")));

uint64_t tl_agent_hijack(uint64_t counter_off, uint64_t sp, uint64_t *place);
uint64_t tl_agent_hijack_return(uint64_t sp, uint64_t *place);
uint64_t tl_agent_unwind(uint64_t pc, uint64_t *bases);

static struct tl_hijack_head *hijack_head(void)
{
    return (struct tl_hijack_head *)(uintptr_t)tl_agent_hijack_addr;
}

static struct tl_hijack_slot *slot_step(struct tl_hijack_head *head, uint64_t key, uint64_t step)
{
    uint64_t home = (key >> 3) + (key >> TL_HIJACK_WRAP_SHIFT) * TL_HIJACK_WRAP_STEP;
    return &head->slot[(home + step) % TL_HIJACK_SLOTS];
}

// Relaxed, as are all keys: a key is only compared with that of the thread's own frame, which it
// has stored itself, or which came to it with the stack that another thread handed over.
static uint64_t key_load(const struct tl_hijack_slot *slot)
{
    return __atomic_load_n(&slot->key, __ATOMIC_RELAXED);
}

static struct tl_hijack_slot *slot_find(struct tl_hijack_head *head, uint64_t key)
{
    for (uint64_t step = 0; step < TL_HIJACK_STEPS; step++) {
        struct tl_hijack_slot *slot = slot_step(head, key, step);
        if (key_load(slot) == key)
            return slot;
    }
    return NULL;
}

// The first that is free or has the key already. NULL: none within reach.
static struct tl_hijack_slot *slot_claim(struct tl_hijack_head *head, uint64_t key)
{
    for (uint64_t step = 0; step < TL_HIJACK_STEPS; step++) {
        struct tl_hijack_slot *slot = slot_step(head, key, step);
        uint64_t owner = key_load(slot);
        if (owner == 0 && __atomic_compare_exchange_n(&slot->key, &owner, key, false,
                                                      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return slot;
        if (owner == key)
            return slot;
    }
    return NULL;
}

// ---- is it a return address? --------------------------------------------------------------------

// Whether addr lies in a listed range.
static bool in_text(const struct tl_hijack_head *head, uint64_t addr)
{
    uint64_t low = 0, high = head->range_count;
    if (high > TL_HIJACK_RANGES_MAX)
        return false;
    for (int i = 0; i < RANGE_STEPS_MAX && low < high; i++) {
        uint64_t middle = low + (high - low) / 2;
        const struct tl_range *range = &head->range[middle];
        if (addr < range->start)
            high = middle;
        else if (addr >= range->end)
            low = middle + 1;
        else
            return true;
    }
    return false;
}

static bool address_proved(struct tl_hijack_head *head, uint64_t addr)
{
    uint64_t *proven = &head->proven[addr % TL_HIJACK_PROVEN];
    if (addr && __atomic_load_n(proven, __ATOMIC_RELAXED) == addr) // 0: empty
        return true;
    if (!in_text(head, addr))
        return false;
    __atomic_store_n(proven, addr, __ATOMIC_RELAXED);
    return true;
}

// ---- entry --------------------------------------------------------------------------------------

static void loss_count(uint64_t block, uint64_t counter_off)
{
    uint64_t addr = (block & ~(uint64_t)TL_BLOCK_SHARED) + counter_off + tl_agent_hijack_lost;
    if (tl_agent_hijack_lost == 0)
        return;
    if (block & TL_BLOCK_SHARED)
        __atomic_fetch_add((uint64_t *)(uintptr_t)addr, 1, __ATOMIC_RELAXED); // only summed
    else
        tl_agent_own_add(addr);
}

// When, for those that the function will store at a place of its choice. Relaxed: only compared by
// a controller that has stopped all.
static uint64_t entry_since(struct tl_hijack_head *head, uint64_t sp, const uint64_t *place)
{
    if ((uint64_t)(uintptr_t)place == sp)
        return 0;
    return TL_HIJACK_SINCE | __atomic_add_fetch(&head->entries, 1, __ATOMIC_RELAXED);
}

// Replaces the return address, which lies at *place: on the stack at sp, or in the record frame
// where it came in a register. Returns 0, or the counter of the function that was entered before
// with the same return address and has ended in a jump to this one: its return is to be recorded
// now.
__attribute__((used)) TL_AGENT_KEEPS uint64_t tl_agent_hijack(uint64_t counter_off, uint64_t sp,
                                                              uint64_t *place)
{
    struct tl_hijack_head *head = hijack_head();
    uint64_t block = tl_agent_block();
    if (block == 0) // a forked child that nobody follows
        return 0;
    if (!tl_agent_return_readable(sp)) {
        loss_count(block, counter_off);
        return 0;
    }
    uint64_t original = *place, trampoline = (uint64_t)(uintptr_t)tl_agent_trampoline;
    struct tl_hijack_slot *slot = NULL;
    if (head->ended) {
        slot = original == trampoline ? slot_find(head, sp) : NULL;
        if (slot) // a tail call, on its way here when all was put back
            *place = slot->original;
        loss_count(block, counter_off);
        return 0;
    }
    if (original == trampoline) {
        slot = slot_find(head, sp);
        if (!slot) { // a copy of some word that is no return address
            loss_count(block, counter_off);
            return 0;
        }
        uint64_t ended = slot->counter_off;
        slot->counter_off = counter_off;
        slot->returned = entry_since(head, sp, place);
        return ended;
    }
    if (address_proved(head, original))
        slot = slot_claim(head, sp);
    if (!slot) {
        loss_count(block, counter_off);
        return 0;
    }
    slot->original = original;
    slot->counter_off = counter_off;
    slot->returned = entry_since(head, sp, place);
    // Last, and not before: a signal's handler may return through here at once.
    __atomic_store_n(place, trampoline, __ATOMIC_RELEASE);
    // All was ended and put back while this thread stood still since it looked, so nobody will put
    // this one back. The fence is for the compiler: the controller writes while all stand.
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&head->ended, __ATOMIC_RELAXED)) {
        *place = original;
        loss_count(block, counter_off);
    }
    return 0;
}

// ---- return -------------------------------------------------------------------------------------

// The home slot is not it. Puts the original at *place and frees the slot. Returns the counter of
// what ended. 0: there is nothing to record, the same return has come a second time (a function
// that returns twice).
__attribute__((used)) TL_AGENT_KEEPS uint64_t tl_agent_hijack_return(uint64_t sp, uint64_t *place)
{
    struct tl_hijack_head *head = hijack_head();
    struct tl_hijack_slot *slot = slot_find(head, sp);
    if (slot) {
        uint64_t counter_off = slot->counter_off;
        *place = slot->original;
        slot->returned = sp;
        __atomic_store_n(&slot->key, 0, __ATOMIC_RELEASE); // with the acquire of slot_claim
        return counter_off;
    }
    for (uint64_t step = 0; step < TL_HIJACK_STEPS; step++) {
        slot = slot_step(head, sp, step);
        uint64_t original = slot->original;
        if (slot->returned == sp) {
            *place = original;
            return 0;
        }
    }
    __builtin_trap(); // there is nowhere to go
}

// ---- unwinders ----------------------------------------------------------------------------------

// libgcc's unwinder looks up each frame by
//     _Unwind_Find_FDE(context->ra + signal_frame - 1, &context->bases)
// and reads context->ra again afterwards. Of its context, gcc 3.0 to 14, these lie before bases:
//     void *cfa, *ra, *lsda
// What returns to a trampoline was entered with its stack pointer at cfa - TL_AGENT_CFA_OFF. So the
// true address is put into the context, and looked up; the stack is left alone, and what is caught
// below goes on recording.
#define CONTEXT_RA (-2)
#define CONTEXT_CFA (-3)

// Returns the address to look up.
__attribute__((used)) TL_AGENT_KEEPS uint64_t tl_agent_unwind(uint64_t pc, uint64_t *bases)
{
    struct tl_hijack_head *head = hijack_head();
    for (int i = 0; head && i < (int)TL_HIJACK_REGIONS_MAX; i++) {
        uint64_t trampoline = head->trampoline;
        if (pc == trampoline || pc == trampoline - 1) {
            // Another caller than the unwinder passes no context: its words won't fit.
            const struct tl_hijack_slot *slot =
                bases[CONTEXT_RA] == trampoline
                    ? slot_find(head, bases[CONTEXT_CFA] - TL_AGENT_CFA_OFF)
                    : NULL;
            if (!slot)
                return pc;
            bases[CONTEXT_RA] = slot->original;
            return pc - trampoline + slot->original;
        }
        head = (struct tl_hijack_head *)(uintptr_t)head->next;
        if (head == hijack_head())
            break;
    }
    return pc;
}

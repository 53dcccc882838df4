// The agent's image in an emulator: one process's control page and thread table, the shared memory, a
// stack, thread blocks of libc. A hit is a call of one of its entries.
#ifndef TESTS_UNIT_PATCH_WORLD_H
#define TESTS_UNIT_PATCH_WORLD_H

#include "agent/agent.h"
#include "agent/layout.h"
#include "emit/emit.h"

#include <unicorn/unicorn.h>

#define IMAGE_ADDR 0x100000u
#define IMAGE_SIZE 0x10000u
#define CONTROL_ADDR 0x200000u
#define TABLE_ADDR (CONTROL_ADDR + 4096u)
#define STACK_ADDR 0x700000u
#define STACK_SIZE 0x10000u
#define STACK_TOP (STACK_ADDR + STACK_SIZE - 64u)
#define TLS_ADDR 0x800000u
#define TLS_SIZE 0x100000u
#define RETURN_ADDR 0x900000u
#define SHARED_ADDR 0x10000000u // the data header
#define DATA_ADDR (SHARED_ADDR + TL_BLOCK_FIRST_OFF)

// The blocks of these tests.
#define PROBES 4u
#define PROCESSES 3u
#define RING_SLOTS 8u
#define PAIR_SLOTS 64u
#define HIST_OFF 128u
#define RING_OFF 45056u
#define PAIR_OFF 49152u
#define STRIDE 53248u
#define TID_OFF 0x2d0u
#define COUNTER_OFF(probe) (TL_BLOCK_HEADER_SIZE + 8u * (probe))

struct world {
    uc_engine *uc;
    struct tl_agent_head head; // as it was written
};

// Process 0 lives; way is how threads find their blocks.
void world_make(struct world *world, enum tl_thread_pointer way);
void world_deinit(struct world *world);
// As made: nobody has hit anything. Of the blocks it empties those that a thread at TLS_ADDR counts in.
void world_reset(struct world *world);
// A word of the head, changed later.
void head_put(struct world *world, size_t off, uint64_t word);
// fork: control page and thread table are wiped.
void world_fork(struct world *world);

uint64_t word_at(struct world *world, uint64_t addr);
void word_put(struct world *world, uint64_t addr, uint64_t word);
uint64_t block_addr(uint32_t process, size_t block);
uint64_t counter(struct world *world, uint32_t process, size_t block, uint32_t probe);
uint64_t counter_sum(struct world *world, uint32_t process, uint32_t probe);
uint64_t slot_owner(struct world *world, size_t slot);
uint32_t process_owner(struct world *world, uint32_t process);
size_t home_of(uint64_t tp);
// The n-th thread pointer whose home is slot.
uint64_t pointer_with_home(size_t slot, unsigned n);
// Makes the thread with thread pointer tp the one that runs; 0: none has one.
void thread_set(struct world *world, uint64_t tp, uint32_t tid);

// Registers by Unicorn's numbers, all but the stack pointer.
#define REGISTER_COUNT 15
extern const int world_registers[REGISTER_COUNT];

// One call of the agent.
struct call {
    uint64_t entry;   // offset in the image
    uint64_t sp;      // at the entry: where the return address is
    uint64_t sp_used; // the lowest address it may write
    uint64_t value[REGISTER_COUNT];
    uint64_t kept; // bit i: register i has its value in the end
    const uint64_t *word; // what lies at sp + 8
    size_t word_count;
};
// A count of the slow path, whose argument lies at sp + 8.
void call_count(struct world *world, struct call *call, const uint64_t *counter_off, uint64_t sp);
// A record in its frame below the site's stack pointer. frame has room for four words.
void call_record(struct world *world, struct call *call, enum tl_record_kind kind, uint32_t probe,
                 uint64_t site_sp, uint64_t frame[4]);
// Runs it to its end and checks what an entry promises. With at(), calls that before each instruction,
// which may run other calls, and fork.
void call_run(struct world *world, const struct call *call,
              void (*at)(struct world *world, unsigned step, void *opaque), void *opaque);
#endif

// An emulated process for tests of the agent.
#include "world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STEPS_MAX 100000u
#define TABLE_SPAN (4096u + TL_TABLE_SIZE)

const int world_registers[REGISTER_COUNT] = {
    UC_X86_REG_RAX, UC_X86_REG_RCX, UC_X86_REG_RDX, UC_X86_REG_RBX, UC_X86_REG_RBP,
    UC_X86_REG_RSI, UC_X86_REG_RDI, UC_X86_REG_R8,  UC_X86_REG_R9,  UC_X86_REG_R10,
    UC_X86_REG_R11, UC_X86_REG_R12, UC_X86_REG_R13, UC_X86_REG_R14, UC_X86_REG_R15,
};
enum { RAX, RCX, RDX };

static uint64_t shared_size(void)
{
    return tl_page_up(TL_BLOCK_FIRST_OFF + UINT64_C(1) * PROCESSES * TL_BLOCK_COUNT * STRIDE);
}

void world_make(struct world *world, enum tl_thread_pointer way)
{
    assert_int_equal(uc_open(UC_ARCH_X86, UC_MODE_64, &world->uc), 0);
    const uint64_t areas[][2] = {{IMAGE_ADDR, IMAGE_SIZE}, {CONTROL_ADDR, TABLE_SPAN},
                                 {STACK_ADDR, STACK_SIZE}, {TLS_ADDR, TLS_SIZE},
                                 {RETURN_ADDR, 4096},      {SHARED_ADDR, shared_size()}};
    for (size_t i = 0; i < TL_ARRAY_COUNT(areas); i++)
        assert_int_equal(uc_mem_map(world->uc, areas[i][0], areas[i][1], UC_PROT_ALL), 0);
    struct tl_agent_head *head = &world->head;
    memcpy(head, tl_agent_image, sizeof *head);
    assert_int_equal(head->control_addr, 0);
    assert_int_equal(head->image_size, tl_agent_image_size);
    assert_true(tl_agent_image_size <= IMAGE_SIZE);
    head->control_addr = CONTROL_ADDR;
    head->data_addr = SHARED_ADDR;
    head->stride = STRIDE;
    head->hist_off = HIST_OFF;
    head->ring_off = RING_OFF;
    head->pair_off = PAIR_OFF;
    head->ring_mask = RING_SLOTS - 1;
    head->pair_mask = PAIR_SLOTS - 1;
    head->process_count = PROCESSES;
    head->thread_pointer = way;
    uc_mem_write(world->uc, IMAGE_ADDR, tl_agent_image, tl_agent_image_size);
    uc_mem_write(world->uc, IMAGE_ADDR, head, sizeof *head);
    world_reset(world);
}

void world_reset(struct world *world)
{
    static const uint8_t zeros[TL_BLOCK_FIRST_OFF];
    const struct tl_control control = {.live = TL_CONTROL_LIVE,
                                       .table_addr = TABLE_ADDR,
                                       .shared_block = block_addr(0, TL_THREAD_SLOTS),
                                       .thread_pointer = world->head.thread_pointer};
    world_fork(world);
    uc_mem_write(world->uc, CONTROL_ADDR, &control, sizeof control);
    uc_mem_write(world->uc, SHARED_ADDR, zeros, sizeof zeros);
    thread_set(world, TLS_ADDR, 0);
    for (uint32_t process = 0; process < PROCESSES; process++) {
        uc_mem_write(world->uc, block_addr(process, home_of(TLS_ADDR)), zeros, HIST_OFF);
        uc_mem_write(world->uc, block_addr(process, TL_THREAD_SLOTS), zeros, HIST_OFF);
    }
}

void world_deinit(struct world *world)
{
    uc_close(world->uc);
}

void head_put(struct world *world, size_t off, uint64_t word)
{
    word_put(world, IMAGE_ADDR + off, word);
}

void world_fork(struct world *world)
{
    static const uint8_t zeros[TABLE_SPAN];
    uc_mem_write(world->uc, CONTROL_ADDR, zeros, sizeof zeros);
}

uint64_t word_at(struct world *world, uint64_t addr)
{
    uint64_t word = 0;
    assert_int_equal(uc_mem_read(world->uc, addr, &word, sizeof word), 0);
    return word;
}

void word_put(struct world *world, uint64_t addr, uint64_t word)
{
    assert_int_equal(uc_mem_write(world->uc, addr, &word, sizeof word), 0);
}

uint64_t block_addr(uint32_t process, size_t block)
{
    return DATA_ADDR + (process * TL_BLOCK_COUNT + block) * STRIDE;
}

uint64_t counter(struct world *world, uint32_t process, size_t block, uint32_t probe)
{
    return word_at(world, block_addr(process, block) + COUNTER_OFF(probe));
}

uint64_t counter_sum(struct world *world, uint32_t process, uint32_t probe)
{
    uint64_t sum = 0;
    for (size_t i = 0; i <= TL_THREAD_SLOTS; i++)
        sum += counter(world, process, i, probe);
    return sum;
}

uint64_t slot_owner(struct world *world, size_t slot)
{
    return word_at(world, TABLE_ADDR + slot * TL_THREAD_SLOT_SIZE);
}

uint32_t process_owner(struct world *world, uint32_t process)
{
    return (uint32_t)word_at(world, SHARED_ADDR + TL_PROCESS_SLOTS_OFF +
                                        process * sizeof(struct tl_process_slot));
}

size_t home_of(uint64_t tp)
{
    return (size_t)(tp * TL_HASH >> 56);
}

uint64_t pointer_with_home(size_t slot, unsigned n)
{
    for (uint64_t tp = TLS_ADDR;; tp += 16) {
        assert_true(tp < TLS_ADDR + TLS_SIZE - 1024);
        if (home_of(tp) == slot && n-- == 0)
            return tp;
    }
}

void thread_set(struct world *world, uint64_t tp, uint32_t tid)
{
    if (tp) {
        word_put(world, tp, tp);
        uc_mem_write(world->uc, tp + TID_OFF, &tid, sizeof tid);
    }
    uc_reg_write(world->uc, UC_X86_REG_FS_BASE, &tp);
}

// ---- calls --------------------------------------------------------------------------------------

static void values_random(struct call *call)
{
    for (size_t i = 0; i < REGISTER_COUNT; i++)
        call->value[i] = (uint64_t)rand() << 33 ^ (uint64_t)rand() << 16 ^ (uint64_t)rand();
}

void call_count(struct world *world, struct call *call, const uint64_t *counter_off, uint64_t sp)
{
    // From the detour's argument down: with the red zone and three spilled registers, 256 bytes.
    *call = (struct call){.entry = world->head.slow_count_off,
                          .sp = sp,
                          .sp_used = sp + 16 - (256 - 128 - 24),
                          .kept = ~UINT64_C(0),
                          .word = counter_off,
                          .word_count = 1};
    values_random(call);
}

void call_record(struct world *world, struct call *call, enum tl_record_kind kind, uint32_t probe,
                 uint64_t site_sp, uint64_t frame[4])
{
    *call = (struct call){.entry = world->head.record_off[kind - 1],
                          .sp = site_sp - TL_RECORD_FRAME,
                          .sp_used = site_sp - 256,
                          .kept = ~UINT64_C(7), // all but rax, rcx, rdx
                          .word = frame,
                          .word_count = 4};
    assert_true(call->entry != 0);
    values_random(call);
    for (size_t i = 0; i < 4; i++) // flags word, rdx, rcx, rax of the site
        frame[i] = (uint64_t)rand() << 32 ^ (uint64_t)rand();
    call->value[RCX] = COUNTER_OFF(probe);
    call->value[RDX] = site_sp;
}

static void call_begin(struct world *world, const struct call *call)
{
    for (size_t i = 0; i < REGISTER_COUNT; i++)
        uc_reg_write(world->uc, world_registers[i], &call->value[i]);
    word_put(world, call->sp, RETURN_ADDR);
    for (size_t i = 0; i < call->word_count; i++)
        word_put(world, call->sp + 8 + 8 * i, call->word[i]);
    uc_reg_write(world->uc, UC_X86_REG_RSP, &call->sp);
}

static void call_check(struct world *world, const struct call *call, const uint8_t *before)
{
    uint8_t after[STACK_SIZE];
    for (size_t i = 0; i < REGISTER_COUNT; i++) {
        uint64_t value = 0;
        uc_reg_read(world->uc, world_registers[i], &value);
        if (call->kept >> i & 1 && value != call->value[i])
            fail_msg("register %zu of the call at +%#llx was not kept", i,
                     (unsigned long long)call->entry);
    }
    uint64_t sp = 0;
    uc_reg_read(world->uc, UC_X86_REG_RSP, &sp);
    assert_true(sp == call->sp + 8);
    uc_mem_read(world->uc, STACK_ADDR, after, sizeof after);
    size_t above = (size_t)(call->sp - STACK_ADDR);
    assert_memory_equal(before + above, after + above, STACK_SIZE - above);
}

// How far down it wrote; only of a call that nothing else ran in.
static void stack_check(struct world *world, const struct call *call, const uint8_t *before)
{
    uint8_t after[STACK_SIZE];
    size_t lowest = 0;
    uc_mem_read(world->uc, STACK_ADDR, after, sizeof after);
    while (lowest < STACK_SIZE - 1 && before[lowest] == after[lowest])
        lowest++;
    if (STACK_ADDR + lowest < call->sp_used)
        fail_msg("the call at +%#llx used %llu bytes of stack too many",
                 (unsigned long long)call->entry,
                 (unsigned long long)(call->sp_used - STACK_ADDR - lowest));
}

void call_run(struct world *world, const struct call *call,
              void (*at)(struct world *world, unsigned step, void *opaque), void *opaque)
{
    uint8_t before[STACK_SIZE];
    uint64_t pc = IMAGE_ADDR + call->entry;
    if (!at) {
        memset(before, 0xa5, sizeof before);
        uc_mem_write(world->uc, STACK_ADDR, before, (size_t)(call->sp - STACK_ADDR));
    }
    call_begin(world, call);
    uc_mem_read(world->uc, STACK_ADDR, before, sizeof before);
    if (!at)
        assert_int_equal(uc_emu_start(world->uc, pc, RETURN_ADDR, 0, STEPS_MAX), 0);
    for (unsigned step = 0; at && pc != RETURN_ADDR; step++) {
        uc_context *context;
        assert_true(step < STEPS_MAX);
        uc_context_alloc(world->uc, &context);
        uc_context_save(world->uc, context);
        at(world, step, opaque);
        uc_context_restore(world->uc, context);
        uc_context_free(context);
        assert_int_equal(uc_emu_start(world->uc, pc, RETURN_ADDR, 0, 1), 0);
        uc_reg_read(world->uc, UC_X86_REG_RIP, &pc);
    }
    call_check(world, call, before);
    if (!at)
        stack_check(world, call, before);
}

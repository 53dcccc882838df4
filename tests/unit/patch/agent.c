// The agent's image, run one call at a time in an emulator: what it counts where, and that it keeps
// every register and uses little stack.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/layout.h"
#include "emit/emit.h"

#include <unicorn/unicorn.h>

#define IMAGE_ADDR 0x100000u
#define CONTROL_ADDR 0x200000u
#define TABLE_ADDR (CONTROL_ADDR + 4096u)
#define SHARED_ADDR 0x400000u // the data header
#define SHARED_SIZE 0x100000u
#define DATA_ADDR (SHARED_ADDR + TL_BLOCK_FIRST_OFF)
#define STRIDE 128u
#define STACK_ADDR 0x700000u
#define STACK_TOP (STACK_ADDR + 4096u - 64u)
#define TLS_ADDR 0x800000u
#define RETURN_ADDR 0x900000u
// From the detour's argument down: with the red zone and three spilled registers, 256 bytes.
#define STACK_USE_MAX (256u - 128u - 24u)
#define COUNTER_OFF TL_BLOCK_HEADER_SIZE

static const int registers[] = {
    UC_X86_REG_RAX, UC_X86_REG_RBX, UC_X86_REG_RCX, UC_X86_REG_RDX, UC_X86_REG_RSI,
    UC_X86_REG_RDI, UC_X86_REG_RBP, UC_X86_REG_R8,  UC_X86_REG_R9,  UC_X86_REG_R10,
    UC_X86_REG_R11, UC_X86_REG_R12, UC_X86_REG_R13, UC_X86_REG_R14, UC_X86_REG_R15,
};

struct world {
    uc_engine *uc;
    struct tl_agent_head head;
};

static void world_make(struct world *world, uint64_t way)
{
    assert_int_equal(uc_open(UC_ARCH_X86, UC_MODE_64, &world->uc), 0);
    static const uint64_t areas[][2] = {{IMAGE_ADDR, 8192},  {CONTROL_ADDR, 8192},
                                        {SHARED_ADDR, SHARED_SIZE}, {STACK_ADDR, 4096},
                                        {TLS_ADDR, 1 << 20}, {RETURN_ADDR, 4096}};
    for (size_t i = 0; i < TL_ARRAY_COUNT(areas); i++)
        assert_int_equal(uc_mem_map(world->uc, areas[i][0], areas[i][1], UC_PROT_ALL), 0);
    memcpy(&world->head, tl_agent_image, sizeof world->head);
    assert_int_equal(world->head.control_addr, 0);
    assert_int_equal(world->head.image_size, tl_agent_image_size);
    struct tl_agent_head head = world->head;
    head.control_addr = CONTROL_ADDR;
    head.data_addr = SHARED_ADDR;
    head.stride = STRIDE;
    head.process_count = 1;
    head.thread_pointer = way;
    uc_mem_write(world->uc, IMAGE_ADDR, tl_agent_image, tl_agent_image_size);
    uc_mem_write(world->uc, IMAGE_ADDR, &head, sizeof head);
    const struct tl_control control = {TL_CONTROL_LIVE, 0, TABLE_ADDR,
                                       DATA_ADDR + TL_THREAD_SLOTS * STRIDE, way};
    uc_mem_write(world->uc, CONTROL_ADDR, &control, sizeof control);
}

static uint64_t word_at(struct world *world, uint64_t addr)
{
    uint64_t word = 0;
    assert_int_equal(uc_mem_read(world->uc, addr, &word, sizeof word), 0);
    return word;
}

static void word_put(struct world *world, uint64_t addr, uint64_t word)
{
    assert_int_equal(uc_mem_write(world->uc, addr, &word, sizeof word), 0);
}

static uint64_t counter(struct world *world, size_t block)
{
    return word_at(world, DATA_ADDR + block * STRIDE + COUNTER_OFF);
}

static uint64_t slot_owner(struct world *world, size_t slot)
{
    return word_at(world, TABLE_ADDR + slot * TL_THREAD_SLOT_SIZE);
}

// One hit by the thread whose thread pointer is tp.
static void hit(struct world *world, uint64_t tp)
{
    uint64_t values[TL_ARRAY_COUNT(registers)], sp = STACK_TOP - 16, fs = tp;
    uint8_t before[4096], after[4096];
    if (tp)
        word_put(world, tp, tp);
    uc_reg_write(world->uc, UC_X86_REG_FS_BASE, &fs);
    for (size_t i = 0; i < TL_ARRAY_COUNT(registers); i++) {
        values[i] = (uint64_t)rand() << 33 ^ (uint64_t)rand();
        uc_reg_write(world->uc, registers[i], &values[i]);
    }
    memset(before, 0xa5, sizeof before);
    uc_mem_write(world->uc, STACK_ADDR, before, sizeof before);
    word_put(world, sp, RETURN_ADDR);
    word_put(world, sp + 8, COUNTER_OFF);
    uc_mem_read(world->uc, STACK_ADDR, before, sizeof before);
    uc_reg_write(world->uc, UC_X86_REG_RSP, &sp);
    assert_int_equal(
        uc_emu_start(world->uc, IMAGE_ADDR + world->head.slow_count_off, RETURN_ADDR, 0, 100000),
        0);
    for (size_t i = 0; i < TL_ARRAY_COUNT(registers); i++) {
        uint64_t value = 0;
        uc_reg_read(world->uc, registers[i], &value);
        assert_true(value == values[i]);
    }
    uint64_t sp_after = 0;
    uc_reg_read(world->uc, UC_X86_REG_RSP, &sp_after);
    assert_true(sp_after == sp + 8);
    uc_mem_read(world->uc, STACK_ADDR, after, sizeof after);
    size_t lowest = 0;
    while (before[lowest] == after[lowest] && lowest < sizeof after - 1)
        lowest++;
    assert_true(sp + 16 - (STACK_ADDR + lowest) <= STACK_USE_MAX);
    assert_memory_equal(before + (sp - STACK_ADDR), after + (sp - STACK_ADDR), 80);
}

static size_t home_of(uint64_t tp)
{
    return (size_t)(tp * TL_HASH >> 56);
}

// The n-th thread pointer whose home is slot.
static uint64_t pointer_with_home(size_t slot, unsigned n)
{
    for (uint64_t tp = TLS_ADDR;; tp += 16) {
        assert_true(tp < TLS_ADDR + (1 << 20));
        if (home_of(tp) == slot && n-- == 0)
            return tp;
    }
}

// A slot that two of our pointers have as their home.
static size_t crowded_slot(void)
{
    unsigned count[TL_THREAD_SLOTS] = {0};
    for (uint64_t tp = TLS_ADDR; tp < TLS_ADDR + (1 << 20) - 16; tp += 16) {
        if (++count[home_of(tp)] == 3)
            return home_of(tp);
    }
    fail();
    return 0;
}

static void a_thread_claims_its_home_slot(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    uint64_t tp = pointer_with_home(crowded_slot(), 0);
    hit(&world, tp);
    hit(&world, tp);
    assert_true(slot_owner(&world, home_of(tp)) == tp);
    assert_int_equal(counter(&world, home_of(tp)), 2);
    uc_close(world.uc);
}

static void threads_of_one_home_go_to_the_next_slots(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    size_t home = crowded_slot();
    for (unsigned n = 0; n < 3; n++) {
        for (unsigned k = 0; k <= n; k++)
            hit(&world, pointer_with_home(home, n));
    }
    for (unsigned n = 0; n < 3; n++) {
        size_t slot = (home + n) % TL_THREAD_SLOTS;
        assert_true(slot_owner(&world, slot) == pointer_with_home(home, n));
        assert_int_equal(counter(&world, slot), n + 1);
    }
    uc_close(world.uc);
}

static void a_full_table_wraps_and_then_shares(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_FS_WORD);
    size_t home = crowded_slot();
    for (size_t i = 0; i < TL_THREAD_SLOTS; i++) { // all but the slot before home
        if (i != (home + TL_THREAD_SLOTS - 1) % TL_THREAD_SLOTS)
            word_put(&world, TABLE_ADDR + i * TL_THREAD_SLOT_SIZE, 0x1000 + i);
    }
    hit(&world, pointer_with_home(home, 0));
    assert_int_equal(counter(&world, (home + TL_THREAD_SLOTS - 1) % TL_THREAD_SLOTS), 1);
    hit(&world, pointer_with_home(home, 1)); // none is left
    hit(&world, pointer_with_home(home, 1));
    assert_int_equal(counter(&world, TL_THREAD_SLOTS), 2);
    uc_close(world.uc);
}

static void without_a_thread_pointer_the_block_is_shared(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, TL_TP_SHARED);
    hit(&world, TLS_ADDR);
    assert_int_equal(counter(&world, TL_THREAD_SLOTS), 1);
    for (size_t i = 0; i < TL_THREAD_SLOTS; i++)
        assert_true(slot_owner(&world, i) == 0);
    uc_close(world.uc);
}

static void a_forked_child_is_silent(void **state)
{
    (void)state;
    struct world world;
    static const uint8_t zeros[8192];
    world_make(&world, TL_TP_FS_WORD);
    uc_mem_write(world.uc, CONTROL_ADDR, zeros, sizeof zeros);
    hit(&world, TLS_ADDR);
    for (size_t i = 0; i <= TL_THREAD_SLOTS; i++)
        assert_int_equal(counter(&world, i), 0);
    assert_true(slot_owner(&world, home_of(TLS_ADDR)) == 0);
    uc_close(world.uc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_claims_its_home_slot),
        cmocka_unit_test(threads_of_one_home_go_to_the_next_slots),
        cmocka_unit_test(a_full_table_wraps_and_then_shares),
        cmocka_unit_test(without_a_thread_pointer_the_block_is_shared),
        cmocka_unit_test(a_forked_child_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// The emulator, its memory and its writes. Knows no instruction set.
#include "emulated.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WRITES_MAX 4

struct write {
    uint64_t addr;
    size_t size;
    uint8_t bytes[32];
};

uc_engine *uc;
uint8_t *memory;
static uint64_t seed;
static struct write emulated[WRITES_MAX], own;
static size_t emulated_count, own_count;

uint64_t random_next(void) // splitmix64
{
    uint64_t x = seed += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

unsigned long cases_wanted(void)
{
    const char *text = getenv("TL_CASES");
    return text ? strtoul(text, NULL, 0) : CASES_DEFAULT;
}

// ---- writes -------------------------------------------------------------------------------------

static void on_write(uc_engine *engine, uc_mem_type type, uint64_t addr, int size, int64_t value,
                     void *opaque)
{
    (void)engine, (void)type, (void)opaque;
    if (emulated_count < WRITES_MAX) {
        struct write *write = &emulated[emulated_count];
        write->addr = addr;
        write->size = (size_t)size;
        memcpy(write->bytes, &value, 8);
    }
    emulated_count++;
}

static bool in_memory(uint64_t addr, size_t size)
{
    return addr >= MEMORY && addr <= MEMORY + MEMORY_SIZE - size;
}

static bool own_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    (void)opaque;
    if (in_memory(addr, size))
        memcpy(buf, memory + (addr - MEMORY), size);
    return in_memory(addr, size);
}

static bool own_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    (void)opaque;
    if (!in_memory(addr, size) || size > sizeof own.bytes)
        return false;
    own.addr = addr;
    own.size = size;
    memcpy(own.bytes, buf, size);
    own_count++;
    return true;
}

const struct tl_simulate_memory own_memory = {own_read, own_write, NULL};

void writes_forget(void)
{
    emulated_count = own_count = 0;
}

unsigned writes_own(void)
{
    return (unsigned)own_count;
}

bool writes_same(void)
{
    size_t bytes = 0;
    for (size_t i = 0; i < emulated_count && i < WRITES_MAX; i++) {
        if (own_count != 1 || emulated[i].addr < own.addr ||
            emulated[i].addr + emulated[i].size > own.addr + own.size)
            return false;
        bytes += emulated[i].size;
    }
    if (emulated_count == 0)
        return own_count == 0;
    return own_count == 1 && bytes == own.size &&
           memcmp(own.bytes, memory + (own.addr - MEMORY), own.size) == 0;
}

// ---- the emulator -------------------------------------------------------------------------------

void emulated_setup(const char *name, uc_arch arch, uc_mode mode)
{
    uc_hook hook;
    const char *text = getenv("TL_SEED");
    seed = text ? strtoull(text, NULL, 0) : 1;
    printf("%s: TL_SEED=%llu\n", name, (unsigned long long)seed);
    memory = aligned_alloc(4096, MEMORY_SIZE);
    assert_non_null(memory);
    for (size_t i = 0; i < MEMORY_SIZE; i += 8) {
        uint64_t word = random_next();
        memcpy(memory + i, &word, 8);
    }
    assert_int_equal(uc_open(arch, mode, &uc), UC_ERR_OK);
    assert_int_equal(uc_mem_map_ptr(uc, MEMORY, MEMORY_SIZE, UC_PROT_ALL, memory), UC_ERR_OK);
    assert_int_equal(uc_hook_add(uc, &hook, UC_HOOK_MEM_WRITE, (void *)(uintptr_t)on_write, NULL,
                                 (uint64_t)1, (uint64_t)0),
                     UC_ERR_OK);
}

void emulated_teardown(void)
{
    uc_close(uc);
    free(memory);
}

// ---- rows ---------------------------------------------------------------------------------------

bool word_place(const struct tl_arch *arch, uint32_t word, unsigned row, struct simulated_word *out)
{
    uint64_t addr =
        MEMORY + CODE_OFF + random_next() % CODE_SIZE / arch->insn_align * arch->insn_align;
    if (arch->decode((const uint8_t *)&word, sizeof word, addr, &out->insn) != 0 ||
        out->insn.row != row || !arch->simulation(&out->insn, &out->simulation))
        return false;
    memcpy(memory + (addr - MEMORY), &word, out->insn.size);
    (void)uc_ctl_remove_cache(uc, addr, addr + out->insn.size);
    return true;
}

unsigned long row_run(const struct simulated_row *row, unsigned long words)
{
    unsigned long done = 0, with = 0;
    for (unsigned long i = 0; with < words && i < WORD_TRIES * words; i++) {
        struct simulated_word word;
        unsigned long before = done;
        if (!word_place(row->arch, row->word(row->number), row->number, &word))
            continue;
        for (unsigned n = 0; n < STATES; n++)
            done += row->run(&word);
        with++;
        if (row->arch->simulation_alone(&word.simulation) && done - before != STATES)
            fail_msg("row %s: said to need no memory, but refused", row->name);
    }
    // Enough of them, or the oracle has little to say. Branches to odd addresses are not.
    if (with < words || done < with * STATES / 8)
        fail_msg("row %s: %lu of %lu words, %lu states done by hand", row->name, with, words, done);
    return done;
}

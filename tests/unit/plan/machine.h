// An emulated x86-64 for the tests: a few megabytes of memory, registers as an array, one step at a
// time.
#ifndef TESTS_UNIT_PLAN_MACHINE_H
#define TESTS_UNIT_PLAN_MACHINE_H

#include "arch/arch.h"

#include <unicorn/unicorn.h>

// What an instruction can see and change, but memory.
struct state {
    uint64_t reg[16]; // by the ISA's numbers: rax, rcx, rdx, rbx, rsp ...
    uint64_t rip;
    uint64_t flags;
    uint8_t vector[4][16]; // xmm0..3
};
#define ARITHMETIC_FLAGS 0x8d5u // OF SF ZF AF PF CF
#define RSP 4
#define RBP 5

struct machine {
    uc_engine *uc;
    uint64_t seed;
};

void machine_init(struct machine *m, uint64_t seed);
void machine_deinit(struct machine *m);
void machine_map(struct machine *m, tl_addr addr, size_t size);
void machine_write(struct machine *m, tl_addr addr, const void *bytes, size_t size);
void machine_read(struct machine *m, tl_addr addr, void *bytes, size_t size);
void machine_fill(struct machine *m, tl_addr addr, size_t size); // random bytes
void machine_load(struct machine *m, const struct state *state);
void machine_save(struct machine *m, struct state *state);
void machine_fs(struct machine *m, tl_addr fs_base);
// One instruction at rip. 0, or a uc_err.
int machine_step(struct machine *m);
uint64_t machine_random(struct machine *m);

// TL_SEED in the environment, else the default; printed.
uint64_t seed_get(const char *test);

#endif

// Runs code from a given state of all registers until it traps or faults, and gives the state back.
// Real instructions of the processor that this program runs on, which is a riscv64.
#ifndef TEST_RISCV64_MACHINE_H
#define TEST_RISCV64_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Where things lie. The field is full of breakpoints, and holds the site.
#define FIELD_ADDR UINT64_C(0x40000000)
#define FIELD_SIZE UINT64_C(0x400000)
#define SITE_ADDR (FIELD_ADDR + FIELD_SIZE / 2)
#define DATA_ADDR UINT64_C(0x20000000)
#define DATA_SIZE 0x4000u
#define STACK_ADDR UINT64_C(0x28000000) // nothing is mapped around it either
#define STACK_SIZE 0x4000u

#define VECTOR_BYTES_MAX 64 // of one register

enum { VL, VTYPE, VSTART, VCSR };
struct machine_state {
    uint64_t reg[32]; // reg[0] is the pc
    uint64_t f[32];
    uint32_t fcsr;
    uint64_t vector_control[4]; // VL ...
    uint8_t vector[32 * VECTOR_BYTES_MAX] __attribute__((aligned(64)));
    bool partial; // there is more than can be put back: QEMU 7.2 keeps bits of vxrm that there are
                  // not
    int signal;   // what ended the run
    uint64_t fault_addr;
};

void machine_begin(void);
// An area at a fixed address.
uint8_t *machine_area(uint64_t addr, size_t size, bool runs);
// Breakpoints everywhere in it.
void machine_breaks(uint64_t addr, size_t size);
void machine_code_put(uint64_t addr, const void *code, size_t size);
// Fills floating-point and vector registers from a random source.
void machine_vectors_fill(struct machine_state *state, uint64_t (*next)(void));
// Whether two states' registers of these kinds and their control registers are the same.
bool machine_vectors_same(const struct machine_state *a, const struct machine_state *b);
// false: no trap within a second of processor time.
bool machine_run(const struct machine_state *from, struct machine_state *to);

#endif

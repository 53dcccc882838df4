// Runs code from a given state of all registers until it traps or faults, and gives the state back.
// Real instructions of the processor that this program runs on, which is an arm64.
#ifndef TEST_ARM64_MACHINE_H
#define TEST_ARM64_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Where things lie. The field is full of breakpoints, each with its own number, and holds the site.
#define FIELD_ADDR UINT64_C(0x40000000)
#define FIELD_SIZE UINT64_C(0x400000)
#define SITE_ADDR (FIELD_ADDR + FIELD_SIZE / 2)
#define DATA_ADDR UINT64_C(0x20000000)
#define DATA_SIZE 0x4000u
#define STACK_ADDR UINT64_C(0x28000000) // nothing is mapped around it either
#define STACK_SIZE 0x4000u

#define VECTOR_BYTES 4096 // the signal frame's records: vector registers of all kinds

struct machine_state {
    uint64_t reg[31], sp, pc, pstate;
    uint8_t vector[VECTOR_BYTES] __attribute__((aligned(16)));
    int signal; // what ended the run
    uint64_t fault_addr;
};
#define FLAGS_MASK UINT64_C(0xf0000000) // of pstate

void machine_begin(void);
// An area at a fixed address.
uint8_t *machine_area(uint64_t addr, size_t size, bool runs);
// Makes its pages guarded: an indirect branch into them must meet a landing pad.
void machine_guard(uint64_t addr, size_t size);
void machine_word_put(uint64_t addr, uint32_t word);
uint32_t machine_break(uint64_t addr); // the breakpoint that belongs at an address of the field
// Whether states that are made from now on are in streaming mode, with ZA on. false: the processor
// can't.
bool machine_streaming(bool on);
// The state of this thread, for what a test does not set: vector records have their form.
void machine_state_blank(struct machine_state *out);
// Fills the vector registers, and ZA and ZT0 where they are on, from a random source.
void machine_vectors_fill(struct machine_state *state, uint64_t (*next)(void));
// Fills only the elements of vectors, of the full length, from another one.
void machine_elements_fill(struct machine_state *state, uint64_t (*next)(void));
// Whether two states' vector registers and their control registers are the same.
bool machine_vectors_same(const struct machine_state *a, const struct machine_state *b);
// false: no trap within a second of processor time.
bool machine_run(const struct machine_state *from, struct machine_state *to);

#endif

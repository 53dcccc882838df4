// What the tests of an agent's image inside its own process share, and what each instruction set brings:
// programs with probes in them, in its assembler.
#ifndef TL_TEST_AGENT_NATIVE_H
#define TL_TEST_AGENT_NATIVE_H

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "agent/agent.h"
#include "agent/layout.h"
#include "agent/trap.h"
#include "arch/arch.h"

#define CODE_SIZE 0x80000u
#define IMAGE_OFF 0x1000u // behind the code header
#define COPIES_OFF 0x20000u
#define STRIDE 4096u
#define CONTROL_SIZE (TL_HOMES_OFF + TL_HOMES_SIZE)
#define COUNTER_OFF(probe) (TL_BLOCK_HEADER_SIZE + 8u * (probe))
#define LOST 64u // from a probe's counter to that of its losses
#define SITES_MAX 48

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __func__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef uint64_t (*victim)(uint64_t value);

// ---- of each instruction set

struct native_isa {
    const struct tl_arch *arch;
    enum tl_thread_pointer thread_pointer;
    bool restorer; // in the kernel's struct sigaction
    tl_addr code_addr; // within a branch's reach of this program's text
    // A function that comes by every instruction with a simulator, each once a call but for those in slot_only;
    // places of the sites in it. What is simulated must not depend on where the code lies.
    const uint8_t *victim_start, *victim_end;
    const uint32_t *sites, *sites_end;
    const uint8_t *nothing;     // an instruction that does nothing, and a return
    size_t nothing_first, nothing_size; // bytes of the first, of both
    const uint8_t *load;        // a load from where the second argument register points to, and a return
    size_t load_size;
    const uint8_t *three;       // returns 3
    size_t three_size;
    size_t alone_min; // sites that are simulated without a slot, at the least
};
extern const struct native_isa native_isa;

// The processor has single atomic instructions (struct tl_agent_head.atomics).
bool native_atomics(void);
// No copy of it in a slot is possible: only simulated.
bool native_slotless(const struct tl_insn *insn);
// It is simulated in the middle of a page: with what the kernel leaves of the frame, or with what its stand-in
// does.
bool native_alone(const struct tl_insn *insn, bool kernel);
// Calls function(77) with that stack pointer.
uint64_t native_call_on(victim function, void *stack);
// Calls a piece of code with `from` in the second argument register and 42 in the third; its result.
uint64_t native_load(tl_addr site, uint64_t from);
// Calls site with 11 and 22 as its arguments and known values in all other registers. Whether they are so behind.
bool native_keeps_all(tl_addr site);
uint64_t *native_pc(ucontext_t *context);
// The n-th argument register, from 0.
uint64_t *native_argument(ucontext_t *context, unsigned n);
// Tests of this instruction set alone.
void native_more(void);

// ---- for them

extern uint8_t *code, *shared;
extern struct tl_agent_head head;
extern struct tl_code_header *header;
extern struct tl_trap_row rows[2 * SITES_MAX];
extern size_t row_count;

tl_addr address(const void *pointer);
void *map(tl_addr at, size_t size, int prot);
uint64_t counter(uint32_t probe);
struct tl_insn insn_at(tl_addr at);
// Over text, the program's own too.
void text_put(tl_addr at, const void *bytes, size_t size);
// These rows are the breakpoints from now on.
void rows_use(void);

#endif

// Runs code from a given state, through signal frames: a breakpoint of our own enters the handler,
// which puts the state into the frame; whatever ends the run enters it again, and the frame is the
// result. Vector registers, which not every kernel's frame has, are loaded and stored by the
// handler itself, which uses none. The program is linked without relaxation and has no thread-local
// variable that the handler needs: gp and tp may hold anything.
#include "machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { IDLE, ENTER, RUN };
static volatile int phase;
static const struct machine_state *start;
static struct machine_state *result;
static mcontext_t host;

// C can't name the vector unit's registers: machine_vectors.S.
void vectors_store(uint64_t control[4], uint8_t *vector);
void vectors_load(const uint64_t control[4], const uint8_t *vector);
uint64_t vector_bytes(void);

static void state_take(const mcontext_t *from, struct machine_state *to)
{
    vectors_store(to->vector_control, to->vector);
    to->partial = to->vector_control[VCSR] > 7;
    to->vector_control[VCSR] &= 7;
    memcpy(to->reg, from->__gregs, sizeof to->reg);
    memcpy(to->f, from->__fpregs.__d.__f, sizeof to->f);
    to->fcsr = from->__fpregs.__d.__fcsr;
}

static void state_put(mcontext_t *to, const struct machine_state *from)
{
    memcpy(to->__gregs, from->reg, sizeof from->reg);
    memcpy(to->__fpregs.__d.__f, from->f, sizeof from->f);
    to->__fpregs.__d.__fcsr = from->fcsr;
    vectors_load(from->vector_control, from->vector);
}

static void on_signal(int number, siginfo_t *info, void *opaque)
{
    mcontext_t *context = &((ucontext_t *)opaque)->uc_mcontext;
    if (phase == ENTER && number == SIGTRAP) {
        host = *context;
        phase = RUN;
        state_put(context, start);
    } else if (phase == RUN) {
        state_take(context, result);
        result->signal = number;
        result->fault_addr = (uint64_t)(uintptr_t)info->si_addr;
        *context = host;
        context->__gregs[0] += 4;
        phase = IDLE;
    } else {
        static const char message[] = "a signal of the test's own\n";
        (void)!write(2, message, sizeof message - 1);
        _exit(3);
    }
}

bool machine_run(const struct machine_state *from, struct machine_state *to)
{
    const struct itimerval limit = {{0, 0}, {1, 0}}, none = {{0, 0}, {0, 0}};
    start = from;
    result = to;
    setitimer(ITIMER_VIRTUAL, &limit, NULL);
    phase = ENTER;
    __asm__ volatile(".option push\n.option norvc\nebreak\n.option pop" ::: "memory");
    setitimer(ITIMER_VIRTUAL, &none, NULL);
    return to->signal != SIGVTALRM;
}

void machine_vectors_fill(struct machine_state *state, uint64_t (*next)(void))
{
    for (size_t i = 0; i < 32; i++) {
        uint64_t value = next(), kind = next() % 4;
        if (kind == 0) // a boxed single
            value |= UINT64_C(0xffffffff00000000);
        if (kind == 1) // a small number
            value = (value & UINT64_C(0x800fffffffffffff)) | (0x3f0 + value % 32) << 52;
        state->f[i] = value;
    }
    state->fcsr = (uint32_t)(next() % 5 << 5 | (next() & 31)); // a rounding mode that there is
    size_t bytes = vector_bytes();
    for (size_t i = 0; i < 32 * bytes; i += 8) {
        uint64_t value = next();
        memcpy(state->vector + i, &value, sizeof value);
    }
    state->vector_control[VL] = next() % (2 * bytes);
    state->vector_control[VTYPE] = next() % 8 | next() % 4 << 3 | next() % 4 << 6;
    state->vector_control[VSTART] = 0;
    state->vector_control[VCSR] = next() & 7;
    // What the processor makes of it: not all types are there, and the length has a limit.
    static uint8_t scratch[sizeof state->vector];
    vectors_load(state->vector_control, state->vector);
    vectors_store(state->vector_control, scratch);
}

bool machine_vectors_same(const struct machine_state *a, const struct machine_state *b)
{
    return memcmp(a->f, b->f, sizeof a->f) == 0 && a->fcsr == b->fcsr &&
           memcmp(a->vector_control, b->vector_control, sizeof a->vector_control) == 0 &&
           memcmp(a->vector, b->vector, 32 * vector_bytes()) == 0;
}

uint8_t *machine_area(uint64_t addr, size_t size, bool runs)
{
    int prot = PROT_READ | PROT_WRITE | (runs ? PROT_EXEC : 0);
    void *area = mmap((void *)(uintptr_t)addr, size, prot,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED || (uint64_t)(uintptr_t)area != addr) {
        perror("mmap");
        exit(3);
    }
    return area;
}

void machine_code_put(uint64_t addr, const void *code, size_t size)
{
    memcpy((void *)(uintptr_t)addr, code, size);
    __builtin___clear_cache((char *)(uintptr_t)addr, (char *)(uintptr_t)addr + size);
}

void machine_breaks(uint64_t addr, size_t size)
{
    for (uint64_t at = addr; at < addr + size; at += 2)
        *(uint16_t *)(uintptr_t)at = 0x9002; // c.ebreak
    __builtin___clear_cache((char *)(uintptr_t)addr, (char *)(uintptr_t)addr + size);
}

void machine_begin(void)
{
    static uint8_t alternate[65536];
    static const int caught[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGVTALRM};
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    if (vector_bytes() > VECTOR_BYTES_MAX) {
        fprintf(stderr, "vector registers of %llu bytes\n", (unsigned long long)vector_bytes());
        exit(3);
    }
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaction(caught[i], &action, NULL);
    machine_area(FIELD_ADDR, FIELD_SIZE, true);
    machine_area(DATA_ADDR, DATA_SIZE, false);
    machine_area(STACK_ADDR, STACK_SIZE, false);
    machine_breaks(FIELD_ADDR, FIELD_SIZE);
}

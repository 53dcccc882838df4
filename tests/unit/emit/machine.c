// Runs code from a given state, through signal frames: a breakpoint of our own enters the handler,
// which puts the state into the frame; whatever ends the run enters it again, and the frame is the
// result.
#include "machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define PROT_GUARDED 0x10           // PROT_BTI, Linux 5.8
#define HWCAP2_WITH_SME (1ul << 23) // Linux 5.19, as the records
#define RECORD_ZA 0x54366345u
#define RECORD_ZT 0x5a544e01u // Linux 6.3
#define SMSTART 0xd503477fu   // streaming mode and ZA on

enum { IDLE, ENTER, RUN };
static volatile int phase;
static const struct machine_state *start;
static struct machine_state *result;
static mcontext_t host;

static void state_take(const mcontext_t *from, struct machine_state *to)
{
    memcpy(to->reg, from->regs, sizeof to->reg);
    to->sp = from->sp;
    to->pc = from->pc;
    to->pstate = from->pstate;
    memcpy(to->vector, from->__reserved, VECTOR_BYTES);
}

static void on_signal(int number, siginfo_t *info, void *opaque)
{
    mcontext_t *context = &((ucontext_t *)opaque)->uc_mcontext;
    if (phase == ENTER && number == SIGTRAP) {
        host = *context;
        memcpy(context->regs, start->reg, sizeof start->reg);
        context->sp = start->sp;
        context->pc = start->pc;
        context->pstate = start->pstate;
        memcpy(context->__reserved, start->vector, VECTOR_BYTES);
        phase = RUN;
    } else if (phase == RUN) {
        state_take(context, result);
        result->signal = number;
        result->fault_addr = (uint64_t)(uintptr_t)info->si_addr;
        *context = host;
        context->pc += 4;
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
    __asm__ volatile("brk #0x7777" ::: "memory");
    setitimer(ITIMER_VIRTUAL, &none, NULL);
    return to->signal != SIGVTALRM;
}

// ---- vectors ------------------------------------------------------------------------------------

static bool streaming;

bool machine_streaming(bool on)
{
    streaming = on && (getauxval(AT_HWCAP2) & HWCAP2_WITH_SME);
    return streaming == on;
}

// The frame of a run that ends at once shows which records there are.
static void first_run(struct machine_state *first)
{
    struct machine_state from = {.pc = FIELD_ADDR, .sp = STACK_ADDR + STACK_SIZE / 2};
    ucontext_t here;
    getcontext(&here);
    memcpy(from.vector, here.uc_mcontext.__reserved, VECTOR_BYTES);
    if (streaming)
        machine_word_put(FIELD_ADDR, SMSTART);
    machine_run(&from, first);
    machine_word_put(FIELD_ADDR, machine_break(FIELD_ADDR));
}

void machine_state_blank(struct machine_state *out)
{
    static struct machine_state first[2];
    if (first[streaming].pc == 0)
        first_run(&first[streaming]);
    memset(out, 0, sizeof *out);
    memcpy(out->vector, first[streaming].vector, VECTOR_BYTES);
}

// The record of a kind, or NULL.
static uint8_t *record_find(uint8_t *vector, uint32_t magic)
{
    for (size_t at = 0; at + 16 <= VECTOR_BYTES;) {
        uint32_t head[2];
        memcpy(head, vector + at, sizeof head);
        if (head[0] == magic)
            return vector + at;
        if (head[0] == 0 || head[1] < 8)
            return NULL;
        at += head[1];
    }
    return NULL;
}

static void bytes_fill(uint8_t *bytes, size_t size, uint64_t (*next)(void))
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t value = next();
        memcpy(bytes + i, &value, sizeof value);
    }
}

// What a record of ZA or ZT0 holds behind its first 16 bytes; nothing where it is off.
static void matrix_fill(uint8_t *record, uint64_t (*next)(void))
{
    uint32_t size;
    if (!record)
        return;
    memcpy(&size, record + 4, sizeof size);
    bytes_fill(record + 16, size - 16u, next);
}

// Where the scalable vectors are, 32 of *length bytes. NULL: there are none.
static uint8_t *scalable_find(struct machine_state *state, uint32_t *size, uint16_t *length)
{
    uint8_t *sve = record_find(state->vector, SVE_MAGIC);
    if (!sve)
        return NULL;
    memcpy(length, sve + 8, sizeof *length);
    memcpy(size, sve + 4, sizeof *size);
    return *size < 16u + 32u * *length ? NULL : sve + 16;
}

void machine_elements_fill(struct machine_state *state, uint64_t (*next)(void))
{
    uint8_t *simd = record_find(state->vector, FPSIMD_MAGIC);
    uint16_t length;
    uint32_t size;
    uint8_t *scalable = scalable_find(state, &size, &length);
    bytes_fill(simd + 16, 512, next);
    if (!scalable)
        return;
    bytes_fill(scalable, 32u * length, next);
    for (size_t z = 0; z < 32; z++)
        memcpy(scalable + z * length, simd + 16 + 16 * z, 16);
}

void machine_vectors_fill(struct machine_state *state, uint64_t (*next)(void))
{
    if (!record_find(state->vector, FPSIMD_MAGIC) ||
        (streaming && !record_find(state->vector, RECORD_ZA))) {
        fprintf(stderr, "the signal frame lacks vector registers, or ZA\n");
        exit(3);
    }
    uint16_t length;
    uint32_t size;
    uint8_t *scalable = scalable_find(state, &size, &length);
    matrix_fill(record_find(state->vector, RECORD_ZA), next);
    matrix_fill(record_find(state->vector, RECORD_ZT), next);
    if (scalable)
        bytes_fill(scalable + 32u * length, size - 16u - 32u * length, next); // predicates
    machine_elements_fill(state, next);
}

bool machine_vectors_same(const struct machine_state *a, const struct machine_state *b)
{
    return memcmp(a->vector, b->vector, VECTOR_BYTES) == 0;
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

void machine_guard(uint64_t addr, size_t size)
{
    if (mprotect((void *)(uintptr_t)addr, size,
                 PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GUARDED)) {
        perror("mprotect");
        exit(3);
    }
}

void machine_word_put(uint64_t addr, uint32_t word)
{
    memcpy((void *)(uintptr_t)addr, &word, sizeof word);
    __builtin___clear_cache((char *)(uintptr_t)addr, (char *)(uintptr_t)addr + 4);
}

uint32_t machine_break(uint64_t addr)
{
    return 0xd4200000u | (uint32_t)(addr / 4 % 0xffff) << 5;
}

void machine_begin(void)
{
    static uint8_t alternate[65536];
    static const int caught[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGVTALRM};
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaction(caught[i], &action, NULL);
    machine_area(FIELD_ADDR, FIELD_SIZE, true);
    machine_area(DATA_ADDR, DATA_SIZE, false);
    machine_area(STACK_ADDR, STACK_SIZE, false);
    for (uint64_t addr = FIELD_ADDR; addr < FIELD_ADDR + FIELD_SIZE; addr += 4) {
        uint32_t word = machine_break(addr);
        memcpy((void *)(uintptr_t)addr, &word, sizeof word);
    }
}

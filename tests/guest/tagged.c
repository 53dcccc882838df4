// A program whose memory and stack are tagged (arm64: MTE), and checked at each access. Says how
// many results were wrong. Modes: stack (a stack of tagged memory), fault (a pointer of another
// tag: the handler must see the load at its own address). It says "ready" and waits for a line
// before its calls.
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <ucontext.h>

#define STACK_SIZE 0x40000u
#define GRANULE 16u
#define TAG (UINT64_C(5) << 56)
#define OTHER_TAG (UINT64_C(9) << 56)
// Linux include/uapi/linux/prctl.h, arch/arm64/include/uapi/asm/mman.h, asm-generic/siginfo.h
// (5.10).
#define TAGGED_ADDR_ENABLE 1u
#define MTE_SYNC 2u
#define MTE_TAGS (0xfffeu << 3)
#define PROTECTION_MTE 0x20
#define CODE_MTE_SYNC 9

uint64_t tagged_push(uint64_t x);
uint64_t tagged_load(const uint64_t *at);
uint64_t tagged_call(uint64_t sp, uint64_t (*function)(uint64_t), uint64_t x);
void tagged_set(uint64_t addr);

static uint64_t faults, wrong;

static void on_fault(int number, siginfo_t *info, void *opaque)
{
    ucontext_t *context = opaque;
    wrong += info->si_code != CODE_MTE_SYNC || context->uc_mcontext.pc != (uintptr_t)tagged_load;
    faults++;
    context->uc_mcontext.regs[0] = 77;
    context->uc_mcontext.pc += 4;
    (void)number;
}

static uint8_t *tagged_memory(void)
{
    unsigned long control = TAGGED_ADDR_ENABLE | MTE_SYNC | MTE_TAGS;
    if (prctl(PR_SET_TAGGED_ADDR_CTRL, control, 0, 0, 0))
        return NULL;
    uint8_t *memory = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE | PROTECTION_MTE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < STACK_SIZE; i += GRANULE)
        tagged_set(((uintptr_t)memory + i) | TAG);
    return memory;
}

static uint64_t load(uint64_t addr)
{
    return tagged_load((const uint64_t *)(uintptr_t)addr);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "stack";
    uint64_t calls = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint8_t *memory = tagged_memory();
    if (!memory) {
        printf("no tags\n");
        return 77;
    }
    static uint8_t other[65536];
    const stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (strcmp(mode, "fault") == 0) {
        sigaltstack(&stack, NULL);
        sigaction(SIGSEGV, &action, NULL);
    }
    printf("ready\n");
    (void)fflush(stdout);
    (void)getchar();
    uint64_t sp = (uintptr_t)memory + STACK_SIZE / 2;
    uint64_t *word = (uint64_t *)(uintptr_t)((sp + 64) | TAG);
    for (uint64_t i = 0; i < calls; i++) {
        if (strcmp(mode, "fault") == 0) {
            wrong += load((sp + 64) | OTHER_TAG) != 77;
            continue;
        }
        wrong += tagged_call(sp | TAG, tagged_push, i) != i + 1;
        *word = i ^ 0x55;
        wrong += tagged_call(sp | TAG, load, (uintptr_t)word) != (i ^ 0x55);
    }
    wrong += faults != (strcmp(mode, "fault") == 0 ? calls : 0);
    printf("wrong %" PRIu64 "\n", wrong);
    return 0;
}

// Detours where a guarded control stack (GCS) is in force: counts, records and displaced returns
// leave it right, and so does a call that is led to its detour; a displaced call does not, which is
// why such a call is refused (plan/layout.c). Each function is run by a child, for a thread that
// turned the stack on can't return from where it did.
#include "machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch/arm64/arm64.h"

#define DETOUR_ADDR (SITE_ADDR + 0x400000)
#define STUBS_ADDR UINT64_C(0x42000000)
#define HOMES_ADDR UINT64_C(0x24000000)
#define LOG_ADDR UINT64_C(0x26000000) // stubs.S
#define BLOCK_ADDR UINT64_C(0x30000000)
#define AREA_SIZE 0x10000u
#define FUNCTION_ADDR (SITE_ADDR - 4)
#define HOMES_SHIFT 12
#define COUNTER_OFF 64
#define CHILD_RETURNED 7 // and a hit more if it was probed
#define CHILD_NO_GCS 20
#define PR_SET_SHADOW_STACK_STATUS 75 // Linux 6.6; arm64: 6.13
#define PR_SHADOW_STACK_ENABLE 1
#define NR_PRCTL 167
#define NR_EXIT 93

extern const uint8_t stub_start[], stub_slow[], stub_record[], stub_end[];

enum { STP = 0xa9bf7bfd, LDP = 0xa8c17bfd, RET = 0xd65f03c0, NOP = 0xd503201f, BL_8 = 0x94000003 };

static const struct {
    const char *name;
    uint32_t code[5]; // from FUNCTION_ADDR; the second is the site
    unsigned action;
    bool retarget, full, faults;
} probe[] = {
    {"count", {NOP, NOP, RET}, TL_ACTION_COUNT, false, true, false},
    {"slow count", {NOP, NOP, RET}, TL_ACTION_COUNT, false, false, false},
    {"record", {NOP, NOP, RET}, TL_ACTION_RECORD, false, true, false},
    {"displaced return", {NOP, RET}, TL_ACTION_COUNT, false, true, false},
    {"call led to the detour", {STP, BL_8, LDP, RET, RET}, TL_ACTION_COUNT, true, true, false},
    {"displaced call", {STP, BL_8, LDP, RET, RET}, TL_ACTION_COUNT, false, true, true},
};

static void probe_put(size_t which, bool patched)
{
    struct tl_insn insn;
    struct tl_detour detour;
    uint64_t *homes = (uint64_t *)(uintptr_t)HOMES_ADDR;
    uint32_t patch;
    for (uint64_t i = 0; i < 5; i++)
        machine_word_put(FUNCTION_ADDR + 4 * i, probe[which].code[i]);
    tl_arch_arm64.decode((const uint8_t *)&probe[which].code[1], 4, SITE_ADDR, &insn);
    struct tl_emit_in in = {.action = (uint8_t)probe[which].action,
                            .thread_pointer = TL_TP_SHARED,
                            .homes_addr = HOMES_ADDR,
                            .homes_shift = HOMES_SHIFT,
                            .slow_addr = STUBS_ADDR + (uint64_t)(stub_slow - stub_start),
                            .counter_off = COUNTER_OFF,
                            .insn = &insn,
                            .insn_count = 1,
                            .call_retarget = probe[which].retarget,
                            .resume_addr = SITE_ADDR + 4};
    in.record_addr[TL_RECORD_EVENT] = STUBS_ADDR + (uint64_t)(stub_record - stub_start);
    if (probe[which].action & TL_ACTION_RECORD)
        in.record[0] = (struct tl_record){TL_RECORD_EVENT, COUNTER_OFF, 0};
    homes[0] = probe[which].full ? BLOCK_ADDR : 0;
    if (tl_arch_arm64.emit_detour(&in, DETOUR_ADDR, &detour, NULL) || detour.refusal ||
        !(probe[which].retarget
              ? tl_arch_arm64.emit_retarget(&insn, DETOUR_ADDR, (uint8_t *)&patch)
              : tl_arch_arm64.emit_jump(SITE_ADDR, DETOUR_ADDR, (uint8_t *)&patch))) {
        fprintf(stderr, "%s: no detour\n", probe[which].name);
        exit(1);
    }
    memcpy((void *)(uintptr_t)DETOUR_ADDR, detour.bytes, detour.size);
    __builtin___clear_cache((char *)(uintptr_t)DETOUR_ADDR,
                            (char *)(uintptr_t)DETOUR_ADDR + detour.size);
    if (patched)
        machine_word_put(SITE_ADDR, patch);
}

static inline __attribute__((always_inline)) long call_make(long number, long a, long b)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = 0;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}

// Counts, and calls of stubs.S.
static inline __attribute__((always_inline)) long hits(void)
{
    const volatile long *log = (const volatile long *)(uintptr_t)LOG_ADDR;
    return *(const volatile long *)(uintptr_t)(BLOCK_ADDR + COUNTER_OFF) + log[0] + log[4];
}

// How a child ended that called the function with the stack on.
static int child_run(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        void (*function)(void) = (void (*)(void))(uintptr_t)FUNCTION_ADDR;
        if (call_make(NR_PRCTL, PR_SET_SHADOW_STACK_STATUS, PR_SHADOW_STACK_ENABLE))
            call_make(NR_EXIT, CHILD_NO_GCS, 0);
        function();
        call_make(NR_EXIT, CHILD_RETURNED + hits(), 0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

int main(void)
{
    static const uint64_t area[] = {DETOUR_ADDR, STUBS_ADDR, HOMES_ADDR, LOG_ADDR, BLOCK_ADDR};
    unsigned wrong = 0;
    machine_begin();
    signal(SIGSEGV, SIG_DFL);
    for (size_t i = 0; i < sizeof area / sizeof *area; i++)
        machine_area(area[i], AREA_SIZE, true);
    memcpy((void *)(uintptr_t)STUBS_ADDR, stub_start, (size_t)(stub_end - stub_start));
    for (size_t i = 0; i < sizeof probe / sizeof *probe; i++) {
        probe_put(i, false);
        int bare = child_run();
        probe_put(i, true);
        int probed = child_run();
        bool returned = WIFEXITED(probed) && WEXITSTATUS(probed) == CHILD_RETURNED + 1;
        bool faulted = WIFSIGNALED(probed) && WTERMSIG(probed) == SIGSEGV;
        bool right = WIFEXITED(bare) && WEXITSTATUS(bare) == CHILD_RETURNED &&
                     (probe[i].faults ? faulted : returned);
        printf("%s: bare %#x, probed %#x%s\n", probe[i].name, (unsigned)bare, (unsigned)probed,
               right ? "" : ": wrong");
        wrong += !right;
    }
    return wrong != 0;
}

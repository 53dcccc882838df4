// The agent's image for arm64, run by such a processor (or what stands in for it), inside this
// process: the SIGTRAP handler with its simulators and slots, replaced return addresses and the
// unwinder, guards of fault handlers, hooks. Code before and behind is the program's own, in
// threads that signals interrupt.
//
//   agent-arm64 IMAGE
#include <asm/hwcap.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "agent/agent.h"
#include "agent/layout.h"
#include "agent/trap.h"
#include "arch/arch.h"

#define CODE_ADDR UINT64_C(0x4000000) // within a branch's reach of this program's text
#define CODE_SIZE 0x80000u
#define IMAGE_OFF 0x1000u // behind the code header
#define COPIES_OFF 0x20000u
#define STRIDE 4096u
#define CONTROL_SIZE (TL_HOMES_OFF + TL_HOMES_SIZE)
#define COUNTER_OFF(probe) (TL_BLOCK_HEADER_SIZE + 8u * (probe))
#define LOST 64u // from a probe's counter to that of its losses
#define THREADS 4
#define CALLS 800u

static uint8_t *code, *control, *shared;
static struct tl_agent_head head;
static struct tl_code_header *header;
static struct tl_hijack_head *hijack;
static tl_addr place_next;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __func__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static tl_addr address(const void *pointer)
{
    return (tl_addr)(uintptr_t)pointer;
}

static uint64_t counter(uint32_t probe)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < TL_BLOCK_COUNT; i++)
        sum += *(const volatile uint64_t *)(void *)(shared + TL_BLOCK_FIRST_OFF + i * STRIDE +
                                                    COUNTER_OFF(probe));
    return sum;
}

// ---- the image ----------------------------------------------------------------------------------

static void *map(tl_addr at, size_t size, int prot)
{
    void *area =
        mmap((void *)(uintptr_t)at, size, prot,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    CHECK(area != MAP_FAILED && (at == 0 || address(area) == at));
    return area;
}

static void install(const char *path)
{
    extern const char __executable_start[], etext[];
    code = map(CODE_ADDR, CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
    control = map(0, CONTROL_SIZE, PROT_READ | PROT_WRITE);
    shared = map(0, TL_BLOCK_FIRST_OFF + (size_t)TL_BLOCK_COUNT * STRIDE, PROT_READ | PROT_WRITE);
    hijack = map(0, sizeof *hijack, PROT_READ | PROT_WRITE);
    FILE *image = fopen(path, "rb");
    CHECK(image != NULL);
    CHECK(fread(code + IMAGE_OFF, 1, COPIES_OFF - IMAGE_OFF, image) > sizeof head);
    fclose(image);
    memcpy(&head, code + IMAGE_OFF, sizeof head);
    head.control_addr = address(control);
    head.code_addr = address(code);
    head.data_addr = address(shared);
    head.stride = STRIDE;
    head.process_count = 1;
    head.thread_pointer = TL_TP_TPIDR;
    head.homes_shift = TL_HOMES_SHIFT_DEFAULT;
    head.atomics = (getauxval(AT_HWCAP) & HWCAP_ATOMICS) != 0;
    head.hijack_addr = address(hijack);
    head.hijack_lost = LOST;
    head.hijack_record = head.record_off[TL_RECORD_HIT - 1];
    memcpy(code + IMAGE_OFF, &head, sizeof head);
    *(struct tl_control *)(void *)control = (struct tl_control){
        .live = TL_CONTROL_LIVE,
        .table_addr = address(control) + TL_TABLE_OFF,
        .shared_block = address(shared) + TL_BLOCK_FIRST_OFF + (uint64_t)TL_THREAD_SLOTS * STRIDE,
        .thread_pointer = TL_TP_TPIDR,
    };
    header = (struct tl_code_header *)(void *)code;
    hijack->next = address(hijack);
    hijack->trampoline = address(code) + IMAGE_OFF + head.trampoline_off;
    hijack->range_count = 2;
    hijack->range[0] = (struct tl_range){address(__executable_start), address(etext)};
    hijack->range[1] = (struct tl_range){CODE_ADDR + COPIES_OFF, CODE_ADDR + CODE_SIZE};
    place_next = CODE_ADDR + COPIES_OFF;
    __builtin___clear_cache((char *)code, (char *)code + CODE_SIZE);
}

static struct tl_emit_in emit_in(enum tl_action action, const struct tl_insn *insn)
{
    tl_addr agent = CODE_ADDR + IMAGE_OFF;
    struct tl_emit_in in = {
        .action = action,
        .thread_pointer = TL_TP_TPIDR,
        .table_addr = head.control_addr + TL_TABLE_OFF,
        .control_addr = head.control_addr,
        .homes_addr = head.control_addr + TL_HOMES_OFF,
        .homes_shift = (uint8_t)head.homes_shift,
        .atomics = head.atomics != 0,
        .slow_addr = agent + head.slow_count_off,
        .call_addr = agent + head.fault_off,
        .leave_addr = agent + head.leave_off,
        .insn = insn,
        .insn_count = 1,
        .resume_addr = insn->addr + 4,
    };
    for (size_t i = 0; i < TL_RECORD_ENTRIES; i++)
        in.record_addr[i + 1] = agent + head.record_off[i];
    return in;
}

// Puts the detour somewhere; its address. 0: there is none.
static tl_addr detour_put(const struct tl_emit_in *in, struct tl_detour *detour)
{
    tl_addr at = place_next;
    CHECK(tl_arch_arm64.emit_detour(in, at, detour, NULL) == 0);
    if (detour->refusal != TL_REFUSE_NONE)
        return 0;
    memcpy((void *)(uintptr_t)at, detour->bytes, detour->size);
    __builtin___clear_cache((char *)(uintptr_t)at, (char *)(uintptr_t)at + detour->size);
    place_next += (detour->size + 63u) / 64u * 64u;
    CHECK(place_next < CODE_ADDR + CODE_SIZE - 0x4000);
    return at;
}

static void word_put(tl_addr at, const void *bytes)
{
    tl_addr page = at & ~(tl_addr)0xffff;
    if (at < CODE_ADDR || at >= CODE_ADDR + CODE_SIZE) // the program's own text
        CHECK(mprotect((void *)(uintptr_t)(page < address((const void *)(uintptr_t)0x400000)
                                               ? 0x400000
                                               : page),
                       0x10000, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    memcpy((void *)(uintptr_t)at, bytes, 4);
    __builtin___clear_cache((char *)(uintptr_t)at, (char *)(uintptr_t)at + 4);
}

static struct tl_insn insn_at(tl_addr at)
{
    struct tl_insn insn;
    CHECK(tl_arch_arm64.decode((const uint8_t *)(uintptr_t)at, 4, at, &insn) == 0);
    return insn;
}

static struct tl_detour probe_put(tl_addr at, enum tl_action action, enum tl_record_kind kind,
                                  uint32_t counter_off, tl_addr *detour_addr)
{
    struct tl_insn insn = insn_at(at);
    struct tl_emit_in in = emit_in(action, &insn);
    struct tl_detour detour;
    uint8_t jump[4];
    in.record[0] = (struct tl_record){.kind = (uint8_t)kind, .counter_off = counter_off};
    in.counter_off = counter_off;
    tl_addr to = detour_put(&in, &detour);
    CHECK(to && tl_arch_arm64.emit_jump(at, to, jump));
    word_put(at, jump);
    if (detour_addr)
        *detour_addr = to;
    return detour;
}

// ---- breakpoints --------------------------------------------------------------------------------

// Every instruction that has a simulator, in one function; a call of it comes by every site once,
// but for those in `some`. x0 to a number.
__asm__(".pushsection .rodata\n"
        ".globl victim_start, victim_end, victim_sites, victim_sites_end\n"
        "victim_start:\n"
        "1: nop\n"
        "21: stp x0, x30, [sp, #-16]!\n"
        "   mov x0, #0\n"
        "   mov x30, #0\n"
        "   ldp x0, x30, [sp], #16\n"
        "2: stp x29, x30, [sp, #-64]!\n"
        "   mov x29, sp\n"
        "3: str x19, [sp, #16]\n"
        "4: stp d8, d9, [sp, #32]\n"
        "   mov x19, x0\n"
        "5: adr x1, 90f\n"
        "   ldr x1, [x1]\n"
        "6: ldr x2, 90f\n"
        "7: ldr d8, 91f\n"
        "8: ldrsw x3, 92f\n"
        "   fmov x4, d8\n"
        "   add x19, x19, x1\n"
        "   eor x19, x19, x2, lsl #1\n"
        "   add x19, x19, x3\n"
        "   eor x19, x19, x4\n"
        "9: tbz x19, #0, 50f\n"
        "   add x19, x19, #3\n"
        "50: tst x19, #6\n"
        "10: b.eq 51f\n"
        "   sub x19, x19, #5\n"
        "51: and x5, x19, #1\n"
        "11: cbnz x5, 52f\n"
        "   eor x19, x19, #0xff\n"
        "52:\n"
        "12: bl 80f\n"
        "   add x19, x19, x0\n"
        "13: adr x30, 80f\n"
        "14: blr x30\n"
        "   eor x19, x19, x0\n"
        "15: b 53f\n"
        "   mov x19, #0\n"
        "53: adr x16, 54f\n"
        "16: br x16\n"
        "   mov x19, #1\n"
        "54: mov x0, x19\n"
        "17: ldp d8, d9, [sp, #32]\n"
        "18: ldr x19, [sp, #16]\n"
        "19: ldp x29, x30, [sp], #64\n"
        "20: ret\n"
        "80: add x0, x19, #0x21\n"
        "   sub x0, x0, x30\n" // the link is the program's own
        "   adr x6, victim_start\n"
        "   add x0, x0, x6\n"
        "   ret\n"
        "   .balign 8\n"
        "90: .quad 0x123456789abcdef1\n"
        "91: .quad 0x0fedcba987654321\n"
        "92: .word 0x89abcdef\n"
        "   .balign 8\n"
        "victim_end:\n"
        "victim_sites: .word 1b - victim_start, 2b - victim_start, 3b - victim_start, 4b - "
        "victim_start\n"
        "   .word 5b - victim_start, 6b - victim_start, 7b - victim_start, 8b - victim_start\n"
        "   .word 9b - victim_start, 10b - victim_start, 11b - victim_start, 12b - victim_start\n"
        "   .word 13b - victim_start, 14b - victim_start, 15b - victim_start, 16b - victim_start\n"
        "   .word 17b - victim_start, 18b - victim_start, 19b - victim_start, 20b - victim_start\n"
        "   .word 21b - victim_start\n"
        "victim_sites_end:\n"
        ".popsection\n");
extern const uint8_t victim_start[], victim_end[];
extern const uint32_t victim_sites[], victim_sites_end[];
#define SITES_MAX 32

typedef uint64_t (*victim)(uint64_t value);
static victim bare, probed;
static struct tl_code_header trap_header;
static struct tl_trap_row rows[2 * SITES_MAX];
static size_t row_count;
static bool skipped[SITES_MAX];

static victim victim_copy(void)
{
    tl_addr at = place_next;
    size_t size = (size_t)(victim_end - victim_start);
    memcpy((void *)(uintptr_t)at, victim_start, size);
    __builtin___clear_cache((char *)(uintptr_t)at, (char *)(uintptr_t)at + size);
    place_next += (size + 63) / 64 * 64;
    return (victim)(uintptr_t)at;
}

static int row_compare(const void *left, const void *right)
{
    const struct tl_trap_row *a = left, *b = right;
    return (a->addr > b->addr) - (a->addr < b->addr);
}

enum rung { SIMULATE, SLOT, STEP, RUNGS };

// A copy of the victim with a breakpoint on each site. Probe n counts site n.
static victim victim_trapped(enum rung rung)
{
    victim made = victim_copy();
    size_t sites = (size_t)(victim_sites_end - victim_sites);
    for (size_t i = 0; i < sites; i++) {
        struct tl_insn insn = insn_at(address((void *)(uintptr_t)made) + victim_sites[i]);
        struct tl_emit_in in = emit_in(TL_ACTION_NONE, &insn);
        struct tl_detour slot;
        tl_addr at = detour_put(&in, &slot);
        skipped[i] = at == 0 && rung != SIMULATE;
        if (skipped[i]) { // blr x30: only by hand
            CHECK((*(const uint32_t *)(const void *)insn.bytes) == 0xd63f03c0);
            continue;
        }
        struct tl_trap_row *row = &rows[row_count++];
        *row = (struct tl_trap_row){.addr = insn.addr, .resume = at, .record_count = 1};
        row->record[0].entry = CODE_ADDR + IMAGE_OFF + head.record_off[TL_RECORD_HIT - 1];
        row->record[0].counter_off = COUNTER_OFF(i);
        row->simulated = rung == SIMULATE;
        CHECK(tl_arch_arm64.simulation(&insn, &row->simulation));
        if (rung == STEP && slot.boundary_count > 1) {
            rows[row_count++] =
                (struct tl_trap_row){.addr = at + slot.boundary[1].off, .resume = insn.addr + 4};
            word_put(at + slot.boundary[1].off, tl_arch_arm64.breakpoint);
        }
        word_put(insn.addr, tl_arch_arm64.breakpoint);
    }
    qsort(rows, row_count, sizeof rows[0], row_compare);
    return made;
}

// As patch/trap.c sets it, by the system call itself: the C library has a restorer of its own.
static void trap_handler_set(void)
{
    const struct {
        uint64_t handler, flags, restorer, mask;
    } action = {CODE_ADDR + IMAGE_OFF + head.trap_off,
                SA_SIGINFO | SA_ONSTACK | SA_NODEFER | 0x04000000u,
                CODE_ADDR + IMAGE_OFF + head.restorer_off,
                ~(UINT64_C(1) << (SIGTRAP - 1) | UINT64_C(1) << (SIGSEGV - 1))};
    CHECK(syscall(SYS_rt_sigaction, SIGTRAP, &action, NULL, 8) == 0);
}

static _Thread_local uint64_t handled;
static uint64_t calls_all, wrong;

static void on_alarm(int number)
{
    (void)number;
    if (probed(handled) != bare(handled))
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    handled++;
}

static void *thread_run(void *stack)
{
    // Every other thread gets its signals on a stack of their own: the frame is not below the
    // program's.
    const stack_t other = {.ss_sp = stack, .ss_size = 65536, .ss_flags = stack ? 0 : SS_DISABLE};
    sigaltstack(&other, NULL);
    for (uint64_t i = 0; i < CALLS; i++) {
        if (probed(i * UINT64_C(0x9e3779b97f4a7c15)) != bare(i * UINT64_C(0x9e3779b97f4a7c15)))
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    __atomic_fetch_add(&calls_all, CALLS + handled, __ATOMIC_RELAXED);
    return NULL;
}

static void victim_run(void)
{
    pthread_t thread[THREADS];
    static uint8_t stacks[THREADS][65536];
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART | SA_ONSTACK};
    const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    sigset_t alarm;
    calls_all = wrong = handled = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, thread_run, i % 2 ? stacks[i] : NULL) == 0);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    calls_all += handled; // this thread's, before it blocked the signal
}

static void traps_are_counted_and_done_right(void)
{
    static const char *const names[RUNGS] = {"simulate", "slot", "step"};
    header->trap_next = address(&trap_header);
    trap_handler_set();
    for (enum rung rung = SIMULATE; rung < RUNGS; rung++) {
        row_count = 0;
        probed = victim_trapped(rung);
        trap_header.trap_addr = address(rows);
        trap_header.trap_count = (uint32_t)row_count;
        memset(shared + TL_BLOCK_FIRST_OFF, 0, (size_t)TL_BLOCK_COUNT * STRIDE);
        victim_run();
        CHECK(wrong == 0);
        for (uint32_t i = 0; i < (uint32_t)(victim_sites_end - victim_sites); i++) {
            if (counter(i) != (skipped[i] ? 0 : calls_all)) {
                fprintf(stderr, "%s: site %u: %llu of %llu\n", names[rung], i + 1,
                        (unsigned long long)counter(i), (unsigned long long)calls_all);
                exit(1);
            }
        }
        printf("%s: %llu calls\n", names[rung], (unsigned long long)calls_all);
    }
}

// In the middle of a page everything but literals is done without a slot: here there is none.
static void simulators_need_no_slot(void)
{
    row_count = 0;
    probed = victim_trapped(SIMULATE);
    trap_header.trap_count = (uint32_t)row_count;
    unsigned without = 0;
    for (size_t i = 0; i < row_count; i++) {
        uint32_t word;
        memcpy(&word, (const uint8_t *)bare + (rows[i].addr - address((void *)(uintptr_t)probed)),
               4);
        bool vector = word & 1u << 26 && (word & 0x0a000000) == 0x08000000;
        if ((word & 0x3b000000) != 0x18000000 && !vector) { // vectors may not be at hand
            rows[i].resume = 0;
            without++;
        }
    }
    CHECK(without >= 15);
    uint64_t result = 0;
    uint8_t *stack = (uint8_t *)map(0, 0x20000, PROT_READ | PROT_WRITE) + 0x18000 + 2048;
    __asm__ volatile("mov x20, sp\n mov sp, %1\n mov x0, #77\n blr %2\n mov sp, x20\n mov %0, x0"
                     : "=r"(result)
                     : "r"(stack), "r"(probed)
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",
                       "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x20", "x30", "memory",
                       "cc");
    CHECK(result == bare(77));
}

static _Thread_local volatile uint64_t illegal_pc;

static void on_illegal(int number, siginfo_t *info, void *opaque)
{
    ucontext_t *context = opaque;
    (void)number, (void)info;
    illegal_pc = context->uc_mcontext.pc;
    context->uc_mcontext.pc = context->uc_mcontext.regs[10]; // to where it ends well
    context->uc_mcontext.pstate &= ~UINT64_C(0xc00);
}

// In guarded text a branch that is done by hand has the type of the processor's own.
static void branches_land_as_they_would(void)
{
    static const uint32_t words[] = {
        0xd50324df, 0xd61f0120,             // bti jc; br x9: the site
        0xd503249f, 0xd28000a0, 0xd65f03c0, // bti j; mov x0, #5; ret
        0xd503245f, 0xd28000c0, 0xd65f03c0, // bti c; mov x0, #6; ret
        0xd503201f, 0xd28000e0, 0xd65f03c0, // nop; mov x0, #7; ret
    };
    static const uint8_t targets[] = {2, 5, 8};
    uint8_t *text = map(CODE_ADDR + CODE_SIZE, 0x10000, PROT_READ | PROT_WRITE);
    tl_addr illegal[2][3];
    const bool enforced = (getauxval(AT_HWCAP2) & HWCAP2_BTI) != 0;
    const int prot = PROT_READ | PROT_EXEC | (enforced ? 0x10 : 0); // PROT_BTI
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    memcpy(text, words, sizeof words);
    for (int trapped = 0; trapped < 2; trapped++) {
        CHECK(mprotect(text, 0x10000, PROT_READ | PROT_WRITE) == 0);
        if (trapped) {
            struct tl_insn insn = insn_at(address(text) + 4);
            row_count = trap_header.trap_count = 1;
            rows[0] = (struct tl_trap_row){.addr = insn.addr, .simulated = true};
            CHECK(tl_arch_arm64.simulation(&insn, &rows[0].simulation));
            rows[0].simulation.guarded = enforced;
            memcpy(text + 4, tl_arch_arm64.breakpoint, 4);
        }
        __builtin___clear_cache((char *)text, (char *)text + sizeof words);
        CHECK(mprotect(text, 0x10000, prot) == 0);
        for (size_t i = 0; i < 3; i++) {
            register uint64_t x9 __asm__("x9") = address(text) + 4u * targets[i];
            register uint64_t x10 __asm__("x10") = address(text) + 4u * targets[i] + 4;
            register uint64_t x0 __asm__("x0");
            illegal_pc = 0;
            __asm__ volatile("blr %1"
                             : "=r"(x0)
                             : "r"(text), "r"(x9), "r"(x10)
                             : "x16", "x17", "x30", "memory", "cc");
            CHECK(x0 == 5 + i);
            illegal[trapped][i] = illegal_pc;
        }
    }
    CHECK(memcmp(illegal[0], illegal[1], sizeof illegal[0]) == 0);
    if (enforced)
        CHECK(illegal[1][0] == 0 && illegal[1][1] && illegal[1][2]);
    signal(SIGILL, SIG_DFL);
}

// A trap that is nobody's ends the program as it would have, with the trap's own registers.
static void foreign_traps_end_the_program(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        __asm__ volatile("brk #0");
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP);
}

// ---- replaced return addresses ------------------------------------------------------------------

enum { PROBE_RECURSE, PROBE_THROUGH, PROBE_LEAF };

__attribute__((noinline, noclone)) static uint64_t leaf(uint64_t value)
{
    __asm__ volatile("" : "+r"(value));
    return value * 3;
}

__attribute__((noinline, noclone)) static uint64_t recurse(uint64_t depth)
{
    __asm__ volatile("" : "+r"(depth));
    return depth == 0 ? 1 : recurse(depth - 1) + leaf(depth);
}

static void *seen[64];
static int seen_count;

static _Unwind_Reason_Code on_frame(struct _Unwind_Context *context, void *opaque)
{
    (void)opaque;
    if (seen_count < 64)
        seen[seen_count++] = (void *)(uintptr_t)_Unwind_GetIP(context);
    return _URC_NO_REASON;
}

static jmp_buf back;
static int cleaned;

static void on_clean(int *value)
{
    cleaned += *value;
}

static _Unwind_Reason_Code on_forced(int version, _Unwind_Action actions,
                                     _Unwind_Exception_Class class,
                                     struct _Unwind_Exception *exception,
                                     struct _Unwind_Context *context, void *opaque)
{
    (void)version, (void)class, (void)exception, (void)opaque;
    uintptr_t cfa = _Unwind_GetCFA(context);
    if (actions & _UA_END_OF_STACK || cfa > (uintptr_t)opaque)
        longjmp(back, 1);
    return _URC_NO_REASON;
}

enum way { WAY_RETURN, WAY_TRACE, WAY_JUMP, WAY_UNWIND };

// Goes down, then home by one of the ways.
__attribute__((noinline, noclone)) static uint64_t through(uint64_t depth, enum way way, void *top)
{
    static struct _Unwind_Exception exception;
    __attribute__((cleanup(on_clean))) int one = 1;
    __asm__ volatile("" : "+r"(depth));
    if (depth)
        return through(depth - 1, way, top) + 1;
    if (way == WAY_TRACE)
        _Unwind_Backtrace(on_frame, NULL);
    if (way == WAY_JUMP)
        longjmp(back, 1);
    if (way == WAY_UNWIND)
        _Unwind_ForcedUnwind(&exception, on_forced, top);
    return leaf(1);
}

static void returns_are_recorded(void)
{
    memset(shared + TL_BLOCK_FIRST_OFF, 0, (size_t)TL_BLOCK_COUNT * STRIDE);
    uint64_t wanted = recurse(20);
    probe_put(address((const void *)(uintptr_t)recurse), TL_ACTION_RECORD, TL_RECORD_HIJACK,
              COUNTER_OFF(PROBE_RECURSE), NULL);
    probe_put(address((const void *)(uintptr_t)leaf), TL_ACTION_RECORD, TL_RECORD_HIJACK,
              COUNTER_OFF(PROBE_LEAF), NULL);
    CHECK(recurse(20) == wanted);
    CHECK(counter(PROBE_RECURSE) == 21 && counter(PROBE_LEAF) == 20);
    for (unsigned i = 0; i < 1000; i++)
        CHECK(recurse(20) == wanted);
    CHECK(counter(PROBE_RECURSE) == 1001 * 21 && counter(PROBE_LEAF) == 1001 * 20);
    CHECK(counter(PROBE_RECURSE + LOST / 8) == 0);
}

__attribute__((noinline, noclone)) static uint64_t way_run(uint64_t depth, enum way way)
{
    int here = 0;
    if (setjmp(back))
        return UINT64_MAX;
    return through(depth, way, &here);
}

extern const void *_Unwind_Find_FDE(void *pc, void *bases);

static void unwinders_see_true_addresses(void)
{
    void *wanted[64];
    int wanted_count;
    seen_count = 0;
    way_run(10, WAY_TRACE);
    wanted_count = seen_count;
    memcpy(wanted, seen, sizeof wanted);
    CHECK(wanted_count > 12);
    probe_put(address((const void *)(uintptr_t)_Unwind_Find_FDE), TL_ACTION_RECORD,
              TL_RECORD_UNWIND, COUNTER_OFF(3), NULL);
    probe_put(address((const void *)(uintptr_t)through), TL_ACTION_RECORD, TL_RECORD_HIJACK,
              COUNTER_OFF(PROBE_THROUGH), NULL);
    seen_count = 0;
    CHECK(way_run(10, WAY_TRACE) == 13);
    CHECK(counter(PROBE_THROUGH) == 11);
    CHECK(seen_count == wanted_count &&
          memcmp(seen, wanted, 12 * sizeof seen[0]) == 0); // up to way_run
    // Frames that a jump leaves behind are not returned from; the next calls are found all the
    // same.
    CHECK(way_run(10, WAY_JUMP) == UINT64_MAX);
    CHECK(counter(PROBE_THROUGH) == 11);
    CHECK(way_run(10, WAY_RETURN) == 13);
    CHECK(counter(PROBE_THROUGH) == 22);
    cleaned = 0;
    CHECK(way_run(10, WAY_UNWIND) == UINT64_MAX);
    CHECK(cleaned == 11);
    CHECK(way_run(10, WAY_RETURN) == 13);
    CHECK(counter(PROBE_THROUGH) == 33 && counter(PROBE_THROUGH + LOST / 8) == 0);
}

static void *recurse_run(void *opaque)
{
    (void)opaque;
    for (unsigned i = 0; i < 2000; i++)
        CHECK(recurse(i % 32) == 1 + 3 * (uint64_t)(i % 32) * (i % 32 + 1) / 2);
    return NULL;
}

static void threads_return_right(void)
{
    pthread_t thread[THREADS];
    uint64_t before = counter(PROBE_LEAF), each = 0;
    for (unsigned i = 0; i < 2000; i++)
        each += i % 32;
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, recurse_run, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    CHECK(counter(PROBE_LEAF) - before == THREADS * each);
    CHECK(counter(PROBE_LEAF + LOST / 8) == 0);
}

// Once ended, no return address is replaced, and what comes is counted as lost.
static void what_has_ended_is_lost(void)
{
    uint64_t before = counter(PROBE_LEAF);
    hijack->ended = 1;
    CHECK(leaf(2) == 6);
    CHECK(counter(PROBE_LEAF) == before && counter(PROBE_LEAF + LOST / 8) == 1);
    hijack->ended = 0;
}

// ---- guards -------------------------------------------------------------------------------------

static volatile uint64_t fault_pc, fault_x2, restorer;
static uint64_t here;

__attribute__((noinline, noclone, used)) static void on_fault(int number, siginfo_t *info,
                                                              void *opaque)
{
    ucontext_t *context = opaque;
    (void)number, (void)info;
    fault_pc = context->uc_mcontext.pc;
    fault_x2 = context->uc_mcontext.regs[2];
    restorer = address(__builtin_return_address(0));
    context->uc_mcontext.regs[1] = address(&here);
}

__attribute__((noinline, noclone, used)) static void on_plain_fault(int number)
{
    __asm__ volatile("" : : "r"(number) : "memory");
}

static uint64_t load(victim site, uint64_t from)
{
    register uint64_t x0 __asm__("x0");
    register uint64_t x1 __asm__("x1") = from;
    register uint64_t x2 __asm__("x2") = 42;
    __asm__ volatile("blr %2"
                     : "=r"(x0), "+r"(x1)
                     : "r"(site), "r"(x2)
                     : "x16", "x17", "x30", "memory", "cc");
    return x0;
}

static void faults_show_the_site(void)
{
    static const uint32_t words[2] = {0xf9400020, 0xd65f03c0}; // ldr x0, [x1]; ret
    static struct tl_fault_row row;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    tl_addr site = place_next, detour_addr;
    here = 4711;
    memcpy((void *)(uintptr_t)site, words, sizeof words);
    place_next += 64;
    sigaction(SIGSEGV, &action, NULL);
    CHECK(load((victim)(uintptr_t)site, 8) == 4711 && fault_pc == site);
    struct tl_detour detour =
        probe_put(site, TL_ACTION_COUNT, TL_RECORD_NONE, COUNTER_OFF(5), &detour_addr);
    row = (struct tl_fault_row){.pc = detour_addr + detour.boundary[0].off, .site = site};
    CHECK(load((victim)(uintptr_t)site, 8) == 4711 && fault_pc == row.pc);
    header->fault_addr = address(&row);
    header->fault_count = 1;
    header->restorer[1] = restorer;
    probe_put(address((const void *)(uintptr_t)on_fault), TL_ACTION_CALL, TL_RECORD_NONE, 0, NULL);
    uint64_t before = counter(5);
    CHECK(load((victim)(uintptr_t)site, 8) == 4711);
    CHECK(fault_pc == site && fault_x2 == 42);
    CHECK(counter(5) == before + 2); // again from the site
    // A handler that the program calls is no handler: nothing is read there.
    ucontext_t fake = {.uc_mcontext = {.pc = row.pc}};
    on_fault(SIGSEGV, NULL, &fake);
    CHECK(fault_pc == row.pc && fake.uc_mcontext.pc == row.pc);
}

// A handler that asks for no information is guarded too; it goes on at its way back.
static void leaving_goes_on_in_the_copy(void)
{
    static const uint32_t words[4] = {0xf9400020, 0xd65f03c0, 0xd2800060,
                                      0xd65f03c0}; // ...; mov x0, #3; ret
    static const uint32_t handler_words[2] = {0xd503201f, 0xd65f03c0};
    static struct tl_fault_row way;
    tl_addr site = place_next, handler = place_next + 32;
    memcpy((void *)(uintptr_t)site, words, sizeof words);
    memcpy((void *)(uintptr_t)handler, handler_words, sizeof handler_words);
    place_next += 64;
    way = (struct tl_fault_row){.pc = site + 8, .site = site};
    header->resume_addr = address(&way);
    header->resume_count = 1;
    probe_put(handler + 4, TL_ACTION_LEAVE, TL_RECORD_NONE, 0, NULL);
    struct sigaction action = {.sa_handler = (void (*)(int))(uintptr_t)handler};
    sigaction(SIGSEGV, &action, NULL);
    CHECK(load((victim)(uintptr_t)site, 8) == 3);
    signal(SIGSEGV, SIG_DFL);
}

// ---- hooks --------------------------------------------------------------------------------------

static volatile uint64_t answered;

static void *listener_run(void *opaque)
{
    struct tl_notice *notice = (struct tl_notice *)(void *)(shared + TL_NOTICES_OFF);
    (void)opaque;
    for (;;) {
        for (size_t i = 0; i < TL_NOTICE_SLOTS; i++) {
            if (__atomic_load_n(&notice[i].state, __ATOMIC_ACQUIRE) != TL_NOTICE_ASKED)
                continue;
            if (notice[i].kind == TL_NOTICE_EXEC && notice[i].argument[0] == 11 &&
                notice[i].argument[1] == 22)
                answered++;
            __atomic_store_n(&notice[i].state, TL_NOTICE_ANSWERED, __ATOMIC_RELEASE);
            return NULL;
        }
        sched_yield();
    }
}

static uint64_t kept[31];

static void hooks_ask_and_keep_all(void)
{
    static const uint32_t words[2] = {0xd503201f, 0xd65f03c0};
    tl_addr site = place_next;
    pthread_t thread;
    memcpy((void *)(uintptr_t)site, words, sizeof words);
    place_next += 64;
    probe_put(site, TL_ACTION_RECORD, TL_RECORD_HOOK, TL_NOTICE_EXEC, NULL);
    CHECK(pthread_create(&thread, NULL, listener_run, NULL) == 0);
    // All registers but x30 have values that are looked at behind the call; x19 leads to them.
    __asm__ volatile("mov x19, %0\n mov x17, %1\n"
                     "mov x0, #11\n mov x1, #22\n mov x2, #102\n mov x3, #103\n mov x4, #104\n"
                     "mov x5, #105\n mov x6, #106\n mov x7, #107\n mov x8, #108\n mov x9, #109\n"
                     "mov x10, #110\n mov x11, #111\n mov x12, #112\n mov x13, #113\n"
                     "mov x14, #114\n mov x15, #115\n mov x16, #116\n mov x18, #118\n"
                     "mov x20, #120\n blr x17\n"
                     "stp x0, x1, [x19]\n stp x2, x3, [x19, #16]\n stp x4, x5, [x19, #32]\n"
                     "stp x6, x7, [x19, #48]\n stp x8, x9, [x19, #64]\n stp x10, x11, [x19, #80]\n"
                     "stp x12, x13, [x19, #96]\n stp x14, x15, [x19, #112]\n"
                     "stp x16, x17, [x19, #128]\n stp x18, x20, [x19, #144]"
                     :
                     : "r"(kept), "r"(site)
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",
                       "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x30",
                       "memory", "cc");
    pthread_join(thread, NULL);
    CHECK(answered == 1 && kept[0] == 11 && kept[1] == 22 && kept[17] == site && kept[16] == 116);
    for (uint64_t i = 2; i < 16; i++)
        CHECK(kept[i] == 100 + i);
    CHECK(kept[18] == 118 && kept[19] == 120);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    install(argv[1]);
    bare = victim_copy();
    traps_are_counted_and_done_right();
    simulators_need_no_slot();
    branches_land_as_they_would();
    foreign_traps_end_the_program();
    returns_are_recorded();
    unwinders_see_true_addresses();
    threads_return_right();
    what_has_ended_is_lost();
    faults_show_the_site();
    leaving_goes_on_in_the_copy();
    hooks_ask_and_keep_all();
    printf("all as it should be\n");
    return 0;
}

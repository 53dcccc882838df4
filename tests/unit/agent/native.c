// The agent's image, run by its processor (or what stands in for it), inside this process: the
// SIGTRAP handler with its simulators and slots, replaced return addresses and the unwinder, guards
// of fault handlers, hooks. Code before and behind is the program's own, in threads that signals
// interrupt. What is in assembler is the instruction set's own (native.h).
//
//   agent-ISA IMAGE [kernel]
//
// kernel: a kernel runs it, and not what stands in for one.
#include "native.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#define THREADS 4
#define CALLS 800u
#define CALLS_KERNEL 100u // in an emulated machine

uint8_t *code, *shared;
struct tl_agent_head head;
struct tl_code_header *header;
struct tl_trap_row rows[2 * SITES_MAX];
size_t row_count;
static uint8_t *control;
static struct tl_hijack_head *hijack;
static tl_addr place_next;

tl_addr address(const void *pointer)
{
    return (tl_addr)(uintptr_t)pointer;
}

uint64_t counter(uint32_t probe)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < TL_BLOCK_COUNT; i++)
        sum += *(const volatile uint64_t *)(void *)(shared + TL_BLOCK_FIRST_OFF + i * STRIDE +
                                                    COUNTER_OFF(probe));
    return sum;
}

// ---- the image ----------------------------------------------------------------------------------

void *map(tl_addr at, size_t size, int prot)
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
    code = map(native_isa.code_addr, CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
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
    head.thread_pointer = native_isa.thread_pointer;
    head.homes_shift = TL_HOMES_SHIFT_DEFAULT;
    head.atomics = native_atomics();
    head.hijack_addr = address(hijack);
    head.hijack_lost = LOST;
    head.hijack_record = head.record_off[TL_RECORD_HIT - 1];
    memcpy(code + IMAGE_OFF, &head, sizeof head);
    *(struct tl_control *)(void *)control = (struct tl_control){
        .live = TL_CONTROL_LIVE,
        .table_addr = address(control) + TL_TABLE_OFF,
        .shared_block = address(shared) + TL_BLOCK_FIRST_OFF + (uint64_t)TL_THREAD_SLOTS * STRIDE,
        .thread_pointer = native_isa.thread_pointer,
    };
    header = (struct tl_code_header *)(void *)code;
    hijack->next = address(hijack);
    hijack->trampoline = address(code) + IMAGE_OFF + head.trampoline_off;
    hijack->range_count = 2;
    const struct tl_range own = {address(__executable_start), address(etext)};
    const struct tl_range copies = {native_isa.code_addr + COPIES_OFF,
                                    native_isa.code_addr + CODE_SIZE};
    bool behind = copies.start > own.start; // they are sorted
    hijack->range[behind] = copies;
    hijack->range[!behind] = own;
    place_next = native_isa.code_addr + COPIES_OFF;
    __builtin___clear_cache((char *)code, (char *)code + CODE_SIZE);
}

// The instructions from insn[0] on are displaced.
static struct tl_emit_in emit_in(enum tl_action action, const struct tl_insn *insn, uint8_t count)
{
    tl_addr agent = native_isa.code_addr + IMAGE_OFF;
    struct tl_emit_in in = {
        .action = action,
        .thread_pointer = native_isa.thread_pointer,
        .table_addr = head.control_addr + TL_TABLE_OFF,
        .control_addr = head.control_addr,
        .homes_addr = head.control_addr + TL_HOMES_OFF,
        .homes_shift = (uint8_t)head.homes_shift,
        .atomics = head.atomics != 0,
        .slow_addr = agent + head.slow_count_off,
        .call_addr = agent + head.fault_off,
        .leave_addr = agent + head.leave_off,
        .insn = insn,
        .insn_count = count,
        .resume_addr = insn[count - 1].addr + insn[count - 1].size,
    };
    for (size_t i = 0; i < TL_RECORD_ENTRIES; i++)
        in.record_addr[i + 1] = agent + head.record_off[i];
    return in;
}

// Puts the detour somewhere; its address. 0: there is none.
static tl_addr detour_put(const struct tl_emit_in *in, struct tl_detour *detour)
{
    tl_addr at = place_next;
    CHECK(native_isa.arch->emit_detour(in, at, detour, NULL) == 0);
    if (detour->refusal != TL_REFUSE_NONE)
        return 0;
    memcpy((void *)(uintptr_t)at, detour->bytes, detour->size);
    __builtin___clear_cache((char *)(uintptr_t)at, (char *)(uintptr_t)at + detour->size);
    place_next += (detour->size + 63u) / 64u * 64u;
    CHECK(place_next < native_isa.code_addr + CODE_SIZE - 0x4000);
    return at;
}

void text_put(tl_addr at, const void *bytes, size_t size)
{
    tl_addr page = (tl_addr)sysconf(_SC_PAGESIZE), start = at / page * page;
    if (at < native_isa.code_addr || at >= native_isa.code_addr + CODE_SIZE) // the program's own
        CHECK(mprotect((void *)(uintptr_t)start, at + size - start,
                       PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    memcpy((void *)(uintptr_t)at, bytes, size);
    __builtin___clear_cache((char *)(uintptr_t)at, (char *)(uintptr_t)at + size);
}

struct tl_insn insn_at(tl_addr at)
{
    struct tl_insn insn;
    CHECK(native_isa.arch->decode((const uint8_t *)(uintptr_t)at, 4, at, &insn) == 0);
    return insn;
}

// Bytes that are run, in a place of their own; its address.
static tl_addr piece_put(const void *bytes, size_t size)
{
    tl_addr at = place_next;
    text_put(at, bytes, size);
    place_next += (size + 63) / 64 * 64;
    return at;
}

static struct tl_detour probe_put(tl_addr at, enum tl_action action, enum tl_record_kind kind,
                                  uint32_t counter_off, tl_addr *detour_addr)
{
    struct tl_insn insn[TL_WINDOW_INSNS_MAX];
    uint8_t jump[TL_INSN_SIZE_MAX], count = 0;
    struct tl_detour detour;
    for (tl_addr next = at; next - at < native_isa.arch->jump_size; next += insn[count++].size)
        insn[count] = insn_at(next);
    struct tl_emit_in in = emit_in(action, insn, count);
    in.record[0] = (struct tl_record){.kind = (uint8_t)kind, .counter_off = counter_off};
    in.counter_off = counter_off;
    tl_addr to = detour_put(&in, &detour);
    CHECK(to && native_isa.arch->emit_jump(at, to, jump));
    text_put(at, jump, native_isa.arch->jump_size);
    if (detour_addr)
        *detour_addr = to;
    return detour;
}

// ---- breakpoints --------------------------------------------------------------------------------

static victim bare, probed;
static struct tl_code_header trap_header;
static bool skipped[SITES_MAX];

static victim victim_copy(void)
{
    return (victim)(uintptr_t)piece_put(native_isa.victim_start,
                                        (size_t)(native_isa.victim_end - native_isa.victim_start));
}

static size_t site_count(void)
{
    return (size_t)(native_isa.sites_end - native_isa.sites);
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
    const struct tl_arch *arch = native_isa.arch;
    victim made = victim_copy();
    CHECK(site_count() <= SITES_MAX);
    for (size_t i = 0; i < site_count(); i++) {
        struct tl_insn insn = insn_at(address((void *)(uintptr_t)made) + native_isa.sites[i]);
        struct tl_emit_in in = emit_in(TL_ACTION_NONE, &insn, 1);
        struct tl_detour slot;
        tl_addr at = detour_put(&in, &slot), next = insn.addr + insn.size;
        skipped[i] = at == 0 && rung != SIMULATE;
        if (skipped[i]) {
            CHECK(native_slotless(&insn));
            continue;
        }
        struct tl_trap_row *row = &rows[row_count++];
        *row = (struct tl_trap_row){.addr = insn.addr, .resume = at, .record_count = 1};
        row->record[0].entry =
            native_isa.code_addr + IMAGE_OFF + head.record_off[TL_RECORD_HIT - 1];
        row->record[0].counter_off = COUNTER_OFF(i);
        row->simulated = rung == SIMULATE;
        CHECK(arch->simulation(&insn, &row->simulation));
        if (rung == STEP && slot.boundary_count > 1) {
            tl_addr end = at + slot.boundary[1].off;
            rows[row_count++] = (struct tl_trap_row){.addr = end, .resume = next};
            text_put(end, arch->breakpoint, arch->breakpoint_size);
        }
        text_put(insn.addr, arch->breakpoint, arch->breakpoint_size);
    }
    return made;
}

void rows_use(void)
{
    qsort(rows, row_count, sizeof rows[0], row_compare);
    trap_header.trap_addr = address(rows);
    trap_header.trap_count = (uint32_t)row_count;
}

// As patch/action.c sets it, by the system call itself: the C library has a restorer of its own.
static void trap_handler_set(void)
{
    const uint64_t mask = ~(UINT64_C(1) << (SIGTRAP - 1) | UINT64_C(1) << (SIGSEGV - 1));
    uint64_t word[4] = {native_isa.code_addr + IMAGE_OFF + head.trap_off,
                        SA_SIGINFO | SA_ONSTACK | SA_NODEFER, mask};
    if (native_isa.restorer) {
        word[1] |= 0x04000000; // SA_RESTORER
        word[2] = native_isa.code_addr + IMAGE_OFF + head.restorer_off;
        word[3] = mask;
    }
    CHECK(syscall(SYS_rt_sigaction, SIGTRAP, word, NULL, 8) == 0);
}

static _Thread_local uint64_t handled;
static uint64_t calls_all, wrong, calls_each = CALLS;

// The next one comes some time after this one has ended: a slow machine gets on too.
static volatile bool alarms;
static const struct itimerval soon = {.it_value = {0, 1000}};

static void on_alarm(int number)
{
    (void)number;
    if (probed(handled) != bare(handled))
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    handled++;
    if (alarms)
        setitimer(ITIMER_REAL, &soon, NULL);
}

static void *thread_run(void *stack)
{
    // Every other thread gets its signals on a stack of their own: the frame is not below the
    // program's.
    const stack_t other = {.ss_sp = stack, .ss_size = 65536, .ss_flags = stack ? 0 : SS_DISABLE};
    sigaltstack(&other, NULL);
    for (uint64_t i = 0; i < calls_each; i++) {
        if (probed(i * UINT64_C(0x9e3779b97f4a7c15)) != bare(i * UINT64_C(0x9e3779b97f4a7c15)))
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    __atomic_fetch_add(&calls_all, calls_each + handled, __ATOMIC_RELAXED);
    return NULL;
}

static void victim_run(void)
{
    pthread_t thread[THREADS];
    static uint8_t stacks[THREADS][65536];
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART | SA_ONSTACK};
    const struct itimerval never = {.it_value = {0, 0}};
    sigset_t alarm;
    calls_all = wrong = handled = 0;
    sigaction(SIGALRM, &action, NULL);
    alarms = true;
    setitimer(ITIMER_REAL, &soon, NULL);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, thread_run, i % 2 ? stacks[i] : NULL) == 0);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    alarms = false;
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
        rows_use();
        memset(shared + TL_BLOCK_FIRST_OFF, 0, (size_t)TL_BLOCK_COUNT * STRIDE);
        victim_run();
        CHECK(wrong == 0);
        for (uint32_t i = 0; i < (uint32_t)site_count(); i++) {
            if (counter(i) != (skipped[i] ? 0 : calls_all)) {
                fprintf(stderr, "%s: site %u: %llu of %llu\n", names[rung], i + 1,
                        (unsigned long long)counter(i), (unsigned long long)calls_all);
                exit(1);
            }
        }
        printf("%s: %llu calls\n", names[rung], (unsigned long long)calls_all);
    }
}

// In the middle of a page nearly everything is done without a slot: here there is none.
static void simulators_need_no_slot(bool kernel)
{
    row_count = 0;
    probed = victim_trapped(SIMULATE);
    rows_use();
    size_t without = 0;
    for (size_t i = 0; i < row_count; i++) {
        struct tl_insn insn = insn_at(address((const void *)(uintptr_t)bare) + rows[i].addr -
                                      address((const void *)(uintptr_t)probed));
        if (native_alone(&insn, kernel)) {
            rows[i].resume = 0;
            without++;
        }
    }
    CHECK(without >= native_isa.alone_min);
    printf("alone: %zu of %zu\n", without, row_count);
    uint8_t *stack = (uint8_t *)map(0, 0x20000, PROT_READ | PROT_WRITE) + 0x18000 + 2048;
    CHECK(native_call_on(probed, stack) == bare(77));
}

// A trap that is nobody's ends the program as it would have, with the trap's own registers.
static void foreign_traps_end_the_program(void)
{
    tl_addr trap = piece_put(native_isa.arch->breakpoint, native_isa.arch->breakpoint_size);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        ((void (*)(void))(uintptr_t)trap)();
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

static volatile uint64_t fault_pc, fault_third, restorer;
static uint64_t here;

__attribute__((noinline, noclone, used)) static void on_fault(int number, siginfo_t *info,
                                                              void *opaque)
{
    ucontext_t *context = opaque;
    (void)number, (void)info;
    fault_pc = *native_pc(context);
    fault_third = *native_argument(context, 2);
    restorer = address(__builtin_return_address(0));
    *native_argument(context, 1) = address(&here);
}

__attribute__((noinline, noclone, used)) static void on_plain_fault(int number)
{
    __asm__ volatile("" : : "r"(number) : "memory");
}

static void faults_show_the_site(void)
{
    static struct tl_fault_row row;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    tl_addr site = piece_put(native_isa.load, native_isa.load_size), detour_addr;
    here = 4711;
    sigaction(SIGSEGV, &action, NULL);
    CHECK(native_load(site, 8) == 4711 && fault_pc == site);
    struct tl_detour detour =
        probe_put(site, TL_ACTION_COUNT, TL_RECORD_NONE, COUNTER_OFF(5), &detour_addr);
    row = (struct tl_fault_row){.pc = detour_addr + detour.boundary[0].off, .site = site};
    CHECK(native_load(site, 8) == 4711 && fault_pc == row.pc);
    header->fault_addr = address(&row);
    header->fault_count = 1;
    header->restorer[1] = restorer;
    probe_put(address((const void *)(uintptr_t)on_fault), TL_ACTION_CALL, TL_RECORD_NONE, 0, NULL);
    uint64_t before = counter(5);
    CHECK(native_load(site, 8) == 4711);
    CHECK(fault_pc == site && fault_third == 42);
    CHECK(counter(5) == before + 2); // again from the site
    // A handler that the program calls is no handler: nothing is read there.
    ucontext_t fake;
    memset(&fake, 0, sizeof fake);
    *native_pc(&fake) = row.pc;
    on_fault(SIGSEGV, NULL, &fake);
    CHECK(fault_pc == row.pc && *native_pc(&fake) == row.pc);
}

// A handler that asks for no information is guarded too; it goes on at its way back.
static void leaving_goes_on_in_the_copy(void)
{
    static struct tl_fault_row way;
    tl_addr site = piece_put(native_isa.load, native_isa.load_size);
    tl_addr three = piece_put(native_isa.three, native_isa.three_size);
    tl_addr handler = piece_put(native_isa.nothing, native_isa.nothing_size);
    way = (struct tl_fault_row){.pc = three, .site = site};
    header->resume_addr = address(&way);
    header->resume_count = 1;
    probe_put(handler + native_isa.nothing_first, TL_ACTION_LEAVE, TL_RECORD_NONE, 0, NULL);
    struct sigaction action = {.sa_handler = (void (*)(int))(uintptr_t)handler};
    sigaction(SIGSEGV, &action, NULL);
    CHECK(native_load(site, 8) == 3);
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

static void hooks_ask_and_keep_all(void)
{
    tl_addr site = piece_put(native_isa.nothing, native_isa.nothing_size);
    pthread_t thread;
    probe_put(site, TL_ACTION_RECORD, TL_RECORD_HOOK, TL_NOTICE_EXEC, NULL);
    CHECK(pthread_create(&thread, NULL, listener_run, NULL) == 0);
    CHECK(native_keeps_all(site));
    pthread_join(thread, NULL);
    CHECK(answered == 1);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 || (argc == 3 && strcmp(argv[2], "kernel") == 0));
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3)
        calls_each = CALLS_KERNEL;
    install(argv[1]);
    bare = victim_copy();
    traps_are_counted_and_done_right();
    simulators_need_no_slot(argc == 3);
    foreign_traps_end_the_program();
    returns_are_recorded();
    unwinders_see_true_addresses();
    threads_return_right();
    what_has_ended_is_lost();
    faults_show_the_site();
    leaving_goes_on_in_the_copy();
    hooks_ask_and_keep_all();
    native_more();
    printf("all as it should be\n");
    return 0;
}

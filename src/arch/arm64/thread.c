// arm64 for attach: a stopped thread's registers and the boot stub.
//
// Pure, but for what the kernel says of this processor; builds on any host. Invariant: code that
// tl_stub_build writes touches no memory, no flag and no register that it does not set to its value at home.
// No instruction of arm64 jumps anywhere without a register, so the stub lies where a branch leads home:
// within 128 MiB, in the vDSO or behind some library's code.
#include "arch/arm64/kernel_registers.h"
#include "attach/isa.h"
#include "attach/target.h"
#include "emit/emit.h"

#include <elf.h>
#include <string.h>
#include <sys/auxv.h>

// struct user_pt_regs: regs[31], sp, pc, pstate (arch/arm64/include/uapi/asm/ptrace.h, Linux 6.12); then ours.
enum {
    REG_NR = 8, // the system call's number
    REG_LR = 30,
    WORD_SP = 31,
    WORD_PC = 32,
    WORD_PSTATE = 33,
    WORD_COUNT = 34,
    WORD_TLS = WORD_COUNT,  // NT_ARM_TLS
    WORD_CALL,              // number + 1 of the call that the thread was stopped in; 0: none
    WORD_ARGUMENT,          // its first argument
};
_Static_assert(WORD_ARGUMENT < TL_REGS_WORDS_MAX, "registers fit");

#define INSN_SIZE 4u
#define PSTATE_BTYPE UINT64_C(0xc00) // Arm ARM, SPSR_EL1
#define NOTE_TLS 0x401u          // NT_ARM_TLS, linux/elf.h
#define NOTE_SYSTEM_CALL 0x404u  // NT_ARM_SYSTEM_CALL
#define NOTE_SVE 0x405u          // NT_ARM_SVE
#define NOTE_SSVE 0x40bu         // NT_ARM_SSVE

// System call numbers of the generic table (asm-generic/unistd.h, Linux 6.12).
enum {
    NR_EXIT = 93,
    NR_EXIT_GROUP = 94,
    NR_RESTART_SYSCALL = 128,
    NR_RT_SIGRETURN = 139,
    NR_GETPID = 172,
    NR_CLONE = 220,
    NR_EXECVE = 221,
    NR_EXECVEAT = 281,
    NR_CLONE3 = 435,
};

// The kernel's own return values, never seen by user code (include/linux/errno.h, Linux 6.18).
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516
#define EINTR_USER 4

#define CODE_SVC 0xd4000001u     // svc #0
#define CODE_BRANCH 0x14000000u  // b
#define CODE_LOAD 0x58000000u    // ldr xN, literal
#define CODE_BRANCH_REACH ((INT64_C(1) << 25) * 4)

const uint16_t tl_machine = EM_AARCH64;
// The pc that it reports is its own. gdb's immediate, 0: nobody's in the kernel or a C library.
const struct tl_breakpoint tl_breakpoint = {{0x00, 0x00, 0x20, 0xd4}, INSN_SIZE, 0};
const struct tl_regs_more tl_regs_more = {NOTE_TLS, WORD_TLS, 8};
const struct tl_call_insn tl_call_insn = {{0x01, 0x00, 0x00, 0xd4}, INSN_SIZE};
const long tl_call_nothing = NR_GETPID;
// A call throws away what SVE has beyond the vector registers, and leaves streaming mode (Linux,
// Documentation/arch/arm64/sve.rst and sme.rst, "System call behaviour").
const struct tl_vector_note tl_vector_note[TL_VECTOR_NOTES] = {{NOTE_SSVE, false}, {NOTE_SVE, true}};
// struct pthread lies right below the thread pointer, and before it maybe nothing; its size is another in
// some glibc. Known: 2.41.
const struct tl_tid_place tl_tid_place = {{-1616}, -1792, 0};
// mov x8, #139; svc #0 (arch/arm64/kernel/vdso/sigreturn.S, Linux 6.12)
const struct tl_sigreturn_code tl_sigreturn_code = {
    {0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4}, 8};
const int tl_kernel_args[6] = TL_KERNEL_REGISTER_ARGS;
const int tl_kernel_return = TL_KERNEL_REGISTER_RETURN;

tl_addr tl_regs_pc(const struct tl_regs *regs)
{
    return regs->word[WORD_PC];
}

tl_addr tl_regs_sp(const struct tl_regs *regs)
{
    return regs->word[WORD_SP];
}

tl_addr tl_regs_link(const struct tl_regs *regs)
{
    return regs->word[REG_LR];
}

uint64_t tl_regs_thread_pointer(const struct tl_regs *regs)
{
    return regs->word[WORD_TLS];
}

void tl_regs_set_pc(struct tl_regs *regs, tl_addr pc)
{
    regs->word[WORD_PC] = pc;
}

// A 32-bit thread gives a set of another size.
bool tl_regs_native(const struct tl_regs *regs)
{
    return regs->size == WORD_COUNT * sizeof regs->word[0];
}

// ---- the thread's own calls ---------------------------------------------------------------------

long tl_regs_call_number(const struct tl_regs *regs)
{
    return (long)regs->word[WORD_CALL] - 1;
}

int64_t tl_regs_call_result(const struct tl_regs *regs)
{
    return (int64_t)regs->word[0];
}

uint64_t tl_regs_call_first_argument(const struct tl_regs *regs)
{
    return regs->word[WORD_ARGUMENT];
}

bool tl_regs_call_restarts(const struct tl_regs *regs)
{
    int64_t result = tl_regs_call_result(regs);
    return tl_regs_call_number(regs) >= 0 &&
           (result == -ERESTARTSYS || result == -ERESTARTNOINTR || result == -ERESTARTNOHAND ||
            result == -ERESTART_RESTARTBLOCK);
}

// Calls that return EINTR to user code whenever they are woken by a stop, though they have done
// nothing yet (signal(7), "never restarted"; sockets with a timeout return it too).
static bool number_reissuable(long number)
{
    static const short numbers[] = {
        4,   // io_getevents
        22,  // epoll_pwait
        63,  64,  65,  66,  // read, write, readv, writev
        72,  73,  // pselect6, ppoll
        137, // rt_sigtimedwait
        188, 189, // msgrcv, msgsnd
        192, 193, // semtimedop, semop
        202, 203, 206, 207, 211, 212, // accept, connect, sendto, recvfrom, sendmsg, recvmsg
        242, 243, // accept4, recvmmsg
        269, // sendmmsg
        292, // io_pgetevents
        426, // io_uring_enter
        441, // epoll_pwait2
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(numbers); i++) {
        if (numbers[i] == number)
            return true;
    }
    return false;
}

bool tl_regs_call_reissuable(const struct tl_regs *regs)
{
    return tl_regs_call_result(regs) == -EINTR_USER &&
           number_reissuable(tl_regs_call_number(regs));
}

void tl_regs_reissue(struct tl_regs *regs)
{
    if (tl_regs_call_result(regs) == -ERESTART_RESTARTBLOCK)
        regs->word[REG_NR] = NR_RESTART_SYSCALL; // as the kernel does it
    regs->word[0] = regs->word[WORD_ARGUMENT];
    regs->word[WORD_PC] -= INSN_SIZE;
    regs->word[WORD_CALL] = 0;
}

bool tl_regs_call_ordinary(const struct tl_regs *begun)
{
    switch (begun->word[REG_NR]) {
    case NR_EXIT:
    case NR_EXIT_GROUP:
    case NR_RT_SIGRETURN:
    case NR_CLONE:
    case NR_CLONE3:
    case NR_EXECVE:
    case NR_EXECVEAT:
        return false;
    default:
        return true;
    }
}

// x7 says in such a stop which of the two it is, and what is written to it is lost (report_syscall_enter
// and _exit, arch/arm64/kernel/ptrace.c, Linux 6.12).
void tl_regs_call_ended(struct tl_regs *ended, const struct tl_regs *begun,
                        const struct tl_regs *before)
{
    ended->word[7] = before->word[7];
    ended->word[WORD_CALL] = begun->word[REG_NR] + 1;
    ended->word[WORD_ARGUMENT] = begun->word[0];
}

bool tl_regs_call_suspected(const struct tl_regs *regs)
{
    return tl_regs_call_result(regs) == -EINTR_USER &&
           number_reissuable((long)regs->word[REG_NR]);
}

long tl_regs_call_suspect(const struct tl_regs *regs)
{
    return (long)regs->word[REG_NR];
}

void tl_regs_call_known(struct tl_regs *regs, long number, uint64_t first_argument)
{
    regs->word[WORD_CALL] = (uint64_t)number + 1;
    regs->word[WORD_ARGUMENT] = first_argument;
}

// The kernel restarts a call by a first argument that only it knows, and that the next call replaces.
void tl_regs_settled(const struct tl_regs *home, struct tl_regs *out)
{
    *out = *home;
    if (tl_regs_call_restarts(home))
        tl_regs_reissue(out);
}

// It decides before it takes the signal, so the decision is made for it. Whether the handler wants its
// calls restarted can't be seen: a call that it would not restart in any case ends.
void tl_regs_signalled(const struct tl_regs *home, bool caught, struct tl_regs *out)
{
    int64_t result = tl_regs_call_result(home);
    bool ends = caught && (result == -ERESTARTNOHAND || result == -ERESTART_RESTARTBLOCK);
    tl_regs_settled(home, out);
    if (!ends || !tl_regs_call_restarts(home))
        return;
    *out = *home;
    out->word[0] = (uint64_t)-EINTR_USER;
    out->word[WORD_CALL] = 0;
}

// ---- vector registers ---------------------------------------------------------------------------

// struct user_sve_header: size, max_size (32 bits), vl, max_vl, flags, reserved (16 bits).
bool tl_vector_live(const uint8_t head[TL_VECTOR_HEAD])
{
    enum { FLAGS_OFF = 12, REGS_SVE = 1 }; // SVE_PT_REGS_SVE
    return head[FLAGS_OFF] & REGS_SVE;
}

size_t tl_vector_size(const uint8_t head[TL_VECTOR_HEAD])
{
    uint32_t size;
    memcpy(&size, head, sizeof size);
    return size;
}

// ---- launching and executing --------------------------------------------------------------------

unsigned tl_regs_skip_call(struct tl_regs *regs, tl_addr pc)
{
    regs->word[WORD_PC] = pc;
    return NOTE_SYSTEM_CALL;
}

bool tl_regs_call_execs(const struct tl_regs *regs, struct tl_exec_call *out)
{
    if (regs->word[REG_NR] == NR_EXECVE)
        *out = (struct tl_exec_call){TL_EXEC_CWD, regs->word[0]};
    else if (regs->word[REG_NR] == NR_EXECVEAT)
        *out = (struct tl_exec_call){(int)regs->word[0], regs->word[1]};
    else
        return false;
    return true;
}

// ---- the stub -----------------------------------------------------------------------------------
//
//   svc #0
//   ldr x0, .. ; ... ; ldr x5, .. ; ldr x8, ..     what a call of ours changes; x0 also the kernel
//   b home                                         or, too far: ldr x16, .. ; br x16
//   (8-byte aligned) x0 .. x5, x8, home
//
// The far way is for a program's entry, where nothing is in x16, and a landing pad takes br x16.
// An ldr of a literal and b leave flags and memory alone; PSTATE.BTYPE is 0 behind them, with which any
// instruction may run. On the normal path the controller sets it to what it was.

static const uint8_t stub_regs[] = {0, 1, 2, 3, 4, 5, REG_NR};
#define STUB_LOADS TL_ARRAY_COUNT(stub_regs)
#define STUB_BRANCH_OFF ((1 + STUB_LOADS) * INSN_SIZE)
#define STUB_LITERALS_OFF ((STUB_BRANCH_OFF + 2 * INSN_SIZE + 7u) & ~(size_t)7)
#define STUB_HOME_OFF (STUB_LITERALS_OFF + STUB_LOADS * 8u)
#define STUB_SIZE (STUB_HOME_OFF + 8u)
#define STUB_FAR_LOAD (CODE_LOAD | (uint32_t)((STUB_HOME_OFF - STUB_BRANCH_OFF) / INSN_SIZE) << 5 | 16u)
#define STUB_FAR_BRANCH 0xd61f0200u // br x16
_Static_assert(STUB_SIZE <= TL_STUB_SIZE_MAX, "stub fits");

static void put_insn(uint8_t *at, uint32_t insn)
{
    memcpy(at, &insn, sizeof insn);
}

static uint32_t get_insn(const uint8_t *at)
{
    uint32_t insn;
    memcpy(&insn, at, sizeof insn);
    return insn;
}

// The load of stub register `index`: Arm ARM, LDR (literal).
static uint32_t stub_load(size_t index)
{
    size_t at = (1 + index) * INSN_SIZE, literal = STUB_LITERALS_OFF + index * 8;
    return CODE_LOAD | (uint32_t)((literal - at) / INSN_SIZE) << 5 | stub_regs[index];
}

void tl_regs_make_call(const struct tl_regs *home, tl_addr stub_addr, long nr,
                       const uint64_t args[6], struct tl_regs *out)
{
    struct tl_regs call = *home;
    for (size_t i = 0; i < 6; i++)
        call.word[i] = args[i];
    call.word[REG_NR] = (uint64_t)nr;
    call.word[WORD_PC] = stub_addr;
    call.word[WORD_PSTATE] &= ~PSTATE_BTYPE; // the stub has no landing pad
    *out = call;
}

// The branch lies inside the stub, and home may be the instruction before pc: the margin is for both.
bool tl_stub_reaches(tl_addr stub_addr, tl_addr pc)
{
    int64_t far = (int64_t)(pc - stub_addr);
    return far >= -CODE_BRANCH_REACH + TL_STUB_SIZE_MAX && far < CODE_BRANCH_REACH;
}

size_t tl_stub_build(const struct tl_regs *home, tl_addr stub_addr, uint8_t out[TL_STUB_SIZE_MAX])
{
    struct tl_regs settled;
    tl_regs_settled(home, &settled);
    memset(out, 0, STUB_SIZE);
    put_insn(out, CODE_SVC);
    for (size_t i = 0; i < STUB_LOADS; i++) {
        put_insn(out + (1 + i) * INSN_SIZE, stub_load(i));
        memcpy(out + STUB_LITERALS_OFF + i * 8, &settled.word[stub_regs[i]], 8);
    }
    memcpy(out + STUB_HOME_OFF, &settled.word[WORD_PC], 8);
    int64_t far = (int64_t)(settled.word[WORD_PC] - (stub_addr + STUB_BRANCH_OFF));
    if (tl_stub_reaches(stub_addr, home->word[WORD_PC])) {
        put_insn(out + STUB_BRANCH_OFF, CODE_BRANCH | ((uint32_t)(far / INSN_SIZE) & 0x3ffffffu));
    } else {
        put_insn(out + STUB_BRANCH_OFF, STUB_FAR_LOAD);
        put_insn(out + STUB_BRANCH_OFF + INSN_SIZE, STUB_FAR_BRANCH);
    }
    return STUB_SIZE;
}

size_t tl_stub_match(const uint8_t *bytes, size_t size)
{
    if (size < STUB_SIZE || get_insn(bytes) != CODE_SVC)
        return 0;
    uint32_t leaves = get_insn(bytes + STUB_BRANCH_OFF);
    if ((leaves & 0xfc000000u) != CODE_BRANCH && leaves != STUB_FAR_LOAD)
        return 0;
    for (size_t i = 0; i < STUB_LOADS; i++) {
        if (get_insn(bytes + (1 + i) * INSN_SIZE) != stub_load(i))
            return 0;
    }
    return STUB_SIZE;
}

tl_addr tl_stub_home(const uint8_t *bytes, tl_addr addr)
{
    tl_addr home;
    (void)addr;
    memcpy(&home, bytes + STUB_HOME_OFF, sizeof home);
    return home;
}

// At its start a program has nothing in x8 to x18, and a function pointer in x0 (AAPCS64; glibc,
// sysdeps/aarch64/start.S).
static const uint32_t entry_code[] = {
    0xd50324df,                    // bti jc: the loader comes by an indirect branch
    CODE_LOAD | 11u << 5 | 16u,    // ldr x16, entry
    CODE_LOAD | 12u << 5 | 17u,    // ldr x17, entry_word
    0xf9000230,                    // str x16, [x17]
    0xaa0003f1,                    // mov x17, x0
    0xd2800008 | NR_GETPID << 5,   // mov x8, #number
    CODE_SVC,
    0xaa1103e0,                    // mov x0, x17
    CODE_LOAD | 4u << 5 | 16u,     // ldr x16, entry
    0xd61f0200,                    // br x16
    0xd503201f,                    // nop
};
#define ENTRY_LITERALS_OFF 48u // word 12: the loads at words 1, 2 and 8 count from themselves
#define ENTRY_CALL_END 28u

size_t tl_entry_stub_build(tl_addr entry, tl_addr entry_word, uint8_t out[TL_STUB_SIZE_MAX])
{
    memset(out, 0, ENTRY_LITERALS_OFF);
    for (size_t i = 0; i < TL_ARRAY_COUNT(entry_code); i++)
        put_insn(out + i * INSN_SIZE, entry_code[i]);
    memcpy(out + ENTRY_LITERALS_OFF, &entry, sizeof entry);
    memcpy(out + ENTRY_LITERALS_OFF + 8, &entry_word, sizeof entry_word);
    return ENTRY_LITERALS_OFF + 16;
}

tl_addr tl_entry_stub_pc(tl_addr stub)
{
    return stub + ENTRY_CALL_END;
}

// ---- what else patch asks -----------------------------------------------------------------------

#define CAP_ATOMICS (UINT64_C(1) << 8)  // HWCAP_ATOMICS, asm/hwcap.h
#define CAP_GCS (UINT64_C(1) << 32)     // HWCAP_GCS
#define CAP2_BTI (UINT64_C(1) << 17)    // HWCAP2_BTI

int tl_thread_pointer_way(bool word)
{
    (void)word;
    return TL_TP_TPIDR;
}

bool tl_atomics_there(uint64_t hwcap)
{
    return (hwcap & CAP_ATOMICS) != 0;
}

bool tl_pages_marked(void)
{
    return (getauxval(AT_HWCAP2) & CAP2_BTI) != 0 || (getauxval(AT_HWCAP) & CAP_GCS) != 0;
}

// x86-64 for attach: a stopped thread's registers and the boot stub.
//
// Pure but for the layout of struct user_regs_struct. Invariant: code that tl_stub_build writes
// touches no memory, no flag and no register that it does not set to its value at home.
#include "arch/x86_64/kernel_registers.h"
#include "attach/isa.h"
#include "attach/target.h"
#include "emit/emit.h"

#include <elf.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/user.h>

#define CS_USER_64 0x33u // __USER_CS, arch/x86/include/asm/segment.h, Linux 6.18
#define SYSCALL_SIZE 2u  // 0f 05

// The kernel's own return values, never seen by user code (include/linux/errno.h, Linux 6.18).
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516
#define EINTR_USER 4

#define STUB_MOVES 9
#define MOVE_SIZE 10u // rex.w b8+r imm64
#define STUB_ROOM 128u
#define STUB_SIZE (SYSCALL_SIZE + STUB_MOVES * MOVE_SIZE + 6u + 8u)

_Static_assert(sizeof(struct user_regs_struct) <= TL_REGS_WORDS_MAX * 8, "registers fit");
_Static_assert(STUB_SIZE <= STUB_ROOM && STUB_ROOM <= TL_STUB_SIZE_MAX, "stub fits");

const uint16_t tl_machine = EM_X86_64;
const struct tl_breakpoint tl_breakpoint = {{0xcc}, 1, 1}; // int3
const struct tl_regs_more tl_regs_more = {0};
const struct tl_call_insn tl_call_insn = {.size = 0};
const long tl_call_nothing = SYS_getpid;
const struct tl_vector_note tl_vector_note[TL_VECTOR_NOTES] = {{0}};
const size_t tl_vector_head = 0;
const struct tl_stub_needs tl_stub_needs = {.room = STUB_ROOM};
// glibc, nptl/descr.h, struct pthread; musl, pthread_impl.h. The pointer's own word comes first.
const struct tl_tid_place tl_tid_place = {{0x2d0, 0x30}, 8, 2048};
const bool tl_signal_restorer = true;
const uint64_t tl_place_distance = UINT64_C(4) << 30;
const struct tl_sigreturn_code tl_sigreturn_code = {.size = 0}; // a handler has a restorer
const int tl_kernel_args[6] = TL_KERNEL_REGISTER_ARGS;
const int tl_kernel_return = TL_KERNEL_REGISTER_RETURN;

static struct user_regs_struct regs_user(const struct tl_regs *regs)
{
    struct user_regs_struct user;
    memcpy(&user, regs->word, sizeof user);
    return user;
}

static void regs_store(struct tl_regs *regs, const struct user_regs_struct *user)
{
    memcpy(regs->word, user, sizeof *user);
    regs->size = sizeof *user;
}

tl_addr tl_regs_pc(const struct tl_regs *regs)
{
    return regs_user(regs).rip;
}

tl_addr tl_regs_sp(const struct tl_regs *regs)
{
    return regs_user(regs).rsp;
}

tl_addr tl_regs_link(const struct tl_regs *regs)
{
    (void)regs;
    return 0;
}

uint64_t tl_regs_thread_pointer(const struct tl_regs *regs)
{
    return regs_user(regs).fs_base;
}

void tl_regs_set_pc(struct tl_regs *regs, tl_addr pc)
{
    struct user_regs_struct user = regs_user(regs);
    user.rip = pc;
    regs_store(regs, &user);
}

void tl_regs_set_link(struct tl_regs *regs, tl_addr link)
{
    (void)regs, (void)link; // calls leave it on the stack
}

const struct tl_saved_regs tl_saved_regs = {0, 0, 0};

bool tl_saved_regs_are(const uint8_t *bytes, tl_addr *pc, tl_addr *sp)
{
    (void)bytes, (void)pc, (void)sp;
    return false;
}

bool tl_regs_native(const struct tl_regs *regs)
{
    return regs->size == sizeof(struct user_regs_struct) && regs_user(regs).cs == CS_USER_64;
}

long tl_regs_call_number(const struct tl_regs *regs)
{
    return (long)regs_user(regs).orig_rax;
}

int64_t tl_regs_call_result(const struct tl_regs *regs)
{
    return (int64_t)regs_user(regs).rax;
}

// Calls that return EINTR to user code whenever they are woken by a stop, though they have done
// nothing yet (signal(7), "never restarted"; sockets with a timeout return it too).
bool tl_regs_call_reissuable(const struct tl_regs *regs)
{
    static const short numbers[] = {
        SYS_epoll_wait,   SYS_epoll_pwait,     SYS_epoll_pwait2,   SYS_semop,
        SYS_semtimedop,   SYS_recvfrom,        SYS_recvmsg,        SYS_recvmmsg,
        SYS_sendto,       SYS_sendmsg,         SYS_sendmmsg,       SYS_accept,
        SYS_accept4,      SYS_connect,         SYS_read,           SYS_write,
        SYS_readv,        SYS_writev,          SYS_msgrcv,         SYS_msgsnd,
        SYS_poll,         SYS_ppoll,           SYS_select,         SYS_pselect6,
        SYS_io_getevents, SYS_rt_sigtimedwait, SYS_io_uring_enter, SYS_io_pgetevents,
    };
    long number = tl_regs_call_number(regs);
    if (number < 0 || tl_regs_call_result(regs) != -EINTR_USER)
        return false;
    for (size_t i = 0; i < TL_ARRAY_COUNT(numbers); i++) {
        if (numbers[i] == number)
            return true;
    }
    return false;
}

bool tl_regs_call_restarts(const struct tl_regs *regs)
{
    int64_t result = tl_regs_call_result(regs);
    return tl_regs_call_number(regs) >= 0 &&
           (result == -ERESTARTSYS || result == -ERESTARTNOINTR || result == -ERESTARTNOHAND ||
            result == -ERESTART_RESTARTBLOCK);
}

void tl_regs_reissue(struct tl_regs *regs)
{
    struct user_regs_struct user = regs_user(regs);
    bool block = (int64_t)user.rax == -ERESTART_RESTARTBLOCK;
    user.rax = block ? SYS_restart_syscall : user.orig_rax;
    user.orig_rax = UINT64_MAX;
    user.rip -= SYSCALL_SIZE;
    regs_store(regs, &user);
}

// ---- the registers say all that the kernel knows of a call --------------------------------------

bool tl_regs_call_ordinary(const struct tl_regs *begun)
{
    (void)begun;
    return true;
}

void tl_regs_call_ended(struct tl_regs *ended, const struct tl_regs *begun,
                        const struct tl_regs *before)
{
    (void)ended;
    (void)begun;
    (void)before;
}

bool tl_regs_call_suspected(const struct tl_regs *regs)
{
    (void)regs;
    return false;
}

long tl_regs_call_suspect(const struct tl_regs *regs)
{
    return tl_regs_call_number(regs);
}

void tl_regs_call_known(struct tl_regs *regs, long number, uint64_t first_argument)
{
    (void)regs;
    (void)number;
    (void)first_argument;
}

uint64_t tl_regs_call_first_argument(const struct tl_regs *regs)
{
    return regs_user(regs).rdi;
}

void tl_regs_settled(const struct tl_regs *home, struct tl_regs *out)
{
    *out = *home;
}

void tl_regs_signalled(const struct tl_regs *home, bool caught, struct tl_regs *out)
{
    (void)caught;
    *out = *home;
}

bool tl_vector_live(const uint8_t *set, size_t size)
{
    (void)set;
    (void)size;
    return false; // a call leaves vector registers alone
}

size_t tl_vector_size(const uint8_t *head)
{
    (void)head;
    return 0;
}

// ---- calls of ours ------------------------------------------------------------------------------

void tl_regs_make_call(const struct tl_regs *home, tl_addr stub_addr, long nr,
                       const uint64_t args[6], struct tl_regs *out)
{
    struct user_regs_struct user = regs_user(home);
    user.rip = stub_addr;
    user.rax = (uint64_t)nr;
    user.orig_rax = UINT64_MAX; // no system call to restart
    user.rdi = args[0];
    user.rsi = args[1];
    user.rdx = args[2];
    user.r10 = args[3];
    user.r8 = args[4];
    user.r9 = args[5];
    regs_store(out, &user);
}

unsigned tl_regs_skip_call(struct tl_regs *regs, tl_addr pc)
{
    struct user_regs_struct user = regs_user(regs);
    user.orig_rax = UINT64_MAX; // no call of that number: none is made
    user.rax = 0;
    user.rip = pc;
    regs_store(regs, &user);
    return 0;
}

bool tl_call_execs(uint64_t number, const uint64_t args[6], struct tl_exec_call *out)
{
    if (number == SYS_execve)
        *out = (struct tl_exec_call){TL_EXEC_CWD, args[0]};
    else if (number == SYS_execveat)
        *out = (struct tl_exec_call){(int)args[0], args[1]};
    else
        return false;
    return true;
}

// movabs $value, %reg (Intel SDM 2, MOV, REX.W + B8+rd io).
static uint8_t *put_move(uint8_t *at, unsigned reg, uint64_t value)
{
    *at++ = (uint8_t)(0x48u | (reg >> 3));
    *at++ = (uint8_t)(0xb8u | (reg & 7u));
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

// The registers of the stub's moves, in order: rax rcx rdx rsi rdi r8 r9 r10 r11.
static const uint8_t move_order[STUB_MOVES] = {0, 1, 2, 6, 7, 8, 9, 10, 11};

bool tl_stub_reaches(tl_addr stub_addr, tl_addr pc)
{
    (void)stub_addr;
    (void)pc;
    return true;
}

size_t tl_stub_build(const struct tl_regs *home, const struct tl_stub_more *more, tl_addr stub_addr,
                     uint8_t out[TL_STUB_SIZE_MAX])
{
    struct tl_regs settled = *home;
    (void)more;
    (void)stub_addr;
    if (tl_regs_call_restarts(home))
        tl_regs_reissue(&settled);
    struct user_regs_struct user = regs_user(&settled);
    const uint64_t values[STUB_MOVES] = {user.rax, user.rcx, user.rdx, user.rsi, user.rdi,
                                         user.r8,  user.r9,  user.r10, user.r11};
    uint8_t *at = out;
    *at++ = 0x0f; // syscall
    *at++ = 0x05;
    for (size_t i = 0; i < STUB_MOVES; i++)
        at = put_move(at, move_order[i], values[i]);
    memcpy(at, "\xff\x25\0\0\0\0", 6); // jmp *0(%rip)
    at += 6;
    memcpy(at, &user.rip, sizeof user.rip);
    at += sizeof user.rip;
    return (size_t)(at - out);
}

#define ENTRY_CALL_SIZE 27u // up to the end of the system call instruction

size_t tl_entry_stub_build(tl_addr entry, tl_addr entry_word, uint8_t out[TL_STUB_SIZE_MAX])
{
    uint8_t *at = put_move(out, 0, entry);
    *at++ = 0x48; // mov %rax, entry_word (Intel SDM 2, MOV, REX.W + A3)
    *at++ = 0xa3;
    memcpy(at, &entry_word, sizeof entry_word);
    at += sizeof entry_word;
    const uint32_t number = SYS_getpid;
    *at++ = 0xb8; // mov $number, %eax
    memcpy(at, &number, sizeof number);
    at += sizeof number;
    memcpy(at, "\x0f\x05\xff\x25\0\0\0\0", 8); // syscall; jmp *0(%rip)
    at += 8;
    memcpy(at, &entry, sizeof entry);
    return (size_t)(at - out) + sizeof entry;
}

tl_addr tl_entry_stub_pc(tl_addr stub)
{
    return stub + ENTRY_CALL_SIZE;
}

size_t tl_stub_match(const uint8_t *bytes, size_t size)
{
    if (size < STUB_SIZE || bytes[0] != 0x0f || bytes[1] != 0x05)
        return 0;
    for (size_t i = 0; i < STUB_MOVES; i++) {
        const uint8_t *move = bytes + SYSCALL_SIZE + i * MOVE_SIZE;
        if (move[0] != (0x48u | (move_order[i] >> 3)) || move[1] != (0xb8u | (move_order[i] & 7u)))
            return 0;
    }
    const uint8_t *jump = bytes + SYSCALL_SIZE + STUB_MOVES * MOVE_SIZE;
    return memcmp(jump, "\xff\x25\0\0\0\0", 6) == 0 ? STUB_SIZE : 0;
}

tl_addr tl_stub_home(const uint8_t *bytes, tl_addr addr)
{
    tl_addr home;
    (void)addr;
    memcpy(&home, bytes + STUB_SIZE - sizeof home, sizeof home);
    return home;
}

// ---- what else patch asks -----------------------------------------------------------------------

const uint8_t tl_branch_size = 0;

#define HWCAP2_FSGSBASE 2u // asm/hwcap2.h

int tl_thread_pointer_way(bool word)
{
    if (word)
        return TL_TP_FS_WORD;
    return getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE ? TL_TP_FSBASE : TL_TP_SHARED;
}

bool tl_atomics_there(uint64_t hwcap)
{
    (void)hwcap;
    return true;
}

bool tl_pages_marked(void)
{
    return false;
}

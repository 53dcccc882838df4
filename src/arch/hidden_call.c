// What the kernel hides of a stopped thread's system call, and what it does when the thread goes on.
//
// Pure; knows no register by name. Invariant: words of ours in struct tl_regs say "no call" unless the thread
// was seen in one.
#include "arch/hidden_call.h"

#include "attach/target.h"

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

const long tl_call_nothing = NR_GETPID;

long tl_regs_call_number(const struct tl_regs *regs)
{
    return (long)regs->word[tl_call_words.call] - 1;
}

int64_t tl_regs_call_result(const struct tl_regs *regs)
{
    return (int64_t)regs->word[tl_call_words.first];
}

uint64_t tl_regs_call_first_argument(const struct tl_regs *regs)
{
    return regs->word[tl_call_words.argument];
}

bool tl_regs_call_restarts(const struct tl_regs *regs)
{
    int64_t result = tl_regs_call_result(regs);
    return tl_regs_call_number(regs) >= 0 &&
           (result == -ERESTARTSYS || result == -ERESTARTNOINTR || result == -ERESTARTNOHAND ||
            result == -ERESTART_RESTARTBLOCK);
}

bool tl_hidden_call_noted(const struct tl_regs *regs)
{
    return tl_regs_call_number(regs) >= 0 && tl_regs_call_result(regs) == -ERESTART_RESTARTBLOCK;
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
        regs->word[tl_call_words.number] = NR_RESTART_SYSCALL; // as the kernel does it
    regs->word[tl_call_words.first] = regs->word[tl_call_words.argument];
    regs->word[tl_call_words.pc] -= tl_call_insn.size;
    regs->word[tl_call_words.call] = 0;
}

bool tl_regs_call_ordinary(const struct tl_regs *begun)
{
    switch (begun->word[tl_call_words.number]) {
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

// The register of the first argument may hold something else already in the stop at a call's beginning.
void tl_hidden_call_ended(struct tl_regs *ended, const struct tl_regs *begun,
                          const struct tl_regs *before)
{
    ended->word[tl_call_words.call] = begun->word[tl_call_words.number] + 1;
    ended->word[tl_call_words.argument] = before->word[tl_call_words.first];
}

bool tl_regs_call_suspected(const struct tl_regs *regs)
{
    return tl_regs_call_result(regs) == -EINTR_USER &&
           number_reissuable(tl_regs_call_suspect(regs));
}

long tl_regs_call_suspect(const struct tl_regs *regs)
{
    return (long)regs->word[tl_call_words.number];
}

void tl_regs_call_known(struct tl_regs *regs, long number, uint64_t first_argument)
{
    regs->word[tl_call_words.call] = (uint64_t)number + 1;
    regs->word[tl_call_words.argument] = first_argument;
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
    out->word[tl_call_words.first] = (uint64_t)-EINTR_USER;
    out->word[tl_call_words.call] = 0;
}

bool tl_call_execs(uint64_t number, const uint64_t args[6], struct tl_exec_call *out)
{
    if (number == NR_EXECVE)
        *out = (struct tl_exec_call){TL_EXEC_CWD, args[0]};
    else if (number == NR_EXECVEAT)
        *out = (struct tl_exec_call){(int)args[0], args[1]};
    else
        return false;
    return true;
}

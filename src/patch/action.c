// What a target does on a signal, asked and changed by a borrowed thread.
//
// Does not decide what is to happen. Knows both forms of the kernel's struct sigaction: with a word
// for a restorer and without. Invariant: the scratch memory is empty afterwards.
#include "patch/action.h"

#include "attach/isa.h"

#include <string.h>
#include <sys/syscall.h>

#define ACTION_WORDS_MAX 4

static int action_call(struct tl_target *target, int sig, tl_addr set, tl_addr get,
                       struct tl_diag *diag)
{
    const uint64_t args[6] = {(uint64_t)sig, set, get, TL_SIGSET_SIZE};
    int64_t result = 0;
    int error = tl_target_syscall(target, SYS_rt_sigaction, args, &result, diag);
    if (!error && result < 0)
        error = tl_diag_set(diag, TL_E_SYSTEM, "pid %d: rt_sigaction in the target failed: %s",
                            (int)tl_target_pid(target), strerror((int)-result));
    return error;
}

static size_t action_size(void)
{
    return (tl_signal_restorer ? ACTION_WORDS_MAX : ACTION_WORDS_MAX - 1) * sizeof(uint64_t);
}

static void scratch_clear(struct tl_target *target, tl_addr scratch)
{
    static const uint64_t none[ACTION_WORDS_MAX];
    (void)tl_target_write(target, scratch, none, sizeof none, NULL, NULL);
}

int tl_action_get(struct tl_target *target, tl_addr scratch, int sig, struct tl_signal_action *out,
                  struct tl_diag *diag)
{
    uint64_t word[ACTION_WORDS_MAX] = {0};
    int error = action_call(target, sig, 0, scratch, diag);
    if (!error)
        error = tl_target_read(target, scratch, word, action_size(), diag);
    scratch_clear(target, scratch);
    if (!error)
        *out = (struct tl_signal_action){.handler = word[0],
                                         .flags = word[1],
                                         .restorer = tl_signal_restorer ? word[2] : 0,
                                         .mask = word[tl_signal_restorer ? 3 : 2]};
    return error;
}

int tl_action_set(struct tl_target *target, tl_addr scratch, int sig,
                  const struct tl_signal_action *action, struct tl_diag *diag)
{
    uint64_t word[ACTION_WORDS_MAX] = {action->handler, action->flags, action->mask};
    if (tl_signal_restorer) {
        word[2] = action->restorer;
        word[3] = action->mask;
    } else {
        word[1] &= ~(uint64_t)TL_RESTORER_FLAG;
    }
    int error = tl_target_write(target, scratch, word, action_size(), NULL, diag);
    if (!error)
        error = action_call(target, sig, scratch, 0, diag);
    scratch_clear(target, scratch);
    return error;
}

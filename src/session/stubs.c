// Stands in for parts that are not there yet.
#include "session/internal.h"
enum tl_refusal tl_session_trampoline_refusal(struct tl_batch *batch, size_t site)
{
    (void)batch, (void)site;
    return TL_REFUSE_TRAMPOLINE;
}
pid_t tl_session_process_pid(struct tl_session *session, const struct tl_batch *batch,
                             uint32_t process)
{
    (void)session;
    return process ? 0 : batch->pid;
}

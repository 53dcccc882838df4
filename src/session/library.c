// What the library offers beside a session: its version, and the cleaning up behind a killed
// controller.
//
// It does no work of its own. Invariant: nothing in the target changes unless a log there says what
// was written.
#include "attach/target.h"
#include "patch/patch.h"
#include "session/session.h"

const char *tl_version(void)
{
    return TL_VERSION;
}

int tl_detach_leftover(pid_t pid, struct tl_diag *diag)
{
    struct tl_target *target = NULL;
    int result = tl_target_open(pid, NULL, &target, diag);
    if (!result)
        result = tl_patch_detach_leftover(target, diag);
    tl_target_close(target);
    return result;
}

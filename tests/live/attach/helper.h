// What live tests share: starting victims, comparing text with the file, hand-made plans.
#ifndef TL_TESTS_LIVE_HELPER_H
#define TL_TESTS_LIVE_HELPER_H

#include <stdio.h>
#include <sys/types.h>

#include "arch/arch.h"
#include "attach/target.h"
#include "patch/install.h"

struct victim {
    pid_t pid;
    FILE *out;           // its standard output
    int in;              // its standard input
    tl_addr one, window; // its probed functions
};

// Starts argv[0..] (NULL at the end).
void victim_spawn(struct victim *victim, char *const argv[]);
// ... and waits for its "ready" line.
void victim_start_argv(struct victim *victim, char *const argv[]);
void victim_start(struct victim *victim, const char *mode, const char *count);
void victim_await(struct victim *victim); // the next "ready" line
void victim_go(struct victim *victim);    // a line to its input
int victim_end(struct victim *victim);    // go, then its wait status
void victim_kill(struct victim *victim);

// How many times slower than usual this machine is, by TL_SLOW: limits of time are multiplied by it.
int machine_slowness(void);
// All executable file mappings of pid hold what their files hold.
bool text_is_files(pid_t pid);

// Hand-made plans for the victim's two functions: one instruction, and a window with an interior.
#define HAND_PLANS 2
struct hand_plan {
    struct tl_plan plan[HAND_PLANS];
    const struct tl_plan *list[HAND_PLANS];
    struct tl_detour detour[HAND_PLANS];
    struct tl_patch patch[HAND_PLANS];
    struct tl_plan_detour detours[HAND_PLANS];
    struct tl_range mapping;
    struct tl_commit_input input;
};
// record: what each does; NULL: count.
int hand_plan_make(struct tl_target *target, const struct tl_install *install,
                   const struct victim *victim, const struct tl_record record[HAND_PLANS],
                   struct hand_plan *out);
uint64_t hits_of(const struct tl_install *install, uint32_t probe);

// The same for records, with options of the caller's.
int records_put(pid_t pid, const struct victim *victim, const struct tl_install_options *options,
                const struct tl_record record[HAND_PLANS], struct tl_target **target,
                struct tl_install **install, struct tl_diag *diag);
// Opens, prepares and commits both probes. 0 or TL_E_*; on success the probes are in.
int probes_put(pid_t pid, const struct victim *victim, struct tl_target **target,
               struct tl_install **install, struct tl_install_result results[HAND_PLANS],
               struct tl_diag *diag);
// Takes them out again. A machine that is too busy to stop the target in time is asked again, as the
// command does it; any other error, and that one at the last try, fails the test with its text.
void probes_take(struct tl_install *install);

#endif

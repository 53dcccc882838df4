// The program that the bench probes, seen from the bench: started, told what to call, ended.
#ifndef TL_CLI_BENCH_H
#define TL_CLI_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "trapless/trapless.h"

struct tl_victim {
    pid_t pid;
    FILE *to, *from;
    char path[4096];
    char sites[128]; // " nop push ...": the cases it has; which ones depends on the processor
};

// Starts it on one CPU, so that moving between CPUs is not measured. It is to be ended after a
// failure too.
int tl_victim_start(struct tl_victim *victim, struct tl_diag *diag);
void tl_victim_end(struct tl_victim *victim);
bool tl_victim_has(const struct tl_victim *victim, const char *name);
// Has it make that many calls of the case. *ns: time of one. session not NULL: is polled meanwhile,
// as children that are followed need it.
int tl_victim_run(struct tl_victim *victim, const char *name, uint64_t calls,
                  struct tl_session *session, double *ns, struct tl_diag *diag);

#endif

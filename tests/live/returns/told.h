// What the victims of these tests tell the driver. Lines of other kinds are results, which no probe
// may change.
//
//   expect NAME ENTRIES RETURNS       exact, whether children are followed or not
//   follow NAME E R EF RF             without and with the calls of forked children
//   moved NAME RETURNS                returns that another thread made than the one that entered
//   unwound NAME FRAMES               returns that a trampoline may miss, and must count as
//   dropped: an unwinder
//                                     passed the live frame, no call made it, or the recursion is
//                                     too deep
//   ret NAME VALUE BITS               one return value, in the order of the calls; BITS are
//   compared args NAME A1 .. A6                one call, in order
#ifndef TL_TEST_TOLD_H
#define TL_TEST_TOLD_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// A function of its own, called as any other file would call it.
#ifdef __cplusplus
#define PROBED __attribute__((noinline, noipa))
#else
#define PROBED static __attribute__((noinline, noipa))
#endif

static inline void expect(const char *name, uint64_t entries, uint64_t returns)
{
    printf("expect %s %" PRIu64 " %" PRIu64 "\n", name, entries, returns);
}

static inline void expect_family(const char *name, uint64_t entries, uint64_t returns,
                                 uint64_t all_entries, uint64_t all_returns)
{
    printf("follow %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", name, entries, returns,
           all_entries, all_returns);
}

static inline void fail(const char *what)
{
    fprintf(stderr, "victim: %s\n", what);
    _Exit(1);
}

#endif

// Errors: a negative TL_E_* says what kind, struct tl_diag says what a person needs to know.
// Convention: int functions return 0 (or a count) or a negative TL_E_*; diag is the last argument
// and may be NULL; out parameters are set only on success.
#ifndef TRAPLESS_ERROR_H
#define TRAPLESS_ERROR_H

enum tl_error {
    TL_E_USAGE = -1,  // the caller's words are wrong (exit status 2)
    TL_E_NOMATCH = -2, // nothing matched, or nothing could be placed (exit status 3)
    TL_E_SYSTEM = -3, // the operating system refused; the text names the call
    TL_E_PERM = -4,   // no permission for the target; the text says what to do
    TL_E_GONE = -5,   // the target vanished
    TL_E_BUSY = -6,   // another tracer or controller holds the target, or it did not stop in time
    TL_E_FORMAT = -7, // foreign bytes (ELF, notes, maps, rings, undo log) are malformed
    TL_E_LIMIT = -8,  // a named limit was reached
    TL_E_NOMEM = -9,
    TL_E_UNSUPPORTED = -10, // this kind of target is not supported
    TL_E_REACH = -11, // no free memory within a branch's reach
    TL_E_AGAIN = -12, // the target changed meanwhile: ask for the facts and plan again
};

#define TL_DIAG_SIZE 512

// One sentence for a person: the thing, the reason, what to do. Fixed size, no allocation.
struct tl_diag {
    char text[TL_DIAG_SIZE];
};

#endif

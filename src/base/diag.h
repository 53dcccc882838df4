// Writing a struct tl_diag. The errors themselves are public: trapless/error.h.
#ifndef TL_BASE_DIAG_H
#define TL_BASE_DIAG_H

#include "trapless/error.h"

// Writes the sentence (printf form; cut at TL_DIAG_SIZE - 1). diag may be NULL.
void tl_diag_write(struct tl_diag *diag, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Writes the sentence and has the value of error, so that
// `return tl_diag_set(diag, TL_E_GONE, "pid %d: ...", pid);` is one line. A macro, so that compilers
// and analysers see which error comes back.
#define tl_diag_set(diag, error, ...) (tl_diag_write((diag), __VA_ARGS__), tl_diag_value(error))
static inline int tl_diag_value(int error)
{
    return error;
}

#endif

// Writes diagnostics. Keeps one invariant: the text is always terminated.
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>

int tl_diag_set(struct tl_diag *diag, int error, const char *format, ...)
{
    if (diag) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(diag->text, sizeof diag->text, format, args);
        va_end(args);
    }
    return error;
}

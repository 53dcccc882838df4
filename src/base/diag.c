// Writes diagnostics. Keeps one invariant: the text is always terminated.
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>

void tl_diag_write(struct tl_diag *diag, const char *format, ...)
{
    if (!diag)
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(diag->text, sizeof diag->text, format, args);
    va_end(args);
}

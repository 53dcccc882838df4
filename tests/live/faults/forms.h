// The forms of forms.S, as the victim knows them.
#ifndef TL_TESTS_LIVE_FAULTS_FORMS_H
#define TL_TESTS_LIVE_FAULTS_FORMS_H

#include <signal.h>
#include <stddef.h>
#include <string.h>

void handler_plain(int sig, siginfo_t *info, void *context);
void handler_other(int sig, siginfo_t *info, void *context);
void handler_late(int sig, siginfo_t *info, void *context);

// Calls a handler on a stack whose memory ends at `end`, with context and info where the kernel
// puts them: past that.
void direct_at_end(void (*handler)(int, siginfo_t *, void *), int sig, unsigned char *end);

struct form {
    const char *name;
    void (*entry)(void);
    const unsigned char *at; // of the faulting instruction and the next, from the entry
    long behind;             // how far behind its argument it reads
    int bus;                 // is given a page behind the end of a file
    unsigned char *own; // FORMS_OWN_SIZE bytes of text that it reads, and can't while it is called
};

#include "rows.h" // of the instruction set's folder

#define FORM_DECLARE(n)                                                                            \
    void n(void);                                                                                  \
    extern const unsigned char n##_at[2];
#define FORM_ENTRY(n, behind, own) {#n, n, n##_at, behind, 0, own},
#define FORM_BUS_ENTRY(n, form, behind) {#n, form, form##_at, behind, 1, NULL},
#define FORM_NAMES(n, behind, own) FORM_DECLARE(n)
FORMS(FORM_NAMES)

static inline const struct form *form_find(const char *name)
{
    static const struct form forms[] = {FORMS(FORM_ENTRY) FORMS_BUS(FORM_BUS_ENTRY)};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    }
    return NULL;
}

#endif

// The forms of forms.S, as the victim knows them.
#ifndef TL_TESTS_LIVE_FAULTS_FORMS_H
#define TL_TESTS_LIVE_FAULTS_FORMS_H

#include <signal.h>
#include <stddef.h>
#include <string.h>

#define PAGE 4096

void handler_plain(int sig, siginfo_t *info, void *context);
void handler_other(int sig, siginfo_t *info, void *context);
void handler_late(int sig, siginfo_t *info, void *context);

// Calls a handler with the stack pointer at `sp` less one word, the context right behind the return
// address and the info behind that: both past the end of the stack's memory.
void direct_at_end(void (*handler)(int, siginfo_t *, void *), int sig, unsigned char *sp);

struct form {
    const char *name;
    void (*entry)(void);
    const unsigned char *at; // of the faulting instruction and the next, from the entry
    int far;  // reads 0x1000 behind its argument
    int call; // reads 0x12345 behind it
    int bus;  // is given a page behind the end of a file
};

#define FORM_DECLARE(n)                                                                            \
    void n(void);                                                                                  \
    extern const unsigned char n##_at[2];
FORM_DECLARE(one_load)
FORM_DECLARE(pun_load)
FORM_DECLARE(pun_divide)
FORM_DECLARE(island_load)
FORM_DECLARE(window_later)
FORM_DECLARE(pun_later)
FORM_DECLARE(window_first)
FORM_DECLARE(one_unknown)
FORM_DECLARE(one_call)

#define FORM(n, ...) {#n, n, n##_at, __VA_ARGS__}
static inline const struct form *form_find(const char *name)
{
    static const struct form forms[] = {
        FORM(one_load, 1, 0, 0),     FORM(pun_load, 0, 0, 0),     FORM(pun_divide, 0, 0, 0),
        FORM(island_load, 0, 0, 0),  FORM(window_later, 0, 0, 0), FORM(pun_later, 0, 0, 0),
        FORM(window_first, 0, 0, 0), FORM(one_unknown, 0, 0, 0),  FORM(one_call, 0, 1, 0),
        {"bus_load", one_load, one_load_at, 1, 0, 1},
        {"bus_pun", pun_load, pun_load_at, 0, 0, 1},
        {"bus_island", island_load, island_load_at, 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    }
    return NULL;
}

#endif

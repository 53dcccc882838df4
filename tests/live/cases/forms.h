// What drive.c runs of an instruction set: forms.S and forms.c of its folder.
#ifndef TL_TESTS_LIVE_CASES_FORMS_H
#define TL_TESTS_LIVE_CASES_FORMS_H

#include <stdbool.h>
#include <stdint.h>

struct form {
    const char *name;
    uint64_t (*call)(uint64_t value);
    bool silent; // gives nothing back: only that it comes back counts
    bool absent; // this processor has not what it is made of
};
// Up to one without a name.
const struct form *forms_list(void);

// Calls once each form that wants more than a value, and combines what they give back.
uint64_t forms_other(uint64_t i);

// The program's own trap was hit: the handler goes on behind it.
void trap_pass(void *context);

uint64_t thunk_b(uint64_t value);
extern uint32_t stored;

#endif

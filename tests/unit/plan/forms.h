// The instruction forms of forms.S, and how one is decoded and emitted at an emulated address.
#ifndef TESTS_UNIT_PLAN_FORMS_H
#define TESTS_UNIT_PLAN_FORMS_H

#include "arch/arch.h"

struct form {
    const uint8_t *start, *end;
    const char *name;
    uint64_t pointers; // registers that hold addresses of scratch memory
};

// Both end with a form whose start is NULL; those of forms_read have no name. forms_text ..
// forms_end is the section, forms_data its data.
extern const struct form forms_table[], forms_read[];
extern const uint8_t forms_text[], forms_data[], forms_end[];

#endif

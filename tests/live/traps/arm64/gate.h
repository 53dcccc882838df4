// Which rows of the table must be run simulated.
#include <string.h>

#include "arch/arm64/table.h"

// bc.cond: hinted branches, which emulated processors of today do not know.
static bool gate_simulated(unsigned row, const char **name)
{
    const struct row *it = tl_arm64_row(row);
    *name = it->name;
    return it != tl_arm64_row(ROW_UNKNOWN) && it->simulate != SIMULATE_NONE &&
           strcmp(it->name, "bc-cond") != 0;
}

// Whether a form can run in a slot: a copy has no register for a target that lies in the link
// register.
static bool gate_in_slot(const char *form)
{
    return strcmp(form, "blr x30") != 0;
}

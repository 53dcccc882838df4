// Which rows of the table must be run simulated.
#include "arch/x86_64/table.h"
#include "arch/x86_64/x86_64.h"

static bool gate_simulated(unsigned row, const char **name)
{
    const struct row *it = tl_x86_64_row(row);
    *name = it->name;
    return it != tl_x86_64_row(ROW_UNKNOWN) && it->simulate != SIMULATE_NONE;
}

// Whether a form can run in a slot.
static bool gate_in_slot(const char *form)
{
    (void)form;
    return true;
}

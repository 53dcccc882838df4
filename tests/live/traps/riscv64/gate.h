// Which rows of the table must be run simulated.
#include <string.h>

#include "arch/riscv64/table.h"

static bool gate_simulated(unsigned row, const char **name)
{
    const struct row *it = tl_riscv64_row(row);
    *name = it->name;
    return it != tl_riscv64_row(ROW_UNKNOWN) && it->simulate != SIMULATE_NONE;
}

// Whether a form can run in a slot: a copy has no register for a target that lies in the link
// register.
static bool gate_in_slot(const char *form)
{
    return strncmp(form, "jalr ra, ra", 11) != 0 && strcmp(form, "c.jalr ra") != 0;
}

// What forms.c knows of riscv64.
#include <stdint.h>

#define REGISTERS 32 // x0, gp and tp are not used; then the flags, of which there are none
#define STACK_REGISTER 2
#define STACK_STEP 16
#define COMPARED_BELOW 0
#define FLAGS 0
#define FLAGS_RANDOM 0
#define FLAGS_SET 0

// What forms.c knows of x86-64.
#include <stdint.h>

#define REGISTERS 16 // then the flags
#define STACK_REGISTER 4
#define STACK_STEP 8
#define COMPARED_BELOW 128 // the red zone
#define FLAGS 0xcd5        // that instructions leave
#define FLAGS_RANDOM 0x8d5 // all but the direction
#define FLAGS_SET 2

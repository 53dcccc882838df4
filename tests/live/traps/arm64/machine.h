// What forms.c knows of arm64.
#include <stdint.h>

#define REGISTERS 32 // then the flags
#define STACK_REGISTER 31
#define STACK_STEP 16
#define COMPARED_BELOW 0
#define FLAGS 0xf0000000 // that instructions leave
#define FLAGS_RANDOM FLAGS
#define FLAGS_SET 0

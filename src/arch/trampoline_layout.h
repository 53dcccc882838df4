// What trampoline_entry.S knows of agent/layout.h; src/agent/trampoline.c compares. Also read by
// the assembler.
#ifndef TL_ARCH_TRAMPOLINE_LAYOUT_H
#define TL_ARCH_TRAMPOLINE_LAYOUT_H

#define HIJACK_LIVE 0x6c697665
#define HIJACK_ENDED 24
#define HIJACK_PROVEN 16384
#define HIJACK_PROVEN_MASK 1023
#define HIJACK_SLOT 24576
#define HIJACK_SLOT_MASK 262143
#define HIJACK_SLOT_SHIFT 5
#define HIJACK_WRAP_SHIFT 21 // TL_HIJACK_WRAP_STEP is 3
#define HIJACK_ORIGINAL 8
#define HIJACK_COUNTER 16
#define HIJACK_RETURNED 24

#endif

// The one type that every header shares.
#ifndef TRAPLESS_TYPES_H
#define TRAPLESS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// An address in the target (or a virtual address of an ELF file, where the name says vaddr).
// Never a pointer here.
typedef uint64_t tl_addr;

#endif

// Rows that a processor has not, as a file lists them: exact, or the test fails.
#ifndef TEST_EMIT_ABSENT_H
#define TEST_EMIT_ABSENT_H

#include <stdbool.h>

// Reads the list: lines `WHY: ROW ...`, and one `# qemu VERSION`. Ends the program if it can't be
// read.
void absent_read(const char *path);
// Once for each row: whether the processor has it. What contradicts the list is told, and is wrong
// if the list is of the processor's version (TL_EMULATOR, set by tools/emulate.py).
void absent_judge(const char *row, bool had);
// Rows of the list that were not judged are wrong too. How many are wrong.
unsigned absent_wrong(void);

#endif

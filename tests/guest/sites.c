// Calls load_literal or exclusive_add some times and says how many results were wrong.
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double load_literal(void);
uint64_t exclusive_add(uint64_t *value);

int main(int argc, char **argv)
{
    uint64_t calls = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, wrong = 0, value = 0;
    int literal = argc > 1 && strcmp(argv[1], "literal") == 0;
    for (uint64_t i = 0; i < calls; i++) {
        if (literal)
            wrong += load_literal() != 1.5;
        else
            wrong += exclusive_add(&value) != i + 1;
    }
    printf("wrong %" PRIu64 "\n", wrong);
    return 0;
}

// Calls the library's IFUNC, and (linked lazily) leaves a second one unbound until it is asked for.
#include <stdio.h>
#include <unistd.h>

int chosen(int value);

int main(int argc, char **argv)
{
    (void)argv;
    if (argc != 3)
        printf("bound %d\n", chosen(argc));
    printf("ready\n");
    fflush(stdout);
    if (argc > 1)
        pause();
    return argc > 100 ? chosen(1) : 0;
}

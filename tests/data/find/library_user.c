// Uses the library; waits to be looked at. With "twice" it loads the library a second time, in a namespace of its
// own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int library_call(int value);

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "twice") == 0 && !dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW))
        return 1;
    printf("ready %d\n", library_call(argc));
    fflush(stdout);
    if (argc > 1)
        pause();
    return 0;
}

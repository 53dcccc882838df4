// An IFUNC with two implementations. In the program itself it is bound by IRELATIVE, in a library by name.
#include <stdio.h>
#include <unistd.h>

int chosen(int value);
int first_implementation(int value);
int second_implementation(int value);

static volatile int sink;

__attribute__((noinline)) int first_implementation(int value)
{
    sink = value;
    return 1;
}

__attribute__((noinline)) int second_implementation(int value)
{
    sink = value + 1;
    return 2;
}

static int (*choose(void))(int)
{
    return second_implementation;
}
int chosen(int value) __attribute__((ifunc("choose")));

#ifdef LIBRARY
// The library's own lazily bound slot for its own IFUNC.
int call_chosen(int value);
int call_chosen(int value)
{
    return chosen(value) + 1;
}
#else
int main(int argc, char **argv)
{
    (void)argv;
    int result = chosen(argc);
    printf("ready %d\n", result);
    fflush(stdout);
    if (argc > 1)
        pause();
    return 0;
}
#endif

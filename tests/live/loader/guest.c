// A library that comes and goes. Built several times: NAME(x) begins with the library's own letter.
#include <stdint.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(what) JOIN(LETTER, what)

uint64_t NAME(_call)(uint64_t value);
uint64_t NAME(_starts)(uint64_t value);
uint64_t NAME(_stops)(uint64_t value);
uint64_t NAME(_sum)(uint64_t count);
static uint64_t dummy;

__attribute__((noinline, noipa)) uint64_t NAME(_starts)(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept + 1;
}
__attribute__((noinline, noipa)) uint64_t NAME(_stops)(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept + 2;
}
__attribute__((noinline, noipa)) uint64_t NAME(_call)(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept * 2 + dummy;
}
uint64_t NAME(_sum)(uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += NAME(_call)(i);
    return sum;
}

__attribute__((constructor)) static void comes(void)
{
    for (uint64_t i = 0; i < 3; i++)
        dummy += NAME(_starts)(i) * 0;
}
__attribute__((destructor)) static void goes(void)
{
    for (uint64_t i = 0; i < 2; i++)
        dummy += NAME(_stops)(i) * 0;
}

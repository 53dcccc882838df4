// A 32-bit program: prints its ready line and sleeps.
void _start(void)
{
    static const char line[] = "ready 0x1 0x1\n";
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(4), "b"(1), "c"(line), "d"(sizeof line - 1)
                     : "memory");
    for (;;)
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(29) : "memory");
}

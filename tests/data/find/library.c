// A library whose function a program takes, and one that it does not.
int library_call(int value);
int library_other(int value);

static volatile int sink;

__attribute__((noinline)) int library_call(int value)
{
    sink = value;
    return value + VARIANT;
}

__attribute__((noinline)) int library_other(int value)
{
    sink = value;
    return value - VARIANT;
}

// The second file with a static function called worker.
int other_worker(int value);

static volatile int sink;

static __attribute__((noinline)) int worker(int value)
{
    sink = value;
    return value - 1;
}

int other_worker(int value)
{
    return worker(value) + 2;
}

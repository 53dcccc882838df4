// The victim of most tests: a function of known bytes, names without sizes, two functions of one name, compiler
// clones, a cold part, aliases, a table of label addresses.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Begins with bytes that are found nowhere else: mov $0x600df00d,%eax; ret.
__asm__(".text\n"
        ".globl marker\n"
        ".type marker,@function\n"
        "marker: .byte 0xb8,0x0d,0xf0,0x0d,0x60\n"
        "ret\n"
        ".size marker,.-marker\n"
        ".globl no_size\n"
        ".type no_size,@function\n"
        "no_size: xor %eax,%eax\n"
        "inner_label: ret\n"
        ".globl no_type\n"
        "no_type: mov $1,%eax\n"
        "ret\n"
        ".globl with_label\n"
        ".type with_label,@function\n"
        "with_label: mov $2,%eax\n"
        ".globl global_label\n"
        "global_label: ret\n"
        ".size with_label,.-with_label\n");

int marker(void);
int no_size(void);
int no_type(void);
int with_label(void);
int other_worker(int value);
int alias_one(int value);
int dispatch(int code, int value);
int split(const char *text, int value);

// volatile keeps each function a real one.
static volatile int sink;

static __attribute__((noinline)) int worker(int value)
{
    sink += value;
    return value + 1;
}

__attribute__((noinline)) int alias_one(int value)
{
    sink -= value;
    return value * 3;
}
int alias_two(int value) __attribute__((alias("alias_one")));

// -O2 makes clone.constprop.0 of this, since one argument is always the same.
static __attribute__((noinline)) int clone(int value, int constant, const char *text)
{
    sink += (int)strlen(text);
    for (int i = 0; i < constant; i++)
        sink ^= value + i;
    return value + constant;
}

static __attribute__((noinline, cold)) void complain(const char *text)
{
    puts(text);
}

// -O2 splits the unlikely half off into split.cold.
__attribute__((noinline)) int split(const char *text, int value)
{
    if (__builtin_expect(value < 0, 0)) {
        complain(text);
        sink = value;
        complain(text + 1);
        return -1;
    }
    return value + (int)strlen(text);
}

// Its label addresses are relocated data in a PIE.
__attribute__((noinline)) int dispatch(int code, int value)
{
    static const void *const labels[] = {&&zero, &&one, &&two};
    goto *labels[code];
zero:
    sink = 7;
    return value;
one:
    sink = 8;
    return value * 5;
two:
    sink = 9;
    return value * 7;
}

int main(int argc, char **argv)
{
    int sum = marker() + no_size() + no_type() + with_label();
    sum += worker(argc) + other_worker(argc) + alias_one(argc) + alias_two(argc);
    sum += clone(argc, 5, argv[0]) + clone(argc + 1, 5, argv[0]);
    sum += split(argv[0], argc) + dispatch(argc % 3, argc);
    printf("ready %d\n", sum);
    fflush(stdout);
    if (argc > 1)
        pause();
    return 0;
}

// Runs a fuzz target without a fuzzer: first over every file of the folders named, then over
// mutations of them.
//
//     fuzz-elf [--seconds N] [--seed N] [--keep FILE] FOLDER|FILE...
//
// The seed is printed first, and the same seed gives the same inputs in the same order (only how
// many fit into the time differs). --keep writes each input to FILE before it runs, so that what
// crashed is there afterwards.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_COUNT_MAX 512u
#define INPUT_SIZE_MAX ((size_t)256 << 10)
#define INPUT_SECONDS_MAX 10u // of one input; more is a defect of the parser

struct input {
    uint8_t *bytes;
    size_t size;
};

struct replay {
    struct input input[INPUT_COUNT_MAX];
    size_t count;
    uint64_t random;
    const char *keep;
};

// xorshift64*: reproducible on every machine.
static uint64_t next_random(struct replay *replay)
{
    uint64_t x = replay->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    replay->random = x;
    return x * 0x2545f4914f6cdd1du;
}

static size_t below(struct replay *replay, size_t limit)
{
    return limit ? (size_t)(next_random(replay) % limit) : 0;
}

static double now_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// A copy of exactly its size, so that a sanitizer sees a read behind it.
static void run(const struct replay *replay, const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        exit(2);
    memcpy(copy, bytes, size);
    if (replay->keep) {
        int fd = open(replay->keep, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
            exit(2);
        close(fd);
    }
    struct itimerval limit = {.it_value.tv_sec =
                                  INPUT_SECONDS_MAX}; // of our own time, not the machine's
    setitimer(ITIMER_PROF, &limit, NULL);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void read_file(struct replay *replay, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
    if (S_ISREG(st.st_mode) && (size_t)st.st_size <= INPUT_SIZE_MAX &&
        replay->count < INPUT_COUNT_MAX) {
        struct input *input = &replay->input[replay->count];
        input->size = (size_t)st.st_size;
        input->bytes = malloc(input->size ? input->size : 1);
        if (!input->bytes || read(fd, input->bytes, input->size) != (ssize_t)input->size)
            exit(2);
        replay->count++;
    }
    close(fd);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void read_all(struct replay *replay, const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, visible, alphasort);
    if (count < 0) {
        read_file(replay, path);
        return;
    }
    for (int i = 0; i < count; i++) {
        char name[4096];
        (void)snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        read_file(replay, name);
        free(entries[i]);
    }
    free(entries);
}

// One change. Numbers that are near a limit of something are worth more than any number.
static size_t mutate(struct replay *replay, uint8_t *bytes, size_t size)
{
    static const uint64_t values[] = {
        0,          1,           2,         0x7f,       0x80,          0xff,
        0x100,      0x7fff,      0x8000,    0xffff,     0x7fffffff,    0x80000000,
        0xffffffff, 0x100000000, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    if (size == 0)
        return 0;
    size_t limit =
        below(replay, 2) && size > 512 ? 512 : size; // headers are at the start, or at the end
    size_t at = below(replay, limit);
    if (below(replay, 4) == 0)
        at = size - 1 - at;
    size_t width = (size_t)1 << below(replay, 4), other = below(replay, size);
    uint64_t value = values[below(replay, sizeof values / sizeof values[0])];
    switch (below(replay, 8)) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << below(replay, 8));
        break;
    case 1:
        bytes[at] = (uint8_t)next_random(replay);
        break;
    case 2:
        value = size;
        // fallthrough
    case 3:
    case 4:
        at -= at % width;
        if (width <= size - at)
            memcpy(bytes + at, &value, width);
        break;
    case 5:
        at -= at % width;
        if (width <= size - at) {
            memcpy(&value, bytes + at, width);
            value += below(replay, 65) - 32;
            memcpy(bytes + at, &value, width);
        }
        break;
    case 6: {
        size_t most = size - (at > other ? at : other);
        memmove(bytes + at, bytes + other, below(replay, most < 64 ? most : 64));
        break;
    }
    default:
        if (below(replay, 8) == 0)
            return size - below(replay, size);
        break;
    }
    return size;
}

static unsigned long mutations(struct replay *replay, double seconds)
{
    static uint8_t bytes[INPUT_SIZE_MAX];
    double end = now_seconds() + seconds;
    unsigned long count = 0;
    while (replay->count > 0 && now_seconds() < end) {
        const struct input *input = &replay->input[below(replay, replay->count)];
        size_t size = input->size;
        memcpy(bytes, input->bytes, size);
        for (size_t i = 1 + below(replay, 8); i > 0; i--)
            size = mutate(replay, bytes, size);
        run(replay, bytes, size);
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    static struct replay replay = {.random = 1};
    double seconds = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            replay.random = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--keep") == 0 && i + 1 < argc)
            replay.keep = argv[++i];
        else
            read_all(&replay, argv[i]);
    }
    if (replay.random == 0 || replay.count == 0) {
        fprintf(stderr, "no inputs, or a seed of 0\n");
        return 2;
    }
    printf("seed %llu\n", (unsigned long long)replay.random);
    fflush(stdout);
    for (size_t i = 0; i < replay.count; i++)
        run(&replay, replay.input[i].bytes, replay.input[i].size);
    unsigned long count = mutations(&replay, seconds);
    printf("%zu files, %lu mutations\n", replay.count, count);
    for (size_t i = 0; i < replay.count; i++)
        free(replay.input[i].bytes);
    return 0;
}

// A target that calls one function with known arguments and results, here or in a child.
//
// Lines on stdin: "call N", "fork N" (the child makes the calls and ends). Answers: "done". It
// first prints "ready". With words instead of stdin it does each of them and ends: caller call 3
// fork 2.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_SIZE 64

uint64_t caller_work(uint64_t index, uint64_t two, uint64_t three, uint64_t four, uint64_t five,
                     uint64_t all);

__attribute__((noinline, no_reorder)) uint64_t caller_work(uint64_t index, uint64_t two,
                                                           uint64_t three, uint64_t four,
                                                           uint64_t five, uint64_t all)
{
    __asm__ volatile("" : "+r"(index) : "r"(two), "r"(three), "r"(four), "r"(five));
    return all - index;
}

#ifdef __x86_64__
__asm__(".skip 16, 0x90"); // room for a branch behind the return, whatever is aligned how
#endif

__attribute__((no_reorder)) static void calls_make(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        (void)caller_work(i, 2, 3, 4, 5, UINT64_MAX);
}

static void word_do(const char *word, uint64_t count)
{
    if (strcmp(word, "call") == 0) {
        calls_make(count);
        return;
    }
    pid_t child = fork();
    if (!child) {
        calls_make(count);
        _exit(0);
    }
    if (child > 0)
        (void)waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    char line[LINE_SIZE], word[LINE_SIZE];
    for (int i = 1; i + 1 < argc; i += 2)
        word_do(argv[i], strtoull(argv[i + 1], NULL, 10));
    if (argc > 1)
        return 0;
    printf("ready\n");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long count = 0;
        if (sscanf(line, "%63s %llu", word, &count) == 2)
            word_do(word, count);
        printf("done\n");
        (void)fflush(stdout);
    }
    return 0;
}

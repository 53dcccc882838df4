// Loads and drops libraries, one way per mode, argv[1]; argv[2] and argv[3] are two libraries made
// of guest.c with the letters a and b, argv[4] one of which nothing is probed. See returns/told.h.
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../returns/told.h"

#define AGAIN 100u

static char **library;

PROBED uint64_t host_call(uint64_t value)
{
    volatile uint64_t kept = value;
    return kept + 1;
}

static void *opens(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail(dlerror());
    return handle;
}

static uint64_t sums(void *handle, char letter, uint64_t count)
{
    char name[] = "?_sum";
    uint64_t (*sum)(uint64_t) = NULL;
    name[0] = letter;
    *(void **)&sum = dlsym(handle, name);
    if (!sum)
        fail(name);
    return sum(count);
}

static void tell(char letter, uint64_t loads, uint64_t calls)
{
    char name[3][16];
    snprintf(name[0], sizeof name[0], "%c_starts", letter);
    snprintf(name[1], sizeof name[1], "%c_stops", letter);
    snprintf(name[2], sizeof name[2], "%c_call", letter);
    expect(name[0], 3 * loads, 3 * loads);
    expect(name[1], 2 * loads, 2 * loads);
    expect(name[2], calls, calls);
}

static uint64_t one_round(char letter, uint64_t calls)
{
    void *handle = opens(library[letter - 'a']);
    uint64_t sum = sums(handle, letter, calls);
    if (dlclose(handle) != 0)
        fail("dlclose");
    return sum;
}

static void once(void)
{
    host_call(1);
    printf("sum %" PRIu64 "\n", one_round('a', 1000));
    expect("host_call", 1, 1);
    tell('a', 1, 1000);
}

static void kept(void)
{
    host_call(1);
    printf("sum %" PRIu64 "\n",
           sums(opens(library[0]), 'a', 500) + sums(opens(library[0]), 'a', 500));
    tell('a', 1, 1000);
}

static void again(void)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < AGAIN; i++)
        sum += one_round('a', i);
    printf("sum %" PRIu64 "\n", sum);
    tell('a', AGAIN, AGAIN * (AGAIN - 1) / 2);
}

// Each library gets the place that the other had.
static void in_turn(void)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < AGAIN; i++)
        sum += one_round(i % 2 ? 'a' : 'b', 10);
    printf("sum %" PRIu64 "\n", sum);
    tell('a', AGAIN / 2, AGAIN / 2 * 10);
    tell('b', AGAIN / 2, AGAIN / 2 * 10);
}

static void *loading_thread(void *opaque)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < AGAIN; i++)
        sum += one_round(*(char *)opaque, 20);
    *(uint64_t *)opaque = sum;
    return NULL;
}

static void two_threads(void)
{
    uint64_t word[2] = {'a', 'b'}; // the letter first, then the sum
    pthread_t thread[2];
    for (size_t i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, loading_thread, &word[i]);
    for (size_t i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    printf("sums %" PRIu64 " %" PRIu64 "\n", word[0], word[1]);
    tell('a', AGAIN, AGAIN * 20);
    tell('b', AGAIN, AGAIN * 20);
}

static void other_namespace(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        void *handle = dlmopen(LM_ID_NEWLM, library[0], RTLD_NOW);
        if (!handle)
            fail(dlerror());
        sum += sums(handle, 'a', 10);
        dlclose(handle);
    }
    printf("sum %" PRIu64 "\n", sum);
    tell('a', 3, 30);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// Lines from stdin: "load N" (library N, 0 to 2; the answer is how long it took, ns), "drop",
// "end".
static void serves(void)
{
    char line[64];
    void *handle = NULL;
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        unsigned number = 0;
        host_call(number);
        if (sscanf(line, "load %u", &number) == 1 && number < 3) {
            uint64_t begin = now_ns();
            handle = opens(library[number]);
            printf("%" PRIu64 "\n", now_ns() - begin);
        } else if (strcmp(line, "drop\n") == 0 && handle) {
            dlclose(handle);
            printf("dropped\n");
        }
        fflush(stdout);
    }
    printf("end\n");
}

static const struct mode {
    const char *name;
    void (*run)(void);
} modes[] = {{"once", once},
             {"kept", kept},
             {"again", again},
             {"in_turn", in_turn},
             {"two_threads", two_threads},
             {"other_namespace", other_namespace},
             {"serves", serves}};

int main(int argc, char **argv)
{
    library = argv + 2;
    for (size_t i = 0; argc > 4 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    fail("usage: host MODE LIBRARY LIBRARY LIBRARY");
}

// Runs every form many times from random states, first bare, then, when the test says so, again
// with the same states. Prints one line a form first, then "ready", and after each later run
// "ready" or what differs.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "machine.h"

#define ROUNDS 512
#define STACK_SIZE 0x20000u
#define DATA_SIZE 256
#define COMPARED_ABOVE 256u
#define FORMS_MAX 512

struct form {
    const void *code, *site;
    const char *name;
    uint64_t near;
};
extern const struct form form_table[];

struct registers {
    uint64_t general[REGISTERS], flags;
};
extern struct registers form_in, form_out;
extern uint8_t form_data[DATA_SIZE];
void form_run(const void *code);

static uint64_t seed;

// splitmix64
static uint64_t random_word(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void random_fill(uint8_t *at, size_t size)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = random_word();
        memcpy(at + i, &word, 8);
    }
}

static uint64_t hash_add(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

// One run; the stack pointer goes through all places of a page.
static uint64_t form_round(const struct form *form, uint8_t *stack, unsigned round, uint64_t hash)
{
    uint8_t *sp = stack + STACK_SIZE / 2 + round * STACK_STEP;
    random_fill(sp - COMPARED_BELOW, COMPARED_BELOW + COMPARED_ABOVE);
    random_fill(form_data, DATA_SIZE);
    for (int i = 0; i < REGISTERS; i++)
        form_in.general[i] =
            form->near >> i & 1 ? (uintptr_t)form_data + (random_word() & 0x78) : random_word();
    form_in.general[STACK_REGISTER] = (uintptr_t)sp;
    form_in.flags = (random_word() & FLAGS_RANDOM) | FLAGS_SET;
    form_run(form->code);
    form_out.flags &= FLAGS;
    hash = hash_add(hash, &form_out, sizeof form_out);
    // A signal before or behind the instruction may use what is then below the red zone.
    const uint8_t *after = (const uint8_t *)(uintptr_t)form_out.general[STACK_REGISTER];
    const uint8_t *from = sp - COMPARED_BELOW;
    if (after > sp)
        from = after - COMPARED_BELOW;
    else if (after < from)
        from = after;
    hash = hash_add(hash, from, (size_t)(sp + COMPARED_ABOVE - from));
    return hash_add(hash, form_data, DATA_SIZE);
}

static uint64_t form_rounds(const struct form *form, uint8_t *stack, size_t index)
{
    uint64_t hash = 0xcbf29ce484222325u;
    seed = index * 1000003;
    for (unsigned round = 0; round < ROUNDS; round++)
        hash = form_round(form, stack, round, hash);
    return hash;
}

int main(void)
{
    static uint64_t bare[FORMS_MAX];
    char line[64];
    uint8_t *stack =
        mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED)
        return 1;
    for (size_t i = 0; form_table[i].code; i++) {
        bare[i] = form_rounds(&form_table[i], stack, i);
        printf("form %p %d %s\n", form_table[i].site, ROUNDS, form_table[i].name);
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && line[0] == 'a') {
        for (size_t i = 0; form_table[i].code; i++) {
            if (form_rounds(&form_table[i], stack, i) != bare[i])
                printf("differs %s\n", form_table[i].name);
        }
        printf("ready\n");
        fflush(stdout);
    }
    return 0;
}

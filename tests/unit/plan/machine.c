// Unicorn behind a small face. Keeps nothing of its own but the random generator.
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>

static const int reg_id[16] = {
    UC_X86_REG_RAX, UC_X86_REG_RCX, UC_X86_REG_RDX, UC_X86_REG_RBX, UC_X86_REG_RSP, UC_X86_REG_RBP,
    UC_X86_REG_RSI, UC_X86_REG_RDI, UC_X86_REG_R8,  UC_X86_REG_R9,  UC_X86_REG_R10, UC_X86_REG_R11,
    UC_X86_REG_R12, UC_X86_REG_R13, UC_X86_REG_R14, UC_X86_REG_R15,
};

static void must(uc_err error, const char *what)
{
    if (error == UC_ERR_OK)
        return;
    fprintf(stderr, "unicorn: %s: %s\n", what, uc_strerror(error));
    abort();
}

void machine_init(struct machine *m, uint64_t seed)
{
    must(uc_open(UC_ARCH_X86, UC_MODE_64, &m->uc), "open");
    m->seed = seed;
}

void machine_deinit(struct machine *m)
{
    uc_close(m->uc);
}

void machine_map(struct machine *m, tl_addr addr, size_t size)
{
    must(uc_mem_map(m->uc, addr, size, UC_PROT_ALL), "map");
}

void machine_write(struct machine *m, tl_addr addr, const void *bytes, size_t size)
{
    must(uc_mem_write(m->uc, addr, bytes, size), "write");
    uc_ctl_remove_cache(m->uc, addr, addr + size);
}

void machine_read(struct machine *m, tl_addr addr, void *bytes, size_t size)
{
    must(uc_mem_read(m->uc, addr, bytes, size), "read");
}

void machine_fill(struct machine *m, tl_addr addr, size_t size)
{
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)machine_random(m);
    machine_write(m, addr, bytes, size);
    free(bytes);
}

void machine_load(struct machine *m, const struct state *state)
{
    uint64_t flags = state->flags | 2;
    for (int i = 0; i < 16; i++)
        must(uc_reg_write(m->uc, reg_id[i], &state->reg[i]), "register");
    must(uc_reg_write(m->uc, UC_X86_REG_RFLAGS, &flags), "flags");
    must(uc_reg_write(m->uc, UC_X86_REG_RIP, &state->rip), "rip");
    for (int i = 0; i < 4; i++)
        must(uc_reg_write(m->uc, UC_X86_REG_XMM0 + i, state->vector[i]), "xmm");
}

void machine_save(struct machine *m, struct state *state)
{
    for (int i = 0; i < 16; i++)
        must(uc_reg_read(m->uc, reg_id[i], &state->reg[i]), "register");
    must(uc_reg_read(m->uc, UC_X86_REG_RFLAGS, &state->flags), "flags");
    must(uc_reg_read(m->uc, UC_X86_REG_RIP, &state->rip), "rip");
    for (int i = 0; i < 4; i++)
        must(uc_reg_read(m->uc, UC_X86_REG_XMM0 + i, state->vector[i]), "xmm");
    state->flags &= ARITHMETIC_FLAGS | 0x400;
}

void machine_fs(struct machine *m, tl_addr fs_base)
{
    must(uc_reg_write(m->uc, UC_X86_REG_FS_BASE, &fs_base), "fs base");
}

// rdfsbase, which Unicorn 2.0 does not know on any of its models.
static bool rdfsbase_step(struct machine *m, uint64_t rip)
{
    uint8_t code[5];
    uint64_t base, next = rip + sizeof code;
    if (uc_mem_read(m->uc, rip, code, sizeof code) || code[0] != 0xf3 || (code[1] & 0xfe) != 0x48 ||
        code[2] != 0x0f || code[3] != 0xae || (code[4] & 0xf8) != 0xc0)
        return false;
    must(uc_reg_read(m->uc, UC_X86_REG_FS_BASE, &base), "fs base");
    must(uc_reg_write(m->uc, reg_id[(code[1] & 1) << 3 | (code[4] & 7)], &base), "register");
    must(uc_reg_write(m->uc, UC_X86_REG_RIP, &next), "rip");
    return true;
}

int machine_step(struct machine *m)
{
    uint64_t rip;
    must(uc_reg_read(m->uc, UC_X86_REG_RIP, &rip), "rip");
    if (rdfsbase_step(m, rip))
        return 0;
    return (int)uc_emu_start(m->uc, rip, 0, 0, 1);
}

// splitmix64
uint64_t machine_random(struct machine *m)
{
    uint64_t z = m->seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t seed_get(const char *test)
{
    const char *text = getenv("TL_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20240607u;
    fprintf(stderr, "%s: TL_SEED=%llu\n", test, (unsigned long long)seed);
    return seed;
}

// The boot stub and the registers of a stopped thread: the way home leads home, whatever the thread
// was doing, and nothing else passes for a stub.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attach/isa.h"

#include <sys/syscall.h>
#include <sys/user.h>
#include <unicorn/unicorn.h>

#define STUB_ADDR 0x10000u
#define HOME_ADDR 0x20000u
#define SYSCALL_SIZE 2u

static const struct {
    int id;
    size_t off;
} registers[] = {
    {UC_X86_REG_RAX, offsetof(struct user_regs_struct, rax)},
    {UC_X86_REG_RBX, offsetof(struct user_regs_struct, rbx)},
    {UC_X86_REG_RCX, offsetof(struct user_regs_struct, rcx)},
    {UC_X86_REG_RDX, offsetof(struct user_regs_struct, rdx)},
    {UC_X86_REG_RSI, offsetof(struct user_regs_struct, rsi)},
    {UC_X86_REG_RDI, offsetof(struct user_regs_struct, rdi)},
    {UC_X86_REG_RBP, offsetof(struct user_regs_struct, rbp)},
    {UC_X86_REG_RSP, offsetof(struct user_regs_struct, rsp)},
    {UC_X86_REG_R8, offsetof(struct user_regs_struct, r8)},
    {UC_X86_REG_R9, offsetof(struct user_regs_struct, r9)},
    {UC_X86_REG_R10, offsetof(struct user_regs_struct, r10)},
    {UC_X86_REG_R11, offsetof(struct user_regs_struct, r11)},
    {UC_X86_REG_R12, offsetof(struct user_regs_struct, r12)},
    {UC_X86_REG_R13, offsetof(struct user_regs_struct, r13)},
    {UC_X86_REG_R14, offsetof(struct user_regs_struct, r14)},
    {UC_X86_REG_R15, offsetof(struct user_regs_struct, r15)},
};

static uint64_t random_word(void)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | ((unsigned)rand() & 0xff);
    return word;
}

static void regs_random(struct user_regs_struct *user, struct tl_regs *regs)
{
    for (size_t i = 0; i < sizeof *user / 8; i++)
        ((uint64_t *)(void *)user)[i] = random_word();
    user->rip = HOME_ADDR + 64;
    user->cs = 0x33;
    user->orig_rax = UINT64_MAX;
    memcpy(regs->word, user, sizeof *user);
    regs->size = sizeof *user;
}

// Runs the stub from behind its system call, with every register that the kernel or the caller may
// have changed full of rubbish, and compares with what home should be.
static void stub_leads_to(const struct tl_regs *home, const struct user_regs_struct *expected)
{
    uint8_t stub[TL_STUB_SIZE_MAX];
    uc_engine *uc;
    size_t size = tl_stub_build(home, NULL, (tl_addr)(uintptr_t)stub, stub);
    uint64_t flags = 0xad7, pc = 0;
    assert_true(size > SYSCALL_SIZE && size <= sizeof stub);
    assert_memory_equal(stub, "\x0f\x05", 2);
    assert_int_equal(uc_open(UC_ARCH_X86, UC_MODE_64, &uc), 0);
    assert_int_equal(uc_mem_map(uc, STUB_ADDR, 4096, UC_PROT_READ | UC_PROT_EXEC), 0);
    assert_int_equal(uc_mem_map(uc, HOME_ADDR, 4096, UC_PROT_READ | UC_PROT_EXEC), 0);
    assert_int_equal(uc_mem_write(uc, STUB_ADDR, stub, size), 0);
    for (size_t i = 0; i < TL_ARRAY_COUNT(registers); i++) {
        uint64_t value;
        memcpy(&value, (const char *)expected + registers[i].off, 8);
        int id = registers[i].id;
        bool clobbered = id != UC_X86_REG_RBX && id != UC_X86_REG_RBP && id != UC_X86_REG_RSP &&
                         id != UC_X86_REG_R12 && id != UC_X86_REG_R13 && id != UC_X86_REG_R14 &&
                         id != UC_X86_REG_R15;
        if (clobbered)
            value = random_word();
        assert_int_equal(uc_reg_write(uc, id, &value), 0);
    }
    assert_int_equal(uc_reg_write(uc, UC_X86_REG_EFLAGS, &flags), 0);
    assert_int_equal(uc_emu_start(uc, STUB_ADDR + SYSCALL_SIZE, expected->rip, 0, 100), 0);
    assert_int_equal(uc_reg_read(uc, UC_X86_REG_RIP, &pc), 0);
    assert_true(pc == expected->rip);
    for (size_t i = 0; i < TL_ARRAY_COUNT(registers); i++) {
        uint64_t value = 0, wanted;
        memcpy(&wanted, (const char *)expected + registers[i].off, 8);
        assert_int_equal(uc_reg_read(uc, registers[i].id, &value), 0);
        assert_true(value == wanted);
    }
    uint64_t flags_after = 0;
    assert_int_equal(uc_reg_read(uc, UC_X86_REG_EFLAGS, &flags_after), 0);
    assert_true(flags_after == flags);
    uc_close(uc);
}

static void a_running_thread_gets_home(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct user_regs_struct user;
        struct tl_regs home;
        regs_random(&user, &home);
        stub_leads_to(&home, &user);
    }
}

// What the kernel does with each of its private errors, done by code.
static void an_interrupted_call_is_issued_again(void **state)
{
    (void)state;
    static const struct {
        int64_t result;
        uint64_t number;
    } cases[] = {{-512, SYS_read}, {-513, SYS_read}, {-514, SYS_read}, {-516, SYS_restart_syscall}};
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct user_regs_struct user;
        struct tl_regs home;
        regs_random(&user, &home);
        user.rax = (uint64_t)cases[i].result;
        user.orig_rax = SYS_read;
        memcpy(home.word, &user, sizeof user);
        user.rax = cases[i].number;
        user.rip -= SYSCALL_SIZE;
        stub_leads_to(&home, &user);
    }
}

static void a_finished_call_keeps_its_result(void **state)
{
    (void)state;
    static const int64_t results[] = {0, 5, -4, -11, -515, INT64_MAX};
    for (size_t i = 0; i < TL_ARRAY_COUNT(results); i++) {
        struct user_regs_struct user;
        struct tl_regs home;
        regs_random(&user, &home);
        user.rax = (uint64_t)results[i];
        user.orig_rax = SYS_epoll_wait;
        memcpy(home.word, &user, sizeof user);
        stub_leads_to(&home, &user);
    }
}

static void only_harmless_calls_are_reissued(void **state)
{
    (void)state;
    static const struct {
        long number;
        int64_t result;
        bool reissue;
    } cases[] = {
        {SYS_epoll_wait, -4, true}, {SYS_epoll_wait, 0, false},    {SYS_epoll_wait, -9, false},
        {SYS_accept4, -4, true},    {SYS_close, -4, false},        {SYS_rt_sigtimedwait, -4, true},
        {SYS_openat, -4, false},    {SYS_semtimedop, -4, true},    {-1, -4, false},
        {SYS_fork, -4, false},      {SYS_epoll_wait, -514, false},
    };
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct user_regs_struct user;
        struct tl_regs regs;
        regs_random(&user, &regs);
        user.orig_rax = (uint64_t)cases[i].number;
        user.rax = (uint64_t)cases[i].result;
        memcpy(regs.word, &user, sizeof user);
        assert_int_equal(tl_regs_call_reissuable(&regs), cases[i].reissue);
        if (!cases[i].reissue)
            continue;
        tl_regs_reissue(&regs);
        assert_true(tl_regs_pc(&regs) == user.rip - SYSCALL_SIZE);
        assert_int_equal(tl_regs_call_number(&regs), -1);
        assert_int_equal(tl_regs_call_result(&regs), cases[i].number);
    }
}

static void a_call_sets_the_kernels_registers(void **state)
{
    (void)state;
    const uint64_t args[6] = {11, 12, 13, 14, 15, 16};
    struct user_regs_struct user, made;
    struct tl_regs home, call;
    regs_random(&user, &home);
    user.orig_rax = SYS_read; // an interrupted call must not be restarted at the stub
    memcpy(home.word, &user, sizeof user);
    tl_regs_make_call(&home, STUB_ADDR, SYS_mmap, args, &call);
    memcpy(&made, call.word, sizeof made);
    assert_true(made.rip == STUB_ADDR && made.rax == SYS_mmap && made.orig_rax == UINT64_MAX);
    assert_true(made.rdi == 11 && made.rsi == 12 && made.rdx == 13);
    assert_true(made.r10 == 14 && made.r8 == 15 && made.r9 == 16);
    assert_true(made.rsp == user.rsp && made.rbx == user.rbx && made.rbp == user.rbp);
    assert_true(made.r12 == user.r12 && made.r15 == user.r15 && made.eflags == user.eflags);
}

static void stubs_are_recognised_whole(void **state)
{
    (void)state;
    struct user_regs_struct user;
    struct tl_regs home;
    uint8_t stub[TL_STUB_SIZE_MAX] = {0}, changed[TL_STUB_SIZE_MAX];
    regs_random(&user, &home);
    size_t size = tl_stub_build(&home, NULL, STUB_ADDR, stub);
    assert_int_equal(tl_stub_match(stub, sizeof stub), size);
    assert_int_equal(tl_stub_match(stub, size - 1), 0);
    assert_int_equal(tl_stub_match(stub + 1, size), 0);
    memcpy(changed, stub, sizeof changed);
    changed[2 + 10] ^= 1; // an opcode
    assert_int_equal(tl_stub_match(changed, size), 0);
    memcpy(changed, stub, sizeof changed);
    changed[2 + 10 + 4] ^= 1; // a value
    assert_int_equal(tl_stub_match(changed, size), size);
}

static void code_of_32_bits_is_told(void **state)
{
    (void)state;
    struct user_regs_struct user;
    struct tl_regs regs;
    regs_random(&user, &regs);
    assert_true(tl_regs_native(&regs));
    user.cs = 0x23;
    memcpy(regs.word, &user, sizeof user);
    assert_false(tl_regs_native(&regs));
    user.cs = 0x33;
    memcpy(regs.word, &user, sizeof user);
    regs.size = 68; // what the kernel gives for a 32-bit task
    assert_false(tl_regs_native(&regs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_running_thread_gets_home),
        cmocka_unit_test(an_interrupted_call_is_issued_again),
        cmocka_unit_test(a_finished_call_keeps_its_result),
        cmocka_unit_test(only_harmless_calls_are_reissued),
        cmocka_unit_test(a_call_sets_the_kernels_registers),
        cmocka_unit_test(stubs_are_recognised_whole),
        cmocka_unit_test(code_of_32_bits_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// riscv64's boot stub, on any host: what it asks the kernel for on its way home, and what the kernel reads back from
// the signal frame that it holds. What the kernel then does is the guests' to show (tests/guest/home.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attach/isa.h"

#include <unicorn/unicorn.h>

#define STUB_ADDR UINT64_C(0x10040)
#define ECALL 0x73u
#define CALLS 3 // ours; the signal mask; home

// struct user_regs_struct of riscv, the calls' numbers, and struct rt_sigframe (arch/riscv/kernel/signal.c,
// asm/ucontext.h, asm/sigcontext.h, Linux 6.12): what rt_sigreturn reads.
enum { PC = 0, SP = 2, A0 = 10, A7 = 17, WORDS = 32, CALL_PLUS_1 = 32, CALL_ARGUMENT = 33, CALL_NUMBER = 34 };
enum { NR_READ = 63, NR_NANOSLEEP = 101, NR_RESTART = 128, NR_SIGPROCMASK = 135, NR_SIGRETURN = 139, NR_MMAP = 222 };
enum { FRAME_STACK = 144, FRAME_MASK = 168, FRAME_REGS = 304, FRAME_FP = 560, FRAME_MORE = 1076, FRAME_END = 1088 };

static uint64_t random_word(void)
{
    uint64_t word = 0;
    for (int i = 0; i < 5; i++)
        word = word << 15 ^ (uint64_t)random();
    return word;
}

struct stub {
    struct tl_regs home;
    struct tl_stub_more more;
    uint8_t bytes[TL_STUB_SIZE_MAX];
    size_t size;
    size_t call_off[CALLS];
    uc_engine *uc;
};

static void home_random(struct stub *stub)
{
    memset(stub, 0, sizeof *stub);
    stub->home.size = WORDS * 8;
    for (int i = 0; i < WORDS; i++)
        stub->home.word[i] = random_word();
    stub->home.word[PC] &= 0x3ffffffffffe;
    stub->home.word[SP] &= 0x3ffffffffff0;
    for (size_t i = 0; i < sizeof stub->more.set; i++)
        stub->more.set[i] = (uint8_t)random();
    stub->more.mask = random_word();
}

static uint64_t reg_get(const struct stub *stub, int reg)
{
    uint64_t value = 0;
    assert_int_equal(uc_reg_read(stub->uc, UC_RISCV_REG_X0 + reg, &value), 0);
    return value;
}

static void stub_begin(struct stub *stub)
{
    size_t calls = 0;
    stub->size = tl_stub_build(&stub->home, &stub->more, STUB_ADDR, stub->bytes);
    assert_true(stub->size <= tl_stub_needs.room && stub->size <= TL_STUB_SIZE_MAX);
    struct tl_regs call;
    const uint64_t args[6] = {11, 12, 13, 14, 15, 16};
    tl_regs_make_call(&stub->home, STUB_ADDR, NR_MMAP, args, &call);
    for (int i = 1; i < WORDS; i++) // all else is the thread's
        assert_true(call.word[i] == (i >= A0 && i < A0 + 6 ? args[i - A0]
                                     : i == A7             ? NR_MMAP
                                                           : stub->home.word[i]));
    for (size_t off = call.word[PC] - STUB_ADDR; calls < CALLS && off < stub->size; off += 4) {
        uint32_t word;
        memcpy(&word, stub->bytes + off, 4);
        if (word == ECALL)
            stub->call_off[calls++] = off;
    }
    assert_int_equal(calls, CALLS);
    assert_int_equal(STUB_ADDR + stub->call_off[0], call.word[PC]);
    assert_int_equal(uc_open(UC_ARCH_RISCV, UC_MODE_RISCV64, &stub->uc), 0);
    assert_int_equal(uc_mem_map(stub->uc, STUB_ADDR & ~0xfffull, 0x2000, UC_PROT_READ | UC_PROT_EXEC), 0);
    assert_int_equal(uc_mem_write(stub->uc, STUB_ADDR, stub->bytes, stub->size), 0);
    for (int i = 1; i < WORDS; i++)
        assert_int_equal(uc_reg_write(stub->uc, UC_RISCV_REG_X0 + i, &call.word[i]), 0);
}

// From behind one call to the next.
static void stub_run(const struct stub *stub, int from)
{
    uint64_t pc = 0, to = STUB_ADDR + stub->call_off[from + 1];
    assert_int_equal(uc_emu_start(stub->uc, STUB_ADDR + stub->call_off[from] + 4, to, 0, 100), 0);
    assert_int_equal(uc_reg_read(stub->uc, UC_RISCV_REG_PC, &pc), 0);
    assert_true(pc == to);
}

// Leads there: with all signals blocked before the stack pointer leaves the thread's stack.
static void stub_leads_to(struct stub *stub, const uint64_t expected[WORDS])
{
    uint64_t words[WORDS], mask = 0, result = random_word();
    uint8_t fp[TL_STUB_SET_MAX], more[FRAME_END - FRAME_MORE], none[FRAME_END - FRAME_MORE] = {0};
    int32_t flags = 0;
    stub_begin(stub);
    assert_int_equal(uc_reg_write(stub->uc, UC_RISCV_REG_X0 + A0, &result), 0);
    stub_run(stub, 0);
    assert_int_equal(reg_get(stub, A7), NR_SIGPROCMASK);
    assert_int_equal(reg_get(stub, A0), 2);     // SIG_SETMASK
    assert_int_equal(reg_get(stub, A0 + 2), 0); // the old one is not wanted
    assert_int_equal(reg_get(stub, A0 + 3), 8);
    assert_int_equal(uc_mem_read(stub->uc, reg_get(stub, A0 + 1), &mask, 8), 0);
    assert_true(mask == UINT64_MAX);
    assert_true(reg_get(stub, SP) == stub->home.word[SP]);
    stub_run(stub, 1);
    assert_int_equal(reg_get(stub, A7), NR_SIGRETURN);
    uint64_t frame = reg_get(stub, SP);
    assert_true(frame % 16 == 0); // access_ok and copies take any, a handler's frame is such
    assert_true(frame + FRAME_STACK >= STUB_ADDR && frame + FRAME_END <= STUB_ADDR + stub->size);
    assert_int_equal(uc_mem_read(stub->uc, frame + FRAME_REGS, words, sizeof words), 0);
    assert_memory_equal(words, expected, sizeof words);
    assert_int_equal(uc_mem_read(stub->uc, frame + FRAME_MASK, &mask, 8), 0);
    assert_true(mask == stub->more.mask);
    assert_int_equal(uc_mem_read(stub->uc, frame + FRAME_FP, fp, tl_stub_needs.size), 0);
    assert_memory_equal(fp, stub->more.set, tl_stub_needs.size);
    assert_int_equal(uc_mem_read(stub->uc, frame + FRAME_MORE, more, sizeof more), 0);
    assert_memory_equal(more, none, sizeof more);
    assert_int_equal(uc_mem_read(stub->uc, frame + FRAME_STACK + 8, &flags, 4), 0);
    assert_true(flags != 0 && flags != 1 && flags != 2); // none that sigaltstack takes
    uc_close(stub->uc);
}

static void a_running_thread_gets_home(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct stub stub;
        home_random(&stub);
        stub_leads_to(&stub, stub.home.word);
    }
}

// What is to be issued again, and what the kernel would have continued with a note, which rt_sigreturn takes away.
static void an_interrupted_call_is_issued_again(void **state)
{
    static const struct {
        int64_t result;
        uint64_t number;
        bool again;
    } cases[] = {{-512, NR_READ, true}, {-513, NR_READ, true},       {-514, NR_READ, true},
                 {-4, NR_READ, false},  {-516, NR_NANOSLEEP, true}, {7, NR_READ, false}};
    (void)state;
    for (size_t i = 0; i < TL_ARRAY_COUNT(cases); i++) {
        struct stub stub;
        uint64_t expected[WORDS];
        home_random(&stub);
        uint64_t *word = stub.home.word;
        word[A0] = (uint64_t)cases[i].result;
        word[A7] = cases[i].number;
        word[CALL_PLUS_1] = cases[i].number + 1;
        word[CALL_ARGUMENT] = random_word();
        word[CALL_NUMBER] = cases[i].number;
        memcpy(expected, word, sizeof expected);
        if (cases[i].again) {
            expected[PC] -= 4;
            expected[A0] = word[CALL_ARGUMENT];
        }
        stub_leads_to(&stub, expected);
    }
}

// Though a call with a note is the kernel's to go on with where the controller lives.
static void a_call_with_a_note_goes_on(void **state)
{
    struct stub stub;
    (void)state;
    home_random(&stub);
    stub.home.word[A0] = (uint64_t)-516;
    stub.home.word[CALL_PLUS_1] = NR_NANOSLEEP + 1;
    stub.home.word[CALL_ARGUMENT] = 5;
    struct tl_regs again = stub.home;
    tl_regs_reissue(&again);
    assert_int_equal(again.word[A7], NR_RESTART);
    assert_int_equal(again.word[A0], 5);
    assert_true(again.word[PC] == stub.home.word[PC] - 4);
}

static void stubs_are_recognised_whole(void **state)
{
    struct stub stub;
    (void)state;
    home_random(&stub);
    stub_begin(&stub);
    uc_close(stub.uc);
    assert_int_equal(tl_stub_match(stub.bytes, stub.size), stub.size);
    assert_int_equal(tl_stub_match(stub.bytes, stub.size - 1), 0);
    assert_true(tl_stub_home(stub.bytes, STUB_ADDR) == stub.home.word[PC]);
    for (size_t i = 0; i < CALLS; i++) {
        stub.bytes[stub.call_off[i]] ^= 1;
        assert_int_equal(tl_stub_match(stub.bytes, stub.size), 0);
        stub.bytes[stub.call_off[i]] ^= 1;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_running_thread_gets_home),
        cmocka_unit_test(an_interrupted_call_is_issued_again),
        cmocka_unit_test(a_call_with_a_note_goes_on),
        cmocka_unit_test(stubs_are_recognised_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

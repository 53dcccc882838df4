// The tests' own code of arm64, and what only its processors have: branches that must land where
// they may.
#include "native.h"

#include <asm/hwcap.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

// Every instruction that has a simulator, in one function; a call of it comes by every site once,
// but for those in `some`. x0 to a number.
__asm__(".pushsection .rodata\n"
        ".globl victim_start, victim_end, victim_sites, victim_sites_end\n"
        "victim_start:\n"
        "1: nop\n"
        "21: stp x0, x30, [sp, #-16]!\n"
        "   mov x0, #0\n"
        "   mov x30, #0\n"
        "   ldp x0, x30, [sp], #16\n"
        "2: stp x29, x30, [sp, #-64]!\n"
        "   mov x29, sp\n"
        "3: str x19, [sp, #16]\n"
        "4: stp d8, d9, [sp, #32]\n"
        "   mov x19, x0\n"
        "5: adr x1, 90f\n"
        "   ldr x1, [x1]\n"
        "6: ldr x2, 90f\n"
        "7: ldr d8, 91f\n"
        "8: ldrsw x3, 92f\n"
        "   fmov x4, d8\n"
        "   add x19, x19, x1\n"
        "   eor x19, x19, x2, lsl #1\n"
        "   add x19, x19, x3\n"
        "   eor x19, x19, x4\n"
        "9: tbz x19, #0, 50f\n"
        "   add x19, x19, #3\n"
        "50: tst x19, #6\n"
        "10: b.eq 51f\n"
        "   sub x19, x19, #5\n"
        "51: and x5, x19, #1\n"
        "11: cbnz x5, 52f\n"
        "   eor x19, x19, #0xff\n"
        "52:\n"
        "12: bl 80f\n"
        "   add x19, x19, x0\n"
        "13: adr x30, 80f\n"
        "14: blr x30\n"
        "   eor x19, x19, x0\n"
        "15: b 53f\n"
        "   mov x19, #0\n"
        "53: adr x16, 54f\n"
        "16: br x16\n"
        "   mov x19, #1\n"
        "54: mov x0, x19\n"
        "17: ldp d8, d9, [sp, #32]\n"
        "18: ldr x19, [sp, #16]\n"
        "19: ldp x29, x30, [sp], #64\n"
        "20: ret\n"
        "80: add x0, x19, #0x21\n"
        "   sub x0, x0, x30\n" // the link is the program's own
        "   adr x6, victim_start\n"
        "   add x0, x0, x6\n"
        "   ret\n"
        "   .balign 8\n"
        "90: .quad 0x123456789abcdef1\n"
        "91: .quad 0x0fedcba987654321\n"
        "92: .word 0x89abcdef\n"
        "   .balign 8\n"
        "victim_end:\n"
        "victim_sites: .word 1b - victim_start, 2b - victim_start, 3b - victim_start, 4b - "
        "victim_start\n"
        "   .word 5b - victim_start, 6b - victim_start, 7b - victim_start, 8b - victim_start\n"
        "   .word 9b - victim_start, 10b - victim_start, 11b - victim_start, 12b - victim_start\n"
        "   .word 13b - victim_start, 14b - victim_start, 15b - victim_start, 16b - victim_start\n"
        "   .word 17b - victim_start, 18b - victim_start, 19b - victim_start, 20b - victim_start\n"
        "   .word 21b - victim_start\n"
        "victim_sites_end:\n"
        ".popsection\n");
extern const uint8_t victim_start[], victim_end[];
extern const uint32_t victim_sites[], victim_sites_end[];

#define NOP 0xd503201f
#define RET 0xd65f03c0
static const uint32_t nothing_words[] = {NOP, RET};
static const uint32_t load_words[] = {0xf9400020, RET};  // ldr x0, [x1]
static const uint32_t three_words[] = {0xd2800060, RET}; // mov x0, #3

const struct native_isa native_isa = {
    .arch = &tl_arch_arm64,
    .thread_pointer = TL_TP_TPIDR,
    .restorer = true,
    .code_addr = 0x4000000,
    .victim_start = victim_start,
    .victim_end = victim_end,
    .sites = victim_sites,
    .sites_end = victim_sites_end,
    .nothing = (const uint8_t *)nothing_words,
    .nothing_first = 4,
    .nothing_size = sizeof nothing_words,
    .load = (const uint8_t *)load_words,
    .load_size = sizeof load_words,
    .three = (const uint8_t *)three_words,
    .three_size = sizeof three_words,
    .alone_min = 15,
};

static uint32_t word_of(const struct tl_insn *insn)
{
    uint32_t word;
    memcpy(&word, insn->bytes, sizeof word);
    return word;
}

bool native_atomics(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ATOMICS) != 0;
}

// blr x30
bool native_slotless(const struct tl_insn *insn)
{
    return word_of(insn) == 0xd63f03c0;
}

// All but literals and vectors, which may not be at hand.
bool native_alone(const struct tl_insn *insn, bool kernel)
{
    (void)kernel;
    uint32_t word = word_of(insn);
    bool vector = word & 1u << 26 && (word & 0x0a000000) == 0x08000000;
    return (word & 0x3b000000) != 0x18000000 && !vector;
}

uint64_t native_call_on(victim function, void *stack)
{
    uint64_t result = 0;
    __asm__ volatile("mov x20, sp\n mov sp, %1\n mov x0, #77\n blr %2\n mov sp, x20\n mov %0, x0"
                     : "=r"(result)
                     : "r"(stack), "r"(function)
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",
                       "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x20", "x30", "memory",
                       "cc");
    return result;
}

uint64_t native_load(tl_addr site, uint64_t from)
{
    register uint64_t x0 __asm__("x0");
    register uint64_t x1 __asm__("x1") = from;
    register uint64_t x2 __asm__("x2") = 42;
    __asm__ volatile("blr %2"
                     : "=r"(x0), "+r"(x1)
                     : "r"(site), "r"(x2)
                     : "x16", "x17", "x30", "memory", "cc");
    return x0;
}

uint64_t *native_pc(ucontext_t *context)
{
    return (uint64_t *)&context->uc_mcontext.pc;
}

uint64_t *native_argument(ucontext_t *context, unsigned n)
{
    return (uint64_t *)&context->uc_mcontext.regs[n];
}

// All registers but x30 have values that are looked at behind the call; x19 leads to them.
bool native_keeps_all(tl_addr site)
{
    uint64_t kept[20];
    __asm__ volatile("mov x19, %0\n mov x17, %1\n"
                     "mov x0, #11\n mov x1, #22\n mov x2, #102\n mov x3, #103\n mov x4, #104\n"
                     "mov x5, #105\n mov x6, #106\n mov x7, #107\n mov x8, #108\n mov x9, #109\n"
                     "mov x10, #110\n mov x11, #111\n mov x12, #112\n mov x13, #113\n"
                     "mov x14, #114\n mov x15, #115\n mov x16, #116\n mov x18, #118\n"
                     "mov x20, #120\n blr x17\n"
                     "stp x0, x1, [x19]\n stp x2, x3, [x19, #16]\n stp x4, x5, [x19, #32]\n"
                     "stp x6, x7, [x19, #48]\n stp x8, x9, [x19, #64]\n stp x10, x11, [x19, #80]\n"
                     "stp x12, x13, [x19, #96]\n stp x14, x15, [x19, #112]\n"
                     "stp x16, x17, [x19, #128]\n stp x18, x20, [x19, #144]"
                     :
                     : "r"(kept), "r"(site)
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",
                       "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x30",
                       "memory", "cc");
    bool same = kept[0] == 11 && kept[1] == 22 && kept[17] == site && kept[16] == 116 &&
                kept[18] == 118 && kept[19] == 120;
    for (uint64_t i = 2; i < 16; i++)
        same &= kept[i] == 100 + i;
    return same;
}

static _Thread_local volatile uint64_t illegal_pc;

static void on_illegal(int number, siginfo_t *info, void *opaque)
{
    ucontext_t *context = opaque;
    (void)number, (void)info;
    illegal_pc = context->uc_mcontext.pc;
    context->uc_mcontext.pc = context->uc_mcontext.regs[10]; // to where it ends well
    context->uc_mcontext.pstate &= ~UINT64_C(0xc00);
}

// In guarded text a branch that is done by hand has the type of the processor's own.
static void branches_land_as_they_would(void)
{
    static const uint32_t words[] = {
        0xd50324df, 0xd61f0120,             // bti jc; br x9: the site
        0xd503249f, 0xd28000a0, 0xd65f03c0, // bti j; mov x0, #5; ret
        0xd503245f, 0xd28000c0, 0xd65f03c0, // bti c; mov x0, #6; ret
        0xd503201f, 0xd28000e0, 0xd65f03c0, // nop; mov x0, #7; ret
    };
    static const uint8_t targets[] = {2, 5, 8};
    uint8_t *text = map(native_isa.code_addr + CODE_SIZE, 0x10000, PROT_READ | PROT_WRITE);
    tl_addr illegal[2][3];
    const bool enforced = (getauxval(AT_HWCAP2) & HWCAP2_BTI) != 0;
    const int prot = PROT_READ | PROT_EXEC | (enforced ? 0x10 : 0); // PROT_BTI
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    memcpy(text, words, sizeof words);
    for (int trapped = 0; trapped < 2; trapped++) {
        CHECK(mprotect(text, 0x10000, PROT_READ | PROT_WRITE) == 0);
        if (trapped) {
            struct tl_insn insn = insn_at(address(text) + 4);
            row_count = 1;
            rows[0] = (struct tl_trap_row){.addr = insn.addr, .simulated = true};
            CHECK(tl_arch_arm64.simulation(&insn, &rows[0].simulation));
            rows[0].simulation.guarded = enforced;
            rows_use();
            memcpy(text + 4, tl_arch_arm64.breakpoint, 4);
        }
        __builtin___clear_cache((char *)text, (char *)text + sizeof words);
        CHECK(mprotect(text, 0x10000, prot) == 0);
        for (size_t i = 0; i < 3; i++) {
            const uint64_t to = (uintptr_t)text + 4u * targets[i]; // no call behind this
            register uint64_t x9 __asm__("x9") = to;
            register uint64_t x10 __asm__("x10") = to + 4;
            register uint64_t x0 __asm__("x0");
            illegal_pc = 0;
            __asm__ volatile("blr %1"
                             : "=r"(x0)
                             : "r"(text), "r"(x9), "r"(x10)
                             : "x16", "x17", "x30", "memory", "cc");
            CHECK(x0 == 5 + i);
            illegal[trapped][i] = illegal_pc;
        }
    }
    CHECK(memcmp(illegal[0], illegal[1], sizeof illegal[0]) == 0);
    if (enforced)
        CHECK(illegal[1][0] == 0 && illegal[1][1] && illegal[1][2]);
    signal(SIGILL, SIG_DFL);
}

void native_more(void)
{
    branches_land_as_they_would();
}

// The tests' own code of riscv64: full and compressed forms, links in other registers than ra, odd
// targets, reads before writes.
#include "native.h"

#include <string.h>

#include "arch/riscv64/simulate.h"

// Every instruction that has a simulator, in one function; a call of it comes by every site once.
// a0 to a number.
__asm__(".pushsection .rodata\n"
        ".option push\n .option norelax\n .option rvc\n"
        ".globl victim_start, victim_end, victim_sites, victim_sites_end\n"
        ".balign 4\n"
        "victim_start:\n"
        "1: c.nop\n"
        ".option norvc\n"
        "2: nop\n"
        "3: addi zero, a0, 5\n"
        ".option rvc\n"
        "4: c.addi16sp sp, -64\n"
        "5: c.sdsp ra, 56(sp)\n"
        "6: c.sdsp s0, 48(sp)\n"
        ".option norvc\n"
        "7: sd s1, 40(sp)\n"
        ".option rvc\n"
        "8: c.addi4spn s0, sp, 64\n"
        ".option norvc\n"
        "9: addi sp, sp, -16\n"
        ".option rvc\n"
        "   mv s1, a0\n"
        "10: auipc a1, 0\n"
        "   lla a2, victim_start\n"
        "   sub a1, a1, a2\n" // as far from the start as in any copy
        "   add s1, s1, a1\n"
        "   andi a3, s1, 1\n"
        "11: c.beqz a3, 50f\n"
        "   addi s1, s1, 3\n"
        "50: andi a3, s1, 6\n"
        "12: c.bnez a3, 51f\n"
        "   addi s1, s1, -5\n"
        "51: slli a4, s1, 7\n"
        "13: blt a4, a0, 52f\n"
        "   xori s1, s1, 255\n"
        "52: slli a4, s1, 9\n"
        "14: bgeu a4, a0, 53f\n"
        "   addi s1, s1, 77\n"
        "53: andi a4, s1, 3\n"
        "   andi a5, a0, 3\n"
        "15: beq a4, a5, 54f\n"
        "   xori s1, s1, 1\n"
        "54: andi a4, s1, 1\n"
        "   andi a5, a0, 1\n"
        "16: bne a4, a5, 55f\n"
        "   xori s1, s1, 64\n"
        "55: slli a4, s1, 11\n"
        "17: bge a4, a0, 56f\n"
        "   addi s1, s1, 99\n"
        "56: slli a4, s1, 13\n"
        "18: bltu a4, a0, 57f\n"
        "   addi s1, s1, -99\n"
        "57:\n"
        "19: jal ra, 80f\n"
        "   add s1, s1, a0\n"
        "20: jal t0, 81f\n"
        "   lla ra, 80f\n"
        "21: jalr ra, 0(ra)\n" // goes where ra was
        "   xor s1, s1, a0\n"
        "   lla a5, 80f\n"
        "22: c.jalr a5\n"
        "   add s1, s1, a0\n"
        "23: c.j 58f\n"
        "   li s1, 0\n"
        "58: lla a5, 59f\n"
        "   addi a5, a5, 1\n" // bit 0 is no part of an address
        "24: c.jr a5\n"
        "   li s1, 1\n"
        "59: lla t2, 60f\n"
        ".option norvc\n"
        "25: jalr zero, 1(t2)\n"
        "   li s1, 2\n"
        "60:\n"
        "26: jal zero, 61f\n"
        ".option rvc\n"
        "   li s1, 3\n"
        "61:\n"
        "27: c.li a4, -7\n"
        "28: c.addi a4, 11\n"
        "   mul s1, s1, a4\n"
        "   mv a0, s1\n"
        ".option norvc\n"
        "29: addi sp, sp, 16\n"
        "30: ld s1, 40(sp)\n"
        ".option rvc\n"
        "31: c.ldsp s0, 48(sp)\n"
        "32: c.ldsp ra, 56(sp)\n"
        "33: c.addi16sp sp, 64\n"
        "34: c.jr ra\n"
        "80: addi a0, s1, 33\n"
        "   sub a0, a0, ra\n" // the link is the program's own
        "   lla a6, victim_start\n"
        "   add a0, a0, a6\n"
        "   ret\n"
        "81: lla a6, victim_start\n"
        "   sub a4, t0, a6\n"
        "   add s1, s1, a4\n"
        "   jr t0\n"
        "victim_end:\n"
        ".option pop\n"
        ".balign 4\n"
        "victim_sites:\n"
        ".irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22\n"
        ".word \\n\\()b - victim_start\n"
        ".endr\n"
        ".irp n, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34\n"
        ".word \\n\\()b - victim_start\n"
        ".endr\n"
        "victim_sites_end:\n"
        ".popsection\n");
extern const uint8_t victim_start[], victim_end[];
extern const uint32_t victim_sites[], victim_sites_end[];

// In halves, as windows of several instructions have them.
static const uint16_t nothing_words[] = {0x0001, 0x0001, 0x8082,
                                         0x0001};              // c.nop; c.nop; ret; c.nop
static const uint16_t load_words[] = {0x6188, 0x0001, 0x8082}; // c.ld a0, 0(a1); c.nop; ret
static const uint16_t three_words[] = {0x450d, 0x8082};        // c.li a0, 3; ret

const struct native_isa native_isa = {
    .arch = &tl_arch_riscv64,
    .thread_pointer = TL_TP_TP,
    .code_addr = 0x400000 - CODE_SIZE, // the program is linked to begin behind it
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
    .alone_min = 27,
};

bool native_atomics(void)
{
    return true;
}

// jalr ra, 0(ra): the copy would need a register for where it goes, and here none is dead.
bool native_slotless(const struct tl_insn *insn)
{
    uint32_t word;
    memcpy(&word, insn->bytes, sizeof word);
    return insn->size == 4 && word == 0x000080e7;
}

// What qemu-user (7.2) leaves of the signal frame is shorter than the kernel's, so that its end is
// not found: there memory needs a slot.
bool native_alone(const struct tl_insn *insn, bool kernel)
{
    struct tl_simulation simulation;
    return tl_arch_riscv64.simulation(insn, &simulation) &&
           (kernel || simulation.kind != SIMULATE_SINGLE);
}

#define CLOBBERED                                                                                  \
    "ra", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a1", "a2", "a3", "a4", "a5", "a6", "a7",      \
        "memory"

uint64_t native_call_on(victim function, void *stack)
{
    register uint64_t a0 __asm__("a0") = 77;
    register victim s10 __asm__("s10") = function;
    __asm__ volatile("mv s11, sp\n mv sp, %1\n jalr %2\n mv sp, s11"
                     : "+r"(a0)
                     : "r"(stack), "r"(s10)
                     : "s11", CLOBBERED);
    return a0;
}

uint64_t native_load(tl_addr site, uint64_t from)
{
    register uint64_t a0 __asm__("a0");
    register uint64_t a1 __asm__("a1") = from;
    register uint64_t a2 __asm__("a2") = 42;
    register uint64_t s10 __asm__("s10") = site;
    __asm__ volatile("jalr %2" : "=r"(a0), "+r"(a1) : "r"(s10), "r"(a2) : "ra", "memory");
    return a0;
}

uint64_t *native_pc(ucontext_t *context)
{
    return (uint64_t *)&context->uc_mcontext.__gregs[0];
}

uint64_t *native_argument(ucontext_t *context, unsigned n)
{
    return (uint64_t *)&context->uc_mcontext.__gregs[10 + n];
}

// All registers but ra, sp, gp and tp have values that are looked at behind the call; s11 leads to
// them.
bool native_keeps_all(tl_addr site)
{
    uint64_t kept[32] = {0};
    register uint64_t t2 __asm__("t2") = site;
    register uint64_t *s11 __asm__("s11") = kept;
    __asm__ volatile(
        ".irp n, 5, 6, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, "
        "26, 28, 29, 30, 31\n"
        "li x\\n, 100 + \\n\n"
        ".endr\n"
        "li a0, 11\n li a1, 22\n jalr ra, t2\n"
        ".irp n, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, "
        "24, 25, 26, 28, 29, 30, 31\n"
        "sd x\\n, 8 * \\n(s11)\n"
        ".endr\n"
        : "+r"(t2), "+r"(s11)
        :
        : "ra", "t0", "t1", "t3", "t4", "t5", "t6", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7",
          "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "memory");
    bool same = kept[10] == 11 && kept[11] == 22 && kept[7] == site && s11 == kept;
    for (uint64_t i = 5; i < 32; i++)
        same &= i == 7 || i == 10 || i == 11 || i == 27 || kept[i] == 100 + i;
    return same;
}

void native_more(void)
{
}

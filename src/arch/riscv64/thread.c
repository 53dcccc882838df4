// riscv64 for attach: a stopped thread's registers and the boot stub.
//
// Pure, but for what the kernel says of this process; builds on any host. Invariant: from behind a call of ours
// to home no signal is delivered with another stack pointer than the thread's own, and home is reached with all
// registers, floating point included, and the signal mask of the thread.
// A branch without a register reaches 1 MiB, which leads from nowhere to everywhere. So the kernel leads home: the
// stub holds a signal frame.
#include "arch/hidden_call.h"
#include "arch/riscv64/kernel_registers.h"
#include "attach/isa.h"
#include "attach/target.h"
#include "emit/emit.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#ifndef PR_GET_SHADOW_STACK_STATUS // Linux 6.6
#define PR_GET_SHADOW_STACK_STATUS 74
#endif

// struct user_regs_struct: the pc, then x1 to x31 (arch/riscv/include/uapi/asm/ptrace.h, Linux 6.12); then ours.
enum {
    WORD_PC = 0,
    REG_RA = 1,
    REG_SP = 2,
    REG_TP = 4,
    REG_A0 = 10,
    REG_A7 = 17, // the system call's number
    REG_T4 = 29,
    WORD_COUNT = 32,
    WORD_CALL = WORD_COUNT, // number + 1 of the call that the thread was stopped in; 0: none
    WORD_ARGUMENT,          // its first argument
    WORD_FIRST_NUMBER,      // the number that the program gave
};
_Static_assert(WORD_FIRST_NUMBER < TL_REGS_WORDS_MAX, "registers fit");

#define INSN_SIZE 4u
#define NOTE_VECTOR 0x901u    // NT_RISCV_VECTOR, linux/elf.h
#define NR_RT_SIGPROCMASK 135 // asm-generic/unistd.h, Linux 6.12
#define NR_RT_SIGRETURN 139
#define NR_GETPID 172

#define CODE_ECALL 0x00000073u
// RISC-V ISA manual, volume I, "RV32I": the formats of the instructions that a stub has.
#define CODE_LI(rd, value) (0x00000013u | (uint32_t)(rd) << 7 | ((uint32_t)(value) & 0xfffu) << 20)
#define CODE_ADDI(rd, rs, value) (CODE_LI(rd, value) | (uint32_t)(rs) << 15)
#define CODE_AUIPC(rd) (0x00000017u | (uint32_t)(rd) << 7) // of its own place
#define CODE_LD(rd, rs, off) (0x00003003u | (uint32_t)(rd) << 7 | (uint32_t)(rs) << 15 | (uint32_t)(off) << 20)
#define CODE_SD(rs2, rs) (0x00003023u | (uint32_t)(rs2) << 20 | (uint32_t)(rs) << 15)
#define CODE_JR(rs) (0x00000067u | (uint32_t)(rs) << 15)

const uint16_t tl_machine = EM_RISCV;
// c.ebreak. The pc that it reports is its own.
const struct tl_breakpoint tl_breakpoint = {{0x02, 0x90}, 2, 0};
const struct tl_regs_more tl_regs_more = {0};
const struct tl_call_insn tl_call_insn = {{0x73, 0x00, 0x00, 0x00}, INSN_SIZE};
const struct tl_call_words tl_call_words = {
    .pc = WORD_PC, .first = REG_A0, .number = REG_A7, .call = WORD_CALL, .argument = WORD_ARGUMENT};
// A call throws the vector registers away (Linux, Documentation/arch/riscv/vector.rst, "Vector Register State
// Across System Calls").
const struct tl_vector_note tl_vector_note[TL_VECTOR_NOTES] = {{NOTE_VECTOR, true}};
const bool tl_signal_restorer = false;
const uint64_t tl_place_distance = UINT64_C(1) << 30; // auipc reaches 2 GiB from the detours beside a program
// li a7, 139; ecall (arch/riscv/kernel/vdso/rt_sigreturn.S, Linux 6.12)
const struct tl_sigreturn_code tl_sigreturn_code = {
    {0x93, 0x08, 0xb0, 0x08, 0x73, 0x00, 0x00, 0x00}, 8};
const int tl_kernel_args[6] = TL_KERNEL_REGISTER_ARGS;
const int tl_kernel_return = TL_KERNEL_REGISTER_RETURN;

tl_addr tl_regs_pc(const struct tl_regs *regs)
{
    return regs->word[WORD_PC];
}

tl_addr tl_regs_sp(const struct tl_regs *regs)
{
    return regs->word[REG_SP];
}

tl_addr tl_regs_link(const struct tl_regs *regs)
{
    return regs->word[REG_RA];
}

uint64_t tl_regs_thread_pointer(const struct tl_regs *regs)
{
    return regs->word[REG_TP];
}

void tl_regs_set_pc(struct tl_regs *regs, tl_addr pc)
{
    regs->word[WORD_PC] = pc;
}

void tl_regs_set_link(struct tl_regs *regs, tl_addr link)
{
    regs->word[REG_RA] = link;
}

// struct sigcontext begins with the same words. None is always the same: what is found must be a pc in text, with a
// stack pointer that a replaced return address belongs to, or it is left alone.
const struct tl_saved_regs tl_saved_regs = {(REG_SP + 1) * 8, REG_RA * 8, WORD_PC * 8};

bool tl_saved_regs_are(const uint8_t *bytes, tl_addr *pc, tl_addr *sp)
{
    memcpy(pc, bytes + WORD_PC * 8, sizeof *pc);
    memcpy(sp, bytes + REG_SP * 8, sizeof *sp);
    return true;
}

// A 32-bit thread gives a set of another size.
bool tl_regs_native(const struct tl_regs *regs)
{
    return regs->size == WORD_COUNT * sizeof regs->word[0];
}

void tl_regs_call_ended(struct tl_regs *ended, const struct tl_regs *begun,
                        const struct tl_regs *before)
{
    tl_hidden_call_ended(ended, begun, before);
    ended->word[WORD_FIRST_NUMBER] = before->word[REG_A7];
}

// ---- vector registers ---------------------------------------------------------------------------

// struct __riscv_v_regset_state (asm/ptrace.h, Linux 6.12): vstart, vl, vtype, vcsr, vlenb; then the registers.
enum { VECTOR_HEAD = 40, VECTOR_VTYPE = 16, VECTOR_VLENB = 32, VECTOR_COUNT = 32 };
const size_t tl_vector_head = VECTOR_HEAD;
_Static_assert(VECTOR_HEAD <= TL_VECTOR_HEAD_MAX, "the head fits");

// Behind a call the type is illegal and each bit of the registers is set (__riscv_v_vstate_discard,
// arch/riscv/include/asm/vector.h, Linux 6.12).
bool tl_vector_live(const uint8_t *set, size_t size)
{
    int64_t vtype;
    memcpy(&vtype, set + VECTOR_VTYPE, sizeof vtype);
    bool live = vtype >= 0 || size == VECTOR_HEAD;
    for (size_t i = VECTOR_HEAD; i < size && !live; i++)
        live = set[i] != 0xff;
    return live;
}

size_t tl_vector_size(const uint8_t *head)
{
    uint64_t vlenb;
    memcpy(&vlenb, head + VECTOR_VLENB, sizeof vlenb);
    return VECTOR_HEAD + VECTOR_COUNT * (size_t)vlenb;
}

// ---- executing ----------------------------------------------------------------------------------

// The kernel may have put a result in a0 already; the entry stub keeps what was there.
unsigned tl_regs_skip_call(struct tl_regs *regs, tl_addr pc)
{
    regs->word[WORD_PC] = pc;
    regs->word[REG_A7] = UINT64_MAX; // no call of that number: none is made
    regs->word[REG_A0] = regs->word[REG_T4];
    return 0;
}

// ---- the stub -----------------------------------------------------------------------------------
//
// The kernel's struct rt_sigframe (arch/riscv/kernel/signal.c; asm/ucontext.h, asm/sigcontext.h, Linux 6.12),
// of which only these bytes are read back; the stub begins at the first of them.
//
//   frame +  144  alternate stack      not one that can be set: the thread keeps its own
//         +  168  signal mask
//         +  176  code: the call; block all signals; sp = frame; rt_sigreturn        (not read back)
//         +  304  pc, x1 to x31
//         +  560  f0 to f31, fcsr
//         + 1076  12 bytes of 0: no more register sets
//
// All signals are blocked before sp leaves the thread's stack, for the kernel would put a handler's frame below
// it. The mask in the frame undoes that.

#define FRAME_ALT_STACK 144u
#define FRAME_MASK 168u
#define FRAME_CODE 176u
#define FRAME_REGS 304u
#define FRAME_FP 560u
#define FRAME_SIZE 1088u
#define FP_SIZE 264u // struct __riscv_d_ext_state
#define IN_STUB(frame_off) ((frame_off) - FRAME_ALT_STACK)
#define STUB_SIZE IN_STUB(FRAME_SIZE)
_Static_assert(STUB_SIZE <= TL_STUB_SIZE_MAX && FP_SIZE <= TL_STUB_SET_MAX, "stub fits");

const struct tl_stub_needs tl_stub_needs = {STUB_SIZE, NT_FPREGSET, FP_SIZE, true};

#define SIG_SETMASK_NUMBER 2 // asm-generic/signal-defs.h
#define ALT_STACK_FLAGS 4u   // no mode of sigaltstack(2): the kernel ignores the error

enum { A0 = REG_A0, A1, A2, A3, A7 = REG_A7 };
#define STUB_INSNS 12u
#define ALL_SIGNALS_OFF (STUB_INSNS * INSN_SIZE) // from the code's start

static const uint32_t stub_code[STUB_INSNS] = {
    CODE_ECALL,
    CODE_LI(A0, SIG_SETMASK_NUMBER),
    CODE_AUIPC(A1), // word 2
    CODE_ADDI(A1, A1, ALL_SIGNALS_OFF - 2 * INSN_SIZE),
    CODE_LI(A2, 0),
    CODE_LI(A3, 8), // bytes of a mask
    CODE_LI(A7, NR_RT_SIGPROCMASK),
    CODE_ECALL,
    CODE_AUIPC(REG_SP), // word 8
    CODE_ADDI(REG_SP, REG_SP, -(int)(FRAME_CODE + 8 * INSN_SIZE)),
    CODE_LI(A7, NR_RT_SIGRETURN),
    CODE_ECALL,
};
_Static_assert(FRAME_CODE + ALL_SIGNALS_OFF + 8 <= FRAME_REGS, "the code fits");

void tl_regs_make_call(const struct tl_regs *home, tl_addr stub_addr, long nr,
                       const uint64_t args[6], struct tl_regs *out)
{
    struct tl_regs call = *home;
    for (size_t i = 0; i < 6; i++)
        call.word[REG_A0 + i] = args[i];
    call.word[REG_A7] = (uint64_t)nr;
    call.word[WORD_PC] = stub_addr + IN_STUB(FRAME_CODE);
    *out = call;
}

bool tl_stub_reaches(tl_addr stub_addr, tl_addr pc)
{
    (void)stub_addr;
    (void)pc;
    return true;
}

// rt_sigreturn makes the kernel forget how a call that waits would go on, so it begins anew: with all of its
// time, where that is not a point in time.
size_t tl_stub_build(const struct tl_regs *home, const struct tl_stub_more *more, tl_addr stub_addr,
                     uint8_t out[TL_STUB_SIZE_MAX])
{
    const uint32_t flags = ALT_STACK_FLAGS;
    struct tl_regs settled;
    (void)stub_addr;
    tl_regs_settled(home, &settled);
    if (tl_hidden_call_noted(home))
        settled.word[REG_A7] = home->word[WORD_FIRST_NUMBER];
    memset(out, 0, STUB_SIZE);
    memcpy(out + IN_STUB(FRAME_ALT_STACK) + 8, &flags, sizeof flags);
    memcpy(out + IN_STUB(FRAME_MASK), &more->mask, sizeof more->mask);
    memcpy(out + IN_STUB(FRAME_CODE), stub_code, sizeof stub_code);
    memset(out + IN_STUB(FRAME_CODE) + ALL_SIGNALS_OFF, 0xff, 8);
    memcpy(out + IN_STUB(FRAME_REGS), settled.word, WORD_COUNT * sizeof settled.word[0]);
    memcpy(out + IN_STUB(FRAME_FP), more->set, FP_SIZE);
    return STUB_SIZE;
}

size_t tl_stub_match(const uint8_t *bytes, size_t size)
{
    bool ours = size >= STUB_SIZE && memcmp(bytes + IN_STUB(FRAME_CODE), stub_code, sizeof stub_code) == 0;
    return ours ? STUB_SIZE : 0;
}

tl_addr tl_stub_home(const uint8_t *bytes, tl_addr addr)
{
    tl_addr home;
    (void)addr;
    memcpy(&home, bytes + IN_STUB(FRAME_REGS) + WORD_PC * sizeof home, sizeof home);
    return home;
}

// At its start a program has nothing in the registers for temporary values, and a function pointer in a0 (glibc,
// sysdeps/riscv/start.S). auipc x0 is a landing pad for the loader's jump, and nothing where there are none; a
// jump by t2 needs none.
enum { T0 = 5, T1, T2, T3 = 28, T4 = REG_T4 };
#define ENTRY_LITERALS_OFF 48u
static const uint32_t entry_code[] = {
    CODE_AUIPC(0),
    CODE_AUIPC(T0), // word 1
    CODE_LD(T2, T0, ENTRY_LITERALS_OFF - INSN_SIZE),
    CODE_LD(T1, T0, ENTRY_LITERALS_OFF - INSN_SIZE + 8),
    CODE_SD(T2, T1),
    CODE_ADDI(T4, REG_A0, 0),
    CODE_LI(REG_A7, NR_GETPID),
    CODE_ECALL,
    CODE_ADDI(REG_A0, T4, 0),
    CODE_JR(T2),
};
#define ENTRY_CALL_END (8 * INSN_SIZE)
_Static_assert(sizeof entry_code <= ENTRY_LITERALS_OFF, "the literals come behind");

size_t tl_entry_stub_build(tl_addr entry, tl_addr entry_word, uint8_t out[TL_STUB_SIZE_MAX])
{
    memset(out, 0, ENTRY_LITERALS_OFF);
    memcpy(out, entry_code, sizeof entry_code);
    memcpy(out + ENTRY_LITERALS_OFF, &entry, sizeof entry);
    memcpy(out + ENTRY_LITERALS_OFF + 8, &entry_word, sizeof entry_word);
    return ENTRY_LITERALS_OFF + 16;
}

tl_addr tl_entry_stub_pc(tl_addr stub)
{
    return stub + ENTRY_CALL_END;
}

// ---- what else patch asks -----------------------------------------------------------------------

const uint8_t tl_branch_size = 4;

#define CAP_ATOMICS (UINT64_C(1) << ('A' - 'A')) // COMPAT_HWCAP_ISA_A, asm/hwcap.h

// struct pthread lies right below the thread pointer. Known: 2.41.
const struct tl_tid_place tl_tid_place = {{-1616}, -1792, 0};

int tl_thread_pointer_way(bool word)
{
    (void)word;
    return TL_TP_TP;
}

bool tl_atomics_there(uint64_t hwcap)
{
    return (hwcap & CAP_ATOMICS) != 0;
}

// A kernel that has shadow stacks can tell whether this process has one.
bool tl_pages_marked(void)
{
    unsigned long status = 0;
    return prctl(PR_GET_SHADOW_STACK_STATUS, &status, 0, 0, 0) == 0;
}

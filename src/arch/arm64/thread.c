// arm64 for attach: a stopped thread's registers and the boot stub.
//
// Pure, but for what the kernel says of this processor; builds on any host. Invariant: code that
// tl_stub_build writes touches no memory, no flag and no register that it does not set to its value at home.
// No instruction of arm64 jumps anywhere without a register, so the stub lies where a branch leads home:
// within 128 MiB, in the vDSO or behind some library's code.
#include "arch/arm64/kernel_registers.h"
#include "arch/hidden_call.h"
#include "attach/isa.h"
#include "attach/target.h"
#include "emit/emit.h"

#include <elf.h>
#include <string.h>
#include <sys/auxv.h>

// struct user_pt_regs: regs[31], sp, pc, pstate (arch/arm64/include/uapi/asm/ptrace.h, Linux 6.12); then ours.
enum {
    REG_NR = 8, // the system call's number
    REG_LR = 30,
    WORD_SP = 31,
    WORD_PC = 32,
    WORD_PSTATE = 33,
    WORD_COUNT = 34,
    WORD_TLS = WORD_COUNT,  // NT_ARM_TLS
    WORD_CALL,              // number + 1 of the call that the thread was stopped in; 0: none
    WORD_ARGUMENT,          // its first argument
};
_Static_assert(WORD_ARGUMENT < TL_REGS_WORDS_MAX, "registers fit");

#define INSN_SIZE 4u
#define STUB_ROOM 128u
#define PSTATE_BTYPE UINT64_C(0xc00) // Arm ARM, SPSR_EL1
#define NOTE_TLS 0x401u          // NT_ARM_TLS, linux/elf.h
#define NOTE_SYSTEM_CALL 0x404u  // NT_ARM_SYSTEM_CALL
#define NOTE_SVE 0x405u          // NT_ARM_SVE
#define NOTE_SSVE 0x40bu         // NT_ARM_SSVE

#define NR_GETPID 172u // asm-generic/unistd.h, Linux 6.12

#define CODE_SVC 0xd4000001u     // svc #0
#define CODE_BRANCH 0x14000000u  // b
#define CODE_LOAD 0x58000000u    // ldr xN, literal
#define CODE_BRANCH_REACH ((INT64_C(1) << 25) * 4)

const uint16_t tl_machine = EM_AARCH64;
// The pc that it reports is its own. gdb's immediate, 0: nobody's in the kernel or a C library.
const struct tl_breakpoint tl_breakpoint = {{0x00, 0x00, 0x20, 0xd4}, INSN_SIZE, 0};
const struct tl_regs_more tl_regs_more = {NOTE_TLS, WORD_TLS, 8};
const struct tl_call_insn tl_call_insn = {{0x01, 0x00, 0x00, 0xd4}, INSN_SIZE};
const struct tl_call_words tl_call_words = {
    .pc = WORD_PC, .first = 0, .number = REG_NR, .call = WORD_CALL, .argument = WORD_ARGUMENT};
const struct tl_stub_needs tl_stub_needs = {.room = STUB_ROOM};
// A call throws away what SVE has beyond the vector registers, and leaves streaming mode (Linux,
// Documentation/arch/arm64/sve.rst and sme.rst, "System call behaviour").
const size_t tl_vector_head = 16;
const struct tl_vector_note tl_vector_note[TL_VECTOR_NOTES] = {{NOTE_SSVE, false}, {NOTE_SVE, true}};
// struct pthread lies right below the thread pointer, and before it maybe nothing; its size is another in
// some glibc. Known: 2.41.
const struct tl_tid_place tl_tid_place = {{-1616}, -1792, 0};
const bool tl_signal_restorer = true;
const uint64_t tl_place_distance = UINT64_C(4) << 30;
// mov x8, #139; svc #0 (arch/arm64/kernel/vdso/sigreturn.S, Linux 6.12)
const struct tl_sigreturn_code tl_sigreturn_code = {
    {0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4}, 8};
const int tl_kernel_args[6] = TL_KERNEL_REGISTER_ARGS;
const int tl_kernel_return = TL_KERNEL_REGISTER_RETURN;

tl_addr tl_regs_pc(const struct tl_regs *regs)
{
    return regs->word[WORD_PC];
}

tl_addr tl_regs_sp(const struct tl_regs *regs)
{
    return regs->word[WORD_SP];
}

tl_addr tl_regs_link(const struct tl_regs *regs)
{
    return regs->word[REG_LR];
}

uint64_t tl_regs_thread_pointer(const struct tl_regs *regs)
{
    return regs->word[WORD_TLS];
}

void tl_regs_set_pc(struct tl_regs *regs, tl_addr pc)
{
    regs->word[WORD_PC] = pc;
}

void tl_regs_set_link(struct tl_regs *regs, tl_addr link)
{
    regs->word[REG_LR] = link;
}

// struct sigcontext from x0 on: regs[31], sp, pc, pstate, 8 bytes of nothing, and the head of the first record,
// struct fpsimd_context, which is always there (include/uapi/asm/sigcontext.h, Linux 6.12).
enum { SAVED_RECORD = (WORD_COUNT + 1) * 8, RECORD_MAGIC = 0x46508001, RECORD_SIZE = 528 };
const struct tl_saved_regs tl_saved_regs = {SAVED_RECORD + 8, REG_LR * 8, WORD_PC * 8};
_Static_assert(SAVED_RECORD + 8 <= TL_SAVED_REGS_SIZE_MAX, "they fit");

bool tl_saved_regs_are(const uint8_t *bytes, tl_addr *pc, tl_addr *sp)
{
    const uint32_t head[2] = {RECORD_MAGIC, RECORD_SIZE};
    memcpy(sp, bytes + WORD_SP * 8, sizeof *sp);
    memcpy(pc, bytes + WORD_PC * 8, sizeof *pc);
    return memcmp(bytes + SAVED_RECORD, head, sizeof head) == 0;
}

// A 32-bit thread gives a set of another size.
bool tl_regs_native(const struct tl_regs *regs)
{
    return regs->size == WORD_COUNT * sizeof regs->word[0];
}

// x7 says in such a stop which of the two it is, and what is written to it is lost (report_syscall_enter
// and _exit, arch/arm64/kernel/ptrace.c, Linux 6.12).
void tl_regs_call_ended(struct tl_regs *ended, const struct tl_regs *begun,
                        const struct tl_regs *before)
{
    tl_hidden_call_ended(ended, begun, before);
    ended->word[7] = before->word[7];
}

// ---- vector registers ---------------------------------------------------------------------------

// struct user_sve_header: size, max_size (32 bits), vl, max_vl, flags, reserved (16 bits).
bool tl_vector_live(const uint8_t *set, size_t size)
{
    enum { FLAGS_OFF = 12, REGS_SVE = 1 }; // SVE_PT_REGS_SVE
    (void)size;
    return set[FLAGS_OFF] & REGS_SVE;
}

size_t tl_vector_size(const uint8_t *head)
{
    uint32_t size;
    memcpy(&size, head, sizeof size);
    return size;
}

// ---- launching and executing --------------------------------------------------------------------

unsigned tl_regs_skip_call(struct tl_regs *regs, tl_addr pc)
{
    regs->word[WORD_PC] = pc;
    return NOTE_SYSTEM_CALL;
}

// ---- the stub -----------------------------------------------------------------------------------
//
//   svc #0
//   ldr x0, .. ; ... ; ldr x5, .. ; ldr x8, ..     what a call of ours changes; x0 also the kernel
//   b home                                         or, too far: ldr x16, .. ; br x16
//   (8-byte aligned) x0 .. x5, x8, home
//
// The far way is for a program's entry, where nothing is in x16, and a landing pad takes br x16.
// An ldr of a literal and b leave flags and memory alone; PSTATE.BTYPE is 0 behind them, with which any
// instruction may run. On the normal path the controller sets it to what it was.

static const uint8_t stub_regs[] = {0, 1, 2, 3, 4, 5, REG_NR};
#define STUB_LOADS TL_ARRAY_COUNT(stub_regs)
#define STUB_BRANCH_OFF ((1 + STUB_LOADS) * INSN_SIZE)
#define STUB_LITERALS_OFF ((STUB_BRANCH_OFF + 2 * INSN_SIZE + 7u) & ~(size_t)7)
#define STUB_HOME_OFF (STUB_LITERALS_OFF + STUB_LOADS * 8u)
#define STUB_SIZE (STUB_HOME_OFF + 8u)
#define STUB_FAR_LOAD (CODE_LOAD | (uint32_t)((STUB_HOME_OFF - STUB_BRANCH_OFF) / INSN_SIZE) << 5 | 16u)
#define STUB_FAR_BRANCH 0xd61f0200u // br x16
_Static_assert(STUB_SIZE <= STUB_ROOM && STUB_ROOM <= TL_STUB_SIZE_MAX, "stub fits");

static void put_insn(uint8_t *at, uint32_t insn)
{
    memcpy(at, &insn, sizeof insn);
}

static uint32_t get_insn(const uint8_t *at)
{
    uint32_t insn;
    memcpy(&insn, at, sizeof insn);
    return insn;
}

// The load of stub register `index`: Arm ARM, LDR (literal).
static uint32_t stub_load(size_t index)
{
    size_t at = (1 + index) * INSN_SIZE, literal = STUB_LITERALS_OFF + index * 8;
    return CODE_LOAD | (uint32_t)((literal - at) / INSN_SIZE) << 5 | stub_regs[index];
}

void tl_regs_make_call(const struct tl_regs *home, tl_addr stub_addr, long nr,
                       const uint64_t args[6], struct tl_regs *out)
{
    struct tl_regs call = *home;
    for (size_t i = 0; i < 6; i++)
        call.word[i] = args[i];
    call.word[REG_NR] = (uint64_t)nr;
    call.word[WORD_PC] = stub_addr;
    call.word[WORD_PSTATE] &= ~PSTATE_BTYPE; // the stub has no landing pad
    *out = call;
}

// The branch lies inside the stub, and home may be the instruction before pc: the margin is for both.
bool tl_stub_reaches(tl_addr stub_addr, tl_addr pc)
{
    int64_t far = (int64_t)(pc - stub_addr);
    return far >= -CODE_BRANCH_REACH + (int64_t)STUB_ROOM && far < CODE_BRANCH_REACH;
}

size_t tl_stub_build(const struct tl_regs *home, const struct tl_stub_more *more, tl_addr stub_addr,
                     uint8_t out[TL_STUB_SIZE_MAX])
{
    struct tl_regs settled;
    (void)more;
    tl_regs_settled(home, &settled);
    memset(out, 0, STUB_SIZE);
    put_insn(out, CODE_SVC);
    for (size_t i = 0; i < STUB_LOADS; i++) {
        put_insn(out + (1 + i) * INSN_SIZE, stub_load(i));
        memcpy(out + STUB_LITERALS_OFF + i * 8, &settled.word[stub_regs[i]], 8);
    }
    memcpy(out + STUB_HOME_OFF, &settled.word[WORD_PC], 8);
    int64_t far = (int64_t)(settled.word[WORD_PC] - (stub_addr + STUB_BRANCH_OFF));
    if (tl_stub_reaches(stub_addr, home->word[WORD_PC])) {
        put_insn(out + STUB_BRANCH_OFF, CODE_BRANCH | ((uint32_t)(far / INSN_SIZE) & 0x3ffffffu));
    } else {
        put_insn(out + STUB_BRANCH_OFF, STUB_FAR_LOAD);
        put_insn(out + STUB_BRANCH_OFF + INSN_SIZE, STUB_FAR_BRANCH);
    }
    return STUB_SIZE;
}

size_t tl_stub_match(const uint8_t *bytes, size_t size)
{
    if (size < STUB_SIZE || get_insn(bytes) != CODE_SVC)
        return 0;
    uint32_t leaves = get_insn(bytes + STUB_BRANCH_OFF);
    if ((leaves & 0xfc000000u) != CODE_BRANCH && leaves != STUB_FAR_LOAD)
        return 0;
    for (size_t i = 0; i < STUB_LOADS; i++) {
        if (get_insn(bytes + (1 + i) * INSN_SIZE) != stub_load(i))
            return 0;
    }
    return STUB_SIZE;
}

tl_addr tl_stub_home(const uint8_t *bytes, tl_addr addr)
{
    tl_addr home;
    (void)addr;
    memcpy(&home, bytes + STUB_HOME_OFF, sizeof home);
    return home;
}

// At its start a program has nothing in x8 to x18, and a function pointer in x0 (AAPCS64; glibc,
// sysdeps/aarch64/start.S).
static const uint32_t entry_code[] = {
    0xd50324df,                    // bti jc: the loader comes by an indirect branch
    CODE_LOAD | 11u << 5 | 16u,    // ldr x16, entry
    CODE_LOAD | 12u << 5 | 17u,    // ldr x17, entry_word
    0xf9000230,                    // str x16, [x17]
    0xaa0003f1,                    // mov x17, x0
    0xd2800008 | NR_GETPID << 5,   // mov x8, #number
    CODE_SVC,
    0xaa1103e0,                    // mov x0, x17
    CODE_LOAD | 4u << 5 | 16u,     // ldr x16, entry
    0xd61f0200,                    // br x16
    0xd503201f,                    // nop
};
#define ENTRY_LITERALS_OFF 48u // word 12: the loads at words 1, 2 and 8 count from themselves
#define ENTRY_CALL_END 28u

size_t tl_entry_stub_build(tl_addr entry, tl_addr entry_word, uint8_t out[TL_STUB_SIZE_MAX])
{
    memset(out, 0, ENTRY_LITERALS_OFF);
    for (size_t i = 0; i < TL_ARRAY_COUNT(entry_code); i++)
        put_insn(out + i * INSN_SIZE, entry_code[i]);
    memcpy(out + ENTRY_LITERALS_OFF, &entry, sizeof entry);
    memcpy(out + ENTRY_LITERALS_OFF + 8, &entry_word, sizeof entry_word);
    return ENTRY_LITERALS_OFF + 16;
}

tl_addr tl_entry_stub_pc(tl_addr stub)
{
    return stub + ENTRY_CALL_END;
}

// ---- what else patch asks -----------------------------------------------------------------------

const uint8_t tl_branch_size = 0;

#define CAP_ATOMICS (UINT64_C(1) << 8)  // HWCAP_ATOMICS, asm/hwcap.h
#define CAP_GCS (UINT64_C(1) << 32)     // HWCAP_GCS
#define CAP2_BTI (UINT64_C(1) << 17)    // HWCAP2_BTI

int tl_thread_pointer_way(bool word)
{
    (void)word;
    return TL_TP_TPIDR;
}

bool tl_atomics_there(uint64_t hwcap)
{
    return (hwcap & CAP_ATOMICS) != 0;
}

bool tl_pages_marked(void)
{
    return (getauxval(AT_HWCAP2) & CAP2_BTI) != 0 || (getauxval(AT_HWCAP) & CAP_GCS) != 0;
}

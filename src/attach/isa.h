// What attach and patch need of the instruction set that they run on: a stopped thread's registers, the
// code of the boot stub, and what else differs from one kernel port to the next. Implemented in
// src/arch/<isa>/thread.c; one of them is built.
//
//   stub      system call        the call that the controller wants
//             load ...           the way home: every register that the call or the kernel changed
//             branch             to where the thread was
//
// The stub holds its thread's registers as code and literals, so a thread that is let go anywhere in it
// gets home without a stack or the controller. Where no code can lead everywhere with all registers as they
// were, the way home is a signal frame in the stub, and the kernel's own return from a handler.
#ifndef TL_ATTACH_ISA_H
#define TL_ATTACH_ISA_H

#include "base/types.h"

#define TL_REGS_WORDS_MAX 40
#define TL_STUB_SIZE_MAX 960
#define TL_STUB_SET_MAX 264

// General registers as PTRACE_GETREGSET NT_PRSTATUS gives them, size bytes of word; behind them what
// tl_regs_more names, and what attach found out about the thread's system call.
struct tl_regs {
    uint64_t word[TL_REGS_WORDS_MAX];
    size_t size;
};

// A register set that is read besides the general ones. note 0: none.
struct tl_regs_more {
    unsigned note;
    size_t word, size; // place in tl_regs.word, bytes
};
extern const struct tl_regs_more tl_regs_more;

// What a program is executed from: a path, or dir_fd and a path relative to it.
#define TL_EXEC_CWD (-100) // AT_FDCWD
struct tl_exec_call {
    int dir_fd;
    tl_addr path;
};

tl_addr tl_regs_pc(const struct tl_regs *regs);
tl_addr tl_regs_sp(const struct tl_regs *regs);
uint64_t tl_regs_thread_pointer(const struct tl_regs *regs);
// The register that calls leave their return address in. 0: it is on the stack.
tl_addr tl_regs_link(const struct tl_regs *regs);
void tl_regs_set_pc(struct tl_regs *regs, tl_addr pc);
void tl_regs_set_link(struct tl_regs *regs, tl_addr link);
// The thread runs code of the instruction set this was built for (not 32-bit code on a 64-bit
// kernel).
bool tl_regs_native(const struct tl_regs *regs);

// Number of the system call that the thread was stopped in, or -1.
long tl_regs_call_number(const struct tl_regs *regs);
// What that call is about to return (a negative errno, ERESTART* included).
int64_t tl_regs_call_result(const struct tl_regs *regs);
// It is about to be issued again, unless a signal's handler runs first.
bool tl_regs_call_restarts(const struct tl_regs *regs);
// The call came back with EINTR and is one that may be issued again with the same arguments.
bool tl_regs_call_reissuable(const struct tl_regs *regs);
// Makes the thread issue its interrupted call again from user code, whatever it returned. A call
// with a restart block (nanosleep, poll, futex) goes on with the time that is left.
void tl_regs_reissue(struct tl_regs *regs);

// ---- calls that the kernel hides
//
// Linux on some machines shows an interrupted call in a ptrace stop as if it had not begun: no number, the
// pc at the instruction again, the first argument back (arm64, do_signal of arch/arm64/kernel/signal.c,
// Linux 6.12). call.c finds out more, and these keep it in tl_regs.

// The instruction that begins a call. size 0: this kernel hides nothing.
struct tl_call_insn {
    uint8_t bytes[4];
    size_t size;
};
extern const struct tl_call_insn tl_call_insn;
// The call that is about to begin comes back to the instruction behind, in this thread and program.
bool tl_regs_call_ordinary(const struct tl_regs *begun);
// ended: in the stop at the call's end. begun: in the one at its beginning; before: in the stop before
// that, with all registers true.
void tl_regs_call_ended(struct tl_regs *ended, const struct tl_regs *begun,
                        const struct tl_regs *before);
// It looks as if such a call had just come back with EINTR.
bool tl_regs_call_suspected(const struct tl_regs *regs);
// Number and first argument that it is known to have.
long tl_regs_call_suspect(const struct tl_regs *regs);
void tl_regs_call_known(struct tl_regs *regs, long number, uint64_t first_argument);
uint64_t tl_regs_call_first_argument(const struct tl_regs *regs);
// Registers of a thread at home that mean the same whatever the kernel remembers of the last call. Where it
// hides nothing: home's own.
void tl_regs_settled(const struct tl_regs *home, struct tl_regs *out);
// The same for a thread that a signal is delivered to now; caught: to a handler.
void tl_regs_signalled(const struct tl_regs *home, bool caught, struct tl_regs *out);
// A call without effect that takes no argument.
extern const long tl_call_nothing;

// Register sets that a system call loses a part of, and whether one has such a part now. 0: none.
#define TL_VECTOR_NOTES 2
#define TL_VECTOR_HEAD_MAX 40
struct tl_vector_note {
    unsigned note;
    bool kept; // it can be read before and written behind the call
};
extern const struct tl_vector_note tl_vector_note[TL_VECTOR_NOTES];
// How much of a set comes before the registers, at most TL_VECTOR_HEAD_MAX.
extern const size_t tl_vector_head;
// By the first size bytes of the set, tl_vector_head at least: with these alone "live" may be said of one that
// isn't when all is there.
bool tl_vector_live(const uint8_t *set, size_t size);
// Bytes of the whole set, by its head.
size_t tl_vector_size(const uint8_t *head);

// ---- launching and executing

// In the stop at the start of the entry stub's system call: the call is left out, and the thread goes on at pc.
// The note of the register set, one int, that must hold -1 for that; 0: the registers say it.
unsigned tl_regs_skip_call(struct tl_regs *regs, tl_addr pc);
// Whether a call of that number executes another program; what its arguments name, if so.
bool tl_call_execs(uint64_t number, const uint64_t args[6], struct tl_exec_call *out);

// A breakpoint instruction; the pc that it reports lies pc bytes behind it.
struct tl_breakpoint {
    uint8_t bytes[4], size, pc;
};
extern const struct tl_breakpoint tl_breakpoint;

// ---- the stub

// Free bytes that one needs, at most TL_STUB_SIZE_MAX, and what it holds besides the general registers: a
// register set (note 0: none; size at most TL_STUB_SET_MAX), and the thread's signal mask.
extern const struct tl_stub_needs {
    size_t room;
    unsigned note;
    size_t size;
    bool mask;
} tl_stub_needs;
struct tl_stub_more {
    uint8_t set[TL_STUB_SET_MAX];
    uint64_t mask;
};

// Registers for one call through the stub at stub_addr; home is left as it is.
void tl_regs_make_call(const struct tl_regs *home, tl_addr stub_addr, long nr,
                       const uint64_t args[6], struct tl_regs *out);
// A stub at stub_addr can lead to pc without changing a register. It always leads to a program's entry.
bool tl_stub_reaches(tl_addr stub_addr, tl_addr pc);
// Writes the stub that leads from stub_addr to home. Returns its size.
size_t tl_stub_build(const struct tl_regs *home, const struct tl_stub_more *more, tl_addr stub_addr,
                     uint8_t out[TL_STUB_SIZE_MAX]);
// Code that stores entry at entry_word, makes a system call without effect and goes on at entry. Returns
// its size.
size_t tl_entry_stub_build(tl_addr entry, tl_addr entry_word, uint8_t out[TL_STUB_SIZE_MAX]);
// Where the thread is in that call.
tl_addr tl_entry_stub_pc(tl_addr stub);
// Size of the stub that bytes start with, 0: it is none of ours. Its code is all that a pc can be in.
size_t tl_stub_match(const uint8_t *bytes, size_t size);
// Where the stub at addr, whose bytes match, leads to.
tl_addr tl_stub_home(const uint8_t *bytes, tl_addr addr);

// ---- what else patch asks

// The way by which code finds its thread's block (enum tl_thread_pointer). word: each thread's pointer is what
// the word that it points to holds.
int tl_thread_pointer_way(bool word);
// Whether the processor has the atomic instructions that detours count by, from AT_HWCAP.
bool tl_atomics_there(uint64_t hwcap);
// Pages have marks that maps does not show (struct tl_map: guarded, shadow_stack, tagged).
bool tl_pages_marked(void);
// Where a C library keeps the thread's id, from the thread pointer.
struct tl_tid_place {
    int64_t known[4]; // 0 ends
    int64_t search_from, search_to; // in one that is not known
};
extern const struct tl_tid_place tl_tid_place;
// The longest patch that is one instruction, which nobody can stand inside of, nor come back into from a detour.
// 0: every patch is.
extern const uint8_t tl_branch_size;
// Whether the kernel's struct sigaction has a word for a restorer (SA_RESTORER, arch/*/include/uapi/asm/signal.h).
extern const bool tl_signal_restorer;

// How far below the mmap area, which grows down, or the program the agent and the data lie, in bytes.
extern const uint64_t tl_place_distance;
// The code that a signal handler returns to, where the kernel's own is used: in the vDSO. size 0: never.
struct tl_sigreturn_code {
    uint8_t bytes[8];
    size_t size;
};
extern const struct tl_sigreturn_code tl_sigreturn_code;
// The registers that the kernel keeps on the stack for a signal handler, as far as it takes to know them again:
// size bytes, the link register and the pc so many bytes behind their beginning. size 0: calls leave nothing in a
// register.
#define TL_SAVED_REGS_SIZE_MAX 320
extern const struct tl_saved_regs {
    size_t size, link_off, pc_off;
} tl_saved_regs;
// Whether bytes look like them; their pc and stack pointer, if so.
bool tl_saved_regs_are(const uint8_t *bytes, tl_addr *pc, tl_addr *sp);
// Where registers lie in what the kernel hands to a program of a probe: arguments, return value.
extern const int tl_kernel_args[6], tl_kernel_return;

#endif

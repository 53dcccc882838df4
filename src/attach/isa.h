// What attach needs of an instruction set: a stopped thread's registers, and the code of the boot
// stub. Internal to attach; implemented in src/arch/<isa>/thread.c.
//
//   stub      syscall            the call that the controller wants
//             movabs ...         the way home: every register that the call or the kernel changed
//             jmp *0(%rip)       to where the thread was
//             .quad pc
//
// The stub holds its thread's registers as code, so a thread that is let go anywhere in it gets
// home without a stack, a signal frame or the controller.
#ifndef TL_ATTACH_ISA_H
#define TL_ATTACH_ISA_H

#include "base/types.h"

#define TL_REGS_WORDS_MAX 40
#define TL_STUB_SIZE_MAX 128

// General registers as PTRACE_GETREGSET NT_PRSTATUS gives them; size bytes of word are valid.
struct tl_regs {
    uint64_t word[TL_REGS_WORDS_MAX];
    size_t size;
};

// What a program is executed from: a path, or dir_fd and a path relative to it.
#define TL_EXEC_CWD (-100) // AT_FDCWD
struct tl_exec_call {
    int dir_fd;
    tl_addr path;
};

tl_addr tl_regs_pc(const struct tl_regs *regs);
tl_addr tl_regs_sp(const struct tl_regs *regs);
uint64_t tl_regs_thread_pointer(const struct tl_regs *regs);
void tl_regs_set_pc(struct tl_regs *regs, tl_addr pc);
// The thread runs code of the instruction set this was built for (not 32-bit code on a 64-bit
// kernel).
bool tl_regs_native(const struct tl_regs *regs);

// Number of the system call that the thread was stopped in, or -1.
long tl_regs_call_number(const struct tl_regs *regs);
// What that call is about to return (a negative errno, ERESTART* included).
int64_t tl_regs_call_result(const struct tl_regs *regs);
// The call came back with EINTR and is one that may be issued again with the same arguments.
bool tl_regs_call_reissuable(const struct tl_regs *regs);
// Makes the thread issue its interrupted call again from user code, whatever it returned. A call
// with a restart block (nanosleep, poll, futex) goes on with the time that is left.
void tl_regs_reissue(struct tl_regs *regs);

// In the stop at the start of a system call: the call is left out, and the thread goes on at pc with the
// result 0.
void tl_regs_skip_call(struct tl_regs *regs, tl_addr pc);
// Whether the thread is in such a stop for a call that executes another program; its arguments, if so.
bool tl_regs_call_execs(const struct tl_regs *regs, struct tl_exec_call *out);

// A breakpoint instruction of one byte; the pc it reports is the one behind it.
extern const uint8_t tl_breakpoint_byte;

// Registers for one call through the stub at stub_addr; home is left as it is.
void tl_regs_make_call(const struct tl_regs *home, tl_addr stub_addr, long nr,
                       const uint64_t args[6], struct tl_regs *out);
// Writes the stub that leads to home. Returns its size.
size_t tl_stub_build(const struct tl_regs *home, uint8_t out[TL_STUB_SIZE_MAX]);
// Code that stores entry at entry_word, makes a system call without effect and goes on at entry. Returns
// its size.
size_t tl_entry_stub_build(tl_addr entry, tl_addr entry_word, uint8_t out[TL_STUB_SIZE_MAX]);
// Where the thread is in that call.
tl_addr tl_entry_stub_pc(tl_addr stub);
// Size of the stub that bytes start with, 0: it is none of ours.
size_t tl_stub_match(const uint8_t *bytes, size_t size);

#endif

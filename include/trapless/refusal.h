// Why a site gets no probe, or not the rung above. One enum, one sentence each, all in this table:
// `explain`, reports and JSON "reason" print these and nothing else. A refusal is a result, not an error.
#ifndef TRAPLESS_REFUSAL_H
#define TRAPLESS_REFUSAL_H

#ifdef __cplusplus
extern "C" {
#endif

// X(name, sentence). Sentences are lower case, without a full stop; they read after "refused: ".
#define TL_REFUSALS(X)                                                                             \
    X(NONE, "")                                                                                    \
    X(UNKNOWN_INSN, "the bytes are no instruction that the table knows")                           \
    X(NOT_BOUNDARY, "the address is not the start of an instruction")                              \
    X(NOT_CODE, "the address is not in executable, file-backed text")                              \
    X(CHANGED_BYTES, "the bytes differ from the file: another tool was here")                      \
    X(SYSCALL, "a system call instruction is never displaced")                                     \
    X(TRAP, "the instruction is a trap of the program's own")                                      \
    X(PRIVILEGED, "the instruction is privileged and faults in a user program")                    \
    X(SIGRETURN, "unwinders and debuggers recognise a signal-return trampoline by its bytes")      \
    X(RSEQ, "the instruction is in a restartable sequence")                                        \
    X(TRANSACTION, "the instruction opens or ends a hardware transaction")                         \
    X(VENDOR, "processors of different makers run these bytes differently")                        \
    X(FAR, "a far branch or an interrupt return is never displaced")                               \
    X(EMULATE, "a hypervisor recognises the instruction by the bytes around it")                   \
    X(OVERLAP, "two instructions of the program share these bytes")                                \
    X(UNKNOWN_CODE, "no path that is known leads to this address, so it may be data")              \
    X(NO_REACH, "no free memory lies within reach of a branch from here")                          \
    X(NO_WINDOW, "too little room for a branch, and no other way to jump fits")                    \
    X(WINDOW_TARGET, "a branch, table, landing pad or pointer leads into the bytes a branch needs")\
    X(WINDOW_UNPROVED, "an unresolved indirect jump may lead into the bytes a branch needs")       \
    X(WINDOW_SYSCALL, "the bytes a branch needs hold a system call instruction")                   \
    X(WINDOW_CALL, "a call inside the bytes a branch needs is not their last instruction")         \
    X(WINDOW_END, "the bytes a branch needs run past the code that is known")                      \
    X(WINDOW_PROBE, "another probe's bytes overlap")                                               \
    X(LOOP_TARGET, "a branch of the function leads back to its first instruction and can't be moved")\
    X(PC_USE, "the instruction uses its own address in a way that can't be moved")                 \
    X(FAULT_DISPLACED, "a fault of the displaced instruction could not be shown at its own address")\
    X(STACK_WORD, "a word on a thread's stack points into the bytes a branch needs")               \
    X(KERNEL_SITE, "the kernel refuses a probe of its own at this instruction")                    \
    X(NO_FILE_OFFSET, "the kernel can't probe text that is not backed by its file")                \
    X(TLS_RESOLVER, "code that runs with no free registers by its own convention")                 \
    X(VDSO, "the vDSO and vsyscall pages belong to the kernel")                                    \
    X(SHADOW_STACK, "a shadow stack is in force and the instruction would need an emulated call")  \
    X(MAP_LIMIT, "the mappings it needs would pass vm.max_map_count")                              \
    X(TEXT_SHARED, "the text is a shared or writable mapping")                                     \
    X(UNLOADED, "the module was unloaded before the probe could be placed")                        \
    X(IFUNC, "an IFUNC: which implementation the program uses is not known here")        \
    X(NO_EXIT, "the function never returns, so there is no return to probe")                       \
    X(EXIT_UNKNOWN, "not every way out of the function is known")                                  \
    X(EXIT_UNPATCHED, "one of the function's exits can't be patched")                              \
    X(TRAMPOLINE, "a return address may not be replaced in this program")                          \
    X(NO_UNWINDER, "the program's unwinder was not found, and a replaced return address would stop it")\
    X(NO_THREAD, "threads can't be told apart here, so an entry and its return can't be paired")   \
    X(NOT_FUNCTION, "a time is taken from a function's entry to its return: name a function")       \
    X(NO_CLOCK, "the program may not read a clock")                                                \
    X(NO_STACK, "a Go function without a stack check leaves no stack for a detour")                \
    X(TRAP_ALLOWED, "a trap would be needed: allow it with --allow-traps")                         \
    X(TRAP_HANDLED, "the program handles, ignores or blocks SIGTRAP")                              \
    X(NO_SIMULATOR, "there is no simulator for this instruction")                                  \
    X(NO_SLOT, "the instruction can't run in a slot")                                              \
    X(RECORD_KERNEL, "the kernel's probe can't record this")                                       \
    X(TRAP_SECCOMP, "a seccomp filter may forbid the return from a signal handler")                \
    X(TRAP_LIBC, "the C library blocks all signals around work of its own, where a trap kills")    \
    X(KERNEL_WRONG, "the kernel runs this instruction wrong under a probe of its own")            \
    X(EXCLUSIVE, "it lies between a load-exclusive and its store-exclusive, which a probe would make fail for ever")\
    X(COPY_MIDDLE, "the instruction goes on with a copy or set that the one before it began")       \
    X(SYSTEM_WRITE, "the instruction changes the state of the processor")                          \
    X(JOINED, "the instruction and the one beside it work as one")                                 \
    X(LANDING, "indirect branches may arrive at this instruction only as it is")       \
    X(RETURN_GUARD, "the instruction guards the return address, and is run only where it stands")

enum tl_refusal {
#define X(name, sentence) TL_REFUSE_##name,
    TL_REFUSALS(X)
#undef X
    TL_REFUSAL_COUNT
};

// The sentence; "" for TL_REFUSE_NONE. Static storage.
const char *tl_refusal_text(enum tl_refusal refusal);

// The rungs of the ladder, cheapest first. Names are the contract of `method`.
enum tl_rung {
    TL_RUNG_REFUSED,
    TL_RUNG_JUMP,
    TL_RUNG_KERNEL,
    TL_RUNG_SIMULATE,
    TL_RUNG_SLOT,
    TL_RUNG_STEP,
    TL_RUNG_COUNT
};

// "jump", "kernel", ... "refused". Static storage.
const char *tl_rung_text(enum tl_rung rung);

#ifdef __cplusplus
}
#endif

#endif

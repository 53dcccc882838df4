// The agent's entries for records: hits, events, latency pairs. Each is called in the record frame of
// emit/emit.h: rcx holds the counter's offset, rdx the site's stack pointer S, and above the return
// address lie flags word, rdx, rcx and rax of the site. Kept: all registers but rax, rcx, rdx and flags.
//
// Does not claim blocks: tl_agent_block does, off the straight path. No system call, no lock in a
// thread's own block. A signal may land at any instruction and its handler may come here for the same
// probe. What stays exact under that:
//
//   counter, sum, bucket   one instruction that adds to memory
//   ring                   an index is taken by compare-and-swap; the word is stored last
//   pair                   entry: key, then time. return: reads time, compares key, frees
//   minimum, maximum       compare-and-swap
//
// Stack below the record frame: at most four words on the straight path.
#include "arch/record_layout.h"

        .text

.macro  entry name
        .globl  \name
        .hidden \name
        .type   \name, @function
        .p2align 5
\name:
.endm

// rdx = the thread's own block; rax is lost. A miss, or no word at %fs:0 to go by: to \miss.
.macro  block_find miss
        cmpl    $REC_TP_FS_WORD, tl_agent_thread_pointer(%rip)
        jne     \miss
        mov     %fs:0, %rax
        imul    $REC_HASH, %rax, %rdx
        shr     $56, %rdx
        shl     $REC_SLOT_SHIFT, %edx
        add     tl_agent_control_addr(%rip), %rdx
        cmp     %rax, REC_TABLE_OFF(%rdx)
        jne     \miss
        mov     REC_TABLE_OFF + 8(%rdx), %rdx
        test    %rdx, %rdx              // a handler that forked since the compare has wiped the slot
        jz      \miss
.endm

// Behind a miss. Goes on to \own or \shared with the block in rdx, or to \silent.
.macro  block_claim own, shared, silent
        call    tl_agent_block
        mov     %rax, %rdx
        test    %rax, %rax
        jz      \silent
        btr     $REC_BLOCK_SHARED_BIT, %rdx
        jc      \shared
        jmp     \own
.endm

// rax = ticks; rdx is lost.
.macro  clock_read
        cmpl    $0, tl_agent_clock(%rip)
        jne     71f
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
72:
        .pushsection .text.cold, "ax"
71:     mov     tl_agent_data_addr(%rip), %rax
        mov     REC_COARSE_OFF(%rax), %rax
        jmp     72b
        .popsection
.endm

// ---- the counter only ---------------------------------------------------------------------------

        entry   tl_agent_record_hit
        block_find 1f
2:      incq    (%rdx,%rcx)
        ret
1:      block_claim 2b, 3f, 4f
3:      lock incq (%rdx,%rcx)
4:      ret

// ---- events -------------------------------------------------------------------------------------

// Counts in the block at rdx and takes the next index of its ring: rax. rdx = the ring's header; rbx is
// lost. A full ring: to \full. \locked is `lock` in a shared block.
.macro  ring_take full, locked
        \locked incq (%rdx,%rcx)
        add     tl_agent_ring_off(%rip), %rdx
        mov     (%rdx), %rax
73:     mov     %rax, %rbx
        sub     REC_RING_TAIL(%rdx), %rbx
        cmp     tl_agent_ring_mask(%rip), %rbx
        ja      \full
        lea     1(%rax), %rbx
        \locked cmpxchg %rbx, (%rdx)
        jne     73b // rax is the new head
.endm

// rbx = the slot with index rax, its time written. Then the arguments, then ring_commit.
.macro  ring_begin
        and     tl_agent_ring_mask(%rip), %rax
        shl     $REC_RING_SLOT_SHIFT, %rax
        lea     REC_RING_SLOTS(%rdx,%rax), %rbx
        clock_read
        mov     %rax, REC_RING_TIME(%rbx)
.endm

.macro  ring_commit kind
        mov     tl_agent_tid_off(%rip), %rax
        test    %rax, %rax
        jz      74f
        mov     %fs:(%rax), %eax
        shl     $32, %rax
74:     sub     $REC_COUNTERS_OFF, %ecx
        shr     $3, %ecx
        or      $\kind << REC_RING_KIND_SHIFT, %ecx
        or      %rcx, %rax
        mov     %rax, (%rbx) // last: the slot is full. Partner: the reader's load of word
        pop     %rbx
        ret
.endm

// One kind of event: \arguments stores them into the slot at rbx. On the stack: rbx, the return address,
// flags word, rdx, rcx, rax.
        .set    saved_rbx, 0
        .set    saved_rdx, 24
        .set    saved_rcx, 32
        .set    saved_rax, 40

.macro  event name, kind, arguments
        entry   \name
        push    %rbx
        block_find 1f
2:      ring_take 4f
5:      ring_begin
        \arguments
        ring_commit \kind
1:      block_claim 2b, 3f, 4f
3:      ring_take 4f, lock
        jmp     5b
4:      pop     %rbx
        ret
        .size   \name, . - \name
.endm

.macro  argument_copy from, to
        mov     \from(%rsp), %rax
        mov     %rax, REC_RING_ARG + 8 * \to(%rbx)
.endm

// System V ABI AMD64, "Parameter Passing".
.macro  arguments_c
        mov     %rdi, REC_RING_ARG + 0(%rbx)
        mov     %rsi, REC_RING_ARG + 8(%rbx)
        argument_copy saved_rdx, 2
        argument_copy saved_rcx, 3
        mov     %r8, REC_RING_ARG + 32(%rbx)
        mov     %r9, REC_RING_ARG + 40(%rbx)
.endm

// Go, "Go internal ABI specification", amd64: rax, rbx, rcx, rdi, rsi, r8.
.macro  arguments_go
        argument_copy saved_rax, 0
        argument_copy saved_rbx, 1
        argument_copy saved_rcx, 2
        mov     %rdi, REC_RING_ARG + 24(%rbx)
        mov     %rsi, REC_RING_ARG + 32(%rbx)
        mov     %r8, REC_RING_ARG + 40(%rbx)
.endm

.macro  arguments_return
        argument_copy saved_rax, 0
.endm

        event   tl_agent_record_event, REC_RING_ENTRY, arguments_c
        event   tl_agent_record_go_event, REC_RING_ENTRY, arguments_go
        event   tl_agent_record_return, REC_RING_RETURN, arguments_return

// ---- latency: the entry -------------------------------------------------------------------------

// \offset = byte offset of S's home among the pairs; \spare is lost.
.macro  pair_home s, offset, spare
        mov     \s, \offset
        shr     $REC_PAIR_WRAP_SHIFT, \offset
        lea     (\offset,\offset,2), \offset
        mov     \s, \spare
        shr     $3, \spare
        add     \spare, \offset
        and     tl_agent_pair_mask(%rip), \offset
        shl     $REC_PAIR_SHIFT, \offset
.endm

// \key = S ^ (probe + 1) << 48, from the counter's offset (64 + 8 * probe) in rcx.
.macro  pair_key s, key
        lea     8 - REC_COUNTERS_OFF(%rcx), \key
        shl     $48 - 3, \key
        xor     \s, \key
.endm

// Goes on to the next pair in memory; the offset wraps.
.macro  pair_next offset
        shr     $REC_PAIR_SHIFT, \offset
        inc     \offset
        and     tl_agent_pair_mask(%rip), \offset
        shl     $REC_PAIR_SHIFT, \offset
.endm

// rdx = the probe's histogram, from its counter's offset in rcx and the block at rdx. rcx is lost.
.macro  hist_find
        sub     $REC_COUNTERS_OFF, %ecx
        imul    $REC_HIST_PER_COUNTER, %rcx, %rcx
        add     tl_agent_hist_off(%rip), %rdx
        add     %rcx, %rdx
.endm

        entry   tl_agent_record_enter
        push    %rbx
        push    %r8
        mov     %rdx, %rbx
        block_find 1f
2:      incq    (%rdx,%rcx)
        pair_home %rbx, %rax, %r8
        pair_key %rbx, %r8
        mov     tl_agent_pair_off(%rip), %rbx
        add     %rdx, %rbx
        cmpq    $0, (%rbx,%rax)
        jne     3f
4:      add     %rax, %rbx
        mov     %r8, (%rbx)
        clock_read
        mov     %rax, REC_PAIR_TIME(%rbx)
9:      pop     %r8
        pop     %rbx
        ret

        // The home is taken, by this frame's predecessor or by another frame.
        .pushsection .text.cold, "ax"
3:      push    %r9
        push    %r10
        push    %r11
        mov     $REC_PAIR_STEPS + 1, %r11d
5:      mov     (%rbx,%rax), %r9
        test    %r9, %r9
        jz      6f
        cmp     %r8, %r9
        je      6f
        // A pair at S, or at most as many words below: of a frame that is gone, since only this one and
        // deeper ones lie there. The low 48 bits of a key are those of its stack pointer.
        mov     %r8, %r10
        sub     %r9, %r10
        shl     $64 - REC_PAIR_PROBE_SHIFT, %r10
        shr     $64 - REC_PAIR_PROBE_SHIFT, %r10
        cmp     $8 * REC_PAIR_STEPS, %r10
        jbe     6f
        pair_next %rax
        dec     %r11d
        jnz     5b
        pop     %r11
        pop     %r10
        pop     %r9
        hist_find
        incq    REC_HIST_LOST(%rdx)
        jmp     9b
6:      pop     %r11
        pop     %r10
        pop     %r9
        jmp     4b

1:      block_claim 2b, 7f, 9b
7:      lock incq (%rdx,%rcx) // threads share the block: whose stack is it?
        hist_find
        lock incq REC_HIST_LOST(%rdx)
        jmp     9b
        .popsection
        .size   tl_agent_record_enter, . - tl_agent_record_enter

// ---- latency: the return ------------------------------------------------------------------------

        entry   tl_agent_record_exit
        push    %rbx
        push    %r8
        push    %r9
        mov     %rdx, %rbx
        clock_read
        mov     %rax, %r8
        block_find 1f
2:      incq    (%rdx,%rcx)
        pair_home %rbx, %rax, %r9
        pair_key %rbx, %r9
        mov     tl_agent_pair_off(%rip), %rbx
        add     %rdx, %rbx
        cmp     %r9, (%rbx,%rax)
        jne     3f
4:      add     %rax, %rbx
        sub     REC_PAIR_TIME(%rbx), %r8 // read before the key is looked at again
        cmp     %r9, (%rbx)
        jne     7f // a signal handler took it meanwhile
        movq    $0, (%rbx)
        hist_find
        test    %r8, %r8
        js      5f
6:      add     %r8, (%rdx)
        mov     %r8, %rax
        not     %rax
        cmp     REC_HIST_MIN(%rdx), %rax
        ja      10f
11:     cmp     REC_HIST_MAX(%rdx), %r8
        ja      12f
13:     mov     %r8, %rax
        or      $1 << REC_HIST_SUB_BITS, %rax
        bsr     %rax, %rcx
        sub     $REC_HIST_SUB_BITS, %ecx
        cmp     $REC_HIST_EXPONENT_MAX - REC_HIST_SUB_BITS, %ecx
        ja      14f
15:     shr     %cl, %r8
        shl     $REC_HIST_SUB_BITS, %ecx
        add     %rcx, %r8
        incq    REC_HIST_BUCKET(%rdx,%r8,8)
9:      pop     %r9
        pop     %r8
        pop     %rbx
        ret

        .pushsection .text.cold, "ax"
3:      push    %r10
        mov     $REC_PAIR_STEPS, %r10d
31:     pair_next %rax
        cmp     %r9, (%rbx,%rax)
        je      32f
        dec     %r10d
        jnz     31b
        pop     %r10
7:      hist_find
        incq    REC_HIST_UNPAIRED(%rdx)
        jmp     9b
32:     pop     %r10
        jmp     4b

5:      xor     %r8d, %r8d // two processors' counters differ by less than a call takes
        jmp     6b

10:     mov     REC_HIST_MIN(%rdx), %rcx // by compare-and-swap: handlers of this thread
        cmp     %rcx, %rax
        jbe     11b
        mov     %rax, %rbx
        mov     %rcx, %rax
        cmpxchg %rbx, REC_HIST_MIN(%rdx)
        mov     %rbx, %rax
        jne     10b
        jmp     11b

12:     mov     REC_HIST_MAX(%rdx), %rax
        cmp     %rax, %r8
        jbe     13b
        cmpxchg %r8, REC_HIST_MAX(%rdx)
        jne     12b
        jmp     13b

14:     mov     $1, %r8d // longer times are counted as the longest
        shl     $REC_HIST_EXPONENT_MAX + 1, %r8
        dec     %r8
        mov     $REC_HIST_EXPONENT_MAX - REC_HIST_SUB_BITS, %ecx
        jmp     15b

1:      block_claim 2b, 16f, 9b
16:     lock incq (%rdx,%rcx)
        hist_find
        lock incq REC_HIST_UNPAIRED(%rdx)
        jmp     9b
        .popsection
        .size   tl_agent_record_exit, . - tl_agent_record_exit

        .section .note.GNU-stack, "", @progbits

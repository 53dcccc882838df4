// The agent's entries for records: hits, events, latency pairs. Each is called in the record frame of
// emit/emit.h: w16 holds the counter's offset, x17 the stack pointer S, x30 the way back. Kept: all registers
// but x16, x17 and flags; vector registers are not touched.
//
// Does not claim blocks: tl_agent_block does, off the straight path. No system call. A thread's own block has
// other threads' counts in it too (agent/layout.h, homes), so each change of a counter is atomic. A signal may
// land at any instruction and its handler may come here for the same probe. What stays exact under that:
//
//   counter, sum, bucket   atomic adds
//   ring                   an index is taken by compare-and-swap; the word is stored last, and releases
//   pair                   entry: key, then time. return: reads time, compares key, frees
//   minimum, maximum       atomic maximum
//
// Atomic instructions where the processor has them, else exclusive loops: an exception, which ends a loop's
// reservation, starts it again. The clock is read where the program has got to by then: without a barrier the
// processor may read it some instructions early.
// Stack below the record frame: three pairs of registers on the straight path, and two more and what
// tl_agent_block takes, off it.
#include "arch/record_layout.h"

        .arch_extension lse
        .text

.macro  entry name
        .globl  \name
        .hidden \name
        .type   \name, %function
        .p2align 5
\name:
.endm

// x\block = the thread's own block; x\tp and x\t are lost. A miss: to \miss. Where threads can't be told
// apart the table is empty.
.macro  block_find block, tp, t, miss
        mrs     x\tp, tpidr_el0
        mov     w\t, #REC_HASH & 0xffff
        movk    w\t, #REC_HASH >> 16, lsl #16
        cbz     x\tp, \miss // an unclaimed slot holds 0 too
        mul     x\block, x\tp, x\t
        ldr     x\t, tl_agent_control_addr
        lsr     x\block, x\block, #56
        add     x\block, x\t, x\block, lsl #REC_SLOT_SHIFT
        add     x\block, x\block, #REC_TABLE_OFF
        ldp     x\t, x\block, [x\block] // both at once: a fork in between would leave no block
        cmp     x\t, x\tp
        b.ne    \miss
.endm

// Behind a miss. Goes on to \own or \shared with the block in x\block (none of x0, x16, x17), or to \silent.
// tl_agent_block keeps all registers but x0, x16, x17 and x30.
.macro  block_claim block, own, shared, silent
        stp     x0, x16, [sp, #-32]!
        stp     x17, x30, [sp, #16]
        bl      tl_agent_block
        mov     x\block, x0
        ldp     x17, x30, [sp, #16]
        str     xzr, [sp, #24] // no word that points into a detour stays behind
        ldp     x0, x16, [sp], #32
        cbz     x\block, \silent
        tbz     x\block, #REC_BLOCK_SHARED_BIT, \own
        and     x\block, x\block, #~(1 << REC_BLOCK_SHARED_BIT)
        b       \shared
.endm

// [x\addr] += x\value. x\t and w\s are lost.
.macro  add_to addr, value, t, s
        ldr     w\t, tl_agent_atomics
        cbz     w\t, 91f
        stadd   x\value, [x\addr]
92:
        .pushsection .text.exclusive, "ax"
91:     ldxr    x\t, [x\addr]
        add     x\t, x\t, x\value
        stxr    w\s, x\t, [x\addr]
        cbnz    w\s, 91b
        b       92b
        .popsection
.endm

// [x\addr] += 1. The head's constant is 1 where it is not 0.
.macro  add_one addr, t, s
        ldr     w\t, tl_agent_atomics
        cbz     w\t, 91f
        stadd   x\t, [x\addr]
92:
        .pushsection .text.exclusive, "ax"
91:     ldxr    x\t, [x\addr]
        add     x\t, x\t, #1
        stxr    w\s, x\t, [x\addr]
        cbnz    w\s, 91b
        b       92b
        .popsection
.endm

// [x\addr] = the larger one, unsigned, of itself and x\value.
.macro  max_to addr, value, t, s
        ldr     w\t, tl_agent_atomics
        cbz     w\t, 91f
        stumax  x\value, [x\addr]
92:
        .pushsection .text.exclusive, "ax"
91:     ldxr    x\t, [x\addr]
        cmp     x\t, x\value
        csel    x\t, x\t, x\value, hi
        stxr    w\s, x\t, [x\addr]
        cbnz    w\s, 91b
        b       92b
        .popsection
.endm

// x\r = ticks.
.macro  clock_read r
        ldr     w\r, tl_agent_clock
        cbnz    w\r, 71f
        mrs     x\r, cntvct_el0
72:
        .pushsection .text.cold, "ax"
71:     ldr     x\r, tl_agent_data_addr
        ldr     x\r, [x\r, #REC_COARSE_OFF]
        b       72b
        .popsection
.endm

// ---- the counter only ---------------------------------------------------------------------------

        entry   tl_agent_record_hit
        stp     x9, x10, [sp, #-16]!
        block_find 9, 17, 10, 1f
2:      add     x9, x9, w16, uxtw
        add_one 9, 10, 17
4:      ldp     x9, x10, [sp], #16
        ret
        .pushsection .text.cold, "ax"
1:      block_claim 9, 2b, 2b, 4b
        .popsection
        .size   tl_agent_record_hit, . - tl_agent_record_hit

// ---- events -------------------------------------------------------------------------------------

// Takes the next index of the ring whose header is at x6: x7; x17 = its mask. x8 and x9 are lost. A full ring:
// to \full. The tail is read first, and acquires: partner of the reader's release, behind which slots are free.
.macro  ring_take full
        ldr     x17, tl_agent_ring_mask
73:     add     x8, x6, #REC_RING_TAIL
        ldar    x8, [x8]
        ldr     w9, tl_agent_atomics
        cbz     w9, 75f
        ldr     x7, [x6]
        sub     x8, x7, x8
        cmp     x8, x17
        b.hi    \full
        add     x8, x7, #1
        mov     x9, x7
        cas     x9, x8, [x6]
        cmp     x9, x7
        b.ne    73b
74:
        .pushsection .text.exclusive, "ax"
75:     ldxr    x7, [x6]
        sub     x8, x7, x8
        cmp     x8, x17
        b.hi    76f
        add     x8, x7, #1
        stxr    w9, x8, [x6]
        cbnz    w9, 73b
        b       74b
76:     clrex
        b       \full
        .popsection
.endm

// x6 = the slot with index x7, its time written; x7 is lost. Then the arguments, then ring_commit.
.macro  ring_begin
        and     x7, x7, x17
        add     x6, x6, #REC_RING_SLOTS
        add     x6, x6, x7, lsl #REC_RING_SLOT_SHIFT
        clock_read 7
        str     x7, [x6, #REC_RING_TIME]
.endm

.macro  ring_commit kind
        ldr     x7, tl_agent_tid_off
        cbz     x7, 78f
        mrs     x8, tpidr_el0
        cbz     x8, 77f
        ldr     w7, [x8, x7]
78:     sub     w16, w16, #REC_COUNTERS_OFF
        lsr     w16, w16, #3
        orr     w16, w16, #\kind << REC_RING_KIND_SHIFT
        orr     x16, x16, x7, lsl #32
        stlr    x16, [x6] // last: the slot is full. Partner: the reader's load of word
        .pushsection .text.cold, "ax"
77:     mov     x7, #0
        b       78b
        .popsection
.endm

// One kind of event: \arguments stores them into the slot at x6.
.macro  event name, kind, arguments
        entry   \name
        stp     x6, x7, [sp, #-32]!
        stp     x8, x9, [sp, #16]
        block_find 6, 17, 7, 1f
2:      add     x7, x6, w16, uxtw
        add_one 7, 8, 9
        ldr     x7, tl_agent_ring_off
        add     x6, x6, x7
        ring_take 4f
        ring_begin
        \arguments
        ring_commit \kind
4:      ldp     x8, x9, [sp, #16]
        ldp     x6, x7, [sp], #32
        ret
        .pushsection .text.cold, "ax"
1:      block_claim 6, 2b, 2b, 4b
        .popsection
        .size   \name, . - \name
.endm

// AAPCS64, "Parameter passing"; Go, "Go internal ABI specification", arm64: the same.
.macro  arguments_six
        stp     x0, x1, [x6, #REC_RING_ARG]
        stp     x2, x3, [x6, #REC_RING_ARG + 16]
        stp     x4, x5, [x6, #REC_RING_ARG + 32]
.endm

.macro  arguments_return
        str     x0, [x6, #REC_RING_ARG]
.endm

        event   tl_agent_record_event, REC_RING_ENTRY, arguments_six
        .globl  tl_agent_record_go_event
        .hidden tl_agent_record_go_event
        .set    tl_agent_record_go_event, tl_agent_record_event
        event   tl_agent_record_return, REC_RING_RETURN, arguments_return

// ---- latency: the entry -------------------------------------------------------------------------

// x\offset = byte offset of S's home among the pairs; x\t is lost.
.macro  pair_home offset, t
        lsr     x\offset, x17, #REC_PAIR_WRAP_SHIFT
        add     x\offset, x\offset, x\offset, lsl #1
        ldr     x\t, tl_agent_pair_mask
        add     x\offset, x\offset, x17, lsr #3
        and     x\offset, x\offset, x\t
        lsl     x\offset, x\offset, #REC_PAIR_SHIFT
.endm

// x\key = S ^ (probe + 1) << 48, from the counter's offset (64 + 8 * probe).
.macro  pair_key key
        sub     w\key, w16, #REC_COUNTERS_OFF - 8
        eor     x\key, x17, x\key, lsl #REC_PAIR_PROBE_SHIFT - 3
.endm

// w16 = the counter's offset again, from S and a key.
.macro  counter_again key
        eor     x16, x17, x\key
        lsr     x16, x16, #REC_PAIR_PROBE_SHIFT - 3
        add     w16, w16, #REC_COUNTERS_OFF - 8
.endm

// Goes on to the next pair in memory; the offset wraps. x\t is lost.
.macro  pair_next offset, t
        ldr     x\t, tl_agent_pair_mask
        add     x\offset, x\offset, #1 << REC_PAIR_SHIFT
        and     x\offset, x\offset, x\t, lsl #REC_PAIR_SHIFT
.endm

// x\block = the probe's histogram in it. x\t and w16 are lost.
.macro  hist_find block, t
        ldr     x\t, tl_agent_hist_off
        add     x\block, x\block, x\t
        sub     w16, w16, #REC_COUNTERS_OFF
        mov     w\t, #REC_HIST_PER_COUNTER
        madd    x\block, x16, x\t, x\block
.endm

// Adds 1 to a field of the probe's histogram, with the block in x6. x6, x7, x8 and w16 are lost.
.macro  hist_count field
        hist_find 6, 7
        add     x6, x6, #\field
        add_one 6, 7, 8
.endm

        entry   tl_agent_record_enter
        stp     x6, x7, [sp, #-48]!
        stp     x8, x9, [sp, #16]
        stp     x10, x11, [sp, #32]
        block_find 6, 7, 8, 1f
2:      add     x7, x6, w16, uxtw
        add_one 7, 8, 9
        pair_home 7, 8
        pair_key 9
        ldr     x8, tl_agent_pair_off
        add     x8, x6, x8
        ldr     x10, [x8, x7]
        cbnz    x10, 3f
4:      add     x8, x8, x7
        str     x9, [x8]
        clock_read 7
        str     x7, [x8, #REC_PAIR_TIME]
9:      ldp     x10, x11, [sp, #32]
        ldp     x8, x9, [sp, #16]
        ldp     x6, x7, [sp], #48
        ret

        // The home is taken, by this frame's predecessor or by another frame.
        .pushsection .text.cold, "ax"
3:      mov     w11, #REC_PAIR_STEPS + 1
5:      ldr     x10, [x8, x7]
        cbz     x10, 4b
        // A pair at S, or at most as many words below: of a frame that is gone, since only this one and
        // deeper ones lie there. The low 48 bits of a key are those of its stack pointer.
        cmp     x10, x9
        b.eq    4b
        sub     x10, x9, x10
        ubfx    x10, x10, #0, #REC_PAIR_PROBE_SHIFT
        cmp     x10, #8 * REC_PAIR_STEPS
        b.ls    4b
        pair_next 7, 10
        subs    w11, w11, #1
        b.ne    5b
6:      hist_count REC_HIST_LOST
        b       9b

1:      block_claim 6, 2b, 7f, 9b
7:      add     x7, x6, w16, uxtw // threads share the block: whose stack is it?
        add_one 7, 8, 9
        b       6b
        .popsection
        .size   tl_agent_record_enter, . - tl_agent_record_enter

// ---- latency: the return ------------------------------------------------------------------------

        entry   tl_agent_record_exit
        stp     x6, x7, [sp, #-48]!
        stp     x8, x9, [sp, #16]
        stp     x10, x11, [sp, #32]
        clock_read 8
        block_find 6, 7, 9, 1f
2:      add     x7, x6, w16, uxtw
        add_one 7, 9, 10
        pair_home 7, 9
        pair_key 9
        ldr     x10, tl_agent_pair_off
        add     x10, x6, x10
        ldr     x11, [x10, x7]
        cmp     x11, x9
        b.ne    3f
4:      add     x10, x10, x7
        ldr     x11, [x10, #REC_PAIR_TIME] // before the key is looked at again
        ldr     x7, [x10]
        cmp     x7, x9
        b.ne    7f // a signal handler took it meanwhile
        str     xzr, [x10]
        sub     x8, x8, x11
        hist_find 6, 7
        tbnz    x8, #63, 5f
6:      add_to  6, 8, 7, 9
        mvn     x7, x8
        ldr     x9, [x6, #REC_HIST_MIN]
        cmp     x7, x9
        b.hi    10f
11:     ldr     x9, [x6, #REC_HIST_MAX]
        cmp     x8, x9
        b.hi    12f
13:     orr     x7, x8, #1 << REC_HIST_SUB_BITS
        clz     x7, x7
        mov     w9, #63 - REC_HIST_SUB_BITS
        sub     w7, w9, w7 // the highest bit's index, less SUB_BITS
        cmp     w7, #REC_HIST_EXPONENT_MAX - REC_HIST_SUB_BITS
        b.hi    14f
15:     lsr     x8, x8, x7
        add     x8, x8, x7, lsl #REC_HIST_SUB_BITS
        add     x6, x6, #REC_HIST_BUCKET
        add     x6, x6, x8, lsl #3
        add_one 6, 7, 9
9:      ldp     x10, x11, [sp, #32]
        ldp     x8, x9, [sp, #16]
        ldp     x6, x7, [sp], #48
        ret

        .pushsection .text.cold, "ax"
3:      mov     w11, #REC_PAIR_STEPS
31:     pair_next 7, 16
        ldr     x16, [x10, x7]
        cmp     x16, x9
        b.eq    32f
        subs    w11, w11, #1
        b.ne    31b
        counter_again 9
7:      hist_count REC_HIST_UNPAIRED
        b       9b
32:     counter_again 9
        b       4b

5:      mov     x8, #0 // two processors' counters differ by less than a call takes
        b       6b

10:     add     x10, x6, #REC_HIST_MIN
        max_to  10, 7, 9, 11
        b       11b

12:     add     x10, x6, #REC_HIST_MAX
        max_to  10, 8, 9, 11
        b       13b

14:     mov     x8, #(1 << (REC_HIST_EXPONENT_MAX + 1)) - 1 // longer times are counted as the longest
        mov     w7, #REC_HIST_EXPONENT_MAX - REC_HIST_SUB_BITS
        b       15b

1:      block_claim 6, 2b, 16f, 9b
16:     add     x7, x6, w16, uxtw
        add_one 7, 8, 9
        b       7b
        .popsection
        .size   tl_agent_record_exit, . - tl_agent_record_exit

        .section .note.GNU-stack, "", %progbits

// The agent's entries for records: hits, events, latency pairs. Each is called in the record frame of
// emit/emit.h: t0 holds the counter's offset, t1 the stack pointer S, ra the way back. Kept: all registers
// but t0, t1 and ra; neither floating-point nor vector registers are touched.
//
// Does not claim blocks: tl_agent_block does, off the straight path. No system call. A thread's own block has
// other threads' counts in it too (agent/layout.h, homes), so each change of a counter is atomic. A signal may
// land at any instruction and its handler may come here for the same probe. What stays exact under that:
//
//   counter, sum, bucket   atomic adds
//   ring                   an index is taken by load-reserved and store-conditional, which a signal in between
//                          makes fail; the word is stored last, behind a fence
//   pair                   entry: key, then time. return: reads time, compares key, frees
//   minimum, maximum       atomic maximum
//
// Stack below the record frame: six words on the straight path, and four more and what tl_agent_block takes, off it.
#include "arch/record_layout.h"

        .text

.macro  entry name
        .globl  \name
        .hidden \name
        .type   \name, %function
        .p2align 5
\name:
.endm

// \block = the thread's own block; \t is lost. A miss: to \miss. Where threads can't be told apart the table is
// empty. A signal handler that forked between the two loads leaves the child no block.
.macro  block_find block, t, miss
        li      \t, REC_HASH
        beqz    tp, \miss // an unclaimed slot holds 0 too
        mul     \block, tp, \t
        ld      \t, tl_agent_control_addr
        srli    \block, \block, 56
        slli    \block, \block, REC_SLOT_SHIFT
        add     \block, \block, \t
        li      \t, REC_TABLE_OFF
        add     \block, \block, \t
        ld      \t, 0(\block)
        bne     \t, tp, \miss
        ld      \block, 8(\block)
        beqz    \block, \miss
.endm

// Behind a miss. Goes on to \own or \shared with the block in \block, or to \silent; \t is lost. tl_agent_block
// keeps all registers but a0, t0, t1 and ra.
.macro  block_claim block, t, own, shared, silent
        addi    sp, sp, -32
        sd      a0, 0(sp)
        sd      t0, 8(sp)
        sd      t1, 16(sp)
        sd      ra, 24(sp)
        jal     tl_agent_block
        mv      \block, a0
        ld      ra, 24(sp)
        sd      zero, 24(sp) // no word that points into a detour stays behind
        ld      t1, 16(sp)
        ld      t0, 8(sp)
        ld      a0, 0(sp)
        addi    sp, sp, 32
        beqz    \block, \silent
        andi    \t, \block, 1 << REC_BLOCK_SHARED_BIT
        beqz    \t, \own
        andi    \block, \block, ~(1 << REC_BLOCK_SHARED_BIT)
        j       \shared
.endm

// [\addr] += 1.
.macro  add_one addr, t
        li      \t, 1
        amoadd.d zero, \t, (\addr)
.endm

// \r = ticks.
.macro  clock_read r
        lw      \r, tl_agent_clock
        bnez    \r, 71f
        rdtime  \r
72:
        .pushsection .text, 1
71:     ld      \r, tl_agent_data_addr
        ld      \r, REC_COARSE_OFF(\r)
        j       72b
        .popsection
.endm

// The registers that a record works with; the word at 40 is free.
.macro  work_begin
        addi    sp, sp, -48
        sd      t2, 0(sp)
        sd      t3, 8(sp)
        sd      t4, 16(sp)
        sd      t5, 24(sp)
        sd      t6, 32(sp)
.endm
.macro  work_end
        ld      t6, 32(sp)
        ld      t5, 24(sp)
        ld      t4, 16(sp)
        ld      t3, 8(sp)
        ld      t2, 0(sp)
        addi    sp, sp, 48
        ret
.endm

// ---- the counter only ---------------------------------------------------------------------------

        entry   tl_agent_record_hit
        addi    sp, sp, -16
        sd      t2, 0(sp)
        block_find t2, t1, 1f
2:      add     t2, t2, t0
        add_one t2, t1
4:      ld      t2, 0(sp)
        addi    sp, sp, 16
        ret
        .pushsection .text, 1
1:      block_claim t2, t1, 2b, 2b, 4b
        .popsection
        .size   tl_agent_record_hit, . - tl_agent_record_hit

// ---- events -------------------------------------------------------------------------------------

// Takes the next index of the ring whose header is at t2: t3; t1 = its mask. t4 and t5 are lost. A full ring:
// to \full. The tail is read first, and acquires: partner of the reader's release, behind which slots are free.
.macro  ring_take full
        ld      t4, REC_RING_TAIL(t2)
        ld      t1, tl_agent_ring_mask
        fence   r, rw
73:     lr.d    t3, (t2)
        sub     t5, t3, t4
        bgtu    t5, t1, \full
        addi    t5, t3, 1
        sc.d    t5, t5, (t2)
        bnez    t5, 73b
.endm

// t2 = the slot with index t3, its time written; t3 is lost. Then the arguments, then ring_commit.
.macro  ring_begin
        and     t3, t3, t1
        slli    t3, t3, REC_RING_SLOT_SHIFT
        add     t2, t2, t3
        addi    t2, t2, REC_RING_SLOTS
        clock_read t3
        sd      t3, REC_RING_TIME(t2)
.endm

.macro  ring_commit kind
        ld      t3, tl_agent_tid_off
        beqz    t3, 78f
        beqz    tp, 77f
        add     t3, t3, tp
        lw      t3, 0(t3)
        slli    t3, t3, 32
78:     addi    t0, t0, -REC_COUNTERS_OFF
        srli    t0, t0, 3
        li      t4, \kind << REC_RING_KIND_SHIFT
        or      t0, t0, t4
        or      t0, t0, t3
        fence   rw, w
        sd      t0, 0(t2) // last: the slot is full. Partner: the reader's load of word
        .pushsection .text, 1
77:     mv      t3, zero
        j       78b
        .popsection
.endm

// One kind of event: \arguments stores them into the slot at t2.
.macro  event name, kind, arguments
        entry   \name
        work_begin
        block_find t2, t3, 1f
2:      add     t3, t2, t0
        add_one t3, t4
        ld      t3, tl_agent_ring_off
        add     t2, t2, t3
        ring_take 4f
        ring_begin
        \arguments
        ring_commit \kind
4:      work_end
        .pushsection .text, 1
1:      block_claim t2, t3, 2b, 2b, 4b
        .popsection
        .size   \name, . - \name
.endm

// RISC-V ELF psABI, "Integer Calling Convention"; Go, "Go internal ABI specification", riscv64: the first six are
// the same.
.macro  arguments_six
        sd      a0, REC_RING_ARG(t2)
        sd      a1, REC_RING_ARG + 8(t2)
        sd      a2, REC_RING_ARG + 16(t2)
        sd      a3, REC_RING_ARG + 24(t2)
        sd      a4, REC_RING_ARG + 32(t2)
        sd      a5, REC_RING_ARG + 40(t2)
.endm

.macro  arguments_return
        sd      a0, REC_RING_ARG(t2)
.endm

        event   tl_agent_record_event, REC_RING_ENTRY, arguments_six
        .globl  tl_agent_record_go_event
        .hidden tl_agent_record_go_event
        .set    tl_agent_record_go_event, tl_agent_record_event
        event   tl_agent_record_return, REC_RING_RETURN, arguments_return

// ---- latency: the entry -------------------------------------------------------------------------

// \offset = byte offset of S's home among the pairs; \t is lost.
.macro  pair_home offset, t
        srli    \offset, t1, REC_PAIR_WRAP_SHIFT
        slli    \t, \offset, 1
        add     \offset, \offset, \t
        srli    \t, t1, 3
        add     \offset, \offset, \t
        ld      \t, tl_agent_pair_mask
        and     \offset, \offset, \t
        slli    \offset, \offset, REC_PAIR_SHIFT
.endm

// \key = S ^ (probe + 1) << 48, from the counter's offset (64 + 8 * probe).
.macro  pair_key key
        addi    \key, t0, -(REC_COUNTERS_OFF - 8)
        slli    \key, \key, REC_PAIR_PROBE_SHIFT - 3
        xor     \key, \key, t1
.endm

// \offset goes on to the next pair in memory; it wraps. \t is lost.
.macro  pair_next offset, t
        ld      \t, tl_agent_pair_mask
        slli    \t, \t, REC_PAIR_SHIFT
        addi    \offset, \offset, 1 << REC_PAIR_SHIFT
        and     \offset, \offset, \t
.endm

// \block = the probe's histogram in it. \t and t0 are lost.
.macro  hist_find block, t
        ld      \t, tl_agent_hist_off
        add     \block, \block, \t
        addi    t0, t0, -REC_COUNTERS_OFF
        li      \t, REC_HIST_PER_COUNTER
        mul     t0, t0, \t
        add     \block, \block, t0
.endm

// Adds 1 to a field of the probe's histogram, with the block in t2. t2, t3 and t0 are lost.
.macro  hist_count field
        hist_find t2, t3
        addi    t2, t2, \field
        add_one t2, t3
.endm

        entry   tl_agent_record_enter
        work_begin
        block_find t2, t3, 1f
2:      add     t3, t2, t0
        add_one t3, t4
        pair_home t3, t4
        pair_key t5
        ld      t4, tl_agent_pair_off
        add     t4, t4, t2
        add     t6, t4, t3
        ld      t6, 0(t6)
        bnez    t6, 3f
4:      add     t4, t4, t3
        sd      t5, 0(t4)
        clock_read t3
        sd      t3, REC_PAIR_TIME(t4)
9:      work_end

        // The home is taken, by this frame's predecessor or by another frame. S is in the key.
        .pushsection .text, 1
3:      li      t1, REC_PAIR_STEPS + 1
5:      add     t6, t4, t3
        ld      t6, 0(t6)
        beqz    t6, 4b
        // A pair at S, or at most as many words below: of a frame that is gone, since only this one and
        // deeper ones lie there. The low 48 bits of a key are those of its stack pointer.
        beq     t6, t5, 4b
        sub     t6, t5, t6
        slli    t6, t6, 64 - REC_PAIR_PROBE_SHIFT
        srli    t6, t6, 64 - REC_PAIR_PROBE_SHIFT
        addi    t6, t6, -8 * REC_PAIR_STEPS - 1
        bltz    t6, 4b
        pair_next t3, t6
        addi    t1, t1, -1
        bnez    t1, 5b
6:      hist_count REC_HIST_LOST
        j       9b

1:      block_claim t2, t3, 2b, 7f, 9b
7:      add     t3, t2, t0 // threads share the block: whose stack is it?
        add_one t3, t4
        j       6b
        .popsection
        .size   tl_agent_record_enter, . - tl_agent_record_enter

// ---- latency: the return ------------------------------------------------------------------------

// \e += \bits where \x has a bit of that or a higher number, and \x is shifted down by as many. \t is lost.
.macro  halve e, x, bits, t
        srli    \t, \x, \bits
        beqz    \t, 79f
        mv      \x, \t
        addi    \e, \e, \bits
79:
.endm

        entry   tl_agent_record_exit
        work_begin
        clock_read t4
        block_find t2, t3, 1f
2:      add     t3, t2, t0
        add_one t3, t5
        pair_home t3, t5
        pair_key t5
        ld      t6, tl_agent_pair_off
        add     t6, t6, t2
        add     t1, t6, t3
        ld      t1, 0(t1)
        bne     t1, t5, 3f
4:      add     t6, t6, t3
        ld      t3, REC_PAIR_TIME(t6) // before the key is looked at again
        ld      t1, 0(t6)
        bne     t1, t5, 7f // a signal handler took it meanwhile
        sd      zero, 0(t6)
        sub     t4, t4, t3
        hist_find t2, t3
        bltz    t4, 5f
6:      amoadd.d zero, t4, (t2) // the sum
        not     t3, t4
        ld      t5, REC_HIST_MIN(t2)
        bgtu    t3, t5, 10f
11:     ld      t5, REC_HIST_MAX(t2)
        bgtu    t4, t5, 12f
        // t3 = the highest bit's index, less SUB_BITS
13:     srli    t5, t4, REC_HIST_SUB_BITS
        li      t3, 0
        beqz    t5, 15f
        halve   t3, t5, 32, t6
        halve   t3, t5, 16, t6
        halve   t3, t5, 8, t6
        halve   t3, t5, 4, t6
        halve   t3, t5, 2, t6
        halve   t3, t5, 1, t6
        li      t5, REC_HIST_EXPONENT_MAX - REC_HIST_SUB_BITS
        bgtu    t3, t5, 14f
15:     srl     t4, t4, t3
        slli    t3, t3, REC_HIST_SUB_BITS
        add     t4, t4, t3
        slli    t4, t4, 3
        add     t2, t2, t4
        addi    t2, t2, REC_HIST_BUCKET
        add_one t2, t3
9:      work_end

        .pushsection .text, 1
3:      sd      t0, 40(sp)
        li      t1, REC_PAIR_STEPS
31:     pair_next t3, t0
        add     t0, t6, t3
        ld      t0, 0(t0)
        beq     t0, t5, 32f
        addi    t1, t1, -1
        bnez    t1, 31b
        ld      t0, 40(sp)
7:      hist_count REC_HIST_UNPAIRED
        j       9b
32:     ld      t0, 40(sp)
        j       4b

5:      mv      t4, zero // two processors' counters differ by less than a call takes
        j       6b

10:     addi    t5, t2, REC_HIST_MIN
        amomaxu.d zero, t3, (t5)
        j       11b

12:     addi    t5, t2, REC_HIST_MAX
        amomaxu.d zero, t4, (t5)
        j       13b

14:     li      t4, (1 << (REC_HIST_EXPONENT_MAX + 1)) - 1 // longer times are counted as the longest
        mv      t3, t5
        j       15b

1:      block_claim t2, t3, 2b, 16f, 9b
16:     add     t3, t2, t0
        add_one t3, t5
        j       7b
        .popsection
        .size   tl_agent_record_exit, . - tl_agent_record_exit

        .section .note.GNU-stack, "", %progbits

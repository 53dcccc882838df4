// What record_entry.S knows of agent/layout.h; src/agent/record.c compares. Also read by the assembler.
#ifndef TL_ARCH_RECORD_LAYOUT_H
#define TL_ARCH_RECORD_LAYOUT_H

#define REC_TP_FS_WORD 1 // enum tl_thread_pointer
#define REC_HASH 0x61c88647
#define REC_TABLE_OFF 4096 // of the thread table, from the control page
#define REC_HOMES_OFF 8192 // of the homes
#define REC_SHARED_BLOCK 16 // of the shared block's address in it
#define REC_THREAD_SLOTS_SHIFT 8 // a process's own blocks lie below its shared one
#define REC_SLOT_SHIFT 4
#define REC_BLOCK_SHARED_BIT 0
#define REC_COUNTERS_OFF 64 // TL_BLOCK_HEADER_SIZE
#define REC_COARSE_OFF 32   // tl_data_header.coarse_ns

#define REC_RING_TAIL 64
#define REC_RING_SLOTS 128 // sizeof(struct tl_ring_header)
#define REC_RING_SLOT_SHIFT 6
#define REC_RING_TIME 8
#define REC_RING_ARG 16
#define REC_RING_KIND_SHIFT 24
#define REC_RING_ENTRY 1
#define REC_RING_RETURN 2

#define REC_PAIR_TIME 8
#define REC_PAIR_SHIFT 4
#define REC_PAIR_STEPS 8
#define REC_PAIR_WRAP_SHIFT 18 // TL_PAIR_WRAP_STEP is 3
#define REC_PAIR_PROBE_SHIFT 48

#define REC_HIST_PER_COUNTER 1320 // sizeof(struct tl_hist) / 8
#define REC_HIST_MIN 8
#define REC_HIST_MAX 16
#define REC_HIST_UNPAIRED 24
#define REC_HIST_LOST 32
#define REC_HIST_BUCKET 64
#define REC_HIST_SUB_BITS 5
#define REC_HIST_EXPONENT_MAX 44

#endif

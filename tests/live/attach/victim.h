// What the parts of the victim share, and what tests know of it.
#ifndef TL_TESTS_LIVE_VICTIM_H
#define TL_TESTS_LIVE_VICTIM_H

#define VICTIM_CALLS 200000 // of each function by each thread, in mode "exact"

void victim_ready(void);
void victim_wait(void);
void victim_check(void); // calls the probed functions once, checks results

int victim_calls(void);
int victim_filter(int killing);
int victim_sequence(void); // ends with status 77 where libc registers no rseq area

#endif
